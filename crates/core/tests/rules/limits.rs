//! L1, L5, L7, L8, L10 and R7: what is counted, over the whole run, and what a limit does.

use countersign_core::*;

use crate::world::*;

use ResultKind::{NotRun, Ok as Fine, Refused};

fn limited(iterations_max: u32, tokens_max: Option<u64>) -> Story {
    Story::of(Created {
        limits: RunLimits { tokens_max, ..RunLimits::iterations(iterations_max) },
        ..created()
    })
}

fn closing(reply: Reply) -> Event {
    Event::ModelReplied(Box::new(ModelReplied { reply: reply.into(), closing: true }))
}

fn model_failed(model: &str, code: ModelFailCode, usage: Usage) -> Event {
    Event::ModelFailed(ModelFailed {
        model: ModelRef::parse(model).unwrap(),
        code,
        status: None,
        attempts: 5,
        usage,
    })
}

/// The run wants a closing completion next, or an ordinary one.
fn asks_model(story: &Story, closing: bool) -> bool {
    matches!(story.run.next(), Step::AskModel(ask) if ask.closing == closing)
}

#[test]
fn case_c39_vector_tl08_rule_l1_the_cap_with_calls_pending() {
    // The vector lets both turns run and closes with a third answer. Rule L1 gives the calls of the turn that
    // reaches the cap their "limit reached" results: one turn runs, the second is answered.
    let mut story = limited(2, None);
    story.calls(&[("a", "page_get", "{}")]);
    assert_eq!(story.run.next(), Step::Judge);
    story.refuses(limit(Limit::MaxIterations));
    story.start("a").finish("a");
    story.calls(&[("b", "page_get", "{}"), ("c", "page_drop", "{}")]);
    assert_eq!(story.run.next(), Step::Record(vec![limit(Limit::MaxIterations)]));
    story.tell(limit(Limit::MaxIterations));
    story.refuses(limit(Limit::MaxIterations)).refuses(started(
        "b",
        "page_get",
        Effect::Read,
        Clearance::NotNeeded,
        1,
    ));
    story.follow();
    assert_eq!(story.kinds(), [Fine, NotRun, NotRun]);
    assert!(story.content_of("b").contains("limit"));
    assert!(asks_model(&story, true), "one last completion");
    story.refuses(replied(reply(Some("sum"), &[]))).refuses(completed(Some(Limit::MaxIterations)));
    // Calls in it are dropped, and it does not count.
    story.tell(closing(reply(Some("that is as far as it goes"), &[("d", "page_get", "{}")])));
    assert_eq!(story.follow(), Step::Ended);
    let row = story.run.row();
    assert_eq!((row.state, row.limit, row.iterations), (RunState::Completed, Some(Limit::MaxIterations), 2));
    assert_eq!(story.run.output(), Some("that is as far as it goes"));
    assert_eq!(story.results().len(), 3);
    let answered = story.run.transcript().filter(|message| matches!(message, Message::Result { .. })).count();
    assert_eq!(answered, 3, "every call that was kept has its answer, so the conversation can go on");
}

#[test]
fn rule_l1_a_limit_that_is_not_reached_is_not_taken() {
    let mut story = limited(2, Some(1000));
    for which in [Limit::MaxIterations, Limit::BudgetExhausted, Limit::RepeatedDenials, Limit::CutOff] {
        story.refuses(limit(which));
    }
    story.calls(&[("a", "page_get", "{}")]).refuses(limit(Limit::BudgetExhausted));
    story.refuses(completed(Some(Limit::MaxIterations))).refuses(completed(None));
}

#[test]
fn rule_l1_an_answer_at_the_cap_is_an_answer() {
    let mut story = limited(1, None);
    story.text("done");
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.row().limit, None);
}

#[test]
fn rule_l1_without_a_closing_answer_the_run_ends_at_its_limit_all_the_same() {
    let mut story = limited(1, None);
    story.calls(&[("a", "page_get", "{}")]).follow();
    assert!(asks_model(&story, true));
    for model in ["p/m", "q/n"] {
        story.tell(model_failed(model, ModelFailCode::ServerError, Usage::default()));
    }
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!((story.run.row().limit, story.run.output()), (Some(Limit::MaxIterations), None));
}

#[test]
fn rule_r7_vector_tr17_iterations_count_over_all_pauses() {
    let mut story = limited(3, None);
    for (round, call) in ["a", "b"].into_iter().enumerate() {
        let name = round.to_string();
        story.calls(&[(call, "page_drop", "{}")]).ask(&name).approve("bob", &name).start(call).finish(call);
        // Read back from its log, as another worker does.
        story.run = Run::fold(run_id(), &story.log).unwrap();
    }
    story.calls(&[("c", "page_drop", "{}")]);
    assert_eq!(
        story.run.next(),
        Step::Record(vec![limit(Limit::MaxIterations)]),
        "no fourth answer, and no question"
    );
    assert_eq!(story.run.iterations(), 3);
}

