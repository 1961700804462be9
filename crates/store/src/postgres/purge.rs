//! Retention: ended runs are removed after their term (R10).
//!
//! Invariant: only what has ended is removed, by the word of a row whose MAC is good; a run that waits, works
//! or has an unknown outcome to settle stays, and so does one that cannot be read, and every run that one which
//! stays continues. A run goes whole, in one transaction, so a cut leaves nothing half removed and the next purge
//! goes on. What ended last goes first: a continuation before what it continues.

use std::collections::HashMap;

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;

use super::PostgresStore;
use super::connections::{Begin, Parameter, Transaction};
use super::pipeline::three;
use crate::row::{Cells, RunRecord};
use crate::time;
use crate::upkeep::Purged;

/// The most runs of one transaction.
const RUNS_MAX: i64 = 50;

/// Where a walk by the time of ending stands.
struct Position {
    finished_at: String,
    number: i64,
}

/// What ended before a moment, newest first.
fn ended() -> String {
    format!(
        "SELECT {} FROM runs WHERE finished_at IS NOT NULL \
         AND (finished_at, number) < ($1, $2) ORDER BY finished_at DESC, number DESC LIMIT $3",
        RunRecord::COLUMNS
    )
}

const COUNT: &str = "SELECT (SELECT count(*) FROM events WHERE run = ANY($1)) AS events, \
     (SELECT count(*) FROM pendings WHERE run = ANY($1)) AS pendings";

impl PostgresStore {
    pub(super) async fn purge_runs(&self, before: Timestamp, dry: bool) -> Result<Purged, StoreFault> {
        let (mut purged, mut gone) = (Purged::default(), HashMap::new());
        let mut at = Some(Position { finished_at: time::text(before), number: i64::MIN });
        while let Some(last) = at {
            let begin = if dry { Begin::Read } else { Begin::Write(Durability::Disk) };
            let tx = self.connections.transaction(begin).await?;
            at = self.purge_some(&tx, &last, dry, &mut gone, &mut purged).await?;
            if !dry {
                // What was removed is not there any more to be counted.
                gone.clear();
            }
        }
        Ok(purged)
    }

    /// Removes some runs, and says where to go on.
    async fn purge_some(
        &self,
        tx: &Transaction,
        last: &Position,
        dry: bool,
        gone: &mut HashMap<RunId, u64>,
        purged: &mut Purged,
    ) -> Result<Option<Position>, StoreFault> {
        let lock = if dry { "" } else { " FOR UPDATE" };
        let [of_old, continued, count, events, pendings, runs] = tx
            .statements([
                &format!("{}{lock}", ended()),
                "SELECT continues, count(*) AS continuations FROM runs WHERE continues = ANY($1) GROUP BY continues",
                COUNT,
                "DELETE FROM events WHERE run = ANY($1)",
                "DELETE FROM pendings WHERE run = ANY($1)",
                "DELETE FROM runs WHERE id = ANY($1)",
            ])
            .await?;
        let bounds: [Parameter<'_>; 3] = [&last.finished_at, &last.number, &RUNS_MAX];
        let rows = tx.start(tx.query(&of_old, &bounds)).await?;
        let (mut last, mut ended, mut unreadable) = (None, Vec::new(), 0);
        for row in &rows {
            let cells = Cells::of(row, "runs", "id");
            last = Some(Position {
                finished_at: cells.text("finished_at")?.to_owned(),
                number: cells.number("number")?,
            });
            match RunRecord::read(row, &self.vault.root) {
                Ok(record) if record.row.state.is_end() => ended.push(record),
                Ok(_) | Err(_) => unreadable += 1,
            }
        }
        let names: Vec<&str> = ended.iter().map(|record| record.row.id.as_str()).collect();
        let names: [Parameter<'_>; 1] = [&names];
        let mut continuations = HashMap::new();
        for row in tx.go_on(tx.query(&continued, &names)).await? {
            let cells = Cells::of(&row, "runs", "continues");
            continuations.insert(cells.name::<RunId>("continues")?, cells.count("continuations")?);
        }
        // Newest first: what goes has gone before what it continues is looked at.
        let (mut found, mut kept) = (Vec::new(), 0);
        for record in &ended {
            let left = continuations.get(&record.row.id).copied().unwrap_or(0);
            if left > gone.get(&record.row.id).copied().unwrap_or(0) {
                kept += 1;
                continue;
            }
            if let Some(before) = &record.row.continues {
                *gone.entry(before.clone()).or_default() += 1;
            }
            found.push(record.row.id.as_str());
        }
        let ids: [Parameter<'_>; 1] = [&found];
        let counted = tx.go_on(tx.query(&count, &ids)).await?;
        tx.commit(async {
            if !dry && !found.is_empty() {
                three(tx.query(&events, &ids), tx.query(&pendings, &ids), tx.query(&runs, &ids)).await?;
            }
            Ok(())
        })
        .await?;
        purged.runs += found.len() as u64;
        purged.unreadable += unreadable;
        purged.continued += kept;
        if let Some(row) = counted.first() {
            let cells = Cells::of(row, "events", "events");
            purged.events += cells.count("events")?;
            purged.pendings += cells.count("pendings")?;
        }
        Ok(last.filter(|_| i64::try_from(rows.len()) == Ok(RUNS_MAX)))
    }
}
