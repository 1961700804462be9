//! Runs: create, append, load.
//!
//! Invariant: the rows that follow from an entry are written in the transaction that writes the entry (R1),
//! and nothing is chained to a log whose row or last entry cannot be trusted (S4). Not here: sealing and
//! checking the entries themselves (`entries`).

use std::sync::Arc;

use countersign::{
    AppendError, Changes, CreateError, Durability, LoadError, Log, Look, PendingRow, Revision, RunId,
    RunState, StoreFault, Subject, Subscriptions, Writer,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, named_params};

use super::policy::look;
use super::{entries, fault, keys, outbox};
use crate::chain::Chain;
use crate::row::{self, BadRow, RunRecord};
use crate::time;
use crate::vault::{RunKey, Vault};

/// At what an append aims.
#[derive(Clone)]
pub(super) struct Aim {
    pub(super) run: RunId,
    pub(super) at: Revision,
    pub(super) writer: Writer,
    pub(super) now: Timestamp,
    /// Who is told of what is appended.
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// A run's record, if there is such a run, and if it can be read.
pub(super) fn record(
    tx: &Connection,
    vault: &Vault,
    run: &RunId,
) -> Result<Option<Result<RunRecord, BadRow>>, StoreFault> {
    tx.prepare_cached(&format!("SELECT {} FROM runs WHERE id = ?1", RunRecord::COLUMNS))
        .and_then(|mut select| {
            select.query_row([run.as_str()], |row| Ok(RunRecord::read(row, &vault.root))).optional()
        })
        .map_err(fault)
}

/// A run's record, for those who can say that it cannot be read.
pub(super) fn readable(tx: &Connection, vault: &Vault, run: &RunId) -> Result<RunRecord, LoadError> {
    match record(tx, vault, run)? {
        Some(Ok(record)) => Ok(record),
        Some(Err(bad)) => Err(LoadError::Unreadable { run: run.clone(), reason: bad.to_string() }),
        None => Err(LoadError::NotFound(run.clone())),
    }
}

pub(super) fn create(tx: &Transaction<'_>, vault: &Vault, changes: &Changes) -> Result<(), CreateError> {
    let run = &changes.row().id;
    let exists = tx
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1)")
        .and_then(|mut select| select.query_row([run.as_str()], |row| row.get::<_, bool>(0)))
        .map_err(fault)?;
    if exists {
        return Err(CreateError::Exists);
    }
    if let Some(before) = &changes.row().continues {
        let before_it = record(tx, vault, before)?.and_then(Result::ok);
        if !before_it.is_some_and(|found| found.row.state.is_end() && found.erased_at.is_none()) {
            return Err(CreateError::NotContinuable(before.clone()));
        }
    }
    let (key, sealed_key) = vault.new_run(&keys::current(tx, vault)?, run)?;
    let chain = vault.root.chain(run);
    let row = changes.row();
    let ticket = next_ticket(tx)?;
    let entries = entries::sealed(changes, &key, &chain, 0, Chain::BEGIN)?;
    let head = entries.last().map_or(Chain::BEGIN, |entry| entry.mac);
    let revision = entries.len() as u64;
    tx.prepare_cached(
        "INSERT INTO runs (id, state, agent, owner, unattended, iterations, input_tokens, output_tokens, cached_input_tokens, \
         unknown_calls, limit_reached, failure, created_at, updated_at, finished_at, revision, head, mac, key, ticket, continues, \
         starter) \
         VALUES (:id, :state, :agent, :owner, :unattended, :iterations, :input, :output, :cached, :unknown, :limit, :failure, \
         :created, :updated, :finished, :revision, :head, :mac, :key, :ticket, :continues, :starter)",
    )
    .and_then(|mut insert| {
        insert.execute(named_params! {
            ":id": run.as_str(),
            ":state": row.state.as_str(),
            ":agent": row.agent.as_str(),
            ":owner": row.owner.as_str(),
            ":unattended": row.unattended,
            ":iterations": row.iterations,
            ":input": row.usage.input_tokens.cast_signed(),
            ":output": row.usage.output_tokens.cast_signed(),
            ":cached": row.usage.cached_input_tokens.cast_signed(),
            ":unknown": row.usage.unknown_calls.cast_signed(),
            ":limit": row.limit.map(|limit| limit.as_str()),
            ":failure": row.failure,
            ":created": time::text(row.created_at),
            ":updated": time::text(row.updated_at),
            ":finished": row.finished_at.map(time::text),
            ":revision": revision.cast_signed(),
            ":head": head,
            ":mac": chain.row(row, revision, &head, None),
            ":key": sealed_key,
            ":ticket": ticket,
            ":starter": row.starter.as_str(),
            ":continues": row.continues.as_ref().map(|run| run.as_str()),
        })
    })
    .map_err(fault)?;
    entries::insert(tx, run, &entries)?;
    changes.inbox().iter().try_for_each(|pending| upsert_pending(tx, pending))?;
    Ok(())
}

