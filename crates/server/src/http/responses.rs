//! Runs in the shape of OpenAI's Responses: the same log, told in somebody else's words.
//!
//! Invariant: a response is a stretch of a run's log, from what set the run going (its start, or a decision) to where it next
//! stopped. Nothing is stored for it: its id says which stretch, and everything in it follows from the log. The id of an
//! approval request carries the digest of the whole question, so that what is approved is exactly what was shown (A6). Not
//! here: starting and settling (`routes::responses_create`); what calls came to, which no route shows.

mod request;
mod stream;

use std::fmt;

use countersign::{
    CallId, Digest, Entry, Event, FailCode, HeldCall, Limit, Outlook, Pending, Question, Run, RunId, Usage,
};
use serde_json::{Map, Value, json};

use super::look::Seen;

pub(crate) use request::{ApprovalAnswer, CreateResponse, Wanted, one_word};
pub(crate) use stream::stream;

/// The id of a response: its run, and the sequence of the event that set the run going.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseId {
    /// The run.
    pub(crate) run: RunId,
    /// The sequence.
    pub(crate) begin: u64,
}

impl ResponseId {
    /// Reads one; nothing is repaired.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (run, begin) = text.strip_prefix("resp_")?.split_once('_')?;
        let id = Self { run: RunId::parse(&format!("run_{run}")).ok()?, begin: begin.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "resp_{}_{}", rest(self.run.as_str()), self.begin)
    }
}

/// The id of an approval request: the call, and the digest of the question as it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalId {
    /// The call.
    pub(crate) call: CallId,
    /// The digest.
    pub(crate) digest: Digest,
}

impl ApprovalId {
    /// Reads one; nothing is repaired.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (call, digest) = text.strip_prefix("mcpr_")?.split_once('_')?;
        let call = CallId::parse(&format!("call_{call}")).ok()?;
        Some(Self { call, digest: Digest::parse(&format!("sha256:{digest}")).ok()? })
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.to_string();
        write!(out, "mcpr_{}_{}", rest(self.call.as_str()), digest.trim_start_matches("sha256:"))
    }
}

/// An id without its prefix.
fn rest(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, rest)| rest)
}

/// What one response tells.
#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    run: &'a Run,
    /// From what set the run going to where it stopped, or to the newest.
    entries: &'a [Entry],
    stop: Option<Stop<'a>>,
    /// What was asked where it stopped: the question, and what took its place when somebody edited it. The last counts.
    asked: Vec<&'a Pending>,
    before: Option<u64>,
    after: Option<u64>,
}

/// Why a run stands still.
#[derive(Clone, Copy, Debug)]
enum Stop<'a> {
    /// It waits for a person.
    Asked(&'a Question),
    /// It is done, or a limit ended it.
    Completed(Option<Limit>),
    /// It failed.
    Failed(FailCode),
    /// Somebody cancelled it.
    Cancelled,
}

impl<'a> Stop<'a> {
    /// `None`: it goes on after this.
    fn of(event: &'a Event) -> Option<Self> {
        if let Event::PendingOpened(pending) = event {
            Some(Self::Asked(&pending.question))
        } else if let Event::RunCompleted(completed) = event {
            Some(Self::Completed(completed.limit))
        } else if let Event::RunFailed(failed) = event {
            Some(Self::Failed(failed.code))
        } else {
            matches!(event, Event::RunCancelled(_)).then_some(Self::Cancelled)
        }
    }
}

impl<'a> Stretch<'a> {
    /// `None`: nothing set the run going at this place.
    pub(crate) fn of(id: &ResponseId, seen: &'a Seen) -> Option<Self> {
        let begin = usize::try_from(id.begin).ok()?;
        seen.log.get(begin).filter(|entry| sets_going(entry))?;
        let (before, rest) = seen.log.split_at(begin);
        let stop = rest.iter().position(|entry| Stop::of(&entry.event).is_some());
        let (entries, after) = rest.split_at(stop.map_or(rest.len(), |stop| stop + 1));
        let stop = entries.last().and_then(|entry| Stop::of(&entry.event));
        let opened = entries.last().and_then(|entry| asked(&entry.event));
        // Until it is settled, an edit may put another question in its place.
        let open = after.iter().take_while(|entry| opened.is_some() && !settles(&entry.event));
        let asked = opened.into_iter().chain(open.filter_map(|entry| asked(&entry.event))).collect();
        let going = |entry: &Entry| sets_going(entry).then_some(entry.seq);
        Some(Self {
            run: &seen.run,
            entries,
            stop,
            asked,
            before: before.iter().rev().find_map(going),
            after: after.iter().find_map(going),
        })
    }

