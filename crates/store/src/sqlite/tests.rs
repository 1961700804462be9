//! What can only be seen from inside: plans, durability, entries of a newer countersign.

use std::sync::Arc;

use countersign::contract::sample::{at, go_on, run_id, start, start_waiting, subject, words};
use countersign::{
    AgentName, Append, AppendError, CancelRequested, Changes, Clock, Deadline, Durability, Event, Gate,
    GateDenied, LoadError, PendingFilter, PendingStatus, Principal, Revision, Run, RunFilter, RunRow,
    RunState, Store, StoreFault, SystemClock, ToolName, Writer,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{SqliteOptions, SqliteStore, SwitchName, entries, leases, lists, log, purge, upkeep};
use crate::census;
use crate::chain::Chain;
use crate::finding::Finding;
use crate::row::RunRecord;
use crate::seal::MasterKey;
use crate::time;
use crate::upkeep::Upkeep;

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
        purge::ended_statement(),
        entries::log_statement(),
        entries::end_statement(),
        "UPDATE pendings SET refusals = refusals + 1 WHERE id = ?1 RETURNING refusals - 1".to_owned(),
        "UPDATE runs SET lease_until = ?1 WHERE id = ?2 AND lease_token = ?3 AND lease_until > ?4".to_owned(),
    ];
    statements.extend(run_filters().iter().map(lists::runs_statement));
    statements.extend(pending_filters().iter().map(lists::pendings_statement));
    store.connections.with_writer(|connection| {
        for statement in statements {
            let plan = plan(connection, &statement);
            assert!(plan.contains("SEARCH") || plan.is_empty(), "{statement}\n{plan}");
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{statement}\n{plan}");
        }
    });
}

