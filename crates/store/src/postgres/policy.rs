//! Switches and principals (G2, G3, S1).
//!
//! Invariant: only overrides are stored, and one look is one moment (G9). Whoever stores what was judged on a look
//! holds [`SHARED`] from before the look to the end of the transaction, whoever changes a switch or a right holds
//! [`ALONE`]: so a change comes before the look or after the commit, and never in between. What cannot be read
//! denies: a switch is off, a principal does not resolve (P10).

use countersign::{Durability, Look, People, Principal, StoreFault, Subject, SwitchName, Switches};
use jiff::Timestamp;
use tokio_postgres::{Error, Row, Statement};

use super::PostgresStore;
use super::connections::{Begin, Parameter, Transaction};
use super::pipeline::{four, three, two};
use crate::row::{self, Cells};
use crate::time;

/// The lock of the policy, held with others.
pub(super) const SHARED: &str = "SELECT pg_advisory_xact_lock_shared(4850202893012172802)";
/// The lock of the policy, held alone.
pub(super) const ALONE: &str = "SELECT pg_advisory_xact_lock(4850202893012172802)";

const TOOLS: &str = "SELECT name, enabled FROM tool_switches";
const GROUPS: &str = "SELECT name, enabled FROM group_switches";
const SWITCHED_OFF: &str = "SELECT kind, name, at FROM switched_off";
const PRINCIPALS: &str =
    "SELECT subject, admin, standing, scopes FROM principals WHERE subject = ANY($1) AND disabled_at IS NULL";

/// The statements of a look.
pub(super) struct Looking<'a> {
    subjects: Vec<&'a str>,
    statements: [Statement; 4],
}

/// What they found: tools, groups, when which was switched off, principals.
pub(super) type Found = (Vec<Row>, Vec<Row>, Vec<Row>, Vec<Row>);

impl<'a> Looking<'a> {
    pub(super) async fn prepare(tx: &Transaction, subjects: &'a [Subject]) -> Result<Self, StoreFault> {
        let statements = tx.statements([TOOLS, GROUPS, SWITCHED_OFF, PRINCIPALS]).await?;
        Ok(Self { subjects: subjects.iter().map(Subject::as_str).collect(), statements })
    }

    /// Looks, in one go.
    pub(super) async fn all(&self, tx: &Transaction) -> Result<Found, Error> {
        let [tools, groups, switched_off, principals] = &self.statements;
        let subjects: [Parameter<'_>; 1] = [&self.subjects];
        four(
            tx.query(tools, &[]),
            tx.query(groups, &[]),
            tx.query(switched_off, &[]),
            tx.query(principals, &subjects),
        )
        .await
    }
}

/// What the rows of a look say.
pub(super) fn seen((tools, groups, switched_off, principals): &Found) -> Look {
    let mut switches = Switches::default();
    for (name, switch) in tools.iter().filter_map(|row| row::switch(row)) {
        switches = switches.with_tool(&name, switch);
    }
    for (name, switch) in groups.iter().filter_map(|row| row::switch(row)) {
        switches = switches.with_group(&name, switch);
    }
    for row in switched_off {
        let cells = Cells::of(row, "switched_off", "name");
        let Ok(name) = cells.text("name") else { continue };
        // A moment that cannot be read counts as after everything: no approval outlives it (P10).
        let at = cells.time("at").unwrap_or(Timestamp::MAX);
        switches = if cells.text("kind").is_ok_and(|kind| kind == "tool") {
            switches.with_tool_off_at(name, at)
        } else {
            switches.with_group_off_at(name, at)
        };
    }
    let people = principals.iter().filter_map(|row| row::principal(row).ok());
    Look { switches, people: People::from_iter(people) }
}

impl PostgresStore {
    pub(super) async fn look_at_policy(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        let tx = self.connections.transaction(Begin::Read).await?;
        let looking = Looking::prepare(&tx, subjects).await?;
        let found = tx.whole(looking.all(&tx)).await?;
        Ok(seen(&found))
    }

    pub(super) async fn switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let (kind, table, name) = match name {
            SwitchName::Tool(name) => ("tool", "tool_switches", name.as_str()),
            SwitchName::Group(name) => ("group", "group_switches", name.as_str()),
        };
        let set = format!(
            "INSERT INTO {table} (name, enabled) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET enabled = $2"
        );
        let remove = format!("DELETE FROM {table} WHERE name = $1");
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [alone, off, set, remove] = tx
            .statements([
                ALONE,
                "INSERT INTO switched_off (kind, name, at) VALUES ($1, $2, $3) \
                 ON CONFLICT (kind, name) DO UPDATE SET at = greatest(switched_off.at, excluded.at)",
                &set,
                &remove,
            ])
            .await?;
        let at = time::text(now);
        tx.whole(async {
            let off_parameters: [Parameter<'_>; 3] = [&kind, &name, &at];
            let note = async {
                if enabled == Some(false) { tx.query(&off, &off_parameters).await.map(drop) } else { Ok(()) }
            };
            let change = async {
                match enabled {
                    Some(enabled) => tx.query(&set, &[&name, &i64::from(enabled)]).await.map(drop),
                    None => tx.query(&remove, &[&name]).await.map(drop),
                }
            };
            three(tx.query(&alone, &[]), note, change).await.map(drop)
        })
        .await
    }

    pub(super) async fn know(&self, principal: &Principal) -> Result<(), StoreFault> {
        let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
        let [alone, put] = tx
            .statements([
                ALONE,
                "INSERT INTO principals (subject, admin, standing, scopes) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (subject) DO UPDATE SET admin = $2, standing = $3, scopes = $4, disabled_at = NULL",
            ])
            .await?;
        let (admin, (standing, scopes)) = (i64::from(principal.admin), row::standing(principal.standing));
        let parameters: [Parameter<'_>; 4] = [&principal.subject.as_str(), &admin, &standing, &scopes];
        tx.whole(two(tx.query(&alone, &[]), tx.query(&put, &parameters))).await.map(drop)
    }
}
