//! Looking, switching, deciding in parts, acting as somebody else.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::{Done, Folder, text};

fn has_keys(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "{key} is missing in {value}");
    }
}

const PENDING: &[&str] =
    &["id", "run", "kind", "status", "digest", "created_at", "expires_at", "calls", "input", "decision"];

#[test]
fn the_json_of_runs_and_questions_has_every_key_of_the_contract() {
    let folder = Folder::new();
    let run = folder.json(&["run", "--model", "demo", "--json", "x"]);
    has_keys(
        &run,
        &[
            "id",
            "status",
            "agent",
            "owner",
            "unattended",
            "iterations",
            "usage",
            "output",
            "truncated",
            "stop_reason",
            "error",
            "pending",
            "created_at",
            "updated_at",
            "finished_at",
        ],
    );
    has_keys(&run["usage"], &["input_tokens", "output_tokens", "cached_input_tokens", "unknown_calls"]);
    has_keys(&run["pending"], PENDING);
    let open = folder.open();
    assert_eq!(open, run["pending"], "the question is the same wherever it is shown");
    has_keys(
        &open["calls"][0],
        &[
            "id",
            "tool",
            "remote_name",
            "group",
            "origin",
            "server",
            "effect",
            "arguments",
            "original_arguments",
            "needs_approval",
            "because",
            "will_run",
            "refusal",
            "preview",
        ],
    );
    has_keys(&open["calls"][0]["preview"], &["lines", "failed"]);
    folder.decide("approve", &["--json"]).expect(0);
    let settled = folder.json(&["pending", "show", text(&open["id"]), "--json"]);
    has_keys(&settled["decision"], &["by", "at", "verdict", "calls", "reason", "attribution"]);
    assert_eq!(settled["decision"]["attribution"], "self");
    let events = folder.events(text(&run["id"]));
    for (seq, event) in events.iter().enumerate() {
        has_keys(event, &["seq", "at", "kind", "data"]);
        assert_eq!(event["seq"], seq);
        assert!(text(&event["at"]).ends_with('Z'));
    }
}

#[test]
fn tools_are_listed_switched_and_explained() {
    let folder = Folder::new();
    folder.write("countersign.toml", "workspace = \".\"\n[providers.d]\nkind = \"demo\"\nzone = \"local\"\n[agents.default]\nmodels = [\"d/x\"]\n[agents.reader]\nmodels = [\"d/x\"]\ntool_groups = [\"files\"]\n");
    let names = |arguments: &[&str]| -> Vec<String> {
        let items = folder.json(arguments)["items"].as_array().unwrap().clone();
        items.iter().map(|tool| text(&tool["name"]).to_owned()).collect()
    };
    let reading = ["list_files", "read_file", "search_files"];
    let writing = ["write_file", "edit_file", "move_file", "delete_file"];
    let status = ["list_runs", "system_status"];
    assert_eq!(
        names(&["tools", "list", "--json"]),
        [&reading[..], &writing, &["fetch_page"], &status].concat()
    );
    assert_eq!(names(&["tools", "list", "--unattended", "--json"]), [&reading[..], &status].concat());
    assert_eq!(names(&["tools", "list", "--agent", "reader", "--json"]), reading);

    assert!(
        folder
            .run(&["tools", "disable", "read_file"])
            .expect(0)
            .out
            .contains("read_file is switched off. It is now off")
    );
    let tool = folder.json(&["tools", "list", "--json"])["items"][1].clone();
    assert_eq!(
        tool["enabled"],
        json!({ "effective": false, "tool": false, "group": true, "default": true, "overridden": true })
    );
    assert_eq!(
        names(&["tools", "list", "--unattended", "--json"]),
        ["list_files", "search_files", "list_runs", "system_status"]
    );
    let explained = folder.json(&["tools", "explain", "read_file", "--json"]);
    assert_eq!((&explained["allowed"], &explained["reason"]), (&json!(false), &json!("tool_disabled")));
    folder.run(&["groups", "disable", "files"]).expect(0);
    let told = folder.run(&["tools", "enable", "read_file"]).expect(0).out;
    assert!(told.contains("Its group files is switched off, so it stays off"), "rule G4: {told}");
    folder.run(&["groups", "reset", "files"]).expect(0);
    folder.run(&["tools", "reset", "read_file"]).expect(0);
    let explained = folder.run(&["tools", "explain", "write_file", "--agent", "reader"]).expect(0).out;
    assert!(explained.contains("the agent does not allow this tool (configuration_group)"), "{explained}");
    assert!(
        explained.contains("gate 4") && explained.contains("gate 5") && explained.contains("not asked"),
        "{explained}"
    );
    let unknown = folder.json(&["tools", "explain", "Read_file", "--json"]);
    assert_eq!(unknown["reason"], "not_registered", "rule G10: names are compared byte for byte");
    for more in [&[][..], &["--json"]] {
        let gone = folder.run(&[&["tools", "explain", "Read_file"], more].concat()).expect(2);
        let sentence = "error: no tool has the name Read_file, byte for byte; did you mean read_file?";
        assert_eq!(gone.one_sentence(), sentence);
        assert!(gone.out.contains("not_registered"), "the verdict is printed all the same: {gone:?}");
    }
}

