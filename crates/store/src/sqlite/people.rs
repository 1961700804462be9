//! People and programs as a list, their tokens, and the keys under which runs are started once (S1).
//!
//! Invariant: a token's secret is not here, only its SHA-256; what was asked for under a start key is not here either,
//! only a MAC over it. Not here: the rights of the moment, which a look reads (`policy`).

use countersign::{
    Account, Changes, CreateError, Page, StartKey, StartedBefore, StoreFault, Subject, TokenId, TokenRow,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::lists::numbered;
use super::{fault, log};
use crate::mac::{Mac, same};
use crate::page::{nothing, one_more, page, position};
use crate::row::{self, ACCOUNT_COLUMNS, TOKEN_COLUMNS};
use crate::time;
use crate::vault::Vault;

pub(super) fn accounts(
    tx: &Transaction<'_>,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page<Account>, StoreFault> {
    // Every subject comes after the empty text.
    let select =
        format!("SELECT {ACCOUNT_COLUMNS} FROM principals WHERE subject > ?1 ORDER BY subject LIMIT ?2");
    let mut found: Vec<(String, Option<Account>)> = tx
        .prepare_cached(&select)
        .and_then(|mut select| {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get("subject")?, row::account(row).ok()));
            select.query_map((cursor.unwrap_or_default(), one_more(limit)), read)?.collect()
        })
        .map_err(fault)?;
    let more = found.len() > limit.max(1);
    found.truncate(limit.max(1));
    let next = found.last().filter(|_| more).map(|(subject, _)| subject.clone());
    Ok(Page { items: found.into_iter().filter_map(|(_, account)| account).collect(), next })
}

pub(super) fn account(tx: &Connection, subject: &Subject) -> Result<Option<Account>, StoreFault> {
    let found = tx
        .prepare_cached(&format!("SELECT {ACCOUNT_COLUMNS} FROM principals WHERE subject = ?1"))
        .and_then(|mut select| {
            select.query_row([subject.as_str()], |row| Ok(row::account(row).ok())).optional()
        })
        .map_err(fault)?;
    Ok(found.flatten())
}

pub(super) fn disable(tx: &Transaction<'_>, subject: &Subject, now: Timestamp) -> Result<bool, StoreFault> {
    tx.execute(
        "UPDATE principals SET disabled_at = coalesce(disabled_at, ?2) WHERE subject = ?1",
        (subject.as_str(), time::text(now)),
    )
    .map(|changed| changed > 0)
    .map_err(fault)
}

pub(super) fn put_token(tx: &Transaction<'_>, token: &TokenRow) -> Result<(), StoreFault> {
    tx.execute(
        "INSERT INTO tokens (id, subject, hash, created_at, revoked_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        (
            token.id.as_str(),
            token.subject.as_str(),
            token.hash,
            time::text(token.created_at),
            token.revoked_at.map(time::text),
        ),
    )
    .map(drop)
    .map_err(fault)
}

pub(super) fn token(tx: &Connection, id: &TokenId) -> Result<Option<TokenRow>, StoreFault> {
    let found = tx
        .prepare_cached(&format!("SELECT {TOKEN_COLUMNS} FROM tokens WHERE id = ?1"))
        .and_then(|mut select| select.query_row([id.as_str()], |row| Ok(row::token(row).ok())).optional())
        .map_err(fault)?;
    Ok(found.flatten())
}

pub(super) fn tokens(
    tx: &Transaction<'_>,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page<TokenRow>, StoreFault> {
    let Some(after) = cursor.map_or(Some(0), position) else { return Ok(nothing()) };
    let found = tx
        .prepare_cached(&format!(
            "SELECT {TOKEN_COLUMNS} FROM tokens WHERE number > ?1 ORDER BY number LIMIT ?2"
        ))
        .and_then(|mut select| {
            select.query_map((after, one_more(limit)), |row| numbered(row, row::token))?.collect()
        })
        .map_err(fault)?;
    Ok(page(found, limit, |token| token))
}

pub(super) fn revoke(tx: &Transaction<'_>, id: &TokenId, now: Timestamp) -> Result<bool, StoreFault> {
    tx.execute(
        "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1",
        (id.as_str(), time::text(now)),
    )
    .map(|changed| changed > 0)
    .map_err(fault)
}

pub(super) fn started(
    tx: &Connection,
    vault: &Vault,
    key: &StartKey,
) -> Result<Option<StartedBefore>, StoreFault> {
    let found: Option<(Vec<u8>, String)> = tx
        .prepare_cached("SELECT body, run FROM starts WHERE starter = ?1 AND key = ?2")
        .and_then(|mut select| {
            select
                .query_row((key.starter.as_str(), &key.key), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
        .map_err(fault)?;
    let Some((body, run)) = found else { return Ok(None) };
    // A run that cannot be named is not the one that was asked for.
    let run = run.parse().ok().filter(|_| same(&asked_for(vault, key), &body));
    Ok(Some(run.map_or(StartedBefore::OtherBody, StartedBefore::Same)))
}

pub(super) fn create_once(
    tx: &Transaction<'_>,
    vault: &Vault,
    changes: &Changes,
    key: &StartKey,
) -> Result<Option<StartedBefore>, CreateError> {
    if let Some(before) = started(tx, vault, key)? {
        return Ok(Some(before));
    }
    log::create(tx, vault, changes)?;
    tx.execute(
        "INSERT INTO starts (starter, key, body, run) VALUES (?1, ?2, ?3, ?4)",
        (key.starter.as_str(), &key.key, asked_for(vault, key), changes.row().id.as_str()),
    )
    .map_err(fault)?;
    Ok(None)
}

fn asked_for(vault: &Vault, key: &StartKey) -> Mac {
    vault.root.start(key.starter.as_str(), &key.key, key.body.bytes())
}
