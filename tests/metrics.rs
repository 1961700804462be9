//! What can be counted, as a monitor reads it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::{Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text, until};

/// The lines of a scrape, by name and labels.
fn scrape(monitor: &Client) -> BTreeMap<String, f64> {
    let answer = monitor.get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.headers["content-type"].starts_with("text/plain; version=0.0.4"), "{answer:?}");
    let lines = answer.body.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let line = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap_or_else(|error| panic!("{error}: {line}")))
    };
    lines.map(line).collect()
}

/// A scrape with this line at this value.
fn with(monitor: &Client, name: &str, value: f64) -> BTreeMap<String, f64> {
    let mut last = BTreeMap::new();
    until(name, || {
        last = scrape(monitor);
        (last.get(name) == Some(&value)).then(|| last.clone())
    })
}

fn write_turn() -> Play {
    calls(&[("page", json!({ "id": 1 }))])
}

#[test]
fn a_scrape_says_what_is_owed_and_what_happened() {
    for folder in Folder::of_each_kind() {
        let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
        let script = vec![write_turn(), says("done"), calls(&[("sk_made_up", json!({}))]), write_turn()];
        let model = Server::start(script);
        let how = format!("http = \"{}\"", tool.url);
        folder.configure(model.url(), &declared("page", &how, "write", ""));
        let serve = Serve::start(&folder);
        let (alice, monitor) = (serve.client(&folder, "alice", &[]), serve.stranger());
        let none = with(&monitor, "countersign_store_up", 1.0);
        for name in ["pendings_open{kind=\"approval\"}", "outcome_unknown_open", "runs{status=\"queued\"}"] {
            assert_eq!(none[&format!("countersign_{name}")], 0.0, "{name}");
        }
        let run = alice.start("x");
        let waiting = with(&monitor, "countersign_pendings_open{kind=\"approval\"}", 1.0);
        assert_eq!(waiting["countersign_runs{status=\"waiting_for_approval\"}"], 1.0);
        assert!(waiting.contains_key("countersign_pending_oldest_age_seconds{kind=\"approval\"}"));
        alice.approve(&run["pending"]);
        alice.start("y");
        let after = with(&monitor, "countersign_runs{status=\"waiting_for_approval\"}", 1.0);
        for (name, value) in [
            ("decisions_total{verdict=\"approve\"}", 1.0),
            ("decision_seconds_count{kind=\"approval\"}", 1.0),
            ("calls_total{group=\"content\",effect=\"write\",result=\"ok\"}", 1.0),
            ("calls_refused_total{reason=\"unknown_tool\"}", 1.0),
            ("calls_total{group=\"none\",effect=\"none\",result=\"refused\"}", 1.0),
            ("runs_ended_total{status=\"completed\",reason=\"answer\"}", 1.0),
            ("events_total{kind=\"run.created\"}", 2.0),
            ("model_replies_total{provider=\"stub\"}", 4.0),
            ("tokens_total{provider=\"stub\",kind=\"input\"}", 400.0),
            ("runs_agent_unknown", 0.0),
        ] {
            assert_eq!(after.get(&format!("countersign_{name}")), Some(&value), "{name}: {after:#?}");
        }
        assert!(after["countersign_append_seconds_count"] > 5.0);
        assert_eq!(after["countersign_queued_seconds_count"], 3.0, "two starts, and one decision");
        assert_eq!(after["countersign_drain_seconds"], 0.0);
        // No run, no person, nothing that a model made up.
        let all: Vec<&String> = after.keys().collect();
        for never in ["run_", "pnd_", "call_0", "alice", "made_up"] {
            let found =
                all.iter().find(|name| name.contains(&format!("\"{never}")) || name.contains("made_up"));
            assert_eq!(found, None, "{never}");
        }
    }
}

#[test]
fn rule_r6_an_unknown_outcome_and_a_run_that_nobody_knows_are_seen() {
    let more = "\n[workers]\nlease = \"500ms\"\n\n[agents.other]\nmodels = [\"stub/scripted\"]\n";
    let tool = ToolServer::start(Comes::Hangs);
    let model = Server::start(vec![write_turn(), Play::Hang]);
    let folder = Folder::new();
    let how = format!("http = \"{}\"\ntimeout = \"300ms\"", tool.url);
    folder.configure(model.url(), &(declared("page", &how, "write", "") + more));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    alice.decide(&run["pending"], json!({ "verdict": "approve" })).expect(200);
    let unknown = with(&serve.stranger(), "countersign_outcome_unknown_open", 1.0);
    assert!(unknown["countersign_outcome_unknown_oldest_age_seconds"] >= 0.0);
    assert_eq!(unknown["countersign_calls_unknown_total{group=\"content\",effect=\"write\"}"], 1.0);
    assert_eq!(unknown["countersign_pendings_open{kind=\"resolution\"}"], 1.0);
    let other = alice.post("/v1/runs", &json!({ "agent": "other", "input": "y" })).expect(201);
    assert!(text(&other["id"]).starts_with("run_"));
    // Its model never answers, so its lease is renewed again and again.
    until("a heartbeat", || {
        let seen = scrape(&serve.stranger()).get("countersign_heartbeat_lag_seconds_count").copied();
        seen.filter(|count| *count > 1.0)
    });
    drop(serve);
    let gone = folder.text("countersign.toml").replace("[agents.other]\nmodels = [\"stub/scripted\"]", "");
    folder.write("countersign.toml", &gone);
    let serve = Serve::start(&folder);
    with(&serve.stranger(), "countersign_runs_agent_unknown", 1.0);
}
