//! Asks in place: shows the question on the terminal and takes the answer, unless somebody else is faster.
//!
//! Invariant: nothing is decided but by a word typed after the question was shown; what was typed ahead is
//! thrown away. While it waits nothing is held, and a decision made elsewhere is noticed.

use std::io::BufRead as _;
use std::time::Duration;

use countersign::{
    Arguments, Clock, DecideError, Decision, DecisionRefused, PendingStatus, Question, Runtime,
    SettledOutcome, Waiting,
};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::escape;
use crate::show::{self, Style};

use super::Failure;
use super::decide::next_step;
use super::interrupt::Interrupt;
use super::session::Session;

/// How often it is looked whether somebody else has decided.
const LOOK: Duration = Duration::from_millis(300);

/// Nobody reads and answers a question within this time; what arrives by then was typed before.
const SETTLING: Duration = Duration::from_millis(50);

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The question is settled, here or elsewhere: the run can go on.
    Settled,
    /// Nobody decides now.
    Waits,
}

/// A line that is no text: nobody can know what was meant.
#[derive(Debug)]
struct NoText;

/// The lines that are typed.
#[derive(Debug)]
pub(crate) struct Lines {
    typed: mpsc::UnboundedReceiver<Result<String, NoText>>,
}

impl Lines {
    /// Reads stdin from now on, for the rest of the process.
    fn of_stdin() -> Self {
        let (sender, typed) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().split(b'\n') {
                let Ok(line) = line else { return };
                if sender.send(String::from_utf8(line).map_err(|_| NoText)).is_err() {
                    return;
                }
            }
        });
        Self { typed }
    }

    /// Everything typed so far, wherever it is on its way, is gone after this.
    async fn after_what_was_typed_ahead<'a>(lines: &'a mut Option<Self>, clock: &dyn Clock) -> &'a mut Self {
        // What the terminal still holds. On anything else there is nothing to throw away.
        _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        let lines = lines.get_or_insert_with(Self::of_stdin);
        clock.sleep(SETTLING).await;
        while lines.typed.try_recv().is_ok() {}
        lines
    }
}

struct Asking<'a> {
    session: &'a Session,
    runtime: &'a Runtime,
    waiting: &'a Waiting,
    lines: &'a mut Lines,
    stop: &'a Interrupt,
}

/// Shows a question and asks until it is settled or left.
///
/// # Errors
/// [`Failure`] when the store fails.
pub(crate) async fn in_place(
    session: &Session,
    runtime: &Runtime,
    waiting: &Waiting,
    lines: &mut Option<Lines>,
    stop: &Interrupt,
    style: Style,
) -> Result<Asked, Failure> {
    show::err("");
    let now = session.now(&waiting.run, &waiting.record);
    show::err(&show::pending::question(&waiting.record, &waiting.run, &now, session.view(), style));
    show::err(&style.dim(&session.in_full(&waiting.id)));
    let lines = Lines::after_what_was_typed_ahead(lines, &*session.clock()).await;
    let mut asking = Asking { session, runtime, waiting, lines, stop };
    loop {
        let decision = match &waiting.record.pending.question {
            Question::Approval => asking.approval().await?,
            Question::Input { schema, .. } => asking.input(schema).await?,
            Question::Resolution { .. } => asking.resolution().await?,
        };
        let decision = match decision {
            Said::Decision(decision) => decision,
            Said::Again => continue,
            Said::Elsewhere => return Ok(Asked::Settled),
            Said::Wait => return Ok(Asked::Waits),
        };
        match runtime.decide(&waiting.id, decision, &session.actor.subject).await {
            Ok(record) => {
                show::err(&style.dim(&format!("  {} is {}", waiting.id, record.status.as_str())));
                return Ok(Asked::Settled);
            }
            Err(error) => {
                let over = is_over(&error);
                let next = next_step(session, &waiting.run, &waiting.id, &error).filter(|_| !over);
                let failure = Failure::from(error);
                let failure = if let Some(next) = next { failure.and(&next) } else { failure };
                show::err(&failure.to_string());
                if over {
                    return Ok(Asked::Settled);
                }
            }
        }
    }
}

/// Whether the question is no longer open, so that asking again makes no sense.
fn is_over(error: &DecideError) -> bool {
    matches!(
        error,
        DecideError::Refused(
            DecisionRefused::AlreadyDecided(_)
                | DecisionRefused::Withdrawn
                | DecisionRefused::Void
                | DecisionRefused::Superseded
                | DecisionRefused::Expired
                | DecisionRefused::NotFound
        )
    )
}

enum Said {
    Decision(Decision),
    Again,
    Elsewhere,
    Wait,
}

