//! How many runs and questions there are that somebody has to do something about.
//!
//! Invariant: only what has not come to an end is counted, and what waits for a person is counted in an index alone: of a
//! hundred thousand waiting runs no row is read. What is owed work is read row by row, because who works on it changes
//! too often for an index. Not here: whose turn it is, and what ended.

use countersign::{Lease, RunState};
use jiff::Timestamp;

use crate::row::{BadRow, Cells, Row};
use crate::time;

/// The states of runs that wait for a person.
const WAITING: [RunState; 3] =
    [RunState::WaitingForApproval, RunState::WaitingForInput, RunState::NeedsResolution];

/// The statement that counts the runs that are owed work; its parameters are now, and now with the longest lease added.
/// `by` is what a database must be told to go along the queue, in which there are no others.
pub(crate) fn active_statement(by: &str, now: &str, longest: &str) -> String {
    let leased = format!("lease_until > {now} AND lease_until <= {longest}");
    format!(
        "SELECT agent, count(*) AS runs, count(CASE WHEN {leased} THEN 1 END) AS leased, \
         min(CASE WHEN {leased} THEN NULL ELSE updated_at END) AS oldest \
         FROM runs {by} WHERE state = 'active' GROUP BY agent"
    )
}

/// The statement that counts the runs that wait for a person, of every agent that there ever was: from one agent the
/// index leads to the next, past all of its runs.
pub(crate) fn waiting_statement() -> String {
    let waiting = WAITING.map(|state| format!("('{}')", state.as_str())).join(", ");
    format!(
        "WITH RECURSIVE agents (agent) AS (SELECT min(agent) FROM runs UNION ALL \
         SELECT (SELECT min(runs.agent) FROM runs WHERE runs.agent > agents.agent) FROM agents WHERE agent IS NOT NULL), \
         states (state) AS (VALUES {waiting}) \
         SELECT state, agent, (SELECT count(*) FROM runs WHERE runs.agent = agents.agent AND runs.state = states.state) AS runs \
         FROM agents, states WHERE agent IS NOT NULL"
    )
}

/// The statement that counts open questions.
pub(crate) const OPEN: &str = "WITH kinds (kind) AS (VALUES ('approval'), ('input'), ('resolution')) \
    SELECT kind, (SELECT count(*) FROM pendings WHERE status = 'open' AND pendings.kind = kinds.kind) AS pendings, \
    (SELECT min(created_at) FROM pendings WHERE status = 'open' AND pendings.kind = kinds.kind) AS oldest FROM kinds";

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
    /// Of active ones: when the one changed last that has stood longest with nobody working on it.
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

/// The parameters of [`active_statement`].
pub(crate) fn moments(now: Timestamp) -> [String; 2] {
    [time::text(now), time::text(Lease::end(now, Lease::LONGEST))]
}

impl Census {
    /// Takes in a row of [`active_statement`].
    pub(crate) fn count_active(&mut self, row: &dyn Row) -> Result<(), BadRow> {
        let cells = Cells::of(row, "runs", "agent");
        self.runs.push(LiveRuns {
            state: RunState::Active,
            agent: cells.text("agent")?.to_owned(),
            runs: cells.count("runs")?,
            leased: cells.count("leased")?,
            oldest: oldest(&cells)?,
        });
        Ok(())
    }

    /// Takes in a row of [`waiting_statement`], if there are such runs.
    pub(crate) fn count_waiting(&mut self, row: &dyn Row) -> Result<(), BadRow> {
        let cells = Cells::of(row, "runs", "agent");
        let (state, runs) = (RunState::from_word(cells.text("state")?), cells.count("runs")?);
        if let Some(state) = state.filter(|_| runs > 0) {
            let agent = cells.text("agent")?.to_owned();
            self.runs.push(LiveRuns { state, agent, runs, leased: 0, oldest: None });
        }
        Ok(())
    }

    /// Takes in a row of [`OPEN`], if there are such questions.
    pub(crate) fn count_open(&mut self, row: &dyn Row) -> Result<(), BadRow> {
        let cells = Cells::of(row, "pendings", "kind");
        let pendings = cells.count("pendings")?;
        if pendings > 0 {
            let kind = cells.text("kind")?.to_owned();
            self.open.push(OpenQuestions { kind, pendings, oldest: oldest(&cells)? });
        }
        Ok(())
    }
}

/// One time that cannot be read keeps nobody from counting (R2).
fn oldest(cells: &Cells<'_>) -> Result<Option<Timestamp>, BadRow> {
    if cells.is_absent("oldest")? { Ok(None) } else { Ok(time::parse(cells.text("oldest")?)) }
}
