//! A file that somebody changed: noticed when it is read, refused, kept as it is; other runs unaffected (S4).

use std::time::Duration;

use crate::support::{KEY, Place};
use countersign::contract::sample::{approval, at, go_on, run_id, start, start_waiting, subject, words};
use countersign::{
    Append, AppendError, CancelRequested, ClaimError, Deadline, Event, LoadError, Revision, Run, RunFilter,
    RunId, Store, Writer,
};
use countersign_store::SqliteStore;
use rusqlite::Connection;

const LEASE: Duration = Duration::from_secs(30);

/// Two runs with logs of four entries each; the first is the one that is tampered with.
async fn two_runs() -> (Place, SqliteStore, Run) {
    let place = Place::new();
    let store = place.open();
    let mut runs = Vec::new();
    for number in [1, 2] {
        let run = start_waiting(&store, number, "default", "alice", Deadline::Never).await;
        runs.push(go_on(&store, &run, vec![approval(number)], at(9)).await);
    }
    let first = runs.swap_remove(0);
    (place, store, first)
}

async fn refusal(store: &SqliteStore, run: &RunId) -> String {
    match store.load(run).await {
        Err(LoadError::Unreadable { run: named, reason }) if named == *run => reason,
        other => panic!("{other:?}"),
    }
}

async fn append(store: &SqliteStore, run: &Run) -> Result<(), AppendError> {
    let event = Event::CancelRequested(CancelRequested { by: subject("alice") });
    let changes = Append::Plain(run.record(vec![event], at(10)).unwrap().1);
    store.append(run.id(), Revision(run.revision()), &Writer::Anyone, at(10), changes).await.map(drop)
}

type EntryRow = (String, i64, String, String, Vec<u8>, Vec<u8>);

