//! What people do to a database as a whole.

use std::path::Path;
use std::time::Duration;

use countersign::contract::sample::{
    approval, at, completion, continuation, created, go_on, pending_id, run_id, start, start_waiting,
    subject, words,
};
use countersign::{
    Append, AppendError, Changes, ClaimError, Clock as _, CreateError, Deadline, LoadError, Log,
    PendingStatus, Revision, Run, RunFilter, RunId, RunState, Store, StoreFault, Writer,
};
use countersign_store::{
    BackupError, EraseError, Finding, MasterKey, OpenError, PostgresStore, Purged, Restored, RotateError,
    Rotated, Upkeep,
};

use crate::support::{KEY, Place};

const NEW: [u8; 32] = [8; 32];

async fn ended(store: &PostgresStore, number: u8) -> Run {
    let run = start(store, number).await;
    go_on(store, &run, vec![words("done"), completion()], at(i64::from(number))).await
}

async fn many(store: &PostgresStore, count: u32) {
    for number in 0..count {
        let mut random = [0xee; 16];
        random[12..].copy_from_slice(&number.to_be_bytes());
        let run = Run::create(RunId::from_random(random), created("default", "alice"), Vec::new(), at(0));
        store.create(run.unwrap().1).await.unwrap();
    }
}

async fn logs(store: &PostgresStore) -> Vec<(RunId, Log)> {
    let runs = store.runs(&RunFilter::default(), at(0), 1000, None).await.unwrap().items;
    let mut logs = Vec::new();
    for run in runs {
        logs.push((run.row.id.clone(), store.load(&run.row.id).await.unwrap()));
    }
    logs
}

async fn is_clean(store: &PostgresStore) -> bool {
    store.examine(None, at(100), &mut |_| {}).await.unwrap().is_clean()
}

#[tokio::test]
async fn a_new_database_is_made_and_opened_again_and_shares_its_place_with_others() {
    let place = Place::empty();
    place.change("CREATE TABLE public.runs (other INTEGER)");
    let store = place.open().await;
    let run = start(&store, 1).await;
    drop(store);
    let store = place.open().await;
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    assert!(store.schema_version() > 1);
    assert!(store.place().starts_with("postgres://countersign@/t"), "{}", store.place());
}

#[tokio::test]
async fn a_foreign_database_is_refused_and_left_as_it_was() {
    let foreign = Place::empty();
    foreign.change("CREATE SCHEMA countersign; CREATE TABLE countersign.something (x INTEGER)");
    assert!(matches!(foreign.try_open(KEY).await, Err(OpenError::Foreign(_))));
    let tables = "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = 'countersign'";
    assert_eq!(foreign.change(tables), "1\n");
}

#[tokio::test]
async fn rule_s3_another_key_is_refused_and_the_database_says_which_one_fits() {
    let place = Place::new().await;
    let store = place.open().await;
    start(&store, 1).await;
    match place.try_open(NEW).await {
        Err(OpenError::WrongKey { expected, given }) => {
            assert_eq!(expected, MasterKey::new(KEY).fingerprint());
            assert_eq!(given, MasterKey::new(NEW).fingerprint());
        }
        other => panic!("{other:?}"),
    }
    place.change("DELETE FROM installation");
    assert!(matches!(place.try_open(KEY).await, Err(OpenError::Damaged(_))));
    assert!(start_again(&store).await.is_err(), "no key, no write");
}

async fn start_again(store: &PostgresStore) -> Result<(), countersign::CreateError> {
    store.create(Run::create(run_id(9), created("default", "alice"), Vec::new(), at(0)).unwrap().1).await
}

