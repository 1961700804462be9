//! Calls: the gate's last word, the start, the effect, the result.
//!
//! Invariant: a tool is reached only for a call whose `call.started` this driver has stored itself; whatever
//! else is found running was lost by somebody, and is taken up by rule R3. Not here: asking people
//! (`questions`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::{
    CallFinished, CallId, CallResult, CallStarted, CallState, CallUnknown, Effect, Event, FailCode,
    GateDenied, ProposedCall, ResultKind, RunFailed, Stage, Step,
};
use jiff::Timestamp;
use tokio::task::{AbortHandle, JoinSet};

use crate::journal::DriveError;
use crate::judge::{Bench, Refused, is_gate};
use crate::store::Look;
use crate::tool::{CallContext, TIMEOUT_DEFAULT, Tool, ToolError, ToolOutput};

use super::Driver;

/// What came of one started call.
enum CameTo {
    Answered(Result<ToolOutput, ToolError>),
    TimedOut,
    Panicked,
}

impl Driver {
    /// The gate's last word on the next calls, and their start: reads together, up to a bound; a write alone
    /// (L4). The switches are read in the transaction that stores the start (G9).
    pub(super) async fn dispatch(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        let (parts, gates, calls) = (Arc::clone(&self.parts), self.gates.clone(), calls.to_vec());
        let now = self.now();
        let stored = self
            .journal
            .record_judged(self.subjects(), move |run, look| {
                let bench = Bench { run, registry: &parts.tools, gates: &gates, look };
                start_next(&bench, &calls, parts.limits.parallel_reads, now)
            })
            .await?;
        self.claim_started(stored);
        Ok(())
    }

    /// Remembers what is running as started by this driver, if its own append has just started it.
    fn claim_started(&mut self, stored: bool) {
        if !stored {
            return;
        }
        let running = self.journal.run.turn().into_iter().flat_map(|turn| turn.calls());
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
        let mut tasks = JoinSet::new();
        for id in calls {
            // Executed once by this driver, whatever comes of it: what is still running afterwards was lost.
            self.mine.remove(id);
            self.spawn(&mut tasks, id);
        }
        let mut results: BTreeMap<CallId, (CameTo, Duration)> = BTreeMap::new();
        let clock = Arc::clone(&self.parts.clock);
        while !tasks.is_empty() {
            tokio::select! {
                joined = tasks.join_next() => {
                    if let Some(Ok((id, came_to, took))) = joined {
                        results.insert(id, (came_to, took));
                    }
                }
                () = self.lost.cancelled() => return Err(DriveError::LeaseLost),
                () = clock.sleep(self.parts.limits.poll) => {
                    // A cancel stops reads in flight; a write is awaited (R8).
                    if self.journal.follow().await && !matches!(self.journal.run.next(), Step::Execute(_)) {
                        return Ok(());
                    }
                }
            }
        }
        let events = self.journal.run.turn().into_iter().flat_map(|turn| turn.calls()).filter_map(|state| {
            let (came_to, took) = results.remove(&state.call.id)?;
            Some(result_event(state, came_to, took))
        });
        let events: Vec<Event> = events.collect();
        self.journal.record_results(events).await
    }

    fn spawn(&self, tasks: &mut JoinSet<(CallId, CameTo, Duration)>, id: &CallId) {
        let run = &self.journal.run;
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
        let (tool, clock, id): (Arc<dyn Tool>, _, _) =
            (Arc::clone(&registered.tool), Arc::clone(&self.parts.clock), id.clone());
        let timeout = tool.timeout();
        tasks.spawn(async move {
            let began = clock.now();
            let call = tokio::spawn(async move { tool.call(&arguments, &cx).await });
            let guard = AbortOnDrop(call.abort_handle());
            let came_to = tokio::select! {
                answered = call => answered.map_or(CameTo::Panicked, CameTo::Answered),
                () = clock.sleep(timeout) => CameTo::TimedOut,
            };
            drop(guard);
            let took = clock.now().duration_since(began).try_into().unwrap_or_default();
            (id, came_to, took)
        });
    }

