//! Somebody learns that a run waits: messages to a real receiver, from the real program.

use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::model::{Play, Server, calls, says};
use crate::support::receiver::{HANGS, Message, Receiver, SECRET};
use crate::support::serve::{Process, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text, until};

const ORIGIN: &str = "https://agents.example";

fn write_turn() -> Play {
    calls(&[("page", json!({ "id": 1, "secret": "ARGUMENT" }))])
}

/// A folder whose one tool waits for a person, and which tells these.
fn bench(folder: Folder, told: &[(&str, &str)]) -> (Folder, Server, ToolServer) {
    let model = Server::start(vec![write_turn(), says("done")]);
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let how = format!("http = \"{}\"\ntimeout = \"20s\"", tool.url);
    folder.configure(model.url(), &declared("page", &how, "write", ""));
    tell(&folder, told);
    (folder, model, tool)
}

fn tell(folder: &Folder, told: &[(&str, &str)]) {
    let mut tables = String::new();
    for (name, url) in told {
        tables.push_str(&format!(
            "\n[webhooks.{name}]\nurl = \"{url}\"\nsecret_env = \"SECRET\"\nprivate = true\ncleartext = true\n"
        ));
    }
    let before = folder.text("countersign.toml");
    folder.write("countersign.toml", &format!("public_url = \"{ORIGIN}\"\n{before}{tables}"));
}

fn with_secret(mut command: Command) -> Command {
    command.env("SECRET", SECRET);
    command
}

fn serve(folder: &Folder) -> Serve {
    Serve::start_by(with_secret(folder.command(&["serve", "--listen", "127.0.0.1:0"])))
}

fn state(folder: &Folder, name: &str) -> Value {
    let list = folder.json(&["webhooks", "list", "--json"]);
    let items = list["items"].as_array().unwrap();
    items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{list}")).clone()
}

/// Owed and given up, once they are so many.
fn comes_to(folder: &Folder, name: &str, owed: u64, given_up: u64) {
    until(&format!("{name} to be owed {owed}, and {given_up} given up"), || {
        let state = state(folder, name);
        (state["owed"] == owed && state["given_up"] == given_up).then_some(())
    });
}

fn is_about(message: &Message, run: &str, path: &str) {
    let event = message.json();
    assert!(message.is_signed(), "{message:?}");
    assert_eq!((&event["id"], &event["specversion"]), (&json!(message.id), &json!("1.0")));
    assert_eq!((&event["source"], &event["subject"]), (&json!(ORIGIN), &json!(run)));
    assert_eq!(event["data"]["url"], json!(format!("{ORIGIN}{path}")));
    assert_eq!((&event["data"]["run"], &event["data"]["agent"]), (&json!(run), &json!("default")));
    for word in ["ARGUMENT", "arguments", "done"] {
        assert!(!message.body.contains(word), "{word} in {message:?}");
    }
}

#[test]
fn rule_r5_somebody_learns_that_a_run_waits_what_was_decided_and_how_it_ended() {
    let receiver = Receiver::start(&[204]);
    let (folder, _model, _tool) = bench(Folder::new(), &[("desk", &receiver.url)]);
    let serve = serve(&folder);
    let alice = serve.client(&folder, "alice", &["--approver"]);
    let run = alice.start("x");
    let (run_id, pending) = (text(&run["id"]), &run["pending"]);
    let page = format!("/pending/{}", text(&pending["id"]));
    let opened = receiver.told("pending.opened");
    is_about(&opened, run_id, &page);
    let data = &opened.json()["data"];
    assert_eq!((&data["kind"], &data["tools"]), (&json!("approval"), &json!(["page"])));
    assert_eq!(
        alice.get(&format!("/v1{page}")).expect(200)["id"],
        pending["id"],
        "the link leads to the question"
    );
    alice.approve(pending);
    let decided = receiver.told("pending.decided");
    is_about(&decided, run_id, &page);
    assert_eq!(decided.json()["data"]["verdict"], "approve");
    let completed = receiver.told("run.completed");
    is_about(&completed, run_id, &format!("/runs/{run_id}"));
    comes_to_nothing(&folder);
    assert_eq!(receiver.messages().len(), 3, "each once");
}

