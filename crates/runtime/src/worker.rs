//! Claim, drive, release: whatever work is owed, until none is left.
//!
//! Invariant: a worker claims only runs of agents it knows (R6), and one run that cannot be driven stops no
//! other (R2).

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_core::{AgentName, Run, RunId};
use tokio_util::sync::CancellationToken;

use crate::driver::{Claimed, Halt, drive};
use crate::journal::DriveError;
use crate::progress::Progress;
use crate::runtime::{Runtime, hex};
use crate::store::{Revision, StoreFault};

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
        let mut stuck = BTreeSet::new();
        while !stop.is_cancelled() {
            let (now, length) = (parts.clock.now(), parts.limits.lease);
            let claimed = parts.store.claim_any(&agents, hex(parts.clock.random()), now, length).await?;
            let Some(lease) = claimed else { break };
            let run = lease.run.clone();
            // One that could not be driven here comes back last: the others have had their turn.
            if stuck.contains(&run) {
                parts.store.release(&lease, Revision::PAST_ALL).await?;
                break;
            }
            let claimed = Claimed::new(lease, now, length);
            let driven = drive(Arc::clone(parts), claimed, Arc::clone(&progress), stop.clone()).await;
            if !matches!(driven, Ok((Halt::Parked | Halt::Ended | Halt::Stopped, _))) {
                stuck.insert(run.clone());
            }
            done.push(Worked { run, came_to: driven.map(|(_, run)| run) });
        }
        Ok(done)
    }
}
