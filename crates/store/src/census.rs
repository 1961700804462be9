//! How many runs and questions there are that somebody has to do something about.
//!
//! Invariant: only rows that have not come to an end are counted, found by an index, so that counting costs what is
//! owed and not what was ever done. Not here: whose turn it is, and what ended.

use countersign::{Lease, RunState};
use jiff::Timestamp;

use crate::row::{BadRow, Cells, Row};
use crate::time;

/// The states of runs that have not ended.
pub(crate) const LIVE: [RunState; 4] =
    [RunState::Active, RunState::WaitingForApproval, RunState::WaitingForInput, RunState::NeedsResolution];

/// The statement that counts live runs; its parameters are now, and now with the longest lease added.
pub(crate) fn runs_statement(now: &str, longest: &str) -> String {
    let live = LIVE.map(|state| format!("'{}'", state.as_str())).join(", ");
    let leased = format!("lease_until > {now} AND lease_until <= {longest}");
    format!(
        "SELECT state, agent, count(*) AS runs, count(CASE WHEN {leased} THEN 1 END) AS leased, \
         min(CASE WHEN {leased} THEN NULL ELSE updated_at END) AS oldest \
         FROM runs WHERE state IN ({live}) GROUP BY state, agent"
    )
}

/// The statement that counts open questions.
pub(crate) const OPEN: &str = "SELECT kind, count(*) AS pendings, min(created_at) AS oldest FROM pendings \
                               WHERE status = 'open' GROUP BY kind";

/// What was counted at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Runs that have not ended, by state and agent.
    pub runs: Vec<LiveRuns>,
    /// Open questions, by kind.
    pub open: Vec<OpenQuestions>,
}

/// Runs of one agent in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRuns {
    /// The state.
    pub state: RunState,
    /// The agent, as it is stored.
    pub agent: String,
    /// How many.
    pub runs: u64,
    /// On how many of them somebody works.
    pub leased: u64,
    /// When the one changed last that has stood longest with nobody working on it.
    pub oldest: Option<Timestamp>,
}

/// Open questions of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestions {
    /// `approval`, `input` or `resolution`.
    pub kind: String,
    /// How many.
    pub pendings: u64,
    /// When the oldest was asked.
    pub oldest: Option<Timestamp>,
}

/// The parameters of [`runs_statement`].
pub(crate) fn moments(now: Timestamp) -> [String; 2] {
    [time::text(now), time::text(Lease::end(now, Lease::LONGEST))]
}

impl LiveRuns {
    /// Reads a row; `None` for a state that nobody knows, which `db doctor` speaks of.
    pub(crate) fn read(row: &dyn Row) -> Result<Option<Self>, BadRow> {
        let cells = Cells::of(row, "runs", "state");
        let Some(state) = RunState::from_word(cells.text("state")?) else { return Ok(None) };
        Ok(Some(Self {
            state,
            agent: cells.text("agent")?.to_owned(),
            runs: cells.count("runs")?,
            leased: cells.count("leased")?,
            oldest: oldest(&cells)?,
        }))
    }
}

impl OpenQuestions {
    /// Reads a row.
    pub(crate) fn read(row: &dyn Row) -> Result<Self, BadRow> {
        let cells = Cells::of(row, "pendings", "kind");
        Ok(Self {
            kind: cells.text("kind")?.to_owned(),
            pendings: cells.count("pendings")?,
            oldest: oldest(&cells)?,
        })
    }
}

/// One time that cannot be read keeps nobody from counting (R2).
fn oldest(cells: &Cells<'_>) -> Result<Option<Timestamp>, BadRow> {
    if cells.is_absent("oldest")? { Ok(None) } else { Ok(time::parse(cells.text("oldest")?)) }
}
