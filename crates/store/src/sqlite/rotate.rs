//! A change of the master key, while runs wait, work and are created (S3).
//!
//! Invariant: at every commit, each run's data key and the root open with the old master key alone and with
//! the new one alone. No event is rewritten: only keys are sealed anew.
//!
//! What the program does, in this order:
//!
//! 1. It makes the new key and puts it, synced, into a file *beside* the key file. If such a file is there
//!    already, an earlier attempt ended half-way, and that key is the one to go on with.
//! 2. [`SqliteStore::rotate`].
//! 3. It puts the new key in the place of the old one, by a rename, and syncs the folder.
//! 4. [`SqliteStore::retire`]: at once if no `serve` runs, else when the next one starts. With it the old key
//!    is good for nothing. It is refused while a worker may not have been handed the new key yet; then the old
//!    one stays good for as long as that worker's lease can last, and step 4 is repeated after it.
//!
//! What the database does:
//!
//! | step | transaction | opened by | killed after it |
//! |---|---|---|---|
//! | begin | both keys are stored, each sealed under the other | either | `rotate` again, from either |
//! | batches | up to 200 runs at a time hang from the new key | either | the same; what is done stays done |
//! | switch | a last look finds no run under the old key; root and fingerprint change | either | step 3 |
//! | retire | another last look; the two sealed keys are overwritten | the new one | nothing is left to do |
//!
//! *Why the keys are sealed under each other*: so that nothing can be lost by a kill, not even with a key file
//! that was never written, and so that a process which runs with the old key goes on. It learns the new one
//! from the database when it meets a run that it cannot open, when it creates one, and with every heartbeat and
//! look for work. Without that, a write in flight could not store its result, and would become an unknown
//! outcome. The price: until the old key is retired, whoever has it and the database has the new one too. They
//! could read all that was stored up to then anyway; no copy is made meanwhile ([`SqliteStore::backup`]).
//!
//! *Who may still need the handover*: a worker that holds a lease renews it, and learns the new key with that.
//! So when the last lease ends that was held at the switch, every worker has it or has lost its run. Processes
//! without a lease lose nothing by being left behind.
//!
//! *New runs* hang from the key that is current in the transaction that creates them; both last looks catch
//! what a process without that rule might have stored. *A process that was left behind* with a retired key
//! creates and claims nothing, opens no run, and says that it must be started with the new key.
//!
//! Two rotations to one key work side by side; one to another key is refused until the first has ended. A run
//! whose key opens with neither is damaged already: it is left as it is, counted, and stops nothing (R2).

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction};

use super::keys::{self, Installation, KeysError, failed};
use super::{SqliteStore, fault};
use crate::seal::MasterKey;
use crate::time;
use crate::vault::{Handed, Vault};

/// The runs of one transaction: a few milliseconds, for which short commands wait.
const BATCH: i64 = 200;

/// A rotation has come to its switch: everything hangs from the new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// The runs that were taken over in this call.
    pub runs: u64,
    /// The runs whose key opens with neither, and which were left as they are.
    pub unreadable: u64,
}

/// A rotation whose old key is not retired yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The fingerprint of the old key.
    pub from: String,
    /// The fingerprint of the new key.
    pub to: String,
    /// Whether everything hangs from the new key, so that the old one may be retired.
    pub switched: bool,
}

/// The old key opens nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Whether what was overwritten is gone from the log beside the database too. If not, somebody was reading;
    /// it goes with the next checkpoint.
    pub scrubbed: bool,
}

/// Why the master key is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// It is the key in use.
    #[error("the new key is the key in use")]
    SameKey,
    /// A change to another key has not ended, or this one has not come far enough to retire the old key.
    #[error("the change from key {from} to key {to} has not ended")]
    UnderWay {
        /// The fingerprint of the old key.
        from: String,
        /// The fingerprint of the new key.
        to: String,
    },
    /// A worker may not have been handed the new key yet.
    #[error("the old key is in use until {until}")]
    InUse {
        /// When every worker has the new key.
        until: Timestamp,
    },
    /// The store failed. What was taken over stays so.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl SqliteStore {
    /// Makes everything hang from this master key. It can be called again after whatever cut it short, with the
    /// same key. `progress` hears how many runs have been taken over, after every transaction.
    ///
    /// # Errors
    /// [`RotateError`].
    pub async fn rotate(
        &self,
        to: MasterKey,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Rotated, RotateError> {
        let (vault, key) = (self.vault(), to.clone());
        self.connections.write(Durability::Disk, move |tx| begin(tx, &vault, key)).await?;
        progress(0);
        let (mut runs, mut after) = (0, Some(i64::MIN));
        while let Some(last) = after {
            let (vault, key) = (self.vault(), to.clone());
            let batch = self
                .connections
                .write(Durability::Disk, move |tx| take_over(tx, &vault, &key, last, BATCH))
                .await?;
            runs += batch.runs;
            after = batch.last;
            progress(runs);
            if after.is_some() {
                self.vault.breathe().await;
            }
        }
        let vault = self.vault();
        let rest = self.connections.write(Durability::Disk, move |tx| switch(tx, &vault, &to)).await?;
        runs += rest.runs;
        progress(runs);
        Ok(Rotated { runs, unreadable: rest.unreadable })
    }

    /// Ends a rotation: the old key opens nothing any more. `None`: there is none to end.
    ///
    /// # Errors
    /// [`RotateError::UnderWay`] before the switch, [`RotateError::InUse`] soon after it.
    pub async fn retire(&self, now: Timestamp) -> Result<Option<Retired>, RotateError> {
        let vault = self.vault();
        if !self.connections.write(Durability::Disk, move |tx| retire(tx, &vault, now)).await? {
            return Ok(None);
        }
        Ok(Some(Retired { scrubbed: self.connections.scrub().await? }))
    }

    /// The rotation that is under way, if one is.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub async fn rotation(&self) -> Result<Option<Rotation>, StoreFault> {
        self.connections.read(|tx| rotation(tx))
    }
}

