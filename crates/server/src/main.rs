//! # countersign: the program
//!
//! The command line, the configuration, and what a person sees of a run. The only place that knows concrete
//! stores, clients and tools. What may happen to a run, and when, is decided in `countersign-core` and
//! `countersign`; nothing here decides.

// From outside.
mod at_hand;
mod config;
mod environment;
mod key;
mod skills;
mod tour;

// What it becomes.
mod setup;

// What is shown.
mod escape;
mod json;
mod show;
mod switch;

// What can be asked for.
mod cli;
mod http;

use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = cli::main();
    // What reads the terminal may still be waiting for a line; it ends with the process.
    ExitCode::from(exit)
}
