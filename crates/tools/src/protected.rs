//! What the file tools must not see, and what they may see but not change (S2).
//!
//! Invariant: a place is judged by its name *and* by the identity (device and inode) of what was opened there, and
//! the stricter answer counts. Names cover what does not exist yet and are compared without regard to case;
//! identities cover other names for the same thing: a mount, a hard link, a file system that ignores case.
//!
//! The places are those of this installation, and every folder with the name of a state folder: what a command run in
//! a folder below left there, or an older run, holds keys as well.
//!
//! Not promised: that a file of such another state folder is known again under a name outside of it.
//!
//! Not here: opening what a tool asked for (`workspace`).

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_fs_ext::{DirExt as _, MetadataExt as _};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata};

use crate::leftover::is_leftover;

/// What the folder is called in which an installation keeps its database and its key, unless it is told otherwise.
pub(crate) const STATE_FOLDER: &str = ".countersign";
/// How many entries of state folders are looked at to recognise them under other names. Larger ones hide every file
/// of the workspace that has a second name.
const STATE_ENTRIES_MAX: usize = 10_000;
/// What lies beside a database: what SQLite puts there holds the same content, and the lock of `serve` keeps a second one
/// away. As protected as it.
const COMPANIONS: [&str; 4] = ["-wal", "-shm", "-journal", "-serve"];

/// How far a place is open to the tools. Ordered: the later word is the stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// May be read and changed.
    Open,
    /// May be read.
    ReadOnly,
    /// Does not exist as far as the tools are concerned.
    State,
}

/// Which file something is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// One protected place. It need not exist when the workspace is opened.
#[derive(Debug)]
pub(crate) struct Protection {
    standing: Standing,
    /// Its paths inside the workspace, as folded names; the empty one protects all of the workspace.
    inside: Vec<Vec<String>>,
    /// The nearest folder above it that existed when the workspace was opened.
    base: Dir,
    /// The way from there.
    rest: PathBuf,
    /// The state folder itself, if it existed: it stays hidden when it is moved while we run. Held open, so that its
    /// identity is not given to another folder.
    held: Option<Dir>,
}

impl Protection {
    /// Finds where `path` lies, relative to `root` if it is not absolute. `None`: the workspace would lie within it.
    pub(crate) fn locate(root: &Path, path: &Path, standing: Standing) -> io::Result<Option<Self>> {
        let lexical = std::path::absolute(root.join(path))?;
        let (real_base, rest) = nearest_existing(&lexical)?;
        let real = real_base.join(&rest);
        let mut inside = Vec::new();
        for root in [std::path::absolute(root)?, std::fs::canonicalize(root)?] {
            for place in [&lexical, &real] {
                if root.starts_with(place) {
                    if standing == Standing::State {
                        return Ok(None);
                    }
                    inside.push(Vec::new());
                } else if let Some(names) = place.strip_prefix(&root).ok().and_then(folded_names) {
                    inside.push(names);
                }
            }
        }
        let (base, rest) = match (rest.as_os_str().is_empty(), real_base.parent(), real_base.file_name()) {
            (true, Some(parent), Some(name)) => (parent.to_owned(), PathBuf::from(name)),
            _ => (real_base, rest),
        };
        let base = Dir::open_ambient_dir(base, ambient_authority())?;
        let held =
            Some(&base).filter(|_| standing == Standing::State).and_then(|base| base.open_dir(&rest).ok());
        Ok(Some(Self { standing, inside, base, rest, held }))
    }

    /// The identities of the place now, with those of a database's companions.
    fn identities(&self) -> impl Iterator<Item = Identity> + '_ {
        let companions = COMPANIONS.iter().map(|ending| {
            let mut name = OsString::from(&self.rest);
            name.push(ending);
            PathBuf::from(name)
        });
        std::iter::once(self.rest.clone())
            .chain(companions.filter(|_| self.standing == Standing::State))
            .filter_map(|path| self.base.metadata(path).ok())
            .chain(self.held.iter().filter_map(|held| held.dir_metadata().ok()))
            .map(|metadata| Identity::from(&metadata))
    }

    /// Whether the place lies below these names, so that they can only be folders.
    fn is_below(&self, folded: &[String]) -> bool {
        self.inside.iter().any(|names| names.len() > folded.len() && names.starts_with(folded))
    }

    fn covers(&self, folded: &[String]) -> bool {
        self.inside.iter().any(|names| {
            let Some((last, parents)) = names.split_last() else { return true };
            let Some(name) = folded.get(parents.len()).filter(|_| folded.starts_with(parents)) else {
                return false;
            };
            name == last
                || (self.standing == Standing::State
                    && name.strip_prefix(last.as_str()).is_some_and(|ending| COMPANIONS.contains(&ending)))
        })
    }
}

