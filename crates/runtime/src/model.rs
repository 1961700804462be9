//! The port to a model, and the only retries there are (L7).
//!
//! Invariant: retries wrap the model call and nothing else. Not here: any vendor's spelling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    Finish, Message, ModelFailCode, ModelRef, Opaque, ProviderName, ToolName, Usage, Zone,
};
use serde_json::Value;

/// At most this many attempts a provider and request (L7).
pub const ATTEMPTS_MAX: u32 = 5;

/// A tool as a model is shown it. A clone shares what is in it: every turn gets one.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// What the model calls.
    pub name: ToolName,
    /// What it is told.
    pub description: Arc<str>,
    /// JSON Schema of the arguments, as the host declared it.
    pub parameters: Arc<Value>,
}

/// A provider of models.
pub trait Model: Send + Sync {
    /// Begins a conversation with one of its models. What was added is encoded once and only appended to.
    fn converse(&self, model: &str) -> Box<dyn Conversation>;
}

/// One run's conversation with one model, as its wire wants it.
#[async_trait]
pub trait Conversation: Send + Sync {
    /// Appends the next message of the transcript.
    fn add(&mut self, message: &Message<'_>);

    /// Asks for the next reply: one attempt, no retries. The same messages and offers give the same bytes.
    /// No offers: no `tools` field on the wire (G8).
    ///
    /// # Errors
    /// [`ModelError`], which knows whether another attempt may help.
    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError>;
}

/// What a model answered, before it has our ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text, if there is one.
    pub text: Option<String>,
    /// The calls, in the model's order.
    pub calls: Vec<AnsweredCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// What it cost; absent when the answer does not say.
    pub usage: Option<Usage>,
    /// Parts of the answer that go back, byte for byte, and that we do not understand.
    pub opaque: Opaque,
}

/// One call in an answer, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredCall {
    /// The provider's id; absent when there is none that is a text.
    pub wire_id: Option<String>,
    /// The name; empty when there is none that is a text.
    pub name: String,
    /// The text of the arguments, or of the JSON value in their place; absent when there is none.
    pub arguments: Option<String>,
    /// What else is said about the call.
    pub opaque: Opaque,
}

/// Why one attempt gave no answer. No text of the provider is kept: it may repeat our credential (S5).
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// 429.
    #[error("too many requests")]
    Busy {
        /// When the provider wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// 5xx.
    #[error("the model's server failed with status {status}")]
    ServerError {
        /// The status.
        status: u16,
        /// When the provider wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// 401 or 403.
    #[error("the model's server refused the credential with status {status}")]
    Unauthorized {
        /// The status.
        status: u16,
    },
    /// Another status, redirects included. The same request would be refused again.
    #[error("the model's server refused the request with status {status}")]
    Refused {
        /// The status.
        status: u16,
    },
    /// An answer that is not in the provider's own format.
    #[error("the answer is not in the provider's own format: {reason}")]
    Unreadable {
        /// Where it is not, without quoting it.
        reason: String,
    },
    /// No answer, or a broken one.
    #[error("no answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ModelError {
    /// Whether another attempt may help (L7).
    pub fn is_worth_retrying(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::ServerError { .. } | Self::Unreadable { .. } | Self::Unreachable(_) => {
                true
            }
            Self::Unauthorized { .. } | Self::Refused { .. } => false,
        }
    }

    /// When the provider wants to be asked again, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } | Self::ServerError { retry_after, .. } => *retry_after,
            Self::Unauthorized { .. }
            | Self::Refused { .. }
            | Self::Unreadable { .. }
            | Self::Unreachable(_) => None,
        }
    }

    /// The HTTP status, if there was an answer that had one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Busy { .. } => Some(429),
            Self::ServerError { status, .. } | Self::Unauthorized { status } | Self::Refused { status } => {
                Some(*status)
            }
            Self::Unreadable { .. } | Self::Unreachable(_) => None,
        }
    }

    /// The word for the record.
    pub fn code(&self) -> ModelFailCode {
        match self {
            Self::Busy { .. } => ModelFailCode::RateLimited,
            Self::ServerError { .. } => ModelFailCode::ServerError,
            Self::Unauthorized { .. } => ModelFailCode::Unauthorized,
            Self::Refused { .. } => ModelFailCode::Refused,
            Self::Unreadable { .. } => ModelFailCode::Unreadable,
            Self::Unreachable(_) => ModelFailCode::Unreachable,
        }
    }
}

/// The providers that are configured.
#[derive(Clone, Default)]
pub struct Models(BTreeMap<ProviderName, Provider>);

/// One provider: where it stands, and how it is reached.
#[derive(Clone)]
pub struct Provider {
    /// The operator's declaration (P6).
    pub zone: Zone,
    /// The client.
    pub client: Arc<dyn Model>,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_map().entries(self.0.iter().map(|(name, provider)| (name, provider.zone))).finish()
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Provider").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Models {
    /// Adds or replaces a provider.
    #[must_use]
    pub fn with(mut self, name: ProviderName, provider: Provider) -> Self {
        self.0.insert(name, provider);
        self
    }

    /// The provider of a model, if it is configured.
    pub fn find(&self, model: &ModelRef) -> Option<&Provider> {
        self.0.get(&model.provider)
    }

    /// The zone that counts for a chain (P7).
    pub fn zone_of(&self, chain: &[ModelRef]) -> Zone {
        Zone::of_chain(chain.iter().map(|model| self.find(model).map(|provider| provider.zone)))
    }
}
