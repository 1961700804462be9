//! Retention: ended runs are removed after their term (R10).
//!
//! Invariant: only what has ended is removed, by the word of a row whose MAC is good; a run that waits, works
//! or has an unknown outcome to settle stays, and so does one that cannot be read. A run goes whole, in one
//! transaction, so a cut leaves nothing half removed and the next purge goes on.

use std::ops::ControlFlow;

use countersign::{Durability, StoreFault};
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
        let mut at = Some(Position { finished_at: String::new(), number: i64::MIN });
        while let Some(after) = at {
            let vault = self.vault();
            let mut batch = Batch { ended_before: time::text(ended_before), dry, done: Purged::default() };
            let work = move |tx: &Transaction<'_>| {
                let next = batch.take(tx, &vault, &after)?;
                Ok::<_, StoreFault>((batch.done, next))
            };
            let (done, next) = if dry {
                self.connections.read_aside(work).await?
            } else {
                self.connections.write(Durability::Disk, work).await?
            };
            purged.runs += done.runs;
            purged.events += done.events;
            purged.pendings += done.pendings;
            purged.unreadable += done.unreadable;
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
    ended_before: String,
    dry: bool,
    done: Purged,
}

/// What ended before a moment, oldest first.
pub(super) fn ended_statement() -> String {
    format!(
        "SELECT {} FROM runs INDEXED BY runs_finished WHERE finished_at IS NOT NULL \
         AND (finished_at, number) > (?1, ?2) AND finished_at < ?3 ORDER BY finished_at, number LIMIT ?4",
        RunRecord::COLUMNS
    )
}

impl Batch {
    /// Removes some runs, and says where to go on.
    fn take(
        &mut self,
        tx: &Transaction<'_>,
        vault: &Vault,
        after: &Position,
    ) -> Result<Option<Position>, StoreFault> {
        let found: Vec<(Position, Option<RunRecord>)> = tx
            .prepare_cached(&ended_statement())
            .and_then(|mut select| {
                let bounds = (&after.finished_at, after.number, &self.ended_before, RUNS_MAX.cast_signed());
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
