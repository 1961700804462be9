//! What can only be seen from inside: plans, durability, entries of a newer countersign.

use std::sync::Arc;

use countersign::contract::sample::{at, go_on, run_id, start, subject, words};
use countersign::{
    AgentName, Append, AppendError, CancelRequested, Changes, Clock, Durability, Event, Gate, GateDenied,
    LoadError, PendingFilter, PendingStatus, Principal, Revision, Run, RunFilter, RunState, Store,
    StoreFault, SystemClock, ToolName, Writer,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{SqliteOptions, SqliteStore, SwitchName, leases, lists, log};
use crate::row::RunRecord;
use crate::seal::MasterKey;
use crate::time;

fn store() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let options = SqliteOptions::new(folder.path().join("runs.db"));
    let store = SqliteStore::open(options, MasterKey::new([7; 32]), clock).unwrap();
    (folder, store)
}

fn plan(connection: &Connection, statement: &str) -> String {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let parameters = vec![None::<String>; explain.parameter_count()];
    let lines =
        explain.query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>(3)).unwrap();
    lines.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

#[test]
fn lists_page_by_key_and_nothing_is_scanned_or_sorted() {
    let (_folder, store) = store();
    let mut statements = vec![
        lists::overdue_statement(),
        leases::queue(),
        format!("SELECT {} FROM runs WHERE id = ?1", RunRecord::COLUMNS),
        "SELECT coalesce(max(ticket), 0) + 1 FROM runs".to_owned(),
        "SELECT seq, at, kind, sealed, mac FROM events WHERE run = ?1 ORDER BY seq".to_owned(),
        "SELECT seq, at, kind, sealed, mac FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT 2".to_owned(),
        "UPDATE pendings SET refusals = refusals + 1 WHERE id = ?1 RETURNING refusals - 1".to_owned(),
        "UPDATE runs SET lease_until = ?1 WHERE id = ?2 AND lease_token = ?3 AND lease_until > ?4".to_owned(),
    ];
    let (agent, owner) = (AgentName::parse("default").unwrap(), subject("alice"));
    for choice in 0..16 {
        let pick = |bit: u8| choice & bit != 0;
        let filter = RunFilter {
            states: vec![],
            agent: pick(1).then(|| agent.clone()),
            owner: pick(2).then(|| owner.clone()),
        };
        statements.push(lists::runs_statement(&filter, pick(4)));
        for status in [PendingStatus::Open, PendingStatus::Denied] {
            statements.push(lists::pendings_statement(&PendingFilter {
                status: pick(4).then_some(status),
                agent: filter.agent.clone(),
                run: pick(8).then(|| run_id(1)),
                owner: filter.owner.clone(),
            }));
        }
    }
    store.connections.with_writer(|connection| {
        for statement in statements {
            let plan = plan(connection, &statement);
            assert!(plan.contains("SEARCH") || plan.is_empty(), "{statement}\n{plan}");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{statement}\n{plan}");
        }
    });
}

#[tokio::test]
async fn rule_r3_what_promises_something_waits_for_the_disk_and_nothing_else_does() {
    let (_folder, store) = store();
    let waits = || {
        store.connections.with_writer(|connection| {
            match connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap() {
                1 => Durability::Process,
                2 => Durability::Disk,
                other => panic!("{other}"),
            }
        })
    };
    let run = start(&store, 1).await;
    assert_eq!(waits(), Durability::Disk);
    go_on(&store, &run, vec![words("x")], at(2)).await;
    assert_eq!(waits(), Durability::Process);
    let tool = SwitchName::Tool(ToolName::parse("page_drop").unwrap());
    store.set_switch(&tool, Some(false)).await.unwrap();
    assert_eq!(waits(), Durability::Disk);
    let lease =
        store.claim(run.id(), "t".to_owned(), at(3), std::time::Duration::from_secs(9)).await.unwrap();
    assert_eq!(waits(), Durability::Process);
    store.put_principal(&Principal::user(subject("bob"))).await.unwrap();
    assert_eq!(waits(), Durability::Disk);
    assert!(store.heartbeat(&lease, at(4), std::time::Duration::from_secs(9)).await.unwrap());
    assert_eq!(waits(), Durability::Process);
    let judged = async |event: Event, run: &Run| {
        let (after, changes) = run.record(vec![event], at(5)).unwrap();
        let judged = Append::Judged { subjects: vec![], judge: Box::new(|_| Some(changes)) };
        store.append(run.id(), Revision(run.revision()), &Writer::Anyone, at(5), judged).await.unwrap();
        after
    };
    store.set_switch(&tool, None).await.unwrap();
    let run = Run::fold(run.id().clone(), &store.load(run.id()).await.unwrap().entries).unwrap();
    let denied = GateDenied::by("page_drop", Gate::ToolDisabled, false);
    let run = judged(Event::GateDenied(denied), &run).await;
    assert_eq!(waits(), Durability::Process, "a judgement is no promise by itself");
    judged(Event::CancelRequested(CancelRequested { by: subject("alice") }), &run).await;
    assert_eq!(waits(), Durability::Disk);
}

