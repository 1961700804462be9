//! Claim, drive, release: whatever work is owed, by at most so many drivers at once, until the process is to end.
//!
//! Invariant: a worker claims only runs of agents it knows (R6), and one run that cannot be driven stops no other (R2).
//! Correctness never rests on the bell: who waits for work polls as well. Not here: the loop itself (`driver`).

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::{AgentName, Run, RunId};
use jiff::Timestamp;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::driver::{Claimed, Halt, drive};
use crate::journal::DriveError;
use crate::progress::Progress;
use crate::runtime::{Parts, Runtime, hex};
use crate::store::{Lease, Revision, StoreFault};

/// How long a run that could not be driven is left alone, at least.
const STUCK_FOR: Duration = Duration::from_secs(30);

/// How long a run that could not be driven is left alone. One that cannot be read keeps its lease until that runs out, and
/// is left alone for as long again, in which a newer process that can read it comes first (R2).
fn stuck_for(lease: Duration) -> Duration {
    STUCK_FOR.max(lease * 2)
}

/// What a worker came to with one run.
#[derive(Debug)]
pub struct Worked {
    /// The run.
    pub run: RunId,
    /// Where it stands now, or why it could not be driven.
    pub came_to: Result<Run, DriveError>,
}

/// How much a process works, and until when.
#[derive(Clone, Debug)]
pub struct Shift {
    /// The most runs that are driven at once.
    pub concurrency: NonZeroUsize,
    /// How long calls in flight may take to come back after the end.
    pub grace: Duration,
    /// Cancelled: claims nothing more, and drivers stop at their next boundary.
    pub end: CancellationToken,
    /// Cancelled: the grace is over at once.
    pub cut: CancellationToken,
}

/// Whoever watches the workers of a process. Watching changes nothing.
pub trait Overseer: Send + Sync {
    /// Who watches this run.
    fn progress(&self, run: &RunId) -> Arc<dyn Progress>;

    /// A run was let go of.
    fn came_to(&self, worked: &Worked);

    /// Nothing can be claimed; it is tried again.
    fn cannot_claim(&self, fault: &StoreFault);
}

/// What became of the runs that were being driven when the shift ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// They came to a stop of their own, or to a boundary: anybody may take them up.
    pub let_go: usize,
    /// A call was in flight when the grace was over. A write among them is of unknown outcome.
    pub cut: usize,
}

/// A run, and how far it was driven.
type Driven = (RunId, Result<(Halt, Run), DriveError>);

/// Those that are being driven.
struct Crew {
    drivers: JoinSet<Driven>,
    leases: HashMap<Id, Lease>,
    stuck: Stuck,
}

/// The runs that could not be driven here, and until when each is left alone.
#[derive(Default)]
struct Stuck(HashMap<RunId, Timestamp>);

impl Stuck {
    /// Leaves a run alone for a while if that is what came of it.
    fn note(&mut self, run: &RunId, driven: &Result<(Halt, Run), DriveError>, parts: &Parts) {
        if !matches!(driven, Ok((Halt::Parked | Halt::Ended | Halt::Stopped, _))) {
            let now = parts.clock.now();
            self.0.insert(run.clone(), now.checked_add(stuck_for(parts.limits.lease)).unwrap_or(now));
        }
    }
}

impl Runtime {
    /// Works until the shift ends: takes up every run that is owed work and that nobody works on, and drives it to its
    /// next stop. A store that fails is asked again.
    pub async fn work(&self, shift: Shift, overseer: Arc<dyn Overseer>) -> Drained {
        let mut crew = Crew { drivers: JoinSet::new(), leases: HashMap::new(), stuck: Stuck::default() };
        // Said once, however often it is tried in vain.
        let mut is_refused = false;
        while !shift.end.is_cancelled() {
            let is_full = crew.drivers.len() >= shift.concurrency.get();
            let claimed = if is_full { Ok(None) } else { self.claim_next(&mut crew.stuck).await };
            let was_refused = std::mem::replace(&mut is_refused, claimed.is_err());
            let claimed = claimed.unwrap_or_else(|fault| {
                if !was_refused {
                    overseer.cannot_claim(&fault);
                }
                None
            });
            if let Some(claimed) = claimed {
                crew.start(self, claimed, &*overseer, &shift.end);
                continue;
            }
            tokio::select! {
                () = shift.end.cancelled() => {}
                () = self.bell.notified(), if !is_full => {}
                () = self.parts.clock.sleep(self.parts.limits.poll), if !is_full => {}
                Some(done) = crew.drivers.join_next_with_id() => crew.let_go(done, self, &*overseer),
            }
        }
        self.drain(crew, &shift, &*overseer).await
    }

