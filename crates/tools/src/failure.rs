//! What a file tool says when it does not do what was asked.
//!
//! Invariant: every sentence is for the model (L2): it names paths as the model wrote them, and never the place of
//! the workspace on this machine, the text of a system error, or that something is hidden.

use std::io;

use countersign::ToolError;

use crate::path::{PathError, WorkspacePath};

/// Why a file tool did not do what was asked. In every case but [`Self::Unconfirmed`] no file was changed; folders on
/// the way to a new one may have been made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("The arguments cannot be used: {0}")]
    Arguments(#[from] serde_json::Error),
    #[error("There is no file or folder `{0}`.")]
    Missing(WorkspacePath),
    #[error("`{0}` is not a file.")]
    NotAFile(WorkspacePath),
    #[error("`{0}` is not a folder.")]
    NotAFolder(WorkspacePath),
    #[error("`{0}` is a symbolic link; the file tools do not follow links.")]
    Link(WorkspacePath),
    #[error("`{0}` cannot be used by the file tools.")]
    Unavailable(WorkspacePath),
    #[error("`{0}` may be read but not changed.")]
    ReadOnly(WorkspacePath),
    #[error("`{0}` is write-protected.")]
    WriteProtected(WorkspacePath),
    #[error("`{0}` already exists; nothing was changed.")]
    Exists(WorkspacePath),
    #[error("`{0}` is not text in UTF-8.")]
    NotText(WorkspacePath),
    #[error("`{path}` has {bytes} bytes; this tool handles at most {limit}.")]
    TooLarge { path: WorkspacePath, bytes: u64, limit: u64 },
    #[error("`{path}` ends with line {count}; there is no line {wanted}.")]
    NoSuchLine { path: WorkspacePath, count: u64, wanted: u64 },
    #[error("The text to find does not occur in `{0}`; nothing was changed.")]
    FindAbsent(WorkspacePath),
    #[error(
        "The text to find occurs {count} times in `{path}` and must occur exactly once; nothing was changed."
    )]
    FindAmbiguous { path: WorkspacePath, count: String },
    #[error("The text to find must be part of one line, and not empty.")]
    NotALine,
    #[error("`from` and `to` are the same path.")]
    SamePath,
    #[error("`{0}` and its new place are on different file systems; nothing was changed.")]
    OtherFileSystem(WorkspacePath),
    #[error("`{0}` was changed meanwhile; nothing was done.")]
    ChangedMeanwhile(WorkspacePath),
    #[error("What was in the way of this call was changed meanwhile; nothing was done.")]
    FreedMeanwhile,
    #[error("The workspace was changed meanwhile; nothing was done.")]
    OtherWorkspace,
    #[error("What was previewed is not this call; nothing was done.")]
    ForeignPrecondition,
    #[error("`{0}` was changed, but the system could not confirm that the change is on disk.")]
    Unconfirmed(WorkspacePath),
    #[error("`{path}` could not be used: {kind}.")]
    System { path: WorkspacePath, kind: io::ErrorKind },
}

impl Failure {
    /// Whether it lies in what the workspace holds now, and another time the same call may do.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Missing(_)
            | Self::NotAFile(_)
            | Self::NotAFolder(_)
            | Self::Link(_)
            | Self::WriteProtected(_)
            | Self::Exists(_)
            | Self::NotText(_)
            | Self::TooLarge { .. }
            | Self::NoSuchLine { .. }
            | Self::FindAbsent(_)
            | Self::FindAmbiguous { .. }
            | Self::OtherFileSystem(_)
            | Self::ChangedMeanwhile(_)
            | Self::System { .. } => true,
            Self::Path(_)
            | Self::Arguments(_)
            | Self::Unavailable(_)
            | Self::ReadOnly(_)
            | Self::NotALine
            | Self::SamePath
            | Self::FreedMeanwhile
            | Self::OtherWorkspace
            | Self::ForeignPrecondition
            | Self::Unconfirmed(_) => false,
        }
    }

    /// Keeps the kind of a system error and drops its text, which may name places of this machine.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the list of kinds is the system's and grows")]
    pub(crate) fn system(path: &WorkspacePath, error: &io::Error) -> Self {
        let path = path.clone();
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::NotADirectory => Self::NotAFolder(path),
            io::ErrorKind::IsADirectory => Self::NotAFile(path),
            io::ErrorKind::AlreadyExists => Self::Exists(path),
            io::ErrorKind::CrossesDevices => Self::OtherFileSystem(path),
            kind => Self::System { path, kind },
        }
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        Self::answered(failure.to_string())
    }
}
