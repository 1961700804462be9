//! Which process holds a lease, and whether it is still there (R6).
//!
//! Invariant: a process that works keeps a lock of the database on a number of its own, on the connection on which it
//! listens, and takes its leases under that number. PostgreSQL takes the lock away when the connection ends. One that
//! was only cut off comes back and locks its number again; so a number counts as gone when it has been missing for
//! [`GRACE`], as somebody saw who was there all the time. A run with a call in flight is not freed even then: a worker that was cut off, or stood still, and
//! has a call to send or an answer to bring, relies on its lease, and a write that nobody waits for would only become unknown
//! sooner. Whoever does not listen, or could not lock its number, takes leases under none. All these run out. Not here: what a lease is (`leases`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign::Clock;
use tokio_postgres::Client;
use tokio_postgres::error::Error;

/// How often it is looked who is missing.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks in a row must miss a number.
const GRACE: u32 = 5;
/// The first half of every such lock: "CSGN".
const CLASS: i32 = 0x4353_474e;
/// Whose number is locked.
const IS_HELD: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 \
     AND classid::int8 = 1129531214 AND objid::int8 = lease_holder \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// Whether no call of a run is in flight. It counts only if the log did not go on meanwhile: of a row that had to be waited
/// for, this statement sees the new revision and the old events.
const IS_IDLE: &str = "revision = (SELECT max(seq) + 1 FROM countersign.events WHERE run = runs.id) \
     AND coalesce((SELECT kind FROM countersign.events WHERE run = runs.id \
         AND kind IN ('call.started', 'call.finished', 'call.unknown') ORDER BY seq DESC LIMIT 1), '') <> 'call.started'";

/// The number of this process.
#[derive(Debug)]
pub(super) struct Holder {
    number: i32,
    is_locked: AtomicBool,
}

impl Holder {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let [a, b, c, d, ..] = clock.random();
        Self { number: i32::from_le_bytes([a, b, c, d]) & i32::MAX, is_locked: AtomicBool::new(false) }
    }

    /// Under which number this process takes leases, if others can tell when it is gone.
    pub(super) fn number(&self) -> Option<i32> {
        self.is_locked.load(Ordering::Relaxed).then_some(self.number)
    }

    /// Keeps the number locked and frees what those hold who are gone, until the connection is lost. `freed` is called
    /// after each time that something was.
    pub(super) async fn keep(
        &self,
        client: &Client,
        clock: &dyn Clock,
        freed: impl Fn(),
    ) -> Result<(), Error> {
        client.batch_execute("SET lock_timeout = '5s'").await?;
        let held = Held(self);
        let mut missing = HashMap::new();
        loop {
            held.lock(client).await?;
            if look(client, &mut missing).await? {
                freed();
            }
            clock.sleep(LOOK).await;
        }
    }
}

/// As long as this is kept, the number may be locked.
struct Held<'a>(&'a Holder);

impl Held<'_> {
    /// Locks the number, if it is not locked yet: a connection that was lost may still have it for a while.
    async fn lock(&self, client: &Client) -> Result<(), Error> {
        if self.0.number().is_none() {
            let row =
                client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&CLASS, &self.0.number]).await?;
            self.0.is_locked.store(row.try_get(0)?, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.is_locked.store(false, Ordering::Relaxed);
    }
}

/// Looks who is missing, and for how many looks, and frees the runs of those that are gone. `true`: some were freed.
async fn look(client: &Client, missing: &mut HashMap<i32, u32>) -> Result<bool, Error> {
    let select = format!(
        "SELECT DISTINCT lease_holder FROM countersign.runs WHERE lease_holder IS NOT NULL AND NOT {IS_HELD}"
    );
    let mut now = HashMap::new();
    for row in client.query(&client.prepare(&select).await?, &[]).await? {
        let number = row.try_get(0)?;
        now.insert(number, missing.get(&number).map_or(1, |looks| looks + 1));
    }
    *missing = now;
    let gone: Vec<i32> =
        missing.iter().filter(|(_, looks)| **looks > GRACE).map(|(number, _)| *number).collect();
    if gone.is_empty() {
        return Ok(false);
    }
    let free = format!(
        "WITH freed AS (UPDATE countersign.runs SET lease_token = NULL, lease_until = NULL, lease_holder = NULL \
         WHERE lease_holder = ANY($1) AND NOT {IS_HELD} AND {IS_IDLE} RETURNING id) \
         SELECT pg_notify('countersign', id) FROM freed"
    );
    Ok(!client.query(&free, &[&gone]).await?.is_empty())
}
