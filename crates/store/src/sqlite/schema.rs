//! The file format: whose file it is, how new, and under which key.
//!
//! Invariant: a file is looked at before it is touched. One that is somebody else's, newer, or sealed under
//! another key is refused and left as it was. A shipped migration is never edited; a change is another one.

use std::path::Path;
use std::sync::Arc;

use countersign::{Clock, StoreFault};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::connections::{BUSY_TIMEOUT, careful};
use super::{SqliteOptions, fault, keys};
use crate::migration::{self, Migration, Version};
use crate::open::{self, OpenError};
use crate::seal::MasterKey;
use crate::vault::Vault;

/// "CSGN": what SQLite keeps in the header of the file, for others to tell whose it is.
pub(super) const APPLICATION_ID: i32 = 0x4353_474e;
/// In order, each once, each in a transaction of its own.
const MIGRATIONS: [Migration; 12] = [
    Migration::new(1, include_str!("../../migrations/sqlite/0001_runs.sql")),
    Migration::new(2, include_str!("../../migrations/sqlite/0002_keeping.sql")),
    Migration::new(3, include_str!("../../migrations/sqlite/0003_switched_off.sql")),
    Migration::new(4, include_str!("../../migrations/sqlite/0004_continuations.sql")),
    Migration::new(5, include_str!("../../migrations/sqlite/0005_people.sql")),
    Migration::new(6, include_str!("../../migrations/sqlite/0006_lists.sql")),
    Migration::new(7, include_str!("../../migrations/sqlite/0007_outbox.sql")),
    Migration::new(8, include_str!("../../migrations/sqlite/0008_starter.sql")),
    Migration::new(9, include_str!("../../migrations/sqlite/0009_open.sql")),
    Migration::new(10, include_str!("../../migrations/sqlite/0010_holders.sql")),
    Migration::new(11, include_str!("../../migrations/sqlite/0011_reviewed.sql")),
    Migration::new(12, include_str!("../../migrations/sqlite/0012_readers.sql")),
];
/// The schema from which on there can be a change of master keys.
const ROTATION_SINCE: u32 = 2;
/// The schema from which on a database says how old a program may be that works on it.
const READERS_SINCE: u32 = 12;
/// The schema after all of them.
#[expect(clippy::cast_possible_truncation, reason = "there are few migrations")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// An open file.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) vault: Vault,
    /// Its schema: what is known here, or newer.
    pub(super) schema: u32,
}

/// Opens the file for writing, brings it up to date and finds its keys.
pub(super) fn open(
    options: &SqliteOptions,
    master: MasterKey,
    clock: Arc<dyn Clock>,
) -> Result<Opened, OpenError> {
    let path = options.path.as_path();
    let mut connection = connect(options).map_err(|error| refused(path, error))?;
    look(&mut connection, path, &master)?;
    let failed = |error| refused(path, error);
    // Only now may the file be written. The mode stays with the file.
    let mode = write_ahead(&mut connection).map_err(failed)?;
    if mode != "wal" {
        return Err(OpenError::NoWriteAheadLog(shown(path)));
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    let schema = migrate(&mut connection, path)?;
    let vault = find_keys(&mut connection, path, master, clock)?;
    Ok(Opened { connection, vault, schema })
}

/// Whether this process may still work on the file, in this transaction.
pub(super) fn still_readable(tx: &Connection) -> Result<(), StoreFault> {
    let from = tx
        .prepare_cached(READERS)
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(fault)?;
    migration::still_readable(from, VERSION)
}

/// The schema that a program must know.
const READERS: &str = "SELECT readable_from FROM schema_version";

/// Turns the write-ahead log on and says which mode the file is in now. SQLite does not wait when another
/// process does the same at the same moment, so whoever finds it busy waits for a lock, and tries again.
fn write_ahead(connection: &mut Connection) -> Result<String, rusqlite::Error> {
    const ATTEMPTS: u32 = 20;
    let mut attempt = 1;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)) {
            Err(error)
                if attempt < ATTEMPTS && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) =>
            {
                attempt += 1;
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?.finish()?;
            }
            result => return result,
        }
    }
}

