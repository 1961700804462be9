//! What each kind of event does to a run.
//!
//! Invariant: an event that does not fit is refused with its reason. A refusal may leave a half-changed run
//! behind, so only clones get here (`Run::apply`, `Run::record`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::decision::{CallVerdict, Decided, Form, VerdictWord};
use crate::event::{
    CallStarted, Clearance, ContextFitted, Event, FailCode, LimitReached, ModelFailCode, RunCompleted,
};
use crate::limits::Limit;
use crate::message::{Finish, Opaque, Reply, Usage};
use crate::name::{CallId, ModelRef, PendingId, Subject};
use crate::pending::{Closing, HeldCall, Outlook, Pending, PendingStatus, Question};
use crate::result::{CallResult, Refusal, ResultKind};
use crate::tool::Effect;

use super::{Bar, End, PendingRecord, Run, Running, Stage, Step, Turn};

impl Run {
    pub(super) fn take_beginning(&self) -> Result<(), &'static str> {
        if self.created.limits.working_ms_max.is_none() || self.open_pending().is_some() {
            return Err("its working time is not counted, or it waits for a person");
        }
        Ok(())
    }

    pub(super) fn take_fit(&mut self, fitted: &ContextFitted) -> Result<(), &'static str> {
        if self.created.limits.window_tokens.is_none() || self.awaited_model().is_none_or(|ask| ask.fallback)
        {
            return Err("no request is being made, or it was made before");
        }
        if fitted.left_out <= self.left_out {
            return Err("what was left out stays out, and nothing is added to it");
        }
        self.left_out = fitted.left_out;
        Ok(())
    }

    pub(super) fn take_reply(&mut self, reply: &Arc<Reply>, closing: bool) -> Result<(), &'static str> {
        if self.awaited_model().is_none_or(|ask| ask.closing != closing) {
            return Err("no model was asked for this");
        }
        // The id of a call is the key of its result and of its idempotency: one call of the run, one id (R4).
        for call in &reply.calls {
            if self.call_ids.contains(&call.id) {
                return Err("two calls have one id");
            }
            self.call_ids.insert_mut(call.id.clone());
        }
        self.usage = self.usage.plus(reply.usage);
        self.failed_models = 0;
        self.last_failure = None;
        if closing || reply.calls.is_empty() {
            self.last_reply = Some(without_calls(reply));
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
        self.turn = Some(Turn { number, stages: vec![stage; reply.calls.len()], reply: Arc::clone(reply) });
        Ok(())
    }

    pub(super) fn take_model_failure(
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

    pub(super) fn take_question(&mut self, pending: &Pending, at: Timestamp) -> Result<(), &'static str> {
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
        self.ask(pending, at);
        Ok(())
    }

    pub(super) fn take_edit(&mut self, pending: &Pending, at: Timestamp) -> Result<(), &'static str> {
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
        self.ask(pending, at);
        Ok(())
    }

    pub(super) fn take_decision(
        &mut self,
        id: &PendingId,
        decided: &Decided,
        at: Timestamp,
    ) -> Result<(), &'static str> {
        let pending = self.asked(id)?;
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
                    Stage::Finished(Arc::new(CallResult::from_tool(kind, text, Vec::new(), 0)))
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

    pub(super) fn take_closing(
        &mut self,
        id: &PendingId,
        closing: Closing,
        at: Timestamp,
    ) -> Result<(), &'static str> {
        let pending = self.asked(id)?;
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

    pub(super) fn take_start(&mut self, started: &CallStarted) -> Result<(), &'static str> {
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

    pub(super) fn take_result(
        &mut self,
        call: &CallId,
        result: &Arc<CallResult>,
    ) -> Result<(), &'static str> {
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
        turn.stages[position] = Stage::Finished(Arc::clone(result));
        self.settle_turn();
        Ok(())
    }

    pub(super) fn take_unknown(&mut self, call: &CallId) -> Result<(), &'static str> {
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

    pub(super) fn take_limit(&mut self, limit: Limit, at: Timestamp) -> Result<(), &'static str> {
        let reached = match limit {
            Limit::MaxIterations | Limit::BudgetExhausted | Limit::RepeatedDenials | Limit::CutOff => {
                self.owes(&Event::LimitReached(LimitReached::of(limit)))
            }
            Limit::WorkingTime => {
                self.owes(&Event::LimitReached(LimitReached::of(limit))) || self.may_stop_for_time(at)
            }
            // Whether a request fits depends on what is offered in it, which the log does not hold.
            Limit::ContextExhausted => {
                self.created.limits.window_tokens.is_some()
                    && self.awaited_model().is_some_and(|ask| !ask.fallback)
            }
        };
        if !reached {
            return Err("this limit was not reached");
        }
        for stage in self.turn.iter_mut().flat_map(|turn| &mut turn.stages) {
            if !matches!(stage, Stage::Finished(_) | Stage::Barred(_)) {
                *stage = Stage::Barred(Bar::Limit(limit));
            }
        }
        self.limit = Some(limit);
        Ok(())
    }

    /// Whether the working time is used up at this moment, and nothing is in flight.
    pub fn may_stop_for_time(&self, at: Timestamp) -> bool {
        let in_flight = self.turn.iter().flat_map(|turn| &turn.stages).any(|stage| match stage {
            Stage::Running(_) | Stage::Unknown { .. } => true,
            Stage::Proposed
            | Stage::Held
            | Stage::AwaitingInput
            | Stage::Cleared(_)
            | Stage::Barred(_)
            | Stage::Finished(_) => false,
        });
        self.working_time_left(at).is_some_and(|left| left.is_zero())
            && matches!(self.limit, None | Some(Limit::MaxIterations))
            && !(in_flight || self.given_up || self.cancel.is_some() || self.last_reply.is_some())
    }

    pub(super) fn take_completion(
        &mut self,
        limit: Option<Limit>,
        at: Timestamp,
    ) -> Result<(), &'static str> {
        if !self.owes(&Event::RunCompleted(RunCompleted { limit })) {
            return Err("the run is not done");
        }
        self.end = Some(End::Completed { limit, at });
        Ok(())
    }

    pub(super) fn take_failure(&mut self, code: FailCode, at: Timestamp) -> Result<(), &'static str> {
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

    pub(super) fn take_cancellation(&mut self, by: &Subject, at: Timestamp) -> Result<(), &'static str> {
        let settled = self.turn.as_ref().is_none_or(|turn| {
            turn.stages.iter().all(|stage| matches!(stage, Stage::Finished(_) | Stage::Unknown { .. }))
        });
        if self.cancel.as_ref() != Some(by) || self.open_pending().is_some() || !settled {
            return Err("nobody asked for it, or something is still open");
        }
        self.end = Some(End::Cancelled { by: by.clone(), at });
        Ok(())
    }

    fn ask(&mut self, pending: &Pending, at: Timestamp) {
        self.pendings.push_back_mut(Arc::new(PendingRecord {
            pending: pending.clone(),
            status: PendingStatus::Open,
            opened_at: at,
            decided: None,
            settled_at: None,
        }));
    }

    /// The open question, if it is this one.
    fn asked(&self, id: &PendingId) -> Result<Pending, &'static str> {
        let open = self.open_pending().filter(|record| record.pending.id == *id);
        open.map(|record| record.pending.clone()).ok_or("it is not open")
    }

    fn close_open(&mut self, status: PendingStatus, decided: Option<Decided>, at: Timestamp) {
        let Some(open) = self.open_pending() else { return };
        let closed = PendingRecord {
            pending: open.pending.clone(),
            opened_at: open.opened_at,
            status,
            decided,
            settled_at: Some(at),
        };
        self.pendings.set_mut(self.pendings.len() - 1, Arc::new(closed));
    }

    pub(super) fn settle_turn(&mut self) {
        if self.turn.as_ref().is_some_and(Turn::is_finished)
            && let Some(turn) = self.turn.take()
        {
            self.history.push_back_mut(Arc::new(turn));
        }
    }
}

/// An answer whose calls are dropped (L1) is not what the provider sent any more: it is plain words.
fn without_calls(reply: &Arc<Reply>) -> Arc<Reply> {
    if reply.calls.is_empty() {
        return Arc::clone(reply);
    }
    Arc::new(Reply { calls: Vec::new(), opaque: Opaque::default(), ..(**reply).clone() })
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

pub(super) fn touched_pendings(event: &Event) -> Vec<PendingId> {
    match event {
        Event::PendingOpened(pending) => vec![pending.id.clone()],
        Event::PendingEdited(pending) => {
            pending.replaces.iter().cloned().chain([pending.id.clone()]).collect()
        }
        Event::PendingDecided(decided) => vec![decided.pending.clone()],
        Event::PendingClosed(closed) => vec![closed.pending.clone()],
        Event::RunCreated(_)
        | Event::GateDenied(_)
        | Event::WorkBegan(_)
        | Event::ContextFitted(_)
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
