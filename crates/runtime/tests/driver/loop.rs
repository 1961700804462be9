//! Turns, results and their order: what the loop does when nothing goes wrong.

use countersign::testing::{text, turn};
use countersign::{Decision, RemoteApproval, RunState, Stage, Store, ToolRequest};
use serde_json::json;

use crate::kit::{
    Bed, Sent, Witness, alice, asked, assert_state, bob, completed, ended, free_write, gated, id, idempotent,
    lines, marked, read, remote, request, request_for, result_kinds, results, settle, waiting, write,
};
use countersign::{Effect, ResultKind as Is};

#[tokio::test]
async fn case_c01_a_read_and_a_write_in_one_turn_wait_together() {
    let script =
        Witness::script([turn(&[("page_get", r#"{"id":7}"#), ("page_drop", r#"{"id":7}"#)]), text("done")]);
    let bed =
        Bed::new(script, |ledger| vec![read("page_get", ledger).into(), write("page_drop", ledger).into()])
            .await;
    let waiting = bed.waiting().await;
    assert_eq!(lines(&bed.ledger), [], "not even the read has run");
    assert_state(&waiting.run, RunState::WaitingForApproval);
    let held: Vec<&str> = waiting.record.pending.calls.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!(held, ["page_get", "page_drop"], "one question holds the whole turn, in order");
    assert_eq!(asked(&waiting.record).len(), 1, "and asks about the write");

    let run = completed(bed.approve(&waiting).await);
    assert_eq!(lines(&bed.ledger), [("page_get".to_owned(), id(7)), ("page_drop".to_owned(), id(7))]);
    assert_eq!(result_kinds(&run), [Is::Ok, Is::Ok]);
    assert_eq!(bed.witness.seen().len(), 2);
    assert_eq!(
        bed.witness.last_results(),
        [r#"page_get ran with {"id":7}"#, r#"page_drop ran with {"id":7}"#]
    );
    assert_eq!(
        bed.kinds(run.id()).await,
        [
            "run.created",
            "model.replied",
            "pending.opened",
            "pending.decided",
            "call.started",
            "call.finished",
            "call.started",
            "call.finished",
            "model.replied",
            "run.completed",
        ]
    );
}

#[tokio::test]
async fn case_c02_a_denied_turn_runs_nothing_and_tells_the_model_all_of_it() {
    let calls =
        [("mail_post", r#"{"to":"a@x.test"}"#), ("page_drop", r#"{"id":3}"#), ("page_get", r#"{"id":3}"#)];
    let script = Witness::script([turn(&calls), text("understood")]);
    let bed = Bed::new(script, |ledger| {
        vec![
            write("mail_post", ledger).into(),
            write("page_drop", ledger).into(),
            read("page_get", ledger).into(),
        ]
    })
    .await;
    let waiting = bed.waiting().await;
    let deny = Decision::deny(waiting.digest, Some("wrong \"page\"".to_owned()));
    let run = completed(bed.decide(&waiting, deny, &bob()).await);
    assert_eq!(lines(&bed.ledger), []);
    assert_eq!(result_kinds(&run), [Is::Denied, Is::Denied, Is::NotRun]);
    let told = bed.witness.last_results();
    assert!(
        told[0].starts_with("Not run: denied by a person.") && told[0].contains(r#""wrong \"page\"""#),
        "{}",
        told[0]
    );
    assert!(!told[2].contains("wrong") && told[2].starts_with("Not run:"), "{}", told[2]);
    let replies = bed
        .witness
        .seen()
        .last()
        .unwrap()
        .sent
        .iter()
        .filter(|sent| matches!(sent, Sent::Reply(calls) if calls.len() == 3))
        .count();
    assert_eq!(replies, 1, "the model's own message keeps its three calls");
}

#[tokio::test]
async fn case_c08_an_approval_never_covers_the_same_call_asked_again() {
    let drop_one = || turn(&[("page_drop", r#"{"id":1}"#)]);
    let script = Witness::script([drop_one(), drop_one(), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("page_drop", ledger).into()]).await;
    let first = bed.waiting().await;
    let second = waiting(bed.approve(&first).await);
    assert_ne!(first.id, second.id);
    assert_ne!(first.digest, second.digest, "the same call asked later is another question");
    assert_eq!(bed.ledger.calls().len(), 1, "the second is not covered");
    assert_state(&second.run, RunState::WaitingForApproval);
    let stale = bed.runtime().decide(&second.id, Decision::approve(first.digest), &bob()).await;
    assert_eq!(stale.unwrap_err().code(), "stale_digest");
    completed(bed.approve(&second).await);
    let calls = bed.ledger.calls();
    assert_eq!(calls.len(), 2);
    assert_ne!(
        calls[0].cx.idempotency_key, calls[1].cx.idempotency_key,
        "rule R4: another call, another key"
    );
    assert_eq!(bed.witness.last_results().len(), 2);
}

#[tokio::test]
async fn case_c18_a_restart_changes_nothing_about_open_questions() {
    let script = Witness::script([turn(&[("page_drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("page_drop", ledger).into()]).await;
    let before = bed.waiting().await;
    // Another process: nothing but the store is left.
    let runtime = bed.runtime();
    let after = waiting(runtime.drive(before.run.id()).await.unwrap());
    assert_eq!((&after.id, after.digest, &after.record), (&before.id, before.digest, &before.record));
    let listed = bed.memory.run(before.run.id(), bed.now()).await.unwrap();
    assert_eq!((listed.status(), listed.leased), ("waiting_for_approval", false), "nothing is held (R5)");
    completed(bed.approve(&after).await);
    assert_eq!(bed.ledger.names(), ["page_drop"]);
}

#[tokio::test]
async fn case_c33_two_calls_under_one_wire_id_are_two_calls() {
    let mut script = vec![turn(&[("page_drop", r#"{"id":1}"#), ("page_drop", r#"{"id":2}"#)]), text("ok")];
    if let countersign::testing::Line::Says(answer) = &mut script[0] {
        answer.calls.iter_mut().for_each(|call| call.wire_id = Some("x".to_owned()));
    }
    let bed = Bed::new(Witness::script(script), |ledger| vec![write("page_drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    assert_eq!(asked(&waiting.record).len(), 2);
    completed(bed.approve(&waiting).await);
    assert_eq!(lines(&bed.ledger), [("page_drop".to_owned(), id(1)), ("page_drop".to_owned(), id(2))]);
}

#[tokio::test]
async fn rule_a4_without_anybody_needed_nothing_is_asked() {
    let script = Witness::script([
        turn(&[("page_get", "{}"), ("crm__lookup", "{}"), ("crm__purge", "{}")]),
        text("done"),
    ]);
    let bed = Bed::new(script, |ledger| {
        vec![
            read("page_get", ledger).into(),
            remote("lookup", Effect::Read, RemoteApproval::Undeclared, ledger).into(),
            free_write("purge", ledger).into(),
        ]
    })
    .await;
    let run = completed(bed.run().await);
    assert_eq!(run.pendings().count(), 0);
    assert_eq!(bed.ledger.names(), ["page_get", "crm__lookup", "crm__purge"]);
}

#[tokio::test]
async fn rule_a1_a_marker_and_the_operator_ask_even_for_a_read() {
    for marker in [true, false] {
        let script = Witness::script([turn(&[("peek", "{}")]), text("done")]);
        let bed = Bed::new(script, |ledger| {
            let tool = if marker {
                marked("peek", ledger)
            } else {
                crate::kit::asks_by_operator(read("peek", ledger))
            };
            vec![tool.into()]
        })
        .await;
        let waiting = bed.waiting().await;
        let because = waiting.record.pending.calls[0].because().unwrap().as_str();
        assert_eq!(because, if marker { "marked" } else { "operator" });
        completed(bed.approve(&waiting).await);
        assert_eq!(bed.ledger.names(), ["peek"]);
    }
}

#[tokio::test]
async fn rule_a11_with_a_word_for_each_call_only_the_denied_ones_stay_behind() {
    let calls = [("drop", r#"{"id":1}"#), ("get", "{}"), ("drop", r#"{"id":2}"#)];
    let script = Witness::script([turn(&calls), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("drop", ledger).into(), read("get", ledger).into()]).await;
    let waiting = bed.waiting().await;
    let needed = asked(&waiting.record);
    let verdicts = [
        (needed[0].clone(), countersign::CallVerdict::Deny),
        (needed[1].clone(), countersign::CallVerdict::Approve),
    ];
    let decision = Decision::calls(waiting.digest, verdicts.into(), Some("only two".to_owned()));
    let run = completed(bed.decide(&waiting, decision, &bob()).await);
    assert_eq!(result_kinds(&run), [Is::Denied, Is::Ok, Is::Ok]);
    assert_eq!(lines(&bed.ledger), [("get".to_owned(), json!({})), ("drop".to_owned(), id(2))]);
}

#[tokio::test]
async fn rule_a13_a_call_runs_as_the_owner_whoever_approved() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    completed(bed.approve(&waiting).await);
    let call = &bed.ledger.calls()[0];
    assert_eq!(
        (&call.cx.actor, &call.cx.run, &call.cx.call),
        (&alice(), waiting.run.id(), &asked(&waiting.record)[0])
    );
}

#[tokio::test]
async fn rule_l4_reads_run_at_once_within_their_bound_and_keep_their_order() {
    let calls =
        [("slow", r#"{"id":1}"#), ("get", r#"{"id":2}"#), ("get", r#"{"id":3}"#), ("get", r#"{"id":4}"#)];
    let script = Witness::script([turn(&calls), text("done")]);
    let mut gate = None;
    let mut bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(read("slow", ledger));
        gate = Some(open);
        vec![slow.into(), read("get", ledger).into()]
    })
    .await;
    bed.limits.parallel_reads = 3;
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    let reached: Vec<_> = lines(&bed.ledger).into_iter().map(|(_, arguments)| arguments).collect();
    assert_eq!(
        reached,
        [id(1), id(2), id(3)],
        "three at once, although the first has not ended, and not a fourth"
    );
    gate.unwrap().send_replace(true);
    let run = completed(driving.await.unwrap().unwrap());
    let contents: Vec<String> = results(&run).into_iter().map(|result| result.content).collect();
    assert_eq!(
        contents,
        [
            "slow ran with {\"id\":1}",
            "get ran with {\"id\":2}",
            "get ran with {\"id\":3}",
            "get ran with {\"id\":4}"
        ]
    );
}

#[tokio::test]
async fn rule_l4_a_bound_of_no_reads_at_all_still_lets_one_run() {
    let script = Witness::script([turn(&[("get", "{}"), ("get", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| vec![read("get", ledger).into()]).await;
    bed.limits.parallel_reads = 0;
    completed(bed.run().await);
    assert_eq!(bed.ledger.names(), ["get", "get"]);
}

#[tokio::test]
async fn rule_l4_a_write_waits_for_earlier_reads_and_later_reads_wait_for_it() {
    let calls = [("slow", "{}"), ("crm__purge", "{}"), ("get", "{}"), ("crm__purge", r#"{"id":2}"#)];
    let script = Witness::script([turn(&calls), text("done")]);
    let mut gates = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open_read) = gated(read("slow", ledger));
        let (purge, open_write) = gated(free_write("purge", ledger));
        gates = Some((open_read, open_write));
        vec![slow.into(), purge.into(), read("get", ledger).into()]
    })
    .await;
    let (open_read, open_write) = gates.unwrap();
    let run = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    assert_eq!(bed.ledger.names(), ["slow"], "the write waits for the read before it");
    open_read.send_replace(true);
    settle().await;
    assert_eq!(bed.ledger.names(), ["slow", "crm__purge"], "and the read after it waits for the write");
    open_write.send_replace(true);
    completed(driving.await.unwrap().unwrap());
    assert_eq!(bed.ledger.names(), ["slow", "crm__purge", "get", "crm__purge"]);
}

#[tokio::test]
async fn rule_r3_a_start_is_stored_before_the_tool_is_reached() {
    let script = Witness::script([turn(&[("slow", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(idempotent("slow", ledger));
        gate = Some(open);
        vec![slow.into()]
    })
    .await;
    let waiting = bed.waiting().await;
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let driving = bed.drive_apart(waiting.run.id());
    settle().await;
    assert_eq!(bed.ledger.names(), ["slow"]);
    let run = bed.runtime().load(waiting.run.id()).await.unwrap();
    assert!(matches!(run.turn().unwrap().calls().next().unwrap().stage, Stage::Running(_)));
    gate.unwrap().send_replace(true);
    completed(driving.await.unwrap().unwrap());
}

#[tokio::test]
async fn rule_g8_an_empty_list_is_one_plain_completion() {
    let bed = Bed::new(Witness::script([text("hello")]), |ledger| vec![read("get", ledger).into()]).await;
    let run = completed(bed.runtime().run(request_for(&[])).await.unwrap());
    assert_eq!(run.output(), Some("hello"));
    assert_eq!(bed.witness.seen()[0].offered, []);
}

#[tokio::test]
async fn vector_tr16_the_request_of_the_start_holds_after_a_pause() {
    let script = Witness::script([turn(&[("drop", "{}")]), turn(&[("other", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        vec![read("get", ledger).into(), write("drop", ledger).into(), read("other", ledger).into()]
    })
    .await;
    let first = waiting(bed.runtime().run(request_for(&["get", "drop"])).await.unwrap());
    let run = completed(bed.approve(&first).await);
    assert_eq!(first.run.created().tools, ToolRequest::Only(vec!["get".to_owned(), "drop".to_owned()]));
    for seen in bed.witness.seen() {
        assert_eq!(seen.offered_names(), ["get", "drop"]);
        assert_eq!(seen.offered, bed.witness.seen()[0].offered, "the offers keep their form");
    }
    assert_eq!(result_kinds(&run), [Is::Ok, Is::Refused], "what was not asked for does not run");
}

#[tokio::test]
async fn vector_tr17_counters_go_on_over_a_pause() {
    let script = Witness::script([turn(&[("get", "{}")]), turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()]).await;
    let waiting = bed.waiting().await;
    assert_eq!((waiting.run.iterations(), waiting.run.usage().total_tokens()), (2, 30));
    let run = completed(bed.approve(&waiting).await);
    assert_eq!((run.iterations(), run.usage().total_tokens()), (3, 45));
}

#[tokio::test]
async fn a_run_that_has_ended_stays_as_it_is() {
    let bed = Bed::new(Witness::script([text("done")]), |_| Vec::new()).await;
    let run = completed(bed.run().await);
    let again = ended(bed.runtime().drive(run.id()).await.unwrap());
    assert_eq!(again.revision(), run.revision());
    assert_eq!(bed.witness.seen().len(), 1);
}
