//! A run is the fold of its events: one `apply`, one `next` (R1).
//!
//! Invariant: an event either is legal and changes the run, or is refused and changes nothing. A call starts
//! only from a stage in which it was cleared, an approval is used up by starting, and a finished call never
//! starts again. Not here: asking the gates (`policy`), doing anything about it (the runtime's driver).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::decision::{CallVerdict, Decided, Form, VerdictWord};
use crate::event::{
    CallFinished, CallStarted, Clearance, Created, Durability, Entry, Event, FailCode, LimitReached,
    ModelFailCode, PendingClosed, RunCancelled, RunCompleted, RunFailed,
};
use crate::limits::{CUT_OFF_MAX, DENIED_REPEATS_MAX, INTERRUPTIONS_MAX, Limit};
use crate::message::{Finish, Message, ProposedCall, Reply, Usage};
use crate::name::{CallId, ModelRef, PendingId, RunId, Subject};
use crate::pending::{Closing, HeldCall, Outlook, Pending, PendingStatus, Question};
use crate::result::{CallResult, Refusal, ResultKind};
use crate::summary::{Changes, PendingRow, RunRow, RunState};
use crate::tool::Effect;

/// A run at one revision. Cloning is cheap: what is settled is shared.
#[derive(Clone, Debug)]
pub struct Run {
    id: RunId,
    created: Arc<Created>,
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: u64,
    history: Vec<Arc<Turn>>,
    turn: Option<Turn>,
    last_reply: Option<Arc<Reply>>,
    pendings: Vec<Arc<PendingRecord>>,
    usage: Usage,
    iterations: u32,
    interruptions: u32,
    denied: Arc<BTreeSet<(String, String)>>,
    repeats: u32,
    cut_offs: u32,
    failed_models: usize,
    last_failure: Option<ModelFailCode>,
    given_up: bool,
    limit: Option<Limit>,
    cancel: Option<Subject>,
    end: Option<End>,
}

/// How and when a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With an answer, or at a limit.
    Completed {
        /// The limit, if it was one.
        limit: Option<Limit>,
        /// When.
        at: Timestamp,
    },
    /// Without.
    Failed {
        /// Why.
        code: FailCode,
        /// When.
        at: Timestamp,
    },
    /// Somebody cancelled it.
    Cancelled {
        /// Who.
        by: Subject,
        /// When.
        at: Timestamp,
    },
}

/// One answer with calls, and what became of them.
#[derive(Clone, Debug)]
pub struct Turn {
    number: u32,
    reply: Arc<Reply>,
    stages: Vec<Stage>,
}

/// A call of a turn and its stage.
#[derive(Clone, Copy, Debug)]
pub struct CallState<'a> {
    /// As the model proposed it.
    pub call: &'a ProposedCall,
    /// Where it stands.
    pub stage: &'a Stage,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Nobody has judged it.
    Proposed,
    /// Its turn waits for a person's approval.
    Held,
    /// It waits for a person's input.
    AwaitingInput,
    /// It may go to the gate, which has the last word (A12).
    Cleared(Clearance),
    /// It will not run; its result is owed.
    Barred(Bar),
    /// It was started.
    Running(Running),
    /// It was started, and nobody knows how it ended (R3).
    Unknown {
        /// When the call itself gave up waiting.
        deadline: Timestamp,
    },
    /// It has its result, and never runs again.
    Finished(CallResult),
}

impl Stage {
    /// The start of a write that has no result yet.
    fn running_write(&self) -> Option<&Running> {
        match self {
            Self::Running(running) => Some(running).filter(|running| running.effect.writes()),
            Self::Proposed
            | Self::Held
            | Self::AwaitingInput
            | Self::Cleared(_)
            | Self::Barred(_)
            | Self::Unknown { .. }
            | Self::Finished(_) => None,
        }
    }

    /// What keeps it from running, while its result is owed.
    fn bar(&self) -> Option<&Bar> {
        match self {
            Self::Barred(bar) => Some(bar),
            Self::Proposed
            | Self::Held
            | Self::AwaitingInput
            | Self::Cleared(_)
            | Self::Running(_)
            | Self::Unknown { .. }
            | Self::Finished(_) => None,
        }
    }
}

/// A started call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// What it does.
    pub effect: Effect,
    /// What it was started on.
    pub clearance: Clearance,
    /// From 1.
    pub attempt: u32,
    /// When it gives up waiting.
    pub deadline: Timestamp,
}

/// Why a call will not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bar {
    /// A person said no.
    Denied {
        /// Their reason; data for the model, nothing more.
        reason: Option<String>,
    },
    /// Nobody decided in time (A10).
    Expired,
    /// Its definition changed while the question was open (M2).
    Unavailable,
    /// Something else in its turn was denied, ran out, or has an unknown outcome (A11, R3).
    TurnEnded,
    /// A gate or a check refused it when the turn was judged.
    Refused(Refusal),
    /// A limit was reached first (L1).
    Limit(Limit),
}

