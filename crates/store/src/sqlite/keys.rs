//! What is stored of the installation's keys in SQLite. What it means: `crate::keys`.

use countersign::StoreFault;
use rusqlite::{Connection, OptionalExtension};

use super::{fault, schema};
use crate::entries::Broken;
use crate::keys::{self, Handover, Installation};
use crate::row::RunRecord;
use crate::seal::MasterKey;
use crate::vault::{RunKey, Vault};

/// What is stored, if an installation was made.
pub(super) fn read(connection: &Connection) -> Result<Option<Installation>, rusqlite::Error> {
    let Some(installation) = before_rotations(connection)? else { return Ok(None) };
    let handover = connection
        .prepare_cached("SELECT from_fingerprint, to_fingerprint, to_key, from_key FROM rotation")?
        .query_row([], |row| {
            Ok(Handover { from: row.get(0)?, to: row.get(1)?, to_key: row.get(2)?, from_key: row.get(3)? })
        })
        .optional()?;
    Ok(Some(installation.with(handover)))
}

/// The same, in a schema that knows no rotations.
pub(super) fn before_rotations(connection: &Connection) -> Result<Option<Installation>, rusqlite::Error> {
    connection
        .prepare_cached("SELECT key_fingerprint, root FROM installation")?
        .query_row([], |row| Ok(Installation { fingerprint: row.get(0)?, root: row.get(1)?, handover: None }))
        .optional()
}

/// Learns the other key of a rotation that is under way, and says what is stored.
pub(super) fn learn(tx: &Connection, vault: &Vault) -> Result<Installation, StoreFault> {
    keys::follow(vault, read(tx).map_err(fault)?)
}

/// The same for whoever is going to change something: it must still be allowed to.
pub(super) fn follow(tx: &Connection, vault: &Vault) -> Result<Installation, StoreFault> {
    schema::still_readable(tx)?;
    learn(tx, vault)
}

/// The master key that a new run must hang from in this transaction.
pub(super) fn current(tx: &Connection, vault: &Vault) -> Result<MasterKey, StoreFault> {
    keys::current(vault, &follow(tx, vault)?)
}

/// The data key of a stored run.
pub(super) fn of_run(
    tx: &Connection,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<RunKey, Broken>, StoreFault> {
    match keys::of_run(vault, record) {
        Some(key) => Ok(key),
        None => Ok(keys::after_following(vault, &learn(tx, vault)?, record)),
    }
}
