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

use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;

fn main() -> ExitCode {
    panic::set_hook(Box::new(say_where));
    let exit = cli::main();
    // What reads the terminal may still be waiting for a line; it ends with the process.
    ExitCode::from(exit)
}

/// A panic says where it was, not with which words: they may quote what a tool was given (S5). Of a tool's panic
/// the sealed record keeps them.
fn say_where(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    eprintln!("countersign: a fault in the program at {place}. What is stored is safe; please report it.");
}
