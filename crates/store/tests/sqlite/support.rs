//! A database in a folder of its own, and a second way into it.

use std::path::PathBuf;
use std::sync::Arc;

use countersign::{Clock, SystemClock};
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
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }
}

pub(crate) fn open(options: SqliteOptions, key: [u8; 32]) -> Result<SqliteStore, OpenError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    SqliteStore::open(options, MasterKey::new(key), clock)
}
