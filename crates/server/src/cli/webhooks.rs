//! `countersign webhooks`: who is told, what they are still owed, and what was given up.

use clap::{Args, Subcommand};
use countersign::{NoticeKind, WebhookName, WebhookState};
use serde_json::json;

use crate::show::{self, table::table};
use crate::{escape, json};

use super::db::counted;
use super::session::{Invocation, Session};
use super::{Exit, Failure};

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Who is told of what, what they are still owed, and what was given up
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell a webhook again that was gone, and try anew what was given up
    Enable {
        /// The webhook's name
        #[arg(value_name = "NAME", value_parser = name)]
        name: WebhookName,
        /// Print one object, as the list has it
        #[arg(long)]
        json: bool,
    },
}

fn name(text: &str) -> Result<WebhookName, String> {
    WebhookName::parse(text).map_err(|error| error.to_string())
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::List { json } => listed(invocation, json).await,
        What::Enable { name, json } => enabled(invocation, &name, json).await,
    }
}

/// What the configuration says of a webhook, if it does, and how it stands with it.
struct Line {
    name: WebhookName,
    kinds: Option<Vec<NoticeKind>>,
    state: WebhookState,
}

impl Line {
    fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "events": self.kinds.iter().flatten().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            "configured": self.kinds.is_some(),
            "owed": self.state.owed,
            "given_up": self.state.given_up,
            "gone_since": self.state.gone_since.map(show::moment),
        })
    }
}

/// Those that are configured, and those that are owed something still.
async fn lines(session: &Session) -> Result<Vec<Line>, Failure> {
    let states = session.setup.store.webhooks().await;
    let states = states.map_err(|fault| Failure::store("what is owed cannot be looked at", &fault))?;
    let configured = &session.setup.config.webhooks;
    let names = configured.iter().map(|told| &told.name).chain(states.iter().map(|state| &state.webhook));
    let mut names: Vec<_> = names.cloned().collect();
    names.sort();
    names.dedup();
    let line = |name: WebhookName| Line {
        kinds: configured
            .iter()
            .find(|told| told.name == name)
            .map(|told| told.kinds.iter().copied().collect()),
        state: states.iter().find(|state| state.webhook == name).cloned().unwrap_or(WebhookState {
            webhook: name.clone(),
            owed: 0,
            given_up: 0,
            gone_since: None,
        }),
        name,
    };
    Ok(names.into_iter().map(line).collect())
}

async fn listed(invocation: Invocation, as_json: bool) -> Result<Exit, Failure> {
    let session = Session::open_to_look(invocation, None).await?;
    let lines = lines(&session).await?;
    if as_json {
        let items: Vec<_> = lines.iter().map(Line::json).collect();
        show::out(&escape::json(&json::page(&items, None)));
        return Ok(Exit::Done);
    }
    if lines.is_empty() {
        show::out("Nobody is told: there are no tables [webhooks.NAME] in the configuration.");
        return Ok(Exit::Done);
    }
    let mut rows = vec![["webhook", "state", "owed", "given up", "events"].map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(|line| {
        let state = match (line.state.gone_since, &line.kinds) {
            (Some(at), _) => format!("gone since {}", show::moment(at)),
            (None, None) => "not configured".to_owned(),
            (None, Some(_)) => "told".to_owned(),
        };
        let kinds: Vec<_> = line.kinds.iter().flatten().map(|kind| kind.as_str()).collect();
        let (owed, given_up) = (line.state.owed.to_string(), line.state.given_up.to_string());
        vec![line.name.to_string(), state, owed, given_up, kinds.join(", ")]
    }));
    show::out(&table(&rows));
    Ok(Exit::Done)
}

async fn enabled(invocation: Invocation, name: &WebhookName, as_json: bool) -> Result<Exit, Failure> {
    let session = Session::open_or_make(invocation, None).await?;
    if session.setup.config.webhooks.iter().all(|told| told.name != *name) {
        return Err(Failure::usage(format!(
            "there is no webhook {name} in the configuration, so nothing was changed; `webhooks list` shows those there are"
        )));
    }
    let done = session.setup.store.enable_webhook(name, session.setup.clock.now()).await;
    done.map_err(|fault| Failure::store("nothing was changed", &fault))?;
    let lines = lines(&session).await?;
    let line = lines.iter().find(|line| line.name == *name);
    if as_json {
        show::out(&escape::json(&line.map(Line::json).unwrap_or_default()));
        return Ok(Exit::Done);
    }
    let owed = line.map_or(0, |line| line.state.owed);
    show::out(&format!("The webhook {name} is told. It is owed {}.", counted(owed, "message")));
    Ok(Exit::Done)
}
