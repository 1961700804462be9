//! How a command ends, and the one sentence when it ends badly.

use std::error::Error;
use std::fmt;

use countersign::{CancelError, DecideError, DecisionRefused, DriveError, LoadError, StartError, StoreFault};
use countersign_store::OpenError;

use crate::escape;
use crate::setup::SetupError;

/// The exit statuses of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done; a run has completed.
    Done,
    /// Wrong usage or configuration.
    Usage,
    /// A run waits for a person.
    Waiting,
    /// A run ended without an answer of its own, or the work could not be done.
    Ended,
    /// A decision was refused.
    Refused,
    /// Ctrl-C; the run can be resumed.
    Interrupted,
    /// SIGTERM, in the same way.
    Terminated,
    /// SIGHUP, in the same way.
    HungUp,
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::Ended => 4,
            Self::Refused => 5,
            Self::HungUp => 129,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

/// Why a command ends badly.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    sentence: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.exit == Exit::Refused { "refused" } else { "error" };
        // Names, paths and the system's own words may be in it.
        write!(out, "{kind}: {}", escape::line(&self.sentence))
    }
}

impl Failure {
    /// Wrong usage or configuration.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, sentence: sentence.into() }
    }

    /// The work could not be done.
    pub(crate) fn ended(sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Ended, sentence: sentence.into() }
    }

    /// A decision was refused, with the contract's code.
    pub(crate) fn refused(code: &str, sentence: &str) -> Self {
        Self { exit: Exit::Refused, sentence: format!("{code}: {sentence}") }
    }

    /// The store failed while something was being done.
    pub(crate) fn store(doing: &str, fault: &StoreFault) -> Self {
        Self::ended(format!("{doing}: {}", fault_words(fault)))
    }

    /// A run could not be loaded.
    pub(crate) fn load(error: &LoadError) -> Self {
        if let LoadError::NotFound(run) = error {
            return Self::usage(format!("there is no run {run}; `runs list` shows those there are"));
        }
        if let LoadError::Fault(fault) = error {
            return Self::store("the run cannot be read", fault);
        }
        Self::ended(format!("{error}; it is left as it is, and no other run is affected"))
    }

    /// The exit status.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Adds what to do next, where a run is affected.
    #[must_use]
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.sentence.push_str("; ");
        self.sentence.push_str(more);
        self
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        if let SetupError::Database(unopened @ OpenError::Fault { source, .. }) = &error
            && !matches!(source, StoreFault::ReadOnly(_))
        {
            // Nothing is wrong with what was asked for: a supervisor may try it again.
            return Self::ended(database_words(unopened));
        }
        Self::usage(match &error {
            SetupError::Database(source) => database_words(source),
            SetupError::Folder { .. } => {
                format!(
                    "{error}: make it writable, or name another place as database and key_file in the configuration"
                )
            }
            SetupError::Workspace(error) => match error.source() {
                Some(source) => {
                    format!("{error}: {source}; name a folder that exists and can be read as workspace")
                }
                None => format!("{error}; name a folder outside of it as workspace"),
            },
            SetupError::Config(_)
            | SetupError::Model(_)
            | SetupError::Key(_)
            | SetupError::Tools(_)
            | SetupError::Tool { .. }
            | SetupError::BuiltIn { .. }
            | SetupError::Provider { .. } => error.to_string(),
        })
    }
}

fn database_words(error: &OpenError) -> String {
    if let OpenError::Fault { database, source } = error {
        return format!("the database {} cannot be opened: {}", database, fault_words(source));
    }
    let next = if matches!(error, OpenError::WrongKey { .. }) {
        "; use the key file that was made with this database, or set COUNTERSIGN_KEY to its key"
    } else if matches!(error, OpenError::Foreign(_)) {
        ", so it is left alone; name another file as database in the configuration, or move this one away"
    } else if matches!(error, OpenError::Damaged(_)) {
        "; put back a copy of the database and its key"
    } else {
        ""
    };
    format!("{error}{next}")
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        if let StartError::Store(fault) = &error {
            return Self::store("the run could not be stored, so nothing was started", fault);
        }
        if let StartError::NoSuchRun(run) = &error {
            return Self::load(&LoadError::NotFound(run.clone()));
        }
        let next = if let StartError::RunNotEnded(run) = &error {
            &format!("; wait for it, or end it with `runs cancel {run}`")
        } else if matches!(error, StartError::NotContinuable { .. }) {
            "; start a new run without --continue, and say in it what is needed"
        } else if matches!(error, StartError::UnknownAgent(_)) {
            "; add it to the configuration, or name another"
        } else if matches!(error, StartError::UnknownModel(_)) {
            ": its provider is unknown; add a table [providers.NAME] to the configuration, or name another model"
        } else {
            "; say what is to be done"
        };
        Self::usage(format!("{error}{next}"))
    }
}

impl From<DriveError> for Failure {
    fn from(error: DriveError) -> Self {
        if let DriveError::Store(fault) = &error {
            return Self::store("the run could not be stored further", fault);
        }
        Self::ended(error.to_string())
    }
}

impl From<CancelError> for Failure {
    fn from(error: CancelError) -> Self {
        if let CancelError::Store(fault) = &error {
            return Self::store("nothing was cancelled", fault);
        }
        if matches!(error, CancelError::NotFound(_)) {
            return Self::usage(format!("{error}; `runs list` shows those there are"));
        }
        if matches!(error, CancelError::NotCancellable) {
            return Self::refused("not_cancellable", &error.to_string());
        }
        Self::ended(error.to_string())
    }
}

impl From<DecideError> for Failure {
    fn from(error: DecideError) -> Self {
        let mut words = error.to_string();
        if let DecideError::NotAuditable(fault) = &error {
            words = format!("{words}: {}", fault_words(fault));
        }
        if let DecideError::Refused(DecisionRefused::InvalidInput(problems)) = &error {
            let at =
                |pointer: &str| if pointer.is_empty() { "the whole".to_owned() } else { pointer.to_owned() };
            let listed: Vec<String> = problems
                .iter()
                .map(|problem| format!("at {}: {}", at(&problem.pointer), problem.detail))
                .collect();
            words = format!("{words}: {}", listed.join("; "));
        }
        Self::refused(error.code(), &words)
    }
}

/// What the store says, why, and what to do.
fn fault_words(fault: &StoreFault) -> String {
    let why = fault.source().map(|source| format!(" ({source})")).unwrap_or_default();
    let next = if matches!(fault, StoreFault::Full(_)) {
        "make room on the disk and try again"
    } else if matches!(fault, StoreFault::ReadOnly(_)) {
        "make the database and its folder readable and writable for this account and try again"
    } else if matches!(fault, StoreFault::Busy(_)) {
        "another process holds it for too long; try again"
    } else if matches!(fault, StoreFault::Unreachable(_)) {
        "see that its server runs and answers under this address, and try again"
    } else {
        "what was stored before is kept; try again, or put back a copy"
    };
    format!("{fault}{why}; {next}")
}
