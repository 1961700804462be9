//! What a drive of a run is as spans: the agent's, and in it one for each question to a model and each call.
//!
//! Invariant: a span says ids, names of the configuration, counts and words of ours, and never what a model, a tool or a
//! person said, nor who a person is (S5). A drive is a trace of its own, from a worker's taking the run up to its letting
//! go: nothing is open while a person thinks. What follows the answer is another trace, with a link to the one that asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use countersign::{
    CallId, Clearance, Doing, DriveError, End, Event, Finish, Halt, ModelRef, Progress, Refusal, ResultKind,
    Run,
};
use countersign_clients::{AttributeValue, Attributes, Span, SpanContext, SpanEvent, SpanKind, SpanLink};

use super::{Telemetry, names};
use crate::log;

/// So many events at most has a span, as in other programs.
const EVENTS_MAX: usize = 128;

/// Traces the drives that another watches.
pub(super) struct Traced {
    telemetry: Telemetry,
    watched: Arc<dyn Progress>,
    drive: Mutex<Option<Drive>>,
}

/// The spans of a drive that have not ended.
struct Drive {
    agent: Span,
    chat: Option<Span>,
    calls: BTreeMap<CallId, Span>,
}

impl Traced {
    pub(super) fn new(telemetry: Telemetry, watched: Arc<dyn Progress>) -> Self {
        Self { telemetry, watched, drive: Mutex::new(None) }
    }

    fn with(&self, change: impl FnOnce(&mut Drive)) {
        if let Some(drive) = &mut *self.drive.lock().unwrap_or_else(PoisonError::into_inner) {
            change(drive);
        }
    }

    /// A span that begins now: the first of a trace, or part of another.
    fn begin(
        &self,
        parent: Option<SpanContext>,
        name: String,
        kind: SpanKind,
        attributes: Attributes,
    ) -> Span {
        let clock = &self.telemetry.clock;
        let context = match parent {
            None => SpanContext::root(clock.random(), clock.random()),
            Some(parent) => parent.beside(clock.random()),
        };
        let now = clock.now();
        let (events, links) = (Vec::new(), Vec::new());
        Span { context, parent, name, kind, began: now, ended: now, attributes, events, links, failed: false }
    }

    /// It ends now; `failed` says how it failed, in one word.
    fn end(&self, mut span: Span, failed: Option<&str>) {
        if let Some(word) = failed {
            span.failed = true;
            span.attributes.push((names::ERROR, word.into()));
        }
        // A clock that was set back ends nothing before it began.
        span.ended = self.telemetry.clock.now().max(span.began);
        self.telemetry.hand(span);
    }

    fn note(&self, span: &mut Span, name: &'static str, attributes: Attributes) {
        if span.events.len() < EVENTS_MAX {
            span.events.push(SpanEvent { at: self.telemetry.clock.now(), name, attributes });
        }
    }

    fn begin_drive(&self, run: &Run) -> Drive {
        let agent = run.created().agent.as_str();
        let attributes = vec![
            (names::OPERATION, "invoke_agent".into()),
            (names::AGENT, agent.into()),
            (names::CONVERSATION, run.id().as_str().into()),
        ];
        let mut agent = self.begin(None, format!("invoke_agent {agent}"), SpanKind::Internal, attributes);
        agent.links.extend(link(run));
        Drive { agent, chat: None, calls: BTreeMap::new() }
    }

    fn begin_chat(&self, agent: &Span, model: &ModelRef) -> Span {
        let attributes = vec![
            (names::OPERATION, "chat".into()),
            (names::PROVIDER, model.provider.as_str().into()),
            (names::MODEL, model.model.as_str().into()),
        ];
        self.begin(Some(agent.context), format!("chat {}", model.model), SpanKind::Client, attributes)
    }

