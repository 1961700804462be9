//! Why a database cannot be opened, and its keys, once it was.
//!
//! Invariant: a database is looked at before it is touched. One that is somebody else's, newer, or sealed under
//! another key is refused and left as it was. Not here: SQL.

use std::sync::Arc;

use countersign::{Clock, StoreFault};

use crate::keys::Installation;
use crate::seal::{MasterKey, Unopened};
use crate::vault::Vault;

/// Why a database cannot be opened. It is left as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is something else.
    #[error("{0} is not a database of countersign")]
    Foreign(String),
    /// A newer countersign changed it in a way that is not for this one.
    #[error("the database has schema {found}; this countersign knows {known}. Use the newer one")]
    Newer {
        /// The schema of the database.
        found: u32,
        /// The newest schema that is known here.
        known: u32,
    },
    /// An older countersign wrote it, and this account may not bring it up to date (PostgreSQL).
    #[error(
        "the database has schema {found} and this countersign needs {known}, but this account may not change its \
         tables: run `db migrate` once as the account that owns them"
    )]
    Unmigrated {
        /// The schema of the database.
        found: u32,
        /// The newest schema that is known here.
        known: u32,
        /// What PostgreSQL said.
        #[source]
        source: StoreFault,
    },
    /// It is sealed under another master key.
    #[error("the database is sealed under the key {expected}; the key given is {given}")]
    WrongKey {
        /// The fingerprint of the key that fits.
        expected: String,
        /// The fingerprint of the key that was given.
        given: String,
    },
    /// What the keys hang from is missing or was changed.
    #[error("the database has lost its keys: {0}")]
    Damaged(String),
    /// The file is none, or lies where its log cannot be shared by several connections (SQLite).
    #[error("no write-ahead log can be kept beside {0}")]
    NoWriteAheadLog(String),
    /// It could not be reached, opened, read or migrated.
    #[error("the database {database} cannot be opened")]
    Fault {
        /// Which, without any password.
        database: String,
        /// Why.
        #[source]
        source: StoreFault,
    },
}

/// Refuses a master key that does not open this installation.
pub(crate) fn check_key(installation: &Installation, master: &MasterKey) -> Result<(), OpenError> {
    if installation.is_opened_by(&master.fingerprint()) {
        return Ok(());
    }
    Err(OpenError::WrongKey { expected: installation.fingerprint.clone(), given: master.fingerprint() })
}

/// The keys of an installation that is stored.
pub(crate) fn vault_of(
    installation: &Installation,
    master: MasterKey,
    clock: Arc<dyn Clock>,
) -> Result<Vault, OpenError> {
    check_key(installation, &master)?;
    let damaged = |why: Unopened| OpenError::Damaged(why.to_string());
    let mut masters = vec![master];
    if let Some(handover) = &installation.handover {
        masters.extend(handover.opened(&masters).map_err(damaged)?);
    }
    Vault::of_installation(masters, clock, &installation.root).map_err(damaged)
}

/// What is said of a database with runs and without keys.
pub(crate) fn keyless() -> OpenError {
    OpenError::Damaged("there are runs, but no word of the key they are sealed under".to_owned())
}
