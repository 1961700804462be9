//! A store that tells what was stored in it to the log and to the metrics of this process.
//!
//! Invariant: it is the store underneath, and adds nothing to what is stored, asked or answered. Each event is told once,
//! when it is stored, whoever stored it: a driver, a person over HTTP, the sweep. Not here: what a line may say (`log`),
//! what is counted (`metrics`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    AgentName, Append, AppendError, CallId, Catalogue as _, Changes, ClaimError, Clock, CreateError, Lease,
    LoadError, Log, Look, Page, PendingFilter, PendingId, PendingRow, Principal, Registry, Revision,
    RunFilter, RunId, RunListing, StartKey, StartedBefore, Store, StoreFault, Subject, SwitchName, Writer,
};
use jiff::Timestamp;

use crate::log;
use crate::metrics::{Kind, Metrics};

/// A lease is renewed so often in its time.
const HEARTBEATS: u32 = 3;

/// The store underneath, and who is told.
#[derive(Debug)]
pub(crate) struct Observed {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// What each tool of this process is.
    kinds: HashMap<String, Kind>,
    /// The runs that the workers of this process hold.
    held: Mutex<HashMap<RunId, Held>>,
}

/// A run in the hands of a worker.
#[derive(Debug)]
struct Held {
    claimed: Timestamp,
    /// When the lease was given or renewed last.
    renewed: Timestamp,
    /// Whether its log was loaded since.
    has_begun: bool,
}

impl Observed {
    /// Tells of this store.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        tools: &Registry,
    ) -> Self {
        let kind = |spec: &countersign::ToolSpec| {
            let kind = Kind { group: spec.group.to_string(), effect: spec.effect.as_str() };
            (spec.name.to_string(), kind)
        };
        let kinds = tools.all().map(kind).collect();
        Self { store, metrics, clock, kinds, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<RunId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, lease: &Lease, now: Timestamp) {
        let mut held = self.held();
        // A driver that panicked lets go of nothing.
        held.retain(|_, held| now.duration_since(held.renewed).unsigned_abs() < Lease::LONGEST);
        held.insert(lease.run.clone(), Held { claimed: now, renewed: now, has_begun: false });
    }

    /// A worker begins with a run: how long did it wait? The last entry is what made it work.
    fn begins(&self, run: &RunId, log: &Log) {
        let mut held = self.held();
        let Some(held) = held.get_mut(run).filter(|held| !held.has_begun) else { return };
        held.has_begun = true;
        if let Some(last) = log.entries.last() {
            self.metrics.took_up(last.at, held.claimed);
        }
    }

    fn renews(&self, lease: &Lease, now: Timestamp, length: Duration) {
        if let Some(held) = self.held().get_mut(&lease.run) {
            let due = held.renewed.checked_add(length / HEARTBEATS).unwrap_or(now);
            self.metrics.renewed(due, now);
            held.renewed = now;
        }
    }

    fn tell(&self, changes: &Changes) {
        let run = &changes.row().id;
        changes.events().iter().for_each(|event| log::happened(run, event));
        self.metrics
            .stored(changes.events(), changes.at(), changes.inbox(), |tool| self.kinds.get(tool).cloned());
    }

    fn faulted<T>(&self, result: Result<T, StoreFault>) -> Result<T, StoreFault> {
        result.inspect_err(|fault| self.metrics.store_failed(fault))
    }

    fn loaded<T>(&self, result: Result<T, LoadError>) -> Result<T, LoadError> {
        if let Err(LoadError::Unreadable { run, .. }) = &result {
            self.metrics.cannot_read();
            log::warn(&format!("run {run} cannot be read; `db doctor` says what is wrong with it"));
        } else if let Err(LoadError::Fault(fault)) = &result {
            self.metrics.store_failed(fault);
        }
        result
    }

    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let began = self.clock.now();
        let done = work.await;
        let took = Duration::try_from(self.clock.now().duration_since(began)).unwrap_or_default();
        self.metrics.appended_in(took);
        done
    }

    fn created(&self, error: &CreateError) {
        if let CreateError::Fault(fault) = error {
            self.metrics.store_failed(fault);
        }
    }
}

#[async_trait]
impl Store for Observed {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let done = self.timed(self.store.create(changes.clone())).await;
        done.inspect(|()| self.tell(&changes)).inspect_err(|error| self.created(error))
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        let done = self.timed(self.store.create_once(changes.clone(), key)).await;
        if let Ok(None) = &done {
            self.tell(&changes);
        }
        done.inspect_err(|error| self.created(error))
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        let done = self.timed(self.store.append(run, at, writer, now, append)).await;
        match &done {
            Ok(Some(changes)) => self.tell(changes),
            Ok(None) | Err(AppendError::NotFound(_)) => {}
            Err(AppendError::Conflict) => self.metrics.came_too_late(),
            Err(AppendError::LeaseLost) => self.metrics.lost_a_lease("append"),
            Err(AppendError::Fault(fault)) => self.metrics.store_failed(fault),
            Err(AppendError::Unreadable { .. } | _) => self.metrics.cannot_read(),
        }
        done
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        self.loaded(self.store.load(run).await).inspect(|log| self.begins(run, log))
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        let logs = self.faulted(self.store.load_each(runs).await)?;
        Ok(logs.into_iter().map(|log| self.loaded(log)).collect())
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        self.loaded(self.store.revision(run).await)
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        self.store.claim(run, token, now, lease).await
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        let claimed = self.faulted(self.store.claim_any(agents, token, now, lease).await);
        claimed.inspect(|lease| lease.iter().for_each(|lease| self.holds(lease, now)))
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        let ours = self.faulted(self.store.heartbeat(lease, now, length).await);
        if let Ok(true) = ours {
            self.renews(lease, now, length);
        } else if let Ok(false) = ours {
            self.held().remove(&lease.run);
            self.metrics.lost_a_lease("heartbeat");
            log::warn(&format!("another worker has taken over run {}", lease.run));
        }
        ours
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        self.held().remove(&lease.run);
        self.faulted(self.store.release(lease, seen).await)
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        self.faulted(self.store.look(subjects).await)
    }

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.faulted(self.store.set_switch(name, enabled, now).await)
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        self.faulted(self.store.put_principal(principal).await)
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        self.faulted(self.store.started(key).await)
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        self.loaded(self.store.run(run, now).await)
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        self.faulted(self.store.runs(filter, now, limit, cursor).await)
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        self.faulted(self.store.pending(id).await)
    }

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        self.faulted(self.store.pendings(filter, limit, cursor).await)
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        self.faulted(self.store.overdue(now, limit).await)
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        self.faulted(self.store.count_refusal(id).await)
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        self.store.idempotency_key(run, call)
    }
}
