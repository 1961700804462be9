//! The port to where runs are kept.
//!
//! Invariant: a store compares, appends and derives; it never looks inside an event and decides nothing.
//! Every change of a run is one append at a known revision (R1), and whatever is judged with it is judged on
//! what the same transaction read (A8, G9). Not here: SQL, sealing (`countersign-store`).

use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    AgentName, CallId, Changes, Digest, Entry, GroupName, PendingId, PendingRow, PendingStatus, People,
    Principal, RunId, RunRow, RunState, Subject, Switches, ToolName,
};
use jiff::Timestamp;

/// How many entries a log has; the sequence of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Past the end of every log: whoever releases with it does not mind what has arrived.
    pub const PAST_ALL: Self = Self(u64::MAX);
}

/// The whole log of a run, opened and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// From sequence 0, gapless.
    pub entries: Vec<Entry>,
}

impl Log {
    /// The revision at which the next append must aim.
    pub fn revision(&self) -> Revision {
        Revision(self.entries.len() as u64)
    }
}

/// The right to work on a run for a while (R6). Random per claim: no two claims share a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run: RunId,
    /// 128 random bits in hex.
    pub token: String,
}

impl Lease {
    /// No lease is longer: a store gives at most this much at once. So whatever a clock did, a worker that died
    /// keeps its run no longer than this.
    pub const LONGEST: Duration = Duration::from_secs(600);

    /// Whether a lease until then keeps others out now. It is over from its end on. One that would end later
    /// than the longest lease from now was given by a clock that has been set back since: nobody knows how
    /// much of it is left, and it keeps nobody out. Its holder may renew it until somebody else has come.
    pub fn keeps_out(until: Timestamp, now: Timestamp) -> bool {
        now < until && until <= Self::end(now, Self::LONGEST)
    }

    /// When a lease of this length ends that is given or renewed now.
    pub fn end(now: Timestamp, length: Duration) -> Timestamp {
        now.checked_add(length.min(Self::LONGEST)).unwrap_or(Timestamp::MAX)
    }
}

/// Switches and rights, as one transaction read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The stored overrides.
    pub switches: Switches,
    /// Those of the asked subjects that are known.
    pub people: People,
}

/// Says what to store on what a look saw; `None`: nothing, and the transaction is rolled back.
pub type Judge = Box<dyn FnOnce(&Look) -> Option<Changes> + Send>;

/// What an append stores.
pub enum Append {
    /// This.
    Plain(Changes),
    /// What the judge makes of a look that the same transaction took. The judge runs exactly once at most,
    /// on any thread, and does no IO.
    Judged {
        /// Whom the look must know.
        subjects: Vec<Subject>,
        /// What is asked of that look.
        judge: Judge,
    },
}

impl std::fmt::Debug for Append {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(changes) => out.debug_tuple("Plain").field(changes).finish(),
            Self::Judged { subjects, .. } => {
                out.debug_struct("Judged").field("subjects", subjects).finish_non_exhaustive()
            }
        }
    }
}

/// Who appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A worker, as long as it holds its lease (R6).
    Worker(Lease),
    /// A person or a sweep: no lease, only the revision.
    Anyone,
}

/// The store itself failed. The state is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreFault {
    /// No space: the disk or the database is full.
    #[error("the database is full")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database or its folder cannot be written.
    #[error("the database cannot be written")]
    ReadOnly(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Somebody else held it too long.
    #[error("the database is busy")]
    Busy(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Nobody answers, or the connection was lost: what was to be stored may have been.
    #[error("the database cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Anything else.
    #[error("the database failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreFault {
    /// Whether the same may well work in a moment.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Full(_) | Self::Busy(_) | Self::Unreachable(_) => true,
            Self::ReadOnly(_) | Self::Failed(_) => false,
        }
    }
}

/// Why a run cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is a run of this id.
    #[error("a run of this id exists")]
    Exists,
    /// The run that it continues is not there, has not ended, cannot be trusted, or was erased (R10).
    #[error("run {0} cannot be continued")]
    NotContinuable(RunId),
    /// The store failed.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

/// Why a run cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is none of this id.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// It is there and cannot be read: changed, damaged, or written by a newer countersign. It is kept as it
    /// is; no other run is affected (R2).
    #[error("run {run} cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: String,
    },
    /// Its content was destroyed, as somebody asked (R10). What stands in clear is still listed.
    #[error("run {run} cannot be read: its content was erased at {at}")]
    Erased {
        /// The run.
        run: RunId,
        /// When.
        at: Timestamp,
    },
    /// The store failed.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

/// Why an append did not happen. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The log, or what was judged on, has moved on: load it and judge again.
    #[error("the log has moved on")]
    Conflict,
    /// The worker lost its run: it appends nothing and starts nothing (R6).
    #[error("the lease was lost")]
    LeaseLost,
    /// There is no such run.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// The run's row or its last entry cannot be trusted, so nothing may be chained to it.
    #[error("run {run} cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

