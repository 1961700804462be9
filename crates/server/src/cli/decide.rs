//! `approve`, `deny`, `answer`, `settle`: a person's word, and what it sets going.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use countersign::{
    Arguments, CallId, CallVerdict, DecideError, Decision, DecisionRefused, Digest, PendingId, Run, RunState,
    SettledOutcome, Subject,
};

use crate::show;

use super::follow::{Follow, Manner, Says};
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::{Exit, Failure, digest, pending_id, subject};

pub(crate) const EXIT_HELP: &str = "Exit status: 0 the run has completed, 3 it waits again, 4 it ended without an answer of \
    its own, 5 the decision was refused (the code is on stderr), 2 wrong usage or configuration. With --detach: 0 as soon \
    as the decision is stored.";

/// What every decision has.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The question's id, as `pending list` shows it
    #[arg(value_name = "ID", value_parser = pending_id)]
    id: PendingId,
    /// The digest of what was seen, as `pending show ID` prints it
    #[arg(long, value_name = "D", value_parser = digest)]
    digest: Option<Digest>,
    /// Act as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Only record the decision; leave the run to others
    #[arg(long)]
    detach: bool,
    /// Print one Run object on stdout
    #[arg(long)]
    json: bool,
}

/// `approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    common: Common,
    /// Why; it is kept in the record
    #[arg(long, value_name = "R")]
    reason: Option<String>,
    /// A word for one call; repeat it for every call that needs approval
    #[arg(long = "call", value_name = "CALL=approve|deny", value_parser = call_verdict)]
    calls: Vec<(CallId, CallVerdict)>,
}

/// `deny`.
#[derive(Debug, Args)]
pub(crate) struct Deny {
    #[command(flatten)]
    common: Common,
    /// Why; the model is told
    #[arg(long, value_name = "R")]
    reason: Option<String>,
}

/// `answer`.
#[derive(Debug, Args)]
pub(crate) struct Answer {
    #[command(flatten)]
    common: Common,
    /// The fields, as one JSON object
    #[arg(long, value_name = "JSON")]
    data: String,
}

/// `settle`.
#[derive(Debug, Args)]
pub(crate) struct Settle {
    #[command(flatten)]
    common: Common,
    /// How the call came out
    #[arg(long, value_enum)]
    outcome: OutcomeWord,
    /// What the call would have answered; only with --outcome happened
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
}

/// The words of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum OutcomeWord {
    /// It did
    Happened,
    /// It did not; it is not run again
    DidNotHappen,
    /// Nobody will know; the run ends
    GiveUp,
}

fn call_verdict(text: &str) -> Result<(CallId, CallVerdict), String> {
    let (call, word) = text.split_once('=').ok_or("it is written call_…=approve or call_…=deny")?;
    let verdict = match word {
        "approve" => CallVerdict::Approve,
        "deny" => CallVerdict::Deny,
        _ => return Err("after the = stands approve or deny".to_owned()),
    };
    Ok((CallId::parse(call).map_err(|error| error.to_string())?, verdict))
}

/// Releases.
pub(crate) async fn approve(arguments: Approve, invocation: Invocation) -> Result<Exit, Failure> {
    let Approve { common, reason, calls } = arguments;
    let mut verdicts = BTreeMap::new();
    for (call, verdict) in calls {
        if verdicts.insert(call.clone(), verdict).is_some() {
            return Err(Failure::usage(format!("--call names {call} twice; say one word for each call")));
        }
    }
    decide(common, invocation, move |digest| {
        if verdicts.is_empty() {
            let mut decision = Decision::approve(digest);
            if let countersign::Said::Turn { reason: kept, .. } = &mut decision.said {
                *kept = reason;
            }
            decision
        } else {
            Decision::calls(digest, verdicts, reason)
        }
    })
    .await
}

/// Refuses.
pub(crate) async fn deny(arguments: Deny, invocation: Invocation) -> Result<Exit, Failure> {
    let Deny { common, reason } = arguments;
    decide(common, invocation, move |digest| Decision::deny(digest, reason)).await
}

/// Supplies an input.
pub(crate) async fn answer(arguments: Answer, invocation: Invocation) -> Result<Exit, Failure> {
    let Answer { common, data } = arguments;
    let fields = Arguments::read(Some(&data)).map_err(|error| Failure::usage(format!("--data: {error}")))?;
    decide(common, invocation, move |digest| Decision::answer(digest, fields)).await
}

/// Settles an unknown outcome.
pub(crate) async fn settle(arguments: Settle, invocation: Invocation) -> Result<Exit, Failure> {
    let Settle { common, outcome, result } = arguments;
    if result.is_some() && outcome != OutcomeWord::Happened {
        return Err(Failure::usage(
            "--result says what a call answered that happened; use it with --outcome happened",
        ));
    }
    let outcome = match outcome {
        OutcomeWord::Happened => SettledOutcome::Happened,
        OutcomeWord::DidNotHappen => SettledOutcome::DidNotHappen,
        OutcomeWord::GiveUp => SettledOutcome::GiveUp,
    };
    decide(common, invocation, move |digest| Decision::settle(digest, outcome, result)).await
}