fn entries(connection: &Connection) -> Vec<EntryRow> {
    let mut select =
        connection.prepare("SELECT run, seq, at, kind, sealed, mac FROM events ORDER BY run, seq").unwrap();
    let rows = select.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn rule_s4_every_change_of_a_log_is_noticed_and_hides_no_other_run() {
    let other_time = "2026-01-01T00:00:00.000000000Z";
    let [one, two] = [1, 2].map(|number| format!("run = '{}'", run_id(number)));
    let reordered = format!(
        "UPDATE events SET seq = 9 WHERE {one} AND seq = 1; UPDATE events SET seq = 1 WHERE {one} AND seq = 2; \
         UPDATE events SET seq = 2 WHERE {one} AND seq = 9"
    );
    let inserted = |seq: i64| {
        format!(
            "INSERT INTO events (run, seq, at, kind, sealed, mac) \
             SELECT run, {seq}, at, kind, sealed, mac FROM events WHERE {one} AND seq = 3"
        )
    };
    let moved = format!(
        "DELETE FROM events WHERE {one} AND seq = 3; UPDATE events SET {one} WHERE {two} AND seq = 3"
    );
    let copied = format!(
        "UPDATE events SET sealed = (SELECT sealed FROM events WHERE {two} AND seq = 1) WHERE {one} AND seq = 1"
    );
    let update = |what: &str, seq: i64| format!("UPDATE events SET {what} WHERE {one} AND seq = {seq}");
    // What is done, what is said, and whether it is the end that is spoiled.
    for (change, expected, at_the_end) in [
        (update("kind = 'run.created'", 1), "entry 1 was changed", false),
        (update(&format!("at = '{other_time}'"), 2), "entry 2 was changed", false),
        (update(&format!("at = '{other_time}'"), 3), "entry 3 was changed", true),
        (update("sealed = zeroblob(80)", 3), "entry 3 was changed", true),
        (update("sealed = x''", 0), "entry 0 was changed", false),
        (update("digest = zeroblob(32)", 3), "entry 3 was changed", true),
        (update("digest = x''", 1), "events.digest of row 1 cannot be read", false),
        (update("mac = zeroblob(32)", 3), "entry 3 was changed", true),
        (update("mac = zeroblob(32)", 2), "entry 2 was changed", true),
        (update("mac = x''", 3), "events.mac of row 3 cannot be read", true),
        (
            format!("DELETE FROM events WHERE {one} AND seq = 3"),
            "its end is missing: 3 of 4 entries are there",
            true,
        ),
        (format!("DELETE FROM events WHERE {one} AND seq = 1"), "entry 1 is missing", false),
        (format!("DELETE FROM events WHERE {one}"), "its end is missing: 0 of 4 entries are there", true),
        (inserted(4), "entries were added: the log has 4", true),
        (inserted(-1), "entries were added: the log has 4", false),
        (reordered, "entries were reordered: entry 1 holds what was stored as entry 2", false),
        (moved, "entry 3 was changed", true),
        (copied, "entry 1 was changed", false),
    ] {
        let (place, store, run) = two_runs().await;
        let meddler = place.meddle();
        meddler.execute_batch(&change).unwrap();
        let tampered = entries(&meddler);
        assert_eq!(refusal(&store, run.id()).await, expected, "{change}");
        if at_the_end {
            let refused = append(&store, &run).await;
            assert!(matches!(refused, Err(AppendError::Unreadable { .. })), "{change}: {refused:?}");
        }
        assert_eq!(entries(&meddler), tampered, "nothing is mended and nothing is removed: {change}");
        if !change.contains(&two) {
            assert_eq!(store.load(&run_id(2)).await.unwrap().revision(), Revision(4), "{change}");
        }
        start(&store, 3).await;
        assert_eq!(store.load(&run_id(3)).await.unwrap().revision(), Revision(1), "{change}");
    }
}

#[tokio::test]
async fn rule_s4_no_byte_of_a_sealed_entry_can_be_changed() {
    let place = Place::new();
    let store = place.open();
    let run = start(&store, 1).await;
    let run = go_on(&store, &run, vec![words("x")], at(2)).await;
    let good = store.load(run.id()).await.unwrap();
    let meddler = place.meddle();
    let sealed: Vec<u8> =
        meddler.query_row("SELECT sealed FROM events WHERE seq = 1", [], |row| row.get(0)).unwrap();
    let put = |bytes: &[u8]| meddler.execute("UPDATE events SET sealed = ?1 WHERE seq = 1", [bytes]).unwrap();
    meddler.pragma_update(None, "synchronous", "OFF").unwrap();
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 1 << (place % 8);
        put(&changed);
        assert_eq!(refusal(&store, run.id()).await, "entry 1 was changed", "byte {place}");
    }
    put(&sealed);
    assert_eq!(store.load(run.id()).await.unwrap(), good);
}

#[tokio::test]
async fn rule_s4_every_derived_column_of_a_run_is_covered() {
    let (place, store, run) = two_runs().await;
    let good = store.load(run.id()).await.unwrap();
    let meddler = place.meddle();
    meddler.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM runs WHERE number = 1").unwrap();
    for change in [
        "state = 'waiting_for_approval'",
        "state = 'completed'",
        "state = 'unheard_of'",
        "agent = 'other'",
        "owner = 'mallory'",
        "owner = ''",
        "unattended = 1",
        "unattended = 2",
        "iterations = iterations - 1",
        "iterations = -1",
        "input_tokens = 0",
        "output_tokens = -1",
        "cached_input_tokens = 1",
        "unknown_calls = 0",
        "limit_reached = 'max_iterations'",
        "limit_reached = 'no_limit'",
        "failure = ''",
        "created_at = updated_at",
        "updated_at = created_at",
        "updated_at = 'soon'",
        "finished_at = updated_at",
        "revision = revision - 1",
        "head = (SELECT mac FROM events WHERE run = runs.id AND seq = 2)",
        "head = (SELECT mac FROM events WHERE run = runs.id AND seq = 2), revision = 3",
        "head = x''",
        "mac = zeroblob(32)",
        "mac = (SELECT mac FROM runs AS other WHERE other.number = 2)",
        "lease_until = 'soon'",
        "erased_at = updated_at",
        "erased_at = 'soon'",
    ] {
        meddler.execute(&format!("UPDATE runs SET {change} WHERE number = 1"), []).unwrap();
        refusal(&store, run.id()).await;
        assert!(matches!(store.run(run.id(), at(9)).await, Err(LoadError::Unreadable { .. })), "{change}");
        let judged =
            Append::Judged { subjects: vec![], judge: Box::new(|_| panic!("nothing is judged on it")) };
        let refused = store.append(run.id(), Revision(4), &Writer::Anyone, at(9), judged).await;
        assert!(matches!(refused, Err(AppendError::Unreadable { .. })), "{change}: {refused:?}");
        let claim = store.claim(run.id(), "t".to_owned(), at(9), LEASE).await;
        assert!(matches!(claim, Err(ClaimError::Unreadable { .. })), "{change}: {claim:?}");
        let listed = store.runs(&RunFilter::default(), at(9), 10, None).await.unwrap();
        assert_eq!(listed.items.len(), 1, "{change}");
        assert_eq!(store.load(&run_id(2)).await.unwrap().revision(), Revision(4), "{change}");
        meddler
            .execute_batch("DELETE FROM runs WHERE number = 1; INSERT INTO runs SELECT * FROM kept")
            .unwrap();
        assert_eq!(store.load(run.id()).await.unwrap(), good, "{change}");
    }
}

