//! `countersign run`.

use clap::Args;
use countersign::{
    AgentName, InputMessage, InputRole, Mode, ModelRef, RunId, RunRequest, Subject, ToolRequest,
};

use crate::config::Kind;
use crate::setup::Setup;
use crate::skills::PROSE_BYTES_MAX;
use crate::{at_hand, escape, show};

use super::follow::{Follow, Manner, Says, head, tell_denied};
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::{Exit, Failure, agent_name, run_id, subject};

/// What a run is started with.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which agent of the configuration [default: default, or that of the run that is continued]
    #[arg(long, value_name = "A", value_parser = agent_name)]
    agent: Option<AgentName>,
    /// Go on with the conversation of a run of yours that has ended
    #[arg(long = "continue", value_name = "ID", value_parser = run_id)]
    continue_from: Option<RunId>,
    /// Another model than the agent's, as PROVIDER/MODEL; or just demo
    #[arg(long, value_name = "P/M")]
    model: Option<String>,
    /// Ask for these tools only; what a gate closes is left out all the same
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "no_tools")]
    tools: Option<Vec<String>>,
    /// Ask for no tools at all: one plain answer
    #[arg(long)]
    no_tools: bool,
    /// Never wait for a person: whatever would need one is not offered
    #[arg(long)]
    unattended: bool,
    /// Act as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print one Run object on stdout; the rest goes to stderr
    #[arg(long)]
    json: bool,
    /// What is to be done
    task: String,
}

/// Starts it and follows it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let named = arguments.model.as_deref().map(at_hand::named).transpose();
    let named = named.map_err(|error| Failure::usage(format!("--model: {error}")))?;
    if arguments.task.trim().is_empty() {
        return Err(Failure::usage("the task is empty: say what is to be done".to_owned()));
    }
    let config = invocation.configuration()?;
    Setup::check_skills(&config)?;
    Setup::collector_headers(&config, &invocation.environment)?;
    let session = Session::open_for_a_run(invocation, arguments.acting.as_ref()).await?;
    let setup = &session.setup;
    let agent = match (arguments.agent, &arguments.continue_from) {
        (Some(agent), _) => agent,
        (None, Some(before)) => {
            let before = setup.without_tools().predecessor(before, &session.actor.subject).await?;
            before.created().agent.clone()
        }
        (None, None) => agent_name("default").map_err(Failure::usage)?,
    };
    let served = match &named {
        Some(named) => Some(named.clone()),
        None => setup.model_of(&agent)?,
    };
    if served.as_ref().is_some_and(|model| setup.is_tour(model)) {
        setup.remake_tour()?;
    }
    let runtime = setup.runtime(served.as_ref())?;
    let chain: Vec<ModelRef> = match (&named, runtime.parts().agents.find(&agent)) {
        (Some(named), _) => vec![named.clone()],
        (None, Some(agent)) => agent.models.clone(),
        (None, None) => Vec::new(),
    };
    let request = RunRequest {
        agent,
        input: vec![InputMessage { role: InputRole::User, text: arguments.task }],
        tools: match (arguments.tools, arguments.no_tools) {
            (_, true) => ToolRequest::Only(Vec::new()),
            (Some(tools), false) => {
                ToolRequest::Only(tools.into_iter().filter(|tool| !tool.is_empty()).collect())
            }
            (None, false) => ToolRequest::AllEnabled,
        },
        model: named,
        max_iterations: None,
        max_working_time: None,
        continue_from: arguments.continue_from,
        trace: None,
        owner: session.actor.subject.clone(),
        starter: session.actor.subject.clone(),
    };
    let mode = if arguments.unattended { Mode::Unattended } else { Mode::Attended };
    let id = runtime.start(request, mode).await?;
    let first = head(&session, &runtime, &chain);
    if arguments.json {
        show::err(&first);
    } else {
        show::out(&first);
    }
    for note in notes(&session, &chain) {
        show::err(&format!("note: {note}"));
    }
    if let Ok((log, run)) = session.load(&id).await {
        for skill in run.created().skills.iter().filter(|skill| skill.prose_left_out) {
            show::err(&format!(
                "note: the text of the skill {} is left out: the skills have more than {PROSE_BYTES_MAX} bytes. What it \
                 says about tools still counts",
                skill.name
            ));
        }
        tell_denied(&session, &run, &log);
    }
    let manner = Manner { says: Says::of(arguments.json), asks: true };
    Follow::new(&session, &runtime, id, manner, Interrupt::listen()).to_its_stop().await
}

/// What may surprise whoever starts a run with this chain of models.
fn notes(session: &Session, chain: &[ModelRef]) -> Vec<String> {
    let setup = &session.setup;
    let mut notes = Vec::new();
    let serves = |name: &countersign::ProviderName| chain.iter().any(|model| model.provider == *name);
    for provider in setup.config.providers.iter().filter(|provider| serves(&provider.name)) {
        if let Kind::OpenAi { api_key_env: Some(variable), .. } = &provider.kind
            && setup.environment.get(variable).is_none()
        {
            let variable = escape::short(variable, 64);
            notes.push(format!(
                "the variable {variable} with the key of {} is not set, so none is sent",
                provider.name
            ));
        }
    }
    let fell_back = setup.config.agents.is_empty() && chain.first().is_some_and(|model| setup.is_tour(model));
    if fell_back && setup.environment.get("ANTHROPIC_API_KEY").is_some() {
        notes.push("ANTHROPIC_API_KEY is set, but this build does not speak to Anthropic".to_owned());
    }
    notes
}
