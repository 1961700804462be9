//! The port to a tool's own code.
//!
//! Invariant: only the driver calls [`Tool::call`], and a [`CallContext`] exists only for a call whose start
//! is stored. Not here: the facts (`ToolSpec`), the gate, limits on what comes back.

use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{Arguments, Artifact, CallId, RunId, Subject, ToolSpec};
use jiff::Timestamp;
use serde_json::Value;

/// How long a call may take when a tool says nothing.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// A tool: its facts and its code.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What its host declares about it. Read once, at registration.
    fn spec(&self) -> ToolSpec;

    /// How long one call may take.
    fn timeout(&self) -> Duration {
        TIMEOUT_DEFAULT
    }

    /// Does it. The arguments fit the tool's schema.
    ///
    /// # Errors
    /// [`ToolError`], which says whether the world may have changed.
    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError>;

    /// Shows what a call would do, without doing it (A7). `None`: this tool has no preview.
    async fn preview(
        &self,
        _arguments: &Arguments,
        _cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        None
    }
}

/// On whose behalf, and under which ids, a call is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallContext {
    /// The run's owner: everything is executed under this identity (A13).
    pub actor: Subject,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: CallId,
    /// The same over all attempts of this call, different for every other (R4).
    pub idempotency_key: String,
    /// What the preview returned, to see whether the world has changed since (A7).
    pub precondition: Option<Value>,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
}

impl CallContext {
    pub(crate) fn new(
        actor: Subject,
        run: RunId,
        call: CallId,
        idempotency_key: String,
        precondition: Option<Value>,
        deadline: Timestamp,
    ) -> Self {
        Self { actor, run, call, idempotency_key, precondition, deadline }
    }
}

/// On whose behalf a preview is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PreviewContext {
    /// The run's owner (A7).
    pub actor: Subject,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: CallId,
}

impl PreviewContext {
    pub(crate) fn new(actor: Subject, run: RunId, call: CallId) -> Self {
        Self { actor, run, call }
    }
}

/// What a tool answers. The content may be of any size; the runtime bounds it (L4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: String,
    /// For people; never sent to a model.
    pub artifacts: Vec<Artifact>,
}

impl From<String> for ToolOutput {
    fn from(content: String) -> Self {
        Self { content, artifacts: Vec::new() }
    }
}

impl From<&str> for ToolOutput {
    fn from(content: &str) -> Self {
        content.to_owned().into()
    }
}

/// What a call would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolPreview {
    /// Lines for people; the runtime bounds them.
    pub lines: Vec<String>,
    /// Given back to the call, to notice that the world has changed meanwhile.
    pub precondition: Option<Value>,
}

/// How a call went wrong. The difference matters for writes: only an answer proves what happened.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool answered that it could not do it; the sentence is for the model.
    #[error("{0}")]
    Answered(String),
    /// Nothing was sent, so nothing happened; the sentence is for the model.
    #[error("{0}")]
    NotSent(String),
    /// It may have happened: sent, and no answer. For a write the outcome is unknown (R3).
    #[error("the tool gave no answer")]
    NoAnswer,
}
