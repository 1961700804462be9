//! The entries of a log: sealed and chained when they are written, checked and opened when they are read.
//!
//! Invariant: a log is given out whole, in order and as it was stored, or not at all; what is wrong with it is
//! said without repeating a payload (S4, S5). Nothing here changes or removes a stored entry (R2). Where the
//! content was erased, its digest stands in its place and the chain goes over that (R10).

use std::cmp::Ordering;

use countersign::{Changes, Entry, Event, RunId, StoreFault, UnreadableEvent};
use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction};

use super::{fault, keys};
use crate::chain::Chain;
use crate::mac::{Mac, same};
use crate::row::{BadRow, Cells, RunRecord};
use crate::seal::Unopened;
use crate::time;
use crate::vault::{RunKey, Vault};

/// What is wrong with a log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("its key does not open: {0}")]
    Key(Unopened),
    #[error(
        "its key does not open: the master key was changed, and this process has the old one; start it again with the new one"
    )]
    KeyReplaced,
    #[error("its content was erased at {at}")]
    Erased { at: Timestamp },
    #[error(transparent)]
    Row(#[from] BadRow),
    #[error("entry {seq} is missing")]
    Missing { seq: u64 },
    #[error("entry {seq} was changed")]
    Changed { seq: u64 },
    #[error("entries were reordered: entry {seq} holds what was stored as entry {other}")]
    Reordered { seq: u64, other: u64 },
    #[error("entries were added: the log has {length}")]
    Added { length: u64 },
    #[error("its end is missing: {found} of {length} entries are there")]
    Truncated { found: u64, length: u64 },
    #[error("entry {seq} does not open: {why}")]
    Sealed { seq: u64, why: Unopened },
    #[error("entry {seq}: {why}")]
    Event { seq: u64, why: UnreadableEvent },
}

/// An entry as it is stored.
pub(super) struct Stored {
    seq: u64,
    at: String,
    kind: String,
    sealed: Vec<u8>,
    /// In the place of what was sealed, where that was erased.
    digest: Option<[u8; 32]>,
    pub(super) mac: Mac,
}

/// The columns that [`Stored::read`] needs.
const COLUMNS: &str = "seq, at, kind, sealed, digest, mac";

/// The statement of a whole log.
pub(super) fn log_statement() -> String {
    format!("SELECT {COLUMNS} FROM events WHERE run = ?1 ORDER BY seq")
}

/// The statement of the end of a log.
pub(super) fn end_statement() -> String {
    format!("SELECT {COLUMNS} FROM events WHERE run = ?1 ORDER BY seq DESC LIMIT 2")
}

impl Stored {
    fn read(row: &Row<'_>) -> Result<Self, BadRow> {
        let cells = Cells::of(row, "events", "seq");
        Ok(Self {
            seq: cells.count("seq")?,
            at: cells.text("at")?.to_owned(),
            kind: cells.text("kind")?.to_owned(),
            sealed: cells.bytes("sealed")?.to_owned(),
            digest: cells.optional_mac("digest")?,
            mac: cells.mac("mac")?,
        })
    }

    /// Whether it follows the entry of this MAC.
    fn follows(&self, before: &Mac, chain: &Chain) -> bool {
        let digest = self.digest.unwrap_or_else(|| Chain::digest(&self.sealed));
        same(&chain.entry(before, self.seq, &self.at, &self.kind, &digest), &self.mac)
    }
}

/// New entries, sealed under the run's key and chained to what stands before them.
pub(super) fn sealed(
    changes: &Changes,
    key: &RunKey,
    chain: &Chain,
    first: u64,
    head: Mac,
) -> Result<Vec<Stored>, StoreFault> {
    let at = time::text(changes.at());
    let mut before = head;
    (first..)
        .zip(changes.events())
        .map(|(seq, event)| {
            let text = event.encode().map_err(|error| StoreFault::Failed(Box::new(error)))?;
            let sealed = key.seal(seq, &text)?;
            let kind = event.kind().to_owned();
            let mac = chain.entry(&before, seq, &at, &kind, &Chain::digest(&sealed));
            before = mac;
            Ok(Stored { seq, at: at.clone(), kind, sealed, digest: None, mac })
        })
        .collect()
}

