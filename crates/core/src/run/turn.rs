//! A turn's calls and their stages.
//!
//! Invariant: the stage says all there is to know about a call; there are no flags beside it. Not here: how a
//! stage changes (`take`).

use std::sync::Arc;

use jiff::Timestamp;

use crate::event::Clearance;
use crate::limits::Limit;
use crate::message::{ProposedCall, Reply};
use crate::name::CallId;
use crate::pending::Pending;
use crate::result::{CallResult, Refusal, ResultKind};
use crate::tool::Effect;

/// One answer with calls, and what became of them.
#[derive(Clone, Debug)]
pub struct Turn {
    pub(super) number: u32,
    pub(super) reply: Arc<Reply>,
    pub(super) stages: Vec<Stage>,
}

/// A call of a turn and its stage.
#[derive(Clone, Copy, Debug)]
pub struct CallState<'a> {
    /// As the model proposed it.
    pub call: &'a ProposedCall,
    /// Where it stands.
    pub stage: &'a Stage,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Nobody has judged it.
    Proposed,
    /// Its turn waits for a person's approval.
    Held,
    /// It waits for a person's input.
    AwaitingInput,
    /// It may go to the gate, which has the last word (A12).
    Cleared(Clearance),
    /// It will not run; its result is owed.
    Barred(Bar),
    /// It was started.
    Running(Running),
    /// It was started, and nobody knows how it ended (R3).
    Unknown {
        /// When the call itself gave up waiting.
        deadline: Timestamp,
    },
    /// It has its result, and never runs again.
    Finished(Arc<CallResult>),
}

impl Stage {
    /// The start of a write that has no result yet.
    pub(super) fn running_write(&self) -> Option<&Running> {
        match self {
            Self::Running(running) => Some(running).filter(|running| running.effect.writes()),
            Self::Proposed
            | Self::Held
            | Self::AwaitingInput
            | Self::Cleared(_)
            | Self::Barred(_)
            | Self::Unknown { .. }
            | Self::Finished(_) => None,
        }
    }

    /// What keeps it from running, while its result is owed.
    pub(super) fn bar(&self) -> Option<&Bar> {
        match self {
            Self::Barred(bar) => Some(bar),
            Self::Proposed
            | Self::Held
            | Self::AwaitingInput
            | Self::Cleared(_)
            | Self::Running(_)
            | Self::Unknown { .. }
            | Self::Finished(_) => None,
        }
    }
}

/// A started call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// What it does.
    pub effect: Effect,
    /// What it was started on.
    pub clearance: Clearance,
    /// From 1.
    pub attempt: u32,
    /// When it gives up waiting.
    pub deadline: Timestamp,
}

/// Why a call will not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bar {
    /// A person said no.
    Denied {
        /// Their reason; data for the model, nothing more.
        reason: Option<String>,
    },
    /// Nobody decided in time (A10).
    Expired,
    /// Its definition changed while the question was open (M2).
    Unavailable,
    /// Something else in its turn was denied, ran out, or has an unknown outcome (A11, R3).
    TurnEnded,
    /// A gate or a check refused it when the turn was judged.
    Refused(Refusal),
    /// A limit was reached first (L1).
    Limit(Limit),
}

impl Bar {
    pub(super) fn result(&self, tool: &str) -> CallResult {
        match self {
            Self::Denied { reason: None } => {
                CallResult::not_from_tool(ResultKind::Denied, "Not run: denied by a person.")
            }
            Self::Denied { reason: Some(reason) } => CallResult::not_from_tool(
                ResultKind::Denied,
                &format!(
                    "Not run: denied by a person. The reason they gave: {}",
                    serde_json::Value::from(reason.as_str())
                ),
            ),
            Self::Expired => CallResult::not_from_tool(
                ResultKind::Expired,
                "Not run: the time for a person to approve it has expired.",
            ),
            Self::Unavailable => CallResult {
                refusal: Some(Refusal::DefinitionChanged),
                ..CallResult::not_from_tool(
                    ResultKind::Refused,
                    "Not run: the tool is no longer available as it was.",
                )
            },
            Self::TurnEnded => CallResult::not_from_tool(
                ResultKind::NotRun,
                "Not run: another call of the same turn was not released or has no known outcome.",
            ),
            Self::Refused(refusal) => CallResult::refused(*refusal, tool, None),
            Self::Limit(limit) => CallResult::not_from_tool(ResultKind::NotRun, limit.call_sentence()),
        }
    }

    pub(super) fn kind(&self) -> ResultKind {
        match self {
            Self::Denied { .. } => ResultKind::Denied,
            Self::Expired => ResultKind::Expired,
            Self::Unavailable | Self::Refused(_) => ResultKind::Refused,
            Self::TurnEnded | Self::Limit(_) => ResultKind::NotRun,
        }
    }
}

impl Turn {
    /// Its number in the run, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The model's answer.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Its calls, in the model's order.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = CallState<'_>> {
        self.reply.calls.iter().zip(&self.stages).map(|(call, stage)| CallState { call, stage })
    }

    /// One of its calls.
    pub fn call(&self, id: &CallId) -> Option<CallState<'_>> {
        self.calls().find(|state| state.call.id == *id)
    }

    pub(super) fn position(&self, id: &CallId) -> Option<usize> {
        self.reply.calls.iter().position(|call| call.id == *id)
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.stages.iter().all(|stage| *stage == Stage::Proposed)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.stages.iter().all(|stage| matches!(stage, Stage::Finished(_)))
    }

    pub(super) fn holds_the_calls_of(&self, pending: &Pending) -> bool {
        pending.turn == self.number
            && pending.calls.len() == self.reply.calls.len()
            && pending
                .calls
                .iter()
                .zip(&self.reply.calls)
                .all(|(held, call)| held.id == call.id && held.tool == call.name)
    }
}
