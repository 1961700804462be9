//! `countersign serve`: the HTTP API and the workers, until the process is told to end.
//!
//! Invariant: at SIGTERM nothing new is taken, calls in flight come back within the grace, and every run is let go of, so
//! that others take it up at once. One `serve` has a SQLite file at a time; short commands beside it work.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::{Accounts, Drained, Overseer, PendingFilter, PendingStatus, Runtime, Shift, Store};
use countersign_store::Hints;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{Database, duration};
use crate::http::{self, App, Watchers};
use crate::setup::Setup;
use crate::show;

use super::follow::head;
use super::interrupt::Interrupt;
use super::session::{Invocation, Session};
use super::tools::{default_agent, runtime_for};
use super::{Exit, Failure};

/// How often questions are looked for whose time has run out (A10).
const SWEEP: Duration = Duration::from_secs(1);
/// How many open questions are looked at together.
const PAGE: usize = 100;

/// Where to listen.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 ended as it was told to, 2 wrong usage or configuration, the address is taken, or \
    another serve has the database."
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
    let listen = arguments.listen.unwrap_or(config.listen);
    // Others may serve from the same PostgreSQL.
    let lock = match &config.database {
        Database::Sqlite(file) => Some(lock(file)?),
        Database::Postgres(_) => None,
    };
    let session = Session::open_for_a_run(invocation, None).await?;
    let agent = default_agent(&session)?;
    let runtime = runtime_for(&session, &agent)?;
    let first = runtime.parts().agents.find(&agent).map(|agent| agent.models.clone()).unwrap_or_default();
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::usage(format!(
            "it cannot be listened on {listen}: {error}; name another address with --listen or as listen in the \
             configuration"
        ))
    })?;
    let at = listener.local_addr().unwrap_or(listen);
    let accounts: Arc<dyn Accounts> = Arc::clone(&session.setup.store) as Arc<dyn Accounts>;
    show::out(&head(&session, &runtime, &first));
    show::out(&format!("listening on http://{at}"));
    let known = accounts.tokens(1, None).await;
    if known.map_err(|fault| Failure::store("the tokens cannot be read", &fault))?.items.is_empty() {
        let make = session.command(&format!("token create --subject {} --admin", session.actor.subject));
        show::out(&format!("Nobody has a token yet. Make the first with: {make}"));
    }
    let interrupt = Interrupt::listen();
    let hints = session.setup.store.hints();
    let hearing = tokio::spawn(hear(hints, runtime.clone()));
    let drained = serve(session.setup, runtime, accounts, listener, &interrupt).await;
    hearing.abort();
    show::out(&summary(drained));
    drop(lock);
    Ok(Exit::Done)
}

async fn serve(
    setup: Setup,
    runtime: Runtime,
    accounts: Arc<dyn Accounts>,
    listener: TcpListener,
    interrupt: &Interrupt,
) -> Drained {
    let shift = Shift {
        concurrency: setup.config.concurrency,
        grace: setup.config.drain,
        end: interrupt.token(),
        cut: interrupt.again(),
    };
    let grace = setup.config.drain;
    let app = App::new(setup, runtime.clone(), accounts, interrupt.token());
    let watchers = app.watchers().clone();
    let no_more = CancellationToken::new();
    let serving = tokio::spawn(http::listen(listener, http::router(&app), app.clock(), no_more.clone()));
    let sweeping = tokio::spawn(sweep(runtime.clone(), watchers.clone()));
    let overseer: Arc<dyn Overseer> = Arc::new(watchers);
    let working = runtime.work(shift, overseer);
    tokio::pin!(working);
    let drained = tokio::select! {
        drained = &mut working => drained,
        () = interrupt.come() => {
            show::err(&format!("calls in flight have {} to come back", duration::in_words(grace)));
            working.await
        }
    };
    // Answers are given until the last run is let go of: whoever asks for readiness is told.
    no_more.cancel();
    sweeping.abort();
    drop(serving.await);
    drained
}

/// Wakes the workers when another process says that work may be owed.
async fn hear(mut hints: Hints, runtime: Runtime) {
    loop {
        hints.next().await;
        runtime.wake();
    }
}

/// Closes what has run out, and once at the beginning what is void: what a tool is may have changed while nothing ran.
async fn sweep(runtime: Runtime, watchers: Watchers) {
    let clock = Arc::clone(&runtime.parts().clock);
    close_void(&runtime, &watchers).await;
    loop {
        match runtime.close_expired().await {
            Ok(closed) => closed.iter().for_each(|row| watchers.ring(&row.run)),
            Err(fault) => show::err(&format!("questions that have expired cannot be closed: {fault}")),
        }
        clock.sleep(SWEEP).await;
    }
}

async fn close_void(runtime: &Runtime, watchers: &Watchers) {
    let filter = PendingFilter { status: Some(PendingStatus::Open), ..PendingFilter::default() };
    let mut cursor = None;
    loop {
        let store: &dyn Store = &*runtime.parts().store;
        let Ok(page) = store.pendings(&filter, PAGE, cursor.as_deref()).await else { return };
        for row in &page.items {
            // One run that cannot be read stops no other (R2), and nobody else's agents are ours to judge.
            let Ok(run) = runtime.load(&row.run).await else { continue };
            if !runtime.is_agent_gone(&run) && matches!(runtime.close_void(run).await, Ok(Some(_))) {
                watchers.ring(&row.run);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return;
        }
    }
}

fn summary(drained: Drained) -> String {
    let Drained { let_go, cut } = drained;
    let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    let mut line = format!("ended: {} let go of at a boundary", runs(let_go));
    if cut > 0 {
        line.push_str(&format!(
            ", {} cut off in a call when the grace was over; a write among them is of unknown outcome",
            runs(cut)
        ));
    }
    line
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
