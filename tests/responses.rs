//! The shape of OpenAI's Responses: their own client drives it, and everything that must not be possible by it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::openai;
use crate::support::serve::{Answer, Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text};

struct Bench {
    folder: Folder,
    serve: Serve,
    model: Server,
    tool: ToolServer,
    alice: Client,
    bob: Client,
}

/// Alice starts runs, bob is an approver. By its words a task is a write; a read and two writes; a write again and again; a
/// write and an input; or a text.
fn bench_with(agent: &str) -> Bench {
    let model = Server::start_by_task(|task, turn| match turn {
        0 if task.contains("three") => {
            calls(&[("look", json!({ "id": 1 })), ("page", json!({ "id": 2 })), ("page", json!({ "id": 3 }))])
        }
        0 if task.contains("form") => calls(&[("page", json!({ "id": 4 })), ("pick", json!({}))]),
        0 if task.contains("ask") => calls(&[("pick", json!({}))]),
        turn if task.contains("often") && turn < 2 => calls(&[("page", json!({ "id": turn }))]),
        0 if task.contains("write") => calls(&[("page", json!({ "id": 7 }))]),
        _ => says("done"),
    });
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let folder = Folder::new();
    let how = format!("http = \"{}\"", tool.url);
    let pick = "\n[[tools]]\nname = \"pick\"\ngroup = \"content\"\neffect = \"read\"\ndata_class = \"public_content\"\n".to_owned()
        + &how
        + "\ninput = { type = \"object\", properties = { date = { type = \"string\" } } }\n";
    let tools = declared("page", &how, "write", "") + &declared("look", &how, "read", "") + &pick;
    folder.configure(model.url(), &(agent.to_owned() + &tools));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let bob = serve.client(&folder, "bob", &["--approver"]);
    Bench { folder, serve, model, tool, alice, bob }
}

fn bench() -> Bench {
    bench_with("")
}

fn respond(client: &Client, body: &Value) -> Answer {
    client.post("/v1/responses", body)
}

/// A response to a task, at its first stop.
fn asked(client: &Client, task: &str) -> Value {
    respond(client, &json!({ "model": "default", "input": task })).expect(200)
}

/// The ids of what a response asks.
fn requests(response: &Value) -> Vec<String> {
    let items = response["output"].as_array().unwrap().iter();
    let asked = items.filter(|item| item["type"] == "mcp_approval_request");
    asked.map(|item| text(&item["id"]).to_owned()).collect()
}

/// Answers to requests.
fn answers(previous: &Value, answers: &[(&str, bool)]) -> Value {
    let items: Vec<Value> = answers
        .iter()
        .map(|(request, approve)| {
            json!({ "type": "mcp_approval_response", "approval_request_id": request, "approve": approve })
        })
        .collect();
    json!({ "model": "default", "previous_response_id": previous["id"], "input": items })
}

/// The same word on everything that a response asks.
fn all(previous: &Value, approve: bool) -> Value {
    let requests = requests(previous);
    let words: Vec<(&str, bool)> = requests.iter().map(|request| (request.as_str(), approve)).collect();
    answers(previous, &words)
}

fn run_of(response: &Value) -> &str {
    text(&response["metadata"]["run"])
}

impl Bench {
    fn question(&self, response: &Value) -> Value {
        self.bob.get(&format!("/v1/pending/{}", text(&response["metadata"]["pending"]))).expect(200)
    }

    /// The arguments of each call of a tool so far.
    fn ran(&self) -> Vec<Value> {
        self.tool.calls().iter().map(|(_, body)| body["arguments"]["id"].clone()).collect()
    }

    /// The codes of the refused decisions in a run's record.
    fn refusals(&self, response: &Value) -> Vec<Value> {
        let events = self.alice.get(&format!("/v1/runs/{}/events?limit=200", run_of(response))).expect(200);
        let refused = events["items"].as_array().unwrap().clone().into_iter();
        refused
            .filter(|event| event["kind"] == "pending.refused")
            .map(|event| event["data"]["code"].clone())
            .collect()
    }
}