#[tokio::test]
async fn rule_s3_a_runs_key_opens_for_that_run_only() {
    let (place, store, run) = two_runs().await;
    let meddler = place.meddle();
    for change in ["(SELECT key FROM runs AS other WHERE other.number = 2)", "zeroblob(80)", "x''"] {
        meddler.execute(&format!("UPDATE runs SET key = {change} WHERE number = 1"), []).unwrap();
        let reason = refusal(&store, run.id()).await;
        assert!(reason.starts_with("its key does not open: "), "{reason}");
        assert!(matches!(append(&store, &run).await, Err(AppendError::Unreadable { .. })));
    }
}

/// Not promised, and therefore said here: a run that is removed with all its rows is not missed.
#[tokio::test]
async fn a_run_that_is_removed_whole_is_not_missed() {
    let (place, store, run) = two_runs().await;
    let [one, two] = [1, 2].map(|number| run_id(number).to_string());
    let meddler = place.meddle();
    for table in ["pendings WHERE run", "events WHERE run", "runs WHERE id"] {
        meddler.execute(&format!("DELETE FROM {table} = ?1"), [&one]).unwrap();
    }
    assert!(matches!(store.load(run.id()).await, Err(LoadError::NotFound(_))));
    assert_eq!(
        store.runs(&RunFilter::default(), at(9), 10, None).await.unwrap().items[0].row.id.as_str(),
        two
    );
}

/// A disk that rots anywhere in the file: what is still read is what was stored.
#[tokio::test]
async fn rule_s4_no_changed_byte_of_the_file_changes_what_a_log_says() {
    let (place, store, _) = two_runs().await;
    let runs = [run_id(1), run_id(2)];
    let mut logs = Vec::new();
    for run in &runs {
        logs.push((store.load(run).await.unwrap(), store.run(run, at(9)).await.unwrap()));
    }
    drop(store);
    let good = std::fs::read(place.path()).unwrap();
    assert!(good.len() > 50_000, "all of it is in the file");
    let rotten = Place::new();
    let mut refused = 0;
    for position in (0..good.len()).step_by(199) {
        let mut bytes = good.clone();
        bytes[position] ^= 0x55;
        for file in std::fs::read_dir(rotten.folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        std::fs::write(rotten.path(), bytes).unwrap();
        let Ok(store) = rotten.try_open(KEY) else {
            refused += 1;
            continue;
        };
        for (run, (log, listing)) in runs.iter().zip(&logs) {
            match store.load(run).await {
                Ok(found) => assert_eq!(found, *log, "byte {position}"),
                Err(_) => refused += 1,
            }
            if let Ok(found) = store.run(run, at(9)).await {
                assert_eq!(found, *listing, "byte {position}");
            }
        }
    }
    assert!(refused > 10, "{refused}");
}
