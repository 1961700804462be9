//! Runs in a PostgreSQL database, for any number of processes on any number of machines.
//!
//! Invariant: every change is one transaction; a run's row is locked from the moment it is looked at until the
//! commit, switches and rights are held still while something is judged on them, and the keys while somebody relies
//! on them. Whatever promises something to the world is on the disk before the call returns (R3). Nobody's answer
//! rests on a notification. Leases and deadlines go by the database's clock, for which every process takes
//! [`PostgresStore::clock`]. What people do to a database as a whole ([`Upkeep`](crate::Upkeep)) has a file for each.
//! Not here: making the server or the database, copies of it.

mod address;
mod clock;
mod connections;
mod doctor;
mod erase;
mod hints;
mod holders;
mod keys;
mod leases;
mod lists;
mod log;
mod outbox;
mod people;
mod pipeline;
mod policy;
mod purge;
mod restored;
mod rotate;
mod row;
mod schema;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    AgentName, Append, AppendError, CallId, Changes, ClaimError, Clock, CreateError, Lease, LoadError, Log,
    Look, Page, PendingFilter, PendingId, PendingRow, Principal, Revision, RunFilter, RunId, RunListing,
    StartKey, StartedBefore, Store, StoreFault, Subject, Subscriptions, SwitchName, Writer,
};
use jiff::Timestamp;

use crate::open::OpenError;
use crate::seal::MasterKey;
use crate::vault::Vault;
pub use address::{NotAnAddress, PostgresAddress};
pub use clock::DatabaseClock;
use connections::Connections;
use holders::Holder;

/// Runs in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    address: PostgresAddress,
    connections: Connections,
    vault: Arc<Vault>,
    clock: Arc<DatabaseClock>,
    holder: Arc<Holder>,
    /// The schema when it was opened.
    schema: u32,
    subscriptions: Subscriptions,
}

impl PostgresStore {
    /// Connects to a database, makes the tables if it has none, and brings older ones up to date. `clock` is the
    /// machine's own.
    ///
    /// # Errors
    /// [`OpenError`]. There is no way to open a database without its key.
    pub async fn open(
        address: PostgresAddress,
        master: MasterKey,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Fault { database: address.place().to_owned(), source };
        let connections = Connections::new(&address).map_err(failed)?;
        let database_clock = Arc::new(DatabaseClock::new(Arc::clone(&clock)));
        let holder = Arc::new(Holder::new(&*clock));
        let (vault, schema) = schema::open(&connections, address.place(), master, clock).await?;
        let store = Self {
            connections,
            vault: Arc::new(vault),
            clock: database_clock,
            holder,
            address,
            schema,
            subscriptions: Subscriptions::default(),
        };
        store
            .hear_the_time()
            .await
            .map_err(|source| OpenError::Fault { database: store.address.place().to_owned(), source })?;
        Ok(store)
    }

    /// The same, which owes notices to these from here on.
    pub fn telling(self, subscriptions: Subscriptions) -> Self {
        Self { subscriptions, ..self }
    }

    /// Whether an installation was made in this database. Nothing is made by asking.
    ///
    /// # Errors
    /// [`OpenError::Fault`] when the database cannot be reached.
    pub async fn is_made(address: &PostgresAddress) -> Result<bool, OpenError> {
        let made = async { schema::is_made(&Connections::new(address)?).await };
        let database = || address.place().to_owned();
        made.await.map_err(|source| OpenError::Fault { database: database(), source })
    }

    /// The clock of the database, by which everybody who works on it must go.
    pub fn clock(&self) -> Arc<DatabaseClock> {
        Arc::clone(&self.clock)
    }

    async fn hear_the_time(&self) -> Result<(), StoreFault> {
        let statement = format!("SELECT {}", log::TIME);
        // The second answer comes without the way that the first one took to prepare.
        for _ in 0..2 {
            let sent = self.clock.sent();
            if let Some(row) = self.connections.row(&statement, &[]).await? {
                self.hear(sent, &row);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        self.create_run(&changes, None).await
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        self.load_log(run).await
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        self.load_logs(runs).await
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        self.append_to(&log::Aim { run, at, writer, now }, append).await
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        self.readable(run).await.map(|record| Revision(record.revision))
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        self.claim_run(run, token, leases::Term { now, length: lease }).await
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        self.claim_next(agents, token, leases::Term { now, length: lease }).await
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        self.keep_lease(lease, leases::Term { now, length }).await
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        self.give_back(lease, seen).await
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        self.look_at_policy(subjects).await
    }

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.switch(name, enabled, now).await
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        self.know(principal).await
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        self.started_before(key).await
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        if let Some(before) = self.started_before(key).await? {
            return Ok(Some(before));
        }
        match self.create_run(&changes, Some(key)).await {
            Ok(()) => Ok(None),
            // Somebody else was first with the key, or there is such a run.
            Err(CreateError::Exists) => match self.started_before(key).await? {
                Some(before) => Ok(Some(before)),
                None => Err(CreateError::Exists),
            },
            Err(error) => Err(error),
        }
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        self.readable(run).await.map(|record| record.listing(now))
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        self.list_runs(filter, now, limit, cursor).await
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        self.find_pending(id).await
    }

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        self.list_pendings(filter, limit, cursor).await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        self.list_overdue(now, limit).await
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        self.one_more_refusal(id).await
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        self.vault.root.idempotency_key(run, call)
    }
}
