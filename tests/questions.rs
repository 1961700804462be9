//! Deciding over HTTP: every row of the contract's table, and who wins.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::serve::{Answer, Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text, until};

struct Bench {
    folder: Folder,
    serve: Serve,
    model: Server,
    tool: ToolServer,
    alice: Client,
    bob: Client,
}

/// Alice starts runs, bob is an approver. A task of one write, or of a read and two writes, or of an input.
fn bench_with(agent: &str, more: &str, comes: Comes) -> Bench {
    let model = Server::start_by_task(|task, turn| match turn {
        0 if task.contains("three") => {
            calls(&[("look", json!({ "id": 1 })), ("page", json!({ "id": 2 })), ("page", json!({ "id": 3 }))])
        }
        0 if task.contains("ask") => calls(&[("pick", json!({ "why": "trip" }))]),
        0 if task.contains("long") => calls(&[("page", json!({ "id": 1, "text": "x".repeat(9000) }))]),
        0 => calls(&[("page", json!({ "id": 7 }))]),
        _ => says("done"),
    });
    let tool = ToolServer::start(comes);
    let folder = Folder::new();
    let how = format!("http = \"{}\"\ntimeout = \"2s\"", tool.url);
    let pick = "\n[[tools]]\nname = \"pick\"\ngroup = \"content\"\neffect = \"read\"\ndata_class = \"public_content\"\n".to_owned()
        + &how
        + "\nparameters = { type = \"object\", properties = { why = { type = \"string\" } } }\n\
           input = { type = \"object\", properties = { date = { type = \"string\", minLength = 4 } }, required = [\"date\"], additionalProperties = false }\n";
    let tools = declared("page", &how, "write", "") + &declared("look", &how, "read", "") + &pick + more;
    folder.configure(model.url(), &(agent.to_owned() + &tools));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let bob = serve.client(&folder, "bob", &["--approver"]);
    Bench { folder, serve, model, tool, alice, bob }
}

fn bench() -> Bench {
    bench_with("", "", Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()))
}

fn path(pending: &Value) -> String {
    format!("/v1/pending/{}", text(&pending["id"]))
}

impl Bench {
    fn status(&self, pending: &Value) -> Value {
        self.bob.get(&path(pending)).expect(200)["status"].clone()
    }
}