    /// The newest of a run.
    pub(crate) fn newest(seen: &Seen) -> ResponseId {
        let begin = seen.log.iter().rev().find(|entry| sets_going(entry)).map_or(0, |entry| entry.seq);
        ResponseId { run: seen.run.id().clone(), begin }
    }

    /// The same as it was when it began.
    pub(crate) fn begun(self) -> Self {
        let entries = self.entries.get(..1).unwrap_or_default();
        Self { entries, stop: None, asked: Vec::new(), after: None, ..self }
    }

    /// Whether the run has stopped since.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// The question that was asked where it stopped, by the digest that somebody saw; where no question had this digest,
    /// the one that is to be judged by it.
    pub(crate) fn question(&self, digest: Digest) -> Option<&'a Pending> {
        let seen = self.asked.iter().find(|pending| pending.digest(self.run.id()) == digest);
        seen.or(self.asked.last()).copied()
    }

    /// The response before it in the same run.
    pub(crate) fn before(&self) -> Option<ResponseId> {
        Some(ResponseId { run: self.run.id().clone(), begin: self.before? })
    }

    /// What came of it so far, in order. More is only ever added to the end.
    pub(crate) fn items(&self) -> Vec<Value> {
        let texts = self.entries.iter().filter_map(|entry| {
            let Event::ModelReplied(replied) = &entry.event else { return None };
            Some((entry.seq, replied.reply.text.as_deref()?))
        });
        let texts = texts.filter(|(_, text)| !text.trim().is_empty());
        let messages = texts.map(|(seq, text)| message(self.run.id(), seq, text));
        messages.chain(self.requests()).collect()
    }

    /// What a person is asked about.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let Some(pending) = self.asked.last().filter(|pending| pending.question == Question::Approval) else {
            return Vec::new();
        };
        let digest = pending.digest(self.run.id());
        pending.calls.iter().filter_map(|call| held(call, digest)).collect()
    }

    /// The word for where it stands.
    pub(crate) fn status(&self) -> &'static str {
        match self.stop {
            None => "in_progress",
            Some(Stop::Asked(Question::Approval) | Stop::Completed(None)) => "completed",
            Some(Stop::Asked(_) | Stop::Completed(Some(_))) => "incomplete",
            Some(Stop::Failed(_)) => "failed",
            Some(Stop::Cancelled) => "cancelled",
        }
    }

    /// The whole of it. `previous`: what it goes on with.
    pub(crate) fn json(&self, previous: Option<&str>) -> Value {
        let (begin, last) = (self.entries.first(), self.entries.last());
        let id = ResponseId { run: self.run.id().clone(), begin: begin.map_or(0, |entry| entry.seq) };
        let seconds = |entry: &Entry| entry.at.as_second();
        let status = self.status();
        let ended = last.filter(|_| status == "completed").map(seconds);
        let cut = |limit: Limit| [Limit::CutOff, Limit::BudgetExhausted].contains(&limit);
        let (reason, error) = match self.stop {
            Some(Stop::Completed(Some(limit))) if cut(limit) => (Some("max_output_tokens"), None),
            Some(Stop::Failed(code)) => (None, Some(code.sentence())),
            Some(Stop::Cancelled) => (None, Some("the run was cancelled")),
            None | Some(Stop::Asked(_) | Stop::Completed(_)) => (None, None),
        };
        json!({
            "id": id.to_string(),
            "object": "response",
            "created_at": begin.map(seconds),
            "completed_at": ended,
            "status": status,
            "background": false,
            "error": error.map(|message| json!({ "code": "server_error", "message": message })),
            "incomplete_details": reason.map(|reason| json!({ "reason": reason })),
            "instructions": null,
            "max_output_tokens": null,
            "metadata": self.metadata(),
            "model": self.run.created().agent,
            "output": self.items(),
            "parallel_tool_calls": true,
            "previous_response_id": previous,
            "store": true,
            "temperature": null,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "truncation": "disabled",
            "usage": self.stop.map(|_| usage(self.used())),
        })
    }

    /// Our own words for what the shape has none for; each value is a text.
    fn metadata(&self) -> Value {
        let mut words: Map<String, Value> = Map::new();
        let mut say = |name: &str, word: &str| drop(words.insert(name.to_owned(), word.into()));
        say("run", self.run.id().as_str());
        if let Some(pending) = self.asked.last() {
            say("pending", pending.id.as_str());
        }
        match self.stop {
            None => {}
            Some(Stop::Asked(Question::Approval)) => say("status", "waiting_for_approval"),
            Some(Stop::Asked(Question::Input { .. })) => say("status", "waiting_for_input"),
            Some(Stop::Asked(Question::Resolution { .. })) => say("status", "needs_resolution"),
            Some(Stop::Completed(limit)) => {
                say("status", "completed");
                say("stop_reason", limit.map_or("answer", Limit::stop_reason));
            }
            Some(Stop::Failed(code)) => {
                say("status", "failed");
                say("error", code.as_str());
            }
            Some(Stop::Cancelled) => say("status", "cancelled"),
        }
        if let Some(begin) = self.after {
            say("next", &ResponseId { run: self.run.id().clone(), begin }.to_string());
        }
        words.into()
    }

    /// What the models used in it, failed attempts included.
    fn used(&self) -> Usage {
        self.entries.iter().fold(Usage::default(), |all, entry| {
            if let Event::ModelReplied(replied) = &entry.event {
                all.plus(replied.reply.usage)
            } else if let Event::ModelFailed(failed) = &entry.event {
                all.plus(failed.usage)
            } else {
                all
            }
        })
    }
}

