//! What happened to a run. The log of these is the truth; everything else follows from it (R1).
//!
//! Invariant: the stored form of version 1 (`Stored`) is frozen when it ships; [`Event::decode`] is the only
//! way in, and refuses a newer version instead of guessing (R2). Not here: what a log means (`run`).

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::availability::{SkillInForce, ToolRequest};
use crate::decision::Decided;
use crate::detail::Detail;
use crate::limits::{Limit, RunLimits};
use crate::message::{InputMessage, Reply, Usage};
use crate::name::{AgentName, CallId, ModelRef, PendingId, RunId, Subject};
use crate::pending::{Closing, Pending};
use crate::policy::Gate;
use crate::result::CallResult;
use crate::tool::Effect;

/// The version that is written.
pub const EVENT_VERSION: u32 = 1;

/// One entry of a run's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its place, gapless from 0.
    pub seq: u64,
    /// When it was stored.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The run exists.
    #[serde(rename = "run.created")]
    RunCreated(Box<Created>),
    /// A gate closed a tool at the start, or refused a call at dispatch; or only observed it.
    #[serde(rename = "gate.denied")]
    GateDenied(GateDenied),
    /// Somebody takes the run up, and its working time goes on. Only in a run that has a budget of it (L5).
    #[serde(rename = "work.began")]
    WorkBegan(WorkBegan),
    /// The oldest parts of the conversation are left out of the requests from here on (L6).
    #[serde(rename = "context.fitted")]
    ContextFitted(ContextFitted),
    /// A model answered.
    #[serde(rename = "model.replied")]
    ModelReplied(Box<ModelReplied>),
    /// A provider gave no usable answer in all its attempts.
    #[serde(rename = "model.failed")]
    ModelFailed(ModelFailed),
    /// A person is asked.
    #[serde(rename = "pending.opened")]
    PendingOpened(Box<Pending>),
    /// A person decided.
    #[serde(rename = "pending.decided")]
    PendingDecided(Box<PendingDecided>),
    /// A decision was refused (A9).
    #[serde(rename = "pending.refused")]
    PendingRefused(PendingRefused),
    /// A person changed arguments: the open pending is superseded by this one (A14).
    #[serde(rename = "pending.edited")]
    PendingEdited(Box<Pending>),
    /// A question ended without a decision.
    #[serde(rename = "pending.closed")]
    PendingClosed(PendingClosed),
    /// A call is about to be made: the intent, stored before the effect (R3).
    #[serde(rename = "call.started")]
    CallStarted(CallStarted),
    /// A call has its result.
    #[serde(rename = "call.finished")]
    CallFinished(Box<CallFinished>),
    /// A write was started and nobody knows how it ended.
    #[serde(rename = "call.unknown")]
    CallUnknown(CallUnknown),
    /// A limit was reached (L10).
    #[serde(rename = "limit.reached")]
    LimitReached(LimitReached),
    /// Somebody wants the run to stop for good.
    #[serde(rename = "cancel.requested")]
    CancelRequested(CancelRequested),
    /// The run ended with an answer, or at a limit.
    #[serde(rename = "run.completed")]
    RunCompleted(RunCompleted),
    /// The run ended without.
    #[serde(rename = "run.failed")]
    RunFailed(RunFailed),
    /// The run was cancelled.
    #[serde(rename = "run.cancelled")]
    RunCancelled(RunCancelled),
}

/// How a run starts. Resuming restores all of it and assembles nothing again (R7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct Created {
    pub agent: AgentName,
    /// Under whose identity everything is executed (A13).
    pub owner: Subject,
    /// Who started it; not the owner when started on the owner's behalf.
    pub starter: Subject,
    pub unattended: bool,
    pub tools: ToolRequest,
    /// The chain: the first serves, the rest are fallbacks.
    pub models: Vec<ModelRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    pub input: Vec<InputMessage>,
    pub limits: RunLimits,
    /// How long a question stays open, in seconds; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_ttl_s: Option<u64>,
    /// Whether four eyes were asked for when the run started (A8).
    pub second_approver: bool,
    /// The run whose conversation this one goes on with: a reference, never a copy (R10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    /// The skills in force (R7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<SkillInForce>,
    /// Where the starting of it is traced, as whoever traces it wrote it down; absent where nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct GateDenied {
    pub tool: String,
    pub reason: crate::result::Refusal,
    pub observed_only: bool,
}

