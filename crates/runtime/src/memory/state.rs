//! What the store in memory holds.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use countersign_core::{
    Changes, Digest, Entry, Event, PendingId, PendingRow, RunId, RunRow, Subject, Switch, Switches, TokenId,
    WebhookName,
};
use jiff::Timestamp;

use crate::accounts::Account;
use crate::store::{
    CreateError, Lease, LoadError, Log, Look, Revision, RunListing, StartKey, StartedBefore, SwitchName,
};
use crate::token::TokenRow;

/// What is said of a row that was spoiled on purpose.
pub(super) const SPOILED: &str = "the row cannot be read";

#[derive(Default)]
pub(super) struct State {
    /// In order of creation.
    pub(super) runs: BTreeMap<u64, KeptRun>,
    pub(super) run_numbers: HashMap<RunId, u64>,
    /// In order of opening.
    pub(super) pendings: BTreeMap<u64, KeptPending>,
    pub(super) pending_numbers: HashMap<PendingId, u64>,
    pub(super) tools: BTreeMap<String, Switch>,
    pub(super) groups: BTreeMap<String, Switch>,
    pub(super) switched_off: BTreeMap<SwitchName, Timestamp>,
    pub(super) accounts: BTreeMap<Subject, Account>,
    /// In order of making.
    pub(super) tokens: BTreeMap<u64, TokenRow>,
    /// By whose key, and which.
    pub(super) started: HashMap<(Subject, String), (Digest, RunId)>,
    /// What is owed to whom, by run, sequence and webhook.
    pub(super) outbox: BTreeMap<(RunId, u64, WebhookName), Owed>,
    pub(super) gone: BTreeMap<WebhookName, Timestamp>,
    /// The last ticket of the queue that was given out.
    pub(super) tickets: u64,
}

pub(super) struct KeptRun {
    pub(super) row: RunRow,
    pub(super) log: Vec<(Timestamp, Vec<u8>)>,
    pub(super) lease: Option<(String, Timestamp)>,
    /// The place in the queue: a new one when work becomes owed, and with every claim.
    pub(super) ticket: u64,
    pub(super) damaged: bool,
}

pub(super) struct KeptPending {
    pub(super) row: PendingRow,
    pub(super) refusals: u64,
    pub(super) damaged: bool,
}

/// A notice.
pub(super) struct Owed {
    pub(super) attempts: u32,
    /// When it may be taken in hand; absent: given up.
    pub(super) due: Option<Timestamp>,
    pub(super) token: Option<String>,
}

impl State {
    pub(super) fn run(&self, id: &RunId) -> Option<&KeptRun> {
        self.run_numbers.get(id).and_then(|number| self.runs.get(number))
    }

    pub(super) fn run_mut(&mut self, id: &RunId) -> Option<&mut KeptRun> {
        self.run_numbers.get(id).and_then(|number| self.runs.get_mut(number))
    }

    pub(super) fn pending_mut(&mut self, id: &PendingId) -> Option<&mut KeptPending> {
        self.pending_numbers.get(id).and_then(|number| self.pendings.get_mut(number))
    }

    /// A run for those who can say that it cannot be read.
    pub(super) fn readable(&self, id: &RunId) -> Result<&KeptRun, LoadError> {
        let kept = self.run(id).ok_or_else(|| LoadError::NotFound(id.clone()))?;
        if kept.damaged {
            Err(LoadError::Unreadable { run: id.clone(), reason: SPOILED.to_owned() })
        } else {
            Ok(kept)
        }
    }

