//! A4, A10, A11, A14, R8 and L4: one turn, its questions, and what becomes of its calls.

use countersign_core::*;

use crate::world::*;

use CallVerdict::{Approve, Deny};
use ResultKind::{Cancelled, Denied, Error, Expired, NotRun, Ok as Fine, Refused};

/// An open question about [page_get #a, page_drop #b].
fn read_and_write() -> Story {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", r#"{"id":7}"#), ("b", "page_drop", r#"{"id":7}"#)]).ask("1");
    story
}

fn dispatch(calls: &[&str]) -> Step {
    Step::Dispatch(calls.iter().map(|call| call_id(call)).collect())
}

fn transcript_ids(run: &Run) -> Vec<String> {
    let answered = run.transcript().filter_map(|message| match message {
        Message::Result { call, .. } => Some(short(call)),
        _ => None,
    });
    answered.collect()
}

#[test]
fn case_c01_vector_ta07_a_read_and_a_write_wait_together_and_run_in_order() {
    let mut story = read_and_write();
    let open = story.run.open_pending().unwrap();
    assert_eq!(open.pending.calls.iter().map(|call| short(&call.id)).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(story.run.next(), Step::Park(pending_id("1")));
    assert_eq!(story.run.state(), RunState::WaitingForApproval);
    story.refuses(started("a", "page_get", Effect::Read, Clearance::NotNeeded, 1));
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
    story.approve("bob", "1");
    assert_eq!(story.run.next(), dispatch(&["a", "b"]));
    story.start("a");
    assert_eq!(story.run.next(), Step::Execute(vec![call_id("a")]));
    story.finish("a").start("b").finish("b");
    assert!(matches!(story.run.next(), Step::AskModel(Ask { closing: false, .. })));
    story.text("done");
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.kinds(), [Fine, Fine]);
    assert_eq!(transcript_ids(&story.run), ["a", "b"]);
    assert_eq!(
        (story.run.state(), story.run.output(), story.run.iterations()),
        (RunState::Completed, Some("done"), 2)
    );
}

