//! The three effects on files: put, move, remove.
//!
//! Invariant: at every moment, also after a crash, a path holds its old content or its new one, never a part. What is
//! there is compared once more with what the call was judged by, directly before the step that changes it.
//!
//! The window that remains: between that comparison and the step, another program may still write into a file that
//! is then replaced, moved or removed. There is no call of the system that does both at once. Creating and moving
//! have no such window at their new place: a name that is taken is never taken over.
//!
//! Kept of a replaced file: its permission bits. Not kept: owner, extended attributes, further hard links (they
//! keep the old content).

use std::io::{self, Write as _};

use cap_fs_ext::{FollowSymlinks, MetadataExt as _, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _, Permissions, PermissionsExt as _};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::content::Fingerprint;
use crate::failure::Failure;
use crate::leftover;
use crate::path::WorkspacePath;
use crate::workspace::{Folder, Place, Visit, sync};

/// The permission bits that are carried over: never set-user-id or its like.
const PERMISSION_BITS: u32 = 0o777;

/// Puts `bytes` at a place that holds `expected`, and makes missing folders on the way.
pub(crate) fn put(
    visit: &Visit<'_>,
    place: &Place,
    expected: Option<&Fingerprint>,
    bytes: &[u8],
) -> Result<(), Failure> {
    let folder = visit.make_folder(place)?;
    let failed = |error: io::Error| Failure::system(&place.path, &error);
    let permissions = place.file.as_ref().map(|file| file.metadata.permissions().mode() & PERMISSION_BITS);
    let mut draft = Draft::create(&folder.dir, permissions.is_some()).map_err(failed)?;
    draft.file.write_all(bytes).map_err(failed)?;
    if let Some(permissions) = permissions {
        draft.file.set_permissions(Permissions::from_mode(permissions)).map_err(failed)?;
    }
    draft.file.sync_all().map_err(failed)?;
    leftover::sweep(&folder.dir, &draft.name);
    must_hold(visit, &folder, place, expected)?;
    let renamed = match expected {
        Some(_) => folder.dir.rename(&draft.name, &folder.dir, place.name()),
        None => rename_to_free_name((&folder.dir, &draft.name), (&folder.dir, place.name())),
    };
    renamed.map_err(|error| taken_meanwhile(&place.path, &error))?;
    draft.is_placed = true;
    sync(&folder.dir).map_err(|_| Failure::Unconfirmed(place.path.clone()))
}

/// Moves the file at `from`, which holds `expected`, to the free place `to`, and makes missing folders on the way.
pub(crate) fn relocate(
    visit: &Visit<'_>,
    from: &Place,
    to: &Place,
    expected: &Fingerprint,
) -> Result<(), Failure> {
    let source = from.folder.as_ref().ok_or_else(|| Failure::Missing(from.path.clone()))?;
    let target = visit.make_folder(to)?;
    must_hold(visit, source, from, Some(expected))?;
    let renamed = rename_to_free_name((&source.dir, from.name()), (&target.dir, to.name()));
    renamed.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Failure::ChangedMeanwhile(from.path.clone())
        } else {
            taken_meanwhile(&to.path, &error)
        }
    })?;
    sync(&target.dir).and_then(|()| sync(&source.dir)).map_err(|_| Failure::Unconfirmed(from.path.clone()))
}

/// Removes the file at a place that holds `expected`.
pub(crate) fn remove(visit: &Visit<'_>, place: &Place, expected: &Fingerprint) -> Result<(), Failure> {
    let folder = place.folder.as_ref().ok_or_else(|| Failure::Missing(place.path.clone()))?;
    must_hold(visit, folder, place, Some(expected))?;
    folder.dir.remove_file(place.name()).map_err(|error| Failure::system(&place.path, &error))?;
    sync(&folder.dir).map_err(|_| Failure::Unconfirmed(place.path.clone()))
}

/// Whether two places hold one and the same file under two names: what an interrupted move leaves where the system
/// cannot rename without replacing.
pub(crate) fn is_half_moved(from: &Place, to: &Place) -> bool {
    let identity = |place: &Place| place.file.as_ref().map(|file| (file.metadata.dev(), file.metadata.ino()));
    identity(from).is_some() && identity(from) == identity(to)
}

/// The last look before a change, with fresh eyes: the standing of what is there counts again, too.
fn must_hold(
    visit: &Visit<'_>,
    folder: &Folder,
    place: &Place,
    expected: Option<&Fingerprint>,
) -> Result<(), Failure> {
    let file = visit.changeable_in(folder, place.name())?;
    let now = file.as_ref().map(Fingerprint::of_file).transpose()?;
    if now.as_ref() == expected { Ok(()) } else { Err(Failure::ChangedMeanwhile(place.path.clone())) }
}

fn taken_meanwhile(path: &WorkspacePath, error: &io::Error) -> Failure {
    if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory) {
        Failure::ChangedMeanwhile(path.clone())
    } else {
        Failure::system(path, error)
    }
}

/// Renames, and fails if the new name is taken. Where the file system has no such rename, a hard link does the same:
/// it cannot be made over an existing name.
fn rename_to_free_name((source, from): (&Dir, &str), (target, to): (&Dir, &str)) -> io::Result<()> {
    match rustix::fs::renameat_with(source, from, target, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_to_free_name((source, from), (target, to)),
        renamed => Ok(renamed?),
    }
}

/// Cut off by a crash, it leaves both names: a repeated move finishes it, and a draft is swept.
pub(crate) fn link_to_free_name((source, from): (&Dir, &str), (target, to): (&Dir, &str)) -> io::Result<()> {
    source.hard_link(from, target, to)?;
    source.remove_file(from)
}

/// A file that is being written under a name of its own, and removed again if it is never put in its place.
struct Draft<'f> {
    folder: &'f Dir,
    name: String,
    file: File,
    is_placed: bool,
}

impl<'f> Draft<'f> {
    /// A private draft is readable by nobody else until it gets the permissions of the file it replaces.
    fn create(folder: &'f Dir, is_private: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        if is_private {
            options.mode(0o600);
        }
        let name = leftover::fresh_name();
        let file = folder.open_with(&name, &options)?;
        Ok(Self { folder, name, file, is_placed: false })
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            let _gone_or_swept_later = self.folder.remove_file(&self.name);
        }
    }
}
