//! Callers with nobody to ask: the filter (U1, U2) and runs that never wait (U3).
//!
//! Invariant: a pause is not in the type of an unattended run's outcome. The filter asks the one approval
//! rule; it is an interface of its own, beside the policy's.

use std::sync::Arc;

use countersign_core::{End, FailCode, ToolName, runs_unattended};

use crate::journal::DriveError;
use crate::runtime::{Finished, Mode, Outcome, Parts, RunError, RunRequest, Runtime, StartError};

/// The filter, as others inject and fake it.
pub trait UnattendedFilter: Send + Sync {
    /// Keeps the names that run with no human pause of either kind, in order, with duplicates (U1).
    fn unattended(&self, names: &[ToolName]) -> Vec<ToolName>;
}

/// The filter over this process's tools.
#[derive(Clone, Debug)]
pub struct RegistryFilter {
    parts: Arc<Parts>,
}

impl UnattendedFilter for RegistryFilter {
    fn unattended(&self, names: &[ToolName]) -> Vec<ToolName> {
        let runs =
            |name: &&ToolName| runs_unattended(self.parts.tools.tool(name.as_str()).map(|tool| &tool.spec));
        names.iter().filter(runs).cloned().collect()
    }
}

/// Runs that never wait.
#[derive(Clone, Debug)]
pub struct Unattended {
    runtime: Runtime,
}

/// Why an unattended run gave no end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnattendedError {
    /// A write was started and nobody knows how it ended; the run has failed.
    #[error("it is not known whether a started write happened")]
    OutcomeUnknown(Box<Finished>),
    /// It was not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It could not be driven to its end; it can be taken up again.
    #[error(transparent)]
    Run(RunError),
}

impl Runtime {
    /// The filter of U1.
    pub fn unattended_filter(&self) -> RegistryFilter {
        RegistryFilter { parts: Arc::clone(&self.parts) }
    }

    /// Runs that never wait.
    pub fn unattended(&self) -> Unattended {
        Unattended { runtime: self.clone() }
    }
}

impl Unattended {
    /// Starts a run that is offered only what needs nobody, and drives it to its end.
    ///
    /// # Errors
    /// [`UnattendedError`].
    pub async fn run(&self, request: RunRequest) -> Result<Finished, UnattendedError> {
        let run = self.runtime.start(request, Mode::Unattended).await?;
        match self.runtime.drive(&run).await.map_err(UnattendedError::Run)? {
            Outcome::Done(finished) => match finished.end() {
                Some(End::Failed { code: FailCode::OutcomeUnknown, .. }) => {
                    Err(UnattendedError::OutcomeUnknown(finished))
                }
                _ => Ok(*finished),
            },
            // The fold opens no question in an unattended run; a log that has one is not ours.
            Outcome::Waiting(waiting) => Err(UnattendedError::Run(RunError::Drive(DriveError::Unreadable {
                run: waiting.run.id().clone(),
                reason: "an unattended run waits for a person".to_owned(),
            }))),
        }
    }
}
