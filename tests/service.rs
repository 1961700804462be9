//! The cases of one server and its people, over HTTP: what a model does, what they say to it, and what is left of it
//! when the process dies in between.

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says, turn};
use crate::support::serve::{Client, Serve};
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

/// `page` writes and `look` reads, both at one tool server. Alice starts runs, bob is an approver.
fn bench_at(folder: Folder, model: Server, tool: ToolServer, more: &str) -> Bench {
    let how = format!("http = \"{}\"", tool.url);
    let tools = declared("page", &how, "write", "") + &declared("look", &how, "read", "");
    folder.configure(model.url(), &(tools + more));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    let bob = serve.client(&folder, "bob", &["--approver"]);
    Bench { folder, serve, model, tool, alice, bob }
}

fn bench(script: Vec<Play>) -> Bench {
    bench_at(Folder::new(), Server::start(script), answering(), "")
}

fn bench_by_task(play: impl Fn(&str, usize) -> Play + Send + Sync + 'static) -> Bench {
    bench_at(Folder::new(), Server::start_by_task(play), answering(), "")
}

fn answering() -> ToolServer {
    ToolServer::start(Comes::Answer(200, b"{\"content\":\"it was done\"}".to_vec()))
}

fn page(id: u32) -> Play {
    calls(&[("page", json!({ "id": id }))])
}

impl Bench {
    /// A process that dies as with its machine, and another one in its place.
    fn dies_and_comes_back(&mut self) {
        self.serve.kill();
        self.serve = Serve::start(&self.folder);
        self.alice = self.serve.stranger().with_token(self.alice.token());
        self.bob = self.serve.stranger().with_token(self.bob.token());
    }

    /// The run, once it reads so.
    fn reads(&self, run: &Value, status: &str) -> Value {
        until(status, || Some(self.alice.run(text(&run["id"]))).filter(|run| run["status"] == status))
    }

    /// What the tool was asked to do, in order.
    fn ran(&self) -> Vec<Value> {
        self.tool.calls().into_iter().map(|(_, body)| body["arguments"].clone()).collect()
    }

    fn question(&self, pending: &Value) -> Value {
        self.bob.get(&format!("/v1/pending/{}", text(&pending["id"]))).expect(200)
    }

    /// The results that the last request to the model carries.
    fn told(&self) -> Vec<String> {
        let asked = self.model.asked();
        let messages = asked.last().unwrap()["messages"].as_array().unwrap().clone();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|message| text(&message["content"]).to_owned()).collect()
    }
}

fn approve() -> Value {
    json!({ "verdict": "approve" })
}

fn deny(reason: &str) -> Value {
    json!({ "verdict": "deny", "reason": reason })
}

#[test]
fn case_c05_a_write_that_was_reached_when_the_server_died_is_settled_by_a_person() {
    let (tool, open) = ToolServer::gated();
    let workers = "\n[workers]\nlease = \"500ms\"\n";
    let script = vec![page(1), says("settled")];
    let mut bench = bench_at(Folder::new(), Server::start(script), tool, workers);
    let run = bench.alice.start("write");
    bench.bob.decide(&run["pending"], approve()).expect(200);
    bench.tool.wait_for_a_call();
    bench.dies_and_comes_back();
    open();
    let stopped = bench.reads(&run, "needs_resolution");
    assert_eq!(stopped["pending"]["kind"], "resolution");
    assert!(bench.alice.kinds(text(&run["id"])).contains(&"call.unknown".to_owned()));
    bench.bob.decide(&run["pending"], approve()).refused(409, "already_decided");
    assert_eq!((bench.ran().len(), bench.model.count()), (1, 1), "nothing is repeated, nothing invented");
    let happened = json!({ "outcome": "happened", "result": "the mail went out" });
    bench.bob.decide(&stopped["pending"], happened).expect(200);
    assert_eq!(bench.reads(&run, "completed")["output"], "settled");
    assert!(bench.told()[0].contains("the mail went out"), "{:?}", bench.told());
    assert_eq!(bench.ran().len(), 1);
}

