//! Which process holds a lease, and whether it is still there (R6).
//!
//! Invariant: a process that claims keeps a file of its own locked as long as it lives; the system takes the lock away
//! when it ends, however it ends, and at no other time. So whoever can lock the file of another knows that the other is
//! gone, and its leases with it. A file that is missing or cannot be opened proves nothing: then the lease runs out.
//! Not here: what a lease is (`leases`).

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, read_dir, remove_file};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use countersign::Clock;

/// What is added to the name of the database for the folder of the files.
const SUFFIX: &str = "-workers";
/// How often another number is tried when one is taken. It never is.
const ATTEMPTS: u32 = 3;

/// The processes that hold leases in one database.
#[derive(Debug)]
pub(super) struct Holders {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    /// Of this process, from its first claim on; nothing where no file can be locked.
    own: OnceLock<Option<Own>>,
}

#[derive(Debug)]
struct Own {
    number: i64,
    /// Locked until this process ends.
    _file: File,
}

/// A process that is gone. As long as this is kept, nobody else cleans up behind it.
pub(super) struct Gone {
    pub(super) number: i64,
    path: PathBuf,
    _file: File,
}

impl Holders {
    pub(super) fn of(database: &Path, clock: Arc<dyn Clock>) -> Self {
        let mut folder = OsString::from(database);
        folder.push(SUFFIX);
        Self { folder: folder.into(), clock, own: OnceLock::new() }
    }

    /// Under which number this process takes leases, if others can tell when it is gone.
    pub(super) fn number(&self) -> Option<i64> {
        self.own.get_or_init(|| self.take()).as_ref().map(|own| own.number)
    }

    fn take(&self) -> Option<Own> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).ok()?;
        (0..ATTEMPTS).find_map(|_| {
            let number = i64::from_le_bytes(*self.clock.random().first_chunk()?) & i64::MAX;
            let file =
                OpenOptions::new().write(true).create_new(true).open(self.folder.join(name(number))).ok()?;
            file.try_lock().ok()?;
            Some(Own { number, _file: file })
        })
    }

    /// Those that are gone and have left something behind.
    #[expect(clippy::disallowed_methods, reason = "a file of the program's own, which nobody names to it")]
    pub(super) fn gone(&self) -> Vec<Gone> {
        let Ok(files) = read_dir(&self.folder) else { return Vec::new() };
        let own = self.own.get().and_then(|own| own.as_ref()).map(|own| own.number);
        files
            .filter_map(|file| {
                let path = file.ok()?.path();
                let number = number_of(&path).filter(|number| Some(*number) != own)?;
                let file = File::open(&path).ok()?;
                file.try_lock().ok()?;
                Some(Gone { number, path, _file: file })
            })
            .collect()
    }
}

impl Gone {
    /// Nothing of it is left in the database.
    pub(super) fn forget(self) {
        // Whoever finds the file again finds nothing to do.
        drop(remove_file(&self.path));
    }
}

fn name(number: i64) -> String {
    format!("{number:016x}")
}

fn number_of(path: &Path) -> Option<i64> {
    let name_found = path.file_name()?.to_str()?;
    let number = i64::from_str_radix(name_found, 16).ok()?;
    (name(number) == name_found).then_some(number)
}
