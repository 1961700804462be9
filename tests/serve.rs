//! The server as a process: how it begins, works beside others, and ends.

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::Serve;
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, text, until};

fn write_turn() -> Play {
    calls(&[("page", json!({ "id": 1 }))])
}

fn bench(script: Vec<Play>, comes: Comes, effect: &str, more: &str) -> (Folder, Server, ToolServer) {
    let (model, tool) = (Server::start(script), ToolServer::start(comes));
    let folder = Folder::new();
    let how = format!("http = \"{}\"\ntimeout = \"20s\"", tool.url);
    folder.configure(model.url(), &(declared("page", &how, effect, "") + more));
    (folder, model, tool)
}

fn answers() -> Comes {
    Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec())
}

#[test]
fn serve_says_how_to_make_the_first_token_until_there_is_one() {
    let (folder, _model, _) = bench(vec![says("done")], answers(), "read", "");
    let first = Serve::start(&folder);
    let said = until("the way to the first token", || {
        let said = first.said();
        said.contains("token create --subject ").then_some(said)
    });
    assert!(said.starts_with("model stub/scripted | zone local | folder "), "{said}");
    drop(first);
    folder.run(&["token", "create", "--subject", "ann", "--admin"]).expect(0);
    let second = Serve::start(&folder);
    assert!(!second.said().contains("token create"), "{}", second.said());
}

#[test]
fn one_serve_at_a_time_has_a_sqlite_file_and_short_commands_work_beside_it() {
    let (folder, _model, tool) = bench(vec![write_turn(), says("done")], answers(), "write", "");
    let serve = Serve::start(&folder);
    let second: Done = folder.run(&["serve", "--listen", "127.0.0.1:0"]).expect(2);
    assert!(second.one_sentence().contains("another serve (process "), "{second:?}");
    // A run of the command line, a word of the command line, and the work is the server's.
    let alice = serve.client(&folder, "alice", &["--approver"]);
    let run = alice.start("x");
    let decided = folder.decide("approve", &[]).expect(0);
    assert_eq!(decided.out, "done\n");
    assert_eq!(alice.run(text(&run["id"]))["status"], "completed");
    assert_eq!(tool.calls().len(), 1);
    drop(serve);
    drop(Serve::start(&folder));
}

#[test]
fn case_c18_a_question_outlives_the_server_and_its_answer_does_too() {
    let (folder, _model, tool) = bench(vec![write_turn(), says("done")], answers(), "write", "");
    let mut serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    serve.kill();
    let serve = Serve::start(&folder);
    let alice = serve.stranger().with_token(alice.token());
    let open = alice.get(&format!("/v1/pending/{}", text(&run["pending"]["id"]))).expect(200);
    assert_eq!((&open["status"], &open["digest"]), (&json!("open"), &run["pending"]["digest"]));
    alice.approve(&open);
    let ended = alice.run(text(&run["id"]));
    assert_eq!((&ended["status"], &ended["output"]), (&json!("completed"), &json!("done")));
    assert_eq!(tool.calls().len(), 1);
}

