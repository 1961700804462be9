//! The operator's work, on SQLite.

use std::path::Path;

use async_trait::async_trait;
use countersign::{AgentName, Durability, LoadError, Outbox as _, RunId, StoreFault};
use jiff::Timestamp;
use rusqlite::OptionalExtension as _;

use super::log::readable;
use super::rotate::rotation;
use super::{SqliteStore, fault, keys, schema};
use crate::census::{self, Census};
use crate::finding::Report;
use crate::hints::Hints;
use crate::restored::Restored;
use crate::rotation::{self, Retired, RotateError, Rotated, Rotation};
use crate::seal::MasterKey;
use crate::upkeep::{BackupError, EraseError, Erased, Purged, Reviewed, Upkeep};

/// The statement that counts active runs, agent by agent along the queue. SQLite would rather find them all and sort
/// them.
pub(super) fn active_runs() -> String {
    census::active_statement("INDEXED BY runs_queue", "?1", "?2")
}

#[async_trait]
impl Upkeep for SqliteStore {
    fn place(&self) -> String {
        self.path().display().to_string()
    }

    fn lingering(&self) -> &'static str {
        "Somebody was reading, so the bytes leave the log beside the database with its next checkpoint."
    }

    fn hints(&self) -> Hints {
        Hints::silence()
    }

    fn schema_version(&self) -> u32 {
        self.schema
    }

    fn schema_known(&self) -> u32 {
        schema::VERSION
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        // As much as an event may need, or there might be room for this and not for that.
        const WRITE: &str = "INSERT INTO probe (one, bytes) VALUES (1, randomblob(16384)) \
             ON CONFLICT (one) DO UPDATE SET bytes = excluded.bytes";
        let vault = self.vault();
        self.connections
            .write(Durability::Disk, move |tx| {
                keys::current(tx, &vault)?;
                tx.execute(WRITE, ()).map(drop).map_err(fault)
            })
            .await
    }

    async fn census(&self, now: Timestamp) -> Result<Census, StoreFault> {
        self.connections
            .read_aside(move |tx| {
                let mut counted = Census::default();
                let mut select = tx.prepare_cached(&active_runs()).map_err(fault)?;
                let mut rows = select.query(census::moments(now)).map_err(fault)?;
                while let Some(row) = rows.next().map_err(fault)? {
                    counted.count_active(row)?;
                }
                let mut select = tx.prepare_cached(&census::waiting_statement()).map_err(fault)?;
                let mut rows = select.query(()).map_err(fault)?;
                while let Some(row) = rows.next().map_err(fault)? {
                    counted.count_waiting(row)?;
                }
                let mut select = tx.prepare_cached(census::OPEN).map_err(fault)?;
                let mut rows = select.query(()).map_err(fault)?;
                while let Some(row) = rows.next().map_err(fault)? {
                    counted.count_open(row)?;
                }
                Ok(counted)
            })
            .await
    }

    async fn reviewed(&self) -> Result<Option<Reviewed>, StoreFault> {
        self.connections.read(|tx| {
            let row = tx.query_row(Reviewed::SELECT, [], |row| Ok(Reviewed::read(row))).optional();
            row.map(Option::flatten).map_err(fault)
        })
    }

    async fn note_reviewed(&self, reviewed: &Reviewed) -> Result<(), StoreFault> {
        let noted = (reviewed.definitions.to_string(), reviewed.cursor.clone());
        self.connections
            .write(Durability::Process, move |tx| {
                let insert = "INSERT INTO reviewed (one, definitions, cursor) VALUES (1, ?1, ?2) \
                              ON CONFLICT (one) DO UPDATE SET definitions = excluded.definitions, cursor = excluded.cursor";
                tx.execute(insert, noted).map(drop).map_err(fault)
            })
            .await
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
        self.connections.read(|tx| rotation(tx))
    }

    async fn purge(&self, ended_before: Timestamp, dry: bool) -> Result<Purged, StoreFault> {
        self.purge_runs(ended_before, dry).await
    }

    async fn erase(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError> {
        self.erase_run(run, now).await
    }

    async fn erased_at(&self, run: &RunId) -> Result<Option<Timestamp>, LoadError> {
        self.connections.read(|tx| readable(tx, &self.vault, run).map(|record| record.erased_at))
    }

    async fn restored(&self, now: Timestamp) -> Result<Restored, StoreFault> {
        self.make_harmless(now).await
    }

    async fn backup(&self, to: &Path) -> Result<(), BackupError> {
        self.copy_to(to).await
    }
}
