//! `countersign work`: the workers alone, beside any number of others on one PostgreSQL.
//!
//! Invariant: it starts and decides nothing; it takes up what is owed and drives it, as `serve` does. Where it listens at
//! all, only supervisors and monitors are answered. Not here: the HTTP API (`serve`).

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use countersign::Accounts;
use tokio_util::sync::CancellationToken;

use crate::config::Database;
use crate::http::{self, App};
use crate::setup::Setup;
use crate::show;

use super::follow::head;
use super::interrupt::Interrupt;
use super::serve::bind;
use super::session::{Invocation, Session};
use super::shift;
use super::tools::{default_agent, runtime_for};
use super::{Exit, Failure};

/// Where to be asked how it goes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 ended as it was told to, 2 wrong usage or configuration, the address is taken, or the \
    runs lie in a SQLite file, which one `serve` works on, 4 the database cannot be reached."
)]
pub(crate) struct Arguments {
    /// Answer /healthz, /readyz and /metrics here, as ADDRESS:PORT; without it, nobody is answered
    #[arg(long, value_name = "ADDR", value_parser = crate::config::listen)]
    listen: Option<SocketAddr>,
}

/// Works.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let config = invocation.configuration()?;
    if let Database::Sqlite(file) = &config.database {
        return Err(Failure::usage(format!(
            "`work` shares the work on one database among processes, and the runs here lie in the file {}, which one \
             process at a time works on: use `serve`, or set database to a PostgreSQL (postgres://USER@HOST/NAME)",
            file.display()
        )));
    }
    Setup::check_skills(&config)?;
    Setup::collector_headers(&config, &invocation.environment)?;
    let receivers = Setup::receivers(&config, &invocation.environment)?;
    crate::log::start(config.log);
    let mut session = Session::open_for_a_run(invocation, None).await?;
    let metrics = session.setup.count();
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let first = runtime.parts().agents.find(&agent).map(|agent| agent.models.clone()).unwrap_or_default();
    let listener = match arguments.listen {
        Some(listen) => Some(bind(listen).await?),
        None => None,
    };
    show::out(&head(&session, &runtime, &first));
    let interrupt = Interrupt::listen();
    let place = session.setup.config.database.place();
    let accounts: Arc<dyn Accounts> = Arc::clone(&session.setup.store) as Arc<dyn Accounts>;
    let delivery = session.setup.delivery(receivers);
    let app = App::new(session.setup, runtime, accounts, metrics, interrupt.token());
    let no_more = CancellationToken::new();
    let answering = listener.map(|(listener, at)| {
        show::out(&format!("listening on http://{at}"));
        tokio::spawn(http::listen(listener, http::health_router(&app), app.clock(), no_more.clone()))
    });
    show::out(&format!("working on the runs of {place}"));
    let drained =
        shift::work_until_told(app.setup(), app.runtime(), app.watchers(), delivery, &interrupt).await;
    no_more.cancel();
    if let Some(answering) = answering {
        drop(answering.await);
    }
    show::out(&shift::summary(drained));
    Ok(Exit::Done)
}
