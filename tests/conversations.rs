//! Conversations: gone on with, made shorter, cut short.

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::{Folder, kinds, text};

fn roles(body: &Value) -> Vec<&str> {
    body["messages"].as_array().unwrap().iter().map(|message| text(&message["role"])).collect()
}

#[test]
fn rule_r10_a_run_is_continued_and_erased_with_what_it_continues() {
    let read = || calls(&[("read_file", json!({ "path": "a.txt" }))]);
    let model = Server::start(vec![read(), says("It is tidy."), read(), says("It still is.")]);
    let folder = Folder::new();
    folder.write("a.txt", "x");
    folder.configure(model.url(), "");
    folder.configure_more(
        "[agents.other]\nmodels = [\"stub/scripted\"]\nsystem_prompt = \"You are another.\"\n",
    );
    let first = folder.json(&["run", "--agent", "other", "Tidy up.", "--json"]);
    let first_id = text(&first["id"]);
    assert_eq!((&first["continues"], text(&first["status"])), (&Value::Null, "completed"));
    let second = folder.json(&["run", "--continue", first_id, "Look again.", "--json"]);
    let id = text(&second["id"]);
    assert_eq!((text(&second["continues"]), text(&second["output"])), (first_id, "It still is."));
    assert_eq!(
        (text(&second["agent"]), &second["iterations"]),
        ("other", &json!(2)),
        "its agent, and counters anew"
    );

    let asked = model.asked();
    let last = asked.last().unwrap();
    let told = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"];
    assert_eq!(roles(last), told);
    // The script gives every call the same id: over the whole conversation each has one of its own (L9).
    let ids: Vec<&str> = [2, 6].map(|at| text(&last["messages"][at]["tool_calls"][0]["id"])).to_vec();
    assert_eq!(ids[0], "c0");
    assert_ne!(ids[0], ids[1]);
    let created = folder.events(id).remove(0);
    assert_eq!(text(&created["data"]["continues"]), first_id);
    assert!(folder.run(&["runs", "show", id]).expect(0).out.contains(first_id));

    let erased = folder.json(&["runs", "erase", first_id, "--json"]);
    assert_eq!(erased["continuations"], json!([id]));
    assert!(folder.run(&["db", "doctor"]).expect(0).out.contains("Nothing was found"));
    let refused = folder.run(&["run", "--continue", id, "Once more."]).expect(2);
    assert!(refused.one_sentence().contains("erased"), "{refused:?}");
}

#[test]
fn rule_r10_only_an_ended_run_of_ones_own_is_continued() {
    let write = calls(&[("write_file", json!({ "path": "a.txt", "content": "x" }))]);
    let model = Server::start(vec![write, says("done")]);
    let folder = Folder::new();
    folder.configure(model.url(), "");
    let waiting = folder.json(&["run", "Write.", "--json"]);
    let id = text(&waiting["id"]);
    let refused = folder.run(&["run", "--continue", id, "Go on."]).expect(2);
    assert!(refused.one_sentence().contains("has not ended"), "{refused:?}");
    assert!(refused.err.contains(&format!("runs cancel {id}")), "{refused:?}");
    folder.run(&["runs", "cancel", id]).expect(0);
    folder.run(&["user", "set", "bea", "--admin"]).expect(0);
    let foreign = folder.run(&["run", "--as", "bea", "--continue", id, "Go on."]).expect(2);
    assert!(foreign.one_sentence().contains(&format!("there is no run {id}")), "{foreign:?}");
    assert_eq!(model.asked().len(), 1, "nothing was started");
    let done = folder.json(&["run", "--continue", id, "Go on.", "--json"]);
    assert_eq!(text(&done["output"]), "done");
}

#[test]
fn rule_l6_old_turns_are_left_out_and_what_never_fits_is_not_asked() {
    let read = || calls(&[("read_file", json!({ "path": "a.txt" }))]);
    let script: Vec<Play> = (0..6).map(|_| read()).chain([says("done")]).collect();
    let model = Server::start(script);
    let folder = Folder::new();
    folder.write("a.txt", &"words ".repeat(500));
    folder.configure(model.url(), "context_window = 6000\ntool_groups = [\"files\"]\n");
    let run = folder.json(&["run", "Read it.", "--json"]);
    assert_eq!(text(&run["output"]), "done");
    let sizes: Vec<usize> = model.asked().iter().map(|body| roles(body).len()).collect();
    assert!(sizes.windows(2).any(|two| two[1] <= two[0]), "it stops growing: {sizes:?}");
    assert!(model.asked().iter().all(|body| text(&body["messages"][0]["content"]) == "Read it."));
    let events = folder.events(text(&run["id"]));
    let fitted: Vec<&Value> = events.iter().filter(|event| event["kind"] == "context.fitted").collect();
    assert!(!fitted.is_empty() && fitted[0]["data"]["window_tokens"] == 6000, "{fitted:?}");

    let exhausted = folder.run(&["run", &"word ".repeat(6000), "--json"]).expect(4);
    let run: Value = serde_json::from_str(&exhausted.out).unwrap();
    assert_eq!((&run["status"], &run["truncated"]), (&json!("completed"), &json!(true)));
    assert_eq!(
        (text(&run["stop_reason"]), text(&run["error"]["code"])),
        ("context_exhausted", "context_exhausted")
    );
    assert_eq!(model.asked().len(), 7, "and no request was made");
}

#[test]
fn rule_l5_a_model_that_hangs_uses_up_the_working_time() {
    let model = Server::start(vec![Play::Hang]);
    let folder = Folder::new();
    folder.configure(model.url(), "max_working_time = \"500ms\"\n");
    let done = folder.run(&["run", "Wait.", "--json"]).expect(4);
    let run: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((text(&run["status"]), text(&run["stop_reason"])), ("completed", "budget_exhausted"));
    assert!(text(&run["error"]["detail"]).contains("working time"), "{run}");
    let events = folder.events(text(&run["id"]));
    let told = ["run.created", "work.began", "model.failed", "limit.reached", "run.completed"];
    assert_eq!(kinds(&events), told);
}
