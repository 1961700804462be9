//! A small world: some tools, some people, and a run that is told what happens to it.

use std::collections::BTreeMap;

use countersign_core::*;
use serde_json::{Value, json};

/// A moment, in seconds.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) use jiff::Timestamp;

pub(crate) fn subject(name: &str) -> Subject {
    Subject::parse(name).unwrap()
}

pub(crate) fn call_id(name: &str) -> CallId {
    CallId::parse(&format!("call_{name}")).unwrap()
}

pub(crate) fn pending_id(name: &str) -> PendingId {
    PendingId::parse(&format!("pnd_{name}")).unwrap()
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("run_1").unwrap()
}

pub(crate) fn args(text: &str) -> Arguments {
    Arguments::read(Some(text)).unwrap()
}

/// A local tool without a marker, switched on, open to everybody.
pub(crate) fn tool(name: &str, group: &str, effect: Effect) -> ToolSpec {
    ToolSpec {
        name: ToolName::parse(name).unwrap(),
        description: format!("the tool {name}"),
        group: GroupName::parse(group).unwrap(),
        origin: Origin::Http,
        effect,
        data_class: DataClass::EditorContent,
        enabled_by_default: true,
        requires_admin: false,
        pause: Pause::Runs,
        operator: OperatorWord::Silent,
        parameters: json!({"type": "object"}),
    }
}

pub(crate) fn remote(name: &str, effect: Effect, approval: RemoteApproval) -> ToolSpec {
    let server = ServerName::parse("crm").unwrap();
    ToolSpec {
        origin: Origin::Mcp { server, remote_name: name.to_owned(), approval },
        ..tool(&format!("crm__{name}"), "mcp.crm", effect)
    }
}

pub(crate) fn date_schema() -> Value {
    json!({"type": "object", "properties": {"date": {"type": "string"}}})
}

/// Reads, writes, a repeatable write, an admin's write, an input, a marked read and three remote tools.
pub(crate) fn tools() -> Vec<ToolSpec> {
    vec![
        tool("page_get", "content", Effect::Read),
        tool("clock_now", "system", Effect::Read),
        tool("page_drop", "content", Effect::Write),
        tool("mail_post", "mail", Effect::Write),
        tool("page_save", "content", Effect::IdempotentWrite),
        ToolSpec { requires_admin: true, ..tool("key_roll", "system", Effect::Write) },
        ToolSpec { pause: Pause::NeedsInput(date_schema()), ..tool("pick_date", "system", Effect::Read) },
        ToolSpec { pause: Pause::Asks, ..tool("page_peek", "content", Effect::Read) },
        remote("lookup", Effect::Write, RemoteApproval::Undeclared),
        remote("find", Effect::Write, RemoteApproval::NotRequired),
        remote("purge", Effect::Read, RemoteApproval::Required),
    ]
}

/// Alice owns the runs; bob may approve, root is an admin, robo and sue are a program and a stranger.
pub(crate) fn people() -> Vec<Principal> {
    let service = |name| Principal::service(subject(name), Scope::ALL.into_iter().collect());
    vec![
        Principal::user(subject("alice")),
        Principal::user(subject("sue")),
        Principal::approver(subject("bob")),
        Principal::admin(subject("root")),
        service("robo"),
    ]
}

pub(crate) fn created() -> Created {
    Created {
        agent: AgentName::parse("default").unwrap(),
        owner: subject("alice"),
        starter: subject("alice"),
        unattended: false,
        tools: ToolRequest::AllEnabled,
        models: vec![ModelRef::parse("p/m").unwrap(), ModelRef::parse("q/n").unwrap()],
        system_prompt: Some("You look after the pages.".to_owned()),
        input: vec![InputMessage { role: InputRole::User, text: "tidy up".to_owned() }],
        limits: RunLimits::iterations(20),
        approval_ttl_s: None,
        second_approver: false,
        continues: None,
        skills: Vec::new(),
        trace: None,
    }
}

