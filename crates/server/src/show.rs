//! What a person sees.
//!
//! Invariant: text of a model, a tool or a person goes through `escape` before it gets here or in here; our own
//! words are never coloured by anything but ourselves. A reader that has gone away is no error; anything else that
//! keeps words from stdout is remembered, and told when the program ends: a run goes on to its stop all the same.

pub(crate) mod pending;
pub(crate) mod progress;
pub(crate) mod run;
mod style;
pub(crate) mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;

pub(crate) use style::Style;

/// What the system said when words did not reach stdout for the first time.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// A line on stdout.
pub(crate) fn out(text: &str) {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Remembers what became of words for stdout.
pub(crate) fn written(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // The first says it; what comes after it is no news.
        _ = LOST.set(error);
    }
}

/// Why words for stdout are lost, if some are.
pub(crate) fn lost() -> Option<&'static io::Error> {
    LOST.get()
}

/// A line on stderr.
pub(crate) fn err(text: &str) {
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// Text on stderr, without a line end: a prompt.
pub(crate) fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// A moment, to the second: what a person needs of it.
pub(crate) fn moment(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether somebody is there to be asked.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}
