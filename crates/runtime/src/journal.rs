//! A run in the hands of a driver: what its log says, what is held back of it, and the next append.
//!
//! Invariant: what was stored is a prefix of what is known here, and what is held back is only what may be
//! lost and found out again: answers of a model and results of reads, until somebody would act on them (R3).
//! Whoever finds that the log has moved on folds it anew; whoever lost the lease appends nothing (R6).

use std::sync::Arc;
use std::time::Duration;

use countersign_core::{Durability, Event, Illegal, Run, RunId, Subject};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::progress::Progress;
use crate::store::{Append, AppendError, Lease, LoadError, Log, Look, Revision, Store, StoreFault, Writer};

/// How often what must not be lost is tried again, where it cannot be stored.
pub(crate) const RETRIES_MAX: u32 = 10;
/// How long after.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A run in the hands of a driver.
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    progress: Arc<dyn Progress>,
    lease: Lease,
    /// The fold of the stored log.
    stored: Run,
    /// What happened since, in order.
    held_back: Vec<Event>,
    /// The fold of both.
    run: Run,
}

/// What a judge makes of one look.
pub(crate) enum Judgement {
    /// Store this.
    Record(Vec<Event>),
    /// Store nothing: more must be done first, and it cannot be done in the storing transaction.
    Nothing,
}

/// What came of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is stored.
    Stored,
    /// The judge wanted nothing stored.
    Nothing,
    /// The log had moved on, and has been folded anew: look at it again.
    MovedOn,
}

/// Why a driver must stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Another worker has the run now.
    #[error("another process has taken over the run")]
    LeaseLost,
    /// The run cannot be read; it is kept as it is, and no other run is affected (R2).
    #[error("run {run} cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such run.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// The store failed. What was stored is stored, and the run can be taken up again.
    #[error("the run could not be stored further")]
    Store(#[from] StoreFault),
}

impl From<LoadError> for DriveError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(run) => Self::NotFound(run),
            LoadError::Unreadable { run, reason } => Self::Unreadable { run, reason },
            LoadError::Erased { run, at } => {
                Self::Unreadable { run, reason: format!("its content was erased at {at}") }
            }
            LoadError::Fault(fault) => Self::Store(fault),
        }
    }
}

/// Loads a run and folds it.
pub(crate) async fn load(store: &dyn Store, id: &RunId) -> Result<Run, LoadError> {
    fold(id, &store.load(id).await?)
}

/// A run as its log says; a log that no run can have is one that cannot be read.
pub(crate) fn fold(id: &RunId, log: &Log) -> Result<Run, LoadError> {
    Run::fold(id.clone(), &log.entries)
        .map_err(|illegal| LoadError::Unreadable { run: id.clone(), reason: illegal.to_string() })
}

