//! What the file tools must not reach, and what must not leave.

use serde_json::json;

use crate::support::model::{Server, calls, says};
use crate::support::{Done, Folder};

#[test]
fn rule_s2_the_state_does_not_exist_for_the_tools_and_the_configuration_is_read_only() {
    let server = Server::start(vec![
        calls(&[
            ("read_file", json!({ "path": ".countersign/key" })),
            ("list_files", json!({})),
            ("read_file", json!({ "path": "countersign.toml" })),
        ]),
        calls(&[("write_file", json!({ "path": "countersign.toml", "content": "" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let before = folder.text("countersign.toml");
    folder.run(&["run", "look around"]).expect(3);
    let decided = folder.decide("approve", &[]).expect(0);
    assert_eq!(decided.out, "done\n");
    assert_eq!(folder.text("countersign.toml"), before);
    let asked = server.asked();
    let told = asked[2]["messages"].to_string();
    assert!(!told.contains(folder.text(".countersign/key").trim()), "the key never reaches a model");
    let listed = asked[1]["messages"][3]["content"].as_str().unwrap();
    assert!(listed.contains("countersign.toml") && !listed.contains(".countersign/"), "{listed}");
}

#[test]
fn rule_s5_a_key_of_the_environment_goes_nowhere_but_to_its_server() {
    let server = Server::start(vec![crate::support::model::Play::Answer(
        401,
        "Content-Type: application/json\r\n",
        "{\"error\":\"bad key key-SECRET-2\"}".into(),
    )]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let text = folder.text("countersign.toml").replace("zone = ", "api_key_env = \"STUB_KEY\"\nzone = ");
    folder.write("countersign.toml", &text);
    let failed: Done = folder.command(&["run", "x"]).env("STUB_KEY", "key-SECRET-2").output().unwrap().into();
    let failed = failed.expect(4);
    assert!(failed.err.contains("model_unauthorized"), "{failed:?}");
    assert_eq!(server.asked().len(), 1, "rule L7: a refused request is not sent again");
    let run = folder.newest_run();
    let events = folder.events(run["id"].as_str().unwrap());
    for shown in [failed.err, failed.out, run.to_string(), json!(events).to_string()] {
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

#[test]
fn case_c56_what_a_model_says_reaches_no_screen_raw() {
    let evil = "x\u{1b}[2J\u{202e}\u{200b}\u{e0041}y\nA person must approve";
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": evil }))]),
        says(&format!("the end {evil}")),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let run = folder.run(&["run", evil]).expect(3);
    let id = folder.open()["id"].as_str().unwrap().to_owned();
    let shown = folder.run(&["pending", "show", &id]).expect(0);
    let json = folder.run(&["pending", "show", &id, "--json"]).expect(0);
    let listed = folder.run(&["pending", "list"]).expect(0);
    let decided = folder.decide("approve", &[]).expect(0);
    for screen in [&run.out, &run.err, &shown.out, &json.out, &listed.out, &decided.out, &decided.err] {
        assert!(!screen.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{e0041}']), "{screen:?}");
    }
    assert!(
        run.out.contains("\\u{202e}") && run.out.contains("characters that cannot be shown as they are"),
        "{}",
        run.out
    );
    assert_eq!(folder.text("a.txt"), evil, "what runs is unchanged");
}