/// The connection is cut from the server's side between two transactions, as a kill would.
#[tokio::test]
async fn rule_s3_rotation_killed_after_any_transaction_goes_on_from_either_key() {
    for killed_after in 0..4 {
        let place = Place::new().await;
        let store = place.open().await;
        let waiting = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
        many(&store, 220).await;
        let good = logs(&store).await;
        let mut heard = 0;
        let mut kill = |_| {
            if heard == killed_after {
                // No further transaction of this process begins.
                place.change("ALTER SCHEMA countersign RENAME TO gone");
            }
            heard += 1;
        };
        let rotated = store.rotate(MasterKey::new(NEW), &mut kill).await;
        assert_eq!(rotated.is_err(), killed_after < 3, "after {killed_after}");
        place.change("ALTER SCHEMA gone RENAME TO countersign");
        drop(store);

        for held in [KEY, NEW] {
            let store = place.try_open(held).await.unwrap();
            assert_eq!(logs(&store).await, good, "after {killed_after}, with key {}", held[0]);
            let under_way = store.rotation().await.unwrap().unwrap();
            assert_eq!(under_way.switched, killed_after == 3);
            let third = store.rotate(MasterKey::new([9; 32]), &mut |_| {}).await;
            assert!(matches!(third, Err(RotateError::UnderWay { .. })));
        }
        let store = place.try_open(KEY).await.unwrap();
        if killed_after < 3 {
            assert!(matches!(store.retire(at(100)).await, Err(RotateError::UnderWay { .. })));
        }
        let rest = store.rotate(MasterKey::new(NEW), &mut |_| {}).await.unwrap();
        assert_eq!(rest, Rotated { runs: [221, 21, 0, 0][killed_after], unreadable: 0 });
        assert!(store.retire(at(100)).await.unwrap().is_some());
        assert_eq!(store.rotation().await.unwrap(), None);
        drop(store);
        assert!(matches!(place.try_open(KEY).await, Err(OpenError::WrongKey { .. })));
        let store = place.try_open(NEW).await.unwrap();
        assert_eq!(logs(&store).await, good);
        go_on(&store, &waiting, vec![approval(1)], at(60)).await;
        assert!(is_clean(&store).await);
    }
}

#[tokio::test]
async fn rule_s3_others_go_on_during_a_rotation_and_whoever_is_left_behind_says_so() {
    let place = Place::new().await;
    let (store, worker, idle) = (place.open().await, place.open().await, place.open().await);
    let run = start(&store, 1).await;
    let lease = worker.claim(run.id(), "t".to_owned(), at(10), Duration::from_secs(30)).await.unwrap();
    store.rotate(MasterKey::new(NEW), &mut |_| {}).await.unwrap();
    // The worker learns the new key with what it does.
    let changes = run.record(vec![words("x")], at(20)).unwrap().1;
    let writer = Writer::Worker(lease.clone());
    worker.append(run.id(), Revision(1), &writer, at(20), Append::Plain(changes)).await.unwrap();
    start(&worker, 2).await;
    assert!(matches!(store.retire(at(20)).await, Err(RotateError::InUse { until }) if until == at(40)));
    assert!(worker.heartbeat(&lease, at(30), Duration::from_secs(30)).await.unwrap());
    assert!(store.retire(at(41)).await.unwrap().is_some(), "every worker has it by now");
    worker.load(run.id()).await.unwrap();

    let left_behind = |fault: &StoreFault| {
        let StoreFault::Failed(why) = fault else { return false };
        why.to_string().contains("start it again with the new one")
    };
    assert!(
        matches!(start_again(&idle).await, Err(countersign::CreateError::Fault(fault)) if left_behind(&fault))
    );
    let claim = idle.claim(run.id(), "u".to_owned(), at(100), Duration::from_secs(30)).await;
    assert!(matches!(claim, Err(ClaimError::Fault(fault)) if left_behind(&fault)));
    assert!(
        matches!(idle.load(run.id()).await, Err(LoadError::Unreadable { reason, .. }) if reason.contains("the master key was changed"))
    );
    assert!(is_clean(&store).await);
}

