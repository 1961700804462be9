//! Calls: the gate's last word, the start, the effect, the result.
//!
//! Invariant: a tool is reached only for a call whose `call.started` this driver has stored itself; whatever
//! else is found running was lost by somebody, and is taken up by rule R3. Not here: asking people
//! (`questions`).

use std::sync::Arc;
use std::time::Duration;

use countersign_core::{
    CallFinished, CallId, CallResult, CallStarted, CallState, CallUnknown, Clearance, Detail, Effect, Event,
    FailCode, GateDenied, ProposedCall, ResultKind, RunFailed, Stage, Step, ToolContent,
};
use jiff::Timestamp;

use crate::journal::{DriveError, Judged, Judgement};
use crate::judge::{Bench, Passed, Refused, is_gate};
use crate::store::Look;
use crate::tool::{CallContext, TIMEOUT_DEFAULT, ToolError, ToolFailure};

use super::Driver;
use super::flights::{CameTo, Flights};

impl Driver {
    /// The gate's last word on the next calls, and their start: reads together, up to a bound; a write alone
    /// (L4). The switches are read in the transaction that stores the start (G9).
    pub(super) async fn dispatch(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        let (parts, gates, calls) = (Arc::clone(&self.parts), Arc::clone(&self.gates), calls.to_vec());
        let now = self.now();
        let judged = self
            .journal
            .record_judged(self.subjects(), move |run, look| {
                let bench = Bench { run, registry: &parts.tools, gates: &gates, look };
                let turn = run.turn().into_iter();
                let states = turn.flat_map(|turn| calls.iter().filter_map(|id| turn.call(id)));
                let ruled = states.map(|state| (state.call, bench.dispatch(state)));
                Judgement::Record(start_next(ruled, run.interruptions(), parts.limits.parallel_reads, now))
            })
            .await?;
        self.claim_started(judged);
        Ok(())
    }

    /// Judges the whole turn (A4). If one of its calls needs a person, that is asked first; else the first of
    /// its calls start on this very judgement.
    pub(super) async fn judge_turn(&mut self) -> Result<(), DriveError> {
        let (parts, gates, now) = (Arc::clone(&self.parts), Arc::clone(&self.gates), self.now());
        let judged = self
            .journal
            .record_judged(self.subjects(), move |run, look| {
                let bench = Bench { run, registry: &parts.tools, gates: &gates, look };
                let calls = run.turn().into_iter().flat_map(|turn| turn.calls());
                let ruled: Vec<_> = calls.map(|state| (state.call, bench.judge(state.call))).collect();
                if ruled.iter().any(|(_, ruling)| ruling.needs_person()) {
                    return Judgement::Nothing;
                }
                let ruled = ruled.into_iter().map(|(call, ruling)| (call, ruling.at_once()));
                Judgement::Record(start_next(ruled, run.interruptions(), parts.limits.parallel_reads, now))
            })
            .await?;
        if judged == Judged::Nothing {
            return self.ask_people().await;
        }
        self.claim_started(judged);
        Ok(())
    }

    /// Remembers what is running as started by this driver, if its own append has just started it.
    fn claim_started(&mut self, judged: Judged) {
        if judged != Judged::Stored {
            return;
        }
        let running = self.journal.run().turn().into_iter().flat_map(|turn| turn.calls());
        let started: Vec<CallId> = running
            .filter(|state| matches!(state.stage, Stage::Running(_)))
            .map(|state| state.call.id.clone())
            .collect();
        self.mine.extend(started);
    }

    pub(super) async fn execute(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        if calls.iter().any(|call| !self.mine.contains(call)) {
            return self.take_up(calls).await;
        }
        self.still_ours().await?;
        let mut flights = Flights::default();
        for id in calls {
            // Executed once by this driver, whatever comes of it: what is still running afterwards was lost.
            self.mine.remove(id);
            self.send(&mut flights, id);
        }
        let clock = Arc::clone(&self.parts.clock);
        while let Some(first_timeout) = flights.first_timeout() {
            let now = clock.now();
            let patience = Duration::try_from(first_timeout.duration_since(now)).unwrap_or_default();
            tokio::select! {
                () = flights.landing(&*clock) => {}
                () = self.lost.cancelled() => return Err(DriveError::LeaseLost),
                () = clock.sleep(patience.min(self.parts.limits.poll)) => {
                    flights.give_up(clock.now());
                    // A cancel stops reads in flight; a write is awaited (R8).
                    if self.journal.follow().await && !matches!(self.journal.run().next(), Step::Execute(_)) {
                        return Ok(());
                    }
                }
            }
        }
        let mut results = flights.into_landed();
        let events =
            self.journal.run().turn().into_iter().flat_map(|turn| turn.calls()).filter_map(|state| {
                let (came_to, took) = results.remove(&state.call.id)?;
                Some(result_event(state, came_to, took))
            });
        let events: Vec<Event> = events.collect();
        self.journal.record_results(events).await
    }

