//! The JSON shapes of the contract (section 4), built from the types of the core.
//!
//! Invariant: every key of the contract is there in every object, `null` where there is nothing. Not here: who
//! may see what; the caller says whether the viewer may see the preview of an admin-only tool (A7).

use countersign::{
    Agent, Arguments, Because, Clearance, Deadline, Decided, EnableState, End, Entry, Event, GroupName,
    GroupSetting, HeldCall, LoadError, Models, Origin, Pause, PendingRecord, Question, RemoteApproval, Run,
    RunListing, Switch, Switches, ToolSpec, Verdict, Word, WorkBegan, needs_approval, runs_unattended,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::show::pending::Now;

/// In lists, arguments longer than this are left out.
const LISTED_ARGUMENTS_BYTES_MAX: usize = 8_000;

/// How much of a pending is shown, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Whether the viewer is an administrator.
    pub(crate) admin: bool,
    /// Whether it stands in a list.
    pub(crate) listed: bool,
}

/// A run.
pub(crate) fn run(run: &Run, leased: bool, view: View) -> Value {
    let (stop_reason, error, finished_at) = match run.end() {
        None => (None, Value::Null, None),
        Some(End::Completed { limit: None, at }) => (Some("answer"), Value::Null, Some(*at)),
        Some(End::Completed { limit: Some(limit), at }) => {
            let reason = limit.stop_reason();
            (Some(reason), json!({ "code": reason, "detail": limit.sentence() }), Some(*at))
        }
        Some(End::Failed { code, at }) => {
            (Some("error"), json!({ "code": code.as_str(), "detail": code.sentence() }), Some(*at))
        }
        Some(End::Cancelled { at, .. }) => (Some("cancelled"), Value::Null, Some(*at)),
    };
    let created = run.created();
    json!({
        "id": run.id(),
        "status": run.state().status(leased),
        "agent": created.agent,
        "owner": created.owner,
        "unattended": created.unattended,
        "continues": created.continues,
        "iterations": run.iterations(),
        "usage": run.usage(),
        "output": run.output().filter(|_| matches!(run.end(), Some(End::Completed { .. }))),
        "truncated": matches!(run.end(), Some(End::Completed { limit: Some(_), .. })),
        "stop_reason": stop_reason,
        "error": error,
        "pending": run.open_pending().map(|record| pending(record, run, view)),
        "created_at": time(run.created_at()),
        "updated_at": time(run.updated_at()),
        "finished_at": finished_at.map(time),
    })
}

/// A run whose log cannot be read: what its row says, with the reason.
pub(crate) fn unreadable_run(listing: &RunListing, why: &LoadError) -> Value {
    let row = &listing.row;
    let code = if matches!(why, LoadError::Erased { .. }) { "erased" } else { "unreadable_state" };
    json!({
        "id": row.id,
        "status": listing.status(),
        "agent": row.agent,
        "owner": row.owner,
        "unattended": row.unattended,
        "continues": row.continues,
        "iterations": row.iterations,
        "usage": row.usage,
        "output": null,
        "truncated": row.limit.is_some(),
        "stop_reason": null,
        "error": { "code": code, "detail": why.to_string() },
        "pending": null,
        "created_at": time(row.created_at),
        "updated_at": time(row.updated_at),
        "finished_at": row.finished_at.map(time),
    })
}

/// A pending.
pub(crate) fn pending(record: &PendingRecord, run: &Run, view: View) -> Value {
    let pending = &record.pending;
    let (input, resolution) = match &pending.question {
        Question::Approval => (Value::Null, Value::Null),
        Question::Input { call, schema, message } => (
            json!({ "call": call, "schema": schema, "message": message, "server": null, "mode": "form", "url": null }),
            Value::Null,
        ),
        Question::Resolution { call, not_before } => {
            (Value::Null, json!({ "call": call, "not_before": time(*not_before) }))
        }
    };
    json!({
        "id": pending.id,
        "run": run.id(),
        "kind": pending.question.as_str(),
        "status": record.status.as_str(),
        "digest": pending.digest(run.id()),
        "created_at": time(record.opened_at),
        "expires_at": deadline(pending.expires_at),
        "calls": pending.calls.iter().map(|call| held(call, view)).collect::<Vec<_>>(),
        "input": input,
        "resolution": resolution,
        "edited_by": pending.editors.last(),
        "decision": record.decided.as_ref().map(|decided| decision(decided, record.settled_at)),
    })
}

