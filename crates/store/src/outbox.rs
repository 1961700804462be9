//! Stored notices, parsed.
//!
//! Invariant: a row that cannot be read stands in nobody's way: it is passed over, and comes back when the time of
//! whoever took it is over.

use std::time::Duration;

use countersign::{Notice, RunId, WebhookName, WebhookState};
use jiff::Timestamp;

use crate::row::{BadRow, Cells, Row};
use crate::time;

/// The moment that lies so much later.
pub(crate) fn later(now: Timestamp, by: Duration) -> String {
    time::text(now.checked_add(by).unwrap_or(Timestamp::MAX))
}

/// A notice that was taken in hand, from its columns run, seq and attempts.
pub(crate) fn notice(row: &dyn Row, webhook: &WebhookName, token: &str) -> Result<Notice, BadRow> {
    let cells = Cells::of(row, "outbox", "run");
    Ok(Notice {
        webhook: webhook.clone(),
        run: cells.name::<RunId>("run")?,
        seq: cells.count("seq")?,
        // More attempts than fit are many all the same.
        attempts: u32::try_from(cells.count("attempts")?).unwrap_or(u32::MAX),
        token: token.to_owned(),
    })
}

/// How it stands with a webhook.
pub(crate) fn state(row: &dyn Row) -> Result<WebhookState, BadRow> {
    let cells = Cells::of(row, "outbox", "webhook");
    Ok(WebhookState {
        webhook: cells.name::<WebhookName>("webhook")?,
        owed: cells.count("owed")?,
        given_up: cells.count("given_up")?,
        gone_since: cells.optional_time("at")?,
    })
}

/// The statement of how it stands with every webhook.
pub(crate) const STATES: &str = "SELECT webhook, max(owed) AS owed, max(given_up) AS given_up, max(at) AS at FROM (\
     SELECT webhook, count(due) AS owed, count(*) - count(due) AS given_up, NULL AS at FROM outbox GROUP BY webhook \
     UNION ALL SELECT webhook, 0, 0, at FROM webhooks_gone) AS every GROUP BY webhook ORDER BY webhook";
