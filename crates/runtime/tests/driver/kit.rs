//! What the tests share: a little installation with people, tools and a clock that stands still.

mod between;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{Behaviour, Ledger, ManualClock, RecordingTool};
use countersign::{
    Agent, AgentName, Agents, AnyTool, Arguments, CallContext, CallId, CallResult, Decision, Effect, End,
    Enforcement, Event, GroupName, GroupSetting, InputMessage, InputRole, Limit, Limits, MemoryStore,
    ModelRef, Models, OperatorWord, Origin, Outcome, Parts, Pause, PendingRecord, PendingStatus, Principal,
    Provider, ProviderName, Refusal, Registry, RemoteApproval, ResultKind, Run, RunId, RunLimits, RunRequest,
    RunState, Runtime, Scope, ServerName, Stage, Store, Subject, SwitchName, Tool, ToolError, ToolName,
    ToolOutput, ToolRequest, ToolSpec, Waiting, Zone,
};
use serde_json::{Value, json};

pub(crate) use between::{Between, Cut, Lost};
pub(crate) use witness::{ByTurn, Sent, Witness};

/// How long a silent worker keeps a run here.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How often a waiting driver looks around here.
pub(crate) const POLL: Duration = Duration::from_secs(1);

pub(crate) fn subject(name: &str) -> Subject {
    Subject::parse(name).unwrap()
}

/// The owner of the runs.
pub(crate) fn alice() -> Subject {
    subject("alice")
}

/// Somebody who may decide on everything.
pub(crate) fn bob() -> Subject {
    subject("bob")
}

/// An administrator.
pub(crate) fn root() -> Subject {
    subject("root")
}

/// A program that may decide.
pub(crate) fn robot() -> Subject {
    subject("robot")
}

pub(crate) fn agent_name() -> AgentName {
    AgentName::parse("default").unwrap()
}

pub(crate) fn model_ref(provider: &str) -> ModelRef {
    ModelRef { provider: ProviderName::parse(provider).unwrap(), model: "m".to_owned() }
}

/// An installation. Building a runtime of it twice is what a restart looks like: only the store stays.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) clock: ManualClock,
    pub(crate) memory: Arc<MemoryStore>,
    /// What the runtime sees as its store.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Ledger,
    pub(crate) witness: Witness,
    pub(crate) models: Models,
    pub(crate) agent: Agent,
    pub(crate) tools: Vec<AnyTool>,
    pub(crate) limits: Limits,
    pub(crate) enforcement: Enforcement,
}

impl Bed {
    /// One model that `witness` listens to, these tools, and four people.
    pub(crate) async fn new(witness: Witness, tools: impl FnOnce(&Ledger) -> Vec<AnyTool>) -> Self {
        let memory = Arc::new(MemoryStore::new([3; 32]));
        let ledger = Ledger::default();
        let robot = Principal::service(robot(), Scope::ALL.into_iter().collect());
        for person in [Principal::user(alice()), Principal::approver(bob()), Principal::admin(root()), robot]
        {
            memory.put_principal(&person).await.unwrap();
        }
        let provider = Provider { zone: Zone::Local, client: Arc::new(witness.clone()) };
        Self {
            clock: ManualClock::default(),
            store: Arc::clone(&memory) as Arc<dyn Store>,
            memory,
            tools: tools(&ledger),
            ledger,
            models: Models::default().with(ProviderName::parse("p").unwrap(), provider),
            witness,
            agent: Agent {
                name: agent_name(),
                models: vec![model_ref("p")],
                system_prompt: Some("You look after the pages.".to_owned()),
                groups: GroupSetting::Unrestricted,
                skills: Vec::new(),
                limits: RunLimits::iterations(20),
                approval_ttl: None,
                second_approver: false,
            },
            limits: Limits { lease: LEASE, parallel_reads: 4, poll: POLL },
            enforcement: Enforcement::Enforce,
        }
    }