#[test]
fn rule_g10_a_switch_for_a_name_nobody_has_is_an_error_and_stores_nothing() {
    let folder = Folder::new();
    for arguments in [
        ["tools", "disable", "Read_file"],
        ["tools", "enable", "nope"],
        ["tools", "reset", "read_file\u{200b}"],
        ["groups", "disable", "Files"],
        ["groups", "reset", "nope"],
    ] {
        let done = folder.run(&arguments).expect(2);
        assert!(done.one_sentence().contains("nothing was stored"), "{done:?}");
    }
    let groups = folder.json(&["groups", "list", "--json"]);
    assert_eq!(groups["items"].as_array().unwrap().len(), 5);
    assert!(groups["items"].as_array().unwrap().iter().all(|group| group["overridden"] == false));
}

#[test]
fn orphaned_switches_are_shown_and_can_be_removed() {
    let folder = Folder::new();
    folder.run(&["tools", "disable", "read_file"]).expect(0);
    folder.run(&["groups", "disable", "files"]).expect(0);
    folder
        .write("countersign.toml", "[providers.d]\nkind = \"demo\"\n[agents.default]\nmodels = [\"d/x\"]\n");
    let tools = folder.json(&["tools", "list", "--json"]);
    assert_eq!(
        tools["items"][3],
        json!({ "name": "read_file", "orphaned": true,
        "enabled": { "effective": false, "tool": false, "group": null, "default": null, "overridden": true } })
    );
    assert!(folder.run(&["tools", "disable", "read_file"]).expect(2).one_sentence().contains("no tool"));
    folder.run(&["tools", "reset", "read_file"]).expect(0);
    folder.run(&["groups", "reset", "files"]).expect(0);
    for (list, count) in [("tools", 3), ("groups", 3)] {
        let items = folder.json(&[list, "list", "--json"])["items"].as_array().unwrap().clone();
        assert_eq!(items.len(), count, "{items:?}");
    }
}

#[test]
fn a_turn_can_be_decided_call_by_call_and_only_in_full() {
    let server = Server::start(vec![
        calls(&[
            ("write_file", json!({ "path": "a.txt", "content": "a" })),
            ("list_files", json!({})),
            ("write_file", json!({ "path": "b.txt", "content": "b" })),
        ]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "write two files"]).expect(3);
    assert!(!folder.path("a.txt").exists());
    let open = folder.open();
    let call = |index: usize| text(&open["calls"][index]["id"]).to_owned();
    let partial = folder.decide("approve", &["--call", &format!("{}=approve", call(0))]).expect(5);
    assert!(partial.one_sentence().starts_with("refused: calls_incomplete: "), "{partial:?}");
    let approve = format!("{}=approve", call(0));
    let deny = format!("{}=deny", call(2));
    let done = folder.decide("approve", &["--call", &approve, "--call", &deny]).expect(0);
    assert_eq!(done.out, "done\n");
    assert_eq!(folder.text("a.txt"), "a");
    assert!(!folder.path("b.txt").exists());
    let settled = folder.json(&["pending", "show", text(&open["id"]), "--json"]);
    assert_eq!((&settled["status"], &settled["decision"]["verdict"]), (&json!("approved"), &json!("mixed")));
    let results: Vec<_> = server.asked()[1]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .cloned()
        .collect();
    assert_eq!(results.len(), 3);
    assert!(text(&results[2]["content"]).contains("denied by a person"));
}

#[test]
fn a_decision_needs_the_digest_of_what_was_seen() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let open = folder.open();
    let id = text(&open["id"]);
    let without = folder.run(&["approve", id]).expect(2);
    assert!(
        without.one_sentence().contains(&format!("pending show {id}")),
        "it says how to get one: {without:?}"
    );
    let other = format!("sha256:{}", "0".repeat(64));
    let stale = folder.run(&["approve", id, "--digest", &other]).expect(5);
    assert!(stale.one_sentence().starts_with("refused: stale_digest: "), "{stale:?}");
    let gone = folder.run(&["approve", "pnd_1", "--digest", &other]).expect(5);
    assert!(gone.one_sentence().starts_with("refused: not_found: "), "{gone:?}");
    assert_eq!(folder.open()["status"], "open");
}

