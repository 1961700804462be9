//! What a person is asked: one pending holds a whole turn (A4), and its digest covers what will run (A6).
//!
//! Not here: judging an answer (`decision`), and the row an inbox shows (`summary`).

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::approval::Because;
use crate::arguments::Arguments;
use crate::canonical::canonical;
use crate::digest::Digest;
use crate::name::{CallId, GroupName, PendingId, RunId, Subject};
use crate::result::Refusal;
use crate::tool::{Effect, Origin};

/// The most lines of one preview (A7).
pub const PREVIEW_LINES_MAX: usize = 200;
/// The most characters of one line of a preview (A7).
pub const PREVIEW_LINE_CHARS_MAX: usize = 500;

/// Until when a pending may be decided (A10). It limits deciding, not dispatching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// For ever.
    Never,
    /// Up to and including this moment.
    At(Timestamp),
    /// There was one, but it cannot be read: it counts as expired.
    Unreadable,
}

impl Deadline {
    /// Whether a decision at this moment comes too late.
    pub fn has_passed(self, at: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(deadline) => at > deadline,
            Self::Unreadable => true,
        }
    }
}

impl Serialize for Deadline {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => out.serialize_none(),
            Self::At(at) => at.serialize(out),
            Self::Unreadable => out.serialize_str("unreadable"),
        }
    }
}

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(source)? {
            Value::Null => Self::Never,
            Value::String(text) => text.parse().map_or(Self::Unreadable, Self::At),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Self::Unreadable,
        })
    }
}

/// What a call would do, shown before it does it (A7). Made once, when the question opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    /// What to show.
    pub lines: Vec<String>,
    /// Whether making it failed; the lines then say so.
    pub failed: bool,
    /// Opaque; the call gets it back, to see whether the world has changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Value>,
}

impl Preview {
    /// A preview within its bounds; what is cut is counted.
    pub fn of(lines: impl IntoIterator<Item = String>, precondition: Option<Value>) -> Self {
        let mut lines: Vec<String> = lines.into_iter().collect();
        if lines.is_empty() {
            return Self { precondition, ..Self::failure("The tool gave no preview.") };
        }
        if lines.len() > PREVIEW_LINES_MAX {
            let more = lines.len() - (PREVIEW_LINES_MAX - 1);
            lines.truncate(PREVIEW_LINES_MAX - 1);
            lines.push(format!("[{more} more lines are not shown]"));
        }
        for line in &mut lines {
            let length = line.chars().count();
            if length > PREVIEW_LINE_CHARS_MAX {
                let note = format!("[{length} characters in all]");
                *line = line.chars().take(PREVIEW_LINE_CHARS_MAX - note.len()).chain(note.chars()).collect();
            }
        }
        Self { lines, failed: false, precondition }
    }

    /// A preview that could not be made.
    pub fn failure(sentence: &str) -> Self {
        Self { lines: vec![sentence.to_owned()], failed: true, precondition: None }
    }
}

/// One call of the turn that a pending holds, as it is shown, hashed and run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldCall {
    /// Which call.
    pub id: CallId,
    /// The name as the model sent it.
    pub tool: String,
    /// What was known of the tool; absent for an unknown one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<HeldFacts>,
    /// The arguments that will run; absent where they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// The model's own arguments, where a person changed them (A14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_arguments: Option<Arguments>,
    /// What becomes of it.
    pub outlook: Outlook,
    /// What it would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
}

/// What becomes of a held call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// It runs once the turn is released; it needs nobody for itself.
    Runs,
    /// It runs if a person approves it.
    NeedsApproval(Because),
    /// It runs once a person has supplied these fields. A JSON Schema.
    NeedsInput(Value),
    /// It is refused whatever a person decides.
    Refused(Refusal),
}

/// What was known of a held call's tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldFacts {
    /// Its family.
    pub group: GroupName,
    /// Who answers.
    pub origin: Origin,
    /// What it does.
    pub effect: Effect,
    /// Whether only administrators may run it; the approver must be one too (A8).
    pub requires_admin: bool,
    /// What it was, exactly (A6).
    pub definition: Digest,
}

impl HeldCall {
    /// Whether it will be refused whatever a person decides.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.outlook {
            Outlook::Refused(refusal) => Some(refusal),
            Outlook::Runs | Outlook::NeedsApproval(_) | Outlook::NeedsInput(_) => None,
        }
    }

    /// Why it needs an approval, if it does.
    pub fn because(&self) -> Option<Because> {
        match self.outlook {
            Outlook::NeedsApproval(because) => Some(because),
            Outlook::Runs | Outlook::NeedsInput(_) | Outlook::Refused(_) => None,
        }
    }
}

