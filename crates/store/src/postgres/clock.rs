//! The clock of the database, for everybody who works on it.
//!
//! Invariant: leases are taken, kept and found over, and deadlines are set and judged, by one clock, whatever the
//! clocks of the machines say. Each answer that tells the database's time bounds how far the local clock is off;
//! the offset is changed only where it was proven wrong, so time does not jitter.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign::Clock;
use jiff::{SignedDuration, Timestamp};

/// The time of the database, by the local clock and how far that is off.
#[derive(Debug)]
pub struct DatabaseClock {
    local: Arc<dyn Clock>,
    /// In microseconds, to be added to the local time.
    offset: AtomicI64,
}

impl DatabaseClock {
    /// A clock that is right as soon as it has heard the database once.
    pub(super) fn new(local: Arc<dyn Clock>) -> Self {
        Self { local, offset: AtomicI64::new(0) }
    }

    /// The moment, by the local clock, at which a question is sent.
    pub(super) fn sent(&self) -> Timestamp {
        self.local.now()
    }

    /// Hears what the database said its time was, in microseconds after 1970, in answer to what was sent at
    /// `sent`: between then and now, by the local clock.
    pub(super) fn hear(&self, sent: Timestamp, database: i64) {
        let (earliest, latest) =
            (database - self.local.now().as_microsecond(), database - sent.as_microsecond());
        // A local clock that was set back meanwhile proves nothing.
        if earliest <= latest {
            let before = self.offset.load(Ordering::Relaxed);
            self.offset.store(before.clamp(earliest, latest), Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_micros(self.offset.load(Ordering::Relaxed));
        let now = self.local.now();
        now.checked_add(offset).unwrap_or(now)
    }

    fn random(&self) -> [u8; 16] {
        self.local.random()
    }

    async fn sleep(&self, length: Duration) {
        self.local.sleep(length).await;
    }
}

#[cfg(test)]
mod tests {
    use countersign::testing::ManualClock;

    use super::*;

    #[test]
    fn rule_r6_the_offset_is_what_the_answers_prove_and_changes_only_when_it_was_wrong() {
        let start = Timestamp::from_second(1_790_000_000).unwrap();
        let local = Arc::new(ManualClock::at(start));
        let clock = DatabaseClock::new(Arc::clone(&local) as Arc<dyn Clock>);
        let later = |seconds: i64| start + SignedDuration::from_secs(seconds);
        let heard = |clock: &DatabaseClock, took: u64, database: Timestamp| {
            let sent = clock.sent();
            local.advance(Duration::from_secs(took));
            clock.hear(sent, database.as_microsecond());
        };
        // The database is between 98 and 100 seconds ahead, and at least that.
        heard(&clock, 2, later(100));
        assert_eq!(clock.now(), later(100));
        // Between 97 and 99: what is believed may be right.
        heard(&clock, 2, later(101));
        assert_eq!(clock.now(), later(102), "local 4, and 98 ahead");
        // Exactly 99.
        heard(&clock, 0, later(103));
        assert_eq!(clock.now(), later(103));
        // Somebody set the local clock; the next answer tells.
        local.advance(Duration::from_secs(1000));
        heard(&clock, 0, later(104));
        assert_eq!(clock.now(), later(104));
    }
}
