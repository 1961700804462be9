//! The rows that follow from a log: a run's line in a list, a pending's line in the inbox.
//!
//! Invariant: nothing here is decided; everything is derived, in the transaction that stores the events
//! (R1). Nothing here is a payload, so it may stand in clear (S3).

use jiff::Timestamp;

use crate::event::{Durability, Event};
use crate::limits::Limit;
use crate::message::Usage;
use crate::name::{AgentName, PendingId, RunId, Subject};
use crate::pending::{Deadline, PendingStatus};

/// Where a run stands. Whether an active one is queued or running depends on a live lease, at query time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum RunState {
    /// Work is owed: queued, or running under a lease.
    Active,
    WaitingForApproval,
    WaitingForInput,
    NeedsResolution,
    Completed,
    Failed,
    Cancelled,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::WaitingForApproval,
        Self::WaitingForInput,
        Self::NeedsResolution,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The word that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::WaitingForApproval => "waiting_for_approval",
            Self::WaitingForInput => "waiting_for_input",
            Self::NeedsResolution => "needs_resolution",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads a stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The contract's status, given whether somebody holds a live lease.
    pub fn status(self, leased: bool) -> &'static str {
        match (self, leased) {
            (Self::Active, true) => "running",
            (Self::Active, false) => "queued",
            (
                Self::WaitingForApproval
                | Self::WaitingForInput
                | Self::NeedsResolution
                | Self::Completed
                | Self::Failed
                | Self::Cancelled,
                _,
            ) => self.as_str(),
        }
    }

    /// Whether it is an end.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Whether it waits for a person.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::WaitingForApproval | Self::WaitingForInput | Self::NeedsResolution)
    }
}

/// A run's line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct RunRow {
    pub id: RunId,
    pub state: RunState,
    pub agent: AgentName,
    pub owner: Subject,
    /// Who started it: the owner, or a program on the owner's behalf.
    pub starter: Subject,
    pub unattended: bool,
    /// The run whose conversation it goes on with (R10).
    pub continues: Option<RunId>,
    pub iterations: u32,
    pub usage: Usage,
    /// The limit that ended it.
    pub limit: Option<Limit>,
    /// The contract's error code, if it failed.
    pub failure: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// A pending's line in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the words of the contract")]
pub struct PendingRow {
    pub id: PendingId,
    pub run: RunId,
    /// `approval`, `input` or `resolution`.
    pub kind: String,
    pub status: PendingStatus,
    pub agent: AgentName,
    pub owner: Subject,
    pub created_at: Timestamp,
    pub expires_at: Deadline,
    /// Who decided it, if somebody did.
    pub decided_by: Option<Subject>,
}

/// Events that were folded, and the rows that follow from them. Only [`Run::record`](crate::run::Run::record)
/// makes one, so a store cannot be given an event that is not legal.
#[derive(Clone, Debug)]
pub struct Changes {
    pub(crate) events: Vec<Event>,
    pub(crate) at: Timestamp,
    pub(crate) row: Box<RunRow>,
    pub(crate) inbox: Vec<PendingRow>,
    pub(crate) durability: Durability,
}

impl Changes {
    /// What happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// When.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The run's row after it.
    pub fn row(&self) -> &RunRow {
        &self.row
    }

    /// The rows of the pendings that changed, to be inserted or replaced.
    pub fn inbox(&self) -> &[PendingRow] {
        &self.inbox
    }

    /// Whether the commit must wait for the disk (R3).
    pub fn durability(&self) -> Durability {
        self.durability
    }
}