    fn send(&self, flights: &mut Flights, id: &CallId) {
        let run = self.journal.run();
        let Some(state) = run.turn().and_then(|turn| turn.call(id)) else { return };
        let Stage::Running(running) = state.stage else { return };
        let Some(registered) = self.parts.tools.tool(&state.call.name) else { return };
        let empty = Look::default();
        let arguments = self.bench(&empty).arguments_of(state);
        let precondition = run.held(id).and_then(|held| held.preview.as_ref()?.precondition.clone());
        let cx = CallContext::new(
            run.created().owner.clone(),
            run.id().clone(),
            id.clone(),
            self.parts.store.idempotency_key(run.id(), id),
            precondition,
            running.deadline,
        );
        let tool = Arc::clone(&registered.tool);
        // Its time runs from its stored start: once that is over, a person may say that it did not happen (R11).
        let now = self.now();
        let given = Duration::try_from(running.deadline.duration_since(now)).unwrap_or_default();
        if given.is_zero() {
            let late = format!(
                "The tool {} was not called: its time was over before it could begin.",
                state.call.name
            );
            flights.send(id.clone(), &*self.parts.clock, Duration::MAX, async move {
                Err(ToolError::not_sent(late))
            });
            return;
        }
        // A read has no more time than its run has left (L5); a write is awaited.
        let left = run.working_time_left(now).filter(|_| !running.effect.writes());
        let timeout = left.map_or(given, |left| left.min(given));
        flights.send(
            id.clone(),
            &*self.parts.clock,
            timeout,
            async move { tool.call(&arguments, &cx).await },
        );
    }

    /// Calls that somebody else started and did not finish (R3).
    async fn take_up(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        let run = self.journal.run();
        let Some(turn) = run.turn() else { return Ok(()) };
        let now = self.now();
        let mut events = Vec::new();
        for state in calls.iter().filter_map(|id| turn.call(id)) {
            let Stage::Running(running) = state.stage else { continue };
            let lost = || {
                let why = "the worker that made the call was lost before it had an answer";
                unknown(&state.call.id, &state.call.name, Some(Detail::new(why)))
            };
            // The worker that was lost just now is not counted in the log yet.
            let too_often = run.is_poisoned();
            match (running.effect, too_often) {
                (Effect::Write, _) => events.push(lost()),
                // Again and again it took its worker with it: a person must look.
                (Effect::IdempotentWrite, true) => events.push(lost()),
                // It may have happened, and nothing starts in a run that is being cancelled (R8).
                (Effect::IdempotentWrite, false) if run.is_cancelled() => events.push(lost()),
                (Effect::Read, true) => {
                    return self
                        .journal
                        .record(vec![Event::RunFailed(RunFailed { code: FailCode::Poisoned })])
                        .await;
                }
                (Effect::Read | Effect::IdempotentWrite, false) => {
                    events.push(Event::CallStarted(CallStarted {
                        call: state.call.id.clone(),
                        tool: state.call.name.clone(),
                        effect: running.effect,
                        clearance: running.clearance.clone(),
                        attempt: running.attempt + 1,
                        interruption: run.interruptions() + 1,
                        deadline: call_deadline(now, self.timeout_of(&state.call.name)),
                    }));
                }
            }
        }
        self.restart(events).await
    }

    fn timeout_of(&self, tool: &str) -> Duration {
        self.parts.tools.tool(tool).map_or(TIMEOUT_DEFAULT, |registered| registered.tool.timeout())
    }

    /// Starts calls again, those that the gate still lets pass; the others get their refusal.
    async fn restart(&mut self, events: Vec<Event>) -> Result<(), DriveError> {
        let (parts, gates) = (Arc::clone(&self.parts), Arc::clone(&self.gates));
        let judged = self
            .journal
            .record_judged(self.subjects(), move |run, look| {
                let bench = Bench { run, registry: &parts.tools, gates: &gates, look };
                Judgement::Record(events.into_iter().map(|event| still_permitted(&bench, event)).collect())
            })
            .await?;
        self.claim_started(judged);
        Ok(())
    }
}

