//! What is held by a process that is gone is soon free; by one that was only cut off, or of which nothing is known, it
//! is not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::contract::sample::{approval, at, call_id, go_on, pending_id, run_id, start, start_waiting};
use countersign::{
    CallStarted, ClaimError, Clearance, Clock, Deadline, Effect, Event, Lease, Store, SystemClock,
};
use countersign_store::{MasterKey, PostgresStore, Upkeep};
use jiff::Timestamp;

use crate::support::{KEY, Place};

const LEASE: Duration = Duration::from_secs(600);

/// For whom a second is over after a hundredth of one.
#[derive(Debug)]
struct Hasty(SystemClock);

#[async_trait]
impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn random(&self) -> [u8; 16] {
        self.0.random()
    }

    async fn sleep(&self, length: Duration) {
        self.0.sleep(length / 100).await;
    }
}

async fn open(place: &Place) -> PostgresStore {
    let clock: Arc<dyn Clock> = Arc::new(Hasty(SystemClock));
    PostgresStore::open(place.address(), MasterKey::new(KEY), clock).await.unwrap()
}

async fn claim(store: &PostgresStore, number: u8, token: &str) -> Result<Lease, ClaimError> {
    store.claim(&run_id(number), token.to_owned(), store.clock().now(), LEASE).await
}

/// Stores a run whose approved write was started.
async fn calls(store: &PostgresStore, number: u8) {
    let waiting = start_waiting(store, number, "default", "alice", Deadline::Never).await;
    let started = CallStarted {
        call: call_id(number),
        tool: "page_drop".to_owned(),
        effect: Effect::Write,
        clearance: Clearance::Approved(pending_id(number)),
        attempt: 1,
        interruption: 0,
        deadline: at(100),
    };
    go_on(store, &waiting, vec![approval(number), Event::CallStarted(started)], at(9)).await;
}

/// Returns when the database answers so.
async fn until(place: &Place, statement: &str, expected: &str) {
    while place.change(statement).trim() != expected {
        tokio::task::yield_now().await;
    }
}

const LOCKED: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const LISTENERS: &str = "FROM pg_stat_activity WHERE datname = current_database() AND pid IN \
     (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_r6_what_is_held_by_a_process_that_is_gone_is_soon_free_and_of_one_that_came_back_it_is_not() {
    let place = Place::new().await;
    let (cut_off, gone, unknown, survivor) =
        (open(&place).await, open(&place).await, open(&place).await, open(&place).await);
    for number in 1..=3 {
        start(&survivor, number).await;
    }
    let cut_off_hears = cut_off.hints();
    until(&place, LOCKED, "1").await;
    let gone_hears = gone.hints();
    until(&place, LOCKED, "2").await;
    let kept = claim(&cut_off, 1, "cut off").await.unwrap();
    let lost = claim(&gone, 2, "gone").await.unwrap();
    // A call of it is in flight, and whoever made it may only be cut off.
    calls(&survivor, 4).await;
    claim(&gone, 4, "gone").await.unwrap();
    // It does not listen, so nobody can tell whether it is there.
    let unattended = claim(&unknown, 3, "unknown").await.unwrap();
    drop(unknown);

    // One loses its connection and comes back; the other one ends.
    drop(gone_hears);
    until(&place, LOCKED, "1").await;
    let before = place.change(&format!("SELECT max(backend_start) {LISTENERS}"));
    place.change(&format!("SELECT pg_terminate_backend(pid) {LISTENERS}"));
    until(&place, &format!("SELECT count(*) {LISTENERS} AND backend_start > '{}'", before.trim()), "1").await;

    let mut survivor_hears = survivor.hints();
    while claim(&survivor, 2, "survivor").await.is_err() {
        // What is freed is told.
        survivor_hears.next().await;
    }
    let now = survivor.clock().now();
    assert!(!gone.heartbeat(&lost, now, LEASE).await.unwrap(), "it is somebody else's");
    assert!(matches!(claim(&survivor, 4, "survivor").await, Err(ClaimError::Leased { .. })));
    for (number, store, lease) in [(1, &cut_off, &kept), (3, &survivor, &unattended)] {
        assert!(
            matches!(claim(&survivor, number, "survivor").await, Err(ClaimError::Leased { .. })),
            "{number}"
        );
        assert!(store.heartbeat(lease, now, LEASE).await.unwrap(), "{number}");
    }
    drop(cut_off_hears);
}
