//! Runs and their logs: create, append, load.
//!
//! Invariant: the rows that follow from an entry are written in the transaction that writes the entry (R1).
//! Nothing is chained to a log whose row or last entry cannot be trusted, and a log is given out whole and
//! checked, or not at all (S4, R2).

use countersign::{
    Append, AppendError, Changes, CreateError, Entry, Event, LoadError, Log, PendingRow, Revision, RunId, RunState, StoreFault,
    UnreadableEvent, Writer,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, named_params};

use super::fault;
use super::policy::look;
use crate::chain::Chain;
use crate::mac::{Mac, same};
use crate::row::{self, BadRow, Cells, RunRecord};
use crate::time;
use crate::vault::{RunKey, Vault};

/// At what an append aims.
pub(super) struct Aim {
    pub(super) run: RunId,
    pub(super) at: Revision,
    pub(super) writer: Writer,
    pub(super) now: Timestamp,
}

/// A run's record, if there is such a run, and if it can be read.
pub(super) fn record(tx: &Connection, vault: &Vault, run: &RunId) -> Result<Option<Result<RunRecord, BadRow>>, StoreFault> {
    tx.prepare_cached(&format!("SELECT {} FROM runs WHERE id = ?1", RunRecord::COLUMNS))
        .and_then(|mut select| select.query_row([run.as_str()], |row| Ok(RunRecord::read(row, &vault.root))).optional())
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
    let (key, sealed_key) = vault.new_run(run)?;
    let chain = vault.root.chain(run);
    let row = changes.row();
    let ticket = next_ticket(tx)?;
    let entries = prepared(changes, &key, &chain, 0, Chain::BEGIN)?;
    let head = entries.last().map_or(Chain::BEGIN, |entry| entry.mac);
    let revision = entries.len() as u64;
    tx.prepare_cached(
        "INSERT INTO runs (id, state, agent, owner, unattended, iterations, input_tokens, output_tokens, cached_input_tokens, \
         unknown_calls, limit_reached, failure, created_at, updated_at, finished_at, revision, head, mac, key, ticket) \
         VALUES (:id, :state, :agent, :owner, :unattended, :iterations, :input, :output, :cached, :unknown, :limit, :failure, \
         :created, :updated, :finished, :revision, :head, :mac, :key, :ticket)",
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
            ":mac": chain.row(row, revision, &head),
            ":key": sealed_key,
            ":ticket": ticket,
        })
    })
    .map_err(fault)?;
    insert_entries(tx, run, &entries)?;
    changes.inbox().iter().try_for_each(|pending| upsert_pending(tx, pending))?;
    Ok(())
}

pub(super) fn append(tx: &Transaction<'_>, vault: &Vault, aim: &Aim, append: Append) -> Result<Option<Changes>, AppendError> {
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
    trust_the_end(tx, &record)?.map_err(|broken| unreadable(broken.to_string()))?;
    let key = vault.run(&aim.run, &record.key).map_err(|error| unreadable(Broken::Key(error.to_string()).to_string()))?;

    let changes = match append {
        Append::Plain(changes) => Some(changes),
        Append::Judged { subjects, judge } => judge(&look(tx, &subjects)?),
    };
    let Some(changes) = changes else { return Ok(None) };
    if changes.row().id != aim.run {
        return Err(StoreFault::Failed(Box::new(OfAnotherRun)).into());
    }
    store(tx, vault, &record, &key, &changes)?;
    Ok(Some(changes))
}