impl Bar {
    fn result(&self, tool: &str) -> CallResult {
        match self {
            Self::Denied { reason: None } => {
                CallResult::not_from_tool(ResultKind::Denied, "Not run: denied by a person.")
            }
            Self::Denied { reason: Some(reason) } => CallResult::not_from_tool(
                ResultKind::Denied,
                &format!(
                    "Not run: denied by a person. The reason they gave: {}",
                    serde_json::Value::from(reason.as_str())
                ),
            ),
            Self::Expired => CallResult::not_from_tool(
                ResultKind::Expired,
                "Not run: the time for a person to approve it has expired.",
            ),
            Self::Unavailable => CallResult {
                refusal: Some(Refusal::DefinitionChanged),
                ..CallResult::not_from_tool(
                    ResultKind::Refused,
                    "Not run: the tool is no longer available as it was.",
                )
            },
            Self::TurnEnded => CallResult::not_from_tool(
                ResultKind::NotRun,
                "Not run: another call of the same turn was not released or has no known outcome.",
            ),
            Self::Refused(refusal) => CallResult::refused(*refusal, tool, None),
            Self::Limit(limit) => CallResult::not_from_tool(ResultKind::NotRun, limit.call_sentence()),
        }
    }

    fn kind(&self) -> ResultKind {
        match self {
            Self::Denied { .. } => ResultKind::Denied,
            Self::Expired => ResultKind::Expired,
            Self::Unavailable | Self::Refused(_) => ResultKind::Refused,
            Self::TurnEnded | Self::Limit(_) => ResultKind::NotRun,
        }
    }
}

/// A pending and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingRecord {
    /// The question.
    pub pending: Pending,
    /// Where it stands.
    pub status: PendingStatus,
    /// When it was asked.
    pub opened_at: Timestamp,
    /// The answer, if there is one.
    pub decided: Option<Decided>,
    /// When it stopped being open.
    pub settled_at: Option<Timestamp>,
}

/// Which model is asked next, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The model.
    pub model: ModelRef,
    /// The one completion after the cap of iterations: no tools, and calls in it are dropped (L1).
    pub closing: bool,
}

/// What is owed next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A model's reply to the transcript.
    AskModel(Ask),
    /// A judgement of the whole turn, before any of it runs (A4).
    Judge,
    /// The question for the input that this call needs (A4).
    OpenInput(CallId),
    /// The question how this call came out (R11).
    OpenResolution(CallId),
    /// The gate's last word on the next of these calls, in order, and their start.
    Dispatch(Vec<CallId>),
    /// The results of these started calls. A driver that did not start them itself must not wait for them.
    Execute(Vec<CallId>),
    /// These events, which follow from the log alone.
    Record(Vec<Event>),
    /// Nothing: a person is asked, and nothing is held meanwhile (R5).
    Park(PendingId),
    /// Nothing, ever.
    Ended,
}

/// An event that does not fit the run. The run is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} does not fit: {reason}")]
pub struct Illegal {
    /// The kind of the event.
    pub kind: &'static str,
    /// What stands against it.
    pub reason: &'static str,
}

impl Turn {
    /// Its number in the run, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The model's answer.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Its calls, in the model's order.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = CallState<'_>> {
        self.reply.calls.iter().zip(&self.stages).map(|(call, stage)| CallState { call, stage })
    }

    /// One of its calls.
    pub fn call(&self, id: &CallId) -> Option<CallState<'_>> {
        self.calls().find(|state| state.call.id == *id)
    }

    fn position(&self, id: &CallId) -> Option<usize> {
        self.reply.calls.iter().position(|call| call.id == *id)
    }

    fn is_fresh(&self) -> bool {
        self.stages.iter().all(|stage| *stage == Stage::Proposed)
    }

    fn is_finished(&self) -> bool {
        self.stages.iter().all(|stage| matches!(stage, Stage::Finished(_)))
    }

    fn holds_the_calls_of(&self, pending: &Pending) -> bool {
        pending.turn == self.number
            && pending.calls.len() == self.reply.calls.len()
            && pending
                .calls
                .iter()
                .zip(&self.reply.calls)
                .all(|(held, call)| held.id == call.id && held.tool == call.name)
    }
}

impl Run {
    /// A run from its first events.
    ///
    /// # Errors
    /// [`Illegal`] when `more` does not fit.
    pub fn create(
        id: RunId,
        created: Created,
        more: Vec<Event>,
        at: Timestamp,
    ) -> Result<(Self, Changes), Illegal> {
        let first = Event::RunCreated(Box::new(created.clone()));
        let run = Self::start(id, created, at);
        let (run, mut changes) = if more.is_empty() {
            let changes = run.changes(Vec::new(), at, Durability::Disk, &BTreeSet::new());
            (run, changes)
        } else {
            run.record(more, at)?
        };
        changes.events.insert(0, first);
        changes.durability = Durability::Disk;
        Ok((run, changes))
    }

    fn start(id: RunId, created: Created, at: Timestamp) -> Self {
        Self {
            id,
            created: Arc::new(created),
            created_at: at,
            updated_at: at,
            revision: 1,
            history: Vec::new(),
            turn: None,
            last_reply: None,
            pendings: Vec::new(),
            usage: Usage::default(),
            iterations: 0,
            interruptions: 0,
            denied: Arc::default(),
            repeats: 0,
            cut_offs: 0,
            failed_models: 0,
            last_failure: None,
            given_up: false,
            limit: None,
            cancel: None,
            end: None,
        }
    }

