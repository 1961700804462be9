//! The runs that a run continues.
//!
//! Invariant: they are read, never copied, and all of them or none: a conversation with a hole in it is not
//! gone on with (R10). Not here: what of them is sent (`countersign_core::Transcript`).

use countersign_core::{Run, RunId};

use crate::journal::load;
use crate::store::{LoadError, Store};

/// The most runs that one conversation goes over.
pub(crate) const CONTINUATIONS_MAX: usize = 1000;

/// A run and those before it.
///
/// # Errors
/// [`LoadError`] of the first that is not there or cannot be read.
pub(crate) async fn load_with_earlier(store: &dyn Store, id: &RunId) -> Result<(Run, Vec<Run>), LoadError> {
    let run = load(store, id).await?;
    let earlier = earlier(store, &run).await?;
    Ok((run, earlier))
}

/// The runs before this one, oldest first.
///
/// # Errors
/// [`LoadError`] of the first that is not there or cannot be read.
pub(crate) async fn earlier(store: &dyn Store, run: &Run) -> Result<Vec<Run>, LoadError> {
    let mut runs: Vec<Run> = Vec::new();
    while let Some(before) = &runs.last().unwrap_or(run).created().continues {
        if runs.len() == CONTINUATIONS_MAX {
            let reason = format!("its conversation goes over more than {CONTINUATIONS_MAX} runs");
            return Err(LoadError::Unreadable { run: run.id().clone(), reason });
        }
        let before = load(store, before).await?;
        runs.push(before);
    }
    runs.reverse();
    Ok(runs)
}
