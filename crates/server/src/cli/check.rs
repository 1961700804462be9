//! `countersign config check`: what is wrong, and what is legal but surely not meant.
//!
//! Invariant: nothing is made and nothing is sent; a database that is there is not opened either.

use std::sync::Arc;

use clap::{Args, Subcommand};
use countersign::{
    AgentGates, Allowance, Catalogue, Enforcement, Gate, GroupSetting, MemoryStore, Principal, Subject,
    Switches, SystemClock, ToolName, ToolSpec, Word, Zone,
};

use crate::config::{ALWAYS_THERE, Agent, Config, FETCH_PAGE, Kind};
use crate::setup::{Bench, Setup, SetupError, file_tools_of};
use crate::skills;
use crate::{at_hand, escape, show};

use super::session::Invocation;
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
    /// Read the configuration, say what is wrong with it, and warn of what is surely not meant
    #[command(after_help = "Exit status: 0 if it can be worked with, also with warnings; 2 if not.")]
    Check {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Checks.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let What::Check { json } = arguments.what;
    let config = invocation.configuration()?;
    let known = providers(&config)?;
    for agent in &config.agents {
        if let Some(model) = agent
            .models
            .0
            .first()
            .filter(|model| known.iter().all(|(name, _)| *name != model.provider.as_str()))
        {
            let problem = format!(
                "agents.{}.models: the model {model} that would serve has no provider; add a table [providers.{}]",
                agent.name, model.provider
            );
            return Err(SetupError::from(config.wrong(agent.models.1, problem)).into());
        }
    }
    Setup::check_providers(&config, &invocation.environment)?;
    Setup::check_skills(&config)?;
    let tools = tools(&config, &invocation)?;
    let mut warnings = Vec::new();
    warn_of_providers(&config, &invocation, &mut warnings);
    warn_of_agents(&config, &known, &tools, &mut warnings);
    warn_of_skills(&config, &tools, &mut warnings);
    warn_of_settings(&config, &tools, &mut warnings);
    warn_of_tools(&config, &known, &tools, &mut warnings)?;
    check_webhooks(&config, &invocation, &mut warnings)?;
    check_telemetry(&config, &invocation, &mut warnings)?;
    let name = config.file.as_ref().map(|file| file.display().to_string());
    if json {
        show::out(&escape::json(&serde_json::json!({ "file": name, "warnings": warnings })));
        return Ok(Exit::Done);
    }
    for warning in &warnings {
        show::err(&format!("warning: {}", escape::line(warning)));
    }
    let found = match warnings.len() {
        0 => "without warnings".to_owned(),
        1 => "with 1 warning".to_owned(),
        many => format!("with {many} warnings"),
    };
    show::out(&match name {
        Some(name) => format!("{} is a valid configuration, {found}.", escape::line(&name)),
        None => format!("There is no configuration, so everything is a default ({found})."),
    });
    Ok(Exit::Done)
}

/// A secret that is not set is one that is set elsewhere; one that is none would keep `serve` from starting here too.
fn check_webhooks(
    config: &Config,
    invocation: &Invocation,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let is_set = |variable: &str| invocation.environment.get(variable).is_some();
    for told in config.webhooks.iter().filter(|told| !is_set(&told.secret_env)) {
        let words =
            format!("the variable {} with the secret of webhook {} is not set", told.secret_env, told.name);
        warnings.push(at(config, told.line, &words));
    }
    let set = config.webhooks.iter().filter(|told| is_set(&told.secret_env)).cloned().collect();
    let config = Config { webhooks: set, ..config.clone() };
    Setup::receivers(&config, &invocation.environment)?;
    Ok(())
}

fn check_telemetry(
    config: &Config,
    invocation: &Invocation,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let told = config.telemetry.as_ref().and_then(|told| Some((told.line, told.headers_env.as_deref()?)));
    if let Some((line, variable)) =
        told.filter(|(_, variable)| invocation.environment.get(variable).is_none())
    {
        let words = format!("the variable {variable} with what the collector of traces is shown is not set");
        warnings.push(at(config, line, &words));
        return Ok(());
    }
    Setup::collector_headers(config, &invocation.environment)?;
    Ok(())
}

