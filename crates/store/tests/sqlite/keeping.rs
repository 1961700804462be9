//! Retention, erasure and copies: what goes is gone, and what must stay stays.

use crate::support::{KEY, Place, ended, many, open, unknown};
use countersign::contract::sample::{
    at, completion, continuation, go_on, run_id, start, start_as, start_waiting, subject, words,
};
use countersign::{
    Append, AppendError, CancelRequested, Created, Deadline, Event, LoadError, Revision, Run, RunFilter,
    RunState, Store, Writer,
};
use countersign_store::{BackupError, EraseError, Finding, Purged, SqliteOptions, Upkeep};
use rusqlite::Connection;

fn sealed(connection: &Connection, run: &Run) -> Vec<Vec<u8>> {
    let mut select = connection
        .prepare("SELECT sealed FROM events WHERE run = ?1 UNION ALL SELECT key FROM runs WHERE id = ?1")
        .unwrap();
    let rows = select.query_map([run.id().as_str()], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn lies_there(place: &Place, what: &[u8]) -> bool {
    // A ciphertext of some length lies on several pages; its beginning lies on one.
    let what = &what[..what.len().min(64)];
    place.bytes().windows(what.len()).any(|window| window == what)
}

#[tokio::test]
async fn rule_r10_an_erased_run_has_no_content_left_on_the_disk_and_its_chain_still_verifies() {
    let place = Place::new();
    let (store, other) = (place.open(), place.open());
    start_waiting(&store, 2, "default", "alice", Deadline::Never).await;
    let created = Created {
        system_prompt: Some("long ".repeat(5000)),
        ..countersign::contract::sample::created("default", "alice")
    };
    let (run, changes) = Run::create(run_id(1), created, Vec::new(), at(0)).unwrap();
    store.create(changes).await.unwrap();
    let run =
        go_on(&store, &run, vec![words("done"), countersign::contract::sample::completion()], at(3)).await;
    let kept = ended(&store, 3).await;
    assert_eq!(other.load(run.id()).await.unwrap().revision(), Revision(3));
    let ciphertexts = sealed(&place.meddle(), &run);
    assert_eq!(ciphertexts.len(), 4);
    assert!(ciphertexts.iter().all(|text| lies_there(&place, text)));

    let erased = store.erase(run.id(), at(50)).await.unwrap();
    assert_eq!((erased.at, erased.events, erased.scrubbed), (at(50), 3, true));
    for text in &ciphertexts {
        assert!(!lies_there(&place, text), "{} bytes of it are still there", text.len());
    }
    for store in [&store, &other] {
        let error = store.load(run.id()).await.unwrap_err();
        assert!(matches!(error, LoadError::Erased { .. }), "{error}");
        assert!(error.to_string().contains("its content was erased at 2026-"), "{error}");
        assert_eq!(store.run(run.id(), at(60)).await.unwrap().row, run.row(), "lists still show it");
        assert_eq!(store.runs(&RunFilter::default(), at(60), 10, None).await.unwrap().items.len(), 3);
        assert_eq!(store.erased_at(run.id()).await.unwrap(), Some(at(50)));
        assert_eq!(store.erased_at(kept.id()).await.unwrap(), None);
        assert_eq!(store.load(kept.id()).await.unwrap().revision(), Revision(3));
        let report = store.examine(None, at(60), &mut |_| {}).await.unwrap();
        assert!(report.is_clean() && report.runs == 3 && report.events == 9, "{report:?}");
    }
    let again = other.erase(run.id(), at(70)).await.unwrap();
    assert_eq!((again.at, again.events), (at(50), 0), "once is enough");

    // The chain goes over the digests: a change is noticed as before, and nobody can take the mark away.
    let meddler = place.meddle();
    let said = async |change: &str| {
        meddler.execute_batch(change).unwrap();
        let report = store.examine(None, at(60), &mut |_| {}).await.unwrap();
        report.findings.iter().map(Finding::sentence).collect::<Vec<_>>()
    };
    let id = run.id();
    let changed =
        said(&format!("UPDATE events SET digest = zeroblob(32) WHERE run = '{id}' AND seq = 1")).await;
    assert_eq!(changed, [format!("the log of run {id} cannot be read: entry 1 was changed")]);
    let unmarked = said(&format!("UPDATE runs SET erased_at = NULL WHERE id = '{id}'")).await;
    assert!(unmarked[0].starts_with(&format!("run {id} cannot be read")), "{unmarked:?}");
}

#[tokio::test]
async fn rule_r10_only_what_has_ended_is_erased() {
    let place = Place::new();
    let store = place.open();
    let active = start(&store, 1).await;
    let waiting = start_waiting(&store, 2, "default", "alice", Deadline::Never).await;
    let unsettled = unknown(&store, 3).await;
    for run in [active, waiting, unsettled] {
        let refused = store.erase(run.id(), at(9)).await.unwrap_err();
        assert!(matches!(refused, EraseError::NotEnded(state) if state == run.state()));
        assert!(refused.to_string().ends_with("cancel it first, then erase it"), "{refused}");
        assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(run.revision()));
    }
    assert!(matches!(store.erase(&run_id(9), at(9)).await, Err(EraseError::NotFound(id)) if id == run_id(9)));
    let spoiled = ended(&store, 4).await;
    place.meddle().execute("UPDATE runs SET owner = 'mallory' WHERE number = 4", []).unwrap();
    assert!(matches!(store.erase(spoiled.id(), at(9)).await, Err(EraseError::Unreadable { .. })));
}

#[tokio::test]
async fn rule_r10_nothing_is_appended_to_an_erased_run() {
    let place = Place::new();
    let store = place.open();
    let run = ended(&store, 1).await;
    store.erase(run.id(), at(9)).await.unwrap();
    let other = start(&store, 2).await;
    let changes = other.record(vec![words("x")], at(10)).unwrap().1;
    let refused = store.append(run.id(), Revision(3), &Writer::Anyone, at(10), Append::Plain(changes)).await;
    assert!(
        matches!(&refused, Err(AppendError::Unreadable { reason, .. }) if reason.contains("erased")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn rule_r10_retention_removes_what_ended_in_time_and_never_what_waits_works_or_is_unknown() {
    let place = Place::new();
    let (store, other) = (place.open(), place.open());
    let active = start(&store, 1).await;
    let waiting = start_waiting(&store, 2, "default", "alice", Deadline::At(at(3))).await;
    let unsettled = unknown(&store, 3).await;
    let cancelled = start_waiting(&store, 4, "default", "alice", Deadline::Never).await;
    let events = cancelled.cancellation(&subject("alice"), at(20)).unwrap();
    let cancelled = go_on(&store, &cancelled, events, at(20)).await;
    let late = start_as(&store, 5, "default", "alice").await;
    let late =
        go_on(&store, &late, vec![words("done"), countersign::contract::sample::completion()], at(1000))
            .await;
    let mut old = Vec::new();
    for number in 100..160 {
        old.push(ended(&store, number).await);
    }
    let erased = ended(&store, 6).await;
    store.erase(erased.id(), at(500)).await.unwrap();
    let spoiled = ended(&store, 7).await;
    let meddler = place.meddle();
    // A row that claims to have ended is not believed without its MAC.
    meddler
        .execute(
            "UPDATE runs SET finished_at = '2020-01-01T00:00:00.000000000Z' WHERE id IN (?1, ?2)",
            [spoiled.id().as_str(), waiting.id().as_str()],
        )
        .unwrap();
    let ciphertexts = sealed(&meddler, &old[7]);
    let would = store.purge(at(1000), true).await.unwrap();
    let expected = Purged { runs: 62, events: 61 * 3 + 7, pendings: 1, unreadable: 2, ..Purged::default() };
    assert_eq!(cancelled.revision(), 7);
    assert_eq!(would, expected);
    assert_eq!(store.runs(&RunFilter::default(), at(9), 1000, None).await.unwrap().items.len(), 65);
    assert!(ciphertexts.iter().all(|text| lies_there(&place, text)));

    assert_eq!(store.purge(at(1000), false).await.unwrap(), Purged { scrubbed: true, ..expected });
    assert!(ciphertexts.iter().all(|text| !lies_there(&place, text)));
    let rest = Purged { unreadable: 2, ..Purged::default() };
    assert_eq!(other.purge(at(1000), false).await.unwrap(), rest, "there is nothing left to do");
    for gone in old.iter().chain([&cancelled, &erased]) {
        assert!(matches!(other.load(gone.id()).await, Err(LoadError::NotFound(_))));
    }
    for (kept, state) in
        [(&active, RunState::Active), (&unsettled, RunState::NeedsResolution), (&late, RunState::Completed)]
    {
        let log = other.load(kept.id()).await.unwrap();
        assert_eq!(Run::fold(kept.id().clone(), &log.entries).unwrap().state(), state);
    }
    meddler.execute("UPDATE runs SET finished_at = NULL WHERE number = 2", []).unwrap();
    assert_eq!(other.load(waiting.id()).await.unwrap().revision(), Revision(3));
    assert_eq!(store.purge(at(2000), false).await.unwrap().runs, 1);
}

#[tokio::test]
async fn a_copy_made_while_others_write_is_whole_and_a_parked_run_in_it_goes_on() {
    let place = Place::new();
    let (store, other) = (place.open(), place.open());
    let waiting = start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    many(&store, 20).await;
    let to = place.folder.path().join("copy.db");
    let (copied, _) = tokio::join!(store.backup(&to), many_more(&other));
    copied.unwrap();
    let copy = open(SqliteOptions::new(&to), KEY).unwrap();
    assert_eq!(copy.load(waiting.id()).await.unwrap(), store.load(waiting.id()).await.unwrap());
    assert!(copy.examine(None, at(9), &mut |_| {}).await.unwrap().is_clean());
    let event = Event::CancelRequested(CancelRequested { by: subject("alice") });
    go_on(&copy, &waiting, vec![event], at(9)).await;
    assert_eq!(store.load(waiting.id()).await.unwrap().revision(), Revision(3), "they are two");

    assert!(matches!(store.backup(&to).await, Err(BackupError::Exists(path)) if path == to));
    let nowhere = place.folder.path().join("missing").join("copy.db");
    assert!(matches!(store.backup(&nowhere).await, Err(BackupError::File { .. })));
    let files = std::fs::read_dir(place.folder.path()).unwrap();
    let left = files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("part"));
    assert_eq!(left.count(), 0);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o077, 0);
    }
}

async fn many_more(store: &countersign_store::SqliteStore) {
    for number in 10..40 {
        start(store, number).await;
    }
}

/// A run that has ended and continues another.
async fn continued(store: &countersign_store::SqliteStore, number: u8, before: &Run) -> Run {
    let run = continuation(store, number, before).await.unwrap();
    go_on(store, &run, vec![words("and so on"), completion()], at(i64::from(number))).await
}

#[tokio::test]
async fn rule_r10_erasing_what_was_continued_empties_both_and_both_chains_still_verify() {
    let place = Place::new();
    let store = place.open();
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
        assert!(sealed(&place.meddle(), run).iter().all(Vec::is_empty));
        assert_eq!(store.run(run.id(), at(12)).await.unwrap().row.state, RunState::Completed);
    }
    store.load(other.id()).await.unwrap();
    assert!(store.examine(None, at(12), &mut |_| {}).await.unwrap().is_clean(), "all chains verify");
    let again = store.erase(first.id(), at(13)).await.unwrap();
    assert_eq!((again.at, again.events), (at(11), 0));
    assert!(matches!(
        continuation(&store, 7, &first).await,
        Err(countersign::CreateError::NotContinuable(run)) if run == *first.id()
    ));
}

