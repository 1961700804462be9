//! L6, L3, L9 and R10: what a model is told, what is left out, and what a continued conversation is.

use countersign_core::*;
use proptest::prelude::*;

use crate::world::*;

fn input(role: InputRole, text: &str) -> InputMessage {
    InputMessage { role, text: text.to_owned() }
}

fn user(text: &str) -> InputMessage {
    input(InputRole::User, text)
}

fn windowed(window: Option<u64>, input: Vec<InputMessage>) -> Story {
    let limits = RunLimits { window_tokens: window, ..RunLimits::iterations(1000) };
    Story::of(Created { limits, input, system_prompt: Some("prompt".to_owned()), ..created() })
}

/// A turn of one read with a result of so many bytes.
fn read(story: &mut Story, call: &str, bytes: usize) {
    story.calls(&[(call, "page_get", "{}")]).start(call);
    let result = CallResult::from_tool(ResultKind::Ok, "x".repeat(bytes), vec![], 1);
    let event = story.result(call, result);
    story.tell(event);
}

fn fit(earlier: &[Run], run: &Run) -> Result<Option<ContextFitted>, Exhausted> {
    Transcript::new(earlier, run).fitted(0)
}

/// Makes room, as the driver does before a request.
fn make_room(earlier: &[Run], story: &mut Story) -> Option<ContextFitted> {
    let fitted = fit(earlier, &story.run).unwrap();
    if let Some(fitted) = fitted.clone() {
        story.tell(Event::ContextFitted(fitted));
        assert_eq!(fit(earlier, &story.run), Ok(None), "it fits now, and is said once");
    }
    fitted
}

/// The conversation in words: a text, `a` for a call's turn, `-a` for one that is left out.
fn told(earlier: &[Run], run: &Run) -> Vec<String> {
    told_from(earlier, run, 0)
}

fn told_from(earlier: &[Run], run: &Run, part: usize) -> Vec<String> {
    let said = |reply: &Reply| match &reply.text {
        Some(text) => text.clone(),
        None => reply.calls.iter().map(|call| short(&call.id)).collect::<Vec<_>>().join("+"),
    };
    let words = Transcript::new(earlier, run).messages_from(part).map(|message| match message {
        Message::System(text) => format!("[{text}]"),
        Message::Input(input) => input.text.clone(),
        Message::Reply(reply) => said(reply),
        Message::LeftOut(reply) => format!("-{}", said(reply)),
        Message::Result { call, .. } => format!("={}", short(call)),
    });
    words.collect()
}

#[test]
fn rule_l6_vector_tl11_the_oldest_whole_turns_go_first() {
    let mut story = windowed(Some(1000), vec![user("tidy up")]);
    for call in ["a", "b", "c"] {
        read(&mut story, call, 500);
        assert_eq!(make_room(&[], &mut story), None);
    }
    read(&mut story, "d", 500);
    let fitted = make_room(&[], &mut story).unwrap();
    assert_eq!((fitted.left_out, fitted.kept, fitted.first_turn), (1, 4, Some(2)));
    assert!(fitted.estimated_tokens <= 875 && fitted.window_tokens == 1000, "an eighth is for the answer");
    assert_eq!(told(&[], &story.run), ["[prompt]", "tidy up", "-a", "b", "=b", "c", "=c", "d", "=d"]);
    read(&mut story, "e", 500);
    assert_eq!(make_room(&[], &mut story).unwrap().left_out, 2);
    let folded = Run::fold(run_id(), &story.log).unwrap();
    assert_eq!(told(&[], &folded), told(&[], &story.run), "what is sent follows from the log (R7)");
    assert_eq!(told_from(&[], &folded, 3), ["c", "=c", "d", "=d", "e", "=e"], "and can be told in pieces");
}

#[test]
fn rule_l6_the_head_the_task_and_the_newest_turn_never_go() {
    let messages = vec![
        input(InputRole::Assistant, "hello"),
        user("first"),
        input(InputRole::Assistant, "yes?"),
        user("task"),
    ];
    let mut story = windowed(Some(1000), messages);
    read(&mut story, "a", 500);
    read(&mut story, "b", 1700);
    assert_eq!(make_room(&[], &mut story).unwrap().left_out, 2);
    assert_eq!(told(&[], &story.run), ["[prompt]", "hello", "first", "task", "-a", "b", "=b"]);
    read(&mut story, "c", 9000);
    assert!(matches!(fit(&[], &story.run), Err(Exhausted { estimated_tokens }) if estimated_tokens > 3600));
}

#[test]
fn rule_l6_vector_tl10_what_can_never_fit_makes_no_request() {
    let mut story = windowed(Some(100), vec![user(&"x".repeat(1000))]);
    assert!(fit(&[], &story.run).is_err());
    story.tell(limit(Limit::ContextExhausted));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.row().limit, Some(Limit::ContextExhausted));
    // Without a window nothing is left out, and nothing can be exhausted.
    let story = windowed(None, vec![user(&"x".repeat(1_000_000))]);
    assert_eq!(fit(&[], &story.run), Ok(None));
    story.refuses(limit(Limit::ContextExhausted));
}

