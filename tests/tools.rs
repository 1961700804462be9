//! Tools that the operator declares: the example servers in both languages, commands, and everything that goes wrong.

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::tool::{Comes, Example, Language, ToolServer};
use crate::support::{Done, Folder, declared, kinds, text};

fn bench(script: Vec<Play>) -> (Server, Folder) {
    let server = Server::start(script);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    (server, folder)
}

/// What the model was told in the last message of its request number `index`.
fn told(server: &Server, index: usize) -> String {
    let asked = server.asked();
    text(&asked[index]["messages"].as_array().unwrap().last().unwrap()["content"]).to_owned()
}

fn reads_writes_and_goes_stale(language: Language) {
    let save = |text: &str| ("page_save", json!({ "id": 1, "text": text }));
    let (server, folder) = bench(vec![
        calls(&[("page_get", json!({ "id": 1 }))]),
        calls(&[save("Open 9 to 6")]),
        calls(&[save("Open 9 to 7")]),
        says("done"),
    ]);
    let example = Example::start(language);
    example.declare(&folder);

    let run = folder.run(&["run", "--json", "x"]).expect(3);
    assert_eq!(told(&server, 1), "Open 9 to 5", "a read runs without a question");
    let run: Value = serde_json::from_str(&run.out).unwrap();
    let call = &run["pending"]["calls"][0];
    assert_eq!(
        (&call["tool"], &call["origin"], &call["because"]),
        (&json!("page_save"), &json!("http"), &json!("writes"))
    );
    assert_eq!(call["preview"]["lines"], json!(["page 1", "- Open 9 to 5", "+ Open 9 to 6"]));
    folder.decide("approve", &[]).expect(3);
    assert_eq!(told(&server, 2), "Page 1 is saved.");

    // Between the question and the answer somebody else saves the page.
    let other = json!({ "arguments": { "id": 1, "text": "Closed" }, "precondition": null });
    example.call("/page_save", &other);
    folder.decide("approve", &[]).expect(0);
    assert_eq!(told(&server, 3), "Error: Not saved: the page has changed meanwhile.", "rule A7");
}

#[test]
fn rule_a7_a_python_server_reads_writes_and_notices_that_the_page_has_changed() {
    reads_writes_and_goes_stale(Language::Python);
}

#[test]
fn rule_a7_a_node_server_reads_writes_and_notices_that_the_page_has_changed() {
    reads_writes_and_goes_stale(Language::Node);
}

#[test]
fn rule_r9_a_typed_input_is_asked_for_checked_and_given_to_the_tool() {
    let (server, folder) =
        bench(vec![calls(&[("pick_date", json!({ "why": "x", "date": "1999-01-01" }))]), says("done")]);
    let example = Example::start(Language::Node);
    example.declare(&folder);
    let run = folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    assert_eq!((&open["kind"], &open["input"]["schema"]["required"]), (&json!("input"), &json!(["date"])));
    assert!(run.out.contains("answer"), "{run:?}");
    let refused = folder.decide("answer", &["--data", "{\"date\":\"tomorrow\"}"]).expect(5);
    assert!(refused.one_sentence().contains("invalid_input") && refused.err.contains("/date"), "{refused:?}");
    folder.decide("answer", &["--data", "{\"date\":\"2026-12-01\"}"]).expect(0);
    assert_eq!(told(&server, 1), "The date is 2026-12-01.", "the person's value replaces the model's");
}

