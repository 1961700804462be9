//! Many at once, over several pools: what one process cannot see of another, the database keeps apart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use countersign::contract::sample::{
    agent, approval, at, call_id, go_on, run_id, start, start_waiting, subject, words,
};
use countersign::{
    Append, AppendError, ClaimError, Clock, Deadline, Look, Principal, Revision, Store, Switch, SwitchName,
    ToolName, Writer,
};
use countersign_store::{PostgresStore, Upkeep};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::support::Place;

async fn pools() -> (Place, [Arc<PostgresStore>; 2]) {
    let place = Place::new().await;
    let pools = [Arc::new(place.open().await), Arc::new(place.open().await)];
    (place, pools)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_open_a_new_database_at_once() {
    let place = Arc::new(Place::empty());
    let mut openers = JoinSet::new();
    for _ in 0..8 {
        let place = Arc::clone(&place);
        openers.spawn(async move { place.open().await });
    }
    let stores = openers.join_all().await;
    let key = |store: &PostgresStore| store.idempotency_key(&run_id(1), &call_id(1));
    assert!(stores.iter().all(|store| key(store) == key(&stores[0])), "there is one installation");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_r1_of_twenty_and_of_a_hundred_writers_in_two_pools_one_wins() {
    let (_place, pools) = pools().await;
    for (number, writers) in [(1, 20), (2, 100)] {
        let run = Arc::new(start(&*pools[0], number).await);
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (store, run) = (Arc::clone(&pools[writer % 2]), Arc::clone(&run));
            tasks.spawn(async move {
                let changes = run.record(vec![words(&format!("{writer}"))], at(5)).unwrap().1;
                let aim = Revision(run.revision());
                store.append(run.id(), aim, &Writer::Anyone, at(5), Append::Plain(changes)).await
            });
        }
        let results = tasks.join_all().await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(
            results.iter().all(|result| matches!(result, Ok(_) | Err(AppendError::Conflict))),
            "{results:?}"
        );
        assert_eq!(pools[1].load(run.id()).await.unwrap().revision(), Revision(2));
    }
    assert!(pools[0].examine(None, at(9), &mut |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_a9_of_twenty_and_of_a_hundred_decisions_in_two_pools_one_takes_effect() {
    let (_place, pools) = pools().await;
    pools[0].put_principal(&Principal::approver(subject("bob"))).await.unwrap();
    for (number, deciders) in [(1, 20), (2, 100)] {
        let run = Arc::new(start_waiting(&*pools[0], number, "default", "alice", Deadline::Never).await);
        let mut tasks = JoinSet::new();
        for decider in 0..deciders {
            let (store, run) = (Arc::clone(&pools[decider % 2]), Arc::clone(&run));
            tasks.spawn(async move {
                let changes = run.record(vec![approval(number)], at(9)).unwrap().1;
                let judge = Box::new(move |look: &Look| {
                    look.people.find(&subject("bob")).is_some().then_some(changes)
                });
                let judged = Append::Judged { subjects: vec![subject("bob")], judge };
                store.append(run.id(), Revision(run.revision()), &Writer::Anyone, at(9), judged).await
            });
        }
        let results = tasks.join_all().await;
        assert_eq!(results.iter().filter(|result| matches!(result, Ok(Some(_)))).count(), 1);
        assert!(
            results.iter().all(|result| matches!(result, Ok(Some(_)) | Err(AppendError::Conflict))),
            "{results:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_r6_of_a_hundred_claims_of_one_run_one_wins_and_a_hundred_claims_take_a_hundred_runs() {
    let (_place, pools) = pools().await;
    start(&*pools[0], 1).await;
    let lease = Duration::from_secs(30);
    let mut tasks = JoinSet::new();
    for worker in 0..100 {
        let store = Arc::clone(&pools[worker % 2]);
        tasks.spawn(async move { store.claim(&run_id(1), format!("{worker}"), at(10), lease).await });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(ClaimError::Leased { .. }))));

    for number in 100..200 {
        start(&*pools[0], number).await;
    }
    let mut tasks = JoinSet::new();
    for worker in 0..100 {
        let store = Arc::clone(&pools[worker % 2]);
        tasks.spawn(async move {
            store.claim_any(&[agent("default")], format!("any {worker}"), at(20), lease).await
        });
    }
    let leases: Vec<_> = tasks.join_all().await.into_iter().map(|lease| lease.unwrap().unwrap()).collect();
    let runs: BTreeSet<_> = leases.iter().map(|lease| &lease.run).collect();
    assert_eq!(runs.len(), 100, "none twice, and none of them the one that is held");
    assert!(
        pools[0].claim_any(&[agent("default")], "late".to_owned(), at(20), lease).await.unwrap().is_none()
    );
}

/// A judge that is being asked holds the switches still; whoever flips one comes after its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_g9_a_switch_that_is_flipped_meanwhile_comes_before_the_look_or_after_the_commit() {
    let (place, pools) = pools().await;
    let run = start(&*pools[0], 1).await;
    let tool = ToolName::parse("page_drop").unwrap();
    let (asked, is_asked) = oneshot::channel();
    let (go_on_now, may_go_on) = std::sync::mpsc::channel::<()>();
    let changes = run.record(vec![words("judged while it was on")], at(5)).unwrap().1;
    let judged = {
        let (store, run) = (Arc::clone(&pools[0]), run.clone());
        tokio::spawn(async move {
            let judge = Box::new(move |_: &Look| {
                asked.send(()).unwrap();
                may_go_on.recv().unwrap();
                Some(changes)
            });
            let judged = Append::Judged { subjects: Vec::new(), judge };
            store.append(run.id(), Revision(1), &Writer::Anyone, at(5), judged).await
        })
    };
    is_asked.await.unwrap();
    let flipped = {
        let (store, tool) = (Arc::clone(&pools[1]), tool.clone());
        tokio::spawn(async move { store.set_switch(&SwitchName::Tool(tool), Some(false), at(6)).await })
    };
    // The flip arrives at the database and waits there; or it does not wait, which is what must not be.
    let waiting = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database \
         WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";
    while !flipped.is_finished() && place.change(waiting).trim() == "0" {
        tokio::task::yield_now().await;
    }
    assert!(!flipped.is_finished());
    assert_eq!(pools[1].look(&[]).await.unwrap().switches.tool(&tool), None, "not yet");
    go_on_now.send(()).unwrap();
    assert!(judged.await.unwrap().unwrap().is_some());
    flipped.await.unwrap().unwrap();
    assert_eq!(pools[0].look(&[]).await.unwrap().switches.tool(&tool), Some(Switch::Off));
}

/// An append that is dropped half-way leaves nothing, and nothing of it in anybody else's transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_is_given_up_half_way_stores_nothing() {
    let (_place, pools) = pools().await;
    let store = &pools[0];
    let run = start(&**store, 1).await;
    for _ in 0..20 {
        let judged = Append::Judged { subjects: Vec::new(), judge: Box::new(|_| panic!("never asked")) };
        let append = store.append(run.id(), Revision(1), &Writer::Anyone, at(5), judged);
        // Polled once: the beginning is on its way, and nobody waits for the answer.
        tokio::select! {
            biased;
            _ = append => panic!("it cannot be done yet"),
            () = std::future::ready(()) => {}
        }
    }
    let after = go_on(&**store, &run, vec![words("kept")], at(6)).await;
    assert_eq!(pools[1].load(run.id()).await.unwrap().revision(), Revision(after.revision()));
    assert!(pools[1].examine(None, at(9), &mut |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_comes_when_work_becomes_owed_elsewhere_and_none_is_missed() {
    let (_place, pools) = pools().await;
    let mut hints = pools[1].hints();
    // The first says that somebody listens now.
    hints.next().await;
    for number in 1..4 {
        start(&*pools[0], number).await;
        hints.next().await;
    }
}

#[tokio::test]
async fn rule_r6_every_process_goes_by_the_clock_of_the_database() {
    let (place, pools) = pools().await;
    let [one, two] = [pools[0].clock(), pools[1].clock()];
    let asked = place.change("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8");
    let database: i64 = asked.trim().parse().unwrap();
    for clock in [one, two] {
        let off = clock.now().as_microsecond() - database;
        assert!((0..60_000_000).contains(&off), "the same machine, a moment later: {off}");
    }
}
