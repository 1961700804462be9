//! Switches and principals (G2, G3, S1).
//!
//! Invariant: only overrides are stored, and one look is one transaction (G9). What cannot be read denies:
//! a switch is off, a principal does not resolve (P10).

use countersign::{Look, People, Principal, StoreFault, Subject, Switch, SwitchName, Switches};
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::fault;
use crate::row;

pub(super) fn look(tx: &Connection, subjects: &[Subject]) -> Result<Look, StoreFault> {
    let mut switches = Switches::default();
    for (name, switch) in rows(tx, "SELECT name, enabled FROM tool_switches")? {
        switches = switches.with_tool(&name, switch);
    }
    for (name, switch) in rows(tx, "SELECT name, enabled FROM group_switches")? {
        switches = switches.with_group(&name, switch);
    }
    let mut select = tx
        .prepare_cached("SELECT subject, admin, standing FROM principals WHERE subject = ?1")
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

pub(super) fn set_switch(
    tx: &Transaction<'_>,
    name: &SwitchName,
    enabled: Option<bool>,
) -> Result<(), StoreFault> {
    let (table, name) = match name {
        SwitchName::Tool(name) => ("tool_switches", name.as_str()),
        SwitchName::Group(name) => ("group_switches", name.as_str()),
    };
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
    tx.execute(
        "INSERT INTO principals (subject, admin, standing) VALUES (?1, ?2, ?3) \
         ON CONFLICT (subject) DO UPDATE SET admin = ?2, standing = ?3",
        (principal.subject.as_str(), principal.admin, row::standing(&principal.standing)),
    )
    .map(drop)
    .map_err(fault)
}
