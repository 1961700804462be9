//! A database in a folder of its own, and a second way into it.

use std::path::PathBuf;
use std::sync::Arc;

use countersign::contract::sample::{
    approval, at, call_id, completion, created, go_on, pending_id, question, start, start_waiting, words,
};
use countersign::{
    CallStarted, CallUnknown, Clearance, Clock, Deadline, Effect, Event, Question, Run, RunId, Store,
    SystemClock,
};
use countersign_store::{MasterKey, OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        self.try_open(KEY).unwrap()
    }

    pub(crate) fn try_open(&self, key: [u8; 32]) -> Result<SqliteStore, OpenError> {
        open(SqliteOptions::new(self.path()), key)
    }

    /// Somebody else's connection to the same file, bound by nothing.
    pub(crate) fn meddle(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
        connection
    }

    /// Everything of the database, as it lies on the disk.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let files = files.map(|file| file.unwrap().path()).filter(|file| file.is_file());
        files.flat_map(|file| std::fs::read(file).unwrap()).collect()
    }
}

pub(crate) fn open(options: SqliteOptions, key: [u8; 32]) -> Result<SqliteStore, OpenError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    SqliteStore::open(options, MasterKey::new(key), clock)
}

/// Stores a run that has ended with an answer.
pub(crate) async fn ended(store: &SqliteStore, number: u8) -> Run {
    let run = start(store, number).await;
    go_on(store, &run, vec![words("done"), completion()], at(i64::from(number))).await
}

/// Stores this many small runs.
pub(crate) async fn many(store: &SqliteStore, count: u32) -> Vec<RunId> {
    let mut runs = Vec::new();
    for number in 0..count {
        let mut random = [0xee; 16];
        random[12..].copy_from_slice(&number.to_be_bytes());
        let run = RunId::from_random(random);
        let created = created("default", "alice");
        store.create(Run::create(run.clone(), created, Vec::new(), at(0)).unwrap().1).await.unwrap();
        runs.push(run);
    }
    runs
}

/// Starts a run while the caller's own task is in the middle of something.
pub(crate) fn start_in_thread(store: &SqliteStore, number: u8) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(start(store, number));
        });
    });
}

/// The start of the call of this number, on bob's approval.
pub(crate) fn started(number: u8, effect: Effect) -> Event {
    Event::CallStarted(CallStarted {
        call: call_id(number),
        tool: "page_drop".to_owned(),
        effect,
        clearance: Clearance::Approved(pending_id(number)),
        attempt: 1,
        interruption: 0,
        deadline: at(100),
    })
}

/// Stores a run that waits for a person to say how its write came out.
pub(crate) async fn unknown(store: &SqliteStore, number: u8) -> Run {
    let run = start_waiting(store, number, "default", "alice", Deadline::Never).await;
    let call = CallUnknown { call: call_id(number), tool: "page_drop".to_owned(), detail: None };
    let events = vec![approval(number), started(number, Effect::Write), Event::CallUnknown(call)];
    let run = go_on(store, &run, events, at(9)).await;
    let Event::PendingOpened(mut pending) = question(&run, number, Deadline::Never) else {
        panic!("a question")
    };
    pending.id = pending_id(number + 100);
    pending.question = Question::Resolution { call: call_id(number), not_before: at(100) };
    go_on(store, &run, vec![Event::PendingOpened(pending)], at(9)).await
}