#[test]
fn rule_l6_what_is_offered_takes_room_too() {
    let story = windowed(Some(1000), vec![user("tidy up")]);
    assert_eq!(Transcript::new(&[], &story.run).fitted(1000), Ok(None));
    assert!(Transcript::new(&[], &story.run).fitted(10_000).is_err());
}

#[test]
fn rule_l6_rule_l7_a_request_is_fitted_once_also_where_another_model_gets_it() {
    let mut story = windowed(Some(1000), vec![user("tidy up")]);
    read(&mut story, "a", 500);
    read(&mut story, "b", 1700);
    let fitted = fit(&[], &story.run).unwrap().unwrap();
    story.tell(Event::ModelFailed(ModelFailed {
        model: ModelRef::parse("p/m").unwrap(),
        code: ModelFailCode::ServerError,
        status: Some(503),
        attempts: 5,
        usage: Usage::default(),
    }));
    assert!(matches!(story.run.next(), Step::AskModel(ask) if ask.fallback));
    story.refuses(Event::ContextFitted(fitted)).refuses(limit(Limit::ContextExhausted));
}

#[test]
fn rule_l6_what_is_left_out_only_grows() {
    let mut story = windowed(Some(1000), vec![user("tidy up")]);
    for call in ["a", "b", "c", "d"] {
        read(&mut story, call, 800);
    }
    let fitted = make_room(&[], &mut story).unwrap();
    story.refuses(Event::ContextFitted(fitted.clone()));
    story.refuses(Event::ContextFitted(ContextFitted { left_out: 0, ..fitted }));
    let without = windowed(None, vec![user("tidy up")]);
    without.refuses(Event::ContextFitted(fitted));
}

/// A run that has ended, and is continued.
fn over(first: &str, call: &str, answer: &str) -> Run {
    let mut story = windowed(None, vec![user(first)]);
    read(&mut story, call, 10);
    story.text(answer).follow();
    story.run
}

#[test]
fn rule_r10_a_continuation_goes_on_with_the_conversation_before() {
    let earlier = [over("first", "a", "one"), over("second", "b", "two")];
    let mut story = windowed(None, vec![user("third")]);
    read(&mut story, "c", 10);
    let all = ["[prompt]", "first", "a", "=a", "one", "second", "b", "=b", "two", "third", "c", "=c"];
    assert_eq!(told(&earlier, &story.run), all);
    assert_eq!(told_from(&earlier, &story.run, 5), ["two", "third", "c", "=c"]);
}

#[test]
fn case_c34_rule_l3_whatever_its_end_the_run_before_leaves_no_call_unanswered() {
    let mut cancelled = windowed(None, vec![user("first")]);
    cancelled.calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}")]).ask("1");
    cancelled.tell_all(cancelled.run.cancellation(&subject("alice"), at(1)).unwrap());
    let mut unsettled = windowed(None, vec![user("first")]);
    unsettled
        .calls(&[("c", "page_drop", "{}"), ("d", "page_get", "{}")])
        .ask("1")
        .approve("bob", "1")
        .start("c");
    unsettled.tell(unknown("c", "page_drop"));
    let mut poisoned = windowed(None, vec![user("first")]);
    poisoned.calls(&[("e", "page_get", "{}")]).start("e").tell(failed(FailCode::Poisoned));
    let mut capped = Story::of(Created { limits: RunLimits::iterations(1), ..created() });
    capped.calls(&[("f", "page_get", "{}")]).follow();
    let closing = reply(Some("as far as it goes"), &[("g", "page_get", "{}")]);
    let closing = Reply { opaque: Opaque(vec![("signature".into(), "1".into())]), ..closing };
    capped
        .tell(Event::ModelReplied(Box::new(ModelReplied { reply: closing.into(), closing: true })))
        .follow();
    let earlier = [cancelled.run, unsettled.run, poisoned.run, capped.run];
    let next = windowed(None, vec![user("next")]);
    let mut owed: Vec<&CallId> = Vec::new();
    for message in Transcript::new(&earlier, &next.run).messages_from(0) {
        match message {
            Message::Reply(reply) => {
                assert!(owed.is_empty());
                assert!(reply.opaque.is_empty(), "without its calls it is plain words");
                owed = reply.calls.iter().rev().map(|call| &call.id).collect();
            }
            Message::Result { call, .. } => assert_eq!(owed.pop(), Some(call)),
            _ => assert!(owed.is_empty()),
        }
    }
    let said = told(&earlier, &next.run).join(" ");
    assert!(said.contains("c+d =c =d") && said.ends_with("as far as it goes next"), "{said}");
}

