//! R3 and R11: lost workers, unknown outcomes and their settling; U3: runs that never wait.

use countersign_core::*;

use crate::world::*;

use ResultKind::{Error, NotRun, Ok as Fine};

fn restarted(
    call: &str,
    tool: &str,
    effect: Effect,
    clearance: Clearance,
    attempt: u32,
    interruption: u32,
) -> Event {
    let Event::CallStarted(start) = started(call, tool, effect, clearance, attempt) else {
        panic!("a start")
    };
    Event::CallStarted(CallStarted { interruption, ..start })
}

/// [page_get #a, page_drop #b, page_get #c], approved, and the write's worker was lost.
fn lost_write() -> Story {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}"), ("c", "page_get", "{}")]).ask("1");
    story.approve("bob", "1").start("a").finish("a").start("b").tell(unknown("b", "page_drop"));
    story
}

fn settle_it(story: &mut Story, outcome: SettledOutcome, result: Option<&str>) {
    story.now = 100;
    story.say("bob", "2", Said::Settle { outcome, result: result.map(str::to_owned) });
}

#[test]
fn case_c05_vector_tq07_rule_r3_a_lost_write_becomes_unknown_and_never_runs_again() {
    let mut story = lost_write();
    assert_eq!(story.follow(), Step::OpenResolution(call_id("b")), "the rest of the turn is not run");
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 2));
    story.refuses(started("c", "page_get", Effect::Read, Clearance::NotNeeded, 1));
    story.refuses(story.result("b", CallResult::from_tool(Fine, "surely", vec![], 1)));
    story.refuses(unknown("b", "page_drop"));
    story.ask_outcome("2", "b");
    assert_eq!(
        (story.run.state(), story.run.next()),
        (RunState::NeedsResolution, Step::Park(pending_id("2")))
    );
    story.refuses(closed("2", Closing::Expired)).refuses(closed("2", Closing::Void));
    settle_it(&mut story, SettledOutcome::Happened, Some("page 7 is gone"));
    assert!(matches!(story.follow(), Step::AskModel(_)));
    assert_eq!(
        (story.kinds(), story.content_of("b")),
        (vec![Fine, Fine, NotRun], "page 7 is gone".to_owned())
    );
    assert_eq!(story.status("2"), PendingStatus::Settled);
}

#[test]
fn rule_r3_a_running_write_is_not_started_again() {
    let mut story = Story::new();
    story.calls(&[("b", "page_drop", "{}")]).ask("1").approve("bob", "1").start("b");
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 2));
    story.refuses(started("b", "page_drop", Effect::Read, Clearance::Approved(pending_id("1")), 2));
    assert_eq!(story.run.next(), Step::Execute(vec![call_id("b")]));
    story.refuses(failed(FailCode::AgentGone));
}

#[test]
fn vector_tq08_rule_r3_a_read_and_an_idempotent_write_run_again_each_attempt_after_its_own_start() {
    for (tool, effect) in [("page_get", Effect::Read), ("page_save", Effect::IdempotentWrite)] {
        let mut story = Story::new();
        story.calls(&[("a", tool, "{}")]);
        if effect.writes() {
            story.ask("1").approve("bob", "1");
        }
        let Event::CallStarted(CallStarted { clearance, .. }) = story.starting("a") else {
            panic!("a start")
        };
        story.start("a");
        for wrong in [
            restarted("a", tool, effect, clearance.clone(), 1, 1),
            restarted("a", tool, effect, clearance.clone(), 3, 1),
            restarted("a", tool, effect, clearance.clone(), 2, 2),
            restarted("a", tool, Effect::Write, clearance.clone(), 2, 1),
            restarted("a", tool, effect, Clearance::Approved(pending_id("9")), 2, 1),
        ] {
            story.refuses(wrong);
        }
        story.tell(restarted("a", tool, effect, clearance, 2, 1));
        assert_eq!(story.run.interruptions(), 1);
        story.finish("a");
        assert_eq!(story.kinds(), [Fine]);
    }
}

#[test]
fn rule_r3_a_run_whose_reads_took_three_workers_is_poisoned() {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}"), ("b", "page_get", "{}")]).start("a").start("b");
    for lost in 1..=2 {
        assert!(!story.run.is_poisoned());
        // Two reads of one lost worker are one interruption.
        story.tell(restarted("a", "page_get", Effect::Read, Clearance::NotNeeded, lost + 1, lost));
        story.tell(restarted("b", "page_get", Effect::Read, Clearance::NotNeeded, lost + 1, lost));
        assert_eq!(story.run.interruptions(), lost);
    }
    assert!(story.run.is_poisoned());
    story.tell(failed(FailCode::Poisoned));
    assert_eq!((story.run.state(), story.run.row().failure.as_deref()), (RunState::Failed, Some("poisoned")));
}

#[test]
fn rule_r3_a_read_never_becomes_unknown() {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}")]);
    story.refuses(unknown("a", "page_get"));
    story.start("a");
    story.refuses(unknown("a", "page_get"));
}