impl Journal {
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        progress: Arc<dyn Progress>,
        lease: Lease,
    ) -> Result<Self, DriveError> {
        let run = load(&*store, &lease.run).await?;
        Ok(Self { store, clock, progress, lease, stored: run.clone(), held_back: Vec::new(), run })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The run as it is known here.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    /// How far the log is stored.
    pub(crate) fn revision(&self) -> Revision {
        Revision(self.stored.revision())
    }

    /// Notes what happened. What promises something to the world is stored at once; answers and results of
    /// reads wait for the next append, so that a turn of reads is one commit.
    ///
    /// What does not fit a log that has not moved on would be proposed again for ever, so it ends the drive.
    pub(crate) async fn record(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        let recorded = self.run.record(events.clone(), self.clock.now());
        let (after, changes) = recorded.map_err(|illegal| self.unreadable(&illegal))?;
        if changes.durability() == Durability::Disk {
            return self.store(events).await;
        }
        self.run = after;
        self.tell(&events);
        self.held_back.extend(events);
        Ok(())
    }

    /// The same for what a call came to, which happened whether it can be stored or not. A database that is
    /// full, busy or away is asked again for a while: a result that is lost here makes a write unknown. What was stored
    /// without an answer does not fit the log any more and is forgotten.
    pub(crate) async fn record_results(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        let mut attempts = 0;
        loop {
            match self.record(events.clone()).await {
                Err(DriveError::Store(fault)) if fault.may_pass() && attempts < RETRIES_MAX => {
                    attempts += 1;
                    self.clock.sleep(RETRY_AFTER).await;
                }
                done => return done,
            }
        }
    }

    /// Whether something is held back that was not stored yet.
    pub(crate) fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Whether a model's answer is held back, on which nobody may act before it is stored (R3).
    pub(crate) fn holds_back_an_answer(&self) -> bool {
        self.held_back.iter().any(|event| !matches!(event, Event::CallFinished(_)))
    }

    /// Stores what is held back.
    pub(crate) async fn flush(&mut self) -> Result<(), DriveError> {
        self.store(Vec::new()).await
    }

    /// Stores what is held back and then these. Where the log has moved on, they are tried again on the new
    /// one, and forgotten if they do not fit it any more: a sibling's answer loses no result, and a cancel wins.
    async fn store(&mut self, mut events: Vec<Event>) -> Result<(), DriveError> {
        loop {
            let owed: Vec<Event> = self.held_back.iter().chain(&events).cloned().collect();
            if owed.is_empty() {
                return Ok(());
            }
            let recorded = self.stored.record(owed, self.clock.now());
            let (after, changes) = recorded.map_err(|illegal| self.unreadable(&illegal))?;
            match self.append(Append::Plain(changes)).await? {
                Judged::Stored => {
                    self.tell(&events);
                    self.adopt(after);
                    return Ok(());
                }
                Judged::Nothing | Judged::MovedOn => {
                    if self.run.record(events.clone(), self.clock.now()).is_err() {
                        events.clear();
                    }
                }
            }
        }
    }

    /// Stores what is held back and then what a judge makes of the switches and rights that the storing
    /// transaction reads (G9). Where the log has moved on, the caller looks at the run again.
    pub(crate) async fn record_judged(
        &mut self,
        subjects: Vec<Subject>,
        judge: impl FnOnce(&Run, &Look) -> Judgement + Send + 'static,
    ) -> Result<Judged, DriveError> {
        let (run, stored, mut owed) = (self.run.clone(), self.stored.clone(), self.held_back.clone());
        let now = self.clock.now();
        let (say, mut said) = oneshot::channel();
        let judge = Box::new(move |look: &Look| {
            let Judgement::Record(events) = judge(&run, look) else { return None };
            owed.extend(events.iter().cloned());
            let (recorded, changes) = match stored.record(owed, now) {
                Ok((after, changes)) => (Ok((after, events)), Some(changes)),
                Err(illegal) => (Err(illegal), None),
            };
            // Nobody listens any more only where nobody wants it stored any more.
            say.send(recorded).ok().and(changes)
        });
        let judged = self.append(Append::Judged { subjects, judge }).await?;
        match (judged, said.try_recv()) {
            (Judged::Stored, Ok(Ok((after, events)))) => {
                self.tell(&events);
                self.adopt(after);
            }
            (Judged::Stored, _) => self.reload().await?,
            (Judged::Nothing, Ok(Err(illegal))) => return Err(self.unreadable(&illegal)),
            (Judged::Nothing | Judged::MovedOn, _) => {}
        }
        Ok(judged)
    }

    async fn append(&mut self, append: Append) -> Result<Judged, DriveError> {
        let writer = Writer::Worker(self.lease.clone());
        match self.store.append(&self.lease.run, self.revision(), &writer, self.clock.now(), append).await {
            Ok(Some(_)) => Ok(Judged::Stored),
            Ok(None) => Ok(Judged::Nothing),
            Err(AppendError::Conflict) => {
                self.reload().await?;
                Ok(Judged::MovedOn)
            }
            Err(AppendError::LeaseLost) => Err(DriveError::LeaseLost),
            Err(AppendError::NotFound(run)) => Err(DriveError::NotFound(run)),
            Err(AppendError::Unreadable { run, reason }) => Err(DriveError::Unreadable { run, reason }),
            Err(AppendError::Fault(fault)) => Err(fault.into()),
        }
    }

    fn unreadable(&self, illegal: &Illegal) -> DriveError {
        DriveError::Unreadable { run: self.lease.run.clone(), reason: illegal.to_string() }
    }

    fn tell(&self, events: &[Event]) {
        events.iter().for_each(|event| self.progress.happened(event));
    }

    /// All is stored.
    fn adopt(&mut self, after: Run) {
        self.stored = after.clone();
        self.run = after;
        self.held_back.clear();
    }

    /// Folds the log anew. What is held back and does not fit it any more is forgotten.
    pub(crate) async fn reload(&mut self) -> Result<(), DriveError> {
        self.stored = load(&*self.store, &self.lease.run).await?;
        self.run = self.stored.clone();
        let now = self.clock.now();
        for event in std::mem::take(&mut self.held_back) {
            if let Ok((after, _)) = self.run.record(vec![event.clone()], now) {
                self.run = after;
                self.held_back.push(event);
            }
        }
        Ok(())
    }

    /// Folds the log anew if it has moved on. A store that fails for a moment is asked again at the next
    /// look: a call in flight is worth more than knowing at once.
    pub(crate) async fn follow(&mut self) -> bool {
        let moved = self.store.revision(&self.lease.run).await.is_ok_and(|newest| newest != self.revision());
        moved && self.reload().await.is_ok()
    }
}
