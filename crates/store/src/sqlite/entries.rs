//! The entries of a log in SQLite. What may stand there, and whether it is what was stored: `crate::entries`.

use countersign::{Entry, RunId, StoreFault};
use rusqlite::{Connection, Transaction};

use super::{fault, keys};
use crate::chain::Chain;
use crate::entries::{Broken, Stored, Walk, ends_soundly};
use crate::row::RunRecord;
use crate::vault::Vault;

pub(super) use crate::entries::sealed;

/// The statement of a whole log.
pub(super) fn log_statement() -> String {
    format!("SELECT {} FROM events WHERE run = ?1 ORDER BY seq", Stored::COLUMNS)
}

/// The statement of the end of a log.
pub(super) fn end_statement() -> String {
    format!("SELECT {} FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT 2", Stored::COLUMNS)
}

pub(super) fn insert(tx: &Transaction<'_>, run: &RunId, entries: &[Stored]) -> Result<(), StoreFault> {
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO events (run, seq, at, kind, sealed, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .map_err(fault)?;
    entries.iter().try_for_each(|Stored { seq, at, kind, sealed, digest: _, mac }| {
        insert.execute((run.as_str(), seq.cast_signed(), at, kind, sealed, mac)).map(drop).map_err(fault)
    })
}

/// Whether something may be chained to the end of this log.
pub(super) fn end_is_sound(
    tx: &Connection,
    chain: &Chain,
    record: &RunRecord,
) -> Result<Result<(), Broken>, StoreFault> {
    let last_two: Vec<_> = tx
        .prepare_cached(&end_statement())
        .and_then(|mut select| {
            select.query_map([record.row.id.as_str()], |row| Ok(Stored::read(row)))?.collect()
        })
        .map_err(fault)?;
    Ok(ends_soundly(last_two, chain, record))
}

/// All entries of a run, checked and opened.
pub(super) fn all(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<Vec<Entry>, Broken>, StoreFault> {
    let key = match keys::of_run(tx, vault, record)? {
        Ok(key) => key,
        Err(broken) => return Ok(Err(broken)),
    };
    let mut entries = Vec::new();
    let walked = walk(tx, vault, record, |walk, row| {
        entries.push(walk.open(row, &key)?);
        Ok(())
    })?;
    Ok(walked.map(|_| entries))
}

/// The length of a log whose content was erased, checked.
pub(super) fn erased(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<u64, Broken>, StoreFault> {
    walk(tx, vault, record, |walk, row| walk.pass_erased(row))
}

/// Takes every stored entry with `step`, and says how many there are.
fn walk(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
    mut step: impl FnMut(&mut Walk<'_>, &rusqlite::Row<'_>) -> Result<(), Broken>,
) -> Result<Result<u64, Broken>, StoreFault> {
    let mut select = tx.prepare_cached(&log_statement()).map_err(fault)?;
    let mut rows = select.query([record.row.id.as_str()]).map_err(fault)?;
    let mut walk = Walk::along(record, &vault.root);
    while let Some(row) = rows.next().map_err(fault)? {
        if let Err(broken) = step(&mut walk, row) {
            return Ok(Err(broken));
        }
    }
    Ok(walk.end())
}
