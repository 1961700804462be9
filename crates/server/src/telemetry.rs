//! Traces of the work on runs, for whoever collects them.
//!
//! Invariant: a run never waits for a collector, and never fails by one. What ends is put into a queue with an end; what
//! finds no place in it, and what the collector does not take, is counted and forgotten. Without `[telemetry]` nothing of
//! this is there, and nothing is sent anywhere. Not here: which spans there are and what they say (`spans`), one attempt
//! to hand them over (`countersign_clients::Collector`).

mod names;
mod spans;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use countersign::{Clock, Overseer, Progress, RunId, StoreFault, Worked};
use countersign_clients::{Collector, CollectorHeaders, Handed, Span};
use tokio::sync::{mpsc, oneshot};

use crate::config;
use crate::environment::Environment;
use crate::log;
use crate::metrics::Metrics;
use spans::Traced;

/// How many spans wait for the collector at most: some minutes of a busy process, some megabytes.
const QUEUE: usize = 4_096;
/// How many are handed over together.
const BATCH: usize = 512;
/// How long the first of them waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often the same are handed over: a collector that is restarted meanwhile is waited for.
const ATTEMPTS_MAX: u32 = 5;
/// The wait after the first attempt. Each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long a process that is to end waits for the collector.
const FLUSH: Duration = Duration::from_secs(2);

/// Why telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("telemetry.headers_env: the variable {variable} {problem}")]
pub(crate) struct HeadersError {
    variable: String,
    problem: String,
}

/// Whoever traces the work of this process. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Span>,
    flushes: mpsc::Sender<oneshot::Sender<()>>,
    tally: Arc<Tally>,
}

/// The headers that the collector wants.
///
/// # Errors
/// [`HeadersError`].
pub(crate) fn headers(
    configured: &config::Telemetry,
    environment: &Environment,
) -> Result<CollectorHeaders, HeadersError> {
    let Some(variable) = &configured.headers_env else { return Ok(CollectorHeaders::default()) };
    let wrong = |problem: String| HeadersError { variable: variable.clone(), problem };
    let text = environment.get(variable);
    let text = text.ok_or_else(|| wrong("is not set: it holds what the collector is shown".to_owned()))?;
    CollectorHeaders::parse(text).map_err(|error| wrong(format!("cannot be used: {error}")))
}

impl Telemetry {
    /// Traces from now on, for as long as the program runs. Nothing is sent before the first span has ended.
    pub(crate) fn start(
        configured: &config::Telemetry,
        headers: CollectorHeaders,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let collector = Collector::new(configured.collector.clone(), headers, names::process(&*clock));
        let (queue, spans) = mpsc::channel(QUEUE);
        let (flushes, asked) = mpsc::channel(1);
        let tally = Arc::new(Tally { is_well: AtomicBool::new(true), ..Tally::default() });
        let exporter =
            Exporter { collector, spans, asked, clock: Arc::clone(&clock), tally: Arc::clone(&tally) };
        tokio::spawn(exporter.export());
        Self { clock, queue, flushes, tally }
    }

    /// Counts here too what is sent and what is lost.
    pub(crate) fn count(&self, metrics: &Arc<Metrics>) {
        _ = self.tally.metrics.set(Arc::clone(metrics));
    }

    /// Traces the drives that this one watches.
    pub(crate) fn watching(&self, watched: Arc<dyn Progress>) -> Arc<dyn Progress> {
        Arc::new(Traced::new(self.clone(), watched))
    }

    /// Traces the drives that this one oversees.
    pub(crate) fn overseeing(&self, inner: Arc<dyn Overseer>) -> Arc<dyn Overseer> {
        Arc::new(Overseen { telemetry: self.clone(), inner })
    }

    /// Hands over what has ended, for a process that is to end itself, and waits at most two seconds for it.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flushed = async {
            if self.flushes.send(done).await.is_ok() {
                drop(is_done.await);
            }
        };
        tokio::select! {
            () = flushed => {}
            () = self.clock.sleep(FLUSH) => self.tally.lost(0, "it does not answer in time"),
        }
    }

    fn hand(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.tally.lost(1, "it takes them more slowly than they come");
        }
    }
}

