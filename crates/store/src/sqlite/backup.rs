//! A copy of the database while it is in use.
//!
//! Invariant: a copy is what one transaction sees, whole, or it is not there: it is written beside its place,
//! synced, and then named. The log beside the file is never copied by hand. A copy holds no master key, and
//! should not be kept beside one; and none is made while a rotation has two master keys in the database,
//! because it would open with the old one for ever.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::connections::careful;
use super::rotate::rotation;
use super::{SqliteStore, fault};
use crate::upkeep::BackupError;

impl SqliteStore {
    pub(super) async fn copy_to(&self, to: &Path) -> Result<(), BackupError> {
        let to = to.to_owned();
        self.connections.use_reader(move |connection| copy(connection, &to)).await
    }
}

fn copy(connection: &Connection, to: &Path) -> Result<(), BackupError> {
    if rotation(connection)?.is_some() {
        return Err(BackupError::Rotating);
    }
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    make(&part)?;
    let copied = fill(connection, &part).and_then(|()| name(&part, to));
    if copied.is_err() {
        // What is left of it is of no use; if it cannot be removed, the next attempt says that it is there.
        let _ = std::fs::remove_file(&part);
    }
    copied
}

/// An empty file that only the account can read, and that nobody else is filling.
fn make(part: &Path) -> Result<(), BackupError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(part).map(drop).map_err(|source| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            BackupError::Exists(part.to_owned())
        } else {
            BackupError::File { path: part.to_owned(), source }
        }
    })
}

fn fill(connection: &Connection, part: &Path) -> Result<(), BackupError> {
    let name = part.to_str().ok_or_else(|| BackupError::File {
        path: part.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "its name is no text"),
    })?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(fault)?;
    // A rotation may have begun since it was looked at.
    let copy = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(fault)?;
    careful(&copy).map_err(fault)?;
    if rotation(&copy)?.is_some() { Err(BackupError::Rotating) } else { Ok(()) }
}

fn name(part: &Path, to: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::File { path: to.to_owned(), source };
    let sync = |path: &Path, options: &OpenOptions| options.open(path).and_then(|file| file.sync_all());
    sync(part, OpenOptions::new().read(true).write(true)).map_err(failed)?;
    std::fs::rename(part, to).map_err(failed)?;
    #[cfg(unix)]
    if let Some(folder) = to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        sync(folder, OpenOptions::new().read(true)).map_err(failed)?;
    }
    Ok(())
}
