//! A backup was put back: nothing is done on the word of a person who spoke before it.

use std::time::Duration;

use crate::support::{Place, ended, started, unknown};
use countersign::contract::sample::{
    approval, at, call_id, go_on, pending_id, question, start, start_waiting, subject, words,
};
use countersign::{
    Arguments, CallFinished, CallResult, CallVerdict, CancelRequested, Deadline, Effect, Event, Outlook,
    PendingStatus, Question, Refusal, ResultKind, Revision, Run, RunId, RunState, Stage, Step, Store,
    VerdictWord,
};
use countersign_store::{Restored, SqliteStore, Upkeep};
use serde_json::json;

async fn run(store: &SqliteStore, id: &RunId) -> Run {
    Run::fold(id.clone(), &store.load(id).await.unwrap().entries).unwrap()
}

/// A run whose call was released by bob and has not started.
async fn released(store: &SqliteStore, number: u8) -> Run {
    let run = start_waiting(store, number, "default", "alice", Deadline::Never).await;
    go_on(store, &run, vec![approval(number)], at(9)).await
}

/// A run that waits for a person's input.
async fn asking(store: &SqliteStore, number: u8) -> Run {
    let run = start(store, number).await;
    let run = go_on(store, &run, vec![countersign::contract::sample::proposal(number)], at(2)).await;
    let Event::PendingOpened(mut pending) = question(&run, number, Deadline::Never) else {
        panic!("a question")
    };
    pending.calls[0].outlook = Outlook::NeedsInput(json!({}));
    pending.question =
        Question::Input { call: call_id(number), schema: json!({}), message: "How many?".to_owned() };
    go_on(store, &run, vec![Event::PendingOpened(pending)], at(3)).await
}