/// Writes the entries and everything that follows from them.
fn store(tx: &Transaction<'_>, vault: &Vault, before: &RunRecord, key: &RunKey, changes: &Changes) -> Result<(), StoreFault> {
    let row = changes.row();
    let chain = vault.root.chain(&row.id);
    let entries = prepared(changes, key, &chain, before.revision, before.head)?;
    let head = entries.last().map_or(before.head, |entry| entry.mac);
    let revision = before.revision + entries.len() as u64;
    insert_entries(tx, &row.id, &entries)?;
    tx.prepare_cached(
        "UPDATE runs SET state = :state, agent = :agent, owner = :owner, unattended = :unattended, iterations = :iterations, \
         input_tokens = :input, output_tokens = :output, cached_input_tokens = :cached, unknown_calls = :unknown, \
         limit_reached = :limit, failure = :failure, created_at = :created, updated_at = :updated, finished_at = :finished, \
         revision = :revision, head = :head, mac = :mac WHERE number = :number",
    )
    .and_then(|mut update| {
        update.execute(named_params! {
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
            ":mac": chain.row(row, revision, &head),
            ":number": before.number,
        })
    })
    .map_err(fault)?;
    if row.state == RunState::Active && before.row.state != RunState::Active {
        take_ticket(tx, before.number)?;
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

/// An entry as it is stored.
struct Prepared {
    seq: u64,
    at: String,
    kind: &'static str,
    sealed: Vec<u8>,
    mac: Mac,
}

fn prepared(changes: &Changes, key: &RunKey, chain: &Chain, first: u64, head: Mac) -> Result<Vec<Prepared>, StoreFault> {
    let at = time::text(changes.at());
    let mut before = head;
    (first..)
        .zip(changes.events())
        .map(|(seq, event)| {
            let encoded = event.encode().map_err(|error| StoreFault::Failed(Box::new(error)))?;
            let sealed = key.seal(seq, &encoded)?;
            let kind = event.kind();
            let mac = chain.entry(&before, seq, &at, kind, &sealed);
            before = mac;
            Ok(Prepared { seq, at: at.clone(), kind, sealed, mac })
        })
        .collect()
}

fn insert_entries(tx: &Transaction<'_>, run: &RunId, entries: &[Prepared]) -> Result<(), StoreFault> {
    let mut insert = tx
        .prepare_cached("INSERT INTO events (run, seq, at, kind, sealed, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
        .map_err(fault)?;
    entries.iter().try_for_each(|Prepared { seq, at, kind, sealed, mac }| {
        insert.execute((run.as_str(), seq.cast_signed(), at, kind, sealed, mac)).map(drop).map_err(fault)
    })
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

/// Whether the last stored entry is the one that the row knows.
fn trust_the_end(tx: &Connection, record: &RunRecord) -> Result<Result<(), Broken>, StoreFault> {
    let last = tx
        .prepare_cached("SELECT seq, mac FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT 1")
        .and_then(|mut select| {
            select
                .query_row([record.row.id.as_str()], |row| {
                    let cells = Cells::of(row, "events", "seq");
                    Ok(cells.count("seq").and_then(|seq| Ok((seq, cells.mac("mac")?))))
                })
                .optional()
        })
        .map_err(fault)?;
    Ok(match last {
        Some(Err(bad)) => Err(bad.into()),
        Some(Ok((seq, mac))) => ends_well(record, seq + 1, &mac),
        None => ends_well(record, 0, &Chain::BEGIN),
    })
}

fn ends_well(record: &RunRecord, length: u64, head: &Mac) -> Result<(), Broken> {
    match length.cmp(&record.revision) {
        std::cmp::Ordering::Less => Err(Broken::Truncated { found: length, expected: record.revision }),
        std::cmp::Ordering::Greater => Err(Broken::Added { first: record.revision }),
        std::cmp::Ordering::Equal if same(&record.head, head) => Ok(()),
        std::cmp::Ordering::Equal => Err(Broken::Changed { seq: length.saturating_sub(1) }),
    }
}

pub(super) fn load(tx: &Transaction<'_>, vault: &Vault, run: &RunId) -> Result<Log, LoadError> {
    let record = readable(tx, vault, run)?;
    match entries(tx, vault, &record)? {
        Ok(entries) => Ok(Log { entries }),
        Err(broken) => Err(LoadError::Unreadable { run: run.clone(), reason: broken.to_string() }),
    }
}

fn entries(tx: &Transaction<'_>, vault: &Vault, record: &RunRecord) -> Result<Result<Vec<Entry>, Broken>, StoreFault> {
    let run = &record.row.id;
    let key = match vault.run(run, &record.key) {
        Ok(key) => key,
        Err(error) => return Ok(Err(Broken::Key(error.to_string()))),
    };
    let chain = vault.root.chain(run);
    let mut select = tx
        .prepare_cached("SELECT seq, at, kind, sealed, mac FROM events WHERE run = ?1 ORDER BY seq")
        .map_err(fault)?;
    let mut rows = select.query([run.as_str()]).map_err(fault)?;
    let mut entries = Vec::new();
    let mut head = Chain::BEGIN;
    while let Some(row) = rows.next().map_err(fault)? {
        let cells = Cells::of(row, "events", "seq");
        match entry(&cells, &key, &chain, entries.len() as u64, record.revision, &head) {
            Ok((entry, mac)) => {
                entries.push(entry);
                head = mac;
            }
            Err(broken) => return Ok(Err(broken)),
        }
    }
    Ok(ends_well(record, entries.len() as u64, &head).map(|()| entries))
}

/// Checks and opens the entry that must stand at `expected`.
fn entry(
    cells: &Cells<'_>,
    key: &RunKey,
    chain: &Chain,
    expected: u64,
    length: u64,
    before: &Mac,
) -> Result<(Entry, Mac), Broken> {
    let seq = cells.count("seq")?;
    if seq != expected {
        return Err(Broken::Missing { seq: expected });
    }
    if seq >= length {
        return Err(Broken::Added { first: length });
    }
    let (at, kind, sealed) = (cells.text("at")?, cells.text("kind")?, cells.bytes("sealed")?);
    let mac = chain.entry(before, seq, at, kind, sealed);
    if !same(&mac, cells.bytes("mac")?) {
        // What was sealed for another place of this log opens there.
        return Err(match (0..length).find(|other| *other != seq && key.open(*other, sealed).is_ok()) {
            Some(other) => Broken::Moved { seq, other },
            None => Broken::Changed { seq },
        });
    }
    let at = cells.time("at")?;
    let text = key.open(seq, sealed).map_err(|error| Broken::Sealed { seq, why: error.to_string() })?;
    let event = Event::decode(&text).map_err(|error| Broken::Event { seq, error })?;
    if event.kind() != kind {
        return Err(Broken::Changed { seq });
    }
    Ok((Entry { seq, at, event }, mac))
}

/// What is wrong with a log. None of it repeats a payload (S5).
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("its key cannot be opened: {0}")]
    Key(String),
    #[error(transparent)]
    Row(#[from] BadRow),
    #[error("entry {seq} is missing")]
    Missing { seq: u64 },
    #[error("entry {seq} was changed")]
    Changed { seq: u64 },
    #[error("entries were reordered: entry {seq} holds what was stored as entry {other}")]
    Moved { seq: u64, other: u64 },
    #[error("entries were added from {first} on")]
    Added { first: u64 },
    #[error("its end is missing: {found} of {expected} entries are there")]
    Truncated { found: u64, expected: u64 },
    #[error("entry {seq} does not open: {why}")]
    Sealed { seq: u64, why: String },
    #[error("entry {seq}: {error}")]
    Event { seq: u64, error: UnreadableEvent },
}

#[derive(Debug, thiserror::Error)]
#[error("the changes belong to another run")]
struct OfAnotherRun;