#[test]
fn case_c05_a_read_that_was_reached_when_the_server_died_runs_again() {
    let (tool, open) = ToolServer::gated();
    let workers = "\n[workers]\nlease = \"500ms\"\n";
    let script = vec![calls(&[("look", json!({ "id": 1 }))]), says("read")];
    let mut bench = bench_at(Folder::new(), Server::start(script), tool, workers);
    let run = bench.alice.post("/v1/runs", &json!({ "input": "read" })).expect(201);
    bench.tool.wait_for_a_call();
    bench.dies_and_comes_back();
    until("the read to run again", || (bench.tool.count() == 2).then_some(()));
    open();
    assert_eq!(bench.reads(&run, "completed")["output"], "read");
    assert_eq!(bench.ran(), [json!({ "id": 1 }), json!({ "id": 1 })]);
}

#[test]
fn case_c06_after_an_approved_write_the_request_is_repeated_and_the_write_is_not() {
    let busy =
        || Play::Answer(429, "Retry-After: 0\r\n", "{\"error\":{\"message\":\"slow down\"}}".to_owned());
    let bench = bench(vec![page(2), busy(), busy(), says("gone")]);
    let run = bench.alice.start("twice");
    bench.bob.decide(&run["pending"], approve()).expect(200);
    assert_eq!(bench.reads(&run, "completed")["output"], "gone");
    let asked: Vec<String> = bench.model.asked().iter().map(Value::to_string).collect();
    assert_eq!(asked.len(), 4);
    assert!(asked[1] == asked[2] && asked[2] == asked[3], "the same request");
    assert_eq!(bench.ran(), [json!({ "id": 2 })]);
}

#[test]
fn case_c06_where_the_limit_stays_the_run_fails_and_a_later_one_sends_the_result() {
    let bench = bench_by_task(|task, turn| match (task.contains("go on"), turn) {
        (true, _) => says("it was deleted"),
        (false, 0) => page(3),
        (false, _) => Play::Answer(429, "Retry-After: 0\r\n", "{}".to_owned()),
    });
    let run = bench.alice.start("for ever");
    bench.bob.decide(&run["pending"], approve()).expect(200);
    let failed = bench.reads(&run, "failed");
    assert_eq!(failed["error"]["code"], "rate_limited", "{failed}");
    assert_eq!(bench.model.count(), 1 + 5, "rule L7");
    let next = json!({ "input": "go on now", "continue_from": run["id"] });
    let next = bench.alice.post("/v1/runs", &next).expect(201);
    assert_eq!(bench.reads(&next, "completed")["output"], "it was deleted");
    assert!(bench.told()[0].contains("it was done"), "{:?}", bench.told());
    assert_eq!(bench.ran(), [json!({ "id": 3 })]);
}

#[test]
fn case_c08_the_same_call_asked_again_is_another_question() {
    let bench = bench(vec![page(1), page(1), says("done")]);
    let run = bench.alice.start("drop twice");
    let first = run["pending"].clone();
    bench.bob.decide(&first, approve()).expect(200);
    let second = until("a second question", || {
        let run = bench.alice.run(text(&run["id"]));
        Some(run["pending"].clone()).filter(|open| open.is_object() && open["id"] != first["id"])
    });
    assert_ne!(second["digest"], first["digest"]);
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "waiting_for_approval");
    assert_eq!(bench.ran().len(), 1, "the first approval covers the first call only");
    let digest_of_the_first = json!({ "verdict": "approve", "digest": first["digest"] });
    bench.bob.decide(&second, digest_of_the_first).refused(412, "stale_digest");
    bench.bob.decide(&second, approve()).expect(200);
    bench.reads(&run, "completed");
    assert_eq!(bench.ran(), [json!({ "id": 1 }), json!({ "id": 1 })]);
    assert_eq!(bench.told().len(), 2, "each result once");
    let keys: Vec<String> = bench.tool.calls().into_iter().map(|(key, _)| key).collect();
    assert_ne!(keys[0], keys[1], "rule R4: two calls, two keys");
}

