//! A question, as somebody reads it who must decide in ten seconds: who wants what, why it asks, what it would
//! do, and how to answer.
//!
//! Invariant: tool, group, effect, agent, owner and the exact arguments are always named. Foreign text stands
//! behind a bar or a name of ours, so it cannot pose as our own words.

use countersign::{
    Arguments, Because, CallId, Deadline, HeldCall, Outlook, PendingRecord, PendingStatus, Question, Refusal,
    Run, Runtime,
};

use super::{Style, moment};
use crate::escape;
use crate::json::{View, preview_lines};

/// What holds of a question at the moment it is shown, which its record does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    /// The calls whose tool is not what it was: the question is void, though nobody has stored that yet (M2).
    pub(crate) changed: Vec<CallId>,
    /// The run's agent or its model is not configured here: it can only be ended (R7).
    pub(crate) agent_gone: bool,
}

impl Now {
    /// As this runtime sees it. What is no longer open stays what it is.
    pub(crate) fn of(runtime: &Runtime, run: &Run, record: &PendingRecord) -> Self {
        if record.status != PendingStatus::Open {
            return Self::default();
        }
        if runtime.is_agent_gone(run) {
            return Self { agent_gone: true, ..Self::default() };
        }
        let changed = record.pending.changed(&runtime.parts().tools);
        Self { changed: changed.map(|call| call.id.clone()).collect(), agent_gone: false }
    }

    /// The status that is shown.
    pub(crate) fn status(&self, record: &PendingRecord) -> PendingStatus {
        if self.changed.is_empty() { record.status } else { PendingStatus::Void }
    }

    fn refusal(&self, call: &HeldCall) -> Option<Refusal> {
        self.changed.contains(&call.id).then_some(Refusal::DefinitionChanged).or_else(|| call.refusal())
    }
}

/// How the question can be answered, as commands to type.
pub(crate) fn commands(
    record: &PendingRecord,
    run: &Run,
    now: &Now,
    command: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let pending = &record.pending;
    let (id, digest) = (&pending.id, pending.digest(run.id()));
    let deciding = |verb: &str, more: &str| command(&format!("{verb} {id} --digest {digest}{more}"));
    if now.status(record) == PendingStatus::Void {
        return vec![command(&format!("runs resume {}", run.id()))];
    }
    if now.agent_gone {
        let ending = match pending.question {
            Question::Approval | Question::Input { .. } => deciding("deny", " --reason 'WHY'"),
            Question::Resolution { .. } => deciding("settle", " --outcome give_up"),
        };
        return vec![ending, command(&format!("runs cancel {}", run.id()))];
    }
    match pending.question {
        Question::Approval => vec![deciding("approve", ""), deciding("deny", " --reason 'WHY'")],
        Question::Input { .. } => {
            vec![deciding("answer", " --data 'JSON'"), deciding("deny", " --reason 'WHY'")]
        }
        Question::Resolution { .. } => ["happened", "did_not_happen", "give_up"]
            .map(|outcome| deciding("settle", &format!(" --outcome {outcome}")))
            .to_vec(),
    }
}

/// The whole question.
pub(crate) fn question(record: &PendingRecord, run: &Run, now: &Now, view: View, style: Style) -> String {
    let (pending, created) = (&record.pending, run.created());
    let title = match (&pending.question, now.status(record)) {
        (_, status) if status != PendingStatus::Open => format!("This question is {}", status.as_str()),
        (Question::Approval, _) => "A person must approve".to_owned(),
        (Question::Input { .. }, _) => "A person must supply an input".to_owned(),
        (Question::Resolution { .. }, _) => {
            "It is not known whether a call happened: a person must say".to_owned()
        }
    };
    let mut lines = vec![
        style.bold(&style.yellow(&format!("{title}  {}", pending.id))),
        format!("  run      {}, turn {}", run.id(), pending.turn),
        format!("  agent    {}", created.agent),
        format!("  owner    {}{}", created.owner, started_by(run)),
        format!("  task     {}", task(run)),
        format!("  asked    {}", moment(record.opened_at)),
        format!("  expires  {}", expiry(pending.expires_at)),
    ];
    if !pending.editors.is_empty() {
        let editors: Vec<&str> = pending.editors.iter().map(countersign::Subject::as_str).collect();
        lines.push(format!("  changed  arguments were changed by {}", editors.join(", ")));
    }
    for (number, call) in pending.calls.iter().enumerate() {
        lines.push(String::new());
        lines.extend(call_lines(number + 1, call, now, view, style));
    }
    lines.push(String::new());
    lines.extend(asked_lines(&pending.question, style));
    let hidden: usize = pending.calls.iter().map(hidden_in).sum();
    if hidden > 0 {
        lines.push(style.red(&format!(
            "  note     {hidden} characters that cannot be shown as they are stand above as \\u{{…}}"
        )));
    }
    if let Some(decided) = &record.decided {
        let reason = decided.reason.as_deref().map(|reason| format!(", because: {}", escape::value(reason)));
        let at = record.settled_at.map(|at| format!(" at {}", moment(at))).unwrap_or_default();
        lines.push(format!(
            "  decided  {} by {}{at}{}",
            decided.verdict.as_str(),
            decided.by,
            reason.unwrap_or_default()
        ));
    }
    lines.push(format!("  digest   {}", pending.digest(run.id())));
    lines.join("\n")
}

/// One line for a list.
pub(crate) fn summary(record: &PendingRecord) -> String {
    let calls = record.pending.calls.iter().filter(|call| call.refusal().is_none());
    let named: Vec<String> = calls.map(|call| escape::short(&call.tool, 64)).collect();
    named.join(", ")
}