#[test]
fn rule_l6_rule_r10_the_conversation_before_goes_first_and_its_beginning_stays() {
    let earlier = [over("first", "a", &"y".repeat(500)), over("second", "b", "two")];
    let mut story = windowed(Some(300), vec![user("third")]);
    let fitted = make_room(&earlier, &mut story).unwrap();
    assert_eq!((fitted.left_out, fitted.first_turn), (2, None));
    let kept: Vec<String> =
        told(&earlier, &story.run).into_iter().filter(|word| !word.starts_with("-")).collect();
    assert_eq!(kept, ["[prompt]", "first", "second", "b", "=b", "two", "third"]);
    read(&mut story, "c", 350);
    make_room(&earlier, &mut story).unwrap();
    let kept: Vec<String> =
        told(&earlier, &story.run).into_iter().filter(|word| !word.starts_with("-")).collect();
    assert_eq!(kept, ["[prompt]", "first", "third", "c", "=c"], "what is wanted now stays");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_l6_head_task_and_newest_stay_pairs_are_whole_order_is_kept_and_it_fits(
        window in 60_u64..2000,
        before in 0_usize..3,
        messages in prop::collection::vec((any::<bool>(), 0_usize..300), 1..5),
        results in prop::collection::vec(0_usize..900, 0..12),
        offered in 0_u64..500,
    ) {
        let earlier: Vec<Run> = (0..before).map(|place| over(&format!("u{place}"), &format!("e{place}"), "w")).collect();
        let messages = messages.into_iter().map(|(is_user, size)| {
            input(if is_user { InputRole::User } else { InputRole::Assistant }, &"i".repeat(size))
        });
        let mut story = windowed(Some(window), messages.collect());
        let whole = |run: &Run| {
            let mut unlimited = story_of(run);
            unlimited.limits.window_tokens = None;
            unlimited
        };
        let mut left_out = 0;
        for (number, size) in results.iter().enumerate() {
            let before_it: Vec<String> = told(&earlier, &story.run);
            match Transcript::new(&earlier, &story.run).fitted(offered) {
                Err(_) => {
                    // Nothing that may go is left to go: with the floor alone it is too long.
                    story.tell(limit(Limit::ContextExhausted));
                    prop_assert_eq!(story.follow(), Step::Ended);
                    return Ok(());
                }
                Ok(Some(fitted)) => {
                    prop_assert!(fitted.left_out > left_out, "it only grows");
                    prop_assert!(fitted.estimated_tokens <= window - window / 8);
                    left_out = fitted.left_out;
                    story.tell(Event::ContextFitted(fitted));
                    prop_assert_eq!(Transcript::new(&earlier, &story.run).fitted(offered), Ok(None));
                }
                Ok(None) => {}
            }
            let messages: Vec<Message<'_>> = Transcript::new(&earlier, &story.run).messages_from(0).collect();
            // Calls and results are together or both gone, in order.
            let mut owed: Vec<&CallId> = Vec::new();
            for message in &messages {
                match message {
                    Message::Reply(reply) => {
                        prop_assert!(owed.is_empty());
                        owed = reply.calls.iter().rev().map(|call| &call.id).collect();
                    }
                    Message::Result { call, .. } => prop_assert_eq!(owed.pop(), Some(*call)),
                    _ => prop_assert!(owed.is_empty()),
                }
            }
            // Every reply is there once, told or left out, in the order in which it came (L9).
            let replies = |message: &Message<'_>| match message {
                Message::Reply(reply) | Message::LeftOut(reply) => Some((*reply).clone()),
                _ => None,
            };
            let now: Vec<Reply> = messages.iter().filter_map(replies).collect();
            let created = whole(&story.run);
            let unlimited = Story { run: Run::fold(run_id(), &without_window(&story.log, created)).unwrap(), ..story.clone() };
            let all: Vec<Reply> =
                Transcript::new(&earlier, &unlimited.run).messages_from(0).filter_map(|message| replies(&message)).collect();
            prop_assert_eq!(&now, &all);
            // The beginning, the task and the newest part are there.
            let words = told(&earlier, &story.run);
            let everything = told(&earlier, &unlimited.run);
            prop_assert_eq!(&words[..2], &everything[..2], "the head");
            prop_assert_eq!(words.last(), everything.last(), "the newest");
            let task = story.run.created().input.iter().rfind(|message| message.role == InputRole::User);
            prop_assert!(task.is_none_or(|task| words.contains(&task.text)));
            prop_assert!(before_it.len() >= words.len());
            read(&mut story, &number.to_string(), *size);
        }
    }
}

fn story_of(run: &Run) -> Created {
    run.created().clone()
}

/// The same log of a run that has no window.
fn without_window(log: &[Entry], created: Created) -> Vec<Entry> {
    let rest = log[1..].iter().filter(|entry| !matches!(entry.event, Event::ContextFitted(_)));
    let first = Entry { event: Event::RunCreated(Box::new(created)), ..log[0].clone() };
    let mut all: Vec<Entry> = std::iter::once(first).chain(rest.cloned()).collect();
    (0..).zip(&mut all).for_each(|(seq, entry)| entry.seq = seq);
    all
}
