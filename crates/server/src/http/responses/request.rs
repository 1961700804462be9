//! What a response is asked for with.
//!
//! Invariant: what is not known here is refused and named, not passed over: most of what the shape has would change what
//! happens (another prompt, other tools, another temperature), and an agent's configuration says that, not its caller. An
//! approval counts only as an answer to a question that is stored; a history that a client brings along says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use countersign::{AgentName, CallVerdict, InputMessage, InputRole, ToolRequest};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use super::ApprovalId;
use crate::http::problem::{Answer, Problem};

/// What a response is made from: a task, or answers to approval requests.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct CreateResponse {
    /// Which agent; where nobody says, that of the run that is gone on with, else `default`.
    #[schema(value_type = Option<String>)]
    pub(crate) model: Option<AgentName>,
    /// A text, or a list of messages; or of answers to approval requests, one for every request of the response before.
    #[schema(value_type = ResponseInput)]
    pub(crate) input: Items,
    /// The response whose conversation goes on, or whose approval requests are answered.
    pub(crate) previous_response_id: Option<String>,
    /// Whether the answer is a stream of events.
    pub(crate) stream: Option<bool>,
    /// Whether the answer comes at once, without waiting for the run.
    pub(crate) background: Option<bool>,
    /// Only `true`: every run is stored.
    pub(crate) store: Option<bool>,
    /// Only `[]`, which wants no tools; absent: all that the agent may use.
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) tools: Option<Vec<Value>>,
}

/// A text, or items.
#[derive(utoipa::ToSchema)]
#[schema(as = ResponseInput)]
#[expect(dead_code, reason = "only describes what `Items` reads")]
pub(crate) enum ResponseInput {
    /// What is to be done.
    #[schema(title = "Text")]
    Text(String),
    /// Items in their order.
    #[schema(title = "Items")]
    Items(Vec<InputItem>),
}

/// A message, or the answer to an approval request.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct InputItem {
    /// Absent: a message.
    #[serde(rename = "type")]
    kind: Option<ItemKind>,
    /// Of a message: who says it, `user` or `assistant`.
    #[schema(value_type = Option<String>)]
    role: Option<InputRole>,
    /// Of a message: a text, or parts of it.
    #[schema(value_type = Option<ResponseContent>)]
    content: Option<Content>,
    /// Of an answer: which request.
    approval_request_id: Option<String>,
    /// Of an answer: whether the call may run.
    approve: Option<bool>,
    /// Of an answer: why. The model is told of a denial's.
    reason: Option<String>,
    /// Not looked at.
    #[serde(rename = "id")]
    _id: Option<String>,
    /// Of a message that came from here: not looked at.
    #[serde(rename = "status")]
    _status: Option<String>,
    /// Of a message that came from here: not looked at.
    #[serde(rename = "phase")]
    _phase: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum ItemKind {
    Message,
    McpApprovalResponse,
}

/// A text, or parts of it.
#[derive(utoipa::ToSchema)]
#[schema(as = ResponseContent)]
#[expect(dead_code, reason = "only describes what `Content` reads")]
pub(crate) enum ResponseContent {
    /// All of it.
    #[schema(title = "Text")]
    Text(String),
    /// Parts, each a paragraph.
    #[schema(title = "Parts")]
    Parts(Vec<ContentPart>),
}

/// A part of a text.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct ContentPart {
    /// Text is all that there is.
    #[serde(rename = "type")]
    _kind: PartKind,
    text: String,
    /// Only `[]`.
    #[schema(value_type = Option<Vec<Object>>)]
    annotations: Option<Vec<Value>>,
    /// Only `[]`.
    #[schema(value_type = Option<Vec<Object>>)]
    logprobs: Option<Vec<Value>>,
}

#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    InputText,
    OutputText,
}

/// The input, read.
#[derive(Debug)]
pub(crate) struct Items(Vec<InputItem>);

#[derive(Debug)]
struct Content(String);

/// Reads a text or a list.
struct TextOr<T>(fn(String) -> T);

