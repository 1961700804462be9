//! Lists: runs, the inbox, what is overdue.
//!
//! Invariant: a page is found by key, never by counting or scanning, so pages neither repeat nor leave out a
//! row while others are added. A list is a merge of walks along an index ([`crate::words`]), each of which reads no
//! more rows than the page has. A row that cannot be read is left out and stops nothing (R2).

use countersign::{Page, PendingFilter, PendingId, PendingRow, RunFilter, RunListing, StoreFault};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params};

use super::fault;
use crate::page::{nothing, one_more, page, position};
use crate::row::{self, BadRow, PENDING_COLUMNS, RunRecord};
use crate::time;
use crate::vault::Vault;
use crate::words;

/// One walk along an index: rows of one owner, one agent, or one run, and of one word, in the order of their numbers.
struct Walk {
    select: String,
    /// By which column it goes. Other conditions only filter; a `+` keeps SQLite from choosing their indexes, which
    /// would cost it the order.
    by: Option<&'static str>,
}

impl Walk {
    fn and(&mut self, column: &'static str, is_wanted: bool) {
        // Every parameter occurs, so that one list of them serves all.
        let plus = if self.by == Some(column) { "" } else { "+" };
        let condition =
            if is_wanted { format!("{plus}{column} = :{column}") } else { format!(":{column} IS NULL") };
        self.select.push_str(&format!(" AND {condition}"));
    }
}

/// The statement of a page of runs, newest first.
pub(super) fn runs_statement(filter: &RunFilter) -> String {
    let by = [
        ("starter", filter.starter.is_some()),
        ("owner", filter.owner.is_some()),
        ("agent", filter.agent.is_some()),
    ];
    let by = by.into_iter().find_map(|(column, is_wanted)| is_wanted.then_some(column));
    let walks = words::of_runs(filter).into_iter().map(|state| {
        let mut walk =
            Walk { select: format!("SELECT {} FROM runs WHERE number < :before", RunRecord::COLUMNS), by };
        walk.and("starter", filter.starter.is_some());
        walk.and("owner", filter.owner.is_some());
        walk.and("agent", filter.agent.is_some());
        walk.select + &state.map(|state| format!(" AND state = '{}'", state.as_str())).unwrap_or_default()
    });
    walks.collect::<Vec<_>>().join(" UNION ALL ") + " ORDER BY number DESC LIMIT :limit"
}

pub(super) fn runs(
    tx: &Transaction<'_>,
    vault: &Vault,
    filter: &RunFilter,
    now: Timestamp,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page<RunListing>, StoreFault> {
    let Some(before) = cursor.map_or(Some(i64::MAX), position) else { return Ok(nothing()) };
    let mut select = tx.prepare_cached(&runs_statement(filter)).map_err(fault)?;
    let found = select
        .query_map(
            named_params! {
                ":before": before,
                ":starter": filter.starter.as_ref().map(|starter| starter.as_str()),
                ":owner": filter.owner.as_ref().map(|owner| owner.as_str()),
                ":agent": filter.agent.as_ref().map(|agent| agent.as_str()),
                ":limit": one_more(limit),
            },
            |row| numbered(row, |row| RunRecord::read(row, &vault.root)),
        )
        .and_then(Iterator::collect)
        .map_err(fault)?;
    Ok(page(found, limit, |record| record.listing(now)))
}

/// The statement of a page of pendings, oldest first.
pub(super) fn pendings_statement(filter: &PendingFilter) -> String {
    let by =
        [("run", filter.run.is_some()), ("owner", filter.owner.is_some()), ("agent", filter.agent.is_some())];
    let by = by.into_iter().find_map(|(column, is_wanted)| is_wanted.then_some(column));
    let walks = words::of_pendings(filter).into_iter().map(|status| {
        let select = format!("SELECT {PENDING_COLUMNS} FROM pendings WHERE number > :after");
        let mut walk = Walk { select, by };
        walk.and("run", filter.run.is_some());
        walk.and("owner", filter.owner.is_some());
        walk.and("agent", filter.agent.is_some());
        let plus = if by == Some("run") { "+" } else { "" };
        let condition = status.map(|status| format!(" AND {plus}status = '{}'", status.as_str()));
        walk.select + &condition.unwrap_or_default()
    });
    walks.collect::<Vec<_>>().join(" UNION ALL ") + " ORDER BY number LIMIT :limit"
}

pub(super) fn pendings(
    tx: &Transaction<'_>,
    filter: &PendingFilter,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page<PendingRow>, StoreFault> {
    let Some(after) = cursor.map_or(Some(0), position) else { return Ok(nothing()) };
    let mut select = tx.prepare_cached(&pendings_statement(filter)).map_err(fault)?;
    let found = select
        .query_map(
            named_params! {
                ":after": after,
                ":run": filter.run.as_ref().map(|run| run.as_str()),
                ":owner": filter.owner.as_ref().map(|owner| owner.as_str()),
                ":agent": filter.agent.as_ref().map(|agent| agent.as_str()),
                ":limit": one_more(limit),
            },
            |row| numbered(row, row::pending),
        )
        .and_then(Iterator::collect)
        .map_err(fault)?;
    Ok(page(found, limit, |pending| pending))
}

pub(super) fn pending(tx: &Connection, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
    let found = tx
        .prepare_cached(&format!("SELECT {PENDING_COLUMNS} FROM pendings WHERE id = ?1"))
        .and_then(|mut select| select.query_row([id.as_str()], |row| Ok(row::pending(row))).optional())
        .map_err(fault)?;
    Ok(found.transpose()?)
}

/// The statement of what is overdue; a deadline that cannot be read is due since the beginning of time.
/// SQLite would rather look through everything that is open and sort it.
pub(super) fn overdue_statement() -> String {
    format!(
        "SELECT {PENDING_COLUMNS} FROM pendings INDEXED BY pendings_due \
         WHERE status = 'open' AND due IS NOT NULL AND due < ?1 ORDER BY due LIMIT ?2"
    )
}

pub(super) fn overdue(
    tx: &Transaction<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<PendingRow>, StoreFault> {
    let mut select = tx.prepare_cached(&overdue_statement()).map_err(fault)?;
    let rows = select
        .query_map((time::text(now), i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
            Ok(row::pending(row).ok())
        })
        .map_err(fault)?;
    rows.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(fault)
}

pub(super) fn count_refusal(tx: &Transaction<'_>, id: &PendingId) -> Result<u64, StoreFault> {
    let before: Option<i64> = tx
        .prepare_cached("UPDATE pendings SET refusals = refusals + 1 WHERE id = ?1 RETURNING refusals - 1")
        .and_then(|mut update| update.query_row([id.as_str()], |row| row.get(0)).optional())
        .map_err(fault)?;
    Ok(before.map_or(0, i64::cast_unsigned))
}

/// A row with its place in the list, which must be known even where the rest cannot be read.
pub(super) fn numbered<T>(
    row: &Row<'_>,
    read: impl FnOnce(&dyn row::Row) -> Result<T, BadRow>,
) -> Result<(i64, Option<T>), rusqlite::Error> {
    Ok((row.get("number")?, read(row).ok()))
}