async fn decide(
    common: Common,
    invocation: Invocation,
    decision: impl FnOnce(Digest) -> Decision,
) -> Result<Exit, Failure> {
    let session = Session::open(invocation, common.acting.as_ref()).await?;
    let id = &common.id;
    let Some(digest) = common.digest else {
        return Err(Failure::usage(format!(
            "--digest is missing: a decision names what was seen; look at it with `{}`, which prints it",
            session.command(&format!("pending show {id}"))
        )));
    };
    let row = session.setup.store.pending(id).await;
    let row = row.map_err(|fault| Failure::from(DecideError::NotAuditable(fault)))?;
    let row = row.ok_or_else(|| {
        let next = format!("look for what is open with: {}", session.command("pending list"));
        Failure::from(DecideError::from(DecisionRefused::NotFound)).and(&next)
    })?;
    let loaded = session.load(&row.run).await;
    let (_, run) = loaded.map_err(|error| Failure::from(DecideError::from(error)))?;
    let runtime = session.runtime_of(&run)?;
    let decided = runtime.decide(id, decision(digest), &session.actor.subject).await;
    let follow = Follow::new(
        &session,
        &runtime,
        row.run,
        Manner { says: Says::of(common.json), asks: false },
        Interrupt::listen(),
    );
    let error = match decided {
        Ok(record) => {
            show::err(&format!("{id} is {} (decided by {})", record.status.as_str(), session.actor.subject));
            return if common.detach { follow.only_told().await } else { follow.after_a_decision().await };
        }
        Err(error) => error,
    };
    let owed = is_owed_work(&session, &run).await;
    let goes_on = closed_it(&error) && owed && !common.detach;
    let next = if goes_on {
        Some("the run goes on without an answer".to_owned())
    } else if closed_it(&error) && !owed {
        let show = session.command(&format!("runs show {}", run.id()));
        Some(format!("the run went on without an answer; look at it with: {show}"))
    } else {
        next_step(&session, &run, id, &error)
    };
    let failure = Failure::from(error);
    let failure = if let Some(next) = next { failure.and(&next) } else { failure };
    if !goes_on {
        return Err(failure);
    }
    show::err(&failure.to_string());
    Ok(match follow.after_a_decision().await? {
        Exit::Done | Exit::Usage | Exit::Waiting | Exit::Ended | Exit::Refused => Exit::Refused,
        stopped @ (Exit::Interrupted | Exit::Terminated | Exit::HungUp) => stopped,
    })
}

/// Whether the question ended without anybody's word, so that the run goes on.
fn closed_it(error: &DecideError) -> bool {
    matches!(error, DecideError::Refused(DecisionRefused::Expired | DecisionRefused::Void))
}

/// Whether the run waits for nothing but somebody who drives it.
async fn is_owed_work(session: &Session, run: &Run) -> bool {
    matches!(session.load(run.id()).await, Ok((_, now)) if now.state() == RunState::Active)
}

/// What to do after a refusal, where its own sentence does not say it.
pub(super) fn next_step(session: &Session, run: &Run, id: &PendingId, error: &DecideError) -> Option<String> {
    let DecideError::Refused(refused) = error else { return None };
    let run = run.id();
    let look = || session.command(&format!("pending show {id}"));
    Some(match refused {
        DecisionRefused::AlreadyDecided(_) => return None,
        DecisionRefused::NotFound => {
            format!("look for what is open with: {}", session.command("pending list"))
        }
        DecisionRefused::Expired | DecisionRefused::Void => {
            format!(
                "the run goes on without an answer, with: {}",
                session.command(&format!("runs resume {run}"))
            )
        }
        DecisionRefused::Withdrawn => {
            format!("look at the run with: {}", session.command(&format!("runs show {run}")))
        }
        DecisionRefused::Superseded => {
            format!("look for it with: {}", session.command(&format!("pending list --run {run}")))
        }
        DecisionRefused::AgentGone => format!(
            "configure it again, or end the run: {} (the commands that still decide this: {})",
            session.command(&format!("runs cancel {run}")),
            look()
        ),
        DecisionRefused::TooEarly { .. } => "decide it then, or say now that it happened".to_owned(),
        DecisionRefused::NotPermitted { .. } | DecisionRefused::ApproverNotPermitted { .. } => {
            "somebody with more rights must decide it; it is still open".to_owned()
        }
        DecisionRefused::SelfApproval { .. } => {
            format!("another approver must release it, and finds it with: {}", look())
        }
        DecisionRefused::WrongKind { .. } => format!("the commands that answer it: {}", look()),
        DecisionRefused::CallsIncomplete { .. } => format!("name each with --call, no more; see {}", look()),
        DecisionRefused::StaleDigest => format!("with: {}", look()),
        DecisionRefused::InvalidInput(_) => format!("the fields are shown by: {}", look()),
        _ => format!("look at it with: {}", look()),
    })
}