impl GateDenied {
    /// A gate that only observed, or closed, a tool.
    pub fn by(tool: &str, gate: Gate, observed_only: bool) -> Self {
        Self { tool: tool.to_owned(), reason: gate.into(), observed_only }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "it has no fields")]
pub struct WorkBegan {}

/// What is left out of the conversation, and what the estimate was that decided it (L6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFitted {
    /// How many parts are left out by now, the oldest that may be: messages, and turns with their results.
    pub left_out: u64,
    /// How many are still sent.
    pub kept: u64,
    /// The number of the oldest turn of this run that is still sent; absent while none of its turns is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_turn: Option<u32>,
    /// What the request was estimated at, without what is left out.
    pub estimated_tokens: u64,
    /// The window of the agent.
    pub window_tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct ModelReplied {
    pub reply: Arc<Reply>,
    /// The one completion after the cap of iterations, whose calls are dropped (L1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
}

/// Why a provider gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFailCode {
    /// No answer: not reached, broken off, too slow.
    Unreachable,
    /// It said "too many requests" to the end.
    RateLimited,
    /// It failed by itself.
    ServerError,
    /// It refused the request; the same request is not sent twice.
    Refused,
    /// It refused our credential.
    Unauthorized,
    /// Its answer is not in its own format.
    Unreadable,
    /// It had not answered when the working time of the run was used up (L5).
    OutOfTime,
}