struct Overseen {
    telemetry: Telemetry,
    inner: Arc<dyn Overseer>,
}

impl Overseer for Overseen {
    fn progress(&self, run: &RunId) -> Arc<dyn Progress> {
        self.telemetry.watching(self.inner.progress(run))
    }

    fn came_to(&self, worked: &Worked) {
        self.inner.came_to(worked);
    }

    fn cannot_claim(&self, fault: &StoreFault) {
        self.inner.cannot_claim(fault);
    }
}

/// What became of the spans.
#[derive(Debug, Default)]
struct Tally {
    metrics: OnceLock<Arc<Metrics>>,
    /// Whether all is taken. Only a change is said.
    is_well: AtomicBool,
    /// How many were lost since the collector took the last ones.
    lost: AtomicU64,
}

impl Tally {
    fn taken(&self, count: u64) {
        if let Some(metrics) = self.metrics.get() {
            metrics.handed_spans(count);
        }
        if self.lost.swap(0, Ordering::Relaxed) == 0 && !self.is_well.swap(true, Ordering::Relaxed) {
            log::note("the collector of traces takes spans again");
        }
    }

    fn lost(&self, count: u64, why: &str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.lost_spans(count);
        }
        self.lost.fetch_add(count, Ordering::Relaxed);
        if self.is_well.swap(false, Ordering::Relaxed) {
            log::warn(&format!(
                "spans are lost: the collector of traces has a problem: {why}; runs go on without it"
            ));
        }
    }
}

/// The other end of the queue.
struct Exporter {
    collector: Collector,
    spans: mpsc::Receiver<Span>,
    /// Whoever waits until all that has ended is handed over.
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    clock: Arc<dyn Clock>,
    tally: Arc<Tally>,
}

impl Exporter {
    /// Hands over what comes, until nobody can hand in more.
    async fn export(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let mut asker = tokio::select! {
                biased;
                count = self.spans.recv_many(&mut batch, BATCH) => match count {
                    0 => return,
                    _ => None,
                },
                asker = self.asked.recv() => asker,
            };
            if asker.is_none() && batch.len() < BATCH {
                tokio::select! {
                    asked = self.asked.recv() => asker = asked,
                    () = self.clock.sleep(GATHER) => {}
                }
            }
            // Whoever asks is told when nothing is left, others go on waiting for more.
            loop {
                while batch.len() < BATCH
                    && let Ok(span) = self.spans.try_recv()
                {
                    batch.push(span);
                }
                if batch.is_empty() {
                    break;
                }
                self.hand_over(&batch, &mut asker).await;
                batch.clear();
                if asker.is_none() {
                    break;
                }
            }
            if let Some(asker) = asker {
                _ = asker.send(());
            }
        }
    }

    /// Hands these over, and tries again for a while if there is time: not while somebody waits.
    async fn hand_over(&mut self, batch: &[Span], asker: &mut Option<oneshot::Sender<()>>) {
        let count = batch.len() as u64;
        let mut attempt = 1;
        loop {
            let handed = self.collector.hand(batch).await;
            let (why, wish) = match handed {
                Handed::Taken { rejected } => {
                    let rejected = rejected.min(count);
                    self.tally.taken(count - rejected);
                    if rejected > 0 {
                        self.tally.lost(rejected, "it rejects some of them");
                    }
                    return;
                }
                Handed::Refused { status, retry_after } => {
                    (format!("it answers with status {status}"), retry_after)
                }
                Handed::NoAnswer => ("it cannot be reached, or gives no answer in time".to_owned(), None),
            };
            if asker.is_some() || attempt == ATTEMPTS_MAX || !handed.is_worth_retrying() {
                return self.tally.lost(count, &why);
            }
            let wait = FIRST_WAIT * 2_u32.pow(attempt - 1);
            tokio::select! {
                asked = self.asked.recv() => *asker = asked,
                () = self.clock.sleep(wait.max(wish.unwrap_or_default())) => {}
            }
            attempt += 1;
        }
    }
}

#[cfg(test)]
mod tests;
