//! What is owed next, from the log alone.
//!
//! Invariant: pure and total: for every run there is exactly one next step. Not here: doing it (the runtime's
//! driver).

use jiff::Timestamp;

use crate::event::{
    CallFinished, Entry, Event, FailCode, LimitReached, ModelFailCode, PendingClosed, RunCancelled,
    RunCompleted, RunFailed,
};
use crate::limits::{CUT_OFF_MAX, DENIED_REPEATS_MAX, INTERRUPTIONS_MAX, Limit};
use crate::message::{Finish, ProposedCall};
use crate::name::{CallId, Subject};
use crate::pending::Closing;
use crate::result::{CallResult, ResultKind};

use super::{Ask, Illegal, Run, Stage, Step, Turn};

impl Run {
    /// What is owed next, from the log alone.
    pub fn next(&self) -> Step {
        if self.end.is_some() {
            return Step::Ended;
        }
        if let Some(by) = &self.cancel {
            return self.next_when_cancelled(by);
        }
        if self.given_up {
            return failed(FailCode::OutcomeUnknown);
        }
        if let Some(open) = self.open_pending() {
            return Step::Park(open.pending.id.clone());
        }
        if let Some(turn) = &self.turn {
            return self.next_in_turn(turn);
        }
        if let Some(ask) = self.awaited_model() {
            return Step::AskModel(ask);
        }
        if let Some(limit) = self.limit {
            return Step::Record(vec![Event::RunCompleted(RunCompleted { limit: Some(limit) })]);
        }
        if let Some(reply) = &self.last_reply {
            return Step::Record(vec![match reply.finish {
                Finish::Length => Event::LimitReached(LimitReached::of(Limit::CutOff)),
                Finish::Stop | Finish::Other => Event::RunCompleted(RunCompleted { limit: None }),
            }]);
        }
        match self.limit_in_the_way() {
            Some(which) => reached(which),
            None => failed(FailCode::Model(self.last_failure.unwrap_or(ModelFailCode::Unreachable))),
        }
    }

    fn next_in_turn(&self, turn: &Turn) -> Step {
        if turn.is_fresh()
            && let Some(which) = self.created.limits.reached(self.iterations, self.usage, self.worked)
        {
            return reached(which);
        }
        let ids = |wanted: fn(&Stage) -> bool| -> Vec<CallId> {
            turn.calls().filter(|state| wanted(state.stage)).map(|state| state.call.id.clone()).collect()
        };
        let owed: Vec<Event> = turn
            .calls()
            .filter_map(|state| {
                state.stage.bar().map(|bar| finished(state.call, bar.result(&state.call.name)))
            })
            .collect();
        if !owed.is_empty() {
            return Step::Record(owed);
        }
        if let Some(call) = ids(|stage| matches!(stage, Stage::Unknown { .. })).pop() {
            return if self.created.unattended {
                failed(FailCode::OutcomeUnknown)
            } else {
                Step::OpenResolution(call)
            };
        }
        let running = ids(|stage| matches!(stage, Stage::Running(_)));
        if !running.is_empty() {
            return Step::Execute(running);
        }
        if self.created.limits.working_time_left(self.worked).is_some_and(|left| left.is_zero()) {
            return reached(Limit::WorkingTime);
        }
        if let Some(call) = ids(|stage| *stage == Stage::AwaitingInput).into_iter().next() {
            return Step::OpenInput(call);
        }
        if turn.is_fresh() {
            return Step::Judge;
        }
        Step::Dispatch(ids(|stage| matches!(stage, Stage::Proposed | Stage::Cleared(_))))
    }

    fn next_when_cancelled(&self, by: &Subject) -> Step {
        let calls = || self.turn.iter().flat_map(Turn::calls);
        let writes: Vec<CallId> = calls()
            .filter(|state| state.stage.running_write().is_some())
            .map(|state| state.call.id.clone())
            .collect();
        if !writes.is_empty() {
            return Step::Execute(writes);
        }
        let mut events = Vec::new();
        if let Some(open) = self.open_pending() {
            events.push(Event::PendingClosed(PendingClosed {
                pending: open.pending.id.clone(),
                status: Closing::Withdrawn,
                by: Some(by.clone()),
            }));
        }
        events.extend(calls().filter_map(|state| match state.stage {
            Stage::Finished(_) | Stage::Unknown { .. } => None,
            Stage::Barred(bar) => Some(finished(state.call, bar.result(&state.call.name))),
            Stage::Running(_) => Some(finished(
                state.call,
                CallResult::not_from_tool(
                    ResultKind::Cancelled,
                    "The task was cancelled while this call ran; its result is not known.",
                ),
            )),
            Stage::Proposed | Stage::Held | Stage::AwaitingInput | Stage::Cleared(_) => Some(finished(
                state.call,
                CallResult::not_from_tool(ResultKind::Cancelled, "Not run: the task was cancelled."),
            )),
        }));
        events.push(Event::RunCancelled(RunCancelled { by: by.clone() }));
        Step::Record(events)
    }

    /// The model that must answer next, if one must.
    pub(super) fn awaited_model(&self) -> Option<Ask> {
        let idle = self.end.is_none()
            && self.cancel.is_none()
            && self.turn.is_none()
            && self.open_pending().is_none();
        let closing = match self.limit {
            Some(Limit::MaxIterations) => true,
            Some(
                Limit::BudgetExhausted
                | Limit::WorkingTime
                | Limit::ContextExhausted
                | Limit::RepeatedDenials
                | Limit::CutOff,
            ) => return None,
            None => false,
        };
        if !idle || self.last_reply.is_some() || (!closing && self.limit_in_the_way().is_some()) {
            return None;
        }
        self.created.models.get(self.failed_models).map(|model| Ask {
            model: model.clone(),
            closing,
            fallback: self.failed_models > 0,
        })
    }

    /// The limit that ends the run before another model call.
    pub(super) fn limit_in_the_way(&self) -> Option<Limit> {
        if self.repeats >= DENIED_REPEATS_MAX {
            Some(Limit::RepeatedDenials)
        } else if self.cut_offs >= CUT_OFF_MAX {
            Some(Limit::CutOff)
        } else {
            self.created.limits.reached(self.iterations, self.usage, self.worked)
        }
    }

    /// Whether a worker that is lost now is one too many (R3): its calls are not started again.
    pub fn is_poisoned(&self) -> bool {
        self.interruptions + 1 >= INTERRUPTIONS_MAX
    }

    /// What stores a cancel, as far as it can be carried out at once (R8): all of it, unless a write is in
    /// flight, which is awaited.
    ///
    /// # Errors
    /// [`Illegal`] when the run has ended or is being cancelled already.
    pub fn cancellation(&self, by: &Subject, at: Timestamp) -> Result<Vec<Event>, Illegal> {
        let requested = Event::CancelRequested(crate::event::CancelRequested { by: by.clone() });
        let after = self.apply(&Entry { seq: self.revision, at, event: requested.clone() })?;
        let mut events = vec![requested];
        if let Step::Record(more) = after.next() {
            events.extend(more);
        }
        Ok(events)
    }
}

fn reached(which: Limit) -> Step {
    Step::Record(vec![Event::LimitReached(LimitReached::of(which))])
}

fn failed(code: FailCode) -> Step {
    Step::Record(vec![Event::RunFailed(RunFailed { code })])
}

fn finished(call: &ProposedCall, result: CallResult) -> Event {
    Event::CallFinished(Box::new(CallFinished::new(call.id.clone(), call.name.clone(), result)))
}
