//! For tests of programs that embed countersign: a scripted model, a tool that records its calls, a clock
//! that stands still until it is told to move.
//!
//! Not here: a policy that allows everything; there is none (P9).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    Arguments, CallId, DataClass, Effect, Finish, GroupName, Message, Opaque, RunId, Subject, ToolName,
    ToolSpec, Usage,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::model::{Answer, AnsweredCall, Conversation, Model, ModelError, Offer};
use crate::tool::{CallContext, PreviewContext, Tool, ToolError, ToolOutput, ToolPreview};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clock that moves only when it is told to. Who sleeps wakes when the time has come.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Timestamp>>,
    chance: Arc<AtomicU64>,
}

impl ManualClock {
    /// Stands at this moment.
    pub fn at(now: Timestamp) -> Self {
        Self { now: Arc::new(watch::Sender::new(now)), chance: Arc::default() }
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now = now.checked_add(by).unwrap_or(Timestamp::MAX));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::UNIX_EPOCH)
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.borrow()
    }

    async fn sleep(&self, duration: Duration) {
        let until = self.now().checked_add(duration).unwrap_or(Timestamp::MAX);
        // The sender lives as long as this clock, so waiting cannot fail.
        drop(self.now.subscribe().wait_for(|now| *now >= until).await);
    }

    /// Not random: different every time, and the same in every test run.
    fn random(&self) -> [u8; 16] {
        let count = self.chance.fetch_add(1, Ordering::Relaxed);
        // Spread over all bits, so that ids differ in more than their first letters.
        (u128::from(count).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
            .to_be_bytes()
    }
}

/// What a scripted model does when it is asked.
#[derive(Debug)]
pub enum Line {
    /// Answers.
    Says(Answer),
    /// Gives no answer.
    Fails(ModelError),
    /// Never comes back, until whoever asked gives up.
    Hangs,
}

/// Says something and is done.
pub fn text(words: &str) -> Line {
    Line::Says(Answer {
        text: Some(words.to_owned()),
        calls: Vec::new(),
        finish: Finish::Stop,
        usage: Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }),
        opaque: Opaque::default(),
    })
}

/// Asks for calls: names and the text of their arguments.
pub fn turn(calls: &[(&str, &str)]) -> Line {
    Line::Says(Answer {
        text: None,
        calls: calls
            .iter()
            .enumerate()
            .map(|(index, (name, arguments))| AnsweredCall {
                wire_id: Some(format!("wire{index}")),
                name: (*name).to_owned(),
                arguments: Some((*arguments).to_owned()),
                opaque: Opaque::default(),
            })
            .collect(),
        finish: Finish::Stop,
        usage: Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }),
        opaque: Opaque::default(),
    })
}

/// One message as a scripted model was told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The agent's prompt.
    System(String),
    /// The input.
    Input(String),
    /// Its own answer: the names of the calls.
    Reply(Vec<String>),
    /// An answer that is left out, in the same way (L6).
    LeftOut(Vec<String>),
    /// A call's answer.
    Result(String),
}

/// One request as a scripted model received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The whole conversation.
    pub told: Vec<Told>,
    /// The names of the offered tools.
    pub offered: Vec<String>,
}

/// A model that plays a script, and keeps what it was asked. All conversations share the script, so that a
/// run taken up by another driver goes on where it was.
#[derive(Clone, Debug, Default)]
pub struct ScriptedModel {
    lines: Arc<Mutex<VecDeque<Line>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl ScriptedModel {
    /// Plays these lines, one per request. Asked once more, it says `done`.
    pub fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        Self { lines: Arc::new(Mutex::new(lines.into_iter().collect())), requests: Arc::default() }
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }
}

impl Model for ScriptedModel {
    fn converse(&self, _model: &str) -> Box<dyn Conversation> {
        Box::new(ScriptedConversation { model: self.clone(), told: Vec::new() })
    }
}

struct ScriptedConversation {
    model: ScriptedModel,
    told: Vec<Told>,
}

#[async_trait]
impl Conversation for ScriptedConversation {
    fn add(&mut self, message: &Message<'_>) {
        self.told.push(match message {
            Message::System(text) => Told::System((*text).to_owned()),
            Message::Input(input) => Told::Input(input.text.clone()),
            Message::Reply(reply) => Told::Reply(reply.calls.iter().map(|call| call.name.clone()).collect()),
            Message::LeftOut(reply) => {
                Told::LeftOut(reply.calls.iter().map(|call| call.name.clone()).collect())
            }
            Message::Result { content, .. } => Told::Result(content.to_string()),
        });
    }

    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError> {
        let offered = offers.iter().map(|offer| offer.name.to_string()).collect();
        lock(&self.model.requests).push(Request { told: self.told.clone(), offered });
        let line = lock(&self.model.lines).pop_front();
        match line.unwrap_or_else(|| text("done")) {
            Line::Says(answer) => Ok(answer),
            Line::Fails(error) => Err(error),
            Line::Hangs => std::future::pending().await,
        }
    }
}