pub(super) fn insert(tx: &Transaction<'_>, run: &RunId, entries: &[Stored]) -> Result<(), StoreFault> {
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO events (run, seq, at, kind, sealed, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .map_err(fault)?;
    entries.iter().try_for_each(|Stored { seq, at, kind, sealed, digest: _, mac }| {
        insert.execute((run.as_str(), seq.cast_signed(), at, kind, sealed, mac)).map(drop).map_err(fault)
    })
}

/// Whether the last entry is the one that the row knows, and as it was stored; only then may another be
/// chained to it.
pub(super) fn end_is_sound(
    tx: &Connection,
    chain: &Chain,
    record: &RunRecord,
) -> Result<Result<(), Broken>, StoreFault> {
    let last_two: Vec<_> = tx
        .prepare_cached(&end_statement())
        .and_then(|mut select| {
            select.query_map([record.row.id.as_str()], |row| Ok(Stored::read(row)))?.collect()
        })
        .map_err(fault)?;
    Ok(ends_soundly(last_two, chain, record))
}

fn ends_soundly(
    last_two: Vec<Result<Stored, BadRow>>,
    chain: &Chain,
    record: &RunRecord,
) -> Result<(), Broken> {
    let mut last_two = last_two.into_iter();
    let Some(last) = last_two.next().transpose()? else { return ends(record, 0, &Chain::BEGIN) };
    let before = last_two.next().transpose()?.map_or(Chain::BEGIN, |entry| entry.mac);
    ends(record, last.seq.saturating_add(1), &last.mac)?;
    let is_kept = last.digest.is_none() || record.erased_at.is_some();
    if is_kept && last.follows(&before, chain) { Ok(()) } else { Err(Broken::Changed { seq: last.seq }) }
}

/// Whether a log of this length with this last MAC is the one that the row knows.
fn ends(record: &RunRecord, found: u64, head: &Mac) -> Result<(), Broken> {
    let length = record.revision;
    match found.cmp(&length) {
        Ordering::Less => Err(Broken::Truncated { found, length }),
        Ordering::Greater => Err(Broken::Added { length }),
        Ordering::Equal if same(&record.head, head) => Ok(()),
        Ordering::Equal => Err(Broken::Changed { seq: length.saturating_sub(1) }),
    }
}

/// All entries of a run, checked and opened.
pub(super) fn all(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<Vec<Entry>, Broken>, StoreFault> {
    let key = match keys::of_run(tx, vault, record)? {
        Ok(key) => key,
        Err(broken) => return Ok(Err(broken)),
    };
    let chain = vault.root.chain(&record.row.id);
    let mut entries = Vec::new();
    let walked = walk(tx, record, |stored, expected| {
        entries.push(open(stored, &key, &chain, expected)?);
        Ok(())
    })?;
    Ok(walked.map(|_| entries))
}

/// The length of a log whose content was erased, checked.
pub(super) fn erased(
    tx: &Transaction<'_>,
    vault: &Vault,
    record: &RunRecord,
) -> Result<Result<u64, Broken>, StoreFault> {
    let chain = vault.root.chain(&record.row.id);
    walk(tx, record, |stored, expected| {
        expected.holds(stored)?;
        let is_erased = stored.sealed.is_empty() && stored.digest.is_some();
        if is_erased && stored.follows(expected.before, &chain) {
            Ok(())
        } else {
            Err(Broken::Changed { seq: expected.seq })
        }
    })
}

/// Shows every stored entry to `check`, and says how many there are.
fn walk(
    tx: &Transaction<'_>,
    record: &RunRecord,
    mut check: impl FnMut(&Stored, Expected<'_>) -> Result<(), Broken>,
) -> Result<Result<u64, Broken>, StoreFault> {
    let mut select = tx.prepare_cached(&log_statement()).map_err(fault)?;
    let mut rows = select.query([record.row.id.as_str()]).map_err(fault)?;
    let (mut seq, mut head) = (0, Chain::BEGIN);
    while let Some(row) = rows.next().map_err(fault)? {
        let expected = Expected { seq, length: record.revision, before: &head };
        let checked = Stored::read(row)
            .map_err(Broken::from)
            .and_then(|stored| check(&stored, expected).map(|()| stored.mac));
        match checked {
            Ok(mac) => {
                head = mac;
                seq += 1;
            }
            Err(broken) => return Ok(Err(broken)),
        }
    }
    Ok(ends(record, seq, &head).map(|()| seq))
}

/// What must stand at a place of the log.
#[derive(Clone, Copy)]
struct Expected<'a> {
    seq: u64,
    length: u64,
    before: &'a Mac,
}

impl Expected<'_> {
    /// Whether it is the entry that belongs here, by its own word.
    fn holds(self, stored: &Stored) -> Result<(), Broken> {
        if stored.seq >= self.length {
            Err(Broken::Added { length: self.length })
        } else if stored.seq != self.seq {
            Err(Broken::Missing { seq: self.seq })
        } else {
            Ok(())
        }
    }
}

fn open(stored: &Stored, key: &RunKey, chain: &Chain, expected: Expected<'_>) -> Result<Entry, Broken> {
    expected.holds(stored)?;
    let Expected { seq, length, before } = expected;
    // Only an erased run has digests, and its row says so.
    if stored.digest.is_some() || !stored.follows(before, chain) {
        // What was sealed for another place of this log opens there.
        let other = (0..length).find(|other| *other != seq && key.open(*other, &stored.sealed).is_ok());
        return Err(other.map_or(Broken::Changed { seq }, |other| Broken::Reordered { seq, other }));
    }
    let text = key.open(seq, &stored.sealed).map_err(|why| Broken::Sealed { seq, why })?;
    let event = Event::decode(&text).map_err(|why| Broken::Event { seq, why })?;
    let at = time::parse(&stored.at).ok_or(Broken::Changed { seq })?;
    if event.kind() != stored.kind {
        return Err(Broken::Changed { seq });
    }
    Ok(Entry { seq, at, event })
}
