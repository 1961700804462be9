//! A run on a terminal: what happens is shown as it happens, and a question is asked in place.

use serde_json::json;

use crate::support::model::{Play, Server, calls, says};
use crate::support::pty::Terminal;
use crate::support::{Folder, until};

const NOTICE: &str = ".countersign/tour/opening-hours.md";
const PROMPT: &str = "approve, deny or wait? ";

#[test]
fn a_run_shows_what_happens_and_asks_in_place() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    let screen = terminal.screen();
    for part in [
        "asks demo/tour",
        "wants ",
        "read_file",
        "ok",
        "NEEDS APPROVAL",
        "group editing",
        "agent    default",
        "owner    ",
    ] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(screen.contains("\u{1b}[32m+- Sunday: 11:00 to 17:00"), "the preview is coloured\n{screen}");
    terminal.types("maybe");
    terminal.wait_for("Please type approve, deny or wait");
    assert!(folder.text(NOTICE).contains("71:00"));
    terminal.types("approve");
    terminal.wait_for("The correction came back as a success");
    assert_eq!(terminal.exit(), 0);
    assert!(folder.text(NOTICE).contains("17:00") && !folder.text(NOTICE).contains("71:00"));
}

#[test]
fn a_denial_in_place_asks_for_the_reason() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    terminal.types("deny");
    terminal.wait_for("why?");
    terminal.types("not today");
    terminal.wait_for("did not come back as a success");
    assert_eq!(terminal.exit(), 0);
    assert!(terminal.screen().contains("not today"));
    assert!(folder.text(NOTICE).contains("71:00"));
}

#[test]
fn a_decision_made_elsewhere_is_noticed() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    folder.decide("approve", &[]).expect(0);
    terminal.wait_for("decided elsewhere; going on");
    terminal.wait_for("The correction came back as a success");
    assert_eq!(terminal.exit(), 0);
    let started = folder.events(folder.newest_run()["id"].as_str().unwrap());
    assert_eq!(
        started
            .iter()
            .filter(|event| event["data"]["tool"] == "edit_file" && event["kind"] == "call.started")
            .count(),
        1
    );
}

#[test]
fn waiting_leaves_the_question_open_and_says_how_to_decide_it() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    terminal.types("w");
    terminal.wait_for("Decide it with one of");
    assert_eq!(terminal.exit(), 3);
    let screen = terminal.screen();
    assert_eq!(screen.matches("A person must approve").count(), 1, "the question is shown once\n{screen}");
    let open = folder.open();
    let approve =
        format!("approve {} --digest {}", open["id"].as_str().unwrap(), open["digest"].as_str().unwrap());
    assert!(screen.replace(['\r', '\n'], "").contains(&approve), "{screen}");
    folder.decide("approve", &[]).expect(0);
}

#[test]
fn ctrl_c_at_a_question_leaves_it_open() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    terminal.interrupt();
    assert_eq!(terminal.exit(), 3);
    assert_eq!(folder.open()["status"], "open");
}

#[test]
fn a_line_that_is_no_text_is_not_the_end_of_the_input() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["run", "--model", "demo", "x"]);
    terminal.wait_for(PROMPT);
    terminal.types_bytes(b"appro\xffve\n");
    terminal.wait_for("That line is not UTF-8 text");
    terminal.types("approve");
    terminal.wait_for("The correction came back as a success");
    assert_eq!(terminal.exit(), 0);
}

#[test]
fn what_was_typed_ahead_approves_nothing() {
    let server = Server::start(vec![
        Play::Answer(429, "Retry-After: 1\r\n", "{}".into()),
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        calls(&[("write_file", json!({ "path": "b.txt", "content": "b" }))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let mut terminal = Terminal::start(&folder, &["run", "x"]);
    // While the model is still asked, nobody can know what the question will be.
    server.wait_for(1);
    terminal.types("approve");
    terminal.wait_for(PROMPT);
    // Two words at once: the second was typed before its question was shown.
    terminal.types("deny\n\napprove");
    terminal.wait_for("b.txt");
    until("the second question", || (terminal.screen().matches(PROMPT).count() == 2).then_some(()));
    terminal.types("w");
    assert_eq!(terminal.exit(), 3);
    assert_eq!(folder.open()["status"], "open");
    assert!(!folder.path("a.txt").exists(), "the first word of all released nothing");
    assert!(!folder.path("b.txt").exists());
}

#[test]
fn no_color_is_respected() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let plain = folder.command(&["runs", "list"]).env("NO_COLOR", "1").output().unwrap();
    assert!(!plain.stdout.contains(&0x1b));
}
