//! A8: the order in which a decision is judged. Whatever two things are wrong, the earlier one is said.

use countersign_core::*;

use crate::world::*;

/// A decision with nothing wrong about it, until something is spoiled.
struct Case {
    story: Story,
    by: &'static str,
    known: bool,
    decision: Said,
    other_digest: bool,
    agent: Option<bool>,
    now: i64,
    problems: Vec<InputProblem>,
}

/// Approval of [page_get #a, key_roll #b], where only admins may run key_roll. Edited by sue, so that she may
/// be in the chain of four eyes without owning the run. It expires at second 10.
fn approval() -> Case {
    let mut story = Story::new();
    story.calls(&[("a", "page_get", "{}"), ("b", "key_roll", "{}")]);
    let first = Pending { expires_at: Deadline::At(at(10)), ..story.pending("0", Question::Approval) };
    story.open(first.clone());
    let edited = Pending {
        id: pending_id("1"),
        editors: vec![subject("sue")],
        replaces: Some(pending_id("0")),
        ..first
    };
    story.tell(Event::PendingEdited(Box::new(edited)));
    let decision = Said::Turn { verdict: CallVerdict::Approve, reason: None };
    Case {
        story,
        by: "root",
        known: true,
        decision,
        other_digest: false,
        agent: Some(false),
        now: 0,
        problems: vec![],
    }
}

/// An input for pick_date beside an approved key_roll: the submitter must pass P3 for both.
fn input() -> Case {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}"), ("b", "key_roll", "{}")]).ask("0").approve("root", "0");
    let question = Question::Input { call: call_id("a"), schema: date_schema(), message: String::new() };
    let editors = vec![subject("sue")];
    story.open(Pending { expires_at: Deadline::At(at(10)), editors, ..story.pending("1", question) });
    let decision = Said::Answer(args(r#"{"date":"2027"}"#));
    Case {
        story,
        by: "root",
        known: true,
        decision,
        other_digest: false,
        agent: Some(false),
        now: 0,
        problems: vec![],
    }
}

/// A write whose outcome is unknown. "It did not happen" may be said from second 100.
fn resolution() -> Case {
    let mut story = Story::new();
    story.calls(&[("b", "key_roll", "{}")]).ask("0").approve("root", "0").start("b");
    story.tell(unknown("b", "key_roll")).ask_outcome("1", "b");
    let decision = Said::Settle { outcome: SettledOutcome::DidNotHappen, result: None };
    Case {
        story,
        by: "root",
        known: true,
        decision,
        other_digest: false,
        agent: Some(false),
        now: 100,
        problems: vec![],
    }
}

impl Case {
    fn code(&self) -> &'static str {
        let people =
            people().into_iter().filter(|known| self.known || known.subject.as_str() != self.by).collect();
        let digest = self.story.digest(if self.other_digest { "0" } else { "1" });
        let by = subject(self.by);
        let judgement = Judgement {
            second_approver: self.agent,
            now: at(self.now),
            problems: &self.problems,
            ..self.story.judge(&by, &people)
        };
        let decision = Decision { digest, said: self.decision.clone() };
        match settle(&judgement, &pending_id("1"), &decision) {
            Ok(events) => {
                self.story.run.record(events, at(self.now)).expect("what is settled can be stored");
                "settled"
            }
            Err((refused, due)) => {
                let closes = due.map(|event| event.kind());
                let wanted = matches!(refused, DecisionRefused::Expired | DecisionRefused::Void)
                    .then_some("pending.closed");
                let open = self.story.run.open_pending().is_some();
                assert_eq!(closes, wanted.filter(|_| open), "{refused}");
                refused.code()
            }
        }
    }
}