fn drives(how: &str) -> Value {
    let bench = bench();
    let seen = openai::drive(&bench.serve, &bench.alice, how);
    let [asked, approved] = [&seen["asked"], &seen["approved"]];
    let request = &asked["items"][0];
    assert_eq!(
        (
            &asked["status"],
            &request["type"],
            &request["server_label"],
            &request["name"],
            &request["arguments"]
        ),
        (
            &json!("completed"),
            &json!("mcp_approval_request"),
            &json!("content"),
            &json!("page"),
            &json!("{\"id\":7}")
        )
    );
    let question = bench.bob.get(&format!("/v1/pending/{}", text(&asked["metadata"]["pending"]))).expect(200);
    let digest = text(&question["digest"]).strip_prefix("sha256:").unwrap().to_owned();
    assert!(text(&request["id"]).ends_with(&digest), "what is approved is what was shown: {request}");
    assert_eq!(
        (&approved["status"], &approved["text"], &approved["previous"]),
        (&json!("completed"), &json!("done"), &asked["id"])
    );
    assert_eq!(question["decision"]["by"], "alice");
    let continued = &seen["continued"];
    assert_eq!((&continued["text"], &continued["previous"]), (&json!("done"), &approved["id"]));
    let run = bench.alice.run(text(&continued["metadata"]["run"]));
    assert_eq!(run["continues"], approved["metadata"]["run"]);
    let retrieved = &seen["retrieved"];
    assert_eq!((&retrieved["items"], &retrieved["metadata"]["next"]), (&asked["items"], &approved["id"]));
    assert_eq!(seen["again"], json!({ "code": "already_decided", "by": "alice", "retries": "0" }));
    assert_eq!(seen["unknown"], json!({ "code": "unknown_field", "at": "/temperature" }));
    assert_eq!((&seen["denied"]["status"], &seen["denied"]["text"]), (&json!("completed"), &json!("done")));
    assert_eq!(bench.ran(), [7], "one write was approved once");
    let told = bench.model.asked().last().unwrap()["messages"].to_string();
    assert!(told.contains("denied by a person") && told.contains("not today"), "{told}");
    seen
}

#[test]
fn openai_s_own_client_drives_a_run_through_a_pause() {
    assert!(drives("plain").get("events").is_none());
}

