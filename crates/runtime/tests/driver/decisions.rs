//! A person's word: who may say it, on what, until when, and only once (A8 to A10).

use std::time::Duration;

use countersign::testing::{text, turn};
use countersign::{
    AgentName, CallVerdict, Closing, DecideError, Decision, DecisionRefused, Effect, Event, Models,
    PendingStatus, Principal, RemoteApproval, ResultKind as Is, RunError, RunRequest, RunState, Store,
    Waiting,
};

use crate::kit::{
    Bed, Witness, alice, asked, assert_state, bob, completed, ended, failure, lines, marked, read, remote,
    request, result_kinds, robot, root, statuses, subject, waiting, write,
};

async fn drop_waits() -> (Bed, Waiting) {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    (bed, waiting)
}

async fn refused(
    bed: &Bed,
    waiting: &Waiting,
    decision: Decision,
    by: &countersign::Subject,
) -> &'static str {
    let error = bed.runtime().decide(&waiting.id, decision, by).await.unwrap_err();
    let run = bed.runtime().load(waiting.run.id()).await.unwrap();
    assert_eq!(lines(&bed.ledger), [], "nothing runs by a refused decision");
    assert_eq!(
        run.pending(&waiting.id).unwrap().pending,
        waiting.record.pending,
        "and the question stays as it was"
    );
    error.code()
}

#[tokio::test]
async fn case_c12_vector_tr01_a_digest_of_something_else_decides_nothing() {
    let (bed, waiting) = drop_waits().await;
    let (_, other) = drop_waits().await;
    let mut turned = waiting.digest.to_string();
    let last = turned.pop().unwrap();
    turned.push(if last == '0' { '1' } else { '0' });
    for digest in
        [turned.parse().unwrap(), other.record.pending.digest(&countersign::RunId::from_random([9; 16]))]
    {
        assert_eq!(refused(&bed, &waiting, Decision::approve(digest), &bob()).await, "stale_digest");
        assert_eq!(
            refused(&bed, &waiting, Decision::deny(digest, None), &bob()).await,
            "stale_digest",
            "denials too"
        );
    }
    let refusals =
        bed.kinds(waiting.run.id()).await.iter().filter(|kind| **kind == "pending.refused").count();
    assert_eq!(refusals, 4, "each is on record");
    completed(bed.approve(&waiting).await);
}

