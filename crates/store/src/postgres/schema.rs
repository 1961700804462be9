//! The schema: whose it is, how new, and under which key.
//!
//! Invariant: a database is looked at before it is touched. One that is somebody else's, newer, or sealed under
//! another key is refused and left as it was. Everything lies in the schema `countersign`, so the database can be
//! shared. A shipped migration is never edited; a change is another one.

use std::sync::Arc;

use countersign::{Clock, Durability, StoreFault};

use super::connections::{Begin, Connections, Transaction};
use super::keys;
use crate::migration::{Migration, Version};
use crate::open::{self, OpenError};
use crate::row::Cells;
use crate::seal::MasterKey;
use crate::vault::Vault;

/// In order, each once, each in a transaction of its own.
const MIGRATIONS: [Migration; 10] = [
    Migration::new(1, include_str!("../../migrations/postgres/0001_runs.sql")),
    Migration::new(2, include_str!("../../migrations/postgres/0002_continuations.sql")),
    Migration::new(3, include_str!("../../migrations/postgres/0003_people.sql")),
    Migration::new(4, include_str!("../../migrations/postgres/0004_lists.sql")),
    Migration::new(5, include_str!("../../migrations/postgres/0005_outbox.sql")),
    Migration::new(6, include_str!("../../migrations/postgres/0006_starter.sql")),
    Migration::new(7, include_str!("../../migrations/postgres/0007_open.sql")),
    Migration::new(8, include_str!("../../migrations/postgres/0008_holders.sql")),
    Migration::new(9, include_str!("../../migrations/postgres/0009_reviewed.sql")),
    Migration::new(10, include_str!("../../migrations/postgres/0010_readers.sql")),
];
/// The schema from which on a database says how old a program may be that works on it.
const READERS_SINCE: u32 = 10;
/// The schema after all of them.
#[expect(clippy::cast_possible_truncation, reason = "there are few migrations")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// One process at a time makes or migrates a database.
const ALONE: &str = "SELECT pg_advisory_xact_lock(4850202893012172800)";
/// What is there: our own table with the version, anything else in our schema, the schema itself.
const AGE: &str = "SELECT \
     (EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = 'countersign' AND relname = 'schema_version'))::int4::int8 AS ours, \
     (SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = 'countersign') AS relations, \
     (SELECT count(*) FROM pg_namespace WHERE nspname = 'countersign') AS schemas";

/// How new it is. The second number is not there in an older schema.
const VERSIONS: &str = "SELECT version, (to_jsonb(stored) ->> 'readable_from')::int8 AS readable_from \
     FROM countersign.schema_version AS stored";

/// Brings the database up to date, finds its keys, and says which schema it has: what is known here, or newer.
pub(super) async fn open(
    connections: &Connections,
    place: &str,
    master: MasterKey,
    clock: Arc<dyn Clock>,
) -> Result<(Vault, u32), OpenError> {
    let opening = Opening { connections, place };
    opening.look(&master).await?;
    let schema = loop {
        if let Migrated::UpToDate(schema) = opening.migrate().await? {
            break schema;
        }
    };
    Ok((opening.keys(master, clock).await?, schema))
}

/// Whether an installation was made here.
pub(super) async fn is_made(connections: &Connections) -> Result<bool, StoreFault> {
    let table = "SELECT 1::int8 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = 'countersign' AND relname = 'installation'";
    if connections.rows(table, &[]).await?.is_empty() {
        return Ok(false);
    }
    Ok(!connections.rows("SELECT 1::int8 FROM countersign.installation", &[]).await?.is_empty())
}

struct Opening<'a> {
    connections: &'a Connections,
    place: &'a str,
}

enum Age {
    /// The schema is somebody else's.
    Foreign,
    /// Ours, or nobody's yet; and whether the schema itself is there.
    Version(Version, bool),
}

enum Migrated {
    /// One step further.
    Once,
    /// There is no further step; this is the schema.
    UpToDate(u32),
}

