//! Runs that outlive their process.

use rustix::process::Signal;
use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::pty::signal;
use crate::support::{Done, Folder, text, until};

const SHORT_LEASE: &str = "[workers]\nlease = \"1s\"\n";

#[test]
fn rule_r3_a_killed_process_loses_nothing_and_another_takes_over() {
    let server = Server::start(vec![calls(&[("list_files", json!({}))]), Play::Hang, says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "[workers]\nlease = \"10m\"\n");
    let mut working = folder.command(&["run", "x"]).spawn().unwrap();
    server.wait_for(2);
    let run = folder.newest_run();
    assert_eq!(run["status"], "running");
    let id = text(&run["id"]);
    let other = folder.run(&["runs", "resume", id]).expect(4);
    assert!(other.one_sentence().contains("another process works on run"), "rule R6: {other:?}");
    let all = folder.run(&["runs", "resume", "--all"]).expect(0);
    assert!(all.err.starts_with(&format!("note: another process works on run {id} until ")), "{all:?}");
    assert!(all.out.starts_with("No run is owed work"), "{all:?}");
    // The signal that nobody can handle.
    working.kill().unwrap();
    working.wait().unwrap();
    // Nobody waits for its lease.
    assert_eq!(folder.run(&["runs", "resume", id]).expect(0).out, "done\n");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[1], asked[2], "the same bytes again");
    let started = folder.events(id).iter().filter(|event| event["kind"] == "call.started").count();
    assert_eq!(started, 1, "what has a result does not run again");
}

#[test]
fn a_signal_stops_at_the_next_boundary_and_leaves_the_run_to_be_resumed() {
    for (signalled, exit) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let server = Server::start(vec![Play::Hang, says("done")]);
        let folder = Folder::new();
        folder.configure(server.url(), "");
        let working = folder.command(&["run", "x"]).spawn().unwrap();
        server.wait_for(1);
        signal(&working, signalled);
        let stopped = Done::from(working.wait_with_output().unwrap()).expect(exit);
        let run = folder.newest_run();
        assert_eq!(run["status"], "queued", "nothing is held and nothing is cancelled");
        assert!(stopped.err.contains(&format!("runs resume {}", text(&run["id"]))), "{stopped:?}");
        assert_eq!(folder.run(&["runs", "resume", text(&run["id"])]).expect(0).out, "done\n");
    }
}

#[test]
fn a_signal_stops_a_deciding_command_in_the_same_way() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        Play::Hang,
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    let arguments = ["approve", text(&open["id"]), "--digest", text(&open["digest"])];
    let working = folder.command(&arguments).spawn().unwrap();
    server.wait_for(2);
    signal(&working, Signal::TERM);
    Done::from(working.wait_with_output().unwrap()).expect(143);
    assert_eq!(folder.newest_run()["status"], "queued");
    assert_eq!(folder.run(&["runs", "resume", text(&open["run"])]).expect(0).out, "done\n");
}

#[test]
fn a_deciding_command_leaves_the_run_to_whoever_works_on_it() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        Play::Hang,
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), SHORT_LEASE);
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    folder.decide("approve", &["--detach"]).expect(0);
    let run = folder.newest_run();
    let id = text(&run["id"]).to_owned();
    let mut working = folder.command(&["runs", "resume", &id]).spawn().unwrap();
    server.wait_for(2);
    // A second decision is refused at once, and does not disturb the worker.
    folder.run(&["approve", text(&open["id"]), "--digest", text(&open["digest"])]).expect(5);
    working.kill().unwrap();
    working.wait().unwrap();
    until("the end of the lease", || (folder.newest_run()["status"] == "queued").then_some(()));
    let all = folder.run(&["runs", "resume", "--all"]).expect(0);
    assert!(all.out.contains("done"), "{all:?}");
    assert_eq!(folder.text("a.txt"), "a");
}

#[test]
fn case_c18_questions_survive_with_the_same_ids_and_digests() {
    let folder = Folder::new();
    for _ in 0..3 {
        folder.run(&["run", "--model", "demo", "x"]).expect(3);
    }
    let before = folder.json(&["pending", "list", "--json"]);
    let again = folder.json(&["pending", "list", "--json"]);
    assert_eq!(before, again);
    assert_eq!(before["items"].as_array().unwrap().len(), 3);
    let first = &before["items"][0];
    folder.run(&["approve", text(&first["id"]), "--digest", text(&first["digest"])]).expect(0);
    assert_eq!(folder.json(&["pending", "list", "--json"])["items"].as_array().unwrap().len(), 2);
}

