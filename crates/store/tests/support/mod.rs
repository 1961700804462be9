//! A database in a folder of its own, and a second way into it.

#![allow(dead_code, reason = "every test takes what it needs")]
#![expect(unreachable_pub, reason = "shared by several tests")]

use std::path::PathBuf;
use std::sync::Arc;

use countersign::{Clock, SystemClock};
use countersign_store::{MasterKey, OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

pub const KEY: [u8; 32] = [7; 32];

pub struct Place {
    pub folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    pub fn open(&self) -> SqliteStore {
        self.try_open(KEY).unwrap()
    }

    pub fn try_open(&self, key: [u8; 32]) -> Result<SqliteStore, OpenError> {
        open(SqliteOptions::new(self.path()), key)
    }

    /// Somebody else's connection to the same file, bound by nothing.
    pub fn meddle(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
        connection
    }

    /// Everything of the database, as it lies on the disk.
    pub fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }
}

pub fn open(options: SqliteOptions, key: [u8; 32]) -> Result<SqliteStore, OpenError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    SqliteStore::open(options, MasterKey::new(key), clock)
}
