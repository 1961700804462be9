//! Reads a log beside the fold and checks, event by event, what the rules promise about starting calls:
//! nothing starts unless the last word on it was "yes", and nothing that is finished starts again.
//!
//! It knows the text of the rules and the events, and nothing of how the fold is written.

use std::collections::BTreeMap;

use countersign_core::*;

/// What a call waits for before it may start.
#[derive(Clone, Debug, PartialEq)]
enum Needs {
    Nobody,
    Approval,
    Input,
    /// It never runs: refused, denied, expired, or its turn has ended.
    Never,
}

#[derive(Clone, Debug)]
struct Seen {
    needs: Needs,
    /// What a person said yes with.
    yes: Option<Clearance>,
    /// The effect of its starts, and how many there were.
    started: Option<(Effect, u32)>,
    running: bool,
    unknown: bool,
    done: bool,
}

const FRESH: Seen =
    Seen { needs: Needs::Nobody, yes: None, started: None, running: false, unknown: false, done: false };

#[derive(Clone, Debug, Default)]
pub(crate) struct Auditor {
    calls: BTreeMap<CallId, Seen>,
    turn: Vec<CallId>,
    question: Option<Pending>,
    /// Whether a question was asked about the current turn.
    asked: bool,
    cancelled: bool,
    limited: bool,
    ended: bool,
    unattended: bool,
}

/// Fails with a sentence where the rules forbid what has happened.
macro_rules! demand {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err(format!($($sentence)+));
        }
    };
}