#[tokio::test]
async fn rule_r10_an_erased_run_has_no_content_and_its_chain_still_verifies() {
    let place = Place::new().await;
    let store = place.open().await;
    let active = start(&store, 1).await;
    let run = ended(&store, 2).await;
    assert!(matches!(store.erase(active.id(), at(9)).await, Err(EraseError::NotEnded(RunState::Active))));
    assert!(matches!(store.erase(&run_id(9), at(9)).await, Err(EraseError::NotFound(_))));
    let erased = store.erase(run.id(), at(50)).await.unwrap();
    assert_eq!((erased.at, erased.events), (at(50), 3));
    assert_eq!(store.erase(run.id(), at(60)).await.unwrap().events, 0, "once is enough");
    let content = format!(
        "SELECT max(length(sealed)), max(length(key)) FROM events JOIN runs ON id = run WHERE run = '{}'",
        run.id()
    );
    assert_eq!(place.change(&content), "0|0\n");
    assert_eq!(store.erased_at(run.id()).await.unwrap(), Some(at(50)));
    assert!(
        matches!(store.load(run.id()).await, Err(LoadError::Erased { run: erased, at: when }) if erased == *run.id() && when == at(50))
    );
    assert_eq!(store.run(run.id(), at(60)).await.unwrap().row, run.row(), "lists still show it");
    assert!(is_clean(&store).await);
    let changes: Changes = active.record(vec![words("x")], at(10)).unwrap().1;
    let refused = store.append(run.id(), Revision(3), &Writer::Anyone, at(10), Append::Plain(changes)).await;
    assert!(matches!(refused, Err(AppendError::Unreadable { .. })));
    place.change(&format!(
        "UPDATE events SET digest = decode(repeat('00', 32), 'hex') WHERE run = '{}' AND seq = 1",
        run.id()
    ));
    assert!(!is_clean(&store).await, "the chain goes over the digests");
}

/// A run that has ended and continues another.
async fn continued(store: &PostgresStore, number: u8, before: &Run) -> Run {
    let run = continuation(store, number, before).await.unwrap();
    go_on(store, &run, vec![words("and so on"), completion()], at(i64::from(number))).await
}

#[tokio::test]
async fn rule_r10_erasing_what_was_continued_empties_both_and_both_chains_still_verify() {
    let place = Place::new().await;
    let store = place.open().await;
    let first = ended(&store, 1).await;
    let second = continued(&store, 2, &first).await;
    let third = continued(&store, 3, &second).await;
    let (branch, other) = (continued(&store, 4, &first).await, ended(&store, 5).await);
    let living = continuation(&store, 6, &third).await.unwrap();
    let refused = store.erase(first.id(), at(9)).await.unwrap_err();
    assert!(matches!(&refused, EraseError::Continued(run) if run == living.id()), "{refused}");
    for run in [&first, &second, &third] {
        store.load(run.id()).await.expect("all or nothing");
    }

    go_on(&store, &living, vec![words("done"), completion()], at(10)).await;
    let erased = store.erase(first.id(), at(11)).await.unwrap();
    let with_it = [&second, &branch, &third, &living].map(|run| run.id().clone());
    assert_eq!((erased.events, &erased.continuations[..]), (15, &with_it[..]));
    for run in [&first, &second, &third, &branch, &living] {
        assert!(matches!(store.load(run.id()).await, Err(LoadError::Erased { .. })));
        assert_eq!(store.run(run.id(), at(12)).await.unwrap().row.state, RunState::Completed);
    }
    store.load(other.id()).await.unwrap();
    assert!(is_clean(&store).await, "all chains verify");
    let again = store.erase(first.id(), at(13)).await.unwrap();
    assert_eq!((again.at, again.events), (at(11), 0));
    let refused = continuation(&store, 7, &first).await;
    assert!(matches!(refused, Err(CreateError::NotContinuable(run)) if run == *first.id()));
}