#[test]
fn case_c60_an_expired_question_is_neither_approved_nor_denied() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "approval_ttl = \"1s\"\n");
    let open = folder.json(&["run", "--json", "x"])["pending"].clone();
    let (id, digest) = (text(&open["id"]), text(&open["digest"]));
    let goes_on = format!("runs resume {}", text(&open["run"]));
    let noticed = until("the deadline", || {
        let shown = folder.run(&["pending", "show", id, "--json"]);
        shown.out.contains("\"expired\"").then_some(shown)
    });
    assert!(noticed.err.contains(&goes_on), "whoever closes it says how the run goes on: {noticed:?}");
    let late = folder.run(&["approve", id, "--digest", digest, "--detach"]).expect(5);
    let told = late.one_sentence();
    assert!(told.starts_with("refused: expired: ") && told.contains(&goes_on), "{told}");
    let late = folder.run(&["approve", id, "--digest", digest]).expect(5);
    assert!(late.one_sentence().contains("the run goes on without an answer"), "{late:?}");
    assert_eq!(late.out, "done\n", "it is claimable work, and was done");
    folder.run(&["approve", id, "--digest", digest]).expect(5);
    assert_eq!(server.asked().len(), 2);
    assert!(!folder.path("a.txt").exists());
    let told = server.asked()[1]["messages"].to_string();
    assert!(told.contains("expired") && !told.contains("denied"), "{told}");
}

#[test]
fn a_question_is_found_from_below_and_nowhere_else_and_no_state_is_made_by_looking() {
    let folder = Folder::new();
    folder.write("notices/deep/x.txt", "x");
    let elsewhere = Folder::new();
    for arguments in [
        &["pending", "list"][..],
        &["pending", "show", "pnd_1"],
        &["runs", "list"],
        &["approve", "pnd_1", "--digest", "x"],
        &["runs", "resume", "--all"],
    ] {
        let digest = format!("sha256:{}", "a".repeat(64));
        let arguments: Vec<&str> =
            arguments.iter().map(|word| if *word == "x" { digest.as_str() } else { word }).collect();
        let told = elsewhere.run(&arguments).expect(2);
        let told = told.one_sentence();
        assert!(told.contains("there is no database") && told.contains("--config"), "{told}");
    }
    for arguments in [&["tools", "list"][..], &["groups", "list"], &["tools", "explain", "edit_file"]] {
        assert!(elsewhere.run(arguments).expect(0).out.contains("editing") || arguments[1] == "explain");
    }
    assert!(!elsewhere.path(".countersign").exists());

    let run = folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let here = format!("Decide it with one of (in {}):", folder.path("").canonicalize().unwrap().display());
    assert!(run.out.contains(&here), "{here}: {run:?}");
    let open = folder.open();
    let arguments = ["approve", text(&open["id"]), "--digest", text(&open["digest"])];
    let below = folder.command(&arguments).current_dir(folder.path("notices/deep")).output().unwrap();
    assert!(Done::from(below).expect(0).out.contains("The correction came back as a success"));
    assert!(!folder.path("notices/deep/.countersign").exists());
}

#[test]
fn a_printed_command_names_a_configuration_that_was_named_so_that_it_works_anywhere() {
    let folder = Folder::new();
    folder.write("a/countersign.toml", "");
    for (arguments, variable) in [
        (&["run", "--config", "a/countersign.toml", "--model", "demo", "x"][..], ""),
        (&["run", "--model", "demo", "x"], "a/countersign.toml"),
    ] {
        let run = folder.command(arguments).env("COUNTERSIGN_CONFIG", variable).output().unwrap();
        let run = Done::from(run).expect(3);
        let command = run.out.lines().find(|line| line.contains(" approve pnd_")).unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let elsewhere = Folder::new();
        assert!(elsewhere.run(&words).expect(0).out.contains("The correction came back as a success"));
    }
}

#[test]
fn all_that_is_owed_work_is_one_list_for_programs_also_when_it_is_empty() {
    let server = Server::answering(|asked| {
        let messages = asked["messages"].as_array().unwrap();
        let has_acted = messages.iter().any(|message| message["role"] == "tool");
        if has_acted {
            says("done")
        } else {
            calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))])
        }
    });
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["db", "migrate"]).expect(0);
    let all = ["runs", "resume", "--all", "--json"];
    assert_eq!(folder.json(&all), json!({ "items": [], "next": null }));
    for task in ["x", "y"] {
        folder.run(&["run", task]).expect(3);
        folder.decide("approve", &["--detach"]).expect(0);
    }
    let resumed = folder.json(&all);
    let ends: Vec<_> = resumed["items"].as_array().unwrap().iter().map(|run| text(&run["status"])).collect();
    assert_eq!(ends, ["completed", "completed"], "{resumed}");
    assert!(resumed["items"][0]["id"] != resumed["items"][1]["id"]);
}
