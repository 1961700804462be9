//! A8, A9, R9, R11: who may say what, and what is stored of it.

use countersign_core::*;

use crate::world::*;

use CallVerdict::{Approve, Deny};

fn approve() -> Said {
    Said::Turn { verdict: Approve, reason: None }
}

fn deny() -> Said {
    Said::Turn { verdict: Deny, reason: None }
}

/// What comes of it, as events or as the code of the refusal.
fn said(story: &Story, four_eyes: bool, by: &str, words: Said) -> Result<Vec<Event>, &'static str> {
    let (by, people) = (subject(by), people().into_iter().collect());
    let judgement = Judgement { second_approver: Some(four_eyes), ..story.judge(&by, &people) };
    let decision = Decision { digest: story.digest("1"), said: words };
    settle(&judgement, &pending_id("1"), &decision).map_err(|(refused, _)| refused.code())
}

fn stored(story: &Story, by: &str, words: Said) -> Decided {
    let events = said(story, false, by, words).unwrap();
    let [Event::PendingDecided(decided)] = events.as_slice() else { panic!("one decision: {events:?}") };
    assert_eq!(decided.pending, pending_id("1"));
    decided.decided.clone()
}

fn asked(created: Created, calls: &[(&str, &str, &str)]) -> Story {
    let mut story = Story::of(created);
    story.calls(calls).ask("1");
    story
}

fn write() -> Story {
    asked(created(), &[("a", "page_drop", "{}"), ("b", "mail_post", "{}"), ("c", "page_get", "{}")])
}

#[test]
fn rule_a8_vector_tr09_vector_tr10_four_eyes_bind_the_whole_chain_and_admins_too() {
    let started_for = |starter: &str, owner: &str| Created {
        starter: subject(starter),
        owner: subject(owner),
        second_approver: true,
        ..created()
    };
    // (starter, owner, decider, may approve)
    let table = [
        ("alice", "alice", "alice", false),
        ("alice", "alice", "bob", true),
        ("alice", "alice", "root", true),
        ("root", "root", "root", false),
        ("bob", "bob", "bob", false),
        ("robo", "alice", "alice", false),
        ("bob", "alice", "bob", false),
        ("robo", "alice", "bob", true),
    ];
    for (starter, owner, by, may) in table {
        let story = asked(started_for(starter, owner), &[("a", "page_drop", "{}"), ("b", "mail_post", "{}")]);
        let all = |word| Said::Calls { verdicts: words_on(&[("a", word), ("b", word)]), reason: None };
        let one = Said::Calls { verdicts: words_on(&[("a", Deny), ("b", Approve)]), reason: None };
        for words in [approve(), all(Approve), one] {
            let came = said(&story, false, by, words).err();
            assert_eq!(came, (!may).then_some("self_approval"), "{by} on a run of {starter} for {owner}");
        }
        assert!(said(&story, true, by, deny()).is_ok(), "denying one's own stays allowed");
        assert!(said(&story, true, by, all(Deny)).is_ok());
    }
}

#[test]
fn rule_a8_four_eyes_hold_when_either_the_run_or_the_agent_asks_for_them() {
    for (at_start, now, refused) in
        [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
    {
        let story = asked(Created { second_approver: at_start, ..created() }, &[("a", "page_drop", "{}")]);
        let came = said(&story, now, "alice", approve()).err();
        assert_eq!(came, refused.then_some("self_approval"), "at start {at_start}, now {now}");
    }
}

#[test]
fn rule_a14_rule_a8_whoever_edited_is_in_the_chain() {
    let mut story = Story::of(Created { second_approver: true, ..created() });
    story.calls(&[("a", "page_drop", "{}")]).ask("0");
    let editors = vec![subject("bob")];
    let edited =
        Pending { replaces: Some(pending_id("0")), editors, ..story.pending("1", Question::Approval) };
    story.tell(Event::PendingEdited(Box::new(edited)));
    assert_eq!(said(&story, false, "bob", approve()).unwrap_err(), "self_approval");
    assert_eq!(said(&story, false, "alice", approve()).unwrap_err(), "self_approval");
    assert!(said(&story, false, "bob", deny()).is_ok());
    assert!(said(&story, false, "root", approve()).is_ok());
}

#[test]
fn rule_a8_four_eyes_on_an_answer() {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}")]).ask_input("1", "a");
    assert_eq!(said(&story, true, "alice", Said::Answer(args("{}"))).unwrap_err(), "self_approval");
    assert!(said(&story, true, "alice", deny()).is_ok());
    assert!(said(&story, false, "alice", Said::Answer(args("{}"))).is_ok());
}

