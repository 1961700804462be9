//! `countersign serve`: the HTTP API and the workers, until the process is told to end.
//!
//! Invariant: at SIGTERM nothing new is taken, calls in flight come back within the grace, and every run is let go of, so
//! that others take it up at once. One `serve` has a SQLite file at a time; short commands beside it work.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use countersign::{Accounts, Drained, Runtime};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Database;
use crate::http::{self, App};
use crate::metrics::Metrics;
use crate::setup::Setup;
use crate::show;
use crate::webhooks::Receiver;

use super::follow::head;
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::shift;
use super::tools::{default_agent, runtime_for};
use super::{Exit, Failure};

/// Where to listen.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 ended as it was told to, 2 wrong usage or configuration, the address is taken, or \
    another serve has the database, 4 the database cannot be reached."
)]
pub(crate) struct Arguments {
    /// Listen here, as ADDRESS:PORT, instead of what the configuration says
    #[arg(long, value_name = "ADDR", value_parser = crate::config::listen)]
    listen: Option<SocketAddr>,
}

/// Serves.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let config = invocation.configuration()?;
    Setup::check_skills(&config)?;
    Setup::collector_headers(&config, &invocation.environment)?;
    let receivers = Setup::receivers(&config, &invocation.environment)?;
    let listen = arguments.listen.unwrap_or(config.listen);
    // Others may serve from the same PostgreSQL.
    let lock = match &config.database {
        Database::Sqlite(file) => Some(lock(file)?),
        Database::Postgres(_) => None,
    };
    crate::log::start(config.log);
    let mut session = Session::open_for_a_run(invocation, None).await?;
    let metrics = session.setup.count();
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let first = runtime.parts().agents.find(&agent).map(|agent| agent.models.clone()).unwrap_or_default();
    let (listener, at) = bind(listen).await?;
    let accounts: Arc<dyn Accounts> = Arc::clone(&session.setup.store) as Arc<dyn Accounts>;
    show::out(&head(&session, &runtime, &first));
    show::out(&format!("listening on http://{at}"));
    let known = accounts.tokens(1, None).await;
    if known.map_err(|fault| Failure::store("the tokens cannot be read", &fault))?.items.is_empty() {
        let make = session.command(&format!("token create --subject {} --admin", session.actor.subject));
        show::out(&format!("Nobody has a token yet. Make the first with: {make}"));
    }
    let interrupt = Interrupt::listen();
    let drained = serve(session.setup, runtime, accounts, metrics, receivers, listener, &interrupt).await;
    show::out(&shift::summary(drained));
    drop(lock);
    Ok(Exit::Done)
}

/// Listens, and says where.
///
/// # Errors
/// [`Failure`], when it cannot be listened there.
pub(super) async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::usage(format!(
            "it cannot be listened on {listen}: {error}; name another address with --listen or as listen in the \
             configuration"
        ))
    })?;
    let at = listener.local_addr().unwrap_or(listen);
    Ok((listener, at))
}

async fn serve(
    setup: Setup,
    runtime: Runtime,
    accounts: Arc<dyn Accounts>,
    metrics: Arc<Metrics>,
    receivers: Vec<Receiver>,
    listener: TcpListener,
    interrupt: &Interrupt,
) -> Drained {
    let delivery = setup.delivery(receivers);
    let app = App::new(setup, runtime, accounts, metrics, interrupt.token());
    let no_more = CancellationToken::new();
    let serving = tokio::spawn(http::listen(listener, http::router(&app), app.clock(), no_more.clone()));
    let drained =
        shift::work_until_told(app.setup(), app.runtime(), app.watchers(), delivery, interrupt).await;
    // Answers are given until the last run is let go of: whoever asks for readiness is told.
    no_more.cancel();
    drop(serving.await);
    drained
}

/// Held as long as the process lives; the system gives it back when the process ends, however that is.
fn lock(database: &Path) -> Result<File, Failure> {
    let mut path = database.as_os_str().to_owned();
    path.push("-serve");
    let path = PathBuf::from(path);
    let failed = |error: std::io::Error| {
        Failure::usage(format!(
            "the lock {} cannot be made: {error}; make its folder writable for this account",
            path.display()
        ))
    };
    if let Some(folder) = database.parent() {
        crate::setup::make_folder(folder)?;
    }
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.as_mut().map_err(|error| failed(std::io::Error::new(error.kind(), error.to_string())))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            // Whose it is, is only said to help.
            _ = file.read_to_string(&mut process);
            return Err(Failure::usage(format!(
                "another serve (process {}) has the database {}; on SQLite there is one at a time: end it first, or \
                 name another database",
                process.trim(),
                database.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let written = file.set_len(0).and_then(|()| file.rewind());
    written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    file.try_clone().map_err(failed)
}