#[tokio::test]
async fn rule_r10_what_is_continued_by_a_run_that_stays_is_not_removed() {
    let place = Place::new();
    let store = place.open();
    // 1 ← 2 ← 3, of which the last has not ended; 11 ← 12, which may all go; 21 ← 22, which ended later.
    let first = ended(&store, 1).await;
    let second = continued(&store, 2, &first).await;
    let third = continuation(&store, 3, &second).await.unwrap();
    let old = ended(&store, 11).await;
    continued(&store, 12, &old).await;
    let kept = ended(&store, 21).await;
    continued(&store, 60, &kept).await;
    let expected = Purged { runs: 2, events: 6, continued: 3, ..Purged::default() };
    assert_eq!(
        store.purge(at(50), true).await.unwrap(),
        expected,
        "a dry run counts as the real one removes"
    );
    assert_eq!(store.purge(at(50), false).await.unwrap(), Purged { scrubbed: true, ..expected });
    assert!(store.examine(None, at(51), &mut |_| {}).await.unwrap().is_clean());
    go_on(&store, &third, vec![words("done"), completion()], at(40)).await;
    let expected = Purged { runs: 5, events: 15, scrubbed: true, ..Purged::default() };
    assert_eq!(store.purge(at(100), false).await.unwrap(), expected, "chains go whole, newest first");
}

#[tokio::test]
async fn rule_r10_doctor_finds_a_run_that_cannot_go_on_with_what_it_continues() {
    let place = Place::new();
    let store = place.open();
    let first = ended(&store, 1).await;
    let living = continuation(&store, 2, &first).await.unwrap();
    let examine = async || {
        let report = store.examine(None, at(9), &mut |_| {}).await.unwrap();
        report.findings.iter().map(Finding::sentence).collect::<Vec<_>>()
    };
    assert_eq!(examine().await, [""; 0]);
    place.meddle().execute("DELETE FROM events WHERE run = ?1", [first.id().as_str()]).unwrap();
    place.meddle().execute("DELETE FROM runs WHERE id = ?1", [first.id().as_str()]).unwrap();
    let wanted = format!("run {} continues run {}, which is not there", living.id(), first.id());
    assert_eq!(examine().await, [wanted]);
    // The reference stands under the MAC of the row.
    place.meddle().execute("UPDATE runs SET continues = NULL", []).unwrap();
    assert!(matches!(store.run(living.id(), at(9)).await, Err(LoadError::Unreadable { .. })));
}
