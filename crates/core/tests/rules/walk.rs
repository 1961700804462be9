//! Walks through runs: a driver, a model, people and lost workers, all led by a tape of numbers, and now and
//! then somebody who writes nonsense into the log.

use countersign_core::*;

use crate::world::*;

/// Choices, one number after the other. Where it ends, every choice is the first, and the first is benign.
pub(crate) struct Tape<'a>(pub(crate) std::slice::Iter<'a, u16>);

impl Tape<'_> {
    pub(crate) fn pick(&mut self, of: usize) -> usize {
        self.0.next().map_or(0, |number| usize::from(*number) % of)
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.pick(choices.len())].clone()
    }

    /// One time in so many; never, when the tape has ended.
    pub(crate) fn rarely(&mut self, one_in: usize) -> bool {
        self.pick(one_in) == one_in - 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

pub(crate) struct Walk<'a> {
    pub(crate) story: Story,
    pub(crate) tape: Tape<'a>,
    names: u32,
}

/// Who drives: a worker that lives, or ever new ones that find calls they have not started.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Worker {
    Lives,
    IsLost,
}

const TOOLS: [&str; 9] = [
    "page_get",
    "page_drop",
    "pick_date",
    "page_save",
    "crm__find",
    "page_peek",
    "clock_now",
    "ghost",
    "mail_post",
];

impl<'a> Walk<'a> {
    pub(crate) fn new(tape: &'a [u16]) -> Self {
        let mut tape = Tape(tape.iter());
        let limits = RunLimits {
            tokens_max: tape.of(&[None, None, Some(9)]),
            working_ms_max: tape.of(&[None, None, Some(5_000)]),
            window_tokens: tape.of(&[None, None, None, Some(600)]),
            ..RunLimits::iterations(tape.of(&[20, 2, 3]))
        };
        let (unattended, second_approver) = (tape.rarely(5), tape.rarely(4));
        let created = Created { limits, unattended, second_approver, ..created() };
        Self { story: Story::of(created), tape, names: 0 }
    }