pub(super) fn rotation(tx: &rusqlite::Connection) -> Result<Option<Rotation>, StoreFault> {
    let installation = Installation::read(tx).map_err(fault)?;
    Ok(installation.and_then(|Installation { fingerprint, handover, .. }| {
        handover.map(|handover| Rotation {
            switched: fingerprint == handover.to,
            from: handover.from,
            to: handover.to,
        })
    }))
}

/// Stores both keys, each sealed under the other; if that was done before, nothing.
fn begin(tx: &Transaction<'_>, vault: &Vault, to: MasterKey) -> Result<(), RotateError> {
    let installation = keys::follow(tx, vault)?;
    match installation.handover {
        Some(handover) if handover.to == to.fingerprint() => return Ok(()),
        Some(handover) => return Err(RotateError::UnderWay { from: handover.from, to: handover.to }),
        None if installation.fingerprint == to.fingerprint() => return Err(RotateError::SameKey),
        None => {}
    }
    let from = vault.master(&installation.fingerprint).ok_or_else(|| failed(KeysError::Replaced))?;
    let to_key = vault.handed(Handed::To, &from, &to)?;
    let from_key = vault.handed(Handed::From, &to, &from)?;
    // A row that means nothing may lie there: it is about a key that is not in use.
    tx.execute(
        "INSERT OR REPLACE INTO rotation (one, from_fingerprint, to_fingerprint, to_key, from_key) \
         VALUES (1, ?1, ?2, ?3, ?4)",
        (from.fingerprint(), to.fingerprint(), to_key, from_key),
    )
    .map_err(fault)?;
    // If this is not committed after all, the key is known for nothing.
    vault.learn(to);
    Ok(())
}

/// What came of one batch.
#[derive(Default)]
struct Batch {
    runs: u64,
    unreadable: u64,
    /// The last run that was looked at, if there may be more.
    last: Option<i64>,
}

/// Seals the keys of the runs after this one under the new master key, where they are not yet. An erased run
/// has none.
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
    let is_full = i64::try_from(runs.len()) == Ok(limit);
    let last = runs.last().map(|(number, ..)| *number).filter(|_| is_full);
    let mut batch = Batch { last, ..Batch::default() };
    let mut update = tx.prepare_cached("UPDATE runs SET key = ?1 WHERE number = ?2").map_err(fault)?;
    for (number, id, key) in runs {
        let run = std::str::from_utf8(&id).ok().and_then(|id| id.parse::<RunId>().ok());
        match run.and_then(|run| vault.rewrapped(to, &run, &key).ok()) {
            Some(key) => {
                update.execute((key, number)).map_err(fault)?;
                batch.runs += 1;
            }
            None => batch.unreadable += 1,
        }
    }
    Ok(batch)
}

/// Looks once more at all runs, and makes the new key the installation's.
fn switch(tx: &Transaction<'_>, vault: &Vault, to: &MasterKey) -> Result<Batch, RotateError> {
    let installation = keys::follow(tx, vault)?;
    match installation.handover {
        Some(handover) if handover.to == to.fingerprint() => {}
        Some(handover) => return Err(RotateError::UnderWay { from: handover.from, to: handover.to }),
        // Somebody else has ended it meanwhile.
        None if installation.fingerprint == to.fingerprint() => {}
        None => return Err(failed(KeysError::Replaced).into()),
    }
    let rest = take_over(tx, vault, to, i64::MIN, i64::MAX)?;
    if installation.fingerprint != to.fingerprint() {
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
    let installation = keys::follow(tx, vault)?;
    let Some(handover) = installation.handover else { return Ok(false) };
    if installation.fingerprint != handover.to {
        return Err(RotateError::UnderWay { from: handover.from, to: handover.to });
    }
    let to = vault.master(&handover.to).ok_or_else(|| failed(KeysError::Replaced))?;
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
    vault.forget(&handover.from);
    Ok(true)
}

/// Until when somebody may work with the old key alone.
fn in_use_until(tx: &Transaction<'_>, now: Timestamp) -> Result<Option<Timestamp>, StoreFault> {
    let until: Option<String> = tx
        .query_row(
            "SELECT in_use_until FROM rotation WHERE EXISTS (SELECT 1 FROM runs WHERE lease_until > ?1)",
            [time::text(now)],
            |row| row.get(0),
        )
        .optional()
        .map_err(fault)?
        .flatten();
    Ok(until.and_then(|until| time::parse(&until)).filter(|until| now < *until))
}
