//! `countersign tools`.

use clap::{Args, Subcommand};
use countersign::{
    AgentName, Catalogue as _, EnableState, Gate, Look, Runtime, Subject, Switch, SwitchName, ToolName,
    ToolPolicy as _, ToolSpec, UnattendedFilter as _, Verdict, Word, needs_approval, runs_unattended,
};

use crate::config::nearest::nearest;
use crate::show::{self, Style, table::table};
use crate::{escape, json, switch};

use super::session::{Invocation, Session};
use super::{Exit, Failure, agent_name, subject};

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The tools with their switches; with --agent, --as or --unattended only those that may be offered
    List(List),
    /// Switch a tool on; its group's switch still counts
    Enable(Name),
    /// Switch a tool off
    Disable(Name),
    /// Remove a tool's own switch, so that its default counts again
    Reset(Name),
    /// Say which gate lets a tool pass and which does not
    Explain(Explain),
}

#[derive(Debug, Args)]
struct List {
    /// Only what may be offered to runs of this agent
    #[arg(long, value_name = "A", value_parser = agent_name)]
    agent: Option<AgentName>,
    /// Only what may be offered to runs of this person
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Only what may be offered to a run that never waits for a person
    #[arg(long)]
    unattended: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Name {
    /// The tool's name, byte for byte
    #[arg(value_name = "NAME")]
    name: String,
    /// Print one Tool object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Explain {
    /// The tool's name, byte for byte
    #[arg(value_name = "NAME")]
    name: String,
    /// For runs of this agent
    #[arg(long, default_value = "default", value_name = "A", value_parser = agent_name)]
    agent: AgentName,
    /// For runs of this person
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print one Verdict object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::List(list) => listed(list, invocation).await,
        What::Enable(name) => switched(&name, Some(true), invocation).await,
        What::Disable(name) => switched(&name, Some(false), invocation).await,
        What::Reset(name) => switched(&name, None, invocation).await,
        What::Explain(explain) => explained(explain, invocation).await,
    }
}

/// The runtime as a run of this agent would have it.
pub(crate) fn runtime_for(session: &Session, agent: &AgentName) -> Result<Runtime, Failure> {
    // Nothing is kept here, so the files of the tour are not made either.
    let model = session.setup.model_of(agent)?.filter(|_| session.scratch.is_none());
    Ok(session.setup.runtime(model.as_ref())?)
}

/// The agent `default`, or the first one there is.
pub(crate) fn default_agent(session: &Session) -> Result<AgentName, Failure> {
    let agents = &session.setup.config.agents;
    let default = agents.iter().find(|agent| agent.name.as_str() == "default").or(agents.first());
    match default {
        Some(agent) => Ok(agent.name.clone()),
        None => AgentName::parse("default").map_err(|error| Failure::usage(error.to_string())),
    }
}