    /// Takes up every run that nobody works on, one after another, and drives each to its next stop.
    ///
    /// # Errors
    /// [`StoreFault`] when nothing can be claimed at all.
    pub async fn work_off(
        &self,
        progress: Arc<dyn Progress>,
        stop: CancellationToken,
    ) -> Result<Vec<Worked>, StoreFault> {
        let (mut done, mut stuck) = (Vec::new(), Stuck::default());
        while !stop.is_cancelled() {
            let Some(claimed) = self.claim_next(&mut stuck).await? else { break };
            let run = claimed.lease.run.clone();
            let driven = drive(Arc::clone(&self.parts), claimed, Arc::clone(&progress), stop.clone()).await;
            stuck.note(&run, &driven, &self.parts);
            done.push(Worked { run, came_to: driven.map(|(_, run)| run) });
        }
        Ok(done)
    }

    /// The next run that is owed work and not left alone.
    async fn claim_next(&self, stuck: &mut Stuck) -> Result<Option<Claimed>, StoreFault> {
        let parts = &self.parts;
        let agents: Vec<AgentName> = parts.agents.all().map(|agent| agent.name.clone()).collect();
        let now = parts.clock.now();
        stuck.0.retain(|_, until| now < *until);
        // A run that was claimed goes to the end of the queue, so behind those that are left alone come the others.
        for _ in 0..=stuck.0.len() {
            let (now, length) = (parts.clock.now(), parts.limits.lease);
            let claimed = parts.store.claim_any(&agents, hex(parts.clock.random()), now, length).await?;
            let Some(lease) = claimed else { return Ok(None) };
            if !stuck.0.contains_key(&lease.run) {
                return Ok(Some(Claimed::new(lease, now, length)));
            }
            // If it cannot be given back, its lease runs out.
            drop(parts.store.release(&lease, Revision::PAST_ALL).await);
        }
        Ok(None)
    }

    async fn drain(&self, mut crew: Crew, shift: &Shift, overseer: &dyn Overseer) -> Drained {
        let mut drained = Drained::default();
        let grace = self.parts.clock.sleep(shift.grace);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                done = crew.drivers.join_next_with_id() => match done {
                    Some(done) => {
                        crew.let_go(done, self, overseer);
                        drained.let_go += 1;
                    }
                    None => return drained,
                },
                () = &mut grace => break,
                () = shift.cut.cancelled() => break,
            }
        }
        drained.cut = crew.drivers.len();
        crew.drivers.shutdown().await;
        for lease in crew.leases.into_values() {
            // Whoever comes next need not wait for the lease to run out. If this fails, they do.
            drop(self.parts.store.release(&lease, Revision::PAST_ALL).await);
        }
        drained
    }
}

impl Crew {
    fn start(
        &mut self,
        runtime: &Runtime,
        claimed: Claimed,
        overseer: &dyn Overseer,
        end: &CancellationToken,
    ) {
        let lease = claimed.lease.clone();
        let run = lease.run.clone();
        let driven = drive(Arc::clone(&runtime.parts), claimed, overseer.progress(&run), end.clone());
        let driver = self.drivers.spawn(async move { (run, driven.await) });
        self.leases.insert(driver.id(), lease);
    }

    fn let_go(&mut self, done: Result<(Id, Driven), JoinError>, runtime: &Runtime, overseer: &dyn Overseer) {
        match done {
            Ok((id, (run, driven))) => {
                self.leases.remove(&id);
                self.stuck.note(&run, &driven, &runtime.parts);
                overseer.came_to(&Worked { run, came_to: driven.map(|(_, run)| run) });
            }
            // A driver that panicked has told the system so. Its lease runs out, and somebody else goes on.
            Err(lost) => drop(self.leases.remove(&lost.id())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_r2_a_run_that_cannot_be_read_here_is_left_to_others_for_longer_than_its_lease() {
        for lease in [1, 30, 600].map(Duration::from_secs) {
            assert!(stuck_for(lease) >= lease * 2 && stuck_for(lease) >= STUCK_FOR);
        }
    }
}
