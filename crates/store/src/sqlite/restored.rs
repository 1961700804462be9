//! Which runs a restored database has, and whose leases, in SQLite. What is done to them: `crate::restored`.

use countersign::{Durability, RunId, StoreFault};
use jiff::Timestamp;

use super::{SqliteStore, fault};
use crate::restored::{self, PAGE, Restored};
use crate::row::RunRecord;

impl SqliteStore {
    pub(super) async fn make_harmless(&self, now: Timestamp) -> Result<Restored, StoreFault> {
        self.connections
            .write(Durability::Disk, |tx| {
                tx.execute(
                    "UPDATE runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL WHERE lease_token IS NOT NULL",
                    [],
                )
                .map_err(fault)
            })
            .await?;
        let mut restored = Restored::default();
        let mut after = Some(i64::MIN);
        while let Some(last) = after {
            let (found, next) = self.unended(last).await?;
            after = next;
            restored::make_all_harmless(self, found, now, &mut restored).await?;
        }
        Ok(restored)
    }

    /// Some runs that have not ended, and after which one to go on.
    async fn unended(&self, after: i64) -> Result<(Vec<Result<RunId, String>>, Option<i64>), StoreFault> {
        let vault = self.vault();
        self.connections
            .read_aside(move |tx| {
                let statement = format!(
                    "SELECT {}, CAST(id AS BLOB) AS name FROM runs WHERE number > ?1 ORDER BY number LIMIT ?2",
                    RunRecord::COLUMNS
                );
                let mut select = tx.prepare_cached(&statement).map_err(fault)?;
                let mut rows = select.query((after, PAGE)).map_err(fault)?;
                let (mut found, mut last) = (Vec::new(), None);
                while let Some(row) = rows.next().map_err(fault)? {
                    last = Some(row.get("number").map_err(fault)?);
                    let name = row.get::<_, Vec<u8>>("name").map_err(fault)?;
                    found.extend(restored::unended(row, &name, &vault));
                }
                Ok((found, last))
            })
            .await
    }
}
