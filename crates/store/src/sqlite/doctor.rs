//! A look through the whole database: is every row what the logs say it should be?
//!
//! Invariant: nothing is written, and nothing that is found ends the look: what cannot be read is a finding,
//! and the rest is looked at all the same (R2). It goes page by page, each in a transaction of its own, so
//! memory holds one log at a time and others can write meanwhile.

use countersign::{
    AgentName, Entry, PendingRecord, PendingRow, PendingStatus, Run, RunRow, StoreFault, Switch,
    UnreadableEvent,
};
use jiff::Timestamp;
use rusqlite::{Row, Transaction};

use super::entries::{self, Broken};
use super::finding::{Finding, Report, shown};
use super::{SqliteStore, fault, keys, rotate};
use crate::row::{self, PENDING_COLUMNS, RunRecord};
use crate::vault::Vault;

/// The runs of one page.
const PAGE: i64 = 20;
/// The most things of one kind that are listed where they are not found run by run.
const LISTED_MAX: i64 = 1001;

/// What a database is compared with, besides with itself.
#[derive(Clone)]
struct Expected {
    agents: Option<Vec<AgentName>>,
    now: Timestamp,
}

impl SqliteStore {
    /// Looks at everything and says what is not as it should be. `agents` are those that are configured; without
    /// them, whether somebody works on a run's agent is not looked at. `now` is for leases. `progress` hears how
    /// many runs have been looked at, after every page.
    ///
    /// # Errors
    /// [`StoreFault`] when the database cannot be looked at; damage is no error but a finding.
    pub async fn examine(
        &self,
        agents: Option<&[AgentName]>,
        now: Timestamp,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Report, StoreFault> {
        let expected = Expected { agents: agents.map(<[AgentName]>::to_vec), now };
        let vault = self.vault();
        let mut report = self
            .connections
            .read_aside(move |tx| {
                // A process with a retired key would find everything broken, and be wrong.
                keys::current(tx, &vault)?;
                let mut report = Report::default();
                whole(tx, &mut report)?;
                Ok::<_, StoreFault>(report)
            })
            .await?;
        let mut after = Some(i64::MIN);
        while let Some(last) = after {
            let (vault, expected, mut so_far) = (self.vault(), expected.clone(), report);
            (report, after) = self
                .connections
                .read_aside(move |tx| {
                    let next = page(tx, &vault, &expected, last, &mut so_far)?;
                    Ok::<_, StoreFault>((so_far, next))
                })
                .await?;
            progress(report.runs);
        }
        Ok(report)
    }
}

type Look = fn(&Transaction<'_>, &mut Report) -> Result<(), rusqlite::Error>;

/// What does not belong to a run.
fn whole(tx: &Transaction<'_>, report: &mut Report) -> Result<(), StoreFault> {
    let looks: [Look; 4] = [integrity, orphans, switches, principals];
    for look in looks {
        if let Err(error) = look(tx, report) {
            let detail = damage(error)?;
            report.found(Finding::File { detail });
        }
    }
    if let Some(rotation) = rotate::rotation(tx)? {
        report.found(Finding::KeyBeingChanged(rotation));
    }
    Ok(())
}

/// What SQLite says of a damaged file. Any other failure stays one.
fn damage(error: rusqlite::Error) -> Result<String, StoreFault> {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => Ok(error.to_string()),
        Some(_) | None => Err(fault(error)),
    }
}

fn integrity(tx: &Transaction<'_>, report: &mut Report) -> Result<(), rusqlite::Error> {
    let mut check = tx.prepare("PRAGMA integrity_check(100)")?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?;
    for line in lines {
        let line = line?;
        if line != "ok" {
            report.found(Finding::File { detail: shown(line.as_bytes()) });
        }
    }
    Ok(())
}

fn orphans(tx: &Transaction<'_>, report: &mut Report) -> Result<(), rusqlite::Error> {
    let mut events = tx.prepare(
        "SELECT CAST(run AS BLOB), count(*) FROM events \
         WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = events.run) GROUP BY run LIMIT ?1",
    )?;
    let mut rows = events.query([LISTED_MAX])?;
    while let Some(row) = rows.next()? {
        let events = row.get::<_, i64>(1)?.cast_unsigned();
        report.found(Finding::EventsOfNoRun { run: name(row, 0)?, events });
    }
    let mut pendings = tx.prepare(
        "SELECT CAST(run AS BLOB), CAST(id AS BLOB) FROM pendings \
         WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = pendings.run) LIMIT ?1",
    )?;
    let mut rows = pendings.query([LISTED_MAX])?;
    while let Some(row) = rows.next()? {
        report.found(Finding::PendingOfNoRun { run: name(row, 0)?, pending: name(row, 1)? });
    }
    Ok(())
}

fn switches(tx: &Transaction<'_>, report: &mut Report) -> Result<(), rusqlite::Error> {
    for table in ["tool_switches", "group_switches"] {
        let mut select = tx.prepare(&format!("SELECT name, enabled, CAST(name AS BLOB) FROM {table}"))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            match row::switch(row) {
                Some((_, Switch::On | Switch::Off)) => {}
                Some((_, Switch::Unreadable)) | None => {
                    report.found(Finding::SwitchUnreadable { table, name: name(row, 2)? });
                }
            }
        }
    }
    Ok(())
}

