//! A person changes arguments (A14): a new question, never a silent change.

use std::collections::BTreeMap;

use countersign::testing::{text, turn};
use countersign::{CallId, DecideError, Decision, DecisionRefused, PendingStatus, Waiting};
use serde_json::json;

use crate::kit::{Bed, Witness, alice, bob, completed, lines, read, robot, subject, waiting, write};

async fn drop_waits() -> (Bed, Waiting) {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", r#"{"id":7}"#)]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        let mut drop = write("drop", ledger);
        drop.spec.parameters = json!({
            "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"]
        });
        drop.preview = Some((vec!["drops it".to_owned()], Some(json!("before"))));
        vec![read("get", ledger).into(), drop.into()]
    })
    .await;
    let waiting = bed.waiting().await;
    (bed, waiting)
}

fn to(waiting: &Waiting, arguments: &str) -> BTreeMap<CallId, String> {
    BTreeMap::from([(waiting.record.pending.calls[1].id.clone(), arguments.to_owned())])
}

#[tokio::test]
async fn rule_a14_an_edit_is_a_new_question_that_shows_both_versions() {
    let (bed, asked) = drop_waits().await;
    let runtime = bed.runtime();
    let edited = runtime.edit(&asked.id, asked.digest, &to(&asked, r#"{"id":8}"#), &bob()).await.unwrap();
    let call = &edited.pending.calls[1];
    assert_eq!(call.arguments.as_ref().unwrap().canonical(), r#"{"id":8}"#);
    assert_eq!(call.original_arguments.as_ref().unwrap().canonical(), r#"{"id":7}"#);
    assert!(call.preview.is_some(), "previewed again");
    assert_eq!(edited.pending.editors, [bob()]);
    assert_eq!(edited.pending.expires_at, asked.record.pending.expires_at);
    let run = runtime.load(asked.run.id()).await.unwrap();
    assert_eq!(run.pending(&asked.id).unwrap().status, PendingStatus::Superseded);
    assert_eq!(lines(&bed.ledger), [], "deciding is a separate act");

    let old = runtime.decide(&asked.id, Decision::approve(asked.digest), &alice()).await.unwrap_err();
    assert!(matches!(old, DecideError::Refused(DecisionRefused::Superseded)));
    let stale =
        runtime.decide(&edited.pending.id, Decision::approve(asked.digest), &alice()).await.unwrap_err();
    assert!(matches!(stale, DecideError::Refused(DecisionRefused::StaleDigest)));

    let digest = edited.pending.digest(asked.run.id());
    runtime.decide(&edited.pending.id, Decision::approve(digest), &alice()).await.unwrap();
    let done = completed(runtime.drive(asked.run.id()).await.unwrap());
    let calls = bed.ledger.calls();
    assert_eq!(
        calls.iter().map(|call| call.arguments.clone()).collect::<Vec<_>>(),
        [json!({}), json!({"id": 8})]
    );
    assert_eq!(calls[1].cx.precondition, Some(json!("before")));
    let said = done.history().next().unwrap().reply().calls[1].arguments.clone();
    assert_eq!(said.as_deref(), Some(r#"{"id":7}"#), "the model's message stays as it was");
    let told = format!("{:?}", done.transcript().last());
    assert!(told.contains("A person changed the arguments"), "{told}");
}

#[tokio::test]
async fn rule_a14_an_edit_is_checked_and_gated_and_refused_in_the_order_of_a8() {
    let (bed, asked) = drop_waits().await;
    let runtime = bed.runtime();
    let edit =
        async |digest, changes, by| runtime.edit(&asked.id, digest, &changes, &by).await.unwrap_err().code();
    assert_eq!(edit(asked.digest, to(&asked, r#"{"id":"x"}"#), bob()).await, "invalid_input");
    assert_eq!(edit(asked.digest, to(&asked, r#"{"id":1,"id":2}"#), bob()).await, "invalid_input");
    let ghost = BTreeMap::from([(CallId::parse("call_ghost").unwrap(), "{}".to_owned())]);
    assert_eq!(edit(asked.digest, ghost, bob()).await, "invalid_input");
    assert_eq!(edit(asked.digest, to(&asked, r#"{"id":8}"#), subject("nobody")).await, "not_found");
    assert_eq!(edit(asked.digest, to(&asked, r#"{"id":8}"#), robot()).await, "not_permitted");
    let mut other = asked.digest.to_string();
    let last = other.pop().unwrap();
    other.push(if last == '0' { '1' } else { '0' });
    assert_eq!(edit(other.parse().unwrap(), to(&asked, r#"{"id":8}"#), bob()).await, "stale_digest");
    let run = runtime.load(asked.run.id()).await.unwrap();
    assert_eq!(run.pending(&asked.id).unwrap().pending, asked.record.pending);

    runtime.decide(&asked.id, Decision::deny(asked.digest, None), &bob()).await.unwrap();
    assert_eq!(edit(asked.digest, to(&asked, r#"{"id":8}"#), bob()).await, "already_decided");
}

#[tokio::test]
async fn rule_a8_whoever_changed_the_arguments_may_not_release_them_under_four_eyes() {
    let (mut bed, asked) = drop_waits().await;
    bed.agent.second_approver = true;
    let runtime = bed.runtime();
    let edited = runtime.edit(&asked.id, asked.digest, &to(&asked, r#"{"id":8}"#), &bob()).await.unwrap();
    let digest = edited.pending.digest(asked.run.id());
    let own = runtime.decide(&edited.pending.id, Decision::approve(digest), &bob()).await.unwrap_err();
    assert_eq!(own.code(), "self_approval");
    runtime.decide(&edited.pending.id, Decision::deny(digest, None), &bob()).await.unwrap();
    completed(runtime.drive(asked.run.id()).await.unwrap());
    assert_eq!(lines(&bed.ledger), []);
}

#[tokio::test]
async fn rule_a14_edits_of_an_edit_keep_the_models_own_arguments_and_every_editor() {
    let (bed, asked) = drop_waits().await;
    let runtime = bed.runtime();
    let first = runtime.edit(&asked.id, asked.digest, &to(&asked, r#"{"id":8}"#), &bob()).await.unwrap();
    let again = waiting(runtime.drive(asked.run.id()).await.unwrap());
    assert_eq!(again.id, first.pending.id, "the run waits for the new question");
    let second = runtime.edit(&again.id, again.digest, &to(&asked, r#"{"id":9}"#), &alice()).await.unwrap();
    assert_eq!(second.pending.editors, [bob(), alice()]);
    assert_eq!(second.pending.calls[1].original_arguments.as_ref().unwrap().canonical(), r#"{"id":7}"#);
}
