//! One question to a model, with the retries of L7 around it.
//!
//! Invariant: the same conversation and offers go out at most [`ATTEMPTS_MAX`] times, and a request that was
//! refused never goes out again unchanged. Not here: which model is asked (`run`), the wire (the clients).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use countersign_core::{ModelFailCode, ModelRef, Usage};

use crate::clock::Clock;
use crate::model::{ATTEMPTS_MAX, Answer, Conversation, Offer};
use crate::progress::{Doing, Progress};

/// The first pause between two attempts; each further one is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest pause that a provider's `Retry-After` can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A usable answer, and what it took.
pub(crate) struct Asked {
    pub(crate) answer: Answer,
    pub(crate) attempts: u32,
    pub(crate) usage: Usage,
}

/// No usable answer, and what that took.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) code: ModelFailCode,
    pub(crate) status: Option<u16>,
    pub(crate) attempts: u32,
    pub(crate) usage: Usage,
}

/// Asks until there is an answer, it makes no sense any more, five attempts are used up, or the time is up: what
/// is left of the run's budget of it (L5), if it has one.
pub(crate) async fn ask(
    conversation: &mut dyn Conversation,
    offers: &[Offer],
    model: &ModelRef,
    time_left: Option<Duration>,
    clock: &dyn Clock,
    progress: &dyn Progress,
) -> Result<Asked, Unanswered> {
    let attempts = AtomicU32::new(0);
    let time_is_up = async {
        match time_left {
            Some(left) => clock.sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        asked = attempt(conversation, offers, model, clock, progress, &attempts) => asked,
        () = time_is_up => {
            let attempts = attempts.load(Ordering::Relaxed);
            Err(Unanswered { code: ModelFailCode::OutOfTime, status: None, attempts, usage: unknown(attempts) })
        }
    }
}

fn unknown(attempts: u32) -> Usage {
    Usage { unknown_calls: u64::from(attempts), ..Usage::default() }
}

async fn attempt(
    conversation: &mut dyn Conversation,
    offers: &[Offer],
    model: &ModelRef,
    clock: &dyn Clock,
    progress: &dyn Progress,
    counted: &AtomicU32,
) -> Result<Asked, Unanswered> {
    loop {
        let attempts = counted.fetch_add(1, Ordering::Relaxed) + 1;
        progress.doing(Doing::Asking(model));
        let error = match conversation.ask(offers).await {
            Ok(answer) => {
                let usage = match answer.usage {
                    Some(told) => told.plus(unknown(attempts - 1)),
                    None => unknown(attempts),
                };
                return Ok(Asked { answer, attempts, usage });
            }
            Err(error) => error,
        };
        if !error.is_worth_retrying() || attempts == ATTEMPTS_MAX {
            return Err(Unanswered {
                code: error.code(),
                status: error.status(),
                attempts,
                usage: unknown(attempts),
            });
        }
        let backoff = BACKOFF_FIRST * 2_u32.pow(attempts - 1);
        let after = error.retry_after().map_or(backoff, |wanted| wanted.min(RETRY_AFTER_MAX));
        progress.doing(Doing::Retrying { model, reason: &error.to_string(), after });
        clock.sleep(after).await;
    }
}
