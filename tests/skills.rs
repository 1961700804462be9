//! Skills: what they restrict, what they add to the prompt, and what becomes of one that cannot be read (G6, R7).

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::{Done, Folder, text};

const NOTE: (&str, &str) = ("write_file", "a.txt");

fn bench(server: &Server, skills: &str) -> Folder {
    let folder = Folder::new();
    folder.configure(server.url(), &format!("system_prompt = \"You edit.\"\nskills = {skills}\n"));
    folder.configure_more("[skills]\npaths = [\"skills\"]\n");
    folder
}

fn skill(folder: &Folder, name: &str, front: &str, prose: &str) {
    folder.write(
        &format!("skills/{name}/SKILL.md"),
        &format!("---\nname: {name}\ndescription: x\n{front}\n---\n{prose}\n"),
    );
}

fn offered(folder: &Folder) -> Vec<String> {
    let list = folder.json(&["tools", "list", "--agent", "default", "--json"]);
    list["items"].as_array().unwrap().iter().map(|tool| text(&tool["name"]).to_owned()).collect()
}

#[test]
fn rule_g6_opinions_unite_and_no_opinion_restricts_nothing() {
    let server = Server::start(vec![says("done")]);
    let folder = bench(&server, "[\"one\", \"two\", \"three\"]");
    skill(&folder, "one", "allowed-tools: [read_file]", "First.");
    skill(&folder, "two", "allowed-tools: list_files read_file", "");
    skill(&folder, "three", "", "Third.");
    assert_eq!(offered(&folder), ["list_files", "read_file"]);
    folder.run(&["run", "x"]).expect(0);
    let prompt = server.asked()[0]["messages"][0]["content"].clone();
    assert_eq!(prompt, "You edit.\n\n# Skill: one\n\nFirst.\n\n# Skill: three\n\nThird.");
    let events = folder.events(text(&folder.newest_run()["id"]));
    assert_eq!(
        events[0]["data"]["skills"],
        json!([
            { "name": "one", "allowed_tools": ["read_file"] },
            { "name": "two", "allowed_tools": ["list_files", "read_file"] },
            { "name": "three" },
        ])
    );
    for front in ["allowed-tools: []", "allowed-tools:"] {
        let alone = bench(&server, "[\"one\"]");
        skill(&alone, "one", front, "");
        assert_eq!(offered(&alone), [""; 0], "{front}");
    }
}

#[test]
fn rule_g6_a_skill_that_cannot_be_read_is_an_error_at_start_and_allows_nothing() {
    let server = Server::start(vec![says("done")]);
    let folder = bench(&server, "[\"editor\"]");
    let starts =
        || -> [Done; 2] { [folder.run(&["run", "x"]).expect(2), folder.run(&["config", "check"]).expect(2)] };
    for failed in starts() {
        let expected = "countersign.toml:11: agents.default.skills: the skill editor: there is no SKILL.md in a folder editor";
        assert!(failed.one_sentence().contains(expected), "{failed:?}");
    }
    assert_eq!(offered(&folder), [""; 0]);
    folder.write("skills/editor/SKILL.md", "Edit well.\n");
    for failed in starts() {
        assert!(failed.one_sentence().contains("it has no front matter"), "{failed:?}");
    }
    assert_eq!(offered(&folder), [""; 0]);
    assert!(server.asked().is_empty());
}

#[test]
fn rule_g6_a_text_that_does_not_fit_is_left_out_visibly_and_the_skill_still_counts() {
    let server = Server::start(vec![says("done")]);
    let folder = bench(&server, "[\"one\", \"two\"]");
    skill(&folder, "one", "", "Short.");
    skill(&folder, "two", "allowed-tools: read_file lst_files", &"long ".repeat(4_000));
    let run = folder.run(&["run", "x"]).expect(0);
    assert!(run.err.contains("note: the text of the skill two is left out"), "{run:?}");
    assert_eq!(server.asked()[0]["messages"][0]["content"], "You edit.\n\n# Skill: one\n\nShort.");
    assert_eq!(offered(&folder), ["read_file"]);
    let events = folder.events(text(&folder.newest_run()["id"]));
    assert_eq!(events[0]["data"]["skills"][1]["prose_left_out"], true);
    let checked = folder.run(&["config", "check"]).expect(0);
    for expected in
        ["the text of the skill two is left out", "the skill two allows lst_files, which no tool is called"]
    {
        assert!(checked.err.contains(expected), "{checked:?}");
    }
}

