//! Runs and questions as somebody may see them.
//!
//! Invariant: what a caller may not see is answered like what is not there, whatever the reason. What is shown is the log
//! as read, and a question as it stands at this moment. Not here: who may see what (`countersign_core::rights`).

use std::time::Duration;

use countersign::{Entry, LoadError, PendingId, PendingRecord, Principal, Run, RunId, RunListing};
use serde_json::Value;

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Problem};
use crate::json::{self, View};
use crate::show::pending::Now;

/// How many runs of a page are loaded together: few enough to be in memory at once, however long their logs are.
const LOADED_TOGETHER: usize = 16;

/// A run with its log.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) log: Vec<Entry>,
    pub(crate) run: Run,
}

impl App {
    /// A run that the caller may see.
    pub(crate) async fn seen(&self, id: &str, caller: &Caller) -> Answer<Seen> {
        self.seen_if(id, caller, Principal::may_see).await
    }

    /// A run, if `may` says so.
    pub(crate) async fn seen_if(
        &self,
        id: &str,
        caller: &Caller,
        may: impl Fn(&Principal, &Run) -> bool,
    ) -> Answer<Seen> {
        let id = RunId::parse(id).map_err(Problem::no_name("run"))?;
        let principal = caller.principal();
        match self.load(&id).await {
            Ok(seen) if may(principal, &seen.run) => Ok(seen),
            Ok(_) => Err(Problem::not_found("run")),
            // That a run cannot be read is told to those whose it is by its row.
            Err(error @ (LoadError::Unreadable { .. } | LoadError::Erased { .. })) => {
                let listing = self.store().run(&id, self.clock().now()).await;
                let seen = listing.is_ok_and(|listing| principal.may_see_line(&listing.row));
                Err(if seen || principal.admin { error.into() } else { Problem::not_found("run") })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A run as its log says, whoever asks.
    pub(crate) async fn load(&self, id: &RunId) -> Result<Seen, LoadError> {
        let log = self.store().load(id).await?;
        let run = Run::fold(id.clone(), &log.entries);
        let run =
            run.map_err(|illegal| LoadError::Unreadable { run: id.clone(), reason: illegal.to_string() })?;
        Ok(Seen { log: log.entries, run })
    }

    /// Shows each line of a page together with its run. One that cannot be read hides no other (R2).
    pub(crate) async fn each_with_its_run<L>(
        &self,
        lines: &[L],
        run_of: impl Fn(&L) -> &RunId,
        mut show: impl FnMut(&L, Result<Run, LoadError>),
    ) -> Answer<()> {
        for lines in lines.chunks(LOADED_TOGETHER) {
            let ids: Vec<RunId> = lines.iter().map(|line| run_of(line).clone()).collect();
            let runs = self.runtime().load_each(&ids).await?;
            lines.iter().zip(runs).for_each(|(line, run)| show(line, run));
        }
        Ok(())
    }

    /// The run of a question that the caller may see.
    pub(crate) async fn asked(&self, id: &str, caller: &Caller) -> Answer<(PendingId, Run)> {
        let id = PendingId::parse(id).map_err(Problem::no_name("question"))?;
        let row = self.store().pending(&id).await?.ok_or_else(|| Problem::not_found("question"))?;
        if !caller.principal().may_see_questions_of(&row.owner) {
            return Err(Problem::not_found("question"));
        }
        let run = self.load(&row.run).await?.run;
        // The row may have been changed by somebody else; the log counts.
        let is_seen = caller.principal().may_see_questions_of(&run.created().owner);
        if is_seen && run.pending(&id).is_some() {
            Ok((id, run))
        } else {
            Err(Problem::not_found("question"))
        }
    }

    /// A run as JSON.
    pub(crate) async fn run_json(&self, run: &Run, caller: &Caller, listed: bool) -> Answer<Value> {
        let leased = self.store().run(run.id(), self.clock().now()).await?.leased;
        Ok(self.shown(run, leased, View { admin: caller.principal().admin, listed }))
    }

    /// The same, where it is known whether somebody works on it.
    pub(crate) fn shown(&self, run: &Run, leased: bool, view: View) -> Value {
        let mut shown = json::run(run, leased, view);
        if let Some(record) = run.open_pending() {
            json::as_now(&mut shown["pending"], record, &Now::of(self.runtime(), run, record));
        }
        shown
    }

    /// A question as JSON.
    pub(crate) fn question_json(&self, record: &PendingRecord, run: &Run, view: View) -> Value {
        let mut shown = json::pending(record, run, view);
        json::as_now(&mut shown, record, &Now::of(self.runtime(), run, record));
        shown
    }

    /// Returns when the run has stopped (it waits for a person, or has ended), or when the time is over.
    pub(crate) async fn until_it_stops(&self, id: &RunId, patience: Duration) -> Answer<RunListing> {
        let mut watcher = self.watchers().watch(id);
        let clock = self.clock();
        let over = clock.sleep(patience);
        tokio::pin!(over);
        loop {
            let listing = self.store().run(id, clock.now()).await?;
            if listing.row.state != countersign::RunState::Active {
                return Ok(listing);
            }
            tokio::select! {
                () = watcher.something(&*clock) => {}
                () = &mut over => return Ok(listing),
                () = self.end().cancelled() => return Ok(listing),
            }
        }
    }
}
