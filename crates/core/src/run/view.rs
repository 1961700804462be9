//! What can be seen of a run: its facts, its rows.
//!
//! Not here: anything that changes it, its conversation (`transcript`).

use std::time::Duration;

use jiff::Timestamp;

use crate::event::Created;
use crate::message::Usage;
use crate::name::{CallId, PendingId, RunId};
use crate::pending::{HeldCall, PendingStatus, Question};
use crate::summary::{PendingRow, RunRow, RunState};

use super::{End, PendingRecord, Run, Turn, between};

impl Run {
    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// How it started.
    pub fn created(&self) -> &Created {
        &self.created
    }

    /// When it started.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When its last event was stored.
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// The number of its events.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Model answers, the closing one not counted.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Tokens so far, failed attempts included.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How long it has been worked on, as far as its log says. Counted only where there is a budget of it (L5).
    pub fn worked(&self) -> Duration {
        self.worked
    }

    /// Whether its working time counts at this moment: somebody took it up, and it has not stopped since.
    pub fn is_worked_on(&self) -> bool {
        self.working_since.is_some()
    }

    /// What is left at this moment of its budget of working time; `None`: it has none, or nobody works on it.
    pub fn working_time_left(&self, now: Timestamp) -> Option<Duration> {
        let since = self.working_since?;
        self.created.limits.working_time_left(self.worked.saturating_add(between(since, now)))
    }

    /// How many workers it has lost in the middle of a call.
    pub fn interruptions(&self) -> u32 {
        self.interruptions
    }

    /// Its end, if it has ended.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether somebody asked for it to be cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some()
    }

    /// The turn that is not finished, if there is one.
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// The finished turns.
    pub fn history(&self) -> impl Iterator<Item = &Turn> {
        self.history.iter().map(|turn| &**turn)
    }

    /// How many turns are finished.
    pub fn turns(&self) -> usize {
        self.history.len()
    }

    /// The text of the last answer, if it said something.
    pub fn output(&self) -> Option<&str> {
        self.last_reply
            .as_ref()
            .and_then(|reply| reply.text.as_deref())
            .filter(|text| !text.trim().is_empty())
    }

    /// One of its pendings.
    pub fn pending(&self, id: &PendingId) -> Option<&PendingRecord> {
        self.pendings.iter().map(|record| &**record).find(|record| record.pending.id == *id)
    }

    /// All its pendings, oldest first.
    pub fn pendings(&self) -> impl Iterator<Item = &PendingRecord> {
        self.pendings.iter().map(|record| &**record)
    }

    /// The pending that is open, if one is.
    pub fn open_pending(&self) -> Option<&PendingRecord> {
        self.pendings.last().map(|record| &**record).filter(|record| record.status == PendingStatus::Open)
    }

    /// A call of the unfinished turn as the last question showed it: with a person's arguments, and the
    /// preview's precondition.
    pub fn held(&self, call: &CallId) -> Option<&HeldCall> {
        let turn = self.turn.as_ref()?;
        let shown = self.pendings.iter().rev().find(|record| {
            record.pending.turn == turn.number
                && record.status != PendingStatus::Superseded
                && !matches!(record.pending.question, Question::Resolution { .. })
        })?;
        shown.pending.call(call)
    }

    /// Whether this very call was denied before in this run (L8).
    pub fn was_denied(&self, tool: &str, canonical_arguments: &str) -> bool {
        self.denied.contains(&(tool.to_owned(), canonical_arguments.to_owned()))
    }

    /// Where it stands, in one word.
    pub fn state(&self) -> RunState {
        match (&self.end, self.open_pending().map(|record| &record.pending.question)) {
            (Some(End::Completed { .. }), _) => RunState::Completed,
            (Some(End::Failed { .. }), _) => RunState::Failed,
            (Some(End::Cancelled { .. }), _) => RunState::Cancelled,
            (None, Some(Question::Approval)) => RunState::WaitingForApproval,
            (None, Some(Question::Input { .. })) => RunState::WaitingForInput,
            (None, Some(Question::Resolution { .. })) => RunState::NeedsResolution,
            (None, None) => RunState::Active,
        }
    }

    /// Its line in a list.
    pub fn row(&self) -> RunRow {
        let (limit, failure, finished_at) = match &self.end {
            None => (None, None, None),
            Some(End::Completed { limit, at }) => (*limit, None, Some(*at)),
            Some(End::Failed { code, at }) => (None, Some(code.as_str().to_owned()), Some(*at)),
            Some(End::Cancelled { at, .. }) => (None, None, Some(*at)),
        };
        RunRow {
            id: self.id.clone(),
            state: self.state(),
            agent: self.created.agent.clone(),
            owner: self.created.owner.clone(),
            starter: self.created.starter.clone(),
            unattended: self.created.unattended,
            continues: self.created.continues.clone(),
            iterations: self.iterations,
            usage: self.usage,
            limit,
            failure,
            created_at: self.created_at,
            updated_at: self.updated_at,
            finished_at,
        }
    }

    pub(super) fn pending_row(&self, record: &PendingRecord) -> PendingRow {
        PendingRow {
            id: record.pending.id.clone(),
            run: self.id.clone(),
            kind: record.pending.question.as_str().to_owned(),
            status: record.status,
            agent: self.created.agent.clone(),
            owner: self.created.owner.clone(),
            created_at: record.opened_at,
            expires_at: record.pending.expires_at,
            decided_by: record.decided.as_ref().map(|decided| decided.by.clone()),
        }
    }
}
