//! The runs of the person on whose behalf it is called, newest first.
//!
//! Invariant: the owner comes from the call's context and never from an argument, so nobody's run but the actor's
//! own is ever looked for (A13, S2). Not here: what happened in a run.

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, DataClass, Effect, GroupName, NotAName, OperatorWord, Origin, Pause, RunFilter,
    RunListing, RunState, Subject, Tool, ToolError, ToolName, ToolOutput, ToolSpec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::status::{PAGE_ROWS, Records, moment, unreadable};

/// How many runs are shown when nothing is said.
const RUNS_DEFAULT: usize = 20;
/// The most runs shown at once.
const RUNS_MAX: usize = 100;
/// The most pages looked through for a status that few runs have.
const PAGES_MAX: usize = 10;

const COLUMNS: [&str; 5] = ["id", "status", "agent", "created", "iterations"];

/// The tool `list_runs`.
pub(crate) struct ListRuns {
    records: Records,
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    status: Option<String>,
    limit: Option<usize>,
}

/// What was found, and why it may not be all.
struct Found {
    runs: Vec<RunListing>,
    rest: Rest,
}

enum Rest {
    /// There are no others.
    None,
    /// There are others that fit.
    Shown,
    /// Older ones were not looked at.
    Unseen,
}

impl ListRuns {
    pub(crate) fn new(records: Records) -> Result<Self, NotAName> {
        let spec = ToolSpec {
            name: ToolName::parse("list_runs")?,
            description:
                "Lists the runs of the person this run belongs to, newest first: id, status, agent, time of \
                          creation, iterations. This run is among them."
                    .to_owned(),
            group: GroupName::parse("runs")?,
            origin: Origin::Builtin,
            effect: Effect::Read,
            data_class: DataClass::InternalConfiguration,
            enabled_by_default: true,
            requires_admin: false,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters: parameters(),
        };
        Ok(Self { records, spec })
    }

    async fn find(&self, owner: &Subject, status: Option<&str>, limit: usize) -> Result<Found, ToolError> {
        let now = self.records.clock.now();
        let states = RunState::ALL
            .into_iter()
            .filter(|state| {
                status.is_some_and(|word| [false, true].iter().any(|leased| state.status(*leased) == word))
            })
            .collect();
        let filter = RunFilter { states, agent: None, owner: Some(owner.clone()), starter: None };
        let (mut runs, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.records.store.runs(&filter, now, PAGE_ROWS, cursor.as_deref()).await;
            let page = page.map_err(|fault| unreadable(&fault))?;
            // Whether an active run is queued or running is known only once it is listed.
            runs.extend(
                page.items.into_iter().filter(|run| status.is_none_or(|status| run.status() == status)),
            );
            if runs.len() > limit {
                runs.truncate(limit);
                return Ok(Found { runs, rest: Rest::Shown });
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Found { runs, rest: Rest::None });
            }
        }
        Ok(Found { runs, rest: Rest::Unseen })
    }
}

#[async_trait]
impl Tool for ListRuns {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let Wanted { status, limit } = serde_json::from_value(arguments.to_value())
            .map_err(|error| ToolError::answered(format!("The arguments cannot be used: {error}.")))?;
        let limit = limit.unwrap_or(RUNS_DEFAULT).clamp(1, RUNS_MAX);
        let status = status.as_deref();
        if let Some(word) = status
            && !statuses().contains(&word)
        {
            let known = statuses().join(", ");
            return Err(ToolError::answered(format!("There is no such status; there are {known}.")));
        }
        let Found { runs, rest } = self.find(&cx.actor, status, limit).await?;
        let mut text = if runs.is_empty() { "No runs.\n".to_owned() } else { table(&runs) };
        text.push_str(match rest {
            Rest::None => "",
            Rest::Shown => "There are more, which are older.\n",
            Rest::Unseen => "The oldest runs were not looked at.\n",
        });
        Ok(text.into())
    }
}

/// The contract's words, each once.
fn statuses() -> Vec<&'static str> {
    let mut words = Vec::new();
    for state in RunState::ALL {
        for word in [state.status(false), state.status(true)] {
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    words
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {
                "type": "string", "enum": statuses(), "description": "Only runs of this status; absent: all."
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": RUNS_MAX,
                "description": format!("How many at most; absent: {RUNS_DEFAULT}."),
            },
        },
        "required": [],
        "additionalProperties": false,
    })
}

/// A line of heads and a line for each run, in columns.
fn table(runs: &[RunListing]) -> String {
    let cells = |run: &RunListing| {
        let row = &run.row;
        [
            row.id.to_string(),
            run.status().to_owned(),
            row.agent.to_string(),
            moment(row.created_at),
            row.iterations.to_string(),
        ]
    };
    let lines: Vec<[String; 5]> =
        std::iter::once(COLUMNS.map(str::to_owned)).chain(runs.iter().map(cells)).collect();
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}
