//! The names in a folder, as the tools may know them.
//!
//! Invariant: the order is that of the bytes of the full paths, a folder's name counting with its `/`, so the same
//! folder is always listed alike. What the tools must not know of is not listed.

use std::io;

use countersign::CONTENT_BYTES_MAX;

use crate::failure::Failure;
use crate::workspace::{Folder, Visit};

/// How much text a reading tool answers, in bytes: what a model is shown at most, less the room for a closing note,
/// so that the note is never what is cut (L4).
pub(crate) const ANSWER_BYTES_MAX: usize = CONTENT_BYTES_MAX - 2_000;
/// How many folders deep a recursive tool goes. Each level keeps a folder open.
pub(crate) const DEPTH_MAX: usize = 64;
/// How many entries of one folder are read. A larger folder is listed in part, and the answer says so.
const ENTRIES_MAX: usize = 20_000;
/// The folder that is listed but only entered by name: thousands of files that are no text.
const NOT_ENTERED: &str = ".git";

/// What kind of thing an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    Link,
    Other,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

impl Entry {
    /// Whether a recursive tool goes into it by itself.
    pub(crate) fn is_entered(&self, depth: usize) -> bool {
        self.kind == Kind::Folder && self.name != NOT_ENTERED && depth < DEPTH_MAX
    }
}

/// The names in a folder, in order.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// How many entries have names that no path can say.
    pub(crate) unusable: usize,
    /// Whether the folder has more entries than are read.
    pub(crate) is_partial: bool,
}

/// Lists a folder.
pub(crate) fn list(visit: &Visit<'_>, folder: &Folder) -> Result<Listing, Failure> {
    let failed = |error: io::Error| Failure::system(&folder.path, &error);
    let mut listing = Listing::default();
    for (count, entry) in folder.dir.entries().map_err(failed)?.enumerate() {
        if count >= ENTRIES_MAX {
            listing.is_partial = true;
            break;
        }
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else {
            listing.unusable += 1;
            continue;
        };
        let metadata = match visit.seen(folder, &name) {
            Ok(Some(metadata)) => metadata,
            Ok(None) => continue,
            Err(Failure::Path(_)) => {
                listing.unusable += 1;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_file() => Kind::File,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        listing.entries.push(Entry { name, kind });
    }
    listing.entries.sort_by_cached_key(|entry| {
        let slash = if entry.kind == Kind::Folder { "/" } else { "" };
        format!("{}{slash}", entry.name)
    });
    Ok(listing)
}
