//! Which master key is the installation's at this moment, and how a process learns that it has changed.
//!
//! Invariant: every transaction that seals or opens a run's key goes by what it reads itself, never by what
//! the process knew when it started. So a new run hangs from the right key whoever creates it, and a process
//! that was left behind with a retired key says so and touches nothing. How a key is changed: `rotate`.

use countersign::StoreFault;
use rusqlite::{Connection, OptionalExtension};

use super::entries::Broken;
use super::fault;
use crate::row::RunRecord;
use crate::seal::{MasterKey, Unopened};
use crate::vault::{Handed, RunKey, Vault};

/// What is stored of the installation.
pub(super) struct Installation {
    /// The master key that the root is sealed under.
    pub(super) fingerprint: String,
    /// The sealed root.
    pub(super) root: Vec<u8>,
    /// The change of master keys that is under way.
    pub(super) handover: Option<Handover>,
}

/// Two master keys, each sealed under the other.
pub(super) struct Handover {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) to_key: Vec<u8>,
    pub(super) from_key: Vec<u8>,
}

impl Installation {
    /// What is stored, if an installation was made.
    pub(super) fn read(connection: &Connection) -> Result<Option<Self>, rusqlite::Error> {
        let Some(mut installation) = Self::before_rotations(connection)? else { return Ok(None) };
        installation.handover = connection
            .prepare_cached("SELECT from_fingerprint, to_fingerprint, to_key, from_key FROM rotation")?
            .query_row([], |row| {
                Ok(Handover {
                    from: row.get(0)?,
                    to: row.get(1)?,
                    to_key: row.get(2)?,
                    from_key: row.get(3)?,
                })
            })
            .optional()?
            // One that is not about this installation's key means nothing.
            .filter(|handover| handover.is_about(&installation.fingerprint));
        Ok(Some(installation))
    }

    /// The same, in a schema that knows no rotations.
    pub(super) fn before_rotations(connection: &Connection) -> Result<Option<Self>, rusqlite::Error> {
        connection
            .prepare_cached("SELECT key_fingerprint, root FROM installation")?
            .query_row([], |row| Ok(Self { fingerprint: row.get(0)?, root: row.get(1)?, handover: None }))
            .optional()
    }

    /// Whether the key of this fingerprint is enough to open everything.
    pub(super) fn is_opened_by(&self, fingerprint: &str) -> bool {
        self.fingerprint == fingerprint
            || self.handover.as_ref().is_some_and(|handover| handover.is_about(fingerprint))
    }

    /// The key that new runs hang from.
    pub(super) fn current(&self) -> &str {
        self.handover.as_ref().map_or(&self.fingerprint, |handover| &handover.to)
    }
}

impl Handover {
    fn is_about(&self, fingerprint: &str) -> bool {
        self.from == fingerprint || self.to == fingerprint
    }

    /// The key that whoever holds one of these does not hold yet.
    pub(super) fn opened(&self, held: &[MasterKey]) -> Result<Option<MasterKey>, Unopened> {
        let holds = |fingerprint: &str| held.iter().find(|key| key.fingerprint() == fingerprint);
        match (holds(&self.from), holds(&self.to)) {
            (Some(from), None) => Handed::To.open(from, &self.to_key).map(Some),
            (None, Some(to)) => Handed::From.open(to, &self.from_key).map(Some),
            (Some(_), Some(_)) | (None, None) => Ok(None),
        }
    }
}

/// Learns the other key of a rotation that is under way, and says what is stored.
pub(super) fn follow(tx: &Connection, vault: &Vault) -> Result<Installation, StoreFault> {
    let installation = Installation::read(tx).map_err(fault)?.ok_or_else(|| failed(KeysError::Lost))?;
    if let Some(handover) = &installation.handover
        && let Some(other) = handover.opened(&vault.masters()).map_err(failed)?
    {
        vault.learn(other);
    }
    Ok(installation)
}

/// The master key that a new run must hang from in this transaction.
pub(super) fn current(tx: &Connection, vault: &Vault) -> Result<MasterKey, StoreFault> {
    let installation = follow(tx, vault)?;
    vault.master(installation.current()).ok_or_else(|| failed(KeysError::Replaced))
}

/// The data key of a stored run.
pub(super) fn of_run(
    tx: &Connection,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<RunKey, Broken>, StoreFault> {
    if let Some(at) = record.erased_at {
        return Ok(Err(Broken::Erased { at }));
    }
    let run = &record.row.id;
    match vault.run(run, &record.key) {
        Err(Unopened::OtherKey) => {
            let installation = follow(tx, vault)?;
            let knows_the_current = vault.master(installation.current()).is_some();
            Ok(vault.run(run, &record.key).map_err(|why| match why {
                Unopened::OtherKey if !knows_the_current => Broken::KeyReplaced,
                Unopened::OtherKey | Unopened::Format | Unopened::NotThis => Broken::Key(why),
            }))
        }
        opened => Ok(opened.map_err(Broken::Key)),
    }
}

/// Why there is no master key to seal with.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    /// There is no word of a key.
    #[error("the database has lost its keys")]
    Lost,
    /// This process was left behind.
    #[error("the master key was changed, and this process has the old one; start it again with the new one")]
    Replaced,
}

pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreFault {
    StoreFault::Failed(Box::new(error))
}
