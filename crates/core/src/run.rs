//! A run is the fold of its events: one `apply`, one `next` (R1).
//!
//! Invariant: an event either is legal and changes the run, or is refused and changes nothing. A call starts
//! only from a stage in which it was cleared, an approval is used up by starting, and a finished call never
//! starts again. Not here: asking the gates (`policy`), doing anything about it (the runtime's driver).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rpds::{RedBlackTreeSetSync, VectorSync};

use crate::decision::Decided;
use crate::event::{Created, Durability, Entry, Event, FailCode, ModelFailCode};
use crate::limits::Limit;
use crate::message::{Reply, Usage};
use crate::name::{CallId, ModelRef, PendingId, RunId, Subject};
use crate::pending::{Pending, PendingStatus};
use crate::summary::Changes;

mod next;
mod take;
mod transcript;
mod turn;
mod view;

use take::touched_pendings;

pub use transcript::{Exhausted, Transcript};
pub use turn::{Bar, CallState, Running, Stage, Turn};

/// A run at one revision. Cloning costs the same however long it is: what is settled is shared.
#[derive(Clone, Debug)]
pub struct Run {
    id: RunId,
    created: Arc<Created>,
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: u64,
    history: VectorSync<Arc<Turn>>,
    call_ids: RedBlackTreeSetSync<CallId>,
    turn: Option<Turn>,
    last_reply: Option<Arc<Reply>>,
    pendings: VectorSync<Arc<PendingRecord>>,
    usage: Usage,
    iterations: u32,
    /// Since when somebody works on it, as far as the log says.
    working_since: Option<Timestamp>,
    worked: Duration,
    left_out: u64,
    interruptions: u32,
    denied: Arc<BTreeSet<(String, String)>>,
    repeats: u32,
    cut_offs: u32,
    failed_models: usize,
    last_failure: Option<ModelFailCode>,
    given_up: bool,
    limit: Option<Limit>,
    cancel: Option<Subject>,
    end: Option<End>,
}

/// How and when a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With an answer, or at a limit.
    Completed {
        /// The limit, if it was one.
        limit: Option<Limit>,
        /// When.
        at: Timestamp,
    },
    /// Without.
    Failed {
        /// Why.
        code: FailCode,
        /// When.
        at: Timestamp,
    },
    /// Somebody cancelled it.
    Cancelled {
        /// Who.
        by: Subject,
        /// When.
        at: Timestamp,
    },
}

/// A pending and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRecord {
    /// The question.
    pub pending: Pending,
    /// Where it stands.
    pub status: PendingStatus,
    /// When it was asked.
    pub opened_at: Timestamp,
    /// The answer, if there is one.
    pub decided: Option<Decided>,
    /// When it stopped being open.
    pub settled_at: Option<Timestamp>,
}

/// Which model is asked next, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The model.
    pub model: ModelRef,
    /// The one completion after the cap of iterations: no tools, and calls in it are dropped (L1).
    pub closing: bool,
    /// Another model has failed to answer this very request, which goes out again as it was (L7).
    pub fallback: bool,
}

/// What is owed next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A model's reply to the transcript.
    AskModel(Ask),
    /// A judgement of the whole turn, before any of it runs (A4).
    Judge,
    /// The question for the input that this call needs (A4).
    OpenInput(CallId),
    /// The question how this call came out (R11).
    OpenResolution(CallId),
    /// The gate's last word on the next of these calls, in order, and their start.
    Dispatch(Vec<CallId>),
    /// The results of these started calls. A driver that did not start them itself must not wait for them.
    Execute(Vec<CallId>),
    /// These events, which follow from the log alone.
    Record(Vec<Event>),
    /// Nothing: a person is asked, and nothing is held meanwhile (R5).
    Park(PendingId),
    /// Nothing, ever.
    Ended,
}

/// An event that does not fit the run. The run is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} does not fit: {reason}")]
pub struct Illegal {
    /// The kind of the event.
    pub kind: &'static str,
    /// What stands against it.
    pub reason: &'static str,
}

impl Run {
    /// A run from its first events.
    ///
    /// # Errors
    /// [`Illegal`] when `more` does not fit.
    pub fn create(
        id: RunId,
        created: Created,
        more: Vec<Event>,
        at: Timestamp,
    ) -> Result<(Self, Changes), Illegal> {
        let first = Event::RunCreated(Box::new(created.clone()));
        let run = Self::start(id, created, at);
        let (run, mut changes) = if more.is_empty() {
            let changes = run.changes(Vec::new(), at, Durability::Disk, &BTreeSet::new());
            (run, changes)
        } else {
            run.record(more, at)?
        };
        changes.events.insert(0, first);
        changes.durability = Durability::Disk;
        Ok((run, changes))
    }

    fn start(id: RunId, created: Created, at: Timestamp) -> Self {
        Self {
            id,
            created: Arc::new(created),
            created_at: at,
            updated_at: at,
            revision: 1,
            history: VectorSync::new_sync(),
            call_ids: RedBlackTreeSetSync::new_sync(),
            turn: None,
            last_reply: None,
            pendings: VectorSync::new_sync(),
            usage: Usage::default(),
            iterations: 0,
            working_since: None,
            worked: Duration::ZERO,
            left_out: 0,
            interruptions: 0,
            denied: Arc::default(),
            repeats: 0,
            cut_offs: 0,
            failed_models: 0,
            last_failure: None,
            given_up: false,
            limit: None,
            cancel: None,
            end: None,
        }
    }