#[test]
fn rule_r3_what_promises_something_to_the_world_waits_for_the_disk() {
    let mut story = Story::new();
    let durability =
        |story: &Story, event: Event| story.run.record(vec![event], at(0)).unwrap().1.durability();
    let created = Run::create(run_id(), created(), Vec::new(), at(0)).unwrap().1;
    assert_eq!(created.durability(), Durability::Disk);
    let answer = replied(reply(None, &[("a", "page_get", "{}"), ("b", "page_drop", "{}")]));
    assert_eq!(durability(&story, answer.clone()), Durability::Process);
    story.tell(answer);
    let opened = Event::PendingOpened(Box::new(story.pending("1", Question::Approval)));
    assert_eq!(durability(&story, opened.clone()), Durability::Disk);
    story.tell(opened).approve("bob", "1");
    assert_eq!(story.log.last().unwrap().event.durability(), Durability::Disk);
    assert_eq!(durability(&story, story.starting("a")), Durability::Process);
    story.start("a");
    let result = story.result("a", CallResult::from_tool(Fine, "x", vec![], 1));
    assert_eq!(durability(&story, result.clone()), Durability::Process);
    story.tell(result);
    assert_eq!(durability(&story, story.starting("b")), Durability::Disk);
    story.start("b");
    assert_eq!(durability(&story, unknown("b", "page_drop")), Durability::Disk);
    let result = story.result("b", CallResult::from_tool(Fine, "x", vec![], 1));
    assert_eq!(durability(&story, result.clone()), Durability::Disk);
    story.tell(result);
    assert_eq!(durability(&story, cancel("alice")), Durability::Disk);
    story.text("done");
    assert_eq!(durability(&story, completed(None)), Durability::Disk);
}

#[test]
fn rule_r11_did_not_happen_is_an_error_and_uses_the_approval_up() {
    let mut story = lost_write();
    story.follow();
    story.ask_outcome("2", "b");
    settle_it(&mut story, SettledOutcome::DidNotHappen, None);
    assert!(matches!(story.follow(), Step::AskModel(_)));
    assert_eq!(story.kinds(), [Fine, Error, NotRun]);
    story.calls(&[("d", "page_drop", "{}")]);
    story.refuses(started("d", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
}

#[test]
fn rule_r11_giving_up_ends_the_run() {
    let mut story = lost_write();
    story.follow();
    story.ask_outcome("2", "b");
    settle_it(&mut story, SettledOutcome::GiveUp, None);
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.end(), Some(&End::Failed { code: FailCode::OutcomeUnknown, at: at(100) }));
}

#[test]
fn rule_r8_an_unknown_call_stays_unknown_when_its_run_is_cancelled() {
    let mut story = lost_write();
    story.follow();
    story.ask_outcome("2", "b");
    story.tell_all(story.run.cancellation(&subject("alice"), at(0)).unwrap());
    assert_eq!((story.run.state(), story.status("2")), (RunState::Cancelled, PendingStatus::Withdrawn));
    let stage = story.run.turn().unwrap().call(&call_id("b")).unwrap().stage.clone();
    assert_eq!(stage, Stage::Unknown { deadline: at(100) });
}

#[test]
fn rule_u3_an_unattended_run_ends_where_another_would_ask() {
    let mut story = Story::of(Created { unattended: true, ..created() });
    story
        .calls(&[("a", "crm__find", "{}"), ("b", "page_get", "{}")])
        .start("a")
        .tell(unknown("a", "crm__find"));
    let question = Question::Resolution { call: call_id("a"), not_before: at(100) };
    story.refuses(Event::PendingOpened(Box::new(story.pending("1", question))));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.row().failure.as_deref(), Some("outcome_unknown"));
}

#[test]
fn rule_u3_case_c43_an_unattended_run_opens_no_question_and_hurts_no_sibling() {
    let mut story = Story::of(Created { unattended: true, ..created() });
    story.calls(&[("a", "page_drop", "{}"), ("b", "page_get", "{}"), ("c", "pick_date", "{}")]);
    let question = Question::Input { call: call_id("c"), schema: date_schema(), message: String::new() };
    story.refuses(Event::PendingOpened(Box::new(story.pending("1", Question::Approval))));
    let mut only_input = story.pending("1", question);
    only_input.calls[0].outlook = Outlook::Refused(Refusal::NeedsPerson);
    story.refuses(Event::PendingOpened(Box::new(only_input)));
    let refused = |tool| CallResult::refused(Refusal::NeedsPerson, tool, None);
    story.tell(story.result("a", refused("page_drop"))).start("b").finish("b");
    story.tell(story.result("c", refused("pick_date")));
    let wanted = [("a", Some(Refusal::NeedsPerson)), ("b", None), ("c", Some(Refusal::NeedsPerson))];
    let got: Vec<_> = story.results().into_iter().map(|(call, _, refusal)| (call, refusal)).collect();
    assert_eq!(got, wanted.map(|(call, refusal)| (call.to_owned(), refusal)));
    assert!(story.content_of("a").contains("not available here"));
}
