//! What a call came to, and how much of it is kept (L4).
//!
//! Invariant: a stored result is valid UTF-8 within its bounds, and says truthfully what it is. Artifacts
//! never reach a model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::ToolContent;
use crate::policy::Gate;

/// The most that is kept of the artifacts of one result, in bytes of JSON (L4).
pub const ARTIFACTS_BYTES_MAX: usize = 50_000;
/// The deepest nesting of an artifact.
pub const ARTIFACT_DEPTH_MAX: usize = 64;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    /// The tool answered.
    Ok,
    /// The tool answered with an error, or failed.
    Error,
    /// A read gave no answer in time.
    Timeout,
    /// A person denied it.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// It was not run because of something else in its turn or run.
    NotRun,
    /// A gate refused it.
    Refused,
    /// The run was cancelled.
    Cancelled,
}

impl ResultKind {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::NotRun => "not_run",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a call is refused whatever a person decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No tool of that name, or no name at all.
    UnknownTool,
    /// Registered and permitted, but not in what the run asked for.
    NotOffered,
    /// P2.
    ToolDisabled,
    /// P3.
    RequiresAdmin,
    /// P4.
    ConfigurationGroup,
    /// P5.
    TrustZone,
    /// A5: unreadable, or against the tool's schema.
    InvalidArguments,
    /// L8: the turn was cut off by the token limit.
    CutOff,
    /// L8: the same call was denied before in this run.
    AlreadyDenied,
    /// M2: the tool is no longer what was approved.
    DefinitionChanged,
    /// A call that needs a person where nobody can be asked any more: in an unattended run (U3), or when the
    /// rule changed after its turn was judged.
    NeedsPerson,
}

impl Refusal {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::NotOffered => "not_offered",
            Self::ToolDisabled => "tool_disabled",
            Self::RequiresAdmin => "requires_admin",
            Self::ConfigurationGroup => "configuration_group",
            Self::TrustZone => "trust_zone",
            Self::InvalidArguments => "invalid_arguments",
            Self::CutOff => "cut_off",
            Self::AlreadyDenied => "already_denied",
            Self::DefinitionChanged => "definition_changed",
            Self::NeedsPerson => "needs_person",
        }
    }

    /// The reason in a sentence, for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::UnknownTool => Gate::NotRegistered.sentence(),
            Self::NotOffered => "the tool is not among those this run may use",
            Self::ToolDisabled => Gate::ToolDisabled.sentence(),
            Self::RequiresAdmin => Gate::RequiresAdmin.sentence(),
            Self::ConfigurationGroup => Gate::ConfigurationGroup.sentence(),
            Self::TrustZone => Gate::TrustZone.sentence(),
            Self::InvalidArguments => "the arguments cannot be used",
            Self::CutOff => "the answer was cut off by the output limit",
            Self::AlreadyDenied => "a person denied this very call before in this run",
            Self::DefinitionChanged => "the tool is no longer what it was when the call was made",
            Self::NeedsPerson => "it needs a person, and nobody can be asked here",
        }
    }
}

impl From<Gate> for Refusal {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::NotRegistered => Self::UnknownTool,
            Gate::ToolDisabled => Self::ToolDisabled,
            Gate::RequiresAdmin => Self::RequiresAdmin,
            Gate::ConfigurationGroup => Self::ConfigurationGroup,
            Gate::TrustZone => Self::TrustZone,
        }
    }
}

/// Something a tool shows to people, never to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// What kind.
    #[serde(rename = "type")]
    pub kind: ArtifactKind,
    /// What it is called.
    pub label: String,
    /// The content.
    pub data: Value,
}

/// The kinds of artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the two kinds are what they say")]
pub enum ArtifactKind {
    Text,
    Table,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallResult {
    /// How it ended.
    pub kind: ResultKind,
    /// Which refusal, when it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// The text for the model.
    pub content: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The true size of the content, in bytes, before it was cut.
    pub bytes: u64,
    /// How long the tool took.
    pub duration_ms: u64,
}

impl CallResult {
    /// What a tool answered, bounded.
    pub fn from_tool(
        kind: ResultKind,
        content: impl Into<ToolContent>,
        artifacts: Vec<Artifact>,
        duration_ms: u64,
    ) -> Self {
        let content = content.into();
        let artifacts = if kind == ResultKind::Ok { bounded_artifacts(artifacts) } else { Vec::new() };
        Self {
            kind,
            refusal: None,
            bytes: content.bytes(),
            content: content.bounded(),
            artifacts,
            duration_ms,
        }
    }

