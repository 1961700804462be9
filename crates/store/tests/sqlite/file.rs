//! The file: whose it is, under which key, what lies in it, and what happens when it cannot be written.

use std::sync::Arc;

use crate::support::{KEY, Place, open};
use countersign::contract::sample::{
    approval, at, call_id, created, go_on, question, run_id, start, start_waiting, words,
};
use countersign::{
    Append, AppendError, Changes, Deadline, Event, ProposedCall, Revision, Run, RunFilter, Store, StoreFault,
    Writer,
};
use countersign_store::{MasterKey, OpenError, SqliteOptions, SqliteStore, Upkeep};
use rusqlite::Connection;
use tokio::task::JoinSet;

async fn append(store: &SqliteStore, run: &Run, event: Event) -> Result<Run, AppendError> {
    let (after, changes) = run.record(vec![event], at(50)).unwrap();
    let aim = Revision(run.revision());
    store.append(run.id(), aim, &Writer::Anyone, at(50), Append::Plain(changes)).await.map(|_| after)
}

#[tokio::test]
async fn a_new_file_is_made_and_opened_again() {
    let place = Place::new();
    let store = place.open();
    let run = start(&store, 1).await;
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    drop(store);
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1, "closed, it is one file");
    let store = place.open();
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(1));
    assert_eq!(store.path(), place.path());
    assert_eq!((store.schema_version(), store.schema_known()), (12, 12));
    drop(store);
    std::fs::write(place.folder.path().join("empty.db"), "").unwrap();
    open(SqliteOptions::new(place.folder.path().join("empty.db")), KEY).unwrap();
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let place = Place::new();
    let mut openers = JoinSet::new();
    for _ in 0..8 {
        let path = place.path();
        openers.spawn_blocking(move || open(SqliteOptions::new(path), KEY).unwrap());
    }
    let stores = openers.join_all().await;
    let key = |store: &SqliteStore| store.idempotency_key(&run_id(1), &call_id(1));
    assert!(stores.iter().all(|store| key(store) == key(&stores[0])), "there is one installation");
}

#[tokio::test]
async fn rule_r1_of_many_writers_in_several_processes_one_wins() {
    let place = Place::new();
    let stores = [Arc::new(place.open()), Arc::new(place.open()), Arc::new(place.open())];
    let mut run = start(&*stores[0], 1).await;
    for round in 0..5 {
        let mut writers = JoinSet::new();
        for number in 0..12 {
            let (store, run) = (Arc::clone(&stores[number % 3]), run.clone());
            let event = if round == 0 { words("x") } else { refused(number) };
            writers.spawn(async move { append(&store, &run, event).await });
        }
        let (mut won, lost): (Vec<_>, Vec<_>) = writers.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 11));
        assert!(lost.iter().all(|lost| matches!(lost, Err(AppendError::Conflict))), "{lost:?}");
        run = won.remove(0).unwrap();
    }
    assert_eq!(stores[2].load(run.id()).await.unwrap().revision(), Revision(6));
}

/// An event that fits at any time.
fn refused(number: usize) -> Event {
    Event::GateDenied(countersign::GateDenied {
        tool: format!("tool_{number}"),
        reason: countersign::Refusal::UnknownTool,
        observed_only: false,
    })
}