/// The protected places as they are during one call.
#[derive(Debug)]
pub(crate) struct Protected<'w> {
    protections: &'w [Protection],
    identities: Vec<(Identity, Standing)>,
    /// All that lies in state folders, collected when first asked for; `None` inside: it cannot be known.
    in_state: OnceCell<Option<HashSet<Identity>>>,
}

impl<'w> Protected<'w> {
    /// Looks the places up afresh: the state folder may have been made since.
    pub(crate) fn now(protections: &'w [Protection]) -> Self {
        let identities = protections
            .iter()
            .flat_map(|protection| protection.identities().map(|identity| (identity, protection.standing)))
            .collect();
        Self { protections, identities, in_state: OnceCell::new() }
    }

    /// The standing of a path, by its names.
    pub(crate) fn by_name(&self, names: &[String]) -> Standing {
        let folded: Vec<String> = names.iter().map(|name| folded(name)).collect();
        if names.iter().any(|name| is_leftover(name)) || folded.iter().any(|name| name == STATE_FOLDER) {
            return Standing::State;
        }
        let covering = self.protections.iter().filter(|protection| protection.covers(&folded));
        covering.map(|protection| protection.standing).max().unwrap_or(Standing::Open)
    }

    /// Whether a protected place lies, or will lie, below a path.
    pub(crate) fn is_above_any(&self, names: &[String]) -> bool {
        let folded: Vec<String> = names.iter().map(|name| folded(name)).collect();
        self.protections.iter().any(|protection| protection.is_below(&folded))
    }

    /// The standing of something opened or listed, by what it is.
    pub(crate) fn by_identity(&self, metadata: &Metadata) -> Standing {
        let identity = Identity::from(metadata);
        if self.is_in_state(identity, metadata) {
            return Standing::State;
        }
        let same = self.identities.iter().filter(|(protected, _)| *protected == identity);
        same.map(|(_, standing)| *standing).max().unwrap_or(Standing::Open)
    }

    /// Whether it also lies in a state folder, under whatever name. If that cannot be known, whatever may have a
    /// second name is taken to.
    fn is_in_state(&self, identity: Identity, metadata: &Metadata) -> bool {
        let files = self.in_state.get_or_init(|| {
            let mut files = HashSet::new();
            let states = self.protections.iter().filter(|protection| protection.standing == Standing::State);
            for state in states {
                if let Some(held) = &state.held {
                    collect(held, &mut files).ok()?;
                }
                match state.base.open_dir(&state.rest) {
                    Ok(folder) => collect(&folder, &mut files).ok()?,
                    Err(error) if is_no_folder(&error) => {}
                    Err(_) => return None,
                }
            }
            Some(files)
        });
        match files {
            Some(files) => files.contains(&identity),
            None => !metadata.is_dir() && metadata.nlink() > 1,
        }
    }
}

/// A name as the most forgiving file systems compare it: case and invisible characters do not count.
fn folded(name: &str) -> String {
    let visible: String = name.chars().filter(|character| !is_ignorable(*character)).collect();
    visible.to_uppercase().to_lowercase()
}

/// What Unicode calls default-ignorable, and file systems that ignore case ignore as well.
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

fn folded_names(path: &Path) -> Option<Vec<String>> {
    path.components()
        .map(|component| match component {
            Component::Normal(name) => Some(folded(&name.to_string_lossy())),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        })
        .collect()
}

/// The real path of the nearest existing folder or file at or above `path`, and what follows.
fn nearest_existing(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    for ancestor in path.ancestors() {
        match std::fs::canonicalize(ancestor) {
            Ok(real) => {
                let rest = path.strip_prefix(ancestor).map_err(io::Error::other)?.to_owned();
                return match folded_names(&rest) {
                    Some(_) => Ok((real, rest)),
                    None => Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "it steps back out of a missing folder",
                    )),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Adds the identity of everything below a state folder.
fn collect(folder: &Dir, files: &mut HashSet<Identity>) -> io::Result<()> {
    for entry in folder.entries()? {
        let name = entry?.file_name();
        let metadata = match folder.symlink_metadata(&name) {
            // A journal that came and went.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            seen => seen?,
        };
        if files.len() >= STATE_ENTRIES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        files.insert(Identity::from(&metadata));
        if metadata.is_dir() {
            collect(&folder.open_dir_nofollow(&name)?, files)?;
        }
    }
    Ok(())
}
