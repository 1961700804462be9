//! Whether what is stored of a run is what its log says it should be.
//!
//! Invariant: nothing is decided and nothing is mended; what cannot be read is a finding, and the rest is looked
//! at all the same (R2). Not here: reading the rows.

use countersign::{
    AgentName, Entry, PendingRecord, PendingRow, PendingStatus, Run, RunId, RunRow, StoreFault,
    UnreadableEvent,
};
use jiff::Timestamp;

use crate::entries::Broken;
use crate::finding::{Finding, Report, shown};
use crate::row::{BadRow, RunRecord};

/// What a database is compared with, besides with itself.
#[derive(Clone)]
pub(crate) struct Expected {
    pub(crate) agents: Option<Vec<AgentName>>,
    pub(crate) now: Timestamp,
}

impl Expected {
    /// Looks at a row by itself.
    pub(crate) fn row(&self, record: &RunRecord, report: &mut Report) {
        let run = &record.row.id;
        if let Some(agents) = &self.agents
            && !record.row.state.is_end()
            && !agents.contains(&record.row.agent)
        {
            report.found(Finding::AgentGone { run: run.clone(), agent: record.row.agent.clone() });
        }
        if let Some(until) =
            record.lease_until().filter(|until| record.row.state.is_waiting() && *until <= self.now)
        {
            report.found(Finding::LeaseOver { run: run.clone(), until });
        }
    }
}

/// A log that is good.
pub(crate) enum Log {
    Entries(Vec<Entry>),
    /// So many, whose content was erased.
    Erased(u64),
}

/// What a run's log means, if it could be read; and whether the row says the same.
pub(crate) fn log(
    record: &RunRecord,
    read: Result<Result<Log, Broken>, StoreFault>,
    report: &mut Report,
) -> Result<Option<Run>, StoreFault> {
    let run = record.row.id.clone();
    match read {
        Ok(Ok(Log::Entries(entries))) => {
            report.events += entries.len() as u64;
            match Run::fold(run.clone(), &entries) {
                Ok(folded) => {
                    if let Some(column) = difference(&record.row, &folded.row()) {
                        report.found(Finding::RunDiffers { run, column });
                    }
                    return Ok(Some(folded));
                }
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

/// What a run continues, unless its log says something else.
pub(crate) fn predecessor<'a>(record: &'a RunRecord, folded: Option<&Run>) -> Option<&'a RunId> {
    let continues = record.row.continues.as_ref()?;
    folded.is_none_or(|folded| folded.created().continues.as_ref() == Some(continues)).then_some(continues)
}

/// Whether a run can go on with what it continues, given the record of that one, if there is one (R10). A run that
/// has ended need not.
pub(crate) fn goes_on(
    record: &RunRecord,
    before: &RunId,
    found: Option<Result<RunRecord, BadRow>>,
    report: &mut Report,
) {
    let reason = match found {
        None => "is not there",
        Some(_) if record.row.state.is_end() => return,
        Some(Err(_)) => "cannot be read",
        Some(Ok(found)) if found.erased_at.is_some() => "was erased",
        Some(Ok(found)) if !found.row.state.is_end() => "has not ended",
        Some(Ok(_)) => return,
    };
    report.found(Finding::NotContinuable { run: record.row.id.clone(), before: before.clone(), reason });
}

/// Compares the rows of the inbox with what the log asked. Each has its name, which may be anything.
pub(crate) fn inbox(
    record: &RunRecord,
    folded: Option<&Run>,
    found: Vec<(Vec<u8>, Result<PendingRow, BadRow>)>,
    report: &mut Report,
) {
    let run = &record.row.id;
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
    let RunRow {
        id: _,
        state,
        agent,
        owner,
        starter,
        unattended,
        continues,
        iterations,
        usage,
        limit,
        failure,
        ..
    } = derived;
    let same: [(&'static str, bool); 13] = [
        ("state", stored.state == *state),
        ("agent", stored.agent == *agent),
        ("owner", stored.owner == *owner),
        ("starter", stored.starter == *starter),
        ("unattended", stored.unattended == *unattended),
        ("continues", stored.continues == *continues),
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
