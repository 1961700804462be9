//! `countersign pending`.

use clap::{Args, Subcommand};
use countersign::{AgentName, PendingFilter, PendingId, PendingStatus, RunId, Subject};

use crate::escape;
use crate::json::{self, View};
use crate::show::{self, Style, table::table};

use super::session::{Invocation, Session};
use super::{Exit, Failure, agent_name, pending_id, run_id, subject};

/// At most this many are listed.
const LISTED_MAX: usize = 100;

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The open questions, oldest first
    List(List),
    /// One question with everything that will run, and how to decide it
    Show(Show),
}

#[derive(Debug, Default, Args)]
struct List {
    /// Questions that are no longer open, too
    #[arg(long)]
    all: bool,
    /// Only of this agent's runs
    #[arg(long, value_name = "A", value_parser = agent_name)]
    agent: Option<AgentName>,
    /// Only of this run
    #[arg(long, value_name = "RUN", value_parser = run_id)]
    run: Option<RunId>,
    /// Look as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// The question's id
    #[arg(value_name = "ID", value_parser = pending_id)]
    id: PendingId,
    /// Look as this person, with their rights
    #[arg(long = "as", value_name = "WHO", value_parser = subject)]
    acting: Option<Subject>,
    /// Print one Pending object, with everything in full
    #[arg(long)]
    json: bool,
}

/// Lists or shows.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    match arguments.what.unwrap_or(What::List(List::default())) {
        What::List(list) => listed(list, invocation).await,
        What::Show(show) => shown(show, invocation).await,
    }
}

async fn listed(arguments: List, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    session.close_overdue().await?;
    let filter = PendingFilter {
        status: (!arguments.all).then_some(PendingStatus::Open),
        agent: arguments.agent,
        run: arguments.run,
        owner: owner_filter(&session),
    };
    let page = session.setup.store.pendings(&filter, LISTED_MAX, None).await;
    let page = page.map_err(|fault| Failure::store("the questions cannot be listed", &fault))?;
    let view = View { listed: true, ..session.view() };
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for row in &page.items {
        // One run that cannot be read hides no other (R2).
        let run = match session.load(&row.run).await {
            Ok((_, run)) => run,
            Err(error) => {
                show::err(&Failure::load(&error).to_string());
                continue;
            }
        };
        let Some(record) = run.pending(&row.id) else { continue };
        let now = session.now(&run, record);
        let mut shown = json::pending(record, &run, view);
        json::as_now(&mut shown, record, &now);
        items.push(shown);
        rows.push(vec![
            row.id.to_string(),
            now.status(record).as_str().to_owned(),
            row.kind.clone(),
            row.agent.to_string(),
            row.owner.to_string(),
            show::moment(record.opened_at),
            show::pending::summary(record),
            escape::short(&show::pending::task(&run), 60),
        ]);
    }
    if arguments.json {
        show::out(&escape::json(&json::page(&items, page.next.as_deref())));
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        show::out("Nothing waits for a person.");
        return Ok(Exit::Done);
    }
    let head =
        ["id", "status", "kind", "agent", "owner", "asked at", "calls", "task"].map(str::to_owned).to_vec();
    rows.insert(0, head);
    show::out(&table(&rows));
    show::out(&format!("Look at one with: {}", session.command("pending show ID")));
    if page.next.is_some() {
        show::out(&format!("There are more than {LISTED_MAX}; narrow the list with --agent or --run."));
    }
    Ok(Exit::Done)
}

async fn shown(arguments: Show, invocation: Invocation) -> Result<Exit, Failure> {
    let session = Session::open(invocation, arguments.acting.as_ref()).await?;
    session.close_overdue().await?;
    let id = &arguments.id;
    let missing = || Failure::usage(format!("there is no question {id}; `pending list` shows the open ones"));
    let row = session.setup.store.pending(id).await;
    let row =
        row.map_err(|fault| Failure::store("the question cannot be read", &fault))?.ok_or_else(missing)?;
    if !session.actor.may_see_questions_of(&row.owner) {
        return Err(missing());
    }
    let (_, run) = session.load(&row.run).await.map_err(|error| Failure::load(&error))?;
    let record = run.pending(id).ok_or_else(missing)?;
    if arguments.json {
        let mut shown = json::pending(record, &run, session.view());
        json::as_now(&mut shown, record, &session.now(&run, record));
        show::out(&escape::json(&shown));
        return Ok(Exit::Done);
    }
    let style = Style::for_stdout(&session.setup.environment);
    let now = session.now(&run, record);
    show::out(&show::pending::question(record, &run, &now, session.view(), style));
    if record.status == PendingStatus::Open {
        session.ways_out(record, &run).iter().for_each(|line| show::out(line));
    } else {
        show::out(&session.in_full(id));
    }
    Ok(Exit::Done)
}

/// Somebody without the right to see every run sees their own.
pub(crate) fn owner_filter(session: &Session) -> Option<Subject> {
    let sees_all = session.actor.admin || session.actor.standing != countersign::Standing::User;
    (!sees_all).then(|| session.actor.subject.clone())
}