/// Whether the file may be written, as one transaction sees it: another process may be making it right now.
fn look(connection: &mut Connection, path: &Path, master: &MasterKey) -> Result<(), OpenError> {
    let failed = |error| refused(path, error);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(failed)?;
    match age(&tx).map_err(failed)? {
        Age::Foreign => Err(OpenError::Foreign(shown(path))),
        Age::Schema(Version { found: 0, .. }) => Ok(()),
        Age::Schema(version) => {
            version.check(VERSION)?;
            check_key(&tx, path, version.found, master)
        }
    }
}

fn connect(options: &SqliteOptions) -> Result<Connection, rusqlite::Error> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&options.path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    careful(&connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What is deleted is overwritten: a destroyed key or text must not stay behind in a free page (R10).
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    if let Some(pages_max) = options.pages_max {
        connection.pragma_update_and_check(None, "max_page_count", pages_max, |_| Ok(()))?;
    }
    Ok(connection)
}

enum Age {
    /// Not ours.
    Foreign,
    /// Ours, or nobody's yet.
    Schema(Version),
}

fn age(connection: &Connection) -> Result<Age, rusqlite::Error> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, u32::try_from(version), tables) {
        (APPLICATION_ID, Ok(found), _) => {
            // What does not say it is for no older program, and is not asked in a schema that cannot say it.
            let readers = || connection.query_row(READERS, [], |row| row.get(0)).ok();
            let readable_from = (found >= READERS_SINCE).then(readers).flatten();
            Age::Schema(Version { found, readable_from })
        }
        (0, Ok(0), 0) => Age::Schema(Version { found: 0, readable_from: None }),
        _ => Age::Foreign,
    })
}

/// Brings the file up to date, and says which schema it has then.
fn migrate(connection: &mut Connection, path: &Path) -> Result<u32, OpenError> {
    let failed = |error| refused(path, error);
    loop {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        // Read again under the lock: another process may be opening the same file.
        let version = match age(&tx).map_err(failed)? {
            Age::Foreign => return Err(OpenError::Foreign(shown(path))),
            Age::Schema(version) => version,
        };
        version.check(VERSION)?;
        let found = version.found;
        let Some(migration) = MIGRATIONS.get(found as usize) else { return Ok(found) };
        tx.execute_batch(migration.statements).map_err(failed)?;
        if found + 1 >= READERS_SINCE {
            tx.execute(
                "UPDATE schema_version SET readable_from = max(readable_from, ?1)",
                [migration.readable_from],
            )
            .map_err(failed)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        tx.pragma_update(None, "user_version", found + 1).map_err(failed)?;
        tx.commit().map_err(failed)?;
    }
}

fn check_key(connection: &Connection, path: &Path, schema: u32, master: &MasterKey) -> Result<(), OpenError> {
    let found =
        if schema < ROTATION_SINCE { keys::before_rotations(connection) } else { keys::read(connection) };
    let installation = found.map_err(|error| refused(path, error))?;
    installation.map_or(Ok(()), |installation| open::check_key(&installation, master))
}

fn find_keys(
    connection: &mut Connection,
    path: &Path,
    master: MasterKey,
    clock: Arc<dyn Clock>,
) -> Result<Vault, OpenError> {
    let failed = |error| refused(path, error);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    if let Some(installation) = keys::read(&tx).map_err(failed)? {
        return open::vault_of(&installation, master, clock);
    }
    let runs: bool =
        tx.query_row("SELECT EXISTS (SELECT 1 FROM runs)", [], |row| row.get(0)).map_err(failed)?;
    if runs {
        return Err(open::keyless());
    }
    let fingerprint = master.fingerprint();
    let (vault, root) = Vault::new_installation(master, clock)
        .map_err(|source| OpenError::Fault { database: shown(path), source })?;
    tx.execute(
        "INSERT INTO installation (one, key_fingerprint, root) VALUES (1, ?1, ?2)",
        (fingerprint, root),
    )
    .map_err(failed)?;
    tx.commit().map_err(failed)?;
    Ok(vault)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn refused(path: &Path, error: rusqlite::Error) -> OpenError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return OpenError::Foreign(shown(path));
    }
    let source: StoreFault = fault(error);
    OpenError::Fault { database: shown(path), source }
}
