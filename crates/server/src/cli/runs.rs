//! `countersign runs`.

use clap::{Args, Subcommand};
use countersign::{Entry, LoadError, Run, RunFilter, RunId, RunState, Subject};
use countersign_store::EraseError;
use serde_json::Value;

use crate::escape;
use crate::json::{self, View};
use crate::show::{self, Style, table::table};

use super::follow::{Follow, Manner, Says};
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::{Exit, Failure, run_id, subject};

/// At most this many are listed at once.
const LISTED_MAX: usize = 100;

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The runs, newest first
    List(List),
    /// One run
    Show(One),
    /// All that happened to a run, in order
    Events(One),
    /// End a run for good: at once, or as soon as a write that is under way has come back
    Cancel(One),
    /// Destroy the content of a run that has ended; that it was there stays in the record
    Erase(Erase),
    /// Take up a run that nobody works on, and follow it to its next stop
    Resume(Resume),
}

#[derive(Debug, Args)]
struct List {
    /// Look as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct One {
    /// The run's id
    #[arg(value_name = "ID", value_parser = run_id)]
    id: RunId,
    /// Act as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Erase {
    /// The run's id
    #[arg(value_name = "ID", value_parser = run_id)]
    id: RunId,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: as `run`; 4 if another process works on the run, 5 if its agent or model is not \
    configured here (agent_gone). With --all: 0 if all completed, 3 if one waits for a person, 4 if one ended otherwise."
)]
struct Resume {
    /// The run's id
    #[arg(value_name = "ID", value_parser = run_id, required_unless_present = "all", conflicts_with = "all")]
    id: Option<RunId>,
    /// Every run that is owed work and that nobody works on
    #[arg(long)]
    all: bool,
    /// Act as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print one Run object on stdout for each run
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what {
        What::List(list) => listed(list, invocation).await,
        What::Show(one) => shown(one, invocation).await,
        What::Events(one) => events(one, invocation).await,
        What::Cancel(one) => cancelled(one, invocation).await,
        What::Erase(erase) => erased(erase, invocation).await,
        What::Resume(resume) => resumed(resume, invocation).await,
    }
}

async fn listed(arguments: List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    session.close_overdue().await?;
    let filter = RunFilter { owner: owner_filter(&session), ..RunFilter::default() };
    let store = &session.setup.store;
    let page = store.runs(&filter, session.setup.clock.now(), LISTED_MAX, None).await;
    let page = page.map_err(|fault| Failure::store("the runs cannot be listed", &fault))?;
    let view = View { listed: true, ..session.view() };
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for listing in &page.items {
        let row = &listing.row;
        let loaded = match session.load(&row.id).await {
            Ok((_, run)) => Ok(run),
            Err(LoadError::Fault(fault)) => return Err(Failure::store("a run cannot be read", &fault)),
            Err(error) => Err(error),
        };
        let task = match &loaded {
            Ok(run) => escape::short(&show::pending::task(run), 60),
            Err(LoadError::Erased { .. }) => "(erased)".to_owned(),
            Err(_) => "(cannot be read)".to_owned(),
        };
        items.push(match &loaded {
            Ok(run) => session.run_json(run, listing.leased, view),
            Err(why) => json::unreadable_run(listing, why),
        });
        rows.push(vec![
            row.id.to_string(),
            listing.status().to_owned(),
            row.agent.to_string(),
            row.owner.to_string(),
            show::moment(row.created_at),
            row.failure.clone().or(row.limit.map(|limit| limit.stop_reason().to_owned())).unwrap_or_default(),
            task,
        ]);
    }
    if arguments.json {
        show::out(&escape::json(&json::page(&items, page.next.as_deref())));
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        show::out("There are no runs.");
        return Ok(Exit::Done);
    }
    rows.insert(0, ["id", "status", "agent", "owner", "started", "code", "task"].map(str::to_owned).to_vec());
    show::out(&table(&rows));
    if page.next.is_some() {
        show::out(&format!("Only the newest {LISTED_MAX} are shown."));
    }
    Ok(Exit::Done)
}

/// Who is no administrator lists their own runs.
fn owner_filter(session: &Session) -> Option<Subject> {
    (!session.actor.admin).then(|| session.actor.subject.clone())
}

/// A run that the actor may see; of any other it is said that there is none. An approver sees the runs whose
/// question is open, or was decided by them.
async fn seen(session: &Session, id: &RunId) -> Result<(Vec<Entry>, Run), Failure> {
    let (log, run) = session.load(id).await.map_err(|error| Failure::load(&error))?;
    if session.actor.may_see(&run) {
        return Ok((log, run));
    }
    Err(Failure::load(&LoadError::NotFound(id.clone())))
}

