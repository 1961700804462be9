//! A look through the whole database: is every row what the logs say it should be?
//!
//! Invariant: nothing is written, and nothing that is found ends the look: what cannot be read is a finding,
//! and the rest is looked at all the same (R2). It goes page by page, each as of one moment, so memory holds the
//! logs of one page at a time and others can write meanwhile. Not here: checking PostgreSQL's own files
//! (`pg_amcheck`, checksums).

use countersign::{AgentName, StoreFault, Switch};
use jiff::Timestamp;

use super::connections::{Begin, Parameter, Transaction, damage};
use super::log::{find, log_statement};
use super::pipeline::two;
use super::{PostgresStore, keys};
use crate::entries::{Broken, Walk};
use crate::finding::{Finding, Report, shown};
use crate::inspection::{self, Expected, Log};
use crate::rotation;
use crate::row::{self, Cells, PENDING_COLUMNS, PRINCIPAL_COLUMNS, Row, RunRecord};

/// The runs of one page.
const PAGE: i64 = 20;
/// The most things of one kind that are listed where they are not found run by run.
const LISTED_MAX: i64 = 1001;

const EVENTS_OF_NO_RUN: &str = "SELECT convert_to(run, 'UTF8') AS run, count(*) AS events FROM events \
     WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = events.run) GROUP BY events.run LIMIT $1";
const PENDINGS_OF_NO_RUN: &str = "SELECT convert_to(run, 'UTF8') AS run, convert_to(id, 'UTF8') AS id FROM pendings \
     WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = pendings.run) LIMIT $1";

