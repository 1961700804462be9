//! Lists: runs, the inbox, what is overdue.
//!
//! Invariant: a page is found by key, never by counting, so pages neither repeat nor leave out a row that was
//! there when the first was asked for. A row that is being added meanwhile is seen, or not, as in any list. A row
//! that cannot be read is left out and stops nothing (R2).

use countersign::{
    Durability, Page, PendingFilter, PendingId, PendingRow, RunFilter, RunListing, RunState, StoreFault,
};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connections::Parameter;
use crate::page::{nothing, one_more, page, position};
use crate::row::{self, BadRow, Cells, PENDING_COLUMNS, RunRecord};
use crate::time;

/// A statement that grows by conditions, each with its parameter.
struct Select<'a> {
    text: String,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> Select<'a> {
    fn new(text: String, first: Parameter<'a>) -> Self {
        Self { text, parameters: vec![first] }
    }

    /// Adds `words` and the number of the next parameter, in parentheses where `words` ends with one.
    fn and<T: tokio_postgres::types::ToSql + Sync>(&mut self, words: &str, value: Option<&'a T>) {
        if let Some(value) = value {
            self.parameters.push(value);
            let close = if words.ends_with('(') { ")" } else { "" };
            self.text.push_str(&format!(" AND {words}${}{close}", self.parameters.len()));
        }
    }

    fn end(mut self, words: &str, limit: &'a i64) -> Self {
        self.parameters.push(limit);
        self.text.push_str(&format!(" {words} LIMIT ${}", self.parameters.len()));
        self
    }
}

impl PostgresStore {
    pub(super) async fn list_runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        let Some(before) = cursor.map_or(Some(i64::MAX), position) else { return Ok(nothing()) };
        let states: Vec<&str> = filter.states.iter().copied().map(RunState::as_str).collect();
        let owner = filter.owner.as_ref().map(|owner| owner.as_str());
        let agent = filter.agent.as_ref().map(|agent| agent.as_str());
        let at_most = one_more(limit);
        let text = format!("SELECT {} FROM runs WHERE number < $1", RunRecord::COLUMNS);
        let mut select = Select::new(text, &before);
        select.and("owner = ", owner.as_ref());
        select.and("agent = ", agent.as_ref());
        select.and("state = ANY(", Some(&states).filter(|states| !states.is_empty()));
        let select = select.end("ORDER BY number DESC", &at_most);
        let rows = self.connections.rows(&select.text, &select.parameters).await?;
        let found = numbered(&rows, |row| RunRecord::read(row, &self.vault.root))?;
        Ok(page(found, limit, |record| record.listing(now)))
    }

    pub(super) async fn list_pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        let Some(after) = cursor.map_or(Some(0), position) else { return Ok(nothing()) };
        let run = filter.run.as_ref().map(|run| run.as_str());
        let status = filter.status.map(countersign::PendingStatus::as_str);
        let owner = filter.owner.as_ref().map(|owner| owner.as_str());
        let agent = filter.agent.as_ref().map(|agent| agent.as_str());
        let at_most = one_more(limit);
        let text = format!("SELECT {PENDING_COLUMNS} FROM pendings WHERE number > $1");
        let mut select = Select::new(text, &after);
        select.and("run = ", run.as_ref());
        select.and("status = ", status.as_ref());
        select.and("owner = ", owner.as_ref());
        select.and("agent = ", agent.as_ref());
        let select = select.end("ORDER BY number", &at_most);
        let rows = self.connections.rows(&select.text, &select.parameters).await?;
        Ok(page(numbered(&rows, |row| row::pending(row))?, limit, |pending| pending))
    }

    pub(super) async fn find_pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        let statement = format!("SELECT {PENDING_COLUMNS} FROM pendings WHERE id = $1");
        let found = self.connections.row(&statement, &[&id.as_str()]).await?;
        Ok(found.map(|row| row::pending(&row)).transpose()?)
    }

    /// A deadline that cannot be read is due since the beginning of time.
    pub(super) async fn list_overdue(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<PendingRow>, StoreFault> {
        let statement = format!(
            "SELECT {PENDING_COLUMNS} FROM pendings \
             WHERE status = 'open' AND due IS NOT NULL AND due < $1 ORDER BY due LIMIT $2"
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.connections.rows(&statement, &[&time::text(now), &limit]).await?;
        Ok(rows.iter().filter_map(|row| row::pending(row).ok()).collect())
    }

    pub(super) async fn one_more_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        let counted = self
            .connections
            .change(
                Durability::Process,
                "UPDATE pendings SET refusals = refusals + 1 WHERE id = $1 RETURNING refusals - 1 AS before",
                &[&id.as_str()],
            )
            .await?;
        let Some(row) = counted.first() else { return Ok(0) };
        Ok(Cells::of(row, "pendings", "before").count("before")?)
    }
}

/// Rows with their place in the list, which must be known even where the rest cannot be read.
pub(super) fn numbered<T>(
    rows: &[Row],
    read: impl Fn(&Row) -> Result<T, BadRow>,
) -> Result<Vec<(i64, Option<T>)>, StoreFault> {
    let each =
        rows.iter().map(|row| Ok((Cells::of(row, "rows", "number").number("number")?, read(row).ok())));
    each.collect()
}