/// Stores what is known beforehand.
pub(super) fn append(
    tx: &Transaction<'_>,
    vault: &Vault,
    aim: &Aim,
    changes: Changes,
) -> Result<Changes, AppendError> {
    let target = Target::of(tx, vault, aim)?;
    target.store(tx, vault, aim, &changes)?;
    Ok(changes)
}

/// Says what to store, or that nothing is.
type Judge = Box<dyn FnOnce(&Look) -> Option<Changes> + Send>;

/// A judge that has not been asked yet.
pub(super) struct Question {
    pub(super) subjects: Vec<Subject>,
    pub(super) judge: Judge,
}

/// What came of asking it.
pub(super) enum Judged {
    /// It wants nothing stored.
    Nothing,
    /// It is stored.
    Stored(Changes),
    /// Nothing is stored yet: its commit must wait for the disk, and this one would not.
    Owed(Verdict),
}

/// A judgement, and the look it rests on.
pub(super) struct Verdict {
    subjects: Vec<Subject>,
    look: Look,
    changes: Changes,
}

/// Asks the judge, once, and stores what it says if that need not wait for the disk.
pub(super) fn judge(
    tx: &Transaction<'_>,
    vault: &Vault,
    aim: &Aim,
    question: Question,
) -> Result<Judged, AppendError> {
    let target = Target::of(tx, vault, aim)?;
    let Question { subjects, judge } = question;
    let look = look(tx, &subjects)?;
    match judge(&look) {
        None => Ok(Judged::Nothing),
        Some(changes) if changes.durability() == Durability::Process => {
            target.store(tx, vault, aim, &changes)?;
            Ok(Judged::Stored(changes))
        }
        Some(changes) => Ok(Judged::Owed(Verdict { subjects, look, changes })),
    }
}

/// Stores a judgement, in a transaction whose own look is the very one that it rests on. If that has changed,
/// it is as if the log had moved on: judge again (A8).
pub(super) fn store_verdict(
    tx: &Transaction<'_>,
    vault: &Vault,
    aim: &Aim,
    verdict: Verdict,
) -> Result<Changes, AppendError> {
    let target = Target::of(tx, vault, aim)?;
    let Verdict { subjects, look: judged_on, changes } = verdict;
    if look(tx, &subjects)? != judged_on {
        return Err(AppendError::Conflict);
    }
    target.store(tx, vault, aim, &changes)?;
    Ok(changes)
}

/// A run to which something may be appended now.
struct Target {
    record: RunRecord,
    key: RunKey,
}

impl Target {
    fn of(tx: &Transaction<'_>, vault: &Vault, aim: &Aim) -> Result<Self, AppendError> {
        let unreadable = |reason: String| AppendError::Unreadable { run: aim.run.clone(), reason };
        let record = match record(tx, vault, &aim.run)? {
            Some(Ok(record)) => record,
            Some(Err(bad)) => return Err(unreadable(bad.to_string())),
            None => return Err(AppendError::NotFound(aim.run.clone())),
        };
        // A worker that lost its run is told so first: it has nothing to judge again (R6).
        if let Writer::Worker(lease) = &aim.writer
            && !record.is_leased_by(lease, aim.now)
        {
            return Err(AppendError::LeaseLost);
        }
        if record.revision != aim.at.0 {
            return Err(AppendError::Conflict);
        }
        entries::end_is_sound(tx, &vault.root.chain(&aim.run), &record)?
            .map_err(|broken| unreadable(broken.to_string()))?;
        let key = keys::of_run(tx, vault, &record)?.map_err(|broken| unreadable(broken.to_string()))?;
        Ok(Self { record, key })
    }

    fn store(
        &self,
        tx: &Transaction<'_>,
        vault: &Vault,
        aim: &Aim,
        changes: &Changes,
    ) -> Result<(), StoreFault> {
        if changes.row().id != self.record.row.id {
            return Err(StoreFault::Failed(Box::new(OfAnotherRun)));
        }
        store(tx, vault, &self.record, &self.key, changes)?;
        outbox::owe(tx, &aim.subscriptions, changes, self.record.revision)
    }
}

