//! Calls in flight: each in a task of its own, so that a panic or a timeout of one touches no sibling (L4).
//!
//! Invariant: every call that was sent lands once: with its tool's answer, or as panicked, or as timed out. Who
//! drops the flights aborts what is still in the air. Not here: what a landing means for the run (`calls`).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use countersign_core::{CallId, Detail};
use jiff::Timestamp;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::clock::Clock;
use crate::tool::{ToolError, ToolOutput};

/// What came of one started call.
pub(super) enum CameTo {
    Answered(Result<ToolOutput, ToolError>),
    TimedOut,
    /// With what the panic said.
    Panicked(Option<Detail>),
}

/// The calls of one step that were started together.
#[derive(Default)]
pub(super) struct Flights {
    tasks: JoinSet<Result<ToolOutput, ToolError>>,
    in_the_air: HashMap<Id, Flight>,
    landed: BTreeMap<CallId, (CameTo, Duration)>,
}

struct Flight {
    call: CallId,
    began: Timestamp,
    until: Timestamp,
    abort: AbortHandle,
}

impl Flights {
    /// Sends a call, which has this long.
    pub(super) fn send(
        &mut self,
        call: CallId,
        clock: &dyn Clock,
        timeout: Duration,
        work: impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    ) {
        let began = clock.now();
        let until = began.checked_add(timeout).unwrap_or(Timestamp::MAX);
        let abort = self.tasks.spawn(work);
        self.in_the_air.insert(abort.id(), Flight { call, began, until, abort });
    }

    /// When the next of them has had its time; absent: all have landed.
    pub(super) fn first_timeout(&self) -> Option<Timestamp> {
        self.in_the_air.values().map(|flight| flight.until).min()
    }

    /// Waits for the next landing.
    pub(super) async fn landing(&mut self, clock: &dyn Clock) {
        let (id, came_to) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, answered))) => (id, CameTo::Answered(answered)),
            Some(Err(lost)) => (lost.id(), panicked(lost)),
            None => return,
        };
        // What was given up before has landed already.
        if let Some(flight) = self.in_the_air.remove(&id) {
            self.land(flight, came_to, clock.now());
        }
    }

    /// Gives up waiting for those that have had their time.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        let late: Vec<Id> =
            self.in_the_air.iter().filter(|(_, flight)| flight.until <= now).map(|(id, _)| *id).collect();
        for flight in late.iter().filter_map(|id| self.in_the_air.remove(id)).collect::<Vec<_>>() {
            flight.abort.abort();
            self.land(flight, CameTo::TimedOut, now);
        }
    }

    fn land(&mut self, flight: Flight, came_to: CameTo, now: Timestamp) {
        let took = now.duration_since(flight.began).try_into().unwrap_or_default();
        self.landed.insert(flight.call, (came_to, took));
    }

    /// What came of them, and how long each took.
    pub(super) fn into_landed(self) -> BTreeMap<CallId, (CameTo, Duration)> {
        self.landed
    }
}

/// What a panic said is for people: nobody wrote it for a model.
fn panicked(error: JoinError) -> CameTo {
    let said = error.try_into_panic().ok().and_then(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
    });
    CameTo::Panicked(said.map(|said| Detail::beginning_of("the tool's code panicked", said.as_bytes())))
}