#[test]
fn case_c59_usage_is_added_up_over_pauses_and_failures() {
    let mut story = Story::new();
    let spent = |usage, calls: &[(&str, &str, &str)]| replied(Reply { usage, ..reply(None, calls) });
    story.tell(spent(usage(100, 10, 40), &[("a", "page_drop", "{}")])).ask("1");
    assert_eq!(story.run.usage(), usage(100, 10, 40), "while it waits");
    story.run = Run::fold(run_id(), &story.log).unwrap();
    story.approve("bob", "1").start("a").finish("a");
    story.tell(spent(usage(180, 20, 100), &[("b", "page_get", "{}")])).start("b").finish("b");
    let one_unknown = Usage { unknown_calls: 1, ..Usage::default() };
    story.tell(model_failed("p/m", ModelFailCode::RateLimited, one_unknown));
    story.tell(replied(Reply { usage: usage(200, 5, 0), ..reply(Some("done"), &[]) }));
    assert_eq!(story.follow(), Step::Ended);
    let total = Usage { unknown_calls: 1, ..usage(480, 35, 140) };
    assert_eq!((story.run.usage(), story.run.row().usage, story.run.iterations()), (total, total, 3));
    assert_eq!(Run::fold(run_id(), &story.log).unwrap().usage(), total);
}

#[test]
fn rule_l5_the_closing_answer_and_failed_runs_are_counted_too() {
    let mut story = limited(1, None);
    story.calls(&[("a", "page_get", "{}")]).follow();
    story.tell(closing(Reply { usage: usage(7, 8, 9), ..reply(Some("bye"), &[]) }));
    assert_eq!(story.run.usage(), usage(8, 9, 9));
    let mut story = Story::new();
    story.tell(model_failed("p/m", ModelFailCode::ServerError, usage(5, 0, 0)));
    story.tell(model_failed("q/n", ModelFailCode::Refused, usage(6, 1, 0)));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.usage(), usage(11, 1, 0));
    assert_eq!(story.run.row().failure.as_deref(), Some("model_refused"), "the last failure is the reason");
}

#[test]
fn vector_tl09_rule_l5_a_spent_budget_ends_the_run_without_a_closing_answer() {
    for (spent, calls, over) in
        [(usage(60, 39, 60), true, false), (usage(60, 40, 0), true, true), (usage(100, 50, 0), false, false)]
    {
        let mut story = limited(20, Some(100));
        let kept: &[(&str, &str, &str)] = if calls { &[("a", "page_get", "{}")] } else { &[] };
        story.tell(replied(Reply { usage: spent, ..reply(Some("text"), kept) }));
        if over {
            assert_eq!(story.follow(), Step::Ended);
            assert_eq!(
                story.run.end(),
                Some(&End::Completed { limit: Some(Limit::BudgetExhausted), at: at(0) })
            );
            assert_eq!((story.kinds(), story.run.output()), (vec![NotRun], None));
        } else if calls {
            assert_eq!(story.run.next(), Step::Judge);
        } else {
            assert_eq!((story.follow(), story.run.row().limit), (Step::Ended, None), "it has answered");
        }
    }
}

#[test]
fn rule_l7_a_fallback_takes_over_and_the_next_request_begins_with_the_first() {
    let asked = |story: &Story| match story.run.next() {
        Step::AskModel(ask) => ask.model.to_string(),
        other => format!("{other:?}"),
    };
    let mut story = Story::new();
    assert_eq!(asked(&story), "p/m");
    story.refuses(model_failed("q/n", ModelFailCode::Unreachable, Usage::default()));
    story.tell(model_failed("p/m", ModelFailCode::Unreachable, Usage::default()));
    assert_eq!(asked(&story), "q/n");
    story.calls(&[("a", "page_get", "{}")]).start("a").finish("a");
    assert_eq!(asked(&story), "p/m");
}

fn cut(text: Option<&str>, calls: &[(&str, &str, &str)]) -> Event {
    replied(Reply { finish: Finish::Length, ..reply(text, calls) })
}

