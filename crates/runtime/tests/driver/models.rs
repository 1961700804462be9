//! Models that fail: retries wrap the model call only, and the tools never notice (L7).

use std::time::Duration;

use countersign::testing::{Line, text, turn};
use countersign::{Event, ModelError, Models, Provider, ProviderName, ResultKind as Is, Usage, Zone};

use crate::kit::{
    Bed, Witness, bob, completed, ended, failure, model_ref, read, request, result_kinds, settle, write,
};

fn busy(retry_after: Option<u64>) -> Line {
    Line::Fails(ModelError::Busy { retry_after: retry_after.map(Duration::from_secs) })
}

async fn bed(lines: impl IntoIterator<Item = Line>) -> Bed {
    Bed::new(Witness::script(lines), |ledger| {
        vec![write("page_drop", ledger).into(), read("get", ledger).into()]
    })
    .await
}

async fn approved(bed: &Bed) -> tokio::task::JoinHandle<Result<countersign::Outcome, countersign::RunError>> {
    let waiting = bed.waiting().await;
    let decision = countersign::Decision::approve(waiting.digest);
    bed.runtime().decide(&waiting.id, decision, &bob()).await.unwrap();
    bed.drive_apart(waiting.run.id())
}

#[tokio::test]
async fn case_c06_too_many_requests_after_an_approved_write() {
    let bed = bed([turn(&[("page_drop", r#"{"id":2}"#)]), busy(Some(1)), busy(Some(1)), text("gone")]).await;
    let driving = approved(&bed).await;
    let began = bed.now();
    let run = completed(bed.pass_until_finished(driving).await.unwrap());
    assert!(bed.now().duration_since(began).as_secs() >= 2, "what the provider asked for is honoured");
    assert_eq!(bed.ledger.names(), ["page_drop"], "the tool is not run again");
    let seen = bed.witness.seen();
    assert_eq!(seen.len(), 4);
    assert!(seen[1] == seen[2] && seen[2] == seen[3], "the same request goes out again, unchanged");
    assert_eq!(
        run.usage(),
        Usage { input_tokens: 20, output_tokens: 10, cached_input_tokens: 0, unknown_calls: 2 }
    );
}

#[tokio::test]
async fn case_c06_too_many_requests_for_ever() {
    let script = std::iter::once(turn(&[("page_drop", r#"{"id":2}"#)])).chain((0..20).map(|_| busy(None)));
    let bed = bed(script).await;
    let driving = approved(&bed).await;
    let run = ended(bed.pass_until_finished(driving).await.unwrap());
    assert_eq!(failure(&run), "rate_limited");
    assert_eq!(bed.witness.seen().len(), 1 + 5, "at most five attempts");
    assert_eq!(
        (bed.ledger.names(), result_kinds(&run)),
        (vec!["page_drop".to_owned()], vec![Is::Ok]),
        "the result is kept"
    );
    let failed = bed.events(run.id()).await.into_iter().find_map(|event| match event {
        Event::ModelFailed(failed) => Some((failed.attempts, failed.usage.unknown_calls)),
        _ => None,
    });
    assert_eq!(failed, Some((5, 5)));
    assert_eq!(run.usage().unknown_calls, 5, "rule L5: what failed attempts cost is counted as unknown");
}

#[tokio::test]
async fn rule_l7_a_refused_request_is_never_sent_again_unchanged() {
    for (error, code) in [
        (ModelError::Refused { status: 400 }, "model_refused"),
        (ModelError::Unauthorized { status: 401 }, "model_unauthorized"),
    ] {
        let bed = bed([Line::Fails(error), text("never")]).await;
        let run = ended(bed.run().await);
        assert_eq!((failure(&run), bed.witness.seen().len()), (code, 1));
    }
}

#[tokio::test]
async fn rule_l7_broken_answers_and_servers_are_tried_again() {
    let script = [
        Line::Fails(ModelError::Unreadable { reason: "no choices".to_owned() }),
        Line::Fails(ModelError::Unreachable("reset".into())),
        Line::Fails(ModelError::ServerError { status: 503, retry_after: None }),
        text("done"),
    ];
    let bed = bed(script).await;
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    let run = completed(bed.pass_until_finished(driving).await.unwrap());
    assert_eq!((bed.witness.seen().len(), run.usage().unknown_calls), (4, 3));
}

#[tokio::test]
async fn rule_l7_no_provider_keeps_a_run_waiting_for_hours() {
    let bed = bed([busy(Some(100_000)), text("done")]).await;
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    bed.pass(Duration::from_secs(59)).await;
    assert_eq!(bed.witness.seen().len(), 1);
    bed.pass(Duration::from_secs(2)).await;
    completed(driving.await.unwrap().unwrap());
}

#[tokio::test]
async fn rule_l7_a_fallback_answers_and_the_first_is_asked_again_for_the_next_turn() {
    let mut bed = bed([Line::Fails(ModelError::Refused { status: 400 }), text("back again")]).await;
    let second = Witness::script([turn(&[("get", "{}")])]);
    let provider =
        |witness: &Witness| Provider { zone: Zone::Local, client: std::sync::Arc::new(witness.clone()) };
    bed.models = Models::default()
        .with(ProviderName::parse("p").unwrap(), provider(&bed.witness))
        .with(ProviderName::parse("q").unwrap(), provider(&second));
    bed.agent.models = vec![model_ref("p"), model_ref("q")];
    let run = completed(bed.run().await);
    assert_eq!(run.output(), Some("back again"));
    assert_eq!((bed.witness.seen().len(), second.seen().len()), (2, 1));
    assert_eq!(bed.witness.last_results().len(), 1, "the first is told what the second did");
    let replies: Vec<_> = bed
        .events(run.id())
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::ModelReplied(replied) => Some(replied.reply.provider.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(replies, ["q", "p"], "what was answered is booked to whoever answered");
}

#[tokio::test]
async fn a_fallback_that_is_not_configured_is_passed_over() {
    let mut bed = bed([Line::Fails(ModelError::Refused { status: 400 })]).await;
    bed.agent.models = vec![model_ref("p"), model_ref("ghost")];
    let run = ended(bed.run().await);
    assert_eq!(failure(&run), "model_unreachable");
    assert_eq!(bed.kinds(run.id()).await, ["run.created", "model.failed", "model.failed", "run.failed"]);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_model_that_hangs() {
    let bed = bed([Line::Hangs, text("done")]).await;
    let runtime = bed.runtime();
    let run = runtime.start(request(), countersign::Mode::Attended).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let driving = tokio::spawn({
        let (runtime, run, stop) = (runtime.clone(), run.clone(), stop.clone());
        async move { runtime.drive_watched(&run, std::sync::Arc::new(countersign::Unwatched), stop).await }
    });
    settle().await;
    stop.cancel();
    assert!(matches!(driving.await.unwrap(), Err(countersign::RunError::Stopped(_))));
    completed(bed.runtime().drive(&run).await.unwrap());
}