fn held(call: &HeldCall, view: View) -> Value {
    let facts = call.facts.as_ref();
    let remote = facts.and_then(|facts| facts.origin.remote());
    let because = call.because().map(Because::as_str);
    let mut shown = json!({
        "id": call.id,
        "tool": call.tool,
        "remote_name": remote.map(|(_, name)| name),
        "group": facts.map(|facts| &facts.group),
        "origin": facts.map(|facts| facts.origin.as_str()),
        "server": remote.map(|(server, _)| server),
        "effect": facts.map(|facts| facts.effect.as_str()),
        "original_arguments": call.original_arguments.as_ref().map(Arguments::to_value),
        "needs_approval": because.is_some(),
        "because": because,
        "will_run": call.refusal().is_none(),
        "refusal": call.refusal().map(countersign::Refusal::as_str),
        "preview": preview(call, view),
    });
    let arguments = call.arguments.as_ref().map(Arguments::to_value);
    let bytes = call.arguments.as_ref().map_or(0, |arguments| arguments.text().len());
    if view.listed && bytes > LISTED_ARGUMENTS_BYTES_MAX {
        shown["arguments"] = Value::Null;
        shown["arguments_bytes"] = bytes.into();
    } else {
        shown["arguments"] = arguments.unwrap_or_default();
    }
    shown
}

/// The same pending as it is at this moment: a question whose tools changed is void before anybody has stored it.
pub(crate) fn as_now(shown: &mut Value, record: &PendingRecord, now: &Now) {
    shown["status"] = now.status(record).as_str().into();
    for (call, held) in shown["calls"].as_array_mut().into_iter().flatten().zip(&record.pending.calls) {
        if now.changed.contains(&held.id) {
            call["will_run"] = false.into();
            call["refusal"] = countersign::Refusal::DefinitionChanged.as_str().into();
        }
    }
}

/// The lines a viewer may see (A7).
pub(crate) fn preview_lines(call: &HeldCall, view: View) -> Option<(Vec<String>, bool)> {
    let preview = call.preview.as_ref()?;
    if call.facts.as_ref().is_some_and(|facts| facts.requires_admin) && !view.admin {
        return Some((
            vec!["withheld: only administrators may see what this call would do".to_owned()],
            false,
        ));
    }
    Some((preview.lines.clone(), preview.failed))
}

fn preview(call: &HeldCall, view: View) -> Value {
    preview_lines(call, view)
        .map_or(Value::Null, |(lines, failed)| json!({ "lines": lines, "failed": failed }))
}

/// What was decided.
pub(crate) fn decision(decided: &Decided, at: Option<Timestamp>) -> Value {
    json!({
        "by": decided.by,
        "at": at.map(time),
        "verdict": decided.verdict.as_str(),
        "calls": decided.calls,
        "reason": decided.reason,
        "attribution": decided.attribution.as_str(),
    })
}

/// A tool.
pub(crate) fn tool(spec: &ToolSpec, switches: &Switches) -> Value {
    let because = needs_approval(Some(spec)).map(Because::as_str);
    let remote = spec.origin.remote();
    let (declared, may_ask) = match &spec.origin {
        Origin::Mcp { approval, .. } => (*approval != RemoteApproval::Undeclared, true),
        Origin::Builtin | Origin::Http | Origin::Command | Origin::Library => (true, false),
    };
    let suspends = match (&spec.pause, because) {
        (Pause::NeedsInput(_), _) | (_, Some(_)) => "always",
        (Pause::Runs | Pause::Asks, None) if may_ask => "may",
        (Pause::Runs | Pause::Asks, None) => "never",
    };
    json!({
        "name": spec.name,
        "description": spec.description,
        "group": spec.group,
        "origin": spec.origin.as_str(),
        "server": remote.map(|(server, _)| server),
        "remote_name": remote.map(|(_, name)| name),
        "effect": spec.effect.as_str(),
        "data_class": spec.data_class.as_str(),
        "requires_admin": spec.requires_admin,
        "parameters": spec.parameters,
        "enabled": enabled(switches.state(spec)),
        "approval": { "required": because.is_some(), "because": because, "declared": declared },
        "unattended": runs_unattended(Some(spec)),
        "suspends": suspends,
        "orphaned": false,
    })
}

