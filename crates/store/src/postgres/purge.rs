//! Retention: ended runs are removed after their term (R10).
//!
//! Invariant: only what has ended is removed, by the word of a row whose MAC is good; a run that waits, works
//! or has an unknown outcome to settle stays, and so does one that cannot be read. A run goes whole, in one
//! transaction, so a cut leaves nothing half removed and the next purge goes on.

use countersign::{Durability, StoreFault};
use futures_util::future::try_join3;
use jiff::Timestamp;

use super::PostgresStore;
use super::connections::{Begin, Parameter, Transaction};
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

/// What ended before a moment, oldest first.
fn ended() -> String {
    format!(
        "SELECT {} FROM runs WHERE finished_at IS NOT NULL \
         AND (finished_at, number) > ($1, $2) AND finished_at < $3 ORDER BY finished_at, number LIMIT $4",
        RunRecord::COLUMNS
    )
}

const COUNT: &str = "SELECT (SELECT count(*) FROM events WHERE run = ANY($1)) AS events, \
     (SELECT count(*) FROM pendings WHERE run = ANY($1)) AS pendings";

impl PostgresStore {
    pub(super) async fn purge_runs(&self, before: Timestamp, dry: bool) -> Result<Purged, StoreFault> {
        let (mut purged, before) = (Purged::default(), time::text(before));
        let mut at = Some(Position { finished_at: String::new(), number: i64::MIN });
        while let Some(after) = at {
            let begin = if dry { Begin::Read } else { Begin::Write(Durability::Disk) };
            let tx = self.connections.transaction(begin).await?;
            at = self.purge_some(&tx, &before, &after, dry, &mut purged).await?;
        }
        Ok(purged)
    }

    /// Removes some runs, and says where to go on.
    async fn purge_some(
        &self,
        tx: &Transaction,
        before: &str,
        after: &Position,
        dry: bool,
        purged: &mut Purged,
    ) -> Result<Option<Position>, StoreFault> {
        let lock = if dry { "" } else { " FOR UPDATE" };
        let [ended, count, events, pendings, runs] = tx
            .statements([
                &format!("{}{lock}", ended()),
                COUNT,
                "DELETE FROM events WHERE run = ANY($1)",
                "DELETE FROM pendings WHERE run = ANY($1)",
                "DELETE FROM runs WHERE id = ANY($1)",
            ])
            .await?;
        let bounds: [Parameter<'_>; 4] = [&after.finished_at, &after.number, &before, &RUNS_MAX];
        let rows = tx.start(tx.query(&ended, &bounds)).await?;
        let (mut last, mut found, mut unreadable) = (None, Vec::new(), 0);
        for row in &rows {
            let cells = Cells::of(row, "runs", "id");
            last = Some(Position {
                finished_at: cells.text("finished_at")?.to_owned(),
                number: cells.number("number")?,
            });
            match RunRecord::read(row, &self.vault.root) {
                Ok(record) if record.row.state.is_end() => found.push(record.row.id.to_string()),
                Ok(_) | Err(_) => unreadable += 1,
            }
        }
        let ids: [Parameter<'_>; 1] = [&found];
        let counted = tx.go_on(tx.query(&count, &ids)).await?;
        tx.commit(async {
            if !dry && !found.is_empty() {
                try_join3(tx.query(&events, &ids), tx.query(&pendings, &ids), tx.query(&runs, &ids)).await?;
            }
            Ok(())
        })
        .await?;
        purged.runs += found.len() as u64;
        purged.unreadable += unreadable;
        if let Some(row) = counted.first() {
            let cells = Cells::of(row, "events", "events");
            purged.events += cells.count("events")?;
            purged.pendings += cells.count("pendings")?;
        }
        Ok(last.filter(|_| i64::try_from(rows.len()) == Ok(RUNS_MAX)))
    }
}