impl Asking<'_> {
    async fn approval(&mut self) -> Result<Said, Failure> {
        let word = match self.heard("approve, deny or wait? ").await? {
            Ok(word) => word,
            Err(said) => return Ok(said),
        };
        match word.trim().to_ascii_lowercase().as_str() {
            "approve" | "a" => Ok(Said::Decision(Decision::approve(self.waiting.digest))),
            "deny" | "d" => self.denial().await,
            "wait" | "w" => Ok(Said::Wait),
            _ => {
                show::err("Please type approve, deny or wait (or a, d, w).");
                Ok(Said::Again)
            }
        }
    }

    async fn denial(&mut self) -> Result<Said, Failure> {
        match self.heard("why? (the model is told; empty for no reason) ").await? {
            Ok(reason) => {
                let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                Ok(Said::Decision(Decision::deny(self.waiting.digest, reason)))
            }
            Err(said) => Ok(said),
        }
    }

    async fn input(&mut self, schema: &Value) -> Result<Said, Failure> {
        let prompt = "the fields as one line of JSON, or fields (one by one), deny or wait? ";
        let word = match self.heard(prompt).await? {
            Ok(word) => word,
            Err(said) => return Ok(said),
        };
        match word.trim() {
            "deny" | "d" => self.denial().await,
            "wait" | "w" => Ok(Said::Wait),
            "fields" | "f" => self.fields(schema).await,
            json if json.starts_with('{') => Ok(self.answer(json)),
            _ => {
                show::err(
                    "Please type a JSON object such as {\"name\": \"value\"}, or fields, deny or wait.",
                );
                Ok(Said::Again)
            }
        }
    }

    fn answer(&self, json: &str) -> Said {
        match Arguments::read(Some(json)) {
            Ok(fields) => Said::Decision(Decision::answer(self.waiting.digest, fields)),
            Err(error) => {
                show::err(&format!("That cannot be read: {}.", escape::line(&error.to_string())));
                Said::Again
            }
        }
    }

    async fn fields(&mut self, schema: &Value) -> Result<Said, Failure> {
        let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut fields = Map::new();
        for (name, schema) in properties {
            let kind = schema.get("type").and_then(Value::as_str).unwrap_or("JSON");
            let prompt =
                format!("{} ({}; empty to leave out): ", escape::short(&name, 128), escape::short(kind, 40));
            let typed = match self.heard(&prompt).await? {
                Ok(typed) => typed,
                Err(said) => return Ok(said),
            };
            if typed.trim().is_empty() {
                continue;
            }
            let value = if kind == "string" {
                Value::from(typed)
            } else {
                serde_json::from_str(&typed).unwrap_or(Value::from(typed))
            };
            fields.insert(name, value);
        }
        Ok(self.answer(&Value::Object(fields).to_string()))
    }

    async fn resolution(&mut self) -> Result<Said, Failure> {
        let word = match self.heard("happened, did_not_happen, give_up or wait? ").await? {
            Ok(word) => word,
            Err(said) => return Ok(said),
        };
        let outcome = match word.trim() {
            "happened" => SettledOutcome::Happened,
            "did_not_happen" => SettledOutcome::DidNotHappen,
            "give_up" => SettledOutcome::GiveUp,
            "wait" | "w" => return Ok(Said::Wait),
            _ => {
                show::err("Please type happened, did_not_happen, give_up or wait.");
                return Ok(Said::Again);
            }
        };
        let result = match outcome {
            SettledOutcome::Happened => {
                match self.heard("what did it answer? (the model is told; may be empty) ").await? {
                    Ok(result) => Some(result).filter(|result| !result.trim().is_empty()),
                    Err(said) => return Ok(said),
                }
            }
            SettledOutcome::DidNotHappen | SettledOutcome::GiveUp => None,
        };
        Ok(Said::Decision(Decision::settle(self.waiting.digest, outcome, result)))
    }

    /// A line, unless the question is settled elsewhere first, or nobody is there any more.
    async fn heard(&mut self, prompt: &str) -> Result<Result<String, Said>, Failure> {
        show::prompt(prompt);
        let clock = self.session.clock();
        loop {
            tokio::select! {
                biased;
                () = self.stop.come() => {
                    show::err("");
                    return Ok(Err(Said::Wait));
                }
                line = self.lines.typed.recv() => match line {
                    Some(Ok(line)) => return Ok(Ok(line)),
                    Some(Err(NoText)) => {
                        show::err("That line is not UTF-8 text, so it was not taken; please type it again.");
                        show::prompt(prompt);
                    }
                    None => return Ok(Err(Said::Wait)),
                },
                () = clock.sleep(LOOK) => {
                    if let Some(word) = self.settled_elsewhere().await? {
                        show::err(&format!("\n  {word}"));
                        return Ok(Err(Said::Elsewhere));
                    }
                }
            }
        }
    }

    async fn settled_elsewhere(&self) -> Result<Option<String>, Failure> {
        let failed = |fault| Failure::store("it cannot be seen whether somebody else has decided", &fault);
        let row = self.runtime.parts().store.pending(&self.waiting.id).await.map_err(failed)?;
        Ok(row.filter(|row| row.status != PendingStatus::Open).map(|row| {
            let by = row.decided_by.map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{} is {}{by}, decided elsewhere; going on", row.id, row.status.as_str())
        }))
    }
}
