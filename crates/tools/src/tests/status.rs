//! The two tools about runs, through the port, over a store in memory.

use std::sync::Arc;
use std::time::Duration;

use countersign::contract::sample::{
    at, completion, created, go_on, start, start_as, start_waiting, subject, words,
};
use countersign::testing::{ManualClock, call_context};
use countersign::{
    Arguments, DataClass, Deadline, Effect, MemoryStore, OperatorWord, Origin, Pause, Run, RunId, Store,
    Tool, ToolFailure,
};

use crate::status_tools;

struct Desk {
    store: Arc<MemoryStore>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Desk {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new([7; 32]));
        let clock = Arc::new(ManualClock::at(at(7200)));
        let tools = status_tools(Arc::clone(&store) as Arc<dyn Store>, clock, "1.2.3").unwrap();
        Self { store, tools }
    }

    fn tool(&self, name: &str) -> &dyn Tool {
        self.tools.iter().find(|tool| tool.spec().name.as_str() == name).unwrap().as_ref()
    }

    async fn ask(&self, tool: &str, arguments: &str, actor: &str) -> Result<String, String> {
        let arguments = Arguments::read(Some(arguments)).unwrap();
        match self.tool(tool).call(&arguments, &call_context(&subject(actor), None)).await {
            Ok(output) => Ok(output.content.kept().to_owned()),
            Err(error) => {
                let ToolFailure::Answered(sentence) = error.failure() else { panic!("{error:?}") };
                Err(sentence.kept().to_owned())
            }
        }
    }

    async fn runs(&self, arguments: &str, actor: &str) -> String {
        self.ask("list_runs", arguments, actor).await.unwrap()
    }

    /// Somebody works on it until long after now.
    async fn claim(&self, run: &RunId) {
        self.store.claim(run, "token".to_owned(), at(7000), Duration::from_secs(600)).await.unwrap();
    }
}

fn ids(table: &str) -> Vec<&str> {
    table.lines().filter_map(|line| line.split(' ').next()).filter(|word| word.starts_with("run_")).collect()
}

#[test]
fn the_contract_lists_exactly_these_facts() {
    let desk = Desk::new();
    for (name, group, class, admin) in [
        ("list_runs", "runs", DataClass::InternalConfiguration, false),
        ("system_status", "system", DataClass::SystemDiagnostics, true),
    ] {
        let spec = desk.tool(name).spec();
        assert_eq!((spec.group.as_str(), spec.data_class, spec.requires_admin), (group, class, admin));
        assert_eq!((spec.effect, spec.enabled_by_default), (Effect::Read, true));
        assert_eq!((spec.pause, spec.operator), (Pause::Runs, OperatorWord::Silent));
        assert_eq!(spec.origin, Origin::Builtin);
        assert_eq!(spec.parameters["additionalProperties"], false);
    }
}

