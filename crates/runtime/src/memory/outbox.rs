//! What is owed to whom, in memory.

use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{Changes, Subscriptions, WebhookName};
use jiff::Timestamp;

use super::MemoryStore;
use super::state::{Owed, State};
use crate::outbox::{Notice, Outbox, PUT_OFF_MAX, Telling, WebhookState};
use crate::store::StoreFault;

impl State {
    /// Owes what an append owes that began at this revision.
    pub(super) fn owe(&mut self, subscriptions: &Subscriptions, changes: &Changes, first: u64) {
        for (webhook, seq) in subscriptions.owed(changes, first) {
            if !self.gone.contains_key(webhook) {
                let owed = Owed { attempts: 0, due: Some(changes.at()), token: None };
                self.outbox.insert((changes.row().id.clone(), seq, webhook.clone()), owed);
            }
        }
    }
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn claim_notices(
        &self,
        webhook: &WebhookName,
        token: String,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Notice>, StoreFault> {
        let mut state = self.state();
        let later = |by: Duration| now.checked_add(by).unwrap_or(Timestamp::MAX);
        let last = later(PUT_OFF_MAX);
        let is_due = |owed: &Owed| owed.due.is_some_and(|due| due <= now || due > last);
        let mut due: Vec<_> =
            state.outbox.iter_mut().filter(|((.., to), owed)| to == webhook && is_due(owed)).collect();
        due.sort_by_key(|(_, owed)| owed.due);
        let taken = due.into_iter().take(limit).map(|((run, seq, _), owed)| {
            owed.due = Some(later(lease));
            owed.token = Some(token.clone());
            let (webhook, token) = (webhook.clone(), token.clone());
            Notice { webhook, run: run.clone(), seq: *seq, attempts: owed.attempts, token }
        });
        Ok(taken.collect())
    }

    async fn settle_notice(&self, notice: &Notice, telling: Telling) -> Result<bool, StoreFault> {
        let mut state = self.state();
        let key = (notice.run.clone(), notice.seq, notice.webhook.clone());
        let in_hand = state.outbox.get_mut(&key).filter(|owed| owed.token.as_ref() == Some(&notice.token));
        let Some(owed) = in_hand else { return Ok(false) };
        let tried = owed.attempts.saturating_add(1);
        owed.token = None;
        match telling {
            Telling::Told => drop(state.outbox.remove(&key)),
            Telling::Again(due) => (owed.attempts, owed.due) = (tried, Some(due)),
            Telling::GivenUp => (owed.attempts, owed.due) = (tried, None),
            Telling::PutBack(due) => owed.due = Some(due),
            Telling::Gone(at) => {
                owed.attempts = tried;
                for (_, owed) in state.outbox.iter_mut().filter(|((.., to), _)| *to == notice.webhook) {
                    (owed.due, owed.token) = (None, None);
                }
                state.gone.entry(notice.webhook.clone()).or_insert(at);
            }
        }
        Ok(true)
    }

    async fn enable_webhook(&self, webhook: &WebhookName, now: Timestamp) -> Result<(), StoreFault> {
        let mut state = self.state();
        state.gone.remove(webhook);
        let given_up = state.outbox.iter_mut().filter(|((.., to), owed)| to == webhook && owed.due.is_none());
        given_up.for_each(|(_, owed)| (owed.attempts, owed.due) = (0, Some(now)));
        Ok(())
    }

    async fn webhooks(&self) -> Result<Vec<WebhookState>, StoreFault> {
        let state = self.state();
        let mut names: Vec<&WebhookName> =
            state.outbox.keys().map(|(.., to)| to).chain(state.gone.keys()).collect();
        names.sort();
        names.dedup();
        let of = |webhook: &WebhookName| {
            let count = |given_up: bool| {
                let counted = state
                    .outbox
                    .iter()
                    .filter(|((.., to), owed)| to == webhook && owed.due.is_none() == given_up);
                counted.count() as u64
            };
            let gone_since = state.gone.get(webhook).copied();
            WebhookState { webhook: webhook.clone(), owed: count(false), given_up: count(true), gone_since }
        };
        Ok(names.into_iter().map(of).collect())
    }
}
