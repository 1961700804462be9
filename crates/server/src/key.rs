//! The master key: from the environment, or from the key file.
//!
//! Invariant: a key is made only where no database has one yet, or beside the key file for a change of keys; a key file
//! is replaced only by the key that everything hangs from by then. Nobody but the account can read it. No error holds any part of a key (S5).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign::Clock;
use countersign_store::MasterKey;
use zeroize::Zeroizing;

/// The variable that wins over the key file.
pub(crate) const KEY_VARIABLE: &str = "COUNTERSIGN_KEY";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// It does not decode to 32 bytes.
    #[error("{0} does not hold a key: it must be 32 bytes in base64")]
    Malformed(String),
    /// There is a database but no key for it.
    #[error(
        "the database {database} is there but its key file {} is not: put the key file back, or set COUNTERSIGN_KEY",
        file.display()
    )]
    Missing {
        /// The database.
        database: String,
        /// Where its key should be.
        file: PathBuf,
    },
    /// Another program changes it right now.
    #[error("another `keys rotate` is at work on the key file {}", .0.display())]
    Busy(PathBuf),
    /// What lies beside it is another key than the one that everything hangs from now.
    #[error(
        "{} does not hold the key {fingerprint}, which everything hangs from now: nothing was replaced",
        file.display()
    )]
    Another {
        /// The file beside the key file.
        file: PathBuf,
        /// The key that should be in it.
        fingerprint: String,
    },
    /// The file cannot be read or made.
    #[error("the key file {} cannot be {doing}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// `read`, `made`, `locked` or `replaced`.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Finds the key, if there is one.
///
/// # Errors
/// [`KeyError`].
pub(crate) fn find(given: Option<&str>, file: &Path) -> Result<Option<MasterKey>, KeyError> {
    match given {
        Some(given) => decoded(given).map(Some).ok_or_else(|| KeyError::Malformed(KEY_VARIABLE.to_owned())),
        None => read(file),
    }
}

/// Makes the key of a database that is not made yet; `is_made` was looked at after no key was found.
///
/// # Errors
/// [`KeyError`].
pub(crate) fn make_for(
    database: &str,
    is_made: bool,
    file: &Path,
    clock: &dyn Clock,
) -> Result<MasterKey, KeyError> {
    let missing = || KeyError::Missing { database: database.to_owned(), file: file.to_owned() };
    if !is_made {
        make(file, clock).map_err(|source| KeyError::File {
            file: file.to_owned(),
            doing: "made",
            source,
        })?;
    }
    // Another process may have made both since.
    read(file)?.ok_or_else(missing)
}

/// Where the next key lies while keys are being changed: beside the key file.
pub(crate) fn next(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// The next key, if one was made and not put in its place.
///
/// # Errors
/// [`KeyError`].
pub(crate) fn read_next(file: &Path) -> Result<Option<MasterKey>, KeyError> {
    read(&next(file))
}

/// Makes the next key beside the key file, on the disk before this returns.
///
/// # Errors
/// [`KeyError`].
pub(crate) fn make_next(file: &Path, clock: &dyn Clock) -> Result<MasterKey, KeyError> {
    let beside = next(file);
    let failed = |source| KeyError::File { file: beside.clone(), doing: "made", source };
    make(&beside, clock).and_then(|()| sync_folder(&beside)).map_err(failed)?;
    let vanished = || failed(io::ErrorKind::NotFound.into());
    read(&beside)?.ok_or_else(vanished)
}

/// The right to change what is in the key file, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Turn {
    _locked: File,
}