pub(crate) fn usage(input: u64, output: u64, cached: u64) -> Usage {
    Usage { input_tokens: input, output_tokens: output, cached_input_tokens: cached, unknown_calls: 0 }
}

/// What a model says: text, and calls as (id, tool, arguments).
pub(crate) fn reply(text: Option<&str>, calls: &[(&str, &str, &str)]) -> Reply {
    let proposed = |&(id, name, arguments): &(&str, &str, &str)| ProposedCall {
        id: call_id(id),
        wire_id: Some(format!("wire-{id}")),
        name: name.to_owned(),
        arguments: Some(arguments.to_owned()),
        opaque: Opaque::default(),
    };
    Reply {
        provider: ProviderName::parse("p").unwrap(),
        model: "m".to_owned(),
        text: text.map(str::to_owned),
        calls: calls.iter().map(proposed).collect(),
        finish: Finish::Stop,
        usage: usage(1, 1, 0),
        attempts: 1,
        opaque: Opaque::default(),
    }
}

pub(crate) fn replied(reply: Reply) -> Event {
    Event::ModelReplied(Box::new(ModelReplied { reply: reply.into(), closing: false }))
}

/// The turn as a question shows it, judged by A1 alone.
pub(crate) fn held(turn: &Turn, tools: &[ToolSpec]) -> Vec<HeldCall> {
    turn.calls().map(|state| held_call(state.call, tools)).collect()
}

fn held_call(call: &ProposedCall, tools: &[ToolSpec]) -> HeldCall {
    let spec = tools.iter().find(|tool| tool.name.as_str() == call.name);
    let outlook = match (spec, needs_approval(spec)) {
        (None, _) => Outlook::Refused(Refusal::UnknownTool),
        (Some(_), Some(because)) => Outlook::NeedsApproval(because),
        (Some(ToolSpec { pause: Pause::NeedsInput(schema), .. }), None) => {
            Outlook::NeedsInput(schema.clone())
        }
        (Some(_), None) => Outlook::Runs,
    };
    HeldCall {
        id: call.id.clone(),
        tool: call.name.clone(),
        facts: spec.map(|spec| HeldFacts {
            group: spec.group.clone(),
            origin: spec.origin.clone(),
            effect: spec.effect,
            requires_admin: spec.requires_admin,
            definition: spec.definition_hash(),
        }),
        arguments: Arguments::read(call.arguments.as_deref()).ok(),
        original_arguments: None,
        outlook,
        preview: None,
    }
}