#[test]
fn case_c01_a_turn_that_reads_and_writes_is_held_and_runs_once_in_order() {
    let bench = bench();
    let run = bench.alice.start("three");
    let pending = &run["pending"];
    assert_eq!(run["status"], "waiting_for_approval");
    assert!(bench.tool.calls().is_empty(), "nothing of the turn runs");
    let needs: Vec<_> =
        pending["calls"].as_array().unwrap().iter().map(|call| &call["needs_approval"]).collect();
    assert_eq!(needs, [false, true, true]);
    let settled = bench.bob.approve(pending);
    assert_eq!((&settled["status"], &settled["decision"]["by"]), (&json!("approved"), &json!("bob")));
    assert_eq!(settled["decision"]["attribution"], "second_person");
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    let ids: Vec<Value> =
        bench.tool.calls().iter().map(|(_, body)| body["arguments"]["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn case_c02_denying_a_turn_runs_none_of_it_and_a_word_on_each_call_runs_what_was_released() {
    let bench = bench();
    let run = bench.alice.start("three");
    bench.bob.decide(&run["pending"], json!({ "verdict": "deny", "reason": "not today" })).expect(200);
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert!(bench.tool.calls().is_empty());
    let told = bench.model.asked().last().unwrap()["messages"].to_string();
    assert!(told.contains("not today"), "the model is told why: {told}");

    let run = bench.alice.start("three");
    let ids: Vec<String> =
        run["pending"]["calls"].as_array().unwrap().iter().map(|call| text(&call["id"]).to_owned()).collect();
    let words =
        |words: &[(&str, &str)]| json!({ "calls": words.iter().copied().collect::<BTreeMap<_, _>>() });
    for incomplete in [
        words(&[(&ids[1], "approve")]),
        words(&[(&ids[0], "approve"), (&ids[1], "approve"), (&ids[2], "deny")]),
        words(&[(&ids[1], "approve"), ("call_other", "deny")]),
        words(&[]),
    ] {
        bench.bob.decide(&run["pending"], incomplete).refused(422, "calls_incomplete");
    }
    let settled =
        bench.bob.decide(&run["pending"], words(&[(&ids[1], "deny"), (&ids[2], "approve")])).expect(200);
    assert_eq!((&settled["status"], &settled["decision"]["verdict"]), (&json!("approved"), &json!("mixed")));
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    let ran: Vec<Value> =
        bench.tool.calls().iter().map(|(_, body)| body["arguments"]["id"].clone()).collect();
    assert_eq!(ran, [1, 3]);
}

#[test]
fn case_c09_of_twenty_approvals_at_once_one_counts_and_the_others_are_told_which() {
    let bench = bench();
    let run = bench.alice.start("one");
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let decide = |client: &Client| client.decide(&run["pending"], json!({ "verdict": "approve" }));
        let threads: Vec<_> = (0..20)
            .map(|number| {
                let client = if number % 2 == 0 { &bench.alice } else { &bench.bob };
                scope.spawn(move || decide(client))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((won.len(), lost.len()), (1, 19), "{answers:?}");
    let decision = &won[0].json()["decision"];
    for answer in lost {
        assert_eq!(&answer.refused(409, "already_decided")["decision"], decision);
    }
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert_eq!(bench.tool.calls().len(), 1);
}

#[test]
fn case_c12_a_decision_names_what_was_seen() {
    let bench = bench();
    let run = bench.alice.start("one");
    let pending = &run["pending"];
    let shown = bench.bob.get(&path(pending));
    assert_eq!(shown.headers["etag"], format!("\"{}\"", text(&pending["digest"])));
    assert_eq!(shown.headers["cache-control"], "no-store");
    assert_eq!(&shown.expect(200), pending);
    let tag = shown.headers["etag"].clone();
    let again = bench.bob.ask("GET", &path(pending), &[("If-None-Match", &tag)], None);
    assert_eq!(again.status, 200, "never 304");

    let decide = |headers: &[(&str, &str)], body: Value| {
        bench.bob.ask("POST", &format!("{}/decision", path(pending)), headers, Some(&body.to_string()))
    };
    let other = format!("sha256:{}", "0".repeat(64));
    decide(&[], json!({ "verdict": "approve" })).refused(428, "digest_required");
    for digest in [other.as_str(), "sha256:0", "", "x"] {
        decide(&[], json!({ "digest": digest, "verdict": "approve" })).refused(412, "stale_digest");
    }
    decide(&[("If-Match", "\"x\"")], json!({ "verdict": "approve" })).refused(412, "stale_digest");
    decide(&[("If-Match", &tag)], json!({ "digest": other, "verdict": "approve" }))
        .refused(412, "stale_digest");
    assert_eq!(bench.status(pending), "open");
    decide(&[("If-Match", &tag)], json!({ "verdict": "approve" })).expect(200);
    let sent = bench.alice.run(text(&run["id"]));
    assert_eq!(sent["status"], "completed");
    assert_eq!(bench.tool.calls()[0].1["arguments"], pending["calls"][0]["arguments"]);
}

#[test]
fn a_decision_that_says_nothing_or_two_things_leaves_the_question_open() {
    let bench = bench();
    let run = bench.alice.start("one");
    let call = text(&run["pending"]["calls"][0]["id"]).to_owned();
    for (body, code) in [
        (json!({}), "malformed_decision"),
        (json!({ "verdict": "approve", "calls": { &call: "approve" } }), "malformed_decision"),
        (json!({ "verdict": "approve", "answer": {} }), "malformed_decision"),
        (json!({ "verdict": "approve", "result": "x" }), "malformed_decision"),
        (json!({ "answer": {}, "reason": "x" }), "malformed_decision"),
        (json!({ "answer": {} }), "wrong_kind"),
        (json!({ "outcome": "happened" }), "wrong_kind"),
        (json!({ "verdict": "maybe" }), "invalid_field"),
        (json!({ "calls": { "x": "approve" } }), "invalid_field"),
        (json!({ "verdict": "approve", "decided_by": "root" }), "unknown_field"),
    ] {
        bench.bob.decide(&run["pending"], body).refused(422, code);
    }
    // Rule A8: what is malformed is told before that there is no digest.
    let nothing = bench.bob.post(&format!("{}/decision", path(&run["pending"])), &json!({ "answer": {} }));
    nothing.refused(422, "wrong_kind");
    assert_eq!(bench.status(&run["pending"]), "open");
    assert!(!bench.alice.kinds(text(&run["id"])).contains(&"pending.refused".to_owned()));
}

#[test]
fn case_c57_only_who_may_sees_and_decides_and_the_record_names_the_token() {
    let bench =
        bench_with("second_approver = true\n", "", Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let sue = bench.serve.client(&bench.folder, "sue", &[]);
    let run = bench.alice.start("one");
    let pending = &run["pending"];
    let foreign = sue.get(&path(pending)).refused(404, "not_found");
    let missing = sue.get("/v1/pending/pnd_00000000000000000000").refused(404, "not_found");
    assert_eq!(foreign, missing, "foreign and missing answer alike");
    let foreign = sue.decide(pending, json!({ "verdict": "approve" })).refused(404, "not_found");
    assert_eq!(foreign, missing);
    // Also where the body is wrong, and where nothing of the kind exists.
    assert_eq!(sue.decide(pending, json!({ "x": 1 })).refused(404, "not_found"), missing);
    bench.alice.decide(pending, json!({ "verdict": "approve" })).refused(403, "self_approval");
    assert_eq!(bench.status(pending), "open");
    let settled = bench.bob.approve(pending);
    assert_eq!(settled["decision"]["by"], "bob");
    assert_eq!(bench.tool.calls()[0].1["actor"], "alice", "rule A13");

    // Denying one's own stays allowed.
    let run = bench.alice.start("one");
    bench.alice.decide(&run["pending"], json!({ "verdict": "deny" })).expect(200);
}

#[test]
fn case_c14_what_is_switched_off_meanwhile_is_no_longer_permitted() {
    let bench = bench();
    let root = bench.serve.client(&bench.folder, "root", &["--admin"]);
    let run = bench.alice.start("one");
    root.patch("/v1/groups/content", &json!({ "enabled": false })).expect(200);
    bench.bob.approve(&run["pending"]);
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert!(bench.tool.calls().is_empty());
    let events = bench.alice.get(&format!("/v1/runs/{}/events", text(&run["id"]))).expect(200);
    let finished =
        events["items"].as_array().unwrap().iter().find(|event| event["kind"] == "call.finished").unwrap();
    assert_eq!(
        (&finished["data"]["result"], &finished["data"]["refusal"]),
        (&json!("refused"), &json!("tool_disabled"))
    );
}

#[test]
fn rule_r9_an_input_is_checked_in_full_before_anything_is_stored() {
    let bench = bench();
    let run = bench.alice.start("ask");
    let pending = &run["pending"];
    assert_eq!((&run["status"], &pending["kind"]), (&json!("waiting_for_input"), &json!("input")));
    bench.bob.decide(pending, json!({ "verdict": "approve" })).refused(422, "wrong_kind");
    for (answer, pointer) in
        [(json!({ "date": "1" }), "/date"), (json!({}), ""), (json!({ "date": "2027", "why": "x" }), "")]
    {
        let problem = bench.alice.decide(pending, json!({ "answer": answer })).refused(422, "invalid_input");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    assert_eq!(bench.status(pending), "open");
    let settled = bench.alice.decide(pending, json!({ "answer": { "date": "2027" } })).expect(200);
    assert_eq!(settled["status"], "answered");
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert_eq!(bench.tool.calls()[0].1["arguments"], json!({ "date": "2027", "why": "trip" }));

    let declined = bench.alice.start("ask");
    let settled = bench.alice.decide(&declined["pending"], json!({ "verdict": "deny" })).expect(200);
    assert_eq!(settled["status"], "denied");
}

#[test]
fn rule_a14_a_person_changes_arguments_and_decides_the_new_question() {
    let bench = bench();
    let run = bench.alice.start("one");
    let old = &run["pending"];
    let call = text(&old["calls"][0]["id"]).to_owned();
    let edit = |body: Value| bench.bob.post(&format!("{}/edit", path(old)), &body);
    let digest = &old["digest"];
    edit(json!({ "calls": { &call: { "id": 8 } } })).refused(428, "digest_required");
    edit(json!({ "digest": "sha256:x", "calls": { &call: { "id": 8 } } })).refused(412, "stale_digest");
    edit(json!({ "digest": digest, "calls": { &call: { "id": "x" } } })).refused(422, "invalid_input");
    edit(json!({ "digest": digest, "calls": { "call_other": {} } })).refused(422, "invalid_input");
    edit(json!({ "digest": digest, "calls": { &call: 7 } })).refused(422, "invalid_field");
    let edited = edit(json!({ "digest": digest, "calls": { &call: { "id": 9007199254740993_u64 } } }));
    let new = edited.expect(201);
    assert_eq!(edited.headers["location"], path(&new));
    assert_eq!(edited.headers["etag"], format!("\"{}\"", text(&new["digest"])));
    let shown = &new["calls"][0];
    assert_eq!(
        (&shown["arguments"], &shown["original_arguments"]),
        (&json!({ "id": 9007199254740993_u64 }), &json!({ "id": 7 }))
    );
    assert_eq!(new["edited_by"], "bob");
    assert_eq!(bench.status(old), "superseded");
    bench.bob.decide(old, json!({ "verdict": "approve" })).refused(409, "superseded");
    bench.alice.approve(&new);
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert_eq!(bench.tool.calls()[0].1["arguments"], json!({ "id": 9007199254740993_u64 }));
}

#[test]
fn case_c60_a_late_word_is_told_that_the_question_expired_and_the_model_too() {
    let bench =
        bench_with("approval_ttl = \"1s\"\n", "", Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let run = bench.alice.start("one");
    let settled = until("the sweeper", || {
        let pending = bench.bob.get(&path(&run["pending"])).expect(200);
        (pending["status"] == "expired").then_some(pending)
    });
    assert_eq!(settled["decision"], Value::Null);
    bench.bob.decide(&run["pending"], json!({ "verdict": "approve" })).refused(410, "expired");
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    assert!(bench.tool.calls().is_empty());
    let told = bench.model.asked().last().unwrap()["messages"].to_string();
    assert!(told.contains("expired"), "{told}");
}

#[test]
fn rule_r11_an_unknown_outcome_is_settled_by_a_person() {
    let bench = bench_with("", "", Comes::Dies);
    let run = bench.alice.start("one");
    bench.bob.approve(&run["pending"]);
    let stopped = bench.alice.run(text(&run["id"]));
    assert_eq!(stopped["status"], "needs_resolution");
    let pending = &stopped["pending"];
    bench
        .bob
        .decide(pending, json!({ "outcome": "did_not_happen", "result": "x" }))
        .refused(422, "malformed_decision");
    bench.bob.decide(pending, json!({ "verdict": "approve" })).refused(422, "wrong_kind");
    let robot = bench.serve.client(&bench.folder, "robot", &["--service", "--scopes", "pending:decide"]);
    robot.decide(pending, json!({ "outcome": "happened" })).refused(403, "approver_not_permitted");
    let settled =
        bench.bob.decide(pending, json!({ "outcome": "happened", "result": "page 7 is gone" })).expect(200);
    assert_eq!(
        (&settled["status"], &settled["decision"]["verdict"]),
        (&json!("settled"), &json!("happened"))
    );
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "completed");
    let told = bench.model.asked().last().unwrap()["messages"].to_string();
    assert!(told.contains("page 7 is gone"), "{told}");
    assert_eq!(bench.tool.calls().len(), 1, "never run again");
}

#[test]
fn rule_r7_where_the_agent_is_gone_a_run_can_only_be_ended() {
    let bench = bench();
    let run = bench.alice.start("one");
    let second = bench.alice.start("one");
    let (folder, alice, bob) = (bench.folder, bench.alice, bench.bob);
    drop(bench.serve);
    let renamed = folder.text("countersign.toml").replace("[agents.default]", "[agents.other]");
    folder.write("countersign.toml", &renamed);
    let serve = Serve::start(&folder);
    let (alice, bob) = (serve.stranger().with_token(alice.token()), serve.stranger().with_token(bob.token()));
    bob.decide(&run["pending"], json!({ "verdict": "approve" })).refused(409, "agent_gone");
    bob.decide(&run["pending"], json!({ "verdict": "deny" })).expect(200);
    let ended = alice.run(text(&run["id"]));
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("agent_gone")));
    let cancelled = alice.post(&format!("/v1/runs/{}/cancel", text(&second["id"])), &json!({})).expect(200);
    assert_eq!(cancelled["status"], "cancelled");
}

#[test]
fn rule_m2_a_question_about_a_tool_that_changed_is_void_when_the_server_starts() {
    let bench = bench();
    let run = bench.alice.start("one");
    let (folder, alice, bob) = (bench.folder, bench.alice, bench.bob);
    drop(bench.serve);
    // Another effect is another tool.
    let changed =
        folder.text("countersign.toml").replacen("effect = \"write\"", "effect = \"idempotent_write\"", 1);
    folder.write("countersign.toml", &changed);
    let serve = Serve::start(&folder);
    let (alice, bob) = (serve.stranger().with_token(alice.token()), serve.stranger().with_token(bob.token()));
    bob.decide(&run["pending"], json!({ "verdict": "approve" })).refused(409, "void");
    let ended = alice.run(text(&run["id"]));
    assert_eq!(ended["status"], "completed", "nobody had to say anything");
    assert_eq!(bob.get(&path(&run["pending"])).expect(200)["status"], "void");
}

#[test]
fn in_a_list_long_arguments_are_left_out_and_counted() {
    let bench = bench();
    let run = bench.alice.start("long");
    let listed = bench.bob.get("/v1/pending?status=open").expect(200)["items"][0]["calls"][0].clone();
    assert_eq!(listed["arguments"], Value::Null);
    assert!(listed["arguments_bytes"].as_u64().unwrap() > 9000);
    let whole = bench.bob.get(&path(&run["pending"])).expect(200)["calls"][0].clone();
    assert_eq!(text(&whole["arguments"]["text"]).len(), 9000);
}

#[test]
fn rule_a7_a_viewer_who_may_not_use_an_admins_tool_does_not_see_what_it_would_do() {
    // Prepared by the owner, who is an administrator.
    let preview = ToolServer::start(Comes::Answer(200, b"{\"lines\":[\"drops page 7 SECRET\"]}".to_vec()));
    let more = declared(
        "secret",
        &format!("http = \"{0}\"\npreview = \"{0}\"", preview.url),
        "write",
        "requires_admin = true",
    );
    let model = Server::start(vec![calls(&[("secret", json!({ "id": 7 }))]), says("done")]);
    let folder = Folder::new();
    folder.configure(model.url(), &more);
    let serve = Serve::start(&folder);
    let root = serve.client(&folder, "root", &["--admin"]);
    let bob = serve.client(&folder, "bob", &["--approver"]);
    let run = root.start("x");
    assert!(run.to_string().contains("SECRET"), "{run}");
    let shown = bob.get(&path(&run["pending"])).expect(200);
    assert!(!shown.to_string().contains("SECRET") && shown.to_string().contains("withheld"), "{shown}");
    bob.decide(&run["pending"], json!({ "verdict": "approve" })).refused(403, "approver_not_permitted");
    root.approve(&run["pending"]);
}

#[test]
fn rule_l8_a_denied_call_is_not_asked_again() {
    let model = Server::start(vec![
        calls(&[("page", json!({ "id": 1 }))]),
        calls(&[("page", json!({ "id": 1 }))]),
        says("I give up"),
    ]);
    let tool = ToolServer::start(Comes::Dies);
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &format!("http = \"{}\"", tool.url), "write", ""));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    alice.decide(&run["pending"], json!({ "verdict": "deny" })).expect(200);
    let ended = alice.run(text(&run["id"]));
    assert_eq!((&ended["status"], &ended["output"]), (&json!("completed"), &json!("I give up")));
    assert!(tool.calls().is_empty());
}

#[test]
fn case_c59_usage_adds_up_over_pauses() {
    let bench = bench();
    let run = bench.alice.start("one");
    let usage = |run: &Value| (run["usage"]["input_tokens"].clone(), run["usage"]["output_tokens"].clone());
    assert_eq!(usage(&run), (json!(100), json!(10)));
    bench.bob.approve(&run["pending"]);
    assert_eq!(usage(&bench.alice.run(text(&run["id"]))), (json!(200), json!(20)));
}

#[test]
fn case_c23_a_cancel_while_a_write_is_under_way_waits_for_it_and_then_ends_the_run() {
    let model = Server::start(vec![calls(&[("page", json!({ "id": 1 }))]), says("done")] as Vec<Play>);
    let (tool, open) = ToolServer::gated();
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &format!("http = \"{}\"", tool.url), "write", ""));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("x");
    let id = text(&run["id"]);
    alice.decide(&run["pending"], json!({ "verdict": "approve" })).expect(200);
    tool.wait_for_a_call();
    let asked = alice.post(&format!("/v1/runs/{id}/cancel"), &json!({})).expect(200);
    assert_eq!(asked["status"], "running");
    alice.post(&format!("/v1/runs/{id}/cancel"), &json!({})).refused(409, "not_cancellable");
    open();
    assert_eq!(alice.run(id)["status"], "cancelled");
    let kinds = alice.kinds(id);
    assert!(kinds.contains(&"call.finished".to_owned()), "what happened is kept: {kinds:?}");
    assert_eq!(model.asked().len(), 1);
}

#[test]
fn rule_r10_a_run_goes_on_with_one_of_its_owners_that_has_ended() {
    let bench = bench();
    let first = bench.alice.start("one page");
    let go_on = json!({ "input": "and then?", "continue_from": first["id"] });
    bench.alice.post("/v1/runs", &go_on).refused(409, "run_not_ended");
    bench.bob.approve(&first["pending"]);
    assert_eq!(bench.alice.run(text(&first["id"]))["status"], "completed");
    bench.bob.post("/v1/runs", &go_on).refused(404, "not_found");
    let unknown = json!({ "input": "and then?", "continue_from": "run_00000000000000000000" });
    bench.alice.post("/v1/runs", &unknown).refused(404, "not_found");

    let next = bench.alice.post("/v1/runs", &go_on).expect(201);
    assert_eq!((&next["continues"], &next["agent"]), (&first["id"], &first["agent"]));
    until("the run ends", || (bench.alice.run(text(&next["id"]))["status"] == "completed").then_some(()));
    let asked = bench.model.asked();
    let told = asked.last().unwrap()["messages"].to_string();
    assert!(told.contains("one page") && told.contains("and then?"), "{told}");
}
