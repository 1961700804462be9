//! Who works on a run (R6).
//!
//! Invariant: at any moment at most one token is good for a run. A lease is live before its `until` and over
//! from that moment on, whether or not somebody else has come; the moment is the caller's. One whose `until` lies
//! further ahead than any lease can keeps nobody out ([`Lease::keeps_out`]). A lease only keeps workers apart:
//! that the log stays right is the revision's work. What is held by a process that is gone
//! is free as soon as somebody looks ([`super::holders`]).

use std::time::Duration;

use countersign::{AgentName, ClaimError, Lease, Revision, RunId, RunState, StoreFault};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::log::{record, take_ticket};
use super::{fault, keys};
use crate::row::RunRecord;
use crate::time;
use crate::vault::Vault;

/// From when, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) now: Timestamp,
    pub(super) length: Duration,
    /// Under which number of a process, if others can tell when it is gone.
    pub(super) holder: Option<i64>,
}

impl Term {
    fn until(self) -> String {
        time::text(Lease::end(self.now, self.length))
    }
}

pub(super) fn claim(
    tx: &Transaction<'_>,
    vault: &Vault,
    run: &RunId,
    token: String,
    term: Term,
) -> Result<Lease, ClaimError> {
    keys::current(tx, vault)?;
    let record = match record(tx, vault, run)? {
        Some(record) => {
            record.map_err(|bad| ClaimError::Unreadable { run: run.clone(), reason: bad.to_string() })?
        }
        None => return Err(ClaimError::NotFound(run.clone())),
    };
    if record.row.state != RunState::Active {
        return Err(ClaimError::NotActive(record.row.state));
    }
    if let Some(until) = record.leased_until(term.now) {
        return Err(ClaimError::Leased { until });
    }
    Ok(grant(tx, record, token, term)?)
}

pub(super) fn claim_any(
    tx: &Transaction<'_>,
    vault: &Vault,
    agents: &[AgentName],
    token: String,
    term: Term,
) -> Result<Option<Lease>, StoreFault> {
    next(tx, vault, agents, term.now)?.map(|record| grant(tx, record, token, term)).transpose()
}

/// The free run of these agents that has waited longest. Rows that cannot be read are passed over. Whoever
/// could open none of them, because its master key was retired, finds none.
pub(super) fn next(
    tx: &Connection,
    vault: &Vault,
    agents: &[AgentName],
    now: Timestamp,
) -> Result<Option<RunRecord>, StoreFault> {
    keys::current(tx, vault)?;
    let mut select = tx.prepare_cached(&queue()).map_err(fault)?;
    let (now_text, last) = (time::text(now), time::text(Lease::end(now, Lease::LONGEST)));
    let mut first: Option<(i64, RunRecord)> = None;
    for agent in agents {
        let mut rows = select.query((agent.as_str(), &now_text, &last)).map_err(fault)?;
        while let Some(row) = rows.next().map_err(fault)? {
            let ticket: i64 = row.get("ticket").map_err(fault)?;
            if first.as_ref().is_some_and(|(earlier, _)| *earlier < ticket) {
                break;
            }
            let Ok(record) = RunRecord::read(row, &vault.root) else { continue };
            if record.leased_until(now).is_none() {
                first = Some((ticket, record));
                break;
            }
        }
    }
    Ok(first.map(|(_, record)| record))
}

pub(super) fn queue() -> String {
    format!(
        "SELECT {}, ticket FROM runs WHERE state = 'active' AND agent = ?1 \
         AND (lease_until IS NULL OR lease_until <= ?2 OR lease_until > ?3) ORDER BY ticket",
        RunRecord::COLUMNS
    )
}

/// Gives the lease, and a new ticket with it: a run whose workers are lost again and again, or that none of
/// them can read, goes to the end of the queue each time and stands in nobody's way (R2).
fn grant(tx: &Transaction<'_>, record: RunRecord, token: String, term: Term) -> Result<Lease, StoreFault> {
    tx.prepare_cached(
        "UPDATE runs SET lease_token = ?1, lease_until = ?2, lease_holder = ?3 WHERE number = ?4",
    )
    .and_then(|mut update| update.execute((&token, term.until(), term.holder, record.number)))
    .map_err(fault)?;
    take_ticket(tx, record.number)?;
    Ok(Lease { run: record.row.id, token })
}

pub(super) fn heartbeat(
    tx: &Transaction<'_>,
    vault: &Vault,
    lease: &Lease,
    term: Term,
) -> Result<bool, StoreFault> {
    // A long call must not come back to a key that nobody knows any more.
    keys::follow(tx, vault)?;
    tx.prepare_cached(
        "UPDATE runs SET lease_until = ?1 WHERE id = ?2 AND lease_token = ?3 AND lease_until > ?4",
    )
    .and_then(|mut update| {
        update.execute((term.until(), lease.run.as_str(), &lease.token, time::text(term.now)))
    })
    .map(|changed| changed > 0)
    .map_err(fault)
}

pub(super) fn release(tx: &Transaction<'_>, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
    let revision: Option<i64> = tx
        .prepare_cached("SELECT revision FROM runs WHERE id = ?1 AND lease_token = ?2")
        .and_then(|mut select| {
            select.query_row((lease.run.as_str(), &lease.token), |row| row.get(0)).optional()
        })
        .map_err(fault)?;
    match revision {
        Some(revision) if revision.cast_unsigned() > seen.0 => Ok(false),
        Some(_) => tx
            .prepare_cached(
                "UPDATE runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL \
                 WHERE id = ?1 AND lease_token = ?2",
            )
            .and_then(|mut update| update.execute((lease.run.as_str(), &lease.token)))
            .map(|_| true)
            .map_err(fault),
        None => Ok(true),
    }
}

/// Takes from this process, which is gone, what it holds.
pub(super) fn free(tx: &Transaction<'_>, holder: i64) -> Result<(), StoreFault> {
    tx.prepare_cached(
        "UPDATE runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL WHERE lease_holder = ?1",
    )
    .and_then(|mut update| update.execute([holder]))
    .map(drop)
    .map_err(fault)
}
