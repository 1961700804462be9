//! What models do to the tools of an operator: odd arguments, cut answers, no end; and what it all adds up to.

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, text};

/// An answer with these calls, names and raw arguments, that ended in this way and cost so much.
fn raw(calls: &[(&str, Value)], finish: &str, usage: Option<[u64; 3]>) -> Play {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| {
            let mut function = json!({ "name": name });
            if !arguments.is_null() {
                function["arguments"] = arguments.clone();
            }
            json!({ "id": format!("c{index}"), "type": "function", "function": function })
        })
        .collect();
    let message = if calls.is_empty() {
        json!({ "role": "assistant", "content": "done" })
    } else {
        json!({ "role": "assistant", "content": null, "tool_calls": calls })
    };
    let mut body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": finish }] });
    if let Some([input, output, cached]) = usage {
        body["usage"] = json!({
            "prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": { "cached_tokens": cached },
        });
    }
    Play::Answer(200, "Content-Type: application/json\r\n", body.to_string())
}

fn bench(script: Vec<Play>, agent: &str, effect: &str) -> (Server, Folder, ToolServer) {
    let server = Server::start(script);
    let folder = Folder::new();
    folder.configure(server.url(), agent);
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"x\"}".to_vec()));
    folder.configure_more(&declared("page", &format!("http = \"{}\"", tool.url), effect, ""));
    (server, folder, tool)
}

#[test]
fn case_c20_an_input_stays_an_input_in_another_process() {
    let server = Server::start(vec![calls(&[("page", json!({ "id": 1 }))]), says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"x\"}".to_vec()));
    let input =
        "input = { type = \"object\", properties = { day = { type = \"string\" } }, required = [\"day\"] }";
    folder.configure_more(&declared("page", &format!("http = \"{}\"", tool.url), "read", input));
    folder.run(&["run", "x"]).expect(3);
    let before = folder.open();
    assert_eq!(before["kind"], "input");
    folder.decide("approve", &[]).expect(5);
    assert_eq!(folder.open(), before, "an approval is no answer, and changes nothing");
    folder.decide("answer", &["--data", "{\"day\":\"Monday\"}"]).expect(0);
    assert_eq!(tool.calls()[0].1["arguments"], json!({ "id": 1, "day": "Monday" }));
}

#[test]
fn case_c30_nothing_is_an_empty_object_and_what_is_no_object_is_told() {
    let nothing = [json!(""), json!("  "), json!("null"), Value::Null, json!("{}")];
    let forms: Vec<(&str, Value)> = nothing.into_iter().map(|form| ("page", form)).collect();
    let (_server, folder, tool) = bench(vec![raw(&forms, "tool_calls", None), says("done")], "", "read");
    folder.run(&["run", "x"]).expect(0);
    let arguments: Vec<Value> = tool.calls().into_iter().map(|(_, body)| body["arguments"].clone()).collect();
    assert_eq!(arguments, vec![json!({}); 5]);

    let forms = [("page", json!("[1]")), ("page", json!("7")), ("page", json!("\"{\\\"id\\\":7}\""))];
    let (server, folder, tool) = bench(vec![raw(&forms, "tool_calls", None), says("done")], "", "read");
    folder.run(&["run", "x"]).expect(0);
    assert!(tool.calls().is_empty());
    let messages = server.asked()[1]["messages"].clone();
    for call in messages[1]["tool_calls"].as_array().unwrap() {
        let sent: Value = serde_json::from_str(text(&call["function"]["arguments"])).unwrap();
        assert!(sent.is_object(), "rule L3: {call}");
    }
    for told in &messages.as_array().unwrap()[2..] {
        assert!(text(&told["content"]).contains("Not run"), "{told}");
    }
}

#[test]
fn case_c31_a_turn_that_was_cut_off_runs_nothing_asks_nothing_and_ends() {
    let cut = raw(&[("page", json!("{\"id\":1}")), ("page", json!("{\"id\":"))], "length", None);
    let (server, folder, tool) = bench(vec![cut], "", "write");
    folder.run(&["run", "x"]).expect(4);
    assert!(tool.calls().is_empty());
    let run = folder.newest_run();
    assert_eq!((&run["stop_reason"], &run["pending"]), (&json!("cut_off"), &Value::Null));
    assert_eq!(server.asked().len(), 3);
    let messages = server.asked()[1]["messages"].clone();
    for told in &messages.as_array().unwrap()[2..] {
        assert!(text(&told["content"]).contains("cut off"), "{told}");
    }
}

#[test]
fn case_c39_the_limit_is_reached_on_a_turn_with_calls() {
    let turn = calls(&[("page", json!({ "id": 1 }))]);
    let (server, folder, tool) = bench(vec![turn; 4], "max_iterations = 3\n", "read");
    folder.run(&["run", "x"]).expect(4);
    let run = folder.newest_run();
    assert_eq!(
        (&run["status"], &run["truncated"], &run["stop_reason"]),
        (&json!("completed"), &json!(true), &json!("max_iterations"))
    );
    assert_eq!((&run["iterations"], tool.calls().len()), (&json!(3), 2));
    let asked = server.asked();
    assert_eq!(asked.len(), 4, "three iterations, and one last completion");
    let told = asked[3]["messages"].as_array().unwrap().last().unwrap().clone();
    assert!(text(&told["content"]).contains("limit"), "{told}");
}

#[test]
fn case_c59_a_run_with_a_pause_adds_up() {
    let busy = Play::Answer(503, "Retry-After: 0\r\n", "{}".to_owned());
    let (_server, folder, _) = bench(
        vec![
            raw(&[("page", json!("{\"id\":1}"))], "tool_calls", Some([100, 10, 40])),
            raw(&[("page", json!("{\"id\":2}"))], "tool_calls", Some([180, 20, 100])),
            busy,
            raw(&[], "stop", Some([200, 5, 0])),
        ],
        "",
        "write",
    );
    let usage = |done: Done| -> Value {
        let run: Value = serde_json::from_str(&done.out).unwrap();
        run["usage"].clone()
    };
    let sum = |input: u64, output: u64, cached: u64, unknown: u64| json!({ "input_tokens": input, "output_tokens": output, "cached_input_tokens": cached, "unknown_calls": unknown });
    assert_eq!(usage(folder.run(&["run", "--json", "x"]).expect(3)), sum(100, 10, 40, 0));
    assert_eq!(usage(folder.decide("approve", &["--json"]).expect(3)), sum(280, 30, 140, 0));
    assert_eq!(usage(folder.decide("approve", &["--json"]).expect(0)), sum(480, 35, 140, 1));
}