#[test]
fn case_c11_the_other_process_takes_over_from_a_killed_one_and_asks_for_every_run() {
    let (tool, open) = ToolServer::gated();
    let model = Server::start_by_task(|task, turn| match (task.contains("first"), turn) {
        (true, 0) => calls(&[("look", json!({ "id": 1 }))]),
        (false, 0) => calls(&[("look", json!({ "id": 2 }))]),
        _ => says("done"),
    });
    let more = "\n[tool_settings.look]\napproval = \"ask\"\n\n[workers]\nlease = \"500ms\"\n";
    let mut bench = bench_at(Folder::on_postgres(), model, tool, more);
    let run = bench.alice.start("first");
    assert_eq!(run["pending"]["calls"][0]["because"], "operator");
    bench.bob.decide(&run["pending"], approve()).expect(200);
    bench.tool.wait_for_a_call();
    let other = Serve::start(&bench.folder);
    let (alice, bob) =
        (other.stranger().with_token(bench.alice.token()), other.stranger().with_token(bench.bob.token()));
    let second = alice.start("second");
    assert_eq!(second["status"], "waiting_for_approval", "no approval is the process's");
    bob.decide(&run["pending"], approve()).refused(409, "already_decided");
    assert_eq!(bench.tool.count(), 1, "a run that somebody has is left alone");
    bench.serve.kill();
    until("the other to take over", || (bench.tool.count() == 2).then_some(()));
    open();
    until("the end", || (alice.run(text(&run["id"]))["status"] == "completed").then_some(()));
    assert_eq!(bench.ran(), [json!({ "id": 1 }), json!({ "id": 1 })]);
    bob.decide(&second["pending"], deny("no")).expect(200);
    until("the end", || (alice.run(text(&second["id"]))["status"] == "completed").then_some(()));
    assert_eq!(bench.tool.count(), 2);
}

/// The text of the arguments in this part of an answer.
fn written(part: &Value) -> String {
    part["arguments"].to_string()
}

#[test]
fn case_c12_a_tool_is_sent_what_the_model_wrote_in_its_order() {
    for folder in Folder::of_each_kind() {
        let wrote = r#"{"z":{"to":"a@x.test","by":[{"y":1,"x":2}]},"id":7,"a":"hi"}"#;
        let model = Server::start(vec![turn(&[("c0", "page", wrote)], "tool_calls"), says("done")]);
        let mut bench = bench_at(folder, model, answering(), "");
        let run = bench.alice.start("x");
        bench.dies_and_comes_back();
        let question = bench.question(&run["pending"]);
        assert_eq!(question["digest"], run["pending"]["digest"]);
        assert_eq!(written(&question["calls"][0]), wrote, "what is shown");
        let order = bench.folder.run(&["pending", "show", text(&question["id"])]).expect(0).out;
        let at = |name: &str| order.find(name).unwrap_or_else(|| panic!("{name}: {order}"));
        assert!(at(" z = ") < at(" id = ") && at(" id = ") < at(" a = "), "{order}");
        bench.bob.decide(&question, approve()).expect(200);
        bench.reads(&run, "completed");
        assert_eq!(written(&bench.tool.calls()[0].1), wrote, "what runs");
    }
}

