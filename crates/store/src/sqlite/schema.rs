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
use crate::open::{self, OpenError};
use crate::seal::MasterKey;
use crate::vault::Vault;

/// "CSGN": what SQLite keeps in the header of the file, for others to tell whose it is.
pub(super) const APPLICATION_ID: i32 = 0x4353_474e;
/// In order, each once, each in a transaction of its own.
const MIGRATIONS: [&str; 11] = [
    include_str!("../../migrations/sqlite/0001_runs.sql"),
    include_str!("../../migrations/sqlite/0002_keeping.sql"),
    include_str!("../../migrations/sqlite/0003_switched_off.sql"),
    include_str!("../../migrations/sqlite/0004_continuations.sql"),
    include_str!("../../migrations/sqlite/0005_people.sql"),
    include_str!("../../migrations/sqlite/0006_lists.sql"),
    include_str!("../../migrations/sqlite/0007_outbox.sql"),
    include_str!("../../migrations/sqlite/0008_starter.sql"),
    include_str!("../../migrations/sqlite/0009_open.sql"),
    include_str!("../../migrations/sqlite/0010_holders.sql"),
    include_str!("../../migrations/sqlite/0011_reviewed.sql"),
];
/// The schema from which on there can be a change of master keys.
const ROTATION_SINCE: u32 = 2;
/// The schema after all of them.
#[expect(clippy::cast_possible_truncation, reason = "there are few migrations")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Opens the file for writing, brings it up to date and finds its keys.
pub(super) fn open(
    options: &SqliteOptions,
    master: MasterKey,
    clock: Arc<dyn Clock>,
) -> Result<(Connection, Vault), OpenError> {
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
    migrate(&mut connection, path)?;
    let vault = find_keys(&mut connection, path, master, clock)?;
    Ok((connection, vault))
}

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
        Age::Schema(found) if found > VERSION => Err(OpenError::Newer { found, known: VERSION }),
        Age::Schema(0) => Ok(()),
        Age::Schema(found) => check_key(&tx, path, found, master),
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
    Schema(u32),
}

fn age(connection: &Connection) -> Result<Age, rusqlite::Error> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, u32::try_from(version), tables) {
        (APPLICATION_ID, Ok(version), _) => Age::Schema(version),
        (0, Ok(0), 0) => Age::Schema(0),
        _ => Age::Foreign,
    })
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error| refused(path, error);
    loop {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        // Read again under the lock: another process may be opening the same file.
        let found = match age(&tx).map_err(failed)? {
            Age::Foreign => return Err(OpenError::Foreign(shown(path))),
            Age::Schema(found) => found,
        };
        if found > VERSION {
            return Err(OpenError::Newer { found, known: VERSION });
        }
        let Some(migration) = MIGRATIONS.get(found as usize) else { return Ok(()) };
        tx.execute_batch(migration).map_err(failed)?;
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
