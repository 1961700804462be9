//! Limits end a run with a reason, over all its pauses (L1, L5, L8, R7).

use countersign::testing::{Line, text, turn};
use countersign::{Decision, Finish, Limit, PendingStatus, ResultKind as Is, RunRequest};

use crate::kit::{
    Bed, Witness, bob, completed, ended, limit_of, lines, read, request, result_kinds, results, statuses,
    waiting, write,
};

fn get() -> Line {
    turn(&[("get", "{}")])
}

fn drop_seven() -> Line {
    turn(&[("drop", r#"{"id":7}"#)])
}

fn cut(line: Line) -> Line {
    match line {
        Line::Says(mut answer) => {
            answer.finish = Finish::Length;
            Line::Says(answer)
        }
        other => other,
    }
}

async fn bed(lines: impl IntoIterator<Item = Line>) -> Bed {
    Bed::new(Witness::script(lines), |ledger| vec![read("get", ledger).into(), write("drop", ledger).into()])
        .await
}

#[tokio::test]
async fn case_c39_vector_tl08_the_limit_of_iterations_on_a_turn_with_calls() {
    let bed = bed([get(), get(), get(), turn(&[("get", "{}"), ("drop", "{}")])]).await;
    let run = ended(bed.runtime().run(RunRequest { max_iterations: Some(3), ..request() }).await.unwrap());
    assert_eq!(limit_of(&run), Limit::MaxIterations);
    assert_eq!(run.iterations(), 3, "the closing completion is not counted");
    assert_eq!(result_kinds(&run), [Is::Ok, Is::Ok, Is::NotRun], "the calls of the last turn are answered");
    assert!(results(&run)[2].content.contains("limit"));
    let seen = bed.witness.seen();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[3].offered, [], "one last completion without tools");
    assert_eq!(lines(&bed.ledger).len(), 2, "and its calls are dropped");
    assert_eq!(statuses(&run), []);
}

#[tokio::test]
async fn rule_l1_the_closing_completion_is_the_answer() {
    let bed = bed([get(), text("This is how far I got.")]).await;
    let run = ended(bed.runtime().run(RunRequest { max_iterations: Some(1), ..request() }).await.unwrap());
    assert_eq!((limit_of(&run), run.output()), (Limit::MaxIterations, Some("This is how far I got.")));
}

#[tokio::test]
async fn rule_l1_a_request_can_only_lower_the_cap() {
    let mut bed = bed([get(), get(), get()]).await;
    bed.agent.limits.iterations_max = 2;
    let run = ended(bed.runtime().run(RunRequest { max_iterations: Some(50), ..request() }).await.unwrap());
    assert_eq!((limit_of(&run), run.iterations()), (Limit::MaxIterations, 2));
}

#[tokio::test]
async fn rule_r7_limits_count_over_pauses_and_processes() {
    let bed = bed([get(), drop_seven(), turn(&[("drop", r#"{"id":8}"#)]), text("closing")]).await;
    let first =
        waiting(bed.runtime().run(RunRequest { max_iterations: Some(3), ..request() }).await.unwrap());
    let run = ended(bed.approve(&first).await);
    assert_eq!((limit_of(&run), run.iterations()), (Limit::MaxIterations, 3));
    assert_eq!(bed.ledger.names(), ["get", "drop"], "the third answer's write is not even asked about");
    assert_eq!(statuses(&run), [PendingStatus::Approved]);
}

#[tokio::test]
async fn rule_l5_a_budget_of_tokens_ends_the_run_without_another_call() {
    let mut bed = bed([get(), drop_seven(), text("never asked")]).await;
    bed.agent.limits.tokens_max = Some(30);
    let run = ended(bed.run().await);
    assert_eq!(limit_of(&run), Limit::BudgetExhausted);
    assert_eq!((bed.witness.seen().len(), result_kinds(&run)), (2, vec![Is::Ok, Is::NotRun]));
    assert_eq!(statuses(&run), [], "nobody is asked about what cannot run");
}

#[tokio::test]
async fn case_c38_the_model_will_not_take_no_for_an_answer() {
    let bed = bed((0..20).map(|_| drop_seven())).await;
    let waiting = bed.waiting().await;
    let run = ended(bed.decide(&waiting, Decision::deny(waiting.digest, None), &bob()).await);
    assert_eq!(limit_of(&run), Limit::RepeatedDenials);
    assert_eq!(statuses(&run), [PendingStatus::Denied], "nobody is asked again");
    assert_eq!(
        result_kinds(&run),
        [Is::Denied, Is::Refused, Is::Refused, Is::Refused],
        "after three repeats it ends"
    );
    assert_eq!((bed.witness.seen().len(), lines(&bed.ledger)), (4, vec![]));
    assert!(bed.witness.last_results()[1].contains("already denied"));
}

#[tokio::test]
async fn case_c38_another_call_still_asks_and_keys_in_another_order_are_the_same_call() {
    let script = [
        turn(&[("drop", r#"{"id":7,"now":true}"#)]),
        turn(&[("drop", r#" {"now": true, "id": 7} "#)]),
        turn(&[("drop", r#"{"id":8}"#)]),
        text("done"),
    ];
    let bed = bed(script).await;
    let first = bed.waiting().await;
    let second = waiting(bed.decide(&first, Decision::deny(first.digest, None), &bob()).await);
    assert_eq!(second.record.pending.calls[0].arguments.as_ref().unwrap().canonical(), r#"{"id":8}"#);
    let run = completed(bed.approve(&second).await);
    assert_eq!(result_kinds(&run), [Is::Denied, Is::Refused, Is::Ok]);
}

#[tokio::test]
async fn case_c38_an_approved_call_may_be_repeated() {
    let bed = bed([drop_seven(), drop_seven(), drop_seven(), drop_seven(), text("done")]).await;
    let mut outcome = bed.run().await;
    for _ in 0..4 {
        outcome = bed.approve(&waiting(outcome)).await;
    }
    completed(outcome);
    assert_eq!(bed.ledger.calls().len(), 4);
}

#[tokio::test]
async fn case_c31_a_turn_cut_off_by_the_token_limit_runs_and_asks_nothing() {
    // A cut text; a whole call before a cut one; a cut that was closed into valid JSON.
    for calls in [
        vec![("drop", r#"{"to":"a@x.test","text":"Dear"#)],
        vec![("get", "{}"), ("drop", r#"{"to":"a"#)],
        vec![("drop", r#"{"to":"a@x.test","text":"Dear"}"#)],
    ] {
        let bed = bed([cut(turn(&calls)), text("ok")]).await;
        let run = completed(bed.run().await);
        assert_eq!((lines(&bed.ledger), statuses(&run)), (vec![], vec![]), "{calls:?}");
        for told in bed.witness.last_results() {
            assert!(told.contains("cut off by the output limit") && !told.contains("missing"), "{told}");
        }
    }
}

#[tokio::test]
async fn case_c31_three_cut_turns_in_a_row_end_the_run() {
    let bed = bed((0..9).map(|_| cut(get()))).await;
    let run = ended(bed.run().await);
    assert_eq!((limit_of(&run), bed.witness.seen().len()), (Limit::CutOff, 3));
}

#[tokio::test]
async fn case_c31_a_whole_turn_in_between_starts_the_count_anew() {
    let bed = bed([cut(get()), cut(get()), get(), cut(get()), cut(get()), text("done")]).await;
    completed(bed.run().await);
    assert_eq!(bed.ledger.names(), ["get"]);
}

#[tokio::test]
async fn rule_l8_a_text_that_was_cut_off_ends_the_run_and_says_so() {
    let bed = bed([cut(text("Once upon a"))]).await;
    let run = ended(bed.run().await);
    assert_eq!((limit_of(&run), run.output()), (Limit::CutOff, Some("Once upon a")));
    assert!(!Limit::CutOff.sentence().is_empty(), "rule L10");
}
