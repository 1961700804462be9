//! The names of files that are being written, and of those that a crash left behind.
//!
//! Invariant: such a name is never shown to a tool and never usable by one; what a crash left is removed by the next
//! write into the same folder, once it is surely nobody's.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use cap_std::fs::Dir;

const START: &str = ".countersign-";
const END: &str = ".tmp";
/// A file of this age is no write in progress: a call's deadline is far shorter.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
/// How many entries of a folder are looked at.
const ENTRIES_MAX: usize = 10_000;

/// A name nobody else uses; the exclusive create proves it. The keys of the standard hasher come from the system's
/// random source, which is unpredictable enough for a name that is not a secret.
pub(crate) fn fresh_name() -> String {
    let [first, second] = [0, 1].map(|part| RandomState::new().hash_one(part));
    format!("{START}{first:016x}{second:016x}{END}")
}

/// Whether a name has the shape of [`fresh_name`], in any case.
pub(crate) fn is_leftover(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let digits = name.strip_prefix(START).and_then(|rest| rest.strip_suffix(END));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Removes what crashes left in a folder. `own` is a file just written there: its time is the present, as the file
/// system sees it. A failure is no reason to fail the write, so nothing is reported.
pub(crate) fn sweep(folder: &Dir, own: &str) {
    let modified = |name: &str| {
        let metadata = folder.symlink_metadata(name).ok().filter(cap_std::fs::Metadata::is_file)?;
        metadata.modified().ok()
    };
    let (Some(present), Ok(entries)) = (modified(own), folder.entries()) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_abandoned = || {
            let age = modified(&name).and_then(|then| present.duration_since(then).ok());
            age.is_some_and(|age| age > ABANDONED_AFTER)
        };
        if is_leftover(&name) && is_abandoned() {
            let _gone_or_not = folder.remove_file(&name);
        }
    }
}