    /// A process of this installation.
    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::new(Parts {
            store: Arc::clone(&self.store),
            models: self.models.clone(),
            tools: Registry::new(self.tools.clone()).unwrap(),
            agents: Agents::new(self.enforcement, [self.agent.clone()]),
            limits: self.limits,
            clock: Arc::new(self.clock.clone()),
        })
    }

    /// Puts something between the processes and the store.
    pub(crate) fn between(&mut self) -> Between {
        let between = Between::new(Arc::clone(&self.memory) as Arc<dyn Store>);
        self.store = Arc::new(between.clone());
        between
    }

    /// Starts a run and drives it to its first stop.
    pub(crate) async fn run(&self) -> Outcome {
        self.runtime().run(request()).await.unwrap()
    }

    /// The same, for a run that must wait.
    pub(crate) async fn waiting(&self) -> Waiting {
        waiting(self.run().await)
    }

    /// Approves what waits, as somebody who may, and drives on.
    pub(crate) async fn approve(&self, waiting: &Waiting) -> Outcome {
        self.decide(waiting, Decision::approve(waiting.digest), &bob()).await
    }

    /// Decides and drives on.
    pub(crate) async fn decide(&self, waiting: &Waiting, decision: Decision, by: &Subject) -> Outcome {
        let runtime = self.runtime();
        runtime.decide(&waiting.id, decision, by).await.unwrap();
        runtime.drive(waiting.run.id()).await.unwrap()
    }

    pub(crate) async fn tool_switch(&self, name: &str, enabled: Option<bool>) {
        let name = SwitchName::Tool(ToolName::parse(name).unwrap());
        self.memory.set_switch(&name, enabled, self.now()).await.unwrap();
    }

    pub(crate) async fn group_switch(&self, name: &str, enabled: Option<bool>) {
        let name = SwitchName::Group(GroupName::parse(name).unwrap());
        self.memory.set_switch(&name, enabled, self.now()).await.unwrap();
    }

    /// What the log says, read from the store.
    pub(crate) async fn events(&self, run: &RunId) -> Vec<Event> {
        self.memory.load(run).await.unwrap().entries.into_iter().map(|entry| entry.event).collect()
    }

    /// The kinds of all events, in order.
    pub(crate) async fn kinds(&self, run: &RunId) -> Vec<&'static str> {
        self.events(run).await.iter().map(Event::kind).collect()
    }

    /// The tools and reasons of all closed gates.
    pub(crate) async fn denials(&self, run: &RunId) -> Vec<(String, Refusal)> {
        let events = self.events(run).await;
        let denials = events.iter().filter_map(|event| match event {
            Event::GateDenied(denied) => Some((denied.tool.clone(), denied.reason)),
            _ => None,
        });
        denials.collect()
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        countersign::Clock::now(&self.clock)
    }

    /// Drives a run in a task of its own, so that the test can do something meanwhile.
    pub(crate) fn drive_apart(
        &self,
        run: &RunId,
    ) -> tokio::task::JoinHandle<Result<Outcome, countersign::RunError>> {
        let (runtime, run) = (self.runtime(), run.clone());
        tokio::spawn(async move { runtime.drive(&run).await })
    }

    /// Moves the clock on in steps short enough for every heartbeat, and lets everybody act in between.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = LEASE / 6;
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            settle().await;
            self.clock.advance(now);
            left -= now;
        }
        settle().await;
    }

    /// The same until something is finished.
    pub(crate) async fn pass_until_finished<T>(&self, task: tokio::task::JoinHandle<T>) -> T {
        for _ in 0..1000 {
            settle().await;
            if task.is_finished() {
                return task.await.unwrap();
            }
            self.clock.advance(POLL);
        }
        panic!("it never finishes");
    }
}

/// Lets every task that can do something do it. On one thread this is exact, however slow the machine is.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn request() -> RunRequest {
    RunRequest {
        agent: agent_name(),
        input: vec![InputMessage { role: InputRole::User, text: "Tidy up.".to_owned() }],
        tools: ToolRequest::AllEnabled,
        model: None,
        max_iterations: None,
        max_working_time: None,
        continue_from: None,
        owner: alice(),
        starter: alice(),
        trace: None,
    }
}

pub(crate) fn request_for(tools: &[&str]) -> RunRequest {
    RunRequest {
        tools: ToolRequest::Only(tools.iter().map(|name| (*name).to_owned()).collect()),
        ..request()
    }
}

pub(crate) fn waiting(outcome: Outcome) -> Waiting {
    match outcome {
        Outcome::Waiting(waiting) => *waiting,
        Outcome::Done(finished) => panic!("it should wait, and ended: {:?}", finished.end()),
    }
}

/// A run that has ended, and how.
pub(crate) fn ended(outcome: Outcome) -> Run {
    match outcome {
        Outcome::Done(finished) => finished.run,
        Outcome::Waiting(waiting) => {
            panic!("it should have ended, and waits: {:?}", waiting.record.pending.question)
        }
    }
}

/// A run that ended with an answer.
pub(crate) fn completed(outcome: Outcome) -> Run {
    let run = ended(outcome);
    completed_run(&run);
    run
}

pub(crate) fn completed_run(run: &Run) {
    assert!(matches!(run.end(), Some(End::Completed { limit: None, .. })), "{:?}", run.end());
}

/// The code of a failure.
pub(crate) fn failure(run: &Run) -> &'static str {
    match run.end() {
        Some(End::Failed { code, .. }) => code.as_str(),
        other => panic!("it should have failed: {other:?}"),
    }
}

/// The limit that ended a run.
pub(crate) fn limit_of(run: &Run) -> Limit {
    match run.end() {
        Some(End::Completed { limit: Some(limit), .. }) => *limit,
        other => panic!("it should have ended at a limit: {other:?}"),
    }
}