#[tokio::test]
async fn rule_a13_only_the_owners_runs_are_listed_newest_first() {
    let desk = Desk::new();
    assert_eq!(desk.runs("{}", "alice").await, "No runs.\n");
    let first = start(&*desk.store, 1).await;
    start_as(&*desk.store, 2, "default", "bob").await;
    let third = start_as(&*desk.store, 3, "editor", "alice").await;
    let done = go_on(&*desk.store, &first, vec![words("Done."), completion()], at(10)).await;
    let (first, third) = (done.id().as_str(), third.id().as_str());
    let table = desk.runs("{}", "alice").await;
    let width = first.len();
    assert_eq!(
        table,
        format!(
            "{:<width$}  status     agent    created               iterations\n\
             {third}  queued     editor   2026-09-21T14:13:23Z  0\n\
             {first}  completed  default  2026-09-21T14:13:21Z  1\n",
            "id"
        )
    );
    assert_eq!(ids(&desk.runs("{}", "bob").await).len(), 1);
    let refused = desk.ask("list_runs", r#"{"owner":"bob"}"#, "alice").await.unwrap_err();
    assert!(refused.starts_with("The arguments cannot be used: unknown field"), "{refused}");
}

#[tokio::test]
async fn a_status_is_the_contracts_word_and_follows_the_lease() {
    let desk = Desk::new();
    let queued = start(&*desk.store, 1).await;
    let running = start(&*desk.store, 2).await;
    desk.claim(running.id()).await;
    start_waiting(&*desk.store, 3, "default", "alice", Deadline::Never).await;
    for (status, run) in [("queued", Some(&queued)), ("running", Some(&running)), ("failed", None)] {
        let table = desk.runs(&format!(r#"{{"status":"{status}"}}"#), "alice").await;
        assert_eq!(ids(&table), run.map(|run| run.id().as_str()).into_iter().collect::<Vec<_>>(), "{table}");
    }
    assert_eq!(ids(&desk.runs(r#"{"status":"waiting_for_approval"}"#, "alice").await).len(), 1);
    let refused = desk.ask("list_runs", r#"{"status":"active"}"#, "alice").await.unwrap_err();
    assert!(refused.starts_with("There is no such status; there are queued, running, "), "{refused}");
}

#[tokio::test]
async fn a_list_is_bounded_and_says_that_it_is() {
    let desk = Desk::new();
    for number in 1..=30 {
        start(&*desk.store, number).await;
    }
    let table = desk.runs("{}", "alice").await;
    assert_eq!(ids(&table).len(), 20);
    assert!(table.ends_with("There are more, which are older.\n"), "{table}");
    assert_eq!(ids(&desk.runs(r#"{"limit":3}"#, "alice").await).len(), 3);
    for all in [r#"{"limit":30}"#, r#"{"limit":100}"#] {
        let table = desk.runs(all, "alice").await;
        assert_eq!(ids(&table).len(), 30);
        assert!(!table.contains("more"), "{table}");
    }
}

#[tokio::test]
async fn the_status_counts_runs_and_open_questions_of_everybody() {
    let desk = Desk::new();
    let nothing = desk.ask("system_status", "{}", "root").await.unwrap();
    assert_eq!(
        nothing,
        "version: 1.2.3\ndatabase: reachable\nruns:\n  queued: 0\n  running: 0\n  waiting_for_approval: 0\n  \
         waiting_for_input: 0\n  needs_resolution: 0\n  completed: 0\n  failed: 0\n  cancelled: 0\n\
         open pendings: 0\noldest open pending: none\nopen resolutions: 0\n"
    );
    start(&*desk.store, 1).await;
    let running = start_as(&*desk.store, 2, "default", "bob").await;
    desk.claim(running.id()).await;
    start_waiting(&*desk.store, 3, "default", "bob", Deadline::Never).await;
    start_waiting(&*desk.store, 4, "default", "alice", Deadline::Never).await;
    let text = desk.ask("system_status", "{}", "root").await.unwrap();
    for line in [
        "  queued: 1",
        "  running: 1",
        "  waiting_for_approval: 2",
        "open pendings: 2",
        "oldest open pending: 1h old",
        "open resolutions: 0",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}: {text}");
    }
    for hidden in ["alice", "bob", "default", "run_", "pnd_"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
}

#[tokio::test]
async fn counting_stops_at_a_bound_and_says_so() {
    let desk = Desk::new();
    for number in 0..2001_u128 {
        let id = RunId::from_random((number + 1).to_be_bytes());
        let (_, changes) = Run::create(id, created("default", "alice"), Vec::new(), at(1)).unwrap();
        desk.store.create(changes).await.unwrap();
    }
    let text = desk.ask("system_status", "{}", "root").await.unwrap();
    assert!(
        text.contains("  queued: 2000 or more\n  running: 0 or more\n  waiting_for_approval: 0\n"),
        "{text}"
    );
    let table = desk.runs(r#"{"status":"running"}"#, "alice").await;
    assert_eq!(table, "No runs.\nThe oldest runs were not looked at.\n");
}