/// A run and what is told to it. An event that does not fit fails the test, unless it was said to.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) run: Run,
    pub(crate) log: Vec<Entry>,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) now: i64,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self::of(created())
    }

    pub(crate) fn of(created: Created) -> Self {
        let (run, changes) = Run::create(run_id(), created, Vec::new(), at(0)).unwrap();
        let log = vec![Entry { seq: 0, at: at(0), event: changes.events()[0].clone() }];
        Self { run, log, tools: tools(), now: 0 }
    }

    /// The tool of this name is another one from now on.
    pub(crate) fn redeclare(&mut self, spec: ToolSpec) {
        let place = self.tools.iter().position(|tool| tool.name == spec.name).unwrap();
        self.tools[place] = spec;
    }

    pub(crate) fn entry(&self, event: Event) -> Entry {
        Entry { seq: self.run.revision(), at: at(self.now), event }
    }

    pub(crate) fn tell(&mut self, event: Event) -> &mut Self {
        let entry = self.entry(event);
        self.run = self.run.apply(&entry).unwrap_or_else(|illegal| panic!("{illegal}: {:?}", entry.event));
        self.log.push(entry);
        self
    }

    pub(crate) fn tell_all(&mut self, events: Vec<Event>) -> &mut Self {
        for event in events {
            self.tell(event);
        }
        self
    }

    /// The event does not fit, and the run is as it was.
    pub(crate) fn refuses(&self, event: Event) -> &Self {
        let before = format!("{:?}", self.run);
        let entry = self.entry(event);
        let refused = self.run.apply(&entry);
        assert!(refused.is_err(), "{:?} was taken by {:?}", entry.event, self.run.next());
        assert_eq!(format!("{:?}", self.run), before);
        self
    }

    /// Records what follows from the log alone, until something else is owed.
    pub(crate) fn follow(&mut self) -> Step {
        loop {
            match self.run.next() {
                Step::Record(events) => self.tell_all(events),
                other => return other,
            };
        }
    }

    /// The model answers with calls; none of them is judged yet.
    pub(crate) fn calls(&mut self, calls: &[(&str, &str, &str)]) -> &mut Self {
        self.tell(replied(reply(None, calls)))
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.tell(replied(reply(Some(text), &[])))
    }

    pub(crate) fn pending(&self, name: &str, question: Question) -> Pending {
        let turn = self.run.turn().unwrap();
        let shown = self.run.pendings().filter(|record| record.pending.turn == turn.number()).last();
        Pending {
            id: pending_id(name),
            turn: turn.number(),
            question,
            calls: shown.map_or_else(|| held(turn, &self.tools), |record| record.pending.calls.clone()),
            expires_at: Deadline::Never,
            editors: Vec::new(),
            replaces: None,
            trace: None,
        }
    }

    pub(crate) fn open(&mut self, pending: Pending) -> &mut Self {
        self.tell(Event::PendingOpened(Box::new(pending)))
    }

    /// The turn is held by an approval that never expires.
    pub(crate) fn ask(&mut self, name: &str) -> &mut Self {
        self.open(self.pending(name, Question::Approval))
    }

    pub(crate) fn ask_input(&mut self, name: &str, call: &str) -> &mut Self {
        let question =
            Question::Input { call: call_id(call), schema: date_schema(), message: "When?".to_owned() };
        self.open(self.pending(name, question))
    }

    /// The write whose outcome is unknown is asked about; it may be said not to have happened from second 100.
    pub(crate) fn ask_outcome(&mut self, name: &str, call: &str) -> &mut Self {
        self.open(self.pending(name, Question::Resolution { call: call_id(call), not_before: at(100) }))
    }

    pub(crate) fn judge<'a>(&'a self, by: &'a Subject, people: &'a People) -> Judgement<'a> {
        Judgement {
            run: &self.run,
            by,
            people,
            tools: &self.tools,
            second_approver: Some(false),
            now: at(self.now),
            problems: &[],
        }
    }

    pub(crate) fn digest(&self, name: &str) -> Digest {
        self.run.pending(&pending_id(name)).unwrap().pending.digest(&run_id())
    }

    /// Somebody says something about the pending, and it is stored.
    pub(crate) fn say(&mut self, by: &str, name: &str, said: Said) -> &mut Self {
        let decision = Decision { digest: self.digest(name), said };
        let (by, people) = (subject(by), people().into_iter().collect());
        let settled = settle(&self.judge(&by, &people), &pending_id(name), &decision);
        self.tell_all(settled.unwrap_or_else(|refused| panic!("{refused:?}")))
    }

    pub(crate) fn approve(&mut self, by: &str, name: &str) -> &mut Self {
        self.say(by, name, Said::Turn { verdict: CallVerdict::Approve, reason: None })
    }

    pub(crate) fn deny(&mut self, by: &str, name: &str) -> &mut Self {
        self.say(by, name, Said::Turn { verdict: CallVerdict::Deny, reason: Some("wrong page".to_owned()) })
    }

    pub(crate) fn verdicts(&mut self, by: &str, name: &str, words: &[(&str, CallVerdict)]) -> &mut Self {
        self.say(by, name, Said::Calls { verdicts: words_on(words), reason: None })
    }

    pub(crate) fn start(&mut self, call: &str) -> &mut Self {
        self.tell(self.starting(call))
    }

    /// The first start of a call, on what the run says it was cleared by.
    pub(crate) fn starting(&self, call: &str) -> Event {
        let state = self.run.turn().unwrap().call(&call_id(call)).unwrap();
        let clearance = match state.stage {
            Stage::Cleared(clearance) => clearance.clone(),
            _ => Clearance::NotNeeded,
        };
        started(call, &state.call.name, self.effect_of(&state.call.name), clearance, 1)
    }

    pub(crate) fn effect_of(&self, name: &str) -> Effect {
        self.tools.iter().find(|tool| tool.name.as_str() == name).map_or(Effect::Write, |tool| tool.effect)
    }

    pub(crate) fn finish(&mut self, call: &str) -> &mut Self {
        self.tell(
            self.result(call, CallResult::from_tool(ResultKind::Ok, format!("result of {call}"), vec![], 5)),
        )
    }

    pub(crate) fn result(&self, call: &str, result: CallResult) -> Event {
        let tool =
            self.run.turn().and_then(|turn| turn.call(&call_id(call)).map(|state| state.call.name.clone()));
        let tool = tool.unwrap_or_default();
        Event::CallFinished(Box::new(CallFinished::new(call_id(call), tool, result)))
    }

    /// All results of the finished turns, as (call, kind, refusal).
    pub(crate) fn results(&self) -> Vec<(String, ResultKind, Option<Refusal>)> {
        let calls = self.run.history().flat_map(Turn::calls);
        calls
            .filter_map(|state| {
                result_of(state.stage).map(|result| (short(&state.call.id), result.kind, result.refusal))
            })
            .collect()
    }

    /// The kinds of all results of the finished turns.
    pub(crate) fn kinds(&self) -> Vec<ResultKind> {
        self.results().into_iter().map(|(_, kind, _)| kind).collect()
    }

    pub(crate) fn content_of(&self, call: &str) -> String {
        let calls = self.run.history().flat_map(Turn::calls);
        let found =
            calls.filter(|state| state.call.id == call_id(call)).find_map(|state| result_of(state.stage));
        found.map(|result| result.content.clone()).unwrap()
    }

    pub(crate) fn status(&self, name: &str) -> PendingStatus {
        self.run.pending(&pending_id(name)).unwrap().status
    }
}

