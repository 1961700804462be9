//! What a process that serves or works writes down, one line for each thing that happened.
//!
//! Invariant: which fields a line may have is said here and nowhere else, and none of them holds what a model, a tool or
//! a person said: no arguments, no results, no error texts of tools, no reasons, at any level (S5). Nothing is heard of
//! the libraries underneath: some of them would write down headers and statements. Not here: what a person at a
//! terminal is told (`show`).

use std::sync::OnceLock;
use std::time::Duration;

use countersign::{CallFinished, Event, Pending, PendingStatus, Refusal, ResultKind, RunId, ToolName};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

use crate::config::{Log, LogFormat, LogLevel};
use crate::{escape, show};

/// The target of every line. What has another one is not ours.
const OURS: &str = "countersign";

/// Set once lines are written down: what goes to stderr then goes there as a line.
static WRITES: OnceLock<()> = OnceLock::new();

/// Writes lines to stderr from now on, for the rest of the process.
pub(crate) fn start(log: Log) {
    let level = match log.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let ours = Targets::new().with_target(OURS, level);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    let started = match log.format {
        LogFormat::Text => registry().with(lines.with_filter(ours)).try_init(),
        LogFormat::Json => registry().with(lines.json().flatten_event(true).with_filter(ours)).try_init(),
    };
    if started.is_ok() {
        _ = WRITES.set(());
    }
}

/// What a line may say of something that happened to a run.
#[derive(Debug, Default)]
struct Fields<'a> {
    call: Option<&'a str>,
    tool: Option<&'a str>,
    effect: Option<&'a str>,
    attempt: Option<u32>,
    pending: Option<&'a str>,
    asks: Option<&'a str>,
    digest: Option<String>,
    by: Option<&'a str>,
    /// The one word that says how it came out.
    status: Option<&'a str>,
    /// The one word that says why.
    code: Option<&'a str>,
    duration_ms: Option<u64>,
    provider: Option<&'a str>,
    model: Option<&'a str>,
    calls: Option<usize>,
}

/// Something happened to a run, and is stored.
pub(crate) fn happened(run: &RunId, event: &Event) {
    let (is_warning, fields) = of(run, event);
    let Fields { call, tool, effect, attempt, pending, asks, digest, by, status, code, duration_ms, .. } =
        fields;
    let Fields { provider, model, calls, .. } = fields;
    let (run, digest, calls) = (run.as_str(), digest.as_deref(), calls.map(|calls| calls as u64));
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: OURS, run, call, tool, effect, attempt, pending, asks, digest, by, status, code, duration_ms,
                provider, model, calls, "{}", event.kind()
            )
        };
    }
    if is_warning { line!(warn) } else { line!(info) }
}

