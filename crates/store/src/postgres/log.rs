//! Runs: create, append, load.
//!
//! Invariant: the rows that follow from an entry are written in the transaction that writes the entry (R1), under
//! the lock of the run's row, and nothing is chained to a log whose row or last entry cannot be trusted (S4). An
//! append is two round trips: the lock with everything that is judged on, then everything that is stored with the
//! commit. Not here: sealing and checking the entries themselves (`crate::entries`).

use std::collections::{BTreeSet, HashMap};

use countersign::{
    Append, AppendError, Changes, CreateError, Durability, LoadError, Log, PendingRow, Revision, RunId,
    RunState, StartKey, StoreFault, Writer,
};
use jiff::Timestamp;
use tokio_postgres::{Error, Row, Statement};

use super::connections::{Begin, Parameter, Transaction, failed, is_taken};
use super::outbox::Owing;
use super::people::INSERT_START;
use super::pipeline::{four, three, two};
use super::{PostgresStore, keys, policy};
use crate::chain::Chain;
use crate::entries::{Stored, Walk, ends_soundly, sealed};
use crate::row::{self, BadRow, Cells, RunRecord};
use crate::time;
use crate::vault::{RunKey, Vault};

/// What a decision or a start rests on, and where it goes.
pub(super) struct Aim<'a> {
    pub(super) run: &'a RunId,
    pub(super) at: Revision,
    pub(super) writer: &'a Writer,
    pub(super) now: Timestamp,
}

/// The database's time, in a column of its own.
pub(super) const TIME: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS clock";

/// The statement that finds a run.
pub(super) fn find() -> String {
    format!("SELECT {} FROM runs WHERE id = $1", RunRecord::COLUMNS)
}

/// The statement that finds a run and keeps everybody else from changing it.
pub(super) fn lock() -> String {
    format!("SELECT {}, {TIME} FROM runs WHERE id = $1 FOR UPDATE", RunRecord::COLUMNS)
}

/// The statement that finds a run and keeps it as it is, as long as somebody relies on that.
fn hold() -> String {
    format!("SELECT {} FROM runs WHERE id = $1 FOR SHARE", RunRecord::COLUMNS)
}

/// The statement that finds several runs.
fn find_each() -> String {
    format!("SELECT {} FROM runs WHERE id = ANY($1)", RunRecord::COLUMNS)
}

/// The statement of a whole log.
pub(super) fn log_statement() -> String {
    format!("SELECT {} FROM events WHERE run = $1 ORDER BY seq", Stored::COLUMNS)
}

/// The statement of several whole logs, each found and read in order by its key: nothing is sorted.
fn logs_statement() -> String {
    format!(
        "SELECT logs.* FROM unnest($1::text[]) AS wanted (id) CROSS JOIN LATERAL \
         (SELECT run, {} FROM events WHERE run = wanted.id ORDER BY seq) AS logs",
        Stored::COLUMNS
    )
}

/// The statement of the end of a log.
fn end_statement() -> String {
    format!("SELECT {} FROM events WHERE run = $1 ORDER BY seq DESC LIMIT 2", Stored::COLUMNS)
}

const INSERT_RUN: &str = "INSERT INTO runs (id, state, agent, owner, unattended, iterations, input_tokens, output_tokens, \
     cached_input_tokens, unknown_calls, limit_reached, failure, created_at, updated_at, finished_at, revision, head, mac, \
     key, continues, starter) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

/// What a run was created with never changes. The indexes are kept only where their columns changed, which
/// PostgreSQL sees by itself.
const UPDATE_RUN: &str = "UPDATE runs SET state = $2, iterations = $3, input_tokens = $4, output_tokens = $5, \
     cached_input_tokens = $6, unknown_calls = $7, limit_reached = $8, failure = $9, updated_at = $10, finished_at = $11, \
     revision = $12, head = $13, mac = $14, ticket = CASE WHEN $15 THEN nextval('tickets') ELSE ticket END \
     WHERE number = $1";

const INSERT_EVENTS: &str = "INSERT INTO events (run, seq, at, kind, sealed, mac) \
     SELECT $1::text, * FROM unnest($2::int8[], $3::text[], $4::text[], $5::bytea[], $6::bytea[])";

const UPSERT_PENDINGS: &str = "INSERT INTO pendings (run, id, kind, status, agent, owner, created_at, expires_at, decided_by) \
     SELECT $1::text, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) \
     ON CONFLICT (id) DO UPDATE SET run = excluded.run, kind = excluded.kind, status = excluded.status, \
     agent = excluded.agent, owner = excluded.owner, created_at = excluded.created_at, \
     expires_at = excluded.expires_at, decided_by = excluded.decided_by";