#[test]
fn case_c12_arguments_that_a_person_changed_keep_the_persons_order() {
    let bench = bench(vec![calls(&[("page", json!({ "id": 1, "a": 2 }))]), says("done")]);
    let run = bench.alice.start("x");
    let call = text(&run["pending"]["calls"][0]["id"]);
    let edit = json!({ "digest": run["pending"]["digest"], "calls": { call: { "z": 1, "id": 3, "a": 2 } } });
    let path = format!("/v1/pending/{}/edit", text(&run["pending"]["id"]));
    let edited = bench.bob.post(&path, &edit).expect(201);
    bench.bob.decide(&edited, approve()).expect(200);
    bench.reads(&run, "completed");
    assert_eq!(written(&bench.tool.calls()[0].1), r#"{"z":1,"id":3,"a":2}"#);
}

#[test]
fn case_c13_a_late_click_on_an_old_question_reaches_no_other_call_of_its_id() {
    let with_id = |id: u32| turn(&[("call_1", "page", &format!("{{\"id\":{id}}}"))], "tool_calls");
    let bench = bench_by_task(move |task, turn| match (task.contains("first"), turn) {
        (true, 0) => with_id(1),
        (true, 1) => with_id(99),
        (false, 0) => with_id(5),
        _ => says("ok"),
    });
    let one = bench.alice.start("first run");
    let old = one["pending"].clone();
    bench.bob.decide(&old, deny("no")).expect(200);
    let next = until("the next question", || {
        Some(bench.alice.run(text(&one["id"]))["pending"].clone()).filter(|open| open["id"] != old["id"])
    });
    let two = bench.alice.start("second run");
    let late = bench.bob.decide(&old, approve()).refused(409, "already_decided");
    assert_eq!(late["decision"]["verdict"], "deny");
    assert!(bench.ran().is_empty());
    assert_eq!(bench.question(&old)["status"], "denied");
    assert_eq!(bench.question(&next)["status"], "open");
    bench.bob.decide(&two["pending"], approve()).expect(200);
    bench.reads(&two, "completed");
    assert_eq!(bench.ran(), [json!({ "id": 5 })]);
}

#[test]
fn case_c20_an_input_comes_back_as_an_input_after_a_restart() {
    let input = "\n[[tools]]\nname = \"pick\"\ngroup = \"content\"\neffect = \"read\"\ncommand = [\"cat\"]\n\
                 input = { type = \"object\", properties = { date = { type = \"string\" } }, required = [\"date\"] }\n";
    let model = Server::start(vec![calls(&[("pick", json!({}))]), says("done")]);
    let mut bench = bench_at(Folder::new(), model, answering(), input);
    let run = bench.alice.start("ask me");
    bench.dies_and_comes_back();
    let stopped = bench.alice.run(text(&run["id"]));
    assert_eq!(stopped["status"], "waiting_for_input");
    let question = &stopped["pending"];
    assert_eq!((&question["kind"], &question["digest"]), (&json!("input"), &run["pending"]["digest"]));
    assert_eq!(question["input"]["schema"]["required"], json!(["date"]));
    bench.bob.decide(question, approve()).refused(422, "wrong_kind");
    let wrong =
        bench.alice.decide(question, json!({ "answer": { "date": 5 } })).refused(422, "invalid_input");
    assert_eq!(wrong["errors"][0]["pointer"], "/date", "{wrong}");
    assert_eq!(bench.question(question)["status"], "open");
    bench.alice.decide(question, json!({ "answer": { "date": "2027-01-01" } })).expect(200);
    bench.reads(&run, "completed");
    assert!(bench.told()[0].contains("2027-01-01"), "{:?}", bench.told());
}

#[test]
fn case_c22_a_cancelled_run_hears_no_approval_and_a_waiting_one_is_not_gone_on_with() {
    let bench = bench_by_task(|task, turn| match (task.contains("never mind"), turn) {
        (false, 0) => page(6),
        _ => says("late"),
    });
    let run = bench.alice.start("to cancel");
    let cancel = format!("/v1/runs/{}/cancel", text(&run["id"]));
    assert_eq!(bench.alice.post(&cancel, &json!({})).expect(200)["status"], "cancelled");
    assert_eq!(bench.question(&run["pending"])["status"], "withdrawn");
    bench.bob.decide(&run["pending"], approve()).refused(409, "withdrawn");
    bench.alice.post(&cancel, &json!({})).refused(409, "not_cancellable");

    let run = bench.alice.start("to go on with");
    let next = json!({ "input": "never mind, what time is it?", "continue_from": run["id"] });
    bench.alice.post("/v1/runs", &next).refused(409, "run_not_ended");
    assert_eq!(bench.question(&run["pending"])["status"], "open", "the question is still there");
    assert_eq!(bench.alice.run(text(&run["id"]))["status"], "waiting_for_approval");
    assert!(bench.ran().is_empty());
}

#[test]
fn case_c31_a_turn_that_was_cut_off_runs_nothing_and_asks_nothing() {
    let cut = "{\"id\":7,\"text\":\"Dear";
    let closed = "{\"id\":7,\"text\":\"Dear\"}";
    let bench = bench_by_task(move |task, replies| {
        let look = ("c0", "look", "{\"id\":1}");
        match replies {
            _ if task.contains("for ever") => turn(&[("c0", "page", cut)], "length"),
            0 if task.contains("second") => turn(&[look, ("c1", "page", cut)], "length"),
            0 if task.contains("closed") => turn(&[("c0", "page", closed)], "length"),
            0 => turn(&[("c0", "page", cut)], "length"),
            _ => says("ok"),
        }
    });
    for (task, results) in [("the only one", 1), ("the second", 2), ("closed", 1)] {
        let run = bench.alice.start(task);
        assert_eq!((&run["status"], &run["pending"]), (&json!("completed"), &Value::Null), "{task}");
        let told = bench.told();
        assert_eq!(told.len(), results, "{task}: {told:?}");
        assert!(told.iter().all(|told| told.contains("cut off")), "{task}: {told:?}");
    }
    let before = bench.model.count();
    let run = bench.alice.start("for ever");
    assert_eq!(run["stop_reason"], "cut_off", "{run}");
    assert_eq!(bench.model.count() - before, 3, "rule L8");
    assert!(bench.ran().is_empty());
}

#[test]
fn case_c33_two_calls_of_one_id_are_two_calls() {
    let twice = turn(&[("x", "page", "{\"id\":1}"), ("x", "page", "{\"id\":2}")], "tool_calls");
    let bench = bench(vec![twice, says("ok")]);
    let run = bench.alice.start("drop one and two");
    let listed = run["pending"]["calls"].as_array().unwrap();
    let arguments: Vec<&Value> = listed.iter().map(|call| &call["arguments"]).collect();
    assert_eq!(arguments, [&json!({ "id": 1 }), &json!({ "id": 2 })]);
    assert_ne!(listed[0]["id"], listed[1]["id"]);
    bench.bob.decide(&run["pending"], approve()).expect(200);
    bench.reads(&run, "completed");
    assert_eq!(bench.ran(), [json!({ "id": 1 }), json!({ "id": 2 })]);
    let messages = bench.model.asked()[1]["messages"].as_array().unwrap().clone();
    let sent: Vec<&Value> = messages[messages.len() - 3]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["id"])
        .collect();
    let answered: Vec<&Value> =
        messages[messages.len() - 2..].iter().map(|result| &result["tool_call_id"]).collect();
    assert_eq!(sent, answered, "rule L3: each answered once, in order");
    assert_ne!(sent[0], sent[1], "rule L9: under an id of its own");
}

