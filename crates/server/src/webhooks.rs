//! Telling those who want to know that a run waits, what was decided, and how it ended.
//!
//! Invariant: a notice is owed in the database until its receiver has answered with a success, or it was given up, so a
//! process may die at any moment: the next one goes on. Each receiver has a task of its own, so one that hangs delays
//! nobody else. Every attempt has the same id and body. Not here: who is owed what (the store), one attempt
//! (`countersign_clients::Webhook`).

mod message;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign::{Clock, LoadError, Notice, PUT_OFF_MAX, Telling, WebhookName};
use countersign_clients::{Sent, Webhook};
use countersign_store::Upkeep;
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::log;

/// How often it is looked whether something is owed.
const POLL: Duration = Duration::from_secs(1);
/// How many messages one receiver is sent at once.
const AT_ONCE: usize = 8;
/// How long a notice stays in one hand: longer than an attempt may take.
const HAND: Duration = Duration::from_secs(30);
/// The wait after the first attempt. Each further one is four times as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// After so many attempts, spread over about three days, a notice is given up.
const ATTEMPTS_MAX: u32 = 15;

const _: () = assert!(WAIT_MAX.as_secs() < PUT_OFF_MAX.as_secs());

/// Who is told.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Its name.
    pub(crate) name: WebhookName,
    /// The way there.
    pub(crate) webhook: Webhook,
}

/// All of them, and what is needed to tell them.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Where it is kept what they are owed.
    pub(crate) store: Arc<dyn Upkeep>,
    /// Time and chance.
    pub(crate) clock: Arc<dyn Clock>,
    /// What the program is called from outside: where links lead, and who speaks.
    pub(crate) origin: String,
    /// Whom.
    pub(crate) receivers: Vec<Receiver>,
}

impl Delivery {
    /// Tells everybody what they are owed. When `end` is cancelled nothing more is begun; when `cut` is, what is being
    /// sent is put back for the next process.
    pub(crate) async fn deliver(self, end: CancellationToken, cut: CancellationToken) {
        let Self { store, clock, origin, receivers } = self;
        let mut all = JoinSet::new();
        for receiver in receivers {
            let (store, clock, origin) = (Arc::clone(&store), Arc::clone(&clock), origin.clone());
            let told = Told { store, clock, origin, receiver, is_well: AtomicBool::new(true) };
            all.spawn(told.deliver(end.clone(), cut.clone()));
        }
        all.join_all().await;
    }
}

/// One receiver.
struct Told {
    store: Arc<dyn Upkeep>,
    clock: Arc<dyn Clock>,
    origin: String,
    receiver: Receiver,
    /// Whether what was tried last worked. Only a change is said.
    is_well: AtomicBool,
}

impl Told {
    async fn deliver(self, end: CancellationToken, cut: CancellationToken) {
        while !end.is_cancelled() {
            let token = self.clock.random().map(|byte| format!("{byte:02x}")).concat();
            let name = &self.receiver.name;
            match self.store.claim_notices(name, token, self.clock.now(), HAND, AT_ONCE).await {
                Ok(taken) if !taken.is_empty() => {
                    join_all(taken.iter().map(|notice| self.settle(notice, &cut))).await;
                    continue;
                }
                Ok(_) => {}
                Err(fault) => self.fell_ill(&format!("what it is owed cannot be looked at: {fault}")),
            }
            tokio::select! {
                () = self.clock.sleep(POLL) => {}
                () = end.cancelled() => {}
            }
        }
    }

    async fn settle(&self, notice: &Notice, cut: &CancellationToken) {
        let telling = tokio::select! {
            telling = self.attempt(notice) => telling,
            () = cut.cancelled() => Telling::PutBack(self.clock.now()),
        };
        if let Err(fault) = self.store.settle_notice(notice, telling).await {
            // It is still in this hand, and comes back when its time is over.
            self.fell_ill(&format!("what came of telling it cannot be stored: {fault}"));
        }
    }

