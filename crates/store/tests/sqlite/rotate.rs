//! A change of the master key: nothing is lost at any kill, and whoever works meanwhile goes on.

use std::path::Path;
use std::time::Duration;

use crate::support::{KEY, Place, ended, many, open, start_in_thread};
use countersign::contract::sample::{approval, at, call_id, go_on, run_id, start, start_waiting, words};
use countersign::{
    Append, AppendError, ClaimError, CreateError, Deadline, LoadError, Log, Revision, RunFilter, RunId,
    Store, Writer,
};
use countersign_store::{
    BackupError, MasterKey, OpenError, RotateError, Rotated, Rotation, SqliteOptions, SqliteStore, Upkeep,
};

const NEW: [u8; 32] = [8; 32];
const LEASE: Duration = Duration::from_secs(30);

fn key(bytes: [u8; 32]) -> MasterKey {
    MasterKey::new(bytes)
}

fn under_way(switched: bool) -> Rotation {
    Rotation { from: key(KEY).fingerprint(), to: key(NEW).fingerprint(), switched }
}

async fn rotate(store: &SqliteStore) -> Result<Rotated, RotateError> {
    store.rotate(key(NEW), &mut |_| {}).await
}

async fn logs(store: &SqliteStore) -> Vec<(RunId, Log)> {
    let runs = store.runs(&RunFilter::default(), at(0), 1000, None).await.unwrap().items;
    let mut logs = Vec::new();
    for run in runs {
        logs.push((run.row.id.clone(), store.load(&run.row.id).await.unwrap()));
    }
    logs
}

async fn is_clean(store: &SqliteStore) -> bool {
    store.examine(None, at(100), &mut |_| {}).await.unwrap().is_clean()
}

#[tokio::test]
async fn rule_s3_rotation_takes_all_runs_over_parked_ones_included_and_rewrites_no_event() {
    let place = Place::new();
    let store = place.open();
    let waiting = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    ended(&store, 2).await;
    let erased = ended(&store, 3).await;
    store.erase(erased.id(), at(50)).await.unwrap();
    many(&store, 250).await;
    let meddler = place.meddle();
    let events = || -> Vec<(String, i64, Vec<u8>, Vec<u8>)> {
        let mut select = meddler.prepare("SELECT run, seq, sealed, mac FROM events ORDER BY rowid").unwrap();
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    };
    let (before, call_key) = (events(), store.idempotency_key(waiting.id(), &call_id(1)));
    let mut heard = Vec::new();
    let rotated = store.rotate(key(NEW), &mut |runs| heard.push(runs)).await.unwrap();
    assert_eq!((rotated, heard), (Rotated { runs: 252, unreadable: 0 }, vec![0, 200, 252, 252]));
    assert_eq!(store.rotation().await.unwrap(), Some(under_way(true)));
    assert!(store.retire(at(100)).await.unwrap().unwrap().scrubbed);
    assert_eq!(store.rotation().await.unwrap(), None);
    assert_eq!(store.retire(at(100)).await.unwrap(), None, "there is nothing left to do");
    assert!(is_clean(&store).await);
    go_on(&store, &waiting, vec![approval(1)], at(60)).await;
    drop(store);

    let refused = place.try_open(KEY).unwrap_err();
    assert!(matches!(refused, OpenError::WrongKey { expected, .. } if expected == key(NEW).fingerprint()));
    let store = place.try_open(NEW).unwrap();
    assert_eq!(store.load(waiting.id()).await.unwrap().revision(), Revision(4));
    assert_eq!(store.idempotency_key(waiting.id(), &call_id(1)), call_key, "R4: it outlives the key");
    assert!(events()[..before.len()] == before, "no event was rewritten");
    assert!(is_clean(&store).await);
}

