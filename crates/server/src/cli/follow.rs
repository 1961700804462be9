//! Follows a run to its next stop, here or in another process, and tells what it came to.
//!
//! Invariant: whatever happens here, the run is stored and can be taken up again; nothing here cancels it.

use std::sync::Arc;
use std::time::Duration;

use countersign::{
    ClaimError, DriveError, End, Event, FailCode, Finished, LoadError, Outcome, Progress, Run, RunError,
    RunId, RunState, Runtime, ToolRequest, Unwatched, Waiting,
};

use crate::escape;
use crate::show::progress::Live;
use crate::show::{self, Style};

use super::ask::{self, Asked, Lines};
use super::interrupt::Interrupt;
use super::session::Session;
use super::{Exit, Failure};

/// How often a run that another process works on is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a decided run is left for a worker to claim.
const WORKER_PATIENCE: Duration = Duration::from_secs(1);

/// How a run is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// What goes to stdout.
    pub(crate) says: Says,
    /// Whether to ask in place where somebody is there.
    pub(crate) asks: bool,
}

/// What is said of a run on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// What a person wants to know.
    Words,
    /// One Run object, where it stops.
    Json,
    /// Nothing: whoever follows it says it.
    Nothing,
}

impl Says {
    /// As one object, or in words.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Words }
    }
}

/// Where a run stopped for us.
enum Stop {
    Done(Box<Finished>),
    Waiting(Box<Waiting>),
    /// It waits, and its question was shown here already.
    LeftWaiting(Box<Waiting>),
    Interrupted,
    AgentGone,
}

/// One run in one command.
pub(crate) struct Follow<'a> {
    session: &'a Session,
    runtime: &'a Runtime,
    run: RunId,
    manner: Manner,
    stop: Interrupt,
}

impl<'a> Follow<'a> {
    /// Follows this run until it is stopped.
    pub(crate) fn new(
        session: &'a Session,
        runtime: &'a Runtime,
        run: RunId,
        manner: Manner,
        stop: Interrupt,
    ) -> Self {
        Self { session, runtime, run, manner, stop }
    }