#[test]
fn vector_tr04_vector_tr05_an_approver_needs_the_right_to_each_write_it_releases() {
    let story = asked(created(), &[("a", "key_roll", "{}"), ("b", "page_drop", "{}")]);
    assert_eq!(said(&story, false, "bob", approve()).unwrap_err(), "approver_not_permitted");
    assert!(said(&story, false, "root", approve()).is_ok());
    assert!(said(&story, false, "bob", deny()).is_ok());
    let words = |key, page| Said::Calls { verdicts: words_on(&[("a", key), ("b", page)]), reason: None };
    assert!(said(&story, false, "bob", words(Deny, Approve)).is_ok(), "what is denied needs no right");
    assert_eq!(said(&story, false, "bob", words(Approve, Deny)).unwrap_err(), "approver_not_permitted");
}

#[test]
fn rule_a8_the_right_covers_what_runs_along_if_it_writes_or_is_marked() {
    for (effect, pause, may) in [
        (Effect::Write, Pause::Runs, false),
        (Effect::IdempotentWrite, Pause::Runs, false),
        (Effect::Read, Pause::Asks, false),
        (Effect::Read, Pause::Runs, true),
    ] {
        let mut story = Story::new();
        // A remote tool that asks nobody, for admins only, beside a call that is asked about.
        let far = remote("find", effect, RemoteApproval::NotRequired);
        story.redeclare(ToolSpec { requires_admin: true, pause: pause.clone(), ..far });
        story.calls(&[("a", "crm__find", "{}"), ("b", "page_drop", "{}")]).ask("1");
        assert_eq!(said(&story, false, "bob", approve()).is_ok(), may, "{effect:?} {pause:?}");
    }
}

#[test]
fn vector_tr06_a_service_account_releases_reads_only() {
    let read = asked(created(), &[("a", "page_peek", "{}"), ("b", "page_get", "{}")]);
    assert!(said(&read, false, "robo", approve()).is_ok());
    assert_eq!(said(&write(), false, "robo", approve()).unwrap_err(), "approver_not_permitted");
    assert!(said(&write(), false, "robo", deny()).is_ok());
    // A write that asks nobody, in the same turn: approving would release it.
    let along = asked(created(), &[("a", "page_peek", "{}"), ("b", "crm__lookup", "{}")]);
    assert_eq!(said(&along, false, "robo", approve()).unwrap_err(), "approver_not_permitted");
    let remote_read = asked(created(), &[("a", "crm__purge", "{}")]);
    assert!(said(&remote_read, false, "robo", approve()).is_ok());
}