type Known = Vec<(String, Zone)>;

fn providers(config: &Config) -> Result<Known, Failure> {
    let mut known: Known = config
        .providers
        .iter()
        .map(|provider| (provider.name.to_string(), provider.zone.unwrap_or(Zone::ExternalGlobal)))
        .collect();
    let demo = at_hand::demo().map_err(SetupError::from)?;
    if known.iter().all(|(name, _)| name != demo.name.as_str()) {
        known.push((demo.name.to_string(), Zone::Local));
    }
    Ok(known)
}

/// What would be registered.
fn tools(config: &Config, invocation: &Invocation) -> Result<Vec<ToolSpec>, Failure> {
    let files = match &config.workspace {
        Some(root) => file_tools_of(config, root, false)?,
        None => Vec::new(),
    };
    let bench = Bench {
        config,
        environment: &invocation.environment,
        // Nothing is asked of it: only facts are looked at.
        store: Arc::new(MemoryStore::new([0; 32])),
        clock: Arc::new(SystemClock),
    };
    Ok(bench.registry(files)?.tools().map(|tool| tool.spec.clone()).collect())
}

fn warn_of_providers(config: &Config, invocation: &Invocation, warnings: &mut Vec<String>) {
    for provider in &config.providers {
        let name = &provider.name;
        let used =
            config.agents.iter().any(|agent| agent.models.0.iter().any(|model| model.provider == *name));
        if !used {
            warnings.push(at(config, provider.line, &format!("no agent uses the provider {name}")));
        }
        if provider.zone.is_none() {
            warnings.push(at(
                config,
                provider.line,
                &format!(
                    "the provider {name} has no zone, so it counts as external_global and is shown the least"
                ),
            ));
        }
        if let Kind::OpenAi { api_key_env: Some(variable), .. } = &provider.kind
            && invocation.environment.get(variable).is_none()
        {
            warnings.push(at(
                config,
                provider.line,
                &format!("the variable {variable} with the key of {name} is not set"),
            ));
        }
    }
}

fn warn_of_agents(config: &Config, known: &Known, tools: &[ToolSpec], warnings: &mut Vec<String>) {
    for agent in &config.agents {
        for model in agent
            .models
            .0
            .iter()
            .skip(1)
            .filter(|model| known.iter().all(|(name, _)| *name != model.provider.as_str()))
        {
            warnings.push(at(
                config,
                agent.models.1,
                &format!("the fallback {model} of agent {} has no provider: it is passed over and counts as external_global", agent.name),
            ));
        }
        for group in agent.tool_groups.0.iter().filter(|group| tools.iter().all(|tool| tool.group != **group))
        {
            warnings.push(at(
                config,
                agent.tool_groups.1,
                &format!(
                    "agent {} names the group {group}, which no tool has, so it allows nothing",
                    agent.name
                ),
            ));
        }
        if agent.second_approver {
            warnings.push(at(
                config,
                agent.line,
                &format!(
                    "agent {} wants a second person: whoever starts a run may not approve it, so somebody else must be \
                     known (`user set WHO --approver`)",
                    agent.name
                ),
            ));
        }
    }
}

