//! People and programs as a list, their tokens, and the keys under which runs are started once (S1).
//!
//! Invariant: a token's secret is not here, only its SHA-256; what was asked for under a start key is not here either,
//! only a MAC over it. Whoever lets somebody resolve no longer holds the lock of the policy alone. Not here: the rights
//! of the moment, which a look reads (`policy`).

use async_trait::async_trait;
use countersign::{
    Account, Accounts, Durability, Page, StartKey, StartedBefore, StoreFault, Subject, TokenId, TokenRow,
};
use jiff::Timestamp;

use super::PostgresStore;
use super::connections::{Begin, Parameter};
use super::lists::numbered;
use super::pipeline::two;
use super::policy::ALONE;
use crate::mac::same;
use crate::page::{nothing, one_more, page, position};
use crate::row::{self, ACCOUNT_COLUMNS, Cells, TOKEN_COLUMNS};
use crate::time;

/// The statement that remembers under which key a run was started.
pub(super) const INSERT_START: &str = "INSERT INTO starts (starter, key, body, run) VALUES ($1, $2, $3, $4)";

#[async_trait]
impl Accounts for PostgresStore {
    async fn accounts(&self, limit: usize, cursor: Option<&str>) -> Result<Page<Account>, StoreFault> {
        // Every subject comes after the empty text.
        let (after, at_most) = (cursor.unwrap_or_default(), one_more(limit));
        let select =
            format!("SELECT {ACCOUNT_COLUMNS} FROM principals WHERE subject > $1 ORDER BY subject LIMIT $2");
        let rows = self.connections.rows(&select, &[&after, &at_most]).await?;
        let shown = &rows[..rows.len().min(limit.max(1))];
        let next = match shown.last().filter(|_| rows.len() > shown.len()) {
            Some(last) => Some(Cells::of(last, "principals", "subject").text("subject")?.to_owned()),
            None => None,
        };
        Ok(Page { items: shown.iter().filter_map(|row| row::account(row).ok()).collect(), next })
    }

    async fn account(&self, subject: &Subject) -> Result<Option<Account>, StoreFault> {
        let select = format!("SELECT {ACCOUNT_COLUMNS} FROM principals WHERE subject = $1");
        let found = self.connections.row(&select, &[&subject.as_str()]).await?;
        Ok(found.and_then(|row| row::account(&row).ok()))
    }

    async fn disable_principal(&self, subject: &Subject, now: Timestamp) -> Result<bool, StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [alone, disable] = tx
            .statements([
                ALONE,
                "UPDATE principals SET disabled_at = coalesce(disabled_at, $2) WHERE subject = $1 RETURNING 1::int8",
            ])
            .await?;
        let at = time::text(now);
        let parameters: [Parameter<'_>; 2] = [&subject.as_str(), &at];
        let (_, found) = tx.whole(two(tx.query(&alone, &[]), tx.query(&disable, &parameters))).await?;
        Ok(!found.is_empty())
    }

    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreFault> {
        let insert =
            "INSERT INTO tokens (id, subject, hash, created_at, revoked_at) VALUES ($1, $2, $3, $4, $5)";
        let (created_at, revoked_at) = (time::text(token.created_at), token.revoked_at.map(time::text));
        let parameters: [Parameter<'_>; 5] =
            [&token.id.as_str(), &token.subject.as_str(), &token.hash.as_slice(), &created_at, &revoked_at];
        self.connections.change(Durability::Disk, insert, &parameters).await.map(drop)
    }

    async fn token(&self, id: &TokenId) -> Result<Option<TokenRow>, StoreFault> {
        let select = format!("SELECT {TOKEN_COLUMNS} FROM tokens WHERE id = $1");
        let found = self.connections.row(&select, &[&id.as_str()]).await?;
        Ok(found.and_then(|row| row::token(&row).ok()))
    }

    async fn tokens(&self, limit: usize, cursor: Option<&str>) -> Result<Page<TokenRow>, StoreFault> {
        let Some(after) = cursor.map_or(Some(0), position) else { return Ok(nothing()) };
        let select = format!("SELECT {TOKEN_COLUMNS} FROM tokens WHERE number > $1 ORDER BY number LIMIT $2");
        let rows = self.connections.rows(&select, &[&after, &one_more(limit)]).await?;
        Ok(page(numbered(&rows, |row| row::token(row))?, limit, |token| token))
    }

    async fn revoke_token(&self, id: &TokenId, now: Timestamp) -> Result<bool, StoreFault> {
        let update =
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1 RETURNING 1::int8";
        let at = time::text(now);
        Ok(!self.connections.change(Durability::Disk, update, &[&id.as_str(), &at]).await?.is_empty())
    }
}

impl PostgresStore {
    /// What is known of a start key.
    pub(super) async fn started_before(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        let select = "SELECT starter, body, run FROM starts WHERE starter = $1 AND key = $2";
        let Some(row) = self.connections.row(select, &[&key.starter.as_str(), &key.key]).await? else {
            return Ok(None);
        };
        let cells = Cells::of(&row, "starts", "starter");
        let asked_for = self.vault.root.start(key.starter.as_str(), &key.key, key.body.bytes());
        // A run that cannot be named is not the one that was asked for.
        let run = cells
            .text("run")?
            .parse()
            .ok()
            .filter(|_| cells.bytes("body").is_ok_and(|body| same(&asked_for, body)));
        Ok(Some(run.map_or(StartedBefore::OtherBody, StartedBefore::Same)))
    }
}
