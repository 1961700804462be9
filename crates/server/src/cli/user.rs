//! `countersign user`.

use clap::{Args, Subcommand};
use countersign::{Principal, Standing, Subject};
use serde_json::json;

use crate::{escape, show};

use super::session::{Invocation, Session};
use super::{Exit, Failure, subject};

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a person known, or change what they may do; what is not named stays as it is
    Set(Set),
}

#[derive(Debug, Args)]
struct Set {
    /// The person, as the record names them
    #[arg(value_name = "SUBJECT", value_parser = subject)]
    subject: Subject,
    /// May do everything
    #[arg(long, conflicts_with = "no_admin")]
    admin: bool,
    /// May not do everything
    #[arg(long)]
    no_admin: bool,
    /// May decide on every run
    #[arg(long, conflicts_with = "no_approver")]
    approver: bool,
    /// May decide on their own runs only
    #[arg(long)]
    no_approver: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Stores it and says what they may do now.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let What::Set(set) = arguments.what;
    let session = Session::open_or_make(invocation, None).await?;
    if set.subject == session.actor.subject && (set.no_admin || set.no_approver) {
        return Err(Failure::usage(format!(
            "{} is the operator here: who can open database and key has all rights",
            set.subject
        )));
    }
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was changed", &fault);
    let look = store.look(std::slice::from_ref(&set.subject)).await.map_err(failed)?;
    let before = look.people.find(&set.subject).cloned();
    let mut person = before.clone().unwrap_or_else(|| Principal::user(set.subject.clone()));
    person.admin = (person.admin || set.admin) && !set.no_admin;
    if set.approver {
        person.standing = Standing::Approver;
    }
    if set.no_approver {
        person.standing = Standing::User;
    }
    if before.as_ref() != Some(&person) {
        store.put_principal(&person).await.map_err(failed)?;
    }
    if set.json {
        let approver = person.standing == Standing::Approver;
        show::out(&escape::json(
            &json!({ "subject": person.subject, "admin": person.admin, "approver": approver }),
        ));
        return Ok(Exit::Done);
    }
    let rights = match (person.admin, &person.standing) {
        (true, _) => "an administrator",
        (false, Standing::Approver) => "an approver, who may decide on every run",
        (false, Standing::User) => "a user, who may decide on their own runs",
        (false, Standing::Service) => "a service",
    };
    let what = match before {
        None => "is known now, as",
        Some(before) if before == person => "is still",
        Some(_) => "is now",
    };
    show::out(&format!("{} {what} {rights}.", person.subject));
    Ok(Exit::Done)
}
