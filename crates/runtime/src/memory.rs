//! Runs in memory: for tests, trials and embedding without a disk.
//!
//! Invariant: everything is under one lock, so every method is one transaction, with the semantics of the
//! stores on disk: revisions, leases, pages, switches. Events are kept in their stored form, so what cannot
//! be stored cannot be kept here either. Not here: sealing, and surviving the process.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    AgentName, CallId, Changes, Deadline, Entry, Event, PendingId, PendingRow, PendingStatus, Principal, RunId, RunRow, RunState,
    Subject, Switch, Switches,
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::store::{
    Append, AppendError, ClaimError, CreateError, Lease, LoadError, Log, Look, Page, PendingFilter, Revision, RunFilter,
    RunListing, Store, StoreFault, SwitchName, Writer,
};

/// Runs in memory. What is dropped with it is gone.
pub struct MemoryStore {
    secret: [u8; 32],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In order of creation.
    runs: BTreeMap<u64, KeptRun>,
    run_numbers: HashMap<RunId, u64>,
    /// In order of opening.
    pendings: BTreeMap<u64, KeptPending>,
    pending_numbers: HashMap<PendingId, u64>,
    tools: BTreeMap<String, Switch>,
    groups: BTreeMap<String, Switch>,
    principals: BTreeMap<Subject, Principal>,
    /// The last ticket of the queue that was given out.
    tickets: u64,
}

struct KeptRun {
    row: RunRow,
    log: Vec<(Timestamp, Vec<u8>)>,
    lease: Option<(String, Timestamp)>,
    /// The place in the queue: a new one when work becomes owed, and with every claim.
    ticket: u64,
    damaged: bool,
}

struct KeptPending {
    row: PendingRow,
    refusals: u64,
    damaged: bool,
}