#[test]
fn case_c02_rule_a11_vector_tr15_a_denied_turn_answers_all_of_its_calls() {
    let mut story = Story::new();
    story.calls(&[
        ("a", "mail_post", r#"{"to":"a@x.test","text":"hi"}"#),
        ("b", "page_drop", r#"{"id":3}"#),
        ("c", "page_get", r#"{"id":3}"#),
    ]);
    story.ask("1").deny("bob", "1");
    assert!(matches!(story.follow(), Step::AskModel(_)));
    assert_eq!(story.kinds(), [Denied, Denied, NotRun]);
    assert!(story.content_of("a").contains(r#""wrong page""#), "the reason is quoted as data");
    assert!(!story.content_of("c").contains("wrong page"));
    assert_eq!(transcript_ids(&story.run), ["a", "b", "c"]);
    let said = story.run.transcript().find_map(|message| match message {
        Message::Reply(reply) => Some(reply.calls.len()),
        _ => None,
    });
    assert_eq!((said, story.status("1")), (Some(3), PendingStatus::Denied));
    story.text("understood");
    assert_eq!(story.follow(), Step::Ended);
}

#[test]
fn rule_a11_with_a_word_per_call_the_others_run() {
    let mut story = Story::new();
    story.calls(&[
        ("a", "mail_post", "{}"),
        ("b", "page_drop", "{}"),
        ("c", "page_get", "{}"),
        ("d", "ghost", "{}"),
    ]);
    story.ask("1").verdicts("bob", "1", &[("a", Deny), ("b", Approve)]);
    assert_eq!(story.status("1"), PendingStatus::Approved, "some call was released");
    assert_eq!(story.follow(), dispatch(&["b", "c"]));
    story.start("b").finish("b").start("c").finish("c");
    assert_eq!(story.kinds(), [Denied, Fine, Fine, Refused]);
}

#[test]
fn rule_a11_words_that_all_deny_leave_the_reads_to_the_gate() {
    let mut story = read_and_write();
    story.verdicts("bob", "1", &[("b", Deny)]);
    assert_eq!(story.status("1"), PendingStatus::Denied);
    assert_eq!(story.follow(), dispatch(&["a"]));
    story.start("a").finish("a");
    assert_eq!(story.kinds(), [Fine, Denied]);
}

#[test]
fn rule_a11_a_closed_question_answers_the_asked_calls_and_ends_the_others() {
    for (status, kind, refusal) in
        [(Closing::Expired, Expired, None), (Closing::Void, Refused, Some(Refusal::DefinitionChanged))]
    {
        let mut story = Story::new();
        story.calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}"), ("c", "ghost", "{}")]).ask("1");
        story.tell(closed("1", status));
        assert!(matches!(story.follow(), Step::AskModel(_)), "the model goes on");
        let wanted = [("a", NotRun, None), ("b", kind, refusal), ("c", NotRun, None)];
        assert_eq!(story.results(), wanted.map(|(call, kind, refusal)| (call.to_owned(), kind, refusal)));
        story.refuses(closed("1", status));
    }
    let mut story = read_and_write();
    story.tell(closed("1", Closing::Expired)).follow();
    assert!(story.content_of("b").contains("expired") && !story.content_of("b").contains("denied"));
}

#[test]
fn case_c08_rule_a6_each_round_has_its_own_question() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", r#"{"id":1}"#)]).ask("1");
    let first = story.digest("1");
    story.approve("bob", "1").start("a").finish("a");
    story.calls(&[("b", "page_drop", r#"{"id":1}"#)]);
    assert_eq!(story.run.next(), Step::Judge);
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
    story.ask("2");
    assert_ne!(story.digest("2"), first, "the same call asked again has another digest");
    assert_eq!(story.run.state(), RunState::WaitingForApproval);
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
    story.approve("bob", "2");
    story.refuses(started("b", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
    story.start("b").finish("b").text("done");
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!((story.kinds(), story.run.iterations()), (vec![Fine, Fine], 3));
}

#[test]
fn rule_a4_nothing_can_be_asked_twice_or_about_half_a_turn() {
    let story = read_and_write();
    story.refuses(Event::PendingOpened(Box::new(story.pending("2", Question::Approval))));
    let mut fresh = Story::new();
    fresh.calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}")]);
    let mut half = fresh.pending("1", Question::Approval);
    half.calls.remove(0);
    let mut turned = fresh.pending("1", Question::Approval);
    turned.calls.reverse();
    let mut renamed = fresh.pending("1", Question::Approval);
    renamed.calls[0].tool = "clock_now".to_owned();
    let later = Pending { turn: 2, ..fresh.pending("1", Question::Approval) };
    let mut asks_nobody = fresh.pending("1", Question::Approval);
    asks_nobody.calls[1].outlook = Outlook::Runs;
    for pending in [half, turned, renamed, later, asks_nobody] {
        fresh.refuses(Event::PendingOpened(Box::new(pending)));
    }
    fresh.start("a");
    fresh.refuses(Event::PendingOpened(Box::new(fresh.pending("1", Question::Approval))));
}

#[test]
fn vector_ta08_rule_a4_approval_comes_before_input_and_inputs_one_by_one() {
    let mut story = Story::new();
    story.calls(&[
        ("a", "pick_date", "{}"),
        ("b", "page_drop", "{}"),
        ("c", "pick_date", r#"{"why":"trip"}"#),
        ("d", "page_get", "{}"),
    ]);
    let too_early = Question::Input { call: call_id("a"), schema: date_schema(), message: String::new() };
    story.refuses(Event::PendingOpened(Box::new(story.pending("1", too_early))));
    story.ask("1").approve("bob", "1");
    assert_eq!(story.run.next(), Step::OpenInput(call_id("a")));
    story.ask_input("2", "a");
    assert_eq!(
        (story.run.state(), story.run.next()),
        (RunState::WaitingForInput, Step::Park(pending_id("2")))
    );
    story.say("bob", "2", Said::Answer(args(r#"{"date":"2027-01-01"}"#)));
    assert_eq!(story.run.next(), Step::OpenInput(call_id("c")));
    // Nothing runs until all are settled: neither the approved write nor the read nor the answered call.
    story.refuses(started("a", "pick_date", Effect::Read, Clearance::Answered(pending_id("2")), 1));
    story.refuses(started("d", "page_get", Effect::Read, Clearance::NotNeeded, 1));
    story.ask_input("3", "c").say("bob", "3", Said::Answer(args("{}")));
    assert_eq!(story.run.next(), dispatch(&["a", "b", "c", "d"]));
    story.refuses(started("a", "pick_date", Effect::Read, Clearance::Answered(pending_id("3")), 1));
    story.start("a").finish("a").start("b").finish("b").start("c").start("d").finish("d").finish("c");
    assert_eq!(story.kinds(), [Fine; 4]);
    assert_eq!(
        transcript_ids(&story.run),
        ["a", "b", "c", "d"],
        "in call order, not in the order of finishing"
    );
}

#[test]
fn rule_r9_an_input_may_be_declined_and_its_siblings_run() {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}"), ("b", "page_get", "{}")]).ask_input("1", "a").deny("bob", "1");
    assert_eq!(story.follow(), dispatch(&["b"]));
    story.start("b").finish("b");
    assert_eq!(story.kinds(), [Denied, Fine]);
}

#[test]
fn rule_a10_rule_a11_an_input_that_expires_ends_its_turn() {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}"), ("b", "page_drop", "{}"), ("c", "page_get", "{}")]);
    story.ask("1").approve("bob", "1").ask_input("2", "a").tell(closed("2", Closing::Expired)).follow();
    assert_eq!(story.kinds(), [Expired, NotRun, NotRun], "the approval is not used, and it is used up");
}

#[test]
fn rule_a10_a_decision_stored_late_is_expired_in_the_fold() {
    for verdict in [Approve, Deny] {
        let mut story = Story::new();
        story.calls(&[("a", "page_drop", r#"{"id":1}"#), ("b", "page_get", "{}")]);
        story.open(Pending { expires_at: Deadline::At(at(10)), ..story.pending("1", Question::Approval) });
        let said = Said::Turn { verdict, reason: None };
        let mut in_time = story.clone();
        in_time.now = 10;
        in_time.say("bob", "1", said.clone());
        assert_ne!(in_time.status("1"), PendingStatus::Expired, "up to and including the deadline");
        // The same event, stored a second later.
        story.now = 11;
        story.tell(in_time.log.last().unwrap().event.clone());
        assert_eq!(story.status("1"), PendingStatus::Expired);
        assert!(matches!(story.follow(), Step::AskModel(_)));
        assert_eq!(story.kinds(), [Expired, NotRun]);
        assert!(!story.run.was_denied("page_drop", r#"{"id":1}"#), "expired is not denied");
    }
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", r#"{"id":1}"#)]);
    let question = Question::Input { call: call_id("a"), schema: date_schema(), message: String::new() };
    story.open(Pending { expires_at: Deadline::At(at(10)), ..story.pending("1", question) });
    let mut in_time = story.clone();
    in_time.deny("bob", "1");
    assert!(in_time.run.was_denied("pick_date", r#"{"id":1}"#));
    story.now = 11;
    story.tell(in_time.log.last().unwrap().event.clone()).follow();
    assert_eq!((story.kinds(), story.run.was_denied("pick_date", r#"{"id":1}"#)), (vec![Expired], false));
}

#[test]
fn rule_a10_an_unreadable_deadline_releases_nothing() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}")]).ask("0");
    let decided = {
        let mut other = story.clone();
        other.approve("bob", "0");
        let Event::PendingDecided(decided) = other.log.last().unwrap().event.clone() else {
            panic!("a decision")
        };
        decided.decided
    };
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}")]);
    story.open(Pending { expires_at: Deadline::Unreadable, ..story.pending("1", Question::Approval) });
    story
        .tell(Event::PendingDecided(Box::new(PendingDecided { pending: pending_id("1"), decided })))
        .follow();
    assert_eq!(story.kinds(), [Expired]);
}

#[test]
fn rule_a9_a_decision_that_contradicts_itself_is_no_decision() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}"), ("b", "mail_post", "{}"), ("c", "page_get", "{}")]).ask("1");
    let decided = |verdict, form, a, b| Decided {
        by: subject("bob"),
        verdict,
        form,
        calls: words_on(&[("a", a), ("b", b)]),
        reason: None,
        attribution: Attribution::SecondPerson,
        answer: None,
        result: None,
    };
    let event =
        |decided| Event::PendingDecided(Box::new(PendingDecided { pending: pending_id("1"), decided }));
    for (verdict, form, a, b) in [
        (VerdictWord::Deny, Form::Turn, Approve, Approve),
        (VerdictWord::Deny, Form::Calls, Approve, Deny),
        (VerdictWord::Approve, Form::Turn, Approve, Deny),
        (VerdictWord::Approve, Form::Calls, Deny, Deny),
        (VerdictWord::Mixed, Form::Calls, Approve, Approve),
        (VerdictWord::Mixed, Form::Turn, Approve, Deny),
        (VerdictWord::Answer, Form::Turn, Approve, Approve),
        (VerdictWord::Happened, Form::Turn, Approve, Approve),
    ] {
        story.refuses(event(decided(verdict, form, a, b)));
    }
    let mut too_few = decided(VerdictWord::Approve, Form::Turn, Approve, Approve);
    too_few.calls.pop_last();
    let mut too_many = decided(VerdictWord::Approve, Form::Turn, Approve, Approve);
    too_many.calls.insert(call_id("c"), Approve);
    story.refuses(event(too_few)).refuses(event(too_many));
    story.tell(event(decided(VerdictWord::Mixed, Form::Calls, Approve, Deny)));
}

#[test]
fn case_c14_vector_tr14_rule_a12_a_gate_that_closed_meanwhile_has_the_last_word() {
    let mut story = read_and_write();
    story.approve("bob", "1").start("a").finish("a");
    let refused = CallResult::refused(Refusal::ToolDisabled, "page_drop", None);
    story.tell(story.result("b", refused));
    assert_eq!(story.status("1"), PendingStatus::Approved, "the decision stays on record");
    assert_eq!(story.kinds(), [Fine, Refused]);
    assert!(!story.content_of("b").contains("switched off"), "the reason is not for the model");
    // Switching the tool on again revives nothing: the approval went with its call.
    story.calls(&[("c", "page_drop", r#"{"id":7}"#)]);
    story.refuses(started("c", "page_drop", Effect::Write, Clearance::Approved(pending_id("1")), 1));
}

#[test]
fn case_c33_two_calls_of_one_wire_id_are_two_calls() {
    let mut answer = reply(None, &[("a", "page_drop", r#"{"id":1}"#), ("b", "page_drop", r#"{"id":2}"#)]);
    for call in &mut answer.calls {
        call.wire_id = Some("x".to_owned());
    }
    let mut story = Story::new();
    story.tell(replied(answer)).ask("1");
    let shown: Vec<_> =
        story.run.open_pending().unwrap().pending.asked().map(|call| short(&call.id)).collect();
    assert_eq!(shown, ["a", "b"]);
    story.approve("bob", "1").start("a").finish("a").start("b").finish("b");
    assert_eq!(story.results().len(), 2);
    let mut ids = WireIds::new(ProviderName::parse("p").unwrap());
    let turn = story.run.history().next().unwrap();
    assert_eq!(ids.assign(turn.reply()), ["x", "c00000020"], "the second gets an id of ours");
}

#[test]
fn rule_r4_our_ids_never_repeat_in_a_run() {
    let mut story = Story::new();
    story.refuses(replied(reply(None, &[("a", "page_get", "{}"), ("a", "page_get", "{}")])));
    story.calls(&[("a", "page_get", "{}")]).start("a").finish("a");
    story.refuses(replied(reply(None, &[("b", "page_get", "{}"), ("a", "page_get", "{}")])));
    story.calls(&[("b", "page_get", "{}")]);
}

#[test]
fn rule_l4_calls_start_in_order_and_a_write_is_a_barrier() {
    let mut story = Story::new();
    story.calls(&[
        ("a", "page_get", "{}"),
        ("b", "clock_now", "{}"),
        ("c", "crm__find", "{}"),
        ("d", "page_get", "{}"),
        ("e", "page_get", "{}"),
    ]);
    assert_eq!(story.run.next(), Step::Judge);
    story.refuses(story.starting("c")).refuses(story.starting("b"));
    story.start("a").start("b");
    assert_eq!(story.run.next(), Step::Execute(vec![call_id("a"), call_id("b")]), "reads side by side");
    story.refuses(story.starting("c")).refuses(story.starting("d"));
    story.finish("b");
    story.refuses(story.starting("c"));
    story.finish("a");
    story.refuses(story.starting("d"));
    story.start("c");
    story.refuses(story.starting("d"));
    story.finish("c").start("d").start("e").finish("e").finish("d");
    assert_eq!(story.kinds(), [Fine; 5]);
}

#[test]
fn rule_a14_an_edit_replaces_the_question_and_the_result_says_so() {
    let mut story = read_and_write();
    let mut edited = story.pending("2", Question::Approval);
    edited.replaces = Some(pending_id("1"));
    edited.editors = vec![subject("bob")];
    edited.calls[1].original_arguments = edited.calls[1].arguments.replace(args(r#"{"id":8}"#));
    let event = |pending: &Pending| Event::PendingEdited(Box::new(pending.clone()));
    let mut other_tool = edited.clone();
    other_tool.calls[1].tool = "mail_post".to_owned();
    let mut asks_nobody = edited.clone();
    asks_nobody.calls[1].outlook = Outlook::Runs;
    for wrong in [
        Pending { expires_at: Deadline::At(at(1000)), ..edited.clone() },
        Pending { editors: Vec::new(), ..edited.clone() },
        Pending { editors: vec![subject("bob"), subject("root")], ..edited.clone() },
        Pending { replaces: None, ..edited.clone() },
        Pending { replaces: Some(pending_id("9")), ..edited.clone() },
        Pending { id: pending_id("1"), ..edited.clone() },
        other_tool,
        asks_nobody,
    ] {
        story.refuses(event(&wrong));
    }
    let old = story.digest("1");
    story.tell(event(&edited));
    assert_eq!((story.status("1"), story.status("2")), (PendingStatus::Superseded, PendingStatus::Open));
    assert_ne!(story.digest("2"), old);
    assert_eq!(story.run.held(&call_id("b")).unwrap().arguments, Some(args(r#"{"id":8}"#)));
    story.approve("root", "2").start("a").finish("a").start("b").finish("b");
    let said: Vec<String> = story
        .run
        .transcript()
        .filter_map(|message| match message {
            Message::Result { content, .. } => Some(content.into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(said[0], "result of a");
    assert!(
        said[1].contains("A person changed the arguments") && said[1].contains(r#"{"id":8}"#),
        "{}",
        said[1]
    );
    let proposed = story.run.history().next().unwrap().reply().calls[1].arguments.clone();
    assert_eq!(proposed.as_deref(), Some(r#"{"id":7}"#), "the model's message is as it was");
}

#[test]
fn rule_r8_a_cancel_withdraws_the_question_and_ends_the_run_at_once() {
    let mut story = read_and_write();
    story.refuses(closed("1", Closing::Withdrawn));
    let events = story.run.cancellation(&subject("alice"), at(0)).unwrap();
    story.tell_all(events);
    assert_eq!((story.run.state(), story.status("1")), (RunState::Cancelled, PendingStatus::Withdrawn));
    assert_eq!(story.kinds(), [Cancelled, Cancelled]);
    assert_eq!(story.run.next(), Step::Ended);
    assert!(story.run.cancellation(&subject("alice"), at(0)).is_err());
    story.refuses(replied(reply(Some("late"), &[])));
}

#[test]
fn rule_r8_a_cancel_stops_reads_and_awaits_a_write() {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}"), ("b", "page_get", "{}")]).start("a");
    story.tell_all(story.run.cancellation(&subject("alice"), at(0)).unwrap());
    assert_eq!((story.run.state(), story.kinds()), (RunState::Cancelled, vec![Cancelled, Cancelled]));

    let mut story = read_and_write();
    story.approve("bob", "1").start("a").finish("a").start("b");
    story.tell_all(story.run.cancellation(&subject("alice"), at(0)).unwrap());
    assert_eq!(story.run.next(), Step::Execute(vec![call_id("b")]));
    story.refuses(Event::RunCancelled(RunCancelled { by: subject("alice") }));
    story.refuses(story.result("b", CallResult::not_from_tool(Cancelled, "no")));
    story.finish("b");
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.kinds(), [Fine, Fine]);
}

#[test]
fn rule_r8_a_cancel_stored_before_the_start_prevents_it() {
    let mut story = read_and_write();
    story.approve("bob", "1").tell(cancel("alice"));
    story.refuses(started("a", "page_get", Effect::Read, Clearance::NotNeeded, 1));
    story.refuses(cancel("bob"));
    story.refuses(Event::RunCancelled(RunCancelled { by: subject("bob") }));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.end(), Some(&End::Cancelled { by: subject("alice"), at: at(0) }));
}

#[test]
fn rule_a11_a_result_fits_the_stage_of_its_call_and_comes_once() {
    let mut story = read_and_write();
    for kind in [Fine, Error, Refused, Denied, Cancelled] {
        story.refuses(story.result("b", CallResult::not_from_tool(kind, "no")));
    }
    story.approve("bob", "1");
    for kind in [Fine, Error, Denied, Expired, NotRun, Cancelled] {
        story.refuses(story.result("b", CallResult::not_from_tool(kind, "no")));
    }
    story.start("a").finish("a");
    story.refuses(story.result("a", CallResult::not_from_tool(Fine, "again"))).refuses(story.starting("a"));
    story.start("b");
    for kind in [Denied, Expired, NotRun, Refused, Cancelled] {
        story.refuses(story.result("b", CallResult::not_from_tool(kind, "no")));
    }
}
