//! Who works on a run (R5, R6).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::{Deadline, RunState};
use tokio::task::JoinSet;

use super::sample::*;
use super::{Damage, Harness, done};
use crate::store::{ClaimError, Lease, Revision, Store};

const LEASE: Duration = Duration::from_secs(30);

async fn claim_any(store: &dyn Store, agents: &[&str], token: &str, now: i64) -> Option<Lease> {
    let agents: Vec<_> = agents.iter().map(|name| agent(name)).collect();
    done(store.claim_any(&agents, token.to_owned(), at(now), LEASE).await)
}

fn lease(number: u8, token: &str) -> Lease {
    Lease { run: run_id(number), token: token.to_owned() }
}

pub async fn a_run_is_queued_or_running_by_a_live_lease<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    assert_eq!(done(store.run(run.id(), at(2)).await).status(), "queued");
    let lease = done(store.claim(run.id(), "a".to_owned(), at(10), LEASE).await);
    for (now, status) in [(10, "running"), (39, "running"), (40, "queued")] {
        let listing = done(store.run(run.id(), at(now)).await);
        assert_eq!((listing.status(), listing.leased), (status, status == "running"), "{now}");
        let page = done(store.runs(&crate::store::RunFilter::default(), at(now), 10, None).await);
        assert_eq!(page.items, [listing]);
    }
    assert!(done(store.release(&lease, Revision(1)).await));
    assert_eq!(done(store.run(run.id(), at(11)).await).status(), "queued");
}

pub async fn a_claim_says_why_it_is_refused<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let claim = async |number, now| store.claim(&run_id(number), "t".to_owned(), at(now), LEASE).await;
    assert!(matches!(claim(9, 0).await, Err(ClaimError::NotFound(run)) if run == run_id(9)));

    start(&*store, 1).await;
    assert_eq!(done(claim(1, 10).await), lease(1, "t"));
    assert!(matches!(claim(1, 39).await, Err(ClaimError::Leased { until }) if until == at(40)));
    assert_eq!(done(claim(1, 40).await), lease(1, "t"));

    let waiting = start_waiting(&*store, 2, "default", "alice", Deadline::Never).await;
    assert!(matches!(claim(2, 10).await, Err(ClaimError::NotActive(RunState::WaitingForApproval))));
    go_on(&*store, &waiting, vec![approval(2)], at(11)).await;
    assert_eq!(done(claim(2, 12).await), lease(2, "t"), "a decided run is work");

    let ended = start(&*store, 3).await;
    go_on(&*store, &ended, vec![words("done"), completion()], at(4)).await;
    assert!(matches!(claim(3, 10).await, Err(ClaimError::NotActive(RunState::Completed))));
}

pub async fn rule_r5_a_release_gives_the_run_back<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start(&*store, 1).await;
    let first = done(store.claim(&run_id(1), "first".to_owned(), at(10), LEASE).await);
    assert!(done(store.release(&first, Revision(1)).await));
    assert_eq!(done(store.claim(&run_id(1), "second".to_owned(), at(10), LEASE).await), lease(1, "second"));
}

pub async fn rule_r5_a_release_keeps_the_run_when_its_log_has_moved_on<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let lease = done(store.claim(run.id(), "first".to_owned(), at(10), LEASE).await);
    // The worker asks a person and goes to sleep; the answer comes first.
    let run = go_on(&*store, &run, vec![proposal(1)], at(11)).await;
    let run = go_on(&*store, &run, vec![question(&run, 1, Deadline::Never)], at(12)).await;
    let seen = Revision(run.revision());
    let run = go_on(&*store, &run, vec![approval(1)], at(13)).await;
    assert!(!done(store.release(&lease, seen).await), "an answer that is slept through");
    assert!(matches!(
        store.claim(run.id(), "other".to_owned(), at(14), LEASE).await,
        Err(ClaimError::Leased { until }) if until == at(40)
    ));
    assert!(done(store.heartbeat(&lease, at(14), LEASE).await));
    assert!(done(store.release(&lease, Revision(run.revision())).await));
    done(store.claim(run.id(), "other".to_owned(), at(14), LEASE).await);
}

pub async fn rule_r6_releasing_a_lost_lease_takes_nothing_from_its_new_holder<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start(&*store, 1).await;
    let first = done(store.claim(&run_id(1), "first".to_owned(), at(10), LEASE).await);
    let second = done(store.claim(&run_id(1), "second".to_owned(), at(40), LEASE).await);
    assert!(done(store.release(&first, Revision(1)).await), "it is given back already");
    assert!(done(store.run(&run_id(1), at(41)).await).leased);
    assert!(done(store.heartbeat(&second, at(41), LEASE).await));
    assert!(
        done(store.release(&lease(9, "first"), Revision(1)).await),
        "a run that is not there is nobody's"
    );
}

pub async fn rule_r6_a_heartbeat_keeps_a_lease_and_fails_when_it_is_lost<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start(&*store, 1).await;
    let first = done(store.claim(&run_id(1), "first".to_owned(), at(10), LEASE).await);
    assert!(done(store.heartbeat(&first, at(30), LEASE).await));
    assert!(matches!(
        store.claim(&run_id(1), "second".to_owned(), at(59), LEASE).await,
        Err(ClaimError::Leased { until }) if until == at(60)
    ));
    assert!(!done(store.heartbeat(&first, at(60), LEASE).await), "it is over");
    done(store.claim(&run_id(1), "second".to_owned(), at(60), LEASE).await);
    assert!(!done(store.heartbeat(&first, at(61), LEASE).await), "it is somebody else's");
    assert!(!done(store.heartbeat(&lease(9, "first"), at(61), LEASE).await));
}