    /// What a whole log means.
    ///
    /// # Errors
    /// [`Illegal`] for a log that no run can have.
    pub fn fold(id: RunId, log: &[Entry]) -> Result<Self, Illegal> {
        let illegal = |reason| Illegal { kind: "run.created", reason };
        let (first, rest) = log.split_first().ok_or(illegal("the log is empty"))?;
        let Event::RunCreated(created) = &first.event else {
            return Err(illegal("it must come first"));
        };
        if first.seq != 0 {
            return Err(illegal("the sequence starts at 0"));
        }
        let mut run = Self::start(id, (**created).clone(), first.at);
        for entry in rest {
            run.take(entry)?;
        }
        Ok(run)
    }

    /// The run after one more event.
    ///
    /// # Errors
    /// [`Illegal`]; this run is as it was.
    pub fn apply(&self, entry: &Entry) -> Result<Self, Illegal> {
        let mut after = self.clone();
        after.take(entry)?;
        Ok(after)
    }

    /// Folds new events and says what to store.
    ///
    /// # Errors
    /// [`Illegal`]; this run is as it was.
    pub fn record(&self, events: Vec<Event>, at: Timestamp) -> Result<(Self, Changes), Illegal> {
        let mut run = self.clone();
        let mut durability = Durability::Process;
        let mut touched = BTreeSet::new();
        for event in &events {
            durability = durability.max(event.durability()).max(run.durability_of_result(event));
            touched.extend(touched_pendings(event));
            run.take(&Entry { seq: run.revision, at, event: event.clone() })?;
        }
        let changes = run.changes(events, at, durability, &touched);
        Ok((run, changes))
    }

    fn changes(
        &self,
        events: Vec<Event>,
        at: Timestamp,
        durability: Durability,
        touched: &BTreeSet<PendingId>,
    ) -> Changes {
        let inbox = self.pendings.iter().filter(|record| touched.contains(&record.pending.id));
        Changes {
            events,
            at,
            row: self.row(),
            inbox: inbox.map(|record| self.pending_row(record)).collect(),
            durability,
        }
    }

    /// The result of a write promises something to the world (R3).
    fn durability_of_result(&self, event: &Event) -> Durability {
        let Event::CallFinished(finished) = event else { return Durability::Process };
        let call = self.turn.as_ref().and_then(|turn| turn.call(&finished.call));
        match call.and_then(|state| state.stage.running_write()) {
            Some(_) => Durability::Disk,
            None => Durability::Process,
        }
    }

    /// Takes one entry. May leave a half-changed run behind when it refuses, so only clones see it.
    fn take(&mut self, entry: &Entry) -> Result<(), Illegal> {
        let refuse = |reason| Err(Illegal { kind: entry.event.kind(), reason });
        if entry.seq != self.revision {
            return refuse("it is not the next of the log");
        }
        if self.end.is_some() && !matches!(entry.event, Event::PendingRefused(_)) {
            return refuse("the run has ended");
        }
        let done = match &entry.event {
            Event::RunCreated(_) => Err("a run is created once"),
            Event::GateDenied(_) => Ok(()),
            Event::PendingRefused(refused) => {
                self.pending(&refused.pending).map(drop).ok_or("there is no such pending")
            }
            Event::ModelReplied(replied) => self.take_reply(&replied.reply, replied.closing),
            Event::ModelFailed(failed) => self.take_model_failure(&failed.model, failed.code, failed.usage),
            Event::PendingOpened(pending) => self.take_question(pending, entry.at),
            Event::PendingEdited(pending) => self.take_edit(pending, entry.at),
            Event::PendingDecided(decided) => {
                self.take_decision(&decided.pending, &decided.decided, entry.at)
            }
            Event::PendingClosed(closed) => self.take_closing(&closed.pending, closed.status, entry.at),
            Event::CallStarted(started) => self.take_start(started),
            Event::CallFinished(finished) => self.take_result(&finished.call, &finished.result),
            Event::CallUnknown(unknown) => self.take_unknown(&unknown.call),
            Event::LimitReached(reached) => self.take_limit(reached.which),
            Event::CancelRequested(requested) => match self.cancel {
                Some(_) => Err("it was requested before"),
                None => {
                    self.cancel = Some(requested.by.clone());
                    Ok(())
                }
            },
            Event::RunCompleted(completed) => self.take_completion(completed.limit, entry.at),
            Event::RunFailed(failed) => self.take_failure(failed.code, entry.at),
            Event::RunCancelled(cancelled) => self.take_cancellation(&cancelled.by, entry.at),
        };
        done.or_else(refuse)?;
        self.revision += 1;
        self.updated_at = entry.at;
        Ok(())
    }

