//! A run while it happens, line by line on stderr.

use countersign::{Arguments, Doing, Event, ModelReplied, Progress, ResultKind};

use super::{Style, err};
use crate::escape;

/// The most characters of a call's arguments in the one line it gets.
const ARGUMENTS_CHARS_MAX: usize = 160;
/// The most characters of what the model says beside its calls.
const SAID_CHARS_MAX: usize = 1_000;

/// Shows what happens.
#[derive(Debug)]
pub(crate) struct Live {
    style: Style,
}

impl Live {
    /// In this style.
    pub(crate) fn new(style: Style) -> Self {
        Self { style }
    }

    fn replied(&self, replied: &ModelReplied) -> Vec<String> {
        let reply = &replied.reply;
        if reply.calls.is_empty() {
            return Vec::new();
        }
        let mut lines = Vec::new();
        if let Some(text) = reply.text.as_deref().filter(|text| !text.trim().is_empty()) {
            lines.extend(escape::block(&escape_long(text)).lines().map(|line| format!("  │ {line}")));
        }
        lines.extend(reply.calls.iter().map(|call| {
            let arguments = Arguments::read(call.arguments.as_deref())
                .map_or_else(|_| call.arguments.clone().unwrap_or_default(), |arguments| arguments.text());
            let tool = self.style.bold(&escape::short(&call.name, 64));
            format!("  wants {tool} {}", escape::short(&arguments, ARGUMENTS_CHARS_MAX))
        }));
        lines
    }

    fn lines(&self, event: &Event) -> Vec<String> {
        let tool = |name: &str| escape::short(name, 64);
        match event {
            Event::ModelReplied(replied) => self.replied(replied),
            Event::ModelFailed(failed) => vec![self.style.red(&format!(
                "  {} gave no usable answer in {} attempts: {}",
                escape::short(&failed.model.to_string(), 128),
                failed.attempts,
                failed.code.sentence()
            ))],
            Event::CallStarted(started) => {
                let again = if started.attempt > 1 {
                    format!(" again (attempt {})", started.attempt)
                } else {
                    String::new()
                };
                vec![format!("  runs {}{again}", tool(&started.tool))]
            }
            Event::CallFinished(finished) => {
                let refusal = finished
                    .result
                    .refusal
                    .map(|refusal| format!(": {}", refusal.sentence()))
                    .unwrap_or_default();
                let word = format!("{}{refusal}", finished.result.kind.as_str());
                let word = if finished.result.kind == ResultKind::Ok {
                    self.style.green(&word)
                } else {
                    self.style.red(&word)
                };
                let size = if finished.result.kind == ResultKind::Ok {
                    format!(" ({} bytes, {} ms)", finished.result.bytes, finished.result.duration_ms)
                } else {
                    String::new()
                };
                vec![format!("  {} {word}{size}", tool(&finished.tool))]
            }
            Event::CallUnknown(unknown) => {
                vec![self.style.red(&format!("  {}: nobody knows whether it happened", tool(&unknown.tool)))]
            }
            Event::ContextFitted(fitted) => vec![self.style.dim(&format!(
                "  leaves out the oldest {} parts of the conversation, so that it fits the context window",
                fitted.left_out
            ))],
            Event::LimitReached(reached) => vec![self.style.red(&format!("  {}", reached.which.sentence()))],
            Event::CancelRequested(requested) => vec![format!("  {} cancels the run", requested.by)],
            Event::RunCreated(_)
            | Event::GateDenied(_)
            | Event::WorkBegan(_)
            | Event::PendingOpened(_)
            | Event::PendingDecided(_)
            | Event::PendingRefused(_)
            | Event::PendingEdited(_)
            | Event::PendingClosed(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_) => Vec::new(),
        }
    }
}

/// Keeps the lines of a text, up to a bound.
fn escape_long(text: &str) -> String {
    let count = text.chars().count();
    if count <= SAID_CHARS_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(SAID_CHARS_MAX).collect();
    format!("{head} [… {} more characters]", count - SAID_CHARS_MAX)
}

impl Progress for Live {
    fn happened(&self, event: &Event) {
        self.lines(event).iter().for_each(|line| err(line));
    }

    fn doing(&self, doing: Doing<'_>) {
        match doing {
            Doing::Asking(model) => {
                err(&self.style.dim(&format!("  asks {}", escape::short(&model.to_string(), 128))));
            }
            Doing::Retrying { model, reason, after } => err(&self.style.dim(&format!(
                "  {} failed ({}); tries again in {:.1} s",
                escape::short(&model.to_string(), 128),
                escape::line(reason),
                after.as_secs_f64()
            ))),
            _ => {}
        }
    }
}
