//! Who waits for something to happen to a run.
//!
//! Invariant: a ring is only a hint; who waits registers first, then looks, then waits, and looks again after a while even
//! if nothing rang: another process may have changed the run. Nothing is kept for a run that nobody waits for.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign::{Clock, Doing, Event, Overseer, Progress, RunId, StoreFault, Worked};
use tokio::sync::watch;

use crate::log;

/// How long until somebody who waits looks again by themselves.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

type Bells = Arc<Mutex<HashMap<RunId, watch::Sender<()>>>>;

/// The bells of the runs that somebody waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers(Bells);

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Watcher {
    bells: Bells,
    run: RunId,
    // Dropped before the bell is looked at.
    ear: Option<watch::Receiver<()>>,
}

impl Watchers {
    /// Waits for this run from now on.
    pub(crate) fn watch(&self, run: &RunId) -> Watcher {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bell = bells.entry(run.clone()).or_insert_with(|| watch::channel(()).0);
        Watcher { ear: Some(bell.subscribe()), run: run.clone(), bells: Arc::clone(&self.0) }
    }

    /// Something has happened to this run.
    pub(crate) fn ring(&self, run: &RunId) {
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.get(run) {
            bell.send_replace(());
        }
    }
}

impl Watcher {
    /// Returns when something has happened, or after a while.
    pub(crate) async fn something(&mut self, clock: &dyn Clock) {
        let Some(ear) = &mut self.ear else { return };
        tokio::select! {
            _ = ear.changed() => {}
            () = clock.sleep(LOOK_AGAIN) => {}
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ear = None;
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if bells.get(&self.run).is_some_and(|bell| bell.receiver_count() == 0) {
            bells.remove(&self.run);
        }
    }
}

/// Rings for what happens to the runs of this process, and writes down what they could not do.
impl Overseer for Watchers {
    fn progress(&self, run: &RunId) -> Arc<dyn Progress> {
        Arc::new(Ringing { watchers: self.clone(), run: run.clone() })
    }

    fn came_to(&self, worked: &Worked) {
        self.ring(&worked.run);
        if let Err(error) = &worked.came_to {
            log::warn(&format!("run {} could not be driven: {error}", worked.run));
        }
    }

    fn cannot_claim(&self, fault: &StoreFault) {
        let why = fault.source().map(|why| format!(" ({why})")).unwrap_or_default();
        log::warn(&format!("no run can be taken up: {fault}{why}; it is tried again until it can"));
    }
}

struct Ringing {
    watchers: Watchers,
    run: RunId,
}

impl Progress for Ringing {
    fn happened(&self, _event: &Event) {
        self.watchers.ring(&self.run);
    }

    fn doing(&self, _doing: Doing<'_>) {}
}

#[cfg(test)]
mod tests {
    use countersign::testing::ManualClock;

    use super::*;

    #[tokio::test]
    async fn a_ring_reaches_who_waits_and_nothing_is_kept_for_nobody() {
        let watchers = Watchers::default();
        let run = RunId::parse("run_1").unwrap();
        watchers.ring(&run);
        let (mut one, other) = (watchers.watch(&run), watchers.watch(&run));
        watchers.ring(&run);
        // A clock that stands still would wait for ever.
        one.something(&ManualClock::default()).await;
        drop(one);
        assert_eq!(watchers.0.lock().unwrap().len(), 1);
        drop(other);
        assert_eq!(watchers.0.lock().unwrap().len(), 0);
    }
}
