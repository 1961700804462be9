//! What comes in from outside the program: variables, the account, the working folder, how it was called.
//!
//! Invariant: this is the only place that reads the environment, and it reads it once. `Debug` shows no value:
//! keys are among them (S5).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use countersign::Subject;
use countersign_clients::CommandEnvironment;

/// The outside, as it was when the program started.
#[derive(Clone)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// The working folder.
    pub(crate) folder: PathBuf,
    /// How the program was called.
    pub(crate) program: String,
}

impl fmt::Debug for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Environment")
            .field("folder", &self.folder)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl Environment {
    /// Reads it. A variable that is not UTF-8 does not exist for us.
    ///
    /// # Errors
    /// When there is no working folder.
    pub(crate) fn read() -> io::Result<Self> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let called = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
        let program = if called.contains('/') { called } else { "countersign".to_owned() };
        Ok(Self { variables, folder: std::env::current_dir()?, program })
    }

    /// A variable; an empty one counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What a command tool sees of it: no key is among it.
    pub(crate) fn for_commands(&self) -> CommandEnvironment {
        let kept = |name| self.get(name).map(str::to_owned);
        CommandEnvironment { path: kept("PATH"), home: kept("HOME"), lang: kept("LANG"), tz: kept("TZ") }
    }

    /// Whether colour is unwanted.
    pub(crate) fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some() || self.get("TERM") == Some("dumb")
    }

    /// The account that runs the program, as a subject: the operator.
    pub(crate) fn account(&self) -> Subject {
        let uid = rustix::process::geteuid().as_raw();
        let name =
            account_name(Path::new("/etc/passwd"), uid).or_else(|| self.get("USER").map(str::to_owned));
        subject(name.as_deref().unwrap_or_default(), uid)
    }

    #[cfg(test)]
    pub(crate) fn of(folder: &Path, variables: &[(&str, &str)]) -> Self {
        Self {
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            folder: folder.to_owned(),
            program: "countersign".to_owned(),
        }
    }
}

/// The name of an account in a passwd file.
fn account_name(file: &Path, uid: u32) -> Option<String> {
    let file = std::fs::read(file).ok()?;
    String::from_utf8_lossy(&file).lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// An account's name with what no subject may hold replaced.
fn subject(name: &str, uid: u32) -> Subject {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.@:-".contains(letter);
    let name: String =
        name.chars().map(|letter| if allowed(letter) { letter } else { '_' }).take(128).collect();
    let spare = || Subject::parse(&format!("user-{uid}"));
    #[expect(clippy::expect_used, reason = "user- and a number is a subject by the rule for subjects")]
    Subject::parse(&name).or_else(|_| spare()).expect("the spare name is a subject")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_becomes_a_valid_subject() {
        for (name, expected) in
            [("ann", "ann"), ("ann lee", "ann_lee"), ("_www", "user-7"), ("", "user-7"), ("ümit", "user-7")]
        {
            assert_eq!(subject(name, 7).as_str(), expected, "{name:?}");
        }
    }

    #[test]
    fn rule_s5_debug_shows_no_value() {
        let environment = Environment::of(Path::new("/"), &[("OPENAI_API_KEY", "key-SECRET-2")]);
        assert!(!format!("{environment:?}").contains("SECRET"));
    }

    #[test]
    fn an_account_is_found_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passwd");
        std::fs::write(&file, "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n").unwrap();
        assert_eq!(account_name(&file, 1000).as_deref(), Some("ann"));
        assert_eq!(account_name(&file, 7), None);
    }
}