/// What kind of thing a person must settle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// May these calls run?
    Approval,
    /// Please supply what this call needs.
    Input {
        /// Which call of the turn.
        call: CallId,
        /// JSON Schema 2020-12 of the answer.
        schema: Value,
        /// What the person is told.
        message: String,
    },
    /// Did this call happen? It was started, and nobody knows how it ended.
    Resolution {
        /// Which call of the turn.
        call: CallId,
        /// "It did not happen" is refused before (R11).
        not_before: Timestamp,
    },
}

impl Question {
    /// The contract's word for the kind.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Input { .. } => "input",
            Self::Resolution { .. } => "resolution",
        }
    }
}

/// One thing a person must settle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// Its id.
    pub id: PendingId,
    /// The number of the turn it holds, from 1.
    pub turn: u32,
    /// What is asked.
    pub question: Question,
    /// All calls of the held turn, in the model's order.
    pub calls: Vec<HeldCall>,
    /// Until when it may be decided. Resolutions never expire.
    pub expires_at: Deadline,
    /// Who changed arguments of this turn, in order (A14); all of them are in the chain of four eyes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub editors: Vec<Subject>,
    /// The pending that this one replaces, after an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<PendingId>,
    /// Where the work that led to the question is traced, as whoever traces it wrote it down; absent where nobody does.
    /// The work that follows the answer is traced elsewhere, and points here. Nothing rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl Pending {
    /// What was seen: everything that will run, bound to this run, this pending and this turn (A6).
    pub fn digest(&self, run: &RunId) -> Digest {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|call| {
                json!([
                    call.id,
                    call.tool,
                    call.arguments.as_ref().map(Arguments::to_value),
                    call.facts.as_ref().map(|facts| facts.effect.as_str()),
                    call.facts.as_ref().map(|facts| facts.definition),
                    call.preview.as_ref().and_then(|preview| preview.precondition.as_ref()),
                ])
            })
            .collect();
        let asked = match &self.question {
            Question::Approval => Value::Null,
            Question::Input { call, schema, .. } => json!([call, schema]),
            Question::Resolution { call, .. } => json!([call]),
        };
        let covered =
            json!(["countersign/pending/v1", self.question.as_str(), run, self.id, self.turn, calls, asked]);
        Digest::new(Sha256::digest(canonical(&covered).as_bytes()).into())
    }

    /// The calls that need an approval of their own.
    pub fn asked(&self) -> impl Iterator<Item = &HeldCall> {
        self.calls.iter().filter(|call| call.because().is_some())
    }

    /// One held call.
    pub fn call(&self, id: &CallId) -> Option<&HeldCall> {
        self.calls.iter().find(|call| call.id == *id)
    }
}

/// How a pending stopped being open without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// Nobody decided in time.
    Expired,
    /// The run was cancelled.
    Withdrawn,
    /// A definition changed (M2).
    Void,
}

/// The status of a pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum PendingStatus {
    Open,
    Approved,
    Denied,
    Answered,
    Settled,
    Expired,
    Withdrawn,
    Void,
    Superseded,
}

impl PendingStatus {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Open,
        Self::Approved,
        Self::Denied,
        Self::Answered,
        Self::Settled,
        Self::Expired,
        Self::Withdrawn,
        Self::Void,
        Self::Superseded,
    ];

    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Answered => "answered",
            Self::Settled => "settled",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Void => "void",
            Self::Superseded => "superseded",
        }
    }

    /// Reads a stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl From<Closing> for PendingStatus {
    fn from(closing: Closing) -> Self {
        match closing {
            Closing::Expired => Self::Expired,
            Closing::Withdrawn => Self::Withdrawn,
            Closing::Void => Self::Void,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_ta14_a_preview_is_cut_and_counted() {
        // The vector says 20 lines; rule A7 says 200 of 500 characters.
        let preview = Preview::of((0..250).map(|line| line.to_string()), None);
        assert_eq!(preview.lines.len(), 200);
        assert_eq!(preview.lines[199], "[51 more lines are not shown]");
        let long = Preview::of(["é".repeat(600)], None);
        assert_eq!(long.lines[0].chars().count(), 500);
        assert!(long.lines[0].ends_with("[600 characters in all]"));
        assert!(Preview::of([], None).failed);
    }

    #[test]
    fn rule_a10_an_unreadable_deadline_has_passed() {
        for (text, passed) in [
            ("null", false),
            ("\"soon\"", true),
            ("\"2027-01-01\"", true),
            ("7", true),
            ("\"9000-01-01T00:00:00Z\"", false),
        ] {
            let deadline: Deadline = serde_json::from_str(text).unwrap();
            assert_eq!(deadline.has_passed(Timestamp::UNIX_EPOCH), passed, "{text}");
        }
    }
}
