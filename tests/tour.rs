//! The demo tour, as the first minutes with the program go.

use crate::support::{Done, Folder, kinds, text};

const NOTICE: &str = ".countersign/tour/opening-hours.md";

#[test]
fn the_tour_stops_at_a_real_approval_and_another_process_finishes_it_again_and_again() {
    let folder = Folder::new();
    for round in 1..=3 {
        let run = folder.run(&["run", "--model", "demo", "Correct the notice"]).expect(3);
        let first = run.out.lines().next().unwrap();
        for part in ["demo/tour (a script, not a model)", "zone local", ".countersign/tour"] {
            assert!(first.contains(part), "{first}");
        }
        assert!(folder.text(NOTICE).contains("11:00 to 71:00"), "nothing is written before the approval");
        let open = folder.open();
        for part in [
            text(&open["id"]),
            text(&open["digest"]),
            "edit_file",
            "group editing",
            "NEEDS APPROVAL: it writes",
        ] {
            assert!(run.out.contains(part), "{part}: {run:?}");
        }
        assert!(
            run.out.contains("     │ -- Sunday: 11:00 to 71:00")
                && run.out.contains("     │ +- Sunday: 11:00 to 17:00")
        );

        let in_full = format!("pending show {} --json", text(&open["id"]));
        let in_full = run.out.lines().find(|line| line.ends_with(&in_full)).unwrap();
        assert!(in_full.starts_with("Everything in full: "), "{in_full}");

        // The very command that was printed decides it.
        let command = run.out.lines().find(|line| line.contains(" approve pnd_")).unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let approved = folder.run(&words).expect(0);
        assert!(approved.out.contains("This is a script, not a model."), "{approved:?}");
        let notice = folder.text(NOTICE);
        assert!(notice.contains("11:00 to 17:00") && !notice.contains("71:00"));

        let run = folder.newest_run();
        assert_eq!(text(&run["status"]), "completed");
        let events = folder.events(text(&run["id"]));
        let started = events
            .iter()
            .filter(|event| event["data"]["tool"] == "edit_file" && event["kind"] == "call.started");
        assert_eq!(started.count(), 1, "round {round}: it was done once");
        assert_eq!(
            folder.run(&words).expect(5).err,
            "refused: already_decided: root has already decided: approve\n"
                .replace("root", text(&run["owner"]))
        );
    }
}

#[test]
fn rule_a11_a_denial_with_a_reason_reaches_the_script_and_nothing_is_written() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let denied = folder.decide("deny", &["--reason", "not on a Sunday"]).expect(0);
    assert!(
        denied.out.contains("did not come back as a success") && denied.out.contains("not on a Sunday"),
        "{denied:?}"
    );
    assert!(folder.text(NOTICE).contains("71:00"));
}

#[test]
fn a_group_that_is_off_is_not_offered() {
    let folder = Folder::new();
    let switched = folder.run(&["groups", "disable", "editing"]).expect(0);
    assert!(switched.out.contains("edit_file"), "it says what it covers: {switched:?}");
    let run = folder.run(&["run", "--model", "demo", "x"]).expect(0);
    assert!(run.out.contains("edit_file, which is not offered"), "{run:?}");
    folder.run(&["groups", "reset", "editing"]).expect(0);
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
}

#[test]
fn case_c14_a_group_switched_off_while_the_question_was_open() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    folder.run(&["groups", "disable", "editing"]).expect(0);
    let approved: Done = folder.decide("approve", &[]).expect(0);
    assert!(approved.out.contains("did not come back as a success"), "{approved:?}");
    assert!(folder.text(NOTICE).contains("71:00"), "nothing was written");
    let run = folder.newest_run();
    let events = folder.events(text(&run["id"]));
    let refused = events.iter().find(|event| event["data"]["refusal"] == "tool_disabled").unwrap();
    assert_eq!(refused["kind"], "call.finished");
    assert!(!kinds(&events[8..]).contains(&"call.started"), "{events:?}");
    folder.run(&["groups", "enable", "editing"]).expect(0);
    assert!(folder.text(NOTICE).contains("71:00"), "switching it on again revives nothing");
}

#[test]
fn rule_g8_no_tools_is_one_plain_answer() {
    let folder = Folder::new();
    let run = folder.run(&["run", "--model", "demo", "--no-tools", "x"]).expect(0);
    assert!(run.out.contains("no tools are offered"), "{run:?}");
}

#[test]
fn rule_u3_an_unattended_run_never_waits() {
    let folder = Folder::new();
    let run = folder.run(&["run", "--model", "demo", "--unattended", "x"]).expect(0);
    assert!(run.out.contains("edit_file, which is not offered"), "{run:?}");
    assert_eq!(folder.json(&["pending", "list", "--all", "--json"])["items"].as_array().unwrap().len(), 0);
}

#[test]
fn rule_u1_the_list_says_which_tools_run_unattended_and_why() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let all = folder.run(&["tools", "list"]).expect(0).out;
    let line = |list: &str, tool: &str| list.lines().find(|line| line.starts_with(tool)).map(str::to_owned);
    assert!(line(&all, "read_file").unwrap().contains("yes: it only reads"), "{all}");
    assert!(line(&all, "edit_file").unwrap().contains("no: it writes (writes)"), "{all}");
    let alone = folder.run(&["tools", "list", "--unattended"]).expect(0).out;
    assert!(line(&alone, "read_file").unwrap().contains("yes: it only reads"), "{alone}");
    assert_eq!(line(&alone, "edit_file"), None);
}

#[test]
fn the_model_of_the_environment_is_used_and_the_script_says_that_it_is_one() {
    let folder = Folder::new();
    let run = folder.command(&["run", "--json", "x"]).env("COUNTERSIGN_MODEL", "demo").output().unwrap();
    let run = Done::from(run).expect(3);
    assert!(run.err.contains("demo/tour (a script, not a model) | zone local"), "{run:?}");
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(value["status"], "waiting_for_approval");
}

#[test]
fn case_c09_many_approvals_at_once_are_one() {
    let folder = Folder::new();
    folder.run(&["run", "--model", "demo", "x"]).expect(3);
    let open = folder.open();
    let arguments = ["approve", text(&open["id"]), "--digest", text(&open["digest"]), "--detach"];
    let approving: Vec<_> = (0..6).map(|_| folder.command(&arguments).spawn().unwrap()).collect();
    let done: Vec<Done> =
        approving.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect();
    let approved = done.iter().filter(|done| done.exit == 0).count();
    let late = done
        .iter()
        .filter(|done| done.exit == 5 && done.err.starts_with("refused: already_decided: "))
        .count();
    assert_eq!((approved, late), (1, 5), "{done:?}");
    folder.run(&["runs", "resume", "--all"]).expect(0);
    let events = folder.events(text(&folder.newest_run()["id"]));
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "pending.decided").count(), 1);
    assert!(folder.text(NOTICE).contains("17:00"));
}
