//! What the world is told of a run, and who wants to be told.
//!
//! Invariant: which notices an append owes follows from its events and from who subscribed, by one function, so every
//! store owes the same ones. A notice points to an event and holds nothing of it. Not here: who is told in which words,
//! and how they get there.

use std::collections::BTreeSet;

use crate::event::Event;
use crate::name::WebhookName;
use crate::summary::Changes;

/// What somebody can be told of: a person is needed, has spoken, or is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the kinds of events of the contract")]
pub enum NoticeKind {
    PendingOpened,
    PendingDecided,
    RunCompleted,
    RunFailed,
    RunCancelled,
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::PendingOpened, Self::PendingDecided, Self::RunCompleted, Self::RunFailed, Self::RunCancelled];

    /// The kind of the event, in the contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PendingOpened => "pending.opened",
            Self::PendingDecided => "pending.decided",
            Self::RunCompleted => "run.completed",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
        }
    }

    /// Reads such a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// What an event is to those who are told; `None`: nobody is told of it.
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::PendingOpened(_) => Some(Self::PendingOpened),
            Event::PendingDecided(_) => Some(Self::PendingDecided),
            Event::RunCompleted(_) => Some(Self::RunCompleted),
            Event::RunFailed(_) => Some(Self::RunFailed),
            Event::RunCancelled(_) => Some(Self::RunCancelled),
            Event::RunCreated(_)
            | Event::GateDenied(_)
            | Event::WorkBegan(_)
            | Event::ContextFitted(_)
            | Event::ModelReplied(_)
            | Event::ModelFailed(_)
            | Event::PendingRefused(_)
            | Event::PendingEdited(_)
            | Event::PendingClosed(_)
            | Event::CallStarted(_)
            | Event::CallFinished(_)
            | Event::CallUnknown(_)
            | Event::LimitReached(_)
            | Event::CancelRequested(_) => None,
        }
    }
}

/// Who wants to be told of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Who.
    pub webhook: WebhookName,
    /// Of what.
    pub kinds: BTreeSet<NoticeKind>,
}

/// Everybody who wants to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions(Vec<Subscription>);

impl Subscriptions {
    /// These.
    pub fn new(all: impl IntoIterator<Item = Subscription>) -> Self {
        Self(all.into_iter().collect())
    }

    /// Who must be told of which event of an append, whose first event has the sequence `first`.
    pub fn owed(&self, changes: &Changes, first: u64) -> Vec<(&WebhookName, u64)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let kinds =
            (first..).zip(changes.events()).filter_map(|(seq, event)| Some((seq, NoticeKind::of(event)?)));
        kinds
            .flat_map(|(seq, kind)| {
                let told = self.0.iter().filter(move |subscription| subscription.kinds.contains(&kind));
                told.map(move |subscription| (&subscription.webhook, seq))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_events() {
        for kind in NoticeKind::ALL {
            assert_eq!(NoticeKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(NoticeKind::from_word("model.replied"), None);
    }
}
