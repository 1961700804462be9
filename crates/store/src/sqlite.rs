//! Runs in one SQLite file.
//!
//! Invariant: every change is one transaction on the one writing connection, begun with the lock on the file;
//! readers never wait for it. Whatever promises something to the world is on the disk before the call
//! returns (R3). What people do to a database as a whole ([`crate::Upkeep`]) has a file for each. Not here: making the
//! folder, key files, a second machine.

mod backup;
mod connections;
mod doctor;
mod entries;
mod erase;
mod holders;
mod keys;
mod leases;
mod lists;
mod log;
mod outbox;
mod people;
mod policy;
mod purge;
mod restored;
mod rotate;
mod schema;
#[cfg(test)]
mod tests;
mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Account, Accounts, AgentName, Append, AppendError, CallId, Changes, ClaimError, Clock, CreateError,
    Durability, Lease, LoadError, Log, Look, Page, PendingFilter, PendingId, PendingRow, Principal, Revision,
    RunFilter, RunId, RunListing, StartKey, StartedBefore, Store, StoreFault, Subject, Subscriptions,
    SwitchName, TokenId, TokenRow, Writer,
};
use jiff::Timestamp;

use crate::open::OpenError;
use crate::row::{Row, Value};
use crate::seal::MasterKey;
use crate::vault::Vault;
use connections::Connections;
use holders::Holders;

/// Which file, and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The file. It is made if it is not there; its folder is not.
    pub path: PathBuf,
    /// The most pages of 4096 bytes that the file may have; absent: as many as the disk holds.
    pub pages_max: Option<u32>,
}

impl SqliteOptions {
    /// This file, as large as the disk allows.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), pages_max: None }
    }
}

/// Runs in one SQLite file. Several processes may have it open; all see the same runs.
#[derive(Debug)]
pub struct SqliteStore {
    connections: Connections,
    holders: Holders,
    vault: Arc<Vault>,
    /// The schema when it was opened.
    schema: u32,
    subscriptions: Arc<Subscriptions>,
}

impl SqliteStore {
    /// Opens a database, makes it if the file is new or empty, and brings an older one up to date.
    ///
    /// # Errors
    /// [`OpenError`]. There is no way to open a database without its key.
    pub fn open(options: SqliteOptions, master: MasterKey, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let schema::Opened { connection, vault, schema } =
            schema::open(&options, master, Arc::clone(&clock))?;
        let holders = Holders::of(&options.path, clock);
        let connections = Connections::new(connection, options);
        Ok(Self { connections, holders, vault: Arc::new(vault), schema, subscriptions: Arc::default() })
    }

    /// The same, which owes notices to these from here on.
    pub fn telling(self, subscriptions: Subscriptions) -> Self {
        Self { subscriptions: Arc::new(subscriptions), ..self }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.connections.path()
    }

    fn vault(&self) -> Arc<Vault> {
        Arc::clone(&self.vault)
    }

    fn term(&self, now: Timestamp, length: Duration) -> leases::Term {
        leases::Term { now, length, holder: self.holders.number() }
    }

    /// Takes from processes that are gone what they hold. Where that fails, their leases run out.
    async fn free_what_the_gone_hold(&self) {
        for gone in self.holders.gone() {
            let number = gone.number;
            let freed: Result<(), StoreFault> =
                self.connections.write(Durability::Process, move |tx| leases::free(tx, number)).await;
            if freed.is_ok() {
                gone.forget();
            }
        }
    }

    async fn append_known(&self, aim: log::Aim, changes: Changes) -> Result<Changes, AppendError> {
        let vault = self.vault();
        self.connections.write(changes.durability(), move |tx| log::append(tx, &vault, &aim, changes)).await
    }

    /// How far a commit waits is settled before it begins, and what a judge will say is not known before it is
    /// asked. So it is asked where the commit does not wait, and if it should have, the same is stored again
    /// where it does, provided that the judge would have seen the same.
    async fn append_judged(
        &self,
        aim: log::Aim,
        question: log::Question,
    ) -> Result<Option<Changes>, AppendError> {
        let (vault, to_judge) = (self.vault(), aim.clone());
        let judged = self
            .connections
            .write(Durability::Process, move |tx| log::judge(tx, &vault, &to_judge, question))
            .await?;
        let vault = self.vault();
        match judged {
            log::Judged::Nothing => Ok(None),
            log::Judged::Stored(changes) => Ok(Some(changes)),
            log::Judged::Owed(verdict) => self
                .connections
                .write(Durability::Disk, move |tx| log::store_verdict(tx, &vault, &aim, verdict))
                .await
                .map(Some),
        }
    }
}

impl Row for rusqlite::Row<'_> {
    fn value(&self, column: &'static str) -> Result<Value<'_>, Box<dyn std::error::Error + Send + Sync>> {
        use rusqlite::types::ValueRef;
        Ok(match self.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Number(number),
            ValueRef::Text(text) => Value::Text(text),
            ValueRef::Blob(bytes) => Value::Bytes(bytes),
            ValueRef::Real(_) => Value::Other,
        })
    }
}