    fn take_reply(&mut self, reply: &Reply, closing: bool) -> Result<(), &'static str> {
        if self.awaited_model().is_none_or(|ask| ask.closing != closing) {
            return Err("no model was asked for this");
        }
        // The id of a call is the key of its result and of its idempotency: one call of the run, one id (R4).
        let mut known: BTreeSet<_> =
            self.history.iter().flat_map(|turn| &turn.reply.calls).map(|call| &call.id).collect();
        if !reply.calls.iter().all(|call| known.insert(&call.id)) {
            return Err("two calls have one id");
        }
        self.usage = self.usage.plus(reply.usage);
        self.failed_models = 0;
        self.last_failure = None;
        let reply = Arc::new(reply.clone());
        if closing || reply.calls.is_empty() {
            self.last_reply = Some(Arc::clone(&reply));
        }
        if closing {
            return Ok(());
        }
        self.iterations += 1;
        if reply.calls.is_empty() {
            return Ok(());
        }
        let stage = if reply.finish == Finish::Length {
            self.cut_offs += 1;
            Stage::Barred(Bar::Refused(Refusal::CutOff))
        } else {
            self.cut_offs = 0;
            Stage::Proposed
        };
        let number = u32::try_from(self.history.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.turn = Some(Turn { number, stages: vec![stage; reply.calls.len()], reply });
        Ok(())
    }

