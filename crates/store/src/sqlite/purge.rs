//! Retention: ended runs are removed after their term (R10).
//!
//! Invariant: only what has ended is removed, by the word of a row whose MAC is good; a run that waits, works
//! or has an unknown outcome to settle stays, and so does one that cannot be read, and every run that one which
//! stays continues. A run goes whole, in one transaction, so a cut leaves nothing half removed and the next purge
//! goes on. What ended last goes first: a continuation before what it continues.

use std::collections::HashMap;
use std::ops::ControlFlow;

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;
use rusqlite::Transaction;

use super::{SqliteStore, fault};
use crate::row::RunRecord;
use crate::time;
use crate::upkeep::Purged;
use crate::vault::Vault;

/// The most runs of one transaction.
const RUNS_MAX: u64 = 50;
/// After so many events a transaction ends with the run it is at.
const EVENTS_MAX: u64 = 1000;

impl SqliteStore {
    pub(super) async fn purge_runs(&self, ended_before: Timestamp, dry: bool) -> Result<Purged, StoreFault> {
        let mut purged = Purged::default();
        let mut at = Some(Position { finished_at: time::text(ended_before), number: i64::MIN });
        let mut gone = HashMap::new();
        while let Some(before) = at {
            let vault = self.vault();
            let mut batch = Batch { dry, done: Purged::default(), gone };
            let work = move |tx: &Transaction<'_>| {
                let next = batch.take(tx, &vault, &before)?;
                Ok::<_, StoreFault>((batch, next))
            };
            let (Batch { done, gone: gone_by_now, .. }, next) = if dry {
                self.connections.read_aside(work).await?
            } else {
                self.connections.write(Durability::Disk, work).await?
            };
            purged.runs += done.runs;
            purged.events += done.events;
            purged.pendings += done.pendings;
            purged.unreadable += done.unreadable;
            purged.continued += done.continued;
            gone = gone_by_now;
            at = next;
            if !dry && at.is_some() {
                self.vault.breathe().await;
            }
        }
        if !dry && purged.runs > 0 {
            purged.scrubbed = self.connections.scrub().await?;
        }
        Ok(purged)
    }
}

/// Where a walk by the time of ending stands.
struct Position {
    finished_at: String,
    number: i64,
}

struct Batch {
    dry: bool,
    done: Purged,
    /// How many continuations of a run would be gone by now, where nothing is really removed.
    gone: HashMap<RunId, u64>,
}

/// What ended before a moment, newest first.
pub(super) fn ended_statement() -> String {
    format!(
        "SELECT {} FROM runs INDEXED BY runs_finished WHERE finished_at IS NOT NULL \
         AND (finished_at, number) < (?1, ?2) ORDER BY finished_at DESC, number DESC LIMIT ?3",
        RunRecord::COLUMNS
    )
}

impl Batch {
    /// Removes some runs, and says where to go on.
    fn take(
        &mut self,
        tx: &Transaction<'_>,
        vault: &Vault,
        before: &Position,
    ) -> Result<Option<Position>, StoreFault> {
        let found: Vec<(Position, Option<RunRecord>)> = tx
            .prepare_cached(&ended_statement())
            .and_then(|mut select| {
                let bounds = (&before.finished_at, before.number, RUNS_MAX.cast_signed());
                select
                    .query_map(bounds, |row| {
                        let position =
                            Position { finished_at: row.get("finished_at")?, number: row.get("number")? };
                        Ok((position, RunRecord::read(row, &vault.root).ok()))
                    })?
                    .collect()
            })
            .map_err(fault)?;
        let is_last = (found.len() as u64) < RUNS_MAX;
        let mut last = None;
        for (position, record) in found {
            last = Some(position);
            if self.remove(tx, record)?.is_break() {
                return Ok(last);
            }
        }
        Ok(last.filter(|_| !is_last))
    }

    fn remove(
        &mut self,
        tx: &Transaction<'_>,
        record: Option<RunRecord>,
    ) -> Result<ControlFlow<()>, StoreFault> {
        let Some(record) = record.filter(|record| record.row.state.is_end()) else {
            self.done.unreadable += 1;
            return Ok(ControlFlow::Continue(()));
        };
        let run = record.row.id.as_str();
        let continuations: i64 = tx
            .prepare_cached("SELECT count(*) FROM runs WHERE continues = ?1")
            .and_then(|mut select| select.query_row([run], |row| row.get(0)))
            .map_err(fault)?;
        if continuations.cast_unsigned() > self.gone.get(&record.row.id).copied().unwrap_or(0) {
            self.done.continued += 1;
            return Ok(ControlFlow::Continue(()));
        }
        if let Some(continues) = record.row.continues.clone().filter(|_| self.dry) {
            *self.gone.entry(continues).or_default() += 1;
        }
        let each = |statement: &str| {
            let mut statement = tx.prepare_cached(statement).map_err(fault)?;
            if self.dry {
                statement.query_row([run], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned).map_err(fault)
            } else {
                statement.execute([run]).map(|removed| removed as u64).map_err(fault)
            }
        };
        let (events, pendings) = if self.dry {
            (
                each("SELECT count(*) FROM events WHERE run = ?1")?,
                each("SELECT count(*) FROM pendings WHERE run = ?1")?,
            )
        } else {
            (each("DELETE FROM events WHERE run = ?1")?, each("DELETE FROM pendings WHERE run = ?1")?)
        };
        if !self.dry {
            tx.prepare_cached("DELETE FROM runs WHERE number = ?1")
                .and_then(|mut delete| delete.execute([record.number]))
                .map_err(fault)?;
        }
        self.done.runs += 1;
        self.done.events += events;
        self.done.pendings += pendings;
        Ok(if self.done.events < EVENTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}
