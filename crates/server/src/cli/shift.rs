//! What every process does that works on runs: it works, sweeps, hears the others and tells whoever wants to know, until
//! it is told to end.
//!
//! Invariant: at the first signal nothing new is taken, calls in flight come back within the grace, and every run is let
//! go of, so that others take it up at once. Not here: who is served meanwhile (`serve`).

use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use countersign::{Drained, Overseer, Runtime, Shift};
use countersign_store::{Hints, Upkeep};

use crate::config::duration;
use crate::http::Watchers;
use crate::log;
use crate::setup::Setup;
use crate::webhooks::Delivery;

use super::interrupt::Interrupt;
use super::review::review;

/// How often questions are looked for whose time has run out (A10).
const SWEEP: Duration = Duration::from_secs(1);

/// Works until the process is to end, and says what became of the runs in hand.
pub(super) async fn work_until_told(
    setup: &Setup,
    runtime: &Runtime,
    watchers: &Watchers,
    delivery: Delivery,
    interrupt: &Interrupt,
) -> Drained {
    let (schema, known) = (setup.store.schema_version(), setup.store.schema_known());
    if schema > known {
        log::warn(&format!(
            "a newer countersign has brought the database to schema {schema}; this one knows {known} and goes on beside \
             it until it is replaced"
        ));
    }
    let grace = setup.config.drain;
    let shift = Shift {
        concurrency: setup.config.concurrency,
        grace,
        end: interrupt.token(),
        cut: interrupt.again(),
    };
    let hearing = tokio::spawn(hear(setup.store.hints(), runtime.clone()));
    let sweeping = tokio::spawn(sweep(Arc::clone(&setup.store), runtime.clone(), watchers.clone()));
    let no_more = CancellationToken::new();
    let telling = tokio::spawn(delivery.deliver(interrupt.token(), no_more.clone()));
    let overseer: Arc<dyn Overseer> = Arc::new(watchers.clone());
    let overseer = match &setup.telemetry {
        Some(telemetry) => telemetry.overseeing(overseer),
        None => overseer,
    };
    let working = runtime.work(shift, overseer);
    tokio::pin!(working);
    let drained = tokio::select! {
        drained = &mut working => drained,
        () = interrupt.come() => {
            if let Some(metrics) = &setup.metrics {
                metrics.drains(setup.clock.now());
            }
            log::note(&format!("calls in flight have {} to come back", duration::in_words(grace)));
            working.await
        }
    };
    hearing.abort();
    sweeping.abort();
    // What is being sent now is the next process's to send.
    no_more.cancel();
    drop(telling.await);
    if let Some(telemetry) = &setup.telemetry {
        telemetry.flush().await;
    }
    drained
}

/// Wakes the workers when another process says that work may be owed.
async fn hear(mut hints: Hints, runtime: Runtime) {
    loop {
        hints.next().await;
        runtime.wake();
    }
}

/// Closes what has run out, and once at the beginning what is void: what a tool is may have changed while nothing ran.
/// Neither waits for the other: very many open questions take a while to look at.
async fn sweep(store: Arc<dyn Upkeep>, runtime: Runtime, watchers: Watchers) {
    tokio::join!(review(&*store, &runtime, &watchers), close_expired(&runtime, &watchers));
}

async fn close_expired(runtime: &Runtime, watchers: &Watchers) {
    let clock = Arc::clone(&runtime.parts().clock);
    loop {
        match runtime.close_expired().await {
            Ok(closed) => closed.iter().for_each(|row| watchers.ring(&row.run)),
            Err(fault) => log::warn(&format!("questions that have expired cannot be closed: {fault}")),
        }
        clock.sleep(SWEEP).await;
    }
}

/// The last line: what became of the runs in hand.
pub(super) fn summary(drained: Drained) -> String {
    let Drained { let_go, cut } = drained;
    let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let mut line = format!("ended: {} let go of at a boundary", runs(let_go));
    if cut > 0 {
        line.push_str(&format!(
            ", {} cut off in a call when the grace was over; a write among them is of unknown outcome",
            runs(cut)
        ));
    }
    line
}