    /// The whole log of a run.
    pub(super) fn log(&self, run: &RunId) -> Result<Log, LoadError> {
        let entries = (0..)
            .zip(&self.readable(run)?.log)
            .map(|(seq, (at, stored))| match Event::decode(stored) {
                Ok(event) => Ok(Entry { seq, at: *at, event }),
                Err(error) => {
                    Err(LoadError::Unreadable { run: run.clone(), reason: format!("entry {seq}: {error}") })
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Log { entries })
    }

    pub(super) fn look(&self, subjects: &[Subject]) -> Look {
        let tools =
            self.tools.iter().fold(Switches::default(), |all, (name, switch)| all.with_tool(name, *switch));
        let switches = self.groups.iter().fold(tools, |all, (name, switch)| all.with_group(name, *switch));
        let switches = self.switched_off.iter().fold(switches, |all, (name, at)| match name {
            SwitchName::Tool(name) => all.with_tool_off_at(name.as_str(), *at),
            SwitchName::Group(name) => all.with_group_off_at(name.as_str(), *at),
        });
        let known = subjects.iter().filter_map(|subject| self.accounts.get(subject));
        let people = known.filter(|account| account.disabled_at.is_none());
        let people = people.map(|account| account.principal.clone()).collect();
        Look { switches, people }
    }

    pub(super) fn token_mut(&mut self, id: &TokenId) -> Option<&mut TokenRow> {
        self.tokens.values_mut().find(|token| token.id == *id)
    }

    pub(super) fn started(&self, key: &StartKey) -> Option<StartedBefore> {
        let (body, run) = self.started.get(&(key.starter.clone(), key.key.clone()))?;
        Some(if *body == key.body { StartedBefore::Same(run.clone()) } else { StartedBefore::OtherBody })
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn create(
        &mut self,
        changes: &Changes,
        log: Vec<(Timestamp, Vec<u8>)>,
    ) -> Result<(), CreateError> {
        let id = &changes.row().id;
        if self.run(id).is_some() {
            return Err(CreateError::Exists);
        }
        if let Some(before) = &changes.row().continues
            && !self.run(before).is_some_and(|kept| !kept.damaged && kept.row.state.is_end())
        {
            return Err(CreateError::NotContinuable(before.clone()));
        }
        let (number, ticket) = (next_number(&self.runs), self.ticket());
        self.run_numbers.insert(id.clone(), number);
        let kept = KeptRun { row: changes.row().clone(), log, lease: None, ticket, damaged: false };
        self.runs.insert(number, kept);
        self.put_pendings(changes.inbox());
        Ok(())
    }

    pub(super) fn put_pendings(&mut self, rows: &[PendingRow]) {
        for row in rows {
            match self.pending_mut(&row.id) {
                Some(kept) => kept.row = row.clone(),
                None => {
                    let number = next_number(&self.pendings);
                    self.pending_numbers.insert(row.id.clone(), number);
                    self.pendings
                        .insert(number, KeptPending { row: row.clone(), refusals: 0, damaged: false });
                }
            }
        }
    }

    pub(super) fn grant(&mut self, run: &RunId, token: String, now: Timestamp, length: Duration) -> Lease {
        let ticket = self.ticket();
        if let Some(kept) = self.run_mut(run) {
            kept.lease = Some((token.clone(), Lease::end(now, length)));
            // A run that is lost again and again stands in nobody's way (R2).
            kept.ticket = ticket;
        }
        Lease { run: run.clone(), token }
    }

    /// Spoils what is kept, as a failing disk would.
    #[cfg(any(test, feature = "contract"))]
    pub(super) fn damage(&mut self, what: &crate::contract::Damage) {
        use crate::contract::Damage;
        use crate::store::SwitchName;
        match what {
            Damage::Entry { run, seq } => {
                if let Some((_, stored)) = self
                    .run_mut(run)
                    .and_then(|kept| usize::try_from(*seq).ok().and_then(|seq| kept.log.get_mut(seq)))
                {
                    stored.reverse();
                }
            }
            Damage::Run(run) => {
                if let Some(kept) = self.run_mut(run) {
                    kept.damaged = true;
                }
            }
            Damage::Pending(id) => {
                if let Some(kept) = self.pending_mut(id) {
                    kept.damaged = true;
                }
            }
            Damage::Deadline(id) => {
                if let Some(kept) = self.pending_mut(id) {
                    kept.row.expires_at = countersign_core::Deadline::Unreadable;
                }
            }
            Damage::Switch(SwitchName::Tool(name)) => {
                self.tools.insert(name.as_str().to_owned(), Switch::Unreadable);
            }
            Damage::Switch(SwitchName::Group(name)) => {
                self.groups.insert(name.as_str().to_owned(), Switch::Unreadable);
            }
        }
    }
}

impl KeptRun {
    pub(super) fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    /// When the lease would end that keeps others out now.
    pub(super) fn leased_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.lease.as_ref().map(|(_, until)| *until).filter(|until| Lease::keeps_out(*until, now))
    }

    /// Whether the holder of this token still has the run. Nobody else has come, and its lease is not over.
    pub(super) fn is_held_by(&self, token: &str, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|(held, until)| held == token && now < *until)
    }

    pub(super) fn has_token(&self, token: &str) -> bool {
        self.lease.as_ref().is_some_and(|(held, _)| held == token)
    }

    pub(super) fn listing(&self, now: Timestamp) -> RunListing {
        RunListing {
            row: self.row.clone(),
            leased: self.leased_until(now).is_some(),
            revision: Revision(self.revision()),
        }
    }
}

pub(super) fn next_number<T>(rows: &BTreeMap<u64, T>) -> u64 {
    rows.last_key_value().map_or(1, |(last, _)| last + 1)
}