#[test]
fn vector_ti08_vector_ti07_a_submitter_is_a_person_with_the_right_to_the_whole_turn() {
    let mut story = Story::new();
    story.redeclare(ToolSpec { requires_admin: true, ..tool("page_get", "content", Effect::Read) });
    story.calls(&[("a", "pick_date", "{}"), ("b", "page_get", "{}")]).ask_input("1", "a");
    let answer = || Said::Answer(args(r#"{"date":"2027"}"#));
    assert_eq!(said(&story, false, "bob", answer()).unwrap_err(), "approver_not_permitted");
    assert_eq!(said(&story, false, "robo", answer()).unwrap_err(), "approver_not_permitted");
    assert!(said(&story, false, "root", answer()).is_ok());
    for by in ["alice", "bob", "robo"] {
        assert!(said(&story, false, by, deny()).is_ok(), "{by} declines");
    }
}

#[test]
fn vector_ti01_an_answer_that_does_not_fit_changes_nothing() {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}")]).ask_input("1", "a");
    let problems = [InputProblem { pointer: "/date".to_owned(), detail: "is not a text".to_owned() }];
    let (by, people) = (subject("bob"), people().into_iter().collect());
    let judgement = Judgement { problems: &problems, ..story.judge(&by, &people) };
    let decision = Decision::answer(story.digest("1"), args(r#"{"date":7}"#));
    let refused = settle(&judgement, &pending_id("1"), &decision).unwrap_err();
    assert_eq!(refused, (DecisionRefused::InvalidInput(problems.to_vec()), None));
    let declined = Decision::deny(story.digest("1"), None);
    assert!(settle(&judgement, &pending_id("1"), &declined).is_ok(), "a decline has no fields to check");
}

#[test]
fn rule_r11_a_service_account_never_settles_and_the_owner_may() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}")]).ask("0").approve("bob", "0").start("a");
    story.tell(unknown("a", "page_drop")).ask_outcome("1", "a");
    for outcome in [SettledOutcome::Happened, SettledOutcome::DidNotHappen, SettledOutcome::GiveUp] {
        story.now = 100;
        let words = || Said::Settle { outcome, result: Some("seen".to_owned()) };
        assert_eq!(said(&story, false, "robo", words()).unwrap_err(), "approver_not_permitted");
        assert!(said(&story, true, "alice", words()).is_ok(), "nothing is released, so four eyes do not ask");
        story.now = 99;
        let early = said(&story, false, "bob", words()).err();
        assert_eq!(early, (outcome == SettledOutcome::DidNotHappen).then_some("too_early"));
    }
}

#[test]
fn rule_a8_a_list_of_words_names_exactly_the_calls_that_need_one() {
    let story = write();
    let lists: [&[&str]; 6] = [&[], &["a"], &["a", "c"], &["a", "b", "c"], &["a", "b", "zz"], &["c"]];
    for list in lists {
        let verdicts = list.iter().map(|call| (call_id(call), Approve)).collect();
        let (by, people) = (subject("bob"), people().into_iter().collect());
        let decision = Decision::calls(story.digest("1"), verdicts, None);
        let refused = settle(&story.judge(&by, &people), &pending_id("1"), &decision).unwrap_err();
        let needed = ["a", "b"].map(call_id).into();
        assert_eq!(refused, (DecisionRefused::CallsIncomplete { needed }, None), "{list:?}");
    }
}

#[test]
fn rule_a8_an_answer_fits_the_kind_of_its_question() {
    let approval = write();
    let mut input = Story::new();
    input.calls(&[("a", "pick_date", "{}")]).ask_input("1", "a");
    let mut resolution = Story::new();
    resolution.calls(&[("a", "page_drop", "{}")]).ask("0").approve("bob", "0").start("a");
    resolution.tell(unknown("a", "page_drop")).ask_outcome("1", "a");
    let settle_it = || Said::Settle { outcome: SettledOutcome::Happened, result: None };
    let calls = || Said::Calls { verdicts: words_on(&[("a", Deny)]), reason: None };
    let answer = || Said::Answer(Arguments::default());
    for (story, wrong) in [
        (&approval, vec![answer(), settle_it()]),
        (&input, vec![approve(), calls(), settle_it()]),
        (&resolution, vec![approve(), deny(), calls(), answer()]),
    ] {
        for words in wrong {
            assert_eq!(said(story, false, "bob", words.clone()).unwrap_err(), "wrong_kind", "{words:?}");
        }
    }
}

#[test]
fn rule_a9_what_is_stored_of_a_decision() {
    let story = write();
    let reason = Some("because".to_owned());
    let turn = |verdict| Said::Turn { verdict, reason: reason.clone() };
    let calls = |a, b| Said::Calls { verdicts: words_on(&[("a", a), ("b", b)]), reason: reason.clone() };
    let both = |word| words_on(&[("a", word), ("b", word)]);
    let table = [
        (turn(Approve), VerdictWord::Approve, Form::Turn, both(Approve)),
        (turn(Deny), VerdictWord::Deny, Form::Turn, both(Deny)),
        (calls(Approve, Approve), VerdictWord::Approve, Form::Calls, both(Approve)),
        (calls(Deny, Deny), VerdictWord::Deny, Form::Calls, both(Deny)),
        (calls(Approve, Deny), VerdictWord::Mixed, Form::Calls, words_on(&[("a", Approve), ("b", Deny)])),
    ];
    for (words, verdict, form, calls) in table {
        let wanted = Decided {
            by: subject("bob"),
            verdict,
            form,
            calls,
            reason: reason.clone(),
            attribution: Attribution::SecondPerson,
            answer: None,
            result: None,
        };
        assert_eq!(stored(&story, "bob", words), wanted);
    }
}

#[test]
fn vector_tr11_rule_a8_attribution_says_how_the_decider_stands_to_the_starter() {
    let table = [
        ("alice", "alice", "alice", Attribution::SelfDecided),
        ("alice", "alice", "bob", Attribution::SecondPerson),
        ("robo", "alice", "alice", Attribution::InitiatorUnknown),
        ("robo", "robo", "bob", Attribution::InitiatorUnknown),
        ("gone", "gone", "bob", Attribution::InitiatorUnknown),
        ("bob", "alice", "bob", Attribution::SelfDecided),
    ];
    for (starter, owner, by, attribution) in table {
        let created = Created { starter: subject(starter), owner: subject(owner), ..created() };
        let story = asked(created, &[("a", "page_drop", "{}")]);
        assert_eq!(stored(&story, by, approve()).attribution, attribution, "{by} on a run by {starter}");
    }
}

#[test]
fn rule_a8_where_the_agent_is_gone_a_denial_ends_the_run() {
    let story = write();
    let (by, people) = (subject("bob"), people().into_iter().collect());
    let judgement = Judgement { second_approver: None, ..story.judge(&by, &people) };
    let mixed = words_on(&[("a", Deny), ("b", Approve)]);
    for (said, code) in [
        (approve(), Some("agent_gone")),
        (Said::Calls { verdicts: mixed, reason: None }, Some("agent_gone")),
        (deny(), None),
        (Said::Calls { verdicts: words_on(&[("a", Deny), ("b", Deny)]), reason: None }, None),
    ] {
        let came = settle(&judgement, &pending_id("1"), &Decision { digest: story.digest("1"), said });
        assert_eq!(came.as_ref().err().map(|(refused, _)| refused.code()), code);
        if let Ok(events) = came {
            let (run, changes) = story.run.record(events, at(5)).unwrap();
            assert_eq!(run.end(), Some(&End::Failed { code: FailCode::AgentGone, at: at(5) }));
            assert_eq!(changes.inbox()[0].status, PendingStatus::Denied);
            assert_eq!(run.next(), Step::Ended);
        }
    }
}

#[test]
fn rule_m2_a_changed_or_vanished_definition_voids_what_would_run() {
    let changes: [fn(&mut ToolSpec); 3] = [
        |tool| tool.effect = Effect::IdempotentWrite,
        |tool| tool.parameters = serde_json::json!({"type": "object", "required": ["id"]}),
        |tool| tool.name = ToolName::parse("page_drop_2").unwrap(),
    ];
    for change in changes {
        let mut story = write();
        change(story.tools.iter_mut().find(|tool| tool.name.as_str() == "page_drop").unwrap());
        for words in [approve(), deny()] {
            assert_eq!(said(&story, false, "bob", words).unwrap_err(), "void");
        }
    }
    // Words for people, and a call that is refused anyway, void nothing.
    let mut story = asked(created(), &[("a", "page_drop", "{}"), ("b", "ghost", "{}")]);
    story.tools.push(tool("ghost", "g", Effect::Read));
    for tool in &mut story.tools {
        tool.description = "new words".to_owned();
    }
    assert!(said(&story, false, "bob", approve()).is_ok());
}

#[test]
fn case_c12_rule_a8_the_digest_is_compared_for_denials_too() {
    let story = write();
    let other = asked(
        created(),
        &[("a", "page_drop", r#"{"id":1}"#), ("b", "mail_post", "{}"), ("c", "page_get", "{}")],
    );
    let (by, people) = (subject("bob"), people().into_iter().collect());
    for decision in [Decision::approve(other.digest("1")), Decision::deny(other.digest("1"), None)] {
        let refused = settle(&story.judge(&by, &people), &pending_id("1"), &decision).unwrap_err();
        assert_eq!(refused, (DecisionRefused::StaleDigest, None));
    }
}
