//! A run in the hands of a driver: what its log says, and the next append.
//!
//! Invariant: the run here is always the fold of a log that was stored. Whoever finds that the log has moved
//! on folds it anew; whoever lost the lease appends nothing (R6).

use std::sync::Arc;

use countersign_core::{Event, Illegal, Run, RunId, Subject};

use crate::clock::Clock;
use crate::progress::Progress;
use crate::store::{Append, AppendError, Lease, LoadError, Look, Revision, Store, StoreFault, Writer};

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
    pub(crate) async fn record(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        while !events.is_empty() {
            let Ok((_, changes)) = self.run.record(events.clone(), self.clock.now()) else { return Ok(()) };
            if self.append(Append::Plain(changes)).await? {
                break;
            }
        }
        Ok(())
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
        self.append(Append::Judged { subjects, judge }).await
    }

    /// `false`: the log had moved on, and has been folded anew.
    async fn append(&mut self, append: Append) -> Result<bool, DriveError> {
        let writer = Writer::Worker(self.lease.clone());
        let stored = self.store.append(&self.lease.run, self.revision(), &writer, self.clock.now(), append).await;
        match stored {
            Ok(Some(changes)) => {
                let (run, _) = self.run.record(changes.events().to_vec(), changes.at()).map_err(|illegal| {
                    DriveError::Unreadable { run: self.lease.run.clone(), reason: illegal.to_string() }
                })?;
                self.run = run;
                changes.events().iter().for_each(|event| self.progress.stored(event));
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(AppendError::Conflict) => {
                self.reload().await?;
                Ok(false)
            }
            Err(AppendError::LeaseLost) => Err(DriveError::LeaseLost),
            Err(AppendError::NotFound(run)) => Err(DriveError::NotFound(run)),
            Err(AppendError::Unreadable { run, reason }) => Err(DriveError::Unreadable { run, reason }),
            Err(AppendError::Fault(fault)) => Err(fault.into()),
        }
    }

    pub(crate) async fn reload(&mut self) -> Result<(), DriveError> {
        self.run = load(&*self.store, &self.lease.run).await?;
        Ok(())
    }

    /// Whether the log has moved on since it was folded, without reading it.
    pub(crate) async fn has_moved(&self) -> Result<bool, DriveError> {
        Ok(self.store.revision(&self.lease.run).await? != self.revision())
    }
}