/// Takes it. Nobody waits: whoever does may look at a key that is gone by then.
///
/// # Errors
/// [`KeyError::Busy`] while another process has it; [`KeyError::File`].
pub(crate) fn take_turn(file: &Path) -> Result<Turn, KeyError> {
    let failed = |source| KeyError::File { file: file.to_owned(), doing: "locked", source };
    // Its folder, which stays what it is when the file becomes another one.
    let locked = folder(file).map_err(failed)?;
    match locked.try_lock() {
        Ok(()) => Ok(Turn { _locked: locked }),
        Err(TryLockError::WouldBlock) => Err(KeyError::Busy(file.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Gives the next key, which must be the one of this fingerprint, the name of the key file, in one step. What was there
/// is gone. If it has that name already, nothing is done.
///
/// # Errors
/// [`KeyError`]; the old key file is as it was then.
pub(crate) fn put_in_place(file: &Path, fingerprint: &str, _turn: &Turn) -> Result<(), KeyError> {
    let is_it = |key: &MasterKey| key.fingerprint() == fingerprint;
    if !read_next(file)?.as_ref().is_some_and(is_it) {
        if read(file)?.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        return Err(KeyError::Another { file: next(file), fingerprint: fingerprint.to_owned() });
    }
    let put = std::fs::rename(next(file), file).and_then(|()| sync_folder(file));
    put.map_err(|source| KeyError::File { file: file.to_owned(), doing: "replaced", source })
}

fn sync_folder(file: &Path) -> io::Result<()> {
    folder(file)?.sync_all()
}

fn folder(file: &Path) -> io::Result<File> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    OpenOptions::new().read(true).open(folder.unwrap_or(Path::new(".")))
}

fn read(file: &Path) -> Result<Option<MasterKey>, KeyError> {
    match text(file).map(Zeroizing::new) {
        Ok(text) => {
            let key = decoded(&text)
                .ok_or_else(|| KeyError::Malformed(format!("the key file {}", file.display())))?;
            Ok(Some(key))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeyError::File { file: file.to_owned(), doing: "read", source }),
    }
}

/// A pipe would be waited for.
fn text(file: &Path) -> io::Result<String> {
    if std::fs::metadata(file)?.is_file() {
        std::fs::read_to_string(file)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

fn decoded(text: &str) -> Option<MasterKey> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim()).ok()?);
    Some(MasterKey::new(bytes.as_slice().try_into().ok()?))
}

/// Writes the whole key beside its place and then gives it its name, which fails if somebody was first: no
/// process ever reads half a key, and none is replaced.
fn make(file: &Path, clock: &dyn Clock) -> io::Result<()> {
    let mut bytes = Zeroizing::new([0; 32]);
    bytes[..16].copy_from_slice(&clock.random());
    bytes[16..].copy_from_slice(&clock.random());
    let text = Zeroizing::new(format!("{}\n", STANDARD.encode(*bytes)));
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let stored = written.write_all(text.as_bytes()).and_then(|()| written.sync_all());
    let named = stored.and_then(|()| std::fs::hard_link(&beside, file));
    std::fs::remove_file(&beside)?;
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use countersign::SystemClock;

    use super::*;

    #[test]
    fn rule_s3_a_key_is_made_once_and_only_for_an_empty_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        assert!(find(None, &file).unwrap().is_none());
        let made = make_for("runs.db", false, &file, &SystemClock).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = make_for("runs.db", false, &file, &SystemClock).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        assert_eq!(find(None, &file).unwrap().unwrap().fingerprint(), made.fingerprint());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

        std::fs::remove_file(&file).unwrap();
        let missing = make_for("runs.db", true, &file, &SystemClock);
        assert!(matches!(missing, Err(KeyError::Missing { .. })));
        assert!(!file.exists());
    }

    #[test]
    fn rule_s3_a_key_file_is_replaced_by_the_key_in_force_alone_and_by_one_program_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let old = make_for("runs.db", false, &file, &SystemClock).unwrap();
        let turn = take_turn(&file).unwrap();
        assert!(matches!(take_turn(&file), Err(KeyError::Busy(_))));
        let new = make_next(&file, &SystemClock).unwrap();
        let other = MasterKey::new([9; 32]).fingerprint();
        assert!(matches!(put_in_place(&file, &other, &turn), Err(KeyError::Another { .. })));
        assert_eq!(find(None, &file).unwrap().unwrap().fingerprint(), old.fingerprint());
        for _ in 0..2 {
            put_in_place(&file, &new.fingerprint(), &turn).unwrap();
            assert_eq!(find(None, &file).unwrap().unwrap().fingerprint(), new.fingerprint());
        }
        drop(turn);
        take_turn(&file).unwrap();
    }

    #[test]
    fn what_is_no_file_is_neither_a_key_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, not_a_file) = (folder.path().join("key"), folder.path().join("folder"));
        std::fs::create_dir(&not_a_file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for file in [pipe, not_a_file] {
            let refused = find(None, &file).unwrap_err().to_string();
            assert!(refused.ends_with("cannot be read: it is not a file"), "{refused}");
        }
    }

    #[test]
    fn rule_s5_a_malformed_key_is_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let error = find(Some("key-SECRET-2"), &file).unwrap_err().to_string();
        assert!(error.contains("COUNTERSIGN_KEY") && !error.contains("SECRET"), "{error}");
        std::fs::write(&file, "c2hvcnQ=").unwrap();
        assert!(find(None, &file).unwrap_err().to_string().contains("32 bytes"));
    }
}
