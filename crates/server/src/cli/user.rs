//! `countersign user`.

use clap::{Args, Subcommand};
use countersign::{Account, Principal, Scope, Standing, Subject};
use serde_json::{Value, json};

use crate::show::{self, table::table};
use crate::{escape, json as shapes};

use super::pages::{PAGE, all_of};
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
    /// Everybody who is known, with what they may do
    List(List),
    /// Make a person known, or change what they may do; what is not named stays as it is
    Set(Set),
    /// Let somebody in no more: no right of any kind, and their tokens open nothing, until `user set` names them again
    Disable(Disable),
}

#[derive(Debug, Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
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

#[derive(Debug, Args)]
struct Disable {
    /// Whom
    #[arg(value_name = "SUBJECT", value_parser = subject)]
    subject: Subject,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::List(list) => listed(&list, invocation).await,
        What::Set(set) => stored(set, invocation).await,
        What::Disable(disable) => disabled(&disable, invocation).await,
    }
}

/// What they may do.
pub(super) fn rights_in_words(principal: &Principal) -> String {
    match (principal.admin, principal.standing) {
        (_, Standing::Service(scopes)) => {
            let words: Vec<&str> = scopes.iter().map(Scope::as_str).collect();
            let may = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
            format!("a program, which may do: {may}")
        }
        (true, Standing::User | Standing::Approver) => "an administrator".to_owned(),
        (false, Standing::Approver) => "an approver, who may decide on every run".to_owned(),
        (false, Standing::User) => "a user, who may decide on their own runs".to_owned(),
    }
}

fn shown(account: &Account) -> Value {
    let principal = &account.principal;
    let (approver, scopes) = match principal.standing {
        Standing::User => (false, None),
        Standing::Approver => (true, None),
        Standing::Service(scopes) => (false, Some(scopes.iter().map(Scope::as_str).collect::<Vec<_>>())),
    };
    json!({
        "subject": principal.subject,
        "admin": principal.admin,
        "approver": approver,
        "service": principal.is_service(),
        "scopes": scopes,
        "disabled_at": account.disabled_at.map(shapes::time),
    })
}

async fn listed(arguments: &List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, None).await?;
    let store = &session.setup.store;
    let accounts = all_of(async |cursor| store.accounts(PAGE, cursor.as_deref()).await).await;
    let accounts =
        accounts.map_err(|fault| Failure::store("those who are known cannot be listed", &fault))?;
    if arguments.json {
        let items: Vec<Value> = accounts.iter().map(shown).collect();
        show::out(&escape::json(&shapes::page(&items, None)));
        return Ok(Exit::Done);
    }
    let mut rows = vec![["subject", "rights", "state"].map(str::to_owned).to_vec()];
    rows.extend(accounts.iter().map(|account| {
        let state = match account.disabled_at {
            None => "known".to_owned(),
            Some(at) => format!("disabled {}", show::moment(at)),
        };
        vec![account.principal.subject.to_string(), rights_in_words(&account.principal), state]
    }));
    show::out(&table(&rows));
    Ok(Exit::Done)
}

async fn stored(set: Set, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open_or_make(invocation, None).await?;
    if set.subject == session.actor.subject && (set.no_admin || set.no_approver) {
        return Err(is_the_operator(&set.subject));
    }
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was changed", &fault);
    let account = store.account(&set.subject).await.map_err(failed)?;
    let was_disabled = account.as_ref().is_some_and(|account| account.disabled_at.is_some());
    let before = account.map(|account| account.principal);
    let mut person = before.clone().unwrap_or_else(|| Principal::user(set.subject.clone()));
    if person.is_service() && (set.admin || set.no_admin || set.approver || set.no_approver) {
        return Err(Failure::usage(format!(
            "{0} is a program, which may do exactly what its scopes say: add some with `token create --subject {0} \
             --service --scopes …`",
            set.subject
        )));
    }
    person.admin = (person.admin || set.admin) && !set.no_admin;
    if set.approver {
        person.standing = Standing::Approver;
    }
    if set.no_approver {
        person.standing = Standing::User;
    }
    if was_disabled || before.as_ref() != Some(&person) {
        store.put_principal(&person).await.map_err(failed)?;
    }
    if set.json {
        show::out(&escape::json(&shown(&Account { principal: person, disabled_at: None })));
        return Ok(Exit::Done);
    }
    let what = match before {
        None => "is known now, as",
        Some(_) if was_disabled => "is let in again, as",
        Some(before) if before == person => "is still",
        Some(_) => "is now",
    };
    show::out(&format!("{} {what} {}.", person.subject, rights_in_words(&person)));
    Ok(Exit::Done)
}

async fn disabled(arguments: &Disable, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, None).await?;
    let subject = &arguments.subject;
    if *subject == session.actor.subject {
        return Err(is_the_operator(subject));
    }
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was changed", &fault);
    store.disable_principal(subject, session.setup.clock.now()).await.map_err(failed)?;
    let Some(account) = store.account(subject).await.map_err(failed)? else {
        return Err(Failure::usage(format!(
            "nobody is known as {subject}, so nothing was changed; `user list` shows who is"
        )));
    };
    if arguments.json {
        show::out(&escape::json(&shown(&account)));
        return Ok(Exit::Done);
    }
    show::out(&format!(
        "{subject} is disabled: no right of any kind, and their tokens open nothing. `user set {subject}` lets them in again."
    ));
    Ok(Exit::Done)
}

fn is_the_operator(subject: &Subject) -> Failure {
    Failure::usage(format!("{subject} is the operator here: who can open database and key has all rights"))
}