#[test]
fn openai_s_own_client_streams_a_run_through_a_pause() {
    let events = drives("stream")["events"].clone();
    let of_item = ["response.output_item.added", "response.output_item.done"];
    let begun = ["response.created", "response.in_progress"];
    assert_eq!(events[0], json!([&begun[..], &of_item, &["response.completed"]].concat()));
    let of_text = [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    assert_eq!(events[1], json!([&begun[..], &of_text, &["response.completed"]].concat()));
}

#[test]
fn rule_a8_some_answers_are_not_enough_and_too_many_neither() {
    let bench = bench();
    let response = asked(&bench.alice, "three");
    let kinds: Vec<_> =
        response["output"].as_array().unwrap().iter().map(|item| text(&item["type"])).collect();
    assert_eq!(
        kinds,
        ["mcp_call", "mcp_approval_request", "mcp_approval_request"],
        "all that the turn holds"
    );
    let ids = requests(&response);
    respond(&bench.alice, &answers(&response, &[(&ids[0], true)])).refused(422, "calls_incomplete");
    let doubled = answers(&response, &[(&ids[0], true), (&ids[1], true), (&ids[0], false)]);
    let problem = respond(&bench.alice, &doubled).refused(422, "invalid_field");
    assert_eq!(problem["errors"][0]["pointer"], "/input/2/approval_request_id");
    // The read that runs along needs nobody's word.
    let read = ids[0].replace(
        text(&bench.question(&response)["calls"][1]["id"]).trim_start_matches("call_"),
        text(&bench.question(&response)["calls"][0]["id"]).trim_start_matches("call_"),
    );
    let more = answers(&response, &[(&ids[0], true), (&ids[1], true), (&read, true)]);
    respond(&bench.alice, &more).refused(422, "calls_incomplete");
    assert_eq!((&bench.question(&response)["status"], bench.tool.count()), (&json!("open"), 0));

    let mixed = answers(&response, &[(&ids[0], false), (&ids[1], true)]);
    let settled = respond(&bench.alice, &mixed).expect(200);
    assert_eq!(
        (&settled["status"], &settled["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("done"))
    );
    assert_eq!(bench.ran(), [1, 3]);
    let decision = bench.question(&response)["decision"].clone();
    assert_eq!((&decision["verdict"], &decision["by"]), (&json!("mixed"), &json!("alice")));
}

#[test]
fn rule_a11_a_denial_reaches_the_model_with_its_one_reason() {
    let bench = bench();
    let response = asked(&bench.alice, "three");
    let mut body = all(&response, false);
    body["input"][0]["reason"] = "not this week".into();
    let problem = respond(&bench.alice, &body).refused(422, "invalid_field");
    assert_eq!(problem["errors"][0]["pointer"], "/input");
    body["input"][1]["reason"] = "nor next".into();
    respond(&bench.alice, &body).refused(422, "invalid_field");
    assert_eq!(bench.question(&response)["status"], "open");
    body["input"][1]["reason"] = "not this week".into();
    let settled = respond(&bench.alice, &body).expect(200);
    assert_eq!(settled["metadata"]["stop_reason"], "answer");
    assert_eq!(bench.ran(), [1], "what needs nobody runs, what was denied does not");
    let told = bench.model.asked()[1]["messages"].to_string();
    assert_eq!(told.matches("not this week").count(), 2, "{told}");
    assert_eq!(bench.question(&response)["decision"]["reason"], "not this week");
}

#[test]
fn rule_a4_a_turn_with_an_input_waits_twice_and_each_time_says_for_what() {
    let bench = bench();
    let response = asked(&bench.alice, "form");
    assert_eq!(requests(&response).len(), 1);
    assert_eq!(response["metadata"]["status"], "waiting_for_approval");
    let waiting = respond(&bench.alice, &all(&response, true)).expect(200);
    assert_eq!(
        (&waiting["status"], &waiting["metadata"]["status"], &waiting["output"]),
        (&json!("incomplete"), &json!("waiting_for_input"), &json!([]))
    );
    // An approval of the question before says nothing about this one.
    respond(&bench.alice, &all(&response, true)).refused(409, "already_decided");
    let stale = answers(&waiting, &[(&requests(&response)[0], true)]);
    bench.alice.get(&format!("/v1/responses/{}", text(&waiting["id"]))).expect(200);
    // The call is one of the turn, so that A8 has the word.
    respond(&bench.alice, &stale).refused(422, "wrong_kind");
    assert_eq!((&bench.question(&waiting)["status"], bench.tool.count()), (&json!("open"), 0));
    let input = bench.question(&waiting);
    bench.alice.decide(&input, json!({ "answer": { "date": "today" } })).expect(200);
    assert_eq!(bench.alice.run(run_of(&response))["status"], "completed");
    let waited = bench.alice.get(&format!("/v1/responses/{}", text(&waiting["id"]))).expect(200);
    let next = text(&waited["metadata"]["next"]);
    let last = bench.alice.get(&format!("/v1/responses/{next}")).expect(200);
    assert_eq!(
        (&last["status"], &last["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("done"))
    );
    assert_eq!(last["previous_response_id"], waiting["id"]);
}

#[test]
fn rule_a9_an_approval_counts_once_however_many_try() {
    let bench = bench();
    let response = asked(&bench.alice, "write");
    let body = all(&response, true);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| respond(&bench.alice, &body).status)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let count = |status| statuses.iter().filter(|seen| **seen == status).count();
    assert_eq!((count(200), count(409)), (1, 7), "{statuses:?}");
    assert_eq!(bench.ran(), [7]);
    let late = respond(&bench.bob, &all(&response, false));
    assert_eq!(late.refused(409, "already_decided")["decision"]["by"], "alice");
    assert_eq!(late.headers["x-should-retry"], "false", "no client tries again by itself");
}

#[test]
fn rule_a14_an_approval_of_arguments_that_were_changed_is_refused_with_what_took_their_place() {
    let bench = bench();
    let response = asked(&bench.alice, "write");
    let old = bench.question(&response);
    let call = text(&old["calls"][0]["id"]).to_owned();
    let edit = json!({ "digest": old["digest"], "calls": { call: { "id": 8 } } });
    bench.bob.post(&format!("/v1/pending/{}/edit", text(&old["id"])), &edit).expect(201);
    let problem = respond(&bench.alice, &all(&response, true)).refused(409, "superseded");
    assert_eq!(bench.tool.count(), 0);
    assert_eq!(problem["output"][0]["arguments"], "{\"id\":8}");
    let again = answers(&response, &[(text(&problem["output"][0]["id"]), true)]);
    respond(&bench.alice, &again).expect(200);
    assert_eq!(bench.ran(), [8]);
}

#[test]
fn rule_a6_an_approval_of_something_else_is_stale_and_in_the_record() {
    let bench = bench();
    let response = asked(&bench.alice, "write");
    let id = requests(&response)[0].clone();
    let last = if id.ends_with('0') { '1' } else { '0' };
    let other = format!("{}{last}", &id[..id.len() - 1]);
    respond(&bench.alice, &answers(&response, &[(&other, true)])).refused(412, "stale_digest");
    respond(&bench.alice, &answers(&response, &[(&other, false)])).refused(412, "stale_digest");
    assert_eq!(bench.refusals(&response), ["stale_digest", "stale_digest"]);
    assert_eq!((&bench.question(&response)["status"], bench.tool.count()), (&json!("open"), 0));
    // The same call, asked again after a denial of the first, is another question.
    let often = asked(&bench.alice, "often");
    let second = respond(&bench.alice, &all(&often, true)).expect(200);
    assert_eq!(second["output"][0]["arguments"], "{\"id\":1}");
    let mixed_up = answers(&second, &[(&requests(&often)[0], true)]);
    let problem = respond(&bench.alice, &mixed_up).refused(422, "invalid_field");
    assert_eq!(problem["errors"][0]["pointer"], "/input/0/approval_request_id");
    let both = answers(&second, &[(&requests(&second)[0], true), (&requests(&often)[0], true)]);
    respond(&bench.alice, &both).refused(422, "invalid_field");
    let elsewhere = answers(&second, &[(&id, true)]);
    respond(&bench.alice, &elsewhere).refused(422, "invalid_field");
    let before = answers(&often, &[(&requests(&second)[0], true)]);
    respond(&bench.alice, &before).refused(422, "invalid_field");
    assert_eq!((&bench.question(&second)["status"], bench.ran()), (&json!("open"), vec![json!(0)]));
}

#[test]
fn rule_s1_a_response_that_is_foreign_is_answered_like_one_that_is_not_there() {
    let bench = bench();
    let sue = bench.serve.client(&bench.folder, "sue", &[]);
    let waiting = asked(&bench.alice, "write");
    let ended = asked(&bench.alice, "say");
    let missing = |client: &Client, id: &Value| {
        let goes_on = json!({ "model": "default", "input": "more", "previous_response_id": id });
        let seen = respond(client, &goes_on).refused(404, "not_found");
        let approves = answers(&json!({ "id": id }), &[(&requests(&waiting)[0], true)]);
        assert_eq!(respond(client, &approves).refused(404, "not_found")["detail"], seen["detail"]);
        seen["detail"].clone()
    };
    let nothing = missing(&sue, &json!("resp_nothing_0"));
    for id in [&waiting["id"], &ended["id"]] {
        assert_eq!(missing(&sue, id), nothing);
        sue.get(&format!("/v1/responses/{}", text(id))).refused(404, "not_found");
    }
    let run = run_of(&waiting).trim_start_matches("run_");
    for id in [
        "",
        "x",
        run_of(&waiting),
        &format!("resp_{run}"),
        &format!("resp_{run}_1"),
        &format!("resp_{run}_00"),
    ] {
        missing(&bench.alice, &json!(id));
    }
    // An approver settles for others, and goes on with nobody else's conversation.
    let goes_on = |id: &Value| json!({ "input": "more", "previous_response_id": id });
    respond(&bench.bob, &goes_on(&ended["id"])).refused(404, "not_found");
    let settled = respond(&bench.bob, &all(&waiting, true)).expect(200);
    assert_eq!(settled["output"][0]["content"][0]["text"], "done");
    respond(&bench.bob, &goes_on(&settled["id"])).refused(404, "not_found");
    assert_eq!(bench.ran(), [7]);
}

#[test]
fn rule_r10_a_conversation_goes_on_from_its_end_and_nowhere_else() {
    let bench = bench();
    let response = asked(&bench.alice, "write");
    let more = |previous: &Value| json!({ "input": "and now?", "previous_response_id": previous["id"] });
    let waits = respond(&bench.alice, &more(&response));
    waits.refused(409, "run_not_ended");
    assert_eq!(waits.headers["x-should-retry"], "false");
    // Somebody approves elsewhere; whoever has the first response only has not seen what came of it.
    bench.bob.approve(&bench.question(&response));
    bench.alice.run(run_of(&response));
    let problem = respond(&bench.alice, &more(&response)).refused(409, "not_continuable");
    let last = bench.alice.get(&format!("/v1/responses/{}", text(&problem["response"]))).expect(200);
    let found = bench.alice.get(&format!("/v1/responses/{}", text(&response["id"]))).expect(200);
    assert_eq!(found["metadata"]["next"], last["id"]);
    let continued = respond(&bench.alice, &more(&last)).expect(200);
    assert_eq!((&continued["model"], &continued["previous_response_id"]), (&json!("default"), &last["id"]));
    let kept = bench.alice.get(&format!("/v1/responses/{}", text(&continued["id"]))).expect(200);
    assert_eq!(kept, continued);
    let messages = bench.model.asked().last().unwrap()["messages"].as_array().unwrap().clone();
    let said: Vec<_> = messages.iter().map(|message| text(&message["role"]).to_owned()).collect();
    assert_eq!(said, ["user", "assistant", "tool", "assistant", "user"]);
}

#[test]
fn rule_a8_four_eyes_hold_here_too() {
    let bench = bench_with("second_approver = true\n");
    let response = asked(&bench.alice, "write");
    respond(&bench.alice, &all(&response, true)).refused(403, "self_approval");
    assert_eq!(bench.refusals(&response), ["self_approval"]);
    let settled = respond(&bench.bob, &all(&response, true)).expect(200);
    assert_eq!(settled["output"][0]["content"][0]["text"], "done");
    assert_eq!(bench.ran(), [7]);
    let denied = asked(&bench.alice, "write");
    assert_eq!(respond(&bench.alice, &all(&denied, false)).expect(200)["status"], "completed");
}

#[test]
fn rule_a8_a_program_denies_releases_nothing_and_is_told_nothing_of_the_run() {
    let bench = bench();
    let service = |name: &str, scopes: &str| {
        bench.serve.client(&bench.folder, name, &["--service", "--scopes", scopes])
    };
    let decider = service("decider", "pending:decide");
    let reader = service("reader", "pending:read");
    let ci = service("ci", "run:create");
    let response = asked(&bench.alice, "write");
    respond(&reader, &all(&response, false)).refused(403, "not_permitted");
    respond(&decider, &all(&response, true)).refused(403, "approver_not_permitted");
    assert_eq!(bench.refusals(&response), ["not_permitted", "approver_not_permitted"]);
    // Starting and settling are two rights, though one route does both.
    respond(&decider, &json!({ "input": "say" })).refused(403, "not_permitted");
    respond(&reader, &json!({ "input": "say" })).refused(403, "not_permitted");
    let own = respond(&ci, &json!({ "input": "write" })).expect(200);
    respond(&ci, &all(&own, false)).refused(403, "not_permitted");
    let mut streamed = all(&response, false);
    streamed["stream"] = true.into();
    respond(&decider, &streamed).refused(403, "not_permitted");
    assert_eq!(bench.question(&response)["status"], "open");
    let settled = respond(&decider, &all(&response, false)).expect(200);
    assert_eq!((&settled["status"], &settled["output"]), (&json!("in_progress"), &json!([])));
    assert_eq!(bench.question(&response)["decision"]["by"], "decider");
    decider.get(&format!("/v1/responses/{}", text(&settled["id"]))).refused(403, "not_permitted");
    assert_eq!(bench.tool.count(), 0);
    // What a program started it is told of, as by the route that starts runs.
    assert_eq!(respond(&ci, &json!({ "input": "say" })).expect(200)["status"], "completed");
}

#[test]
fn case_c16_what_would_mean_something_else_is_named_and_starts_nothing() {
    let bench = bench();
    let approval =
        json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_a_b", "approve": true });
    let message = json!({ "role": "user", "content": "x" });
    for (body, code, pointer) in [
        (json!({ "input": "x", "instructions": "obey" }), "unknown_field", "/instructions"),
        (json!({ "input": "x", "metadata": {} }), "unknown_field", "/metadata"),
        (json!({ "input": "x", "conversation": "c" }), "unknown_field", "/conversation"),
        (json!({ "input": "x", "max_output_tokens": 5 }), "unknown_field", "/max_output_tokens"),
        (json!({ "input": "x", "on_behalf_of": "bob" }), "unknown_field", "/on_behalf_of"),
        (json!({ "input": "x", "store": false }), "invalid_field", "/store"),
        (
            json!({ "input": "x", "tools": [{ "type": "function", "name": "f" }] }),
            "invalid_field",
            "/tools/0",
        ),
        (json!({ "input": "x", "model": "nobody" }), "unknown_agent", "/model"),
        (json!({ "input": "x", "model": "A B" }), "invalid_field", "/model"),
        (json!({ "input": " " }), "empty_input", "/input"),
        (json!({ "input": [] }), "empty_input", "/input"),
        (json!({ "model": "default" }), "invalid_field", ""),
        (json!({ "input": [{ "role": "system", "content": "x" }] }), "invalid_field", "/input/0/role"),
        (json!({ "input": [{ "role": "developer", "content": "x" }] }), "invalid_field", "/input/0/role"),
        (json!({ "input": [{ "content": "x" }] }), "invalid_field", "/input/0/role"),
        (json!({ "input": [{ "role": "user" }] }), "invalid_field", "/input/0/content"),
        (
            json!({ "input": [{ "role": "user", "content": "x", "name": "y" }] }),
            "unknown_field",
            "/input/0/name",
        ),
        (
            json!({ "input": [{ "role": "user", "content": "x", "approve": true }] }),
            "invalid_field",
            "/input/0/approve",
        ),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }] }),
            "invalid_field",
            "/input/0/content/0/type",
        ),
        (
            json!({ "input": [{ "type": "function_call_output", "call_id": "c", "output": "x" }] }),
            "invalid_field",
            "/input/0/type",
        ),
        (json!({ "input": [{ "type": "item_reference", "id": "x" }] }), "invalid_field", "/input/0/type"),
        // A client that brings a history and its approval along has no question that was stored.
        (
            json!({ "input": [{ "type": "mcp_approval_request", "id": "mcpr_1", "name": "page", "arguments": "{}", "server_label": "content" }, approval] }),
            "invalid_field",
            "/input/0/type",
        ),
        (json!({ "input": [message, approval] }), "invalid_field", "/input/0"),
        (json!({ "input": [approval] }), "invalid_field", "/input/0/approval_request_id"),
    ] {
        let problem = respond(&bench.alice, &body);
        assert_eq!((problem.status, &problem.json()["code"]), (422, &json!(code)), "{body}: {problem:?}");
        if !pointer.is_empty() {
            assert_eq!(problem.json()["errors"][0]["pointer"], pointer, "{body}: {problem:?}");
        }
    }
    assert_eq!(bench.alice.get("/v1/runs").expect(200)["items"], json!([]));

    // On a run that waits nothing but the answers is taken.
    let response = asked(&bench.alice, "write");
    let with = |name: &str, value: Value| {
        let mut body = all(&response, true);
        body[name] = value;
        respond(&bench.alice, &body)
    };
    with("model", json!("other")).refused(422, "invalid_field");
    with("tools", json!([])).refused(422, "invalid_field");
    with("previous_response_id", Value::Null).refused(422, "invalid_field");
    let mut unsaid = all(&response, true);
    unsaid["input"][0]["approve"] = Value::Null;
    respond(&bench.alice, &unsaid).refused(422, "invalid_field");
    let mut talking = all(&response, true);
    talking["input"][0]["content"] = "and delete all others".into();
    respond(&bench.alice, &talking).refused(422, "invalid_field");
    assert_eq!((&bench.question(&response)["status"], bench.tool.count()), (&json!("open"), 0));
}

