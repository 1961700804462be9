//! Claim, drive, release: whatever work is owed, until none is left.
//!
//! Invariant: a worker claims only runs of agents it knows (R6), and one run that cannot be driven stops no
//! other (R2).

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_core::{AgentName, Run, RunId};
use tokio_util::sync::CancellationToken;

use crate::driver::{Halt, drive};
use crate::journal::DriveError;
use crate::progress::Progress;
use crate::runtime::{Runtime, hex};
use crate::store::StoreFault;

/// What a worker came to with one run.
#[derive(Debug)]
pub struct Worked {
    /// The run.
    pub run: RunId,
    /// Where it stands now, or why it could not be driven.
    pub came_to: Result<Run, DriveError>,
}

impl Runtime {
    /// Takes up every run that nobody works on, one after another, and drives each to its next stop.
    ///
    /// # Errors
    /// [`StoreFault`] when nothing can be claimed at all.
    pub async fn work_off(
        &self,
        progress: Arc<dyn Progress>,
        stop: CancellationToken,
    ) -> Result<Vec<Worked>, StoreFault> {
        let parts = &self.parts;
        let agents: Vec<AgentName> = parts.agents.all().map(|agent| agent.name.clone()).collect();
        let mut done = Vec::new();
        let mut seen = BTreeSet::new();
        while !stop.is_cancelled() {
            let token = hex(parts.clock.random());
            let Some(lease) =
                parts.store.claim_any(&agents, token, parts.clock.now(), parts.limits.lease).await?
            else {
                break;
            };
            let run = lease.run.clone();
            // A run that comes back is one that could not be driven here; it stays for somebody else.
            let again = !seen.insert(run.clone());
            if again {
                parts.store.release(&lease, crate::store::Revision(u64::MAX)).await?;
                break;
            }
            let driven = drive(Arc::clone(parts), lease, Arc::clone(&progress), stop.clone()).await;
            let came_to = driven.map(|(halt, run)| {
                debug_assert!(halt != Halt::Stopped || stop.is_cancelled());
                run
            });
            done.push(Worked { run, came_to });
        }
        Ok(done)
    }
}