/// One call as a tool received it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Which tool.
    pub tool: String,
    /// The arguments that reached it.
    pub arguments: Value,
    /// On whose behalf, under which ids.
    pub cx: CallContext,
}

/// What several tools were asked to do, in order: the witness of a test, outside of the record.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<Recorded>>>);

impl Ledger {
    /// Every call that reached a tool.
    pub fn calls(&self) -> Vec<Recorded> {
        lock(&self.0).clone()
    }

    /// The names of the tools that were reached, in order.
    pub fn names(&self) -> Vec<String> {
        lock(&self.0).iter().map(|call| call.tool.clone()).collect()
    }
}

/// What a recording tool does after its line is in the ledger.
#[derive(Clone, Debug, Default)]
pub enum Behaviour {
    /// Answers with its name and arguments.
    #[default]
    Answers,
    /// Answers with this.
    Says(String),
    /// Answers that it could not.
    Fails(String),
    /// Gives no answer.
    NoAnswer,
    /// Panics.
    Panics,
    /// Never comes back, until whoever called gives up.
    Hangs,
    /// Waits until the gate opens, then answers.
    WaitsFor(watch::Receiver<bool>),
}

/// A tool that writes each call into a ledger before it does anything else.
#[derive(Clone, Debug)]
pub struct RecordingTool {
    /// Its facts; change them at will before registering it.
    pub spec: ToolSpec,
    /// What it does.
    pub behaviour: Behaviour,
    /// What its preview shows, if it has one: lines and precondition.
    pub preview: Option<(Vec<String>, Option<Value>)>,
    ledger: Ledger,
}

impl RecordingTool {
    /// A tool of the group `test` that takes any object.
    ///
    /// # Panics
    /// When the name is no tool name.
    #[expect(clippy::expect_used, reason = "for tests, where a wrong name should stop the test")]
    pub fn new(name: &str, effect: Effect, ledger: &Ledger) -> Self {
        Self {
            spec: ToolSpec::library(
                ToolName::parse(name).expect("a tool name"),
                &format!("The test tool {name}."),
                GroupName::parse("test").expect("a group name"),
                effect,
                DataClass::PublicContent,
                json!({ "type": "object" }),
            ),
            behaviour: Behaviour::Answers,
            preview: None,
            ledger: ledger.clone(),
        }
    }

    /// The same with another behaviour.
    #[must_use]
    pub fn that(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }
}

#[async_trait]
impl Tool for RecordingTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    #[expect(clippy::panic, reason = "one of its behaviours is to panic")]
    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let tool = self.spec.name.to_string();
        lock(&self.ledger.0).push(Recorded {
            tool: tool.clone(),
            arguments: arguments.to_value(),
            cx: cx.clone(),
        });
        let answer = format!("{tool} ran with {}", arguments.text());
        match self.behaviour.clone() {
            Behaviour::Answers => Ok(answer.into()),
            Behaviour::Says(words) => Ok(words.into()),
            Behaviour::Fails(words) => Err(ToolError::answered(words)),
            Behaviour::NoAnswer => Err(ToolError::no_answer()),
            Behaviour::Panics => panic!("the tool {tool} was told to panic"),
            Behaviour::Hangs => std::future::pending().await,
            Behaviour::WaitsFor(mut gate) => {
                drop(gate.wait_for(|open| *open).await);
                Ok(answer.into())
            }
        }
    }

    async fn preview(
        &self,
        _arguments: &Arguments,
        _cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        self.preview.clone().map(|(lines, precondition)| Ok(ToolPreview { lines, precondition }))
    }
}

/// The context of a call that nobody recorded, for tests of a tool alone.
pub fn call_context(actor: &Subject, precondition: Option<Value>) -> CallContext {
    CallContext::new(
        actor.clone(),
        RunId::from_random([1; 16]),
        CallId::from_random([2; 16]),
        "test-key".to_owned(),
        precondition,
        Timestamp::MAX,
    )
}

/// The context of a preview, in the same way.
pub fn preview_context(actor: &Subject) -> PreviewContext {
    PreviewContext::new(actor.clone(), RunId::from_random([1; 16]), CallId::from_random([2; 16]))
}