    /// Calls that somebody else started and did not finish (R3).
    async fn take_up(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        let run = &self.journal.run;
        let Some(turn) = run.turn() else { return Ok(()) };
        let now = self.now();
        let mut events = Vec::new();
        for state in calls.iter().filter_map(|id| turn.call(id)) {
            let Stage::Running(running) = state.stage else { continue };
            let unknown = || {
                Event::CallUnknown(CallUnknown { call: state.call.id.clone(), tool: state.call.name.clone() })
            };
            // The worker that was lost just now is not counted in the log yet.
            let too_often = run.is_poisoned();
            match (running.effect, too_often) {
                (Effect::Write, _) => events.push(unknown()),
                // Again and again it took its worker with it: a person must look.
                (Effect::IdempotentWrite, true) => events.push(unknown()),
                // It may have happened, and nothing starts in a run that is being cancelled (R8).
                (Effect::IdempotentWrite, false) if run.is_cancelled() => events.push(unknown()),
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
        let (parts, gates) = (Arc::clone(&self.parts), self.gates.clone());
        let stored = self
            .journal
            .record_judged(self.subjects(), move |run, look| {
                let bench = Bench { run, registry: &parts.tools, gates: &gates, look };
                events.into_iter().map(|event| still_permitted(&bench, event)).collect()
            })
            .await?;
        self.claim_started(stored);
        Ok(())
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
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
    events.push(Event::CallFinished(Box::new(CallFinished {
        call: call.id.clone(),
        tool: call.name.clone(),
        result: CallResult::refused(refused.refusal, &call.name, refused.words.as_deref()),
    })));
    events
}

/// The refusals that come first, then either reads or one write.
fn start_next(bench: &Bench<'_>, calls: &[CallId], parallel_reads: usize, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    let mut reads = 0;
    let Some(turn) = bench.run.turn() else { return events };
    for state in calls.iter().filter_map(|id| turn.call(id)) {
        let (passed, clearance) = match bench.dispatch(state) {
            Ok(passed) => passed,
            Err(refused) => {
                events.extend(refused_events(state.call, &refused));
                continue;
            }
        };
        let effect = passed.tool.spec.effect;
        if (effect.writes() && reads > 0) || reads == parallel_reads.max(1) {
            break;
        }
        events.push(Event::CallStarted(CallStarted {
            call: state.call.id.clone(),
            tool: state.call.name.clone(),
            effect,
            clearance,
            attempt: 1,
            interruption: bench.run.interruptions(),
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
            Event::CallUnknown(CallUnknown { call: started.call.clone(), tool: started.tool.clone() })
        }
        Ok(_) | Err(_) => Event::CallFinished(Box::new(CallFinished {
            call: started.call.clone(),
            tool: started.tool.clone(),
            result: CallResult::from_tool(
                ResultKind::Error,
                "The call was interrupted, and the tool is no longer available as it was.",
                Vec::new(),
                0,
            ),
        })),
    }
}

/// What a started call came to. A write that gave no answer is unknown, not failed (R3).
fn result_event(state: CallState<'_>, came_to: CameTo, took: Duration) -> Event {
    let (call, tool) = (state.call.id.clone(), state.call.name.clone());
    let writes = matches!(state.stage, Stage::Running(running) if running.effect.writes());
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let finished = |kind, content: &str, artifacts| {
        Event::CallFinished(Box::new(CallFinished {
            call: call.clone(),
            tool: tool.clone(),
            result: CallResult::from_tool(kind, content, artifacts, took),
        }))
    };
    match came_to {
        CameTo::Answered(Ok(output)) => finished(ResultKind::Ok, &output.content, output.artifacts),
        CameTo::Answered(Err(ToolError::Answered(sentence) | ToolError::NotSent(sentence))) => {
            finished(ResultKind::Error, &sentence, Vec::new())
        }
        CameTo::Answered(Err(ToolError::NoAnswer)) | CameTo::TimedOut | CameTo::Panicked if writes => {
            Event::CallUnknown(CallUnknown { call, tool })
        }
        CameTo::Answered(Err(ToolError::NoAnswer)) => {
            finished(ResultKind::Error, &format!("The tool {tool} failed: it gave no answer."), Vec::new())
        }
        CameTo::TimedOut => finished(ResultKind::Timeout, &format!("The tool {tool} timed out."), Vec::new()),
        CameTo::Panicked => finished(ResultKind::Error, &format!("The tool {tool} failed."), Vec::new()),
    }
}
