//! Switches and principals (G2, G3, S1).
//!
//! Invariant: only overrides are stored, and one look is one transaction (G9). What cannot be read denies:
//! a switch is off, a principal does not resolve (P10).

use countersign::{Look, People, Principal, StoreFault, Subject, Switch, SwitchName, Switches};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::fault;
use crate::row;
use crate::time;

pub(super) fn look(tx: &Connection, subjects: &[Subject]) -> Result<Look, StoreFault> {
    let mut switches = Switches::default();
    for (name, switch) in rows(tx, "SELECT name, enabled FROM tool_switches")? {
        switches = switches.with_tool(&name, switch);
    }
    for (name, switch) in rows(tx, "SELECT name, enabled FROM group_switches")? {
        switches = switches.with_group(&name, switch);
    }
    for (is_tool, name, at) in switched_off(tx)? {
        switches = if is_tool {
            switches.with_tool_off_at(&name, at)
        } else {
            switches.with_group_off_at(&name, at)
        };
    }
    let mut select = tx
        .prepare_cached(&format!(
            "SELECT {} FROM principals WHERE subject = ?1 AND disabled_at IS NULL",
            row::PRINCIPAL_COLUMNS
        ))
        .map_err(fault)?;
    let mut people = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let found =
            select.query_row([subject.as_str()], |row| Ok(row::principal(row))).optional().map_err(fault)?;
        people.extend(found.and_then(Result::ok));
    }
    Ok(Look { switches, people: People::from_iter(people) })
}

fn rows(tx: &Connection, select: &str) -> Result<Vec<(String, Switch)>, StoreFault> {
    tx.prepare_cached(select)
        .and_then(|mut select| {
            select.query_map([], |row| Ok(row::switch(row)))?.filter_map(Result::transpose).collect()
        })
        .map_err(fault)
}

/// Whether it is a tool, its name, and when it was last switched off. A moment that cannot be read counts as
/// after everything: no approval outlives it (P10).
fn switched_off(tx: &Connection) -> Result<Vec<(bool, String, Timestamp)>, StoreFault> {
    tx.prepare_cached("SELECT kind = 'tool', name, at FROM switched_off")
        .and_then(|mut select| {
            let read = |row: &Row<'_>| {
                let at = row.get_ref(2)?.as_str().ok().and_then(time::parse).unwrap_or(Timestamp::MAX);
                Ok((row.get(0)?, row.get(1)?, at))
            };
            select.query_map([], read)?.collect()
        })
        .map_err(fault)
}

pub(super) fn set_switch(
    tx: &Transaction<'_>,
    name: &SwitchName,
    enabled: Option<bool>,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let (kind, table, name) = match name {
        SwitchName::Tool(name) => ("tool", "tool_switches", name.as_str()),
        SwitchName::Group(name) => ("group", "group_switches", name.as_str()),
    };
    if enabled == Some(false) {
        tx.execute(
            "INSERT INTO switched_off (kind, name, at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (kind, name) DO UPDATE SET at = max(at, ?3)",
            (kind, name, time::text(now)),
        )
        .map_err(fault)?;
    }
    match enabled {
        Some(enabled) => tx.execute(
            &format!("INSERT INTO {table} (name, enabled) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET enabled = ?2"),
            (name, enabled),
        ),
        None => tx.execute(&format!("DELETE FROM {table} WHERE name = ?1"), [name]),
    }
    .map(drop)
    .map_err(fault)
}

pub(super) fn put_principal(tx: &Transaction<'_>, principal: &Principal) -> Result<(), StoreFault> {
    let (standing, scopes) = row::standing(principal.standing);
    tx.execute(
        "INSERT INTO principals (subject, admin, standing, scopes) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (subject) DO UPDATE SET admin = ?2, standing = ?3, scopes = ?4, disabled_at = NULL",
        (principal.subject.as_str(), principal.admin, standing, scopes),
    )
    .map(drop)
    .map_err(fault)
}