/// What waits is counted in indexes, and no row of it is read; what is owed work is all that there is in the queue.
#[test]
fn rule_r6_the_census_reads_no_row_of_what_waits() {
    let (_folder, store) = store();
    store.connections.with_writer(|connection| {
        let active = plan(connection, &upkeep::active_runs());
        assert_eq!(active, "SCAN runs USING INDEX runs_queue");
        for (statement, searches) in [
            (
                census::waiting_statement(),
                &["runs_by_agent", "runs_by_agent (agent>?)", "runs_by_agent (agent=? AND state=?)"][..],
            ),
            (census::OPEN.to_owned(), &["pendings_open (kind=?)", "pendings_open (kind=?)"]),
        ] {
            let plan = plan(connection, &statement);
            let lines: Vec<&str> = plan.split("; ").collect();
            let found: Vec<&str> = lines
                .iter()
                .filter(|line| [" runs ", " pendings "].iter().any(|table| line.contains(table)))
                .map(|line| line.split_once(" USING COVERING INDEX ").map_or(*line, |(_, index)| index))
                .collect();
            assert_eq!(found, searches, "{statement}\n{plan}");
            let scans = lines.iter().filter(|line| line.starts_with("SCAN"));
            let is_made_up = |line: &str| {
                ["SCAN agents", "SCAN states", "SCAN kinds", "SCAN 3 CONSTANT ROWS"].contains(&line)
            };
            assert!(scans.into_iter().all(|line| is_made_up(line)), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    });
}

/// Every combination of what runs can be asked for by.
fn run_filters() -> Vec<RunFilter> {
    let states = [&[][..], &[RunState::Failed], &[RunState::Active, RunState::WaitingForApproval]];
    let pick = |choice: u8, bit: u8| choice & bit != 0;
    let filters = states.iter().flat_map(|states| {
        (0..8).map(move |choice| RunFilter {
            states: states.to_vec(),
            starter: pick(choice, 4).then(|| subject("dora")),
            agent: pick(choice, 1).then(|| AgentName::parse("rare").unwrap()),
            owner: pick(choice, 2).then(|| subject("dora")),
        })
    });
    filters.collect()
}

/// The same of pendings.
fn pending_filters() -> Vec<PendingFilter> {
    let pick = |choice: u8, bit: u8| choice & bit != 0;
    let filters =
        [None, Some(PendingStatus::Open), Some(PendingStatus::Denied)].into_iter().flat_map(|status| {
            (0..8).map(move |choice| PendingFilter {
                status,
                agent: pick(choice, 1).then(|| AgentName::parse("rare").unwrap()),
                owner: pick(choice, 2).then(|| subject("dora")),
                run: pick(choice, 4).then(|| run_id(1)),
            })
        });
    filters.collect()
}

/// A search along an index can be as long as a scan, if most of what it finds is passed over. So the steps of SQLite's
/// machine are counted, where what is asked for is rare among very many.
#[tokio::test]
async fn a_list_of_what_is_rare_does_not_walk_along_what_is_common() {
    let (_folder, store) = store();
    start_waiting(&store, 1, "default", "alice", Deadline::Never).await;
    start_waiting(&store, 2, "rare", "dora", Deadline::Never).await;
    let steps = |connection: &Connection, statement: &str| {
        let mut select = connection.prepare(statement).unwrap();
        let values = [(":before", "9223372036854775807"), (":after", "0"), (":limit", "51")];
        for (name, value) in values {
            if let Some(index) = select.parameter_index(name).unwrap() {
                select.raw_bind_parameter(index, value.parse::<i64>().unwrap()).unwrap();
            }
        }
        let asked = [
            (":agent", "agent = :agent", "rare"),
            (":owner", "owner = :owner", "dora"),
            (":starter", "starter = :starter", "dora"),
        ];
        for (name, condition, value) in asked {
            if let Some(index) = select.parameter_index(name).unwrap() {
                let value = statement.contains(condition).then_some(value);
                select.raw_bind_parameter(index, value).unwrap();
            }
        }
        if let Some(index) = select.parameter_index(":run").unwrap() {
            let value = statement.contains("run = :run").then(|| run_id(2).to_string());
            select.raw_bind_parameter(index, value).unwrap();
        }
        let mut rows = select.raw_query();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        select.get_status(rusqlite::StatementStatus::VmStep)
    };
    let all_steps = || {
        store.connections.with_writer(|connection| {
            let runs = run_filters().into_iter().filter(|filter| filter != &RunFilter::default());
            let runs = runs.map(|filter| lists::runs_statement(&filter));
            let pendings = pending_filters().into_iter().map(|filter| lists::pendings_statement(&filter));
            runs.chain(pendings)
                .map(|statement| (steps(connection, &statement), statement))
                .collect::<Vec<_>>()
        })
    };
    let before = all_steps();
    store.connections.with_writer(|connection| {
        for table in ["runs", "pendings"] {
            let columns: Vec<String> = connection
                .prepare("SELECT name FROM pragma_table_info(?1) WHERE name NOT IN ('number', 'id')")
                .and_then(|mut names| names.query_map([table], |row| row.get(0))?.collect())
                .unwrap();
            let columns = columns.join(", ");
            connection
                .execute_batch(&format!(
                    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000) \
                     INSERT INTO {table} (id, {columns}) SELECT id || n, {columns} FROM {table}, numbers WHERE agent = 'default'"
                ))
                .unwrap();
        }
    });
    for ((before, statement), (after, _)) in before.into_iter().zip(all_steps()) {
        // A page of what is common, and no more.
        assert!(after <= before + 52 * 40, "{before} and then {after} steps: {statement}");
    }
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
    store.set_switch(&tool, Some(false), jiff::Timestamp::UNIX_EPOCH).await.unwrap();
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
    store.set_switch(&tool, None, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
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
    let aim = log::Aim {
        run: run.id().clone(),
        at: Revision(1),
        writer: Writer::Anyone,
        now: at(5),
        subscriptions: Arc::default(),
    };
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
    store.set_switch(&tool, Some(false), jiff::Timestamp::UNIX_EPOCH).await.unwrap();
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
async fn case_c20_rule_r2_an_entry_of_a_newer_version_is_refused_and_left_untouched() {
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
        let mac = chain.entry(
            first.as_slice().try_into().unwrap(),
            1,
            &at,
            "run.rebooted",
            &Chain::digest(&sealed),
        );
        connection
            .execute(
                "UPDATE events SET kind = 'run.rebooted', sealed = ?1, mac = ?2 WHERE run = ?3 AND seq = 1",
                (&sealed, mac, run.id().as_str()),
            )
            .unwrap();
        let row_mac = chain.row(&record.row, 2, &mac, None);
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

/// What only a fault of ours can bring about: rows with a good MAC that do not follow from the log, and a log
/// with a good chain that no run can have.
#[tokio::test]
async fn rule_r1_doctor_finds_rows_that_do_not_follow_from_their_log() {
    let (_folder, store) = store();
    let run = start(&store, 1).await;
    let run = go_on(&store, &run, vec![words("x")], at(2)).await;
    let examine = async || {
        let report = store.examine(None, at(9), &mut |_| {}).await.unwrap();
        report.findings.iter().map(Finding::sentence).collect::<Vec<_>>()
    };
    assert!(examine().await.is_empty());
    let id = run.id();
    type Change = fn(&mut RunRow);
    let changes: [(&str, Change); 13] = [
        ("state", |row| row.state = RunState::NeedsResolution),
        ("agent", |row| row.agent = AgentName::parse("other").unwrap()),
        ("owner", |row| row.owner = subject("mallory")),
        ("starter", |row| row.starter = subject("mallory")),
        ("unattended", |row| row.unattended = true),
        ("continues", |row| row.continues = Some(row.id.clone())),
        ("iterations", |row| row.iterations += 1),
        ("usage", |row| row.usage.unknown_calls += 1),
        ("limit_reached", |row| row.limit = Some(countersign::Limit::CutOff)),
        ("failure", |row| row.failure = Some("poisoned".to_owned())),
        ("created_at", |row| row.created_at = at(-5)),
        ("updated_at", |row| row.updated_at = at(77)),
        ("finished_at", |row| row.finished_at = Some(at(77))),
    ];
    for (column, change) in changes {
        forge(&store, &run, change);
        let expected = format!("the row of run {id} does not say what its log says: {column}");
        assert_eq!(examine().await, [expected], "{column}");
    }
    forge(&store, &run, |_| {});
    assert!(examine().await.is_empty());

    for (kind, text, sentence) in [
        (
            "run.rebooted",
            r#"{"v":2,"e":{"run.rebooted":{"why":"secret"}}}"#,
            format!("the log of run {id} cannot be read here: entry 1: written in version 2 of the format"),
        ),
        (
            "call.unknown",
            r#"{"v":1,"e":{"call.unknown":{"call":"call_00000000000000000000","tool":"secret"}}}"#,
            format!("the log of run {id} makes no sense: call.unknown does not fit"),
        ),
        (
            "run.completed",
            r#"{"v":1,"e":{"run.completed":{"secret":1}}}"#,
            format!("the log of run {id} cannot be read: entry 1: not an event"),
        ),
    ] {
        replace_last(&store, &run, kind, text.as_bytes());
        let found = examine().await;
        assert!(found.len() == 1 && found[0].starts_with(&sentence), "{found:?}");
        assert!(!found[0].contains("secret"), "{found:?}");
    }
}

/// Stores a row as if it followed from the log.
fn forge(store: &SqliteStore, run: &Run, change: fn(&mut RunRow)) {
    let mut row = run.row();
    change(&mut row);
    store.connections.with_writer(|connection| {
        let head: Vec<u8> =
            connection.query_row("SELECT head FROM runs", [], |found| found.get(0)).unwrap();
        let mac = store.vault.root.chain(run.id()).row(
            &row,
            run.revision(),
            head.as_slice().try_into().unwrap(),
            None,
        );
        connection
            .execute(
                "UPDATE runs SET state = ?1, agent = ?2, owner = ?3, unattended = ?4, iterations = ?5, unknown_calls = ?6, \
                 limit_reached = ?7, failure = ?8, created_at = ?9, updated_at = ?10, finished_at = ?11, mac = ?12, continues = ?13, starter = ?14",
                (
                    row.state.as_str(),
                    row.agent.as_str(),
                    row.owner.as_str(),
                    row.unattended,
                    row.iterations,
                    row.usage.unknown_calls.cast_signed(),
                    row.limit.map(|limit| limit.as_str()),
                    &row.failure,
                    time::text(row.created_at),
                    time::text(row.updated_at),
                    row.finished_at.map(time::text),
                    mac,
                    row.continues.as_ref().map(|run| run.as_str()),
                    row.starter.as_str(),
                ),
            )
            .unwrap();
    });
}

/// Puts another text in the place of the second and last entry of the only run, with a good chain.
fn replace_last(store: &SqliteStore, run: &Run, kind: &str, text: &[u8]) {
    store.connections.with_writer(|connection| {
        let record = log::record(connection, &store.vault, run.id()).unwrap().unwrap().unwrap();
        let chain = store.vault.root.chain(run.id());
        let sealed = store.vault.run(run.id(), &record.key).unwrap().seal(1, text).unwrap();
        let first: Vec<u8> =
            connection.query_row("SELECT mac FROM events WHERE seq = 0", [], |row| row.get(0)).unwrap();
        let before = first.as_slice().try_into().unwrap();
        let mac = chain.entry(before, 1, &time::text(at(2)), kind, &Chain::digest(&sealed));
        connection
            .execute("UPDATE events SET kind = ?1, sealed = ?2, mac = ?3 WHERE seq = 1", (kind, &sealed, mac))
            .unwrap();
        let row_mac = chain.row(&record.row, 2, &mac, None);
        connection.execute("UPDATE runs SET head = ?1, mac = ?2", (mac, row_mac)).unwrap();
    });
}
