//! A pool of connections, and transactions that cost as few round trips as they can.
//!
//! Invariant: a transaction's beginning travels with its first statements and its end with the last ones, in this
//! order, without waiting in between; PostgreSQL runs them one after another, and what fails takes everything
//! after it along. A connection goes back to the pool only when its transaction has ended; one that was dropped
//! half-way is closed, so that nothing is ever appended to somebody else's transaction. How far a commit waits is
//! said in the transaction itself (R3).

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign::{Durability, StoreFault};
use deadpool_postgres::{
    Client, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use futures_util::FutureExt as _;
use futures_util::future::{join, join3, try_join_all};
use tokio_postgres::error::{Error, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::PostgresAddress;

/// How long one transaction waits for another, and a caller for a connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long reaching the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The connections of one process.
const CONNECTIONS_MAX: usize = 16;

/// A parameter of a statement.
pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Connections {
    pool: Pool,
}

impl Connections {
    /// A pool; nothing is connected yet.
    pub(super) fn new(address: &PostgresAddress) -> Result<Self, StoreFault> {
        let config = configured(address);
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match address.tls().map_err(failed)? {
            None => Manager::from_config(config, NoTls, manager),
            Some(tls) => Manager::from_config(config, MakeRustlsConnect::new(tls), manager),
        };
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(BUSY_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async move { client.batch_execute(PREPARATION).await.map_err(HookError::Backend) })
            }))
            .build();
        pool.map(|pool| Self { pool }).map_err(failed)
    }

    /// A transaction that has not begun yet.
    pub(super) async fn transaction(&self, begin: Begin) -> Result<Transaction, StoreFault> {
        Ok(Transaction { client: self.client().await?, begin, is_open: AtomicBool::new(false) })
    }

    async fn client(&self) -> Result<Client, StoreFault> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => fault(error),
            PoolError::Timeout(TimeoutType::Wait) => StoreFault::Busy(Box::new(error)),
            PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
                StoreFault::Unreachable(Box::new(error))
            }
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => failed(error),
        })
    }

    /// One read.
    pub(super) async fn rows(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreFault> {
        let client = self.client().await?;
        let statement = client.prepare_cached(statement).await.map_err(fault)?;
        client.query(&statement, parameters).await.map_err(fault)
    }

    /// One read, planned for the values of its parameters and not for any others; also in one round trip.
    pub(super) async fn rows_planned_for(
        &self,
        statement: &str,
        parameters: &[(Parameter<'_>, Type)],
    ) -> Result<Vec<Row>, StoreFault> {
        self.client().await?.query_typed(statement, parameters).await.map_err(fault)
    }

    /// One read of what may not be there.
    pub(super) async fn row(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Row>, StoreFault> {
        Ok(self.rows(statement, parameters).await?.into_iter().next())
    }

    /// One statement that changes something, in a transaction of its own, and in one round trip.
    pub(super) async fn change(
        &self,
        durability: Durability,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreFault> {
        let tx = self.transaction(Begin::Write(durability)).await?;
        let [statement] = tx.statements([statement]).await?;
        tx.whole(tx.query(&statement, parameters)).await
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections").field("status", &self.pool.status()).finish_non_exhaustive()
    }
}

/// What a new connection is told. A commit that is asked to wait for the disk waits for it, whatever the server
/// says by default; one that says more than the disk keeps its word. What a peer that vanished has locked is
/// given up, and nobody waits for a lock for ever. No statement here runs as long as compiling it would take, which the
/// server would guess otherwise of one that goes on from row to row.
const PREPARATION: &str = "\
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; \
    SET lock_timeout = '5s'; \
    SET idle_in_transaction_session_timeout = '15s'; \
    SET search_path = countersign; \
    SET jit = off; \
    SET DateStyle = 'ISO'";

/// What a connection is opened with.
pub(super) fn configured(address: &PostgresAddress) -> tokio_postgres::Config {
    let mut config = address.config().clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    config.application_name("countersign");
    config
}

/// How a transaction begins.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// To change something, with a commit that waits this far. Each statement sees what was committed before it.
    Write(Durability),
    /// To read what stood at one moment.
    Read,
}

impl Begin {
    fn statement(self) -> &'static str {
        match self {
            Self::Write(Durability::Disk) => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            Self::Write(Durability::Process) => {
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = off"
            }
            Self::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }
}

/// A transaction. What is awaited together is sent together, in the order in which it is named.
pub(super) struct Transaction {
    client: Client,
    begin: Begin,
    is_open: AtomicBool,
}

impl Transaction {
    /// These statements, known to the server. Only the first time on a connection costs this a round trip.
    pub(super) async fn statements<const N: usize>(
        &self,
        texts: [&str; N],
    ) -> Result<[Statement; N], StoreFault> {
        let statements = try_join_all(texts.map(|text| self.client.prepare_cached(text))).await;
        statements.map_err(fault)?.try_into().map_err(|_| failed(Miscounted))
    }

    /// One statement. It is sent when it is first polled.
    pub(super) fn query<'a>(
        &'a self,
        statement: &'a Statement,
        parameters: &'a [Parameter<'a>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send + 'a {
        self.client.query(statement, parameters)
    }

    /// Several statements without parameters, and without an answer.
    pub(super) fn batch<'a>(
        &'a self,
        statements: &'a str,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'a {
        self.client.batch_execute(statements)
    }

    /// Begins, with the first statements.
    pub(super) async fn start<T>(
        &self,
        first: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreFault> {
        self.is_open.store(true, Ordering::Relaxed);
        let (begun, first) = join(self.client.batch_execute(self.begin.statement()), first).await;
        begun.and(first).map_err(fault)
    }

    /// Goes on.
    pub(super) async fn go_on<T>(
        &self,
        next: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreFault> {
        next.await.map_err(fault)
    }

    /// Commits, with the last statements. After one that failed PostgreSQL commits nothing.
    pub(super) async fn commit<T>(
        &self,
        last: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreFault> {
        let (last, committed) = join(last, self.client.batch_execute("COMMIT")).await;
        self.is_open.store(committed.is_err(), Ordering::Relaxed);
        last.and_then(|last| committed.map(|()| last)).map_err(fault)
    }

    /// All of it in one round trip.
    pub(super) async fn whole<T>(
        &self,
        statements: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreFault> {
        self.is_open.store(true, Ordering::Relaxed);
        let begin = self.client.batch_execute(self.begin.statement());
        let (begun, done, committed) = join3(begin, statements, self.client.batch_execute("COMMIT")).await;
        self.is_open.store(committed.is_err(), Ordering::Relaxed);
        begun.and(done).and_then(|done| committed.map(|()| done)).map_err(fault)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if *self.is_open.get_mut() {
            // Polled once it is sent, before anything that the next user of this connection sends.
            drop(self.client.batch_execute("ROLLBACK").now_or_never());
        }
    }
}

/// A failure of PostgreSQL, by what can be done about it.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
pub(super) fn fault(error: Error) -> StoreFault {
    let said = Box::new(Said::of(&error));
    let Some(code) = error.code() else {
        let is_lost = error.is_closed() || error.source().is_some_and(|why| why.is::<std::io::Error>());
        return if is_lost { StoreFault::Unreachable(said) } else { StoreFault::Failed(said) };
    };
    if *code == SqlState::DISK_FULL {
        return StoreFault::Full(said);
    }
    if [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::INSUFFICIENT_PRIVILEGE].contains(code) {
        return StoreFault::ReadOnly(said);
    }
    let busy = [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    // It is being stopped, or has fallen over: so says the server itself before it hangs up.
    let gone = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    if gone.contains(code) {
        return StoreFault::Unreachable(said);
    }
    if busy.contains(code) { StoreFault::Busy(said) } else { StoreFault::Failed(said) }
}

/// Whether a row of this key is there already.
pub(super) fn is_taken(fault: &StoreFault) -> bool {
    has_code(fault, &[SqlState::UNIQUE_VIOLATION])
}

/// What PostgreSQL says of damaged files, if that is what failed.
pub(super) fn damage(fault: &StoreFault) -> Option<String> {
    let is_damage = has_code(fault, &[SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED]);
    fault.source().filter(|_| is_damage).map(ToString::to_string)
}

fn has_code(fault: &StoreFault, codes: &[SqlState]) -> bool {
    let said = fault.source().and_then(|why| why.downcast_ref::<Said>());
    said.and_then(|said| said.code.as_ref()).is_some_and(|code| codes.contains(code))
}

pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreFault {
    StoreFault::Failed(Box::new(error))
}

/// What went wrong, in one line, and without the rows that PostgreSQL may quote (S5).
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Said {
    code: Option<SqlState>,
    text: String,
}

impl Said {
    fn of(error: &Error) -> Self {
        let text = match error.as_db_error() {
            Some(said) => format!("{} (SQLSTATE {})", said.message(), said.code().code()),
            None => {
                let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
                format!("{error}{source}")
            }
        };
        Self { code: error.code().cloned(), text }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("statements were lost")]
struct Miscounted;
