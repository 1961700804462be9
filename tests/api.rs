//! The routes of the HTTP API: starting, looking, lists, streams, switches, gates, and what is refused.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::serve::{Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text};

struct Bench {
    folder: Folder,
    serve: Serve,
    model: Server,
    tool: ToolServer,
    root: Client,
}

/// A task with "write" in it asks for a write first; everything else is answered.
fn bench() -> Bench {
    let model = Server::start_by_task(|task, turn| match (task.contains("write"), turn) {
        (true, 0) => calls(&[("page", json!({ "id": 1 }))]),
        _ => says("done"),
    });
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let folder = Folder::new();
    let how = format!("http = \"{}\"", tool.url);
    let tools = declared("page", &how, "write", "") + &declared("look", &how, "read", "");
    folder.configure(model.url(), &("max_iterations = 7\n".to_owned() + &tools));
    let serve = Serve::start(&folder);
    let root = serve.client(&folder, "root", &["--admin"]);
    Bench { folder, serve, model, tool, root }
}

#[test]
fn a_run_is_started_waited_for_and_looked_at() {
    let Bench { folder: _folder, serve: _serve, root, model, .. } = bench();
    let body = json!({ "input": "say it", "tools": [], "max_iterations": 100 }).to_string();
    let started = root.ask("POST", "/v1/runs", &[("Prefer", "wait=30")], Some(&body));
    let run = started.expect(201);
    assert_eq!(started.headers["location"], format!("/v1/runs/{}", text(&run["id"])));
    assert_eq!(started.headers["preference-applied"], "wait=30");
    assert_eq!(
        (&run["status"], &run["output"], &run["agent"], &run["owner"]),
        (&json!("completed"), &json!("done"), &json!("default"), &json!("root"))
    );
    assert!(model.asked()[0].get("tools").is_none(), "rule G8: no tools were asked for");
    let events = root.get(&format!("/v1/runs/{}/events", text(&run["id"]))).expect(200);
    assert_eq!(events["items"][0]["data"]["limits"]["iterations_max"], 7, "rule L1: only lowered");
    let looked = root.get(&started.headers["location"]);
    assert_eq!(looked.expect(200), run);
    assert_eq!(looked.headers["cache-control"], "no-store");
    assert_eq!(looked.headers["x-content-type-options"], "nosniff");
    let head = root.ask("HEAD", &started.headers["location"], &[], None);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn an_input_may_be_a_list_of_messages() {
    let Bench { folder: _folder, serve: _serve, root, model, .. } = bench();
    let messages = json!([
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": "two" },
        { "role": "user", "content": "three" },
    ]);
    let body = json!({ "input": messages }).to_string();
    root.ask("POST", "/v1/runs", &[("Prefer", "wait=30")], Some(&body)).expect(201);
    let asked = &model.asked()[0]["messages"];
    let said: Vec<_> = asked.as_array().unwrap().iter().map(|message| text(&message["content"])).collect();
    assert_eq!(said, ["one", "two", "three"]);
}

#[test]
fn case_c16_a_body_that_is_not_exactly_right_starts_nothing() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    let refused = |body: &str, status: u16, code: &str| {
        root.ask("POST", "/v1/runs", &[], Some(body)).refused(status, code)
    };
    for (body, pointer) in [
        (r#"{"input":"x","owner":"alice"}"#, "/owner"),
        (r#"{"input":[{"role":"user","content":"x","name":"y"}]}"#, "/input/0"),
        (r#"{"input":"x","continue":"run_1"}"#, "/continue"),
    ] {
        let problem = root.ask("POST", "/v1/runs", &[], Some(body));
        assert_eq!(problem.status, 422, "{problem:?}");
        assert!(text(&problem.json()["errors"][0]["pointer"]).starts_with(pointer), "{problem:?}");
    }
    refused(r#"{"input":"x","owner":"alice"}"#, 422, "unknown_field");
    refused(r#"{"input":"x","input":"y"}"#, 422, "malformed");
    refused(r#"{"input":"x"} {}"#, 422, "malformed");
    refused(r#"["x"]"#, 422, "malformed");
    refused("{", 422, "malformed");
    for nothing in ["", " ", "null"] {
        refused(nothing, 422, "malformed");
        root.ask("POST", "/v1/policy/explain", &[], Some(nothing)).refused(422, "malformed");
    }
    refused(&format!("{{\"input\":{}{}}}", "[".repeat(100), "]".repeat(100)), 422, "malformed");
    assert_eq!(refused(r"{}", 422, "invalid_field")["errors"][0]["detail"], "missing field `input`");
    refused(r#"{"input":7}"#, 422, "invalid_field");
    refused(r#"{"input":"x","max_iterations":0}"#, 422, "invalid_field");
    refused(r#"{"input":[{"role":"system","content":"x"}]}"#, 422, "invalid_field");
    refused(r#"{"input":"  "}"#, 422, "empty_input");
    refused(r#"{"input":"x","agent":"nobody"}"#, 422, "unknown_agent");
    let long = format!("{{\"input\":\"{}\"}}", "x".repeat(4 * 1024 * 1024));
    refused(&long, 413, "too_large");
    assert_eq!(root.get("/v1/runs").expect(200)["items"], json!([]));
}

#[test]
fn the_same_key_and_body_are_the_same_run() {
    let Bench { serve, folder, root, model, .. } = bench();
    let start = |client: &Client, key: &str, task: &str| {
        let body = json!({ "input": task }).to_string();
        client.ask("POST", "/v1/runs", &[("Idempotency-Key", key), ("Prefer", "wait=30")], Some(&body))
    };
    let first = start(&root, "order-7", "say it").expect(201);
    assert_eq!(start(&root, "order-7", "say it").expect(201)["id"], first["id"]);
    // The same body in another spelling.
    let spelled =
        root.ask("POST", "/v1/runs", &[("Idempotency-Key", "order-7")], Some("{ \"input\" : \"say it\" }"));
    assert_eq!(spelled.expect(201)["id"], first["id"]);
    start(&root, "order-7", "say something else").refused(422, "idempotency_key_reused");
    start(&root, "", "say it").refused(422, "invalid_header");
    start(&root, &"x".repeat(256), "say it").refused(422, "invalid_header");
    let alice = serve.client(&folder, "alice", &[]);
    assert_ne!(start(&alice, "order-7", "say it").expect(201)["id"], first["id"], "a key is its starter's");
    assert_eq!(model.asked().len(), 2);

    let at_once: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(|| start(&root, "order-8", "say it"))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().expect(201)["id"].clone()).collect()
    });
    assert!(at_once.iter().all(|id| *id == at_once[0]), "{at_once:?}");
    assert_eq!(root.get("/v1/runs").expect(200)["items"].as_array().unwrap().len(), 3);
}

#[test]
fn lists_are_paged_filtered_and_strict_about_what_is_asked() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    let ids: Vec<Value> = (0..5).map(|_| root.start("say it")["id"].clone()).collect();
    let waiting = root.start("write it");
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = root.get(&format!("/v1/runs?limit=2&status=completed{cursor}")).expect(200);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        found.extend(items.iter().map(|run| run["id"].clone()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    found.reverse();
    assert_eq!(found, ids, "newest first, each once");
    let only = root.get("/v1/runs?status=waiting_for_approval&agent=default").expect(200);
    assert_eq!((only["items"].as_array().unwrap().len(), &only["items"][0]["id"]), (1, &waiting["id"]));
    for (query, code) in [
        ("limit=0", "invalid_parameter"),
        ("limit=201", "invalid_parameter"),
        ("limit=2&limit=3", "invalid_parameter"),
        ("status=done", "invalid_parameter"),
        ("agent=A%20B", "invalid_parameter"),
        ("cursor=tools~x", "invalid_cursor"),
        ("stauts=open", "unknown_parameter"),
    ] {
        root.get(&format!("/v1/runs?{query}")).refused(422, code);
    }
    let tools = root.get("/v1/tools?limit=1").expect(200);
    let next = text(&tools["next"]);
    let after = root.get(&format!("/v1/tools?limit=200&cursor={next}")).expect(200);
    assert!(after["items"].as_array().unwrap().iter().all(|tool| tool["name"] != tools["items"][0]["name"]));
}

#[test]
fn what_is_not_there_and_what_cannot_be_done_are_problems() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    root.get("/nothing").refused(404, "not_found");
    root.get("/v1/runs/run_nobody").refused(404, "not_found");
    root.get("/v1/runs/%20").refused(404, "not_found");
    let wrong = root.ask("DELETE", "/v1/runs", &[], None);
    wrong.refused(405, "method_not_allowed");
    assert!(wrong.headers["allow"].contains("GET") && wrong.headers["allow"].contains("POST"), "{wrong:?}");
    let id = text(&root.start("say it")["id"]).to_owned();
    root.ask("GET", &format!("/v1/runs/{id}"), &[("Prefer", "wait=soon")], None)
        .refused(422, "invalid_header");
    root.post(&format!("/v1/runs/{id}/cancel"), &json!({ "why": "x" })).refused(422, "unknown_field");
    root.post(&format!("/v1/runs/{id}/cancel"), &json!({})).refused(409, "not_cancellable");
}

#[test]
fn rule_r8_a_waiting_run_is_cancelled_at_once_with_its_question() {
    let Bench { folder: _folder, serve: _serve, root, tool, .. } = bench();
    let run = root.start("write it");
    let id = text(&run["id"]);
    let cancelled = root.ask("POST", &format!("/v1/runs/{id}/cancel"), &[], None).expect(200);
    assert_eq!((&cancelled["status"], &cancelled["pending"]), (&json!("cancelled"), &Value::Null));
    root.decide(&run["pending"], json!({ "verdict": "approve" })).refused(409, "withdrawn");
    assert!(tool.calls().is_empty());
}

#[test]
fn events_are_a_list_after_a_sequence_and_a_stream_that_ends_with_the_run() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    let run = root.start("write it");
    let path = format!("/v1/runs/{}/events", text(&run["id"]));
    let all = root.get(&path).expect(200)["items"].as_array().unwrap().clone();
    assert_eq!(text(&all.last().unwrap()["kind"]), "pending.opened");
    for (seq, event) in all.iter().enumerate() {
        assert_eq!(event["seq"], seq);
    }
    assert_eq!(root.get(&format!("{path}?after=0")).expect(200)["items"], json!(all[1..]));
    assert_eq!(root.get(&format!("{path}?after=99")).expect(200)["items"], json!([]));
    root.get(&format!("{path}?after=9223372036854775808")).refused(422, "invalid_parameter");
    let first = root.get(&format!("{path}?limit=1")).expect(200);
    let second = root.get(&format!("{path}?limit=1&cursor={}", text(&first["next"]))).expect(200);
    assert_eq!((&first["items"][0], &second["items"][0]), (&all[0], &all[1]));

    let stream = |headers: &[(&str, &str)]| {
        let headers = [&[("Accept", "text/event-stream")], headers].concat();
        root.ask("GET", &path, &headers, None)
    };
    let paused = stream(&[]);
    assert!(paused.headers["content-type"].starts_with("text/event-stream"), "{paused:?}");
    assert_eq!(ids(&paused.body), (0..all.len()).collect::<Vec<_>>(), "it ends with the pause");
    let resumed = stream(&[("Last-Event-ID", "0")]);
    assert_eq!(ids(&resumed.body), (1..all.len()).collect::<Vec<_>>());
    stream(&[("Last-Event-ID", "x")]).refused(422, "invalid_header");

    root.approve(&run["pending"]);
    let ended = stream(&[]);
    let last = root.kinds(text(&run["id"])).len() - 1;
    assert_eq!(ids(&ended.body).last(), Some(&last));
    assert!(ended.body.contains("event: run.completed\n") || ended.body.contains("event:run.completed\n"));
    assert_eq!(stream(&[("Last-Event-ID", &last.to_string())]).status, 204, "a browser does not come back");
}

/// The sequences of a stream.
fn ids(stream: &str) -> Vec<usize> {
    stream.lines().filter_map(|line| line.strip_prefix("id:")).map(|id| id.trim().parse().unwrap()).collect()
}

/// A run whose call is under way, and a stream that has told of it.
struct Streaming {
    folder: Folder,
    _serve: Serve,
    _model: Server,
    _tool: ToolServer,
    open: Box<dyn FnOnce()>,
    stream: TcpStream,
    seen: String,
}

fn streaming() -> Streaming {
    let model = Server::start(vec![calls(&[("page", json!({ "id": 1 }))]), says("done")]);
    let (tool, open) = ToolServer::gated();
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &format!("http = \"{}\"", tool.url), "read", ""));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.post("/v1/runs", &json!({ "input": "x" })).expect(201);
    let mut stream = TcpStream::connect(serve.address()).unwrap();
    let head = format!(
        "GET /v1/runs/{}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n",
        text(&run["id"]),
        serve.address(),
        alice.token()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (mut seen, mut part) = (String::new(), [0; 4096]);
    while !seen.contains("call.started") {
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "the stream ended: {seen}");
        seen.push_str(std::str::from_utf8(&part[..length]).unwrap());
    }
    assert!(!seen.contains("call.finished"), "the call is under way: {seen}");
    Streaming { folder, _serve: serve, _model: model, _tool: tool, open: Box::new(open), stream, seen }
}

#[test]
fn a_stream_follows_a_run_while_it_works() {
    let Streaming { open, mut stream, mut seen, folder: _folder, _serve, .. } = streaming();
    open();
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.contains("call.finished") && seen.contains("run.completed"), "{seen}");
}

#[test]
fn rule_s2_a_stream_ends_where_its_token_is_good_no_longer_or_its_holder_is_gone() {
    for (what, id) in [("token", "revoke"), ("user", "disable")] {
        let Streaming { folder, open, mut stream, mut seen, _serve, _model, _tool } = streaming();
        let id_of = match what {
            "token" => text(&folder.json(&["token", "list", "--json"])["items"][0]["id"]).to_owned(),
            _ => "alice".to_owned(),
        };
        folder.run(&[what, id, &id_of]).expect(0);
        open();
        stream.read_to_string(&mut seen).unwrap();
        assert!(!seen.contains("call.finished") && !seen.contains("run.completed"), "{what}: {seen}");
    }
}

#[test]
fn rule_g4_switches_show_all_of_it_and_rule_g10_a_name_that_is_not_there_stores_nothing() {
    let Bench { serve: _serve, root, folder, .. } = bench();
    let tool = || root.get("/v1/tools/page").expect(200)["enabled"].clone();
    let off = root.patch("/v1/tools/page", &json!({ "enabled": false })).expect(200);
    assert_eq!(
        off["enabled"],
        json!({ "effective": false, "tool": false, "group": true, "default": true, "overridden": true })
    );
    let group = root.patch("/v1/groups/content", &json!({ "enabled": false })).expect(200);
    assert_eq!((&group["enabled"], &group["overridden"]), (&json!(false), &json!(true)));
    assert_eq!(group["tools"], json!(["page", "look"]));
    root.patch("/v1/tools/page", &json!({ "enabled": true })).expect(200);
    assert_eq!(
        (&tool()["tool"], &tool()["effective"]),
        (&json!(true), &json!(false)),
        "a closed group stays closed"
    );
    root.patch("/v1/groups/content", &json!({ "enabled": null })).expect(200);
    assert_eq!(tool()["effective"], true);
    for name in ["Page", "page%20", "p\u{430}ge"] {
        let name = name.replace('\u{430}', "%D0%B0");
        root.patch(&format!("/v1/tools/{name}"), &json!({ "enabled": false })).refused(404, "not_found");
        root.get(&format!("/v1/tools/{name}")).refused(404, "not_found");
    }
    root.patch("/v1/groups/nothing", &json!({ "enabled": false })).refused(404, "not_found");
    root.patch("/v1/tools/page", &json!({})).refused(422, "invalid_field");
    root.patch("/v1/tools/page", &json!({ "enabled": "no" })).refused(422, "invalid_field");
    // What the command line sees is the same.
    let by_name = |items: &Value| -> BTreeMap<String, Value> {
        items.as_array().unwrap().iter().map(|tool| (text(&tool["name"]).to_owned(), tool.clone())).collect()
    };
    let listed = folder.json(&["tools", "list", "--json"]);
    let served = root.get("/v1/tools").expect(200);
    assert_eq!(by_name(&listed["items"]), by_name(&served["items"]));
}

#[test]
fn rule_g2_the_switch_of_a_tool_that_is_gone_is_listed_and_can_be_removed() {
    let Bench { root, folder, serve, .. } = bench();
    root.patch("/v1/tools/look", &json!({ "enabled": false })).expect(200);
    drop(serve);
    let declared = folder.text("countersign.toml");
    let (before, after) = declared.split_once("\n[[tools]]\nname = \"look\"").unwrap();
    let rest =
        after.split_once("\n[[tools]]").map(|(_, rest)| format!("\n[[tools]]{rest}")).unwrap_or_default();
    folder.write("countersign.toml", &format!("{before}{rest}"));
    let serve = Serve::start(&folder);
    let root = serve.stranger().with_token(root.token());
    let orphan = root.get("/v1/tools/look").expect(200);
    assert_eq!((&orphan["orphaned"], &orphan["enabled"]["tool"]), (&json!(true), &json!(false)));
    root.patch("/v1/tools/look", &json!({ "enabled": true })).refused(404, "not_found");
    root.patch("/v1/tools/look", &json!({ "enabled": null })).expect(200);
    root.get("/v1/tools/look").refused(404, "not_found");
}

#[test]
fn rule_p9_the_gates_are_asked_and_explained_by_the_function_that_enforces() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    let asked = json!({ "tools": ["page", "nothing", "look", "page"] });
    assert_eq!(
        root.post("/v1/policy/offerable", &asked).expect(200)["tools"],
        json!(["page", "look", "page"])
    );
    assert_eq!(root.post("/v1/policy/unattended", &asked).expect(200)["tools"], json!(["look"]));
    let verdicts = root.post("/v1/policy/explain", &asked).expect(200)["items"].clone();
    let words: Vec<_> = verdicts.as_array().unwrap().iter().map(|verdict| text(&verdict["reason"])).collect();
    assert_eq!(words, ["none", "not_registered", "none", "none"]);
    root.patch("/v1/tools/page", &json!({ "enabled": false })).expect(200);
    assert_eq!(root.post("/v1/policy/offerable", &asked).expect(200)["tools"], json!(["look"]));
    assert_eq!(root.post("/v1/policy/explain", &asked).expect(200)["items"][0]["reason"], "tool_disabled");
    root.post("/v1/policy/offerable", &json!({ "agent": "nobody" })).refused(422, "unknown_agent");
    // An admin-only tool is offered to administrators only.
    let names = |subject: &str| {
        root.post("/v1/policy/offerable", &json!({ "as": subject })).expect(200)["tools"].clone()
    };
    assert!(names("root").as_array().unwrap().contains(&json!("system_status")));
    assert!(!names("nobody").as_array().unwrap().contains(&json!("system_status")));
}

#[test]
fn agents_are_shown_without_prompts_and_secrets() {
    let Bench { folder: _folder, serve: _serve, root, .. } = bench();
    let agent = root.get("/v1/agents/default").expect(200);
    assert_eq!(
        (&agent["models"], &agent["zone"], &agent["max_iterations"]),
        (&json!(["stub/scripted"]), &json!("local"), &json!(7))
    );
    assert!(agent.get("system_prompt").is_none());
    assert_eq!(root.get("/v1/agents").expect(200)["items"], json!([agent]));
    root.get("/v1/agents/nobody").refused(404, "not_found");
}

#[test]
fn the_description_is_that_of_the_committed_file_and_of_the_command() {
    let Bench { serve, folder, .. } = bench();
    let served = serve.stranger().get("/openapi.json").expect(200);
    assert_eq!(served, folder.json(&["openapi"]));
    assert_eq!(text(&served["openapi"]), "3.1.0");
    assert!(served["paths"]["/v1/runs"]["post"]["security"][0]["token"].is_array());
    assert!(served["paths"]["/healthz"]["get"].get("security").is_none());
}

/// Whether an answer is what the description says: nothing more, and nothing that is required left out.
fn is_as_described(described: &Value, schema: &Value, found: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/")) {
        return is_as_described(described, &described["components"]["schemas"][name], found, at);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        // Null, or the other one.
        let other = either.iter().find(|one| one["type"] != "null").unwrap();
        if !found.is_null() {
            is_as_described(described, other, found, at);
        }
        return;
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(found), "{at}: {found}");
    }
    let kind = &schema["type"];
    let kinds: Vec<&str> = kind
        .as_array()
        .map_or_else(|| kind.as_str().into_iter().collect(), |all| all.iter().map(text).collect());
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.contains(&kind), "{at}: {found} is not {kinds:?}");
    for item in found.as_array().into_iter().flatten() {
        is_as_described(described, &schema["items"], item, at);
    }
    let (Some(members), Some(known)) = (found.as_object(), schema["properties"].as_object()) else { return };
    for (name, member) in members {
        let known = known.get(name).unwrap_or_else(|| panic!("{at}.{name} is not described"));
        is_as_described(described, known, member, &format!("{at}.{name}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(text(name)), "{at}.{name} is required");
    }
}

#[test]
fn every_answer_is_as_the_description_says() {
    let Bench { folder: _folder, serve, root, .. } = bench();
    let described = serve.stranger().get("/openapi.json").expect(200);
    let waiting = root.start("write it");
    let pending = text(&waiting["pending"]["id"]).to_owned();
    root.start("say it");
    let is = |method: &str, shape: &str, path: &str, body: Option<&str>, status: &str| {
        let operation = &described["paths"][shape][method];
        let content = &operation["responses"][status]["content"];
        let schema = content.get("application/json").or(content.get("application/problem+json"));
        let schema =
            &schema.unwrap_or_else(|| panic!("{method} {shape} {status} is not described"))["schema"];
        let answer = root.ask(&method.to_uppercase(), path, &[], body).json();
        is_as_described(&described, schema, &answer, shape);
    };
    let run = format!("/v1/runs/{}", text(&waiting["id"]));
    let question = format!("/v1/pending/{pending}");
    is("post", "/v1/runs", "/v1/runs", Some(r#"{"input":"write it"}"#), "201");
    is("post", "/v1/runs", "/v1/runs", Some(r#"{"x":1}"#), "4XX");
    is("get", "/v1/runs", "/v1/runs", None, "200");
    is("get", "/v1/runs/{id}", &run, None, "200");
    is("get", "/v1/runs/{id}/events", &format!("{run}/events"), None, "200");
    is("get", "/v1/pending", "/v1/pending", None, "200");
    is("get", "/v1/pending/{id}", &question, None, "200");
    let decision =
        json!({ "digest": waiting["pending"]["digest"], "verdict": "deny", "reason": "no" }).to_string();
    is("post", "/v1/pending/{id}/decision", &format!("{question}/decision"), Some(&decision), "200");
    is("post", "/v1/pending/{id}/decision", &format!("{question}/decision"), Some(&decision), "409");
    let response = root.post("/v1/responses", &json!({ "input": "write it" })).expect(200);
    is("post", "/v1/responses", "/v1/responses", Some(r#"{"input":"say it"}"#), "200");
    is("post", "/v1/responses", "/v1/responses", Some(r#"{"input":"x","store":false}"#), "4XX");
    is("get", "/v1/responses/{id}", &format!("/v1/responses/{}", text(&response["id"])), None, "200");
    is("get", "/v1/tools", "/v1/tools", None, "200");
    is("get", "/v1/tools/{name}", "/v1/tools/page", None, "200");
    is("patch", "/v1/tools/{name}", "/v1/tools/page", Some(r#"{"enabled":false}"#), "200");
    is("get", "/v1/groups", "/v1/groups", None, "200");
    is("patch", "/v1/groups/{name}", "/v1/groups/content", Some(r#"{"enabled":null}"#), "200");
    is("get", "/v1/agents", "/v1/agents", None, "200");
    is("get", "/v1/agents/{name}", "/v1/agents/default", None, "200");
    let asked = Some(r#"{"tools":["page","nothing"]}"#);
    is("post", "/v1/policy/offerable", "/v1/policy/offerable", asked, "200");
    is("post", "/v1/policy/unattended", "/v1/policy/unattended", asked, "200");
    is("post", "/v1/policy/explain", "/v1/policy/explain", asked, "200");
}
