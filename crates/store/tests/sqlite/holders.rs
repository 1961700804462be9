//! What is held by a process that is gone is free; by one that is there, or of which nothing is known, it is not.

use std::time::Duration;

use countersign::contract::sample::{agent, at, run_id, start};
use countersign::{ClaimError, Lease, Store};
use countersign_store::SqliteStore;

use crate::support::Place;

const LEASE: Duration = Duration::from_secs(600);

async fn claim(store: &SqliteStore, number: u8, token: &str, now: i64) -> Result<Lease, ClaimError> {
    store.claim(&run_id(number), token.to_owned(), at(now), LEASE).await
}

/// The files of the processes that hold leases.
fn files(place: &Place) -> Vec<std::path::PathBuf> {
    let folder = place.folder.path().join("runs.db-workers");
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

#[tokio::test]
async fn rule_r6_what_is_held_by_a_process_that_is_gone_is_free_at_once() {
    let place = Place::new();
    let (first, second) = (place.open(), place.open());
    for number in 1..=3 {
        start(&second, number).await;
    }
    for number in 1..=2 {
        claim(&first, number, "first", 10).await.unwrap();
    }
    let kept = claim(&second, 3, "second", 10).await.unwrap();
    assert!(
        matches!(claim(&second, 1, "other", 11).await, Err(ClaimError::Leased { until }) if until == at(610))
    );
    let agents = [agent("default")];
    assert_eq!(second.claim_any(&agents, "other".to_owned(), at(11), LEASE).await.unwrap(), None);

    drop(first);
    assert!(!second.run(&run_id(1), at(12)).await.unwrap().leased, "nobody works on it");
    assert!(claim(&second, 1, "other", 12).await.is_ok());
    let next = second.claim_any(&agents, "other".to_owned(), at(12), LEASE).await.unwrap();
    assert_eq!(next.map(|lease| lease.run), Some(run_id(2)));
    assert!(second.heartbeat(&kept, at(12), LEASE).await.unwrap(), "nobody took this one away");
    assert_eq!(files(&place).len(), 1, "nothing is left behind of what is gone");

    let third = place.open();
    assert!(matches!(claim(&third, 3, "third", 13).await, Err(ClaimError::Leased { .. })));
    assert_eq!(third.claim_any(&agents, "third".to_owned(), at(13), LEASE).await.unwrap(), None);
}

#[tokio::test]
async fn rule_r6_where_nothing_proves_that_a_process_is_gone_its_lease_runs_out() {
    let place = Place::new();
    let (first, second) = (place.open(), place.open());
    start(&first, 1).await;
    claim(&first, 1, "first", 10).await.unwrap();
    // Somebody tidies up.
    for file in files(&place) {
        std::fs::remove_file(file).unwrap();
    }
    std::fs::write(place.folder.path().join("runs.db-workers/notes.txt"), "not a number").unwrap();
    drop(first);
    assert!(matches!(claim(&second, 1, "second", 609).await, Err(ClaimError::Leased { .. })));
    claim(&second, 1, "second", 610).await.unwrap();
    let mut left: Vec<_> =
        files(&place).into_iter().filter_map(|file| file.file_name()?.to_str().map(str::len)).collect();
    left.sort_unstable();
    assert_eq!(left, ["notes.txt".len(), 16], "what is nobody's stays");
}

#[tokio::test]
async fn rule_r6_where_no_file_can_be_made_leases_are_taken_and_run_out() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("runs.db-workers"), "in the way").unwrap();
    let (first, second) = (place.open(), place.open());
    start(&first, 1).await;
    claim(&first, 1, "first", 10).await.unwrap();
    drop(first);
    assert!(matches!(claim(&second, 1, "second", 609).await, Err(ClaimError::Leased { .. })));
    claim(&second, 1, "second", 610).await.unwrap();
}