/// Nobody is owed anything.
fn comes_to_nothing(folder: &Folder) {
    comes_to(folder, "desk", 0, 0);
}

#[test]
fn a_message_that_was_refused_comes_again_under_the_same_id_with_the_same_body() {
    let receiver = Receiver::start(&[500, 302, 200]);
    let (folder, _model, _tool) = bench(Folder::new(), &[("desk", &receiver.url)]);
    let serve = serve(&folder);
    folder.run(&["run", "x"]).expect(3);
    comes_to_nothing(&folder);
    let messages = receiver.messages();
    assert_eq!(messages.len(), 3, "{messages:?}");
    for message in &messages {
        assert!(message.is_signed(), "{message:?}");
        assert_eq!((&message.id, &message.body), (&messages[0].id, &messages[0].body));
    }
    let said = serve.said();
    for words in ["the webhook desk: it answered with status 500", "the webhook desk takes messages again"] {
        assert_eq!(said.matches(words).count(), 1, "{said}");
    }
    assert!(!said.contains("/hook"), "{said}");
}

#[test]
fn case_c18_what_was_not_told_before_the_process_was_killed_is_told_by_the_next_one() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let (folder, _model, _tool) = bench(Folder::new(), &[("desk", &format!("http://{address}/hook"))]);
    let mut first = serve(&folder);
    let run = first.client(&folder, "alice", &[]).start("x");
    until("the receiver to be missed", || first.said().contains("it cannot be reached").then_some(()));
    first.kill();
    comes_to(&folder, "desk", 1, 0);
    let receiver = Receiver::on(TcpListener::bind(address).unwrap(), &[200]);
    let _second = serve(&folder);
    is_about(
        &receiver.told("pending.opened"),
        text(&run["id"]),
        &format!("/pending/{}", text(&run["pending"]["id"])),
    );
    comes_to_nothing(&folder);
}

#[test]
fn rule_r5_a_receiver_that_hangs_delays_nobody_and_is_told_by_the_next_process() {
    let (desk, slow) = (Receiver::start(&[200]), Receiver::start(&[HANGS, 200]));
    let (folder, _model, _tool) = bench(Folder::new(), &[("desk", &desk.url), ("slow", &slow.url)]);
    let mut first = serve(&folder);
    folder.run(&["run", "x"]).expect(3);
    slow.told("pending.opened");
    desk.told("pending.opened");
    folder.decide("deny", &[]).expect(0);
    desk.told("run.completed");
    comes_to_nothing(&folder);
    first.terminate();
    assert_eq!(first.ended().code(), Some(0));
    let owed = state(&folder, "slow")["owed"].as_u64().unwrap();
    assert!(owed >= 1, "what hung is still owed");
    let _second = serve(&folder);
    comes_to(&folder, "slow", 0, 0);
}

#[test]
fn a_receiver_that_is_gone_is_told_nothing_until_somebody_enables_it() {
    let receiver = Receiver::start(&[410, 200]);
    let (folder, _model, _tool) = bench(Folder::new(), &[("desk", &receiver.url)]);
    let serve = serve(&folder);
    folder.run(&["run", "x"]).expect(3);
    comes_to(&folder, "desk", 0, 1);
    assert!(state(&folder, "desk")["gone_since"].is_string());
    assert!(serve.said().contains("`webhooks enable desk`"), "{}", serve.said());
    let found = folder.json(&["db", "doctor", "--json"])["findings"][0].clone();
    assert_eq!(found["damage"], false);
    let sentence = text(&found["finding"]);
    assert!(
        sentence.starts_with("the webhook desk has answered at ") && sentence.contains("enable desk"),
        "{sentence}"
    );
    folder.decide("deny", &[]).expect(0);
    comes_to(&folder, "desk", 0, 1);
    let enabled = folder.run(&["webhooks", "enable", "desk"]).expect(0);
    assert_eq!(enabled.out, "The webhook desk is told. It is owed 1 message.\n");
    comes_to_nothing(&folder);
    folder.run(&["db", "doctor"]).expect(0);
    assert_eq!(receiver.messages().len(), 2, "nothing that happened meanwhile");
    folder.run(&["webhooks", "enable", "other"]).expect(2).one_sentence();
}

