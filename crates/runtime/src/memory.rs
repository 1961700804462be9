//! Runs in memory: for tests, trials and embedding without a disk.
//!
//! Invariant: everything is under one lock, so every method is one transaction, with the semantics of the
//! stores on disk: revisions, leases, pages, switches. Events are kept in their stored form, so what cannot
//! be stored cannot be kept here either. Not here: sealing, and surviving the process.

mod outbox;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{
    AgentName, CallId, Changes, Deadline, Event, PendingId, PendingRow, PendingStatus, Principal, RunId,
    RunState, Subject, Subscriptions, Switch, TokenId,
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::accounts::{Account, Accounts};
use crate::store::{
    Append, AppendError, ClaimError, CreateError, Lease, LoadError, Log, Look, Page, PendingFilter, Revision,
    RunFilter, RunListing, StartKey, StartedBefore, Store, StoreFault, SwitchName, Writer,
};
use crate::token::TokenRow;
use state::{KeptPending, SPOILED, State, next_number};

/// Runs in memory. What is dropped with it is gone.
pub struct MemoryStore {
    secret: [u8; 32],
    subscriptions: Subscriptions,
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store. The secret makes the idempotency keys of this installation its own (R4).
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret, subscriptions: Subscriptions::default(), state: Mutex::default() }
    }

    /// The same, which owes notices to these from here on.
    pub fn telling(self, subscriptions: Subscriptions) -> Self {
        Self { subscriptions, ..self }
    }

    /// A closure that panicked under the lock had changed nothing yet: judging comes before storing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spoils what is kept, as a failing disk would.
    #[cfg(any(test, feature = "contract"))]
    pub fn damage(&self, what: &crate::contract::Damage) {
        self.state().damage(what);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, changes: Changes) -> Result<(), CreateError> {
        let log = encoded(&changes)?;
        self.state().create(&changes, log)
    }

    async fn load(&self, run: &RunId) -> Result<Log, LoadError> {
        self.state().log(run)
    }

    async fn load_each(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        let state = self.state();
        Ok(runs.iter().map(|run| state.log(run)).collect())
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
            && (lease.run != *run || !kept.is_held_by(&lease.token, now))
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
        state.owe(&self.subscriptions, &changes, at.0);
        Ok(Some(changes))
    }

    async fn revision(&self, run: &RunId) -> Result<Revision, LoadError> {
        Ok(Revision(self.state().readable(run)?.revision()))
    }

    async fn claim(
        &self,
        run: &RunId,
        token: String,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Lease, ClaimError> {
        let mut state = self.state();
        let kept = state.run(run).ok_or_else(|| ClaimError::NotFound(run.clone()))?;
        if kept.damaged {
            return Err(ClaimError::Unreadable { run: run.clone(), reason: SPOILED.to_owned() });
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
            .filter(|kept| {
                !kept.damaged && kept.row.state == RunState::Active && agents.contains(&kept.row.agent)
            })
            .filter(|kept| kept.leased_until(now).is_none())
            .min_by_key(|kept| kept.ticket)
            .map(|kept| kept.row.id.clone());
        Ok(first.map(|run| state.grant(&run, token, now, lease)))
    }

    async fn heartbeat(&self, lease: &Lease, now: Timestamp, length: Duration) -> Result<bool, StoreFault> {
        let mut state = self.state();
        let live = state
            .run_mut(&lease.run)
            .filter(|kept| kept.is_held_by(&lease.token, now))
            .and_then(|kept| kept.lease.as_mut());
        Ok(match live {
            Some((_, until)) => {
                *until = Lease::end(now, length);
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

    async fn set_switch(
        &self,
        name: &SwitchName,
        enabled: Option<bool>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let mut state = self.state();
        if enabled == Some(false) {
            let off_at = state.switched_off.entry(name.clone()).or_insert(now);
            *off_at = now.max(*off_at);
        }
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
        let account = Account { principal: principal.clone(), disabled_at: None };
        self.state().accounts.insert(principal.subject.clone(), account);
        Ok(())
    }

    async fn started(&self, key: &StartKey) -> Result<Option<StartedBefore>, StoreFault> {
        Ok(self.state().started(key))
    }

    async fn create_once(
        &self,
        changes: Changes,
        key: &StartKey,
    ) -> Result<Option<StartedBefore>, CreateError> {
        let log = encoded(&changes)?;
        let mut state = self.state();
        if let Some(before) = state.started(key) {
            return Ok(Some(before));
        }
        let run = changes.row().id.clone();
        state.create(&changes, log)?;
        state.started.insert((key.starter.clone(), key.key.clone()), (key.body, run));
        Ok(None)
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
        let Some(before) = cursor.map_or(Some(u64::MAX), |cursor| cursor.parse().ok()) else {
            return Ok(nothing());
        };
        let state = self.state();
        let found = state.runs.range(..before).rev().filter(|(_, kept)| {
            (filter.states.is_empty() || filter.states.contains(&kept.row.state))
                && filter.agent.as_ref().is_none_or(|agent| *agent == kept.row.agent)
                && filter.owner.as_ref().is_none_or(|owner| *owner == kept.row.owner)
                && filter.starter.as_ref().is_none_or(|starter| *starter == kept.row.starter)
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

    async fn pendings(
        &self,
        filter: &PendingFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreFault> {
        let Some(after) = cursor.map_or(Some(0), |cursor| cursor.parse().ok()) else { return Ok(nothing()) };
        let state = self.state();
        let found = state.pendings.range((Bound::Excluded(after), Bound::Unbounded)).filter(
            |(_, KeptPending { row, .. })| {
                filter.status.is_none_or(|status| status == row.status)
                    && filter.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                    && filter.run.as_ref().is_none_or(|run| *run == row.run)
                    && filter.owner.as_ref().is_none_or(|owner| *owner == row.owner)
            },
        );
        Ok(page(found, limit, |kept| (!kept.damaged).then(|| kept.row.clone())))
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Vec<PendingRow>, StoreFault> {
        let state = self.state();
        let mut found: Vec<&PendingRow> = state
            .pendings
            .values()
            .filter(|kept| {
                !kept.damaged && kept.row.status == PendingStatus::Open && kept.row.expires_at.has_passed(now)
            })
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
#[async_trait]
impl Accounts for MemoryStore {
    async fn accounts(&self, limit: usize, cursor: Option<&str>) -> Result<Page<Account>, StoreFault> {
        let state = self.state();
        let after = |subject: &Subject| cursor.is_none_or(|cursor| subject.as_str() > cursor);
        let mut found = state.accounts.values().filter(|account| after(&account.principal.subject));
        let items: Vec<Account> = found.by_ref().take(limit.max(1)).cloned().collect();
        let last = items.last().map(|last| last.principal.subject.to_string());
        Ok(Page { next: found.next().and(last), items })
    }

    async fn account(&self, subject: &Subject) -> Result<Option<Account>, StoreFault> {
        Ok(self.state().accounts.get(subject).cloned())
    }

    async fn disable_principal(&self, subject: &Subject, now: Timestamp) -> Result<bool, StoreFault> {
        let mut state = self.state();
        let account = state.accounts.get_mut(subject);
        Ok(account.map(|account| account.disabled_at.get_or_insert(now)).is_some())
    }

    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreFault> {
        let mut state = self.state();
        let number = next_number(&state.tokens);
        state.tokens.insert(number, token.clone());
        Ok(())
    }

    async fn token(&self, id: &TokenId) -> Result<Option<TokenRow>, StoreFault> {
        Ok(self.state().token_mut(id).cloned())
    }

    async fn tokens(&self, limit: usize, cursor: Option<&str>) -> Result<Page<TokenRow>, StoreFault> {
        let Some(after) = cursor.map_or(Some(0), |cursor| cursor.parse().ok()) else {
            return Ok(nothing());
        };
        let state = self.state();
        let found = state.tokens.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(page(found, limit, |token| Some(token.clone())))
    }

    async fn revoke_token(&self, id: &TokenId, now: Timestamp) -> Result<bool, StoreFault> {
        let mut state = self.state();
        Ok(state.token_mut(id).map(|token| token.revoked_at.get_or_insert(now)).is_some())
    }
}

fn encoded(changes: &Changes) -> Result<Vec<(Timestamp, Vec<u8>)>, StoreFault> {
    let encode = |event: &Event| event.encode().map(|stored| (changes.at(), stored));
    changes
        .events()
        .iter()
        .map(encode)
        .collect::<Result<_, _>>()
        .map_err(|error| StoreFault::Failed(Box::new(error)))
}

/// One page; a row that cannot be read is left out and stops nothing (R2).
fn page<'a, K: 'a, T>(
    mut found: impl Iterator<Item = (&'a u64, &'a K)>,
    limit: usize,
    line: impl Fn(&K) -> Option<T>,
) -> Page<T> {
    let mut last = None;
    let items = found
        .by_ref()
        .take(limit.max(1))
        .inspect(|(number, _)| last = Some(**number))
        .filter_map(|(_, kept)| line(kept))
        .collect();
    let next = found.next().and(last).map(|last| last.to_string());
    Page { items, next }
}

/// What follows a cursor that was never given out.
fn nothing<T>() -> Page<T> {
    Page { items: Vec::new(), next: None }
}
