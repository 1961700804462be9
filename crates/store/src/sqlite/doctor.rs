//! A look through the whole database: is every row what the logs say it should be?
//!
//! Invariant: nothing is written, and nothing that is found ends the look: what cannot be read is a finding,
//! and the rest is looked at all the same (R2). It goes page by page, each in a transaction of its own, so
//! memory holds one log at a time and others can write meanwhile.

use countersign::{AgentName, StoreFault, Switch};
use jiff::Timestamp;
use rusqlite::{Row, Transaction};

use super::{SqliteStore, entries, fault, keys, rotate};
use crate::finding::{Finding, Report, shown};
use crate::inspection::{self, Expected, Log};
use crate::row::{self, PENDING_COLUMNS, PRINCIPAL_COLUMNS, RunRecord};
use crate::vault::Vault;

/// The runs of one page.
const PAGE: i64 = 20;
/// The most things of one kind that are listed where they are not found run by run.
const LISTED_MAX: i64 = 1001;

impl SqliteStore {
    pub(super) async fn look_through(
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
                crate::keys::current(&vault, &keys::learn(tx, &vault)?)?;
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
    let mut select =
        tx.prepare(&format!("SELECT {PRINCIPAL_COLUMNS}, CAST(subject AS BLOB) FROM principals"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if let Err(bad) = row::principal(row) {
            report.found(Finding::PrincipalUnreadable { subject: name(row, 4)?, reason: bad.to_string() });
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
    expected.row(record, report);
    let read = if record.erased_at.is_some() {
        entries::erased(tx, vault, record).map(|read| read.map(Log::Erased))
    } else {
        entries::all(tx, vault, record).map(|read| read.map(Log::Entries))
    };
    let folded = inspection::log(record, read, report)?;
    if let Some(before) = inspection::predecessor(record, folded.as_ref()) {
        inspection::goes_on(record, before, super::log::record(tx, vault, before)?, report);
    }
    let found = tx
        .prepare_cached(&format!(
            "SELECT {PENDING_COLUMNS}, CAST(id AS BLOB) AS name FROM pendings WHERE run = ?1 ORDER BY number"
        ))
        .and_then(|mut select| {
            select
                .query_map([record.row.id.as_str()], |row| {
                    Ok((row.get::<_, Vec<u8>>("name")?, row::pending(row)))
                })?
                .collect::<Result<Vec<_>, _>>()
        });
    match found {
        Ok(found) => inspection::inbox(record, folded.as_ref(), found, report),
        Err(error) => {
            let detail = damage(error)?;
            report.found(Finding::File { detail });
        }
    }
    Ok(())
}