    fn take_model_failure(
        &mut self,
        model: &ModelRef,
        code: ModelFailCode,
        usage: Usage,
    ) -> Result<(), &'static str> {
        if self.awaited_model().is_none_or(|ask| ask.model != *model) {
            return Err("this model was not asked");
        }
        self.usage = self.usage.plus(usage);
        self.failed_models += 1;
        self.last_failure = Some(code);
        Ok(())
    }

    fn take_question(&mut self, pending: &Pending, at: Timestamp) -> Result<(), &'static str> {
        if self.open_pending().is_some() || self.cancel.is_some() || self.created.unattended {
            return Err("another question is open, the run is being cancelled, or nobody can be asked in it");
        }
        if self.pending(&pending.id).is_some() {
            return Err("there is a pending of this id");
        }
        let turn = self
            .turn
            .as_mut()
            .filter(|turn| turn.holds_the_calls_of(pending))
            .ok_or("it does not hold the turn")?;
        let asks = pending.asked().next().is_some();
        match &pending.question {
            Question::Approval if turn.is_fresh() && asks => turn.stages.fill(Stage::Held),
            Question::Approval => {
                return Err("the turn does not wait to be judged, or nothing needs approval");
            }
            Question::Input { call, .. } => {
                if turn.is_fresh() {
                    if asks {
                        return Err("approval comes first");
                    }
                    for (stage, held) in turn.stages.iter_mut().zip(&pending.calls) {
                        *stage = released_stage(held);
                    }
                }
                match turn.call(call).map(|state| state.stage) {
                    Some(Stage::AwaitingInput) => {}
                    _ => return Err("the call does not wait for input"),
                }
            }
            Question::Resolution { call, .. } => match turn.call(call).map(|state| state.stage) {
                Some(Stage::Unknown { .. }) => {}
                _ => return Err("the outcome of the call is not unknown"),
            },
        }
        self.pendings.push(Arc::new(PendingRecord {
            pending: pending.clone(),
            status: PendingStatus::Open,
            opened_at: at,
            decided: None,
            settled_at: None,
        }));
        Ok(())
    }

    fn take_edit(&mut self, pending: &Pending, at: Timestamp) -> Result<(), &'static str> {
        let open = self.open_pending().ok_or("no question is open")?;
        let fits = open.pending.question == Question::Approval
            && pending.question == Question::Approval
            && pending.replaces.as_ref() == Some(&open.pending.id)
            && pending.expires_at == open.pending.expires_at
            && pending.editors.len() == open.pending.editors.len() + 1
            && pending.editors.starts_with(&open.pending.editors)
            && pending.asked().next().is_some()
            && self.turn.as_ref().is_some_and(|turn| turn.holds_the_calls_of(pending));
        if !fits || self.pending(&pending.id).is_some() || self.cancel.is_some() {
            return Err("it does not replace the open question");
        }
        self.close_open(PendingStatus::Superseded, None, at);
        self.pendings.push(Arc::new(PendingRecord {
            pending: pending.clone(),
            status: PendingStatus::Open,
            opened_at: at,
            decided: None,
            settled_at: None,
        }));
        Ok(())
    }

    fn take_decision(
        &mut self,
        id: &PendingId,
        decided: &Decided,
        at: Timestamp,
    ) -> Result<(), &'static str> {
        let pending = self
            .open_pending()
            .filter(|record| record.pending.id == *id)
            .ok_or("it is not open")?
            .pending
            .clone();
        let turn = self.turn.as_mut().ok_or("there is no turn")?;
        // A10: the stored time of the decision is compared with the stored deadline, whoever stored it.
        let too_late =
            pending.expires_at.has_passed(at) && !matches!(pending.question, Question::Resolution { .. });
        match (&pending.question, decided.verdict) {
            (Question::Approval, VerdictWord::Approve | VerdictWord::Deny | VerdictWord::Mixed) => {
                let needed: BTreeSet<&CallId> = pending.asked().map(|call| &call.id).collect();
                if needed != decided.calls.keys().collect() || !decided.is_consistent() {
                    return Err(
                        "it does not decide on exactly the calls that need it, or its words contradict each other",
                    );
                }
                let whole_turn_denied = decided.form == Form::Turn && decided.verdict == VerdictWord::Deny;
                for (stage, held) in turn.stages.iter_mut().zip(&pending.calls) {
                    let verdict = decided.calls.get(&held.id);
                    *stage = match verdict {
                        Some(CallVerdict::Deny) => {
                            Stage::Barred(Bar::Denied { reason: decided.reason.clone() })
                        }
                        Some(CallVerdict::Approve) => Stage::Cleared(Clearance::Approved(id.clone())),
                        None if whole_turn_denied => Stage::Barred(Bar::TurnEnded),
                        None => released_stage(held),
                    };
                    if verdict == Some(&CallVerdict::Deny) && !too_late {
                        remember_denial(&mut self.denied, held);
                    }
                }
            }
            (Question::Input { call, .. }, VerdictWord::Answer | VerdictWord::Deny) => {
                let position = turn.position(call).ok_or("there is no such call")?;
                turn.stages[position] = match (decided.verdict, &decided.answer) {
                    (VerdictWord::Answer, Some(_)) => Stage::Cleared(Clearance::Answered(id.clone())),
                    (VerdictWord::Answer, None) => return Err("the answer is missing"),
                    _ => Stage::Barred(Bar::Denied { reason: decided.reason.clone() }),
                };
                if decided.verdict == VerdictWord::Deny
                    && !too_late
                    && let Some(held) = pending.call(call)
                {
                    remember_denial(&mut self.denied, held);
                }
            }
            (
                Question::Resolution { call, .. },
                VerdictWord::Happened | VerdictWord::DidNotHappen | VerdictWord::GiveUp,
            ) => {
                let position = turn.position(call).ok_or("there is no such call")?;
                let settled = |kind, otherwise| {
                    let text = decided.result.as_deref().unwrap_or(otherwise);
                    Stage::Finished(CallResult::from_tool(kind, text, Vec::new(), 0))
                };
                if decided.verdict == VerdictWord::GiveUp {
                    self.given_up = true;
                } else if decided.verdict == VerdictWord::Happened {
                    turn.stages[position] =
                        settled(ResultKind::Ok, "A person confirmed that this call happened.");
                } else {
                    let otherwise = "A person found that this call did not happen. It was not run again.";
                    turn.stages[position] = settled(ResultKind::Error, otherwise);
                }
            }
            _ => return Err("this verdict does not fit the question"),
        }
        if too_late {
            // Expired is neither denied nor approved.
            end_turn(turn, &pending, &Bar::Expired);
        }
        let status = if too_late { PendingStatus::Expired } else { decided.verdict.status() };
        self.close_open(status, Some(decided.clone()), at);
        self.settle_turn();
        Ok(())
    }

    fn take_closing(&mut self, id: &PendingId, closing: Closing, at: Timestamp) -> Result<(), &'static str> {
        let pending = self
            .open_pending()
            .filter(|record| record.pending.id == *id)
            .ok_or("it is not open")?
            .pending
            .clone();
        let turn = self.turn.as_mut().ok_or("there is no turn")?;
        let is_resolution = matches!(pending.question, Question::Resolution { .. });
        match closing {
            Closing::Withdrawn if self.cancel.is_some() => {}
            Closing::Withdrawn => return Err("nobody cancelled the run"),
            Closing::Expired | Closing::Void if is_resolution => {
                return Err("a resolution neither expires nor is void");
            }
            Closing::Expired => end_turn(turn, &pending, &Bar::Expired),
            Closing::Void => end_turn(turn, &pending, &Bar::Unavailable),
        }
        self.close_open(closing.into(), None, at);
        Ok(())
    }

    fn take_start(&mut self, started: &CallStarted) -> Result<(), &'static str> {
        if self.open_pending().is_some() || self.cancel.is_some() || self.limit.is_some() {
            return Err("a question is open, a limit was reached, or the run is being cancelled");
        }
        let interruptions = self.interruptions;
        let turn = self.turn.as_mut().ok_or("there is no turn")?;
        let position = turn.position(&started.call).ok_or("there is no such call")?;
        if turn.reply.calls[position].name != started.tool {
            return Err("the call is of another tool");
        }
        let first = started.attempt == 1 && started.interruption == interruptions;
        match &turn.stages[position] {
            Stage::Proposed if started.clearance == Clearance::NotNeeded && first => {}
            Stage::Cleared(clearance) if *clearance == started.clearance && first => {}
            Stage::Running(running)
                if running.effect != Effect::Write
                    && running.effect == started.effect
                    && running.clearance == started.clearance
                    && started.attempt == running.attempt + 1
                    && (interruptions..=interruptions + 1).contains(&started.interruption) => {}
            Stage::Proposed
            | Stage::Held
            | Stage::AwaitingInput
            | Stage::Cleared(_)
            | Stage::Barred(_)
            | Stage::Running(_)
            | Stage::Unknown { .. }
            | Stage::Finished(_) => return Err("the call is not cleared to start"),
        }
        if turn.stages.contains(&Stage::AwaitingInput) {
            return Err("nothing of a turn runs until all of its questions are settled");
        }
        // Calls start in order, and a write is a barrier (L4): it waits for everything before it, and
        // everything after waits for it, also where it has not started yet.
        let earlier_is_open = |stage: &Stage| match stage {
            Stage::Finished(_) => false,
            Stage::Running(running) => started.effect.writes() || running.effect.writes(),
            Stage::Proposed
            | Stage::Held
            | Stage::AwaitingInput
            | Stage::Cleared(_)
            | Stage::Barred(_)
            | Stage::Unknown { .. } => true,
        };
        if turn.stages[..position].iter().any(earlier_is_open) {
            return Err("calls start in order, and a write is a barrier");
        }
        turn.stages[position] = Stage::Running(Running {
            effect: started.effect,
            clearance: started.clearance.clone(),
            attempt: started.attempt,
            deadline: started.deadline,
        });
        self.interruptions = started.interruption;
        Ok(())
    }

    fn take_result(&mut self, call: &CallId, result: &CallResult) -> Result<(), &'static str> {
        let cancelled = self.cancel.is_some() && result.kind == ResultKind::Cancelled;
        let question_open = self.open_pending().is_some();
        let turn = self.turn.as_mut().ok_or("there is no turn")?;
        let position = turn.position(call).ok_or("there is no such call")?;
        let from_tool = matches!(result.kind, ResultKind::Ok | ResultKind::Error | ResultKind::Timeout);
        let fits = match &turn.stages[position] {
            // A write in flight is awaited, or unknown: never merely cancelled (R8).
            Stage::Running(running) => from_tool || (cancelled && !running.effect.writes()),
            Stage::Barred(bar) => bar.kind() == result.kind || cancelled,
            Stage::Proposed | Stage::Cleared(_) => result.kind == ResultKind::Refused || cancelled,
            Stage::Held | Stage::AwaitingInput => cancelled,
            Stage::Unknown { .. } | Stage::Finished(_) => false,
        };
        if !fits || question_open {
            return Err("this result does not fit the call's stage");
        }
        if result.refusal == Some(Refusal::AlreadyDenied) {
            self.repeats += 1;
        }
        turn.stages[position] = Stage::Finished(result.clone());
        self.settle_turn();
        Ok(())
    }

    fn take_unknown(&mut self, call: &CallId) -> Result<(), &'static str> {
        let turn = self.turn.as_mut().ok_or("there is no turn")?;
        let position = turn.position(call).ok_or("there is no such call")?;
        let deadline =
            turn.stages[position].running_write().ok_or("no write of this id is running")?.deadline;
        turn.stages[position] = Stage::Unknown { deadline };
        for stage in &mut turn.stages {
            if matches!(stage, Stage::Proposed | Stage::Cleared(_) | Stage::AwaitingInput) {
                *stage = Stage::Barred(Bar::TurnEnded);
            }
        }
        Ok(())
    }

    fn take_limit(&mut self, limit: Limit) -> Result<(), &'static str> {
        if !self.owes(&Event::LimitReached(LimitReached { which: limit })) {
            return Err("this limit was not reached");
        }
        if let Some(turn) = &mut self.turn {
            turn.stages.fill(Stage::Barred(Bar::Limit(limit)));
        }
        self.limit = Some(limit);
        Ok(())
    }

    fn take_completion(&mut self, limit: Option<Limit>, at: Timestamp) -> Result<(), &'static str> {
        if !self.owes(&Event::RunCompleted(RunCompleted { limit })) {
            return Err("the run is not done");
        }
        self.end = Some(End::Completed { limit, at });
        Ok(())
    }

    fn take_failure(&mut self, code: FailCode, at: Timestamp) -> Result<(), &'static str> {
        let writing =
            self.turn.iter().flat_map(|turn| &turn.stages).any(|stage| stage.running_write().is_some());
        if writing || self.open_pending().is_some() {
            return Err("a write is in flight, or a question is open");
        }
        self.end = Some(End::Failed { code, at });
        Ok(())
    }

    /// Whether this event follows from the log alone, and is due.
    fn owes(&self, event: &Event) -> bool {
        matches!(self.next(), Step::Record(events) if events.contains(event))
    }

    fn take_cancellation(&mut self, by: &Subject, at: Timestamp) -> Result<(), &'static str> {
        let settled = self.turn.as_ref().is_none_or(|turn| {
            turn.stages.iter().all(|stage| matches!(stage, Stage::Finished(_) | Stage::Unknown { .. }))
        });
        if self.cancel.as_ref() != Some(by) || self.open_pending().is_some() || !settled {
            return Err("nobody asked for it, or something is still open");
        }
        self.end = Some(End::Cancelled { by: by.clone(), at });
        Ok(())
    }

    fn close_open(&mut self, status: PendingStatus, decided: Option<Decided>, at: Timestamp) {
        if let Some(record) = self.pendings.last_mut().filter(|record| record.status == PendingStatus::Open) {
            let record = Arc::make_mut(record);
            record.status = status;
            record.decided = decided;
            record.settled_at = Some(at);
        }
    }

    fn settle_turn(&mut self) {
        if self.turn.as_ref().is_some_and(Turn::is_finished)
            && let Some(turn) = self.turn.take()
        {
            self.history.push(Arc::new(turn));
        }
    }
}

