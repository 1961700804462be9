//! What is owed to whom.
//!
//! Invariant: a notice is written in the transaction of its event, and a statement is run for it only where somebody is
//! told of such an event. A notice in hand is moved to the end of its holder's time, and only the holder's token
//! settles it.

use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Changes, Durability, Notice, Outbox, PUT_OFF_MAX, StoreFault, Subscriptions, Telling, WebhookName,
    WebhookState,
};
use jiff::Timestamp;
use rusqlite::Transaction;

use super::{SqliteStore, fault};
use crate::outbox::{STATES, later, notice, state};
use crate::time;

/// What is due: up to now, or so late that a clock was set back since.
const DUE: &str = "SELECT run, seq, webhook FROM (\
     SELECT run, seq, webhook FROM outbox WHERE webhook = ?1 AND due <= ?2 ORDER BY due LIMIT ?4) \
     UNION ALL SELECT run, seq, webhook FROM outbox WHERE webhook = ?1 AND due > ?3 LIMIT ?4";

/// Owes what an append owes that began at this revision.
pub(super) fn owe(
    tx: &Transaction<'_>,
    subscriptions: &Subscriptions,
    changes: &Changes,
    first: u64,
) -> Result<(), StoreFault> {
    for (webhook, seq) in subscriptions.owed(changes, first) {
        tx.prepare_cached(
            "INSERT INTO outbox (webhook, run, seq, due) SELECT ?1, ?2, ?3, ?4 \
             WHERE NOT EXISTS (SELECT 1 FROM webhooks_gone WHERE webhook = ?1)",
        )
        .and_then(|mut insert| {
            let run = changes.row().id.as_str();
            insert.execute((webhook.as_str(), run, seq.cast_signed(), time::text(changes.at())))
        })
        .map_err(fault)?;
    }
    Ok(())
}

fn is_due(tx: &Transaction<'_>, webhook: &WebhookName, now: Timestamp) -> Result<bool, StoreFault> {
    tx.prepare_cached(&format!("SELECT EXISTS ({DUE})"))
        .and_then(|mut select| {
            let last = later(now, PUT_OFF_MAX);
            select.query_row((webhook.as_str(), time::text(now), last, 1), |row| row.get(0))
        })
        .map_err(fault)
}

fn claim(
    tx: &Transaction<'_>,
    webhook: &WebhookName,
    token: &str,
    [now, last, until]: [String; 3],
    limit: usize,
) -> Result<Vec<Notice>, StoreFault> {
    let statement = format!(
        "UPDATE outbox SET due = ?5, token = ?6 WHERE (run, seq, webhook) IN ({DUE}) RETURNING run, seq, attempts"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut update = tx.prepare_cached(&statement).map_err(fault)?;
    let mut rows = update.query((webhook.as_str(), now, last, limit, until, token)).map_err(fault)?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        taken.extend(notice(row, webhook, token).ok());
    }
    Ok(taken)
}

fn settle(tx: &Transaction<'_>, settled: &Notice, telling: Telling) -> Result<bool, StoreFault> {
    let (run, webhook) = (settled.run.as_str(), settled.webhook.as_str());
    // All have the same parameters, also where nothing is due any more.
    let one = |change: &str, due: Option<Timestamp>| {
        tx.prepare_cached(&format!(
            "{change} WHERE run = ?1 AND seq = ?2 AND webhook = ?3 AND token = ?4 AND ?5 IS ?5"
        ))
        .and_then(|mut update| {
            update.execute((run, settled.seq.cast_signed(), webhook, &settled.token, due.map(time::text)))
        })
        .map(|changed| changed > 0)
        .map_err(fault)
    };
    const TRIED: &str = "UPDATE outbox SET due = ?5, token = NULL, attempts = attempts + 1";
    match telling {
        Telling::Told => one("DELETE FROM outbox", None),
        Telling::Again(due) => one(TRIED, Some(due)),
        Telling::GivenUp => one(TRIED, None),
        Telling::PutBack(due) => one("UPDATE outbox SET due = ?5, token = NULL", Some(due)),
        Telling::Gone(at) => {
            if !one(TRIED, None)? {
                return Ok(false);
            }
            tx.execute("UPDATE outbox SET due = NULL, token = NULL WHERE webhook = ?1", [webhook])
                .map_err(fault)?;
            tx.execute(
                "INSERT INTO webhooks_gone (webhook, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                (webhook, time::text(at)),
            )
            .map(|_| true)
            .map_err(fault)
        }
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn claim_notices(
        &self,
        webhook: &WebhookName,
        token: String,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Notice>, StoreFault> {
        // Most looks find nothing, and looking needs no lock on the file.
        if !self.connections.read(|tx| is_due(tx, webhook, now))? {
            return Ok(Vec::new());
        }
        let times = [time::text(now), later(now, PUT_OFF_MAX), later(now, lease)];
        let webhook = webhook.clone();
        self.connections.write(Durability::Process, move |tx| claim(tx, &webhook, &token, times, limit)).await
    }

    async fn settle_notice(&self, notice: &Notice, telling: Telling) -> Result<bool, StoreFault> {
        let notice = notice.clone();
        self.connections.write(Durability::Process, move |tx| settle(tx, &notice, telling)).await
    }

    async fn enable_webhook(&self, webhook: &WebhookName, now: Timestamp) -> Result<(), StoreFault> {
        let (webhook, now) = (webhook.clone(), time::text(now));
        let enable = move |tx: &Transaction<'_>| {
            tx.execute("DELETE FROM webhooks_gone WHERE webhook = ?1", [webhook.as_str()]).map_err(fault)?;
            let again = "UPDATE outbox SET due = ?2, attempts = 0 WHERE webhook = ?1 AND due IS NULL";
            tx.execute(again, (webhook.as_str(), now)).map(drop).map_err(fault)
        };
        self.connections.write(Durability::Disk, enable).await
    }

    async fn webhooks(&self) -> Result<Vec<WebhookState>, StoreFault> {
        let all = |tx: &Transaction<'_>| {
            let mut select = tx.prepare_cached(STATES).map_err(fault)?;
            let mut rows = select.query([]).map_err(fault)?;
            let mut states = Vec::new();
            while let Some(row) = rows.next().map_err(fault)? {
                states.extend(state(row).ok());
            }
            Ok::<_, StoreFault>(states)
        };
        self.connections.read_aside(all).await
    }
}