/// Writes the entries and everything that follows from them.
fn store(
    tx: &Transaction<'_>,
    vault: &Vault,
    before: &RunRecord,
    key: &RunKey,
    changes: &Changes,
) -> Result<(), StoreFault> {
    let row = changes.row();
    let chain = vault.root.chain(&row.id);
    let entries = entries::sealed(changes, key, &chain, before.revision, before.head)?;
    let head = entries.last().map_or(before.head, |entry| entry.mac);
    let revision = before.revision + entries.len() as u64;
    entries::insert(tx, &row.id, &entries)?;
    // What a run was created with never changes. The state seldom does, and has indexes to keep.
    tx.prepare_cached(
        "UPDATE runs SET iterations = :iterations, input_tokens = :input, output_tokens = :output, \
         cached_input_tokens = :cached, unknown_calls = :unknown, limit_reached = :limit, failure = :failure, \
         updated_at = :updated, finished_at = :finished, revision = :revision, head = :head, mac = :mac \
         WHERE number = :number",
    )
    .and_then(|mut update| {
        update.execute(named_params! {
            ":iterations": row.iterations,
            ":input": row.usage.input_tokens.cast_signed(),
            ":output": row.usage.output_tokens.cast_signed(),
            ":cached": row.usage.cached_input_tokens.cast_signed(),
            ":unknown": row.usage.unknown_calls.cast_signed(),
            ":limit": row.limit.map(|limit| limit.as_str()),
            ":failure": row.failure,
            ":updated": time::text(row.updated_at),
            ":finished": row.finished_at.map(time::text),
            ":revision": revision.cast_signed(),
            ":head": head,
            ":mac": chain.row(row, revision, &head, before.erased_at),
            ":number": before.number,
        })
    })
    .map_err(fault)?;
    if row.state != before.row.state {
        tx.prepare_cached("UPDATE runs SET state = ?1 WHERE number = ?2")
            .and_then(|mut update| update.execute((row.state.as_str(), before.number)))
            .map_err(fault)?;
        if row.state == RunState::Active {
            take_ticket(tx, before.number)?;
        }
    }
    changes.inbox().iter().try_for_each(|pending| upsert_pending(tx, pending))
}

/// Puts a run at the end of the queue.
pub(super) fn take_ticket(tx: &Transaction<'_>, number: i64) -> Result<(), StoreFault> {
    let ticket = next_ticket(tx)?;
    tx.prepare_cached("UPDATE runs SET ticket = ?1 WHERE number = ?2")
        .and_then(|mut update| update.execute((ticket, number)))
        .map(drop)
        .map_err(fault)
}

fn next_ticket(tx: &Transaction<'_>) -> Result<i64, StoreFault> {
    tx.prepare_cached("SELECT coalesce(max(ticket), 0) + 1 FROM runs")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(fault)
}

fn upsert_pending(tx: &Transaction<'_>, pending: &PendingRow) -> Result<(), StoreFault> {
    tx.prepare_cached(
        "INSERT INTO pendings (id, run, kind, status, agent, owner, created_at, expires_at, decided_by) \
         VALUES (:id, :run, :kind, :status, :agent, :owner, :created, :expires, :by) \
         ON CONFLICT (id) DO UPDATE SET run = :run, kind = :kind, status = :status, agent = :agent, owner = :owner, \
         created_at = :created, expires_at = :expires, decided_by = :by",
    )
    .and_then(|mut upsert| {
        upsert.execute(named_params! {
            ":id": pending.id.as_str(),
            ":run": pending.run.as_str(),
            ":kind": pending.kind,
            ":status": pending.status.as_str(),
            ":agent": pending.agent.as_str(),
            ":owner": pending.owner.as_str(),
            ":created": time::text(pending.created_at),
            ":expires": row::deadline(pending.expires_at),
            ":by": pending.decided_by.as_ref().map(|by| by.as_str()),
        })
    })
    .map(drop)
    .map_err(fault)
}

pub(super) fn load(tx: &Transaction<'_>, vault: &Vault, run: &RunId) -> Result<Log, LoadError> {
    let record = readable(tx, vault, run)?;
    match entries::all(tx, vault, &record)? {
        Ok(entries) => Ok(Log { entries }),
        Err(broken) => Err(broken.of(run)),
    }
}

pub(super) fn load_each(
    tx: &Transaction<'_>,
    vault: &Vault,
    runs: &[RunId],
) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
    let loaded = runs.iter().map(|run| match load(tx, vault, run) {
        Err(LoadError::Fault(fault)) => Err(fault),
        loaded => Ok(loaded),
    });
    loaded.collect()
}

#[derive(Debug, thiserror::Error)]
#[error("the changes belong to another run")]
struct OfAnotherRun;