impl ModelFailCode {
    /// The word for events and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "model_unreachable",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "model_server_error",
            Self::Refused => "model_refused",
            Self::Unauthorized => "model_unauthorized",
            Self::Unreadable => "model_unreadable",
            Self::OutOfTime => "out_of_time",
        }
    }

    /// The sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Unreachable => "the model's server could not be reached or broke off",
            Self::RateLimited => {
                "the model's server kept answering that there are too many requests (rate limit)"
            }
            Self::ServerError => "the model's server kept failing",
            Self::Refused => "the model's server refused the request",
            Self::Unauthorized => "the model's server refused the credential",
            Self::Unreadable => "the model's server gave an answer that is not in its own format",
            Self::OutOfTime => {
                "the model's server had not answered when the working time of the run was used up"
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct ModelFailed {
    pub model: ModelRef,
    pub code: ModelFailCode,
    /// The last attempt's HTTP status, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub attempts: u32,
    /// What the failed attempts cost, as far as it is known.
    pub usage: Usage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct PendingDecided {
    pub pending: PendingId,
    pub decided: Decided,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct PendingRefused {
    pub pending: PendingId,
    pub by: Subject,
    pub code: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct PendingClosed {
    pub pending: PendingId,
    pub status: Closing,
    /// Who withdrew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Subject>,
}

/// The stored "allowed": what a call starts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clearance {
    /// The gate lets it pass, and it needs nobody.
    NotNeeded,
    /// The gate lets it pass, and a person approved it here. Starting uses the approval up.
    Approved(PendingId),
    /// The gate lets it pass, and a person supplied its input here.
    Answered(PendingId),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct CallStarted {
    pub call: CallId,
    pub tool: String,
    pub effect: Effect,
    pub clearance: Clearance,
    /// From 1; more than 1 when a worker was lost while the call ran.
    pub attempt: u32,
    /// How many workers this run has lost in the middle of a call (R3).
    #[serde(default)]
    pub interruption: u32,
    /// When the call itself gives up waiting.
    pub deadline: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct CallFinished {
    pub call: CallId,
    pub tool: String,
    pub result: Arc<CallResult>,
    /// What is known of a failure beside what the model was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

impl CallFinished {
    /// A result that nothing more is known of.
    pub fn new(call: CallId, tool: String, result: CallResult) -> Self {
        Self { call, tool, result: Arc::new(result), detail: None }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct CallUnknown {
    pub call: CallId,
    pub tool: String,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct LimitReached {
    pub which: Limit,
    /// Where the context window is the limit: what the shortest request there could be is estimated at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
}

impl LimitReached {
    /// A limit that the log alone shows.
    pub fn of(which: Limit) -> Self {
        Self { which, estimated_tokens: None }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct CancelRequested {
    pub by: Subject,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct RunCompleted {
    /// The limit that ended it; absent when the model was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailCode {
    /// No model of the chain gave an answer.
    Model(ModelFailCode),
    /// Nobody knows whether a write happened, and nobody will say (R11, U3).
    OutcomeUnknown,
    /// Its calls took their workers with them (R3).
    Poisoned,
    /// The agent or its model is no longer configured.
    AgentGone,
}

impl FailCode {
    /// The contract's error code.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model(code) => code.as_str(),
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Poisoned => "poisoned",
            Self::AgentGone => "agent_gone",
        }
    }

    /// The sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Model(code) => code.sentence(),
            Self::OutcomeUnknown => "it is not known whether a started write happened",
            Self::Poisoned => "the run's calls ended their worker too often",
            Self::AgentGone => "the agent or its model is no longer configured",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct RunFailed {
    pub code: FailCode,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct RunCancelled {
    pub by: Subject,
}

/// Whether a commit waits for the disk (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Survives a killed process: replies, reads.
    Process,
    /// Survives a power cut: whatever promises something to the world.
    Disk,
}

impl Event {
    /// The contract's word, which is stored in clear (S3).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunCreated(_) => "run.created",
            Self::GateDenied(_) => "gate.denied",
            Self::WorkBegan(_) => "work.began",
            Self::ContextFitted(_) => "context.fitted",
            Self::ModelReplied(_) => "model.replied",
            Self::ModelFailed(_) => "model.failed",
            Self::PendingOpened(_) => "pending.opened",
            Self::PendingDecided(_) => "pending.decided",
            Self::PendingRefused(_) => "pending.refused",
            Self::PendingEdited(_) => "pending.edited",
            Self::PendingClosed(_) => "pending.closed",
            Self::CallStarted(_) => "call.started",
            Self::CallFinished(_) => "call.finished",
            Self::CallUnknown(_) => "call.unknown",
            Self::LimitReached(_) => "limit.reached",
            Self::CancelRequested(_) => "cancel.requested",
            Self::RunCompleted(_) => "run.completed",
            Self::RunFailed(_) => "run.failed",
            Self::RunCancelled(_) => "run.cancelled",
        }
    }

    /// Whether storing it promises something to the world (R3). The result of a write is told apart by the
    /// run, which knows what was started.
    pub fn durability(&self) -> Durability {
        match self {
            Self::GateDenied(_)
            | Self::WorkBegan(_)
            | Self::ContextFitted(_)
            | Self::ModelReplied(_)
            | Self::ModelFailed(_)
            | Self::LimitReached(_)
            | Self::CallFinished(_) => Durability::Process,
            Self::CallStarted(started) if !started.effect.writes() => Durability::Process,
            Self::RunCreated(_)
            | Self::PendingOpened(_)
            | Self::PendingDecided(_)
            | Self::PendingRefused(_)
            | Self::PendingEdited(_)
            | Self::PendingClosed(_)
            | Self::CallStarted(_)
            | Self::CallUnknown(_)
            | Self::CancelRequested(_)
            | Self::RunCompleted(_)
            | Self::RunFailed(_)
            | Self::RunCancelled(_) => Durability::Disk,
        }
    }

    /// The stored text, with its version.
    ///
    /// # Errors
    /// [`serde_json::Error`] only if a value cannot be JSON, which none of the types can hold.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        struct Stored<'a> {
            v: u32,
            e: &'a Event,
        }
        serde_json::to_vec(&Stored { v: EVENT_VERSION, e: self })
    }

    /// Reads a stored text.
    ///
    /// # Errors
    /// [`UnreadableEvent`]: of a newer version, or not an event. The stored text stays as it is (R2).
    pub fn decode(stored: &[u8]) -> Result<Self, UnreadableEvent> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stored {
            #[serde(rename = "v")]
            _v: u32,
            e: Event,
        }
        match serde_json::from_slice(stored) {
            Ok(Version { v: EVENT_VERSION }) => {
                let Stored { e, .. } = serde_json::from_slice(stored).map_err(UnreadableEvent::Malformed)?;
                Ok(e)
            }
            Ok(Version { v }) => Err(UnreadableEvent::OtherVersion { found: v }),
            Err(error) => Err(UnreadableEvent::Malformed(error)),
        }
    }
}

/// Why a stored event cannot be read. It is kept as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableEvent {
    /// Written by a newer countersign.
    #[error(
        "written in version {found} of the format, by a newer countersign; this one reads {EVENT_VERSION}"
    )]
    OtherVersion {
        /// The version found.
        found: u32,
    },
    /// Not an event.
    #[error("not an event")]
    Malformed(#[source] serde_json::Error),
}