impl Auditor {
    pub(crate) fn see(&mut self, entry: &Entry) -> Result<(), String> {
        demand!(!self.ended || matches!(entry.event, Event::PendingRefused(_)), "something after the end");
        match &entry.event {
            Event::RunCreated(created) => self.unattended = created.unattended,
            Event::GateDenied(_)
            | Event::PendingRefused(_)
            | Event::ModelFailed(_)
            | Event::WorkBegan(_)
            | Event::ContextFitted(_) => {}
            Event::ModelReplied(replied) => self.replied(replied)?,
            Event::PendingOpened(pending) => {
                demand!(self.question.is_none(), "two questions at once");
                self.ask(pending)?;
            }
            Event::PendingEdited(pending) => {
                demand!(self.question.is_some(), "an edit of nothing");
                self.ask(pending)?;
            }
            Event::PendingDecided(decided) => self.decided(&decided.pending, &decided.decided, entry.at)?,
            Event::PendingClosed(closed) => {
                let question = self.question.take().ok_or("nothing to close")?;
                demand!(question.id == closed.pending, "another question was closed");
                demand!(closed.status != Closing::Withdrawn || self.cancelled, "withdrawn by nobody");
                if closed.status != Closing::Withdrawn {
                    self.bar_all();
                }
            }
            Event::CallStarted(started) => self.started(started)?,
            Event::CallFinished(finished) => {
                demand!(self.question.is_none(), "a result while a question is open");
                let call = self.calls.get_mut(&finished.call).ok_or("a result of no call")?;
                demand!(!call.done && !call.unknown, "a second result");
                let ran =
                    matches!(finished.result.kind, ResultKind::Ok | ResultKind::Error | ResultKind::Timeout);
                demand!(!ran || call.running, "a tool's answer to a call that does not run");
                (call.done, call.running) = (true, false);
            }
            Event::CallUnknown(unknown) => {
                let call = self.calls.get_mut(&unknown.call).ok_or("an unknown call that does not exist")?;
                demand!(
                    call.running && call.started.is_some_and(|(effect, _)| effect != Effect::Read),
                    "an unknown read"
                );
                (call.unknown, call.running) = (true, false);
                self.bar_all();
            }
            Event::LimitReached(_) => {
                self.limited = true;
                self.bar_all();
            }
            Event::CancelRequested(_) => self.cancelled = true,
            Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) => {
                demand!(self.question.is_none(), "an end with a question open");
                let writes = |call: &Seen| {
                    call.running && call.started.is_some_and(|(effect, _)| effect != Effect::Read)
                };
                demand!(!self.calls.values().any(writes), "an end with a write in flight");
                self.ended = true;
            }
        }
        Ok(())
    }

    fn replied(&mut self, replied: &ModelReplied) -> Result<(), String> {
        demand!(self.question.is_none() && !self.cancelled, "a reply while the run waits or stops");
        demand!(self.turn.iter().all(|id| self.calls[id].done), "a reply before the last turn was answered");
        if replied.closing {
            return Ok(());
        }
        demand!(!self.limited, "another turn after a limit");
        let cut = replied.reply.finish == Finish::Length;
        self.asked = false;
        self.turn = replied.reply.calls.iter().map(|call| call.id.clone()).collect();
        for id in &self.turn {
            let needs = if cut { Needs::Never } else { Needs::Nobody };
            demand!(self.calls.insert(id.clone(), Seen { needs, ..FRESH }).is_none(), "an id twice");
        }
        Ok(())
    }

    fn ask(&mut self, pending: &Pending) -> Result<(), String> {
        demand!(
            !self.cancelled && !self.limited && !self.unattended,
            "a question where nothing can be asked"
        );
        demand!(pending.calls.iter().map(|call| &call.id).eq(&self.turn), "a question about half a turn");
        let resolves = matches!(pending.question, Question::Resolution { .. });
        if !resolves && (!self.asked || pending.question == Question::Approval) {
            for held in &pending.calls {
                let call = self.calls.get_mut(&held.id).ok_or("a held call that does not exist")?;
                demand!(call.started.is_none() && !call.done, "a turn was held after it had begun");
                call.needs = match &held.outlook {
                    Outlook::Runs => Needs::Nobody,
                    Outlook::NeedsApproval(_) => Needs::Approval,
                    Outlook::NeedsInput(_) => Needs::Input,
                    Outlook::Refused(_) => Needs::Never,
                };
            }
        }
        self.asked = true;
        self.question = Some(pending.clone());
        Ok(())
    }

    fn decided(&mut self, id: &PendingId, decided: &Decided, at: jiff::Timestamp) -> Result<(), String> {
        let pending = self.question.take().ok_or("a decision on nothing")?;
        demand!(pending.id == *id, "a decision on another question");
        let late = match pending.expires_at {
            Deadline::Never => false,
            Deadline::At(deadline) => at > deadline,
            Deadline::Unreadable => true,
        };
        match &pending.question {
            Question::Resolution { call, .. } => {
                let call = self.calls.get_mut(call).ok_or("a resolution of no call")?;
                demand!(call.unknown, "a resolution of a known call");
                call.done = decided.verdict != VerdictWord::GiveUp;
                call.unknown = !call.done;
            }
            _ if late => self.bar_all(),
            Question::Input { call, .. } => {
                let call = self.calls.get_mut(call).ok_or("an input of no call")?;
                match decided.verdict {
                    VerdictWord::Answer => call.yes = Some(Clearance::Answered(id.clone())),
                    _ => call.needs = Needs::Never,
                }
            }
            Question::Approval => {
                if decided.form == Form::Turn && decided.verdict == VerdictWord::Deny {
                    self.bar_all();
                }
                for (id, verdict) in &decided.calls {
                    let call = self.calls.get_mut(id).ok_or("a word on no call")?;
                    demand!(
                        call.needs == Needs::Approval || call.needs == Needs::Never,
                        "a word on a call that needs none"
                    );
                    match verdict {
                        CallVerdict::Approve => call.yes = Some(Clearance::Approved(pending.id.clone())),
                        CallVerdict::Deny => call.needs = Needs::Never,
                    }
                }
            }
        }
        Ok(())
    }

    fn started(&mut self, started: &CallStarted) -> Result<(), String> {
        demand!(self.question.is_none(), "a start while a question is open");
        demand!(!self.cancelled && !self.limited, "a start after a cancel or a limit");
        let place =
            self.turn.iter().position(|id| *id == started.call).ok_or("a start outside of the turn")?;
        let call = &self.calls[&started.call];
        demand!(!call.done && !call.unknown, "a start of a call that is over");
        let cleared = match call.needs {
            Needs::Nobody => started.clearance == Clearance::NotNeeded,
            Needs::Approval | Needs::Input => call.yes.as_ref() == Some(&started.clearance),
            Needs::Never => false,
        };
        demand!(cleared, "a start without its clearance: {:?} for {call:?}", started.clearance);
        let attempts = match call.started {
            None => 0,
            Some((effect, attempts)) => {
                demand!(
                    effect != Effect::Write && effect == started.effect && call.running,
                    "a write was started twice"
                );
                attempts
            }
        };
        demand!(started.attempt == attempts + 1, "an attempt out of order");
        let waits = |id: &CallId| {
            self.calls[id].needs == Needs::Input && self.calls[id].yes.is_none() && !self.calls[id].done
        };
        demand!(!self.turn.iter().any(waits), "a start before all questions were settled");
        let earlier = &self.turn[..place];
        demand!(
            earlier.iter().all(|id| self.calls[id].done || self.calls[id].running),
            "a start out of order"
        );
        let writing = |id: &&CallId| {
            let other = &self.calls[*id];
            **id != started.call
                && other.running
                && (started.effect != Effect::Read || other.started.is_some_and(|(it, _)| it != Effect::Read))
        };
        demand!(self.turn.iter().find(writing).is_none(), "a write beside another call");
        let call = self.calls.get_mut(&started.call).ok_or("a start of no call")?;
        (call.started, call.running) = (Some((started.effect, attempts + 1)), true);
        Ok(())
    }

    /// Whatever of the turn is not over never runs.
    fn bar_all(&mut self) {
        for id in &self.turn {
            if let Some(call) = self.calls.get_mut(id)
                && !call.done
                && !call.running
            {
                call.needs = Needs::Never;
            }
        }
    }
}