#[test]
fn at_sigterm_a_call_in_flight_comes_back_and_its_run_is_let_go_of() {
    let model = Server::start(vec![write_turn(), says("done")]);
    let (tool, open) = ToolServer::gated();
    let folder = Folder::new();
    let how = format!("http = \"{}\"", tool.url);
    folder.configure(model.url(), &declared("page", &how, "write", ""));
    let mut serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    alice.decide(&run["pending"], json!({ "verdict": "approve" })).expect(200);
    tool.wait_for_a_call();
    serve.terminate();
    until("readiness to be off", || (serve.stranger().get("/readyz").status == 503).then_some(()));
    alice.get("/v1/runs").refused(503, "draining");
    let scrape = serve.stranger().get("/metrics").body;
    let drain: f64 =
        scrape.split("\ncountersign_drain_seconds ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    assert!(drain > 0.0 && scrape.contains("\ncountersign_draining 1\n"), "{drain}");
    open();
    let ended = serve.ended();
    assert_eq!(ended.code(), Some(0));
    assert!(serve.said().contains("ended: 1 run let go of at a boundary\n"), "{}", serve.said());
    let events = folder.events(text(&run["id"]));
    assert_eq!(text(&events.last().unwrap()["kind"]), "call.finished", "the result is kept");
    // Nobody waits for the lease: the run is free at once.
    assert_eq!(folder.run(&["runs", "resume", text(&run["id"])]).expect(0).out, "done\n");
    assert_eq!(tool.calls().len(), 1);
}

#[test]
fn when_the_grace_is_over_a_call_is_cut_off_and_its_outcome_is_unknown() {
    let workers = "\n[workers]\ndrain = \"100ms\"\n";
    let (folder, _model, tool) = bench(vec![write_turn(), says("done")], Comes::Hangs, "write", workers);
    let mut serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    alice.decide(&run["pending"], json!({ "verdict": "approve" })).expect(200);
    tool.wait_for_a_call();
    serve.terminate();
    assert_eq!(serve.ended().code(), Some(0));
    assert!(serve.said().contains(", 1 run cut off in a call"), "{}", serve.said());
    let serve = Serve::start(&folder);
    let alice = serve.stranger().with_token(alice.token());
    let stopped = until("the run to need a word", || {
        let run = alice.run(text(&run["id"]));
        (run["status"] == "needs_resolution").then_some(run)
    });
    assert_eq!(stopped["pending"]["kind"], "resolution");
    let given_up = alice.decide(&stopped["pending"], json!({ "outcome": "give_up" })).expect(200);
    assert_eq!(given_up["status"], "settled");
    let ended = alice.run(text(&run["id"]));
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("outcome_unknown")));
    assert_eq!(tool.calls().len(), 1);
}

#[test]
fn rule_r6_a_run_of_an_agent_that_nobody_knows_is_left_alone_and_stops_no_other() {
    let more = "\n[workers]\nlease = \"500ms\"\n\n[agents.other]\nmodels = [\"stub/scripted\"]\n";
    let (folder, model, _) = bench(vec![Play::Hang, says("two")], answers(), "read", more);
    let mut serve = Serve::start(&folder);
    let root = serve.client(&folder, "root", &["--admin"]);
    let asks = |agent: &str| json!({ "agent": agent, "input": "x" });
    let interrupted = text(&root.post("/v1/runs", &asks("other")).expect(201)["id"]).to_owned();
    model.wait_for(1);
    serve.kill();
    let text_of = folder.text("countersign.toml");
    folder.write("countersign.toml", text_of.split("\n[agents.other]").next().unwrap());
    let serve = Serve::start(&folder);
    let root = serve.stranger().with_token(root.token());
    let started = root.post("/v1/runs", &asks("default")).expect(201);
    assert_eq!(root.run(text(&started["id"]))["status"], "completed");
    until("the lease to run out", || {
        let left: Value = root.get(&format!("/v1/runs/{interrupted}")).expect(200);
        (left["status"] == "queued").then_some(())
    });
    assert_eq!(model.asked().len(), 2, "nobody took it up");
    root.post("/v1/runs", &asks("other")).refused(422, "unknown_agent");
}

#[test]
fn a_wrong_configuration_or_a_taken_address_ends_serve_with_two() {
    let (folder, _model, _) = bench(vec![says("done")], answers(), "read", "");
    let serve = Serve::start(&folder);
    let other = Folder::new();
    let taken: Done = other.run(&["serve", "--listen", serve.address()]).expect(2);
    assert!(taken.err.contains("cannot be listened on"), "{taken:?}");
    other.write("countersign.toml", "lisen = \"127.0.0.1:1\"\n");
    let wrong: Done = other.run(&["serve"]).expect(2);
    assert!(
        wrong.one_sentence().contains("countersign.toml:1: the key lisen is unknown; did you mean listen?")
    );
}