/// Why a certain run cannot be claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// Somebody else works on it.
    #[error("another process works on it")]
    Leased {
        /// When that lease ends if nobody renews it.
        until: Timestamp,
    },
    /// Nothing is owed: it waits for a person, or has ended.
    #[error("nothing is to be done: it is {}", .0.as_str())]
    NotActive(RunState),
    /// Its row cannot be trusted; it is kept as it is (R2).
    #[error("run {run} cannot be read: {reason}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

/// With which key a run is started once, however often that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartKey {
    /// Whose key it is: two starters never meet.
    pub starter: Subject,
    /// The key, as the starter chose it.
    pub key: String,
    /// What was asked for.
    pub body: Digest,
}

/// What is known of a [`StartKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartedBefore {
    /// It started this run.
    Same(RunId),
    /// It stands for another request.
    OtherBody,
}

/// A run's row and whether somebody works on it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunListing {
    /// The row.
    pub row: RunRow,
    /// Whether there is a live lease.
    pub leased: bool,
    /// The length of its log.
    pub revision: Revision,
}

impl RunListing {
    /// The contract's status.
    pub fn status(&self) -> &'static str {
        self.row.state.status(self.leased)
    }
}

/// Which runs to list; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only in these states; empty: all.
    pub states: Vec<RunState>,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only of this owner.
    pub owner: Option<Subject>,
    /// Only what this one started, whoever owns it.
    pub starter: Option<Subject>,
}

/// Which pendings to list; oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingFilter {
    /// Only of this status.
    pub status: Option<PendingStatus>,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only of this run.
    pub run: Option<RunId>,
    /// Only of runs of this owner.
    pub owner: Option<Subject>,
}

/// One page of a list; `next` starts the following one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Opaque; absent on the last page.
    pub next: Option<String>,
}

/// What a switch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwitchName {
    /// A tool's own switch.
    Tool(ToolName),
    /// A group's switch.
    Group(GroupName),
}

/// Where runs are kept. One small, object-safe trait; every store passes the same suite (`contract`).
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Stores a new run with its first events. What it continues must be there, ended and not erased, by the word
    /// of the same transaction, and is neither erased nor removed as long as this run may go on (R10).
    ///
    /// # Errors
    /// [`CreateError`]; nothing was stored.
    async fn create(&self, changes: Changes) -> Result<(), CreateError>;

    /// The whole log, opened, its chain checked.
    ///
    /// # Errors
    /// [`LoadError`].
    async fn load(&self, run: &RunId) -> Result<Log, LoadError>;

    /// The whole logs of several runs, in this order. One that cannot be read says so in its place and stops no other
    /// (R2). For a page of a list, which would otherwise ask once for each line.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault>;

    /// Appends at a revision. Row, inbox and totals change in the same transaction. `now` is the caller's
    /// clock, against which a worker's lease is checked. `None`: the judge wanted nothing stored.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was stored.
    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError>;

    /// The length of a run's log, without reading it.
    ///
    /// # Errors
    /// [`LoadError`].
    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError>;

    /// Claims this run for `lease` from `now`, under a token of the caller's.
    ///
    /// # Errors
    /// [`ClaimError`].
    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError>;

    /// Claims the active run that has waited longest, among those of these agents, if there is one.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault>;

    /// Keeps a lease for `lease` from `now`. `false`: it is lost.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault>;

    /// Gives the run back. `false`: its log has moved past `seen` (an answer arrived), so the lease is kept
    /// and the caller looks again: no answer is slept through (R5). A lost lease is given back already.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault>;

    /// Switches, and those of the subjects that are known, in one transaction (G9).
    ///
    /// # Errors
    /// [`StoreFault`]: then nothing may run.
    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault>;

    /// Sets (`Some`) or removes (`None`) an override, and remembers when a name was last switched off (A12).
    /// Whether anybody has the name is the caller's to check.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault>;

    /// Stores or replaces a principal.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault>;

    /// What is known of a start key.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault>;

    /// Stores a new run with its first events, unless this key has started one: then nothing is stored, and what it
    /// did is given back. A key is forgotten with its run.
    ///
    /// # Errors
    /// [`CreateError`]; nothing was stored.
    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError>;

    /// One run's row.
    ///
    /// # Errors
    /// [`LoadError`]; an unreadable log does not matter here, only an unreadable row.
    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError>;

    /// A page of runs, newest first. Rows that cannot be read are left out of the items and never stop a page.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault>;

    /// One pending's row, if there is one.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault>;

    /// A page of pendings, oldest first, in the same way.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault>;

    /// Open pendings whose deadline is before `now` or cannot be read, oldest deadline first.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault>;

    /// Counts one more refused decision on a pending and says how many there were before, so that only the
    /// first twenty become events (A9).
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault>;

    /// A key that is a function of installation, run and call, and that nobody can guess (R4).
    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String;
}
