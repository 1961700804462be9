//! Which runs a restored database has, and whose leases, in PostgreSQL. What is done to them: `crate::restored`.

use countersign::{Durability, StoreFault};
use jiff::Timestamp;

use super::PostgresStore;
use crate::restored::{self, PAGE, Restored};
use crate::row::{Cells, RunRecord};

impl PostgresStore {
    pub(super) async fn make_harmless(&self, now: Timestamp) -> Result<Restored, StoreFault> {
        self.connections
            .change(
                Durability::Disk,
                "UPDATE runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL WHERE lease_token IS NOT NULL",
                &[],
            )
            .await?;
        let statement = format!(
            "SELECT {}, convert_to(id, 'UTF8') AS name FROM runs WHERE number > $1 ORDER BY number LIMIT $2",
            RunRecord::COLUMNS
        );
        let (mut restored, mut after) = (Restored::default(), i64::MIN);
        loop {
            let rows = self.connections.rows(&statement, &[&after, &PAGE]).await?;
            let Some(last) = rows.last() else { return Ok(restored) };
            after = Cells::of(last, "runs", "id").number("number")?;
            let mut found = Vec::new();
            for row in &rows {
                let name = Cells::of(row, "runs", "id").bytes("name")?;
                found.extend(restored::unended(row, name, &self.vault));
            }
            drop(rows);
            restored::make_all_harmless(self, found, now, &mut restored).await?;
        }
    }
}