#[test]
fn detached_a_decision_is_only_recorded() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let decided = folder.decide("approve", &["--detach"]).expect(0);
    assert!(decided.out.contains("is queued"), "{decided:?}");
    let run = folder.newest_run();
    assert_eq!(run["status"], "queued");
    let resumed = folder.run(&["runs", "resume", "--all"]).expect(0);
    assert!(resumed.out.contains("came back as a success"), "{resumed:?}");
    assert!(folder.text(".countersign/tour/opening-hours.md").contains("17:00"));
}

#[test]
fn whoever_acts_for_somebody_is_recorded_as_them_and_has_their_rights() {
    let folder = Folder::new();
    let unknown = folder.run(&["run", "--model", "demo", "--as", "bob", "x"]).expect(2);
    assert!(unknown.one_sentence().contains("nobody is known as bob"), "{unknown:?}");
    folder.run(&["user", "set", "bob"]).expect(0);
    folder.run(&["user", "set", "eve"]).expect(0);
    let run = folder.json(&["run", "--model", "demo", "--as", "bob", "--json", "x"]);
    assert_eq!(run["owner"], "bob");
    let foreign = folder.decide("approve", &["--as", "eve"]).expect(5);
    assert!(foreign.one_sentence().starts_with("refused: not_found: "), "case C57: {foreign:?}");
    assert_eq!(folder.json(&["pending", "list", "--as", "eve", "--json"])["items"], json!([]));
    folder.run(&["runs", "show", text(&run["id"]), "--as", "eve"]).expect(2);
    assert!(
        folder.run(&["user", "set", "eve", "--approver"]).expect(0).out.contains("eve is now an approver")
    );
    folder.decide("approve", &["--as", "eve"]).expect(0);
    let events = folder.events(text(&run["id"]));
    let decided = events.iter().find(|event| event["kind"] == "pending.decided").unwrap();
    assert_eq!(
        (&decided["data"]["by"], &decided["data"]["attribution"]),
        (&json!("eve"), &json!("second_person"))
    );
}

#[test]
fn rule_a8_four_eyes() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "second_approver = true\n");
    folder.run(&["run", "x"]).expect(3);
    let own = folder.decide("approve", &[]).expect(5);
    assert!(own.one_sentence().starts_with("refused: self_approval: "), "{own:?}");
    folder.run(&["user", "set", "bob", "--admin"]).expect(0);
    folder.decide("approve", &["--as", "bob"]).expect(0);
    assert_eq!(folder.text("a.txt"), "a");
}

#[test]
fn a_waiting_run_can_be_cancelled_and_its_question_is_withdrawn() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let (open, run) = (folder.open(), folder.newest_run());
    assert!(folder.run(&["runs", "cancel", text(&run["id"])]).expect(0).out.contains("is cancelled"));
    let late = folder.run(&["approve", text(&open["id"]), "--digest", text(&open["digest"])]).expect(5);
    assert!(late.one_sentence().starts_with("refused: withdrawn: "), "{late:?}");
    folder.run(&["runs", "cancel", text(&run["id"])]).expect(5);
    assert_eq!(folder.newest_run()["stop_reason"], "cancelled");
}