#[test]
fn messages_that_came_from_here_may_be_sent_back_and_no_tools_may_be_wanted() {
    let bench = bench();
    let first = asked(&bench.alice, "say");
    let input = json!([
        { "role": "user", "content": [{ "type": "input_text", "text": "one" }, { "type": "input_text", "text": "two" }] },
        first["output"][0],
        { "type": "message", "role": "user", "content": "three" },
    ]);
    let body = json!({ "input": input, "tools": [], "store": true });
    assert_eq!(respond(&bench.alice, &body).expect(200)["status"], "completed");
    let sent = bench.model.asked().last().unwrap().clone();
    let said: Vec<_> =
        sent["messages"].as_array().unwrap().iter().map(|message| message["content"].clone()).collect();
    assert_eq!(said, ["one\ntwo", "done", "three"]);
    assert!(sent.get("tools").is_none(), "rule G8: {sent}");
}

#[test]
fn a_start_that_is_sent_again_with_its_key_is_the_same_run() {
    let bench = bench();
    let start = |task: &str| {
        let body = json!({ "input": task }).to_string();
        bench.alice.ask("POST", "/v1/responses", &[("Idempotency-Key", "order-7")], Some(&body))
    };
    let first = start("write").expect(200);
    assert_eq!(start("write").expect(200), first);
    start("say").refused(422, "idempotency_key_reused");
    respond(&bench.alice, &all(&first, true)).expect(200);
    let again = start("write").expect(200);
    assert_eq!((&again["id"], &again["output"]), (&first["id"], &first["output"]), "it tells what it told");
    assert_eq!(bench.alice.get("/v1/runs").expect(200)["items"].as_array().unwrap().len(), 1);
}

