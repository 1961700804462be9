//! What a look through the whole database can find, each in a sentence.
//!
//! Invariant: a finding names its run or pending and never repeats a payload (S5). A name that cannot be a name
//! is shown with its odd characters escaped.

use countersign::{AgentName, PendingId, RunId, WebhookState};
use jiff::Timestamp;

use crate::rotation::Rotation;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum Finding {
    /// The database finds itself damaged.
    File { detail: String },
    /// A run's row cannot be read, or is not what was stored.
    RunUnreadable { run: String, reason: String },
    /// A log is not what was stored, or does not open.
    LogBroken { run: RunId, reason: String },
    /// A log holds an event that a newer countersign wrote.
    LogNewer { run: RunId, seq: u64, reason: String },
    /// A log opens, and no run can have it.
    LogIllegal { run: RunId, reason: String },
    /// What a run continues is not there, or a run that has not ended could not go on with it.
    NotContinuable { run: RunId, before: RunId, reason: &'static str },
    /// A run's row does not say what its log says.
    RunDiffers { run: RunId, column: &'static str },
    /// A pending's row cannot be read.
    PendingUnreadable { run: RunId, pending: String, reason: String },
    /// The inbox lacks a question that the log asked.
    PendingMissing { run: RunId, pending: PendingId },
    /// The inbox has a question that the log never asked.
    PendingUnasked { run: RunId, pending: PendingId },
    /// A pending's row does not say what the log says.
    PendingDiffers { run: RunId, pending: PendingId, column: &'static str },
    /// A question is open in a run that has ended.
    PendingOpen { run: RunId, pending: PendingId },
    /// A pending's row belongs to no run.
    PendingOfNoRun { run: String, pending: String },
    /// Events belong to no run.
    EventsOfNoRun { run: String, events: u64 },
    /// A run that has not ended is of an agent that nobody has.
    AgentGone { run: RunId, agent: AgentName },
    /// A run that waits for a person carries a lease that is over.
    LeaseOver { run: RunId, until: Timestamp },
    /// A switch is neither on nor off; it counts as off.
    SwitchUnreadable { table: &'static str, name: String },
    /// A principal cannot be read; it has no right.
    PrincipalUnreadable { subject: String, reason: String },
    /// A change of master keys has not ended.
    KeyBeingChanged(Rotation),
    /// Somebody was not told of something in all attempts, or is told of nothing any more.
    WebhookUntold(WebhookState),
}

impl Finding {
    /// What was found, for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::File { detail } => format!("the file is damaged: {detail}"),
            Self::RunUnreadable { run, reason } => format!("run {run} cannot be read: {reason}"),
            Self::LogBroken { run, reason } => format!("the log of run {run} cannot be read: {reason}"),
            Self::LogNewer { run, seq, reason } => {
                format!("the log of run {run} cannot be read here: entry {seq}: {reason}")
            }
            Self::LogIllegal { run, reason } => format!("the log of run {run} makes no sense: {reason}"),
            Self::NotContinuable { run, before, reason } => {
                format!("run {run} continues run {before}, which {reason}")
            }
            Self::RunDiffers { run, column } => {
                format!("the row of run {run} does not say what its log says: {column}")
            }
            Self::PendingUnreadable { run, pending, reason } => {
                format!("pending {pending} of run {run} cannot be read: {reason}")
            }
            Self::PendingMissing { run, pending } => {
                format!("pending {pending} of run {run} is not in the inbox")
            }
            Self::PendingUnasked { run, pending } => {
                format!("pending {pending} is in the inbox, but run {run} never asked it")
            }
            Self::PendingDiffers { run, pending, column } => {
                format!("the row of pending {pending} does not say what the log of run {run} says: {column}")
            }
            Self::PendingOpen { run, pending } => {
                format!("pending {pending} is open, but run {run} has ended")
            }
            Self::PendingOfNoRun { run, pending } => {
                format!("pending {pending} belongs to run {run}, which is not there")
            }
            Self::EventsOfNoRun { run, events } => {
                format!("{events} events belong to run {run}, which is not there")
            }
            Self::AgentGone { run, agent } => {
                format!(
                    "run {run} has not ended, and its agent {agent} is not configured: nobody works on it"
                )
            }
            Self::LeaseOver { run, until } => {
                format!("run {run} waits for a person and still carries a lease, over since {until}")
            }
            Self::SwitchUnreadable { table, name } => {
                format!("the switch {name} in {table} is neither on nor off; it counts as off")
            }
            Self::PrincipalUnreadable { subject, reason } => {
                format!("principal {subject} cannot be read and has no right: {reason}")
            }
            Self::KeyBeingChanged(Rotation { from, to, switched: false }) => {
                format!("the change of the master key from {from} to {to} has not ended: rotate again")
            }
            Self::KeyBeingChanged(Rotation { from, switched: true, .. }) => {
                format!("the old master key {from} still opens the database: it is not retired yet")
            }
            Self::WebhookUntold(WebhookState { webhook, gone_since: Some(at), .. }) => {
                format!(
                    "the webhook {webhook} has answered at {at:.0} that it is gone, and is told of nothing since: `webhooks \
                     enable {webhook}` tells it again"
                )
            }
            Self::WebhookUntold(WebhookState { webhook, given_up, gone_since: None, .. }) => {
                format!(
                    "the webhook {webhook} was not told of {given_up} in all attempts: mend its receiver, then `webhooks \
                     enable {webhook}` tries them anew"
                )
            }
        }
    }

    /// Whether something stored is not as it was stored; otherwise it is sound, and something is to be done.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::LogNewer { .. }
            | Self::AgentGone { .. }
            | Self::LeaseOver { .. }
            | Self::KeyBeingChanged(_)
            | Self::WebhookUntold(_) => false,
            Self::File { .. }
            | Self::RunUnreadable { .. }
            | Self::LogBroken { .. }
            | Self::LogIllegal { .. }
            | Self::NotContinuable { .. }
            | Self::RunDiffers { .. }
            | Self::PendingUnreadable { .. }
            | Self::PendingMissing { .. }
            | Self::PendingUnasked { .. }
            | Self::PendingDiffers { .. }
            | Self::PendingOpen { .. }
            | Self::PendingOfNoRun { .. }
            | Self::EventsOfNoRun { .. }
            | Self::SwitchUnreadable { .. }
            | Self::PrincipalUnreadable { .. } => true,
        }
    }
}

/// What a look through the whole database found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The runs that were looked at.
    pub runs: u64,
    /// The events whose log was good.
    pub events: u64,
    /// The rows of the inbox that were compared.
    pub pendings: u64,
    /// What was found, at most [`Report::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub left_out: u64,
}

impl Report {
    /// So many findings are kept; the rest is counted.
    pub const FINDINGS_MAX: usize = 1000;

    /// Whether everything is as it should be.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds those who were not told of everything.
    pub(crate) fn untold(&mut self, states: Vec<WebhookState>) {
        let untold = states.into_iter().filter(|state| state.given_up > 0 || state.gone_since.is_some());
        untold.for_each(|state| self.found(Finding::WebhookUntold(state)));
    }

    pub(crate) fn found(&mut self, finding: Finding) {
        if self.findings.len() < Self::FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.left_out += 1;
        }
    }
}

/// A stored name that may be anything.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(64).flat_map(char::escape_debug).collect()
}