#[test]
fn a_configuration_is_checked_and_what_is_surely_not_meant_is_said() {
    let folder = Folder::new();
    let done = folder.run(&["config", "check"]).expect(0);
    assert!(done.out.contains("There is no configuration"), "{done:?}");
    folder.write(
        "countersign.toml",
        "workspace = \".\"\n[providers.stub]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"STUB_KEY\"\n\
         [providers.spare]\nkind = \"demo\"\nzone = \"local\"\n[agents.default]\nmodels = [\"stub/x\", \"gone/y\"]\n\
         tool_groups = [\"files\", \"pages\"]\nsecond_approver = true\n",
    );
    let done = folder.run(&["config", "check"]).expect(0);
    for warning in [
        "countersign.toml:2: the provider stub has no zone",
        "countersign.toml:2: the variable STUB_KEY",
        "countersign.toml:6: no agent uses the provider spare",
        "countersign.toml:10: the fallback gone/y",
        "countersign.toml:11: agent default names the group pages, which no tool has",
        "countersign.toml:9: agent default wants a second person",
        "the tool write_file can never be offered (agent default: the agent does not allow this tool)",
    ] {
        assert!(done.err.contains(warning), "{warning}\n{}", done.err);
    }
    assert!(!folder.path(".countersign").exists(), "checking makes nothing");
    folder.write("countersign.toml", "[agents.default]\nmodels = [\"gone/y\"]\n");
    let done = folder.run(&["config", "check"]).expect(2);
    assert!(
        done.one_sentence().contains("countersign.toml:2: agents.default.models: the model gone/y"),
        "{done:?}"
    );
}

#[test]
fn state_and_key_are_for_this_account_only() {
    let folder = Folder::new();
    let migrated = folder.run(&["db", "migrate"]).expect(0);
    assert!(migrated.out.contains("has schema version "), "{migrated:?}");
    let mode = |file: &str| std::fs::metadata(folder.path(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(".countersign"), mode(".countersign/key")), (0o700, 0o600));
    assert_eq!(folder.text(".countersign/.gitignore"), "*\n", "and nobody's to commit");
    let key = folder.text(".countersign/key");
    folder.run(&["runs", "list"]).expect(0);
    assert_eq!(folder.text(".countersign/key"), key);
}

#[test]
fn an_unusable_key_in_the_environment_stands_in_nobodys_way_but_its_own() {
    let folder = Folder::new();
    let with_key = |arguments: &[&str]| {
        Done::from(folder.command(arguments).env("OPENAI_API_KEY", "sk-secret\n").output().unwrap())
    };
    let run = with_key(&["run", "--model", "demo", "x"]).expect(3);
    assert!(run.out.contains("demo/tour"), "{run:?}");
    with_key(&["runs", "list"]).expect(0);
    let refused = with_key(&["run", "x"]).expect(2);
    let sentence = refused.one_sentence();
    assert!(sentence.contains("OPENAI_API_KEY") && !sentence.contains("sk-secret"), "{sentence}");
}

#[test]
fn an_empty_task_starts_nothing_and_leaves_the_tour_as_it_was() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    folder.write(".countersign/tour/prices.md", "mine");
    let refused = folder.run(&["run", "--model", "demo", " "]).expect(2);
    assert!(refused.one_sentence().contains("the task is empty"), "{refused:?}");
    assert_eq!(folder.text(".countersign/tour/prices.md"), "mine");
}

#[test]
fn config_check_refuses_what_no_command_could_work_with() {
    let folder = Folder::new();
    for url in ["ftp://127.0.0.1/v1", "http://u:sekret@127.0.0.1/v1"] {
        folder.configure(url, "");
        let refused = folder.run(&["config", "check"]).expect(2);
        let sentence = refused.one_sentence();
        assert!(sentence.contains("countersign.toml:3") && !sentence.contains("sekret"), "{sentence}");
    }
}