/// What becomes of a held call that is not itself denied once its turn is released.
fn released_stage(held: &HeldCall) -> Stage {
    match &held.outlook {
        Outlook::Runs => Stage::Cleared(Clearance::NotNeeded),
        Outlook::NeedsApproval(_) => Stage::Held,
        Outlook::NeedsInput(_) => Stage::AwaitingInput,
        Outlook::Refused(refusal) => Stage::Barred(Bar::Refused(*refusal)),
    }
}

/// An expired or void turn: the asked calls are told so, all others are not run (A11).
fn end_turn(turn: &mut Turn, pending: &Pending, bar: &Bar) {
    for (stage, held) in turn.stages.iter_mut().zip(&pending.calls) {
        let asked = match &pending.question {
            Question::Approval => held.because().is_some(),
            Question::Input { call, .. } | Question::Resolution { call, .. } => held.id == *call,
        };
        if !matches!(stage, Stage::Finished(_) | Stage::Running(_) | Stage::Unknown { .. }) {
            *stage = Stage::Barred(if asked { bar.clone() } else { Bar::TurnEnded });
        }
    }
}

fn remember_denial(denied: &mut Arc<BTreeSet<(String, String)>>, held: &HeldCall) {
    if let Some(arguments) = held.original_arguments.as_ref().or(held.arguments.as_ref()) {
        Arc::make_mut(denied).insert((held.tool.clone(), arguments.canonical()));
    }
}

