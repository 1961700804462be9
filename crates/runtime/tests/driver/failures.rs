//! One call that goes wrong touches no other (L4), and a write that gives no answer is unknown (R3).

use std::time::Duration;

use countersign::testing::{Behaviour, text, turn};
use countersign::{CONTENT_BYTES_MAX, ResultKind as Is, RunState, Store};

use crate::kit::{
    Bed, Witness, assert_state, completed, ended, free_write, read, request, result_kinds, results, settle,
    waiting,
};

#[tokio::test]
async fn rule_l4_a_panic_an_error_and_a_timeout_touch_no_sibling() {
    let names = ["boom", "fails", "silent", "hangs", "fine"];
    let calls: Vec<_> = names.iter().map(|name| (*name, "{}")).collect();
    let mut bed = Bed::new(Witness::script([turn(&calls), text("done")]), |ledger| {
        vec![
            read("boom", ledger).that(Behaviour::Panics).into(),
            read("fails", ledger).that(Behaviour::Fails("No such page.".to_owned())).into(),
            read("silent", ledger).that(Behaviour::NoAnswer).into(),
            read("hangs", ledger).that(Behaviour::Hangs).into(),
            read("fine", ledger).into(),
        ]
    })
    .await;
    bed.limits.parallel_reads = 5;
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    bed.pass(Duration::from_secs(29)).await;
    assert!(!driving.is_finished(), "its timeout of thirty seconds has not come");
    bed.pass(Duration::from_secs(2)).await;
    let run = completed(driving.await.unwrap().unwrap());
    assert_eq!(result_kinds(&run), [Is::Error, Is::Error, Is::Error, Is::Timeout, Is::Ok]);
    assert_eq!(
        bed.witness.last_results(),
        [
            "The tool boom failed.",
            "No such page.",
            "The tool silent failed: it gave no answer.",
            "The tool hangs timed out.",
            "fine ran with {}",
        ]
    );
}

#[tokio::test]
async fn vector_tl04_what_a_panic_says_reaches_no_model() {
    let script = Witness::script([turn(&[("boom", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![read("boom", ledger).that(Behaviour::Panics).into()]).await;
    completed(bed.run().await);
    assert!(!bed.witness.last_results()[0].contains("told to panic"));
}

#[tokio::test]
async fn rule_r3_a_write_without_an_answer_is_unknown_and_the_rest_is_not_run() {
    for behaviour in [Behaviour::Panics, Behaviour::NoAnswer, Behaviour::Hangs] {
        let calls = [("get", "{}"), ("crm__purge", "{}"), ("get", r#"{"id":2}"#)];
        let bed = Bed::new(Witness::script([turn(&calls), text("done")]), |ledger| {
            vec![read("get", ledger).into(), free_write("purge", ledger).that(behaviour.clone()).into()]
        })
        .await;
        let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
        let driving = bed.drive_apart(&run);
        let waiting = waiting(bed.pass_until_finished(driving).await.unwrap());
        assert_state(&waiting.run, RunState::NeedsResolution);
        assert_eq!(bed.ledger.names(), ["get", "crm__purge"], "{behaviour:?}");
        assert_eq!(result_kinds(&waiting.run), [Is::Ok, Is::NotRun]);
        assert_eq!(bed.witness.seen().len(), 1, "the model is not asked before a person has spoken");
    }
}

#[tokio::test]
async fn rule_r3_a_write_that_answers_with_an_error_is_known() {
    let script = Witness::script([turn(&[("crm__purge", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        vec![free_write("purge", ledger).that(Behaviour::Fails("It is locked.".to_owned())).into()]
    })
    .await;
    let run = completed(bed.run().await);
    assert_eq!(
        (result_kinds(&run), bed.witness.last_results()),
        (vec![Is::Error], vec!["It is locked.".to_owned()])
    );
}

#[tokio::test]
async fn case_c53_an_answer_of_fifty_megabytes_is_bounded_before_it_is_stored() {
    let huge = "é🦀".repeat(50_000_000 / 6);
    let size = huge.len() as u64;
    let script = Witness::script([
        turn(&[("huge", "{}"), ("nul", "{}")]),
        turn(&[("crm__purge", "{}")]),
        text("done"),
    ]);
    let bed = Bed::new(script, |ledger| {
        vec![
            read("huge", ledger).that(Behaviour::Says(huge)).into(),
            read("nul", ledger).that(Behaviour::Says("W\0s\0l\0".to_owned())).into(),
            free_write("purge", ledger).that(Behaviour::NoAnswer).into(),
        ]
    })
    .await;
    // Suspended in the next turn: what was kept is what is read again.
    let run = waiting(bed.run().await).run;
    let kept = &results(&run)[0];
    assert_eq!(kept.bytes, size);
    assert!(kept.content.len() <= CONTENT_BYTES_MAX);
    assert!(kept.content.ends_with(&format!("[cut: {size} bytes in all]")), "the true size is told");
    assert_eq!(results(&run)[1].content, "W␀s␀l␀");
}

#[tokio::test]
async fn rule_r8_a_hanging_call_ends_with_its_driver() {
    // The process is asked to stop while nothing is at a boundary: the call is awaited, and its result kept.
    let script = Witness::script([turn(&[("slow", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = crate::kit::gated(read("slow", ledger));
        gate = Some(open);
        vec![slow.into()]
    })
    .await;
    let runtime = bed.runtime();
    let run = runtime.start(request(), countersign::Mode::Attended).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let driving = tokio::spawn({
        let (runtime, run, stop) = (runtime.clone(), run.clone(), stop.clone());
        async move { runtime.drive_watched(&run, std::sync::Arc::new(countersign::Unwatched), stop).await }
    });
    settle().await;
    stop.cancel();
    settle().await;
    assert!(!driving.is_finished(), "it stops at the next boundary, not in the middle of a call");
    gate.unwrap().send_replace(true);
    assert!(matches!(driving.await.unwrap(), Err(countersign::RunError::Stopped(left)) if left == run));
    assert!(!bed.memory.run(&run, bed.now()).await.unwrap().leased, "whoever comes next need not wait");
    let run = ended(bed.runtime().drive(&run).await.unwrap());
    assert_eq!((bed.ledger.names(), result_kinds(&run)), (vec!["slow".to_owned()], vec![Is::Ok]));
}