fn enabled(state: EnableState) -> Value {
    json!({
        "effective": state.effective,
        "tool": state.tool,
        "group": state.group,
        "default": state.default,
        "overridden": state.overridden,
    })
}

/// The override of a name that nobody has any more.
pub(crate) fn orphaned_tool(name: &str, switch: Option<Switch>) -> Value {
    json!({
        "name": name,
        "orphaned": true,
        "enabled": { "effective": false, "tool": switch == Some(Switch::On), "group": null, "default": null, "overridden": switch.is_some() },
    })
}

/// A group.
pub(crate) fn group(name: &str, switch: Option<Switch>, tools: &[&str]) -> Value {
    json!({
        "name": name,
        "enabled": switch.is_none_or(|switch| switch == Switch::On),
        "overridden": switch.is_some(),
        "tools": tools,
        "orphaned": tools.is_empty(),
    })
}

/// What runs can be started with. Its prompt is the operator's.
pub(crate) fn agent(agent: &Agent, models: &Models) -> Value {
    let groups: Vec<&str> = match &agent.groups {
        GroupSetting::Unrestricted => Vec::new(),
        GroupSetting::Only(groups) => groups.iter().map(GroupName::as_str).collect(),
    };
    json!({
        "name": agent.name,
        "models": agent.models,
        "zone": models.zone_of(&agent.models).as_str(),
        "tool_groups": groups,
        "skills": agent.skills.iter().map(|skill| &skill.name).collect::<Vec<_>>(),
        "max_iterations": agent.limits.iterations_max,
        "max_tokens": agent.limits.tokens_max,
        "approval_ttl_s": agent.approval_ttl.map(|ttl| ttl.as_secs()),
        "second_approver": agent.second_approver,
    })
}

/// A verdict of `explain`.
pub(crate) fn verdict(verdict: &Verdict, spec: Option<&ToolSpec>) -> Value {
    let because = needs_approval(spec).map(Because::as_str);
    json!({
        "tool": verdict.tool,
        "allowed": verdict.word.allows(),
        "reason": verdict.word.gate().map_or("none", countersign::Gate::as_str),
        "observed_only": verdict.word == Word::ObservedTrustZone,
        "data_class": verdict.data_class.as_str(),
        "zone": verdict.zone.as_str(),
        "ceiling": verdict.ceiling.as_str(),
        "approval": { "required": because.is_some(), "because": because },
        "unattended": runs_unattended(spec),
    })
}

/// A page of a list.
pub(crate) fn page(items: &[Value], next: Option<&str>) -> Value {
    json!({ "items": items, "next": next })
}

/// An event.
pub(crate) fn event(entry: &Entry, iteration: u32) -> Value {
    json!({ "seq": entry.seq, "at": time(entry.at), "kind": entry.event.kind(), "data": data(&entry.event, iteration) })
}

/// All events of a log. A reply carries the number it has among the counted ones.
pub(crate) fn events(log: &[Entry]) -> Vec<Value> {
    let mut iteration = 0;
    log.iter()
        .map(|entry| {
            if matches!(&entry.event, Event::ModelReplied(replied) if !replied.closing) {
                iteration += 1;
            }
            event(entry, iteration)
        })
        .collect()
}

