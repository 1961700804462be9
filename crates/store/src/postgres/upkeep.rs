//! The operator's work, on PostgreSQL.

use std::path::Path;

use async_trait::async_trait;
use countersign::{AgentName, Durability, LoadError, Outbox as _, RunId, StoreFault};
use jiff::Timestamp;

use super::connections::{Begin, Parameter};
use super::pipeline::four;
use super::{PostgresStore, keys, schema};
use crate::census::{self, Census};
use crate::finding::Report;
use crate::hints::Hints;
use crate::restored::Restored;
use crate::rotation::{self, Retired, RotateError, Rotated, Rotation};
use crate::seal::MasterKey;
use crate::upkeep::{BackupError, EraseError, Erased, Purged, Reviewed, Upkeep};

/// Where nearly all that there is waits, PostgreSQL would as soon read the table, and go on so until it is told how much
/// has been settled since.
const IN_INDEXES: &str = "SET LOCAL enable_seqscan = off";

#[async_trait]
impl Upkeep for PostgresStore {
    fn place(&self) -> String {
        self.address.place().to_owned()
    }

    fn lingering(&self) -> &'static str {
        "PostgreSQL keeps the old bytes until it has vacuumed the tables and written over their place; its write-ahead \
         log and copies that were made before keep them longer."
    }

    fn hints(&self) -> Hints {
        self.listen()
    }

    fn schema_version(&self) -> u32 {
        self.schema
    }

    fn schema_known(&self) -> u32 {
        schema::VERSION
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        // The server's own time: no two are alike, so that something is written.
        const WRITE: &str = "INSERT INTO probe (one, at) VALUES (1, clock_timestamp()) \
             ON CONFLICT (one) DO UPDATE SET at = excluded.at";
        let installation = keys::follow(&self.connections.rows(keys::STANDING, &[]).await?, &self.vault)?;
        keys::check_current(&installation, &self.vault)?;
        self.connections.change(Durability::Disk, WRITE, &[]).await.map(drop)
    }

    async fn census(&self, now: Timestamp) -> Result<Census, StoreFault> {
        let mut counted = Census::default();
        let moments = census::moments(now);
        let parameters: [Parameter<'_>; 2] = [&moments[0], &moments[1]];
        let tx = self.connections.transaction(Begin::Read).await?;
        let [active, waiting, open] = tx
            .statements([
                &census::active_statement("", "$1", "$2"),
                &census::waiting_statement(),
                census::OPEN,
            ])
            .await?;
        let (_, active, waiting, open) = tx
            .whole(four(
                tx.batch(IN_INDEXES),
                tx.query(&active, &parameters),
                tx.query(&waiting, &[]),
                tx.query(&open, &[]),
            ))
            .await?;
        for row in &active {
            counted.count_active(row)?;
        }
        for row in &waiting {
            counted.count_waiting(row)?;
        }
        for row in &open {
            counted.count_open(row)?;
        }
        Ok(counted)
    }

    async fn reviewed(&self) -> Result<Option<Reviewed>, StoreFault> {
        Ok(self.connections.row(Reviewed::SELECT, &[]).await?.and_then(|row| Reviewed::read(&row)))
    }

    async fn note_reviewed(&self, reviewed: &Reviewed) -> Result<(), StoreFault> {
        let insert = "INSERT INTO reviewed (one, definitions, cursor) VALUES (1, $1, $2) \
                      ON CONFLICT (one) DO UPDATE SET definitions = excluded.definitions, cursor = excluded.cursor";
        let noted: [Parameter<'_>; 2] = [&reviewed.definitions.to_string(), &reviewed.cursor];
        self.connections.change(Durability::Process, insert, &noted).await.map(drop)
    }

    async fn examine(
        &self,
        agents: Option<&[AgentName]>,
        now: Timestamp,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Report, StoreFault> {
        let mut report = self.look_through(agents, now, progress).await?;
        // Where this cannot be read, that is damage which was found already.
        if let Ok(states) = self.webhooks().await {
            report.untold(states);
        }
        Ok(report)
    }

    async fn rotate(
        &self,
        to: MasterKey,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Rotated, RotateError> {
        rotation::rotate(self, &to, progress).await
    }

    async fn retire(&self, now: Timestamp) -> Result<Option<Retired>, RotateError> {
        self.retire_key(now).await
    }

    async fn rotation(&self) -> Result<Option<Rotation>, StoreFault> {
        self.rotation_under_way().await
    }

    async fn purge(&self, ended_before: Timestamp, dry: bool) -> Result<Purged, StoreFault> {
        self.purge_runs(ended_before, dry).await
    }

    async fn erase(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
        self.erase_run(run, now).await
    }

    async fn erased_at(&self, run: &RunId) -> Result<Option<Timestamp>, LoadError> {
        self.readable(run).await.map(|record| record.erased_at)
    }

    async fn restored(&self, now: Timestamp) -> Result<Restored, StoreFault> {
        self.make_harmless(now).await
    }

    async fn backup(&self, _: &Path) -> Result<(), BackupError> {
        Err(BackupError::NotHere(
            "a PostgreSQL database is copied by its own programs: pg_dump for a copy, or a base backup with its \
             write-ahead log",
        ))
    }
}