/// The results of all calls so far, in order.
/// A tool with a timeout of its own.
pub(crate) struct WithTimeout(pub(crate) RecordingTool, pub(crate) Duration);

#[async_trait]
impl Tool for WithTimeout {
    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    fn timeout(&self) -> Duration {
        self.1
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        self.0.call(arguments, cx).await
    }
}

pub(crate) fn results(run: &Run) -> Vec<CallResult> {
    let turns = run.history().chain(run.turn());
    let results = turns.flat_map(|turn| turn.calls()).filter_map(|state| match state.stage {
        Stage::Finished(result) => Some((**result).clone()),
        _ => None,
    });
    results.collect()
}

pub(crate) fn result_kinds(run: &Run) -> Vec<ResultKind> {
    results(run).into_iter().map(|result| result.kind).collect()
}

pub(crate) fn refusals(run: &Run) -> Vec<Option<Refusal>> {
    results(run).into_iter().map(|result| result.refusal).collect()
}

/// The ids of the calls that a pending asks about.
pub(crate) fn asked(record: &PendingRecord) -> Vec<CallId> {
    record.pending.asked().map(|held| held.id.clone()).collect()
}

pub(crate) fn statuses(run: &Run) -> Vec<PendingStatus> {
    run.pendings().map(|record| record.status).collect()
}

pub(crate) fn assert_state(run: &Run, state: RunState) {
    assert_eq!(run.state(), state);
}

// The tools of the test bed. All take an integer `id`, if anything.

pub(crate) fn read(name: &str, ledger: &Ledger) -> RecordingTool {
    RecordingTool::new(name, Effect::Read, ledger)
}

pub(crate) fn write(name: &str, ledger: &Ledger) -> RecordingTool {
    RecordingTool::new(name, Effect::Write, ledger)
}

pub(crate) fn idempotent(name: &str, ledger: &Ledger) -> RecordingTool {
    RecordingTool::new(name, Effect::IdempotentWrite, ledger)
}

/// A read that waits for a person's date.
pub(crate) fn date_input(name: &str, ledger: &Ledger) -> RecordingTool {
    let mut tool = read(name, ledger);
    tool.spec.pause = Pause::NeedsInput(json!({
        "type": "object",
        "description": "Which day?",
        "properties": { "date": { "type": "string", "minLength": 4 }, "part": { "enum": ["am", "pm"] } },
        "required": ["date"],
    }));
    tool
}

/// A tool of the server `crm`, with the operator's word on approval.
pub(crate) fn remote(name: &str, effect: Effect, approval: RemoteApproval, ledger: &Ledger) -> RecordingTool {
    let mut tool = RecordingTool::new(&format!("crm__{name}"), effect, ledger);
    tool.spec.group = GroupName::parse("mcp.crm").unwrap();
    tool.spec.origin =
        Origin::Mcp { server: ServerName::parse("crm").unwrap(), remote_name: name.to_owned(), approval };
    tool
}

/// A write that needs nobody: the operator of a remote server can say so.
pub(crate) fn free_write(name: &str, ledger: &Ledger) -> RecordingTool {
    remote(name, Effect::Write, RemoteApproval::NotRequired, ledger)
}

/// A read with the approval marker.
pub(crate) fn marked(name: &str, ledger: &Ledger) -> RecordingTool {
    let mut tool = read(name, ledger);
    tool.spec.pause = Pause::Asks;
    tool
}

/// The schema of a tool that takes one integer.
pub(crate) fn takes_id(mut tool: RecordingTool) -> RecordingTool {
    tool.spec.parameters = json!({
        "type": "object",
        "properties": { "id": { "type": "integer" } },
        "required": ["id"],
        "additionalProperties": false,
    });
    tool
}

pub(crate) fn in_group(group: &str, mut tool: RecordingTool) -> RecordingTool {
    tool.spec.group = GroupName::parse(group).unwrap();
    tool
}

pub(crate) fn asks_by_operator(mut tool: RecordingTool) -> RecordingTool {
    tool.spec.operator = OperatorWord::Asks;
    tool
}

/// A tool that waits until the sender says true.
pub(crate) fn gated(tool: RecordingTool) -> (RecordingTool, tokio::sync::watch::Sender<bool>) {
    let (open, gate) = tokio::sync::watch::channel(false);
    (tool.that(Behaviour::WaitsFor(gate)), open)
}

/// Arguments with an id.
pub(crate) fn id(number: u32) -> Value {
    json!({ "id": number })
}

/// What each tool was given, in order.
pub(crate) fn lines(ledger: &Ledger) -> Vec<(String, Value)> {
    ledger.calls().into_iter().map(|call| (call.tool, call.arguments)).collect()
}

pub(crate) fn arguments(value: &Value) -> countersign::Arguments {
    countersign::Arguments::read(Some(&value.to_string())).unwrap()
}