impl Opening<'_> {
    fn failed(&self, source: StoreFault) -> OpenError {
        OpenError::Fault { database: self.place.to_owned(), source }
    }

    /// Whether the database may be changed.
    async fn look(&self, master: &MasterKey) -> Result<(), OpenError> {
        let failed = |fault| self.failed(fault);
        let tx = self.connections.transaction(Begin::Read).await.map_err(failed)?;
        tx.start(async { Ok(()) }).await.map_err(failed)?;
        match self.age(&tx).await? {
            Age::Foreign => Err(OpenError::Foreign(self.place.to_owned())),
            Age::Version(Version { found: 0, .. }, _) => Ok(()),
            Age::Version(version, _) => {
                version.check(VERSION)?;
                let [installation] = tx.statements([keys::INSTALLATION]).await.map_err(failed)?;
                let rows = tx.go_on(tx.query(&installation, &[])).await.map_err(failed)?;
                let installation = keys::read(&rows).map_err(failed)?;
                installation.map_or(Ok(()), |installation| open::check_key(&installation, master))
            }
        }
    }

    async fn age(&self, tx: &Transaction) -> Result<Age, OpenError> {
        let age = async {
            let [age] = tx.statements([AGE]).await?;
            let rows = tx.go_on(tx.query(&age, &[])).await?;
            let Some(row) = rows.first() else { return Ok(Age::Foreign) };
            let count = |column| Cells::of(row, "pg_class", "ours").number(column);
            if count("ours")? == 0 {
                let is_free = count("relations")? == 0;
                let is_there = count("schemas")? > 0;
                let new = Version { found: 0, readable_from: None };
                return Ok(if is_free { Age::Version(new, is_there) } else { Age::Foreign });
            }
            let [version] = tx.statements([VERSIONS]).await?;
            let rows = tx.go_on(tx.query(&version, &[])).await?;
            let Some(row) = rows.first() else { return Ok(Age::Foreign) };
            let cells = Cells::of(row, "schema_version", "version");
            // What is no version is of a countersign that does not exist yet.
            let version = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
            let is_silent = cells.is_absent("readable_from")?;
            let readable_from = if is_silent { None } else { Some(version(cells.number("readable_from")?)) };
            Ok(Age::Version(Version { found: version(cells.number("version")?), readable_from }, true))
        };
        age.await.map_err(|fault| self.failed(fault))
    }

    /// Runs the next migration, if there is one.
    async fn migrate(&self) -> Result<Migrated, OpenError> {
        let failed = |fault| self.failed(fault);
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await.map_err(failed)?;
        tx.start(tx.batch(ALONE)).await.map_err(failed)?;
        // Read again under the lock: another process may be opening the same database.
        let (version, is_there) = match self.age(&tx).await? {
            Age::Foreign => return Err(OpenError::Foreign(self.place.to_owned())),
            Age::Version(version, is_there) => (version, is_there),
        };
        version.check(VERSION)?;
        let found = version.found;
        let Some(migration) = MIGRATIONS.get(found as usize) else { return Ok(Migrated::UpToDate(found)) };
        // Who may work on a database need not be allowed to change its tables.
        let failed = |source: StoreFault| {
            if let StoreFault::ReadOnly(_) = &source {
                return OpenError::Unmigrated { found, known: VERSION, source };
            }
            failed(source)
        };
        if !is_there {
            tx.go_on(tx.batch("CREATE SCHEMA countersign")).await.map_err(failed)?;
        }
        if found == 0 {
            tx.go_on(tx.batch(
                "CREATE TABLE countersign.schema_version (one BIGINT PRIMARY KEY CHECK (one = 1), version BIGINT NOT NULL)",
            ))
            .await
            .map_err(failed)?;
        }
        tx.go_on(tx.batch(migration.statements)).await.map_err(failed)?;
        let mut version = format!(
            "INSERT INTO countersign.schema_version (one, version) VALUES (1, {0}) \
             ON CONFLICT (one) DO UPDATE SET version = {0}",
            found + 1
        );
        if found + 1 >= READERS_SINCE {
            let from = migration.readable_from;
            version.push_str(&format!(
                "; UPDATE countersign.schema_version SET readable_from = greatest(readable_from, {from})"
            ));
        }
        tx.commit(tx.batch(&version)).await.map_err(failed)?;
        Ok(Migrated::Once)
    }

    async fn keys(&self, master: MasterKey, clock: Arc<dyn Clock>) -> Result<Vault, OpenError> {
        let failed = |fault| self.failed(fault);
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await.map_err(failed)?;
        tx.start(tx.batch(keys::ALONE)).await.map_err(failed)?;
        let [installation, runs, insert] = tx
            .statements([
                keys::INSTALLATION,
                "SELECT 1::int8 FROM runs LIMIT 1",
                "INSERT INTO installation (one, key_fingerprint, root) VALUES (1, $1, $2)",
            ])
            .await
            .map_err(failed)?;
        let rows = tx.go_on(tx.query(&installation, &[])).await.map_err(failed)?;
        if let Some(installation) = keys::read(&rows).map_err(failed)? {
            return open::vault_of(&installation, master, clock);
        }
        if !tx.go_on(tx.query(&runs, &[])).await.map_err(failed)?.is_empty() {
            return Err(open::keyless());
        }
        let fingerprint = master.fingerprint();
        let (vault, root) = Vault::new_installation(master, clock).map_err(failed)?;
        tx.commit(tx.query(&insert, &[&fingerprint, &root])).await.map_err(failed)?;
        Ok(vault)
    }
}
