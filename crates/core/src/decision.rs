//! A person's answer: what can be said, how it is stored, and why it may be refused.
//!
//! Invariant: an answer names the digest of what was seen. Not here: judging it (`settle`).

mod settle;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::digest::Digest;
use crate::name::{CallId, Subject};
use crate::pending::PendingStatus;
use crate::principal::{People, Principal};

pub use settle::{Judgement, RefusedWith, may_edit, settle, well_formed};

/// What a person says about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum CallVerdict {
    Approve,
    Deny,
}

/// What a person says about a write whose outcome is unknown (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledOutcome {
    /// It did; the text given is its result.
    Happened,
    /// It did not; the approval is used up, and it is never run again by us.
    DidNotHappen,
    /// Nobody will ever know; the run ends.
    GiveUp,
}

/// An answer, always with the digest of what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What was seen.
    pub digest: Digest,
    /// What is said about it.
    pub said: Said,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// One word for the whole turn. On an input only "deny", which declines it.
    Turn {
        /// The word.
        verdict: CallVerdict,
        /// Why; a denial's reason reaches the model as data.
        reason: Option<String>,
    },
    /// A word for every call that needs approval, no more, no less.
    Calls {
        /// The words.
        verdicts: BTreeMap<CallId, CallVerdict>,
        /// Why.
        reason: Option<String>,
    },
    /// The fields of an input.
    Answer(Arguments),
    /// How an unknown outcome came out.
    Settle {
        /// The word.
        outcome: SettledOutcome,
        /// What the tool would have answered.
        result: Option<String>,
    },
}

impl Decision {
    /// Approves the whole turn.
    pub fn approve(digest: Digest) -> Self {
        Self { digest, said: Said::Turn { verdict: CallVerdict::Approve, reason: None } }
    }

    /// Denies the whole turn, or declines an input.
    pub fn deny(digest: Digest, reason: Option<String>) -> Self {
        Self { digest, said: Said::Turn { verdict: CallVerdict::Deny, reason } }
    }

    /// Says a word on every call that needs approval.
    pub fn calls(digest: Digest, verdicts: BTreeMap<CallId, CallVerdict>, reason: Option<String>) -> Self {
        Self { digest, said: Said::Calls { verdicts, reason } }
    }

    /// Supplies an input.
    pub fn answer(digest: Digest, fields: Arguments) -> Self {
        Self { digest, said: Said::Answer(fields) }
    }

    /// Settles an unknown outcome.
    pub fn settle(digest: Digest, outcome: SettledOutcome, result: Option<String>) -> Self {
        Self { digest, said: Said::Settle { outcome, result } }
    }
}

/// How the answer was given: a turn's denial reaches all of its calls, a call's only that call (A11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the two forms of the contract")]
pub enum Form {
    Turn,
    Calls,
}

/// The contract's word for what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum VerdictWord {
    Approve,
    Deny,
    Mixed,
    Answer,
    Happened,
    DidNotHappen,
    GiveUp,
}

impl VerdictWord {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Mixed => "mixed",
            Self::Answer => "answer",
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::GiveUp => "give_up",
        }
    }

    pub(super) fn on_calls(approved: usize, all: usize) -> Self {
        match approved {
            0 => Self::Deny,
            some if some == all => Self::Approve,
            _ => Self::Mixed,
        }
    }

    /// The pending's status after it: approved when any call was released.
    pub fn status(self) -> PendingStatus {
        match self {
            Self::Approve | Self::Mixed => PendingStatus::Approved,
            Self::Deny => PendingStatus::Denied,
            Self::Answer => PendingStatus::Answered,
            Self::Happened | Self::DidNotHappen | Self::GiveUp => PendingStatus::Settled,
        }
    }
}

/// How the decider stands to whoever started the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The same person.
    SelfDecided,
    /// Somebody else.
    SecondPerson,
    /// A program, or nobody we know, started the run.
    InitiatorUnknown,
    /// The decider is no longer known.
    Unresolved,
}

impl Attribution {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SelfDecided => "self",
            Self::SecondPerson => "second_person",
            Self::InitiatorUnknown => "initiator_unknown",
            Self::Unresolved => "unresolved",
        }
    }

    pub(super) fn of(by: &Principal, starter: &Subject, people: &People) -> Self {
        if by.subject == *starter {
            return Self::SelfDecided;
        }
        match people.find(starter) {
            Some(starter) if !starter.is_service() => Self::SecondPerson,
            Some(_) | None => Self::InitiatorUnknown,
        }
    }
}

