//! What is stored of the installation's keys in PostgreSQL, and who may look at it while it changes. What it
//! means: `crate::keys`.
//!
//! Invariant: whoever creates a run, claims one or keeps a lease holds [`SHARED`] to the end of its transaction;
//! whoever changes which key is the installation's holds [`ALONE`]. So each of them sees the keys as they are when
//! it commits.

use countersign::StoreFault;
use tokio_postgres::Row;

use super::connections::{Connections, Transaction};
use super::schema;
use crate::entries::Broken;
use crate::keys::{self, Handover, Installation};
use crate::migration;
use crate::row::{Cells, RunRecord};
use crate::vault::{RunKey, Vault};

/// The lock of the keys, held with others.
pub(super) const SHARED: &str = "SELECT pg_advisory_xact_lock_shared(4850202893012172801)";
/// The lock of the keys, held alone.
pub(super) const ALONE: &str = "SELECT pg_advisory_xact_lock(4850202893012172801)";
/// What is stored, in every schema.
pub(super) const INSTALLATION: &str = "SELECT key_fingerprint, root, from_fingerprint, to_fingerprint, to_key, \
     from_key FROM installation LEFT JOIN rotation ON true";
/// The same for whoever has the database open, and whether it still may.
pub(super) const STANDING: &str = "SELECT key_fingerprint, root, from_fingerprint, to_fingerprint, to_key, \
     from_key, readable_from FROM installation CROSS JOIN schema_version LEFT JOIN rotation ON true";

/// What is stored, if an installation was made.
pub(super) fn read(rows: &[Row]) -> Result<Option<Installation>, StoreFault> {
    let Some(row) = rows.first() else { return Ok(None) };
    let cells = Cells::of(row, "installation", "key_fingerprint");
    let text = |column| cells.text(column).map(str::to_owned);
    let bytes = |column| cells.bytes(column).map(<[u8]>::to_vec);
    let handover = if cells.is_absent("from_fingerprint")? {
        None
    } else {
        Some(Handover {
            from: text("from_fingerprint")?,
            to: text("to_fingerprint")?,
            to_key: bytes("to_key")?,
            from_key: bytes("from_key")?,
        })
    };
    let installation =
        Installation { fingerprint: text("key_fingerprint")?, root: bytes("root")?, handover: None };
    Ok(Some(installation.with(handover)))
}

/// Learns the other key of a rotation that is under way, and says what is stored.
pub(super) fn learn(rows: &[Row], vault: &Vault) -> Result<Installation, StoreFault> {
    keys::follow(vault, read(rows)?)
}

/// The same for whoever is going to change something: it must still be allowed to ([`STANDING`]).
pub(super) fn follow(rows: &[Row], vault: &Vault) -> Result<Installation, StoreFault> {
    if let Some(row) = rows.first() {
        let from = Cells::of(row, "schema_version", "readable_from").number("readable_from")?;
        migration::still_readable(from, schema::VERSION)?;
    }
    learn(rows, vault)
}

/// The data key of a run whose row this transaction has read.
pub(super) async fn of_run(
    tx: &Transaction,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<RunKey, Broken>, StoreFault> {
    if let Some(key) = keys::of_run(vault, record) {
        return Ok(key);
    }
    let [installation] = tx.statements([INSTALLATION]).await?;
    let rows = tx.go_on(tx.query(&installation, &[])).await?;
    Ok(keys::after_following(vault, &learn(&rows, vault)?, record))
}

/// Learns what is stored, outside of any transaction.
pub(super) async fn look(connections: &Connections, vault: &Vault) -> Result<Installation, StoreFault> {
    learn(&connections.rows(INSTALLATION, &[]).await?, vault)
}

/// Whether this process has been left behind with a retired key.
pub(super) fn check_current(installation: &Installation, vault: &Vault) -> Result<(), StoreFault> {
    keys::current(vault, installation).map(drop)
}
