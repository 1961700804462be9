//! Erasure: the content of an ended run becomes unreadable, and its chain still verifies (R10).
//!
//! Invariant: what is destroyed is the run's data key, and every ciphertext under it; the digest that the chain
//! covers stays in the place of each. The row says when, under its MAC, so nobody can pass damage off as erasure.
//! What stands in clear (ids, times, kinds, agent, owner, counters) stays: lists still show the run.
//!
//! Not reached: the old versions of these rows until PostgreSQL vacuums them and writes over their place, its
//! write-ahead log, and copies made before. They hold the run's key, sealed under the master key of their day; they
//! become unreadable when that one is changed, retired and destroyed.

use countersign::{Durability, RunId};
use futures_util::future::try_join;
use jiff::Timestamp;

use super::PostgresStore;
use super::connections::{Begin, Parameter};
use super::log::lock;
use crate::row::RunRecord;
use crate::time;
use crate::upkeep::{EraseError, Erased};

impl PostgresStore {
    pub(super) async fn erase_run(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [lock, count, destroy, note] = tx
            .statements([
                &lock(),
                "SELECT seq FROM events WHERE run = $1 AND digest IS NULL",
                "UPDATE events SET sealed = '', digest = sha256(sealed) WHERE run = $1 AND digest IS NULL",
                "UPDATE runs SET key = '', erased_at = $2, mac = $3 WHERE number = $1",
            ])
            .await?;
        let id: [Parameter<'_>; 1] = [&run.as_str()];
        let (rows, kept) = tx.start(try_join(tx.query(&lock, &id), tx.query(&count, &id))).await?;
        let Some(row) = rows.first() else { return Err(EraseError::NotFound(run.clone())) };
        let mut record = RunRecord::read(row, &self.vault.root)
            .map_err(|bad| EraseError::Unreadable { run: run.clone(), reason: bad.to_string() })?;
        if !record.row.state.is_end() {
            return Err(EraseError::NotEnded(record.row.state));
        }
        if let Some(at) = record.erased_at {
            return Ok(Erased { at, events: 0, scrubbed: false });
        }
        record.erased_at = Some(now);
        let (at, mac) = (time::text(now), record.mac(&self.vault.root.chain(run)));
        let parameters: [Parameter<'_>; 3] = [&record.number, &at, &mac.as_slice()];
        tx.commit(try_join(tx.query(&destroy, &id), tx.query(&note, &parameters))).await?;
        Ok(Erased { at: now, events: kept.len() as u64, scrubbed: false })
    }
}
