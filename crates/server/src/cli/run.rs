//! `countersign run`.

use clap::Args;
use countersign::{
    AgentName, InputMessage, InputRole, Mode, ModelRef, RunRequest, Store as _, Subject, ToolRequest,
};

use crate::{at_hand, show};

use super::follow::{Follow, Manner, head, stop_at_ctrl_c, tell_denied};
use super::session::{Invocation, Session};
use super::{Exit, Failure, agent_name, subject};

/// What a run is started with.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which agent of the configuration
    #[arg(long, default_value = "default", value_name = "A", value_parser = agent_name)]
    agent: AgentName,
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
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    let setup = &session.setup;
    let served = match &named {
        Some(named) => Some(named.clone()),
        None => setup.model_of(&arguments.agent)?,
    };
    if served.as_ref().is_some_and(|model| setup.is_tour(model)) {
        setup.remake_tour()?;
    }
    let runtime = setup.runtime(served.as_ref())?;
    let chain: Vec<ModelRef> = match (&named, runtime.parts().agents.find(&arguments.agent)) {
        (Some(named), _) => vec![named.clone()],
        (None, Some(agent)) => agent.models.clone(),
        (None, None) => Vec::new(),
    };
    let request = RunRequest {
        agent: arguments.agent,
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
    if let (Ok(run), Ok(log)) = (runtime.load(&id).await, setup.store.load(&id).await) {
        tell_denied(&session, &run, &log.entries);
    }
    let manner = Manner { json: arguments.json, asks: true };
    Follow::new(&session, &runtime, id, manner, stop_at_ctrl_c()).to_its_stop().await
}
