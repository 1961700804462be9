//! The command line: what can be typed, and which command it becomes. One command, one file.
//!
//! Invariant: every way out is an exit status of the contract and, if something went wrong, one sentence on
//! stderr that says what happened, why, and what to do next.

mod ask;
mod check;
mod db;
mod decide;
mod failure;
mod follow;
mod groups;
mod interrupt;
mod keys;
mod manual;
mod pages;
mod pending;
mod review;
mod run;
mod runs;
mod serve;
mod session;
mod shift;
mod token;
mod tools;
mod user;
mod webhooks;
mod work;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use countersign::{AgentName, Digest, PendingId, RunId, Subject};

use crate::environment::Environment;
use crate::show;
pub(crate) use failure::{Exit, Failure};
pub(crate) use session::Invocation;

/// Run tool calls that somebody answers for.
///
/// A model works with tools. Whatever writes waits until a person has seen exactly what will run and said yes.
/// Runs are kept in one file, or in a PostgreSQL that many share; any process that can open it goes on where another stopped.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The configuration file, instead of the nearest countersign.toml here or above
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a run and follow it until it ends or waits for a person
    #[command(
        after_help = "Exit status: 0 completed, 3 waiting for a person, 4 ended without an answer of its own \
        (failed, cancelled, a limit), 2 wrong usage or configuration, 130, 143 or 129 stopped by Ctrl-C, \
        SIGTERM or SIGHUP (the run can be resumed)."
    )]
    Run(run::Arguments),
    /// Serve the HTTP API and work on runs, until told to end
    Serve(serve::Arguments),
    /// Work on the runs of a PostgreSQL that others serve, until told to end
    Work(work::Arguments),
    /// What waits for a person: list it, or show one question with all that will run
    Pending(pending::Arguments),
    /// Release the calls of a question (or some of them) and drive the run on
    #[command(after_help = decide::EXIT_HELP)]
    Approve(decide::Approve),
    /// Refuse the calls of a question, or decline an input, and drive the run on
    #[command(after_help = decide::EXIT_HELP)]
    Deny(decide::Deny),
    /// Supply the input that a question asks for and drive the run on
    #[command(after_help = decide::EXIT_HELP)]
    Answer(decide::Answer),
    /// Say how a call came out whose outcome is unknown and drive the run on
    #[command(after_help = decide::EXIT_HELP)]
    Settle(decide::Settle),
    /// Look at runs, cancel them, or take them up again
    Runs(runs::Arguments),
    /// Look at tools, switch them, or ask why one may not be used
    Tools(tools::Arguments),
    /// Look at groups of tools, or switch a whole group
    Groups(groups::Arguments),
    /// Who is known, and what they may do
    User(user::Arguments),
    /// Make, list and revoke the tokens that the HTTP API asks for
    Token(token::Arguments),
    /// Who is told that a run waits, and what they are still owed
    Webhooks(webhooks::Arguments),
    /// Check the configuration without starting anything
    Config(check::Arguments),
    /// Look after the database
    Db(db::Arguments),
    /// Look after the master key
    Keys(keys::Arguments),
    /// Print what the HTTP API is, as OpenAPI 3.1
    Openapi,
    /// Print the completions for a shell
    Completions(manual::Completions),
    /// Print a manual page
    Man(manual::Page),
}

/// Parses, runs, and says how it went.
pub(crate) fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are asked for; anything else is wrong usage.
            let asked_for = !error.use_stderr();
            let printed = error.print();
            if asked_for {
                show::written(printed);
            }
            return ended(if asked_for { Exit::Done } else { Exit::Usage });
        }
    };
    let done = Environment::read()
        .map_err(|error| {
            Failure::usage(format!("the working folder cannot be found: {error}; change to one that exists"))
        })
        .and_then(|environment| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime
                .map_err(|error| Failure::ended(format!("the program cannot start its threads: {error}")))?;
            let invocation = Invocation { environment, config: cli.config };
            let done = runtime.block_on(dispatch(cli.command, invocation));
            // A store or a tool that hangs does not keep the program from ending.
            runtime.shutdown_background();
            done
        });
    match done {
        Ok(exit) => ended(exit),
        Err(failure) => {
            show::err(&failure.to_string());
            ended(failure.exit())
        }
    }
}

/// The exit status. What looks like a success is none if its words did not arrive.
fn ended(exit: Exit) -> u8 {
    let Some(error) = show::lost() else { return exit.code() };
    let failure = Failure::ended(format!(
        "the output cannot be written ({error}), so some of it is missing; what was stored is kept: look at it with \
         `runs list` and `pending list`, with the output going elsewhere"
    ));
    show::err(&failure.to_string());
    match exit {
        Exit::Done | Exit::Waiting => failure.exit().code(),
        Exit::Usage | Exit::Ended | Exit::Refused | Exit::Interrupted | Exit::Terminated | Exit::HungUp => {
            exit.code()
        }
    }
}

async fn dispatch(command: Command, invocation: Invocation) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => run::run(arguments, invocation).await,
        Command::Serve(arguments) => serve::run(arguments, invocation).await,
        Command::Work(arguments) => work::run(arguments, invocation).await,
        Command::Pending(arguments) => pending::run(arguments, invocation).await,
        Command::Approve(arguments) => decide::approve(arguments, invocation).await,
        Command::Deny(arguments) => decide::deny(arguments, invocation).await,
        Command::Answer(arguments) => decide::answer(arguments, invocation).await,
        Command::Settle(arguments) => decide::settle(arguments, invocation).await,
        Command::Runs(arguments) => runs::run(arguments, invocation).await,
        Command::Tools(arguments) => tools::run(arguments, invocation).await,
        Command::Groups(arguments) => groups::run(arguments, invocation).await,
        Command::User(arguments) => user::run(arguments, invocation).await,
        Command::Token(arguments) => token::run(arguments, invocation).await,
        Command::Webhooks(arguments) => webhooks::run(arguments, invocation).await,
        Command::Config(arguments) => check::run(arguments, invocation).await,
        Command::Db(arguments) => db::run(arguments, invocation).await,
        Command::Keys(arguments) => keys::run(arguments, invocation).await,
        Command::Openapi => {
            show::out(crate::http::openapi_text().trim_end());
            Ok(Exit::Done)
        }
        Command::Completions(arguments) => Ok(manual::completions(&arguments)),
        Command::Man(arguments) => manual::page(&arguments),
    }
}

// How names and ids are parsed at the border.

fn run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).map_err(|error| error.to_string())
}

fn pending_id(text: &str) -> Result<PendingId, String> {
    PendingId::parse(text).map_err(|error| error.to_string())
}

fn agent_name(text: &str) -> Result<AgentName, String> {
    AgentName::parse(text).map_err(|error| error.to_string())
}

fn subject(text: &str) -> Result<Subject, String> {
    Subject::parse(text).map_err(|error| error.to_string())
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_part_explains_itself() {
        let command = super::Cli::command();
        command.clone().debug_assert();
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            let name = command.get_name().to_owned();
            assert!(command.get_about().is_some(), "{name} has no help");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {} has no help", argument.get_id());
            }
            commands.extend(command.get_subcommands().filter(|below| below.get_name() != "help").cloned());
        }
    }
}
