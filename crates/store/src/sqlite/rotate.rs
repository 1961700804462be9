//! The transactions of a change of the master key, in SQLite. How they make one: `crate::rotation`.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::{Durability, Lease, StoreFault};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{SqliteStore, fault, keys};
use crate::rotation::{self, Batch, Retired, RotateError, Rotation, Steps};
use crate::seal::MasterKey;
use crate::time;
use crate::vault::Vault;

#[async_trait]
impl Steps for SqliteStore {
    fn vault(&self) -> &Vault {
        &self.vault
    }

    async fn begin(&self, to: &MasterKey) -> Result<(), RotateError> {
        let (vault, to) = (Arc::clone(&self.vault), to.clone());
        self.connections.write(Durability::Disk, move |tx| begin(tx, &vault, to)).await
    }

    async fn take_over(&self, to: &MasterKey, after: i64, limit: i64) -> Result<Batch, RotateError> {
        let (vault, to) = (Arc::clone(&self.vault), to.clone());
        self.connections
            .write(Durability::Disk, move |tx| Ok(take_over(tx, &vault, &to, after, limit)?))
            .await
    }

    async fn switch(&self, to: &MasterKey) -> Result<Batch, RotateError> {
        let (vault, to) = (Arc::clone(&self.vault), to.clone());
        self.connections.write(Durability::Disk, move |tx| switch(tx, &vault, &to)).await
    }
}

impl SqliteStore {
    pub(super) async fn retire_key(&self, now: Timestamp) -> Result<Option<Retired>, RotateError> {
        let vault = Arc::clone(&self.vault);
        if !self.connections.write(Durability::Disk, move |tx| retire(tx, &vault, now)).await? {
            return Ok(None);
        }
        Ok(Some(Retired { scrubbed: self.connections.scrub().await? }))
    }
}

pub(super) fn rotation(tx: &Connection) -> Result<Option<Rotation>, StoreFault> {
    keys::read(tx).map(rotation::under_way).map_err(fault)
}

fn begin(tx: &Transaction<'_>, vault: &Vault, to: MasterKey) -> Result<(), RotateError> {
    let Some(handover) = rotation::begin(keys::follow(tx, vault)?, vault, &to)? else { return Ok(()) };
    // A row that means nothing may lie there: it is about a key that is not in use.
    tx.execute(
        "INSERT OR REPLACE INTO rotation (one, from_fingerprint, to_fingerprint, to_key, from_key) \
         VALUES (1, ?1, ?2, ?3, ?4)",
        (handover.from, handover.to, handover.to_key, handover.from_key),
    )
    .map_err(fault)?;
    // If this is not committed after all, the key is known for nothing.
    vault.learn(to);
    Ok(())
}

/// An erased run has no key.
fn take_over(
    tx: &Transaction<'_>,
    vault: &Vault,
    to: &MasterKey,
    after: i64,
    limit: i64,
) -> Result<Batch, StoreFault> {
    let runs: Vec<(i64, Vec<u8>, Vec<u8>)> = tx
        .prepare_cached(
            "SELECT number, CAST(id AS BLOB), key FROM runs \
             WHERE number > ?1 AND length(key) > 0 AND substr(key, 1, ?2) <> ?3 ORDER BY number LIMIT ?4",
        )
        .and_then(|mut select| {
            let header = to.header();
            let size = i64::try_from(header.len()).unwrap_or_default();
            select
                .query_map((after, size, header, limit), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect()
        })
        .map_err(fault)?;
    let mut batch = Batch::of(runs.len(), runs.last().map(|(number, ..)| *number), limit);
    let mut update = tx.prepare_cached("UPDATE runs SET key = ?1 WHERE number = ?2").map_err(fault)?;
    for (number, id, key) in runs {
        if let Some(key) = batch.rewrap(vault, to, &id, &key) {
            update.execute((key, number)).map_err(fault)?;
        }
    }
    Ok(batch)
}

fn switch(tx: &Transaction<'_>, vault: &Vault, to: &MasterKey) -> Result<Batch, RotateError> {
    let must_switch = rotation::must_switch(keys::follow(tx, vault)?, to)?;
    let rest = take_over(tx, vault, to, i64::MIN, i64::MAX)?;
    if must_switch {
        tx.execute(
            "UPDATE installation SET key_fingerprint = ?1, root = ?2",
            (to.fingerprint(), vault.root_under(to)?),
        )
        .map_err(fault)?;
        tx.execute("UPDATE rotation SET in_use_until = (SELECT max(lease_until) FROM runs)", [])
            .map_err(fault)?;
    }
    Ok(rest)
}

/// Looks once more at all runs, and overwrites the sealed keys. `false`: there are none.
fn retire(tx: &Transaction<'_>, vault: &Vault, now: Timestamp) -> Result<bool, RotateError> {
    let Some((from, to)) = rotation::retiring(keys::follow(tx, vault)?, vault)? else { return Ok(false) };
    if let Some(until) = in_use_until(tx, now)? {
        return Err(RotateError::InUse { until });
    }
    take_over(tx, vault, &to, i64::MIN, i64::MAX)?;
    // Overwritten first, so that the bytes are gone also where deleting would leave them.
    tx.execute(
        "UPDATE rotation SET to_key = zeroblob(length(to_key)), from_key = zeroblob(length(from_key))",
        [],
    )
    .and_then(|_| tx.execute("DELETE FROM rotation", []))
    .map_err(fault)?;
    vault.forget(&from);
    Ok(true)
}

/// Until when somebody may work with the old key alone.
fn in_use_until(tx: &Transaction<'_>, now: Timestamp) -> Result<Option<Timestamp>, StoreFault> {
    let until: Option<String> = tx
        .query_row(
            "SELECT in_use_until FROM rotation \
             WHERE EXISTS (SELECT 1 FROM runs WHERE lease_until > ?1 AND lease_until <= ?2)",
            [time::text(now), time::text(Lease::end(now, Lease::LONGEST))],
            |row| row.get(0),
        )
        .optional()
        .map_err(fault)?
        .flatten();
    Ok(until.and_then(|until| time::parse(&until)).filter(|until| now < *until))
}
