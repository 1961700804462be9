//! What must be the same whichever database keeps the runs: one file, or a PostgreSQL that many share.

use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::Serve;
use crate::support::{Done, Folder, kinds, text, until};

const SHORT_LEASE: &str = "[workers]\nlease = \"1s\"\n";

#[test]
fn a_run_pauses_is_approved_in_another_process_and_goes_on_in_a_third() {
    for folder in Folder::of_each_kind() {
        let server = Server::start(vec![
            calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
            says("done"),
        ]);
        folder.configure(server.url(), "");
        for looking in [&["pending", "list"][..], &["runs", "list"], &["db", "doctor"]] {
            assert!(folder.run(looking).expect(2).one_sentence().contains("there is no database"));
        }
        assert!(folder.run(&["tools", "list"]).expect(0).out.contains("write_file"));
        let paused = folder.run(&["run", "x"]).expect(3);
        assert!(paused.out.contains("a.txt"), "{paused:?}");
        assert_eq!(folder.newest_run()["status"], "waiting_for_approval");
        assert!(!folder.path("a.txt").exists());
        let open = folder.open();
        folder.decide("approve", &["--detach"]).expect(0);
        let again = folder.run(&["approve", text(&open["id"]), "--digest", text(&open["digest"])]).expect(5);
        assert!(again.one_sentence().contains("already_decided"), "rule A9: {again:?}");
        assert_eq!(folder.newest_run()["status"], "queued");
        let all = folder.run(&["runs", "resume", "--all"]).expect(0);
        assert!(all.out.contains("done"), "{all:?}");
        assert_eq!(folder.text("a.txt"), "a");
        let run = folder.newest_run();
        let expected = [
            "run.created",
            "model.replied",
            "pending.opened",
            "pending.decided",
            "call.started",
            "call.finished",
            "model.replied",
            "run.completed",
        ];
        assert_eq!(kinds(&folder.events(text(&run["id"]))), expected);
        assert!(folder.run(&["db", "doctor"]).expect(0).out.contains("Nothing was found"));
    }
}

#[test]
fn rule_r3_a_killed_process_loses_nothing_and_another_takes_over_on_either_database() {
    for folder in Folder::of_each_kind() {
        let server = Server::start(vec![calls(&[("list_files", json!({}))]), Play::Hang, says("done")]);
        folder.configure(server.url(), SHORT_LEASE);
        let mut working = folder.command(&["run", "x"]).spawn().unwrap();
        server.wait_for(2);
        let run = folder.newest_run();
        assert_eq!(run["status"], "running");
        let id = text(&run["id"]);
        let other = folder.run(&["runs", "resume", id]).expect(4);
        assert!(other.one_sentence().contains("another process works on run"), "rule R6: {other:?}");
        // The signal that nobody can handle.
        working.kill().unwrap();
        working.wait().unwrap();
        let resumed: Done = until("the end of the lease", || {
            let resumed = folder.run(&["runs", "resume", id]);
            (resumed.exit != 4).then_some(resumed)
        });
        assert_eq!(resumed.expect(0).out, "done\n");
        let asked = server.asked();
        assert_eq!(asked[1], asked[2], "the same bytes again");
    }
}

#[test]
fn rule_r6_a_server_goes_on_with_what_a_killed_one_held_long_before_its_lease_is_over() {
    for folder in Folder::of_each_kind() {
        let model = Server::start(vec![Play::Hang, says("done")]);
        folder.configure(model.url(), "[workers]\nlease = \"10m\"\n");
        let mut serve = Serve::start(&folder);
        let alice = serve.client(&folder, "alice", &[]);
        let run = alice.post("/v1/runs", &json!({ "input": "x" })).expect(201);
        model.wait_for(1);
        assert_eq!(folder.newest_run()["status"], "running");
        serve.kill();
        let _next = Serve::start(&folder);
        let ended = until("the next server to end the run", || {
            Some(folder.newest_run()).filter(|run| run["status"] == "completed")
        });
        assert_eq!(ended["id"], run["id"]);
    }
}

#[test]
fn rule_s3_a_server_with_nothing_in_hand_goes_on_after_the_key_was_changed() {
    for folder in Folder::of_each_kind() {
        let script = vec![calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]), says("done")];
        let model = Server::start(script);
        folder.configure(model.url(), "");
        let serve = Serve::start(&folder);
        let alice = serve.client(&folder, "alice", &[]);
        let run = alice.start("x");
        folder.run(&["keys", "rotate"]).expect(0);
        serve.stranger().get("/readyz").expect(200);
        let id = text(&run["id"]);
        assert_eq!(alice.get(&format!("/v1/runs/{id}")).expect(200)["status"], "waiting_for_approval");
        folder.decide("approve", &["--detach"]).expect(0);
        until("the server to end the run", || (alice.run(id)["status"] == "completed").then_some(()));
    }
}

