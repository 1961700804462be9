//! The workspace: one folder, opened once, and everything below it reached name by name.
//!
//! Invariant: after [`Workspace::open`] no path of this machine is ever resolved. Each name of a path is opened in
//! the folder opened before it, without following a symbolic link, so nothing that happens to the names meanwhile
//! leads outside: a folder swapped for a link is refused, a folder that was moved is still the folder that was
//! opened. What was opened is judged again by its identity (S2).
//!
//! A workspace is known again by its device, its inode and its real path together, so a preview made for one is none
//! for another (A7): not for another folder, not for a copy, and not for the same folder after it was moved, or
//! restored from a backup. It is known again after a restart, as long as the system gives the disk the same number;
//! otherwise what was approved is refused, and asking again is the way out.
//!
//! Not promised: that a folder which another program moves out of the workspace during a call is noticed.
//!
//! Not here: what is protected (`protected`), and how files are replaced (`change`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_fs_ext::{
    DirExt as _, FollowSymlinks, MetadataExt as _, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _,
};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};

use crate::content::Fingerprint;
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::protected::{Identity, Protected, Protection, STATE_FOLDER, Standing};

/// The folder that the built-in file tools may see, and what in it they may not. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workspace {
    opened: Arc<Opened>,
}

#[derive(Debug)]
struct Opened {
    root: Dir,
    /// Which workspace it is.
    mark: Fingerprint,
    protections: Vec<Protection>,
}

/// Why a workspace cannot be opened. For the operator, so it names the paths.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The root is missing, no folder, or not readable.
    #[error("the workspace {} cannot be opened", path.display())]
    Root {
        /// The root as it was given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It cannot be said where a protected place is, so it could not be protected (S2).
    #[error("the protected path {} cannot be located", path.display())]
    Protected {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The workspace is the state folder or lies in it (S2).
    #[error("the workspace {} lies inside the state folder {}", root.display(), state.display())]
    InsideState {
        /// The root as it was given.
        root: PathBuf,
        /// The state path as it was given.
        state: PathBuf,
    },
}

impl Workspace {
    /// Opens the folder `root`. `state` are the files and folders that do not exist for the tools: the database with
    /// its folder, and the key; a folder named `.countersign` anywhere below the root is one without being named.
    /// `read_only` are those they may read but never change: configuration and skills (S2). Either may lie outside
    /// the workspace or not exist yet; a relative path starts at `root`.
    ///
    /// # Errors
    /// [`OpenError`], when a folder cannot be opened or a protected place cannot be located.
    pub fn open(root: &Path, state: &[PathBuf], read_only: &[PathBuf]) -> Result<Self, OpenError> {
        let opened = Dir::open_ambient_dir(root, ambient_authority())
            .and_then(|opened| mark(&opened, root).map(|mark| (opened, mark)));
        let (opened, mark) = opened.map_err(|source| OpenError::Root { path: root.to_owned(), source })?;
        let state = state.iter().map(|path| (path, Standing::State));
        let read_only = read_only.iter().map(|path| (path, Standing::ReadOnly));
        let protections = state.chain(read_only).map(|(path, standing)| {
            let located = Protection::locate(root, path, standing);
            let located = located.map_err(|source| OpenError::Protected { path: path.clone(), source })?;
            located.ok_or_else(|| OpenError::InsideState { root: root.to_owned(), state: path.clone() })
        });
        let protections = protections.collect::<Result<_, _>>()?;
        Ok(Self { opened: Arc::new(Opened { root: opened, mark, protections }) })
    }

    /// Which workspace it is, for promises. Says nothing about where it is.
    pub(crate) fn mark(&self) -> &Fingerprint {
        &self.opened.mark
    }

    /// Begins one call's look at the workspace.
    pub(crate) fn visit(&self) -> Visit<'_> {
        Visit { root: &self.opened.root, protected: Protected::now(&self.opened.protections) }
    }
}

/// One call's look at the workspace.
#[derive(Debug)]
pub(crate) struct Visit<'w> {
    root: &'w Dir,
    protected: Protected<'w>,
}

/// An opened folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) dir: Dir,
    pub(crate) path: WorkspacePath,
    standing: Standing,
}

/// An opened regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    pub(crate) path: WorkspacePath,
}

