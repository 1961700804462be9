//! Two releases on one database: a process that had it open when a newer countersign migrated it, and one that opens
//! it afterwards.

use std::error::Error;
use std::time::Duration;

use countersign::contract::sample::{
    agent, approval, at, completion, created, go_on, pending_id, run_id, start, start_waiting, words,
};
use countersign::{
    Append, Deadline, Lease, LoadError, Revision, Run, RunFilter, RunState, StoreFault, Writer,
};
use countersign_store::{OpenError, Upkeep};

/// What the next release may do so that the one before goes on: it adds. Every release may know these statements.
pub(crate) const ADDS: &str = "\
    ALTER TABLE runs ADD COLUMN weather TEXT; \
    ALTER TABLE events ADD COLUMN moon TEXT; \
    ALTER TABLE pendings ADD COLUMN tide TEXT NOT NULL DEFAULT 'low'; \
    ALTER TABLE installation ADD COLUMN harbour TEXT; \
    CREATE TABLE almanac (day TEXT PRIMARY KEY); \
    CREATE INDEX runs_by_weather ON runs (weather)";
/// What it may do only to a database that older ones leave alone from then on.
pub(crate) const CHANGES: &str = "ALTER TABLE pendings RENAME COLUMN owner TO asker";
/// What says so.
pub(crate) const FOR_ITS_OWN: &str = "UPDATE schema_version SET readable_from = ";

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) async fn claim(store: &dyn Upkeep, now: i64) -> Result<Option<Lease>, StoreFault> {
    store.claim_any(&[agent("default")], format!("token{now}"), at(now), LEASE).await
}

/// Creates, claims, drives, holds, asks, decides, lists, ends: whatever a process does with its runs.
pub(crate) async fn goes_on(store: &dyn Upkeep, number: u8) {
    let run = start(store, number).await;
    let longest_owed = claim(store, i64::from(number)).await.unwrap().unwrap();
    assert!(store.release(&longest_owed, Revision::PAST_ALL).await.unwrap());
    let lease =
        store.claim(run.id(), format!("token of {number}"), at(i64::from(number)), LEASE).await.unwrap();
    assert!(store.heartbeat(&lease, at(i64::from(number) + 1), LEASE).await.unwrap());
    let (after, changes) = run.record(vec![words("x")], at(i64::from(number) + 1)).unwrap();
    let (writer, plain) = (Writer::Worker(lease.clone()), Append::Plain(changes));
    let stored = store.append(run.id(), Revision(1), &writer, at(i64::from(number) + 1), plain).await;
    assert!(stored.is_ok(), "{stored:?}");
    assert!(store.release(&lease, Revision(after.revision())).await.unwrap());
    let ended = go_on(store, &after, vec![completion()], at(i64::from(number) + 2)).await;
    assert_eq!(ended.state(), RunState::Completed);
    let waiting = start_waiting(store, number + 1, "default", "alice", Deadline::Never).await;
    let decided = go_on(store, &waiting, vec![approval(number + 1)], at(90)).await;
    assert_eq!(decided.state(), RunState::Active);
    assert!(store.pending(&pending_id(number + 1)).await.unwrap().is_some());
    let page = store.runs(&RunFilter::default(), at(91), 50, None).await.unwrap();
    assert!(page.items.iter().any(|item| item.row.id == *ended.id()));
    assert_eq!(store.load(ended.id()).await.unwrap().revision(), Revision(ended.revision()));
    assert!(store.examine(None, at(93), &mut |_| {}).await.unwrap().is_clean());
}

/// An error with its causes.
fn said(error: &(dyn Error + 'static)) -> String {
    let (mut said, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

/// Nothing is begun, held or kept any more, and whatever is there can be looked at.
pub(crate) async fn stands_still(store: &dyn Upkeep, held: &Lease) {
    let created = created("default", "alice");
    let (_, changes) = Run::create(run_id(77), created, Vec::new(), at(0)).unwrap();
    for refused in [
        said(&claim(store, 50).await.unwrap_err()),
        said(&store.claim(&held.run, "token".to_owned(), at(50), LEASE).await.unwrap_err()),
        said(&store.heartbeat(held, at(10), LEASE).await.unwrap_err()),
        said(&store.create(changes).await.unwrap_err()),
    ] {
        assert!(refused.contains("end it, and start the newer one"), "{refused}");
    }
    assert!(matches!(store.load(&run_id(77)).await, Err(LoadError::NotFound(_))));
    assert!(store.load(&held.run).await.is_ok());
}

/// A program of today before a database of tomorrow that is not for it.
pub(crate) fn is_refused<S>(opened: Result<S, OpenError>, schema: u32) {
    match opened {
        Err(refused @ OpenError::Newer { found, known }) => {
            assert_eq!((found, known), (schema, schema - 1));
            assert!(refused.to_string().ends_with("Use the newer one"), "{refused}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}