/// A decision as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// Who: from the credential, never from a body (S2).
    pub by: Subject,
    /// The word.
    pub verdict: VerdictWord,
    /// How it was given.
    pub form: Form,
    /// The words on the calls that needed one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<CallId, CallVerdict>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How the decider stands to the starter.
    pub attribution: Attribution,
    /// The fields of an input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arguments>,
    /// The result of a call whose outcome was unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl Decided {
    /// Whether the word on an approval says what the words on its calls say.
    pub(crate) fn is_consistent(&self) -> bool {
        let approved = self.calls.values().filter(|verdict| **verdict == CallVerdict::Approve).count();
        self.verdict == VerdictWord::on_calls(approved, self.calls.len())
            && (self.form == Form::Calls || self.verdict != VerdictWord::Mixed)
    }
}

/// Where an answer breaks the schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// A JSON pointer.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

/// Why a decision was refused. The pending is as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionRefused {
    /// There is none, or the decider may not see it: the two look alike.
    #[error("there is no pending of this id")]
    NotFound,
    /// The kind of answer does not fit the kind of question.
    #[error("this answer does not fit a pending of kind {kind}")]
    WrongKind {
        /// The question's kind.
        kind: &'static str,
    },
    /// The calls named are not exactly those that need approval.
    #[error("the calls named are not exactly those that need approval: {}", .needed.iter().map(CallId::as_str).collect::<Vec<_>>().join(", "))]
    CallsIncomplete {
        /// The calls to name.
        needed: Box<[CallId]>,
    },
    /// Somebody was first; possibly the same person.
    #[error("{} has already decided: {}", .0.by, .0.verdict.as_str())]
    AlreadyDecided(Box<Decided>),
    /// The run was cancelled.
    #[error("the question was withdrawn because the run was cancelled")]
    Withdrawn,
    /// A definition changed, or the installation was restored from a backup.
    #[error(
        "the question is void: a tool of this turn is no longer what it was, or the installation was restored from a \
         backup since it was asked; the run goes on, and the model may ask again"
    )]
    Void,
    /// Somebody changed the arguments; another pending took its place.
    #[error("the arguments were changed; another question took the place of this one")]
    Superseded,
    /// The deadline has passed.
    #[error("the time to decide is over")]
    Expired,
    /// The run's agent or model is no longer configured.
    #[error("the run's agent or model is no longer configured; it can only be denied, given up or cancelled")]
    AgentGone,
    /// "It did not happen", while it still may.
    #[error("the call may still be under way; that it did not happen can be said after {until}")]
    TooEarly {
        /// The call's own deadline.
        until: Timestamp,
    },
    /// The decider may not decide.
    #[error("{by} may not decide this")]
    NotPermitted {
        /// The decider.
        by: Subject,
    },
    /// Four eyes: the decider started the run, or it was started for them, or they changed the arguments.
    #[error(
        "the agent wants a second person: {by} takes part in this run and cannot release its calls; denying is possible"
    )]
    SelfApproval {
        /// The decider.
        by: Subject,
    },
    /// The decider may not run what the approval would release.
    #[error("{by} may not run a call that this would release")]
    ApproverNotPermitted {
        /// The decider.
        by: Subject,
    },
    /// The digest is of something else.
    #[error("the digest is not that of this question: look at it again")]
    StaleDigest,
    /// The answer does not fit the schema.
    #[error("the answer does not fit what is asked for")]
    InvalidInput(Vec<InputProblem>),
}

impl DecisionRefused {
    /// The contract's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::WrongKind { .. } => "wrong_kind",
            Self::CallsIncomplete { .. } => "calls_incomplete",
            Self::AlreadyDecided(_) => "already_decided",
            Self::Withdrawn => "withdrawn",
            Self::Void => "void",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::AgentGone => "agent_gone",
            Self::TooEarly { .. } => "too_early",
            Self::NotPermitted { .. } => "not_permitted",
            Self::SelfApproval { .. } => "self_approval",
            Self::ApproverNotPermitted { .. } => "approver_not_permitted",
            Self::StaleDigest => "stale_digest",
            Self::InvalidInput(_) => "invalid_input",
        }
    }

    /// Whether the attempt itself goes into the record: four eyes, rights and a stale digest, by somebody
    /// who may see the pending (A9).
    pub fn is_recorded(&self) -> bool {
        match self {
            Self::NotPermitted { .. }
            | Self::SelfApproval { .. }
            | Self::ApproverNotPermitted { .. }
            | Self::StaleDigest => true,
            Self::NotFound
            | Self::WrongKind { .. }
            | Self::CallsIncomplete { .. }
            | Self::AlreadyDecided(_)
            | Self::Withdrawn
            | Self::Void
            | Self::Superseded
            | Self::Expired
            | Self::AgentGone
            | Self::TooEarly { .. }
            | Self::InvalidInput(_) => false,
        }
    }
}
