//! A cancel works at once in every state short of an end (R8).

use std::time::Duration;

use countersign::testing::{Behaviour, Line, text, turn};
use countersign::{
    CancelError, Decision, Mode, PendingStatus, Principal, ResultKind as Is, Run, RunId, RunState, Stage,
    Store,
};

use crate::kit::{
    Bed, POLL, Witness, alice, assert_state, bob, completed, date_input, ended, free_write, gated,
    idempotent, lines, read, request, result_kinds, settle, statuses, subject, write,
};

async fn cancel(bed: &Bed, run: &RunId) -> Run {
    bed.runtime().cancel(run, &Principal::user(alice())).await.unwrap()
}

async fn start(bed: &Bed) -> RunId {
    bed.runtime().start(request(), Mode::Attended).await.unwrap()
}

#[tokio::test]
async fn case_c22_a_waiting_run_is_withdrawn_with_its_question() {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("never")]);
    let bed = Bed::new(script, |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    let run = cancel(&bed, waiting.run.id()).await;
    assert_state(&run, RunState::Cancelled);
    assert_eq!(
        (statuses(&run), result_kinds(&run)),
        (vec![PendingStatus::Withdrawn], vec![Is::Cancelled, Is::Cancelled])
    );
    for decision in [Decision::approve(waiting.digest), Decision::deny(waiting.digest, None)] {
        assert_eq!(
            bed.runtime().decide(&waiting.id, decision, &bob()).await.unwrap_err().code(),
            "withdrawn"
        );
    }
    let listed = bed.memory.run(run.id(), bed.now()).await.unwrap();
    assert_eq!(listed.status(), "cancelled");
    ended(bed.runtime().drive(run.id()).await.unwrap());
    assert_eq!((lines(&bed.ledger), bed.witness.seen().len()), (vec![], 1));
}

#[tokio::test]
async fn rule_r8_a_cancel_stored_before_a_dispatch_prevents_it() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("never")]);
    let mut bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let between = bed.between();
    let (later, id) = (bed.clone(), waiting.run.id().clone());
    // In the very moment between the gate and the stored start.
    between.before_append(0, move || async move {
        Bed { store: std::sync::Arc::clone(&later.memory) as std::sync::Arc<dyn Store>, ..later }
            .runtime()
            .cancel(&id, &Principal::user(alice()))
            .await
            .unwrap();
    });
    let run = ended(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_state(&run, RunState::Cancelled);
    assert_eq!(lines(&bed.ledger), []);
}

#[tokio::test]
async fn case_c23_a_read_that_hangs_is_aborted_at_the_next_look() {
    let script = Witness::script([turn(&[("hangs", "{}"), ("get", "{}")]), text("never")]);
    let bed = Bed::new(script, |ledger| {
        vec![read("hangs", ledger).that(Behaviour::Hangs).into(), read("get", ledger).into()]
    })
    .await;
    let id = start(&bed).await;
    let driving = bed.drive_apart(&id);
    settle().await;
    let run = cancel(&bed, &id).await;
    assert_state(&run, RunState::Cancelled);
    settle().await;
    assert!(!driving.is_finished(), "it looks around once a poll");
    bed.pass(POLL).await;
    let run = ended(driving.await.unwrap().unwrap());
    assert_eq!(result_kinds(&run), [Is::Cancelled, Is::Cancelled]);
    assert!(!bed.memory.run(&id, bed.now()).await.unwrap().leased);
    assert_eq!(bed.kinds(&id).await.last(), Some(&"run.cancelled"));
}

#[tokio::test]
async fn rule_r8_a_write_in_flight_is_awaited_and_nothing_starts_after_it() {
    let script = Witness::script([turn(&[("crm__purge", "{}"), ("get", "{}")]), text("never")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (purge, open) = gated(free_write("purge", ledger));
        gate = Some(open);
        vec![purge.into(), read("get", ledger).into()]
    })
    .await;
    let id = start(&bed).await;
    let driving = bed.drive_apart(&id);
    settle().await;
    let run = cancel(&bed, &id).await;
    assert!(
        run.end().is_none() && run.is_cancelled(),
        "it is asked for, and carried out at the next boundary"
    );
    let twice = bed.runtime().cancel(&id, &Principal::user(alice())).await;
    assert!(matches!(twice, Err(CancelError::NotCancellable)));
    bed.pass(Duration::from_secs(10)).await;
    assert!(!driving.is_finished());
    gate.unwrap().send_replace(true);
    let run = ended(driving.await.unwrap().unwrap());
    assert_state(&run, RunState::Cancelled);
    assert_eq!(
        (result_kinds(&run), bed.ledger.names()),
        (vec![Is::Ok, Is::Cancelled], vec!["crm__purge".to_owned()])
    );
}