async fn shown(arguments: One, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    session.close_overdue().await?;
    let (log, run) = seen(&session, &arguments.id).await?;
    let listing = session.setup.store.run(&arguments.id, session.setup.clock.now()).await;
    let leased = listing.map_err(|error| Failure::load(&error))?.leased;
    if arguments.json {
        show::out(&escape::json(&session.run_json(&run, leased, session.view())));
        return Ok(Exit::Done);
    }
    let style = Style::for_stdout(&session.setup.environment);
    show::out(&show::run::summary(&run, leased, style));
    show::run::failures(&log, style).iter().for_each(|line| show::out(line));
    if let Some(output) = run.output().filter(|_| run.end().is_some()) {
        show::out("\nThe last it said:");
        escape::block(output).lines().for_each(|line| show::out(&format!("  │ {line}")));
    }
    if let Some(record) = run.open_pending() {
        show::out("");
        let now = session.now(&run, record);
        show::out(&show::pending::question(record, &run, &now, session.view(), style));
        session.ways_out(record, &run).iter().for_each(|line| show::out(line));
    }
    if run.state() == RunState::Active && !leased {
        show::out(&format!(
            "Nobody works on it. Go on with: {}",
            session.command(&format!("runs resume {}", run.id()))
        ));
    }
    Ok(Exit::Done)
}

async fn events(arguments: One, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    let (log, _) = seen(&session, &arguments.id).await?;
    let events = json::events(&log);
    if arguments.json {
        show::out(&escape::json(&json::page(&events, None)));
        return Ok(Exit::Done);
    }
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let rows = events.iter().map(|event| {
        let data = event["data"].as_object().into_iter().flatten();
        let data = data.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={}", escape::short(&text, 200))
        });
        let data = data.collect::<Vec<_>>().join(" ");
        vec![event["seq"].to_string(), text(event, "at"), text(event, "kind"), data]
    });
    show::out(&table(&rows.collect::<Vec<_>>()));
    Ok(Exit::Done)
}

async fn cancelled(arguments: One, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    seen(&session, &arguments.id).await?;
    let run = session.setup.without_tools().cancel(&arguments.id, &session.actor).await?;
    let listing = session.setup.store.run(&arguments.id, session.setup.clock.now()).await;
    let listing = listing.map_err(|error| Failure::load(&error))?;
    if arguments.json {
        show::out(&escape::json(&session.run_json(&run, listing.leased, session.view())));
        return Ok(Exit::Done);
    }
    show::out(&match (run.end().is_some(), listing.leased) {
        (true, _) => format!("Run {} is cancelled.", run.id()),
        (false, true) => {
            format!("Run {} is being cancelled: it ends when the call under way has come back.", run.id())
        }
        (false, false) => format!(
            "Run {} is being cancelled, and nobody works on it. End it with: {}",
            run.id(),
            session.command(&format!("runs resume {}", run.id()))
        ),
    });
    Ok(Exit::Done)
}

/// What keeps a run from having ended.
fn not_ended(state: RunState) -> &'static str {
    match state {
        RunState::Active => "the run is at work, or waits for a worker",
        RunState::WaitingForApproval => "the run waits for an approval",
        RunState::WaitingForInput => "the run waits for an input",
        RunState::NeedsResolution => "the run waits for somebody to say whether a write happened",
        RunState::Completed | RunState::Failed | RunState::Cancelled => "the run has ended only now",
    }
}

async fn erased(arguments: Erase, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, None).await?;
    let done = session.setup.store.erase(&arguments.id, session.setup.clock.now()).await;
    let done = done.map_err(|error| {
        if let EraseError::Fault(fault) = &error {
            return Failure::store("nothing was erased", fault);
        }
        if let EraseError::NotEnded(state) = &error {
            let cancel = session.command(&format!("runs cancel {}", arguments.id));
            let sentence = format!(
                "{}, so nothing was erased: end it with `{cancel}`, then erase it",
                not_ended(*state)
            );
            return Failure::refused("run_not_ended", &sentence);
        }
        if let EraseError::Continued(_) = &error {
            return Failure::refused("run_not_ended", &error.to_string());
        }
        Failure::usage(format!("{error}, so nothing was erased"))
    })?;
    let at = show::moment(done.at);
    if arguments.json {
        show::out(&escape::json(&serde_json::json!({
            "id": arguments.id, "erased_at": at, "events": done.events, "continuations": done.continuations,
            "scrubbed": done.scrubbed,
        })));
        return Ok(Exit::Done);
    }
    show::out(&match done.events {
        0 => format!("Run {} was erased before, at {at}.", arguments.id),
        events => format!(
            "Run {} is erased: the content of its {events} events is destroyed. Backups that were made before still hold \
             it.",
            arguments.id
        ),
    });
    if !done.continuations.is_empty() {
        let runs: Vec<&str> = done.continuations.iter().map(RunId::as_str).collect();
        show::out(&format!("Erased with it, because they continue it: {}.", runs.join(", ")));
    }
    if !done.scrubbed {
        show::out(session.setup.store.lingering());
    }
    Ok(Exit::Done)
}