#[test]
fn a_command_gets_its_arguments_five_variables_and_the_workspace() {
    let (server, folder) = bench(vec![
        calls(&[("look", json!({ "id": 7 })), ("fails", json!({})), ("gone", json!({}))]),
        says("done"),
    ]);
    let shell = |script: &str| format!("command = [\"/bin/sh\", \"-c\", \"{script}\"]");
    folder.configure_more(&declared(
        "look",
        &shell("cat; env | cut -d= -f1 | sort | tr '\\\\n' ' '; ls"),
        "read",
        "",
    ));
    folder.configure_more(&declared("fails", &shell("echo no >&2; exit 3"), "read", ""));
    folder.configure_more(&declared("gone", "command = [\"./not-there\"]", "read", ""));
    folder.write("a-page.txt", "x");
    let done =
        folder.command(&["run", "x"]).env("STUB_KEY", "key-SECRET-2").env("LANG", "C").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let messages = server.asked()[1]["messages"].clone();
    let said: Vec<&str> =
        messages.as_array().unwrap()[2..].iter().map(|message| text(&message["content"])).collect();
    let [looked, failed, gone] = said[..] else { panic!("{messages}") };
    assert!(looked.starts_with("{\"id\":7}"), "{looked}");
    for part in ["COUNTERSIGN_IDEMPOTENCY_KEY", "HOME", "LANG", "PATH", "a-page.txt"] {
        assert!(looked.contains(part), "{part}: {looked}");
    }
    assert!(!looked.contains("STUB_KEY") && !looked.contains("USER"), "{looked}");
    assert_eq!(failed, "Error: The tool fails failed (exit status: 3).");
    assert!(gone.contains("The tool gone could not be started"), "{gone}");
}

/// A write that gave no answer, settled in one of three ways.
fn settled(comes: Comes, outcome: &str, more: &[&str], exit: i32) -> (Server, Folder, ToolServer) {
    let (server, folder) = bench(vec![calls(&[("drop", json!({ "id": 7 }))]), says("done")]);
    let tool = ToolServer::start(comes);
    folder.configure_more(&declared(
        "drop",
        &format!("http = \"{}\"", tool.url),
        "write",
        "timeout = \"2s\"",
    ));
    folder.run(&["run", "x"]).expect(3);
    let asked = folder.decide("approve", &["--json"]).expect(3);
    let run: Value = serde_json::from_str(&asked.out).unwrap();
    assert_eq!((&run["status"], &run["pending"]["kind"]), (&json!("needs_resolution"), &json!("resolution")));
    assert_eq!(tool.calls().len(), 1, "rule R3: a write is never sent again");
    let (key, body) = tool.calls()[0].clone();
    assert!(!key.is_empty());
    assert_eq!(
        (&body["arguments"], &body["actor"], &body["precondition"]),
        (&json!({ "id": 7 }), &run["owner"], &Value::Null)
    );
    let mut said = vec!["--outcome", outcome];
    said.extend(more);
    let settle = || folder.decide("settle", &said);
    // Whether it did not happen is known only when the call has given up by its own deadline.
    let done = crate::support::until("a settled outcome", || {
        Some(settle()).filter(|done| !done.err.contains("too_early"))
    });
    done.expect(exit);
    assert_eq!(tool.calls().len(), 1);
    (server, folder, tool)
}

#[test]
fn rule_r11_a_tool_that_died_in_the_middle_and_it_happened() {
    let (server, folder, _) = settled(Comes::Dies, "happened", &["--result", "page 7 is gone"], 0);
    assert_eq!(told(&server, 1), "page 7 is gone");
    let run = folder.newest_run();
    let events = folder.events(text(&run["id"]));
    assert!(kinds(&events).contains(&"call.unknown"), "{events:?}");
}

#[test]
fn rule_r11_a_tool_that_hung_until_its_deadline_and_it_did_not_happen() {
    let (server, _, tool) = settled(Comes::Hangs, "did_not_happen", &[], 0);
    assert!(told(&server, 1).contains("did not happen"), "{}", told(&server, 1));
    tool.wait_for_a_call();
}

#[test]
fn rule_r11_a_tool_behind_a_gateway_that_gave_up_and_nobody_knows() {
    let (server, folder, _) = settled(Comes::Answer(502, Vec::new()), "give_up", &[], 4);
    assert_eq!(server.asked().len(), 1, "the model is not asked again");
    assert_eq!(folder.newest_run()["error"]["code"], "outcome_unknown");
}

