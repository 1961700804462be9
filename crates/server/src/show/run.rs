//! A run, as a person reads it.

use countersign::{End, Run};

use super::{Style, moment};
use crate::escape;

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
    ];
    if let Some(how) = ending(run) {
        lines.push(format!("  ended    {how}"));
    }
    lines.join("\n")
}

/// How it ended, in a sentence; `None`: it has not, or with an answer.
pub(crate) fn ending(run: &Run) -> Option<String> {
    match run.end()? {
        End::Completed { limit: None, .. } => None,
        End::Completed { limit: Some(limit), .. } => {
            Some(format!("{}: {}", limit.as_str(), limit.sentence()))
        }
        End::Failed { code, .. } => Some(format!("{}: {}", code.as_str(), code.sentence())),
        End::Cancelled { by, .. } => Some(format!("cancelled by {by}")),
    }
}
