//! Chat Completions, the wire that most servers of models speak, without streaming.
//!
//! Invariant: one `ask` is one HTTP request; its body is made by `encode`, its answer read by `decode`, and
//! both are functions of what they are given. Neither the key nor anything the server says gets into an
//! error (S5). Not here: retries and fallbacks (the runtime), what the answer means (the core).

mod decode;
mod encode;
mod members;

#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use countersign::{Answer, Conversation, Message, Model, ModelError, Offer, ProviderName};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::http::{Http, NoAnswer};
use crate::secret::Secret;

/// Where a Chat Completions server is, and how to speak to it.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The provider's name in the configuration: opaque parts and ids go back only to replies under it.
    pub provider: ProviderName,
    /// The address up to the version, such as `http://127.0.0.1:9100/v1`. A query in it is kept.
    pub base_url: String,
    /// Sent as a bearer token, if there is one.
    pub api_key: Option<Secret>,
    /// How long one request may take, its whole answer included.
    pub timeout: Duration,
}

/// A Chat Completions server.
///
/// ```
/// use countersign::Model as _;
/// use countersign_clients::{OpenAi, OpenAiConfig, Secret};
///
/// let server = OpenAi::new(OpenAiConfig {
///     provider: "stub".parse()?,
///     base_url: "http://127.0.0.1:9100/v1".to_owned(),
///     api_key: Some(Secret::new("a key".to_owned())),
///     timeout: std::time::Duration::from_secs(120),
/// })?;
/// let conversation = server.converse("scripted");
/// # drop(conversation);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenAi {
    provider: ProviderName,
    url: Url,
    headers: HeaderMap,
    http: Http,
}

/// Why a configuration is no server to speak to.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Not an address, or of another scheme.
    #[error("base_url must be an http or https address")]
    BaseUrl,
    /// A user name or a password in the address.
    #[error("base_url must not hold a credential: keys come from the environment")]
    CredentialInBaseUrl,
    /// A line end or something else that no header can carry.
    #[error("the API key holds a character that no header can carry")]
    ApiKey,
    /// The HTTP client.
    #[error("the HTTP client cannot be set up")]
    Http(#[source] reqwest::Error),
}

impl OpenAi {
    /// Checks the configuration and makes the client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`SetupError`], naming what is wrong without quoting it.
    pub fn new(config: OpenAiConfig) -> Result<Self, SetupError> {
        let mut url = Url::parse(&config.base_url).map_err(|_| SetupError::BaseUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(SetupError::BaseUrl);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SetupError::CredentialInBaseUrl);
        }
        url.set_fragment(None);
        match url.path_segments_mut() {
            Ok(mut path) => _ = path.pop_if_empty().extend(["chat", "completions"]),
            Err(()) => return Err(SetupError::BaseUrl),
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = config.api_key {
            let mut bearer =
                HeaderValue::from_str(&format!("Bearer {}", key.reveal())).map_err(|_| SetupError::ApiKey)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let http = Http::new(&url, config.timeout).map_err(SetupError::Http)?;
        Ok(Self { provider: config.provider, url, headers, http })
    }

    async fn ask(&self, body: Vec<u8>) -> Result<Answer, ModelError> {
        let answer =
            self.http.post_json(self.url.clone(), self.headers.clone(), body).await.map_err(no_answer)?;
        let (status, retry_after) = (answer.status, answer.retry_after);
        match status {
            200 if answer.is_html => Err(ModelError::Unreadable { reason: "it is an HTML page".to_owned() }),
            200 => decode::decode(&answer.body().await.map_err(no_answer)?),
            401 | 403 => Err(ModelError::Unauthorized { status }),
            429 => Err(ModelError::Busy { retry_after }),
            500..=599 => Err(ModelError::ServerError { status, retry_after }),
            _ => Err(ModelError::Refused { status }),
        }
    }
}

impl Model for OpenAi {
    fn converse(&self, model: &str) -> Box<dyn Conversation> {
        Box::new(ChatCompletions {
            server: self.clone(),
            encoder: encode::Encoder::new(self.provider.clone(), model),
        })
    }
}

/// One conversation, encoded as far as it goes.
struct ChatCompletions {
    server: OpenAi,
    encoder: encode::Encoder,
}

#[async_trait]
impl Conversation for ChatCompletions {
    fn add(&mut self, message: &Message<'_>) {
        self.encoder.add(message);
    }

    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError> {
        self.server.ask(self.encoder.body(offers)).await
    }
}

fn no_answer(error: NoAnswer) -> ModelError {
    match error {
        NoAnswer::TooLarge => ModelError::Unreadable { reason: error.to_string() },
        NoAnswer::Broken(source) => ModelError::Unreachable(Box::new(source)),
    }
}