#[test]
fn on_a_shared_database_a_worker_tells_what_another_process_did() {
    let receiver = Receiver::start(&[200]);
    let (folder, _model, _tool) = bench(Folder::on_postgres(), &[("desk", &receiver.url)]);
    folder.run(&["run", "x"]).expect(3);
    comes_to(&folder, "desk", 1, 0);
    let _workers = [0, 1].map(|_| Process::start(with_secret(folder.command(&["work"]))));
    assert!(receiver.told("pending.opened").is_signed());
    folder.decide("approve", &["--detach"]).expect(0);
    receiver.told("run.completed");
    comes_to_nothing(&folder);
    assert_eq!(receiver.messages().len(), 3, "each once, by whichever of the two");
}

#[test]
fn tp50_what_may_not_be_told_is_refused_where_it_is_configured() {
    let (folder, _model, _tool) = bench(Folder::new(), &[]);
    let before = folder.text("countersign.toml");
    let refused = |table: &str, secret: &str| {
        folder.write("countersign.toml", &format!("{before}\n[webhooks.desk]\n{table}\n"));
        let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
        let done = crate::support::Done::from(serve.env("SECRET", secret).output().unwrap()).expect(2);
        let sentence = done.one_sentence().to_owned();
        assert!(sentence.contains("countersign.toml:") && !sentence.contains("/hook"), "{sentence}");
        assert!(secret.is_empty() || !sentence.contains(secret), "{sentence}");
        sentence
    };
    let url = |url: &str| format!("url = \"{url}/hook\"\nsecret_env = \"SECRET\"");
    for (table, secret, words) in [
        (url("https://127.0.0.1"), SECRET, "declare private = true"),
        (url("https://169.254.169.254"), SECRET, "declare private = true"),
        (url("https://localhost:1"), SECRET, "declare private = true"),
        (url("http://desk.example"), SECRET, "declare cleartext = true"),
        (url("https://u@desk.example"), SECRET, "holds no credential"),
        (url("https://desk.example"), "", "the variable SECRET with its secret is not set"),
        (url("https://desk.example"), "whsec_short", "24 to 64 random bytes"),
        (url("https://desk.example") + "\nevents = [\"model.replied\"]", SECRET, "one of pending.opened"),
        (url("https://desk.example") + "\nevents = []", SECRET, "it names none"),
        ("url = \"https://desk.example/hook\"".to_owned(), SECRET, "the key secret_env is missing"),
        ("secret_env = \"SECRET\"".to_owned(), SECRET, "the key url is missing"),
    ] {
        let sentence = refused(&table, secret);
        assert!(sentence.contains(words), "{sentence}");
    }
    let nowhere = before.replace(&format!("public_url = \"{ORIGIN}\"\n"), "");
    folder
        .write("countersign.toml", &format!("{nowhere}\n[webhooks.desk]\n{}\n", url("https://desk.example")));
    let done = folder.run(&["config", "check"]).expect(2);
    assert!(done.one_sentence().contains("public_url is missing"), "{done:?}");
    folder
        .write("countersign.toml", &format!("{before}\n[webhooks.desk]\n{}\n", url("https://desk.example")));
    let checked = folder.run(&["config", "check"]).expect(0);
    assert!(
        checked.err.contains("the variable SECRET with the secret of webhook desk is not set"),
        "{checked:?}"
    );
}

#[test]
fn where_nobody_is_told_the_list_says_so() {
    let folder = Folder::new();
    let list = folder.run(&["webhooks", "list"]).expect(0);
    assert!(list.out.starts_with("Nobody is told: "), "{list:?}");
    assert!(!folder.path(".countersign").exists(), "nothing was made");
}
