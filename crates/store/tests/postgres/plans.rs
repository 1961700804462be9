//! How PostgreSQL finds what it is asked for, among so much that it may choose.
//!
//! The server itself says so, of the statements that were really sent, with the rows that it read in vain.

use std::time::Duration;

use countersign::contract::sample::{
    agent, approval, at, go_on, pending_id, run_id, start, start_waiting, subject,
};
use countersign::{
    Accounts, AgentName, Deadline, Digest, PendingFilter, PendingStatus, Revision, Run, RunFilter, RunState,
    StartKey, Store,
};
use countersign_store::{PostgresStore, Upkeep as _};

use crate::support::Place;

/// As often as makes PostgreSQL think about a plan for all values.
const REPETITIONS: u32 = 7;
/// A page of each status, and for each the one row that says that there is another.
const READ_MAX: u64 = 9 * 51;
const READ_IN_VAIN_MAX: u64 = 51;

#[tokio::test]
async fn nothing_the_service_asks_for_scans_or_sorts_a_table_or_reads_much_in_vain() {
    let place = Place::new().await;
    let store = place.open().await;
    let at_last = Deadline::At(at(1_000_000));
    start_waiting(&store, 1, "default", "alice", at_last).await;
    let rare = start_waiting(&store, 2, "rare", "dora", at_last).await;
    drop(store);
    for (table, rest) in [("runs", "id || n"), ("pendings", "id || n")] {
        place.change(&copies(table, "'number', 'id', 'ticket', 'due'", "id", rest));
    }
    place.change("UPDATE pendings SET run = 'run_' || substr(id, 5) WHERE agent = 'default' AND number > 2");
    place.change(
        "INSERT INTO events (run, seq, at, kind, sealed, mac) SELECT runs.id, seq, at, kind, sealed, events.mac FROM events, \
         runs WHERE runs.number > 2 AND run = (SELECT id FROM runs WHERE number = 1)",
    );
    place.change("INSERT INTO starts SELECT 'alice', id, '', id FROM runs");
    place.change("VACUUM ANALYZE");
    place.explain();
    let store = place.open().await;
    ask_everything(&store, &rare).await;
    drop(store);

    let is_ours = |plan: &String| !plan.contains("pg_class");
    let plans: Vec<String> = place.plans().into_iter().filter(is_ours).collect();
    for about in [
        "FROM runs WHERE number <",
        "FROM pendings WHERE number >",
        "ticket > $3",
        "due < $1",
        "INSERT INTO events",
        "WITH RECURSIVE agents",
        "WITH kinds",
        "WHERE state = 'active' GROUP BY agent",
    ] {
        assert!(plans.iter().any(|plan| plan.contains(about)), "nothing was asked about {about}");
    }
    let bad: Vec<String> = plans.into_iter().filter(|plan| is_bad(plan)).collect();
    assert!(bad.is_empty(), "{} bad plans:\n{}", bad.len(), bad.join("\n"));
}

/// Whether a whole table is read, or more than pages of it, or much of what is read is thrown away. What is counted is
/// counted in an index alone.
fn is_bad(plan: &str) -> bool {
    let tables = ["runs", "events", "pendings", "starts"];
    let number = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let mut lines = plan.lines();
    tables.iter().any(|table| plan.contains(&format!("Seq Scan on {table}")))
        || lines.any(|line| {
            let read = line.split_once("(actual rows=").map_or(0, |(_, rest)| number(rest));
            let in_vain = line.trim().strip_prefix("Rows Removed by ").and_then(|rest| rest.split_once(": "));
            let is_counted = plan.contains("SELECT count(*)") && line.contains("Index Only Scan");
            (read > READ_MAX && !is_counted)
                || in_vain.is_some_and(|(_, rows)| number(rows) > READ_IN_VAIN_MAX)
        })
}

/// Five thousand copies of the row of the agent `default`.
fn copies(table: &str, except: &str, key: &str, value: &str) -> String {
    format!(
        "DO $do$ DECLARE names text; BEGIN \
         SELECT string_agg(column_name, ', ') INTO names FROM information_schema.columns \
             WHERE table_schema = 'countersign' AND table_name = '{table}' AND column_name NOT IN ({except}); \
         EXECUTE format('INSERT INTO {table} ({key}, %1$s) SELECT {value}, %1$s FROM {table}, generate_series(1, 5000) AS n \
             WHERE agent = ''default''', names); END $do$"
    )
}

async fn ask_everything(store: &PostgresStore, rare: &Run) {
    let pick = |choice: u8, bit: u8| choice & bit != 0;
    let agents: [AgentName; 2] = [agent("default"), agent("rare")];
    for _ in 0..REPETITIONS {
        for choice in 0..4 {
            let wanted =
                || (pick(choice, 1).then(|| agent("rare")), pick(choice, 2).then(|| subject("dora")));
            for states in [&[][..], &[RunState::WaitingForApproval], &[RunState::Active, RunState::Failed]] {
                for starter in [None, Some(subject("dora"))] {
                    let (agent, owner) = wanted();
                    let filter = RunFilter { states: states.to_vec(), agent, owner, starter };
                    store.runs(&filter, at(5), 50, None).await.unwrap();
                    store.runs(&filter, at(5), 50, Some("4000")).await.unwrap();
                }
            }
            for status in [None, Some(PendingStatus::Open), Some(PendingStatus::Denied)] {
                for run in [None, Some(run_id(2))] {
                    let (agent, owner) = wanted();
                    let filter = PendingFilter { status, agent, owner, run };
                    store.pendings(&filter, 50, None).await.unwrap();
                    store.pendings(&filter, 50, Some("1000")).await.unwrap();
                }
            }
        }
        assert!(store.overdue(at(5), 100).await.unwrap().is_empty());
        assert!(
            store.claim_any(&agents, "t".to_owned(), at(5), Duration::from_secs(9)).await.unwrap().is_none()
        );
        store.load(rare.id()).await.unwrap();
        store.load_each(&[run_id(1), run_id(2)]).await.unwrap();
        store.revision(rare.id()).await.unwrap();
        store.run(rare.id(), at(5)).await.unwrap();
        store.pending(&pending_id(2)).await.unwrap();
        store.count_refusal(&pending_id(2)).await.unwrap();
        store.look(&[subject("dora")]).await.unwrap();
        store.account(&subject("dora")).await.unwrap();
        store.census(at(5)).await.unwrap();
    }
    let active = go_on(store, rare, vec![approval(2)], at(6)).await;
    let length = Duration::from_secs(9);
    let lease = store.claim_any(&agents, "t".to_owned(), at(7), length).await.unwrap().unwrap();
    assert_eq!(&lease.run, active.id());
    assert!(store.heartbeat(&lease, at(8), length).await.unwrap());
    assert!(store.release(&lease, Revision::PAST_ALL).await.unwrap());
    store.claim(active.id(), "u".to_owned(), at(8), length).await.unwrap();
    start(store, 3).await;
    let key = StartKey { starter: subject("dora"), key: "k".to_owned(), body: Digest::of(b"") };
    assert_eq!(store.started(&key).await.unwrap(), None);
}
