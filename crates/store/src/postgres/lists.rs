//! Lists: runs, the inbox, what is overdue.
//!
//! Invariant: a page is found by key, never by counting, so pages neither repeat nor leave out a row that was
//! there when the first was asked for. A row that is being added meanwhile is seen, or not, as in any list. A list is
//! a merge of walks along an index ([`crate::words`]), each of which reads no more rows than the page has. A row that
//! cannot be read is left out and stops nothing (R2).

use countersign::{
    Durability, Page, PendingFilter, PendingId, PendingRow, PendingStatus, RunFilter, RunListing, RunState,
    StoreFault,
};
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::connections::Parameter;
use crate::page::{nothing, one_more, page, position};
use crate::row::{self, BadRow, Cells, PENDING_COLUMNS, RunRecord};
use crate::time;
use crate::words;

/// A statement that merges walks along an index, one for each word, and the parameters that all of them share.
struct Select<'a> {
    columns: &'static str,
    table: &'static str,
    /// What holds for every walk.
    conditions: String,
    parameters: Vec<(Parameter<'a>, Type)>,
}

impl<'a> Select<'a> {
    /// From this place on; `comparison` is `<` or `>`.
    fn new(columns: &'static str, table: &'static str, comparison: &str, place: &'a i64) -> Self {
        let conditions = format!("number {comparison} $1");
        Self { columns, table, conditions, parameters: vec![(place, Type::INT8)] }
    }

    fn and(&mut self, column: &str, value: Option<&'a &str>) {
        if let Some(value) = value {
            self.parameters.push((value, Type::TEXT));
            self.conditions.push_str(&format!(" AND {column} = ${}", self.parameters.len()));
        }
    }

    /// The rows of these words, in this order. The statement is planned for these very values: planned for any, an
    /// owner of three rows would be taken for one of very many, and looked for among all rows.
    async fn rows(
        mut self,
        store: &PostgresStore,
        column: &str,
        words: &[Option<&str>],
        order: &str,
        limit: &'a i64,
    ) -> Result<Vec<Row>, StoreFault> {
        self.parameters.push((limit, Type::INT8));
        let end = format!("ORDER BY number {order} LIMIT ${}", self.parameters.len());
        let Self { columns, table, conditions, parameters } = &self;
        let walks = words.iter().map(|word| {
            let word = word.map(|word| format!(" AND {column} = '{word}'")).unwrap_or_default();
            format!("(SELECT {columns} FROM {table} WHERE {conditions}{word} {end})")
        });
        let walks = walks.collect::<Vec<_>>().join(" UNION ALL ");
        let text = format!("SELECT * FROM ({walks}) AS walks {end}");
        store.connections.rows_planned_for(&text, parameters).await
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
        let owner = filter.owner.as_ref().map(|owner| owner.as_str());
        let agent = filter.agent.as_ref().map(|agent| agent.as_str());
        let at_most = one_more(limit);
        let starter = filter.starter.as_ref().map(|starter| starter.as_str());
        let mut select = Select::new(RunRecord::COLUMNS, "runs", "<", &before);
        select.and("starter", starter.as_ref());
        select.and("owner", owner.as_ref());
        select.and("agent", agent.as_ref());
        let states = words::of_runs(filter).into_iter().map(|state| state.map(RunState::as_str));
        let rows = select.rows(self, "state", &states.collect::<Vec<_>>(), "DESC", &at_most).await?;
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
        let owner = filter.owner.as_ref().map(|owner| owner.as_str());
        let agent = filter.agent.as_ref().map(|agent| agent.as_str());
        let at_most = one_more(limit);
        let mut select = Select::new(PENDING_COLUMNS, "pendings", ">", &after);
        select.and("run", run.as_ref());
        select.and("owner", owner.as_ref());
        select.and("agent", agent.as_ref());
        let statuses = words::of_pendings(filter).into_iter().map(|status| status.map(PendingStatus::as_str));
        let rows = select.rows(self, "status", &statuses.collect::<Vec<_>>(), "ASC", &at_most).await?;
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