/// Whether it sets the run going: the start, or somebody's word.
fn sets_going(entry: &Entry) -> bool {
    entry.seq == 0 || matches!(entry.event, Event::PendingDecided(_))
}

/// The question that is open from here on.
fn asked(event: &Event) -> Option<&Pending> {
    if let Event::PendingOpened(pending) | Event::PendingEdited(pending) = event {
        Some(pending)
    } else {
        None
    }
}

/// Whether the question that is open is open no more after it.
fn settles(event: &Event) -> bool {
    matches!(event, Event::PendingDecided(_) | Event::PendingClosed(_))
}

fn message(run: &RunId, seq: u64, text: &str) -> Value {
    json!({
        "id": format!("msg_{}_{seq}", rest(run.as_str())),
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
    })
}

/// A call of the held turn: one that a person is asked about, or one that runs along when the turn is released.
fn held(call: &HeldCall, digest: Digest) -> Option<Value> {
    let facts = call.facts.as_ref()?;
    let label =
        facts.origin.remote().map_or_else(|| facts.group.to_string(), |(server, _)| server.to_string());
    let arguments = call.arguments.as_ref()?.text();
    match call.outlook {
        Outlook::NeedsApproval(_) => Some(json!({
            "id": ApprovalId { call: call.id.clone(), digest }.to_string(),
            "type": "mcp_approval_request",
            "server_label": label,
            "name": call.tool,
            "arguments": arguments,
        })),
        Outlook::Runs => Some(json!({
            "id": format!("mcp_{}", rest(call.id.as_str())),
            "type": "mcp_call",
            "server_label": label,
            "name": call.tool,
            "arguments": arguments,
            "status": "incomplete",
            "approval_request_id": null,
            "output": null,
            "error": null,
        })),
        Outlook::NeedsInput(_) | Outlook::Refused(_) => None,
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_input_tokens, "cache_write_tokens": 0 },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.total_tokens(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_or_not_at_all() {
        let id = ResponseId { run: RunId::parse("run_a1").unwrap(), begin: 12 };
        assert_eq!(id.to_string(), "resp_a1_12");
        assert_eq!(ResponseId::parse("resp_a1_12"), Some(id));
        for text in
            ["", "resp_", "resp_a1", "resp_a1_", "resp_a1_012", "resp_a1_+12", "resp_a1_1_2", "run_a1_12"]
        {
            assert_eq!(ResponseId::parse(text), None, "{text}");
        }
        let digest = Digest::of(b"what was shown");
        let id = ApprovalId { call: CallId::parse("call_c1").unwrap(), digest };
        let text = id.to_string();
        assert_eq!(ApprovalId::parse(&text), Some(id));
        for text in
            [text.to_uppercase(), text.replace("mcpr_", ""), format!("{text}0"), text.replace("c1_", "c1")]
        {
            assert_eq!(ApprovalId::parse(&text), None, "{text}");
        }
    }
}