pub async fn rule_r6_a_clock_that_was_set_back_keeps_no_dead_workers_lease_alive<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let longest = i64::try_from(Lease::LONGEST.as_secs()).unwrap_or(i64::MAX);
    for number in [1, 2] {
        start(&*store, number).await;
        done(store.claim(&run_id(number), format!("dead{number}"), at(100_000), LEASE).await);
    }
    // Set back by less than the longest lease, it may have been given just now.
    let until = 100_030;
    let back = until - longest;
    assert!(matches!(
        store.claim(&run_id(1), "early".to_owned(), at(back), LEASE).await,
        Err(ClaimError::Leased { until: end }) if end == at(until)
    ));
    assert_eq!(claim_any(&*store, &["default"], "early", back).await, None);
    // By more, nobody can have been given it.
    let back = back - 1;
    assert_eq!(done(store.run(&run_id(1), at(back)).await).status(), "queued");
    assert_eq!(done(store.claim(&run_id(1), "next".to_owned(), at(back), LEASE).await), lease(1, "next"));
    assert!(!done(store.heartbeat(&lease(1, "dead1"), at(back), LEASE).await), "somebody else has come");
    assert_eq!(claim_any(&*store, &["default"], "other", back).await, Some(lease(2, "other")));
    assert_eq!(claim_any(&*store, &["default"], "third", back + 29).await, None, "these are leases like any");
}

pub async fn rule_r6_a_worker_that_lives_keeps_its_run_when_the_clock_is_set_back<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let lease = done(store.claim(run.id(), "alive".to_owned(), at(100_000), LEASE).await);
    assert!(done(store.heartbeat(&lease, at(10), LEASE).await), "nobody else has come");
    assert!(matches!(
        store.claim(run.id(), "other".to_owned(), at(39), LEASE).await,
        Err(ClaimError::Leased { until }) if until == at(40)
    ));
    // However much a worker asks for, it gets no more than the longest lease.
    assert!(done(store.heartbeat(&lease, at(11), Duration::from_secs(1_000_000)).await));
    let longest = at(11).checked_add(Lease::LONGEST).unwrap_or(at(11));
    assert!(matches!(
        store.claim(run.id(), "other".to_owned(), at(12), LEASE).await,
        Err(ClaimError::Leased { until }) if until == longest
    ));
}

pub async fn rule_r6_the_run_that_has_waited_longest_is_claimed<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let asked = start_waiting(&*store, 1, "a", "alice", Deadline::Never).await;
    start_as(&*store, 2, "b", "alice").await;
    start_as(&*store, 3, "a", "alice").await;
    let ended = start_as(&*store, 4, "a", "alice").await;
    go_on(&*store, &ended, vec![words("done"), completion()], at(5)).await;
    // Work on the first run is owed only from here on.
    go_on(&*store, &asked, vec![approval(1)], at(6)).await;
    for (token, expected) in [("x", Some(2)), ("y", Some(3)), ("z", Some(1)), ("u", None)] {
        assert_eq!(
            claim_any(&*store, &["a", "b"], token, 10).await,
            expected.map(|number| lease(number, token))
        );
    }
    // When all are lost, the one that was claimed first has waited longest.
    assert_eq!(claim_any(&*store, &["b", "a"], "v", 40).await, Some(lease(2, "v")));
}

pub async fn rule_r6_only_runs_of_known_agents_are_claimed<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start_as(&*store, 1, "gone", "alice").await;
    start_as(&*store, 2, "here", "alice").await;
    assert_eq!(claim_any(&*store, &[], "t", 10).await, None);
    assert_eq!(claim_any(&*store, &["here", "other"], "t", 10).await, Some(lease(2, "t")));
    assert_eq!(claim_any(&*store, &["here", "other"], "t", 10).await, None);
    assert_eq!(done(store.run(&run_id(1), at(10)).await).status(), "queued", "nobody's run shows");
}

pub async fn rule_r2_a_run_that_cannot_be_read_is_passed_over<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in [1, 2, 3] {
        start(&*store, number).await;
    }
    harness.damage(Damage::Run(run_id(1))).await;
    done(store.claim(&run_id(2), "held".to_owned(), at(9), LEASE).await);
    assert_eq!(claim_any(&*store, &["default"], "t", 10).await, Some(lease(3, "t")));
    assert_eq!(claim_any(&*store, &["default"], "u", 10).await, None);
}

pub async fn rule_r2_a_run_that_comes_back_again_and_again_stands_in_nobodys_way<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in [1, 2] {
        start(&*store, number).await;
    }
    // A worker that cannot make sense of the log gives the run back at once.
    let first = claim_any(&*store, &["default"], "t", 10).await;
    assert_eq!(first, Some(lease(1, "t")));
    assert!(done(store.release(&lease(1, "t"), Revision(1)).await));
    assert_eq!(claim_any(&*store, &["default"], "u", 10).await, Some(lease(2, "u")));
}

pub async fn rule_r6_of_twenty_claims_one_wins<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start(&*store, 1).await;
    let mut workers = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        workers.spawn(async move { store.claim(&run_id(1), format!("{number}"), at(10), LEASE).await });
    }
    let results = workers.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(ClaimError::Leased { .. }))));
}

pub async fn rule_r6_twenty_claims_take_twenty_runs<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in 0..20 {
        start(&*store, number).await;
    }
    let mut workers = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        workers.spawn(async move { claim_any(&*store, &["default"], &format!("{number}"), 100).await });
    }
    let leases = workers.join_all().await;
    let runs: BTreeSet<_> = leases.iter().flatten().map(|lease| &lease.run).collect();
    assert_eq!(runs.len(), 20);
}