    /// A result that we write ourselves because nothing ran.
    pub fn not_from_tool(kind: ResultKind, sentence: &str) -> Self {
        Self {
            kind,
            refusal: None,
            content: sentence.to_owned(),
            artifacts: Vec::new(),
            bytes: sentence.len() as u64,
            duration_ms: 0,
        }
    }

    /// A refusal. `words` is what the model is told where it can do better; else it hears one neutral
    /// sentence, and the reason stays in the record (L2).
    pub fn refused(refusal: Refusal, tool: &str, words: Option<&str>) -> Self {
        let named: String = tool.chars().filter(|character| !character.is_control()).take(64).collect();
        let sentence = match (refusal, words) {
            (_, Some(words)) => ToolContent::from(words).bounded(),
            (Refusal::CutOff, None) => {
                "Not run: the answer was cut off by the output limit, so the call may be incomplete."
                    .to_owned()
            }
            (Refusal::AlreadyDenied, None) => {
                "Not run: a person already denied this call. It will not be asked again.".to_owned()
            }
            (Refusal::NeedsPerson, None) => {
                format!("Not run: the tool {named:?} needs a person's approval, which is not available here.")
            }
            (
                Refusal::UnknownTool
                | Refusal::NotOffered
                | Refusal::ToolDisabled
                | Refusal::RequiresAdmin
                | Refusal::ConfigurationGroup
                | Refusal::TrustZone
                | Refusal::InvalidArguments
                | Refusal::DefinitionChanged,
                None,
            ) => format!("Not run: the tool {named:?} is not available here."),
        };
        Self { refusal: Some(refusal), ..Self::not_from_tool(ResultKind::Refused, &sentence) }
    }

    /// Whether the model is told that it is an error.
    pub fn is_error(&self) -> bool {
        self.kind != ResultKind::Ok
    }
}

fn bounded_artifacts(artifacts: Vec<Artifact>) -> Vec<Artifact> {
    let omitted = |why: &str| {
        vec![Artifact {
            kind: ArtifactKind::Text,
            label: "omitted".to_owned(),
            data: serde_json::json!({ "text": format!("The artifacts of this call were left out: {why}.") }),
        }]
    };
    if artifacts.iter().any(|artifact| depth(&artifact.data) > ARTIFACT_DEPTH_MAX) {
        return omitted("nested too deep");
    }
    match serde_json::to_string(&artifacts) {
        Ok(text) if text.len() > ARTIFACTS_BYTES_MAX => omitted(&format!("{} bytes", text.len())),
        Ok(text) if text.contains("\\u0000") => omitted("a NUL character"),
        Ok(_) => artifacts,
        Err(_) => omitted("they are not JSON"),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_tl06_an_artifact_too_deep_or_too_big_is_replaced_and_the_content_is_not() {
        let deep = (0..65).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let artifact = |data| Artifact { kind: ArtifactKind::Table, label: "t".into(), data };
        for data in [deep, Value::from("x".repeat(ARTIFACTS_BYTES_MAX))] {
            let result = CallResult::from_tool(ResultKind::Ok, "content", vec![artifact(data)], 1);
            assert_eq!((result.content.as_str(), result.artifacts[0].label.as_str()), ("content", "omitted"));
        }
    }

    #[test]
    fn vector_tl07_an_error_has_no_artifacts() {
        let artifact = Artifact { kind: ArtifactKind::Text, label: "t".into(), data: Value::Null };
        assert_eq!(CallResult::from_tool(ResultKind::Error, "no", vec![artifact], 1).artifacts, []);
    }

    #[test]
    fn rule_l2_the_model_does_not_learn_which_gate_refused() {
        let neutral = CallResult::refused(Refusal::UnknownTool, "x", None).content;
        for gate in [Refusal::NotOffered, Refusal::ToolDisabled, Refusal::RequiresAdmin, Refusal::TrustZone] {
            assert_eq!(CallResult::refused(gate, "x", None).content, neutral);
        }
    }
}
