//! Time, chance and sleep come in from here, and from nowhere else; `clippy.toml` forbids the ambient ones.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

/// The outside that every run depends on: what time it is, and what chance says.
#[async_trait]
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, in UTC.
    fn now(&self) -> Timestamp;

    /// Returns after this long.
    async fn sleep(&self, duration: Duration);

    /// Sixteen bytes that nobody can guess, for ids and lease tokens.
    fn random(&self) -> [u8; 16];
}

/// The machine's own clock and random source.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that may ask the machine")]
    fn now(&self) -> Timestamp {
        // To the microsecond, which every store and every reader can hold.
        let now = Timestamp::now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that may ask the machine")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that may ask the machine")]
    #[expect(clippy::expect_used, reason = "without a random source no id and no token is safe: stop")]
    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        bytes
    }
}