#[test]
fn what_people_do_to_a_database_as_a_whole_is_done_on_either() {
    for folder in Folder::of_each_kind() {
        let server = Server::start(vec![says("done")]);
        folder.configure(server.url(), "");
        let migrated = folder.json(&["db", "migrate", "--json"]);
        assert!(migrated["schema_version"].as_u64().unwrap() > 0);
        folder.run(&["run", "x"]).expect(0);
        folder.run(&["tools", "disable", "write_file"]).expect(0);
        assert!(folder.run(&["tools", "list"]).expect(0).out.contains("write_file"));
        let key = folder.text(".countersign/key");
        let rotated = folder.json(&["keys", "rotate", "--json"]);
        assert_eq!((&rotated["runs"], &rotated["retired"]), (&json!(1), &json!(true)), "{rotated}");
        assert_ne!(folder.text(".countersign/key"), key);
        let run = text(&folder.newest_run()["id"]).to_owned();
        let erased = folder.json(&["runs", "erase", &run, "--json"]);
        assert_eq!(erased["events"], 3);
        assert!(folder.run(&["db", "restored"]).expect(0).out.contains("Changed: 0 runs"));
        assert!(folder.run(&["db", "doctor"]).expect(0).out.contains("Nothing was found"));
        let purged = folder.json(&["db", "purge", "--older-than", "1ms", "--json"]);
        assert_eq!(purged["runs"], 1);

        // The old key opens it no more, and a key is made for no database that has one.
        folder.write(".countersign/key", &key);
        assert!(folder.run(&["runs", "list"]).expect(2).one_sentence().contains("sealed under the key"));
        std::fs::remove_file(folder.path(".countersign/key")).unwrap();
        assert!(folder.run(&["runs", "list"]).expect(2).one_sentence().contains("put the key file back"));
    }
}

#[test]
fn a_postgresql_says_what_it_does_not_do_and_where_it_cannot_be_reached() {
    let folder = Folder::on_postgres();
    let server = Server::start(vec![says("done")]);
    folder.configure(server.url(), "");
    folder.run(&["db", "migrate"]).expect(0);
    let refused = folder.run(&["db", "backup", "copy"]).expect(2);
    assert!(refused.one_sentence().contains("pg_dump"), "{refused:?}");

    let nowhere = Folder::new();
    nowhere.write("countersign.toml", "database = \"postgres:///d?host=/nowhere\"\n");
    let lost = nowhere.run(&["run", "--model", "demo", "x"]).expect(4);
    let lost = lost.one_sentence();
    assert!(lost.contains("the database postgres:///d cannot be opened"), "{lost}");
}

#[test]
fn rule_r2_the_release_before_goes_on_beside_the_next_one_says_so_and_stops_where_it_must() {
    let model = Server::answering(|_| says("done"));
    let folder = Folder::on_postgres();
    folder.configure(model.url(), "");
    let running = Serve::start(&folder);
    let schema = folder.json(&["db", "migrate", "--json"])["schema_version"].as_u64().unwrap();
    let ends = |serve: &Serve, who: &str| {
        let client = serve.client(&folder, who, &[]);
        let id = text(&client.start("x")["id"]).to_owned();
        until("the run to end", || (client.run(&id)["status"] == "completed").then_some(()));
        client
    };
    // What the next release does first: it adds.
    let next = schema + 1;
    folder.change_database(&format!(
        "ALTER TABLE runs ADD COLUMN weather TEXT; CREATE TABLE almanac (day TEXT); \
         UPDATE schema_version SET version = {next}"
    ));
    ends(&running, "alice");
    let migrated = folder.run(&["db", "migrate"]).expect(0).out;
    assert!(migrated.contains("may work on it beside newer ones"), "{migrated}");
    let again = Serve::start(&folder);
    until("it to say so", || {
        again.said().contains(&format!("to schema {next}; this one knows")).then_some(())
    });
    drop(running);
    let bob = ends(&again, "bob");

    // What a later one does when all others are gone, or should be.
    folder.change_database(&format!("UPDATE schema_version SET readable_from = {next}"));
    let refused = bob.post("/v1/runs", &json!({ "input": "x" }));
    assert!(refused.status >= 500, "{refused:?}");
    again.stranger().get("/readyz").refused(503, "not_ready");
    assert!(again.said().contains("end it, and start the newer one"), "{}", again.said());
    let late = folder.run(&["serve"]).expect(2);
    assert!(late.one_sentence().ends_with("Use the newer one"), "{late:?}");
}
