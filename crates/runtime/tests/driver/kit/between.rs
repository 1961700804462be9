//! Between a process and its store: cuts the power, and lets things happen at the worst moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    AgentName, Append, AppendError, CallId, Changes, ClaimError, CreateError, Lease, LoadError, Log, Look,
    Page, PendingFilter, PendingId, PendingRow, Principal, Revision, RunFilter, RunId, RunListing, StartKey,
    StartedBefore, Store, StoreFault, Subject, SwitchName, Writer,
};
use futures_util::future::BoxFuture;
use jiff::Timestamp;

/// When the power is cut. Appends and effects are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Never,
    /// Nothing of this append is stored.
    Before(usize),
    /// It is stored, and the process never hears of it.
    After(usize),
    /// A tool has done its work, and its result goes nowhere.
    Effect(usize),
}

type Happening = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A store as one process sees it.
#[derive(Clone)]
pub(crate) struct Between(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    cut: Mutex<Cut>,
    dead: AtomicBool,
    appends: AtomicUsize,
    loads: AtomicUsize,
    effects: AtomicUsize,
    before_append: Mutex<Option<(usize, Happening)>>,
    before_release: Mutex<Option<Happening>>,
    silent_heart: AtomicBool,
    connection_lost: Mutex<Vec<Lost>>,
}

/// Where the connection is lost; the process lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    BeforeTheAppend,
    /// It is stored, and the answer does not arrive.
    AfterTheAppend,
    BeforeTheRelease,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Between").finish_non_exhaustive()
    }
}

impl Between {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner {
            store,
            cut: Mutex::new(Cut::Never),
            dead: AtomicBool::new(false),
            appends: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            effects: AtomicUsize::new(0),
            before_append: Mutex::new(None),
            before_release: Mutex::new(None),
            silent_heart: AtomicBool::new(false),
            connection_lost: Mutex::default(),
        }))
    }

    /// One whose process loses its power.
    pub(crate) fn cutting(store: Arc<dyn Store>, cut: Cut) -> Self {
        let between = Self::new(store);
        *between.0.cut.lock().unwrap() = cut;
        between
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }

    /// From now on nothing this process says is heard.
    pub(crate) fn kill(&self) {
        self.0.dead.store(true, Ordering::Relaxed);
    }

    /// How many appends were tried, those of a run's creation included.
    pub(crate) fn appends(&self) -> usize {
        self.0.appends.load(Ordering::Relaxed)
    }

    /// How many logs were loaded.
    pub(crate) fn loads(&self) -> usize {
        self.0.loads.load(Ordering::Relaxed)
    }

    /// Lets something happen right before an append, after `skipped` others.
    pub(crate) fn before_append<F: Future<Output = ()> + Send + 'static>(
        &self,
        skipped: usize,
        happening: impl FnOnce() -> F + Send + 'static,
    ) {
        *self.0.before_append.lock().unwrap() = Some((skipped, Box::new(|| Box::pin(happening()))));
    }

    /// Lets something happen between the last look and the release.
    pub(crate) fn before_release<F: Future<Output = ()> + Send + 'static>(
        &self,
        happening: impl FnOnce() -> F + Send + 'static,
    ) {
        *self.0.before_release.lock().unwrap() = Some(Box::new(|| Box::pin(happening())));
    }

    /// Heartbeats no longer arrive, and nobody is told.
    pub(crate) fn silence_heart(&self) {
        self.0.silent_heart.store(true, Ordering::Relaxed);
    }

    /// The connection is lost at these, one after another.
    pub(crate) fn lose_connection(&self, lost: &[Lost]) {
        *self.0.connection_lost.lock().unwrap() = lost.iter().rev().copied().collect();
    }

    fn connected(&self, at: Lost) -> Result<(), StoreFault> {
        let lost = self.0.connection_lost.lock().unwrap().pop_if(|lost| *lost == at);
        if lost.is_some() { Err(StoreFault::Unreachable("the connection is lost".into())) } else { Ok(()) }
    }

    /// A tool has done its work.
    pub(crate) fn effect(&self) {
        let count = self.0.effects.fetch_add(1, Ordering::Relaxed);
        if *self.0.cut.lock().unwrap() == Cut::Effect(count) {
            self.kill();
        }
    }

    fn alive(&self) -> Result<(), StoreFault> {
        if self.is_dead() { Err(no_power()) } else { Ok(()) }
    }

    async fn begin_append(&self) -> Result<usize, StoreFault> {
        self.alive()?;
        let due = {
            let mut slot = self.0.before_append.lock().unwrap();
            match &mut *slot {
                Some((0, _)) => slot.take(),
                Some((skipped, _)) => {
                    *skipped -= 1;
                    None
                }
                None => None,
            }
        };
        if let Some((_, happening)) = due {
            happening().await;
        }
        let count = self.0.appends.fetch_add(1, Ordering::Relaxed);
        if *self.0.cut.lock().unwrap() == Cut::Before(count) {
            self.kill();
        }
        self.alive()?;
        self.connected(Lost::BeforeTheAppend)?;
        Ok(count)
    }

    fn end_append(&self, count: usize) -> Result<(), StoreFault> {
        if *self.0.cut.lock().unwrap() == Cut::After(count) {
            self.kill();
        }
        self.connected(Lost::AfterTheAppend)?;
        self.alive()
    }
}

fn no_power() -> StoreFault {
    StoreFault::Failed("the power is cut".into())
}

#[async_trait]
impl Store for Between {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let count = self.begin_append().await?;
        let created = self.0.store.create(changes).await;
        self.end_append(count)?;
        created
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        self.alive()?;
        self.0.store.started(key).await
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        let count = self.begin_append().await?;
        let created = self.0.store.create_once(changes, key).await;
        self.end_append(count)?;
        created
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        self.alive()?;
        self.0.loads.fetch_add(1, Ordering::Relaxed);
        self.0.store.load(run).await
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        self.alive()?;
        self.0.loads.fetch_add(runs.len(), Ordering::Relaxed);
        self.0.store.load_each(runs).await
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        let count = self.begin_append().await?;
        let appended = self.0.store.append(run, at, writer, now, append).await;
        self.end_append(count)?;
        appended
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        self.alive()?;
        self.0.store.revision(run).await
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        self.alive()?;
        self.0.store.claim(run, token, now, lease).await
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        self.alive()?;
        self.0.store.claim_any(agents, token, now, lease).await
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        self.alive()?;
        if self.0.silent_heart.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.0.store.heartbeat(lease, now, length).await
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        self.alive()?;
        self.connected(Lost::BeforeTheRelease)?;
        let due = self.0.before_release.lock().unwrap().take();
        if let Some(happening) = due {
            happening().await;
        }
        self.0.store.release(lease, seen).await
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        self.alive()?;
        self.0.store.look(subjects).await
    }

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.alive()?;
        self.0.store.set_switch(name, enabled, now).await
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        self.alive()?;
        self.0.store.put_principal(principal).await
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        self.alive()?;
        self.0.store.run(run, now).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        self.alive()?;
        self.0.store.runs(filter, now, limit, cursor).await
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        self.alive()?;
        self.0.store.pending(id).await
    }

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        self.alive()?;
        self.0.store.pendings(filter, limit, cursor).await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        self.alive()?;
        self.0.store.overdue(now, limit).await
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        self.alive()?;
        self.0.store.count_refusal(id).await
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        self.0.store.idempotency_key(run, call)
    }
}