    fn happens(&self, drive: &mut Drive, event: &Event) {
        match event {
            Event::ModelReplied(replied) => {
                let reply = &replied.reply;
                let model = ModelRef { provider: reply.provider.clone(), model: reply.model.clone() };
                let mut chat = drive.chat.take().unwrap_or_else(|| self.begin_chat(&drive.agent, &model));
                let finish = match reply.finish {
                    Finish::Stop if reply.calls.is_empty() => "stop",
                    Finish::Stop => "tool_calls",
                    Finish::Length => "length",
                    Finish::Other => "other",
                };
                chat.attributes.extend([
                    (names::FINISH, AttributeValue::Texts(vec![finish.to_owned()])),
                    (names::INPUT_TOKENS, reply.usage.input_tokens.into()),
                    (names::OUTPUT_TOKENS, reply.usage.output_tokens.into()),
                    (names::CACHED_TOKENS, reply.usage.cached_input_tokens.into()),
                    (names::ATTEMPTS, u64::from(reply.attempts).into()),
                ]);
                self.end(chat, None);
            }
            Event::ModelFailed(failed) => {
                let chat = drive.chat.take();
                let mut chat = chat.unwrap_or_else(|| self.begin_chat(&drive.agent, &failed.model));
                chat.attributes.push((names::ATTEMPTS, u64::from(failed.attempts).into()));
                self.end(chat, Some(failed.code.as_str()));
            }
            Event::CallStarted(started) => {
                let name = log::tool(&started.tool, None).unwrap_or_default();
                let mut attributes = vec![
                    (names::OPERATION, "execute_tool".into()),
                    (names::TOOL, name.into()),
                    (names::TOOL_TYPE, "function".into()),
                    (names::CALL, started.call.as_str().into()),
                    (names::EFFECT, started.effect.as_str().into()),
                    (names::ATTEMPT, u64::from(started.attempt).into()),
                ];
                match &started.clearance {
                    Clearance::NotNeeded => {}
                    Clearance::Approved(pending) | Clearance::Answered(pending) => {
                        attributes.push((names::PENDING, pending.as_str().into()));
                    }
                }
                let name = format!("execute_tool {name}");
                let call = self.begin(Some(drive.agent.context), name, SpanKind::Internal, attributes);
                drive.calls.insert(started.call.clone(), call);
            }
            Event::CallFinished(finished) => {
                let result = &finished.result;
                let word = result.kind.as_str();
                if let Some(mut call) = drive.calls.remove(&finished.call) {
                    call.attributes.push((names::RESULT, word.into()));
                    return self.end(call, (result.kind != ResultKind::Ok).then_some(word));
                }
                let mut said =
                    vec![(names::CALL, finished.call.as_str().into()), (names::RESULT, word.into())];
                let tool = log::tool_of(finished);
                said.extend(tool.map(|tool| (names::TOOL, tool.into())));
                said.extend(result.refusal.map(|refusal| (names::REFUSAL, Refusal::as_str(refusal).into())));
                self.note(&mut drive.agent, "countersign.call.not_made", said);
            }
            Event::CallUnknown(unknown) => match drive.calls.remove(&unknown.call) {
                Some(mut call) => {
                    call.attributes.push((names::RESULT, "unknown".into()));
                    self.end(call, Some("outcome_unknown"));
                }
                // Another worker made it.
                None => {
                    let mut said = vec![(names::CALL, unknown.call.as_str().into())];
                    said.extend(log::tool(&unknown.tool, None).map(|tool| (names::TOOL, tool.into())));
                    self.note(&mut drive.agent, "countersign.call.unknown", said);
                }
            },
            Event::PendingOpened(pending) => {
                let said = vec![
                    (names::PENDING, pending.id.as_str().into()),
                    (names::PENDING_KIND, pending.question.as_str().into()),
                ];
                self.note(&mut drive.agent, "countersign.pending.opened", said);
            }
            Event::LimitReached(reached) => {
                let said = vec![(names::LIMIT, reached.which.as_str().into())];
                self.note(&mut drive.agent, "countersign.limit.reached", said);
            }
            // What has no length, and is told by the call that it comes with or by the end of the drive; or is done by
            // others than a driver.
            Event::RunCreated(_)
            | Event::GateDenied(_)
            | Event::WorkBegan(_)
            | Event::ContextFitted(_)
            | Event::PendingDecided(_)
            | Event::PendingRefused(_)
            | Event::PendingEdited(_)
            | Event::PendingClosed(_)
            | Event::CancelRequested(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_) => {}
        }
    }