/// What an event says, by kind.
pub(crate) fn data(event: &Event, iteration: u32) -> Value {
    match event {
        Event::RunCreated(created) => json!({
            "agent": created.agent,
            "owner": created.owner,
            "on_behalf_of": (created.owner != created.starter).then_some(&created.owner),
            "starter": created.starter,
            "unattended": created.unattended,
            "tools": created.tools,
            "models": created.models,
            "limits": created.limits,
            "continues": created.continues,
            "skills": created.skills,
        }),
        Event::GateDenied(denied) => {
            // The gate's own word where the reason is a gate; dispatch knows a few more.
            let is_unknown = denied.reason == countersign::Refusal::UnknownTool;
            let reason =
                if is_unknown { countersign::Gate::NotRegistered.as_str() } else { denied.reason.as_str() };
            json!({ "tool": denied.tool, "reason": reason, "observed_only": denied.observed_only })
        }
        Event::WorkBegan(WorkBegan {}) => json!({}),
        Event::ContextFitted(fitted) => json!({
            "left_out": fitted.left_out,
            "kept": fitted.kept,
            "first_turn": fitted.first_turn,
            "estimated_tokens": fitted.estimated_tokens,
            "window_tokens": fitted.window_tokens,
        }),
        Event::ModelReplied(replied) => {
            let reply = &replied.reply;
            json!({
                "iteration": iteration,
                "provider": reply.provider,
                "model": reply.model,
                "calls": reply.calls.iter().map(|call| &call.id).collect::<Vec<_>>(),
                "usage": reply.usage,
                "finish": reply.finish,
                "attempts": reply.attempts,
                "closing": replied.closing,
            })
        }
        Event::ModelFailed(failed) => json!({
            "provider": failed.model.provider,
            "model": failed.model.model,
            "code": failed.code.as_str(),
            "status": failed.status,
            "attempts": failed.attempts,
            "usage": failed.usage,
        }),
        Event::PendingOpened(pending) => json!({
            "pending": pending.id,
            "kind": pending.question.as_str(),
            "calls": pending.calls.iter().map(|call| &call.id).collect::<Vec<_>>(),
        }),
        Event::PendingDecided(decided) => json!({
            "pending": decided.pending,
            "verdict": decided.decided.verdict.as_str(),
            "by": decided.decided.by,
            "attribution": decided.decided.attribution.as_str(),
            "reason": decided.decided.reason,
            "calls": decided.decided.calls,
        }),
        Event::PendingRefused(refused) => {
            json!({ "pending": refused.pending, "by": refused.by, "code": refused.code })
        }
        Event::PendingEdited(pending) => json!({
            "pending": pending.id,
            "replaces": pending.replaces,
            "by": pending.editors.last(),
        }),
        Event::PendingClosed(closed) => {
            let status = countersign::PendingStatus::from(closed.status).as_str();
            json!({ "pending": closed.pending, "status": status, "by": closed.by, "code": status })
        }
        Event::CallStarted(started) => {
            let pending = match &started.clearance {
                Clearance::NotNeeded => None,
                Clearance::Approved(pending) | Clearance::Answered(pending) => Some(pending),
            };
            json!({
                "call": started.call,
                "tool": started.tool,
                "effect": started.effect.as_str(),
                "attempt": started.attempt,
                "pending": pending,
            })
        }
        Event::CallFinished(finished) => json!({
            "call": finished.call,
            "tool": finished.tool,
            "result": finished.result.kind.as_str(),
            "refusal": finished.result.refusal.map(countersign::Refusal::as_str),
            "bytes": finished.result.bytes,
            "duration_ms": finished.result.duration_ms,
            "detail": finished.detail,
        }),
        Event::CallUnknown(unknown) => {
            json!({ "call": unknown.call, "tool": unknown.tool, "detail": unknown.detail })
        }
        Event::LimitReached(reached) => json!({
            "which": reached.which.as_str(), "estimated_tokens": reached.estimated_tokens,
        }),
        Event::CancelRequested(requested) => json!({ "by": requested.by }),
        Event::RunCompleted(completed) => ended(
            Some(completed.limit.map_or("answer", countersign::Limit::stop_reason)),
            completed.limit.is_some(),
            completed.limit.map(countersign::Limit::stop_reason),
            None,
        ),
        Event::RunFailed(failed) => ended(Some("error"), false, Some(failed.code.as_str()), None),
        Event::RunCancelled(cancelled) => ended(Some("cancelled"), false, None, Some(cancelled.by.as_str())),
    }
}

fn ended(stop_reason: Option<&str>, truncated: bool, code: Option<&str>, by: Option<&str>) -> Value {
    json!({ "stop_reason": stop_reason, "truncated": truncated, "code": code, "by": by })
}

fn deadline(deadline: Deadline) -> Value {
    match deadline {
        Deadline::Never => Value::Null,
        Deadline::At(at) => time(at).into(),
        Deadline::Unreadable => "unreadable".into(),
    }
}

/// A moment as the contract writes it.
pub(crate) fn time(at: Timestamp) -> String {
    at.to_string()
}

#[cfg(test)]
mod tests;