/// Until when.
pub(crate) fn expiry(deadline: Deadline) -> String {
    match deadline {
        Deadline::Never => "never".to_owned(),
        Deadline::At(at) => moment(at),
        Deadline::Unreadable => "it had a deadline that cannot be read, so it has passed".to_owned(),
    }
}

/// The first thing the run was asked, on one line.
pub(crate) fn task(run: &Run) -> String {
    run.created().input.first().map(|input| escape::short(&input.text, 300)).unwrap_or_default()
}

fn started_by(run: &Run) -> String {
    let created = run.created();
    if created.starter == created.owner {
        String::new()
    } else {
        format!(" (started by {})", created.starter)
    }
}

fn call_lines(number: usize, call: &HeldCall, now: &Now, view: View, style: Style) -> Vec<String> {
    let facts = match &call.facts {
        Some(facts) => {
            let remote = facts.origin.remote().map(|(server, name)| {
                format!(" · server {server}, where it is called {}", escape::short(name, 128))
            });
            format!(
                "group {} · effect {} · origin {}{}",
                facts.group,
                facts.effect.as_str(),
                facts.origin.as_str(),
                remote.unwrap_or_default()
            )
        }
        None => "no tool of this name is registered".to_owned(),
    };
    let outlook = match (now.refusal(call), &call.outlook) {
        (Some(refusal), _) => style.red(&will_not_run(refusal)),
        (None, Outlook::NeedsApproval(_) | Outlook::NeedsInput(_)) => style.yellow(&outlook(call)),
        (None, Outlook::Refused(_) | Outlook::Runs) => outlook(call),
    };
    let mut lines = vec![
        format!(
            "{} {}  {}",
            style.bold(&format!("{number}.")),
            style.bold(&escape::short(&call.tool, 128)),
            call.id
        ),
        format!("   {facts}"),
        format!("   {outlook}"),
    ];
    lines.extend(argument_lines("arguments", call.arguments.as_ref()));
    if call.original_arguments.is_some() {
        lines.extend(argument_lines(
            "the model's own arguments, before a person changed them",
            call.original_arguments.as_ref(),
        ));
    }
    match preview_lines(call, view) {
        None => {}
        Some((preview, failed)) => {
            lines.push(if failed {
                format!("   {}", style.red("the preview failed:"))
            } else {
                "   what it would do:".to_owned()
            });
            let shown = preview.iter().flat_map(|line| line.split('\n'));
            lines.extend(shown.map(|line| format!("     │ {}", style.diff(&escape::block(line)))));
        }
    }
    lines
}

fn argument_lines(title: &str, arguments: Option<&Arguments>) -> Vec<String> {
    let Some(arguments) = arguments else { return vec![format!("   {title}: they cannot be read")] };
    if arguments.members().is_empty() {
        return vec![format!("   {title}: none")];
    }
    let members = arguments.members().iter();
    let shown = members.map(|(name, value)| {
        format!("     {} = {}", escape::short(name, 128), escape::value(&value.to_string()))
    });
    std::iter::once(format!("   {title}:")).chain(shown).collect()
}

fn asked_lines(question: &Question, style: Style) -> Vec<String> {
    match question {
        Question::Approval => Vec::new(),
        Question::Input { call, schema, message } => {
            let mut lines = vec![
                format!("  for      {call}"),
                format!("  asked    {}", escape::value(message)),
                "  fields".to_owned(),
            ];
            lines.extend(fields(schema).into_iter().map(|field| format!("     {field}")));
            lines
        }
        Question::Resolution { call, not_before } => vec![style.yellow(&format!(
            "  unknown  {call} was started and gave no answer. Look whether it happened; that it did not can be said after {}",
            moment(*not_before)
        ))],
    }
}

/// The fields of an input schema, one line each.
fn fields(schema: &serde_json::Value) -> Vec<String> {
    let required = |name: &str| {
        let listed = schema.get("required").and_then(serde_json::Value::as_array);
        listed.is_some_and(|listed| listed.iter().any(|field| field.as_str() == Some(name)))
    };
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    let properties = properties.into_iter().flatten();
    properties
        .map(|(name, schema)| {
            let needed = if required(name) { "required" } else { "optional" };
            format!("{} ({needed}): {}", escape::short(name, 128), escape::value(&schema.to_string()))
        })
        .collect()
}

fn hidden_in(call: &HeldCall) -> usize {
    let arguments = call.arguments.as_ref().map_or(0, |arguments| escape::hidden_in(&arguments.text()));
    let preview = call
        .preview
        .as_ref()
        .map_or(0, |preview| preview.lines.iter().map(|line| escape::hidden_in(line)).sum());
    escape::hidden_in(&call.tool) + arguments + preview
}

fn outlook(call: &HeldCall) -> String {
    match &call.outlook {
        Outlook::Runs => "needs no approval itself, and runs once the turn is released".to_owned(),
        Outlook::NeedsApproval(because) => format!("NEEDS APPROVAL: {}", sentence(*because)),
        Outlook::NeedsInput(_) => "NEEDS INPUT that only a person can supply".to_owned(),
        Outlook::Refused(refusal) => will_not_run(*refusal),
    }
}

fn will_not_run(refusal: Refusal) -> String {
    format!("will not run, whatever is decided ({}): {}", refusal.as_str(), refusal.sentence())
}

/// Why a call needs an approval, in words.
pub(crate) fn sentence(because: Because) -> &'static str {
    match because {
        Because::Marked => "the tool is marked to ask every time (marked)",
        Because::Operator => "the operator wants to be asked (operator)",
        Because::Writes => "it writes (writes)",
    }
}

#[cfg(test)]
mod tests;