fn principals(tx: &Transaction<'_>, report: &mut Report) -> Result<(), rusqlite::Error> {
    let mut select = tx.prepare("SELECT subject, admin, standing, CAST(subject AS BLOB) FROM principals")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if let Err(bad) = row::principal(row) {
            report.found(Finding::PrincipalUnreadable { subject: name(row, 3)?, reason: bad.to_string() });
        }
    }
    Ok(())
}

fn name(row: &Row<'_>, column: usize) -> Result<String, rusqlite::Error> {
    row.get::<_, Vec<u8>>(column).map(|name| shown(&name))
}

/// Looks at some runs, and says after which one to go on.
fn page(
    tx: &Transaction<'_>,
    vault: &Vault,
    expected: &Expected,
    after: i64,
    report: &mut Report,
) -> Result<Option<i64>, StoreFault> {
    let statement = format!(
        "SELECT {}, CAST(id AS BLOB) AS name FROM runs WHERE number > ?1 ORDER BY number LIMIT ?2",
        RunRecord::COLUMNS
    );
    let found = tx.prepare_cached(&statement).and_then(|mut select| {
        select
            .query_map((after, PAGE), |row| {
                let read = RunRecord::read(row, &vault.root);
                Ok((row.get::<_, i64>("number")?, row.get::<_, Vec<u8>>("name")?, read))
            })?
            .collect::<Result<Vec<_>, _>>()
    });
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            // What lies behind a torn page of this table cannot be reached from here.
            let detail = format!("{} (the runs after number {after} were not looked at)", damage(error)?);
            report.found(Finding::File { detail });
            return Ok(None);
        }
    };
    let next = found.last().map(|(number, ..)| *number);
    for (_, id, record) in found {
        report.runs += 1;
        match record {
            Ok(record) => one(tx, vault, expected, &record, report)?,
            Err(bad) => report.found(Finding::RunUnreadable { run: shown(&id), reason: bad.to_string() }),
        }
    }
    Ok(next)
}

fn one(
    tx: &Transaction<'_>,
    vault: &Vault,
    expected: &Expected,
    record: &RunRecord,
    report: &mut Report,
) -> Result<(), StoreFault> {
    let run = &record.row.id;
    let ended = record.row.state.is_end();
    if let Some(agents) = &expected.agents
        && !ended
        && !agents.contains(&record.row.agent)
    {
        report.found(Finding::AgentGone { run: run.clone(), agent: record.row.agent.clone() });
    }
    if let Some(until) =
        record.lease_until().filter(|until| record.row.state.is_waiting() && *until <= expected.now)
    {
        report.found(Finding::LeaseOver { run: run.clone(), until });
    }
    let folded = log(tx, vault, record, report)?;
    if let Some(folded) = &folded
        && let Some(column) = difference(&record.row, &folded.row())
    {
        report.found(Finding::RunDiffers { run: run.clone(), column });
    }
    inbox(tx, record, folded.as_ref(), report)
}

/// What a run's log means, if it can be read.
fn log(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
    report: &mut Report,
) -> Result<Option<Run>, StoreFault> {
    let run = record.row.id.clone();
    let read = if record.erased_at.is_some() {
        entries::erased(tx, vault, record).map(|read| read.map(Log::Erased))
    } else {
        entries::all(tx, vault, record).map(|read| read.map(Log::Entries))
    };
    match read {
        Ok(Ok(Log::Entries(entries))) => {
            report.events += entries.len() as u64;
            match Run::fold(run.clone(), &entries) {
                Ok(folded) => return Ok(Some(folded)),
                Err(illegal) => report.found(Finding::LogIllegal { run, reason: illegal.to_string() }),
            }
        }
        Ok(Ok(Log::Erased(length))) => {
            report.events += length;
            if !record.row.state.is_end() {
                report.found(Finding::LogIllegal { run, reason: "it was erased before it ended".to_owned() });
            }
        }
        Ok(Err(Broken::Event { seq, why: why @ UnreadableEvent::OtherVersion { .. } })) => {
            report.found(Finding::LogNewer { run, seq, reason: why.to_string() });
        }
        Ok(Err(broken)) => report.found(Finding::LogBroken { run, reason: broken.to_string() }),
        Err(StoreFault::Failed(why)) => report.found(Finding::LogBroken { run, reason: why.to_string() }),
        Err(other) => return Err(other),
    }
    Ok(None)
}