fn call_deadline(now: Timestamp, timeout: Duration) -> Timestamp {
    now.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

pub(super) fn refused_events(call: &ProposedCall, refused: &Refused) -> Vec<Event> {
    let mut events = Vec::new();
    if is_gate(refused.refusal) {
        events.push(Event::GateDenied(GateDenied {
            tool: call.name.clone(),
            reason: refused.refusal,
            observed_only: false,
        }));
    }
    events.push(Event::CallFinished(Box::new(CallFinished::new(
        call.id.clone(),
        call.name.clone(),
        CallResult::refused(refused.refusal, &call.name, refused.words.as_deref()),
    ))));
    events
}

/// The refusals that come first, then either reads or one write.
fn start_next<'a>(
    ruled: impl Iterator<Item = (&'a ProposedCall, Result<(Passed<'a>, Clearance), Refused>)>,
    interruption: u32,
    parallel_reads: usize,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut reads = 0;
    for (call, ruling) in ruled {
        let (passed, clearance) = match ruling {
            Ok(passed) => passed,
            Err(refused) => {
                events.extend(refused_events(call, &refused));
                continue;
            }
        };
        let effect = passed.tool.spec.effect;
        if (effect.writes() && reads > 0) || reads == parallel_reads.max(1) {
            break;
        }
        events.push(Event::CallStarted(CallStarted {
            call: call.id.clone(),
            tool: call.name.clone(),
            effect,
            clearance,
            attempt: 1,
            interruption,
            deadline: call_deadline(now, passed.tool.tool.timeout()),
        }));
        if effect.writes() {
            break;
        }
        reads += 1;
    }
    events
}

/// A call that would start again goes through the gate again, and only as what its tool is declared to be now:
/// what has become a write is not repeated. A refused read ends with an error; an idempotent write that may
/// have happened cannot be called "not run", so it becomes unknown.
fn still_permitted(bench: &Bench<'_>, event: Event) -> Event {
    let Event::CallStarted(started) = &event else { return event };
    let Some(state) = bench.run.turn().and_then(|turn| turn.call(&started.call)) else { return event };
    match bench.dispatch(state) {
        Ok((passed, _)) if passed.tool.spec.effect == started.effect => event,
        Ok(_) | Err(_) if started.effect.writes() => {
            let why = "the worker that made the call was lost, and the call may not be made again: \
                       the tool is no longer available as it was";
            unknown(&started.call, &started.tool, Some(Detail::new(why)))
        }
        Ok(_) | Err(_) => Event::CallFinished(Box::new(CallFinished::new(
            started.call.clone(),
            started.tool.clone(),
            CallResult::from_tool(
                ResultKind::Error,
                "The call was interrupted, and the tool is no longer available as it was.",
                Vec::new(),
                0,
            ),
        ))),
    }
}

/// What a started call came to. A write that gave no answer is unknown, not failed (R3).
fn result_event(state: CallState<'_>, came_to: CameTo, took: Duration) -> Event {
    let (call, tool) = (state.call.id.clone(), state.call.name.clone());
    let writes = matches!(state.stage, Stage::Running(running) if running.effect.writes());
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let finished = |kind, content: ToolContent, artifacts, detail| {
        let result = Arc::new(CallResult::from_tool(kind, content, artifacts, took));
        Event::CallFinished(Box::new(CallFinished { call: call.clone(), tool: tool.clone(), result, detail }))
    };
    let failed = |kind, sentence: String, detail| finished(kind, sentence.into(), Vec::new(), detail);
    match came_to {
        CameTo::Answered(Ok(output)) => finished(ResultKind::Ok, output.content, output.artifacts, None),
        CameTo::Answered(Err(error)) => match error.into_parts() {
            (ToolFailure::Answered(words) | ToolFailure::NotSent(words), detail) => {
                finished(ResultKind::Error, words, Vec::new(), detail)
            }
            (ToolFailure::NoAnswer | ToolFailure::TimedOut, detail) if writes => {
                unknown(&call, &tool, detail)
            }
            (ToolFailure::NoAnswer, detail) => {
                failed(ResultKind::Error, format!("The tool {tool} failed: it gave no answer."), detail)
            }
            (ToolFailure::TimedOut, detail) => failed(ResultKind::Timeout, timed_out(&tool), detail),
        },
        CameTo::TimedOut => {
            let detail = Some(Detail::new(&format!("no answer in {took} ms, which is the tool's timeout")));
            if writes {
                return unknown(&call, &tool, detail);
            }
            failed(ResultKind::Timeout, timed_out(&tool), detail)
        }
        CameTo::Panicked(detail) if writes => unknown(&call, &tool, detail),
        CameTo::Panicked(detail) => failed(ResultKind::Error, format!("The tool {tool} failed."), detail),
    }
}

fn timed_out(tool: &str) -> String {
    format!("The tool {tool} timed out.")
}

fn unknown(call: &CallId, tool: &str, detail: Option<Detail>) -> Event {
    Event::CallUnknown(CallUnknown { call: call.clone(), tool: tool.to_owned(), detail })
}
