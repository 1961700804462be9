//! The only loop (H3): it does what [`Run::next`] says is owed, and appends what happened.
//!
//! Invariant: only the driver calls a model or a tool, and a call starts only after its `call.started` is
//! stored. A started call that this driver did not start itself is never waited for: a read or an idempotent
//! write runs again, a write becomes unknown (R3). Nothing is held while a person thinks (R5).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use countersign_core::{
    AgentGates, Ask, CallFinished, CallId, CallResult, CallStarted, CallState, CallUnknown, Deadline, Effect,
    Event, FailCode, GateDenied, ModelFailed, ModelRef, ModelReplied, Outlook, Pending, PendingClosed,
    PendingId, ProposedCall, Question, Refusal, Reply, ResultKind, Run, RunFailed, Stage, Step,
};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ask::{Asked, Unanswered, ask};
use crate::journal::{DriveError, Journal};
use crate::judge::{Bench, Refused, Ruling, is_gate};
use crate::model::{Answer, Conversation};
use crate::preview::preview;
use crate::progress::Progress;
use crate::runtime::Parts;
use crate::store::Lease;
use crate::tool::{CallContext, Tool, ToolError, ToolOutput};

/// Why a driver stopped without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A person is asked; nothing is held.
    Parked,
    /// The run has ended.
    Ended,
    /// The driver was asked to stop; the run can be taken up again by anybody.
    Stopped,
    /// The run's agent or model is not configured here.
    AgentGone,
}

/// One driver on one run.
pub(crate) struct Driver {
    parts: Arc<Parts>,
    progress: Arc<dyn Progress>,
    journal: Journal,
    gates: AgentGates,
    talks: BTreeMap<ModelRef, Talk>,
    mine: HashSet<CallId>,
    stop: CancellationToken,
    lost: CancellationToken,
}

/// A conversation and how much of the transcript it has been given.
struct Talk {
    conversation: Box<dyn Conversation>,
    told: usize,
}

/// Drives a claimed run to its next stop. The lease is given back on every way out but a lost one.
pub(crate) async fn drive(
    parts: Arc<Parts>,
    lease: Lease,
    progress: Arc<dyn Progress>,
    stop: CancellationToken,
) -> Result<(Halt, Run), DriveError> {
    let lost = CancellationToken::new();
    let _heart = Heart::beat(&parts, lease.clone(), lost.clone());
    let store = Arc::clone(&parts.store);
    let driven = async {
        let journal = Journal::open(
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            Arc::clone(&progress),
            lease.clone(),
        )
        .await?;
        let created = journal.run.created();
        let agent = parts.agents.find(&created.agent).filter(|_| parts.knows_the_model_of(&journal.run));
        let Some(agent) = agent else {
            store.release(&lease, journal.revision()).await?;
            return Ok((Halt::AgentGone, journal.run));
        };
        let gates = parts.agents.gates(agent, &created.models, &parts.models, &parts.tools);
        let mut driver = Driver {
            parts: Arc::clone(&parts),
            progress,
            journal,
            gates,
            talks: BTreeMap::new(),
            mine: HashSet::new(),
            stop,
            lost,
        };
        let halt = driver.run().await?;
        Ok((halt, driver.journal.run))
    };
    let driven: Result<(Halt, Run), DriveError> = driven.await;
    if let Err(DriveError::Store(_)) = &driven {
        // Whoever comes next need not wait for the lease to run out. If this fails too, they do. A run that
        // cannot be read keeps its lease until it runs out, or it would be claimed again at once, for ever.
        drop(store.release(&lease, crate::store::Revision(u64::MAX)).await);
    }
    driven
}

/// Renews a lease beside long calls, and says when it is lost. Stops when dropped.
struct Heart(tokio::task::JoinHandle<()>);

