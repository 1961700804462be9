//! The port to who is still to be told of what.
//!
//! Invariant: a notice is owed from the commit of its event on, and until somebody was told or it was given up: stores
//! write it in the transaction that writes the event, for those they were opened to tell. Of several who deliver, one
//! at a time has a notice in hand. A notice points to its event; what is said is read from the log, whose chain is
//! checked. The loop needs none of this. Not here: what is said, and how it gets there.

use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{RunId, WebhookName};
use jiff::Timestamp;

use crate::store::StoreFault;

/// The longest that a notice is ever put off. One that would be due later was put off by a clock that has been set
/// back since, and is due now.
pub const PUT_OFF_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A notice that somebody has in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who is to be told.
    pub webhook: WebhookName,
    /// Of which run.
    pub run: RunId,
    /// Of which of its events.
    pub seq: u64,
    /// How often it was tried before.
    pub attempts: u32,
    /// Whose hand it is in: what it was claimed under.
    pub token: String,
}

/// What came of telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// They know: it is owed no longer.
    Told,
    /// They do not; it is tried again then.
    Again(Timestamp),
    /// It was tried often enough. It is kept, and counted.
    GivenUp,
    /// It was not tried to the end: the next one who looks has it, and no attempt counts.
    PutBack(Timestamp),
    /// They want to be told nothing any more: all that they were owed is given up, and nothing more is owed to them
    /// from here on.
    Gone(Timestamp),
}

/// How it stands with a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookState {
    /// Which.
    pub webhook: WebhookName,
    /// How many notices it is owed.
    pub owed: u64,
    /// How many were given up.
    pub given_up: u64,
    /// Since when it wants to be told nothing.
    pub gone_since: Option<Timestamp>,
}

/// What is owed to whom. Every store that has it passes the same suite (`contract`).
#[async_trait]
pub trait Outbox: Send + Sync + std::fmt::Debug {
    /// Takes notices that are due in hand, those first that are due longest, under a token of the caller's. Nobody
    /// else is given them until `now` and `lease` later.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn claim_notices(
        &self,
        webhook: &WebhookName,
        token: String,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Notice>, StoreFault>;

    /// Says what came of a notice in hand. `false`: somebody else has it by now, or it is gone, and nothing was changed.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn settle_notice(&self, notice: &Notice, telling: Telling) -> Result<bool, StoreFault>;

    /// Tells a webhook again that wanted nothing any more, and tries anew what was given up.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn enable_webhook(&self, webhook: &WebhookName, now: Timestamp) -> Result<(), StoreFault>;

    /// How it stands with every webhook of which there is something to say, by name.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn webhooks(&self) -> Result<Vec<WebhookState>, StoreFault>;
}