/// The place of a file that is to be changed: what is there now, if anything, and whether it may be changed.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: WorkspacePath,
    /// `None`: a folder on the way does not exist yet.
    pub(crate) folder: Option<Folder>,
    pub(crate) file: Option<OpenFile>,
}

impl Place {
    /// The last name of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.split().map_or("", |(_, name)| name)
    }
}

enum Step {
    Into(Folder),
    Missing,
    Hidden,
}

impl Visit<'_> {
    /// The folder at a path, to be read.
    pub(crate) fn folder(&self, path: &WorkspacePath) -> Result<Folder, Failure> {
        path.names().iter().try_fold(self.top()?, |folder, name| self.enter(&folder, name))
    }

    /// A folder within a folder, to be read.
    pub(crate) fn enter(&self, folder: &Folder, name: &str) -> Result<Folder, Failure> {
        match self.step(folder, name)? {
            Step::Into(folder) => Ok(folder),
            Step::Missing | Step::Hidden => Err(Failure::Missing(folder.path.child(name)?)),
        }
    }

    /// The file at a path, to be read.
    pub(crate) fn file(&self, path: &WorkspacePath) -> Result<OpenFile, Failure> {
        let missing = || Failure::Missing(path.clone());
        let (parents, name) = path.split().ok_or_else(|| Failure::NotAFile(path.clone()))?;
        let parent = parents.iter().try_fold(self.top()?, |folder, name| self.enter(&folder, name));
        let parent = parent
            .map_err(|failure| if matches!(failure, Failure::Missing(_)) { missing() } else { failure })?;
        self.file_in(&parent, name)?.ok_or_else(missing)
    }

    /// A file within a folder, to be read. `None`: there is nothing that a tool may know of.
    pub(crate) fn file_in(&self, folder: &Folder, name: &str) -> Result<Option<OpenFile>, Failure> {
        let (standing, file) = self.look(folder, name)?;
        Ok(file.filter(|_| standing != Standing::State))
    }

    /// The place of a file that is to be made, replaced, moved or deleted. Nothing is created by asking.
    pub(crate) fn place(&self, path: &WorkspacePath) -> Result<Place, Failure> {
        let (parents, name) = path.split().ok_or_else(|| Failure::NotAFile(path.clone()))?;
        let missing = Place { path: path.clone(), folder: None, file: None };
        may_change(path, self.protected.by_name(path.names()))?;
        if self.protected.is_above_any(path.names()) {
            return Err(Failure::NotAFile(path.clone()));
        }
        let mut folder = self.top()?;
        for parent in parents {
            may_change(path, folder.standing)?;
            folder = match self.step(&folder, parent)? {
                Step::Into(folder) => folder,
                Step::Missing => return Ok(missing),
                Step::Hidden => return Err(Failure::Unavailable(path.clone())),
            };
        }
        let file = self.changeable_in(&folder, name)?;
        Ok(Place { folder: Some(folder), file, ..missing })
    }

    /// A file within a folder, to be changed.
    pub(crate) fn changeable_in(&self, folder: &Folder, name: &str) -> Result<Option<OpenFile>, Failure> {
        let path = folder.path.child(name)?;
        let (standing, file) = self.look(folder, name)?;
        may_change(&path, standing)?;
        match file {
            Some(file) if file.metadata.permissions().readonly() => Err(Failure::WriteProtected(path)),
            file => Ok(file),
        }
    }

    /// The folder of a place, made with all the folders on the way if it is missing.
    pub(crate) fn make_folder(&self, place: &Place) -> Result<Folder, Failure> {
        let (parents, _) = place.path.split().ok_or_else(|| Failure::NotAFile(place.path.clone()))?;
        let mut folder = self.top()?;
        for name in parents {
            may_change(&place.path, folder.standing)?;
            let failed = |error: io::Error| Failure::system(&place.path, &error);
            let made = match folder.dir.create_dir(name) {
                Ok(()) => sync(&folder.dir).map_err(failed),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(failed(error)),
            };
            made?;
            folder = self.enter(&folder, name)?;
        }
        may_change(&place.path, folder.standing)?;
        Ok(folder)
    }

    /// What a listing may say of a name in a folder: `None` when the tools must not know of it.
    pub(crate) fn seen(&self, folder: &Folder, name: &str) -> Result<Option<Metadata>, Failure> {
        let path = folder.path.child(name)?;
        match folder.dir.symlink_metadata(name) {
            Ok(metadata) => {
                Ok(Some(metadata)
                    .filter(|metadata| self.standing(folder, &path, metadata) != Standing::State))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::system(&path, &error)),
        }
    }

    fn top(&self) -> Result<Folder, Failure> {
        let path = WorkspacePath::default();
        let dir = self.root.try_clone().map_err(|error| Failure::system(&path, &error))?;
        let standing = self.protected.by_name(path.names());
        Ok(Folder { dir, path, standing })
    }

    fn step(&self, folder: &Folder, name: &str) -> Result<Step, Failure> {
        let path = folder.path.child(name)?;
        let failed = |error: io::Error| Failure::system(&path, &error);
        let metadata = match folder.dir.symlink_metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Step::Missing),
            seen => seen.map_err(failed)?,
        };
        if self.standing(folder, &path, &metadata) == Standing::State {
            return Ok(Step::Hidden);
        }
        if metadata.is_symlink() {
            return Err(Failure::Link(path));
        }
        if !metadata.is_dir() {
            return Err(Failure::NotAFolder(path));
        }
        let dir = folder.dir.open_dir_nofollow(name).map_err(failed)?;
        let standing = self.standing(folder, &path, &dir.dir_metadata().map_err(failed)?);
        Ok(if standing == Standing::State {
            Step::Hidden
        } else {
            Step::Into(Folder { dir, path, standing })
        })
    }

    /// Opens what a name stands for, if it is a regular file. Nothing else is opened: a pipe would wait, a device
    /// might act. That is looked up first and checked again on the opened file.
    fn look(&self, folder: &Folder, name: &str) -> Result<(Standing, Option<OpenFile>), Failure> {
        let path = folder.path.child(name)?;
        let by_name = folder.standing.max(self.protected.by_name(path.names()));
        if by_name == Standing::State {
            return Ok((by_name, None));
        }
        let seen = match folder.dir.symlink_metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((by_name, None)),
            seen => seen.map_err(|error| Failure::system(&path, &error))?,
        };
        if self.standing(folder, &path, &seen) == Standing::State {
            return Ok((Standing::State, None));
        }
        if seen.is_symlink() {
            return Err(Failure::Link(path));
        }
        if !seen.is_file() {
            return Err(Failure::NotAFile(path));
        }
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No).nonblock(true);
        let opened =
            folder.dir.open_with(name, &options).and_then(|file| file.metadata().map(|seen| (file, seen)));
        let (file, metadata) = opened.map_err(|error| Failure::system(&path, &error))?;
        if !metadata.is_file() {
            return Err(Failure::NotAFile(path));
        }
        Ok((self.standing(folder, &path, &metadata), Some(OpenFile { file, metadata, path })))
    }

    fn standing(&self, folder: &Folder, path: &WorkspacePath, metadata: &Metadata) -> Standing {
        // A file system may know the state folder by a name that no rule here foresees, or by a link beside it.
        if metadata.is_dir()
            && let Ok(state) = folder.dir.metadata(STATE_FOLDER)
            && Identity::from(&state) == Identity::from(metadata)
        {
            return Standing::State;
        }
        folder.standing.max(self.protected.by_name(path.names())).max(self.protected.by_identity(metadata))
    }
}

/// What distinguishes this folder at this place from every other.
fn mark(opened: &Dir, root: &Path) -> io::Result<Fingerprint> {
    let metadata = opened.dir_metadata()?;
    let mut parts = [metadata.dev().to_be_bytes(), metadata.ino().to_be_bytes()].concat();
    parts.extend_from_slice(std::fs::canonicalize(root)?.as_os_str().as_encoded_bytes());
    Ok(Fingerprint::of(&parts))
}

fn may_change(path: &WorkspacePath, standing: Standing) -> Result<(), Failure> {
    match standing {
        Standing::Open => Ok(()),
        Standing::ReadOnly => Err(Failure::ReadOnly(path.clone())),
        Standing::State => Err(Failure::Unavailable(path.clone())),
    }
}

/// Waits until the names in a folder are on disk. The folder is opened anew, because the handle may be one that only
/// stands for the place.
pub(crate) fn sync(folder: &Dir) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let reading =
        rustix::fs::openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(reading)?)
}