#[tokio::test]
async fn rule_a9_the_first_twenty_refusals_are_events_and_the_rest_is_counted() {
    let (bed, waiting) = drop_waits().await;
    let digest = countersign::Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap();
    for _ in 0..25 {
        assert_eq!(refused(&bed, &waiting, Decision::approve(digest), &bob()).await, "stale_digest");
    }
    let events = bed.events(waiting.run.id()).await;
    let refusals: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::PendingRefused(refused) => Some((refused.by.as_str(), refused.code.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(refusals, vec![("bob", "stale_digest"); 20]);
    assert_eq!(bed.memory.count_refusal(&waiting.id).await.unwrap(), 25);
}

#[tokio::test]
async fn rule_a8_whoever_may_not_see_it_learns_nothing() {
    let (bed, waiting) = drop_waits().await;
    bed.memory.put_principal(&Principal::user(subject("eve"))).await.unwrap();
    let nonsense = Decision::answer(waiting.digest, countersign::Arguments::default());
    for by in ["eve", "nobody"] {
        assert_eq!(refused(&bed, &waiting, nonsense.clone(), &subject(by)).await, "not_found");
        assert_eq!(
            refused(&bed, &waiting, Decision::approve(waiting.digest), &subject(by)).await,
            "not_found"
        );
    }
    assert!(!bed.kinds(waiting.run.id()).await.contains(&"pending.refused"));
    let unknown = countersign::PendingId::from_random([7; 16]);
    let missing = bed.runtime().decide(&unknown, nonsense, &root()).await.unwrap_err();
    assert_eq!(missing.code(), "not_found", "a missing one answers alike");
}

#[tokio::test]
async fn rule_a8_the_shape_comes_before_everything_else() {
    let (bed, waiting) = drop_waits().await;
    let calls: Vec<_> = waiting.record.pending.calls.iter().map(|held| held.id.clone()).collect();
    let word = |ids: &[usize]| {
        let verdicts = ids.iter().map(|place| (calls[*place].clone(), CallVerdict::Approve)).collect();
        Decision::calls(waiting.digest, verdicts, None)
    };
    assert_eq!(refused(&bed, &waiting, word(&[]), &bob()).await, "calls_incomplete");
    assert_eq!(
        refused(&bed, &waiting, word(&[0]), &bob()).await,
        "calls_incomplete",
        "a call that needs nobody"
    );
    assert_eq!(refused(&bed, &waiting, word(&[0, 1]), &bob()).await, "calls_incomplete", "one too many");
    let settle = Decision::settle(waiting.digest, countersign::SettledOutcome::GiveUp, None);
    assert_eq!(refused(&bed, &waiting, settle, &bob()).await, "wrong_kind");
    completed(bed.decide(&waiting, word(&[1]), &bob()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_c09_vector_tr02_of_twenty_decisions_at_once_one_wins() {
    let (bed, waiting) = drop_waits().await;
    let tasks: Vec<_> = (0..20)
        .map(|place| {
            let (runtime, id, digest) = (bed.runtime(), waiting.id.clone(), waiting.digest);
            let by = if place % 2 == 0 { bob() } else { root() };
            tokio::spawn(
                async move { (by.clone(), runtime.decide(&id, Decision::approve(digest), &by).await) },
            )
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let winners: Vec<_> =
        answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(by, _)| by.clone()).collect();
    assert_eq!(winners.len(), 1, "one pending, one effective decision");
    for (_, answer) in answers.iter().filter(|(_, answer)| answer.is_err()) {
        let Err(DecideError::Refused(DecisionRefused::AlreadyDecided(decided))) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(decided.by, winners[0], "the others are told who won");
    }
    completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(bed.ledger.names(), ["get", "drop"]);
    let decisions =
        bed.kinds(waiting.run.id()).await.iter().filter(|kind| **kind == "pending.decided").count();
    assert_eq!(decisions, 1);
}

#[tokio::test]
async fn rule_a9_oneself_cannot_decide_twice_either() {
    let (bed, waiting) = drop_waits().await;
    completed(bed.approve(&waiting).await);
    let again =
        bed.runtime().decide(&waiting.id, Decision::deny(waiting.digest, None), &bob()).await.unwrap_err();
    assert_eq!(again.code(), "already_decided");
}

#[tokio::test]
async fn vector_tr04_vector_tr05_an_approver_releases_only_what_they_may_run_and_may_always_deny() {
    let script = Witness::script([turn(&[("reboot", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        let mut reboot = write("reboot", ledger);
        reboot.spec.requires_admin = true;
        vec![reboot.into()]
    })
    .await;
    bed.memory.put_principal(&Principal::admin(alice())).await.unwrap();
    let waiting = bed.waiting().await;
    assert_eq!(
        refused(&bed, &waiting, Decision::approve(waiting.digest), &bob()).await,
        "approver_not_permitted"
    );
    assert!(bed.kinds(waiting.run.id()).await.contains(&"pending.refused"));
    let run = completed(bed.decide(&waiting, Decision::deny(waiting.digest, None), &bob()).await);
    assert_eq!(result_kinds(&run), [Is::Denied]);
}

#[tokio::test]
async fn vector_tr06_a_service_account_releases_reads_and_no_write() {
    let (bed, waiting) = drop_waits().await;
    assert_eq!(
        refused(&bed, &waiting, Decision::approve(waiting.digest), &robot()).await,
        "approver_not_permitted"
    );

    let script = Witness::script([
        turn(&[("peek", "{}")]),
        turn(&[("peek", "{}"), ("crm__purge", "{}")]),
        text("done"),
    ]);
    let bed = Bed::new(script, |ledger| {
        vec![
            marked("peek", ledger).into(),
            remote("purge", Effect::Write, RemoteApproval::NotRequired, ledger).into(),
        ]
    })
    .await;
    let first = bed.waiting().await;
    let second = waiting_after(&bed, &first).await;
    let sibling =
        bed.runtime().decide(&second.id, Decision::approve(second.digest), &robot()).await.unwrap_err();
    assert_eq!(sibling.code(), "approver_not_permitted", "a write beside it would be released too");
    assert_eq!(bed.ledger.names(), ["peek"]);
}

async fn waiting_after(bed: &Bed, first: &Waiting) -> Waiting {
    waiting(bed.decide(first, Decision::approve(first.digest), &robot()).await)
}

#[tokio::test]
async fn vector_tr09_vector_tr10_four_eyes_hold_for_everybody_in_the_chain() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    bed.agent.second_approver = true;
    // Root starts it for alice: both take part, and being an admin does not help.
    let outcome = bed.runtime().run(RunRequest { starter: root(), ..request() }).await.unwrap();
    let waiting = waiting(outcome);
    for by in [alice(), root()] {
        assert_eq!(refused(&bed, &waiting, Decision::approve(waiting.digest), &by).await, "self_approval");
    }
    let run = completed(bed.decide(&waiting, Decision::approve(waiting.digest), &bob()).await);
    assert_eq!(
        run.pending(&waiting.id).unwrap().decided.as_ref().unwrap().attribution.as_str(),
        "second_person"
    );
}

#[tokio::test]
async fn vector_tr09_four_eyes_let_the_starter_deny() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    bed.agent.second_approver = true;
    let waiting = bed.waiting().await;
    // The setting is gone from the configuration, and holds for this run all the same.
    bed.agent.second_approver = false;
    assert_eq!(refused(&bed, &waiting, Decision::approve(waiting.digest), &alice()).await, "self_approval");
    completed(bed.decide(&waiting, Decision::deny(waiting.digest, None), &alice()).await);
}

async fn with_a_deadline() -> (Bed, Waiting) {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("too bad")]);
    let mut bed =
        Bed::new(script, |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()]).await;
    bed.agent.approval_ttl = Some(Duration::from_secs(60));
    let waiting = bed.waiting().await;
    (bed, waiting)
}

fn assert_expired(bed: &Bed, run: &countersign::Run) {
    assert_eq!(statuses(run), [PendingStatus::Expired]);
    assert_eq!(lines(&bed.ledger), []);
    assert_eq!(result_kinds(run), [Is::NotRun, Is::Expired]);
    let told = bed.witness.last_results();
    assert!(told[1].contains("expired") && !told[1].contains("denied"), "{}", told[1]);
}

#[tokio::test]
async fn rule_a10_a_decision_in_the_last_moment_counts_whenever_it_is_carried_out() {
    let (bed, waiting) = with_a_deadline().await;
    bed.clock.advance(Duration::from_secs(60));
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    bed.clock.advance(Duration::from_secs(3600));
    completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(bed.ledger.names(), ["get", "drop"]);
}

#[tokio::test]
async fn rule_a10_a_decision_after_the_deadline_is_refused_and_closes_the_question() {
    let (bed, waiting) = with_a_deadline().await;
    bed.clock.advance(Duration::from_secs(61));
    for decision in [Decision::approve(waiting.digest), Decision::deny(waiting.digest, None)] {
        assert_eq!(bed.runtime().decide(&waiting.id, decision, &bob()).await.unwrap_err().code(), "expired");
    }
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_expired(&bed, &run);
}

#[tokio::test]
async fn rule_a10_the_sweeper_closes_what_is_overdue_and_nothing_else() {
    let (bed, waiting) = with_a_deadline().await;
    bed.clock.advance(Duration::from_secs(60));
    assert_eq!(bed.runtime().sweep().await.unwrap(), 0);
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(bed.runtime().sweep().await.unwrap(), 1);
    assert_eq!(bed.runtime().sweep().await.unwrap(), 0);
    assert_state(&bed.runtime().load(waiting.run.id()).await.unwrap(), RunState::Active);
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_expired(&bed, &run);
}

#[tokio::test]
async fn rule_a10_a_driver_that_is_about_to_park_on_an_overdue_question_closes_it() {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("too bad")]);
    let mut bed =
        Bed::new(script, |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()]).await;
    bed.agent.approval_ttl = Some(Duration::from_secs(10));
    let between = bed.between();
    let later = bed.clone();
    between.before_release(move || async move {
        // A refused attempt keeps the driver awake, and meanwhile the time runs out.
        let open =
            later.memory.pendings(&countersign::PendingFilter::default(), 1, None).await.unwrap().items[0]
                .clone();
        let digest = countersign::Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap();
        later.runtime().decide(&open.id, Decision::approve(digest), &bob()).await.unwrap_err();
        later.clock.advance(Duration::from_secs(11));
    });
    let run = completed(bed.run().await);
    assert_expired(&bed, &run);
}

#[tokio::test]
async fn without_a_term_a_question_stays_open() {
    let (bed, waiting) = drop_waits().await;
    bed.clock.advance(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(bed.runtime().sweep().await.unwrap(), 0);
    completed(bed.approve(&waiting).await);
}

#[tokio::test]
async fn a_run_of_an_agent_or_model_that_is_gone_can_only_be_ended() {
    for gone in ["agent", "model"] {
        let (bed, waiting) = drop_waits().await;
        let mut poorer = bed.clone();
        if gone == "agent" {
            poorer.agent.name = AgentName::parse("another").unwrap();
        } else {
            poorer.models = Models::default();
        }
        assert_eq!(refused(&poorer, &waiting, Decision::approve(waiting.digest), &bob()).await, "agent_gone");
        poorer.runtime().decide(&waiting.id, Decision::deny(waiting.digest, None), &bob()).await.unwrap();
        let run = ended(poorer.runtime().drive(waiting.run.id()).await.unwrap());
        assert_eq!(failure(&run), "agent_gone", "{gone}");
    }
}

#[tokio::test]
async fn rule_r6_a_process_that_does_not_know_the_agent_leaves_the_run_to_others() {
    for gone in ["agent", "model"] {
        let (bed, waiting) = drop_waits().await;
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
        let mut poorer = bed.clone();
        if gone == "agent" {
            poorer.agent.name = AgentName::parse("another").unwrap();
        } else {
            poorer.models = Models::default();
        }
        let left = poorer.runtime().drive(waiting.run.id()).await;
        assert!(matches!(left, Err(RunError::AgentGone(run)) if run == *waiting.run.id()));
        let stop = tokio_util::sync::CancellationToken::new();
        poorer.runtime().work_off(std::sync::Arc::new(countersign::Unwatched), stop).await.unwrap();
        assert_eq!(lines(&bed.ledger), []);
        completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    }
}

#[tokio::test]
async fn rule_a11_a_definition_that_changed_makes_the_question_void() {
    let (bed, waiting) = drop_waits().await;
    let mut other = bed.clone();
    let mut changed = write("drop", &bed.ledger);
    changed.spec.effect = Effect::IdempotentWrite;
    other.tools[1] = changed.into();
    for decision in [Decision::approve(waiting.digest), Decision::deny(waiting.digest, None)] {
        assert_eq!(other.runtime().decide(&waiting.id, decision, &bob()).await.unwrap_err().code(), "void");
    }
    let run = completed(other.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(statuses(&run), [PendingStatus::from(Closing::Void)]);
    assert_eq!((lines(&bed.ledger), result_kinds(&run)), (vec![], vec![Is::NotRun, Is::Refused]));
    assert!(bed.witness.last_results()[1].contains("no longer available"));
}

#[tokio::test]
async fn a_decision_that_cannot_be_stored_decides_nothing() {
    let (bed, waiting) = drop_waits().await;
    let mut cut = bed.clone();
    let between = cut.between();
    let dying = between.clone();
    between.before_append(0, move || async move { dying.kill() });
    let error =
        cut.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "not_auditable");
    assert_eq!(asked(&waiting.record).len(), 1);
    completed(bed.approve(&waiting).await);
}
