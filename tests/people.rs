//! Who may do what over HTTP, as one table; and how they are known at all.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::serve::{Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, text};

/// A server whose model first wants a write and then answers; the owner of a run waits for a person.
struct Bench {
    folder: Folder,
    serve: Serve,
    _model: Server,
    tool: ToolServer,
}

fn bench() -> Bench {
    let model = Server::start_by_task(|task, turn| match (task.contains("write"), turn) {
        (true, 0) => calls(&[("page", json!({ "id": 1 }))]),
        _ => says("done"),
    });
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &format!("http = \"{}\"", tool.url), "write", ""));
    let serve = Serve::start(&folder);
    Bench { folder, serve, _model: model, tool }
}

const ROLES: [&str; 10] =
    ["stranger", "alice", "sue", "bob", "root", "ci", "reader", "decider", "tools", "nothing"];

#[test]
fn rule_s1_who_may_do_what_is_this_table() {
    let Bench { folder, serve, .. } = bench();
    let service = |name: &str, scopes: &str| serve.client(&folder, name, &["--service", "--scopes", scopes]);
    let clients: [Client; 10] = [
        serve.stranger(),
        serve.client(&folder, "alice", &[]),
        serve.client(&folder, "sue", &[]),
        serve.client(&folder, "bob", &["--approver"]),
        serve.client(&folder, "root", &["--admin"]),
        service("ci", "run:create,run:on_behalf,run:read,run:cancel"),
        service("reader", "pending:read"),
        service("decider", "pending:decide"),
        service("tools", "tools:manage"),
        serve.client(&folder, "nothing", &["--service"]),
    ];
    let [_, alice, _, bob, _, ci, ..] = &clients;
    let waiting = alice.start("write it");
    let ended = alice.start("say it");
    let decided = alice.start("write it");
    bob.approve(&decided["pending"]);
    let behalf = json!({ "input": "write it", "on_behalf_of": "alice" }).to_string();
    let for_alice = ci.ask("POST", "/v1/runs", &[("Prefer", "wait=30")], Some(&behalf)).expect(201);
    assert_eq!(
        (&for_alice["owner"], &for_alice["status"]),
        (&json!("alice"), &json!("waiting_for_approval"))
    );
    let own = ci.start("say it");
    let id = |run: &Value| text(&run["id"]).to_owned();
    // A run's first response, and an answer to something that it does not ask.
    let response = |run: &Value| id(run).replace("run_", "resp_") + "_0";
    let approval = format!("mcpr_nothing_{}", "0".repeat(64));
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": approval, "approve": true });
    let settle = json!({ "input": [answer], "previous_response_id": response(&waiting) });
    let pending = text(&waiting["pending"]["id"]).to_owned();

    let run = |run: &Value| format!("/v1/runs/{}", id(run));
    let none = json!({});
    let ask = json!({ "tools": ["page"] });
    #[rustfmt::skip]
    let table: Vec<(&str, String, Option<Value>, [u16; 10])> = vec![
        //                                                        stranger alice sue bob root  ci reader decider tools nothing
        ("GET",   "/healthz".into(),                        None, [200, 200, 200, 200, 200, 200, 200, 200, 200, 200]),
        ("GET",   "/readyz".into(),                         None, [200, 200, 200, 200, 200, 200, 200, 200, 200, 200]),
        ("GET",   "/metrics".into(),                        None, [200, 200, 200, 200, 200, 200, 200, 200, 200, 200]),
        ("GET",   "/openapi.json".into(),                   None, [200, 200, 200, 200, 200, 200, 200, 200, 200, 200]),
        // No input: nobody starts anything by it.
        ("POST",  "/v1/runs".into(),                Some(none.clone()), [401, 422, 422, 422, 422, 422, 403, 403, 403, 403]),
        ("GET",   "/v1/runs".into(),                        None, [401, 200, 200, 200, 200, 200, 403, 403, 403, 403]),
        ("GET",   run(&waiting),                            None, [401, 200, 404, 200, 200, 404, 403, 403, 403, 403]),
        ("GET",   run(&ended),                              None, [401, 200, 404, 404, 200, 404, 403, 403, 403, 403]),
        ("GET",   run(&decided),                            None, [401, 200, 404, 200, 200, 404, 403, 403, 403, 403]),
        ("GET",   run(&for_alice),                          None, [401, 200, 404, 200, 200, 200, 403, 403, 403, 403]),
        ("GET",   run(&own),                                None, [401, 404, 404, 404, 200, 200, 403, 403, 403, 403]),
        ("GET",   "/v1/runs/run_nobody".into(),             None, [401, 404, 404, 404, 404, 404, 403, 403, 403, 403]),
        ("GET",   run(&waiting) + "/events",                None, [401, 200, 404, 200, 200, 404, 403, 403, 403, 403]),
        ("GET",   run(&ended) + "/events",                  None, [401, 200, 404, 404, 200, 404, 403, 403, 403, 403]),
        ("GET",   run(&for_alice) + "/events",              None, [401, 200, 404, 200, 200, 200, 403, 403, 403, 403]),
        ("POST",  run(&decided) + "/cancel",        Some(none.clone()), [401, 409, 404, 403, 409, 404, 403, 403, 403, 403]),
        ("POST",  run(&ended) + "/cancel",          Some(none.clone()), [401, 409, 404, 404, 409, 404, 403, 403, 403, 403]),
        ("POST",  run(&own) + "/cancel",            Some(none), [401, 404, 404, 404, 409, 409, 403, 403, 403, 403]),
        ("GET",   "/v1/pending".into(),                     None, [401, 200, 200, 200, 200, 403, 200, 200, 403, 403]),
        ("GET",   format!("/v1/pending/{pending}"),         None, [401, 200, 404, 200, 200, 403, 200, 200, 403, 403]),
        ("GET",   "/v1/pending/pnd_nobody".into(),          None, [401, 404, 404, 404, 404, 403, 404, 404, 403, 403]),
        // A word without a digest decides nothing, and is judged after whether the question may be seen.
        ("POST",  format!("/v1/pending/{pending}/decision"), Some(json!({ "verdict": "deny" })), [401, 428, 404, 428, 428, 403, 428, 428, 403, 403]),
        ("POST",  format!("/v1/pending/{pending}/edit"),     Some(json!({ "calls": {} })), [401, 428, 404, 428, 428, 403, 428, 428, 403, 403]),
        ("POST",  "/v1/responses".into(),   Some(json!({ "input": " " })), [401, 422, 422, 422, 422, 422, 403, 403, 403, 403]),
        ("POST",  "/v1/responses".into(),                Some(settle), [401, 422, 404, 422, 422, 403, 422, 422, 403, 403]),
        ("GET",   format!("/v1/responses/{}", response(&waiting)), None, [401, 200, 404, 200, 200, 404, 403, 403, 403, 403]),
        ("GET",   format!("/v1/responses/{}", response(&ended)),   None, [401, 200, 404, 404, 200, 404, 403, 403, 403, 403]),
        ("GET",   format!("/v1/responses/{}", response(&own)),     None, [401, 404, 404, 404, 200, 200, 403, 403, 403, 403]),
        ("GET",   "/v1/tools".into(),                       None, [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
        ("GET",   "/v1/tools/page".into(),                  None, [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
        ("GET",   "/v1/tools/nothing".into(),               None, [401, 404, 404, 404, 404, 404, 403, 403, 404, 403]),
        ("PATCH", "/v1/tools/nothing".into(), Some(json!({ "enabled": true })), [401, 403, 403, 403, 404, 403, 403, 403, 404, 403]),
        ("PATCH", "/v1/tools/page".into(),    Some(json!({ "enabled": null })), [401, 403, 403, 403, 200, 403, 403, 403, 200, 403]),
        ("GET",   "/v1/groups".into(),                      None, [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
        ("PATCH", "/v1/groups/content".into(), Some(json!({ "enabled": null })), [401, 403, 403, 403, 200, 403, 403, 403, 200, 403]),
        ("GET",   "/v1/agents".into(),                      None, [401, 200, 200, 200, 200, 200, 403, 403, 403, 403]),
        ("GET",   "/v1/agents/default".into(),              None, [401, 200, 200, 200, 200, 200, 403, 403, 403, 403]),
        ("POST",  "/v1/policy/offerable".into(),     Some(ask.clone()), [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
        ("POST",  "/v1/policy/offerable".into(), Some(json!({ "as": "carol" })), [401, 403, 403, 403, 200, 403, 403, 403, 403, 403]),
        ("POST",  "/v1/policy/unattended".into(),    Some(ask.clone()), [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
        ("POST",  "/v1/policy/explain".into(),       Some(ask), [401, 200, 200, 200, 200, 200, 403, 403, 200, 403]),
    ];
    for (method, path, body, expected) in &table {
        let body = body.as_ref().map(ToString::to_string);
        let seen = clients.each_ref().map(|client| client.ask(method, path, &[], body.as_deref()).status);
        assert_eq!(seen, *expected, "{method} {path} for {ROLES:?}");
    }

    // Every route that there is stands in the table.
    let described = serve.stranger().get("/openapi.json").expect(200);
    let covered: BTreeSet<String> = table.iter().map(|(method, path, ..)| shape(method, path)).collect();
    for (path, item) in described["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let route = shape(&method.to_uppercase(), path);
            assert!(covered.contains(&route), "{route} is not in the table");
        }
    }
}

/// A route with its ids and names left out.
fn shape(method: &str, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let is_named = |at: usize| {
        at == 3 && ["runs", "pending", "tools", "groups", "agents", "responses"].contains(&parts[2])
    };
    let shaped = parts.iter().enumerate().map(|(at, part)| if is_named(at) { "*" } else { part });
    format!("{method} {}", shaped.collect::<Vec<_>>().join("/"))
}

#[test]
fn rule_s1_a_list_shows_what_may_be_seen() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let sue = serve.client(&folder, "sue", &[]);
    let root = serve.client(&folder, "root", &["--admin"]);
    let ci = serve.client(&folder, "ci", &["--service", "--scopes", "run:create,run:on_behalf,run:read"]);
    let first = alice.start("write it");
    let behalf = json!({ "input": "say it", "on_behalf_of": "sue" });
    ci.post("/v1/runs", &behalf).expect(201);
    let owners = |client: &Client, query: &str| -> Vec<Value> {
        let page = client.get(&format!("/v1/runs{query}")).expect(200);
        page["items"].as_array().unwrap().iter().map(|run| run["owner"].clone()).collect()
    };
    assert_eq!(owners(&alice, ""), ["alice"]);
    assert_eq!(owners(&alice, "?owner=sue"), Vec::<Value>::new());
    assert_eq!(owners(&sue, ""), ["sue"]);
    assert_eq!(owners(&ci, ""), ["sue"]);
    ci.post("/v1/runs", &behalf).expect(201);
    alice.start("say it");
    let page = ci.get("/v1/runs?limit=2").expect(200);
    let next = (page["items"].as_array().unwrap().len(), &page["next"]);
    assert_eq!(next, (2, &Value::Null), "what others started takes no place in a page");
    assert_eq!(owners(&root, ""), ["alice", "sue", "sue", "alice"]);
    assert_eq!(owners(&root, "?owner=alice"), ["alice", "alice"]);
    let questions = |client: &Client| client.get("/v1/pending?status=open").expect(200)["items"].clone();
    assert_eq!(questions(&alice)[0]["id"], first["pending"]["id"]);
    assert_eq!(questions(&sue), json!([]));
}

#[test]
fn rule_r10_an_erased_run_is_gone_for_whoever_might_see_it_and_missing_for_others() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let sue = serve.client(&folder, "sue", &[]);
    let root = serve.client(&folder, "root", &["--admin"]);
    let scopes = "run:create,run:on_behalf,run:read,run:cancel,pending:read";
    let ci = serve.client(&folder, "ci", &["--service", "--scopes", scopes]);
    let started = ci.post("/v1/runs", &json!({ "input": "write it", "on_behalf_of": "alice" })).expect(201);
    let id = text(&started["id"]).to_owned();
    let question = alice.run(&id)["pending"].clone();
    alice.approve(&question);
    alice.run(&id);
    folder.run(&["runs", "erase", &id]).expect(0);
    let (run, pending) = (format!("/v1/runs/{id}"), format!("/v1/pending/{}", text(&question["id"])));
    for client in [&alice, &root, &ci] {
        let problem = client.get(&run).refused(410, "erased");
        assert!(text(&problem["detail"]).contains("was erased at"), "{problem}");
        client.get(&format!("{run}/events")).refused(410, "erased");
        client.get(&pending).refused(410, "erased");
        let line = client.get("/v1/runs").expect(200)["items"][0].clone();
        assert_eq!((&line["id"], &line["error"]["code"]), (&json!(id), &json!("erased")));
    }
    for client in [&alice, &root] {
        client.post(&format!("{run}/cancel"), &json!({})).refused(410, "erased");
        client.decide(&question, json!({ "verdict": "approve" })).refused(410, "erased");
        let edit = json!({ "digest": question["digest"], "calls": {} });
        client.post(&format!("{pending}/edit"), &edit).refused(410, "erased");
    }
    let next = json!({ "input": "and then?", "continue_from": id });
    alice.post("/v1/runs", &next).refused(409, "not_continuable");
    for path in [&run, &format!("{run}/events"), &pending] {
        sue.get(path).refused(404, "not_found");
    }
    sue.post("/v1/runs", &next).refused(404, "not_found");
}

#[test]
fn rule_a8_a_program_denies_and_never_releases_a_write() {
    let Bench { folder, serve, tool, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let reader = serve.client(&folder, "reader", &["--service", "--scopes", "pending:read"]);
    let decider = serve.client(&folder, "decider", &["--service", "--scopes", "pending:decide"]);
    let run = alice.start("write it");
    let pending = &run["pending"];
    reader.decide(pending, json!({ "verdict": "deny" })).refused(403, "not_permitted");
    decider.decide(pending, json!({ "verdict": "approve" })).refused(403, "approver_not_permitted");
    assert_eq!(alice.get(&format!("/v1/pending/{}", text(&pending["id"]))).expect(200)["status"], "open");
    let denied = decider.decide(pending, json!({ "verdict": "deny", "reason": "no" })).expect(200);
    assert_eq!((&denied["status"], &denied["decision"]["by"]), (&json!("denied"), &json!("decider")));
    assert_eq!(alice.run(text(&run["id"]))["status"], "completed");
    assert!(tool.calls().is_empty());
    let kinds = alice.kinds(text(&run["id"]));
    assert_eq!(kinds.iter().filter(|kind| *kind == "pending.refused").count(), 2, "rule A9: {kinds:?}");
}

#[test]
fn rule_s2_who_starts_for_others_is_a_program_that_may() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let plain = serve.client(&folder, "plain", &["--service", "--scopes", "run:create,run:read"]);
    let ci = serve.client(&folder, "ci", &["--service", "--scopes", "run:create,run:on_behalf"]);
    let body = |subject: &str| json!({ "input": "say it", "on_behalf_of": subject });
    alice.post("/v1/runs", &body("bob")).refused(403, "not_permitted");
    plain.post("/v1/runs", &body("alice")).refused(403, "not_permitted");
    let problem = ci.post("/v1/runs", &body("nobody")).refused(422, "unknown_subject");
    assert_eq!(problem["errors"][0]["pointer"], "/on_behalf_of");
    ci.post("/v1/runs", &body("plain")).refused(422, "unknown_subject");
    let run = ci.post("/v1/runs", &body("alice")).expect(201);
    let events = alice.get(&format!("/v1/runs/{}/events", text(&run["id"]))).expect(200);
    let created = &events["items"][0]["data"];
    assert_eq!((&created["owner"], &created["starter"]), (&json!("alice"), &json!("ci")));
}

#[test]
fn rule_s1_a_token_is_shown_once_and_looked_up_live() {
    let Bench { folder, serve, .. } = bench();
    let made = folder.run(&["token", "create", "--subject", "alice"]).expect(0);
    let token = made.out.trim().to_owned();
    assert_eq!(made.out.lines().count(), 1, "the token alone: {made:?}");
    let alice = serve.stranger().with_token(&token);
    alice.get("/v1/runs").expect(200);

    let listed = folder.run(&["token", "list", "--json"]).expect(0).out;
    let secret = token.rsplit('_').next().unwrap();
    assert!(!listed.contains(secret), "{listed}");
    let database = std::fs::read(folder.path(".countersign/countersign.db")).unwrap();
    let log = std::fs::read(folder.path(".countersign/countersign.db-wal")).unwrap_or_default();
    assert!(!contains(&database, secret.as_bytes()) && !contains(&log, secret.as_bytes()));
    assert!(!serve.said().contains(secret));

    // Rights change with the next request.
    alice.patch("/v1/tools/page", &json!({ "enabled": false })).refused(403, "not_permitted");
    folder.run(&["user", "set", "alice", "--admin"]).expect(0);
    alice.patch("/v1/tools/page", &json!({ "enabled": false })).expect(200);
    folder.run(&["user", "disable", "alice"]).expect(0);
    alice.get("/v1/runs").refused(401, "unauthenticated");
    folder.run(&["token", "create", "--subject", "alice"]).expect(2);
    folder.run(&["user", "set", "alice"]).expect(0);
    alice.get("/v1/runs").expect(200);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = text(&listed["items"][0]["id"]).to_owned();
    folder.run(&["token", "revoke", &id]).expect(0);
    alice.get("/v1/runs").refused(401, "unauthenticated");
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn rule_s1_a_token_only_adds_rights_and_makes_nobody_something_else() {
    let folder = Folder::new();
    let users = |folder: &Folder| folder.json(&["user", "list", "--json"])["items"].clone();
    let of = |users: &Value, name: &str| {
        users.as_array().unwrap().iter().find(|user| user["subject"] == name).cloned().unwrap()
    };
    folder.run(&["token", "create", "--subject", "bob", "--approver"]).expect(0);
    folder.run(&["token", "create", "--subject", "bob", "--admin"]).expect(0);
    folder.run(&["token", "create", "--subject", "bob"]).expect(0);
    let bob = of(&users(&folder), "bob");
    assert_eq!((&bob["admin"], &bob["approver"]), (&json!(true), &json!(true)));
    folder.run(&["token", "create", "--subject", "ci", "--service", "--scopes", "run:read"]).expect(0);
    folder.run(&["token", "create", "--subject", "ci", "--service", "--scopes", "run:create"]).expect(0);
    assert_eq!(of(&users(&folder), "ci")["scopes"], json!(["run:create", "run:read"]));
    let refused = |arguments: &[&str], word: &str| {
        let done: Done = folder.run(arguments).expect(2);
        assert!(done.err.contains(word), "{done:?}");
    };
    refused(&["token", "create", "--subject", "ci"], "--service");
    refused(&["token", "create", "--subject", "bob", "--service"], "another subject");
    refused(&["token", "create", "--subject", "x", "--service", "--scopes", "run:*"], "a scope is one of");
    refused(&["token", "create", "--subject", "x", "--service", "--admin"], "cannot be used with");
    refused(&["user", "set", "ci", "--admin"], "is a program");
    refused(&["token", "revoke", "tok_nothing"], "there is no token");
}

#[test]
fn rule_s1_who_shows_no_good_token_is_told_the_same_whatever_was_wrong() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let good = alice.token().to_owned();
    let refused = |answer: &crate::support::serve::Answer| {
        let problem = answer.refused(401, "unauthenticated");
        assert!(answer.headers["www-authenticate"].starts_with("Bearer"));
        problem["detail"].clone()
    };
    let none = refused(&serve.stranger().get("/v1/runs"));
    let last = if good.ends_with('0') { "1" } else { "0" };
    let changed = format!("{}{last}", &good[..good.len() - 1]);
    for token in ["x", "cs_x_y", &changed, &good.to_uppercase()] {
        assert_eq!(refused(&serve.stranger().with_token(token).get("/v1/runs")), none, "{token}");
    }
    let stranger = serve.stranger();
    for header in
        [format!("Basic {good}"), good.clone(), format!("Bearer {good}\r\nAuthorization: Bearer {good}")]
    {
        refused(&stranger.ask("GET", "/v1/runs", &[("Authorization", &header)], None));
    }
    // Also where nothing of that name is.
    refused(&stranger.get("/v1/runs/run_nobody"));
    alice.get("/v1/runs").expect(200);
}

#[test]
fn rule_s1_wrong_tokens_are_slowed_down_and_good_ones_let_in() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let wrong = serve.stranger().with_token("wrong");
    let statuses: Vec<u16> = (0..40).map(|_| wrong.get("/v1/runs").status).collect();
    assert_eq!(statuses[0], 401);
    let slowed = wrong.get("/v1/runs");
    slowed.refused(429, "too_many_attempts");
    assert!(slowed.headers["retry-after"].parse::<u32>().unwrap() > 0);
    alice.get("/v1/runs").expect(200);
}

#[test]
fn rule_s2_a_page_of_somebody_else_reaches_nothing() {
    let Bench { folder, serve, .. } = bench();
    let alice = serve.client(&folder, "alice", &[]);
    let here = format!("http://{}", serve.address());
    for path in ["/v1/runs", "/healthz", "/nothing"] {
        alice.ask("GET", path, &[("Host", "evil.example")], None).refused(421, "unknown_host");
        for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
            alice.ask("GET", path, &[("Origin", origin)], None).refused(403, "foreign_origin");
        }
    }
    let allowed = alice.ask("GET", "/v1/runs", &[("Origin", &here)], None);
    allowed.expect(200);
    let preflight = alice.ask("OPTIONS", "/v1/runs", &[("Origin", &here)], None);
    preflight.refused(405, "method_not_allowed");
    for answer in [allowed, preflight] {
        assert!(!answer.headers.keys().any(|name| name.starts_with("access-control-")), "{answer:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let sent = alice.ask("POST", "/v1/runs", &[("Content-Type", kind)], Some("{\"input\":\"x\"}"));
        sent.refused(415, "unsupported_media_type");
    }
    assert_eq!(alice.get("/v1/runs").expect(200)["items"], json!([]), "nothing was started");
}
