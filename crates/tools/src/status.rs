//! What the two tools about runs have in common: the store, the time, and words for both.
//!
//! Invariant: only rows are read, never a log, so nothing of what was said in a run gets into an answer, and every
//! question to the store is bounded. Not here: which runs a person may see elsewhere (the server).

use std::sync::Arc;

use countersign::{Clock, Store, StoreFault, ToolError};
use jiff::Timestamp;

/// The most rows of one question to the store.
pub(crate) const PAGE_ROWS: usize = 200;

/// Where runs are kept, and what time it is.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The store's failure in a sentence for the model: which of the few kinds, and none of its details.
pub(crate) fn unreadable(fault: &StoreFault) -> ToolError {
    ToolError::answered(format!("The runs cannot be read: {fault}."))
}

/// A moment to the second, in UTC.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How long ago, in the largest whole unit; a moment to come is now.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400.. => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn an_age_is_a_whole_number_and_a_unit() {
        let since = Timestamp::UNIX_EPOCH;
        for (seconds, words) in [
            (-5, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (86_399, "23h"),
            (86_400, "1d"),
            (864_000, "10d"),
        ] {
            assert_eq!(age(since, since + SignedDuration::from_secs(seconds)), words, "{seconds}");
        }
    }
}
