//! What goes wrong: one sentence that says what, why and what next; the right exit status; nothing lost.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::Serve;
use crate::support::{Done, Folder, text, until};

fn failing_model(play: Play, code: &str, words: &str) {
    let server = Server::start(vec![play]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let failed = folder.run(&["run", "x"]).expect(4);
    let run = folder.newest_run();
    assert_eq!((text(&run["status"]), text(&run["error"]["code"])), ("failed", code));
    assert_eq!(failed.err.lines().count(), 1, "{failed:?}");
    for part in [text(&run["id"]), code, words, "runs events"] {
        assert!(failed.err.contains(part), "{part}: {failed:?}");
    }
    assert_eq!(server.asked().len(), 5, "rule L7");
    assert_eq!(run["usage"]["unknown_calls"], 5);
}

#[test]
fn case_c06_too_many_requests_for_ever() {
    let play = Play::Answer(429, "Retry-After: 0\r\n", "{}".into());
    failing_model(play, "rate_limited", "rate limit");
}

#[test]
fn a_model_server_that_answers_with_a_page() {
    let play = Play::Answer(200, "Content-Type: text/html\r\n", "<h1>Welcome</h1>".into());
    failing_model(play, "model_unreadable", "not in its own format");
}

#[test]
fn a_model_server_that_is_down() {
    let folder = Folder::new();
    // Nobody listens on the first port of all.
    folder.configure("http://127.0.0.1:1/v1", "");
    let failed = folder.run(&["run", "x"]).expect(4);
    assert!(
        failed.err.contains("model_unreachable")
            && failed.err.contains("could not be reached")
            && failed.err.contains("(stub/scripted)"),
        "{failed:?}"
    );
    assert_eq!(failed.err.lines().count(), 1, "{failed:?}");
}

#[test]
fn a_malformed_configuration_names_file_line_and_key() {
    let folder = Folder::new();
    for (config, expected) in [
        (
            "workspace = \".\"\nagent = 1\n",
            "countersign.toml:2: the key agent is unknown; did you mean agents?",
        ),
        ("prices = 1\n", "countersign.toml:1: the key prices is unknown"),
        ("workspace = [\n", "countersign.toml:"),
        (
            "database = \"postgres://u:secret@h/d\"\n",
            "countersign.toml:1: database: a password does not belong here: set PGPASSWORD in the environment",
        ),
        ("workspace = \"gone\"\n", "gone cannot be opened"),
    ] {
        folder.write("countersign.toml", config);
        let failed = folder.run(&["run", "--model", "d/x", "x"]).expect(2);
        assert!(failed.one_sentence().contains(expected), "{failed:?}");
    }
    let gone = folder.run(&["run", "--config", "gone.toml", "x"]).expect(2);
    assert!(gone.one_sentence().contains("gone.toml cannot be read"), "{gone:?}");
}

#[test]
fn a_tool_that_nobody_has_is_left_out_visibly() {
    let folder = Folder::new();
    let run = folder.run(&["run", "--model", "demo", "--tools", "list_files,lst_files", "x"]).expect(0);
    assert!(
        run.err.contains("note: the tool lst_files is left out: no tool of this name is registered"),
        "{run:?}"
    );
    let events = folder.events(text(&folder.newest_run()["id"]));
    assert_eq!(events[1]["kind"], "gate.denied");
    assert_eq!(
        events[1]["data"],
        json!({ "tool": "lst_files", "reason": "not_registered", "observed_only": false })
    );
}

#[test]
fn a_gate_has_the_same_word_at_the_start_and_at_dispatch() {
    let server = Server::start(vec![calls(&[("lst_files", json!({}))]), says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "--tools", "lst_files", "x"]).expect(0);
    let events = folder.events(text(&folder.newest_run()["id"]));
    let denied: Vec<_> = events.iter().filter(|event| event["kind"] == "gate.denied").collect();
    assert_eq!(denied.len(), 2, "{events:?}");
    assert_eq!(denied[0]["data"], denied[1]["data"]);
    assert_eq!(denied[0]["data"]["reason"], "not_registered", "the Verdict's word");
    let finished = events.iter().find(|event| event["kind"] == "call.finished").unwrap();
    assert_eq!(finished["data"]["refusal"], "unknown_tool", "the call's own word");
}

#[test]
fn an_unknown_agent_model_or_provider() {
    let folder = Folder::new();
    let agent = folder.run(&["run", "--model", "demo", "--agent", "nobody", "x"]).expect(2);
    assert!(agent.one_sentence().contains("there is no agent nobody"), "{agent:?}");
    let model = folder.run(&["run", "--model", "nonsense", "x"]).expect(2);
    assert!(model.one_sentence().contains("PROVIDER/MODEL"), "{model:?}");
    let provider = folder.run(&["run", "--model", "nobody/x", "x"]).expect(2);
    assert!(provider.one_sentence().contains("its provider is unknown"), "{provider:?}");
    assert_eq!(folder.json(&["runs", "list", "--json"])["items"], json!([]));
}

#[test]
fn a_database_that_is_something_else_is_left_alone() {
    let folder = Folder::new();
    folder.write(".countersign/countersign.db", "this is a diary, and nobody's business");
    folder.run(&["runs", "list"]).expect(2);
    folder.write(".countersign/key", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
    let failed = folder.run(&["runs", "list"]).expect(2);
    assert!(
        failed.one_sentence().contains("is not a database of countersign, so it is left alone"),
        "{failed:?}"
    );
    assert_eq!(folder.text(".countersign/countersign.db"), "this is a diary, and nobody's business");
    std::fs::remove_file(folder.path(".countersign/countersign.db")).unwrap();
    std::fs::create_dir(folder.path(".countersign/countersign.db")).unwrap();
    let failed = folder.run(&["runs", "list"]).expect(2);
    assert!(failed.one_sentence().contains("cannot be opened"), "{failed:?}");
}

#[test]
fn rule_s3_another_key_is_refused_and_a_lost_one_is_not_replaced() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let key = folder.text(".countersign/key");
    let given = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let wrong: Done =
        folder.command(&["runs", "list"]).env("COUNTERSIGN_KEY", given).output().unwrap().into();
    let wrong = wrong.expect(2);
    assert!(
        wrong.one_sentence().contains("sealed under the key")
            && wrong.one_sentence().contains("COUNTERSIGN_KEY"),
        "{wrong:?}"
    );
    std::fs::remove_file(folder.path(".countersign/key")).unwrap();
    let lost = folder.run(&["runs", "list"]).expect(2);
    assert!(lost.one_sentence().contains("put the key file back"), "{lost:?}");
    assert!(!folder.path(".countersign/key").exists());
    let known: Done =
        folder.command(&["runs", "list"]).env("COUNTERSIGN_KEY", key.trim()).output().unwrap().into();
    known.expect(0);
    let malformed: Done =
        folder.command(&["runs", "list"]).env("COUNTERSIGN_KEY", "key-SECRET-2").output().unwrap().into();
    let malformed = malformed.expect(2);
    assert!(
        malformed.one_sentence().contains("32 bytes in base64") && !malformed.err.contains("SECRET"),
        "{malformed:?}"
    );
}

#[test]
fn a_place_that_cannot_be_written() {
    let folder = Folder::new();
    // /proc takes no folders, whoever asks.
    folder.write("countersign.toml", "database = \"sqlite:/proc/countersign/runs.db\"\n");
    let failed = folder.run(&["run", "--model", "demo", "x"]).expect(2);
    assert!(failed.one_sentence().contains("the folder /proc/countersign cannot be made"), "{failed:?}");
    folder.write("countersign.toml", "key_file = \"/proc/countersign\"\n");
    let failed = folder.run(&["run", "--model", "demo", "x"]).expect(2);
    assert!(failed.one_sentence().contains("the key file /proc/countersign cannot be made"), "{failed:?}");
}

#[test]
fn output_that_cannot_be_written_is_told_and_a_reader_that_went_away_is_not() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["runs", "list", "--json"][..], &["pending", "list"], &["--help"]] {
        let failed: Done = folder.command(arguments).stdout(full()).output().unwrap().into();
        let failed = failed.expect(4);
        assert!(failed.one_sentence().contains("the output cannot be written (No space left"), "{failed:?}");
    }
    let waits: Done =
        folder.command(&["run", "--model", "demo", "x"]).stdout(full()).output().unwrap().into();
    waits.expect(4);
    assert_eq!(folder.json(&["pending", "list", "--json"])["items"].as_array().unwrap().len(), 2);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone: Done = folder.command(&["runs", "list"]).stdout(writer).output().unwrap().into();
    assert_eq!(gone.expect(0).err, "");
}

