//! `countersign token`.

use clap::{Args, Subcommand};
use countersign::{Principal, Scope, Scopes, Standing, Subject, Token, TokenId, TokenRow};
use serde_json::{Value, json};

use crate::show::{self, table::table};
use crate::{escape, json as shapes};

use super::pages::{PAGE, all_of};
use super::session::{Invocation, Session};
use super::user::rights_in_words;
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
    /// Make a token, and print it: it is shown this once. Makes its subject known, and only adds rights
    Create(Create),
    /// The tokens, without their secrets
    List(List),
    /// Make a token open nothing any more
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct Create {
    /// Whom it stands for
    #[arg(long, value_name = "S", value_parser = subject)]
    subject: Subject,
    /// They may do everything
    #[arg(long, conflicts_with = "service")]
    admin: bool,
    /// They may decide on every run
    #[arg(long, conflicts_with = "service")]
    approver: bool,
    /// It is a program, which may do exactly what its scopes say
    #[arg(long)]
    service: bool,
    /// What the program may do: run:create, run:on_behalf, run:read, run:cancel, pending:read, pending:decide,
    /// tools:manage, mcp:manage
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scope, requires = "service")]
    scopes: Vec<Scope>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Revoke {
    /// The token's id, as `token list` shows it
    #[arg(value_name = "ID", value_parser = token_id)]
    id: TokenId,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn scope(word: &str) -> Result<Scope, String> {
    Scope::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        format!("a scope is one of {}", words.join(", "))
    })
}

fn token_id(text: &str) -> Result<TokenId, String> {
    TokenId::parse(text).map_err(|error| error.to_string())
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::Create(create) => created(create, invocation).await,
        What::List(list) => listed(&list, invocation).await,
        What::Revoke(revoke) => revoked(&revoke, invocation).await,
    }
}

async fn created(arguments: Create, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open_or_make(invocation, None).await?;
    let store = &session.setup.store;
    let failed = |fault| Failure::store("no token was made", &fault);
    let account = store.account(&arguments.subject).await.map_err(failed)?;
    if account.as_ref().is_some_and(|account| account.disabled_at.is_some()) {
        return Err(Failure::usage(format!(
            "{0} is disabled, so no token was made; `user set {0}` lets them in again",
            arguments.subject
        )));
    }
    let before = account.map(|account| account.principal);
    let principal = with_more(before.clone(), &arguments)?;
    if before.as_ref() != Some(&principal) {
        store.put_principal(&principal).await.map_err(failed)?;
    }
    let (token, row) = Token::new(principal.subject.clone(), &*session.setup.clock);
    store.put_token(&row).await.map_err(failed)?;
    if arguments.json {
        let mut shown = shown(&row);
        shown["token"] = token.text().into();
        show::out(&escape::json(&shown));
        return Ok(Exit::Done);
    }
    show::out(&token.text());
    show::err(&format!(
        "{} is a token of {}, {}. It is shown this once; `token revoke {}` ends it.",
        row.id,
        row.subject,
        rights_in_words(&principal),
        row.id
    ));
    Ok(Exit::Done)
}

/// Whom the token stands for: as they were, with what is named added.
fn with_more(before: Option<Principal>, arguments: &Create) -> Result<Principal, Failure> {
    let subject = arguments.subject.clone();
    let scopes: Scopes = arguments.scopes.iter().copied().collect();
    let Some(mut principal) = before else {
        if arguments.service {
            return Ok(Principal::service(subject, scopes));
        }
        let standing = if arguments.approver { Standing::Approver } else { Standing::User };
        return Ok(Principal { subject, admin: arguments.admin, standing });
    };
    match (principal.standing, arguments.service) {
        (Standing::Service(has), true) => principal.standing = Standing::Service(has.and(scopes)),
        (Standing::Service(_), false) => {
            return Err(Failure::usage(format!(
                "{subject} is a program: say so with --service, or name another subject; nothing was made"
            )));
        }
        (Standing::User | Standing::Approver, true) => {
            return Err(Failure::usage(format!(
                "{subject} is a person and does not become a program: name another subject; nothing was made"
            )));
        }
        (Standing::User | Standing::Approver, false) => {
            principal.admin |= arguments.admin;
            if arguments.approver {
                principal.standing = Standing::Approver;
            }
        }
    }
    Ok(principal)
}

fn shown(row: &TokenRow) -> Value {
    json!({
        "id": row.id,
        "subject": row.subject,
        "created_at": shapes::time(row.created_at),
        "revoked_at": row.revoked_at.map(shapes::time),
    })
}

async fn listed(arguments: &List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, None).await?;
    let store = &session.setup.store;
    let tokens = all_of(async |cursor| store.tokens(PAGE, cursor.as_deref()).await).await;
    let tokens = tokens.map_err(|fault| Failure::store("the tokens cannot be listed", &fault))?;
    if arguments.json {
        let items: Vec<Value> = tokens.iter().map(shown).collect();
        show::out(&escape::json(&shapes::page(&items, None)));
        return Ok(Exit::Done);
    }
    if tokens.is_empty() {
        let make = session.command(&format!("token create --subject {} --admin", session.actor.subject));
        show::out(&format!("There are no tokens. Make the first with: {make}"));
        return Ok(Exit::Done);
    }
    let mut rows = vec![["id", "subject", "made", "state"].map(str::to_owned).to_vec()];
    rows.extend(tokens.iter().map(|row| {
        let state = match row.revoked_at {
            None => "good".to_owned(),
            Some(at) => format!("revoked {}", show::moment(at)),
        };
        vec![row.id.to_string(), row.subject.to_string(), show::moment(row.created_at), state]
    }));
    show::out(&table(&rows));
    Ok(Exit::Done)
}

async fn revoked(arguments: &Revoke, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, None).await?;
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was revoked", &fault);
    let is_there = store.revoke_token(&arguments.id, session.setup.clock.now()).await.map_err(failed)?;
    let row = store.token(&arguments.id).await.map_err(failed)?.filter(|_| is_there);
    let Some(row) = row else {
        return Err(Failure::usage(format!(
            "there is no token {}, so nothing was revoked; `token list` shows those there are",
            arguments.id
        )));
    };
    if arguments.json {
        show::out(&escape::json(&shown(&row)));
        return Ok(Exit::Done);
    }
    let at = row.revoked_at.map(show::moment).unwrap_or_default();
    show::out(&format!("The token {} of {} opens nothing any more (revoked {at}).", row.id, row.subject));
    Ok(Exit::Done)
}