    async fn attempt(&self, notice: &Notice) -> Telling {
        let body = match self.body(notice).await {
            Ok(body) => body,
            Err(LoadError::Fault(fault)) => {
                self.fell_ill(&format!("a run cannot be read: {fault}"));
                return Telling::PutBack(self.later(POLL));
            }
            // Whatever is wrong with it, others are told of theirs.
            Err(error) => return self.again(notice, &error.to_string(), None),
        };
        let now = self.clock.now();
        match self.receiver.webhook.send(&message::id(notice), now, body).await {
            Sent::Told => {
                if !self.is_well.swap(true, Ordering::Relaxed) {
                    log::note(&format!("the webhook {} takes messages again", self.receiver.name));
                }
                Telling::Told
            }
            Sent::Gone => {
                log::warn(&format!(
                    "the webhook {0} answered that it is gone (410): it is told nothing any more; once it is there again, \
                     `webhooks enable {0}`",
                    self.receiver.name
                ));
                Telling::Gone(now)
            }
            Sent::Refused { status, retry_after } => {
                self.again(notice, &format!("it answered with status {status}"), retry_after)
            }
            Sent::NotReached => self.again(notice, "it cannot be reached, or may not be", None),
            Sent::NoAnswer => self.again(notice, "it gave no answer in time", None),
        }
    }

    async fn body(&self, notice: &Notice) -> Result<Vec<u8>, LoadError> {
        let log = self.store.load(&notice.run).await?;
        let unreadable =
            |reason: &str| LoadError::Unreadable { run: notice.run.clone(), reason: reason.to_owned() };
        message::body(&self.origin, notice, &log.entries)
            .ok_or_else(|| unreadable("what is to be told is not in its log"))
    }

    fn again(&self, notice: &Notice, why: &str, retry_after: Option<Duration>) -> Telling {
        let Some(wait) = wait(notice.attempts, self.clock.random()) else {
            log::warn(&format!(
                "the webhook {} was not told of {} in {ATTEMPTS_MAX} attempts ({why}): given up",
                self.receiver.name,
                message::id(notice)
            ));
            return Telling::GivenUp;
        };
        self.fell_ill(&format!("{why}; each message is tried again for about three days"));
        Telling::Again(self.later(wait.max(retry_after.unwrap_or_default())))
    }

    fn later(&self, wait: Duration) -> Timestamp {
        self.clock.now().checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    fn fell_ill(&self, why: &str) {
        if self.is_well.swap(false, Ordering::Relaxed) {
            log::warn(&format!("the webhook {}: {why}", self.receiver.name));
        }
    }
}

/// How long to wait after an attempt, before which there were so many: each time four times as long, between half and
/// all of it by chance, so that many do not come back at once. `None`: it was tried often enough.
fn wait(attempts: u32, chance: [u8; 16]) -> Option<Duration> {
    if attempts.saturating_add(1) >= ATTEMPTS_MAX {
        return None;
    }
    let longest = FIRST_WAIT.saturating_mul(4_u32.saturating_pow(attempts)).min(WAIT_MAX);
    let [high, low, ..] = chance;
    let part = f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX);
    Some(longest.mul_f64(0.5 + part / 2.0))
}

/// Who is told, by what is configured and what the environment holds.
///
/// # Errors
/// A sentence about the first that cannot be told, and the line of its table.
pub(crate) fn receivers(
    webhooks: &[crate::config::Webhook],
    environment: &crate::environment::Environment,
) -> Result<Vec<Receiver>, (usize, String)> {
    let receiver = |told: &crate::config::Webhook| {
        let (name, variable) = (&told.name, &told.secret_env);
        let wrong = |why: String| (told.line, format!("webhooks.{name}: {why}"));
        let Some(secrets) = environment.get(variable) else {
            return Err(wrong(format!("the variable {variable} with its secret is not set")));
        };
        let secrets = secrets.split_whitespace().map(countersign_clients::WebhookSecret::parse);
        let secrets = secrets.collect::<Result<Vec<_>, _>>();
        let secrets = secrets.map_err(|error| wrong(format!("the variable {variable}: {error}")))?;
        if secrets.is_empty() {
            return Err(wrong(format!("the variable {variable} with its secret is empty")));
        }
        let webhook = Webhook::new(told.target.clone(), secrets);
        let webhook = webhook.map_err(|error| wrong(error.to_string()))?;
        Ok(Receiver { name: name.clone(), webhook })
    };
    webhooks.iter().map(receiver).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_never_alike_and_end() {
        let seconds = |attempts, chance| wait(attempts, [chance; 16]).map(|wait| wait.as_secs_f64());
        for (attempts, longest) in [(0, 1.0), (1, 4.0), (5, 1024.0), (8, 43_200.0), (13, 43_200.0)] {
            assert_eq!(seconds(attempts, 0), Some(longest / 2.0));
            assert_eq!(seconds(attempts, 255), Some(longest));
        }
        assert_eq!(seconds(14, 0), None);
        assert_eq!(seconds(u32::MAX, 0), None);
    }
}