    /// The drive is over, and with it what it had begun.
    fn end_drive(&self, mut drive: Drive, halt: &'static str, run: Option<&Run>) {
        for span in drive.calls.into_values().chain(drive.chat) {
            self.end(span, Some("interrupted"));
        }
        let said = &mut drive.agent.attributes;
        said.push((names::HALT, halt.into()));
        let mut failed = run.is_none().then_some(halt);
        if let Some(run) = run {
            said.push((names::STATUS, run.state().status(false).into()));
            said.extend(run.open_pending().map(|open| (names::PENDING, open.pending.id.as_str().into())));
            match run.end() {
                Some(End::Completed { limit: Some(limit), .. }) => {
                    said.push((names::STOP_REASON, limit.stop_reason().into()));
                }
                Some(End::Failed { code, .. }) => failed = Some(code.as_str()),
                Some(End::Completed { limit: None, .. } | End::Cancelled { .. }) | None => {}
            }
        }
        self.end(drive.agent, failed);
    }
}

/// What the drive goes on from: the one that asked the last question, or whatever started the run.
fn link(run: &Run) -> Option<SpanLink> {
    let (trace, said) = match run.pendings().last() {
        None => (&run.created().trace, vec![(names::LINK, "start".into())]),
        Some(asked) => {
            let said = vec![
                (names::LINK, "pause".into()),
                (names::PENDING, asked.pending.id.as_str().into()),
                (names::PENDING_STATUS, asked.status.as_str().into()),
            ];
            (&asked.pending.trace, said)
        }
    };
    let to = SpanContext::parse(trace.as_deref()?)?;
    Some(SpanLink { to, attributes: said })
}

fn word(error: &DriveError) -> &'static str {
    match error {
        DriveError::LeaseLost => "lease_lost",
        DriveError::Unreadable { .. } => "unreadable",
        DriveError::NotFound(_) => "not_found",
        DriveError::Store(_) => "store_fault",
        _ => "failed",
    }
}

impl Progress for Traced {
    fn takes_up(&self, run: &Run) -> Option<String> {
        // Whoever else watches does not trace.
        _ = self.watched.takes_up(run);
        let drive = self.begin_drive(run);
        let trace = drive.agent.context.traceparent();
        *self.drive.lock().unwrap_or_else(PoisonError::into_inner) = Some(drive);
        Some(trace)
    }

    fn happened(&self, event: &Event) {
        self.watched.happened(event);
        self.with(|drive| self.happens(drive, event));
    }

    fn doing(&self, doing: Doing<'_>) {
        self.watched.doing(doing);
        self.with(|drive| match doing {
            Doing::Asking(model) if drive.chat.is_none() => {
                drive.chat = Some(self.begin_chat(&drive.agent, model));
            }
            Doing::Retrying { .. } => {
                if let Some(chat) = &mut drive.chat {
                    self.note(chat, "countersign.model.retry", Vec::new());
                }
            }
            Doing::Asking(_) | _ => {}
        });
    }

    fn lets_go(&self, driven: &Result<(Halt, Run), DriveError>) {
        self.watched.lets_go(driven);
        let drive = self.drive.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(drive) = drive else { return };
        match driven {
            Ok((halt, run)) => {
                let halt = match halt {
                    Halt::Parked => "parked",
                    Halt::Ended => "ended",
                    Halt::Stopped => "stopped",
                    Halt::AgentGone => "agent_gone",
                };
                self.end_drive(drive, halt, Some(run));
            }
            Err(error) => self.end_drive(drive, word(error), None),
        }
    }
}

/// A drive that was cut off in the middle of a call has let go of nothing.
impl Drop for Traced {
    fn drop(&mut self) {
        let drive = self.drive.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(drive) = drive {
            self.end_drive(drive, "cut_off", None);
        }
    }
}

#[cfg(test)]
mod tests;