/// What a model is told of one call of a read that is declared like this, and what the record says of it.
fn read_once(how: &str, timeout: &str) -> (String, Value) {
    let (server, folder) = bench(vec![calls(&[("get", json!({ "id": 7 }))]), says("done")]);
    folder.configure_more(&declared("get", how, "read", &format!("timeout = \"{timeout}\"")));
    folder.run(&["run", "x"]).expect(0);
    let events = folder.events(text(&folder.newest_run()["id"]));
    let finished = events.iter().find(|event| event["kind"] == "call.finished").unwrap();
    (told(&server, 1), finished["data"].clone())
}

fn read_at(comes: Comes) -> (String, Value) {
    // Only who waits for ever is to feel it.
    let timeout = if matches!(comes, Comes::Hangs) { "2s" } else { "10m" };
    let tool = ToolServer::start(comes);
    let read = read_once(&format!("http = \"{}\"", tool.url), timeout);
    assert_eq!(tool.calls().len(), 1);
    read
}

fn read_by(script: &str, timeout: &str) -> (String, Value) {
    read_once(&format!("command = [\"/bin/sh\", \"-c\", \"{script}\"]"), timeout)
}

#[test]
fn a_read_that_hangs_times_out_and_the_run_goes_on() {
    for (told, recorded) in [read_at(Comes::Hangs), read_by("sleep 600", "2s")] {
        assert_eq!(told, "Error: The tool get timed out.");
        assert_eq!(recorded["result"], "timeout");
    }
}

#[test]
fn case_c53_fifty_megabytes_are_cut_on_a_character_border_with_their_true_size() {
    let content = "é🦀".repeat(50_000_000 / 6);
    let body = json!({ "content": content }).to_string().into_bytes();
    let an_error = json!({ "content": content, "is_error": true }).to_string().into_bytes();
    for ((told, recorded), start, bytes) in [
        (read_at(Comes::Answer(200, body)), "é🦀é🦀", content.len()),
        (read_at(Comes::Answer(200, an_error)), "Error: é🦀é🦀", content.len()),
        (read_by("yes é🦀 | head -c 52428796", "10m"), "é🦀\né🦀", 52_428_796),
    ] {
        assert!(told.starts_with(start), "{}", told.chars().take(40).collect::<String>());
        assert!(told.ends_with(&format!("\n[cut: {bytes} bytes in all]")) && told.len() < 50_100);
        assert_eq!(recorded["bytes"], bytes, "rule L4: the true size");
    }
}

