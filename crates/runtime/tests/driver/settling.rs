//! An unknown outcome is settled by a person, in one of three ways, and by nothing else (R11).

use std::time::Duration;

use countersign::testing::{Behaviour, text, turn};
use countersign::{Decision, PendingStatus, Question, ResultKind as Is, RunState, SettledOutcome, Waiting};

use crate::kit::{
    Bed, Witness, assert_state, bob, completed, ended, failure, free_write, read, result_kinds, robot,
    statuses,
};

async fn unknown() -> (Bed, Waiting) {
    let calls = [("crm__purge", "{}"), ("get", "{}")];
    let bed = Bed::new(Witness::script([turn(&calls), text("I see.")]), |ledger| {
        vec![free_write("purge", ledger).that(Behaviour::NoAnswer).into(), read("get", ledger).into()]
    })
    .await;
    let waiting = bed.waiting().await;
    assert_state(&waiting.run, RunState::NeedsResolution);
    let Question::Resolution { call, .. } = &waiting.record.pending.question else {
        panic!("it should ask how it came out")
    };
    assert_eq!(*call, waiting.record.pending.calls[0].id);
    (bed, waiting)
}

fn settle(waiting: &Waiting, outcome: SettledOutcome, result: Option<&str>) -> Decision {
    Decision::settle(waiting.digest, outcome, result.map(str::to_owned))
}

#[tokio::test]
async fn rule_r11_it_happened_and_the_text_given_is_its_result() {
    let (bed, waiting) = unknown().await;
    let run = completed(
        bed.decide(
            &waiting,
            settle(&waiting, SettledOutcome::Happened, Some("Seven pages are gone.")),
            &bob(),
        )
        .await,
    );
    assert_eq!(result_kinds(&run), [Is::Ok, Is::NotRun]);
    assert_eq!(bed.witness.last_results()[0], "Seven pages are gone.");
    assert_eq!(
        (bed.ledger.names(), statuses(&run)),
        (vec!["crm__purge".to_owned()], vec![PendingStatus::Settled])
    );
}

#[tokio::test]
async fn rule_r11_it_did_not_happen_and_it_is_never_run_again() {
    let (bed, waiting) = unknown().await;
    bed.clock.advance(Duration::from_secs(30));
    let run =
        completed(bed.decide(&waiting, settle(&waiting, SettledOutcome::DidNotHappen, None), &bob()).await);
    assert_eq!(result_kinds(&run), [Is::Error, Is::NotRun]);
    assert!(bed.witness.last_results()[0].contains("did not happen"));
    assert_eq!(bed.ledger.names(), ["crm__purge"]);
}

#[tokio::test]
async fn rule_r11_that_it_did_not_happen_cannot_be_said_while_it_still_may() {
    let (bed, waiting) = unknown().await;
    bed.clock.advance(Duration::from_secs(29));
    let early = settle(&waiting, SettledOutcome::DidNotHappen, None);
    assert_eq!(
        bed.runtime().decide(&waiting.id, early.clone(), &bob()).await.unwrap_err().code(),
        "too_early"
    );
    bed.clock.advance(Duration::from_secs(1));
    completed(bed.decide(&waiting, early, &bob()).await);
}

#[tokio::test]
async fn rule_r11_giving_up_ends_the_run() {
    let (bed, waiting) = unknown().await;
    let run = ended(bed.decide(&waiting, settle(&waiting, SettledOutcome::GiveUp, None), &bob()).await);
    assert_eq!((failure(&run), bed.witness.seen().len()), ("outcome_unknown", 1));
}

#[tokio::test]
async fn rule_r11_no_program_settles_it() {
    let (bed, waiting) = unknown().await;
    for outcome in [SettledOutcome::Happened, SettledOutcome::DidNotHappen, SettledOutcome::GiveUp] {
        bed.clock.advance(Duration::from_secs(30));
        let error =
            bed.runtime().decide(&waiting.id, settle(&waiting, outcome, None), &robot()).await.unwrap_err();
        assert_eq!(error.code(), "approver_not_permitted", "{outcome:?}");
    }
}

#[tokio::test]
async fn rule_r3_no_time_settles_it() {
    let mut with_a_term = unknown().await;
    with_a_term.0.agent.approval_ttl = Some(Duration::from_secs(1));
    let (bed, waiting) = with_a_term;
    bed.clock.advance(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(bed.runtime().sweep().await.unwrap(), 0);
    let still = crate::kit::waiting(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!((still.id, still.digest), (waiting.id, waiting.digest));
}

#[tokio::test]
async fn an_unknown_outcome_can_be_given_up_where_the_agent_is_gone_and_not_resumed() {
    let (bed, waiting) = unknown().await;
    let mut poorer = bed.clone();
    poorer.models = countersign::Models::default();
    for outcome in [SettledOutcome::Happened, SettledOutcome::DidNotHappen] {
        bed.clock.advance(Duration::from_secs(30));
        let error =
            poorer.runtime().decide(&waiting.id, settle(&waiting, outcome, None), &bob()).await.unwrap_err();
        assert_eq!(error.code(), "agent_gone", "{outcome:?}");
    }
    poorer
        .runtime()
        .decide(&waiting.id, settle(&waiting, SettledOutcome::GiveUp, None), &bob())
        .await
        .unwrap();
    assert_eq!(failure(&ended(poorer.runtime().drive(waiting.run.id()).await.unwrap())), "agent_gone");
}