fn touched_pendings(event: &Event) -> Vec<PendingId> {
    match event {
        Event::PendingOpened(pending) => vec![pending.id.clone()],
        Event::PendingEdited(pending) => {
            pending.replaces.iter().cloned().chain([pending.id.clone()]).collect()
        }
        Event::PendingDecided(decided) => vec![decided.pending.clone()],
        Event::PendingClosed(closed) => vec![closed.pending.clone()],
        Event::RunCreated(_)
        | Event::GateDenied(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::PendingRefused(_)
        | Event::CallStarted(_)
        | Event::CallFinished(_)
        | Event::CallUnknown(_)
        | Event::LimitReached(_)
        | Event::CancelRequested(_)
        | Event::RunCompleted(_)
        | Event::RunFailed(_)
        | Event::RunCancelled(_) => Vec::new(),
    }
}

/// What is owed next.
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
                Finish::Length => Event::LimitReached(LimitReached { which: Limit::CutOff }),
                Finish::Stop | Finish::Other => Event::RunCompleted(RunCompleted { limit: None }),
            }]);
        }
        match self.limit_in_the_way() {
            Some(which) => Step::Record(vec![Event::LimitReached(LimitReached { which })]),
            None => failed(FailCode::Model(self.last_failure.unwrap_or(ModelFailCode::Unreachable))),
        }
    }

    fn next_in_turn(&self, turn: &Turn) -> Step {
        if turn.is_fresh()
            && let Some(which) = self.created.limits.reached(self.iterations, self.usage)
        {
            return Step::Record(vec![Event::LimitReached(LimitReached { which })]);
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
    fn awaited_model(&self) -> Option<Ask> {
        let idle = self.end.is_none()
            && self.cancel.is_none()
            && self.turn.is_none()
            && self.open_pending().is_none();
        let closing = match self.limit {
            Some(Limit::MaxIterations) => true,
            Some(Limit::BudgetExhausted | Limit::RepeatedDenials | Limit::CutOff) => return None,
            None => false,
        };
        if !idle || self.last_reply.is_some() || (!closing && self.limit_in_the_way().is_some()) {
            return None;
        }
        self.created.models.get(self.failed_models).map(|model| Ask { model: model.clone(), closing })
    }

    /// The limit that ends the run before another model call.
    fn limit_in_the_way(&self) -> Option<Limit> {
        if self.repeats >= DENIED_REPEATS_MAX {
            Some(Limit::RepeatedDenials)
        } else if self.cut_offs >= CUT_OFF_MAX {
            Some(Limit::CutOff)
        } else {
            self.created.limits.reached(self.iterations, self.usage)
        }
    }

    /// Whether another lost worker would be one too many (R3).
    pub fn is_poisoned(&self) -> bool {
        self.interruptions >= INTERRUPTIONS_MAX
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

fn failed(code: FailCode) -> Step {
    Step::Record(vec![Event::RunFailed(RunFailed { code })])
}

fn finished(call: &ProposedCall, result: CallResult) -> Event {
    Event::CallFinished(Box::new(CallFinished { call: call.id.clone(), tool: call.name.clone(), result }))
}

/// What can be seen of it.
impl Run {
    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// How it started.
    pub fn created(&self) -> &Created {
        &self.created
    }

    /// When it started.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When its last event was stored.
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// The number of its events.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Model answers, the closing one not counted.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Tokens so far, failed attempts included.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How many workers it has lost in the middle of a call.
    pub fn interruptions(&self) -> u32 {
        self.interruptions
    }

    /// Its end, if it has ended.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether somebody asked for it to be cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some()
    }

    /// The turn that is not finished, if there is one.
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// The finished turns.
    pub fn history(&self) -> impl Iterator<Item = &Turn> {
        self.history.iter().map(|turn| &**turn)
    }

    /// The text of the last answer, if it said something.
    pub fn output(&self) -> Option<&str> {
        self.last_reply
            .as_ref()
            .and_then(|reply| reply.text.as_deref())
            .filter(|text| !text.trim().is_empty())
    }

    /// One of its pendings.
    pub fn pending(&self, id: &PendingId) -> Option<&PendingRecord> {
        self.pendings.iter().map(|record| &**record).find(|record| record.pending.id == *id)
    }

    /// All its pendings, oldest first.
    pub fn pendings(&self) -> impl Iterator<Item = &PendingRecord> {
        self.pendings.iter().map(|record| &**record)
    }

    /// The pending that is open, if one is.
    pub fn open_pending(&self) -> Option<&PendingRecord> {
        self.pendings.last().map(|record| &**record).filter(|record| record.status == PendingStatus::Open)
    }

    /// A call of the unfinished turn as the last question showed it: with a person's arguments, and the
    /// preview's precondition.
    pub fn held(&self, call: &CallId) -> Option<&HeldCall> {
        let turn = self.turn.as_ref()?;
        let shown = self.pendings.iter().rev().find(|record| {
            record.pending.turn == turn.number
                && record.status != PendingStatus::Superseded
                && !matches!(record.pending.question, Question::Resolution { .. })
        })?;
        shown.pending.call(call)
    }

    /// Whether this very call was denied before in this run (L8).
    pub fn was_denied(&self, tool: &str, canonical_arguments: &str) -> bool {
        self.denied.contains(&(tool.to_owned(), canonical_arguments.to_owned()))
    }

    /// The conversation so far: every call answered once, in order (L3).
    pub fn transcript(&self) -> impl Iterator<Item = Message<'_>> {
        let head = self.created.system_prompt.as_deref().map(Message::System).into_iter();
        let input = self.created.input.iter().map(Message::Input);
        let turns = self.history.iter().flat_map(|turn| {
            std::iter::once(Message::Reply(&turn.reply))
                .chain(turn.calls().map(|state| self.answer(turn, state)))
        });
        head.chain(input).chain(turns)
    }

    fn answer<'a>(&'a self, turn: &Turn, state: CallState<'a>) -> Message<'a> {
        let (content, is_error) = match state.stage {
            Stage::Finished(result) => (Cow::Borrowed(result.content.as_str()), result.is_error()),
            Stage::Proposed
            | Stage::Held
            | Stage::AwaitingInput
            | Stage::Cleared(_)
            | Stage::Barred(_)
            | Stage::Running(_)
            | Stage::Unknown { .. } => (Cow::Borrowed("The outcome of this call is not known."), true),
        };
        let edited = self.pendings.iter().rev().find(|record| {
            record.pending.turn == turn.number
                && record.decided.is_some()
                && !record.pending.editors.is_empty()
        });
        let changed = edited
            .and_then(|record| record.pending.call(&state.call.id))
            .filter(|held| held.original_arguments.is_some())
            .and_then(|held| held.arguments.as_ref());
        let content = match changed {
            Some(arguments) => Cow::Owned(format!(
                "[A person changed the arguments of this call to {}]\n{content}",
                arguments.canonical()
            )),
            None => content,
        };
        Message::Result { call: &state.call.id, content, is_error }
    }

    /// Where it stands, in one word.
    pub fn state(&self) -> RunState {
        match (&self.end, self.open_pending().map(|record| &record.pending.question)) {
            (Some(End::Completed { .. }), _) => RunState::Completed,
            (Some(End::Failed { .. }), _) => RunState::Failed,
            (Some(End::Cancelled { .. }), _) => RunState::Cancelled,
            (None, Some(Question::Approval)) => RunState::WaitingForApproval,
            (None, Some(Question::Input { .. })) => RunState::WaitingForInput,
            (None, Some(Question::Resolution { .. })) => RunState::NeedsResolution,
            (None, None) => RunState::Active,
        }
    }

    /// Its line in a list.
    pub fn row(&self) -> RunRow {
        let (limit, failure, finished_at) = match &self.end {
            None => (None, None, None),
            Some(End::Completed { limit, at }) => (*limit, None, Some(*at)),
            Some(End::Failed { code, at }) => (None, Some(code.as_str().to_owned()), Some(*at)),
            Some(End::Cancelled { at, .. }) => (None, None, Some(*at)),
        };
        RunRow {
            id: self.id.clone(),
            state: self.state(),
            agent: self.created.agent.clone(),
            owner: self.created.owner.clone(),
            unattended: self.created.unattended,
            iterations: self.iterations,
            usage: self.usage,
            limit,
            failure,
            created_at: self.created_at,
            updated_at: self.updated_at,
            finished_at,
        }
    }

    fn pending_row(&self, record: &PendingRecord) -> PendingRow {
        PendingRow {
            id: record.pending.id.clone(),
            run: self.id.clone(),
            kind: record.pending.question.as_str().to_owned(),
            status: record.status,
            agent: self.created.agent.clone(),
            owner: self.created.owner.clone(),
            created_at: record.opened_at,
            expires_at: record.pending.expires_at,
            decided_by: record.decided.as_ref().map(|decided| decided.by.clone()),
        }
    }
}
