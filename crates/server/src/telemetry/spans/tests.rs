use std::time::Duration;

use countersign::testing::{Behaviour, Ledger, Line, RecordingTool, ScriptedModel, text, turn};
use countersign::{
    Agent, AgentName, Agents, Effect, Enforcement, Limits, MemoryStore, Mode, ModelError, Models, Parts,
    Principal, Provider, Registry, RunId, RunRequest, Runtime, Store, Subject, Unwatched, Zone,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::tests::{Hasty, kept};
use super::*;

/// A runtime with this script and a tool `get` that behaves like this.
fn runtime(script: Vec<Line>, behaviour: Behaviour) -> (Runtime, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new([7; 32]));
    let provider = Provider { zone: Zone::Local, client: Arc::new(ScriptedModel::new(script)) };
    let model = ModelRef::parse("p/m").unwrap();
    let tool = RecordingTool::new("get", Effect::Read, &Ledger::default()).that(behaviour);
    let runtime = Runtime::new(Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        models: Models::default().with("p".parse().unwrap(), provider),
        tools: Registry::new([tool.into()]).unwrap(),
        agents: Agents::new(Enforcement::Enforce, [Agent::new(agent(), [model])]),
        limits: Limits {
            lease: Duration::from_secs(30),
            parallel_reads: 8,
            poll: Duration::from_millis(250),
        },
        clock: Arc::new(Hasty::default()),
    });
    (runtime, store)
}

fn agent() -> AgentName {
    "keeper".parse().unwrap()
}

/// A run, and the spans of its first drive; a model that hangs is left alone after a while.
async fn spans(script: Vec<Line>, behaviour: Behaviour, more: impl FnOnce(&mut RunRequest)) -> Vec<Span> {
    let (runtime, store) = runtime(script, behaviour);
    let alice: Subject = "alice".parse().unwrap();
    store.put_principal(&Principal::user(alice.clone())).await.unwrap();
    let mut request = RunRequest::new(agent(), alice, "Read page 7");
    more(&mut request);
    let run: RunId = runtime.start(request, Mode::Attended).await.unwrap();
    let (telemetry, mut ended) = kept(Arc::new(Hasty::default()), 99);
    let traced = telemetry.watching(Arc::new(Unwatched));
    drop(telemetry);
    let driving = runtime.drive_watched(&run, traced, CancellationToken::new());
    tokio::select! {
        biased;
        driven = driving => drop(driven),
        () = async { for _ in 0..10_000 { tokio::task::yield_now().await } } => {}
    }
    all(&mut ended).await
}

async fn all(ended: &mut mpsc::Receiver<Span>) -> Vec<Span> {
    let mut spans = Vec::new();
    while ended.recv_many(&mut spans, 99).await > 0 {}
    spans
}

/// The name of each, and its type of error.
fn failures(spans: &[Span]) -> Vec<(&str, Option<&str>)> {
    let text = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::Texts(_) | AttributeValue::Count(_) => String::new(),
    };
    let error = |span: &Span| {
        let said = span.attributes.iter().find(|(name, _)| *name == names::ERROR);
        assert_eq!(said.is_some(), span.failed, "{span:?}");
        said.map(|(_, word)| text(word).leak() as &str)
    };
    spans.iter().map(|span| (span.name.as_str(), error(span))).collect()
}

#[tokio::test]
async fn attempts_are_one_span_and_what_fails_says_why_in_one_word() {
    let busy = || Line::Fails(ModelError::Busy { retry_after: None });
    let spans_of = spans(vec![busy(), busy(), text("done")], Behaviour::Answers, |_| {}).await;
    assert_eq!(failures(&spans_of), [("chat m", None), ("invoke_agent keeper", None)]);
    let retries = spans_of[0].events.iter().filter(|event| event.name == "countersign.model.retry").count();
    assert_eq!(retries, 2);
    assert!(spans_of[0].attributes.contains(&(names::ATTEMPTS, 3.into())), "{spans_of:?}");

    let refused = vec![Line::Fails(ModelError::Refused { status: 400 })];
    let spans_of = spans(refused, Behaviour::Answers, |_| {}).await;
    let failed = Some("model_refused");
    assert_eq!(failures(&spans_of), [("chat m", failed), ("invoke_agent keeper", failed)]);

    let script = || vec![turn(&[("get", r#"{"x":"SECRET"}"#)]), text("done")];
    let spans_of = spans(script(), Behaviour::Fails("the SECRET words of a tool".into()), |_| {}).await;
    let wanted = [
        ("chat m", None),
        ("execute_tool get", Some("error")),
        ("chat m", None),
        ("invoke_agent keeper", None),
    ];
    assert_eq!(failures(&spans_of), wanted);
    assert!(!format!("{spans_of:?}").contains("SECRET"), "rule S5: {spans_of:?}");
}

#[tokio::test]
async fn a_drive_that_is_cut_off_leaves_no_span_open() {
    let script = vec![turn(&[("get", "{}")]), Line::Hangs];
    let spans = spans(script, Behaviour::Answers, |_| {}).await;
    let cut = Some("interrupted");
    let wanted = [
        ("chat m", None),
        ("execute_tool get", None),
        ("chat m", cut),
        ("invoke_agent keeper", Some("cut_off")),
    ];
    assert_eq!(failures(&spans), wanted);
    let agent = spans.last().unwrap();
    assert!(spans.iter().all(|span| span.context.trace == agent.context.trace));
    assert!(spans.iter().all(|span| span == agent || span.parent == Some(agent.context)));
}

#[tokio::test]
async fn what_started_a_run_is_pointed_to_if_it_can_be_read() {
    let caller = SpanContext::root([3; 16], [4; 16]);
    for (trace, wanted) in
        [(Some(caller.traceparent()), vec![caller]), (Some("nonsense".into()), vec![]), (None, vec![])]
    {
        let spans = spans(vec![text("done")], Behaviour::Answers, |request| request.trace = trace).await;
        let links: Vec<SpanContext> = spans[1].links.iter().map(|link| link.to).collect();
        assert_eq!(links, wanted);
        assert_ne!(spans[1].context.trace, caller.trace);
    }
}