impl MemoryStore {
    /// An empty store. The secret makes the idempotency keys of this installation its own (R4).
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret, state: Mutex::default() }
    }

    /// A closure that panicked under the lock had changed nothing yet: judging comes before storing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spoils what is kept, as a failing disk would.
    #[cfg(any(test, feature = "contract"))]
    pub fn damage(&self, what: &crate::contract::Damage) {
        use crate::contract::Damage;
        let mut state = self.state();
        match what {
            Damage::Entry { run, seq } => {
                if let Some((_, stored)) =
                    state.run_mut(run).and_then(|kept| usize::try_from(*seq).ok().and_then(|seq| kept.log.get_mut(seq)))
                {
                    stored.reverse();
                }
            }
            Damage::Run(run) => {
                if let Some(kept) = state.run_mut(run) {
                    kept.damaged = true;
                }
            }
            Damage::Pending(id) => {
                if let Some(kept) = state.pending_mut(id) {
                    kept.damaged = true;
                }
            }
            Damage::Deadline(id) => {
                if let Some(kept) = state.pending_mut(id) {
                    kept.row.expires_at = Deadline::Unreadable;
                }
            }
            Damage::Switch(SwitchName::Tool(name)) => {
                state.tools.insert(name.as_str().to_owned(), Switch::Unreadable);
            }
            Damage::Switch(SwitchName::Group(name)) => {
                state.groups.insert(name.as_str().to_owned(), Switch::Unreadable);
            }
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl State {
    fn run(&self, id: &RunId) -> Option<&KeptRun> {
        self.run_numbers.get(id).and_then(|number| self.runs.get(number))
    }

    fn run_mut(&mut self, id: &RunId) -> Option<&mut KeptRun> {
        self.run_numbers.get(id).and_then(|number| self.runs.get_mut(number))
    }

    fn pending_mut(&mut self, id: &PendingId) -> Option<&mut KeptPending> {
        self.pending_numbers.get(id).and_then(|number| self.pendings.get_mut(number))
    }

    /// A run for those who can say that it cannot be read.
    fn readable(&self, id: &RunId) -> Result<&KeptRun, LoadError> {
        let kept = self.run(id).ok_or_else(|| LoadError::NotFound(id.clone()))?;
        if kept.damaged { Err(LoadError::Unreadable { run: id.clone(), reason: SPOILED.to_owned() }) } else { Ok(kept) }
    }

    fn look(&self, subjects: &[Subject]) -> Look {
        let tools = self.tools.iter().fold(Switches::default(), |all, (name, switch)| all.with_tool(name, *switch));
        let switches = self.groups.iter().fold(tools, |all, (name, switch)| all.with_group(name, *switch));
        let people = subjects.iter().filter_map(|subject| self.principals.get(subject)).cloned().collect();
        Look { switches, people }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn put_pendings(&mut self, rows: &[PendingRow]) {
        for row in rows {
            match self.pending_mut(&row.id) {
                Some(kept) => kept.row = row.clone(),
                None => {
                    let number = next_number(&self.pendings);
                    self.pending_numbers.insert(row.id.clone(), number);
                    self.pendings.insert(number, KeptPending { row: row.clone(), refusals: 0, damaged: false });
                }
            }
        }
    }

    fn grant(&mut self, run: &RunId, token: String, now: Timestamp, length: Duration) -> Lease {
        let ticket = self.ticket();
        if let Some(kept) = self.run_mut(run) {
            kept.lease = Some((token.clone(), end(now, length)));
            // A run that is lost again and again stands in nobody's way (R2).
            kept.ticket = ticket;
        }
        Lease { run: run.clone(), token }
    }
}

impl KeptRun {
    fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    /// When the lease that somebody holds now would end. It is over from that moment on.
    fn leased_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.lease.as_ref().map(|(_, until)| *until).filter(|until| now < *until)
    }

    fn has_token(&self, token: &str) -> bool {
        self.lease.as_ref().is_some_and(|(held, _)| held == token)
    }

    fn listing(&self, now: Timestamp) -> RunListing {
        RunListing { row: self.row.clone(), leased: self.leased_until(now).is_some(), revision: Revision(self.revision()) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let log = encoded(&changes)?;
        let mut state = self.state();
        let id = &changes.row().id;
        if state.run(id).is_some() {
            return Err(CreateError::Exists);
        }
        let (number, ticket) = (next_number(&state.runs), state.ticket());
        state.run_numbers.insert(id.clone(), number);
        state.runs.insert(number, KeptRun { row: changes.row().clone(), log, lease: None, ticket, damaged: false });
        state.put_pendings(changes.inbox());
        Ok(())
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        let state = self.state();
        let entries = (0..)
            .zip(&state.readable(run)?.log)
            .map(|(seq, (at, stored))| match Event::decode(stored) {
                Ok(event) => Ok(Entry { seq, at: *at, event }),
                Err(error) => Err(LoadError::Unreadable { run: run.clone(), reason: format!("entry {seq}: {error}") }),
            })
            .collect::<Result<_, _>>()?;
        Ok(Log { entries })
    }

    async fn append(
        &self,
        run: &RunId,
        at: Revision,
        writer: &Writer,
        now: Timestamp,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        let mut state = self.state();
        let kept = state.run(run).ok_or_else(|| AppendError::NotFound(run.clone()))?;
        if kept.damaged {
            return Err(AppendError::Unreadable { run: run.clone(), reason: SPOILED.to_owned() });
        }
        if let Writer::Worker(lease) = writer
            && (lease.run != *run || kept.leased_until(now).is_none() || !kept.has_token(&lease.token))
        {
            return Err(AppendError::LeaseLost);
        }
        if kept.revision() != at.0 {
            return Err(AppendError::Conflict);
        }
        let changes = match append {
            Append::Plain(changes) => Some(changes),
            Append::Judged { subjects, judge } => judge(&state.look(&subjects)),
        };
        let Some(changes) = changes else { return Ok(None) };
        if changes.row().id != *run {
            return Err(StoreFault::Failed("the changes belong to another run".into()).into());
        }
        let more = encoded(&changes)?;
        let ticket = state.ticket();
        if let Some(kept) = state.run_mut(run) {
            if kept.row.state != RunState::Active && changes.row().state == RunState::Active {
                kept.ticket = ticket;
            }
            kept.row = changes.row().clone();
            kept.log.extend(more);
        }
        state.put_pendings(changes.inbox());
        Ok(Some(changes))
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        Ok(Revision(self.state().readable(run)?.revision()))
    }

    async fn claim(&self, run: &RunId, token: String, now: Timestamp, lease: Duration) -> Result<Lease, ClaimError> {
        let mut state = self.state();
        let kept = state.run(run).ok_or_else(|| ClaimError::NotFound(run.clone()))?;
        if kept.damaged {
            return Err(StoreFault::Failed(SPOILED.into()).into());
        }
        if kept.row.state != RunState::Active {
            return Err(ClaimError::NotActive(kept.row.state));
        }
        if let Some(until) = kept.leased_until(now) {
            return Err(ClaimError::Leased { until });
        }
        Ok(state.grant(run, token, now, lease))
    }

    async fn claim_any(
        &self,
        agents: &[AgentName],
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Lease>, StoreFault> {
        let mut state = self.state();
        let first = state
            .runs
            .values()
            .filter(|kept| !kept.damaged && kept.row.state == RunState::Active && agents.contains(&kept.row.agent))
            .filter(|kept| kept.leased_until(now).is_none())
            .min_by_key(|kept| kept.ticket)
            .map(|kept| kept.row.id.clone());
        Ok(first.map(|run| state.grant(&run, token, now, lease)))
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        let mut state = self.state();
        let live = state
            .run_mut(&lease.run)
            .filter(|kept| kept.has_token(&lease.token) && kept.leased_until(now).is_some())
            .and_then(|kept| kept.lease.as_mut());
        Ok(match live {
            Some((_, until)) => {
                *until = end(now, length);
                true
            }
            None => false,
        })
    }

    async fn release(&self, lease: &Lease, seen: Revision) -> Result<bool, StoreFault> {
        let mut state = self.state();
        match state.run_mut(&lease.run).filter(|kept| kept.has_token(&lease.token)) {
            Some(kept) if kept.revision() > seen.0 => Ok(false),
            Some(kept) => {
                kept.lease = None;
                Ok(true)
            }
            None => Ok(true),
        }
    }

    async fn look(&self, subjects: &[Subject]) -> Result<Look, StoreFault> {
        Ok(self.state().look(subjects))
    }

    async fn set_switch(&self, name: &SwitchName, enabled: Option<bool>) -> Result<(), StoreFault> {
        let mut state = self.state();
        let (rows, name) = match name {
            SwitchName::Tool(name) => (&mut state.tools, name.as_str()),
            SwitchName::Group(name) => (&mut state.groups, name.as_str()),
        };
        match enabled {
            Some(enabled) => rows.insert(name.to_owned(), if enabled { Switch::On } else { Switch::Off }),
            None => rows.remove(name),
        };
        Ok(())
    }

    async fn put_principal(&self, principal: &Principal) -> Result<(), StoreFault> {
        self.state().principals.insert(principal.subject.clone(), principal.clone());
        Ok(())
    }

    async fn run(&self, run: &RunId, now: Timestamp) -> Result<RunListing, LoadError> {
        Ok(self.state().readable(run)?.listing(now))
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        now: Timestamp,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<RunListing>, StoreFault> {
        let Some(before) = cursor.map_or(Some(u64::MAX), |cursor| cursor.parse().ok()) else { return Ok(nothing()) };
        let state = self.state();
        let found = state.runs.range(..before).rev().filter(|(_, kept)| {
            (filter.states.is_empty() || filter.states.contains(&kept.row.state))
                && filter.agent.as_ref().is_none_or(|agent| *agent == kept.row.agent)
                && filter.owner.as_ref().is_none_or(|owner| *owner == kept.row.owner)
        });
        Ok(page(found, limit, |kept| (!kept.damaged).then(|| kept.listing(now))))
    }

    async fn pending(&self, id: &PendingId) -> Result<Option<PendingRow>, StoreFault> {
        match self.state().pending_mut(id) {
            Some(kept) if kept.damaged => Err(StoreFault::Failed(SPOILED.into())),
            Some(kept) => Ok(Some(kept.row.clone())),
            None => Ok(None),
        }
    }

    async fn pendings(&self, filter: &PendingFilter, limit: usize, cursor: Option<&str>) -> Result<Page<PendingRow>, StoreFault> {
        let Some(after) = cursor.map_or(Some(0), |cursor| cursor.parse().ok()) else { return Ok(nothing()) };
        let state = self.state();
        let found = state.pendings.range((Bound::Excluded(after), Bound::Unbounded)).filter(|(_, KeptPending { row, .. })| {
            filter.status.is_none_or(|status| status == row.status)
                && filter.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                && filter.run.as_ref().is_none_or(|run| *run == row.run)
                && filter.owner.as_ref().is_none_or(|owner| *owner == row.owner)
        });
        Ok(page(found, limit, |kept| (!kept.damaged).then(|| kept.row.clone())))
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        let state = self.state();
        let mut found: Vec<&PendingRow> = state
            .pendings
            .values()
            .filter(|kept| !kept.damaged && kept.row.status == PendingStatus::Open && kept.row.expires_at.has_passed(now))
            .map(|kept| &kept.row)
            .collect();
        found.sort_by_key(|row| match row.expires_at {
            Deadline::At(at) => Some(at),
            Deadline::Unreadable | Deadline::Never => None,
        });
        Ok(found.into_iter().take(limit).cloned().collect())
    }

    async fn count_refusal(&self, id: &PendingId) -> Result<u64, StoreFault> {
        Ok(self.state().pending_mut(id).map_or(0, |kept| {
            kept.refusals += 1;
            kept.refusals - 1
        }))
    }

    fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        let mut hash = Sha256::new_with_prefix(self.secret);
        for part in [run.as_str(), call.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        // Hashed twice, so that no key can be continued into another.
        Sha256::digest(hash.finalize()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What is said of a row that was spoiled on purpose.
const SPOILED: &str = "the row cannot be read";

fn encoded(changes: &Changes) -> Result<Vec<(Timestamp, Vec<u8>)>, StoreFault> {
    let encode = |event: &Event| event.encode().map(|stored| (changes.at(), stored));
    changes.events().iter().map(encode).collect::<Result<_, _>>().map_err(|error| StoreFault::Failed(Box::new(error)))
}

fn end(now: Timestamp, length: Duration) -> Timestamp {
    now.checked_add(length).unwrap_or(Timestamp::MAX)
}

fn next_number<T>(rows: &BTreeMap<u64, T>) -> u64 {
    rows.last_key_value().map_or(1, |(last, _)| last + 1)
}

/// One page; a row that cannot be read is left out and stops nothing (R2).
fn page<'a, K: 'a, T>(
    mut found: impl Iterator<Item = (&'a u64, &'a K)>,
    limit: usize,
    line: impl Fn(&K) -> Option<T>,
) -> Page<T> {
    let mut last = None;
    let items = found.by_ref().take(limit.max(1)).inspect(|(number, _)| last = Some(**number)).filter_map(|(_, kept)| line(kept)).collect();
    let next = found.next().and(last).map(|last| last.to_string());
    Page { items, next }
}

/// What follows a cursor that was never given out.
fn nothing<T>() -> Page<T> {
    Page { items: Vec::new(), next: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::MemoryStore;
    use crate::contract::{Damage, Harness};
    use crate::{Clock, Store, SystemClock};

    struct InMemory(Arc<MemoryStore>);

    #[async_trait]
    impl Harness for InMemory {
        async fn fresh() -> Self {
            let mut secret = [0; 32];
            secret[..16].copy_from_slice(&SystemClock.random());
            Self(Arc::new(MemoryStore::new(secret)))
        }

        fn store(&self) -> Arc<dyn Store> {
            Arc::clone(&self.0) as Arc<dyn Store>
        }

        async fn reopened(self) -> Self {
            self
        }

        async fn damage(&self, what: Damage) {
            self.0.damage(&what);
        }
    }

    crate::store_contract!(InMemory);
}
