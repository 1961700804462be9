//! The library's front: start a run, drive it, settle what it asks, look at its policy.
//!
//! Invariant: everything a caller can do to a run goes through here or through `decide`; neither executes
//! anything. Not here: the loop itself (`driver`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    AgentName, Changes, Closing, Created, Digest, End, Event, GateDenied, Illegal, InputMessage, InputRole,
    ModelRef, PendingClosed, PendingId, PendingRecord, PendingRow, Principal, Run, RunId, Subject,
    ToolRequest, Zone,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, Agents};
use crate::clock::Clock;
use crate::driver::{Claimed, Halt, drive};
use crate::earlier::{CONTINUATIONS_MAX, load_with_earlier};
use crate::journal::{DriveError, fold, load};
use crate::judge::denials;
use crate::look::PolicyLook;
use crate::model::Models;
use crate::progress::{Progress, Unwatched};
use crate::registry::Registry;
use crate::store::{
    Append, AppendError, ClaimError, CreateError, Lease, LoadError, Revision, StartKey, StartedBefore, Store,
    StoreFault, Writer,
};

/// How many overdue questions are looked at together.
const SWEEP_PAGE: usize = 100;

/// The bounds of this process. No default: whoever builds a runtime says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a silent worker keeps a run (R6); at most [`Lease::LONGEST`]. Its heartbeat is a
    /// third of it.
    pub lease: Duration,
    /// How many reads of a turn run at once (L4).
    pub parallel_reads: usize,
    /// How often a driver looks whether somebody else wrote to its run while it waits.
    pub poll: Duration,
}

/// Everything a runtime is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where runs are kept.
    pub store: Arc<dyn Store>,
    /// The providers.
    pub models: Models,
    /// The tools.
    pub tools: Registry,
    /// The agents.
    pub agents: Agents,
    /// The bounds of this process.
    pub limits: Limits,
    /// Time and chance.
    pub clock: Arc<dyn Clock>,
}

impl Parts {
    /// Whether the model that serves the run is configured. A fallback that is not is passed over.
    pub(crate) fn knows_the_model_of(&self, run: &Run) -> bool {
        run.created().models.first().is_some_and(|model| self.models.find(model).is_some())
    }

    /// Whether a conversation may go to these models: what was read for more trusted ones does not go to others
    /// by way of a continuation (P5, P7). Who was to hear it before may hear it again.
    fn may_hear(&self, models: &[ModelRef], before: &Run) -> Result<(), StartError> {
        if !self.agents.enforces() {
            return Ok(());
        }
        let heard = &before.created().models;
        // A provider that is gone does not say what it was trusted with, so it makes no room.
        let zones = heard.iter().filter_map(|model| self.models.find(model)).map(|provider| provider.zone);
        let trusted = zones.max().unwrap_or(Zone::Local);
        let is_new = |model: &&ModelRef| !heard.iter().any(|heard| heard.provider == model.provider);
        for model in models.iter().filter(is_new) {
            let zone = self.models.find(model).map_or(Zone::ExternalGlobal, |provider| provider.zone);
            if zone > trusted {
                let reason = format!(
                    "its conversation was held in the zone {}, and {model} stands in {}, which is trusted less",
                    trusted.as_str(),
                    zone.as_str()
                );
                return Err(StartError::NotContinuable { run: before.id().clone(), reason });
            }
        }
        Ok(())
    }
}

/// The runtime. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) parts: Arc<Parts>,
    /// Rung when work may be owed. Only a hint: whoever waits for it polls as well.
    pub(crate) bell: Arc<Notify>,
}