#[test]
fn case_c53_bytes_that_are_no_text_are_an_error_result_and_a_nul_is_shown() {
    for (told, recorded) in [
        read_at(Comes::Answer(200, b"{\"content\":\"\xff\xfe\"}".to_vec())),
        read_by(r"printf 'a\\377b'", "10m"),
        // Half a character of UTF-16, and UTF-16 as such.
        read_at(Comes::Answer(200, br#"{"content":"\ud800"}"#.to_vec())),
        read_at(Comes::Answer(200, b"{\0\"\0c\0".to_vec())),
    ] {
        assert!(told.starts_with("Error: The tool get failed: its "), "{told}");
        assert_eq!(recorded["result"], "error");
    }
    for (told, recorded) in [
        read_at(Comes::Answer(200, br#"{"content":"a\u0000b"}"#.to_vec())),
        read_by(r"printf 'a\\000b'", "10m"),
    ] {
        assert_eq!((told.as_str(), &recorded["bytes"]), ("a\u{2400}b", &json!(3)));
    }
    let parts: Vec<Value> =
        (0..100_000).map(|_| json!({ "type": "text", "label": "x", "data": {} })).collect();
    let many = json!({ "content": "many parts", "artifacts": parts }).to_string().into_bytes();
    assert_eq!(read_at(Comes::Answer(200, many)).0, "many parts", "and they go to no model");
}

#[test]
fn case_c55_a_redirect_is_not_followed_and_arguments_stand_nowhere_but_in_the_question() {
    let other = ToolServer::start(Comes::Answer(200, b"{\"content\":\"x\"}".to_vec()));
    let secret = "pw=hunter2-XYZ";
    let (server, folder) = bench(vec![calls(&[("post", json!({ "text": secret }))]), says("done")]);
    let tool = ToolServer::start(Comes::Redirect(other.url.clone()));
    folder.configure_more(&declared("post", &format!("http = \"{}\"", tool.url), "write", ""));
    let run = folder.run(&["run", "x"]).expect(3);
    assert!(run.out.contains(secret), "the approver sees what will run");
    let decided = folder.decide("approve", &[]).expect(0);
    assert!(told(&server, 1).contains("status 307"), "{}", told(&server, 1));
    assert!(other.calls().is_empty());
    let id = text(&folder.newest_run()["id"]).to_owned();
    for shown in [decided.out, decided.err, folder.run(&["runs", "events", &id]).expect(0).out] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let database = std::fs::read(folder.path(".countersign/countersign.db")).unwrap();
    assert!(!database.windows(7).any(|bytes| bytes == b"hunter2"), "rule S3");
}

#[test]
fn case_c55_a_key_that_the_provider_says_back_is_shown_and_kept_nowhere() {
    let key = "key-SECRET-2";
    let echo = json!({ "error": { "message": format!("Incorrect API key provided: {key}") } }).to_string();
    let server = Server::start(vec![Play::Answer(401, "Content-Type: application/json\r\n", echo)]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let config = folder.text("countersign.toml").replace("zone =", "api_key_env = \"STUB_KEY\"\nzone =");
    folder.write("countersign.toml", &config);
    let run = |arguments: &[&str]| -> Done {
        folder.command(arguments).env("STUB_KEY", key).output().unwrap().into()
    };
    let failed = run(&["run", "x"]).expect(4);
    let id = text(&folder.newest_run()["id"]).to_owned();
    let mut shown = vec![failed.out, failed.err];
    for arguments in [
        &["runs", "show", &id][..],
        &["runs", "show", &id, "--json"],
        &["runs", "events", &id, "--json"],
        &["runs", "list", "--json"],
        &["config", "check"],
        &["tools", "list", "--json"],
        &["db", "doctor", "--json"],
    ] {
        let done = run(arguments).expect(0);
        shown.extend([done.out, done.err]);
    }
    for shown in shown {
        assert!(!shown.contains("SECRET"), "{shown}");
    }
    for file in std::fs::read_dir(folder.path(".countersign")).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(key.len()).any(|bytes| bytes == key.as_bytes()));
    }
    assert_eq!(server.asked().len(), 1, "a wrong key is not tried again");
}

#[test]
fn case_c16_a_doubled_key_never_reaches_the_tool() {
    let raw = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c0","type":"function","function":{"name":"drop","arguments":"{\"id\":1,\"id\":7}"}}]},"finish_reason":"tool_calls"}]}"#;
    let (server, folder) =
        bench(vec![Play::Answer(200, "Content-Type: application/json\r\n", raw.to_owned()), says("done")]);
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"x\"}".to_vec()));
    folder.configure_more(&declared("drop", &format!("http = \"{}\"", tool.url), "write", ""));
    folder.run(&["run", "x"]).expect(0);
    assert!(tool.calls().is_empty());
    assert!(told(&server, 1).contains("Not run"), "{}", told(&server, 1));
}

#[test]
fn case_c38_a_call_that_was_denied_is_not_asked_again() {
    let (_server, folder) = bench(vec![calls(&[("drop", json!({ "id": 7 }))])]);
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"x\"}".to_vec()));
    folder.configure_more(&declared("drop", &format!("http = \"{}\"", tool.url), "write", ""));
    folder.run(&["run", "x"]).expect(3);
    folder.decide("deny", &["--reason", "no"]).expect(4);
    assert_eq!(folder.newest_run()["error"]["code"], "repeated_denials");
    assert!(tool.calls().is_empty());
}
