//! One call that goes wrong touches no other (L4), and a write that gives no answer is unknown (R3).

use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{Behaviour, RecordingTool, text, turn};
use countersign::{
    Arguments, CONTENT_BYTES_MAX, CallContext, Detail, Event, ResultKind as Is, RunId, RunState, Store, Tool,
    ToolError, ToolOutput, ToolSpec,
};

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

/// What the record keeps of the call with this tool.
async fn kept(bed: &Bed, run: &RunId, tool: &str) -> Option<String> {
    let log = bed.memory.load(run).await.unwrap();
    let detail = log.entries.iter().find_map(|entry| {
        if let Event::CallFinished(finished) = &entry.event {
            return (finished.tool == tool).then(|| finished.detail.clone());
        }
        let Event::CallUnknown(unknown) = &entry.event else { return None };
        (unknown.tool == tool).then(|| unknown.detail.clone())
    });
    detail.unwrap().map(|detail| detail.as_str().to_owned())
}

/// Fails with words for the model and a detail for the record.
struct Telling(RecordingTool, fn() -> ToolError);

#[async_trait]
impl Tool for Telling {
    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    async fn call(&self, _arguments: &Arguments, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        Err((self.1)().with_detail(Detail::new("row canary-DETAIL")))
    }
}

#[tokio::test]
async fn rule_s5_what_a_tool_keeps_for_the_record_is_told_to_no_model() {
    let names = ["boom", "answers", "unsent", "silent", "hangs"];
    let calls: Vec<_> = names.iter().map(|name| (*name, "{}")).collect();
    let bed = Bed::new(Witness::script([turn(&calls), text("done")]), |ledger| {
        let telling = |name, error| Telling(read(name, ledger), error).into();
        vec![
            read("boom", ledger).that(Behaviour::Panics).into(),
            telling("answers", || ToolError::answered("No such page.")),
            telling("unsent", || ToolError::not_sent("Not reached.")),
            telling("silent", ToolError::no_answer),
            read("hangs", ledger).that(Behaviour::Hangs).into(),
        ]
    })
    .await;
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    completed(bed.pass_until_finished(driving).await.unwrap());
    let seen = format!("{:?}", bed.witness.seen());
    assert!(seen.contains("No such page.") && !seen.contains("canary-DETAIL"), "{seen}");
    for (tool, expected) in [
        ("boom", "the tool's code panicked\nthe tool boom was told to panic"),
        ("answers", "row canary-DETAIL"),
        ("unsent", "row canary-DETAIL"),
        ("silent", "row canary-DETAIL"),
    ] {
        assert_eq!(kept(&bed, &run, tool).await.as_deref(), Some(expected), "{tool}");
    }
    assert!(kept(&bed, &run, "hangs").await.unwrap().starts_with("no answer in 30"));
}

#[tokio::test]
async fn rule_r3_why_a_write_is_unknown_is_in_the_record() {
    for (behaviour, expected) in [
        (Behaviour::Panics, Some("the tool's code panicked")),
        (Behaviour::Hangs, Some("no answer in ")),
        (Behaviour::NoAnswer, None),
    ] {
        let bed = Bed::new(Witness::script([turn(&[("crm__purge", "{}")])]), |ledger| {
            vec![free_write("purge", ledger).that(behaviour.clone()).into()]
        })
        .await;
        let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
        let driving = bed.drive_apart(&run);
        waiting(bed.pass_until_finished(driving).await.unwrap());
        let kept = kept(&bed, &run, "crm__purge").await;
        assert_eq!(kept.is_some(), expected.is_some(), "{behaviour:?}: {kept:?}");
        assert!(kept.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{behaviour:?}");
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