#[test]
fn case_c38_a_model_that_repeats_a_denied_call_wears_nobody_down() {
    let bench = bench_by_task(|task, turn| match (task.contains("different"), turn) {
        (false, _) | (true, 0) => page(7),
        (true, 1) => page(8),
        (true, _) => says("ok"),
    });
    let run = bench.alice.start("stubborn");
    bench.bob.decide(&run["pending"], deny("no")).expect(200);
    let ended = until("the end", || {
        Some(bench.alice.run(text(&run["id"]))).filter(|run| run["finished_at"].is_string())
    });
    assert_eq!(ended["stop_reason"], "repeated_denials");
    assert!(!text(&ended["error"]["detail"]).is_empty());
    assert!(bench.model.count() < 10, "well before the limit of 20");
    assert!(bench.told().last().unwrap().contains("already"), "{:?}", bench.told());
    let opened = bench.alice.kinds(text(&run["id"])).into_iter().filter(|kind| kind == "pending.opened");
    assert_eq!(opened.count(), 1);

    let run = bench.alice.start("different");
    bench.bob.decide(&run["pending"], deny("no")).expect(200);
    let other = until("another question", || {
        let open = bench.alice.run(text(&run["id"]))["pending"].clone();
        Some(open).filter(|open| open.is_object() && open["id"] != run["pending"]["id"])
    });
    assert_eq!(other["calls"][0]["arguments"], json!({ "id": 8 }));
    bench.bob.decide(&other, approve()).expect(200);
    bench.reads(&run, "completed");
    assert_eq!(bench.ran(), [json!({ "id": 8 })]);
}