#[test]
fn a_configuration_that_is_no_file_is_not_waited_for() {
    let folder = Folder::new();
    let pipe = folder.path("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let refused = folder.run(&["config", "check", "--config", "pipe.toml"]).expect(2);
    assert!(refused.one_sentence().contains("it is not a file"), "{refused:?}");
}

#[test]
fn a_configuration_is_found_above_and_the_commands_name_the_one_that_was_given() {
    let folder = Folder::new();
    folder.write("other.toml", "[agents.default]\nmodels = [\"demo/tour\"]\n");
    let run = folder.run(&["run", "--config", "other.toml", "x"]).expect(3);
    let command = run.out.lines().find(|line| line.contains(" approve pnd_")).unwrap();
    assert!(command.contains(" --config /") && command.ends_with("/other.toml"), "{command}");
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    folder.run(&words).expect(0);
}

#[test]
fn help_and_version_are_there() {
    let folder = Folder::new();
    assert!(folder.run(&["--version"]).expect(0).out.starts_with("countersign "));
    let help = folder.run(&["--help"]).expect(0).out;
    for command in [
        "run", "pending", "approve", "deny", "answer", "settle", "runs", "tools", "groups", "user", "config",
        "db",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}\n{help}");
    }
    folder.run(&["frobnicate"]).expect(2);
    folder.run(&["run"]).expect(2);
    folder.run(&["run", "   "]).expect(2);
}

#[test]
fn rule_l10_a_run_that_hits_a_limit_answers_and_exits_with_4() {
    let server = Server::start(vec![calls(&[("list_files", json!({}))]), says("as far as I came")]);
    let folder = Folder::new();
    folder.configure(server.url(), "max_iterations = 1\n");
    let limited = folder.run(&["run", "x"]).expect(4);
    assert!(limited.out.ends_with("as far as I came\n"), "{limited:?}");
    assert!(limited.err.contains("ended at a limit: max_iterations: "), "{limited:?}");
    let run = folder.newest_run();
    assert_eq!((&run["status"], &run["truncated"]), (&json!("completed"), &json!(true)));
    assert_eq!(
        (&run["stop_reason"], &run["error"]["code"]),
        (&json!("max_iterations"), &json!("max_iterations"))
    );
}

#[test]
fn rule_g8_without_tools_nothing_about_tools_is_on_the_wire() {
    let server = Server::start(vec![says("a plain answer")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let run = folder.run(&["run", "--no-tools", "x"]).expect(0);
    let first = run.out.lines().next().unwrap();
    assert!(first.starts_with("model stub/scripted | zone local | folder /"), "{first}");
    assert!(run.out.ends_with("\na plain answer\n"), "{run:?}");
    folder.run(&["run", "x"]).expect(0);
    let asked = server.asked();
    assert!(asked[0].get("tools").is_none(), "{}", asked[0]);
    assert_eq!(asked[1]["tools"].as_array().unwrap().len(), 9);
}

#[test]
fn rule_p6_a_provider_without_a_zone_counts_as_external_global() {
    let folder = Folder::new();
    folder.configure("http://127.0.0.1:9/v1", "");
    let text = folder.text("countersign.toml").replace("zone = \"local\"\n", "");
    folder.write("countersign.toml", &text);
    let explained = folder.json(&["tools", "explain", "read_file", "--json"]);
    assert_eq!(
        (&explained["zone"], &explained["ceiling"]),
        (&json!("external_global"), &json!("editor_content"))
    );
    assert_eq!(explained["reason"], "none", "the file tools may be shown to any model");
}

#[test]
fn an_answer_of_another_kind_is_refused_and_the_question_stays_open() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    for (verb, more) in [("answer", ["--data", "{}"]), ("settle", ["--outcome", "happened"])] {
        let refused = folder.decide(verb, &more).expect(5);
        assert!(refused.one_sentence().starts_with("refused: wrong_kind: "), "{refused:?}");
        assert_eq!(refused.out, "");
    }
    let malformed = folder.decide("answer", &["--data", "{\"a\":1,\"a\":2}"]).expect(2);
    assert!(malformed.one_sentence().contains("occurs twice"), "{malformed:?}");
    assert_eq!(folder.open()["status"], "open");
}

#[test]
fn several_first_commands_at_once_make_one_key_and_one_database() {
    let folder = Folder::new();
    let first: Vec<_> = (0..6).map(|_| folder.command(&["db", "migrate"]).spawn().unwrap()).collect();
    for child in first {
        Done::from(child.wait_with_output().unwrap()).expect(0);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path(".countersign"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{left:?}");
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
}