/// Whether somebody should look at it, and what may be said of it.
fn of<'a>(run: &RunId, event: &'a Event) -> (bool, Fields<'a>) {
    let nothing = Fields::default();
    match event {
        Event::RunCreated(created) => {
            let by = Some(created.owner.as_str());
            (false, Fields { by, status: Some(created.agent.as_str()), ..nothing })
        }
        Event::GateDenied(denied) => {
            let status = Some(if denied.observed_only { "observed" } else { "denied" });
            let (code, tool) = (Some(denied.reason.as_str()), tool(&denied.tool, Some(denied.reason)));
            (!denied.observed_only, Fields { tool, status, code, ..nothing })
        }
        Event::WorkBegan(_) | Event::ContextFitted(_) => (false, nothing),
        Event::ModelReplied(replied) => {
            let reply = &replied.reply;
            let (provider, model) = (Some(reply.provider.as_str()), Some(reply.model.as_str()));
            let (attempt, calls) = (Some(reply.attempts), Some(reply.calls.len()));
            (false, Fields { provider, model, attempt, calls, ..nothing })
        }
        Event::ModelFailed(failed) => {
            let (provider, model) = (Some(failed.model.provider.as_str()), Some(failed.model.model.as_str()));
            let (attempt, code) = (Some(failed.attempts), Some(failed.code.as_str()));
            (true, Fields { provider, model, attempt, code, ..nothing })
        }
        Event::PendingOpened(pending) | Event::PendingEdited(pending) => {
            let by = pending.editors.last().map(|editor| editor.as_str());
            let is_unknown = pending.question.as_str() == "resolution";
            (is_unknown, Fields { by, ..asked(run, pending) })
        }
        Event::PendingDecided(decided) => {
            let (by, status) = (Some(decided.decided.by.as_str()), Some(decided.decided.verdict.as_str()));
            (false, Fields { pending: Some(decided.pending.as_str()), by, status, ..nothing })
        }
        Event::PendingRefused(refused) => {
            let (by, code) = (Some(refused.by.as_str()), Some(refused.code.as_str()));
            (true, Fields { pending: Some(refused.pending.as_str()), by, code, ..nothing })
        }
        Event::PendingClosed(closed) => {
            let status = Some(PendingStatus::from(closed.status).as_str());
            let by = closed.by.as_ref().map(|by| by.as_str());
            (false, Fields { pending: Some(closed.pending.as_str()), by, status, ..nothing })
        }
        Event::CallStarted(started) => {
            let (call, tool) = (Some(started.call.as_str()), tool(&started.tool, None));
            let (effect, attempt) = (Some(started.effect.as_str()), Some(started.attempt));
            (started.attempt > 1, Fields { call, tool, effect, attempt, ..nothing })
        }
        Event::CallFinished(finished) => {
            let result = &finished.result;
            let (call, tool) = (Some(finished.call.as_str()), tool_of(finished));
            let (status, code) = (Some(result.kind.as_str()), result.refusal.map(Refusal::as_str));
            let duration_ms = Some(result.duration_ms);
            (false, Fields { call, tool, status, code, duration_ms, ..nothing })
        }
        Event::CallUnknown(unknown) => {
            let (call, tool) = (Some(unknown.call.as_str()), tool(&unknown.tool, None));
            (true, Fields { call, tool, status: Some("unknown"), ..nothing })
        }
        Event::LimitReached(reached) => (true, Fields { code: Some(reached.which.as_str()), ..nothing }),
        Event::CancelRequested(requested) => (false, Fields { by: Some(requested.by.as_str()), ..nothing }),
        Event::RunCompleted(completed) => {
            let code = completed.limit.map(countersign::Limit::stop_reason);
            (false, Fields { status: Some("completed"), code, ..nothing })
        }
        Event::RunFailed(failed) => {
            (true, Fields { status: Some("failed"), code: Some(failed.code.as_str()), ..nothing })
        }
        Event::RunCancelled(cancelled) => {
            (false, Fields { status: Some("cancelled"), by: Some(cancelled.by.as_str()), ..nothing })
        }
    }
}

fn asked<'a>(run: &RunId, pending: &'a Pending) -> Fields<'a> {
    Fields {
        pending: Some(pending.id.as_str()),
        asks: Some(pending.question.as_str()),
        digest: Some(pending.digest(run).to_string()),
        calls: Some(pending.calls.len()),
        ..Fields::default()
    }
}

/// The name of a tool that there is. What a model made up is its words.
pub(crate) fn tool(name: &str, refusal: Option<Refusal>) -> Option<&str> {
    let is_made_up = refusal == Some(Refusal::UnknownTool) || ToolName::parse(name).is_err();
    Some(name).filter(|_| !is_made_up)
}

/// The same of a call that has a result. Of one that was neither made nor judged by itself, because its turn or its run
/// ended, nobody has looked whether there is such a tool.
pub(crate) fn tool_of(finished: &CallFinished) -> Option<&str> {
    let (kind, refusal) = (finished.result.kind, finished.result.refusal);
    let was_looked_up = match kind {
        ResultKind::Ok
        | ResultKind::Error
        | ResultKind::Timeout
        | ResultKind::Denied
        | ResultKind::Expired => true,
        ResultKind::Refused => refusal.is_some_and(|refusal| refusal != Refusal::CutOff),
        ResultKind::NotRun | ResultKind::Cancelled => false,
    };
    tool(&finished.tool, refusal).filter(|_| was_looked_up)
}

/// A request was answered. `route` is the pattern, never the path that was asked for.
pub(crate) fn answered(method: &str, route: &str, status: u16, took: Duration) {
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if matches!(route, "/healthz" | "/readyz" | "/metrics") {
        tracing::debug!(target: OURS, method, route, status, duration_ms, "http.answered");
    } else {
        tracing::info!(target: OURS, method, route, status, duration_ms, "http.answered");
    }
}

/// Something that the operator should know and that is our own words; on stderr in any case.
pub(crate) fn warn(words: &str) {
    if WRITES.get().is_some() {
        tracing::warn!(target: OURS, "{words}");
    } else {
        show::err(&escape::line(words));
    }
}

/// Something that goes as it should, in our own words.
pub(crate) fn note(words: &str) {
    if WRITES.get().is_some() {
        tracing::info!(target: OURS, "{words}");
    } else {
        show::err(&escape::line(words));
    }
}

/// A fault of the program: where it was.
pub(crate) fn fault(words: &str) {
    if WRITES.get().is_some() {
        tracing::error!(target: OURS, "{words}");
    } else {
        show::err(words);
    }
}
