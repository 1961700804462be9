//! What a tool's `200` says.
//!
//! Invariant: whatever the body is, it comes to content for the model or to a sentence that names the tool.
//! Artifacts that cannot be used never cost the content. A body that stops within its JSON, where only the end of
//! the connection says that this was all, has broken off like one that is shorter than it said: no answer.

use countersign::{Artifact, ArtifactKind, ToolContent, ToolError, ToolName, ToolOutput};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{BadBody, Body, body, failed};
use crate::http::Answer;
use crate::shorten::{Shortened, Unreadable};

/// The most JSON of artifacts that is looked at; the core keeps far less.
const ARTIFACTS_READ_MAX: usize = 1024 * 1024;

#[derive(Deserialize)]
struct Wire<'a> {
    content: String,
    is_error: Option<bool>,
    #[serde(borrow)]
    artifacts: Option<&'a RawValue>,
}

/// Reads the body to its end.
pub(super) async fn output(tool: &ToolName, answer: Answer) -> Result<ToolOutput, ToolError> {
    let ends_with_connection = answer.ends_with_connection;
    let Body { beginning, shortened } = body(answer).await;
    let cut = || (ToolError::no_answer(), "the connection ended within the JSON".to_owned());
    let (error, happened) = match shortened {
        Ok(shortened) => match decode(&shortened) {
            Ok((output, false)) => return Ok(output),
            Ok((output, true)) => return Err(ToolError::answered(output.content)),
            Err(Wrong::Incomplete(_)) if ends_with_connection => cut(),
            Err(Wrong::Incomplete(why) | Wrong::Otherwise(why)) => (unreadable(tool), why),
        },
        Err(BadBody::Broken(error)) => (ToolError::no_answer(), error.all_causes()),
        Err(BadBody::Unreadable(Unreadable::Incomplete)) if ends_with_connection => cut(),
        Err(BadBody::Unreadable(Unreadable::Malformed | Unreadable::Incomplete)) => {
            (unreadable(tool), "not UTF-8, or a text that JSON does not allow".to_owned())
        }
        Err(BadBody::Unreadable(Unreadable::TooLarge)) => {
            (failed(tool, "its answer is too large"), "too large".to_owned())
        }
    };
    Err(error.with_detail(beginning.detail(&format!("status 200; {happened}"))))
}

fn unreadable(tool: &ToolName) -> ToolError {
    failed(tool, "its answer is not the JSON that a tool answers with")
}

/// Why a body is not what a tool answers with.
enum Wrong {
    /// More of it could make it so.
    Incomplete(String),
    /// Whatever came after it, it would not be.
    Otherwise(String),
}

/// The output, and whether the tool calls it an error.
fn decode(body: &Shortened) -> Result<(ToolOutput, bool), Wrong> {
    // A list of the right length would do for the derived reader, but not for the contract.
    match body.json.trim_start().bytes().next() {
        Some(b'{') => {}
        Some(_) => return Err(Wrong::Otherwise("not a JSON object".to_owned())),
        None => return Err(Wrong::Incomplete("not a JSON object".to_owned())),
    }
    let wire: Wire<'_> = serde_json::from_str(&body.json).map_err(|error| {
        let wrong = if error.is_eof() { Wrong::Incomplete } else { Wrong::Otherwise };
        wrong(error.to_string())
    })?;
    let content = match body.true_size("content") {
        Some(bytes) => ToolContent::beginning(wire.content, bytes),
        None => wire.content.into(),
    };
    let artifacts = wire.artifacts.map(artifacts).unwrap_or_default();
    Ok((ToolOutput { content, artifacts }, wire.is_error == Some(true)))
}

fn artifacts(wire: &RawValue) -> Vec<Artifact> {
    if wire.get().len() > ARTIFACTS_READ_MAX {
        return omitted("they are too large");
    }
    let items = serde_json::from_str::<Vec<Value>>(wire.get()).ok();
    let artifacts = items.and_then(|items| items.into_iter().map(artifact).collect());
    artifacts.unwrap_or_else(|| omitted("they are not of the form that artifacts have"))
}

fn artifact(value: Value) -> Option<Artifact> {
    let Value::Object(mut members) = value else { return None };
    let kind = match members.get("type")?.as_str()? {
        "text" => ArtifactKind::Text,
        "table" => ArtifactKind::Table,
        _ => return None,
    };
    let label = members.get("label")?.as_str()?.to_owned();
    Some(Artifact { kind, label, data: members.remove("data")? })
}

/// In place of artifacts that cannot be kept, in the words and the form of the core.
fn omitted(why: &str) -> Vec<Artifact> {
    vec![Artifact {
        kind: ArtifactKind::Text,
        label: "omitted".to_owned(),
        data: serde_json::json!({ "text": format!("The artifacts of this call were left out: {why}.") }),
    }]
}
