//! Stored rows, parsed once.
//!
//! Invariant: a row is either read in full or not at all, and a bad one says where; nothing is guessed or
//! defaulted, with two exceptions that deny: a switch or a deadline that cannot be read is *unreadable*
//! (P10, A10). A run's row is believed only with its MAC (S4). The message never repeats a value.

use std::fmt::Display;

use countersign::{
    Account, AgentName, Deadline, Lease, Limit, PendingId, PendingRow, PendingStatus, Principal, Revision,
    RunId, RunListing, RunRow, RunState, Scope, Scopes, Standing, StoreFault, Subject, Switch, TokenId,
    TokenRow, Usage,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as NotAWord;

use crate::chain::{Chain, Root};
use crate::mac::{Mac, same};
use crate::time;

/// A stored value is not what can stand there. It is kept as it is.
#[derive(Debug, thiserror::Error)]
#[error("{table}.{column} of row {row} cannot be read")]
pub(crate) struct BadRow {
    table: &'static str,
    column: &'static str,
    row: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl From<BadRow> for StoreFault {
    fn from(bad: BadRow) -> Self {
        Self::Failed(Box::new(bad))
    }
}

#[derive(Debug, thiserror::Error)]
enum NotThis {
    #[error("not a {0}")]
    Kind(&'static str),
    #[error("the row is not what was stored")]
    Changed,
}

/// What stands in a cell, of the kinds that are stored.
#[derive(Clone, Copy)]
pub(crate) enum Value<'r> {
    Null,
    Number(i64),
    /// It may be anything that the database calls a text.
    Text(&'r [u8]),
    Bytes(&'r [u8]),
    /// Of a kind that is never stored.
    Other,
}

/// A row of whichever database.
pub(crate) trait Row {
    /// What stands in this column.
    fn value(&self, column: &'static str) -> Result<Value<'_>, Box<dyn std::error::Error + Send + Sync>>;
}

/// The cells of one row, by name.
pub(crate) struct Cells<'r> {
    row: &'r dyn Row,
    table: &'static str,
    name: String,
}

impl<'r> Cells<'r> {
    /// The cells of a row of `table`, which calls itself what stands in `key`.
    pub(crate) fn of(row: &'r dyn Row, table: &'static str, key: &'static str) -> Self {
        let name = match row.value(key) {
            Ok(Value::Text(text) | Value::Bytes(text)) => {
                String::from_utf8_lossy(text).chars().take(64).collect()
            }
            Ok(Value::Number(number)) => number.to_string(),
            Ok(Value::Null | Value::Other) | Err(_) => "?".to_owned(),
        };
        Self { row, table, name }
    }

    fn bad(
        &self,
        column: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> BadRow {
        BadRow { table: self.table, column, row: self.name.clone(), source: source.into() }
    }

    fn value(&self, column: &'static str) -> Result<Value<'r>, BadRow> {
        self.row.value(column).map_err(|error| self.bad(column, error))
    }

    pub(crate) fn is_absent(&self, column: &'static str) -> Result<bool, BadRow> {
        Ok(matches!(self.value(column)?, Value::Null))
    }

    fn optional_text(&self, column: &'static str) -> Result<Option<&'r str>, BadRow> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Text(text) => std::str::from_utf8(text).map(Some).map_err(|error| self.bad(column, error)),
            Value::Number(_) | Value::Bytes(_) | Value::Other => Err(self.bad(column, NotThis::Kind("text"))),
        }
    }

    pub(crate) fn text(&self, column: &'static str) -> Result<&'r str, BadRow> {
        self.optional_text(column)?.ok_or_else(|| self.bad(column, NotThis::Kind("text")))
    }

    pub(crate) fn bytes(&self, column: &'static str) -> Result<&'r [u8], BadRow> {
        match self.value(column)? {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Null | Value::Number(_) | Value::Text(_) | Value::Other => {
                Err(self.bad(column, NotThis::Kind("blob")))
            }
        }
    }

    pub(crate) fn mac(&self, column: &'static str) -> Result<Mac, BadRow> {
        self.bytes(column)?.try_into().map_err(|_| self.bad(column, NotThis::Kind("MAC")))
    }

    pub(crate) fn optional_mac(&self, column: &'static str) -> Result<Option<Mac>, BadRow> {
        match self.value(column)? {
            Value::Null => Ok(None),
            Value::Number(_) | Value::Text(_) | Value::Bytes(_) | Value::Other => self.mac(column).map(Some),
        }
    }

    pub(crate) fn number(&self, column: &'static str) -> Result<i64, BadRow> {
        match self.value(column)? {
            Value::Number(number) => Ok(number),
            Value::Null | Value::Text(_) | Value::Bytes(_) | Value::Other => {
                Err(self.bad(column, NotThis::Kind("number")))
            }
        }
    }

    /// A count of any size: databases have no unsigned numbers, so the upper half is stored as negative ones.
    pub(crate) fn count(&self, column: &'static str) -> Result<u64, BadRow> {
        self.number(column).map(i64::cast_unsigned)
    }

    fn flag(&self, column: &'static str) -> Result<bool, BadRow> {
        match self.number(column)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad(column, NotThis::Kind("flag"))),
        }
    }

    pub(crate) fn time(&self, column: &'static str) -> Result<Timestamp, BadRow> {
        self.as_time(column, self.text(column)?)
    }

    pub(crate) fn optional_time(&self, column: &'static str) -> Result<Option<Timestamp>, BadRow> {
        self.optional_text(column)?.map(|text| self.as_time(column, text)).transpose()
    }

    fn as_time(&self, column: &'static str, text: &str) -> Result<Timestamp, BadRow> {
        time::parse(text).ok_or_else(|| self.bad(column, NotThis::Kind("time")))
    }

    /// A name or an id.
    pub(crate) fn name<T: std::str::FromStr<Err: Display>>(&self, column: &'static str) -> Result<T, BadRow> {
        self.text(column)?.parse().map_err(|_| self.bad(column, NotThis::Kind("name")))
    }

    fn word<T>(&self, column: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, BadRow> {
        read(self.text(column)?).ok_or_else(|| self.bad(column, NotThis::Kind("word that is known")))
    }
}

/// Everything of a run but its entries.
pub(crate) struct RunRecord {
    /// The order of creation.
    pub(crate) number: i64,
    pub(crate) row: RunRow,
    pub(crate) revision: u64,
    /// The MAC of the last entry.
    pub(crate) head: Mac,
    /// The sealed data key; of an erased run nothing.
    pub(crate) key: Vec<u8>,
    /// When its content was destroyed.
    pub(crate) erased_at: Option<Timestamp>,
    lease: Option<(String, Timestamp)>,
}

impl RunRecord {
    /// The columns that [`RunRecord::read`] needs.
    pub(crate) const COLUMNS: &'static str = "number, id, state, agent, owner, starter, unattended, iterations, input_tokens, \
        output_tokens, cached_input_tokens, unknown_calls, limit_reached, failure, created_at, updated_at, finished_at, \
        revision, head, mac, key, lease_token, lease_until, erased_at, continues";

    /// Reads a row and checks its MAC.
    pub(crate) fn read(row: &dyn Row, root: &Root) -> Result<Self, BadRow> {
        let cells = Cells::of(row, "runs", "id");
        let record = Self {
            number: cells.number("number")?,
            row: RunRow {
                id: cells.name::<RunId>("id")?,
                state: cells.word("state", RunState::from_word)?,
                agent: cells.name::<AgentName>("agent")?,
                owner: cells.name::<Subject>("owner")?,
                starter: cells.name::<Subject>("starter")?,
                unattended: cells.flag("unattended")?,
                continues: match cells.optional_text("continues")? {
                    None => None,
                    Some(_) => Some(cells.name::<RunId>("continues")?),
                },
                iterations: u32::try_from(cells.number("iterations")?)
                    .map_err(|error| cells.bad("iterations", error))?,
                usage: Usage {
                    input_tokens: cells.count("input_tokens")?,
                    output_tokens: cells.count("output_tokens")?,
                    cached_input_tokens: cells.count("cached_input_tokens")?,
                    unknown_calls: cells.count("unknown_calls")?,
                },
                limit: match cells.optional_text("limit_reached")? {
                    None => None,
                    Some(word) => Some(
                        from_word::<Limit>(word)
                            .map_err(|_| cells.bad("limit_reached", NotThis::Kind("limit")))?,
                    ),
                },
                failure: cells.optional_text("failure")?.map(str::to_owned),
                created_at: cells.time("created_at")?,
                updated_at: cells.time("updated_at")?,
                finished_at: cells.optional_time("finished_at")?,
            },
            revision: cells.count("revision")?,
            head: cells.mac("head")?,
            key: cells.bytes("key")?.to_owned(),
            erased_at: cells.optional_time("erased_at")?,
            lease: match (cells.optional_text("lease_token")?, cells.optional_time("lease_until")?) {
                (Some(token), Some(until)) => Some((token.to_owned(), until)),
                (None, None) => None,
                (Some(_), None) | (None, Some(_)) => {
                    return Err(cells.bad("lease_until", NotThis::Kind("lease")));
                }
            },
        };
        let expected = record.mac(&root.chain(&record.row.id));
        if same(&expected, cells.bytes("mac")?) {
            Ok(record)
        } else {
            Err(cells.bad("mac", NotThis::Changed))
        }
    }

    /// The MAC that belongs to it.
    pub(crate) fn mac(&self, chain: &Chain) -> Mac {
        chain.row(&self.row, self.revision, &self.head, self.erased_at)
    }

    /// When the lease that it carries ends or has ended.
    pub(crate) fn lease_until(&self) -> Option<Timestamp> {
        self.lease.as_ref().map(|(_, until)| *until)
    }

    /// When the lease would end that keeps others out now.
    pub(crate) fn leased_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.lease_until().filter(|until| Lease::keeps_out(*until, now))
    }

    /// Whether the holder of this lease still has the run. Nobody else has come, and its lease is not over.
    pub(crate) fn is_leased_by(&self, lease: &Lease, now: Timestamp) -> bool {
        let held = self.lease.as_ref().is_some_and(|(token, until)| *token == lease.token && now < *until);
        lease.run == self.row.id && held
    }

    /// The line of a list.
    pub(crate) fn listing(self, now: Timestamp) -> RunListing {
        RunListing {
            leased: self.leased_until(now).is_some(),
            revision: Revision(self.revision),
            row: self.row,
        }
    }
}

/// The columns that [`pending`] needs.
pub(crate) const PENDING_COLUMNS: &str =
    "number, id, run, kind, status, agent, owner, created_at, expires_at, decided_by";

/// A line of the inbox.
pub(crate) fn pending(row: &dyn Row) -> Result<PendingRow, BadRow> {
    let cells = Cells::of(row, "pendings", "id");
    Ok(PendingRow {
        id: cells.name::<PendingId>("id")?,
        run: cells.name::<RunId>("run")?,
        kind: cells.word("kind", |word| {
            ["approval", "input", "resolution"].contains(&word).then(|| word.to_owned())
        })?,
        status: cells.word("status", PendingStatus::from_word)?,
        agent: cells.name::<AgentName>("agent")?,
        owner: cells.name::<Subject>("owner")?,
        created_at: cells.time("created_at")?,
        expires_at: match cells.value("expires_at")? {
            Value::Null => Deadline::Never,
            Value::Text(text) => std::str::from_utf8(text)
                .ok()
                .and_then(time::parse)
                .map_or(Deadline::Unreadable, Deadline::At),
            Value::Number(_) | Value::Bytes(_) | Value::Other => Deadline::Unreadable,
        },
        decided_by: match cells.optional_text("decided_by")? {
            None => None,
            Some(_) => Some(cells.name::<Subject>("decided_by")?),
        },
    })
}

/// The stored form of a deadline.
pub(crate) fn deadline(expires_at: Deadline) -> Option<String> {
    match expires_at {
        Deadline::Never => None,
        Deadline::At(at) => Some(time::text(at)),
        Deadline::Unreadable => Some("unreadable".to_owned()),
    }
}

/// A switch and whose it is. A value that is neither on nor off is unreadable and counts as off (P10). A name
/// that is no text belongs to nobody.
pub(crate) fn switch(row: &dyn Row) -> Option<(String, Switch)> {
    let name = match row.value("name") {
        Ok(Value::Text(name)) => std::str::from_utf8(name).ok()?.to_owned(),
        Ok(Value::Null | Value::Number(_) | Value::Bytes(_) | Value::Other) | Err(_) => return None,
    };
    let switch = match row.value("enabled") {
        Ok(Value::Number(0)) => Switch::Off,
        Ok(Value::Number(1)) => Switch::On,
        Ok(Value::Null | Value::Number(_) | Value::Text(_) | Value::Bytes(_) | Value::Other) | Err(_) => {
            Switch::Unreadable
        }
    };
    Some((name, switch))
}

/// The columns that [`principal`] needs.
pub(crate) const PRINCIPAL_COLUMNS: &str = "subject, admin, standing, scopes";

/// A principal. One that cannot be read does not resolve: it has no right of any kind.
pub(crate) fn principal(row: &dyn Row) -> Result<Principal, BadRow> {
    let cells = Cells::of(row, "principals", "subject");
    let scopes = cells.text("scopes")?;
    let scopes: Option<Scopes> = scopes.split_whitespace().map(Scope::from_word).collect();
    let standing = cells.word("standing", |word| match word {
        "user" => Some(Standing::User),
        "approver" => Some(Standing::Approver),
        "service" => scopes.map(Standing::Service),
        _ => None,
    })?;
    let principal =
        Principal { subject: cells.name::<Subject>("subject")?, admin: cells.flag("admin")?, standing };
    if principal.admin && principal.is_service() {
        return Err(cells.bad("admin", NotThis::Kind("admin")));
    }
    Ok(principal)
}

/// The stored words of a standing and of its scopes.
pub(crate) fn standing(standing: Standing) -> (&'static str, String) {
    match standing {
        Standing::User => ("user", String::new()),
        Standing::Approver => ("approver", String::new()),
        Standing::Service(scopes) => {
            ("service", scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(" "))
        }
    }
}

/// The columns that [`account`] needs.
pub(crate) const ACCOUNT_COLUMNS: &str = "subject, admin, standing, scopes, disabled_at";

/// A principal, and whether it is disabled.
pub(crate) fn account(row: &dyn Row) -> Result<Account, BadRow> {
    let cells = Cells::of(row, "principals", "subject");
    Ok(Account { principal: principal(row)?, disabled_at: cells.optional_time("disabled_at")? })
}

/// The columns that [`token`] needs.
pub(crate) const TOKEN_COLUMNS: &str = "number, id, subject, hash, created_at, revoked_at";

/// A token. One that cannot be read opens nothing.
pub(crate) fn token(row: &dyn Row) -> Result<TokenRow, BadRow> {
    let cells = Cells::of(row, "tokens", "id");
    let hash = cells.bytes("hash")?;
    Ok(TokenRow {
        id: cells.name::<TokenId>("id")?,
        subject: cells.name::<Subject>("subject")?,
        hash: hash.try_into().map_err(|_| cells.bad("hash", NotThis::Kind("hash")))?,
        created_at: cells.time("created_at")?,
        revoked_at: cells.optional_time("revoked_at")?,
    })
}

/// Reads one of the words by which a type is stored.
fn from_word<'w, T: Deserialize<'w>>(word: &'w str) -> Result<T, NotAWord> {
    T::deserialize(word.into_deserializer())
}