/// What a kill at this moment leaves behind.
fn bury(place: &Place) -> Place {
    let grave = Place::new();
    for file in ["runs.db", "runs.db-wal"] {
        let from = place.folder.path().join(file);
        if Path::new(&from).exists() {
            std::fs::copy(from, grave.folder.path().join(file)).unwrap();
        }
    }
    grave
}

#[tokio::test]
async fn rule_s3_rotation_killed_after_any_transaction_goes_on_from_either_key() {
    let place = Place::new();
    let store = place.open();
    start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    many(&store, 220).await;
    let good = logs(&store).await;
    let untouched = [bury(&place), bury(&place)];
    let mut graves = Vec::new();
    store.rotate(key(NEW), &mut |_| graves.push([bury(&place), bury(&place)])).await.unwrap();
    assert_eq!(graves.len(), 4, "begun, two batches, switched");
    for (moment, pair) in graves.iter().enumerate() {
        for (grave, held) in pair.iter().zip([KEY, NEW]) {
            let store = grave.try_open(held).unwrap();
            assert_eq!(logs(&store).await, good, "after {moment}, with key {}", held[0]);
            assert_eq!(store.rotation().await.unwrap(), Some(under_way(moment == 3)));
            start(&store, 2).await;
            if moment < 3 {
                let refused = store.retire(at(100)).await;
                assert!(matches!(refused, Err(RotateError::UnderWay { .. })), "{refused:?}");
            }
            let third = store.rotate(key([9; 32]), &mut |_| {}).await;
            assert!(matches!(third, Err(RotateError::UnderWay { to, .. }) if to == key(NEW).fingerprint()));
            let copy = store.backup(&grave.folder.path().join("copy.db")).await;
            assert!(
                matches!(copy, Err(BackupError::Rotating)),
                "a copy would open with the old key for ever"
            );
            let rest = rotate(&store).await.unwrap();
            assert_eq!(rest, Rotated { runs: [221, 21, 0, 0][moment], unreadable: 0 });
            assert!(store.retire(at(100)).await.unwrap().is_some());
            drop(store);
            assert!(matches!(grave.try_open(KEY), Err(OpenError::WrongKey { .. })));
            let store = grave.try_open(NEW).unwrap();
            assert_eq!(logs(&store).await.len(), good.len() + 1);
            assert!(is_clean(&store).await);
        }
    }
    // Killed before it began: the old key, and no other.
    assert_eq!(logs(&untouched[0].open()).await, good);
    assert!(matches!(untouched[1].try_open(NEW), Err(OpenError::WrongKey { .. })));
}

