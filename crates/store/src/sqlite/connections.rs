//! One connection that writes, a few that read.
//!
//! Invariant: a write is one closure in one transaction that holds the file's lock from its beginning, so it
//! is never turned away half-way. How far its commit waits is set before it begins (R3). A commit that does
//! not wait for the disk runs in place if nobody is in the way; everything else runs aside, so that no task
//! of the caller's runtime waits for a lock or for a disk.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use countersign::{Durability, StoreFault};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::{SqliteOptions, fault};

/// How long one process waits for another that holds the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers that are kept for the next one.
const READERS_KEPT: usize = 4;
/// More than there are statements here.
const STATEMENTS_KEPT: usize = 64;

pub(super) struct Connections {
    /// Closed before the writer, which then is the last and leaves one file without a log beside it.
    readers: Arc<Readers>,
    /// A panic under the lock has rolled its transaction back, so the next one may take it.
    writer: Arc<Mutex<Writer>>,
}

struct Writer {
    connection: Connection,
    /// How far commits wait now; unknown before the first.
    waits_for: Option<Durability>,
}

struct Readers {
    options: SqliteOptions,
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    /// Takes the connection that opened the file as the writer.
    pub(super) fn new(connection: Connection, options: SqliteOptions) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Self {
            writer: Arc::new(Mutex::new(Writer { connection, waits_for: None })),
            readers: Arc::new(Readers { options, idle: Mutex::default() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.readers.options.path
    }

    /// One write. The closure runs once, or not at all.
    pub(super) async fn write<T, E, F>(&self, durability: Durability, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreFault> + Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        let work = if durability == Durability::Process {
            match self.write_in_place(work) {
                InPlace::Done(result) => return result,
                InPlace::InTheWay(work) => work,
            }
        } else {
            work
        };
        let writer = Arc::clone(&self.writer);
        aside(move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.run(durability, BUSY_TIMEOUT, work).unwrap_or_else(|(error, _)| Err(fault(error).into()))
        })
        .await
    }

    fn write_in_place<T, E, F>(&self, work: F) -> InPlace<T, E, F>
    where
        E: From<StoreFault>,
        F: FnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(writer)) => writer.into_inner(),
            Err(TryLockError::WouldBlock) => return InPlace::InTheWay(work),
        };
        match writer.run(Durability::Process, Duration::ZERO, work) {
            Ok(result) => InPlace::Done(result),
            Err((error, work)) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                InPlace::InTheWay(work)
            }
            Err((error, _)) => InPlace::Done(Err(fault(error).into())),
        }
    }

    /// A short read, in place.
    pub(super) fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<StoreFault>,
        F: FnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        self.readers.run(work)
    }

    /// A read of any length, aside.
    pub(super) async fn read_aside<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreFault> + Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        aside(move || readers.run(work)).await
    }

    /// Work on a reader outside of any transaction.
    pub(super) async fn use_reader<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreFault> + Send + 'static,
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        aside(move || work(&readers.connect().map_err(fault)?)).await
    }

    /// Takes what was overwritten out of the log beside the file, and empties that. `false`: somebody was
    /// reading and did not end in time.
    pub(super) async fn scrub(&self) -> Result<bool, StoreFault> {
        let writer = Arc::clone(&self.writer);
        aside(move || {
            let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.connection.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
            writer
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
                .map(|busy| busy == 0)
                .map_err(fault)
        })
        .await
    }

    #[cfg(test)]
    pub(super) fn with_writer<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&self.writer.lock().unwrap_or_else(PoisonError::into_inner).connection)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections").field("options", &self.readers.options).finish_non_exhaustive()
    }
}

enum InPlace<T, E, F> {
    Done(Result<T, E>),
    InTheWay(F),
}

impl Writer {
    /// Runs the closure in a transaction and commits it if it says so. The outer error gives the closure
    /// back: the transaction could not begin.
    fn run<T, E, F>(
        &mut self,
        durability: Durability,
        patience: Duration,
        work: F,
    ) -> Result<Result<T, E>, (rusqlite::Error, F)>
    where
        E: From<StoreFault>,
        F: FnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        if let Err(error) = self.prepare(durability, patience) {
            return Err((error, work));
        }
        let tx = match self.connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(tx) => tx,
            Err(error) => return Err((error, work)),
        };
        Ok(work(&tx).and_then(|done| tx.commit().map(|()| done).map_err(|error| fault(error).into())))
    }

    fn prepare(&mut self, durability: Durability, patience: Duration) -> Result<(), rusqlite::Error> {
        self.connection.busy_timeout(patience)?;
        if self.waits_for != Some(durability) {
            let level = match durability {
                Durability::Process => "NORMAL",
                Durability::Disk => "FULL",
            };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.waits_for = Some(durability);
        }
        Ok(())
    }
}

impl Readers {
    fn run<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<StoreFault>,
        F: FnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(fault)?,
        };
        let tx = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(fault)?;
        let result = work(&tx);
        tx.finish().map_err(fault)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < READERS_KEPT {
            idle.push(connection);
        }
        result
    }

    fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.options.path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        careful(&connection)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Ok(connection)
    }
}

/// What every connection is told: the file may have been written by somebody else, and nothing of it goes to
/// another file.
pub(super) fn careful(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "trusted_schema", false)?;
    // Or a statement is planned anew whenever a parameter changes that a partial index might depend on.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Runs blocking work where it may block.
async fn aside<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreFault> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(lost) => Err(StoreFault::Failed(Box::new(lost)).into()),
    }
}
