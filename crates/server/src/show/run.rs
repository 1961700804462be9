//! A run, as a person reads it.

use std::time::Duration;

use countersign::{CallId, Detail, End, Entry, Event, Run};

use super::{Style, moment};
use crate::escape;

/// The most failures that are shown with their details.
const FAILURES_MAX: usize = 5;

/// The run in a few lines, without its question.
pub(crate) fn summary(run: &Run, leased: bool, style: Style) -> String {
    let created = run.created();
    let usage = run.usage();
    let models: Vec<String> =
        created.models.iter().map(|model| escape::short(&model.to_string(), 128)).collect();
    let unattended = if created.unattended { ", unattended" } else { "" };
    let mut lines = vec![
        format!("{}  {}", style.bold(run.id().as_str()), run.state().status(leased)),
        format!("  agent    {}{unattended}", created.agent),
        format!("  owner    {}", created.owner),
        format!("  model    {}", models.join(", then ")),
        format!("  task     {}", super::pending::task(run)),
    ];
    if let Some(before) = &created.continues {
        lines.push(format!("  goes on  with the conversation of {before}"));
    }
    lines.extend([
        format!("  started  {}", moment(run.created_at())),
        format!("  updated  {}", moment(run.updated_at())),
        format!(
            "  used     {} of {} model answers, {} tokens read ({} from a cache), {} written{}",
            run.iterations(),
            created.limits.iterations_max,
            usage.input_tokens,
            usage.cached_input_tokens,
            usage.output_tokens,
            if usage.unknown_calls > 0 {
                format!(", {} calls of unknown cost", usage.unknown_calls)
            } else {
                String::new()
            }
        ),
    ]);
    if let Some(max) = created.limits.working_ms_max {
        let (worked, max) = (run.worked().as_secs(), Duration::from_millis(max).as_secs());
        lines.push(format!("  worked   {worked}s of {max}s, waiting for people not counted"));
    }
    if run.left_out() > 0 {
        lines.push(format!(
            "  left out the oldest {} parts of the conversation, to fit the window",
            run.left_out()
        ));
    }
    if let Some(how) = ending(run) {
        lines.push(format!("  ended    {how}"));
    }
    lines.join("\n")
}

/// The last calls that failed or have no known outcome, with what the record keeps of them: for whoever may read
/// the run, and nowhere else (S5).
pub(crate) fn failures(log: &[Entry], style: Style) -> Vec<String> {
    let kept: Vec<_> = log.iter().filter_map(detail).collect();
    let left_out = kept.len().saturating_sub(FAILURES_MAX);
    let mut lines = Vec::new();
    if left_out > 0 {
        lines.push(format!("\n{left_out} earlier failures of tools are in the run's events."));
    }
    lines.extend(kept.into_iter().skip(left_out).flat_map(|kept| failure(kept, style)));
    lines
}

fn detail(entry: &Entry) -> Option<(u64, &str, &CallId, &Detail)> {
    if let Event::CallFinished(finished) = &entry.event {
        return Some((entry.seq, &finished.tool, &finished.call, finished.detail.as_ref()?));
    }
    let Event::CallUnknown(unknown) = &entry.event else { return None };
    Some((entry.seq, &unknown.tool, &unknown.call, unknown.detail.as_ref()?))
}

fn failure((seq, tool, call, detail): (u64, &str, &CallId, &Detail), style: Style) -> Vec<String> {
    let title = format!("\n{} failed or gave no answer ({call}, event {seq}):", escape::short(tool, 64));
    let lines = escape::block(detail.as_str());
    std::iter::once(style.red(&title)).chain(lines.lines().map(|line| format!("  │ {line}"))).collect()
}

/// How it ended, in a sentence; `None`: it has not, or with an answer.
pub(crate) fn ending(run: &Run) -> Option<String> {
    match run.end()? {
        End::Completed { limit: None, .. } => None,
        End::Completed { limit: Some(limit), .. } => {
            Some(format!("{}: {}", limit.stop_reason(), limit.sentence()))
        }
        End::Failed { code, .. } => Some(format!("{}: {}", code.as_str(), code.sentence())),
        End::Cancelled { by, .. } => Some(format!("cancelled by {by}")),
    }
}