#[tokio::test]
async fn rule_s3_rotation_goes_on_under_other_processes_and_what_they_create_is_not_lost() {
    let place = Place::new();
    let (store, other, idle) = (place.open(), place.open(), place.open());
    let run = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    many(&store, 210).await;
    let mut number = 10;
    store
        .rotate(key(NEW), &mut |_| {
            number += 1;
            start_in_thread(&other, number);
        })
        .await
        .unwrap();
    assert_eq!(number, 14);
    // It was handed the new key and works on, before and after the old one is retired.
    let run = go_on(&other, &run, vec![approval(1)], at(9)).await;
    let lease = other.claim(run.id(), "t".to_owned(), at(9), LEASE).await.unwrap();
    store.retire(at(100)).await.unwrap();
    assert!(other.heartbeat(&lease, at(10), LEASE).await.unwrap());
    start(&other, 20).await;
    for number in [11, 12, 13, 14, 20] {
        assert_eq!(store.load(&run_id(number)).await.unwrap().revision(), Revision(1), "{number}");
    }
    assert!(is_clean(&store).await);

    // One that slept through all of it has a key that is good for nothing, says so, and touches nothing.
    let before = place.meddle();
    let state = || -> (i64, i64, i64) {
        before
            .query_row(
                "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM events), (SELECT max(ticket) FROM runs)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap()
    };
    let untouched = state();
    let reason = match idle.load(run.id()).await {
        Err(LoadError::Unreadable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason.contains("the master key was changed") && reason.contains("start it again"), "{reason}");
    let changes = countersign::Run::create(
        run_id(30),
        countersign::contract::sample::created("default", "alice"),
        Vec::new(),
        at(1),
    )
    .unwrap()
    .1;
    assert!(matches!(idle.create(changes).await, Err(CreateError::Fault(_))));
    assert!(matches!(idle.claim(&run_id(11), "u".to_owned(), at(9), LEASE).await, Err(ClaimError::Fault(_))));
    let agents = [countersign::contract::sample::agent("default")];
    assert!(idle.claim_any(&agents, "u".to_owned(), at(9), LEASE).await.is_err());
    let active = start(&store, 31).await;
    let untouched = (untouched.0 + 1, untouched.1 + 1, untouched.2 + 1);
    let changes = active.record(vec![words("x")], at(40)).unwrap().1;
    let append = idle.append(active.id(), Revision(1), &Writer::Anyone, at(40), Append::Plain(changes)).await;
    assert!(matches!(append, Err(AppendError::Unreadable { .. })), "{append:?}");
    assert!(idle.examine(None, at(9), &mut |_| {}).await.is_err(), "it would find everything broken");
    assert!(matches!(rotate(&idle).await, Err(RotateError::Fault(_) | RotateError::SameKey)));
    assert_eq!(state(), untouched);
    assert_eq!(idle.run(run.id(), at(9)).await.unwrap().row.id, *run.id(), "rows are still believed");
}

#[tokio::test]
async fn rule_s3_rotation_to_the_same_key_is_refused_and_of_two_keys_one_wins() {
    let place = Place::new();
    let (one, two) = (place.open(), place.open());
    many(&one, 230).await;
    let same = one.rotate(key(KEY), &mut |_| {}).await;
    assert!(matches!(same, Err(RotateError::SameKey)), "{same:?}");
    assert_eq!(one.rotation().await.unwrap(), None);
    // To one key they work side by side.
    let (first, second) = tokio::join!(rotate(&one), rotate(&two));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.runs + second.runs, 230);
    one.retire(at(100)).await.unwrap();
    let (mut eight, mut nine) = (|_| {}, |_| {});
    let (first, second) =
        tokio::join!(one.rotate(key([1; 32]), &mut eight), two.rotate(key([2; 32]), &mut nine));
    let refused = match (first, second) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, RotateError::UnderWay { .. }));
    assert_eq!(logs(&two).await.len(), 230);
}

