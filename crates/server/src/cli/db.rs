//! `countersign db`: what people do to a database as a whole.
//!
//! Invariant: each command says what it changed, also when that is nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use countersign::AgentName;
use countersign_store::BackupError;
use serde_json::json;

use crate::config::duration;
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
    Migrate(Json),
    /// Look through the whole database: is every row what the logs say it should be?
    #[command(
        after_help = "Exit status: 0 nothing was found, 4 something was found or it could not be looked at."
    )]
    Doctor(Json),
    /// Remove runs that ended some time ago; one that waits or has an unknown outcome stays
    Purge(Purge),
    /// Write a copy of the database, also while it is in use; it holds no key
    Backup(Backup),
    /// After a backup was put back and before anything works on it: nothing is done on the word of a person who spoke
    /// before it was made
    Restored(Json),
}

#[derive(Debug, Args)]
struct Json {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Purge {
    /// How long ago they ended, such as 90d
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Duration,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Backup {
    /// A file that is not there yet
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Does it.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let session = match arguments.what {
        What::Migrate(_) => Session::open_or_make(invocation, None).await?,
        What::Doctor(_) | What::Purge(_) | What::Backup(_) | What::Restored(_) => {
            Session::open(invocation, None).await?
        }
    };
    match arguments.what {
        What::Migrate(Json { json }) => Ok(migrated(&session, json)),
        What::Doctor(Json { json }) => examined(&session, json).await,
        What::Purge(purge) => purged(&session, purge).await,
        What::Backup(backup) => copied(&session, backup).await,
        What::Restored(Json { json }) => restored(&session, json).await,
    }
}

/// Opening is migrating; this says so.
fn migrated(session: &Session, json: bool) -> Exit {
    let (path, version) = (session.setup.store.place(), session.setup.store.schema_version());
    if json {
        show::out(&escape::json(&json!({ "database": path, "schema_version": version })));
    } else {
        let (path, known) = (escape::line(&path), session.setup.store.schema_known());
        show::out(&if version > known {
            format!(
                "The database {path} has schema version {version}. This build knows {known} and may work on it beside \
                 newer ones."
            )
        } else {
            format!("The database {path} has schema version {version}, the newest this build knows.")
        });
    }
    Exit::Done
}

async fn examined(session: &Session, json: bool) -> Result<Exit, Failure> {
    let configured = session.setup.config.agents.iter().map(|agent| agent.name.clone());
    let mut agents: Vec<AgentName> = configured.collect();
    if agents.is_empty() {
        agents.push(super::tools::default_agent(session)?);
    }
    let now = session.setup.clock.now();
    let report = session.setup.store.examine(Some(&agents), now, &mut |_| {}).await;
    let report = report.map_err(|fault| Failure::store("the database cannot be looked at", &fault))?;
    let exit = if report.is_clean() { Exit::Done } else { Exit::Ended };
    if json {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| json!({ "finding": finding.sentence(), "damage": finding.is_damage() }))
            .collect();
        show::out(&escape::json(&json!({
            "runs": report.runs, "events": report.events, "pendings": report.pendings,
            "findings": findings, "left_out": report.left_out,
        })));
        return Ok(exit);
    }
    for finding in &report.findings {
        let kind = if finding.is_damage() { "damage" } else { "notice" };
        show::out(&format!("{kind}: {}", escape::line(&finding.sentence())));
    }
    let looked_at = [(report.runs, "run"), (report.events, "event"), (report.pendings, "question")]
        .map(|(number, what)| counted(number, what))
        .join(", ");
    let found = report.findings.len() as u64 + report.left_out;
    show::out(&match found {
        0 => format!("Nothing was found ({looked_at})."),
        found => format!("{found} found, {} shown ({looked_at}).", report.findings.len()),
    });
    Ok(exit)
}

async fn purged(session: &Session, purge: Purge) -> Result<Exit, Failure> {
    let too_long = || Failure::usage("--older-than: there were no runs that long ago");
    let before = session.setup.clock.now().checked_sub(purge.older_than).map_err(|_| too_long())?;
    let done = session.setup.store.purge(before, purge.dry_run).await;
    let done = done.map_err(|fault| Failure::store("the purge did not come to its end", &fault))?;
    let before = show::moment(before);
    if purge.json {
        show::out(&escape::json(&json!({
            "ended_before": before, "dry_run": purge.dry_run, "runs": done.runs, "events": done.events,
            "pendings": done.pendings, "unreadable": done.unreadable, "continued": done.continued,
            "scrubbed": done.scrubbed,
        })));
        return Ok(Exit::Done);
    }
    show::out(&format!(
        "{}: {} that ended before {before}, with {} and {}.",
        if purge.dry_run { "Would be removed" } else { "Removed" },
        counted(done.runs, "run"),
        counted(done.events, "event"),
        counted(done.pendings, "question")
    ));
    if done.unreadable > 0 {
        show::out(&format!("{} more cannot be read and stay: `db doctor` says why.", done.unreadable));
    }
    if done.continued > 0 {
        show::out(&format!("{} more stay, because runs that stay continue them.", done.continued));
    }
    if !purge.dry_run && done.runs > 0 && !done.scrubbed {
        show::out(session.setup.store.lingering());
    }
    Ok(Exit::Done)
}

async fn copied(session: &Session, backup: Backup) -> Result<Exit, Failure> {
    let to = session.setup.environment.folder.join(&backup.path);
    let done = session.setup.store.backup(&to).await;
    done.map_err(|error| {
        if let BackupError::Fault(fault) = &error {
            return Failure::store("there is no copy", fault);
        }
        if let BackupError::File { source, .. } = &error {
            return Failure::ended(format!("{error}: {source}"));
        }
        if let BackupError::Rotating = &error {
            return Failure::ended(format!("{error} with `keys rotate`, then make the copy"));
        }
        if let BackupError::NotHere(_) = &error {
            return Failure::usage(error.to_string());
        }
        Failure::usage(format!("{error}; name a file that is not there yet"))
    })?;
    let to = to.display().to_string();
    if backup.json {
        show::out(&escape::json(&json!({ "backup": to })));
    } else {
        show::out(&format!(
            "A copy of the database is in {}. Keep the key elsewhere: without it the copy is of no use.",
            escape::line(&to)
        ));
    }
    Ok(Exit::Done)
}

async fn restored(session: &Session, json: bool) -> Result<Exit, Failure> {
    let done = session.setup.store.restored(session.setup.clock.now()).await;
    let done = done
        .map_err(|fault| Failure::store("the database is not safe to work on yet; run this again", &fault))?;
    if json {
        show::out(&escape::json(&json!({
            "runs": done.runs, "voided": done.voided, "unknown": done.unknown, "refused": done.refused,
            "unreadable": done.unreadable,
        })));
        return Ok(Exit::Done);
    }
    show::out(&format!(
        "Changed: {}. Void: {}. Of unknown outcome: {}. Released, and will not run: {}.",
        counted(done.runs, "run"),
        counted(done.voided, "question"),
        counted(done.unknown, "started write"),
        counted(done.refused, "call")
    ));
    for run in &done.unreadable {
        show::out(&format!(
            "{} cannot be read and stays as it is; nothing can start in it.",
            escape::line(run)
        ));
    }
    Ok(Exit::Done)
}

/// A number and what it counts.
pub(crate) fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