async fn resumed(arguments: Resume, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    let stop = Interrupt::listen();
    let Some(id) = arguments.id else { return all_resumed(&session, arguments.json, &stop).await };
    let (_, run) = seen(&session, &id).await?;
    let listing = session.setup.store.run(&id, session.setup.clock.now()).await;
    if listing.map_err(|error| Failure::load(&error))?.leased {
        return Err(worked_on(&session, &id).await);
    }
    let runtime = session.runtime_of(&run)?;
    if !runtime.is_agent_gone(&run)
        && runtime.close_void(run).await.map_err(|error| Failure::load(&error))?.is_some()
    {
        show::err(
            "note: a tool of the open question is not what it was, so the question is void and the run goes on",
        );
    }
    Follow::new(&session, &runtime, id, Manner { says: Says::of(arguments.json), asks: true }, stop)
        .to_its_stop()
        .await
}

async fn worked_on(session: &Session, id: &RunId) -> Failure {
    Failure::ended(worked_on_words(session, id).await)
}

/// Until when another process has the run, as far as it says.
async fn worked_on_words(session: &Session, id: &RunId) -> String {
    let (now, token) = (session.setup.clock.now(), "0".repeat(32));
    let until = match session.setup.store.claim(id, token, now, std::time::Duration::ZERO).await {
        Err(countersign::ClaimError::Leased { until }) => {
            format!(" until {}, or longer if it renews that", show::moment(until))
        }
        Ok(_) | Err(_) => String::new(),
    };
    format!("another process works on run {id}{until}; wait for it, or try again after that")
}

async fn all_resumed(session: &Session, json: bool, stop: &Interrupt) -> Result<Exit, Failure> {
    let filter =
        RunFilter { states: vec![RunState::Active], owner: owner_filter(session), ..RunFilter::default() };
    let (mut owed, mut elsewhere, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page =
            session.setup.store.runs(&filter, session.setup.clock.now(), LISTED_MAX, cursor.as_deref()).await;
        let page = page.map_err(|fault| Failure::store("the runs cannot be listed", &fault))?;
        for listing in page.items {
            let of = if listing.leased { &mut elsewhere } else { &mut owed };
            of.push(listing.row.id);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for id in elsewhere.iter().rev() {
        show::err(&format!("note: {}", worked_on_words(session, id).await));
    }
    if owed.is_empty() && !json {
        show::out("No run is owed work that nobody does.");
    }
    let (mut worst, mut stopped) = (Exit::Done, Vec::new());
    // The list is newest first; whoever has waited longest comes first.
    for id in owed.into_iter().rev() {
        if stop.has_come() {
            worst = stop.exit();
            break;
        }
        if !json {
            show::out(&format!("Run {id}:"));
        }
        // One run that cannot be driven stops no other (R2).
        let exit = one_of_all(session, &id, json, stop).await.unwrap_or_else(|failure| {
            show::err(&failure.to_string());
            Exit::Ended
        });
        if exit.code() > worst.code() {
            worst = exit;
        }
        if json && let Ok((_, run)) = session.load(&id).await {
            let listing = session.setup.store.run(&id, session.setup.clock.now()).await;
            let leased = listing.is_ok_and(|listing| listing.leased);
            stopped.push(session.run_json(&run, leased, session.view()));
        }
    }
    if json {
        show::out(&escape::json(&json::page(&stopped, None)));
    }
    Ok(worst)
}

async fn one_of_all(session: &Session, id: &RunId, json: bool, stop: &Interrupt) -> Result<Exit, Failure> {
    let (_, run) = session.load(id).await.map_err(|error| Failure::load(&error))?;
    let runtime = session.runtime_of(&run)?;
    let manner = Manner { says: if json { Says::Nothing } else { Says::Words }, asks: false };
    Follow::new(session, &runtime, id.clone(), manner, stop.clone()).to_its_stop().await
}
