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

// What is told of its work.
mod log;
mod metrics;
mod observed;
mod telemetry;

// What is shown.
mod escape;
mod json;
mod show;
mod switch;

// What can be asked for.
mod cli;
mod http;

// Who is told.
mod webhooks;

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
    log::fault(&fault(panic));
}

fn fault(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!("countersign: a fault in the program at {place}. What is stored is safe; please report it.")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;

    #[test]
    fn rule_s5_a_panic_says_its_place_and_not_its_words() {
        let (before, here) = (panic::take_hook(), thread::current().id());
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&said);
        panic::set_hook(Box::new(move |info| {
            // Tests beside this one keep their own words.
            if thread::current().id() == here { kept.lock().unwrap().push(fault(info)) } else { before(info) }
        }));
        // Known only while it runs, or the compiler makes the words of it beforehand.
        let secret = std::hint::black_box("s3cret");
        let line = line!() + 1;
        let words = panic::catch_unwind(|| panic!("the key is {secret}")).unwrap_err();
        drop(panic::take_hook());
        assert_eq!(words.downcast_ref::<String>().unwrap(), "the key is s3cret");
        let said = said.lock().unwrap();
        let [said] = said.as_slice() else { panic!("{said:?}") };
        assert!(said.contains(&format!("main.rs:{line}:")) && !said.contains("s3cret"), "{said}");
    }
}
