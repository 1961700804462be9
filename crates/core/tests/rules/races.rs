//! Who comes second: a second decision, a cancel against a decision, an event of a worker that lost its run.

use countersign_core::*;

use crate::world::*;

/// [page_get #a, page_drop #b], asked about.
fn asked() -> Story {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}")]).ask("1");
    story
}

/// The event that stores what somebody says now.
fn decision(story: &Story, by: &str, verdict: CallVerdict) -> Event {
    let mut other = story.clone();
    other.say(by, "1", Said::Turn { verdict, reason: None });
    other.log.last().unwrap().event.clone()
}

#[test]
fn vector_tr02_rule_a9_of_two_decisions_one_is_effective() {
    use CallVerdict::{Approve, Deny};
    for (first, second) in [(Approve, Approve), (Approve, Deny), (Deny, Approve), (Deny, Deny)] {
        let mut story = asked();
        // Both were judged on the same revision; the second cannot be stored, wherever it is tried again.
        let (one, other) = (decision(&story, "bob", first), decision(&story, "root", second));
        let stale = story.entry(other.clone());
        story.tell(one).refuses(other.clone());
        assert!(story.run.apply(&stale).is_err(), "nor under the old revision");
        let by =
            story.run.pending(&pending_id("1")).unwrap().decided.as_ref().map(|decided| decided.by.clone());
        assert_eq!(by, Some(subject("bob")));
        story.follow();
        story.refuses(other);
    }
}

#[test]
fn rule_a8_rule_r8_of_a_decision_and_a_cancel_the_first_counts() {
    let mut story = asked();
    let late = decision(&story, "bob", CallVerdict::Approve);
    story.tell_all(story.run.cancellation(&subject("alice"), at(0)).unwrap());
    story.refuses(late);
    let mut story = asked();
    story.approve("bob", "1");
    story.tell_all(story.run.cancellation(&subject("alice"), at(0)).unwrap());
    assert_eq!((story.status("1"), story.run.state()), (PendingStatus::Approved, RunState::Cancelled));
    assert_eq!(story.kinds(), [ResultKind::Cancelled; 2]);
}

#[test]
fn vector_tq04_a_cancelled_run_is_not_suspended_any_more() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}")]);
    let question = Event::PendingOpened(Box::new(story.pending("1", Question::Approval)));
    story.tell(cancel("alice")).refuses(question);
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.state(), RunState::Cancelled);
}

#[test]
fn vector_tq05_what_has_ended_does_not_end_again() {
    let mut story = Story::new();
    story.text("done").follow();
    for event in
        [completed(None), failed(FailCode::AgentGone), cancel("alice"), replied(reply(Some("more"), &[]))]
    {
        story.refuses(event);
    }
    assert_eq!(story.run.row().state, RunState::Completed);
}

#[test]
fn rule_a9_an_attempt_on_an_ended_run_is_still_recorded() {
    let mut story = asked();
    story.deny("bob", "1").follow();
    story.text("ok").follow();
    let attempt = |name| {
        Event::PendingRefused(PendingRefused {
            pending: pending_id(name),
            by: subject("sue"),
            code: "stale_digest".into(),
        })
    };
    let before = (story.run.row().state, story.run.end().cloned());
    story.refuses(attempt("9"));
    story.tell(attempt("1"));
    assert_eq!((story.run.row().state, story.run.end().cloned()), before);
}

#[test]
fn rule_r6_a_worker_that_lost_its_run_stores_nothing() {
    let mut story = asked();
    story.approve("bob", "1");
    // Two workers fold the same log; one of them appends first.
    let slow = story.entry(story.starting("a"));
    story.start("a");
    assert!(story.run.apply(&slow).is_err());
    let result = story.result("a", CallResult::from_tool(ResultKind::Ok, "x", vec![], 1));
    story.tell(result.clone()).refuses(result);
    // In a batch of which one event does not fit, none is taken.
    let batch = vec![story.starting("b"), story.starting("b")];
    assert!(story.run.record(batch, at(0)).is_err());
    assert_eq!(story.run.turn().unwrap().call(&call_id("b")).unwrap().stage.clone(), {
        Stage::Cleared(Clearance::Approved(pending_id("1")))
    });
}

#[test]
fn vector_tl15_rule_l4_what_is_for_people_never_reaches_the_model() {
    let mut story = Story::new();
    let artifact = Artifact { kind: ArtifactKind::Text, label: "l".to_owned(), data: "for people".into() };
    story.calls(&[("a", "page_get", "{}")]).start("a");
    let result = CallResult::from_tool(ResultKind::Ok, "for the model", vec![artifact], 1);
    story.tell(story.result("a", result));
    let shown: Vec<String> = story.run.transcript().map(|message| format!("{message:?}")).collect();
    assert!(shown.iter().any(|message| message.contains("for the model")));
    assert!(!shown.iter().any(|message| message.contains("for people")));
}

#[test]
fn vector_tr16_rule_r7_resuming_restores_and_assembles_nothing() {
    let original =
        Created { tools: ToolRequest::Only(vec!["page_get".into(), "page_drop".into()]), ..created() };
    let mut story = Story::of(original.clone());
    story.calls(&[("a", "page_drop", "{}")]).ask("1");
    let resumed = Run::fold(run_id(), &story.log).unwrap();
    assert_eq!(resumed.created(), &original);
    assert_eq!((resumed.next(), resumed.revision()), (Step::Park(pending_id("1")), 3));
}

#[test]
fn vector_tq18_the_sequence_goes_on_without_gaps_or_doubles() {
    let mut story = asked();
    story.approve("bob", "1").start("a");
    story.run = Run::fold(run_id(), &story.log).unwrap();
    story.finish("a").start("b").finish("b").text("done").follow();
    assert!(story.log.iter().map(|entry| entry.seq).eq(0..story.run.revision()));
}

#[test]
fn rule_l6_the_conversation_begins_with_its_head() {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}")]).start("a").finish("a");
    let kinds: Vec<&str> = story
        .run
        .transcript()
        .map(|message| match message {
            Message::System(_) => "system",
            Message::Input(_) => "input",
            Message::Reply(_) => "reply",
            Message::LeftOut(_) => "left out",
            Message::Result { is_error: false, .. } => "result",
            Message::Result { is_error: true, .. } => "error",
        })
        .collect();
    assert_eq!(kinds, ["system", "input", "reply", "result"]);
}
