//! From the body of a Chat Completions answer to an answer.
//!
//! Invariant: the frame is read strictly (an object, `choices[0].message`, no name twice) and nothing in it
//! is repaired; what is not understood is kept as raw JSON, in order. No reason quotes the body (S5).
//!
//! Decided here:
//! * A content that is a list of parts gives the texts of its `text` parts, joined; the list itself is kept
//!   and goes back as it was sent, other kinds of parts included.
//! * Arguments that are not a text (some servers send the object itself) are kept as the JSON they are.
//! * The older `function_call`, unless `null`, is unreadable: we offer `tools`, and its call has no id.
//! * Usage counts only when it says both what was read and what was written.

use countersign::{Answer, AnsweredCall, Finish, ModelError, Opaque, Usage};
use serde_json::value::RawValue;

use super::encode::{CALL_NAMES, FUNCTION_NAMES, MESSAGE_NAMES, RAW_CONTENT, REST_OF_FUNCTION};
use super::members::Members;

/// Reads the body of an answer with status 200.
///
/// # Errors
/// [`ModelError::Unreadable`], saying where the body is not what it should be.
pub(super) fn decode(body: &[u8]) -> Result<Answer, ModelError> {
    let body = std::str::from_utf8(body).map_err(|_| unreadable("the body is not UTF-8"))?;
    if let Err(error) = serde_json::from_str::<&RawValue>(body) {
        return Err(unreadable(&format!("no JSON from line {} column {}", error.line(), error.column())));
    }
    let answer = object(body, "the body")?;
    let choices = answer.get("choices").ok_or_else(|| unreadable("there are no choices"))?;
    let choices = list(choices, "choices")?;
    let choice = choices.first().ok_or_else(|| unreadable("there are no choices"))?;
    let choice = object(choice.get(), "choices[0]")?;
    let message = choice.get("message").ok_or_else(|| unreadable("choices[0] has no message"))?;
    let message = object(message, "choices[0].message")?;
    if message.get("function_call").is_some() {
        return Err(unreadable("choices[0].message has a function_call, which nothing asked for"));
    }

    let (text, parts) = content(&message)?;
    let mut opaque = opaque(&message, &MESSAGE_NAMES);
    opaque.0.extend(parts.map(|parts| (RAW_CONTENT.to_owned(), parts.to_owned())));
    let calls = match message.get("tool_calls") {
        Some(calls) => {
            list(calls, "choices[0].message.tool_calls")?.into_iter().map(call).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let finish = match choice.get("finish_reason").and_then(text_of).as_deref() {
        Some("stop" | "tool_calls" | "function_call") => Finish::Stop,
        Some("length") => Finish::Length,
        Some(_) | None => Finish::Other,
    };
    Ok(Answer { text, calls, finish, usage: answer.get("usage").and_then(usage), opaque })
}

/// The text of a message, and the list of parts it came in, if it came in one.
fn content<'a>(message: &Members<'a>) -> Result<(Option<String>, Option<&'a str>), ModelError> {
    const PLACE: &str = "choices[0].message.content";
    let Some(raw) = message.get("content") else {
        return Ok((None, None));
    };
    if let Some(text) = text_of(raw) {
        return Ok((Some(text), None));
    }
    let mut texts = Vec::new();
    for part in list(raw, PLACE)? {
        let part = object(part.get(), "a part of choices[0].message.content")?;
        if part.get("type").and_then(text_of).as_deref() == Some("text") {
            let text = part.get("text").and_then(text_of);
            texts.push(
                text.ok_or_else(|| unreadable("a text part of choices[0].message.content has no text"))?,
            );
        }
    }
    Ok(((!texts.is_empty()).then(|| texts.concat()), Some(raw)))
}

fn call(raw: &RawValue) -> Result<AnsweredCall, ModelError> {
    let call = object(raw.get(), "a member of choices[0].message.tool_calls")?;
    let mut opaque = opaque(&call, &CALL_NAMES);
    let (mut name, mut arguments) = (None, None);
    if let Some(function) = call.get("function") {
        let function = object(function, "the function of a call")?;
        name = function.get("name").and_then(text_of);
        arguments = function.get("arguments").map(|raw| match raw.starts_with('"') {
            true => text_of(raw).ok_or_else(|| unreadable("the arguments of a call are no valid text")),
            false => Ok(raw.to_owned()),
        });
        let rest: Vec<String> = function
            .without(&FUNCTION_NAMES)
            .map(|(name, raw)| format!("{}:{raw}", serde_json::Value::from(name)))
            .collect();
        if !rest.is_empty() {
            opaque.0.push((REST_OF_FUNCTION.to_owned(), format!("{{{}}}", rest.join(","))));
        }
    }
    Ok(AnsweredCall {
        wire_id: call.get("id").and_then(text_of).filter(|id| !id.is_empty()),
        name: name.unwrap_or_default(),
        arguments: arguments.transpose()?,
        opaque,
    })
}

fn usage(raw: &str) -> Option<Usage> {
    let usage = Members::read(raw)?;
    let count = |members: &Members<'_>, name| serde_json::from_str::<u64>(members.get(name)?).ok();
    let details = usage.get("prompt_tokens_details").and_then(Members::read);
    Some(Usage {
        input_tokens: count(&usage, "prompt_tokens")?,
        output_tokens: count(&usage, "completion_tokens")?,
        cached_input_tokens: details.and_then(|details| count(&details, "cached_tokens")).unwrap_or(0),
        unknown_calls: 0,
    })
}

fn opaque(members: &Members<'_>, known: &[&str]) -> Opaque {
    Opaque(members.without(known).map(|(name, raw)| (name.to_owned(), raw.to_owned())).collect())
}

fn object<'a>(raw: &'a str, place: &str) -> Result<Members<'a>, ModelError> {
    Members::read(raw).ok_or_else(|| unreadable(&format!("{place} is no object, or has a name twice")))
}

fn list<'a>(raw: &'a str, place: &str) -> Result<Vec<&'a RawValue>, ModelError> {
    serde_json::from_str(raw).map_err(|_| unreadable(&format!("{place} is not of the right type")))
}

fn text_of(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn unreadable(reason: &str) -> ModelError {
    ModelError::Unreadable { reason: reason.to_owned() }
}
