//! `countersign completions` and `countersign man`: made from the command line itself, so they cannot say anything else.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::show;

use super::{Cli, Exit, Failure};

/// The name that is completed.
const PROGRAM: &str = "countersign";

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell that is to complete
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the completions.
pub(crate) fn completions(arguments: &Completions) -> Exit {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), PROGRAM, &mut text);
    show::out(String::from_utf8_lossy(&text).trim_end());
    Exit::Done
}

/// Of which command.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// The command whose page is wanted, such as `runs list`; absent: that of the whole program
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints a manual page.
pub(crate) fn page(arguments: &Page) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    for word in &arguments.command {
        let below = command.find_subcommand(word).cloned();
        command = below.ok_or_else(|| Failure::usage(format!("there is no command {word:?}; see --help")))?;
    }
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(command).render(&mut text);
    written.map_err(|error| Failure::ended(format!("the manual page cannot be made: {error}")))?;
    show::out(String::from_utf8_lossy(&text).trim_end());
    Ok(Exit::Done)
}
