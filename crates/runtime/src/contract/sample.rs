//! Runs to keep: small ones, with every kind of row.

use countersign_core::{
    AgentName, Arguments, Attribution, Because, CallId, CallVerdict, Created, Deadline, Decided, Event,
    Finish, Form, HeldCall, InputMessage, InputRole, ModelRef, ModelReplied, Opaque, Outlook, Pending,
    PendingClosed, PendingDecided, PendingId, ProposedCall, ProviderName, Question, Reply, Run, RunCompleted,
    RunId, RunLimits, Subject, ToolRequest, Usage, VerdictWord,
};
use jiff::{SignedDuration, Timestamp};

use super::done;
use crate::store::{Append, CreateError, Revision, Store, Writer};

/// A moment, in seconds and some nanoseconds after the beginning.
pub fn at(seconds: i64) -> Timestamp {
    done(Timestamp::new(1_790_000_000, 123_456_789)) + SignedDuration::from_secs(seconds)
}

pub fn run_id(number: u8) -> RunId {
    RunId::from_random([number; 16])
}

pub fn call_id(number: u8) -> CallId {
    CallId::from_random([number; 16])
}

pub fn pending_id(number: u8) -> PendingId {
    PendingId::from_random([number; 16])
}

pub fn agent(name: &str) -> AgentName {
    done(AgentName::parse(name))
}

pub fn subject(name: &str) -> Subject {
    done(Subject::parse(name))
}

pub fn created(agent_name: &str, owner: &str) -> Created {
    Created {
        agent: agent(agent_name),
        owner: subject(owner),
        starter: subject(owner),
        unattended: false,
        tools: ToolRequest::AllEnabled,
        models: vec![done(ModelRef::parse("stub/scripted"))],
        system_prompt: Some("You look after the pages.".to_owned()),
        input: vec![InputMessage { role: InputRole::User, text: "Drop page 7".to_owned() }],
        limits: RunLimits::iterations(1000),
        approval_ttl_s: None,
        second_approver: false,
        continues: None,
        skills: Vec::new(),
        trace: None,
    }
}

/// Stores a new run of alice's, under the agent `default`.
pub async fn start(store: &dyn Store, number: u8) -> Run {
    start_as(store, number, "default", "alice").await
}

pub async fn start_as(store: &dyn Store, number: u8, agent: &str, owner: &str) -> Run {
    let (run, changes) =
        done(Run::create(run_id(number), created(agent, owner), Vec::new(), at(i64::from(number))));
    done(store.create(changes).await);
    run
}

/// Stores a new run of alice's that `starter` started for her.
pub async fn start_for_alice(store: &dyn Store, number: u8, starter: &str) -> Run {
    let created = Created { starter: subject(starter), ..created("default", "alice") };
    let (run, changes) = done(Run::create(run_id(number), created, Vec::new(), at(i64::from(number))));
    done(store.create(changes).await);
    run
}

/// Stores a new run of alice's that continues another.
///
/// # Errors
/// What the store says.
pub async fn continuation(store: &dyn Store, number: u8, before: &Run) -> Result<Run, CreateError> {
    let created = Created { continues: Some(before.id().clone()), ..created("default", "alice") };
    let (run, changes) = done(Run::create(run_id(number), created, Vec::new(), at(i64::from(number))));
    store.create(changes).await.map(|()| run)
}

/// Appends as anybody, and expects it to be stored.
pub async fn go_on(store: &dyn Store, run: &Run, events: Vec<Event>, when: Timestamp) -> Run {
    let (after, changes) = done(run.record(events, when));
    let aim = Revision(run.revision());
    assert!(done(store.append(run.id(), aim, &Writer::Anyone, when, Append::Plain(changes)).await).is_some());
    after
}

/// A run that waits for a person, with one pending of the same number.
pub async fn start_waiting(
    store: &dyn Store,
    number: u8,
    agent: &str,
    owner: &str,
    deadline: Deadline,
) -> Run {
    let run = start_as(store, number, agent, owner).await;
    let run = go_on(store, &run, vec![proposal(number)], at(i64::from(number))).await;
    go_on(store, &run, vec![question(&run, number, deadline)], at(i64::from(number))).await
}

/// A model's words, without calls.
pub fn words(text: &str) -> Event {
    replied(Some(text), Vec::new())
}

/// A model's wish to call a tool.
pub fn proposal(number: u8) -> Event {
    let call = ProposedCall {
        id: call_id(number),
        wire_id: Some("wire".to_owned()),
        name: "page_drop".to_owned(),
        arguments: Some(r#"{"id":7}"#.to_owned()),
        opaque: Opaque::default(),
    };
    replied(None, vec![call])
}

fn replied(text: Option<&str>, calls: Vec<ProposedCall>) -> Event {
    let reply = Reply {
        provider: done(ProviderName::parse("stub")),
        model: "scripted".to_owned(),
        text: text.map(str::to_owned),
        calls,
        finish: Finish::Stop,
        usage: Usage { input_tokens: 100, output_tokens: 10, cached_input_tokens: 40, unknown_calls: 1 },
        attempts: 1,
        opaque: Opaque::default(),
    };
    Event::ModelReplied(Box::new(ModelReplied { reply: reply.into(), closing: false }))
}

/// The question whether the calls of the run's turn may be made.
pub fn question(run: &Run, number: u8, expires_at: Deadline) -> Event {
    let calls = run.turn().into_iter().flat_map(|turn| turn.calls());
    Event::PendingOpened(Box::new(Pending {
        id: pending_id(number),
        turn: run.turn().map_or(0, |turn| turn.number()),
        question: Question::Approval,
        calls: calls
            .map(|state| HeldCall {
                id: state.call.id.clone(),
                tool: state.call.name.clone(),
                facts: None,
                arguments: Some(done(Arguments::read(state.call.arguments.as_deref()))),
                original_arguments: None,
                outlook: Outlook::NeedsApproval(Because::Writes),
                preview: None,
            })
            .collect(),
        expires_at,
        editors: Vec::new(),
        replaces: None,
        trace: None,
    }))
}

/// Bob's yes to the open question of this number.
pub fn approval(number: u8) -> Event {
    Event::PendingDecided(Box::new(PendingDecided {
        pending: pending_id(number),
        decided: Decided {
            by: subject("bob"),
            verdict: VerdictWord::Approve,
            form: Form::Turn,
            calls: [(call_id(number), CallVerdict::Approve)].into(),
            reason: None,
            attribution: Attribution::SecondPerson,
            answer: None,
            result: None,
        },
    }))
}

/// The question of this number ran out.
pub fn expiry(number: u8) -> Event {
    Event::PendingClosed(PendingClosed {
        pending: pending_id(number),
        status: countersign_core::Closing::Expired,
        by: None,
    })
}

/// The run's answer.
pub fn completion() -> Event {
    Event::RunCompleted(RunCompleted { limit: None })
}