#[tokio::test]
async fn rule_s3_another_key_is_refused_and_changes_nothing() {
    let place = Place::new();
    let store = place.open();
    let run = start(&store, 1).await;
    drop(store);
    let before = place.bytes();
    let refused = place.try_open([8; 32]).unwrap_err();
    assert!(matches!(
        &refused,
        OpenError::WrongKey { expected, given }
            if *expected == MasterKey::new(KEY).fingerprint() && *given == MasterKey::new([8; 32]).fingerprint()
    ));
    assert_eq!(place.bytes(), before);
    assert_eq!(place.open().load(run.id()).await.unwrap().revision(), Revision(1));
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_left_alone() {
    let text = Place::new();
    std::fs::write(
        text.path(),
        "Dear diary, today I wrote something that is long enough to be a header. ".repeat(40),
    )
    .unwrap();
    let table = Place::new();
    Connection::open(table.path()).unwrap().execute_batch("CREATE TABLE diary (day TEXT)").unwrap();
    let marked = Place::new();
    Connection::open(marked.path())
        .unwrap()
        .execute_batch("PRAGMA application_id = 7; PRAGMA user_version = 1")
        .unwrap();
    for place in [text, table, marked] {
        let before = place.bytes();
        let refused = place.try_open(KEY).unwrap_err();
        assert!(
            matches!(&refused, OpenError::Foreign(path) if *path == place.path().display().to_string()),
            "{refused:?}"
        );
        assert!(refused.to_string().ends_with("is not a database of countersign"));
        assert_eq!(place.bytes(), before);
    }
}

#[tokio::test]
async fn rule_s3_a_database_that_lost_its_keys_is_refused() {
    for change in ["DELETE FROM installation", "UPDATE installation SET root = zeroblob(80)"] {
        let place = Place::new();
        start(&place.open(), 1).await;
        place.meddle().execute_batch(change).unwrap();
        assert!(matches!(place.try_open(KEY), Err(OpenError::Damaged(_))), "{change}");
    }
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_a_clear_error() {
    let place = Place::new();
    let path = place.folder.path().join("missing").join("runs.db");
    let refused = open(SqliteOptions::new(&path), KEY).unwrap_err();
    assert!(matches!(&refused, OpenError::Fault { source: StoreFault::ReadOnly(_), .. }), "{refused:?}");
    assert!(!path.parent().unwrap().exists(), "the store makes no folders");
}

#[tokio::test]
async fn what_only_one_connection_could_see_is_no_database() {
    for path in [":memory:", ""] {
        assert!(matches!(open(SqliteOptions::new(path), KEY), Err(OpenError::NoWriteAheadLog(_))), "{path}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_a_clear_error_and_reading_is_not_worse_for_it() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let set =
        |mode| std::fs::set_permissions(place.folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    // The superuser may write everywhere; then there is nothing to see here.
    let probe = std::fs::write(place.folder.path().join("probe"), "");
    let opened = place.try_open(KEY);
    set(0o755);
    match probe {
        Err(_) => assert!(matches!(opened, Err(OpenError::Fault { source: StoreFault::ReadOnly(_), .. }))),
        Ok(()) => assert!(opened.is_ok()),
    }
}

#[tokio::test]
async fn a_full_database_says_so_loses_nothing_and_goes_on_when_there_is_space() {
    let place = Place::new();
    let store = open(SqliteOptions { path: place.path(), pages_max: Some(80) }, KEY).unwrap();
    let keep = start(&store, 1).await;
    let filler = start(&store, 2).await;
    let mut filler = append(&store, &filler, words("x")).await.unwrap();
    let big = "x".repeat(10_000);
    let full = loop {
        let event = Event::GateDenied(countersign::GateDenied {
            tool: big.clone(),
            reason: countersign::Refusal::UnknownTool,
            observed_only: false,
        });
        match append(&store, &filler, event).await {
            Ok(after) => filler = after,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, AppendError::Fault(StoreFault::Full(_))), "{full:?}");
    assert!(matches!(
        store.create(big_run(3, &big)).await,
        Err(countersign::CreateError::Fault(StoreFault::Full(_)))
    ));
    assert_eq!(store.load(filler.id()).await.unwrap().revision(), Revision(filler.revision()));
    assert_eq!(store.run(filler.id(), at(60)).await.unwrap().row, filler.row());
    assert_eq!(store.load(keep.id()).await.unwrap().revision(), Revision(1));

    // Somebody makes room.
    let meddler = place.meddle();
    meddler.execute("DELETE FROM events WHERE run = ?1 AND seq > 2", [filler.id().as_str()]).unwrap();
    let keep = append(&store, &keep, words(&big)).await.unwrap();
    assert_eq!(store.load(keep.id()).await.unwrap().revision(), Revision(2));
    drop(store);
    // So does whoever allows more.
    let store = place.open();
    store.create(big_run(3, &big)).await.unwrap();
}

fn big_run(number: u8, prompt: &str) -> Changes {
    let created =
        countersign::Created { system_prompt: Some(prompt.repeat(20)), ..created("default", "alice") };
    Run::create(run_id(number), created, Vec::new(), at(0)).unwrap().1
}

#[tokio::test]
async fn a_copy_taken_in_the_middle_of_the_work_opens_and_holds_what_was_stored() {
    let place = Place::new();
    let store = place.open();
    let mut stored = Vec::new();
    for number in 1..=5 {
        let run = start(&store, number).await;
        stored.push(append(&store, &run, words("kept before the process died")).await.unwrap());
    }
    // What a killed process leaves behind: the database and its log, nothing closed, nothing checkpointed.
    let grave = Place::new();
    for file in ["runs.db", "runs.db-wal"] {
        std::fs::copy(place.folder.path().join(file), grave.folder.path().join(file)).unwrap();
    }
    let after = grave.open();
    for run in stored {
        assert_eq!(after.load(run.id()).await.unwrap(), store.load(run.id()).await.unwrap());
        assert_eq!(after.run(run.id(), at(60)).await.unwrap().row, run.row());
    }
    assert_eq!(after.runs(&RunFilter::default(), at(60), 10, None).await.unwrap().items.len(), 5);
}

#[tokio::test]
async fn rule_s3_nothing_that_was_said_lies_in_clear() {
    const CANARY: &str = "canary-7f3a";
    let place = Place::new();
    let store = place.open();
    let mut start = created("default", "alice");
    start.system_prompt = Some(format!("prompt {CANARY}"));
    start.input[0].text = format!("input {CANARY}");
    let (run, changes) = Run::create(run_id(1), start, Vec::new(), at(0)).unwrap();
    store.create(changes).await.unwrap();
    let Event::ModelReplied(mut replied) = words(&format!("text {CANARY}")) else { panic!("a reply") };
    Arc::make_mut(&mut replied.reply).calls = vec![ProposedCall {
        id: call_id(1),
        wire_id: Some(CANARY.to_owned()),
        name: CANARY.to_owned(),
        arguments: Some(format!(r#"{{"path":"{CANARY}"}}"#)),
        opaque: countersign::Opaque(vec![("signature".to_owned(), format!("{CANARY:?}"))]),
    }];
    let run = append(&store, &run, Event::ModelReplied(replied)).await.unwrap();
    let run = append(&store, &run, question(&run, 1, Deadline::Never)).await.unwrap();
    let Event::PendingDecided(mut decided) = approval(1) else { panic!("a decision") };
    decided.decided.reason = Some(format!("reason {CANARY}"));
    let run = append(&store, &run, Event::PendingDecided(decided)).await.unwrap();
    assert_eq!(store.load(run.id()).await.unwrap().revision(), Revision(4));

    let clear = |text: &str| {
        let bytes = place.bytes();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    assert!(clear("pending.opened") && clear("alice"), "what stands in clear by rule is found");
    for payload in [CANARY, "canary", "prompt ", "wire_id", "signature", "RunCreated", "{\"v\""] {
        assert!(!clear(payload), "{payload}");
    }
    assert!(!clear(std::str::from_utf8(&KEY).unwrap()), "nor does the key");
    drop(store);
    assert!(clear("alice") && !clear(CANARY));
}

#[tokio::test]
async fn what_counts_beyond_what_sqlite_can_count_is_kept() {
    let place = Place::new();
    let store = place.open();
    let run = start(&store, 1).await;
    let Event::ModelReplied(mut replied) = words("x") else { panic!("a reply") };
    let usage = &mut Arc::make_mut(&mut replied.reply).usage;
    usage.input_tokens = u64::MAX;
    usage.output_tokens = 1 << 63;
    let run = go_on(&store, &run, vec![Event::ModelReplied(replied)], at(2)).await;
    assert_eq!(store.run(run.id(), at(3)).await.unwrap().row, run.row());
    assert_eq!(
        start_waiting(&store, 2, "default", "alice", Deadline::At(jiff_max())).await.row().iterations,
        1
    );
    assert!(store.overdue(at(9), 10).await.unwrap().is_empty());
}

fn jiff_max() -> jiff::Timestamp {
    jiff::Timestamp::MAX
}