/// What a run is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// Which agent.
    pub agent: AgentName,
    /// The conversation so far.
    pub input: Vec<InputMessage>,
    /// Which tools are wanted (G8).
    pub tools: ToolRequest,
    /// Another model than the agent's; the chain is then this one alone.
    pub model: Option<ModelRef>,
    /// A lower cap of iterations; a higher one has no effect (L1).
    pub max_iterations: Option<u32>,
    /// A lower budget of working time; a higher one has no effect (L5).
    pub max_working_time: Option<Duration>,
    /// The run whose conversation this one goes on with: of the same owner, and ended (R10).
    pub continue_from: Option<RunId>,
    /// Under whose identity it runs.
    pub owner: Subject,
    /// Who starts it; the owner, unless on the owner's behalf.
    pub starter: Subject,
    /// Where the starting of it is traced, as [`Progress::takes_up`] reads it; absent where nobody traces.
    pub trace: Option<String>,
}

impl RunRequest {
    /// A task for an agent, started by its owner, with all enabled tools; change the other fields at will.
    pub fn new(agent: AgentName, owner: Subject, task: &str) -> Self {
        Self {
            agent,
            input: vec![InputMessage { role: InputRole::User, text: task.to_owned() }],
            tools: ToolRequest::AllEnabled,
            model: None,
            max_iterations: None,
            max_working_time: None,
            continue_from: None,
            starter: owner.clone(),
            owner,
            trace: None,
        }
    }
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No agent of this name.
    #[error("there is no agent {0}")]
    UnknownAgent(AgentName),
    /// The model that would serve it is not configured.
    #[error("the model {0} is not configured")]
    UnknownModel(ModelRef),
    /// Nothing to do.
    #[error("the input is empty")]
    EmptyInput,
    /// There is no such run to continue, or it is somebody else's.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// What it would continue has not ended.
    #[error("run {0} has not ended, so it cannot be continued yet")]
    RunNotEnded(RunId),
    /// What it would continue cannot be read or was erased, or what that continues.
    #[error("run {run} cannot be continued: {reason}")]
    NotContinuable {
        /// The run that would be continued.
        run: RunId,
        /// What stands against it.
        reason: String,
    },
    /// The start key stands for another request.
    #[error("this key was used for another request")]
    KeyReused,
    /// The store failed; there is no run.
    #[error("the run could not be stored")]
    Store(#[from] StoreFault),
}

/// Why a run could not be driven, or is not started at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It was not started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It could not be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It was started, and then the driver had to stop. It can be taken up again.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The driver was asked to stop. The run can be taken up again.
    #[error("run {0} was left as it is, to be taken up again")]
    Stopped(RunId),
    /// Its agent or its model is not configured here. It waits for a process that knows them.
    #[error("the agent or the model of run {0} is not configured here")]
    AgentGone(RunId),
}

/// Where a run stopped.
#[derive(Debug)]
pub enum Outcome {
    /// It has ended.
    Done(Box<Finished>),
    /// It waits for a person. It is stored; the process may end here.
    Waiting(Box<Waiting>),
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The run.
    pub run: Run,
}

impl Finished {
    /// What the model answered, if it said something.
    pub fn output(&self) -> Option<&str> {
        self.run.output()
    }

    /// How it ended.
    pub fn end(&self) -> Option<&End> {
        self.run.end()
    }
}

/// A run that waits for a person.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The open question's id.
    pub id: PendingId,
    /// Its digest, which a decision must name.
    pub digest: Digest,
    /// The question.
    pub record: PendingRecord,
    /// The run.
    pub run: Run,
}

/// Why a run cannot be cancelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// There is none, or the caller may not see it.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// It has ended, or is being cancelled already.
    #[error("the run has ended, or is being cancelled already")]
    NotCancellable,
    /// It cannot be read.
    #[error("the run cannot be read: {0}")]
    Unreadable(String),
    /// The store failed; nothing was cancelled.
    #[error("the cancel could not be stored")]
    Store(#[from] StoreFault),
}

/// The loop, as others inject and fake it.
#[async_trait]
pub trait AgentLoop: Send + Sync {
    /// Starts a run and drives it to its first stop.
    ///
    /// # Errors
    /// [`RunError`].
    async fn run(&self, request: RunRequest) -> Result<Outcome, RunError>;

    /// Takes up a run and drives it to its next stop.
    ///
    /// # Errors
    /// [`RunError`].
    async fn drive(&self, run: &RunId) -> Result<Outcome, RunError>;
}