#[tokio::test]
async fn rule_r10_what_is_continued_by_a_run_that_stays_is_not_removed() {
    let place = Place::new().await;
    let store = place.open().await;
    // 1 ← 2 ← 3, of which the last has not ended; 11 ← 12, which may all go; 21 ← 22, which ended later.
    let first = ended(&store, 1).await;
    let second = continued(&store, 2, &first).await;
    let third = continuation(&store, 3, &second).await.unwrap();
    let old = ended(&store, 11).await;
    continued(&store, 12, &old).await;
    let kept = ended(&store, 21).await;
    continued(&store, 60, &kept).await;
    let expected = Purged { runs: 2, events: 6, continued: 3, ..Purged::default() };
    let would = store.purge(at(50), true).await.unwrap();
    assert_eq!(would, expected, "a dry run counts as the real one removes");
    assert_eq!(store.purge(at(50), false).await.unwrap(), expected);
    assert!(is_clean(&store).await);
    go_on(&store, &third, vec![words("done"), completion()], at(40)).await;
    let expected = Purged { runs: 5, events: 15, ..Purged::default() };
    assert_eq!(store.purge(at(100), true).await.unwrap(), expected);
    assert_eq!(store.purge(at(100), false).await.unwrap(), expected, "chains go whole, newest first");
}

#[tokio::test]
async fn rule_r10_the_doctor_finds_a_run_that_cannot_go_on_with_what_it_continues() {
    let place = Place::new().await;
    let store = place.open().await;
    let first = ended(&store, 1).await;
    continuation(&store, 2, &first).await.unwrap();
    assert!(is_clean(&store).await);
    let active = "UPDATE runs SET finished_at = NULL, state = 'active' WHERE id =";
    place.change(&format!("{active} '{}'", first.id()));
    let report = store.examine(None, at(100), &mut |_| {}).await.unwrap();
    let cannot = report.findings.iter().any(|finding| matches!(finding, Finding::RunUnreadable { .. }));
    let goes_on = report.findings.iter().any(|finding| matches!(finding, Finding::NotContinuable { .. }));
    assert!(cannot && goes_on, "{:?}", report.findings);
}

#[tokio::test]
async fn rule_r10_retention_removes_what_ended_in_time_and_never_what_waits_or_cannot_be_read() {
    let place = Place::new().await;
    let store = place.open().await;
    let waiting = start_waiting(&store, 1, "default", "alice", Deadline::At(at(3))).await;
    let spoiled = ended(&store, 2).await;
    place.change(&format!("UPDATE runs SET owner = 'mallory' WHERE id = '{}'", spoiled.id()));
    for number in 100..160 {
        ended(&store, number).await;
    }
    let late = start(&store, 3).await;
    let late = go_on(&store, &late, vec![words("done"), completion()], at(1000)).await;
    let expected = Purged { runs: 60, events: 180, pendings: 0, unreadable: 1, ..Purged::default() };
    assert_eq!(store.purge(at(1000), true).await.unwrap(), expected);
    assert_eq!(store.purge(at(1000), false).await.unwrap(), expected);
    assert_eq!(store.purge(at(1000), false).await.unwrap().runs, 0, "there is nothing left to do");
    assert_eq!(store.load(waiting.id()).await.unwrap().revision(), Revision(3));
    assert_eq!(store.load(late.id()).await.unwrap().revision(), Revision(3));
}

#[tokio::test]
async fn a_restored_database_does_nothing_on_an_old_word() {
    let place = Place::new().await;
    let store = place.open().await;
    start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    let released = start_waiting(&store, 2, "default", "alice", Deadline::Never).await;
    go_on(&store, &released, vec![approval(2)], at(9)).await;
    let worked = start(&store, 3).await;
    store.claim(worked.id(), "t".to_owned(), at(9), Duration::from_secs(900)).await.unwrap();
    let spoiled = start_waiting(&store, 4, "default", "alice", Deadline::Never).await;
    place.change(&format!("UPDATE runs SET owner = 'mallory' WHERE id = '{}'", spoiled.id()));
    let expected = Restored {
        runs: 2,
        voided: 1,
        refused: 1,
        unreadable: vec![spoiled.id().to_string()],
        ..Restored::default()
    };
    assert_eq!(store.restored(at(100)).await.unwrap(), expected);
    assert_eq!(store.pending(&pending_id(1)).await.unwrap().unwrap().status, PendingStatus::Void);
    assert!(!store.run(worked.id(), at(100)).await.unwrap().leased, "leases are over");
    let again = Restored { unreadable: expected.unreadable, ..Restored::default() };
    assert_eq!(store.restored(at(101)).await.unwrap(), again, "once is enough");
    assert!(store.pending(&pending_id(4)).await.unwrap().is_some());
    assert_eq!(subject("alice"), store.run(worked.id(), at(100)).await.unwrap().row.owner);
}

