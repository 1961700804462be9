//! What a preview promised, and whether it still holds when the call is made (A7).
//!
//! Invariant: a promise is a list of changes, each from one fingerprint to another, and fits exactly one call. It is
//! judged as a whole: all done, or all as previewed, or changed meanwhile.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Fingerprint;
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::workspace::Place;

/// What is to become of one file. `None` stands for "there is no such file".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    path: String,
    sha256: Option<Fingerprint>,
    wanted: Option<Fingerprint>,
}

/// How the world stands to a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// Every file is as the call wants it.
    AlreadyDone,
    /// Every file is as the preview saw it, or there was no preview.
    Due,
}

/// What is at a place now.
pub(crate) fn present(place: &Place) -> Result<Option<Fingerprint>, Failure> {
    place.file.as_ref().map(Fingerprint::of_file).transpose()
}

/// Writes the promise down.
pub(crate) fn promise(changes: &[(&WorkspacePath, Option<&Fingerprint>, Option<&Fingerprint>)]) -> Value {
    let changes = changes.iter().map(|(path, now, wanted)| {
        serde_json::json!({ "path": path.to_string(), "sha256": now, "wanted": wanted })
    });
    Value::Array(changes.collect())
}

/// The promise that a call brings along, for exactly these paths.
pub(crate) fn read<const N: usize>(
    precondition: Option<&Value>,
    paths: [&WorkspacePath; N],
) -> Result<Option<[Change; N]>, Failure> {
    let Some(value) = precondition else { return Ok(None) };
    let changes: Vec<Change> = Vec::deserialize(value).map_err(|_| Failure::ForeignPrecondition)?;
    let changes = <[Change; N]>::try_from(changes).map_err(|_| Failure::ForeignPrecondition)?;
    let is_ours = changes.iter().zip(paths).all(|(change, path)| change.path == path.to_string());
    if is_ours { Ok(Some(changes)) } else { Err(Failure::ForeignPrecondition) }
}

impl Change {
    /// Whether it ends where this call ends.
    pub(crate) fn must_want(&self, wanted: Option<&Fingerprint>) -> Result<(), Failure> {
        if self.wanted.as_ref() == wanted { Ok(()) } else { Err(Failure::ForeignPrecondition) }
    }
}

/// Judges the promise against what is there now, in the same order.
pub(crate) fn judge<const N: usize>(
    changes: &[Change; N],
    present: [(&WorkspacePath, Option<&Fingerprint>); N],
) -> Result<Situation, Failure> {
    let pairs = || changes.iter().zip(present);
    if pairs().all(|(change, (_, now))| change.wanted.as_ref() == now) {
        return Ok(Situation::AlreadyDone);
    }
    match pairs().find(|(change, (_, now))| change.sha256.as_ref() != *now) {
        Some((_, (path, _))) => Err(Failure::ChangedMeanwhile(path.clone())),
        None => Ok(Situation::Due),
    }
}
