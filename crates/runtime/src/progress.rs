//! What a run is doing, for whoever watches it live. Watching changes nothing.

use countersign_core::{Event, ModelRef, Run};
use std::time::Duration;

use crate::driver::Halt;
use crate::journal::DriveError;

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

/// Whoever watches. They may see several drives, one after another; each begins with [`Self::takes_up`], unless the run
/// cannot be read or its agent is not configured here, and ends with [`Self::lets_go`], unless it is cut off.
pub trait Progress: Send + Sync {
    /// A driver takes up the run, which stands like this. Whoever traces its work says here where, in words of their own:
    /// what comes back is kept with every question of this drive ([`Pending::trace`](countersign_core::Pending::trace)),
    /// for whoever takes the run up after the answer. Nothing is stored for it alone.
    fn takes_up(&self, _run: &Run) -> Option<String> {
        None
    }
    /// An event of the run: stored, or, where it may be lost and found out again, to be stored before anybody
    /// acts on it. Each is told once, in order.
    fn happened(&self, event: &Event);
    /// Something that takes a while has begun.
    fn doing(&self, doing: Doing<'_>);
    /// The driver has let go of the run: how it stands, or what went wrong.
    fn lets_go(&self, _driven: &Result<(Halt, Run), DriveError>) {}
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn happened(&self, _event: &Event) {}
    fn doing(&self, _doing: Doing<'_>) {}
}
