//! The transactions of a change of the master key, in PostgreSQL. How they make one: `crate::rotation`.
//!
//! Invariant: each holds the keys alone ([`keys::ALONE`]), except taking runs over, which only holds their rows.

use async_trait::async_trait;
use countersign::{Durability, Lease, StoreFault};
use jiff::Timestamp;

use super::connections::{Begin, Parameter, Transaction};
use super::pipeline::two;
use super::{PostgresStore, keys};
use crate::keys::Installation;
use crate::rotation::{self, Batch, Retired, RotateError, Rotation, Steps};
use crate::row::Cells;
use crate::seal::MasterKey;
use crate::time;
use crate::vault::Vault;

#[async_trait]
impl Steps for PostgresStore {
    fn vault(&self) -> &Vault {
        &self.vault
    }

    async fn begin(&self, to: &MasterKey) -> Result<(), RotateError> {
        let (tx, installation) = self.keys_alone().await?;
        let Some(handover) = rotation::begin(installation, &self.vault, to)? else { return Ok(()) };
        // A row that means nothing may lie there: it is about a key that is not in use.
        let [store] = tx
            .statements(["INSERT INTO rotation (one, from_fingerprint, to_fingerprint, to_key, from_key) \
                 VALUES (1, $1, $2, $3, $4) ON CONFLICT (one) DO UPDATE SET from_fingerprint = $1, \
                 to_fingerprint = $2, to_key = $3, from_key = $4, in_use_until = NULL"])
            .await?;
        let parameters: [Parameter<'_>; 4] =
            [&handover.from, &handover.to, &handover.to_key, &handover.from_key];
        tx.commit(tx.query(&store, &parameters)).await?;
        self.vault.learn(to.clone());
        Ok(())
    }

    async fn take_over(&self, to: &MasterKey, after: i64, limit: i64) -> Result<Batch, RotateError> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        tx.start(async { Ok(()) }).await?;
        let batch = self.take_over_in(&tx, to, after, limit).await?;
        tx.commit(async { Ok(()) }).await?;
        Ok(batch)
    }

    async fn switch(&self, to: &MasterKey) -> Result<Batch, RotateError> {
        let (tx, installation) = self.keys_alone().await?;
        let must_switch = rotation::must_switch(installation, to)?;
        let rest = self.take_over_in(&tx, to, i64::MIN, i64::MAX).await?;
        let [switch, note] = tx
            .statements([
                "UPDATE installation SET key_fingerprint = $1, root = $2",
                "UPDATE rotation SET in_use_until = (SELECT max(lease_until) FROM runs)",
            ])
            .await?;
        let (fingerprint, root) = (to.fingerprint(), self.vault.root_under(to)?);
        let parameters: [Parameter<'_>; 2] = [&fingerprint, &root];
        tx.commit(async {
            if must_switch {
                two(tx.query(&switch, &parameters), tx.query(&note, &[])).await?;
            }
            Ok(())
        })
        .await?;
        Ok(rest)
    }
}

impl PostgresStore {
    pub(super) async fn rotation_under_way(&self) -> Result<Option<Rotation>, StoreFault> {
        let rows = self.connections.rows(keys::INSTALLATION, &[]).await?;
        keys::read(&rows).map(rotation::under_way)
    }

    pub(super) async fn retire_key(&self, now: Timestamp) -> Result<Option<Retired>, RotateError> {
        let (tx, installation) = self.keys_alone().await?;
        let Some((from, to)) = rotation::retiring(installation, &self.vault)? else { return Ok(None) };
        let [in_use, forget] = tx
            .statements([
                "SELECT in_use_until FROM rotation \
                 WHERE EXISTS (SELECT 1 FROM runs WHERE lease_until > $1 AND lease_until <= $2)",
                "DELETE FROM rotation",
            ])
            .await?;
        let (moment, last) = (time::text(now), time::text(Lease::end(now, Lease::LONGEST)));
        let in_use = tx.go_on(tx.query(&in_use, &[&moment, &last])).await?;
        let until = in_use
            .first()
            .and_then(|row| Cells::of(row, "rotation", "in_use_until").time("in_use_until").ok());
        if let Some(until) = until.filter(|until| now < *until) {
            return Err(RotateError::InUse { until });
        }
        self.take_over_in(&tx, &to, i64::MIN, i64::MAX).await?;
        tx.commit(tx.query(&forget, &[])).await?;
        self.vault.forget(&from);
        // What was deleted lies in the tables' pages until PostgreSQL vacuums them.
        Ok(Some(Retired { scrubbed: false }))
    }

    /// Begins a transaction that holds the keys alone, and says what they are.
    async fn keys_alone(&self) -> Result<(Transaction, Installation), StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [alone, installation] = tx.statements([keys::ALONE, keys::STANDING]).await?;
        let (_, rows) = tx.start(two(tx.query(&alone, &[]), tx.query(&installation, &[]))).await?;
        let installation = keys::follow(&rows, &self.vault)?;
        Ok((tx, installation))
    }

    /// An erased run has no key.
    async fn take_over_in(
        &self,
        tx: &Transaction,
        to: &MasterKey,
        after: i64,
        limit: i64,
    ) -> Result<Batch, StoreFault> {
        let [select, update] = tx
            .statements([
                "SELECT number, convert_to(id, 'UTF8') AS id, key FROM runs WHERE number > $1 AND length(key) > 0 \
                 AND substr(key, 1, $2) <> $3 ORDER BY number LIMIT $4 FOR UPDATE",
                "UPDATE runs SET key = rewrapped.key FROM unnest($1::int8[], $2::bytea[]) AS rewrapped (number, key) \
                 WHERE runs.number = rewrapped.number",
            ])
            .await?;
        let header = to.header();
        let size = i32::try_from(header.len()).unwrap_or_default();
        let parameters: [Parameter<'_>; 4] = [&after, &size, &header.as_slice(), &limit];
        let rows = tx.go_on(tx.query(&select, &parameters)).await?;
        let last = rows.last().map(|row| Cells::of(row, "runs", "id").number("number")).transpose()?;
        let mut batch = Batch::of(rows.len(), last, limit);
        let (mut numbers, mut rewrapped) = (Vec::new(), Vec::new());
        for row in &rows {
            let cells = Cells::of(row, "runs", "id");
            if let Some(key) = batch.rewrap(&self.vault, to, cells.bytes("id")?, cells.bytes("key")?) {
                numbers.push(cells.number("number")?);
                rewrapped.push(key);
            }
        }
        if !numbers.is_empty() {
            let parameters: [Parameter<'_>; 2] = [&numbers, &rewrapped];
            tx.go_on(tx.query(&update, &parameters)).await?;
        }
        Ok(batch)
    }
}
