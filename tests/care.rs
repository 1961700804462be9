//! What people do to an installation as a whole: keys, copies, retention, erasure, examination.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::{Done, Folder, text, until};

/// A folder with one run that waits and one that has ended.
fn lived_in() -> Folder {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "--tools", "list_files", "x"]).expect(0);
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    folder
}

fn files(folder: &Folder) -> Vec<String> {
    let names = std::fs::read_dir(folder.path(".countersign")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("key"));
    names.sort();
    names
}

#[test]
fn rule_s3_a_rotation_changes_the_key_file_and_waiting_runs_go_on() {
    let folder = lived_in();
    let before = folder.text(".countersign/key");
    let done = folder.run(&["keys", "rotate"]).expect(0);
    assert!(
        done.out.contains("(taken over: 2 runs)") && done.out.contains("The old key opens nothing any more"),
        "{done:?}"
    );
    assert_ne!(folder.text(".countersign/key"), before);
    assert_eq!(files(&folder), ["key"], "nothing is left beside it");
    let mode = std::fs::metadata(folder.path(".countersign/key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    folder.decide("approve", &[]).expect(0);
    folder.run(&["db", "doctor"]).expect(0);
    let again = folder.json(&["keys", "rotate", "--json"]);
    assert_eq!(
        (&again["runs"], &again["retired"]),
        (&json!(2), &json!(true)),
        "another change is another key"
    );
    let new = folder.text(".countersign/key");
    folder.write(".countersign/key", &before);
    let refused = folder.run(&["runs", "list"]).expect(2);
    assert!(refused.one_sentence().contains("is sealed under the key"), "{refused:?}");
    folder.write(".countersign/key", &new);
    folder.run(&["runs", "list"]).expect(0);
}

#[test]
fn rule_s3_a_rotation_that_was_cut_short_is_finished_by_the_same_command() {
    let folder = lived_in();
    // The key was made, and nothing else.
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    folder.write(".countersign/key.next", key);
    folder.run(&["keys", "rotate"]).expect(0);
    assert_eq!((folder.text(".countersign/key").as_str(), files(&folder)), (key, vec!["key".to_owned()]));
    // Everything was done, except giving the file its name.
    let old = folder.text(".countersign/key");
    let in_environment = |arguments: &[&str], key: &str| -> Done {
        folder.command(arguments).env("COUNTERSIGN_KEY", key.trim()).output().unwrap().into()
    };
    in_environment(&["keys", "rotate"], &old).expect(3);
    assert!(folder.run(&["db", "doctor"]).expect(4).out.contains("is not retired yet"));
    assert!(folder.run(&["db", "backup", "copy.db"]).expect(4).one_sentence().contains("keys rotate"));
    let done = folder.run(&["keys", "rotate"]).expect(0);
    assert!(done.out.contains("The old key opens nothing any more"), "{done:?}");
    assert_eq!(files(&folder), ["key"]);
    folder.run(&["db", "doctor"]).expect(0);
}

#[test]
fn rule_s3_with_a_key_in_the_environment_the_rotation_says_what_to_set() {
    let folder = Folder::new();
    let old = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";
    let with = |key: &str, arguments: &[&str]| -> Done {
        folder.command(arguments).env("COUNTERSIGN_KEY", key).output().unwrap().into()
    };
    with(old, &["run", "--model", "demo", "x"]).expect(3);
    assert_eq!(files(&folder), [""; 0]);
    for _ in 0..2 {
        let first = with(old, &["keys", "rotate"]).expect(3);
        assert!(first.out.contains("Set COUNTERSIGN_KEY to what is in it"), "{first:?}");
    }
    assert_eq!(files(&folder), ["key.next"]);
    with(old, &["runs", "list"]).expect(0);
    let new = folder.text(".countersign/key.next").trim().to_owned();
    let second = with(&new, &["keys", "rotate"]).expect(0);
    assert!(second.out.contains("key.next if it is there"), "{second:?}");
    assert!(!(second.out + &second.err).contains(&new), "rule S5");
    with(old, &["runs", "list"]).expect(2);
    with(&new, &["runs", "list"]).expect(0);
    let third = with(&new, &["keys", "rotate"]).expect(2);
    assert!(third.one_sentence().contains("holds the key in use"), "{third:?}");
}

#[test]
fn the_doctor_finds_nothing_in_a_sound_database_and_names_what_is_not() {
    let folder = lived_in();
    let sound = folder.run(&["db", "doctor"]).expect(0);
    assert!(sound.out.starts_with("Nothing was found (2 runs, "), "{sound:?}");
    // An agent that nobody has any more.
    folder.write("countersign.toml", "[providers.d]\nkind = \"demo\"\n[agents.other]\nmodels = [\"d/x\"]\n");
    let found: Done = folder.run(&["db", "doctor", "--json"]).expect(4);
    let report: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
    assert!(
        text(&report["findings"][0]["finding"]).contains("its agent default is not configured"),
        "{report}"
    );
    assert_eq!(report["findings"][0]["damage"], false);
}

#[test]
fn rule_r10_only_ended_runs_are_purged_and_a_dry_run_removes_nothing() {
    let folder = lived_in();
    let count = |folder: &Folder| folder.json(&["runs", "list", "--json"])["items"].as_array().unwrap().len();
    assert!(
        folder
            .run(&["db", "purge", "--older-than", "90d"])
            .expect(0)
            .out
            .starts_with("Removed: 0 runs that ended before")
    );
    let dry = folder.run(&["db", "purge", "--older-than", "0s", "--dry-run"]).expect(0);
    assert!(dry.out.starts_with("Would be removed: 1 run that"), "{dry:?}");
    assert_eq!(count(&folder), 2);
    let done = folder.json(&["db", "purge", "--older-than", "0s", "--json"]);
    assert_eq!((&done["runs"], &done["dry_run"]), (&json!(1), &json!(false)));
    assert_eq!((count(&folder), text(&folder.newest_run()["status"])), (1, "waiting_for_approval"));
    assert!(
        folder
            .run(&["db", "purge", "--older-than", "soon"])
            .expect(2)
            .err
            .contains("a whole number and a unit")
    );
}

#[test]
fn rule_r10_an_ended_run_is_erased_and_a_waiting_one_is_not() {
    let folder = lived_in();
    let runs = folder.json(&["runs", "list", "--json"]);
    let (waiting, ended) = (text(&runs["items"][0]["id"]), text(&runs["items"][1]["id"]));
    let refused = folder.run(&["runs", "erase", waiting]).expect(5);
    let told = refused.one_sentence();
    assert!(told.contains("run_not_ended: the run waits for an approval, so nothing was erased"), "{told}");
    assert!(told.contains(&format!("runs cancel {waiting}`, then erase it")), "{told}");
    let done = folder.run(&["runs", "erase", ended]).expect(0);
    assert!(done.out.contains(&format!("Run {ended} is erased")), "{done:?}");
    assert!(folder.run(&["runs", "erase", ended]).expect(0).out.contains("was erased before"));
    assert!(folder.run(&["runs", "list"]).expect(0).out.contains("(erased)"));
    assert!(folder.run(&["runs", "show", ended]).expect(4).one_sentence().contains("its content was erased"));
    folder.run(&["db", "doctor"]).expect(0);
    let unknown = folder.run(&["runs", "erase", &format!("{ended}x")]).expect(2);
    assert!(unknown.one_sentence().contains("error: "), "{unknown:?}");
}

#[test]
fn after_a_backup_was_put_back_nothing_runs_on_the_word_of_before() {
    let folder = lived_in();
    let open = folder.open();
    let copied = folder.run(&["db", "backup", "copy.db"]).expect(0);
    assert!(copied.out.contains("copy.db"), "{copied:?}");
    assert!(folder.run(&["db", "backup", "copy.db"]).expect(2).one_sentence().contains("copy.db exists"));
    folder.decide("approve", &[]).expect(0);
    for ending in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(folder.path(&format!(".countersign/countersign.db{ending}"))));
    }
    std::fs::rename(folder.path("copy.db"), folder.path(".countersign/countersign.db")).unwrap();
    let done = folder.json(&["db", "restored", "--json"]);
    assert_eq!((&done["runs"], &done["voided"], &done["unknown"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(folder.json(&["db", "restored", "--json"])["runs"], 0, "twice changes nothing");
    let owed = folder.run(&["runs", "erase", text(&open["run"])]).expect(5);
    assert!(owed.one_sentence().contains("is at work, or waits for a worker"), "{owed:?}");
    let late = folder.run(&["approve", text(&open["id"]), "--digest", text(&open["digest"])]).expect(5);
    let told = late.one_sentence();
    assert!(
        told.contains("void: ") && told.contains("was restored from a backup since it was asked"),
        "{told}"
    );
    // The run is owed work; the script sees that nothing was changed, and asks again.
    folder.run(&["runs", "resume", "--all"]);
    folder.run(&["db", "doctor"]).expect(0);
}

#[test]
fn completions_and_manual_pages_are_printed_without_a_configuration() {
    let folder = Folder::new();
    folder.write("countersign.toml", "this is none");
    for shell in ["bash", "zsh", "fish"] {
        let done = folder.run(&["completions", shell]).expect(0);
        assert!(done.out.contains("countersign") && done.out.contains("rotate"), "{shell}");
    }
    let page = folder.run(&["man"]).expect(0);
    assert!(page.out.contains(".TH countersign") && page.out.contains("approve"), "{page:?}");
    assert!(folder.run(&["man", "runs", "list"]).expect(0).out.contains("newest first"));
    assert!(folder.run(&["man", "nope"]).expect(2).one_sentence().contains("there is no command"));
    assert!(!folder.path(".countersign").exists());
}

#[test]
fn what_a_script_would_read_is_json() {
    let folder = Folder::new();
    let tool = folder.json(&["tools", "disable", "read_file", "--json"]);
    assert_eq!((&tool["name"], &tool["enabled"]["effective"]), (&json!("read_file"), &json!(false)));
    let group = folder.json(&["groups", "disable", "files", "--json"]);
    assert_eq!(
        (&group["name"], &group["enabled"], &group["overridden"]),
        (&json!("files"), &json!(false), &json!(true))
    );
    let person = folder.json(&["user", "set", "bob", "--approver", "--json"]);
    let rights = json!({
        "subject": "bob", "admin": false, "approver": true, "service": false, "scopes": null, "disabled_at": null,
    });
    assert_eq!(person, rights);
    assert_eq!(folder.json(&["config", "check", "--json"]), json!({ "file": null, "warnings": [] }));
    assert!(folder.json(&["db", "migrate", "--json"])["schema_version"].is_u64());
    let copy = folder.json(&["db", "backup", "copy.db", "--json"]);
    assert!(text(&copy["backup"]).ends_with("copy.db"), "{copy}");
}

#[test]
fn rule_s3_while_a_worker_may_need_the_old_key_it_is_not_retired() {
    let server = Server::start(vec![Play::Hang, says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.configure_more("[workers]\nlease = \"3s\"\n");
    let mut worker = folder.command(&["run", "x"]).spawn().unwrap();
    server.wait_for(1);
    let first = folder.run(&["keys", "rotate"]).expect(3);
    assert!(first.out.contains("A worker may still need the old key until"), "{first:?}");
    worker.kill().unwrap();
    worker.wait().unwrap();
    let finished = until("a retired key", || {
        let done = folder.run(&["keys", "rotate"]);
        (done.exit == 0).then_some(done)
    });
    assert!(
        finished.out.contains("(taken over: 0 runs)"),
        "the change that had begun was ended: {finished:?}"
    );
    let resumed = folder.run(&["runs", "resume", "--all"]).expect(0);
    assert!(resumed.out.contains("done"), "{resumed:?}");
}

#[test]
fn rule_s2_the_next_key_does_not_exist_for_the_file_tools_either() {
    let server = Server::start(vec![
        calls(&[("read_file", json!({ "path": "keys/key.next" })), ("list_files", json!({}))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder
        .write("countersign.toml", &format!("key_file = \"keys/key\"\n{}", folder.text("countersign.toml")));
    folder.write("keys/key.next", "key-SECRET-2");
    folder.run(&["run", "x"]).expect(0);
    let told = server.asked()[1]["messages"].to_string();
    assert!(!told.contains("SECRET") && !told.contains("\"keys/key\""), "{told}");
    let listed = server.asked()[1]["messages"][3]["content"].clone();
    assert!(!text(&listed).contains("key.next"), "{listed}");
}
