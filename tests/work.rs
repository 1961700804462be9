//! Workers beside a server, on the PostgreSQL that they share.

use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::{Client, Process, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text, until};

fn write_turn() -> Play {
    calls(&[("page", json!({ "id": 1 }))])
}

fn answers() -> Comes {
    Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec())
}

fn bench(script: Vec<Play>, tool: &ToolServer, more: &str) -> (Folder, Server) {
    let model = Server::start(script);
    let folder = Folder::on_postgres();
    let how = format!("http = \"{}\"\ntimeout = \"20s\"", tool.url);
    folder.configure(model.url(), &(declared("page", &how, "write", "") + more));
    (folder, model)
}

#[test]
fn on_a_file_there_are_no_workers_beside_the_server_and_it_says_what_to_do() {
    let folder = Folder::new();
    folder.configure("http://127.0.0.1:1", "");
    let refused = folder.run(&["work"]).expect(2);
    let sentence = refused.one_sentence();
    for words in [".countersign/countersign.db", "use `serve`", "postgres://USER@HOST/NAME"] {
        assert!(sentence.contains(words), "{sentence}");
    }
    assert!(!folder.path(".countersign").exists(), "nothing was made");
}

#[test]
fn rule_r5_a_run_that_waits_outlives_its_server_and_a_worker_goes_on_with_it() {
    let tool = ToolServer::start(answers());
    let (folder, _model) = bench(vec![write_turn(), says("done")], &tool, "");
    let mut serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    assert_eq!(run["status"], "waiting_for_approval");
    serve.kill();
    let mut work = Process::work(&folder);
    assert!(work.said().starts_with("model stub/scripted | zone local | folder "), "{}", work.said());
    // The word alone: the worker hears of it and drives the run.
    folder.decide("approve", &["--detach"]).expect(0);
    let ended = until("the worker to end the run", || {
        Some(folder.newest_run()).filter(|run| run["status"] == "completed")
    });
    assert_eq!((&ended["id"], ended["iterations"].as_u64()), (&run["id"], Some(2)));
    assert_eq!(tool.calls().len(), 1);
    work.terminate();
    assert_eq!(work.ended().code(), Some(0));
    assert!(work.said().contains("\nended: 0 runs let go of at a boundary\n"), "{}", work.said());
}

#[test]
fn rule_m2_a_start_looks_only_at_questions_that_were_not_looked_at_under_the_same_tools() {
    let tool = ToolServer::start(answers());
    let script = vec![write_turn(), write_turn(), says("done"), says("done")];
    let (folder, _model) = bench(script, &tool, "");
    let configured = folder.text("countersign.toml");
    let noted = || folder.ask_postgres("SELECT definitions FROM reviewed");
    let first = until("a look to be noted", || {
        let _work = Process::work(&folder);
        Some(noted()).filter(|noted| noted.starts_with("sha256:"))
    });
    // Two questions of another tool with the same name.
    let other = configured.replace("effect = \"write\"", "effect = \"idempotent_write\"");
    assert_ne!(other, configured);
    folder.write("countersign.toml", &other);
    let asked = [(), ()].map(|()| {
        folder.run(&["run", "x"]).expect(3);
        text(&folder.newest_run()["id"]).to_owned()
    });
    folder.write("countersign.toml", &configured);
    let status = |run: &str| folder.json(&["runs", "show", run, "--json"])["status"].clone();
    // As if the first of them had been looked at, back then.
    folder.ask_postgres(&format!("UPDATE reviewed SET definitions = '{}', cursor = '1'", first.trim()));
    {
        let _work = Process::work(&folder);
        until("the second to be closed", || (status(&asked[1]) == "completed").then_some(()));
        assert_eq!(status(&asked[0]), "waiting_for_approval", "it comes before the second");
    }
    // Another set of tools: everything is looked at.
    folder.ask_postgres(&format!("UPDATE reviewed SET definitions = 'sha256:{}'", "0".repeat(64)));
    let _work = Process::work(&folder);
    until("the first to be closed", || (status(&asked[0]) == "completed").then_some(()));
    until("the look to be noted", || (noted() == first).then_some(()));
    assert!(tool.calls().is_empty());
}

#[test]
fn rule_r6_of_two_workers_one_takes_a_run_up_and_makes_its_call_once() {
    let tool = ToolServer::start(answers());
    let (folder, model) = bench(vec![write_turn(), says("done")], &tool, "");
    folder.run(&["run", "x"]).expect(3);
    let _workers = [Process::work(&folder), Process::work(&folder)];
    folder.decide("approve", &["--detach"]).expect(0);
    until("one of them to end the run", || (folder.newest_run()["status"] == "completed").then_some(()));
    assert_eq!((tool.calls().len(), model.count()), (1, 2));
}

#[test]
fn rule_r6_a_worker_takes_over_from_one_that_was_killed_and_from_no_other() {
    let tool = ToolServer::start(answers());
    let script = vec![write_turn(), Play::Hang, says("done")];
    let (folder, model) = bench(script, &tool, "\n[workers]\nlease = \"1s\"\n");
    folder.run(&["run", "x"]).expect(3);
    let mut first = Process::work(&folder);
    folder.decide("approve", &["--detach"]).expect(0);
    model.wait_for(2);
    let _second = Process::work(&folder);
    assert_eq!(folder.newest_run()["status"], "running");
    first.kill();
    until("the other to end the run", || (folder.newest_run()["status"] == "completed").then_some(()));
    let asked = model.asked();
    assert_eq!((asked.len(), tool.calls().len()), (3, 1));
    assert_eq!(asked[1], asked[2], "the same bytes again");
}

#[test]
fn at_sigterm_a_worker_lets_a_call_in_flight_come_back_and_lets_go_of_its_run() {
    let (tool, open) = ToolServer::gated();
    let (folder, _model) = bench(vec![write_turn(), says("done")], &tool, "");
    folder.run(&["run", "x"]).expect(3);
    let mut work = Process::work(&folder);
    folder.decide("approve", &["--detach"]).expect(0);
    tool.wait_for_a_call();
    work.terminate();
    until("the grace to begin", || work.said().contains("calls in flight have 25s").then_some(()));
    open();
    assert_eq!(work.ended().code(), Some(0));
    assert!(work.said().contains("\nended: 1 run let go of at a boundary\n"), "{}", work.said());
    let run = folder.newest_run();
    let events = folder.events(text(&run["id"]));
    assert_eq!(text(&events.last().unwrap()["kind"]), "call.finished", "the result is kept");
    assert_eq!(folder.run(&["runs", "resume", text(&run["id"])]).expect(0).out, "done\n");
    assert_eq!(tool.calls().len(), 1);
}

#[test]
fn a_worker_that_listens_answers_only_supervisors_and_monitors() {
    let tool = ToolServer::start(answers());
    let (folder, _model) = bench(vec![write_turn(), says("done")], &tool, "");
    let mut work = Process::start(folder.command(&["work", "--listen", "127.0.0.1:0"]));
    let address = work.says("listening on http://");
    folder.run(&["run", "x"]).expect(3);
    let monitor = Client::of(&address);
    for path in ["/healthz", "/readyz"] {
        monitor.get(path).expect(200);
    }
    until("the question to be counted", || {
        let metrics = monitor.get("/metrics");
        metrics.body.contains("countersign_pendings_open{kind=\"approval\"} 1").then_some(())
    });
    for path in ["/v1/runs", "/openapi.json"] {
        monitor.get(path).refused(404, "not_found");
    }
}