fn answer(number: u8) -> Event {
    let Event::PendingDecided(mut decided) = approval(number) else { panic!("a decision") };
    decided.decided.verdict = VerdictWord::Answer;
    decided.decided.calls.clear();
    decided.decided.answer = Some(Arguments::read(Some(r#"{"count":3}"#)).unwrap());
    Event::PendingDecided(decided)
}

#[tokio::test]
async fn a_restored_database_does_nothing_on_an_old_word() {
    let place = Place::new();
    let store = place.open();
    let waiting = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    let asked = asking(&store, 2).await;
    let approved = released(&store, 3).await;
    let answered = asking(&store, 4).await;
    let answered = go_on(&store, &answered, vec![answer(4)], at(9)).await;
    let writing = released(&store, 5).await;
    let writing = go_on(&store, &writing, vec![started(5, Effect::Write)], at(9)).await;
    let repeatable = released(&store, 6).await;
    let repeatable = go_on(&store, &repeatable, vec![started(6, Effect::IdempotentWrite)], at(9)).await;
    let reading = released(&store, 7).await;
    let reading = go_on(&store, &reading, vec![started(7, Effect::Read)], at(9)).await;
    let cancelled = released(&store, 8).await;
    let cancelled = go_on(&store, &cancelled, vec![started(8, Effect::Write)], at(9)).await;
    let cancel = Event::CancelRequested(CancelRequested { by: subject("alice") });
    let cancelled = go_on(&store, &cancelled, vec![cancel], at(9)).await;
    // What stays as it is.
    let unsettled = unknown(&store, 9).await;
    let fresh = go_on(&store, &start(&store, 10).await, vec![words("x")], at(2)).await;
    let done = ended(&store, 11).await;
    let worked = start(&store, 12).await;
    store.claim(worked.id(), "t".to_owned(), at(9), Duration::from_secs(900)).await.unwrap();

    let restored = store.restored(at(100)).await.unwrap();
    let expected = Restored { runs: 8, voided: 2, unknown: 3, refused: 3, unreadable: vec![] };
    assert_eq!(restored, expected);

    for (before, number) in [(&waiting, 1), (&asked, 2)] {
        let after = run(&store, before.id()).await;
        assert_eq!(after.pending(&pending_id(number)).unwrap().status, PendingStatus::Void);
        assert_eq!(store.pending(&pending_id(number)).await.unwrap().unwrap().status, PendingStatus::Void);
        assert!(matches!(after.next(), Step::Record(_)), "the model hears that it is no longer available");
    }
    for (before, kind, refusal) in [
        (&approved, ResultKind::Refused, Some(Refusal::NeedsPerson)),
        (&answered, ResultKind::Refused, Some(Refusal::NeedsPerson)),
        (&reading, ResultKind::Error, None),
    ] {
        let after = run(&store, before.id()).await;
        let turn = after.history().next().unwrap();
        let stage = turn.calls().next().unwrap().stage;
        assert!(
            matches!(stage, Stage::Finished(result) if result.kind == kind && result.refusal == refusal),
            "{stage:?}"
        );
        assert!(matches!(after.next(), Step::AskModel(_)), "the model may ask again");
    }
    for (before, number) in [(&writing, 5), (&repeatable, 6)] {
        let after = run(&store, before.id()).await;
        assert_eq!(after.next(), Step::OpenResolution(call_id(number)));
    }
    let after = run(&store, cancelled.id()).await;
    assert!(matches!(after.next(), Step::Record(events) if matches!(events[..], [Event::RunCancelled(_)])));
    for before in [&unsettled, &fresh, &done, &worked] {
        assert_eq!(store.load(before.id()).await.unwrap().revision(), Revision(before.revision()));
    }
    assert_eq!(store.run(unsettled.id(), at(100)).await.unwrap().row.state, RunState::NeedsResolution);
    assert!(!store.run(worked.id(), at(100)).await.unwrap().leased, "leases are over");

    assert_eq!(store.restored(at(101)).await.unwrap(), Restored::default(), "once is enough");
    assert!(store.examine(None, at(101), &mut |_| {}).await.unwrap().is_clean());
}

#[tokio::test]
async fn of_a_turn_that_was_released_in_part_nothing_runs_after_a_restore() {
    let place = Place::new();
    let store = place.open();
    let started_run = start(&store, 1).await;
    let Event::ModelReplied(mut replied) = countersign::contract::sample::proposal(1) else {
        panic!("a reply")
    };
    for number in [2, 3, 4] {
        let mut call = replied.reply.calls[0].clone();
        call.id = call_id(number);
        std::sync::Arc::make_mut(&mut replied.reply).calls.push(call);
    }
    let run_after = go_on(&store, &started_run, vec![Event::ModelReplied(replied)], at(2)).await;
    let Event::PendingOpened(mut pending) = question(&run_after, 1, Deadline::Never) else {
        panic!("a question")
    };
    pending.calls[2].outlook = Outlook::Runs;
    pending.calls[3].outlook = Outlook::NeedsInput(json!({}));
    let run_after = go_on(&store, &run_after, vec![Event::PendingOpened(pending)], at(3)).await;
    let Event::PendingDecided(mut decided) = approval(1) else { panic!("a decision") };
    decided.decided.calls.insert(call_id(2), CallVerdict::Deny);
    decided.decided.verdict = VerdictWord::Mixed;
    decided.decided.form = countersign::Form::Calls;
    let run_after = go_on(&store, &run_after, vec![Event::PendingDecided(decided)], at(4)).await;
    assert!(matches!(run_after.next(), Step::Record(_)), "the denial is owed");

    let restored = store.restored(at(100)).await.unwrap();
    assert_eq!((restored.runs, restored.refused), (1, 2), "the approved one and the one beside it");
    let after = run(&store, run_after.id()).await;
    let stages: Vec<_> = after.turn().unwrap().calls().map(|state| state.stage.clone()).collect();
    assert!(matches!(&stages[0], Stage::Finished(result) if result.kind == ResultKind::Refused));
    assert!(matches!(&stages[1], Stage::Barred(_)));
    assert!(matches!(&stages[2], Stage::Finished(result) if result.kind == ResultKind::Refused));
    assert_eq!(stages[3], Stage::AwaitingInput, "it asks a person anew");
}

#[tokio::test]
async fn a_run_that_cannot_be_read_is_counted_and_stops_no_restore() {
    let place = Place::new();
    let store = place.open();
    let spoiled = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    let unreadable = start_waiting(&store, 2, "default", "alice", Deadline::Never).await;
    let sound = start_waiting(&store, 3, "default", "alice", Deadline::Never).await;
    let meddler = place.meddle();
    meddler
        .execute("UPDATE events SET sealed = zeroblob(80) WHERE run = ?1", [spoiled.id().as_str()])
        .unwrap();
    meddler.execute("UPDATE runs SET owner = 'mallory' WHERE id = ?1", [unreadable.id().as_str()]).unwrap();
    let restored = store.restored(at(100)).await.unwrap();
    assert_eq!(
        restored,
        Restored {
            runs: 1,
            voided: 1,
            unreadable: vec![spoiled.id().to_string(), unreadable.id().to_string()],
            ..Restored::default()
        }
    );
    assert_eq!(run(&store, sound.id()).await.state(), RunState::Active);
}

/// What the tests above rely on: a refusal is a legal end of a call that was cleared.
#[tokio::test]
async fn a_finished_call_of_a_restored_run_never_starts_again() {
    let place = Place::new();
    let store = place.open();
    let approved = released(&store, 1).await;
    store.restored(at(100)).await.unwrap();
    let after = run(&store, approved.id()).await;
    assert!(after.record(vec![started(1, Effect::Write)], at(101)).is_err());
    let result = CallResult::not_from_tool(ResultKind::Ok, "done");
    let finished = CallFinished::new(call_id(1), "page_drop".to_owned(), result);
    assert!(after.record(vec![Event::CallFinished(Box::new(finished))], at(101)).is_err());
}