#[tokio::test]
async fn rule_r2_a_run_that_opens_with_neither_key_stops_no_rotation_and_is_left_as_it_is() {
    let place = Place::new();
    let store = place.open();
    start(&store, 1).await;
    let sound = start(&store, 2).await;
    let meddler = place.meddle();
    meddler.execute("UPDATE runs SET key = zeroblob(81) WHERE number = 1", []).unwrap();
    assert_eq!(rotate(&store).await.unwrap(), Rotated { runs: 1, unreadable: 1 });
    store.retire(at(100)).await.unwrap();
    let kept: Vec<u8> =
        meddler.query_row("SELECT key FROM runs WHERE number = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, vec![0; 81]);
    assert_eq!(store.load(sound.id()).await.unwrap().revision(), Revision(1));
}

#[tokio::test]
async fn rule_s3_what_was_handed_over_is_gone_from_the_disk_with_the_old_key() {
    let place = Place::new();
    let store = place.open();
    many(&store, 30).await;
    rotate(&store).await.unwrap();
    let (to_key, from_key): (Vec<u8>, Vec<u8>) = place
        .meddle()
        .query_row("SELECT to_key, from_key FROM rotation", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let lies_there = |what: &[u8]| place.bytes().windows(what.len()).any(|window| window == what);
    assert!(lies_there(&to_key) && lies_there(&from_key));
    assert!(!lies_there(&KEY) && !lies_there(&NEW));
    assert!(store.retire(at(100)).await.unwrap().unwrap().scrubbed);
    assert!(!lies_there(&to_key) && !lies_there(&from_key));
    drop(store);
    let options = SqliteOptions::new(place.path());
    assert!(matches!(open(options, KEY), Err(OpenError::WrongKey { .. })));
}

#[tokio::test]
async fn rule_s3_the_old_key_is_not_retired_under_a_worker_that_may_have_no_other() {
    let place = Place::new();
    let (store, worker, asleep) = (place.open(), place.open(), place.open());
    let (busy, lost) = (start(&worker, 1).await, start(&asleep, 2).await);
    let lease = worker.claim(busy.id(), "t".to_owned(), at(10), LEASE).await.unwrap();
    let stale = asleep.claim(lost.id(), "u".to_owned(), at(12), LEASE).await.unwrap();
    rotate(&store).await.unwrap();
    for moment in [13, 41] {
        let refused = store.retire(at(moment)).await;
        assert!(matches!(refused, Err(RotateError::InUse { until }) if until == at(42)), "{refused:?}");
    }
    assert!(worker.heartbeat(&lease, at(20), LEASE).await.unwrap());
    store.retire(at(42)).await.unwrap().unwrap();
    // Whoever renewed its lease has the new key; whoever did not has lost its run anyway.
    let mine = Writer::Worker(lease);
    let changes = busy.record(vec![words("x")], at(43)).unwrap().1;
    worker.append(busy.id(), Revision(1), &mine, at(43), Append::Plain(changes)).await.unwrap();
    let changes = lost.record(vec![words("x")], at(43)).unwrap().1;
    let late =
        asleep.append(lost.id(), Revision(1), &Writer::Worker(stale), at(43), Append::Plain(changes)).await;
    assert!(matches!(late, Err(AppendError::LeaseLost)), "{late:?}");
}

/// A database of the schema before there were rotations, as it was left.
fn of_the_first_schema(place: &Place) {
    place
        .meddle()
        .execute_batch(
            "DROP TABLE schema_version; DROP TABLE probe; DROP TABLE reviewed; DROP INDEX runs_by_holder; ALTER TABLE runs DROP COLUMN lease_holder; DROP INDEX pendings_open; \
             DROP INDEX runs_by_starter; ALTER TABLE runs DROP COLUMN starter; DROP TABLE outbox; \
             DROP TABLE webhooks_gone; DROP TABLE starts; DROP TABLE tokens; ALTER TABLE principals DROP COLUMN scopes; \
             ALTER TABLE principals DROP COLUMN disabled_at; DROP INDEX runs_continuing; ALTER TABLE runs DROP COLUMN continues; \
             DROP TABLE switched_off; DROP TABLE rotation; DROP INDEX runs_finished; ALTER TABLE runs DROP COLUMN erased_at; \
             ALTER TABLE events DROP COLUMN digest; PRAGMA user_version = 1;",
        )
        .unwrap();
}

#[tokio::test]
async fn rule_r2_a_database_of_the_first_schema_is_brought_up_to_date_with_its_parked_runs() {
    let place = Place::new();
    let store = place.open();
    let waiting = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    let over = ended(&store, 2).await;
    drop(store);
    of_the_first_schema(&place);
    let before = place.bytes();
    assert!(matches!(place.try_open(NEW), Err(OpenError::WrongKey { .. })));
    assert!(place.bytes() == before, "another key changes nothing");
    let store = place.open();
    assert!(is_clean(&store).await);
    let waiting = go_on(&store, &waiting, vec![approval(1)], at(9)).await;
    rotate(&store).await.unwrap();
    store.retire(at(100)).await.unwrap();
    store.erase(over.id(), at(100)).await.unwrap();
    assert_eq!(store.load(waiting.id()).await.unwrap().revision(), Revision(4));
    assert!(is_clean(&store).await);
}