    /// Drives it to its next stop and tells what it came to.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn to_its_stop(&self) -> Result<Exit, Failure> {
        let stop = self.stopped(true).await;
        self.flush().await;
        self.tell(stop?).await
    }

    /// Leaves the run to a worker for a second, then does the same.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn after_a_decision(&self) -> Result<Exit, Failure> {
        self.leave_to_a_worker().await?;
        let stop = self.stopped(false).await;
        self.flush().await;
        self.tell(stop?).await
    }

    /// The process may end here, and with it what was not handed over.
    async fn flush(&self) {
        if let Some(telemetry) = &self.session.setup.telemetry {
            telemetry.flush().await;
        }
    }

    /// Tells where it stands, without driving it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn only_told(&self) -> Result<Exit, Failure> {
        let run = self.loaded().await?;
        match self.manner.says {
            Says::Json => self.print_json(&run).await?,
            Says::Words => {
                show::out(&format!("Run {} is {}.", run.id(), run.state().status(self.is_leased().await?)));
            }
            Says::Nothing => {}
        }
        Ok(Exit::Done)
    }

    async fn leave_to_a_worker(&self) -> Result<(), Failure> {
        let clock = self.session.clock();
        let mut left = WORKER_PATIENCE;
        while !left.is_zero() && !self.stop.has_come() {
            let listing = self.listing().await?;
            if listing.leased || listing.row.state != RunState::Active {
                return Ok(());
            }
            clock.sleep(LOOK).await;
            left = left.saturating_sub(LOOK);
        }
        Ok(())
    }

    async fn stopped(&self, may_ask: bool) -> Result<Stop, Failure> {
        let asks = may_ask && self.manner.asks && self.manner.says == Says::Words && show::is_interactive();
        let style = Style::for_stderr(&self.session.setup.environment);
        let live = self.manner.says == Says::Words && show::is_interactive();
        let progress: Arc<dyn Progress> = if live { Arc::new(Live::new(style)) } else { Arc::new(Unwatched) };
        let setup = &self.session.setup;
        let progress = match (&setup.telemetry, &setup.config.telemetry) {
            (Some(telemetry), _) => telemetry.watching(progress),
            (None, Some(_)) => {
                show::err(
                    "note: what is done here is not traced, because the variable that telemetry.headers_env names is \
                     not set, or is not what it must be: `config check` says which",
                );
                progress
            }
            (None, None) => progress,
        };
        let mut lines: Option<Lines> = None;
        loop {
            let driven =
                self.runtime.drive_watched(&self.run, Arc::clone(&progress), self.stop.token()).await;
            let waiting = match driven {
                Ok(Outcome::Done(finished)) => return Ok(Stop::Done(finished)),
                Ok(Outcome::Waiting(waiting)) => waiting,
                Err(RunError::Claim(ClaimError::Leased { .. }) | RunError::Drive(DriveError::LeaseLost)) => {
                    if self.wait_for_the_other().await? {
                        continue;
                    }
                    return Ok(Stop::Interrupted);
                }
                Err(RunError::Stopped(_)) => return Ok(Stop::Interrupted),
                Err(RunError::AgentGone(_)) => return Ok(Stop::AgentGone),
                Err(error) => return Err(self.failed(error)),
            };
            if !asks {
                return Ok(Stop::Waiting(waiting));
            }
            match ask::in_place(self.session, self.runtime, &waiting, &mut lines, &self.stop, style).await? {
                Asked::Settled => {}
                Asked::Waits => return Ok(Stop::LeftWaiting(waiting)),
            }
        }
    }

    /// `false`: we were stopped first.
    async fn wait_for_the_other(&self) -> Result<bool, Failure> {
        let clock = self.session.clock();
        loop {
            let listing = self.listing().await?;
            if !listing.leased || listing.row.state != RunState::Active {
                return Ok(true);
            }
            tokio::select! {
                () = clock.sleep(LOOK) => {}
                () = self.stop.come() => return Ok(false),
            }
        }
    }

    async fn listing(&self) -> Result<countersign::RunListing, Failure> {
        let store = &self.session.setup.store;
        store.run(&self.run, self.session.setup.clock.now()).await.map_err(|error| Failure::load(&error))
    }

    async fn is_leased(&self) -> Result<bool, Failure> {
        Ok(self.listing().await?.leased)
    }

    async fn loaded(&self) -> Result<Run, Failure> {
        self.runtime.load(&self.run).await.map_err(|error| Failure::load(&error))
    }

    fn failed(&self, error: RunError) -> Failure {
        let resume = format!(
            "run {} is kept: {}",
            self.run,
            self.session.command(&format!("runs resume {}", self.run))
        );
        if let RunError::Claim(ClaimError::NotFound(run)) = error {
            return Failure::load(&LoadError::NotFound(run));
        }
        if let RunError::Claim(ClaimError::Fault(fault)) = &error {
            return Failure::store("the run cannot be taken up", fault).and(&resume);
        }
        if let RunError::Drive(error) = error {
            let is_unreadable = matches!(error, DriveError::Unreadable { .. });
            let kept =
                if is_unreadable { "it is left as it is, and no other run is affected" } else { &resume };
            return Failure::from(error).and(kept);
        }
        Failure::ended(error.to_string()).and(&resume)
    }

    async fn print_json(&self, run: &Run) -> Result<(), Failure> {
        let leased = self.is_leased().await?;
        show::out(&escape::json(&self.session.run_json(run, leased, self.session.view())));
        Ok(())
    }

    async fn tell(&self, stop: Stop) -> Result<Exit, Failure> {
        match stop {
            Stop::Done(finished) => {
                if self.manner.says == Says::Json {
                    self.print_json(&finished.run).await?;
                }
                Ok(self.tell_end(&finished.run))
            }
            Stop::Waiting(waiting) => {
                match self.manner.says {
                    Says::Json => self.print_json(&waiting.run).await?,
                    Says::Words => {
                        self.tell_question(&waiting);
                        self.tell_ways_out(&waiting);
                    }
                    Says::Nothing => {}
                }
                Ok(Exit::Waiting)
            }
            Stop::LeftWaiting(waiting) => {
                self.tell_ways_out(&waiting);
                Ok(Exit::Waiting)
            }
            Stop::Interrupted => {
                let run = self.loaded().await?;
                if self.manner.says == Says::Json {
                    self.print_json(&run).await?;
                }
                show::err(&format!(
                    "stopped: run {} is kept as it is. Go on with: {}",
                    self.run,
                    self.session.command(&format!("runs resume {}", self.run))
                ));
                Ok(self.stop.exit())
            }
            Stop::AgentGone => {
                let run = self.loaded().await?;
                if self.manner.says == Says::Json {
                    self.print_json(&run).await?;
                }
                let models: Vec<String> = run.created().models.iter().map(ToString::to_string).collect();
                Err(Failure::refused(
                    "agent_gone",
                    &format!(
                        "the agent {} or its model {} is not configured here, so run {} is left as it is; configure it \
                         again, or end the run: {}",
                        run.created().agent,
                        models.join(", "),
                        self.run,
                        self.session.command(&format!("runs cancel {}", self.run))
                    ),
                ))
            }
        }
    }

    fn tell_end(&self, run: &Run) -> Exit {
        let exit = exit_of(run);
        if self.manner.says == Says::Words
            && let Some(output) = run.output().filter(|_| matches!(run.end(), Some(End::Completed { .. })))
        {
            show::out(&escape::block(output));
        }
        if let Some(how) = show::run::ending(run) {
            let word = match run.end() {
                Some(End::Completed { .. }) => "ended at a limit",
                Some(End::Failed { .. }) => "failed",
                Some(End::Cancelled { .. }) | None => "ended",
            };
            // Where the model failed, which one was asked.
            let asked = match run.end() {
                Some(End::Failed { code: FailCode::Model(_), .. }) => {
                    let chain: Vec<String> = run.created().models.iter().map(ToString::to_string).collect();
                    format!(" ({})", escape::line(&chain.join(", then ")))
                }
                _ => String::new(),
            };
            let look = self.session.command(&format!("runs events {}", run.id()));
            show::err(&format!("run {} {word}: {how}{asked}. What happened is kept: {look}", run.id()));
        }
        exit
    }

    fn tell_question(&self, waiting: &Waiting) {
        let style = Style::for_stdout(&self.session.setup.environment);
        let now = self.session.now(&waiting.run, &waiting.record);
        show::out(&show::pending::question(&waiting.record, &waiting.run, &now, self.session.view(), style));
    }

    fn tell_ways_out(&self, waiting: &Waiting) {
        let ways = self.session.ways_out(&waiting.record, &waiting.run);
        show::out(&format!("Run {} waits for a person. {}", waiting.run.id(), ways.join("\n")));
    }
}