async fn listed(arguments: List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open_to_look(invocation, arguments.acting.as_ref()).await?;
    let narrowed = arguments.agent.is_some() || arguments.acting.is_some() || arguments.unattended;
    let agent = match arguments.agent {
        Some(agent) => agent,
        None => default_agent(&session)?,
    };
    let runtime = runtime_for(&session, &agent)?;
    let policy = runtime.policy(&agent, &session.actor.subject).await?;
    let registry = &runtime.parts().tools;
    let mut names: Vec<ToolName> = if narrowed {
        policy.offerable(None)
    } else {
        registry.tools().map(|tool| tool.spec.name.clone()).collect()
    };
    if arguments.unattended {
        names = runtime.unattended_filter().unattended(&names);
    }
    let specs: Vec<&ToolSpec> = names.iter().filter_map(|name| registry.find(name.as_str())).collect();
    let look = policy.look();
    let orphans: Vec<&str> = if narrowed { Vec::new() } else { switch::orphans(&runtime, look) };
    if arguments.json {
        let tools = specs.iter().map(|spec| json::tool(spec, &look.switches));
        let orphans = orphans.iter().map(|name| json::orphaned_tool(name, switch_of(look, name)));
        let items: Vec<_> = tools.chain(orphans).collect();
        show::out(&escape::json(&json::page(&items, None)));
        return Ok(Exit::Done);
    }
    if specs.is_empty() && orphans.is_empty() {
        show::out("No tool may be offered. `tools explain NAME` says why not.");
        return Ok(Exit::Done);
    }
    let mut rows =
        vec![["tool", "group", "effect", "state", "approval", "unattended"].map(str::to_owned).to_vec()];
    rows.extend(specs.iter().map(|spec| {
        vec![
            spec.name.to_string(),
            spec.group.to_string(),
            spec.effect.as_str().to_owned(),
            state_words(look.switches.state(spec)),
            needs_approval(Some(spec))
                .map_or("no".to_owned(), |because| format!("asks: {}", because.as_str())),
            unattended_words(spec),
        ]
    }));
    rows.extend(orphans.iter().map(|name| {
        let name = escape::short(name, 64);
        vec![
            name,
            "-".to_owned(),
            "-".to_owned(),
            "a switch of a tool that is not there (orphaned)".to_owned(),
        ]
    }));
    show::out(&table(&rows));
    Ok(Exit::Done)
}

/// All of it: the answer, and what it comes from (G4).
fn state_words(state: EnableState) -> String {
    let word = |on: bool| if on { "on" } else { "off" };
    let own = if state.overridden { "its own switch" } else { "no switch" };
    format!(
        "{} (tool {}, group {}, default {}, {own})",
        word(state.effective),
        word(state.tool),
        word(state.group),
        word(state.default)
    )
}

/// Whether it runs with nobody to ask, and why (U1).
fn unattended_words(spec: &ToolSpec) -> String {
    if runs_unattended(Some(spec)) {
        let why = if spec.effect.writes() { "its server asks for no approval" } else { "it only reads" };
        return format!("yes: {why}");
    }
    match needs_approval(Some(spec)) {
        Some(because) => format!("no: {}", show::pending::sentence(because)),
        None => "no: it needs an input that only a person can supply".to_owned(),
    }
}

fn switch_of(look: &Look, name: &str) -> Option<Switch> {
    ToolName::parse(name).ok().and_then(|name| look.switches.tool(&name))
}

async fn switched(arguments: &Name, enabled: Option<bool>, invocation: Invocation) -> Result<Exit, Failure> {
    let name = arguments.name.as_str();
    let session = Session::open_or_make(invocation, None).await?;
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let store = &session.setup.store;
    let failed = |fault| Failure::store("nothing was switched", &fault);
    let look = store.look(&[]).await.map_err(failed)?;
    let spec = runtime.parts().tools.find(name);
    let parsed = switch::tool(&runtime, &look, name, enabled);
    let Some(parsed) = parsed else {
        return Err(Failure::usage(format!(
            "there is no tool {name:?}, so nothing was stored; names are compared byte for byte, and `tools list` shows them"
        )));
    };
    store
        .set_switch(&SwitchName::Tool(parsed.clone()), enabled, session.setup.clock.now())
        .await
        .map_err(failed)?;
    let after = store.look(&[]).await.map_err(failed)?;
    let what = match enabled {
        Some(true) => "is switched on",
        Some(false) => "is switched off",
        None => "has no switch of its own any more",
    };
    if arguments.json {
        show::out(&escape::json(&match spec {
            Some(spec) => json::tool(spec, &after.switches),
            None => json::orphaned_tool(parsed.as_str(), None),
        }));
        return Ok(Exit::Done);
    }
    let Some(spec) = spec else {
        show::out(&format!("{parsed} {what}; no tool of this name is there."));
        return Ok(Exit::Done);
    };
    let (before, state) = (look.switches.state(spec), after.switches.state(spec));
    let changed = if before == state { " (it was so before)" } else { "" };
    show::out(&format!("{parsed} {what}{changed}. It is now {}.", state_words(state)));
    if enabled == Some(true) && !state.group {
        let enable = session.command(&format!("groups enable {}", spec.group));
        show::out(&format!("Its group {} is switched off, so it stays off: {enable}", spec.group));
    }
    Ok(Exit::Done)
}

