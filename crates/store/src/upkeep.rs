//! What people do to a database as a whole: look it through, change its key, remove what is old, erase, and
//! make a restored one safe.
//!
//! Invariant: each of these can be called again after whatever cut it short, and works beside runs that go on,
//! unless it says otherwise.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use countersign::{Accounts, AgentName, Digest, LoadError, Outbox, RunId, RunState, Store, StoreFault};
use jiff::Timestamp;

use crate::census::Census;
use crate::finding::Report;
use crate::hints::Hints;
use crate::restored::Restored;
use crate::rotation::{Retired, RotateError, Rotated, Rotation};
use crate::row::{Cells, Row};
use crate::seal::MasterKey;

/// A store, and what is beside the port: the operator's work.
#[async_trait]
pub trait Upkeep: Store + Accounts + Outbox {
    /// Which database it is, for people, without any password.
    fn place(&self) -> String;

    /// What is said to people when what was removed is not gone from the disk yet.
    fn lingering(&self) -> &'static str;

    /// What others say who work on the same database.
    fn hints(&self) -> Hints;

    /// The schema of the database when it was opened: how many migrations it has seen.
    fn schema_version(&self) -> u32;

    /// The newest schema that this build knows. The database's is newer where a newer countersign has migrated it and
    /// left it readable for this one.
    fn schema_known(&self) -> u32;

    /// Writes a little that nobody reads, to the disk: whether the database can be written, and this process may work on
    /// it still.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn probe(&self) -> Result<(), StoreFault>;

    /// Counts what is owed: runs that have not ended, and open questions. `now` is for leases.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn census(&self, now: Timestamp) -> Result<Census, StoreFault>;

    /// How far the open questions were looked at, if anybody has noted it. What cannot be read was not noted.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn reviewed(&self) -> Result<Option<Reviewed>, StoreFault>;

    /// Notes it, in the place of what was noted before. Nothing is promised by that: who comes to a question of a tool
    /// that has changed is refused without it (A8).
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn note_reviewed(&self, reviewed: &Reviewed) -> Result<(), StoreFault>;

    /// Looks at everything and says what is not as it should be. `agents` are those that are configured; without
    /// them, whether somebody works on a run's agent is not looked at. `now` is for leases. `progress` hears how
    /// many runs have been looked at, after every page.
    ///
    /// # Errors
    /// [`StoreFault`] when the database cannot be looked at; damage is no error but a finding.
    async fn examine(
        &self,
        agents: Option<&[AgentName]>,
        now: Timestamp,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Report, StoreFault>;

    /// Makes everything hang from this master key. It can be called again after whatever cut it short, with the
    /// same key. `progress` hears how many runs have been taken over, after every transaction.
    ///
    /// # Errors
    /// [`RotateError`].
    async fn rotate(
        &self,
        to: MasterKey,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Rotated, RotateError>;

    /// Ends a rotation: the old key opens nothing any more. `None`: there is none to end.
    ///
    /// # Errors
    /// [`RotateError::UnderWay`] before the switch, [`RotateError::InUse`] soon after it.
    async fn retire(&self, now: Timestamp) -> Result<Option<Retired>, RotateError>;

    /// The rotation that is under way, if one is.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn rotation(&self) -> Result<Option<Rotation>, StoreFault>;

    /// Removes the runs that ended before this moment, but none that a run which stays continues (R10); `dry`: only
    /// counts them.
    ///
    /// # Errors
    /// [`StoreFault`]. What was removed before stays removed.
    async fn purge(&self, ended_before: Timestamp, dry: bool) -> Result<Purged, StoreFault>;

    /// Destroys the content of a run that has ended, and of all that continue it: data keys and everything sealed
    /// under them. All of it or nothing.
    ///
    /// # Errors
    /// [`EraseError`].
    async fn erase(&self, run: &RunId, now: Timestamp) -> Result<Erased, EraseError>;

    /// When a run was erased, if it was.
    ///
    /// # Errors
    /// [`LoadError`]; an erased log does not matter here, only an unreadable row.
    async fn erased_at(&self, run: &RunId) -> Result<Option<Timestamp>, LoadError>;

    /// Makes everything harmless that a restored backup would go on with. To be called before anything works
    /// on the database.
    ///
    /// # Errors
    /// [`StoreFault`]: then nothing may work on the database yet.
    async fn restored(&self, now: Timestamp) -> Result<Restored, StoreFault>;

    /// Writes a copy of the database to a file that is not there yet. Nobody is kept from writing meanwhile.
    ///
    /// # Errors
    /// [`BackupError`]; then there is no copy.
    async fn backup(&self, to: &Path) -> Result<(), BackupError>;
}

/// Up to where every open question was looked at, and closed if it is about another tool than that which has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// What the tools were.
    pub definitions: Digest,
    /// The cursor of the list of open questions from which on not all were; absent: from its beginning.
    pub cursor: Option<String>,
}

impl Reviewed {
    /// The statement that finds it.
    pub(crate) const SELECT: &str = "SELECT definitions, cursor FROM reviewed";

    /// Reads a row.
    pub(crate) fn read(row: &dyn Row) -> Option<Self> {
        let cells = Cells::of(row, "reviewed", "definitions");
        let definitions = Digest::parse(cells.text("definitions").ok()?).ok()?;
        let cursor =
            if cells.is_absent("cursor").ok()? { None } else { Some(cells.text("cursor").ok()?.to_owned()) };
        Some(Self { definitions, cursor })
    }
}

/// What was removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Runs.
    pub runs: u64,
    /// Their events.
    pub events: u64,
    /// Their questions.
    pub pendings: u64,
    /// Runs whose time would have come, and which cannot be read. They are kept.
    pub unreadable: u64,
    /// Runs whose time would have come, and which a run that is kept continues. They are kept.
    pub continued: u64,
    /// Whether the bytes are gone from the disk too ([`Upkeep::lingering`]).
    pub scrubbed: bool,
}

/// The content of a run is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erased {
    /// When it was erased; earlier than now if somebody had done so before.
    pub at: Timestamp,
    /// The events whose content was destroyed in this call, those of continuations included.
    pub events: u64,
    /// The runs that continue it, and are erased with it.
    pub continuations: Vec<RunId>,
    /// Whether the bytes are gone from the disk too ([`Upkeep::lingering`]).
    pub scrubbed: bool,
}

/// Why a run was not erased. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EraseError {
    /// There is none of this id.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// It has not ended.
    #[error("the run is {}: cancel it first, then erase it", .0.as_str())]
    NotEnded(RunState),
    /// A run that continues it has not ended, and could not go on without it.
    #[error("run {0} continues it and has not ended: cancel that one first, then erase this one")]
    Continued(RunId),
    /// Its row cannot be trusted, so nothing may be stored under its MAC.
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

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Something has that name.
    #[error("{} exists", .0.display())]
    Exists(PathBuf),
    /// The old master key is not retired yet.
    #[error("the master key is being changed: end that first")]
    Rotating,
    /// The file cannot be written.
    #[error("{} cannot be written", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Copying it is the business of its own programs.
    #[error("{0}")]
    NotHere(&'static str),
    /// The database cannot be read.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}
