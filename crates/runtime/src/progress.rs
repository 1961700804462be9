//! What a run is doing, for whoever watches it live. Watching changes nothing.

use countersign_core::{Event, ModelRef};
use std::time::Duration;

/// Something that takes a while has begun.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Doing<'a> {
    /// A model is asked.
    Asking(&'a ModelRef),
    /// An attempt failed; the next comes after this long.
    Retrying {
        /// The model.
        model: &'a ModelRef,
        /// What was wrong with the last attempt.
        reason: &'a str,
        /// How long until the next.
        after: Duration,
    },
}

/// Whoever watches.
pub trait Progress: Send + Sync {
    /// An event of the run: stored, or, where it may be lost and found out again, to be stored before anybody
    /// acts on it. Each is told once, in order.
    fn happened(&self, event: &Event);
    /// Something that takes a while has begun.
    fn doing(&self, doing: Doing<'_>);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn happened(&self, _event: &Event) {}
    fn doing(&self, _doing: Doing<'_>) {}
}