    /// On from a run that was reached elsewhere.
    pub(crate) fn from(story: Story) -> Walk<'static> {
        Walk { story, tape: Tape([].iter()), names: 1000 }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        self.names.to_string()
    }

    fn run(&self) -> &Run {
        &self.story.run
    }

    /// What somebody does about what is owed next. Empty: nobody does anything.
    pub(crate) fn owed(&mut self, worker: Worker) -> Vec<Event> {
        let (step, run) = (self.run().next(), self.run());
        if !matches!(step, Step::Park(_) | Step::Ended | Step::Record(_)) {
            let counts = run.created().limits.working_ms_max.is_some();
            if counts && (!run.is_worked_on() || self.tape.rarely(10)) {
                return vec![Event::WorkBegan(WorkBegan {})];
            }
            if self.run().may_stop_for_time(at(self.story.now)) {
                return vec![limit(Limit::WorkingTime)];
            }
        }
        match step {
            Step::Record(events) => events,
            Step::AskModel(ask) if ask.fallback => vec![self.model(&ask)],
            Step::AskModel(ask) => match Transcript::new(&[], self.run()).fitted(0) {
                Ok(Some(fitted)) => vec![Event::ContextFitted(fitted)],
                Ok(None) => vec![self.model(&ask)],
                Err(Exhausted { .. }) => vec![limit(Limit::ContextExhausted)],
            },
            Step::Judge => self.judge(),
            Step::OpenInput(call) => {
                vec![self.open(Question::Input { call, schema: date_schema(), message: String::new() })]
            }
            Step::OpenResolution(call) => vec![self.open(Question::Resolution { call, not_before: at(20) })],
            Step::Dispatch(calls) => self.dispatch(&calls),
            Step::Execute(calls) => {
                let events: Vec<Event> = calls.iter().map(|call| self.execute(call, worker)).collect();
                let end = events.iter().find(|event| matches!(event, Event::RunFailed(_))).cloned();
                end.map_or(events, |end| vec![end])
            }
            Step::Park(pending) => self.person(&pending),
            Step::Ended => Vec::new(),
        }
    }

    fn model(&mut self, ask: &Ask) -> Event {
        let kind = self.tape.pick(8);
        if kind == 7 {
            let code = ModelFailCode::ServerError;
            return Event::ModelFailed(ModelFailed {
                model: ask.model.clone(),
                code,
                status: Some(503),
                attempts: 1,
                usage: usage(0, 0, 0),
            });
        }
        let mut answer = reply(Some("text"), &[]);
        if kind > 0 {
            for _ in 0..self.tape.pick(3) + 1 {
                let name = self.name();
                let (tool, arguments) = (self.tape.of(&TOOLS), self.tape.of(&["{}", r#"{"id":1}"#, "no"]));
                answer.calls.extend(reply(None, &[(&name, tool, arguments)]).calls);
            }
            if self.tape.rarely(12)
                && let Some(id) = self.a_call()
            {
                answer.calls[0].id = id;
            }
        }
        if self.tape.rarely(6) {
            answer.finish = Finish::Length;
        }
        Event::ModelReplied(Box::new(ModelReplied { reply: answer.into(), closing: ask.closing }))
    }

    fn open(&mut self, question: Question) -> Event {
        let name = self.name();
        let expires_at = match question {
            Question::Resolution { .. } => Deadline::Never,
            _ => self.tape.of(&[Deadline::Never, Deadline::At(at(self.story.now + 2)), Deadline::Unreadable]),
        };
        let mut pending = Pending { expires_at, ..self.story.pending(&name, question) };
        for held in &mut pending.calls {
            if held.refusal().is_none()
                && held
                    .arguments
                    .as_ref()
                    .is_none_or(|it| self.story.run.was_denied(&held.tool, &it.canonical()))
            {
                held.outlook = Outlook::Refused(Refusal::AlreadyDenied);
            }
        }
        Event::PendingOpened(Box::new(pending))
    }

    fn judge(&mut self) -> Vec<Event> {
        let Some(turn) = self.run().turn() else { return Vec::new() };
        let mut calls = held(turn, &self.story.tools);
        let again = |held: &HeldCall| {
            held.arguments.as_ref().is_some_and(|it| self.run().was_denied(&held.tool, &it.canonical()))
        };
        calls.retain(|held| held.refusal().is_none() && held.arguments.is_some() && !again(held));
        let ids: Vec<CallId> = turn.calls().map(|state| state.call.id.clone()).collect();
        let input = calls
            .iter()
            .find(|held| matches!(held.outlook, Outlook::NeedsInput(_)))
            .map(|held| held.id.clone());
        match input {
            _ if self.run().created().unattended => self.dispatch(&ids),
            _ if calls.iter().any(|held| held.because().is_some()) => vec![self.open(Question::Approval)],
            Some(call) => {
                vec![self.open(Question::Input { call, schema: date_schema(), message: String::new() })]
            }
            None => self.dispatch(&ids),
        }
    }

    /// The first of the calls starts, or is refused; reads after it start along.
    fn dispatch(&mut self, calls: &[CallId]) -> Vec<Event> {
        let mut events = Vec::new();
        for id in calls {
            let Some(state) = self.run().turn().and_then(|turn| turn.call(id)) else { continue };
            let (name, known) = (
                state.call.name.clone(),
                self.story.tools.iter().any(|tool| tool.name.as_str() == state.call.name),
            );
            let arguments = Arguments::read(state.call.arguments.as_deref()).ok();
            let denied = arguments.as_ref().is_some_and(|it| self.run().was_denied(&name, &it.canonical()));
            let fresh = *state.stage == Stage::Proposed;
            let spec = self.story.tools.iter().find(|tool| tool.name.as_str() == name);
            let alone = !self.run().created().unattended || runs_unattended(spec);
            if !known || !alone || arguments.is_none() || (fresh && denied) || self.tape.rarely(9) {
                let refusal = if fresh && denied { Refusal::AlreadyDenied } else { Refusal::ToolDisabled };
                events.push(self.story.result(&short(id), CallResult::refused(refusal, &name, None)));
                continue;
            }
            let writes = self.story.effect_of(&name).writes();
            if writes && events.iter().any(|event| matches!(event, Event::CallStarted(_))) {
                break;
            }
            let Event::CallStarted(start) = self.story.starting(&short(id)) else { continue };
            events
                .push(Event::CallStarted(CallStarted { interruption: self.run().interruptions(), ..start }));
            if writes {
                break;
            }
        }
        events
    }

    fn execute(&mut self, id: &CallId, worker: Worker) -> Event {
        let lost = worker == Worker::IsLost || self.tape.rarely(5);
        let state = self
            .run()
            .turn()
            .and_then(|turn| turn.call(id))
            .map(|state| (state.call.name.clone(), state.stage.clone()));
        let Some((name, Stage::Running(running))) = state else { return cancel("alice") };
        if !lost {
            let kind = self.tape.of(&[ResultKind::Ok, ResultKind::Error, ResultKind::Timeout]);
            return self.story.result(&short(id), CallResult::from_tool(kind, "x", vec![], 1));
        }
        let hopeless = self.run().is_poisoned() || self.run().is_cancelled();
        match running.effect {
            Effect::Write => unknown(&short(id), &name),
            Effect::IdempotentWrite if hopeless => unknown(&short(id), &name),
            Effect::Read if hopeless => failed(FailCode::Poisoned),
            Effect::Read | Effect::IdempotentWrite => Event::CallStarted(CallStarted {
                call: id.clone(),
                tool: name,
                effect: running.effect,
                clearance: running.clearance,
                attempt: running.attempt + 1,
                interruption: self.run().interruptions() + 1,
                deadline: at(100),
            }),
        }
    }

    /// A person, or the sweeper, or nobody. Whatever `settle` says to store can be stored.
    fn person(&mut self, id: &PendingId) -> Vec<Event> {
        let Some(record) = self.run().pending(id).cloned() else { return Vec::new() };
        let (pending, digest) = (record.pending.clone(), record.pending.digest(&run_id()));
        match self.tape.pick(12) {
            9 => {
                return vec![closed(
                    id.as_str().trim_start_matches("pnd_"),
                    self.tape.of(&[Closing::Expired, Closing::Void]),
                )];
            }
            10 => return self.run().cancellation(&subject("alice"), at(self.story.now)).unwrap_or_default(),
            11 => return vec![self.edit(&pending)],
            _ => {}
        }
        let word = self.tape.of(&[CallVerdict::Approve, CallVerdict::Deny]);
        let said = match &pending.question {
            Question::Approval if self.tape.rarely(3) => {
                let verdicts = pending.asked().map(|call| call.id.clone()).collect::<Vec<_>>();
                let words = [CallVerdict::Approve, CallVerdict::Deny];
                Said::Calls {
                    verdicts: verdicts.into_iter().map(|call| (call, self.tape.of(&words))).collect(),
                    reason: None,
                }
            }
            Question::Input { .. } if word == CallVerdict::Approve => Said::Answer(args(r#"{"date":"x"}"#)),
            Question::Approval | Question::Input { .. } => Said::Turn { verdict: word, reason: None },
            Question::Resolution { .. } => {
                let outcomes =
                    [SettledOutcome::Happened, SettledOutcome::DidNotHappen, SettledOutcome::GiveUp];
                Said::Settle { outcome: self.tape.of(&outcomes), result: None }
            }
        };
        let by = subject(self.tape.of(&["root", "bob", "alice", "robo", "sue"]));
        let second_approver = self.tape.of(&[Some(false), Some(false), Some(true), None]);
        let people = people().into_iter().collect();
        let judgement = Judgement { second_approver, ..self.story.judge(&by, &people) };
        let events = match settle(&judgement, id, &Decision { digest, said }) {
            Ok(events) => events,
            Err((_, due)) => due.into_iter().collect(),
        };
        assert!(
            self.run().record(events.clone(), at(self.story.now)).is_ok(),
            "cannot be stored: {events:?}"
        );
        events
    }

    fn edit(&mut self, pending: &Pending) -> Event {
        let mut edited =
            Pending { id: pending_id(&self.name()), replaces: Some(pending.id.clone()), ..pending.clone() };
        edited.editors.push(subject("bob"));
        if let Some(held) = edited.calls.iter_mut().find(|held| held.because().is_some()) {
            held.original_arguments = held.arguments.replace(args(r#"{"edited":true}"#));
        }
        Event::PendingEdited(Box::new(edited))
    }

    fn a_call(&mut self) -> Option<CallId> {
        let turns = self.run().history().chain(self.run().turn());
        let ids: Vec<CallId> = turns.flat_map(Turn::calls).map(|state| state.call.id.clone()).collect();
        (!ids.is_empty()).then(|| self.tape.of(&ids))
    }

    /// Any event at all, about things that exist or do not.
    pub(crate) fn nonsense(&mut self) -> Event {
        let known = self.a_call().unwrap_or_else(|| call_id("none"));
        let turns = self.run().history().chain(self.run().turn());
        let names: Vec<String> = turns.flat_map(Turn::calls).map(|state| state.call.name.clone()).collect();
        let tool = if names.is_empty() { "page_get".to_owned() } else { self.tape.of(&names) };
        let pendings: Vec<PendingId> =
            self.run().pendings().map(|record| record.pending.id.clone()).collect();
        let pending = if pendings.is_empty() { pending_id("none") } else { self.tape.of(&pendings) };
        let call = short(&known);
        let clearance = self.tape.of(&[
            Clearance::NotNeeded,
            Clearance::Approved(pending.clone()),
            Clearance::Answered(pending.clone()),
        ]);
        let effect = self.tape.of(&[Effect::Read, Effect::IdempotentWrite, Effect::Write]);
        match self.tape.pick(20) {
            0 => self.tape.of(&self.story.log.clone()).event,
            1 | 2 => {
                let Event::CallStarted(start) = started(&call, &tool, effect, clearance, 1) else {
                    return cancel("sue");
                };
                let (attempt, interruption) = (self.tape.of(&[1, 2, 3]), self.tape.of(&[0, 1, 2]));
                Event::CallStarted(CallStarted { attempt, interruption, ..start })
            }
            3 | 4 => {
                use ResultKind::{Cancelled, Denied, Error, Expired, NotRun, Ok as Fine, Refused};
                let kind = self.tape.of(&[Fine, Error, Denied, Expired, NotRun, Refused, Cancelled]);
                self.story.result(&call, CallResult::not_from_tool(kind, "x"))
            }
            5 => unknown(&call, &tool),
            6 => limit(self.tape.of(&[
                Limit::MaxIterations,
                Limit::BudgetExhausted,
                Limit::WorkingTime,
                Limit::ContextExhausted,
                Limit::RepeatedDenials,
                Limit::CutOff,
            ])),
            7 if self.tape.rarely(4) => cancel("alice"),
            8 if self.tape.rarely(4) => failed(FailCode::AgentGone),
            9 => completed(self.tape.of(&[None, Some(Limit::MaxIterations), Some(Limit::CutOff)])),
            10 => Event::RunCancelled(RunCancelled { by: subject("alice") }),
            11 => {
                let status = self.tape.of(&[Closing::Expired, Closing::Void, Closing::Withdrawn]);
                Event::PendingClosed(PendingClosed { pending, status, by: None })
            }
            12 => self.model(&Ask { model: created().models[1].clone(), closing: true, fallback: true }),
            // What would be right at another time: a start out of order, and one more start of what has begun.
            14 | 15 => {
                let calls = self.run().turn().into_iter().flat_map(Turn::calls);
                let calls: Vec<String> = calls.map(|state| short(&state.call.id)).collect();
                if calls.is_empty() { completed(None) } else { self.story.starting(&self.tape.of(&calls)) }
            }
            16 | 17 => {
                let starts = self.story.log.iter().rev().find_map(|entry| match &entry.event {
                    Event::CallStarted(start) => Some(start.clone()),
                    _ => None,
                });
                starts.map_or_else(
                    || limit(Limit::CutOff),
                    |start| Event::CallStarted(CallStarted { attempt: start.attempt + 1, ..start }),
                )
            }
            18 => Event::WorkBegan(WorkBegan {}),
            13 => self.model(&Ask { model: created().models[0].clone(), closing: false, fallback: false }),
            _ => {
                use VerdictWord::{Answer, Approve, Deny, DidNotHappen, GiveUp, Happened, Mixed};
                let verdict = self.tape.of(&[Approve, Deny, Mixed, Answer, Happened, DidNotHappen, GiveUp]);
                let word = self.tape.of(&[CallVerdict::Approve, CallVerdict::Deny]);
                let calls = self
                    .run()
                    .turn()
                    .into_iter()
                    .flat_map(Turn::calls)
                    .map(|state| (state.call.id.clone(), word));
                let mut calls: std::collections::BTreeMap<_, _> = calls.collect();
                if self.tape.rarely(2) {
                    calls.pop_first();
                }
                let form = self.tape.of(&[Form::Turn, Form::Calls]);
                let answer = self.tape.of(&[None, Some(args("{}"))]);
                let (by, attribution) = (subject("bob"), Attribution::SecondPerson);
                let decided =
                    Decided { by, verdict, form, calls, reason: None, attribution, answer, result: None };
                Event::PendingDecided(Box::new(PendingDecided { pending, decided }))
            }
        }
    }
}
