use countersign::{
    Arguments, Because, Created, Deadline, Effect, Event, Finish, HeldCall, HeldFacts, InputMessage,
    InputRole, ModelRef, ModelReplied, Opaque, Origin, Outlook, Pending, Preview, ProposedCall, Question,
    Reply, RunLimits, ToolRequest, Usage,
};
use jiff::Timestamp;

use super::*;

const VIEW: View = View { admin: true, listed: false };

/// A run that waits for the approval of one call with these arguments and this preview.
fn waiting(tool: &str, arguments: &str, preview: &[&str]) -> Run {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let call: countersign::CallId = "call_1".parse().unwrap();
    let created = Created {
        agent: "default".parse().unwrap(),
        owner: "alice".parse().unwrap(),
        starter: "alice".parse().unwrap(),
        unattended: false,
        tools: ToolRequest::AllEnabled,
        models: vec![ModelRef::parse("stub/scripted").unwrap()],
        system_prompt: None,
        input: vec![InputMessage { role: InputRole::User, text: "Tidy up\nthe pages".into() }],
        limits: RunLimits::iterations(20),
        approval_ttl_s: None,
        second_approver: false,
        continues: None,
        skills: Vec::new(),
        trace: None,
    };
    let reply = Reply {
        provider: "stub".parse().unwrap(),
        model: "scripted".into(),
        text: None,
        calls: vec![ProposedCall {
            id: call.clone(),
            wire_id: None,
            name: tool.into(),
            arguments: Some(arguments.into()),
            opaque: Opaque::default(),
        }],
        finish: Finish::Stop,
        usage: Usage::default(),
        attempts: 1,
        opaque: Opaque::default(),
    };
    let pending = Pending {
        id: "pnd_1".parse().unwrap(),
        turn: 1,
        question: Question::Approval,
        calls: vec![HeldCall {
            id: call,
            tool: tool.into(),
            facts: Some(HeldFacts {
                group: "content".parse().unwrap(),
                origin: Origin::Builtin,
                effect: Effect::Write,
                requires_admin: false,
                definition: countersign::Digest::parse(&format!("sha256:{}", "a".repeat(64))).unwrap(),
            }),
            arguments: Some(Arguments::read(Some(arguments)).unwrap()),
            original_arguments: None,
            outlook: Outlook::NeedsApproval(Because::Writes),
            preview: Some(Preview::of(preview.iter().map(|line| (*line).to_owned()), None)),
        }],
        expires_at: Deadline::Never,
        editors: Vec::new(),
        replaces: None,
        trace: None,
    };
    let replied = Event::ModelReplied(Box::new(ModelReplied { reply: reply.into(), closing: false }));
    let (run, _) = Run::create("run_1".parse().unwrap(), created, vec![replied], at).unwrap();
    run.record(vec![Event::PendingOpened(Box::new(pending))], at).unwrap().0
}

fn shown(run: &Run) -> String {
    question(run.open_pending().unwrap(), run, &Now::default(), VIEW, Style::plain())
}

#[test]
fn a_question_names_who_what_and_why() {
    let run = waiting("page_drop", "{\"id\":7}", &["-page 7"]);
    let text = shown(&run);
    for part in [
        "A person must approve  pnd_1",
        "run      run_1, turn 1",
        "agent    default",
        "owner    alice",
        "task     Tidy up\\nthe pages",
        "expires  never",
        "1. page_drop  call_1",
        "group content · effect write · origin builtin",
        "NEEDS APPROVAL: it writes (writes)",
        "     id = 7",
        "     │ -page 7",
        "digest   sha256:",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let record = run.open_pending().unwrap();
    let commands = commands(record, &run, &Now::default(), &|rest| format!("countersign {rest}"));
    assert!(commands[0].starts_with("countersign approve pnd_1 --digest sha256:"));
    assert!(commands[1].starts_with("countersign deny pnd_1 --digest sha256:"));
}

#[test]
fn case_c56_nothing_of_a_model_reaches_the_terminal_raw() {
    let arguments = format!(
        "{{\"to\":\"a\u{202e}b\u{200b}\",\"cmd\":\"rm{} --all\",\"long\":\"{}the end\",\"nl\":\"x\\nA person must approve\"}}",
        " ".repeat(200_000),
        "y".repeat(200_000)
    );
    let run = waiting(
        "\u{1b}[2Jpage\nrun",
        &arguments,
        &["+\u{1b}[31mred\u{202e}", "first\nA person must approve"],
    );
    let text = shown(&run);
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{text}");
    assert!(text.contains("\\u{1b}[2Jpage\\nrun"), "the name of the tool is escaped");
    assert!(text.contains("a\\u{202e}b\\u{200b}"));
    assert!(text.contains("rm [… 200001 blanks …] --all"));
    assert!(text.contains("characters …]") && text.contains("the end\""), "the end is visible");
    assert!(text.contains("characters that cannot be shown as they are"), "and it says so");
    let ours = text.lines().filter(|line| line.trim_start().starts_with("A person must approve")).count();
    assert_eq!(ours, 1, "nothing foreign begins a line of its own:\n{text}");
}