pub(crate) fn short(id: &CallId) -> String {
    id.as_str().trim_start_matches("call_").to_owned()
}

pub(crate) fn result_of(stage: &Stage) -> Option<&CallResult> {
    match stage {
        Stage::Finished(result) => Some(result),
        _ => None,
    }
}

pub(crate) fn words_on(words: &[(&str, CallVerdict)]) -> BTreeMap<CallId, CallVerdict> {
    words.iter().map(|(call, verdict)| (call_id(call), *verdict)).collect()
}

pub(crate) fn started(call: &str, tool: &str, effect: Effect, clearance: Clearance, attempt: u32) -> Event {
    Event::CallStarted(CallStarted {
        call: call_id(call),
        tool: tool.to_owned(),
        effect,
        clearance,
        attempt,
        interruption: attempt - 1,
        deadline: at(100),
    })
}

pub(crate) fn unknown(call: &str, tool: &str) -> Event {
    Event::CallUnknown(CallUnknown { call: call_id(call), tool: tool.to_owned(), detail: None })
}

pub(crate) fn cancel(by: &str) -> Event {
    Event::CancelRequested(CancelRequested { by: subject(by) })
}

pub(crate) fn limit(which: Limit) -> Event {
    Event::LimitReached(LimitReached::of(which))
}

pub(crate) fn failed(code: FailCode) -> Event {
    Event::RunFailed(RunFailed { code })
}

pub(crate) fn completed(limit: Option<Limit>) -> Event {
    Event::RunCompleted(RunCompleted { limit })
}

pub(crate) fn closed(name: &str, status: Closing) -> Event {
    Event::PendingClosed(PendingClosed { pending: pending_id(name), status, by: None })
}
