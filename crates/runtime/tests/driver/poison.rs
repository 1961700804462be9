//! Calls that take their worker with them: reads and idempotent writes begin again, but not for ever (R3).

use std::collections::BTreeSet;

use countersign::testing::{Behaviour, text, turn};
use countersign::{Decision, Event, Mode, ResultKind as Is, Run, RunId, RunState, Store};

use crate::kit::{
    Bed, LEASE, Witness, assert_state, bob, completed, ended, failure, free_write, gated, idempotent, read,
    request, result_kinds, settle, waiting, write,
};

/// A worker reaches the tool, and dies there.
async fn lose_a_worker(bed: &Bed, run: &RunId) {
    let mut dying = bed.clone();
    let between = dying.between();
    let before = bed.ledger.calls().len();
    let driving = dying.drive_apart(run);
    settle().await;
    assert!(bed.ledger.calls().len() > before, "the tool is reached");
    between.kill();
    driving.abort();
    settle().await;
    bed.clock.advance(LEASE);
}

async fn hanging(tool: &str, behaviour: Behaviour) -> (Bed, RunId) {
    let script = Witness::script([turn(&[(tool, "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        vec![
            read("get", ledger).that(behaviour.clone()).into(),
            idempotent("put", ledger).that(behaviour.clone()).into(),
            write("drop", ledger).that(behaviour).into(),
        ]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    (bed, run)
}

async fn approve(bed: &Bed, run: &RunId) {
    let waiting = waiting(bed.runtime().drive(run).await.unwrap());
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
}

async fn attempts(bed: &Bed, run: &RunId) -> Vec<u32> {
    let events = bed.events(run).await;
    let attempts = events.iter().filter_map(|event| match event {
        Event::CallStarted(started) => Some(started.attempt),
        _ => None,
    });
    attempts.collect()
}

fn keys(bed: &Bed) -> BTreeSet<String> {
    bed.ledger.calls().into_iter().map(|call| call.cx.idempotency_key).collect()
}

#[tokio::test]
async fn rule_r3_a_run_whose_reads_ended_its_worker_three_times_is_poisoned() {
    let (bed, run) = hanging("get", Behaviour::Hangs).await;
    for _ in 0..3 {
        lose_a_worker(&bed, &run).await;
    }
    let run = ended(bed.pass_until_finished(bed.drive_apart(&run)).await.unwrap());
    assert_eq!((failure(&run), bed.ledger.calls().len()), ("poisoned", 3));
}

#[tokio::test]
async fn rule_r3_an_idempotent_write_that_ended_its_worker_three_times_is_unknown() {
    let (bed, run) = hanging("put", Behaviour::Hangs).await;
    approve(&bed, &run).await;
    for _ in 0..3 {
        lose_a_worker(&bed, &run).await;
    }
    let waiting = waiting(bed.pass_until_finished(bed.drive_apart(&run)).await.unwrap());
    assert_state(&waiting.run, RunState::NeedsResolution);
    assert_eq!(bed.ledger.calls().len(), 3);
    assert_eq!(keys(&bed).len(), 1, "rule R4: one call, one key over all attempts");
    assert_eq!(attempts(&bed, waiting.run.id()).await, [1, 2, 3], "each after a start of its own");
}

#[tokio::test]
async fn rule_r3_twice_is_not_too_often() {
    for tool in ["get", "put"] {
        let (open, gate) = tokio::sync::watch::channel(false);
        let (bed, run) = hanging(tool, Behaviour::WaitsFor(gate)).await;
        if tool == "put" {
            approve(&bed, &run).await;
        }
        lose_a_worker(&bed, &run).await;
        lose_a_worker(&bed, &run).await;
        open.send_replace(true);
        completed(bed.runtime().drive(&run).await.unwrap());
        assert_eq!((bed.ledger.calls().len(), keys(&bed).len()), (3, 1));
    }
}

#[tokio::test]
async fn case_c05_a_write_that_ended_its_worker_is_never_started_again() {
    let (bed, run) = hanging("drop", Behaviour::Hangs).await;
    approve(&bed, &run).await;
    lose_a_worker(&bed, &run).await;
    let waiting = waiting(bed.runtime().drive(&run).await.unwrap());
    assert_state(&waiting.run, RunState::NeedsResolution);
    // Whoever presses resume, and however often.
    for _ in 0..3 {
        bed.clock.advance(LEASE);
        crate::kit::waiting(bed.runtime().drive(&run).await.unwrap());
        let stop = tokio_util::sync::CancellationToken::new();
        bed.runtime().work_off(std::sync::Arc::new(countersign::Unwatched), stop).await.unwrap();
    }
    assert_eq!(bed.ledger.calls().len(), 1);
    let approval = waiting.run.pendings().next().unwrap().clone();
    let again = Decision::approve(approval.pending.digest(&run));
    let error = bed.runtime().decide(&approval.pending.id, again, &bob()).await.unwrap_err();
    assert_eq!(error.code(), "already_decided", "the approval is used up");
}

#[tokio::test]
async fn rule_r3_reads_in_parallel_all_begin_again_together() {
    let script = Witness::script([turn(&[("slow", r#"{"id":1}"#), ("slow", r#"{"id":2}"#)]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(read("slow", ledger));
        gate = Some(open);
        vec![slow.into()]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    lose_a_worker(&bed, &run).await;
    gate.unwrap().send_replace(true);
    let run = completed(bed.runtime().drive(&run).await.unwrap());
    assert_eq!(
        (result_kinds(&run), run.interruptions()),
        (vec![Is::Ok, Is::Ok], 1),
        "one worker was lost, not two"
    );
    assert_eq!(attempts(&bed, run.id()).await, [1, 1, 2, 2]);
}

async fn interrupted_and_switched_off(effect: &str) -> (Bed, Run) {
    let (bed, id) = hanging(effect, Behaviour::Hangs).await;
    if effect != "get" {
        approve(&bed, &id).await;
    }
    lose_a_worker(&bed, &id).await;
    bed.tool_switch(effect, Some(false)).await;
    let run = match bed.runtime().drive(&id).await.unwrap() {
        countersign::Outcome::Done(finished) => finished.run,
        countersign::Outcome::Waiting(waiting) => waiting.run,
    };
    (bed, run)
}

#[tokio::test]
async fn rule_a12_what_begins_again_goes_through_the_gate_again() {
    let (bed, run) = interrupted_and_switched_off("get").await;
    assert_eq!((bed.ledger.calls().len(), result_kinds(&run)), (1, vec![Is::Error]));
    let (bed, run) = interrupted_and_switched_off("put").await;
    assert_eq!(bed.ledger.calls().len(), 1);
    assert_state(&run, RunState::NeedsResolution);
}

#[tokio::test]
async fn an_unattended_run_with_an_unknown_write_ends_there() {
    let script = Witness::script([turn(&[("crm__purge", "{}")]), text("done")]);
    let bed =
        Bed::new(script, |ledger| vec![free_write("purge", ledger).that(Behaviour::Hangs).into()]).await;
    let run = bed.runtime().start(request(), Mode::Unattended).await.unwrap();
    lose_a_worker(&bed, &run).await;
    let run = ended(bed.runtime().drive(&run).await.unwrap());
    assert_eq!((failure(&run), bed.ledger.calls().len()), ("outcome_unknown", 1));
    assert!(bed.memory.run(run.id(), bed.now()).await.unwrap().row.finished_at.is_some());
}
