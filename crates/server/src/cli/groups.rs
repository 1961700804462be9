//! `countersign groups`.

use clap::{Args, Subcommand};
use countersign::{GroupName, Switch, SwitchName};

use crate::show::{self, table::table};
use crate::{escape, json, switch};

use super::session::{Invocation, Session};
use super::tools::{default_agent, runtime_for};
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
    /// The groups with their switches and tools
    List(List),
    /// Switch a group on; a tool's own switch still counts
    Enable(Name),
    /// Switch a group off, with all the tools in it
    Disable(Name),
    /// Remove a group's switch, so that it is on again
    Reset(Name),
}

#[derive(Debug, Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Name {
    /// The group's name, byte for byte
    #[arg(value_name = "NAME")]
    name: String,
    /// Print one Group object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::List(list) => listed(&list, invocation).await,
        What::Enable(name) => switched(&name, Some(true), invocation).await,
        What::Disable(name) => switched(&name, Some(false), invocation).await,
        What::Reset(name) => switched(&name, None, invocation).await,
    }
}

async fn listed(arguments: &List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open_to_look(invocation, None).await?;
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let look = session.setup.store.look(&[]).await;
    let look = look.map_err(|fault| Failure::store("the switches cannot be read", &fault))?;
    let mut groups = switch::groups(&runtime);
    for orphan in look.switches.names().1 {
        groups.entry(orphan).or_default();
    }
    let switch = |name: &str| GroupName::parse(name).ok().and_then(|name| look.switches.group(&name));
    if arguments.json {
        let items: Vec<_> =
            groups.iter().map(|(name, tools)| json::group(name, switch(name), tools)).collect();
        show::out(&escape::json(&json::page(&items, None)));
        return Ok(Exit::Done);
    }
    if groups.is_empty() {
        show::out("There are no groups, because there are no tools.");
        return Ok(Exit::Done);
    }
    let mut rows = vec![["group", "state", "tools"].map(str::to_owned).to_vec()];
    rows.extend(groups.iter().map(|(name, tools)| {
        let state = match switch(name) {
            None => "on (no switch)",
            Some(Switch::On) => "on (switched on)",
            Some(Switch::Off) => "off (switched off)",
            Some(Switch::Unreadable) => "off (its switch cannot be read)",
        };
        let tools = if tools.is_empty() {
            "none: a switch of a group that is not there (orphaned)".to_owned()
        } else {
            tools.join(", ")
        };
        vec![escape::short(name, 64), state.to_owned(), tools]
    }));
    show::out(&table(&rows));
    Ok(Exit::Done)
}

async fn switched(arguments: &Name, enabled: Option<bool>, invocation: Invocation) -> Result<Exit, Failure> {
    let name = arguments.name.as_str();
    let session = Session::open_or_make(invocation, None).await?;
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was switched", &fault);
    let look = store.look(&[]).await.map_err(failed)?;
    let known = switch::group(&runtime, &look, name, enabled);
    let Some(group) = known else {
        return Err(Failure::usage(format!(
            "there is no group {name:?}, so nothing was stored; names are compared byte for byte, and `groups list` shows them"
        )));
    };
    store
        .set_switch(&SwitchName::Group(group.clone()), enabled, session.setup.clock.now())
        .await
        .map_err(failed)?;
    let after = store.look(&[]).await.map_err(failed)?;
    let tools = switch::groups(&runtime).remove(group.as_str()).unwrap_or_default();
    if arguments.json {
        let group = json::group(group.as_str(), after.switches.group(&group), &tools);
        show::out(&escape::json(&group));
        return Ok(Exit::Done);
    }
    let on = after.switches.group(&group).is_none_or(|switch| switch == Switch::On);
    let what = match enabled {
        Some(true) => "is switched on",
        Some(false) => "is switched off",
        None => "has no switch any more",
    };
    let changed =
        if look.switches.group(&group) == after.switches.group(&group) { " (it was so before)" } else { "" };
    let covers = if tools.is_empty() { "no tools that are there now".to_owned() } else { tools.join(", ") };
    show::out(&format!(
        "Group {group} {what}{changed}. It is now {}, and covers {covers}.",
        if on { "on" } else { "off" }
    ));
    Ok(Exit::Done)
}