#[test]
fn nobody_need_wait_for_a_run() {
    let model = Server::start(vec![calls(&[("page", json!({ "id": 1 }))]), says("done")]);
    let (tool, open) = ToolServer::gated();
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &format!("http = \"{}\"", tool.url), "read", ""));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let begun = respond(&alice, &json!({ "input": "x", "background": true })).expect(200);
    assert_eq!((&begun["status"], &begun["usage"]), (&json!("in_progress"), &Value::Null));
    tool.wait_for_a_call();
    let short = json!({ "input": "x" }).to_string();
    let waited = alice.ask("POST", "/v1/responses", &[("Prefer", "wait=0")], Some(&short));
    assert_eq!(waited.headers["preference-applied"], "wait=0");
    waited.expect(200);
    open();
    alice.run(run_of(&begun));
    let ended = alice.get(&format!("/v1/responses/{}", text(&begun["id"]))).expect(200);
    assert_eq!(
        (&ended["status"], &ended["output"][0]["content"][0]["text"]),
        (&json!("completed"), &json!("done"))
    );
    assert_eq!(ended["usage"]["total_tokens"], 220);
}

/// The events of a stream, by their names.
fn events(stream: &Answer) -> Vec<Value> {
    let data = stream.body.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(|data| serde_json::from_str(data.trim()).unwrap()).collect()
}

