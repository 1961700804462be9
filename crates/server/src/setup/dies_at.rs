//! For tests alone: ends the process as `kill -9` does, at a named point of its work with the store.
//!
//! Invariant: it is compiled into no release (`debug_assertions`), and where the variable is not set it is not in the
//! way either (`docs/decisions/0030-named-points.md`). It changes nothing that a store is asked or answers. Not here: which points are
//! tried, and what must hold afterwards (`tests/faults.rs`).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    AgentName, Append, AppendError, CallId, Changes, ClaimError, CreateError, Lease, LoadError, Log, Look,
    Page, PendingFilter, PendingId, PendingRow, Principal, Revision, RunFilter, RunId, RunListing, StartKey,
    StartedBefore, Store, StoreFault, Subject, SwitchName, Writer,
};
use jiff::Timestamp;

use crate::environment::Environment;

/// `MOMENT WHAT`, or `MOMENT WHAT N` for the N-th time: `before`, `amid` or `after`, and the kind of an event that is
/// stored, `claim`, `heartbeat` or `release`.
const VARIABLE: &str = "COUNTERSIGN_DIES_AT";

/// The store, and the point at which the process is to die, if there is one.
pub(super) fn mortal(store: Arc<dyn Store>, environment: &Environment) -> Arc<dyn Store> {
    let Some(point) = environment.get(VARIABLE) else { return store };
    let mut words = point.split(' ').map(str::to_owned);
    let (moment, what) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let times = words.next().and_then(|times| times.parse().ok()).unwrap_or(1);
    let point = Arc::new(Point { moment, what, left: AtomicUsize::new(times) });
    Arc::new(Mortal { store, point })
}

#[derive(Debug)]
struct Point {
    moment: String,
    what: String,
    /// How often it is still to be reached.
    left: AtomicUsize,
}

impl Point {
    fn reached(&self, moment: &str, whats: &[&'static str]) {
        for _ in whats.iter().filter(|what| self.moment == moment && self.what == **what) {
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                // Whoever may not kill itself goes on; the test then misses the death.
                _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        }
    }

    /// Does it, and notices when it begins, when it is under way and when it is done.
    async fn around<T>(
        &self,
        whats: &[&'static str],
        work: impl Future<Output = T> + Send,
        is_done: impl FnOnce(&T) -> bool + Send,
    ) -> T {
        self.reached("before", whats);
        let mut work = pin!(work);
        let mut is_under_way = false;
        let came = poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() && !is_under_way {
                is_under_way = true;
                self.reached("amid", whats);
            }
            polled
        })
        .await;
        if is_done(&came) {
            self.reached("after", whats);
        }
        came
    }
}

fn kinds(changes: &Changes) -> Vec<&'static str> {
    changes.events().iter().map(countersign::Event::kind).collect()
}

/// A store beside which the process dies.
#[derive(Debug)]
struct Mortal {
    store: Arc<dyn Store>,
    point: Arc<Point>,
}

#[async_trait]
impl Store for Mortal {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let kinds = kinds(&changes);
        self.point.around(&kinds, self.store.create(changes), Result::is_ok).await
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        let kinds = kinds(&changes);
        let is_done = |done: &Result<Option<_>, _>| matches!(done, Ok(None));
        self.point.around(&kinds, self.store.create_once(changes, key), is_done).await
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        match append {
            Append::Plain(changes) => {
                let kinds = kinds(&changes);
                let appending = self.store.append(run, at, writer, now, Append::Plain(changes));
                self.point.around(&kinds, appending, Result::is_ok).await
            }
            Append::Judged { subjects, judge } => {
                let point = Arc::clone(&self.point);
                let judge = Box::new(move |look: &Look| {
                    let changes = judge(look);
                    // The transaction that is to store it is open.
                    changes.iter().for_each(|changes| point.reached("amid", &kinds(changes)));
                    changes
                });
                let appended =
                    self.store.append(run, at, writer, now, Append::Judged { subjects, judge }).await;
                if let Ok(Some(changes)) = &appended {
                    self.point.reached("after", &kinds(changes));
                }
                appended
            }
        }
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        self.point.around(&["claim"], self.store.claim(run, token, now, lease), Result::is_ok).await
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        let claiming = self.store.claim_any(agents, token, now, lease);
        self.point.around(&["claim"], claiming, |claimed| matches!(claimed, Ok(Some(_)))).await
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        self.point.around(&["heartbeat"], self.store.heartbeat(lease, now, length), Result::is_ok).await
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        self.point.around(&["release"], self.store.release(lease, seen), Result::is_ok).await
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        self.store.load(run).await
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        self.store.load_each(runs).await
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        self.store.revision(run).await
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        self.store.look(subjects).await
    }

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.store.set_switch(name, enabled, now).await
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        self.store.put_principal(principal).await
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        self.store.started(key).await
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        self.store.run(run, now).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        self.store.runs(filter, now, limit, cursor).await
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        self.store.pending(id).await
    }

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        self.store.pendings(filter, limit, cursor).await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        self.store.overdue(now, limit).await
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        self.store.count_refusal(id).await
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        self.store.idempotency_key(run, call)
    }
}
