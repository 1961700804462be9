//! `countersign db`.

use clap::{Args, Subcommand};
use countersign_store::SqliteStore;

use crate::{escape, show};

use super::session::{Invocation, Session};
use super::{Exit, Failure};

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make the database if it is not there, bring an older one up to date, and say its schema version
    Migrate,
}

/// Opening is migrating; this says so.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let What::Migrate = arguments.what;
    let session = Session::open(invocation, None).await?;
    let path = escape::line(&session.setup.store.path().display().to_string());
    show::out(&format!(
        "The database {path} has schema version {}, the newest this build knows.",
        SqliteStore::schema_version()
    ));
    Ok(Exit::Done)
}
