//! Colour, where it is wanted.

use std::io::{self, IsTerminal as _};

use crate::environment::Environment;

/// Whether there is colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    color: bool,
}

impl Style {
    /// Colour on stderr: only on a terminal, and not where `NO_COLOR` says so.
    pub(crate) fn for_stderr(environment: &Environment) -> Self {
        Self { color: io::stderr().is_terminal() && !environment.no_color() }
    }

    /// Colour on stdout, in the same way.
    pub(crate) fn for_stdout(environment: &Environment) -> Self {
        Self { color: io::stdout().is_terminal() && !environment.no_color() }
    }

    /// No colour.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { color: false }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// For what must be read.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// For what need not be read.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// For what goes, and what went wrong.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// For what comes, and what went well.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// For what a person must settle.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// A line of a preview, coloured as a diff.
    pub(crate) fn diff(self, line: &str) -> String {
        match line.as_bytes().first() {
            Some(b'+') => self.green(line),
            Some(b'-') => self.red(line),
            Some(b'@') => self.dim(line),
            Some(_) | None => line.to_owned(),
        }
    }
}
