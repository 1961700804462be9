//! Erasure: the content of an ended run becomes unreadable, and its chain still verifies (R10).
//!
//! Invariant: what is destroyed is the run's data key, and every ciphertext under it, so that their space is
//! free; the digest that the chain covers stays in the place of each. The row says when, under its MAC, so nobody can pass damage off
//! as erasure. What stands in clear (ids, times, kinds, agent, owner, counters) stays: lists still show the run.
//! What continues the run was said on its content, so it is erased with it, all of it or nothing.
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
        let erased = self.connections.write(Durability::Disk, move |tx| erase(tx, &vault, &run, now)).await?;
        Ok(Erased { scrubbed: self.connections.scrub().await?, ..erased })
    }
}

fn erase(tx: &Transaction<'_>, vault: &Vault, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
    let first = found(tx, vault, run)?;
    if !first.row.state.is_end() {
        return Err(EraseError::NotEnded(first.row.state));
    }
    let mut erased = Erased { at: now, events: 0, continuations: Vec::new(), scrubbed: false };
    if let Some(at) = first.erased_at {
        return Ok(Erased { at, ..erased });
    }
    let mut records = vec![first];
    let mut next = 0;
    while let Some(record) = records.get(next) {
        for continuation in continuations(tx, &record.row.id)? {
            let record = found(tx, vault, &continuation)?;
            if !record.row.state.is_end() {
                return Err(EraseError::Continued(continuation));
            }
            erased.continuations.push(continuation);
            records.push(record);
        }
        next += 1;
    }
    for mut record in records.into_iter().filter(|record| record.erased_at.is_none()) {
        erased.events += destroy_content(tx, &record)?;
        record.erased_at = Some(now);
        let mac = record.mac(&vault.root.chain(&record.row.id));
        tx.execute(
            "UPDATE runs SET key = x'', erased_at = ?1, mac = ?2 WHERE number = ?3",
            (time::text(now), mac, record.number),
        )
        .map_err(fault)?;
    }
    Ok(erased)
}

fn found(tx: &Transaction<'_>, vault: &Vault, run: &RunId) -> Result<RunRecord, EraseError> {
    match record(tx, vault, run)? {
        Some(Ok(record)) => Ok(record),
        Some(Err(bad)) => Err(EraseError::Unreadable { run: run.clone(), reason: bad.to_string() }),
        None => Err(EraseError::NotFound(run.clone())),
    }
}

/// The runs that go on with this one.
fn continuations(tx: &Transaction<'_>, run: &RunId) -> Result<Vec<RunId>, StoreFault> {
    let names: Vec<String> = tx
        .prepare_cached("SELECT id FROM runs WHERE continues = ?1 ORDER BY number")
        .and_then(|mut select| select.query_map([run.as_str()], |row| row.get(0))?.collect())
        .map_err(fault)?;
    names.iter().map(|name| name.parse().map_err(|error| StoreFault::Failed(Box::new(error)))).collect()
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
