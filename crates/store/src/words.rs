//! The words by which a list is walked.
//!
//! Invariant: the indexes are in the order of the numbers only within one starter, owner or agent and one word, so a list is a
//! merge of one walk for each word that it may show. Whoever asks for no word in particular is shown all that are
//! known; a row with another one could not be read. Not here: SQL, which each database spells by itself.

use countersign::{PendingFilter, PendingStatus, RunFilter, RunState};

/// The states of a list of runs, each to be walked by itself; `[None]`: all of them together, by key.
pub(crate) fn of_runs(filter: &RunFilter) -> Vec<Option<RunState>> {
    let RunFilter { states, agent, owner, starter } = filter;
    let is_by_key = states.is_empty() && agent.is_none() && owner.is_none() && starter.is_none();
    if is_by_key {
        return vec![None];
    }
    let is_wanted = |state: &RunState| filter.states.is_empty() || filter.states.contains(state);
    RunState::ALL.into_iter().filter(is_wanted).map(Some).collect()
}

/// The same for a list of pendings. A run has few of them, which are walked together.
pub(crate) fn of_pendings(filter: &PendingFilter) -> Vec<Option<PendingStatus>> {
    match filter {
        PendingFilter { status: Some(status), .. } => vec![Some(*status)],
        PendingFilter { status: None, run: None, owner: None, agent: None }
        | PendingFilter { status: None, run: Some(_), .. } => vec![None],
        PendingFilter { status: None, run: None, .. } => PendingStatus::ALL.map(Some).to_vec(),
    }
}
