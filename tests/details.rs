//! What a tool said when it failed: kept in the call's sealed record, shown to whoever may read the run, and to be
//! found nowhere else (S3, S5).

use serde_json::json;

use crate::support::model::{Server, calls, says};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, text, until};

/// What no model, log or list may show.
const SAID: &str = "relation pages, row canary-DETAIL";
const CANARY: &str = "canary-DETAIL";

/// A run that called the tool `get` once, and all that its commands printed.
struct Failed {
    server: Server,
    folder: Folder,
    run: String,
    printed: Vec<Done>,
}

impl Failed {
    /// `how` declares the tool; only who waits for ever is to feel the timeout.
    fn of(how: &str, effect: &str, timeout: &str) -> Self {
        let server = Server::start(vec![calls(&[("get", json!({ "id": 7 }))]), says("done")]);
        let folder = Folder::new();
        folder.configure(server.url(), "");
        folder.configure_more(&declared("get", how, effect, &format!("timeout = \"{timeout}\"")));
        let mut printed = Vec::new();
        if effect == "write" {
            printed.push(folder.run(&["run", "x"]).expect(3));
            printed.push(folder.decide("approve", &[]));
        } else {
            printed.push(folder.run(&["run", "x"]).expect(0));
        }
        let run = text(&folder.newest_run()["id"]).to_owned();
        Self { server, folder, run, printed }
    }

    fn at(comes: Comes, effect: &str) -> (ToolServer, Self) {
        let timeout = if matches!(comes, Comes::Hangs) { "2s" } else { "10m" };
        let tool = ToolServer::start(comes);
        let failed = Self::of(&format!("http = \"{}\"", tool.url), effect, timeout);
        (tool, failed)
    }

    fn told(&self) -> String {
        let asked = self.server.asked();
        text(&asked[1]["messages"].as_array().unwrap().last().unwrap()["content"]).to_owned()
    }

    /// What is kept with the event of this kind.
    fn kept(&self, kind: &str) -> String {
        let events = self.folder.events(&self.run);
        let event = events.iter().find(|event| event["kind"] == kind);
        text(&event.unwrap_or_else(|| panic!("no {kind}: {events:?}"))["data"]["detail"]).to_owned()
    }

    /// It stands where it must, and nowhere else.
    fn is_kept_and_hidden(&self) {
        for asked in self.server.asked() {
            assert!(!asked.to_string().contains(CANARY), "{asked}");
        }
        let lists = [
            &["runs", "list", "--json"][..],
            &["runs", "list"],
            &["runs", "show", &self.run, "--json"],
            &["pending", "list", "--json"],
            &["pending", "list"],
        ];
        for shown in self.printed.iter().map(|done| format!("{}{}", done.out, done.err)) {
            assert!(!shown.contains(CANARY), "{shown}");
        }
        for list in lists {
            let done = self.folder.run(list).expect(0);
            assert!(!done.out.contains(CANARY) && !done.err.contains(CANARY), "{list:?}: {done:?}");
        }
        for what in ["show", "events"] {
            let shown = self.folder.run(&["runs", what, &self.run]).expect(0).out;
            assert!(shown.contains(CANARY), "{what}: {shown}");
        }
        self.is_nowhere_on_disk();
    }

    fn is_nowhere_on_disk(&self) {
        let mut folders = vec![self.folder.path(".countersign")];
        while let Some(folder) = folders.pop() {
            for file in std::fs::read_dir(folder).unwrap() {
                let file = file.unwrap().path();
                if file.is_dir() {
                    folders.push(file);
                    continue;
                }
                let bytes = std::fs::read(&file).unwrap();
                let found = bytes.windows(CANARY.len()).any(|bytes| bytes == CANARY.as_bytes());
                assert!(!found, "rule S3: {}", file.display());
            }
        }
    }
}

#[test]
fn rule_s5_what_a_failing_server_says_is_kept_for_people_and_told_to_nobody_else() {
    let (_tool, failed) = Failed::at(Comes::Answer(500, SAID.into()), "read");
    assert_eq!(failed.told(), "Error: The tool get failed: it answered with status 500.");
    assert_eq!(failed.kept("call.finished"), format!("status 500\n{SAID}"));
    failed.is_kept_and_hidden();
    let shown = failed.folder.run(&["runs", "show", &failed.run]).expect(0).out;
    assert!(shown.contains(&format!("  │ status 500\n  │ {SAID}\n")), "{shown}");

    let (_tool, failed) = Failed::at(Comes::Answer(200, format!("<html>{SAID}").into_bytes()), "read");
    assert!(failed.told().contains("not the JSON"), "{}", failed.told());
    assert_eq!(failed.kept("call.finished"), format!("status 200; not a JSON object\n<html>{SAID}"));
    failed.is_kept_and_hidden();
}