/// A write is in flight, the run is cancelled, and the worker is gone. Who comes next must not start it
/// again, and must not be stuck with it.
async fn cancelled_and_lost(mut bed: Bed, waits: bool) -> (Bed, Run) {
    let id = if waits {
        let waiting = bed.waiting().await;
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
        waiting.run.id().clone()
    } else {
        start(&bed).await
    };
    let between = bed.between();
    let driving = bed.drive_apart(&id);
    settle().await;
    assert_eq!(bed.ledger.calls().len(), 1);
    between.kill();
    driving.abort();
    bed.store = std::sync::Arc::clone(&bed.memory) as std::sync::Arc<dyn Store>;
    cancel(&bed, &id).await;
    bed.clock.advance(crate::kit::LEASE);
    let run = ended(bed.runtime().drive(&id).await.unwrap());
    (bed, run)
}

#[tokio::test]
async fn rule_r8_an_unknown_write_of_a_cancelled_run_stays_unknown_in_the_record() {
    let script = || Witness::script([turn(&[("crm__purge", "{}")]), text("never")]);
    let bed =
        Bed::new(script(), |ledger| vec![free_write("purge", ledger).that(Behaviour::Hangs).into()]).await;
    let (bed, run) = cancelled_and_lost(bed, false).await;
    assert_state(&run, RunState::Cancelled);
    assert!(matches!(run.turn().unwrap().calls().next().unwrap().stage, Stage::Unknown { .. }));
    assert_eq!(bed.ledger.calls().len(), 1);
}

#[tokio::test]
async fn rule_r8_an_idempotent_write_of_a_cancelled_run_is_not_started_again() {
    let script = Witness::script([turn(&[("put", "{}")]), text("never")]);
    let bed = Bed::new(script, |ledger| vec![idempotent("put", ledger).that(Behaviour::Hangs).into()]).await;
    let (bed, run) = cancelled_and_lost(bed, true).await;
    assert_state(&run, RunState::Cancelled);
    assert!(matches!(run.turn().unwrap().calls().next().unwrap().stage, Stage::Unknown { .. }));
    assert_eq!(bed.ledger.calls().len(), 1);
}

#[tokio::test]
async fn a_run_whose_outcome_is_unknown_can_be_cancelled() {
    let script = Witness::script([turn(&[("crm__purge", "{}")]), text("never")]);
    let bed =
        Bed::new(script, |ledger| vec![free_write("purge", ledger).that(Behaviour::NoAnswer).into()]).await;
    let waiting = bed.waiting().await;
    let run = cancel(&bed, waiting.run.id()).await;
    assert_state(&run, RunState::Cancelled);
    assert_eq!(statuses(&run), [PendingStatus::Withdrawn]);
    assert!(
        matches!(run.turn().unwrap().calls().next().unwrap().stage, Stage::Unknown { .. }),
        "and stays unknown"
    );
}

#[tokio::test]
async fn a_run_that_waits_for_input_or_for_a_model_can_be_cancelled() {
    let script = Witness::script([turn(&[("pick", "{}")])]);
    let bed = Bed::new(script, |ledger| vec![date_input("pick", ledger).into()]).await;
    let waiting = bed.waiting().await;
    assert_eq!(statuses(&cancel(&bed, waiting.run.id()).await), [PendingStatus::Withdrawn]);

    let bed = Bed::new(Witness::script([Line::Hangs]), |_| Vec::new()).await;
    let id = start(&bed).await;
    let driving = bed.drive_apart(&id);
    settle().await;
    assert_state(&cancel(&bed, &id).await, RunState::Cancelled);
    bed.pass(POLL).await;
    assert_state(&ended(driving.await.unwrap().unwrap()), RunState::Cancelled);
}

#[tokio::test]
async fn vector_tq02_a_run_that_nobody_has_taken_up_is_cancelled_before_it_begins() {
    let bed = Bed::new(Witness::script([]), |_| Vec::new()).await;
    let id = start(&bed).await;
    assert_state(&cancel(&bed, &id).await, RunState::Cancelled);
    ended(bed.runtime().drive(&id).await.unwrap());
    assert_eq!(bed.witness.seen().len(), 0);
}

#[tokio::test]
async fn vector_tq03_a_cancel_while_the_model_answers_lets_nothing_of_the_answer_run() {
    let script = Witness::script([turn(&[("get", "{}")])]);
    let mut bed = Bed::new(script, |ledger| vec![read("get", ledger).into()]).await;
    let id = start(&bed).await;
    let between = bed.between();
    let (later, run) = (bed.clone(), id.clone());
    between.before_append(0, move || async move {
        later.runtime().cancel(&run, &Principal::user(alice())).await.unwrap();
    });
    assert_state(&ended(bed.runtime().drive(&id).await.unwrap()), RunState::Cancelled);
    assert_eq!(lines(&bed.ledger), []);
}

#[tokio::test]
async fn only_the_owner_and_admins_cancel_and_an_ended_run_cannot_be() {
    let bed = Bed::new(Witness::script([text("done")]), |_| Vec::new()).await;
    let id = start(&bed).await;
    for stranger in [Principal::user(subject("eve")), Principal::approver(bob())] {
        let refused = bed.runtime().cancel(&id, &stranger).await;
        assert!(matches!(refused, Err(CancelError::NotFound(_))), "{stranger:?}");
    }
    completed(bed.runtime().drive(&id).await.unwrap());
    let refused = bed.runtime().cancel(&id, &Principal::admin(crate::kit::root())).await;
    assert!(matches!(refused, Err(CancelError::NotCancellable)));
}
