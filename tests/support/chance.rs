//! Chance that can be repeated: a seed from outside, or a new one.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Chosen from outside, or not.
pub(crate) fn chosen(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how a test is to be repeated")]
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{variable}: {error}")))
}

/// A seed, said on standard output, which the test runner shows when the test fails.
pub(crate) fn seed(variable: &str) -> u64 {
    let seed = chosen(variable).unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("{variable}={seed}");
    seed
}

/// Numbers that look random, from a seed (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A moment within this.
    pub(crate) fn moment(&mut self, of: Duration) -> Duration {
        of * u32::try_from(self.below(1000)).unwrap() / 1000
    }

    /// One of these, if there is any.
    pub(crate) fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let chosen = self.below(of.len().max(1) as u64);
        of.get(usize::try_from(chosen).unwrap()).copied()
    }
}
