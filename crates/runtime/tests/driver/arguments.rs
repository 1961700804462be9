//! Arguments are read strictly, and what was read is what is shown and run (A5).

use countersign::testing::{Line, text, turn};
use countersign::{Refusal, ResultKind as Is};
use serde_json::json;

use crate::kit::{Bed, Witness, completed, id, lines, read, refusals, result_kinds, takes_id, write};

async fn bed(lines: impl IntoIterator<Item = Line>) -> Bed {
    Bed::new(Witness::script(lines), |ledger| {
        vec![
            takes_id(read("page_get", ledger)).into(),
            takes_id(write("page_drop", ledger)).into(),
            read("clock_now", ledger).into(),
        ]
    })
    .await
}

fn without_arguments(mut line: Line) -> Line {
    if let Line::Says(answer) = &mut line {
        answer.calls.iter_mut().for_each(|call| call.arguments = None);
    }
    line
}

#[tokio::test]
async fn case_c16_a_doubled_key_is_refused_before_anybody_is_asked() {
    for arguments in
        [r#"{"id":1,"id":7}"#, r#"{"id":1,"\u0069d":7}"#, r#"{"id":1,"ID":7}"#, "{\"id\":1,\"id\\u0000\":7}"]
    {
        let bed = bed([turn(&[("page_drop", arguments)]), text("ok")]).await;
        let run = completed(bed.run().await);
        assert_eq!(lines(&bed.ledger), [], "{arguments}");
        assert_eq!(
            (run.pendings().count(), refusals(&run)),
            (0, vec![Some(Refusal::InvalidArguments)]),
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn case_c30_nothing_at_all_is_an_empty_object() {
    for arguments in ["", "  ", "null", "{}", "\n"] {
        let bed = bed([turn(&[("clock_now", arguments)]), text("ok")]).await;
        completed(bed.run().await);
        assert_eq!(lines(&bed.ledger), [("clock_now".to_owned(), json!({}))], "{arguments:?}");
    }
    let bed = bed([without_arguments(turn(&[("clock_now", "")])), text("ok")]).await;
    completed(bed.run().await);
    assert_eq!(lines(&bed.ledger), [("clock_now".to_owned(), json!({}))]);
}

#[tokio::test]
async fn case_c30_what_is_not_an_object_or_does_not_fit_is_told_and_not_repaired() {
    for (arguments, word) in [
        ("", "id"),
        ("[1]", "array"),
        ("7", "number"),
        (r#""{\"id\":7}""#, "text"),
        (r#"{"name":"page_get","arguments":{"id":7}}"#, "id"),
        (r#"{"id":"7"}"#, "integer"),
        (r#"{"id":7} {"id":8}"#, "trailing"),
    ] {
        let bed = bed([turn(&[("page_get", arguments)]), text("ok")]).await;
        let run = completed(bed.run().await);
        assert_eq!((lines(&bed.ledger), result_kinds(&run)), (vec![], vec![Is::Refused]), "{arguments}");
        let told = bed.witness.last_results().remove(0);
        assert!(told.starts_with("Not run:") && told.contains(word), "{arguments}: {told}");
    }
}

#[tokio::test]
async fn rule_a5_the_arguments_that_were_shown_are_the_ones_that_run() {
    let bed = bed([
        turn(&[
            ("clock_now", r#"{"big":18446744073709551615,"s":"é\u0000"}"#),
            ("page_drop", r#" {"id" : 9007199254740993} "#),
        ]),
        text("ok"),
    ])
    .await;
    let waiting = bed.waiting().await;
    let shown: Vec<_> =
        waiting.record.pending.calls.iter().map(|call| call.arguments.as_ref().unwrap().to_value()).collect();
    completed(bed.approve(&waiting).await);
    let ran: Vec<_> = lines(&bed.ledger).into_iter().map(|(_, arguments)| arguments).collect();
    assert_eq!(ran, shown);
    assert_eq!(ran[1], json!({ "id": 9_007_199_254_740_993_u64 }), "no digit is lost");
}

#[tokio::test]
async fn rule_l2_what_is_wrong_is_told_only_where_the_tool_is_offered() {
    let bed = bed([turn(&[("page_get", r#"{"id":"x"}"#)]), text("ok")]).await;
    bed.tool_switch("page_get", Some(false)).await;
    completed(bed.run().await);
    assert_eq!(bed.witness.last_results(), ["Not run: the tool \"page_get\" is not available here."]);
}

#[tokio::test]
async fn rule_a5_an_invalid_call_beside_one_that_waits_is_not_run() {
    let calls = [("page_get", "[1]"), ("page_drop", r#"{"id":4}"#)];
    let bed = bed([turn(&calls), text("ok")]).await;
    let waiting = bed.waiting().await;
    assert_eq!(
        waiting.record.pending.calls[0].refusal(),
        Some(Refusal::InvalidArguments),
        "the person sees that it will not run"
    );
    let run = completed(bed.approve(&waiting).await);
    assert_eq!(lines(&bed.ledger), [("page_drop".to_owned(), id(4))]);
    assert_eq!(result_kinds(&run), [Is::Refused, Is::Ok]);
    let told = bed.witness.last_results().remove(0);
    assert!(
        told.contains("array"),
        "the model is told what was wrong, and not that there is no such tool: {told}"
    );
}