#[test]
fn case_c41_a_name_that_was_not_offered_runs_nothing_and_lists_nothing() {
    let clock =
        "\n[[tools]]\nname = \"clock_now\"\ngroup = \"time\"\neffect = \"read\"\ncommand = [\"date\"]\n";
    let look = calls(&[("look", json!({ "id": 1 }))]);
    let model = Server::start(vec![look, calls(&[("weather", json!({}))]), says("ok")]);
    let bench = bench_at(Folder::new(), model, answering(), clock);
    let root = bench.serve.client(&bench.folder, "root", &["--admin"]);
    root.patch("/v1/groups/content", &json!({ "enabled": false })).expect(200);
    root.patch("/v1/tools/look", &json!({ "enabled": true })).expect(200);
    let wanted = json!({ "tools": ["look", "clock_now", "page"] });
    assert_eq!(root.post("/v1/policy/offerable", &wanted).expect(200)["tools"], json!(["clock_now"]));
    let body = json!({ "input": "weather?", "tools": ["look", "clock_now"] });
    let run = bench.alice.post("/v1/runs", &body).expect(201);
    assert_eq!(bench.reads(&run, "completed")["output"], "ok");
    let offered = bench.model.asked()[0]["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = offered.iter().map(|tool| text(&tool["function"]["name"])).collect();
    assert_eq!(names, ["clock_now"]);
    for told in bench.told() {
        assert!(told.contains("not available"), "{told}");
        assert!(!told.contains("page") && !told.contains("call it directly"), "{told}");
    }
    assert_eq!(bench.told().len(), 2);
    assert!(bench.ran().is_empty());
}

#[test]
fn case_c56_what_a_model_says_is_exact_in_json_and_text_everywhere_else() {
    let wall = " ".repeat(200_000) + " --all";
    let hostile = json!({
        "to": "<img src=x onerror=alert(1)>",
        "text": "</script><script>alert(1)</script>",
        "path": "a\u{202e}b\u{200b}c\nd",
        "url": "https://p\u{430}ypal.example",
        "flags": wall,
    });
    let bench = bench(vec![calls(&[("page", hostile.clone())]), says("done")]);
    let run = bench.alice.start("hostile");
    let path = format!("/v1/pending/{}", text(&run["pending"]["id"]));
    let answer = bench.bob.get(&path);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    assert_eq!(answer.expect(200)["calls"][0]["arguments"], hostile);
    let listed = bench.bob.get("/v1/pending").expect(200)["items"][0]["calls"][0].clone();
    assert_eq!(listed["arguments"], Value::Null, "{listed}");
    assert!(listed["arguments_bytes"].as_u64().unwrap() > 200_000);
    let shown = bench.folder.run(&["pending", "show", text(&run["pending"]["id"])]).expect(0).out;
    assert!(shown.contains("page") && shown.contains("--all"), "{shown}");
    let raw = |sign: char| matches!(sign, '\u{202e}' | '\u{200b}') || (sign.is_control() && sign != '\n');
    assert!(!shown.contains(raw), "{shown}");
    bench.bob.decide(&run["pending"], deny("<b>no</b>")).expect(200);
    bench.reads(&run, "completed");
    assert!(bench.told()[0].contains("<b>no</b>"), "{:?}", bench.told());
    assert!(bench.ran().is_empty());
}
