//! What a person is shown before a call runs, and what the call gets back of it (A7).

use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{Ledger, RecordingTool, text, turn};
use countersign::{
    Arguments, CallContext, Mode, PREVIEW_LINES_MAX, PreviewContext, RunState, Tool, ToolError, ToolOutput,
    ToolPreview, ToolSpec,
};
use serde_json::json;

use crate::kit::{Bed, Witness, alice, assert_state, completed, read, request, settle, waiting, write};

async fn one_write(tool: impl FnOnce(&Ledger) -> RecordingTool) -> Bed {
    let script = Witness::script([turn(&[("drop", r#"{"id":7}"#), ("get", "{}")]), text("done")]);
    Bed::new(script, |ledger| vec![tool(ledger).into(), read("get", ledger).into()]).await
}

#[tokio::test]
async fn rule_a7_a_preview_is_shown_and_its_precondition_reaches_the_call() {
    let bed = one_write(|ledger| {
        let mut drop = write("drop", ledger);
        drop.preview = Some((vec!["- page 7".to_owned()], Some(json!({ "etag": "abc" }))));
        drop
    })
    .await;
    let waiting = bed.waiting().await;
    let shown = waiting.record.pending.calls[0].preview.as_ref().unwrap();
    assert_eq!((shown.lines.as_slice(), shown.failed), (["- page 7".to_owned()].as_slice(), false));
    assert_eq!(waiting.record.pending.calls[1].preview, None, "a tool without a preview shows none");
    completed(bed.approve(&waiting).await);
    assert_eq!(bed.ledger.calls()[0].cx.precondition, Some(json!({ "etag": "abc" })));
    assert_eq!(bed.ledger.calls()[1].cx.precondition, None);
}

#[tokio::test]
async fn rule_a7_a_preview_is_bounded() {
    let bed = one_write(|ledger| {
        let mut drop = write("drop", ledger);
        drop.preview = Some(((0..1000).map(|_| "x".repeat(1000)).collect(), None));
        drop
    })
    .await;
    let waiting = bed.waiting().await;
    let shown = waiting.record.pending.calls[0].preview.as_ref().unwrap();
    assert_eq!(shown.lines.len(), PREVIEW_LINES_MAX);
    assert!(shown.lines.iter().all(|line| line.chars().count() <= 500));
}

/// A tool whose preview goes wrong in one way or another.
struct Faulty {
    tool: RecordingTool,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    Fails,
    Panics,
    Hangs,
    SaysForWhom,
}

#[async_trait]
impl Tool for Faulty {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        self.tool.call(arguments, cx).await
    }

    async fn preview(
        &self,
        _arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        match self.how {
            How::Fails => Some(Err(ToolError::answered("no such page"))),
            How::Panics => panic!("password=hunter2"),
            How::Hangs => std::future::pending().await,
            How::SaysForWhom => {
                Some(Ok(ToolPreview { lines: vec![format!("as {}", cx.actor)], precondition: None }))
            }
        }
    }
}

async fn faulty(how: How) -> (Bed, countersign::Waiting) {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![Faulty { tool: write("drop", ledger), how }.into()]).await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    let waiting = waiting(bed.pass_until_finished(driving).await.unwrap());
    (bed, waiting)
}

#[tokio::test]
async fn rule_a7_vector_ta13_a_preview_that_fails_is_seen_to_fail_and_the_question_is_asked_all_the_same() {
    for (how, word) in [(How::Fails, "no such page"), (How::Panics, "failed"), (How::Hangs, "too long")] {
        let (bed, waiting) = faulty(how).await;
        assert_state(&waiting.run, RunState::WaitingForApproval);
        let shown = waiting.record.pending.calls[0].preview.as_ref().unwrap();
        assert!(shown.failed && shown.lines[0].contains(word), "{:?}", shown.lines);
        assert!(!shown.lines[0].contains("hunter2"));
        completed(bed.approve(&waiting).await);
    }
}

#[tokio::test]
async fn rule_a7_a_preview_is_made_under_the_owners_identity() {
    let (_, waiting) = faulty(How::SaysForWhom).await;
    assert_eq!(waiting.record.pending.calls[0].preview.as_ref().unwrap().lines, [format!("as {}", alice())]);
}

#[tokio::test]
async fn a_cancel_is_not_undone_by_a_preview_that_comes_late() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed =
        Bed::new(script, |ledger| vec![Faulty { tool: write("drop", ledger), how: How::Hangs }.into()]).await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    bed.runtime().cancel(&run, &countersign::Principal::user(alice())).await.unwrap();
    bed.pass(Duration::from_secs(40)).await;
    let run = crate::kit::ended(driving.await.unwrap().unwrap());
    assert_state(&run, RunState::Cancelled);
    assert_eq!(run.pendings().count(), 0);
}