/// The program under a bound on the size of files, in blocks of 512 bytes, which is how a full disk looks to it.
fn under_a_bound(folder: &Folder, blocks: u32, arguments: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_countersign");
    let mut command = Command::new("/bin/sh");
    let shell = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    command.args(["-c", &shell, "sh", program]).args(arguments);
    command.current_dir(folder.path("")).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

fn with_small_files(folder: &Folder, arguments: &[&str]) -> Done {
    under_a_bound(folder, 400, arguments).output().unwrap().into()
}

#[test]
fn a_server_whose_database_cannot_be_written_is_not_ready() {
    let folder = Folder::new();
    folder.configure("http://127.0.0.1:1/v1", "");
    let serve = Serve::start(&folder);
    assert_eq!(serve.stranger().get("/readyz").status, 200);
    drop(serve);
    let serve = Serve::start_by(under_a_bound(&folder, 100, &["serve", "--listen", "127.0.0.1:0"]));
    // Others, who are not bound, fill the log of the database up to where the server cannot go on.
    let log = folder.path(".countersign/countersign.db-wal");
    while std::fs::metadata(&log).unwrap().len() < 60_000 {
        folder.run(&["token", "create", "--subject", "ann"]).expect(0);
    }
    let answer = serve.stranger().get("/readyz");
    answer.refused(503, "not_ready");
    // What was seen is told again without another try, and the log says it once.
    assert_eq!(serve.stranger().get("/readyz").status, 503);
    let times = || serve.said().matches("the database cannot be written").count();
    until("the log to say so", || (times() > 0).then_some(()));
    assert_eq!(times(), 1, "{}", serve.said());
    assert_eq!(serve.stranger().get("/healthz").status, 200, "and it is alive");
}

#[test]
fn a_database_that_cannot_grow_loses_nothing() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says(&"long ".repeat(100_000)),
        says("short"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    // An argument has at most 128 kB; a quotation mark is stored as two characters.
    let failed = with_small_files(&folder, &["run", &"\"".repeat(120_000)]).expect(4);
    assert!(
        failed.one_sentence().contains("the run could not be stored, so nothing was started"),
        "{failed:?}"
    );
    assert_eq!(folder.json(&["runs", "list", "--json"])["items"].as_array().unwrap().len(), 1);

    // The decision fits, the model's long answer does not: the run is kept, and goes on from there.
    let (id, digest) = (text(&open["id"]), text(&open["digest"]));
    let failed = with_small_files(&folder, &["approve", id, "--digest", digest]).expect(4);
    let run = folder.newest_run();
    let resume = format!("runs resume {}", text(&run["id"]));
    let told = failed.err.lines().last().unwrap();
    assert!(told.contains("the run could not be stored further") && told.contains(&resume), "{failed:?}");
    assert_eq!(folder.text("a.txt"), "a");
    let resumed = folder.run(&["runs", "resume", text(&run["id"])]).expect(0);
    assert_eq!(resumed.out, "short\n");
    let events = folder.events(text(&run["id"]));
    let started = events.iter().filter(|event| event["kind"] == "call.started");
    assert_eq!(started.count(), 1, "the write was done once");
}

#[test]
fn rule_r7_a_run_whose_model_is_gone_is_left_alone_and_can_still_be_denied() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "x"]).expect(3);
    let configured = folder.text("countersign.toml");
    folder.write("countersign.toml", "workspace = \".\"\n[agents.default]\nmodels = [\"demo/tour\"]\n");
    let gone = folder.decide("approve", &[]).expect(5);
    assert!(gone.one_sentence().starts_with("refused: agent_gone: "), "{gone:?}");
    let run = folder.newest_run();
    assert_eq!(run["status"], "waiting_for_approval");
    let open = folder.open();
    for arguments in [&["pending", "show", text(&open["id"])][..], &["runs", "resume", text(&run["id"])]] {
        let shown = folder.run(arguments).out;
        assert!(shown.contains(" deny pnd_") && shown.contains(" runs cancel run_"), "{shown}");
        assert!(shown.contains("can only be ended") && !shown.contains(" approve pnd_"), "{shown}");
    }
    folder.write("countersign.toml", &configured);
    folder.decide("approve", &["--detach"]).expect(0);
    folder.write("countersign.toml", "workspace = \".\"\n[agents.default]\nmodels = [\"demo/tour\"]\n");
    let gone = folder.run(&["runs", "resume", text(&run["id"])]).expect(5);
    assert!(gone.one_sentence().starts_with("refused: agent_gone: "), "{gone:?}");
    folder.write("countersign.toml", &configured);
    assert_eq!(folder.run(&["runs", "resume", text(&run["id"])]).expect(0).out, "done\n");
}