fn warn_of_skills(config: &Config, tools: &[ToolSpec], warnings: &mut Vec<String>) {
    for agent in &config.agents {
        let mut warn = |words: String| {
            let warning = at(config, agent.skills.1, &words);
            // Two agents may share a line's words, and a skill.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        };
        for skill in skills::in_force(config, &agent.skills.0).skills {
            let name = &skill.name;
            for tool in skill.allowed_tools.iter().flatten() {
                if tools.iter().all(|spec| spec.name.as_str() != tool) {
                    warn(format!("the skill {name} allows {tool}, which no tool is called"));
                }
            }
            if skill.prose_left_out {
                warn(format!(
                    "the text of the skill {name} is left out for agent {}: its skills have more than {} bytes",
                    agent.name,
                    skills::PROSE_BYTES_MAX
                ));
            }
            let calls_itself = skills::read(config, name).ok().and_then(|skill| skill.calls_itself);
            if let Some(other) = calls_itself.filter(|other| other != name) {
                warn(format!("the skill in the folder {name} calls itself {other}"));
            }
        }
    }
}

fn warn_of_settings(config: &Config, tools: &[ToolSpec], warnings: &mut Vec<String>) {
    for settings in &config.tool_settings {
        let reaches_nothing = settings.name.as_str() == FETCH_PAGE && settings.hosts.is_empty();
        if reaches_nothing && settings.enabled == Some(true) {
            warnings.push(at(config, settings.line, "fetch_page is on and has no hosts, so it reaches none"));
        }
        if tools.iter().all(|tool| tool.name != settings.name) {
            let name = &settings.name;
            warnings.push(at(
                config,
                settings.line,
                &format!("tool_settings.{name}: the file tools are not there without a line workspace"),
            ));
        }
    }
}

/// A tool that no agent can ever be offered, and why not, by the gates themselves.
fn warn_of_tools(
    config: &Config,
    known: &Known,
    tools: &Vec<ToolSpec>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let nobody = Subject::parse("anyone").map_err(|error| Failure::usage(error.to_string()))?;
    let (admin, switches) = (Principal::admin(nobody), Switches::default());
    // Those that are always there were asked for by nobody, unless there are settings of them.
    let unasked = |tool: &ToolSpec| {
        ALWAYS_THERE.contains(&tool.name.as_str())
            && config.tool_settings.iter().all(|settings| settings.name != tool.name)
    };
    for tool in tools.iter().filter(|tool| !unasked(tool)) {
        let mut reasons: Vec<(String, Gate)> = Vec::new();
        let mut offered = config.agents.is_empty();
        for agent in &config.agents {
            let gates = gates(config, agent, known, tools);
            let policy =
                countersign::Policy { tools, switches: &switches, agent: &gates, principal: Some(&admin) };
            match policy.decide(tool.name.as_str()).word {
                Word::Allow | Word::ObservedTrustZone => offered = true,
                // A switch can be set at any time.
                Word::Deny(Gate::ToolDisabled) => offered = true,
                Word::Deny(gate) => reasons.push((agent.name.to_string(), gate)),
            }
        }
        if !offered {
            let warning = never_offered(&tool.name, &reasons);
            let declared = config.tools.iter().find(|declared| declared.spec.name == tool.name);
            warnings.push(match declared {
                Some(declared) => at(config, declared.line, &warning),
                None => warning,
            });
        }
    }
    Ok(())
}

fn gates(config: &Config, agent: &Agent, known: &Known, tools: &Vec<ToolSpec>) -> AgentGates {
    let groups = GroupSetting::from_list(agent.tool_groups.0.iter().cloned());
    let skills = skills::in_force(config, &agent.skills.0).skills;
    let opinions: Vec<_> = skills.iter().map(countersign::SkillInForce::opinion).collect();
    let zone = |provider: &str| known.iter().find(|(name, _)| name == provider).map(|(_, zone)| *zone);
    let enforcement: Enforcement = config.enforcement;
    AgentGates {
        allowance: Allowance::of(&groups, &opinions, tools.all()),
        zone: Zone::of_chain(agent.models.0.iter().map(|model| zone(model.provider.as_str()))),
        enforcement,
    }
}

fn never_offered(tool: &ToolName, reasons: &[(String, Gate)]) -> String {
    let reasons: Vec<String> =
        reasons.iter().map(|(agent, gate)| format!("agent {agent}: {}", gate.sentence())).collect();
    format!("the tool {tool} can never be offered ({})", reasons.join("; "))
}

fn at(config: &Config, line: usize, problem: &str) -> String {
    config.wrong(line, problem.to_owned()).to_string()
}
