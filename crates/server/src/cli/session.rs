//! What every command that touches the store begins with: the setup, and who acts.

use std::path::PathBuf;
use std::sync::Arc;

use countersign::{
    AgentName, Entry, LoadError, PendingId, Principal, Run, RunId, Runtime, Store as _, Subject,
};

use crate::config::Config;
use crate::environment::Environment;
use crate::json::View;
use crate::setup::Setup;
use crate::{escape, show, skills};

use super::Failure;

/// How the program was called.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    /// What came from outside.
    pub(crate) environment: Environment,
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
}

impl Invocation {
    /// The configuration.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn configuration(&self) -> Result<Config, Failure> {
        Ok(Config::find(self.config.as_deref(), &self.environment).map_err(crate::setup::SetupError::from)?)
    }
}

/// An open store, and somebody who acts.
#[derive(Debug)]
pub(crate) struct Session {
    /// Everything that holds for all runs.
    pub(crate) setup: Setup,
    /// Who acts.
    pub(crate) actor: Principal,
    invocation: Invocation,
}

impl Session {
    /// Opens the store. The operator, who can open database and key, is an administrator; `acting` acts with
    /// the rights they have, and must be known.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn open(invocation: Invocation, acting: Option<&Subject>) -> Result<Self, Failure> {
        let config = invocation.configuration()?;
        let setup = Setup::open(config, invocation.environment.clone())?;
        let operator = Principal::admin(invocation.environment.account());
        let failed = |fault| Failure::store("the rights cannot be read", &fault);
        let mut subjects = vec![operator.subject.clone()];
        subjects.extend(acting.cloned());
        let look = setup.store.look(&subjects).await.map_err(failed)?;
        if look.people.find(&operator.subject) != Some(&operator) {
            let stored = setup.store.put_principal(&operator).await;
            stored.map_err(|fault| Failure::store("the operator's rights cannot be stored", &fault))?;
        }
        let actor = match acting {
            None => operator,
            Some(acting) if *acting == operator.subject => operator,
            Some(acting) => look.people.find(acting).cloned().ok_or_else(|| {
                Failure::usage(format!("nobody is known as {acting}; `user set {acting}` makes them known"))
            })?,
        };
        Ok(Self { setup, actor, invocation })
    }

    /// A command as it can be typed here.
    pub(crate) fn command(&self, rest: &str) -> String {
        let program = quoted(&self.invocation.environment.program);
        match &self.invocation.config {
            Some(config) => format!("{program} {rest} --config {}", quoted(&config.display().to_string())),
            None => format!("{program} {rest}"),
        }
    }

    /// Where a question stands with nothing shortened.
    pub(crate) fn in_full(&self, id: &PendingId) -> String {
        format!("Everything in full: {}", self.command(&format!("pending show {id} --json")))
    }

    /// The runtime with what a run was started with.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn runtime_of(&self, run: &Run) -> Result<Runtime, Failure> {
        self.tell_of_unreadable_skills(&run.created().agent);
        Ok(self.setup.runtime(run.created().models.first())?)
    }

    /// A run that goes on is not refused for it (G6), but whoever lets it go on should know.
    fn tell_of_unreadable_skills(&self, agent: &AgentName) {
        let config = &self.setup.config;
        let names =
            config.agents.iter().filter(|found| found.name == *agent).flat_map(|found| &found.skills.0);
        for error in names.filter_map(|name| skills::read(config, name).err()) {
            let error = escape::line(&error.to_string());
            show::err(&format!(
                "note: a skill of agent {agent} allows nothing, because it cannot be used: {error}"
            ));
        }
    }

    /// A run with its log.
    ///
    /// # Errors
    /// [`LoadError`]; a log that no run can have is one that cannot be read.
    pub(crate) async fn load(&self, id: &RunId) -> Result<(Vec<Entry>, Run), LoadError> {
        let log = self.setup.store.load(id).await?;
        let run = Run::fold(id.clone(), &log.entries);
        let run =
            run.map_err(|illegal| LoadError::Unreadable { run: id.clone(), reason: illegal.to_string() })?;
        Ok((log.entries, run))
    }

    /// Closes questions whose time is over, before any is shown (A10).
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn close_overdue(&self) -> Result<(), Failure> {
        let swept = self.setup.without_tools().sweep().await;
        swept
            .map(drop)
            .map_err(|fault| Failure::store("questions that have expired cannot be closed", &fault))
    }

    /// What the actor may see.
    pub(crate) fn view(&self) -> View {
        View { admin: self.actor.admin, listed: false }
    }

    /// The clock.
    pub(crate) fn clock(&self) -> Arc<dyn countersign::Clock> {
        Arc::clone(&self.setup.clock)
    }
}

/// A word for a shell, in quotes where it needs them.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:@%+=,".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
