//! What a preview promised, and whether it still holds when the call is made (A7).
//!
//! Invariant: a promise is for one workspace. It is a list of changes, each from one fingerprint to another, and fits
//! exactly one call; it is judged as a whole: all done, or all as previewed, or changed meanwhile. Or it says that the
//! call could not be made: then no call that brings it along ever changes anything, whatever became possible since.
//!
//! So a workspace that was moved, restored, or replaced in the configuration refuses what was approved before, also
//! where the change happens to be there already. That is the strict reading: what a person saw was another place.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Fingerprint;
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::workspace::Place;

/// What a preview shows, and what it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) lines: Vec<String>,
    pub(crate) changes: Vec<Change>,
}

/// What a call gets back of its preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promise {
    workspace: Fingerprint,
    /// `None`: the call could not be made.
    changes: Option<Vec<Change>>,
}

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

impl Promise {
    /// Writes a promise down.
    pub(crate) fn write(workspace: &Fingerprint, changes: Option<&[Change]>) -> Value {
        serde_json::json!({ "workspace": workspace, "changes": changes })
    }

    /// Reads what was promised for this workspace. `None`: the call could not be made.
    pub(crate) fn read(value: &Value, workspace: &Fingerprint) -> Result<Option<Vec<Change>>, Failure> {
        let promise = Self::deserialize(value).map_err(|_| Failure::ForeignPrecondition)?;
        if promise.workspace == *workspace { Ok(promise.changes) } else { Err(Failure::OtherWorkspace) }
    }
}

/// The changes that a call brings along, for exactly these paths.
pub(crate) fn fitting<'p, const N: usize>(
    promised: Option<&'p [Change]>,
    paths: [&WorkspacePath; N],
) -> Result<Option<&'p [Change; N]>, Failure> {
    let Some(changes) = promised else { return Ok(None) };
    let changes = <&[Change; N]>::try_from(changes).map_err(|_| Failure::ForeignPrecondition)?;
    let is_ours = changes.iter().zip(paths).all(|(change, path)| change.path == path.to_string());
    if is_ours { Ok(Some(changes)) } else { Err(Failure::ForeignPrecondition) }
}

impl Change {
    /// From what is there now to what is to be there.
    pub(crate) fn new(path: &WorkspacePath, now: Option<&Fingerprint>, wanted: Option<&Fingerprint>) -> Self {
        Self { path: path.to_string(), sha256: now.cloned(), wanted: wanted.cloned() }
    }

    /// Whether it ends where this call ends.
    pub(crate) fn must_want(&self, wanted: Option<&Fingerprint>) -> Result<(), Failure> {
        if self.wanted.as_ref() == wanted { Ok(()) } else { Err(Failure::ForeignPrecondition) }
    }

    /// Whether the preview found no file there.
    pub(crate) fn is_from_nothing(&self) -> bool {
        self.sha256.is_none()
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
