//! Erasure: the content of an ended run becomes unreadable, and its chain still verifies (R10).
//!
//! Invariant: what is destroyed is the run's data key, and every ciphertext under it; the digest that the chain
//! covers stays in the place of each. The row says when, under its MAC, so nobody can pass damage off as erasure.
//! What stands in clear (ids, times, kinds, agent, owner, counters) stays: lists still show the run.
//! What continues the run was said on its content, so it is erased with it, all of it or nothing.
//!
//! Not reached: the old versions of these rows until PostgreSQL vacuums them and writes over their place, its
//! write-ahead log, and copies made before. They hold the run's key, sealed under the master key of their day; they
//! become unreadable when that one is changed, retired and destroyed.

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connections::{Begin, Parameter};
use super::log::lock;
use crate::row::{Cells, RunRecord};
use crate::time;
use crate::upkeep::{EraseError, Erased};

/// The runs that go on with some runs, kept from changing.
fn continuations() -> String {
    format!("SELECT {} FROM runs WHERE continues = ANY($1) ORDER BY number FOR UPDATE", RunRecord::COLUMNS)
}

impl PostgresStore {
    pub(super) async fn erase_run(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [lock, continuations, count, destroy, note] = tx
            .statements([
                &lock(),
                &continuations(),
                "SELECT count(*) AS events FROM events WHERE run = ANY($1) AND digest IS NULL",
                "UPDATE events SET sealed = '', digest = sha256(sealed) WHERE run = ANY($1) AND digest IS NULL",
                "UPDATE runs SET key = '', erased_at = $2, mac = $3 WHERE number = $1",
            ])
            .await?;
        let id: [Parameter<'_>; 1] = [&run.as_str()];
        let rows = tx.start(tx.query(&lock, &id)).await?;
        let Some(row) = rows.first() else { return Err(EraseError::NotFound(run.clone())) };
        let first = self.readable_row(row)?;
        if !first.row.state.is_end() {
            return Err(EraseError::NotEnded(first.row.state));
        }
        let mut erased = Erased { at: now, events: 0, continuations: Vec::new(), scrubbed: false };
        if let Some(at) = first.erased_at {
            return Ok(Erased { at, ..erased });
        }
        let mut newest = vec![run.to_string()];
        let mut records = vec![first];
        while !newest.is_empty() {
            let before: [Parameter<'_>; 1] = [&newest];
            let rows = tx.go_on(tx.query(&continuations, &before)).await?;
            newest = Vec::with_capacity(rows.len());
            for row in &rows {
                let record = self.readable_row(row)?;
                if !record.row.state.is_end() {
                    return Err(EraseError::Continued(record.row.id));
                }
                newest.push(record.row.id.to_string());
                erased.continuations.push(record.row.id.clone());
                records.push(record);
            }
        }
        records.retain(|record| record.erased_at.is_none());
        let names: Vec<String> = records.iter().map(|record| record.row.id.to_string()).collect();
        let ids: [Parameter<'_>; 1] = [&names];
        let counted = tx.go_on(tx.query(&count, &ids)).await?;
        if let Some(row) = counted.first() {
            erased.events = Cells::of(row, "events", "events").count("events").map_err(StoreFault::from)?;
        }
        let at = time::text(now);
        for record in &mut records {
            record.erased_at = Some(now);
            let mac = record.mac(&self.vault.root.chain(&record.row.id));
            let parameters: [Parameter<'_>; 3] = [&record.number, &at, &mac.as_slice()];
            tx.go_on(tx.query(&note, &parameters)).await?;
        }
        tx.commit(tx.query(&destroy, &ids)).await?;
        Ok(erased)
    }

    fn readable_row(&self, row: &Row) -> Result<RunRecord, EraseError> {
        let name = || Cells::of(row, "runs", "id").name::<RunId>("id");
        RunRecord::read(row, &self.vault.root).map_err(|bad| match name() {
            Ok(run) => EraseError::Unreadable { run, reason: bad.to_string() },
            Err(unnamed) => EraseError::Fault(unnamed.into()),
        })
    }
}