#[async_trait]
impl AgentLoop for Runtime {
    async fn run(&self, request: RunRequest) -> Result<Outcome, RunError> {
        Self::run(self, request).await
    }

    async fn drive(&self, run: &RunId) -> Result<Outcome, RunError> {
        Self::drive(self, run).await
    }
}

impl Runtime {
    /// Builds a runtime. Every part is named; none is optional.
    pub fn new(mut parts: Parts) -> Self {
        parts.limits.lease = parts.limits.lease.min(Lease::LONGEST);
        Self { parts: Arc::new(parts), bell: Arc::default() }
    }

    /// What it is made of.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Starts a run and drives it to its first stop.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn run(&self, request: RunRequest) -> Result<Outcome, RunError> {
        let run = self.start(request, Mode::Attended).await?;
        self.drive(&run).await
    }

    /// Takes up a run and drives it to its next stop.
    ///
    /// # Errors
    /// [`RunError`]; a run that waits or has ended already is no error.
    pub async fn drive(&self, run: &RunId) -> Result<Outcome, RunError> {
        self.drive_watched(run, Arc::new(Unwatched), CancellationToken::new()).await
    }

    /// The same, with somebody watching, and a way to stop at the next boundary.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn drive_watched(
        &self,
        run: &RunId,
        progress: Arc<dyn Progress>,
        stop: CancellationToken,
    ) -> Result<Outcome, RunError> {
        loop {
            let stopped = match self.claim(run).await {
                Ok(claimed) => {
                    match drive(Arc::clone(&self.parts), claimed, Arc::clone(&progress), stop.clone()).await?
                    {
                        (Halt::Parked | Halt::Ended, run) => run,
                        (Halt::Stopped, run) => return Err(RunError::Stopped(run.id().clone())),
                        (Halt::AgentGone, run) => return Err(RunError::AgentGone(run.id().clone())),
                    }
                }
                Err(ClaimError::NotActive(_)) => self.load(run).await.map_err(DriveError::from)?,
                Err(error) => return Err(error.into()),
            };
            // If work is owed all the same, an answer arrived between the claim and the look.
            if let Some(outcome) = outcome(stopped) {
                return Ok(outcome);
            }
        }
    }

    async fn claim(&self, run: &RunId) -> Result<Claimed, ClaimError> {
        let (now, length) = (self.parts.clock.now(), self.parts.limits.lease);
        let lease = self.parts.store.claim(run, hex(self.parts.clock.random()), now, length).await?;
        Ok(Claimed::new(lease, now, length))
    }

    /// A run as its log says.
    ///
    /// # Errors
    /// [`LoadError`].
    pub async fn load(&self, run: &RunId) -> Result<Run, LoadError> {
        load(&*self.parts.store, run).await
    }

    /// Several runs as their logs say, in this order: a page of a list. One that cannot be read says so in its place and
    /// stops no other (R2). All are in memory at once, so ask for few.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Run, LoadError>>, StoreFault> {
        let logs = self.parts.store.load_each(runs).await?;
        Ok(runs.iter().zip(logs).map(|(run, log)| fold(run, &log?)).collect())
    }

    /// Stores a new run, which any worker may take up.
    ///
    /// # Errors
    /// [`StartError`]; there is no run then.
    pub async fn start(&self, request: RunRequest, mode: Mode) -> Result<RunId, StartError> {
        let changes = self.planned(request, mode).await?;
        let id = changes.row().id.clone();
        self.parts.store.create(changes).await.map_err(not_created)?;
        self.wake();
        Ok(id)
    }

    /// The same, once for each key: who asks again with the same key and the same body gets the same run.
    ///
    /// # Errors
    /// [`StartError`]; no further run was stored then.
    pub async fn start_once(
        &self,
        request: RunRequest,
        mode: Mode,
        key: &StartKey,
    ) -> Result<RunId, StartError> {
        // Looked up first: what was started once is found again whatever has become of its agent.
        let before = match self.parts.store.started(key).await? {
            Some(before) => Some(before),
            None => {
                let changes = self.planned(request, mode).await?;
                let id = changes.row().id.clone();
                match self.parts.store.create_once(changes, key).await.map_err(not_created)? {
                    None => {
                        self.wake();
                        return Ok(id);
                    }
                    before => before,
                }
            }
        };
        match before {
            Some(StartedBefore::Same(run)) => Ok(run),
            Some(StartedBefore::OtherBody) | None => Err(StartError::KeyReused),
        }
    }

    /// Rings the bell for workers of this process that wait for something to do. What is owed is found without it too,
    /// a little later.
    pub fn wake(&self) {
        self.bell.notify_one();
    }

    async fn planned(&self, request: RunRequest, mode: Mode) -> Result<Changes, StartError> {
        let parts = &self.parts;
        let agent = parts
            .agents
            .find(&request.agent)
            .ok_or_else(|| StartError::UnknownAgent(request.agent.clone()))?;
        if request.input.iter().all(|message| message.text.trim().is_empty()) {
            return Err(StartError::EmptyInput);
        }
        let models = request.model.clone().map_or_else(|| agent.models.clone(), |model| vec![model]);
        match models.first() {
            Some(first) if parts.models.find(first).is_some() => {}
            Some(first) => return Err(StartError::UnknownModel(first.clone())),
            None => return Err(StartError::UnknownAgent(request.agent)),
        }
        if let Some(before) = &request.continue_from {
            let before = self.predecessor(before, &request.owner).await?;
            parts.may_hear(&models, &before)?;
        }
        let look = parts.store.look(std::slice::from_ref(&request.owner)).await?;
        let created = created(agent, models, request, mode);
        let policy = PolicyLook::new(Arc::clone(parts), agent, &created.models, look, &created.owner);
        let events = denials(&policy.policy(), &created.tools)
            .into_iter()
            .map(|(tool, gate, observed_only)| Event::GateDenied(GateDenied::by(&tool, gate, observed_only)))
            .collect();
        let id = RunId::from_random(parts.clock.random());
        let (_, changes) =
            Run::create(id, created, events, parts.clock.now()).map_err(|illegal| not_storable(&illegal))?;
        Ok(changes)
    }

    /// A run that this person may continue (R10): it has ended, and it and all that it continues can be read.
    ///
    /// # Errors
    /// [`StartError`], which says what stands against it.
    pub async fn predecessor(&self, id: &RunId, owner: &Subject) -> Result<Run, StartError> {
        let store = &*self.parts.store;
        let not_continuable = |reason: String| StartError::NotContinuable { run: id.clone(), reason };
        // Whose it is stands in its row, also where its log cannot be read. Of a foreign run nothing is said.
        let row = match store.run(id, self.parts.clock.now()).await {
            Ok(listing) if listing.row.owner == *owner => listing.row,
            Ok(_) | Err(LoadError::NotFound(_) | LoadError::Unreadable { .. } | LoadError::Erased { .. }) => {
                return Err(StartError::NoSuchRun(id.clone()));
            }
            Err(LoadError::Fault(fault)) => return Err(fault.into()),
        };
        if !row.state.is_end() {
            return Err(StartError::RunNotEnded(id.clone()));
        }
        let (run, earlier) = match load_with_earlier(store, id).await {
            Ok(loaded) => loaded,
            Err(LoadError::NotFound(gone)) => {
                return Err(not_continuable(format!("run {gone} is not there")));
            }
            Err(LoadError::Erased { run, at }) if run == *id => {
                return Err(not_continuable(format!("its content was erased at {at}")));
            }
            Err(LoadError::Unreadable { run, reason }) if run == *id => return Err(not_continuable(reason)),
            Err(unreadable @ (LoadError::Unreadable { .. } | LoadError::Erased { .. })) => {
                return Err(not_continuable(unreadable.to_string()));
            }
            Err(LoadError::Fault(fault)) => return Err(fault.into()),
        };
        if earlier.len() + 1 < CONTINUATIONS_MAX {
            Ok(run)
        } else {
            Err(not_continuable(format!("its conversation goes over {CONTINUATIONS_MAX} runs already")))
        }
    }

    /// One look at switches and rights: the five gates for this agent and this principal.
    ///
    /// # Errors
    /// [`StartError`] when there is no such agent, or the store failed.
    pub async fn policy(&self, agent: &AgentName, actor: &Subject) -> Result<PolicyLook, StartError> {
        let found = self.parts.agents.find(agent).ok_or_else(|| StartError::UnknownAgent(agent.clone()))?;
        let look = self.parts.store.look(std::slice::from_ref(actor)).await?;
        Ok(PolicyLook::new(Arc::clone(&self.parts), found, &found.models, look, actor))
    }

    /// Cancels a run: at once where nothing that writes is in flight, else at the next boundary (R8).
    ///
    /// # Errors
    /// [`CancelError`].
    pub async fn cancel(&self, id: &RunId, by: &Principal) -> Result<Run, CancelError> {
        let run = self.load(id).await.map_err(|error| match error {
            LoadError::NotFound(run) => CancelError::NotFound(run),
            LoadError::Unreadable { reason, .. } => CancelError::Unreadable(reason),
            // Only what has ended is erased.
            LoadError::Erased { .. } => CancelError::NotCancellable,
            LoadError::Fault(fault) => CancelError::Store(fault),
        })?;
        if !by.may_cancel(&run) {
            return Err(CancelError::NotFound(id.clone()));
        }
        let at = self.parts.clock.now();
        let cancelled = self.append_anyway(run, |run| run.cancellation(&by.subject, at).ok()).await;
        match cancelled {
            Ok(Some(run)) => Ok(run),
            Ok(None) | Err(LoadError::Erased { .. }) => Err(CancelError::NotCancellable),
            Err(LoadError::NotFound(run)) => Err(CancelError::NotFound(run)),
            Err(LoadError::Unreadable { reason, .. }) => Err(CancelError::Unreadable(reason)),
            Err(LoadError::Fault(fault)) => Err(fault.into()),
        }
    }

    /// Whether the run's agent or its model is not configured here, so that nobody here drives it (R7).
    pub fn is_agent_gone(&self, run: &Run) -> bool {
        self.parts.second_approver_of(run).is_none()
    }

    /// Closes the open question of a run if a tool of it is no longer what it was (M2), so that the run goes on.
    /// `None`: it is not void.
    ///
    /// # Errors
    /// [`LoadError`].
    pub async fn close_void(&self, run: Run) -> Result<Option<Run>, LoadError> {
        self.append_anyway(run, |run| {
            let open = &run.open_pending()?.pending;
            open.changed(&self.parts.tools).next()?;
            let closing = PendingClosed { pending: open.id.clone(), status: Closing::Void, by: None };
            Some(vec![Event::PendingClosed(closing)])
        })
        .await
    }

    /// Closes questions whose time has run out (A10), and says how many. Correctness does not rest on it.
    ///
    /// # Errors
    /// [`StoreFault`] when the list cannot be read; a run that cannot be read is passed over.
    pub async fn sweep(&self) -> Result<usize, StoreFault> {
        Ok(self.close_expired().await?.len())
    }

    /// The same, and says which.
    ///
    /// # Errors
    /// As [`Self::sweep`].
    pub async fn close_expired(&self) -> Result<Vec<PendingRow>, StoreFault> {
        let mut closed = Vec::new();
        let mut passed_over = BTreeSet::new();
        loop {
            // Those that cannot be closed stay at the head of the list; the page grows past them.
            let limit = SWEEP_PAGE + passed_over.len();
            let overdue = self.parts.store.overdue(self.parts.clock.now(), limit).await?;
            let is_last_page = overdue.len() < limit;
            for row in overdue {
                if self.close_overdue(&row).await {
                    closed.push(row);
                } else {
                    passed_over.insert(row.id);
                }
            }
            if is_last_page {
                return Ok(closed);
            }
        }
    }

    async fn close_overdue(&self, row: &PendingRow) -> bool {
        let Ok(run) = self.load(&row.run).await else { return false };
        let now = self.parts.clock.now();
        let swept = self
            .append_anyway(run, |run| {
                let open = run.open_pending().filter(|open| open.pending.id == row.id)?;
                let closing = PendingClosed { pending: row.id.clone(), status: Closing::Expired, by: None };
                open.pending.expires_at.has_passed(now).then(|| vec![Event::PendingClosed(closing)])
            })
            .await;
        matches!(swept, Ok(Some(_)))
    }

    /// Appends what a plan makes of the run, without a lease; planned again where the log has moved on.
    /// `None`: the plan wanted nothing.
    pub(crate) async fn append_anyway(
        &self,
        mut run: Run,
        plan: impl Fn(&Run) -> Option<Vec<Event>>,
    ) -> Result<Option<Run>, LoadError> {
        let id = run.id().clone();
        loop {
            let now = self.parts.clock.now();
            let planned = plan(&run).and_then(|events| run.record(events, now).ok());
            let Some((after, changes)) = planned else { return Ok(None) };
            let at = Revision(run.revision());
            match self.parts.store.append(&id, at, &Writer::Anyone, now, Append::Plain(changes)).await {
                Ok(_) => {
                    self.wake();
                    return Ok(Some(after));
                }
                Err(AppendError::Conflict | AppendError::LeaseLost) => run = self.load(&id).await?,
                Err(AppendError::NotFound(run)) => return Err(LoadError::NotFound(run)),
                Err(AppendError::Unreadable { run, reason }) => {
                    return Err(LoadError::Unreadable { run, reason });
                }
                Err(AppendError::Fault(fault)) => return Err(fault.into()),
            }
        }
    }
}