#[test]
fn rule_m2_a_question_whose_tool_changed_is_shown_as_void_and_the_run_goes_on_without_it() {
    let server = Server::start(vec![
        calls(&[("list_files", json!({})), ("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    assert_eq!(open["status"], "open");
    let configured = folder.text("countersign.toml");
    // Without a workspace there are no file tools.
    folder.write("countersign.toml", &configured.replace("workspace = \".\"", ""));
    let void = folder.json(&["pending", "show", text(&open["id"]), "--json"]);
    assert_eq!(void["digest"], open["digest"], "what was asked stays what it was");
    for shown in
        [&void, &folder.json(&["pending", "list", "--json"])["items"][0], &folder.newest_run()["pending"]]
    {
        assert_eq!(shown["status"], "void");
        let call = &shown["calls"][1];
        assert_eq!((&call["will_run"], &call["refusal"]), (&json!(false), &json!("definition_changed")));
    }
    let shown = folder.run(&["pending", "show", text(&open["id"])]).expect(0).out;
    assert!(shown.contains("This question is void") && shown.contains("definition_changed"), "{shown}");
    assert!(shown.contains(" runs resume run_") && !shown.contains(" approve pnd_"), "{shown}");
    let listed = folder.run(&["pending", "list"]).expect(0).out;
    assert!(listed.lines().any(|line| line.contains("pnd_") && line.contains(" void ")), "{listed}");
    // Shown is not stored: with the tool back, the question is what it was.
    folder.write("countersign.toml", &configured);
    assert_eq!(folder.open(), open);
    folder.write("countersign.toml", &configured.replace("workspace = \".\"", ""));
    let resumed = folder.run(&["runs", "resume", text(&open["run"])]).expect(0);
    assert_eq!(resumed.out, "done\n");
    assert!(resumed.err.contains("the question is void"), "{resumed:?}");
    let events = folder.events(text(&open["run"]));
    let closed = events.iter().find(|event| event["kind"] == "pending.closed").unwrap();
    assert_eq!(closed["data"]["status"], "void");
    assert!(!folder.path("a.txt").exists());
}

#[test]
fn a_refused_decision_says_what_to_do_next() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "second_approver = true\n");
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    let (id, digest) = (text(&open["id"]), text(&open["digest"]));
    let show = format!("pending show {id}");
    let other = format!("sha256:{}", "a".repeat(64));
    let refused = |arguments: &[&str], code: &str, next: &str| {
        let refused = folder.run(arguments).expect(5);
        let told = refused.one_sentence();
        assert!(told.starts_with(&format!("refused: {code}: ")) && told.contains(next), "{told}");
    };
    refused(&["deny", id, "--digest", &other], "stale_digest", &show);
    refused(&["approve", id, "--digest", digest], "self_approval", "another approver must release it");
    refused(&["approve", "pnd_1", "--digest", digest], "not_found", "pending list");
    refused(&["answer", id, "--digest", digest, "--data", "{}"], "wrong_kind", &show);
    // A question that is void is closed by whoever tries to decide it, and the run goes on.
    let configured = folder.text("countersign.toml");
    folder.write("countersign.toml", &configured.replace("workspace = \".\"", ""));
    let void = folder.run(&["deny", id, "--digest", digest]).expect(5);
    assert!(void.one_sentence().starts_with("refused: void: "), "{void:?}");
    assert_eq!(void.out, "done\n");
    folder.run(&["runs", "cancel", text(&open["run"])]).expect(5);
    refused(&["deny", id, "--digest", digest], "void", "runs show run_");
}
