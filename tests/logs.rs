//! What a server writes down of its work, and what never gets there.

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::serve::Serve;
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text, until};

/// Words of a model, a tool, a person and the operator, which may stand in no line.
const NEVER: [&str; 7] = [
    "task-words",
    "argument-words",
    "tool-words",
    "model-words",
    "reason-words",
    "sk_made_up_name",
    "key-words",
];

/// A server at work on one run that asks, is denied once and approved once, and calls what there is not.
fn at_work(log: &str) -> (Folder, Serve, Value) {
    let tool = ToolServer::start(Comes::Answer(500, b"tool-words".to_vec()));
    let model = Server::start(vec![
        calls(&[("sk_made_up_name", json!({ "x": "argument-words" }))]),
        calls(&[
            ("page", json!({ "id": 1, "note": "argument-words" })),
            ("sk_made_up_name", json!({ "x": "argument-words" })),
        ]),
        calls(&[("page", json!({ "id": 2, "note": "argument-words" }))]),
        says("model-words"),
    ]);
    let folder = Folder::new();
    let how = format!("http = \"{}\"", tool.url);
    folder.configure(model.url(), &(declared("page", &how, "write", "") + log));
    let key = "api_key_env = \"STUB_KEY\"\nzone = \"local\"";
    folder.write("countersign.toml", &folder.text("countersign.toml").replacen("zone = \"local\"", key, 1));
    let serve = Serve::start_with(&folder, &[("STUB_KEY", "key-words")]);
    let alice = serve.client(&folder, "alice", &[]);
    let run = alice.start("task-words");
    let id = text(&run["id"]).to_owned();
    alice.decide(&run["pending"], json!({ "verdict": "deny", "reason": "reason-words" })).expect(200);
    let asked_again = until("the second question", || {
        Some(alice.run(&id)).filter(|run| {
            run["status"] == "waiting_for_approval" && run["pending"] != Value::Null && run["iterations"] == 3
        })
    });
    alice.approve(&asked_again["pending"]);
    assert_eq!(alice.run(&id)["status"], "completed");
    until("the last line", || serve.said().contains("run.completed").then_some(()));
    assert!(!serve.said().contains(alice.token()), "{}", serve.said());
    (folder, serve, asked_again)
}

#[test]
fn rule_s5_a_line_of_json_says_what_happened_and_nothing_that_was_said() {
    let (_folder, serve, run) = at_work("\n[log]\nformat = \"json\"\nlevel = \"debug\"\n");
    let said = serve.said();
    for words in NEVER {
        assert!(!said.contains(words), "{words}: {said}");
    }
    let lines: Vec<Value> = said
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| -> Vec<&Value> { lines.iter().filter(|line| line["message"] == kind).collect() };
    let opened = of("pending.opened");
    assert_eq!(opened.len(), 2);
    let expected = [
        ("level", json!("INFO")),
        ("run", run["id"].clone()),
        ("pending", run["pending"]["id"].clone()),
        ("digest", run["pending"]["digest"].clone()),
        ("asks", json!("approval")),
    ];
    for (field, value) in expected {
        assert_eq!(opened[1][field], value, "{}", opened[1]);
    }
    assert!(text(&opened[1]["timestamp"]).ends_with('Z'));
    let decided = of("pending.decided");
    assert_eq!((&decided[0]["by"], &decided[0]["status"]), (&json!("alice"), &json!("deny")));
    let finished: Vec<_> = of("call.finished")
        .iter()
        .map(|line| (line["tool"].clone(), line["status"].clone(), line["code"].clone()))
        .collect();
    assert_eq!(
        finished,
        [
            (Value::Null, json!("refused"), json!("unknown_tool")),
            (json!("page"), json!("denied"), Value::Null),
            (Value::Null, json!("not_run"), Value::Null),
            (json!("page"), json!("error"), Value::Null),
        ]
    );
    let asked = of("http.answered");
    let decision = asked.iter().find(|line| line["route"] == "/v1/pending/{id}/decision").unwrap();
    assert_eq!((&decision["method"], &decision["status"]), (&json!("POST"), &json!(200)));
    for line in &lines {
        let fields: Vec<&String> = line.as_object().unwrap().keys().collect();
        let known = [
            "timestamp",
            "level",
            "message",
            "run",
            "call",
            "tool",
            "effect",
            "attempt",
            "pending",
            "asks",
            "digest",
            "by",
            "status",
            "code",
            "duration_ms",
            "provider",
            "model",
            "calls",
            "method",
            "route",
        ];
        assert!(fields.iter().all(|field| known.contains(&field.as_str())), "{line}");
    }
}

#[test]
fn rule_s5_a_line_of_text_holds_no_more_and_a_level_leaves_the_rest_out() {
    let (_folder, serve, run) = at_work("");
    let said = serve.said();
    for words in NEVER {
        assert!(!said.contains(words), "{words}: {said}");
    }
    let digest = format!("digest=\"{}\"", text(&run["pending"]["digest"]));
    assert!(
        said.lines().any(|line| line.contains(" INFO pending.opened ") && line.contains(&digest)),
        "{said}"
    );
    assert!(!said.contains("/readyz"), "what is asked all the time is for debugging: {said}");
    drop(serve);
    let (folder, quiet) = (Folder::new(), Server::start(vec![says("done")]));
    folder.configure(quiet.url(), "\n[log]\nlevel = \"off\"\n");
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    assert_eq!(alice.start("x")["status"], "completed");
    assert_eq!(serve.said().lines().filter(|line| line.contains(" INFO ")).count(), 0, "{}", serve.said());
}
