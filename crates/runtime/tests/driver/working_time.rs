//! The budget of working time, while a driver works (L5).

use std::time::Duration;

use countersign::testing::{Behaviour, Line, text, turn};
use countersign::{Event, Limit, ModelFailCode, ResultKind as Is, RunRequest};

use crate::kit::{
    Bed, POLL, Witness, bob, completed, ended, free_write, gated, limit_of, read, request, result_kinds,
    settle, write,
};

async fn bed(seconds: u64, lines: impl IntoIterator<Item = Line>) -> Bed {
    let mut bed = Bed::new(Witness::script(lines), |ledger| {
        vec![
            read("get", ledger).into(),
            read("hang", ledger).that(Behaviour::Hangs).into(),
            write("drop", ledger).into(),
        ]
    })
    .await;
    bed.agent.limits.working_ms_max = Some(seconds * 1000);
    bed
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(Event::kind).collect()
}

#[tokio::test]
async fn rule_l5_waiting_for_a_person_is_not_working_time() {
    let bed = bed(10, [turn(&[("drop", "{}")]), text("done")]).await;
    let waiting = bed.waiting().await;
    bed.clock.advance(Duration::from_secs(86_400));
    bed.runtime().decide(&waiting.id, countersign::Decision::approve(waiting.digest), &bob()).await.unwrap();
    bed.clock.advance(Duration::from_secs(3_600));
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(run.worked(), Duration::ZERO);
    let events = bed.events(run.id()).await;
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "work.began").count(), 2, "one a claim");
}

#[tokio::test]
async fn rule_l5_a_run_without_a_budget_of_it_says_nothing_about_work() {
    let mut bed = bed(10, [turn(&[("get", "{}")]), text("done")]).await;
    bed.agent.limits.working_ms_max = None;
    let run = completed(bed.run().await);
    assert!(!kinds(&bed.events(run.id()).await).contains(&"work.began"));
}

#[tokio::test]
async fn rule_l5_a_model_that_does_not_answer_in_time_ends_the_run() {
    let bed = bed(10, [turn(&[("get", "{}")]), Line::Hangs]).await;
    let id = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&id);
    settle().await;
    bed.clock.advance(Duration::from_secs(9));
    settle().await;
    assert!(!driving.is_finished());
    bed.clock.advance(POLL);
    let run = ended(driving.await.unwrap().unwrap());
    assert_eq!((limit_of(&run), run.worked()), (Limit::WorkingTime, Duration::from_secs(10)));
    assert_eq!(run.usage().unknown_calls, 1, "what was asked may have cost something");
    let events = bed.events(&id).await;
    let failed = events.iter().find_map(|event| match event {
        Event::ModelFailed(failed) => Some((failed.code, failed.attempts)),
        _ => None,
    });
    assert_eq!(failed, Some((ModelFailCode::OutOfTime, 1)));
}

#[tokio::test]
async fn rule_l5_a_read_that_takes_too_long_is_stopped_and_nothing_more_starts() {
    let bed = bed(10, [turn(&[("hang", "{}"), ("get", "{}"), ("drop", "{}")]), text("never")]).await;
    let mut only_reads = bed.clone();
    only_reads.witness = Witness::script([turn(&[("hang", "{}"), ("get", "{}")]), text("never")]);
    let provider = countersign::Provider {
        zone: countersign::Zone::Local,
        client: std::sync::Arc::new(only_reads.witness.clone()),
    };
    only_reads.models =
        countersign::Models::default().with(countersign::ProviderName::parse("p").unwrap(), provider);
    let id = only_reads.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = only_reads.drive_apart(&id);
    settle().await;
    only_reads.clock.advance(Duration::from_secs(10));
    let run = ended(driving.await.unwrap().unwrap());
    assert_eq!(limit_of(&run), Limit::WorkingTime);
    assert_eq!(result_kinds(&run), [Is::Timeout, Is::Ok]);
    assert_eq!(only_reads.witness.seen().len(), 1);
}

#[tokio::test]
async fn rule_l5_rule_r8_a_write_in_flight_is_awaited() {
    let mut bed = bed(10, [turn(&[("crm__post", "{}"), ("get", "{}")]), text("never")]).await;
    let (post, open) = gated(free_write("post", &bed.ledger));
    bed.tools.push(post.into());
    let id = bed.runtime().start(request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&id);
    settle().await;
    bed.clock.advance(Duration::from_secs(25));
    settle().await;
    assert!(!driving.is_finished());
    open.send(true).unwrap();
    let run = ended(driving.await.unwrap().unwrap());
    assert_eq!(limit_of(&run), Limit::WorkingTime);
    assert_eq!(
        (result_kinds(&run), bed.ledger.names()),
        (vec![Is::Ok, Is::NotRun], vec!["crm__post".to_owned()])
    );
}

#[tokio::test]
async fn rule_l5_a_request_can_only_lower_the_budget() {
    for (agent, wanted, stored) in [
        (Some(10_000), Some(5), Some(5_000)),
        (Some(10_000), Some(50), Some(10_000)),
        (None, Some(5), Some(5_000)),
        (Some(10_000), None, Some(10_000)),
    ] {
        let mut bed = bed(10, [text("done")]).await;
        bed.agent.limits.working_ms_max = agent;
        let request = RunRequest { max_working_time: wanted.map(Duration::from_secs), ..request() };
        let run = completed(bed.runtime().run(request).await.unwrap());
        assert_eq!(run.created().limits.working_ms_max, stored);
    }
}