#[test]
fn rule_s5_what_a_failing_command_says_is_kept_for_people_and_told_to_nobody_else() {
    let script = format!("command = [\"/bin/sh\", \"-c\", \"echo '{SAID}' >&2; exit 3\"]");
    let failed = Failed::of(&script, "read", "10m");
    assert_eq!(failed.told(), "Error: The tool get failed (exit status: 3).");
    assert_eq!(failed.kept("call.finished"), format!("exit status: 3\n{SAID}"));
    failed.is_kept_and_hidden();
}

#[test]
fn rule_s5_what_a_terminal_would_obey_is_shown_and_not_sent_to_it() {
    let (_tool, failed) = Failed::at(Comes::Answer(500, b"a\x1b[2Jb\xff".to_vec()), "read");
    for what in ["show", "events"] {
        let shown = failed.folder.run(&["runs", what, &failed.run]).expect(0).out;
        assert!(!shown.contains('\u{1b}') && shown.contains("[2Jb\u{fffd}"), "{shown}");
    }
}

#[test]
fn rule_r3_why_a_write_gave_no_answer_is_kept_with_the_unknown_call() {
    let (_tool, failed) = Failed::at(Comes::Answer(502, SAID.into()), "write");
    assert_eq!(failed.kept("call.unknown"), format!("status 502\n{SAID}"));
    failed.is_kept_and_hidden();
    let asked = failed.folder.run(&["pending", "show", text(&failed.folder.open()["id"])]).expect(0);
    let way = asked.out.lines().find(|line| line.starts_with("What is known of the call: ")).unwrap();
    assert!(way.ends_with(&format!(" runs show {}", failed.run)), "{asked:?}");
    assert!(!asked.out.contains(CANARY), "{asked:?}");

    let (_tool, failed) = Failed::at(Comes::Dies, "write");
    assert!(failed.kept("call.unknown").starts_with("the exchange broke off: "));
    let (_tool, failed) = Failed::at(Comes::Hangs, "write");
    assert!(failed.kept("call.unknown").starts_with("no answer in "), "{}", failed.kept("call.unknown"));
}

#[test]
fn rule_r3_that_a_worker_was_lost_is_kept_with_the_unknown_call() {
    let server = Server::start(vec![calls(&[("get", json!({ "id": 7 }))]), says("done")]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let tool = ToolServer::start(Comes::Hangs);
    folder.configure_more(&declared("get", &format!("http = \"{}\"", tool.url), "write", ""));
    folder.configure_more("[workers]\nlease = \"1s\"\n");
    folder.run(&["run", "x"]).expect(3);
    let open = folder.open();
    let arguments = ["approve", text(&open["id"]), "--digest", text(&open["digest"])];
    let mut working = folder.command(&arguments).spawn().unwrap();
    tool.wait_for_a_call();
    working.kill().unwrap();
    working.wait().unwrap();
    let run = text(&open["run"]);
    let resumed = until("the end of the lease", || {
        let resumed = folder.run(&["runs", "resume", run]);
        (resumed.exit != 4).then_some(resumed)
    });
    resumed.expect(3);
    let shown = folder.run(&["runs", "show", run]).expect(0).out;
    assert!(shown.contains("  │ the worker that made the call was lost before it had an answer"), "{shown}");
    assert_eq!(tool.calls().len(), 1);
}

#[test]
fn rule_s1_who_may_not_read_the_run_may_not_read_what_its_tools_said() {
    let (_tool, failed) = Failed::at(Comes::Answer(500, SAID.into()), "read");
    failed.folder.run(&["user", "set", "bob"]).expect(0);
    for what in ["show", "events"] {
        let refused = failed.folder.run(&["runs", what, &failed.run, "--as", "bob"]);
        assert_ne!(refused.exit, 0, "{refused:?}");
        assert!(!format!("{refused:?}").contains(CANARY), "{refused:?}");
    }
}

#[test]
fn rule_r10_what_a_tool_said_is_erased_with_the_run() {
    let (_tool, failed) = Failed::at(Comes::Answer(500, SAID.into()), "read");
    failed.folder.run(&["runs", "erase", &failed.run]).expect(0);
    for arguments in [&["runs", "events", &failed.run][..], &["runs", "show", &failed.run], &["runs", "list"]]
    {
        let done = failed.folder.run(arguments);
        assert!(!format!("{done:?}").contains(CANARY), "{done:?}");
    }
    failed.is_nowhere_on_disk();
    failed.folder.run(&["db", "doctor"]).expect(0);
}

#[test]
fn rule_a8_whoever_settles_an_unknown_outcome_may_read_what_is_known_of_it() {
    let (_tool, failed) = Failed::at(Comes::Answer(504, SAID.into()), "write");
    failed.folder.run(&["user", "set", "carol", "--approver"]).expect(0);
    let shown = failed.folder.run(&["runs", "show", &failed.run, "--as", "carol"]).expect(0).out;
    assert!(shown.contains(SAID), "{shown}");
    let open = failed.folder.open();
    assert!(!open.to_string().contains(CANARY), "{open}");
}
