//! A run in the hands of a driver: what its log says, and the next append.
//!
//! Invariant: the run here is always the fold of a log that was stored. Whoever finds that the log has moved
//! on folds it anew; whoever lost the lease appends nothing (R6).

use std::sync::Arc;
use std::time::Duration;

use countersign_core::{Changes, Event, Illegal, Run, RunId, Subject};

use crate::clock::Clock;
use crate::progress::Progress;
use crate::store::{Append, AppendError, Lease, LoadError, Look, Revision, Store, StoreFault, Writer};

/// How often a result that cannot be stored is tried again.
const RESULT_RETRIES_MAX: u32 = 10;
/// How long after.
const RESULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What came of an append.
enum Appended {
    /// It is stored.
    Stored(Box<Changes>),
    /// The judge wanted nothing stored.
    Nothing,
    /// The log had moved on, and has been folded anew.
    MovedOn,
}

/// A run in the hands of a driver.
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    progress: Arc<dyn Progress>,
    lease: Lease,
    pub(crate) run: Run,
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
            LoadError::Fault(fault) => Self::Store(fault),
        }
    }
}

/// Loads a run and folds it.
pub(crate) async fn load(store: &dyn Store, id: &RunId) -> Result<Run, LoadError> {
    let log = store.load(id).await?;
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
        Ok(Self { store, clock, progress, lease, run })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision(self.run.revision())
    }

    /// Stores events that still apply. Where the log has moved on they are tried again on the new one, and
    /// forgotten if they do not fit it any more: a sibling's answer loses no result, and a cancel wins.
    ///
    /// What does not fit a log that has not moved on would be proposed again for ever, so it ends the drive.
    pub(crate) async fn record(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        let mut moved_on = false;
        while !events.is_empty() {
            let (after, changes) = match self.run.record(events.clone(), self.clock.now()) {
                Ok(recorded) => recorded,
                Err(_) if moved_on => break,
                Err(illegal) => return Err(self.unreadable(illegal.to_string())),
            };
            match self.append(Append::Plain(changes)).await? {
                Appended::Stored(_) => {
                    self.run = after;
                    break;
                }
                Appended::Nothing | Appended::MovedOn => moved_on = true,
            }
        }
        Ok(())
    }

    /// The same for what a call came to, which happened whether it can be stored or not. A database that is
    /// full or busy is asked again for a while: a result that is lost here makes a write unknown.
    pub(crate) async fn record_results(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        let mut attempts = 0;
        loop {
            match self.record(events.clone()).await {
                Err(DriveError::Store(StoreFault::Full(_) | StoreFault::Busy(_)))
                    if attempts < RESULT_RETRIES_MAX =>
                {
                    attempts += 1;
                    self.clock.sleep(RESULT_RETRY_AFTER).await;
                }
                done => return done,
            }
        }
    }

    /// Stores what a judge makes of the switches and rights that the storing transaction reads (G9). Where
    /// the log has moved on nothing is stored (`false`), and the caller looks at the run again.
    pub(crate) async fn record_judged(
        &mut self,
        subjects: Vec<Subject>,
        judge: impl FnOnce(&Run, &Look) -> Vec<Event> + Send + 'static,
    ) -> Result<bool, DriveError> {
        let (run, now) = (self.run.clone(), self.clock.now());
        let judge = Box::new(move |look: &Look| {
            let events = judge(&run, look);
            let recorded: Result<_, Illegal> = run.record(events, now);
            recorded.ok().map(|(_, changes)| changes)
        });
        let changes = match self.append(Append::Judged { subjects, judge }).await? {
            Appended::Stored(changes) => changes,
            Appended::MovedOn => return Ok(false),
            Appended::Nothing => {
                return Err(self.unreadable("a start that was judged does not fit it".to_owned()));
            }
        };
        let folded = self.run.record(changes.events().to_vec(), changes.at());
        let (after, _) = folded.map_err(|illegal| self.unreadable(illegal.to_string()))?;
        self.run = after;
        Ok(true)
    }

    async fn append(&mut self, append: Append) -> Result<Appended, DriveError> {
        let writer = Writer::Worker(self.lease.clone());
        match self.store.append(&self.lease.run, self.revision(), &writer, self.clock.now(), append).await {
            Ok(Some(changes)) => {
                changes.events().iter().for_each(|event| self.progress.stored(event));
                Ok(Appended::Stored(Box::new(changes)))
            }
            Ok(None) => Ok(Appended::Nothing),
            Err(AppendError::Conflict) => {
                self.reload().await?;
                Ok(Appended::MovedOn)
            }
            Err(AppendError::LeaseLost) => Err(DriveError::LeaseLost),
            Err(AppendError::NotFound(run)) => Err(DriveError::NotFound(run)),
            Err(AppendError::Unreadable { reason, .. }) => Err(self.unreadable(reason)),
            Err(AppendError::Fault(fault)) => Err(fault.into()),
        }
    }

    fn unreadable(&self, reason: String) -> DriveError {
        DriveError::Unreadable { run: self.lease.run.clone(), reason }
    }

    pub(crate) async fn reload(&mut self) -> Result<(), DriveError> {
        self.run = load(&*self.store, &self.lease.run).await?;
        Ok(())
    }

    /// Folds the log anew if it has moved on. A store that fails for a moment is asked again at the next
    /// look: a call in flight is worth more than knowing at once.
    pub(crate) async fn follow(&mut self) -> bool {
        let moved = self.store.revision(&self.lease.run).await.is_ok_and(|newest| newest != self.revision());
        moved && self.reload().await.is_ok()
    }
}
