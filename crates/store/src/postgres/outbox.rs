//! What is owed to whom.
//!
//! Invariant: a notice is written in the transaction of its event, and a statement is sent for it only where somebody is
//! told of such an event. Whoever takes notices in hand takes those that nobody has locked, and moves them to the end of
//! its time; only its token settles them.

use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Changes, Durability, Notice, Outbox, PUT_OFF_MAX, StoreFault, Subscriptions, Telling, WebhookName,
    WebhookState,
};
use jiff::Timestamp;
use tokio_postgres::{Error, Statement};

use super::PostgresStore;
use super::connections::{Begin, Parameter, Transaction};
use super::pipeline::two;
use crate::outbox::{STATES, later, notice, state};
use crate::time;

const OWE: &str = "INSERT INTO outbox (webhook, run, seq, due) \
     SELECT webhook, $1::text, seq, $2::text FROM unnest($3::text[], $4::int8[]) AS told (webhook, seq) \
     WHERE NOT EXISTS (SELECT 1 FROM webhooks_gone AS gone WHERE gone.webhook = told.webhook)";

/// What is due: up to now, or so late that a clock was set back since.
const CLAIM: &str = "UPDATE outbox SET due = $4, token = $5 WHERE (run, seq, webhook) IN (\
     SELECT run, seq, webhook FROM outbox WHERE webhook = $1 AND (due <= $2 OR due > $3) ORDER BY due LIMIT $6 \
     FOR UPDATE SKIP LOCKED) RETURNING run, seq, attempts";

/// What an append owes.
pub(super) struct Owing {
    statement: Statement,
    at: String,
    webhooks: Vec<String>,
    seqs: Vec<i64>,
}

impl Owing {
    /// `None`: nothing is owed, and nothing need be sent.
    pub(super) async fn prepare(
        tx: &Transaction,
        subscriptions: &Subscriptions,
        changes: &Changes,
        first: u64,
    ) -> Result<Option<Self>, StoreFault> {
        let owed = subscriptions.owed(changes, first);
        if owed.is_empty() {
            return Ok(None);
        }
        let [statement] = tx.statements([OWE]).await?;
        let (webhooks, seqs) =
            owed.into_iter().map(|(webhook, seq)| (webhook.to_string(), seq.cast_signed())).unzip();
        Ok(Some(Self { statement, at: time::text(changes.at()), webhooks, seqs }))
    }

    pub(super) async fn all(&self, tx: &Transaction, run: &str) -> Result<(), Error> {
        let parameters: [Parameter<'_>; 4] = [&run, &self.at, &self.webhooks, &self.seqs];
        tx.query(&self.statement, &parameters).await.map(drop)
    }
}

impl PostgresStore {
    /// Changes the notice in hand. All changes have the same parameters, also where nothing is due any more.
    async fn settle_one(
        &self,
        settled: &Notice,
        change: &str,
        due: Option<Timestamp>,
    ) -> Result<bool, StoreFault> {
        let statement = format!(
            "{change} WHERE run = $1 AND seq = $2 AND webhook = $3 AND token = $4 \
             AND $5::text IS NOT DISTINCT FROM $5::text RETURNING 1::int8"
        );
        let due = due.map(time::text);
        let seq = settled.seq.cast_signed();
        let parameters: [Parameter<'_>; 5] =
            [&settled.run.as_str(), &seq, &settled.webhook.as_str(), &settled.token, &due];
        Ok(!self.connections.change(Durability::Process, &statement, &parameters).await?.is_empty())
    }

    async fn settle_gone(&self, settled: &Notice, at: Timestamp) -> Result<bool, StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [tried, gone, give_up] = tx
            .statements([
                "UPDATE outbox SET attempts = attempts + 1 \
                 WHERE run = $1 AND seq = $2 AND webhook = $3 AND token = $4 RETURNING 1::int8",
                "INSERT INTO webhooks_gone (webhook, at) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                "UPDATE outbox SET due = NULL, token = NULL WHERE webhook = $1",
            ])
            .await?;
        let (webhook, at, seq) = (settled.webhook.as_str(), time::text(at), settled.seq.cast_signed());
        let tried_parameters: [Parameter<'_>; 4] = [&settled.run.as_str(), &seq, &webhook, &settled.token];
        if tx.start(tx.query(&tried, &tried_parameters)).await?.is_empty() {
            return Ok(false);
        }
        let (gone_parameters, name): ([Parameter<'_>; 2], [Parameter<'_>; 1]) = ([&webhook, &at], [&webhook]);
        tx.commit(two(tx.query(&gone, &gone_parameters), tx.query(&give_up, &name))).await?;
        Ok(true)
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn claim_notices(
        &self,
        webhook: &WebhookName,
        token: String,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Notice>, StoreFault> {
        let [due, last, until] = [time::text(now), later(now, PUT_OFF_MAX), later(now, lease)];
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 6] = [&webhook.as_str(), &due, &last, &until, &token, &limit];
        let rows = self.connections.change(Durability::Process, CLAIM, &parameters).await?;
        Ok(rows.iter().filter_map(|row| notice(row, webhook, &token).ok()).collect())
    }

    async fn settle_notice(&self, notice: &Notice, telling: Telling) -> Result<bool, StoreFault> {
        const TRIED: &str = "UPDATE outbox SET due = $5, token = NULL, attempts = attempts + 1";
        match telling {
            Telling::Told => self.settle_one(notice, "DELETE FROM outbox", None).await,
            Telling::Again(due) => self.settle_one(notice, TRIED, Some(due)).await,
            Telling::GivenUp => self.settle_one(notice, TRIED, None).await,
            Telling::PutBack(due) => {
                self.settle_one(notice, "UPDATE outbox SET due = $5, token = NULL", Some(due)).await
            }
            Telling::Gone(at) => self.settle_gone(notice, at).await,
        }
    }

    async fn enable_webhook(&self, webhook: &WebhookName, now: Timestamp) -> Result<(), StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [enable, again] = tx
            .statements([
                "DELETE FROM webhooks_gone WHERE webhook = $1",
                "UPDATE outbox SET due = $2, attempts = 0 WHERE webhook = $1 AND due IS NULL",
            ])
            .await?;
        let (name, now) = (webhook.as_str(), time::text(now));
        let (enabled, due): ([Parameter<'_>; 1], [Parameter<'_>; 2]) = ([&name], [&name, &now]);
        tx.whole(two(tx.query(&enable, &enabled), tx.query(&again, &due))).await.map(drop)
    }

    async fn webhooks(&self) -> Result<Vec<WebhookState>, StoreFault> {
        let rows = self.connections.rows(STATES, &[]).await?;
        Ok(rows.iter().filter_map(|row| state(row).ok()).collect())
    }
}
