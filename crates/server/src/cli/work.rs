//! `countersign work`: the workers alone, beside any number of others on one PostgreSQL.
//!
//! Invariant: it starts, decides and serves nothing; it takes up what is owed and drives it, as `serve` does. Not here:
//! the HTTP API (`serve`).

use clap::Args;

use crate::config::Database;
use crate::http::Watchers;
use crate::setup::Setup;
use crate::show;

use super::follow::head;
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::shift;
use super::tools::{default_agent, runtime_for};
use super::{Exit, Failure};

/// Nothing is to be said; the configuration says all.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 ended as it was told to, 2 wrong usage or configuration, or the runs lie in a SQLite \
    file, which one `serve` works on."
)]
pub(crate) struct Arguments {}

/// Works.
pub(crate) async fn run(_: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let config = invocation.configuration()?;
    if let Database::Sqlite(file) = &config.database {
        return Err(Failure::usage(format!(
            "`work` shares the work on one database among processes, and the runs here lie in the file {}, which one \
             process at a time works on: use `serve`, or set database to a PostgreSQL (postgres://USER@HOST/NAME)",
            file.display()
        )));
    }
    Setup::check_skills(&config)?;
    let session = Session::open_for_a_run(invocation, None).await?;
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let first = runtime.parts().agents.find(&agent).map(|agent| agent.models.clone()).unwrap_or_default();
    show::out(&head(&session, &runtime, &first));
    let interrupt = Interrupt::listen();
    show::out(&format!("working on the runs of {}", session.setup.config.database.place()));
    let drained = shift::work_until_told(&session.setup, &runtime, &Watchers::default(), &interrupt).await;
    show::out(&shift::summary(drained));
    Ok(Exit::Done)
}
