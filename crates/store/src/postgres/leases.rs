//! Who works on a run (R6).
//!
//! Invariant: at any moment at most one token is good for a run. A lease is live before its `until` and over
//! from that moment on, whether or not somebody else has come; the moment is the caller's, whose clock is the
//! database's ([`super::DatabaseClock`]). One whose `until` lies further ahead than any lease can keeps nobody out
//! ([`Lease::keeps_out`]). A lease only keeps workers apart: that the log stays right is the
//! revision's work. What is held by a process that is gone is freed soon ([`super::holders`]). Claims take the rows that nobody has locked, so they do not wait for each other.

use std::time::Duration;

use countersign::{AgentName, ClaimError, Durability, Lease, Revision, RunId, RunState, StoreFault};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::connections::{Begin, Parameter, Transaction};
use super::log::{TIME, lock};
use super::pipeline::{three, two};
use super::{PostgresStore, keys};
use crate::row::{Cells, RunRecord};
use crate::time;

/// From when, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) now: Timestamp,
    pub(super) length: Duration,
}

impl Term {
    fn until(self) -> String {
        time::text(Lease::end(self.now, self.length))
    }
}

/// The free run of these agents that has waited longest, behind this place in the queue.
fn queue() -> String {
    format!(
        "SELECT {}, ticket, {TIME} FROM runs WHERE state = 'active' AND agent = ANY($1) \
         AND (lease_until IS NULL OR lease_until <= $2 OR lease_until > $4) AND ticket > $3 ORDER BY ticket LIMIT 1 \
         FOR UPDATE SKIP LOCKED",
        RunRecord::COLUMNS
    )
}

/// Gives the lease, and a new ticket with it: a run whose workers are lost again and again, or that none of
/// them can read, goes to the end of the queue each time and stands in nobody's way (R2).
const GRANT: &str = "UPDATE runs SET lease_token = $2, lease_until = $3, lease_holder = $4, ticket = nextval('tickets') \
     WHERE number = $1";

impl PostgresStore {
    pub(super) async fn claim_run(
        &self,
        run: &RunId,
        token: String,
        term: Term,
    ) -> Result<Lease, ClaimError> {
        let tx = self.connections.transaction(Begin::Write(Durability::Process)).await?;
        let [shared, installation, lock] = tx.statements([keys::SHARED, keys::STANDING, &lock()]).await?;
        let id: [Parameter<'_>; 1] = [&run.as_str()];
        let sent = self.clock.sent();
        let (_, stored, rows) = tx
            .start(three(tx.query(&shared, &[]), tx.query(&installation, &[]), tx.query(&lock, &id)))
            .await?;
        keys::check_current(&keys::follow(&stored, &self.vault)?, &self.vault)?;
        let Some(row) = rows.first() else { return Err(ClaimError::NotFound(run.clone())) };
        self.hear(sent, row);
        let record = RunRecord::read(row, &self.vault.root);
        let record =
            record.map_err(|bad| ClaimError::Unreadable { run: run.clone(), reason: bad.to_string() })?;
        if record.row.state != RunState::Active {
            return Err(ClaimError::NotActive(record.row.state));
        }
        if let Some(until) = record.leased_until(term.now) {
            return Err(ClaimError::Leased { until });
        }
        Ok(self.grant(&tx, record, token, term).await?)
    }

    /// Whoever could open no run, because its master key was retired, finds none.
    pub(super) async fn claim_next(
        &self,
        agents: &[AgentName],
        token: String,
        term: Term,
    ) -> Result<Option<Lease>, StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Process)).await?;
        let [shared, installation, next] = tx.statements([keys::SHARED, keys::STANDING, &queue()]).await?;
        let agents: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
        let (now, last) = (time::text(term.now), time::text(Lease::end(term.now, Lease::LONGEST)));
        let first: [Parameter<'_>; 4] = [&agents, &now, &i64::MIN, &last];
        let sent = self.clock.sent();
        let (_, stored, mut rows) = tx
            .start(three(tx.query(&shared, &[]), tx.query(&installation, &[]), tx.query(&next, &first)))
            .await?;
        keys::check_current(&keys::follow(&stored, &self.vault)?, &self.vault)?;
        // Rows that cannot be read are passed over.
        while let Some(row) = rows.first() {
            self.hear(sent, row);
            if let Some(record) = free(row, self, term) {
                return self.grant(&tx, record, token, term).await.map(Some);
            }
            let ticket = Cells::of(row, "runs", "id").number("ticket")?;
            let behind: [Parameter<'_>; 4] = [&agents, &now, &ticket, &last];
            rows = tx.go_on(tx.query(&next, &behind)).await?;
        }
        Ok(None)
    }

    async fn grant(
        &self,
        tx: &Transaction,
        record: RunRecord,
        token: String,
        term: Term,
    ) -> Result<Lease, StoreFault> {
        let [grant] = tx.statements([GRANT]).await?;
        let (until, holder) = (term.until(), self.holder.number());
        let parameters: [Parameter<'_>; 4] = [&record.number, &token, &until, &holder];
        tx.commit(tx.query(&grant, &parameters)).await?;
        Ok(Lease { run: record.row.id, token })
    }

    pub(super) async fn keep_lease(&self, lease: &Lease, term: Term) -> Result<bool, StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Process)).await?;
        let keep = format!(
            "UPDATE runs SET lease_until = $1 WHERE id = $2 AND lease_token = $3 AND lease_until > $4 RETURNING {TIME}"
        );
        let [shared, installation, keep] = tx.statements([keys::SHARED, keys::STANDING, &keep]).await?;
        let (until, now) = (term.until(), time::text(term.now));
        let parameters: [Parameter<'_>; 4] = [&until, &lease.run.as_str(), &lease.token, &now];
        let sent = self.clock.sent();
        let (_, stored, kept) = tx
            .whole(three(tx.query(&shared, &[]), tx.query(&installation, &[]), tx.query(&keep, &parameters)))
            .await?;
        // A long call must not come back to a key that nobody knows any more.
        keys::follow(&stored, &self.vault)?;
        if let Some(row) = kept.first() {
            self.hear(sent, row);
        }
        Ok(!kept.is_empty())
    }

    pub(super) async fn give_back(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Process)).await?;
        let [release, held] = tx
            .statements([
                "UPDATE runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL \
                 WHERE id = $1 AND lease_token = $2 AND revision <= $3",
                "SELECT 1::int8 FROM runs WHERE id = $1 AND lease_token = $2",
            ])
            .await?;
        let seen = i64::try_from(seen.0).unwrap_or(i64::MAX);
        let release_parameters: [Parameter<'_>; 3] = [&lease.run.as_str(), &lease.token, &seen];
        let held_parameters: [Parameter<'_>; 2] = [&lease.run.as_str(), &lease.token];
        let (_, held) =
            tx.whole(two(tx.query(&release, &release_parameters), tx.query(&held, &held_parameters))).await?;
        // What is still held was not given back, because the log has moved on.
        Ok(held.is_empty())
    }
}

/// The run in this row, if it can be read and nobody works on it.
fn free(row: &Row, store: &PostgresStore, term: Term) -> Option<RunRecord> {
    let record = RunRecord::read(row, &store.vault.root).ok()?;
    record.leased_until(term.now).is_none().then_some(record)
}