#[tokio::test]
async fn a_copy_is_the_business_of_the_databases_own_programs() {
    let store = Place::new().await.open().await;
    let refused = store.backup(Path::new("/nowhere/copy")).await.unwrap_err();
    assert!(matches!(refused, BackupError::NotHere(words) if words.contains("pg_dump")));
}

/// A commit that promises something waits for the disk, whatever the server does by default; the others do not.
#[tokio::test]
async fn rule_r3_a_commit_that_must_wait_for_the_disk_waits_whatever_the_server_says() {
    let place = Place::new().await;
    place.change("DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET synchronous_commit = off'; END $$");
    let store = place.open().await;
    place.change(
        "CREATE TABLE seen (n SERIAL, waits TEXT); \
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path = countersign AS $$ BEGIN \
         INSERT INTO seen (waits) VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; \
         CREATE TRIGGER see AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION see(); \
         ALTER TABLE events ENABLE ALWAYS TRIGGER see",
    );
    let run = start(&store, 1).await;
    go_on(&store, &run, vec![words("x")], at(2)).await;
    let run = start(&store, 3).await;
    let (_, hurried) = run.record(vec![words("judged")], at(3)).unwrap();
    let judged = Append::Judged { subjects: vec![], judge: Box::new(|_| Some(hurried)) };
    let aim = Revision(run.revision());
    store.append(run.id(), aim, &Writer::Anyone, at(3), judged).await.unwrap();
    ended(&store, 2).await;
    assert_eq!(
        place.change("SELECT string_agg(waits, ' ' ORDER BY n) FROM seen"),
        "on off on off on on on\n"
    );
}

#[tokio::test]
async fn rule_r6_the_census_counts_what_is_owed_and_by_whom_it_is_worked_on() {
    let store = Place::new().await.open().await;
    start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    ended(&store, 2).await;
    start(&store, 3).await;
    start(&store, 4).await;
    let now = store.clock().now();
    store.claim(&run_id(3), "t".to_owned(), now, Duration::from_secs(30)).await.unwrap();
    let census = store.census(now).await.unwrap();
    let mut runs: Vec<_> =
        census.runs.iter().map(|live| (live.state, live.agent.as_str(), live.runs, live.leased)).collect();
    runs.sort_by_key(|live| live.0.as_str());
    assert_eq!(
        runs,
        [(RunState::Active, "default", 2, 1), (RunState::WaitingForApproval, "default", 1, 0)],
        "what has ended is not counted"
    );
    let open: Vec<_> = census.open.iter().map(|open| (open.kind.as_str(), open.pendings)).collect();
    assert_eq!(open, [("approval", 1)]);
}

#[tokio::test]
async fn rule_m2_what_was_reviewed_is_noted_and_what_cannot_be_read_was_not() {
    let place = Place::new().await;
    let store = place.open().await;
    assert_eq!(store.reviewed().await.unwrap(), None);
    let definitions = countersign::Digest::of(b"the tools");
    for cursor in [None, Some("17".to_owned()), Some("42".to_owned())] {
        let reviewed = countersign_store::Reviewed { definitions, cursor };
        store.note_reviewed(&reviewed).await.unwrap();
        assert_eq!(store.reviewed().await.unwrap(), Some(reviewed));
    }
    place.change("UPDATE reviewed SET definitions = 'some'");
    assert_eq!(store.reviewed().await.unwrap(), None);
}