#[tokio::test]
async fn rule_a8_a_judgement_is_not_stored_on_rights_that_changed_meanwhile() {
    let (_folder, store) = store();
    let run = start(&store, 1).await;
    let tool = SwitchName::Tool(ToolName::parse("page_drop").unwrap());
    let changes =
        run.record(vec![Event::CancelRequested(CancelRequested { by: subject("alice") })], at(5)).unwrap().1;
    let aim = log::Aim { run: run.id().clone(), at: Revision(1), writer: Writer::Anyone, now: at(5) };
    let owed = |changes: Changes| {
        let question = log::Question { subjects: vec![subject("bob")], judge: Box::new(|_| Some(changes)) };
        let (vault, aim) = (store.vault(), aim.clone());
        async {
            let judged = store
                .connections
                .write(Durability::Process, move |tx| log::judge(tx, &vault, &aim, question))
                .await;
            match judged {
                Ok(log::Judged::Owed(verdict)) => verdict,
                Ok(log::Judged::Nothing | log::Judged::Stored(_)) | Err(_) => {
                    panic!("it must wait for the disk")
                }
            }
        }
    };
    let store_it = |verdict: log::Verdict| {
        let (vault, aim) = (store.vault(), aim.clone());
        store.connections.write(Durability::Disk, move |tx| log::store_verdict(tx, &vault, &aim, verdict))
    };
    let verdict = owed(changes.clone()).await;
    store.set_switch(&tool, Some(false)).await.unwrap();
    assert!(matches!(store_it(verdict).await, Err(AppendError::Conflict)));
    let verdict = owed(changes.clone()).await;
    store.put_principal(&Principal::user(subject("bob"))).await.unwrap();
    assert!(matches!(store_it(verdict).await, Err(AppendError::Conflict)));
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    let verdict = owed(changes).await;
    store.put_principal(&Principal::user(subject("carol"))).await.unwrap();
    assert!(store_it(verdict).await.is_ok(), "what the judge did not see does not matter");
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(2));
}

#[tokio::test]
async fn rule_r2_an_entry_of_a_newer_version_is_refused_and_left_untouched() {
    let (_folder, store) = store();
    let run = start(&store, 1).await;
    let run = go_on(&store, &run, vec![words("x")], at(2)).await;
    start(&store, 2).await;
    let newer = br#"{"v":2,"e":{"run.rebooted":{"why":"secret"}}}"#;
    let sealed = store.connections.with_writer(|connection| {
        let record = log::record(connection, &store.vault, run.id()).unwrap().unwrap().unwrap();
        let chain = store.vault.root.chain(run.id());
        let sealed = store.vault.run(run.id(), &record.key).unwrap().seal(1, newer).unwrap();
        let at = time::text(at(2));
        let first: Vec<u8> = connection
            .query_row("SELECT mac FROM events WHERE run = ?1 AND seq = 0", [run.id().as_str()], |row| {
                row.get(0)
            })
            .unwrap();
        let mac = chain.entry(first.as_slice().try_into().unwrap(), 1, &at, "run.rebooted", &sealed);
        connection
            .execute(
                "UPDATE events SET kind = 'run.rebooted', sealed = ?1, mac = ?2 WHERE run = ?3 AND seq = 1",
                (&sealed, mac, run.id().as_str()),
            )
            .unwrap();
        let row_mac = chain.row(&record.row, 2, &mac);
        connection
            .execute("UPDATE runs SET head = ?1, mac = ?2 WHERE id = ?3", (mac, row_mac, run.id().as_str()))
            .unwrap();
        sealed
    });
    let Err(LoadError::Unreadable { reason, .. }) = store.load(run.id()).await else { panic!("it was read") };
    assert!(reason.contains("version 2") && !reason.contains("secret"), "{reason}");
    assert_eq!(store.run(run.id(), at(3)).await.unwrap().row, run.row(), "its row is as good as before");
    assert_eq!(store.load(&run_id(2)).await.unwrap().revision(), Revision(1));
    let kept: Vec<u8> = store.connections.with_writer(|connection| {
        connection
            .query_row("SELECT sealed FROM events WHERE run = ?1 AND seq = 1", [run.id().as_str()], |row| {
                row.get(0)
            })
            .unwrap()
    });
    assert_eq!(kept, sealed);
}

#[tokio::test]
async fn a_database_that_cannot_be_written_says_so_and_can_still_be_read() {
    let (_folder, store) = store();
    let run = start(&store, 1).await;
    store.connections.with_writer(|connection| connection.pragma_update(None, "query_only", true).unwrap());
    let changes = run.record(vec![words("x")], at(2)).unwrap().1;
    let refused = store.append(run.id(), Revision(1), &Writer::Anyone, at(2), Append::Plain(changes)).await;
    assert!(matches!(refused, Err(AppendError::Fault(StoreFault::ReadOnly(_)))), "{refused:?}");
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    store.connections.with_writer(|connection| connection.pragma_update(None, "query_only", false).unwrap());
    go_on(&store, &run, vec![words("x")], at(2)).await;
}

#[tokio::test]
async fn readers_do_not_wait_for_a_writer_and_a_judge_that_panics_stores_nothing() {
    let (_folder, store) = store();
    let run = start(&store, 1).await;
    store.connections.with_writer(|connection| connection.execute_batch("BEGIN IMMEDIATE").unwrap());
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    assert_eq!(store.run(run.id(), at(2)).await.unwrap().row.state, RunState::Active);
    store.connections.with_writer(|connection| connection.execute_batch("ROLLBACK").unwrap());

    let store = Arc::new(store);
    for number in 0..2 {
        let (store, id) = (Arc::clone(&store), run.id().clone());
        let judged = Append::Judged { subjects: vec![], judge: Box::new(|_| panic!("a fault in a rule")) };
        let lost =
            tokio::spawn(async move { store.append(&id, Revision(1), &Writer::Anyone, at(2), judged).await });
        assert!(lost.await.is_err(), "{number}");
    }
    go_on(&*store, &run, vec![words("x")], at(2)).await;
}