type Spoil = (&'static str, fn(&mut Case));

const UNKNOWN_DECIDER: Spoil = ("not_found", |case| case.known = false);
/// Sue neither owns the run nor may she decide on others'.
const FOREIGN: Spoil = ("not_found", |case| case.by = "sue");
const EXPIRED: Spoil = ("expired", |case| case.now = 11);
const VOID: Spoil = ("void", |case| {
    for tool in &mut case.story.tools {
        tool.parameters = serde_json::json!({"type": "object", "required": ["id"]});
    }
});
const AGENT_GONE: Spoil = ("agent_gone", |case| case.agent = None);
const STALE: Spoil = ("stale_digest", |case| case.other_digest = true);
const NO_RIGHT: Spoil = ("approver_not_permitted", |case| {
    if case.by == "root" {
        case.by = "bob";
    }
});

/// Everyone who decides here is in the chain, and the agent asks for four eyes.
const SELF: Spoil = ("self_approval", |case| {
    if case.agent.is_some() {
        case.agent = Some(true);
    }
    let mut log = case.story.log.clone();
    for entry in &mut log {
        if let Event::PendingEdited(pending) | Event::PendingOpened(pending) = &mut entry.event
            && !pending.editors.is_empty()
        {
            pending.editors = vec![subject(case.by)];
        }
        if let Event::RunCreated(created) = &mut entry.event {
            created.second_approver = true;
        }
    }
    case.story.run = Run::fold(run_id(), &log).unwrap();
});

/// Applies two spoils, the later first: some of them look at what the other has set.
fn check(make: fn() -> Case, order: &[Spoil]) {
    assert_eq!(make().code(), "settled");
    for (place, (earlier, spoil)) in order.iter().enumerate() {
        let mut alone = make();
        spoil(&mut alone);
        assert_eq!(alone.code(), *earlier, "alone");
        for (later, also) in &order[place + 1..] {
            for swapped in [false, true] {
                let mut both = make();
                let (first, second) = if swapped { (also, spoil) } else { (spoil, also) };
                first(&mut both);
                second(&mut both);
                assert_eq!(both.code(), *earlier, "{earlier} comes before {later}");
            }
        }
    }
}

#[test]
fn rule_a8_the_earlier_reason_wins_on_an_approval() {
    let malformed: Spoil = ("calls_incomplete", |case| {
        case.decision = Said::Calls { verdicts: words_on(&[("a", CallVerdict::Approve)]), reason: None };
    });
    check(approval, &[UNKNOWN_DECIDER, malformed, EXPIRED, VOID, AGENT_GONE, STALE, NO_RIGHT]);
    check(approval, &[FOREIGN, malformed, EXPIRED, VOID, AGENT_GONE, STALE]);
    check(approval, &[malformed, EXPIRED, VOID, AGENT_GONE, SELF, STALE]);
}

#[test]
fn rule_a8_four_eyes_come_before_the_digest_and_the_right() {
    // `SELF` looks at who decides, so the right is spoiled first.
    let mut case = approval();
    NO_RIGHT.1(&mut case);
    SELF.1(&mut case);
    assert_eq!(case.code(), "self_approval");
    STALE.1(&mut case);
    assert_eq!(case.code(), "self_approval");
}

#[test]
fn rule_a8_rule_r9_the_earlier_reason_wins_on_an_input() {
    let wrong_kind: Spoil = ("wrong_kind", |case| {
        case.decision = Said::Turn { verdict: CallVerdict::Approve, reason: None };
    });
    let problems: Spoil = ("invalid_input", |case| {
        case.problems =
            vec![InputProblem { pointer: "/date".to_owned(), detail: "is not a text".to_owned() }];
    });
    check(input, &[UNKNOWN_DECIDER, wrong_kind, EXPIRED, VOID, AGENT_GONE, STALE, NO_RIGHT, problems]);
    check(input, &[FOREIGN, wrong_kind, EXPIRED, VOID, AGENT_GONE, STALE, problems]);
    check(input, &[wrong_kind, EXPIRED, VOID, AGENT_GONE, SELF, STALE, problems]);
}

#[test]
fn rule_a8_rule_r11_the_earlier_reason_wins_on_a_resolution() {
    let wrong_kind: Spoil = ("wrong_kind", |case| case.decision = Said::Answer(Arguments::default()));
    let too_early: Spoil = ("too_early", |case| case.now = 99);
    let service: Spoil = ("approver_not_permitted", |case| {
        if case.by == "root" {
            case.by = "robo";
        }
    });
    check(resolution, &[UNKNOWN_DECIDER, wrong_kind, AGENT_GONE, too_early, STALE, service]);
    check(resolution, &[FOREIGN, wrong_kind, AGENT_GONE, too_early, STALE]);
    // A changed definition does not void what has already been started.
    let mut case = resolution();
    VOID.1(&mut case);
    assert_eq!(case.code(), "settled");
}

#[test]
fn rule_a9_whatever_was_decided_first_stands() {
    let mut case = approval();
    case.story.approve("root", "1");
    for spoil in [EXPIRED, VOID, AGENT_GONE, STALE, NO_RIGHT] {
        spoil.1(&mut case);
        assert_eq!(case.code(), "already_decided", "also for whoever decided it, and before {}", spoil.0);
    }
    FOREIGN.1(&mut case);
    assert_eq!(case.code(), "not_found");
}

#[test]
fn case_c13_rule_a9_a_late_click_on_an_old_question() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", r#"{"id":4}"#)]).ask("1").deny("bob", "1").follow();
    story.calls(&[("b", "page_drop", r#"{"id":99}"#)]).ask("2");
    let (old, new) = (story.digest("1"), story.digest("2"));
    let (by, people) = (subject("bob"), people().into_iter().collect());
    let click =
        |id: &str, digest| settle(&story.judge(&by, &people), &pending_id(id), &Decision::approve(digest));
    let Err((DecisionRefused::AlreadyDecided(decided), None)) = click("1", old) else {
        panic!("decided before")
    };
    assert_eq!((decided.by, decided.verdict), (subject("bob"), VerdictWord::Deny));
    assert_eq!(
        click("2", old).unwrap_err().0,
        DecisionRefused::StaleDigest,
        "the old digest opens nothing new"
    );
    assert_eq!(click("3", new).unwrap_err().0, DecisionRefused::NotFound);
    assert!(click("2", new).is_ok());
}

#[test]
fn rule_a9_each_end_of_a_question_has_its_own_answer() {
    let closed_by = |status: Closing| {
        let mut case = approval();
        if status == Closing::Withdrawn {
            case.story.tell(cancel("alice"));
        }
        case.story.tell(closed("1", status));
        case.code()
    };
    assert_eq!(closed_by(Closing::Expired), "expired");
    assert_eq!(closed_by(Closing::Void), "void");
    assert_eq!(closed_by(Closing::Withdrawn), "withdrawn");
    let case = approval();
    let (by, people) = (subject("root"), people().into_iter().collect());
    let old =
        settle(&case.story.judge(&by, &people), &pending_id("0"), &Decision::approve(case.story.digest("0")));
    assert_eq!(old.unwrap_err().0, DecisionRefused::Superseded);
    // A decision that was stored too late is not the decision: the question has expired.
    let mut case = approval();
    let mut in_time = case.story.clone();
    in_time.approve("root", "1");
    case.story.now = 11;
    case.story.tell(in_time.log.last().unwrap().event.clone());
    assert_eq!(case.code(), "expired");
}

#[test]
fn rule_a9_only_attempts_by_those_who_may_see_it_are_recorded() {
    let by = || subject("bob");
    let recorded = [
        DecisionRefused::NotPermitted { by: by() },
        DecisionRefused::SelfApproval { by: by() },
        DecisionRefused::ApproverNotPermitted { by: by() },
        DecisionRefused::StaleDigest,
    ];
    let silent = [
        DecisionRefused::NotFound,
        DecisionRefused::WrongKind { kind: "approval" },
        DecisionRefused::CallsIncomplete { needed: Box::default() },
        DecisionRefused::Withdrawn,
        DecisionRefused::Void,
        DecisionRefused::Superseded,
        DecisionRefused::Expired,
        DecisionRefused::AgentGone,
        DecisionRefused::TooEarly { until: at(0) },
        DecisionRefused::InvalidInput(Vec::new()),
    ];
    assert!(recorded.iter().all(DecisionRefused::is_recorded));
    assert!(!silent.iter().any(DecisionRefused::is_recorded));
}