/// A run waits with a write; then its skill changes. What is approved then runs, or does not.
fn after_a_change(before: &str, after: &str, runs: bool) {
    let (tool, file) = NOTE;
    let server = Server::start(vec![calls(&[(tool, json!({ "path": file, "content": "x" }))]), says("done")]);
    let folder = bench(&server, "[\"editor\"]");
    skill(&folder, "editor", before, "");
    folder.run(&["run", "x"]).expect(3);
    skill(&folder, "editor", after, "");
    folder.decide("approve", &[]).expect(0);
    assert_eq!(folder.path(file).exists(), runs, "{before} / {after}");
}

#[test]
fn rule_r7_a_skill_that_was_tightened_meanwhile_counts_for_a_waiting_run() {
    after_a_change("allowed-tools: write_file", "allowed-tools: write_file read_file", true);
    after_a_change("", "allowed-tools: read_file", false);
}

#[test]
fn rule_r7_a_skill_that_was_loosened_meanwhile_frees_no_waiting_run() {
    let (tool, file) = NOTE;
    let write = |file: &str| (tool, json!({ "path": file, "content": "x" }));
    let server = Server::start(vec![
        calls(&[write(file)]),
        calls(&[("delete_file", json!({ "path": file }))]),
        says("done"),
    ]);
    let folder = bench(&server, "[\"editor\"]");
    skill(&folder, "editor", "allowed-tools: write_file", "");
    folder.run(&["run", "x"]).expect(3);
    skill(&folder, "editor", "", "");
    folder.decide("approve", &[]).expect(0);
    assert!(folder.path(file).exists(), "what was not allowed at the start is not allowed now");
    let names = |request: &Value| -> usize { request["tools"].as_array().unwrap().len() };
    assert_eq!(server.asked().iter().map(names).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn rule_g6_a_skill_that_vanished_meanwhile_lets_nothing_of_a_waiting_run_start_and_says_so() {
    let (tool, file) = NOTE;
    let server = Server::start(vec![calls(&[(tool, json!({ "path": file, "content": "x" }))]), says("done")]);
    let folder = bench(&server, "[\"editor\"]");
    skill(&folder, "editor", "allowed-tools: write_file", "");
    folder.run(&["run", "x"]).expect(3);
    std::fs::remove_dir_all(folder.path("skills")).unwrap();
    let decided = folder.decide("approve", &[]).expect(0);
    assert!(decided.err.contains("note: a skill of agent default allows nothing"), "{decided:?}");
    assert!(!folder.path(file).exists());
}

#[test]
fn rule_s2_a_skill_behind_a_link_is_as_read_only_as_one_in_its_place() {
    // The folder of the skill is a link, or its file is.
    for (link, to) in [
        ("skills/editor", "../elsewhere/editor"),
        ("skills/editor/SKILL.md", "../../elsewhere/editor/SKILL.md"),
    ] {
        let path = "elsewhere/editor/SKILL.md";
        let server = Server::start(vec![
            calls(&[("write_file", json!({ "path": path, "content": "---\n---\n" }))]),
            calls(&[("move_file", json!({ "from": "elsewhere", "to": "gone" }))]),
            says("done"),
        ]);
        let folder = bench(&server, "[\"editor\"]");
        folder.write(path, "---\nallowed-tools: write_file move_file\n---\nEdit.\n");
        let link = folder.path(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, link).unwrap();
        let before = folder.text(path);
        folder.run(&["run", "x"]).expect(3);
        folder.decide("approve", &[]).expect(3);
        folder.decide("approve", &[]).expect(0);
        assert!(folder.path(path).exists(), "{to}: it was moved away");
        assert_eq!(folder.text(path), before, "{to}");
    }
}

#[test]
fn rule_s2_skills_are_read_and_never_changed_by_the_file_tools() {
    let path = "skills/editor/SKILL.md";
    let server = Server::start(vec![
        calls(&[("read_file", json!({ "path": path }))]),
        calls(&[("write_file", json!({ "path": path, "content": "---\n---\n" }))]),
        says("done"),
    ]);
    let folder = bench(&server, "[\"editor\"]");
    skill(&folder, "editor", "allowed-tools: read_file write_file", "Edit.");
    let before = folder.text(path);
    folder.run(&["run", "x"]).expect(3);
    folder.decide("approve", &[]).expect(0);
    assert_eq!(folder.text(path), before);
}
