//! How the installation is: its version, its database, how many runs and open questions there are.
//!
//! Invariant: an answer is made of counts, ages, the version and fixed words. No path, address, name, id or text of
//! an error gets into it (S5). Not here: the console's own figures, anything about the machine.

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, DataClass, Effect, GroupName, NotAName, OperatorWord, Origin, Pause,
    PendingFilter, PendingStatus, RunFilter, RunState, StoreFault, Tool, ToolError, ToolName, ToolOutput,
    ToolSpec,
};
use jiff::Timestamp;
use serde_json::json;

use crate::status::{PAGE_ROWS, Records, age};

/// The most pages counted of each state, and of the open pendings.
const PAGES_MAX: usize = 10;
/// The kind of a pending that asks what became of a write.
const RESOLUTION: &str = "resolution";

/// The tool `system_status`.
pub(crate) struct SystemStatus {
    records: Records,
    version: String,
    spec: ToolSpec,
}

/// A number, and whether counting stopped there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    number: usize,
    and_more: bool,
}

impl std::fmt::Display for Count {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let more = if self.and_more { " or more" } else { "" };
        write!(out, "{}{more}", self.number)
    }
}

impl SystemStatus {
    pub(crate) fn new(records: Records, version: &str) -> Result<Self, NotAName> {
        let spec = ToolSpec {
            name: ToolName::parse("system_status")?,
            description: "Says how this installation is: its version, whether its database answers, how many runs \
                          there are of each status, and how many questions wait for a person. Rows that cannot be \
                          read are not counted."
                .to_owned(),
            group: GroupName::parse("system")?,
            origin: Origin::Builtin,
            effect: Effect::Read,
            data_class: DataClass::SystemDiagnostics,
            enabled_by_default: true,
            requires_admin: true,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters: json!({
                "type": "object", "properties": {}, "required": [], "additionalProperties": false
            }),
        };
        Ok(Self { records, version: version.to_owned(), spec })
    }

    /// What the database knows, in lines.
    async fn counted(&self, now: Timestamp) -> Result<String, StoreFault> {
        let mut text = String::from("runs:\n");
        for state in RunState::ALL {
            for (status, count) in self.runs(state, now).await? {
                text.push_str(&format!("  {status}: {count}\n"));
            }
        }
        text.push_str(&self.pendings(now).await?);
        Ok(text)
    }

    /// How many runs are in a state, by the status it has with and without a worker.
    async fn runs(&self, state: RunState, now: Timestamp) -> Result<Vec<(&'static str, Count)>, StoreFault> {
        let filter = RunFilter { states: vec![state], ..RunFilter::default() };
        let mut counts = vec![(state.status(false), Count::default())];
        if state.status(true) != state.status(false) {
            counts.push((state.status(true), Count::default()));
        }
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let page = self.records.store.runs(&filter, now, PAGE_ROWS, cursor.as_deref()).await?;
            for run in &page.items {
                if let Some((_, count)) = counts.iter_mut().find(|(status, _)| *status == run.status()) {
                    count.number += 1;
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(counts);
            }
        }
        for (_, count) in &mut counts {
            count.and_more = true;
        }
        Ok(counts)
    }

    /// How many questions wait, and for how long.
    async fn pendings(&self, now: Timestamp) -> Result<String, StoreFault> {
        let filter = PendingFilter { status: Some(PendingStatus::Open), ..PendingFilter::default() };
        let (mut open, mut resolutions, mut oldest) = (Count::default(), Count::default(), None::<Timestamp>);
        let mut cursor = None;
        for pages in 1..=PAGES_MAX {
            let page = self.records.store.pendings(&filter, PAGE_ROWS, cursor.as_deref()).await?;
            open.number += page.items.len();
            resolutions.number += page.items.iter().filter(|row| row.kind == RESOLUTION).count();
            let first = page.items.iter().map(|row| row.created_at).chain(oldest).min();
            oldest = first;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            let stopped = pages == PAGES_MAX;
            (open.and_more, resolutions.and_more) = (stopped, stopped);
        }
        let oldest = oldest.map_or_else(|| "none".to_owned(), |since| format!("{} old", age(since, now)));
        Ok(format!("open pendings: {open}\noldest open pending: {oldest}\nopen resolutions: {resolutions}\n"))
    }
}

#[async_trait]
impl Tool for SystemStatus {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, _arguments: &Arguments, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let version = &self.version;
        let text = match self.counted(self.records.clock.now()).await {
            Ok(counted) => format!("version: {version}\ndatabase: reachable\n{counted}"),
            // That it fails is what was asked for, so it is an answer and not an error.
            Err(fault) => format!("version: {version}\ndatabase: not usable: {fault}\n"),
        };
        Ok(text.into())
    }
}
