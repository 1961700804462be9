//! The entries of a log: sealed and chained when they are written, checked and opened when they are read.
//!
//! Invariant: a log is given out whole, in order and as it was stored, or not at all; what is wrong with it is
//! said without repeating a payload (S4, S5). Nothing here changes or removes a stored entry (R2). Where the
//! content was erased, its digest stands in its place and the chain goes over that (R10). Not here: SQL.

use std::cmp::Ordering;

use countersign::{Changes, Entry, Event, LoadError, RunId, StoreFault, UnreadableEvent};
use jiff::Timestamp;

use crate::chain::{Chain, Root};
use crate::mac::{Mac, same};
use crate::row::{BadRow, Cells, Row, RunRecord};
use crate::seal::Unopened;
use crate::time;
use crate::vault::RunKey;

/// What is wrong with a log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
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

impl Broken {
    /// Why the log of `run` cannot be loaded.
    pub(crate) fn of(self, run: &RunId) -> LoadError {
        if let Self::Erased { at } = self {
            return LoadError::Erased { run: run.clone(), at };
        }
        LoadError::Unreadable { run: run.clone(), reason: self.to_string() }
    }
}

/// An entry as it is stored.
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) at: String,
    pub(crate) kind: String,
    pub(crate) sealed: Vec<u8>,
    /// In the place of what was sealed, where that was erased.
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) mac: Mac,
}

impl Stored {
    /// The columns that [`Stored::read`] needs.
    pub(crate) const COLUMNS: &'static str = "seq, at, kind, sealed, digest, mac";

    pub(crate) fn read(row: &dyn Row) -> Result<Self, BadRow> {
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
pub(crate) fn sealed(
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

/// Whether the last entry is the one that the row knows, and as it was stored; only then may another be
/// chained to it. Given are the last two entries, the last one first.
pub(crate) fn ends_soundly(
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

/// A walk along a stored log, from its first entry.
pub(crate) struct Walk<'a> {
    record: &'a RunRecord,
    chain: Chain,
    seq: u64,
    head: Mac,
}

impl<'a> Walk<'a> {
    pub(crate) fn along(record: &'a RunRecord, root: &Root) -> Self {
        Self { record, chain: root.chain(&record.row.id), seq: 0, head: Chain::BEGIN }
    }

    /// The next entry, checked and opened.
    pub(crate) fn open(&mut self, row: &dyn Row, key: &RunKey) -> Result<Entry, Broken> {
        let stored = Stored::read(row)?;
        let entry = open(&stored, key, &self.chain, self.expected())?;
        self.step(&stored);
        Ok(entry)
    }

    /// The next entry of a log whose content was erased, checked.
    pub(crate) fn pass_erased(&mut self, row: &dyn Row) -> Result<(), Broken> {
        let stored = Stored::read(row)?;
        let expected = self.expected();
        expected.holds(&stored)?;
        let is_erased = stored.sealed.is_empty() && stored.digest.is_some();
        if is_erased && stored.follows(expected.before, &self.chain) {
            self.step(&stored);
            Ok(())
        } else {
            Err(Broken::Changed { seq: expected.seq })
        }
    }

    /// How many entries there were, if those were all.
    pub(crate) fn end(self) -> Result<u64, Broken> {
        ends(self.record, self.seq, &self.head).map(|()| self.seq)
    }

    fn expected(&self) -> Expected<'_> {
        Expected { seq: self.seq, length: self.record.revision, before: &self.head }
    }

    fn step(&mut self, stored: &Stored) {
        self.head = stored.mac;
        self.seq += 1;
    }
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