/// Tells whoever listens that a run changed, and whether there is work in it. It is heard after the commit.
const NOTIFY: &str = "SELECT pg_notify('countersign', $1)";

impl PostgresStore {
    /// A run's record, if there is such a run, and if it can be read.
    pub(super) async fn record(&self, run: &RunId) -> Result<Option<Result<RunRecord, BadRow>>, StoreFault> {
        let row = self.connections.row(&find(), &[&run.as_str()]).await?;
        Ok(row.map(|row| RunRecord::read(&row, &self.vault.root)))
    }

    /// A run's record, for those who can say that it cannot be read.
    pub(super) async fn readable(&self, run: &RunId) -> Result<RunRecord, LoadError> {
        readable(self.record(run).await?, run)
    }

    /// Stores a new run, and under which key it was started, if there is one.
    pub(super) async fn create_run(
        &self,
        changes: &Changes,
        started: Option<&StartKey>,
    ) -> Result<(), CreateError> {
        let tx = self.connections.transaction(Begin::Write(changes.durability())).await?;
        let [shared, installation, hold, insert, insert_start] =
            tx.statements([keys::SHARED, keys::STANDING, &hold(), INSERT_RUN, INSERT_START]).await?;
        let (_, rows) = tx.start(two(tx.query(&shared, &[]), tx.query(&installation, &[]))).await?;
        let master = crate::keys::current(&self.vault, &keys::follow(&rows, &self.vault)?)?;
        let row = changes.row();
        if let Some(before) = &row.continues {
            let id: [Parameter<'_>; 1] = [&before.as_str()];
            let found = tx.go_on(tx.query(&hold, &id)).await?;
            let found = found.first().and_then(|row| RunRecord::read(row, &self.vault.root).ok());
            if !found.is_some_and(|found| found.row.state.is_end() && found.erased_at.is_none()) {
                return Err(CreateError::NotContinuable(before.clone()));
            }
        }
        let (key, sealed_key) = self.vault.new_run(&master, &row.id)?;
        let entries = Entries::of(changes, &key, &self.vault, 0, Chain::BEGIN)?;
        let mac = self.vault.root.chain(&row.id).row(row, entries.revision, &entries.head, None);
        let store = Storing::prepare(&tx, changes, &entries, row.state == RunState::Active).await?;
        let times = [time::text(row.created_at), time::text(row.updated_at)];
        let finished_at = row.finished_at.map(time::text);
        let continues = row.continues.as_ref().map(RunId::as_str);
        let parameters: [Parameter<'_>; 21] = [
            &row.id.as_str(),
            &row.state.as_str(),
            &row.agent.as_str(),
            &row.owner.as_str(),
            &i64::from(row.unattended),
            &i64::from(row.iterations),
            &row.usage.input_tokens.cast_signed(),
            &row.usage.output_tokens.cast_signed(),
            &row.usage.cached_input_tokens.cast_signed(),
            &row.usage.unknown_calls.cast_signed(),
            &row.limit.map(|limit| limit.as_str()),
            &row.failure,
            &times[0],
            &times[1],
            &finished_at,
            &entries.revision.cast_signed(),
            &entries.head.as_slice(),
            &mac.as_slice(),
            &sealed_key,
            &continues,
            &row.starter.as_str(),
        ];
        let start = async {
            let Some(key) = started else { return Ok(()) };
            let body = self.vault.root.start(key.starter.as_str(), &key.key, key.body.bytes());
            let parameters: [Parameter<'_>; 4] =
                [&key.starter.as_str(), &key.key, &body.as_slice(), &row.id.as_str()];
            tx.query(&insert_start, &parameters).await.map(drop)
        };
        match tx.commit(three(tx.query(&insert, &parameters), store.all(&tx), start)).await {
            Ok(_) => Ok(()),
            Err(fault) if is_taken(&fault) => Err(CreateError::Exists),
            Err(fault) => Err(fault.into()),
        }
    }

    pub(super) async fn append_to(
        &self,
        aim: &Aim<'_>,
        append: Append,
    ) -> Result<Option<Changes>, AppendError> {
        match append {
            Append::Plain(changes) => {
                let begin = Begin::Write(changes.durability());
                let tx = self.connections.transaction(begin).await?;
                let [lock, end] = tx.statements([&lock(), &end_statement()]).await?;
                let run: [Parameter<'_>; 1] = [&aim.run.as_str()];
                let sent = self.clock.sent();
                let (run, end) = tx.start(two(tx.query(&lock, &run), tx.query(&end, &run))).await?;
                let target = self.target(&tx, aim, sent, &run, &end).await?;
                target.store(&tx, self, &changes, aim, false).await?;
                Ok(Some(changes))
            }
            Append::Judged { subjects, judge } => {
                let tx = self.connections.transaction(Begin::Write(Durability::Disk)).await?;
                let [lock, end] = tx.statements([&lock(), &end_statement()]).await?;
                let look = policy::Looking::prepare(&tx, &subjects).await?;
                let [shared] = tx.statements([policy::SHARED]).await?;
                let run: [Parameter<'_>; 1] = [&aim.run.as_str()];
                let sent = self.clock.sent();
                // Nobody can flip a switch or take a right between this look and the commit (G9, A8).
                let (_, run, end, look) = tx
                    .start(async {
                        let first =
                            three(tx.query(&shared, &[]), tx.query(&lock, &run), tx.query(&end, &run));
                        let ((shared, run, end), look) = two(first, look.all(&tx)).await?;
                        Ok((shared, run, end, look))
                    })
                    .await?;
                let target = self.target(&tx, aim, sent, &run, &end).await?;
                let Some(changes) = judge(&policy::seen(&look)) else { return Ok(None) };
                let hurried = changes.durability() == Durability::Process;
                target.store(&tx, self, &changes, aim, hurried).await?;
                Ok(Some(changes))
            }
        }
    }

    /// Whether something may be appended here now.
    async fn target(
        &self,
        tx: &Transaction,
        aim: &Aim<'_>,
        sent: Timestamp,
        run: &[Row],
        end: &[Row],
    ) -> Result<Target, AppendError> {
        let unreadable = |reason: String| AppendError::Unreadable { run: aim.run.clone(), reason };
        let Some(row) = run.first() else { return Err(AppendError::NotFound(aim.run.clone())) };
        self.hear(sent, row);
        let record = RunRecord::read(row, &self.vault.root).map_err(|bad| unreadable(bad.to_string()))?;
        // A worker that lost its run is told so first: it has nothing to judge again (R6).
        if let Writer::Worker(lease) = aim.writer
            && !record.is_leased_by(lease, aim.now)
        {
            return Err(AppendError::LeaseLost);
        }
        if record.revision != aim.at.0 {
            return Err(AppendError::Conflict);
        }
        let last_two = end.iter().map(|row| Stored::read(row)).collect();
        ends_soundly(last_two, &self.vault.root.chain(aim.run), &record)
            .map_err(|broken| unreadable(broken.to_string()))?;
        let key = keys::of_run(tx, &self.vault, &record).await?;
        let key = key.map_err(|broken| unreadable(broken.to_string()))?;
        Ok(Target { record, key })
    }

    /// Hears what time the database says it is.
    pub(super) fn hear(&self, sent: Timestamp, row: &Row) {
        if let Ok(time) = Cells::of(row, "runs", "id").number("clock") {
            self.clock.hear(sent, time);
        }
    }

    pub(super) async fn load_log(&self, run: &RunId) -> Result<Log, LoadError> {
        let tx = self.connections.transaction(Begin::Read).await?;
        let [find, log] = tx.statements([&find(), &log_statement()]).await?;
        let id: [Parameter<'_>; 1] = [&run.as_str()];
        let (rows, log) = tx.whole(two(tx.query(&find, &id), tx.query(&log, &id))).await?;
        drop(tx);
        self.opened(run, rows.first(), log.iter()).await
    }

    /// The logs of these runs as they stood at one moment, in this order.
    pub(super) async fn load_logs(&self, runs: &[RunId]) -> Result<Vec<Result<Log, LoadError>>, StoreFault> {
        let tx = self.connections.transaction(Begin::Read).await?;
        let [find, logs] = tx.statements([&find_each(), &logs_statement()]).await?;
        // Each once, or its entries would come twice.
        let ids: BTreeSet<&str> = runs.iter().map(RunId::as_str).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let ids: [Parameter<'_>; 1] = [&ids];
        let (rows, logs) = tx.whole(two(tx.query(&find, &ids), tx.query(&logs, &ids))).await?;
        drop(tx);
        let rows = by_run(&rows, "runs", "id")?;
        let logs = by_run(&logs, "events", "run")?;
        let mut loaded = Vec::with_capacity(runs.len());
        for run in runs {
            let row = rows.get(run.as_str()).and_then(|rows| rows.first());
            let log = logs.get(run.as_str()).into_iter().flatten().copied();
            loaded.push(match self.opened(run, row.copied(), log).await {
                Err(LoadError::Fault(fault)) => return Err(fault),
                opened => opened,
            });
        }
        Ok(loaded)
    }

    /// A log, checked and opened. Nothing is held meanwhile: another connection may be needed to learn of a key.
    async fn opened<'r>(
        &self,
        run: &RunId,
        row: Option<&Row>,
        log: impl Iterator<Item = &'r Row>,
    ) -> Result<Log, LoadError> {
        let record = readable(row.map(|row| RunRecord::read(row, &self.vault.root)), run)?;
        let key = match crate::keys::of_run(&self.vault, &record) {
            Some(key) => key,
            None => {
                let installation = keys::look(&self.connections, &self.vault).await?;
                crate::keys::after_following(&self.vault, &installation, &record)
            }
        };
        let entries = key.and_then(|key| {
            let mut walk = Walk::along(&record, &self.vault.root);
            let entries: Result<_, _> = log.map(|row| walk.open(row, &key)).collect();
            entries.and_then(|entries| walk.end().map(|_| entries))
        });
        match entries {
            Ok(entries) => Ok(Log { entries }),
            Err(broken) => Err(broken.of(run)),
        }
    }
}

/// Rows by the run that they belong to, in their order.
fn by_run<'r>(
    rows: &'r [Row],
    table: &'static str,
    column: &'static str,
) -> Result<HashMap<&'r str, Vec<&'r Row>>, StoreFault> {
    let mut by_run: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in rows {
        by_run.entry(Cells::of(row, table, column).text(column)?).or_default().push(row);
    }
    Ok(by_run)
}

fn readable(found: Option<Result<RunRecord, BadRow>>, run: &RunId) -> Result<RunRecord, LoadError> {
    match found {
        Some(Ok(record)) => Ok(record),
        Some(Err(bad)) => Err(LoadError::Unreadable { run: run.clone(), reason: bad.to_string() }),
        None => Err(LoadError::NotFound(run.clone())),
    }
}

/// A run to which something may be appended now.
struct Target {
    record: RunRecord,
    key: RunKey,
}

impl Target {
    /// Writes the entries and everything that follows from them, and commits; `hurried`: without waiting for the
    /// disk, which the beginning did not know.
    async fn store(
        &self,
        tx: &Transaction,
        store: &PostgresStore,
        changes: &Changes,
        aim: &Aim<'_>,
        hurried: bool,
    ) -> Result<(), StoreFault> {
        let (before, row, vault) = (&self.record, changes.row(), &store.vault);
        if row.id != before.row.id {
            return Err(failed(OfAnotherRun));
        }
        let entries = Entries::of(changes, &self.key, vault, before.revision, before.head)?;
        let mac = vault.root.chain(&row.id).row(row, entries.revision, &entries.head, before.erased_at);
        let is_work = row.state == RunState::Active && before.row.state != RunState::Active;
        // A worker need not be told of what it does itself; everybody else may want to look.
        let is_heard = is_work || *aim.writer == Writer::Anyone;
        let storing = Storing::prepare(tx, changes, &entries, is_heard).await?;
        let owing = Owing::prepare(tx, &store.subscriptions, changes, before.revision).await?;
        let [update, hurry] = tx.statements([UPDATE_RUN, "SET LOCAL synchronous_commit = off"]).await?;
        let (updated_at, finished_at) = (time::text(row.updated_at), row.finished_at.map(time::text));
        let parameters: [Parameter<'_>; 15] = [
            &before.number,
            &row.state.as_str(),
            &i64::from(row.iterations),
            &row.usage.input_tokens.cast_signed(),
            &row.usage.output_tokens.cast_signed(),
            &row.usage.cached_input_tokens.cast_signed(),
            &row.usage.unknown_calls.cast_signed(),
            &row.limit.map(|limit| limit.as_str()),
            &row.failure,
            &updated_at,
            &finished_at,
            &entries.revision.cast_signed(),
            &entries.head.as_slice(),
            &mac.as_slice(),
            &is_work,
        ];
        let hurry = async { if hurried { tx.query(&hurry, &[]).await.map(drop) } else { Ok(()) } };
        let owe = async {
            match &owing {
                Some(owing) => owing.all(tx, row.id.as_str()).await,
                None => Ok(()),
            }
        };
        tx.commit(four(hurry, tx.query(&update, &parameters), storing.all(tx), owe)).await.map(drop)
    }
}

/// New entries, column by column.
struct Entries {
    stored: Vec<Stored>,
    revision: u64,
    head: [u8; 32],
}

impl Entries {
    fn of(
        changes: &Changes,
        key: &RunKey,
        vault: &Vault,
        first: u64,
        head: [u8; 32],
    ) -> Result<Self, StoreFault> {
        let stored = sealed(changes, key, &vault.root.chain(&changes.row().id), first, head)?;
        Ok(Self {
            revision: first + stored.len() as u64,
            head: stored.last().map_or(head, |entry| entry.mac),
            stored,
        })
    }
}

/// What is stored of an append besides the run's row.
struct Storing<'a> {
    run: &'a str,
    entries: &'a Entries,
    inbox: Inbox<'a>,
    is_heard: bool,
    insert: Statement,
    upsert: Statement,
    notify: Statement,
}

impl<'a> Storing<'a> {
    /// `is_heard`: whoever listens is told.
    async fn prepare(
        tx: &Transaction,
        changes: &'a Changes,
        entries: &'a Entries,
        is_heard: bool,
    ) -> Result<Self, StoreFault> {
        let [insert, upsert, notify] = tx.statements([INSERT_EVENTS, UPSERT_PENDINGS, NOTIFY]).await?;
        let (run, inbox) = (changes.row().id.as_str(), Inbox::of(changes.inbox()));
        Ok(Self { run, entries, inbox, is_heard, insert, upsert, notify })
    }

    async fn all(&self, tx: &Transaction) -> Result<(), Error> {
        three(self.events(tx), self.pendings(tx), self.notify(tx)).await.map(drop)
    }

    async fn events(&self, tx: &Transaction) -> Result<(), Error> {
        let stored = &self.entries.stored;
        let seqs: Vec<i64> = stored.iter().map(|entry| entry.seq.cast_signed()).collect();
        let times: Vec<&str> = stored.iter().map(|entry| entry.at.as_str()).collect();
        let kinds: Vec<&str> = stored.iter().map(|entry| entry.kind.as_str()).collect();
        let sealed: Vec<&[u8]> = stored.iter().map(|entry| entry.sealed.as_slice()).collect();
        let macs: Vec<&[u8]> = stored.iter().map(|entry| entry.mac.as_slice()).collect();
        let parameters: [Parameter<'_>; 6] = [&self.run, &seqs, &times, &kinds, &sealed, &macs];
        tx.query(&self.insert, &parameters).await.map(drop)
    }

    async fn pendings(&self, tx: &Transaction) -> Result<(), Error> {
        let inbox = &self.inbox;
        if inbox.ids.is_empty() {
            return Ok(());
        }
        let parameters: [Parameter<'_>; 9] = [
            &self.run,
            &inbox.ids,
            &inbox.kinds,
            &inbox.statuses,
            &inbox.agents,
            &inbox.owners,
            &inbox.created,
            &inbox.expires,
            &inbox.deciders,
        ];
        tx.query(&self.upsert, &parameters).await.map(drop)
    }

    async fn notify(&self, tx: &Transaction) -> Result<(), Error> {
        if self.is_heard { tx.query(&self.notify, &[&self.run]).await.map(drop) } else { Ok(()) }
    }
}

/// Rows of the inbox, column by column.
#[derive(Default)]
struct Inbox<'a> {
    ids: Vec<&'a str>,
    kinds: Vec<&'a str>,
    statuses: Vec<&'a str>,
    agents: Vec<&'a str>,
    owners: Vec<&'a str>,
    created: Vec<String>,
    expires: Vec<Option<String>>,
    deciders: Vec<Option<&'a str>>,
}

impl<'a> Inbox<'a> {
    /// Of several rows of one question the last one, which is what it has come to.
    fn of(rows: &'a [PendingRow]) -> Self {
        let mut inbox = Self::default();
        for (place, row) in rows.iter().enumerate() {
            if rows[place + 1..].iter().any(|later| later.id == row.id) {
                continue;
            }
            inbox.ids.push(row.id.as_str());
            inbox.kinds.push(&row.kind);
            inbox.statuses.push(row.status.as_str());
            inbox.agents.push(row.agent.as_str());
            inbox.owners.push(row.owner.as_str());
            inbox.created.push(time::text(row.created_at));
            inbox.expires.push(row::deadline(row.expires_at));
            inbox.deciders.push(row.decided_by.as_ref().map(|by| by.as_str()));
        }
        inbox
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the changes belong to another run")]
struct OfAnotherRun;