enum Log {
    Entries(Vec<Entry>),
    Erased(u64),
}

/// Compares the rows of the inbox with what the log asked.
fn inbox(
    tx: &Transaction<'_>,
    record: &RunRecord,
    folded: Option<&Run>,
    report: &mut Report,
) -> Result<(), StoreFault> {
    let run = &record.row.id;
    let found = tx
        .prepare_cached(&format!(
            "SELECT {PENDING_COLUMNS}, CAST(id AS BLOB) AS name FROM pendings WHERE run = ?1 ORDER BY number"
        ))
        .and_then(|mut select| {
            select
                .query_map([run.as_str()], |row| Ok((row.get::<_, Vec<u8>>("name")?, row::pending(row))))?
                .collect::<Result<Vec<_>, _>>()
        });
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let detail = damage(error)?;
            report.found(Finding::File { detail });
            return Ok(());
        }
    };
    let mut asked: Vec<&PendingRecord> = folded.iter().flat_map(|folded| folded.pendings()).collect();
    for (id, row) in found {
        report.pendings += 1;
        asked.retain(|asked| asked.pending.id.as_str().as_bytes() != id);
        let row = match row {
            Ok(row) => row,
            Err(bad) => {
                let (pending, reason) = (shown(&id), bad.to_string());
                report.found(Finding::PendingUnreadable { run: run.clone(), pending, reason });
                continue;
            }
        };
        if record.row.state.is_end() && row.status == PendingStatus::Open {
            report.found(Finding::PendingOpen { run: run.clone(), pending: row.id.clone() });
        }
        let Some(folded) = folded else { continue };
        match folded.pending(&row.id) {
            None => report.found(Finding::PendingUnasked { run: run.clone(), pending: row.id }),
            Some(asked) => {
                if let Some(column) = pending_difference(&row, &derived(folded, asked)) {
                    report.found(Finding::PendingDiffers { run: run.clone(), pending: row.id, column });
                }
            }
        }
    }
    for missing in asked {
        report.found(Finding::PendingMissing { run: run.clone(), pending: missing.pending.id.clone() });
    }
    Ok(())
}

/// The row that a question should have.
fn derived(run: &Run, asked: &PendingRecord) -> PendingRow {
    PendingRow {
        id: asked.pending.id.clone(),
        run: run.id().clone(),
        kind: asked.pending.question.as_str().to_owned(),
        status: asked.status,
        agent: run.created().agent.clone(),
        owner: run.created().owner.clone(),
        created_at: asked.opened_at,
        expires_at: asked.pending.expires_at,
        decided_by: asked.decided.as_ref().map(|decided| decided.by.clone()),
    }
}

/// The first column in which two rows of one run differ.
fn difference(stored: &RunRow, derived: &RunRow) -> Option<&'static str> {
    let RunRow { id: _, state, agent, owner, unattended, iterations, usage, limit, failure, .. } = derived;
    let same: [(&'static str, bool); 11] = [
        ("state", stored.state == *state),
        ("agent", stored.agent == *agent),
        ("owner", stored.owner == *owner),
        ("unattended", stored.unattended == *unattended),
        ("iterations", stored.iterations == *iterations),
        ("usage", stored.usage == *usage),
        ("limit_reached", stored.limit == *limit),
        ("failure", stored.failure == *failure),
        ("created_at", stored.created_at == derived.created_at),
        ("updated_at", stored.updated_at == derived.updated_at),
        ("finished_at", stored.finished_at == derived.finished_at),
    ];
    same.into_iter().find(|(_, same)| !same).map(|(column, _)| column)
}

fn pending_difference(stored: &PendingRow, derived: &PendingRow) -> Option<&'static str> {
    let same: [(&'static str, bool); 7] = [
        ("kind", stored.kind == derived.kind),
        ("status", stored.status == derived.status),
        ("agent", stored.agent == derived.agent),
        ("owner", stored.owner == derived.owner),
        ("created_at", stored.created_at == derived.created_at),
        ("expires_at", stored.expires_at == derived.expires_at),
        ("decided_by", stored.decided_by == derived.decided_by),
    ];
    same.into_iter().find(|(_, same)| !same).map(|(column, _)| column)
}