/// The exit status that a run's end is.
pub(crate) fn exit_of(run: &Run) -> Exit {
    match run.end() {
        Some(End::Completed { limit: None, .. }) => Exit::Done,
        Some(End::Completed { limit: Some(_), .. } | End::Failed { .. } | End::Cancelled { .. }) => {
            Exit::Ended
        }
        None => Exit::Waiting,
    }
}

/// What the gates kept out at the start, where somebody asked for it by name.
pub(crate) fn tell_denied(session: &Session, run: &Run, log: &[countersign::Entry]) {
    let ToolRequest::Only(_) = run.created().tools else { return };
    for entry in log {
        if let Event::GateDenied(denied) = &entry.event {
            let (tool, sentence) = (escape::short(&denied.tool, 64), denied.reason.sentence());
            let what = if denied.observed_only {
                "is only let pass because data classes are observed"
            } else {
                "is left out"
            };
            show::err(&format!(
                "note: the tool {tool} {what}: {sentence}. {}",
                session.command("tools list")
            ));
        }
    }
}

/// The line that says what runs where.
pub(crate) fn head(session: &Session, runtime: &Runtime, chain: &[countersign::ModelRef]) -> String {
    let setup = &session.setup;
    let model = chain.first();
    let named = model.map(|model| escape::short(&model.to_string(), 128)).unwrap_or_default();
    let script =
        if model.is_some_and(|model| setup.is_script(model)) { " (a script, not a model)" } else { "" };
    let folder = match setup.workspace_of(model) {
        Some(folder) => escape::line(&folder.display().to_string()),
        None => "none (no file tools)".to_owned(),
    };
    let zone = runtime.parts().models.zone_of(chain).as_str();
    format!("model {named}{script} | zone {zone} | folder {folder}")
}