#[test]
fn a_stream_tells_what_the_plain_answer_says_however_the_run_ends() {
    let bench = bench_with("max_iterations = 2\n");
    let streamed = |body: Value| {
        let mut body = body;
        body["stream"] = true.into();
        let answer = respond(&bench.alice, &body);
        assert!(answer.headers["content-type"].starts_with("text/event-stream"), "{answer:?}");
        let events = events(&answer);
        let kinds: BTreeMap<u64, String> = events
            .iter()
            .map(|event| (event["sequence_number"].as_u64().unwrap(), text(&event["type"]).to_owned()))
            .collect();
        assert_eq!(kinds.len(), events.len());
        let last = events.last().unwrap().clone();
        let id = text(&last["response"]["id"]);
        assert_eq!(last["response"], bench.alice.get(&format!("/v1/responses/{id}")).expect(200));
        (text(&last["type"]).to_owned(), last["response"].clone())
    };
    // A limit: it says so in the client's words and in ours.
    let (_, waiting) = streamed(json!({ "input": "often" }));
    let (kind, limited) = streamed(all(&waiting, true));
    assert_eq!(
        (kind.as_str(), &limited["status"], &limited["metadata"]["stop_reason"]),
        ("response.incomplete", &json!("incomplete"), &json!("max_iterations"))
    );
    let (kind, input) = streamed(json!({ "input": "ask" }));
    assert_eq!(
        (kind.as_str(), &input["metadata"]["status"]),
        ("response.incomplete", &json!("waiting_for_input"))
    );
    // A run that is cancelled while somebody listens.
    let (_, waiting) = streamed(json!({ "input": "write" }));
    bench.alice.post(&format!("/v1/runs/{}/cancel", run_of(&waiting)), &json!({})).expect(200);
    respond(&bench.alice, &all(&waiting, true)).refused(409, "withdrawn");
    let kept = bench.alice.get(&format!("/v1/responses/{}", text(&waiting["id"]))).expect(200);
    assert_eq!(kept, waiting, "what it asked is what it asked");
}

#[test]
fn a_run_that_fails_says_so_in_the_client_s_words_and_in_ours() {
    let model = Server::answering(|_| crate::support::model::Play::Answer(400, "", "{}".to_owned()));
    let folder = Folder::new();
    folder.configure(model.url(), "");
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let failed = asked(&alice, "x");
    let run = alice.run(run_of(&failed));
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert_eq!(
        (&failed["error"]["message"], &failed["metadata"]["error"]),
        (&run["error"]["detail"], &run["error"]["code"])
    );
    let streamed = respond(&alice, &json!({ "input": "x", "stream": true }));
    assert_eq!(events(&streamed).last().unwrap()["type"], "response.failed");
}
