//! What an operator declares about tools, and what the program says of declarations that cannot be meant.

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::{Folder, declared, text};

#[test]
fn rule_a1_a_setting_tightens_a_built_in_tool_and_its_call_is_asked() {
    let server = Server::start(vec![calls(&[("list_files", json!({}))]), says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    folder.configure_more(
        "[tool_settings.list_files]\napproval = \"ask\"\n[tool_settings.search_files]\nenabled = false\n",
    );
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    assert_eq!(
        (&open["calls"][0]["tool"], &open["calls"][0]["because"]),
        (&json!("list_files"), &json!("operator"))
    );
    let tools = folder.json(&["tools", "list", "--json"]);
    let find = |name: &str| -> Value {
        tools["items"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone()
    };
    assert_eq!(find("list_files")["unattended"], false, "rule U2");
    assert_eq!(find("search_files")["enabled"]["default"], false);
    folder.decide("approve", &[]).expect(0);
}

#[test]
fn a_declaration_that_cannot_be_meant_is_one_sentence_naming_tool_file_and_line() {
    let folder = Folder::new();
    let http = "http = \"http://127.0.0.1:1/\"";
    for (more, expected) in [
        (
            "[tool_settings.raed_file]\nenabled = true".to_owned(),
            "tool_settings.raed_file: there is no tool of this name; did you mean read_file?",
        ),
        (
            "[tool_settings.system_status]\nrequires_admin = false".to_owned(),
            "tool_settings.system_status.requires_admin: this tool is for administrators",
        ),
        (
            "[tool_settings.list_runs]\ndata_class = \"public_content\"".to_owned(),
            "tool_settings.list_runs.data_class: the tool's own class is internal_configuration",
        ),
        (declared("a__b", http, "read", ""), "the local tool a__b has __ in its name"),
        (
            declared("a", "http = \"ftp://x/\"", "read", ""),
            "the tool a cannot be used: `http` must be an http or https address",
        ),
        (
            declared("a", "command = []", "read", ""),
            "the tool a cannot be used: `command` must name a program",
        ),
        (
            declared("a", http, "read", "input = { type = 7 }"),
            "the schema of input of the tool a cannot be used",
        ),
        (
            declared("a", http, "read", "input = { type = \"object\" }")
                + "[tool_settings.a]\napproval = \"ask\"\n",
            "tool_settings.a.approval: this tool needs input",
        ),
    ] {
        folder.configure("http://127.0.0.1:1/v1", "");
        folder.configure_more(&more);
        for command in [&["run", "x"][..], &["config", "check"]] {
            let failed = folder.run(command).expect(2);
            assert!(failed.one_sentence().contains(expected), "{more}\n{failed:?}");
            assert!(failed.err.contains("countersign.toml:"), "{failed:?}");
        }
    }
}

#[test]
fn the_check_warns_of_tools_and_groups_that_can_never_take_part() {
    let folder = Folder::new();
    folder.configure("http://127.0.0.1:1/v1", "tool_groups = [\"content\", \"ghost\"]\n");
    let text = folder.text("countersign.toml").replace("\"local\"", "\"external_eu\"");
    folder.write("countersign.toml", &text);
    folder.configure_more(&declared("drop", "http = \"http://127.0.0.1:1/\"", "write", ""));
    folder.configure_more("[tool_settings.fetch_page]\nenabled = true\n");
    let checked = folder.run(&["config", "check"]).expect(0);
    for expected in [
        "agent default names the group ghost, which no tool has",
        "countersign.toml:13: the tool drop can never be offered (agent default: ",
        "the tool read_file can never be offered",
        "fetch_page is on and has no hosts, so it reaches none",
    ] {
        assert!(checked.err.contains(expected), "{expected}: {checked:?}");
    }
    assert!(!checked.err.contains("list_runs"), "nobody asked for it: {checked:?}");
}

#[test]
fn case_c45_settings_name_one_tool_byte_for_byte_and_nothing_matches_more() {
    let folder = Folder::new();
    for name in ["READ_FILE", "read_fil", "*", "read_file*"] {
        folder.configure("http://127.0.0.1:1/v1", "");
        folder.configure_more(&format!("[tool_settings.\"{name}\"]\napproval = \"ask\"\n"));
        let failed = folder.run(&["tools", "list"]).expect(2);
        assert!(failed.one_sentence().contains("tool_settings."), "{failed:?}");
    }
}

#[test]
fn a_hosted_model_is_not_shown_a_tool_above_its_zone() {
    let server = Server::start(vec![says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let config = folder.text("countersign.toml").replace("\"local\"", "\"external_global\"");
    folder.write("countersign.toml", &config);
    folder.configure_more(&declared(
        "open",
        "command = [\"true\"]",
        "read",
        "data_class = \"editor_content\"",
    ));
    folder.configure_more(&declared("inner", "command = [\"true\"]", "read", ""));
    folder.run(&["run", "x"]).expect(0);
    let asked = server.asked();
    let names: Vec<&str> =
        asked[0]["tools"].as_array().unwrap().iter().map(|tool| text(&tool["function"]["name"])).collect();
    assert!(
        names.contains(&"open") && !names.contains(&"inner") && !names.contains(&"list_runs"),
        "{names:?}"
    );
}