impl PostgresStore {
    pub(super) async fn look_through(
        &self,
        agents: Option<&[AgentName]>,
        now: Timestamp,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Report, StoreFault> {
        let expected = Expected { agents: agents.map(<[AgentName]>::to_vec), now };
        // A process with a retired key would find everything broken, and be wrong.
        let installation = keys::look(&self.connections, &self.vault).await?;
        keys::check_current(&installation, &self.vault)?;
        let mut report = Report::default();
        note_damage(self.whole(&mut report).await, &mut report)?;
        if let Some(rotation) = rotation::under_way(Some(installation)) {
            report.found(Finding::KeyBeingChanged(rotation));
        }
        let mut after = Some(i64::MIN);
        while let Some(last) = after {
            after = self.page(&expected, last, &mut report).await?;
            progress(report.runs);
        }
        Ok(report)
    }

    /// What does not belong to a run.
    async fn whole(&self, report: &mut Report) -> Result<(), StoreFault> {
        for row in self.connections.rows(EVENTS_OF_NO_RUN, &[&LISTED_MAX]).await? {
            let cells = Cells::of(&row, "events", "run");
            let (run, events) = (shown(cells.bytes("run")?), cells.count("events")?);
            report.found(Finding::EventsOfNoRun { run, events });
        }
        for row in self.connections.rows(PENDINGS_OF_NO_RUN, &[&LISTED_MAX]).await? {
            let cells = Cells::of(&row, "pendings", "id");
            let (run, pending) = (shown(cells.bytes("run")?), shown(cells.bytes("id")?));
            report.found(Finding::PendingOfNoRun { run, pending });
        }
        for table in ["tool_switches", "group_switches"] {
            let statement = format!("SELECT name, enabled FROM {table} ORDER BY name");
            for row in self.connections.rows(&statement, &[]).await? {
                if !matches!(row::switch(&row), Some((_, Switch::On | Switch::Off))) {
                    let name = shown(Cells::of(&row, table, "name").text("name")?.as_bytes());
                    report.found(Finding::SwitchUnreadable { table, name });
                }
            }
        }
        let principals = format!("SELECT {PRINCIPAL_COLUMNS} FROM principals ORDER BY subject");
        for row in self.connections.rows(&principals, &[]).await? {
            if let Err(bad) = row::principal(&row) {
                let subject = shown(Cells::of(&row, "principals", "subject").text("subject")?.as_bytes());
                report.found(Finding::PrincipalUnreadable { subject, reason: bad.to_string() });
            }
        }
        Ok(())
    }

    /// Looks at some runs, and says after which one to go on.
    async fn page(
        &self,
        expected: &Expected,
        after: i64,
        report: &mut Report,
    ) -> Result<Option<i64>, StoreFault> {
        let runs = format!(
            "SELECT {}, convert_to(id, 'UTF8') AS name FROM runs WHERE number > $1 ORDER BY number LIMIT $2",
            RunRecord::COLUMNS
        );
        let tx = self.connections.transaction(Begin::Read).await?;
        let [runs] = tx.statements([&runs]).await?;
        let bounds: [Parameter<'_>; 2] = [&after, &PAGE];
        let rows = match tx.start(tx.query(&runs, &bounds)).await {
            Ok(rows) => rows,
            Err(fault) => {
                // What lies behind a torn page of this table cannot be reached from here.
                note_damage(Err(fault), report)?;
                return Ok(None);
            }
        };
        let mut next = None;
        for row in &rows {
            report.runs += 1;
            next = Some(Cells::of(row, "runs", "id").number("number")?);
            match RunRecord::read(row, &self.vault.root) {
                Ok(record) => {
                    expected.row(&record, report);
                    let looked = self.one(&tx, &record, report).await;
                    if note_damage(looked, report)? {
                        // The transaction has failed with it; the next page begins behind this run.
                        return Ok(next);
                    }
                }
                Err(bad) => {
                    let run = shown(Cells::of(row, "runs", "id").bytes("name")?);
                    report.found(Finding::RunUnreadable { run, reason: bad.to_string() });
                }
            }
        }
        Ok(next)
    }

    async fn one(&self, tx: &Transaction, record: &RunRecord, report: &mut Report) -> Result<(), StoreFault> {
        let pendings = format!(
            "SELECT {PENDING_COLUMNS}, convert_to(id, 'UTF8') AS name FROM pendings WHERE run = $1 ORDER BY number"
        );
        let [log, pendings, find] = tx.statements([&log_statement(), &pendings, &find()]).await?;
        let id: [Parameter<'_>; 1] = [&record.row.id.as_str()];
        let (log, pendings) = tx.go_on(two(tx.query(&log, &id), tx.query(&pendings, &id))).await?;
        let read = if record.erased_at.is_some() {
            Ok(self.erased(record, &log).map(Log::Erased))
        } else {
            match keys::of_run(tx, &self.vault, record).await {
                Ok(Ok(key)) => {
                    let mut walk = Walk::along(record, &self.vault.root);
                    let entries: Result<_, _> = log.iter().map(|row| walk.open(row, &key)).collect();
                    Ok(entries.and_then(|entries| walk.end().map(|_| Log::Entries(entries))))
                }
                Ok(Err(broken)) => Ok(Err(broken)),
                Err(fault) => Err(fault),
            }
        };
        let folded = inspection::log(record, read, report)?;
        if let Some(before) = inspection::predecessor(record, folded.as_ref()) {
            let id: [Parameter<'_>; 1] = [&before.as_str()];
            let rows = tx.go_on(tx.query(&find, &id)).await?;
            let found = rows.first().map(|row| RunRecord::read(row, &self.vault.root));
            inspection::goes_on(record, before, found, report);
        }
        let mut found = Vec::new();
        for row in &pendings {
            let name = Cells::of(row, "pendings", "id").bytes("name")?.to_vec();
            found.push((name, row::pending(row)));
        }
        inspection::inbox(record, folded.as_ref(), found, report);
        Ok(())
    }

    fn erased(&self, record: &RunRecord, log: &[impl Row]) -> Result<u64, Broken> {
        let mut walk = Walk::along(record, &self.vault.root);
        log.iter().try_for_each(|row| walk.pass_erased(row))?;
        walk.end()
    }
}

/// What PostgreSQL says of damaged files is a finding; any other failure stays one. Whether it was damage.
fn note_damage(looked: Result<(), StoreFault>, report: &mut Report) -> Result<bool, StoreFault> {
    let Err(fault) = looked else { return Ok(false) };
    let Some(detail) = damage(&fault) else { return Err(fault) };
    report.found(Finding::File { detail });
    Ok(true)
}
