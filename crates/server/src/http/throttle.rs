//! How many wrong tokens may come from one address.
//!
//! Invariant: only failures are counted, and a good token is always let in, so nobody behind the same address can lock
//! others out; a token cannot be guessed however often it is tried. Memory is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// So many at once.
const BURST: u32 = 20;
/// And then one in so many seconds.
const SECONDS_EACH: i64 = 3;
/// The most addresses that are remembered.
const ADDRESSES_MAX: usize = 10_000;

/// The failures of late.
#[derive(Debug, Default)]
pub(crate) struct FailedTokens(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    since: Timestamp,
}

impl FailedTokens {
    /// Counts one. `Some`: there were too many, and so many seconds are to be waited.
    pub(crate) fn count(&self, from: Option<IpAddr>, now: Timestamp) -> Option<u32> {
        // Whoever has no address shares one.
        let from = from.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= ADDRESSES_MAX {
            addresses.retain(|_, failures| failures.left(now) > 0);
        }
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&from) {
            return u32::try_from(SECONDS_EACH).ok();
        }
        let failures = addresses.entry(from).or_insert(Failures { count: 0, since: now });
        *failures = Failures { count: failures.left(now), since: now };
        if failures.count >= BURST {
            return u32::try_from(SECONDS_EACH).ok();
        }
        failures.count += 1;
        None
    }
}

impl Failures {
    /// How many are not forgiven yet.
    fn left(&self, now: Timestamp) -> u32 {
        let passed = (now.as_second() - self.since.as_second()).max(0) / SECONDS_EACH;
        self.count.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn wrong_tokens_of_one_address_are_bounded_and_forgiven_with_time() {
        let failed = FailedTokens::default();
        let (here, there) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        let now = Timestamp::UNIX_EPOCH;
        for _ in 0..BURST {
            assert_eq!(failed.count(here, now), None);
        }
        assert_eq!(failed.count(here, now), Some(3));
        assert_eq!(failed.count(there, now), None, "another address is another address");
        let later = now + SignedDuration::from_secs(SECONDS_EACH);
        assert_eq!(failed.count(here, later), None);
        assert_eq!(failed.count(here, later), Some(3));
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_there_are() {
        let failed = FailedTokens::default();
        for address in 0..20_000_u32 {
            failed.count(Some(IpAddr::from(address.to_be_bytes())), Timestamp::UNIX_EPOCH);
        }
        assert!(failed.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