    /// What a whole log means.
    ///
    /// # Errors
    /// [`Illegal`] for a log that no run can have.
    pub fn fold(id: RunId, log: &[Entry]) -> Result<Self, Illegal> {
        let illegal = |reason| Illegal { kind: "run.created", reason };
        let (first, rest) = log.split_first().ok_or(illegal("the log is empty"))?;
        let Event::RunCreated(created) = &first.event else {
            return Err(illegal("it must come first"));
        };
        if first.seq != 0 {
            return Err(illegal("the sequence starts at 0"));
        }
        let mut run = Self::start(id, (**created).clone(), first.at);
        for entry in rest {
            run.take_next(entry)?;
        }
        Ok(run)
    }

    /// The run after one more event.
    ///
    /// # Errors
    /// [`Illegal`]; this run is as it was.
    pub fn apply(&self, entry: &Entry) -> Result<Self, Illegal> {
        let mut after = self.clone();
        after.take_next(entry)?;
        Ok(after)
    }

    /// Folds new events and says what to store.
    ///
    /// # Errors
    /// [`Illegal`]; this run is as it was.
    pub fn record(&self, events: Vec<Event>, at: Timestamp) -> Result<(Self, Changes), Illegal> {
        let mut run = self.clone();
        let mut durability = Durability::Process;
        let mut touched = BTreeSet::new();
        for event in &events {
            durability = durability.max(event.durability()).max(run.durability_of_result(event));
            touched.extend(touched_pendings(event));
            run.take(event, at)?;
        }
        let changes = run.changes(events, at, durability, &touched);
        Ok((run, changes))
    }

    fn changes(
        &self,
        events: Vec<Event>,
        at: Timestamp,
        durability: Durability,
        touched: &BTreeSet<PendingId>,
    ) -> Changes {
        let inbox = self.pendings.iter().filter(|record| touched.contains(&record.pending.id));
        Changes {
            events,
            at,
            row: Box::new(self.row()),
            inbox: inbox.map(|record| self.pending_row(record)).collect(),
            durability,
        }
    }

    /// The result of a write promises something to the world (R3).
    fn durability_of_result(&self, event: &Event) -> Durability {
        let Event::CallFinished(finished) = event else { return Durability::Process };
        let call = self.turn.as_ref().and_then(|turn| turn.call(&finished.call));
        match call.and_then(|state| state.stage.running_write()) {
            Some(_) => Durability::Disk,
            None => Durability::Process,
        }
    }

    fn take_next(&mut self, entry: &Entry) -> Result<(), Illegal> {
        if entry.seq != self.revision {
            return Err(Illegal { kind: entry.event.kind(), reason: "it is not the next of the log" });
        }
        self.take(&entry.event, entry.at)
    }

    /// Takes the next event. May leave a half-changed run behind when it refuses, so only clones see it.
    fn take(&mut self, event: &Event, at: Timestamp) -> Result<(), Illegal> {
        let refuse = |reason| Err(Illegal { kind: event.kind(), reason });
        if self.end.is_some() && !matches!(event, Event::PendingRefused(_)) {
            return refuse("the run has ended");
        }
        let done = match event {
            Event::RunCreated(_) => Err("a run is created once"),
            Event::GateDenied(_) => Ok(()),
            Event::PendingRefused(refused) => {
                self.pending(&refused.pending).map(drop).ok_or("there is no such pending")
            }
            Event::WorkBegan(_) => self.take_beginning(),
            Event::ContextFitted(fitted) => self.take_fit(fitted),
            Event::ModelReplied(replied) => self.take_reply(&replied.reply, replied.closing),
            Event::ModelFailed(failed) => self.take_model_failure(&failed.model, failed.code, failed.usage),
            Event::PendingOpened(pending) => self.take_question(pending, at),
            Event::PendingEdited(pending) => self.take_edit(pending, at),
            Event::PendingDecided(decided) => self.take_decision(&decided.pending, &decided.decided, at),
            Event::PendingClosed(closed) => self.take_closing(&closed.pending, closed.status, at),
            Event::CallStarted(started) => self.take_start(started),
            Event::CallFinished(finished) => self.take_result(&finished.call, &finished.result),
            Event::CallUnknown(unknown) => self.take_unknown(&unknown.call),
            Event::LimitReached(reached) => self.take_limit(reached.which, at),
            Event::CancelRequested(requested) => match self.cancel {
                Some(_) => Err("it was requested before"),
                None => {
                    self.cancel = Some(requested.by.clone());
                    Ok(())
                }
            },
            Event::RunCompleted(completed) => self.take_completion(completed.limit, at),
            Event::RunFailed(failed) => self.take_failure(failed.code, at),
            Event::RunCancelled(cancelled) => self.take_cancellation(&cancelled.by, at),
        };
        done.or_else(refuse)?;
        self.revision += 1;
        self.updated_at = at;
        self.count_work(event, at);
        Ok(())
    }

    /// L5: working time is what passes from one stored event to the next while somebody has the run in hand. What
    /// passes while it waits for a person, or until somebody takes it up again, is not.
    fn count_work(&mut self, event: &Event, at: Timestamp) {
        self.working_since = match (event, self.working_since) {
            (Event::WorkBegan(_), _) => Some(at),
            // Somebody else's doing, which says nothing about whether the run is in hand.
            (Event::PendingRefused(_), since) => since,
            (_, Some(since)) => {
                self.worked = self.worked.saturating_add(between(since, at));
                Some(at)
            }
            (_, None) => None,
        }
        .filter(|_| self.end.is_none() && self.open_pending().is_none());
    }
}

/// What passed between two moments; nothing if a clock went backwards.
fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    later.duration_since(earlier).try_into().unwrap_or_default()
}