impl InputItem {
    fn text(text: String) -> Self {
        Self {
            kind: None,
            role: Some(InputRole::User),
            content: Some(Content(text)),
            approval_request_id: None,
            approve: None,
            reason: None,
            _id: None,
            _status: None,
            _phase: None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOr<T> {
    type Value = Vec<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text or a list")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        Ok(vec![self.0(text.to_owned())])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(TextOr(InputItem::text)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let whole =
            |text| ContentPart { _kind: PartKind::InputText, text, annotations: None, logprobs: None };
        let parts = source.deserialize_any(TextOr(whole))?;
        let is_bare =
            |part: &ContentPart| [&part.annotations, &part.logprobs].into_iter().flatten().all(Vec::is_empty);
        if !parts.iter().all(is_bare) {
            return Err(de::Error::custom("annotations and logprobs are not supported"));
        }
        let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
        Ok(Self(texts.join("\n")))
    }
}

/// What is wanted.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A run, with this said.
    Run(Vec<InputMessage>),
    /// A question settled.
    Settlement(Vec<ApprovalAnswer>),
}

/// Somebody's word on one call.
#[derive(Debug)]
pub(crate) struct ApprovalAnswer {
    /// Where in the body it stands.
    pub(crate) pointer: String,
    /// What it answers.
    pub(crate) request: ApprovalId,
    verdict: CallVerdict,
    reason: Option<String>,
}

impl CreateResponse {
    /// Which of the two is wanted.
    ///
    /// # Errors
    /// An input that is neither, or both.
    pub(crate) fn wanted(&mut self) -> Answer<Wanted> {
        if self.store == Some(false) {
            return Err(invalid("/store", "every run is stored; leave this out"));
        }
        let items = std::mem::take(&mut self.input.0);
        let is_answer = |item: &InputItem| item.kind == Some(ItemKind::McpApprovalResponse);
        let (answers, others): (Vec<_>, Vec<_>) =
            items.into_iter().enumerate().partition(|(_, item)| is_answer(item));
        match (answers.is_empty(), others.first()) {
            (true, _) => {
                let messages: Answer<_> = others.into_iter().map(|(at, item)| message(at, item)).collect();
                Ok(Wanted::Run(messages?))
            }
            (false, Some((at, _))) => Err(invalid(
                &format!("/input/{at}"),
                "answers to approval requests come alone; say more once the run has ended",
            )),
            (false, None) => {
                let answers: Answer<_> = answers.into_iter().map(|(at, item)| answer(at, item)).collect();
                Ok(Wanted::Settlement(answers?))
            }
        }
    }

    /// Which tools a run is to have.
    ///
    /// # Errors
    /// A caller brings none.
    pub(crate) fn tool_request(&self) -> Answer<ToolRequest> {
        match self.tools.as_deref() {
            None => Ok(ToolRequest::AllEnabled),
            Some([]) => Ok(ToolRequest::Only(Vec::new())),
            Some([_, ..]) => Err(invalid(
                "/tools/0",
                "tools are declared by the operator; leave this out to have those of the agent, or send [] for none",
            )),
        }
    }
}

fn message(at: usize, item: InputItem) -> Answer<InputMessage> {
    for (name, is_there) in [
        ("approval_request_id", item.approval_request_id.is_some()),
        ("approve", item.approve.is_some()),
        ("reason", item.reason.is_some()),
    ] {
        if is_there {
            return Err(invalid(&format!("/input/{at}/{name}"), "this is not part of a message"));
        }
    }
    match (item.role, item.content) {
        (Some(role), Some(Content(text))) => Ok(InputMessage { role, text }),
        (role, _) => {
            let name = if role.is_none() { "role" } else { "content" };
            Err(invalid(&format!("/input/{at}/{name}"), "a message has a role and a content"))
        }
    }
}

fn answer(at: usize, item: InputItem) -> Answer<ApprovalAnswer> {
    let pointer = |name: &str| format!("/input/{at}/{name}");
    if item.role.is_some() || item.content.is_some() {
        let name = if item.role.is_some() { "role" } else { "content" };
        return Err(invalid(&pointer(name), "this is not part of an answer"));
    }
    let Some(approve) = item.approve else {
        return Err(invalid(&pointer("approve"), "an answer says true or false"));
    };
    let verdict = if approve { CallVerdict::Approve } else { CallVerdict::Deny };
    let pointer = pointer("approval_request_id");
    match item.approval_request_id.as_deref().and_then(ApprovalId::parse) {
        Some(request) => Ok(ApprovalAnswer { pointer, request, verdict, reason: item.reason }),
        None => Err(invalid(&pointer, "this is the id of an mcp_approval_request")),
    }
}

/// All answers as one word on one question.
///
/// # Errors
/// They are about different questions, name a call twice, or give a denial reasons that differ.
pub(crate) fn one_word(
    answers: &[ApprovalAnswer],
) -> Answer<(BTreeMap<countersign::CallId, CallVerdict>, Option<String>)> {
    let mut verdicts = BTreeMap::new();
    for answer in answers {
        if answers.first().is_some_and(|first| first.request.digest != answer.request.digest) {
            return Err(invalid(&answer.pointer, "the answers of one request are about one question"));
        }
        if verdicts.insert(answer.request.call.clone(), answer.verdict).is_some() {
            return Err(invalid(&answer.pointer, "this request is answered twice"));
        }
    }
    let given: BTreeSet<&str> = answers.iter().filter_map(|answer| answer.reason.as_deref()).collect();
    let denied = answers.iter().filter(|answer| answer.verdict == CallVerdict::Deny);
    let of_denials: BTreeSet<Option<&str>> = denied.map(|answer| answer.reason.as_deref()).collect();
    if given.len() > 1 || of_denials.len() > 1 {
        return Err(invalid(
            "/input",
            "a decision has one reason: give the same one with every call that is denied",
        ));
    }
    Ok((verdicts, given.first().map(|&reason| reason.to_owned())))
}

fn invalid(pointer: &str, detail: &str) -> Problem {
    Problem::invalid_at("invalid_field", pointer, detail)
}