impl Heart {
    fn beat(parts: &Arc<Parts>, lease: Lease, lost: CancellationToken) -> Self {
        let parts = Arc::clone(parts);
        Self(tokio::spawn(async move {
            let length = parts.limits.lease;
            loop {
                parts.clock.sleep(length / 3).await;
                // A store that fails for a moment is asked again; the lease is two beats longer than this one.
                if let Ok(false) = parts.store.heartbeat(&lease, parts.clock.now(), length).await {
                    lost.cancel();
                    return;
                }
            }
        }))
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What came of one started call.
enum CameTo {
    Answered(Result<ToolOutput, ToolError>),
    TimedOut,
    Panicked,
}

impl Driver {
    async fn run(&mut self) -> Result<Halt, DriveError> {
        loop {
            if self.lost.is_cancelled() {
                return Err(DriveError::LeaseLost);
            }
            if self.stop.is_cancelled() {
                self.parts.store.release(self.journal.lease(), crate::store::Revision(u64::MAX)).await?;
                return Ok(Halt::Stopped);
            }
            match self.journal.run.next() {
                Step::Record(events) => {
                    let events = self.explained(events).await?;
                    self.journal.record(events).await?;
                }
                Step::AskModel(ask) => self.ask_model(ask).await?,
                Step::Judge => self.judge_turn().await?,
                Step::Dispatch(calls) => self.dispatch(&calls).await?,
                Step::Execute(calls) => self.execute(&calls).await?,
                Step::OpenInput(call) => self.open_input(&call).await?,
                Step::OpenResolution(call) => self.open_resolution(&call).await?,
                Step::Park(pending) => {
                    if self.close_overdue(&pending).await? {
                        continue;
                    }
                    if self.release().await? {
                        return Ok(Halt::Parked);
                    }
                }
                Step::Ended => {
                    if self.release().await? {
                        return Ok(Halt::Ended);
                    }
                }
            }
        }
    }

    /// Gives the run back, unless something arrived since the last look (R5).
    async fn release(&mut self) -> Result<bool, DriveError> {
        let given_back = self.parts.store.release(self.journal.lease(), self.journal.revision()).await?;
        if !given_back {
            self.journal.reload().await?;
        }
        Ok(given_back)
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    fn subjects(&self) -> Vec<countersign_core::Subject> {
        vec![self.journal.run.created().owner.clone()]
    }

    // ── the model ────────────────────────────────────────────────────────────────────────────────────────

    async fn ask_model(&mut self, wanted: Ask) -> Result<(), DriveError> {
        let Some(provider) = self.parts.models.find(&wanted.model) else {
            // A fallback that is not configured is passed over, visibly.
            let failed = ModelFailed {
                model: wanted.model,
                code: countersign_core::ModelFailCode::Unreachable,
                attempts: 0,
                usage: countersign_core::Usage::default(),
            };
            return self.journal.record(vec![Event::ModelFailed(failed)]).await;
        };
        let offers = if wanted.closing {
            Vec::new()
        } else {
            let look = self.parts.store.look(&self.subjects()).await?;
            self.parts.tools.offers(&self.bench(&look).offered())
        };
        let mut talk = self
            .talks
            .remove(&wanted.model)
            .unwrap_or_else(|| Talk { conversation: provider.client.converse(&wanted.model.model), told: 0 });
        for message in self.journal.run.transcript().skip(talk.told) {
            talk.conversation.add(&message);
            talk.told += 1;
        }
        let (clock, progress) = (Arc::clone(&self.parts.clock), Arc::clone(&self.progress));
        let asked = {
            let asking = ask(&mut *talk.conversation, &offers, &wanted.model, &*clock, &*progress);
            tokio::pin!(asking);
            loop {
                tokio::select! {
                    asked = &mut asking => break Some(asked),
                    () = self.lost.cancelled() => break None,
                    () = self.stop.cancelled() => break None,
                    () = clock.sleep(self.parts.limits.poll) => {
                        if self.journal.follow().await && self.journal.run.is_cancelled() {
                            break None;
                        }
                    }
                }
            }
        };
        self.talks.insert(wanted.model.clone(), talk);
        let event = match asked {
            None => return Ok(()),
            Some(Ok(asked)) => Event::ModelReplied(Box::new(ModelReplied {
                reply: self.with_our_ids(&wanted.model, asked),
                closing: wanted.closing,
            })),
            Some(Err(Unanswered { code, attempts, usage })) => {
                Event::ModelFailed(ModelFailed { model: wanted.model, code, attempts, usage })
            }
        };
        self.journal.record(vec![event]).await
    }

    fn with_our_ids(&self, model: &ModelRef, asked: Asked) -> Reply {
        let Asked { answer: Answer { text, calls, finish, opaque, .. }, attempts, usage } = asked;
        let calls = calls.into_iter().map(|call| ProposedCall {
            id: CallId::from_random(self.parts.clock.random()),
            wire_id: call.wire_id,
            name: call.name,
            arguments: call.arguments,
            opaque: call.opaque,
        });
        Reply {
            provider: model.provider.clone(),
            model: model.model.clone(),
            text,
            calls: calls.collect(),
            finish,
            usage,
            attempts,
            opaque,
        }
    }

    // ── the gate ─────────────────────────────────────────────────────────────────────────────────────────

    fn bench<'a>(&'a self, look: &'a crate::store::Look) -> Bench<'a> {
        Bench { run: &self.journal.run, registry: &self.parts.tools, gates: &self.gates, look }
    }

    /// Judges the whole turn (A4). If one of its calls needs a person, nothing of it runs, and one pending
    /// holds all of it; else the first of its calls start.
    async fn judge_turn(&mut self) -> Result<(), DriveError> {
        let look = self.parts.store.look(&self.subjects()).await?;
        let Some(turn) = self.journal.run.turn() else { return Ok(()) };
        let mut held = self.bench(&look).hold(turn);
        let first_input = held.iter().find_map(|call| match &call.outlook {
            Outlook::NeedsInput(schema) => Some((call.id.clone(), schema.clone())),
            Outlook::Runs | Outlook::NeedsApproval(_) | Outlook::Refused(_) => None,
        });
        let asks = held.iter().any(|call| call.because().is_some());
        let question = match first_input {
            _ if asks => Question::Approval,
            Some((call, schema)) => input_question(call, schema),
            None => {
                let calls: Vec<CallId> = held.into_iter().map(|call| call.id).collect();
                return self.dispatch(&calls).await;
            }
        };
        let number = turn.number();
        for call in held.iter_mut().filter(|call| call.refusal().is_none()) {
            call.preview = preview(&self.parts, &self.journal.run, call).await;
        }
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: number,
            question,
            calls: held,
            expires_at: self.deadline(),
            editors: Vec::new(),
            replaces: None,
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    /// The results owed to calls that a held turn's judgement refused, with what the judge says about them: to
    /// the model where it can do better (A5), to the record where a gate was closed (L2).
    async fn explained(&self, events: Vec<Event>) -> Result<Vec<Event>, DriveError> {
        let judged = |event: &Event| {
            let Event::CallFinished(finished) = event else { return None };
            let refusal = finished.result.refusal?;
            let judged = refusal == Refusal::InvalidArguments
                || (is_gate(refusal) && refusal != Refusal::DefinitionChanged);
            judged.then(|| (finished.call.clone(), refusal))
        };
        let Some(turn) =
            self.journal.run.turn().filter(|_| events.iter().any(|event| judged(event).is_some()))
        else {
            return Ok(events);
        };
        let look = self.parts.store.look(&self.subjects()).await?;
        let bench = self.bench(&look);
        let explained = events.into_iter().flat_map(|event| {
            let found = judged(&event).and_then(|(call, refusal)| Some((turn.call(&call)?.call, refusal)));
            let Some((call, refusal)) = found else { return vec![event] };
            let words = match bench.judge(call) {
                Ruling::Refuse(refused) if refused.refusal == refusal => refused.words,
                Ruling::Refuse(_) | Ruling::Pass(_) => None,
            };
            refused_events(call, &Refused { refusal, words })
        });
        Ok(explained.collect())
    }

    fn deadline(&self) -> Deadline {
        match self.journal.run.created().approval_ttl_s {
            None => Deadline::Never,
            Some(seconds) => self
                .now()
                .checked_add(Duration::from_secs(seconds))
                .map_or(Deadline::Unreadable, Deadline::At),
        }
    }

    async fn open_input(&mut self, call: &CallId) -> Result<(), DriveError> {
        let run = &self.journal.run;
        let Some(turn) = run.turn() else { return Ok(()) };
        let Some(last) = run.pendings().filter(|record| record.pending.turn == turn.number()).last() else {
            return Ok(());
        };
        let schema = last.pending.call(call).and_then(|held| match &held.outlook {
            Outlook::NeedsInput(schema) => Some(schema.clone()),
            Outlook::Runs | Outlook::NeedsApproval(_) | Outlook::Refused(_) => None,
        });
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: turn.number(),
            question: input_question(call.clone(), schema.unwrap_or_default()),
            calls: last.pending.calls.clone(),
            expires_at: self.deadline(),
            editors: last.pending.editors.clone(),
            replaces: None,
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    async fn open_resolution(&mut self, call: &CallId) -> Result<(), DriveError> {
        let run = &self.journal.run;
        let Some(turn) = run.turn() else { return Ok(()) };
        let Some(CallState { stage: Stage::Unknown { deadline }, .. }) = turn.call(call) else {
            return Ok(());
        };
        let not_before = *deadline;
        let look = self.parts.store.look(&self.subjects()).await?;
        let shown = run.pendings().filter(|record| record.pending.turn == turn.number()).last();
        let calls = shown.map_or_else(|| self.bench(&look).hold(turn), |record| record.pending.calls.clone());
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: turn.number(),
            question: Question::Resolution { call: call.clone(), not_before },
            calls,
            expires_at: Deadline::Never,
            editors: Vec::new(),
            replaces: None,
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    /// Whoever meets an overdue question first stores its end (A10, A11).
    async fn close_overdue(&mut self, id: &PendingId) -> Result<bool, DriveError> {
        let overdue = self
            .journal
            .run
            .pending(id)
            .is_some_and(|record| record.pending.expires_at.has_passed(self.now()));
        if overdue {
            let closed =
                PendingClosed { pending: id.clone(), status: countersign_core::Closing::Expired, by: None };
            self.journal.record(vec![Event::PendingClosed(closed)]).await?;
        }
        Ok(overdue)
    }

    // ── the calls ────────────────────────────────────────────────────────────────────────────────────────

    /// The gate's last word on the next calls, and their start: reads together, up to a bound; a write alone
    /// (L4). The switches are read in the transaction that stores the start (G9).
    async fn dispatch(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
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

    async fn execute(&mut self, calls: &[CallId]) -> Result<(), DriveError> {
        if calls.iter().any(|call| !self.mine.contains(call)) {
            return self.take_up(calls).await;
        }
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
        let empty = crate::store::Look::default();
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
        self.parts
            .tools
            .tool(tool)
            .map_or(crate::tool::TIMEOUT_DEFAULT, |registered| registered.tool.timeout())
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

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn input_question(call: CallId, schema: serde_json::Value) -> Question {
    let message = schema
        .get("description")
        .or_else(|| schema.get("title"))
        .and_then(serde_json::Value::as_str)
        .unwrap_or("This call needs what only a person can supply.")
        .to_owned();
    Question::Input { call, schema, message }
}

fn call_deadline(now: Timestamp, timeout: Duration) -> Timestamp {
    now.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

fn refused_events(call: &ProposedCall, refused: &Refused) -> Vec<Event> {
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

/// A call that would start again goes through the gate again. A refused read ends as refused; an idempotent
/// write that may have happened cannot be called "not run", so it becomes unknown.
fn still_permitted(bench: &Bench<'_>, event: Event) -> Event {
    let Event::CallStarted(started) = &event else { return event };
    let Some(state) = bench.run.turn().and_then(|turn| turn.call(&started.call)) else { return event };
    match bench.dispatch(state) {
        Ok(_) => event,
        Err(_) if started.effect.writes() => {
            Event::CallUnknown(CallUnknown { call: started.call.clone(), tool: started.tool.clone() })
        }
        Err(_) => Event::CallFinished(Box::new(CallFinished {
            call: started.call.clone(),
            tool: started.tool.clone(),
            result: CallResult::from_tool(
                ResultKind::Error,
                "The call was interrupted, and the tool is no longer available here.",
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