async fn explained(arguments: Explain, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open_to_look(invocation, arguments.acting.as_ref()).await?;
    let runtime = runtime_for(&session, &arguments.agent)?;
    let policy = runtime.policy(&arguments.agent, &session.actor.subject).await?;
    let verdicts = policy.explain(Some(std::slice::from_ref(&arguments.name)));
    let Some(verdict) = verdicts.first() else {
        return Err(Failure::ended("the policy gave no verdict; this is a fault of the program"));
    };
    let spec = runtime.parts().tools.find(&arguments.name);
    // Whoever asks in a script is to notice that it asks about nothing.
    let gone = || {
        let known: Vec<&str> = runtime.parts().tools.tools().map(|tool| tool.spec.name.as_str()).collect();
        let nearest = nearest(&arguments.name, &known);
        let meant = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        let name = escape::short(&arguments.name, 64);
        Failure::usage(format!("no tool has the name {name}, byte for byte{meant}"))
    };
    if arguments.json {
        show::out(&escape::json(&json::verdict(verdict, spec)));
        return if spec.is_some() { Ok(Exit::Done) } else { Err(gone()) };
    }
    let style = Style::for_stdout(&session.setup.environment);
    let name = escape::short(&verdict.tool, 64);
    let who = format!("agent {} and {}", arguments.agent, session.actor.subject);
    show::out(&match verdict.word {
        Word::Allow => format!("{name} may be offered to runs of {who}."),
        Word::ObservedTrustZone => {
            format!("{name} may be offered to runs of {who}, only because data classes are observed.")
        }
        Word::Deny(gate) => {
            format!("{name} may not be offered to runs of {who}: {} ({}).", gate.sentence(), gate.as_str())
        }
    });
    gate_lines(verdict, style).iter().for_each(|line| show::out(line));
    if let Some(spec) = spec {
        let state = policy.look().switches.state(spec);
        show::out(&format!("  switches    {}", state_words(state)));
        show::out(&match needs_approval(Some(spec)) {
            Some(because) => format!("  approval    asked: {}", show::pending::sentence(because)),
            None => "  approval    not asked".to_owned(),
        });
        let unattended = if runs_unattended(Some(spec)) {
            "runs without a person"
        } else {
            "not offered to unattended runs"
        };
        show::out(&format!("  unattended  {unattended}"));
        return Ok(Exit::Done);
    }
    Err(gone())
}

/// The five gates in order. After the one that denies no further one is asked.
fn gate_lines(verdict: &Verdict, style: Style) -> Vec<String> {
    let gates = [
        (Gate::NotRegistered, "a tool of this name is registered".to_owned()),
        (Gate::ToolDisabled, "the tool and its group are switched on".to_owned()),
        (Gate::RequiresAdmin, "whoever it runs for may use it".to_owned()),
        (Gate::ConfigurationGroup, "the agent allows it".to_owned()),
        (
            Gate::TrustZone,
            format!(
                "its data ({}) may be shown to a model in zone {} (up to {})",
                verdict.data_class.as_str(),
                verdict.zone.as_str(),
                verdict.ceiling.as_str()
            ),
        ),
    ];
    let closed = verdict.word.gate();
    let lines = gates.into_iter().enumerate().map(|(index, (gate, words))| {
        let word = match closed {
            Some(closed) if closed == gate && verdict.word.allows() => style.yellow("observed"),
            Some(closed) if closed == gate => style.red("no"),
            Some(closed) if closed < gate => style.dim("not asked"),
            Some(_) | None => style.green("yes"),
        };
        format!("  gate {}      {words}: {word}", index + 1)
    });
    lines.collect()
}