/// A failure of SQLite, by what can be done about it.
fn fault(error: rusqlite::Error) -> StoreFault {
    use rusqlite::ErrorCode as Code;
    let code = error.sqlite_error_code();
    let error = Box::new(error);
    match code {
        Some(Code::DiskFull) => StoreFault::Full(error),
        Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => StoreFault::ReadOnly(error),
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreFault::Busy(error),
        Some(_) | None => StoreFault::Failed(error),
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let vault = self.vault();
        self.connections.write(changes.durability(), move |tx| log::create(tx, &vault, &changes)).await
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        let (vault, run) = (self.vault(), run.clone());
        self.connections.read_aside(move |tx| log::load(tx, &vault, &run)).await
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        let (vault, runs) = (self.vault(), runs.to_vec());
        self.connections.read_aside(move |tx| log::load_each(tx, &vault, &runs)).await
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        let subscriptions = Arc::clone(&self.subscriptions);
        let aim = log::Aim { run: run.clone(), at, writer: writer.clone(), now, subscriptions };
        match append {
            Append::Plain(changes) => self.append_known(aim, changes).await.map(Some),
            Append::Judged { subjects, judge } => {
                self.append_judged(aim, log::Question { subjects, judge }).await
            }
        }
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        self.connections
            .read(|tx| log::readable(tx, &self.vault, run).map(|record| Revision(record.revision)))
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        self.free_what_the_gone_hold().await;
        let (vault, run, term) = (self.vault(), run.clone(), self.term(now, lease));
        self.connections
            .write(Durability::Process, move |tx| leases::claim(tx, &vault, &run, token, term))
            .await
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        self.free_what_the_gone_hold().await;
        let (vault, agents) = (self.vault(), agents.to_vec());
        // Most looks find nothing, and looking needs no lock on the file.
        if self.connections.read(|tx| leases::next(tx, &vault, &agents, now))?.is_none() {
            return Ok(None);
        }
        let term = self.term(now, lease);
        self.connections
            .write(Durability::Process, move |tx| leases::claim_any(tx, &vault, &agents, token, term))
            .await
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        let (vault, lease, term) = (self.vault(), lease.clone(), self.term(now, length));
        self.connections
            .write(Durability::Process, move |tx| leases::heartbeat(tx, &vault, &lease, term))
            .await
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        let lease = lease.clone();
        self.connections.write(Durability::Process, move |tx| leases::release(tx, &lease, seen)).await
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        self.connections.read(|tx| policy::look(tx, subjects))
    }

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let name = name.clone();
        self.connections.write(Durability::Disk, move |tx| policy::set_switch(tx, &name, enabled, now)).await
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        let principal = principal.clone();
        self.connections.write(Durability::Disk, move |tx| policy::put_principal(tx, &principal)).await
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        self.connections.read(|tx| people::started(tx, &self.vault, key))
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        let (vault, key) = (self.vault(), key.clone());
        self.connections
            .write(changes.durability(), move |tx| people::create_once(tx, &vault, &changes, &key))
            .await
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        self.free_what_the_gone_hold().await;
        self.connections.read(|tx| log::readable(tx, &self.vault, run).map(|record| record.listing(now)))
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        self.free_what_the_gone_hold().await;
        let (vault, filter, cursor) = (self.vault(), filter.clone(), cursor.map(str::to_owned));
        self.connections
            .read_aside(move |tx| lists::runs(tx, &vault, &filter, now, limit, cursor.as_deref()))
            .await
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        self.connections.read(|tx| lists::pending(tx, id))
    }

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.connections.read_aside(move |tx| lists::pendings(tx, &filter, limit, cursor.as_deref())).await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        self.connections.read_aside(move |tx| lists::overdue(tx, now, limit)).await
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        let id = id.clone();
        self.connections.write(Durability::Process, move |tx| lists::count_refusal(tx, &id)).await
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        self.vault.root.idempotency_key(run, call)
    }
}

#[async_trait]
impl Accounts for SqliteStore {
    async fn accounts(&self, limit: usize, cursor: Option<&str>) -> Result<Page<Account>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.connections.read_aside(move |tx| people::accounts(tx, limit, cursor.as_deref())).await
    }

    async fn account(&self, subject: &Subject) -> Result<Option<Account>, StoreFault> {
        self.connections.read(|tx| people::account(tx, subject))
    }

    async fn disable_principal(&self, subject: &Subject, now: Timestamp) -> Result<bool, StoreFault> {
        let subject = subject.clone();
        self.connections.write(Durability::Disk, move |tx| people::disable(tx, &subject, now)).await
    }

    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreFault> {
        let token = token.clone();
        self.connections.write(Durability::Disk, move |tx| people::put_token(tx, &token)).await
    }

    async fn token(&self, id: &TokenId) -> Result<Option<TokenRow>, StoreFault> {
        self.connections.read(|tx| people::token(tx, id))
    }

    async fn tokens(&self, limit: usize, cursor: Option<&str>) -> Result<Page<TokenRow>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.connections.read_aside(move |tx| people::tokens(tx, limit, cursor.as_deref())).await
    }

    async fn revoke_token(&self, id: &TokenId, now: Timestamp) -> Result<bool, StoreFault> {
        let id = id.clone();
        self.connections.write(Durability::Disk, move |tx| people::revoke(tx, &id, now)).await
    }
}
