//! Erasure: the content of an ended run becomes unreadable, and its chain still verifies (R10).
//!
//! Invariant: what is destroyed is the run's data key, and every ciphertext under it, so that their space is
//! free; the digest that the chain covers stays in the place of each. The row says when, under its MAC, so nobody can pass damage off
//! as erasure. What stands in clear (ids, times, kinds, agent, owner, counters) stays: lists still show the run.
//!
//! Not reached: copies made before. They hold the run's key, sealed under the master key of their day; they
//! become unreadable when that one is changed, retired and destroyed.

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;
use rusqlite::Transaction;

use super::log::record;
use super::{SqliteStore, fault};
use crate::chain::Chain;
use crate::row::RunRecord;
use crate::time;
use crate::upkeep::{EraseError, Erased};
use crate::vault::Vault;

impl SqliteStore {
    pub(super) async fn erase_run(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
        let (vault, run) = (self.vault(), run.clone());
        let (at, events) =
            self.connections.write(Durability::Disk, move |tx| erase(tx, &vault, &run, now)).await?;
        Ok(Erased { at, events, scrubbed: self.connections.scrub().await? })
    }
}

fn erase(
    tx: &Transaction<'_>,
    vault: &Vault,
    run: &RunId,
    now: Timestamp,
) -> Result<(Timestamp, u64), EraseError> {
    let unreadable = |reason: String| EraseError::Unreadable { run: run.clone(), reason };
    let mut record = match record(tx, vault, run)? {
        Some(record) => record.map_err(|bad| unreadable(bad.to_string()))?,
        None => return Err(EraseError::NotFound(run.clone())),
    };
    if !record.row.state.is_end() {
        return Err(EraseError::NotEnded(record.row.state));
    }
    if let Some(at) = record.erased_at {
        return Ok((at, 0));
    }
    let events = destroy_content(tx, &record)?;
    record.erased_at = Some(now);
    let mac = record.mac(&vault.root.chain(run));
    tx.execute(
        "UPDATE runs SET key = x'', erased_at = ?1, mac = ?2 WHERE number = ?3",
        (time::text(now), mac, record.number),
    )
    .map_err(fault)?;
    Ok((now, events))
}

/// Puts digests in the place of all ciphertexts.
fn destroy_content(tx: &Transaction<'_>, record: &RunRecord) -> Result<u64, StoreFault> {
    let run = record.row.id.as_str();
    let digests: Vec<(i64, [u8; 32])> = tx
        .prepare("SELECT rowid, sealed FROM events WHERE run = ?1 AND digest IS NULL ORDER BY seq")
        .and_then(|mut select| {
            select
                .query_map([run], |row| {
                    let sealed = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                    Ok((row.get(0)?, Chain::digest(sealed)))
                })?
                .collect()
        })
        .map_err(fault)?;
    let mut update =
        tx.prepare("UPDATE events SET sealed = x'', digest = ?1 WHERE rowid = ?2").map_err(fault)?;
    for (entry, digest) in &digests {
        update.execute((digest, entry)).map_err(fault)?;
    }
    Ok(digests.len() as u64)
}
