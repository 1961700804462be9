//! What is said: a CloudEvent, in one JSON object.
//!
//! Invariant: a message is a function of the log and of what the program is called, so every attempt says the same. It
//! holds ids, the names of registered tools, words of the contract and a link behind which the reader must show who they
//! are; never arguments, results, reasons or anything else that a model or a person wrote.

use countersign::{Deadline, Entry, Event, Notice, NoticeKind, Pending, PendingId, RunId};
use serde_json::{Map, Value, json};

use crate::show;

/// How a message is called: the same in every attempt, another for every event.
pub(super) fn id(notice: &Notice) -> String {
    format!("{}-{}", notice.run, notice.seq)
}

/// The message; `None` when the log has no such event, or one of which nobody is told.
pub(super) fn body(origin: &str, notice: &Notice, log: &[Entry]) -> Option<Vec<u8>> {
    let Event::RunCreated(created) = &log.first()?.event else { return None };
    let entry = log.get(usize::try_from(notice.seq).ok()?)?;
    let kind = NoticeKind::of(&entry.event)?;
    let run = &notice.run;
    let Value::Object(said) = said(origin, run, &entry.event)? else { return None };
    let mut data = Map::new();
    data.insert("run".to_owned(), json!(run));
    data.insert("agent".to_owned(), json!(created.agent));
    data.extend(said);
    let time = show::moment(entry.at);
    let message = json!({
        "specversion": "1.0",
        "id": id(notice),
        "source": origin,
        "type": format!("countersign.{}", kind.as_str()),
        "subject": run,
        "time": time,
        // What Standard Webhooks calls it.
        "timestamp": time,
        "datacontenttype": "application/json",
        "data": data,
    });
    serde_json::to_vec(&message).ok()
}

fn said(origin: &str, run: &RunId, event: &Event) -> Option<Value> {
    let of_pending = |id: &PendingId| format!("{origin}/pending/{id}");
    let of_run = || format!("{origin}/runs/{run}");
    Some(match event {
        Event::PendingOpened(pending) => json!({
            "pending": pending.id,
            "kind": pending.question.as_str(),
            "tools": tools(pending),
            "expires_at": match pending.expires_at {
                Deadline::At(at) => Some(show::moment(at)),
                Deadline::Never | Deadline::Unreadable => None,
            },
            "url": of_pending(&pending.id),
        }),
        Event::PendingDecided(decided) => json!({
            "pending": decided.pending,
            "verdict": decided.decided.verdict.as_str(),
            "url": of_pending(&decided.pending),
        }),
        Event::RunCompleted(completed) => json!({
            "stop_reason": completed.limit.map_or("answer", countersign::Limit::stop_reason),
            "url": of_run(),
        }),
        Event::RunFailed(failed) => json!({ "code": failed.code.as_str(), "url": of_run() }),
        Event::RunCancelled(_) => json!({ "url": of_run() }),
        Event::RunCreated(_)
        | Event::GateDenied(_)
        | Event::WorkBegan(_)
        | Event::ContextFitted(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::PendingRefused(_)
        | Event::PendingEdited(_)
        | Event::PendingClosed(_)
        | Event::CallStarted(_)
        | Event::CallFinished(_)
        | Event::CallUnknown(_)
        | Event::LimitReached(_)
        | Event::CancelRequested(_) => return None,
    })
}

/// The tools of the held calls, each once. What no tool is called, a model made up: it is left out.
fn tools(pending: &Pending) -> Vec<&str> {
    let mut names = Vec::new();
    for call in pending.calls.iter().filter(|call| call.facts.is_some()) {
        if !names.contains(&call.tool.as_str()) {
            names.push(call.tool.as_str());
        }
    }
    names
}

#[cfg(test)]
mod tests;