/// Whether a run may ever ask a person (U3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It pauses where a person is needed.
    Attended,
    /// It never waits: what needs a person is not offered, and refused at dispatch.
    Unattended,
}

fn created(agent: &Agent, models: Vec<ModelRef>, request: RunRequest, mode: Mode) -> Created {
    let mut limits = agent.limits;
    limits.iterations_max =
        request.max_iterations.map_or(limits.iterations_max, |wanted| wanted.min(limits.iterations_max));
    let working_ms = request.max_working_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    limits.working_ms_max = working_ms.into_iter().chain(limits.working_ms_max).min();
    Created {
        agent: agent.name.clone(),
        owner: request.owner,
        starter: request.starter,
        unattended: mode == Mode::Unattended,
        tools: request.tools,
        models,
        system_prompt: agent.system_prompt.clone(),
        input: request.input,
        limits,
        // A fraction of a second is rounded up: a question is never shorter open than the agent says.
        approval_ttl_s: agent.approval_ttl.map(|ttl| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)),
        second_approver: agent.second_approver,
        continues: request.continue_from,
        skills: agent.skills.clone(),
        trace: request.trace,
    }
}

/// Where a run stopped; `None`: work is owed.
fn outcome(run: Run) -> Option<Outcome> {
    if run.end().is_some() {
        return Some(Outcome::Done(Box::new(Finished { run })));
    }
    let record = run.open_pending().cloned()?;
    let digest = record.pending.digest(run.id());
    Some(Outcome::Waiting(Box::new(Waiting { id: record.pending.id.clone(), digest, record, run })))
}

fn not_created(error: CreateError) -> StartError {
    match error {
        CreateError::Exists => StartError::Store(StoreFault::Failed("an id was given out twice".into())),
        // It was erased or removed a moment ago.
        CreateError::NotContinuable(run) => StartError::NoSuchRun(run),
        CreateError::Fault(fault) => StartError::Store(fault),
    }
}

fn not_storable(illegal: &Illegal) -> StartError {
    StartError::Store(StoreFault::Failed(illegal.to_string().into()))
}

pub(crate) fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
