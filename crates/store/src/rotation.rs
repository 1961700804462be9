//! A change of the master key, while runs wait, work and are created (S3).
//!
//! Invariant: at every commit, each run's data key and the root open with the old master key alone and with
//! the new one alone. No event is rewritten: only keys are sealed anew.
//!
//! What the program does, in this order:
//!
//! 1. It makes the new key and puts it, synced, into a file *beside* the key file. If such a file is there
//!    already, an earlier attempt ended half-way, and that key is the one to go on with.
//! 2. [`Upkeep::rotate`].
//! 3. It puts the new key in the place of the old one, by a rename, and syncs the folder.
//! 4. A second later, [`Upkeep::retire`]. With it the old key is good for nothing. It is refused while a worker may not have been handed the new key yet; then the old
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
//! could read all that was stored up to then anyway; no copy is made meanwhile ([`Upkeep::backup`]).
//!
//! *Who may still need the handover*: a worker that holds a lease renews it, and learns the new key with that.
//! So when the last lease ends that was held at the switch, every worker has it or has lost its run. Processes
//! that work and have nothing in hand look for work all the time, and learn it with that: for them is the second before
//! step 4. One that was stopped meanwhile says that it must be started again, and is not ready until then.
//!
//! *New runs* hang from the key that is current in the transaction that creates them; both last looks catch
//! what a process without that rule might have stored. *A process that was left behind* with a retired key
//! creates and claims nothing, opens no run, and says that it must be started with the new key.
//!
//! Two rotations to one key work side by side; one to another key is refused until the first has ended. A run
//! whose key opens with neither is damaged already: it is left as it is, counted, and stops nothing (R2).
//!
//! Not here: SQL.

use async_trait::async_trait;
use countersign::{RunId, StoreFault};
use jiff::Timestamp;

use crate::keys::{Handover, Installation, KeysError, failed};
use crate::seal::MasterKey;
#[cfg(doc)]
use crate::upkeep::Upkeep;
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
    /// Whether what was overwritten is gone from the disk too ([`Upkeep::lingering`]).
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

/// The transactions of a rotation, in one database.
#[async_trait]
pub(crate) trait Steps: Sync {
    /// The keys of the open store.
    fn vault(&self) -> &Vault;

    /// Stores both keys; if that was done before, nothing ([`begin`]).
    async fn begin(&self, to: &MasterKey) -> Result<(), RotateError>;

    /// Seals the keys of at most `limit` runs after this one under the new master key, where they are not yet.
    async fn take_over(&self, to: &MasterKey, after: i64, limit: i64) -> Result<Batch, RotateError>;

    /// Looks once more at all runs, and makes the new key the installation's ([`must_switch`]).
    async fn switch(&self, to: &MasterKey) -> Result<Batch, RotateError>;
}

/// What came of one batch.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) runs: u64,
    pub(crate) unreadable: u64,
    /// The last run that was looked at, if there may be more.
    pub(crate) last: Option<i64>,
}

impl Batch {
    /// What a batch has come to that found `found` runs, the last of which is `last`.
    pub(crate) fn of(found: usize, last: Option<i64>, limit: i64) -> Self {
        Self { last: last.filter(|_| i64::try_from(found) == Ok(limit)), ..Self::default() }
    }

    /// The key of one run, sealed anew; counted.
    pub(crate) fn rewrap(&mut self, vault: &Vault, to: &MasterKey, id: &[u8], key: &[u8]) -> Option<Vec<u8>> {
        let run = std::str::from_utf8(id).ok().and_then(|id| id.parse::<RunId>().ok());
        let key = run.and_then(|run| vault.rewrapped(to, &run, key).ok());
        match key {
            Some(_) => self.runs += 1,
            None => self.unreadable += 1,
        }
        key
    }
}

/// Goes from the beginning to the switch.
pub(crate) async fn rotate(
    steps: &dyn Steps,
    to: &MasterKey,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Rotated, RotateError> {
    steps.begin(to).await?;
    progress(0);
    let (mut runs, mut after) = (0, Some(i64::MIN));
    while let Some(last) = after {
        let batch = steps.take_over(to, last, BATCH).await?;
        runs += batch.runs;
        after = batch.last;
        progress(runs);
        if after.is_some() {
            steps.vault().breathe().await;
        }
    }
    let rest = steps.switch(to).await?;
    runs += rest.runs;
    progress(runs);
    Ok(Rotated { runs, unreadable: rest.unreadable })
}

/// The rotation that is stored.
pub(crate) fn under_way(installation: Option<Installation>) -> Option<Rotation> {
    installation.and_then(|Installation { fingerprint, handover, .. }| {
        handover.map(|handover| Rotation {
            switched: fingerprint == handover.to,
            from: handover.from,
            to: handover.to,
        })
    })
}

/// What must be stored to begin; nothing, if that was done before. Once it is stored, the vault may learn the
/// new key.
pub(crate) fn begin(
    installation: Installation,
    vault: &Vault,
    to: &MasterKey,
) -> Result<Option<Handover>, RotateError> {
    match installation.handover {
        Some(handover) if handover.to == to.fingerprint() => return Ok(None),
        Some(handover) => return Err(RotateError::UnderWay { from: handover.from, to: handover.to }),
        None if installation.fingerprint == to.fingerprint() => return Err(RotateError::SameKey),
        None => {}
    }
    let from = vault.master(&installation.fingerprint).ok_or_else(|| failed(KeysError::Replaced))?;
    Ok(Some(Handover {
        to_key: vault.handed(Handed::To, &from, to)?,
        from_key: vault.handed(Handed::From, to, &from)?,
        from: from.fingerprint(),
        to: to.fingerprint(),
    }))
}

/// Whether the new key is not the installation's yet.
pub(crate) fn must_switch(installation: Installation, to: &MasterKey) -> Result<bool, RotateError> {
    match installation.handover {
        Some(handover) if handover.to == to.fingerprint() => {}
        Some(handover) => return Err(RotateError::UnderWay { from: handover.from, to: handover.to }),
        // Somebody else has ended it meanwhile.
        None if installation.fingerprint == to.fingerprint() => {}
        None => return Err(failed(KeysError::Replaced).into()),
    }
    Ok(installation.fingerprint != to.fingerprint())
}

/// The key that goes and the key that stays, if there is a rotation to end.
pub(crate) fn retiring(
    installation: Installation,
    vault: &Vault,
) -> Result<Option<(String, MasterKey)>, RotateError> {
    let Some(handover) = installation.handover else { return Ok(None) };
    if installation.fingerprint != handover.to {
        return Err(RotateError::UnderWay { from: handover.from, to: handover.to });
    }
    let to = vault.master(&handover.to).ok_or_else(|| failed(KeysError::Replaced))?;
    Ok(Some((handover.from, to)))
}
