//! What every command that touches the store begins with: the setup, and who acts.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersign::{
    AgentName, Clock as _, Entry, LoadError, ModelRef, PendingId, PendingRecord, PendingStatus, Principal,
    Question, Run, RunId, Runtime, Subject, SystemClock,
};
use serde_json::Value;

use crate::config::{CONFIG_VARIABLE, Config, Database, FILE};
use crate::environment::Environment;
use crate::json::{self, View};
use crate::setup::{Setup, is_made};
use crate::show::{self, pending::Now};
use crate::{escape, skills};

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

    /// The configuration; without one, that of the nearest folder that has a database.
    fn nearest(&self) -> Result<Config, Failure> {
        Ok(self.configuration()?.at_the_nearest_state(&self.environment))
    }

    /// The configuration that was named, as it can be named from anywhere.
    fn named(&self) -> Option<PathBuf> {
        let from_outside = || self.environment.get(CONFIG_VARIABLE).map(PathBuf::from);
        Some(self.environment.folder.join(self.config.clone().or_else(from_outside)?))
    }
}

/// A folder for what is thrown away.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// A name that nobody has; the folder is made by whoever needs it.
    fn new(environment: &Environment) -> Self {
        let name = SystemClock.random().map(|byte| format!("{byte:02x}")).concat();
        let above = PathBuf::from(environment.get("TMPDIR").unwrap_or("/tmp"));
        Self { folder: above.join(format!("countersign-{name}")) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed holds nothing but defaults.
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An open store, and somebody who acts.
#[derive(Debug)]
pub(crate) struct Session {
    /// Everything that holds for all runs.
    pub(crate) setup: Setup,
    /// Who acts.
    pub(crate) actor: Principal,
    /// Where there is no database and only a look was asked for: an empty one, which goes with the session.
    pub(crate) scratch: Option<Scratch>,
    invocation: Invocation,
    /// What was built for runs that one model serves; a list may hold a hundred of them.
    runtimes: Mutex<Vec<(Option<ModelRef>, Runtime)>>,
}

impl Session {
    /// Opens the nearest database that is there. None is made.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn open(invocation: Invocation, acting: Option<&Subject>) -> Result<Self, Failure> {
        let config = invocation.nearest()?;
        if !is_made(&config.database, &invocation.environment).await? {
            return Err(no_database(&config, &invocation));
        }
        Self::with(config, invocation, acting).await
    }

    /// Opens the nearest database, and makes one if there is none.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn open_or_make(
        invocation: Invocation,
        acting: Option<&Subject>,
    ) -> Result<Self, Failure> {
        Self::with(invocation.nearest()?, invocation, acting).await
    }

    /// Opens the database for a new run, and makes one if there is none. Without a configuration it is that of
    /// the working folder itself, which is what the run works on.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn open_for_a_run(
        invocation: Invocation,
        acting: Option<&Subject>,
    ) -> Result<Self, Failure> {
        Self::with(invocation.configuration()?, invocation, acting).await
    }

    /// Opens the nearest database to look at what holds for all runs. Without one everything is a default.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn open_to_look(
        invocation: Invocation,
        acting: Option<&Subject>,
    ) -> Result<Self, Failure> {
        let mut config = invocation.nearest()?;
        if is_made(&config.database, &invocation.environment).await? {
            return Self::with(config, invocation, acting).await;
        }
        let scratch = Scratch::new(&invocation.environment);
        config.database = Database::Sqlite(scratch.folder.join("countersign.db"));
        config.key_file = scratch.folder.join("key");
        let mut session = Self::with(config, invocation, acting).await?;
        session.scratch = Some(scratch);
        Ok(session)
    }

    /// The operator, who can open database and key, is an administrator; `acting` acts with the rights they
    /// have, and must be known.
    async fn with(config: Config, invocation: Invocation, acting: Option<&Subject>) -> Result<Self, Failure> {
        let setup = Setup::open(config, invocation.environment.clone()).await?;
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
        Ok(Self { setup, actor, scratch: None, invocation, runtimes: Mutex::default() })
    }

    /// A command as it can be typed here; and elsewhere too, if the configuration was named.
    pub(crate) fn command(&self, rest: &str) -> String {
        let program = quoted(&self.invocation.environment.program);
        match self.invocation.named() {
            Some(config) => format!("{program} {rest} --config {}", quoted(&config.display().to_string())),
            None => format!("{program} {rest}"),
        }
    }

    /// What stands above the commands that decide a question. Without a named configuration the state is found
    /// from the working folder, so it says which that is.
    fn decide_with(&self) -> String {
        if self.invocation.named().is_some() {
            return "Decide it with one of:".to_owned();
        }
        let folder = escape::line(&self.invocation.environment.folder.display().to_string());
        format!("Decide it with one of (in {folder}):")
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
        self.built_for(run)
    }

    fn built_for(&self, run: &Run) -> Result<Runtime, Failure> {
        let model = run.created().models.first();
        let mut runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, runtime)) = runtimes.iter().find(|(known, _)| known.as_ref() == model) {
            return Ok(runtime.clone());
        }
        let runtime = self.setup.runtime(model)?;
        runtimes.push((model.cloned(), runtime.clone()));
        Ok(runtime)
    }

    /// How a question stands at this moment. What cannot be set up here says nothing about it.
    pub(crate) fn now(&self, run: &Run, record: &PendingRecord) -> Now {
        self.built_for(run).map(|runtime| Now::of(&runtime, run, record)).unwrap_or_default()
    }

    /// A run as JSON, with its question as it stands at this moment.
    pub(crate) fn run_json(&self, run: &Run, leased: bool, view: View) -> Value {
        let mut shown = json::run(run, leased, view);
        if let Some(record) = run.open_pending() {
            json::as_now(&mut shown["pending"], record, &self.now(run, record));
        }
        shown
    }

    /// What stands below an open question: what can be done, as commands, and where everything is in full.
    pub(crate) fn ways_out(&self, record: &PendingRecord, run: &Run) -> Vec<String> {
        let now = self.now(run, record);
        let mut lines = vec![if now.status(record) == PendingStatus::Void {
            "A tool of this question is not what it was, so nothing can be decided. The run goes on with:"
                .to_owned()
        } else if now.agent_gone {
            format!(
                "The agent {} or its model is not configured here, so the run can only be ended. {}",
                run.created().agent,
                self.decide_with()
            )
        } else {
            self.decide_with()
        }];
        let commands = show::pending::commands(record, run, &now, &|rest| self.command(rest));
        lines.extend(commands.into_iter().map(|command| format!("  {command}")));
        lines.push(self.in_full(&record.pending.id));
        if let Question::Resolution { .. } = record.pending.question {
            let command = self.command(&format!("runs show {}", run.id()));
            lines.push(format!("What is known of the call: {command}"));
        }
        lines
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

    /// Closes questions whose time is over, before any is shown (A10), and says with which command their runs go on.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn close_overdue(&self) -> Result<(), Failure> {
        let failed = |fault| Failure::store("questions that have expired cannot be closed", &fault);
        let closed = self.setup.without_tools().close_expired().await.map_err(failed)?;
        for row in closed.iter().filter(|row| self.actor.may_settle_for(&row.owner)) {
            show::err(&format!(
                "note: the time to decide {} is over; its run goes on without an answer, with: {}",
                row.id,
                self.command(&format!("runs resume {}", row.run))
            ));
        }
        Ok(())
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

fn no_database(config: &Config, invocation: &Invocation) -> Failure {
    let database = config.database.place();
    Failure::usage(match &config.file {
        Some(file) => format!(
            "there is no database {database}, which the configuration {} stands for; `run` makes it, or name another \
             configuration with --config",
            file.display()
        ),
        None => format!(
            "there is no database {database}, and neither a database nor a {FILE} in a folder above {}; change to the \
             folder in which the run was started, or name its configuration with --config",
            invocation.environment.folder.display()
        ),
    })
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
