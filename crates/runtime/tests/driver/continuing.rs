//! A run goes on with the conversation of one that has ended (R10).

use countersign::testing::{Line, text, turn};
use countersign::{
    Limit, Mode, Models, Principal, Provider, ProviderName, RunError, RunId, RunLimits, RunRequest,
    StartError, Store, Zone,
};

use crate::kit::{
    Bed, Sent, Witness, alice, bob, completed, ended, limit_of, model_ref, read, request, subject, waiting,
    write,
};

async fn bed(lines: impl IntoIterator<Item = Line>) -> Bed {
    Bed::new(Witness::script(lines), |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()])
        .await
}

fn next(before: &RunId, task: &str) -> RunRequest {
    let mut request = RunRequest { continue_from: Some(before.clone()), ..request() };
    request.input[0].text = task.to_owned();
    request
}

fn words(sent: &[Sent]) -> Vec<String> {
    let words = sent.iter().map(|sent| match sent {
        Sent::System(_) => "system".to_owned(),
        Sent::Input(text) => text.clone(),
        Sent::Reply(calls) => format!("reply {}", calls.len()),
        Sent::Result { .. } => "result".to_owned(),
    });
    words.collect()
}

fn refused(error: RunError) -> StartError {
    match error {
        RunError::Start(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn rule_r10_a_continuation_is_told_the_whole_conversation_and_counts_by_itself() {
    let bed =
        bed([turn(&[("get", "{}")]), text("one"), turn(&[("drop", "{}")]), text("two"), text("three")]).await;
    let first = completed(bed.run().await);
    let second = waiting(bed.runtime().run(next(first.id(), "Second.")).await.unwrap());
    // A person thinks, in another process.
    let second = completed(bed.approve(&second).await);
    let third = completed(bed.runtime().run(next(second.id(), "Third.")).await.unwrap());
    let seen = bed.witness.seen();
    let told = words(&seen.last().unwrap().sent);
    let head =
        ["system", "Tidy up.", "reply 1", "result", "reply 0", "Second.", "reply 1", "result", "reply 0"];
    assert_eq!(told, [&head[..], &["Third."]].concat());
    assert_eq!((second.iterations(), second.usage().input_tokens, third.iterations()), (2, 20, 1));
    assert_eq!(third.created().continues.as_ref(), Some(second.id()));
    let row = bed.memory.run(third.id(), bed.now()).await.unwrap().row;
    assert_eq!(row.continues.as_ref(), Some(second.id()));
}

#[tokio::test]
async fn rule_r10_only_what_has_ended_and_is_ones_own_is_continued() {
    let bed = bed([turn(&[("drop", "{}")]), text("done")]).await;
    let first = bed.waiting().await;
    let id = first.run.id().clone();
    let start = async |request| refused(bed.runtime().run(request).await.unwrap_err());
    assert!(matches!(start(next(&id, "x")).await, StartError::RunNotEnded(run) if run == id));
    bed.runtime().cancel(&id, &Principal::user(alice())).await.unwrap();
    for who in [bob(), subject("root")] {
        let foreign = RunRequest { owner: who.clone(), starter: who, ..next(&id, "x") };
        assert!(matches!(start(foreign).await, StartError::NoSuchRun(run) if run == id));
    }
    let nobody = RunId::from_random([9; 16]);
    assert!(matches!(start(next(&nobody, "x")).await, StartError::NoSuchRun(run) if run == nobody));
    completed(bed.runtime().run(next(&id, "x")).await.unwrap());
}

#[tokio::test]
async fn case_c34_rule_r10_a_cancelled_run_is_continued_with_every_call_answered() {
    let bed = bed([turn(&[("drop", "{}"), ("get", "{}")]), text("done")]).await;
    let first = bed.waiting().await;
    bed.runtime().cancel(first.run.id(), &Principal::user(alice())).await.unwrap();
    let second = completed(bed.runtime().run(next(first.run.id(), "Go on.")).await.unwrap());
    assert_eq!(second.output(), Some("done"));
    assert_eq!(
        words(&bed.witness.seen().last().unwrap().sent),
        ["system", "Tidy up.", "reply 2", "result", "result", "Go on."]
    );
}

#[tokio::test]
async fn rule_l8_denials_are_remembered_by_the_run_and_not_by_what_continues_it() {
    let drop_seven = || turn(&[("drop", r#"{"id":7}"#)]);
    let bed = bed([drop_seven(), text("done"), drop_seven()]).await;
    let first = bed.waiting().await;
    let denial = countersign::Decision::deny(first.digest, None);
    let first = completed(bed.decide(&first, denial, &bob()).await);
    waiting(bed.runtime().run(next(first.id(), "Ask again.")).await.unwrap());
}

#[tokio::test]
async fn rule_l6_the_conversation_before_is_left_out_first() {
    let mut bed = bed([turn(&[("get", "{}")]), text(&"long ".repeat(200)), text("two"), text("three")]).await;
    let first = completed(bed.run().await);
    bed.agent.limits = RunLimits { window_tokens: Some(400), ..RunLimits::iterations(20) };
    let second = completed(bed.runtime().run(next(first.id(), "Second.")).await.unwrap());
    assert_eq!(words(&bed.witness.seen().last().unwrap().sent), ["system", "Tidy up.", "Second."]);
    let exhausted = next(second.id(), &"x".repeat(2000));
    assert_eq!(limit_of(&ended(bed.runtime().run(exhausted).await.unwrap())), Limit::ContextExhausted);
}

#[tokio::test]
async fn rule_p5_a_conversation_does_not_go_to_models_that_are_trusted_less() {
    let mut bed = bed((0..9).map(|_| text("done"))).await;
    let client = bed.models.find(&model_ref("p")).unwrap().client.clone();
    let with = |models: Models, name: &str, zone| {
        models.with(ProviderName::parse(name).unwrap(), Provider { zone, client: client.clone() })
    };
    let models = with(bed.models.clone(), "near", Zone::Local);
    bed.models = with(with(models, "eu", Zone::ExternalEu), "far", Zone::ExternalGlobal);
    let first = completed(bed.run().await);
    let to =
        |before: &RunId, provider: &str| RunRequest { model: Some(model_ref(provider)), ..next(before, "x") };
    let error = refused(bed.runtime().run(to(first.id(), "far")).await.unwrap_err());
    assert!(
        matches!(&error, StartError::NotContinuable { .. }) && error.to_string().contains("external_global")
    );
    let near = completed(bed.runtime().run(to(first.id(), "near")).await.unwrap());
    completed(bed.runtime().run(to(near.id(), "p")).await.unwrap());
    // What was held far away may go anywhere that is trusted as much.
    let far = RunRequest { model: Some(model_ref("far")), ..request() };
    let far = completed(bed.runtime().run(far).await.unwrap());
    completed(bed.runtime().run(to(far.id(), "eu")).await.unwrap());
    // A provider that is gone says nothing about what it was trusted with.
    let eu = RunRequest { model: Some(model_ref("eu")), ..request() };
    let eu = completed(bed.runtime().run(eu).await.unwrap());
    bed.models = with(with(Models::default(), "p", Zone::Local), "far", Zone::ExternalGlobal);
    assert!(bed.runtime().run(to(eu.id(), "far")).await.is_err());
    completed(bed.runtime().run(to(eu.id(), "p")).await.unwrap());
    bed.enforcement = countersign::Enforcement::Observe;
    completed(bed.runtime().run(to(eu.id(), "far")).await.unwrap());
}

#[tokio::test]
async fn rule_r2_rule_r10_what_continues_a_run_that_cannot_be_read_is_left_as_it_is() {
    let bed = bed([text("one"), turn(&[("drop", "{}")]), text("two")]).await;
    let first = completed(bed.run().await);
    let second = waiting(bed.runtime().run(next(first.id(), "Second.")).await.unwrap());
    bed.runtime().decide(&second.id, countersign::Decision::approve(second.digest), &bob()).await.unwrap();
    bed.memory.damage(&countersign::contract::Damage::Entry { run: first.id().clone(), seq: 1 });
    let error = bed.runtime().drive(second.run.id()).await.unwrap_err().to_string();
    assert!(error.contains(first.id().as_str()) && error.contains("what it continues"), "{error}");
    assert_eq!(bed.ledger.names(), [""; 0], "nothing is done in it");
    let error = refused(bed.runtime().run(next(first.id(), "Third.")).await.unwrap_err());
    assert!(matches!(error, StartError::NotContinuable { .. }), "{error}");
    let start = bed.runtime().start(request(), Mode::Attended).await;
    completed(bed.runtime().drive(&start.unwrap()).await.unwrap());
}
