//! Which master key is the installation's at this moment, and how a process learns that it has changed.
//!
//! Invariant: every transaction that seals or opens a run's key goes by what it reads itself, never by what
//! the process knew when it started. So a new run hangs from the right key whoever creates it, and a process
//! that was left behind with a retired key says so and touches nothing. How a key is changed: `rotation`. Not
//! here: SQL.

use countersign::StoreFault;

use crate::entries::Broken;
use crate::row::RunRecord;
use crate::seal::{MasterKey, Unopened};
use crate::vault::{Handed, RunKey, Vault};

/// What is stored of the installation.
pub(crate) struct Installation {
    /// The master key that the root is sealed under.
    pub(crate) fingerprint: String,
    /// The sealed root.
    pub(crate) root: Vec<u8>,
    /// The change of master keys that is under way.
    pub(crate) handover: Option<Handover>,
}

/// Two master keys, each sealed under the other.
pub(crate) struct Handover {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) to_key: Vec<u8>,
    pub(crate) from_key: Vec<u8>,
}

impl Installation {
    /// With the rotation that is stored, if it is one: a row that is not about this installation's key means
    /// nothing.
    pub(crate) fn with(self, handover: Option<Handover>) -> Self {
        let handover = handover.filter(|handover| handover.is_about(&self.fingerprint));
        Self { handover, ..self }
    }

    /// Whether the key of this fingerprint is enough to open everything.
    pub(crate) fn is_opened_by(&self, fingerprint: &str) -> bool {
        self.fingerprint == fingerprint
            || self.handover.as_ref().is_some_and(|handover| handover.is_about(fingerprint))
    }

    /// The key that new runs hang from.
    pub(crate) fn current(&self) -> &str {
        self.handover.as_ref().map_or(&self.fingerprint, |handover| &handover.to)
    }
}

impl Handover {
    fn is_about(&self, fingerprint: &str) -> bool {
        self.from == fingerprint || self.to == fingerprint
    }

    /// The key that whoever holds one of these does not hold yet.
    pub(crate) fn opened(&self, held: &[MasterKey]) -> Result<Option<MasterKey>, Unopened> {
        let holds = |fingerprint: &str| held.iter().find(|key| key.fingerprint() == fingerprint);
        match (holds(&self.from), holds(&self.to)) {
            (Some(from), None) => Handed::To.open(from, &self.to_key).map(Some),
            (None, Some(to)) => Handed::From.open(to, &self.from_key).map(Some),
            (Some(_), Some(_)) | (None, None) => Ok(None),
        }
    }
}

/// Learns the other key of a rotation that is under way.
pub(crate) fn follow(vault: &Vault, installation: Option<Installation>) -> Result<Installation, StoreFault> {
    let installation = installation.ok_or_else(|| failed(KeysError::Lost))?;
    if let Some(handover) = &installation.handover
        && let Some(other) = handover.opened(&vault.masters()).map_err(failed)?
    {
        vault.learn(other);
    }
    Ok(installation)
}

/// The master key that a new run must hang from.
pub(crate) fn current(vault: &Vault, installation: &Installation) -> Result<MasterKey, StoreFault> {
    vault.master(installation.current()).ok_or_else(|| failed(KeysError::Replaced))
}

/// The data key of a stored run, with the master keys that are known. `None`: it hangs from another one, so
/// what is stored of the installation must be looked at, and then [`after_following`] says more.
pub(crate) fn of_run(vault: &Vault, record: &RunRecord) -> Option<Result<RunKey, Broken>> {
    if let Some(at) = record.erased_at {
        return Some(Err(Broken::Erased { at }));
    }
    match vault.run(&record.row.id, &record.key) {
        Err(Unopened::OtherKey) => None,
        opened => Some(opened.map_err(Broken::Key)),
    }
}

/// The data key of a stored run, after the installation was followed.
pub(crate) fn after_following(
    vault: &Vault,
    installation: &Installation,
    record: &RunRecord,
) -> Result<RunKey, Broken> {
    let knows_the_current = vault.master(installation.current()).is_some();
    vault.run(&record.row.id, &record.key).map_err(|why| match why {
        Unopened::OtherKey if !knows_the_current => Broken::KeyReplaced,
        Unopened::OtherKey | Unopened::Format | Unopened::NotThis => Broken::Key(why),
    })
}

/// Why there is no master key to seal with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// There is no word of a key.
    #[error("the database has lost its keys")]
    Lost,
    /// This process was left behind.
    #[error("the master key was changed, and this process has the old one; start it again with the new one")]
    Replaced,
}

pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreFault {
    StoreFault::Failed(Box::new(error))
}