#[test]
fn case_c31_rule_l8_a_turn_that_was_cut_off_runs_nothing_and_asks_nothing() {
    let mut story = Story::new();
    let calls = [("a", "page_get", "{}"), ("b", "mail_post", r#"{"to":"a@x.test","text":"Dear"}"#)];
    story.tell(cut(None, &calls));
    story.refuses(Event::PendingOpened(Box::new(story.pending("1", Question::Approval))));
    story.refuses(started("a", "page_get", Effect::Read, Clearance::NotNeeded, 1));
    assert!(matches!(story.follow(), Step::AskModel(_)));
    assert_eq!(story.kinds(), [Refused, Refused]);
    assert!(story.content_of("b").contains("cut off by the output limit"));
    story.text("ok");
    assert_eq!((story.follow(), story.run.row().limit), (Step::Ended, None));
}

#[test]
fn rule_l8_three_cut_off_turns_in_a_row_end_the_run() {
    let mut story = Story::new();
    for call in ["a", "b"] {
        story.tell(cut(None, &[(call, "page_get", "{}")])).follow();
    }
    story.calls(&[("c", "page_get", "{}")]).start("c").finish("c");
    for call in ["d", "e", "f"] {
        assert!(asks_model(&story, false), "two in a row are not three");
        story.tell(cut(None, &[(call, "page_get", "{}")])).follow();
    }
    assert_eq!(story.run.row().limit, Some(Limit::CutOff));
    assert_eq!(story.run.next(), Step::Ended, "no closing completion");
}

#[test]
fn rule_l8_a_text_that_was_cut_off_ends_the_run_as_cut_off() {
    let mut story = Story::new();
    story.tell(cut(Some("and so"), &[]));
    story.refuses(completed(None));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!((story.run.row().limit, story.run.output()), (Some(Limit::CutOff), Some("and so")));
}

/// The model repeats a call that was denied; the gate answers at once.
fn repeat(story: &mut Story, call: &str, arguments: &str) {
    story.calls(&[(call, "page_drop", arguments)]);
    assert!(story.run.was_denied("page_drop", &args(arguments).canonical()));
    story.tell(story.result(call, CallResult::refused(Refusal::AlreadyDenied, "page_drop", None)));
}

#[test]
fn case_c38_rule_l8_three_repeats_of_a_denied_call_end_the_run() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", r#"{"id":7,"why":"x"}"#)]).ask("1").deny("bob", "1").follow();
    repeat(&mut story, "b", r#"{ "why":"x", "id":7 }"#);
    assert!(story.content_of("b").contains("already denied"));
    // Another call still asks, and an approved one is no repeat however often it comes.
    for (call, name) in [("c", "2"), ("d", "3"), ("e", "4"), ("f", "5")] {
        assert!(!story.run.was_denied("page_drop", r#"{"id":8}"#));
        story
            .calls(&[(call, "page_drop", r#"{"id":8}"#)])
            .ask(name)
            .approve("bob", name)
            .start(call)
            .finish(call);
    }
    assert!(!story.run.was_denied("mail_post", &args(r#"{"id":7,"why":"x"}"#).canonical()), "another tool");
    repeat(&mut story, "g", r#"{"id":7,"why":"x"}"#);
    assert!(asks_model(&story, false));
    repeat(&mut story, "h", r#"{"id":7,"why":"x"}"#);
    assert_eq!(story.follow(), Step::Ended, "no closing completion");
    assert_eq!(story.run.end(), Some(&End::Completed { limit: Some(Limit::RepeatedDenials), at: at(0) }));
}

#[test]
fn rule_l8_only_what_was_denied_itself_is_remembered() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}"), ("b", "mail_post", "{}"), ("c", "page_get", "{}")]).ask("1");
    story.verdicts("bob", "1", &[("a", CallVerdict::Deny), ("b", CallVerdict::Approve)]);
    let denied =
        |story: &Story| ["page_drop", "mail_post", "page_get"].map(|tool| story.run.was_denied(tool, "{}"));
    assert_eq!(denied(&story), [true, false, false]);
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}"), ("c", "page_get", "{}")]).ask("1").deny("bob", "1");
    assert_eq!(denied(&story), [true, false, false], "a read that was not run may be asked again");
}

#[test]
fn rule_a14_rule_l8_a_denied_edit_counts_for_what_the_model_said() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", r#"{"id":1}"#)]).ask("1");
    let mut edited = story.pending("2", Question::Approval);
    edited.replaces = Some(pending_id("1"));
    edited.editors = vec![subject("bob")];
    edited.calls[0].original_arguments = edited.calls[0].arguments.replace(args(r#"{"id":2}"#));
    story.tell(Event::PendingEdited(Box::new(edited))).deny("root", "2");
    assert!(story.run.was_denied("page_drop", r#"{"id":1}"#));
}

#[test]
fn rule_l10_every_limit_has_its_word_and_its_sentences() {
    let all = [
        (Limit::MaxIterations, "max_iterations", "max_iterations"),
        (Limit::BudgetExhausted, "budget_exhausted", "budget_exhausted"),
        (Limit::WorkingTime, "working_time", "budget_exhausted"),
        (Limit::ContextExhausted, "context_exhausted", "context_exhausted"),
        (Limit::RepeatedDenials, "repeated_denials", "repeated_denials"),
        (Limit::CutOff, "cut_off", "cut_off"),
    ];
    assert!(
        all.iter().all(|(limit, word, reason)| (limit.as_str(), limit.stop_reason()) == (*word, *reason))
    );
    let all = all.map(|(limit, ..)| limit);
    assert_ne!(Limit::BudgetExhausted.sentence(), Limit::WorkingTime.sentence(), "it says which budget");
    assert!(
        all.iter().all(|limit| !limit.sentence().is_empty() && limit.call_sentence().starts_with("Not run"))
    );
    assert!(all.iter().all(|limit| serde_json::to_value(limit).unwrap() == limit.as_str()));
}
