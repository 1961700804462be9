//! Lists: runs, the inbox, what is overdue.

use countersign_core::{Deadline, PendingId, PendingStatus, RunId, RunState};

use super::sample::*;
use super::{Damage, Harness, done};
use crate::store::{PendingFilter, RunFilter, Store};

fn ids(numbers: &[u8]) -> Vec<RunId> {
    numbers.iter().map(|number| run_id(*number)).collect()
}

fn pending_ids(numbers: &[u8]) -> Vec<PendingId> {
    numbers.iter().map(|number| pending_id(*number)).collect()
}

/// All pages of a list, with something happening before each of them but the first.
async fn all_runs(
    store: &dyn Store,
    filter: &RunFilter,
    limit: usize,
    between: impl AsyncFn(u8),
) -> Vec<RunId> {
    let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = done(store.runs(filter, at(100), limit, cursor.as_deref()).await);
        assert!(page.items.len() <= limit);
        found.extend(page.items.into_iter().map(|listing| listing.row.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return found,
        }
        pages += 1;
        between(pages).await;
    }
}

async fn all_pendings(
    store: &dyn Store,
    filter: &PendingFilter,
    limit: usize,
    between: impl AsyncFn(u8),
) -> Vec<PendingId> {
    let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = done(store.pendings(filter, limit, cursor.as_deref()).await);
        assert!(page.items.len() <= limit);
        found.extend(page.items.into_iter().map(|row| row.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return found,
        }
        pages += 1;
        between(pages).await;
    }
}

pub async fn runs_are_paged_newest_first_without_gaps_or_repeats<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in 1..=7 {
        start(&*store, number).await;
    }
    let filter = RunFilter::default();
    let found = all_runs(&*store, &filter, 3, async |page| {
        start(&*store, 10 + page).await;
    })
    .await;
    assert_eq!(found, ids(&[7, 6, 5, 4, 3, 2, 1]), "what is added meanwhile is newer than all of it");
    assert_eq!(all_runs(&*store, &filter, 9, async |_| {}).await, ids(&[12, 11, 7, 6, 5, 4, 3, 2, 1]));
    let whole = done(store.runs(&filter, at(100), 9, None).await);
    assert_eq!(whole.next, None, "a full last page is the last");
    assert_eq!(done(store.runs(&filter, at(100), usize::MAX, None).await), whole);
}

pub async fn runs_are_filtered<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start_as(&*store, 1, "a", "alice").await;
    start_waiting(&*store, 2, "a", "bob", Deadline::Never).await;
    start_waiting(&*store, 3, "b", "alice", Deadline::Never).await;
    let ended = start_as(&*store, 4, "a", "alice").await;
    go_on(&*store, &ended, vec![words("done"), completion()], at(9)).await;
    start_as(&*store, 5, "b", "bob").await;
    let (waiting, active, done_) = (RunState::WaitingForApproval, RunState::Active, RunState::Completed);
    for (states, agent_name, owner, expected) in [
        (vec![], None, None, &[5, 4, 3, 2, 1][..]),
        (vec![active], None, None, &[5, 1]),
        (vec![done_, waiting, waiting], None, None, &[4, 3, 2]),
        (vec![], Some("a"), None, &[4, 2, 1]),
        (vec![], None, Some("alice"), &[4, 3, 1]),
        (vec![active, waiting], Some("a"), None, &[2, 1]),
        (vec![active, done_], None, Some("alice"), &[4, 1]),
        (vec![], Some("b"), Some("bob"), &[5]),
        (vec![waiting], Some("b"), Some("alice"), &[3]),
        (vec![RunState::Failed], Some("a"), Some("bob"), &[]),
        (vec![], Some("c"), None, &[]),
    ] {
        let filter =
            RunFilter { states, agent: agent_name.map(agent), owner: owner.map(subject), starter: None };
        for limit in [1, 2, 10] {
            assert_eq!(
                all_runs(&*store, &filter, limit, async |_| {}).await,
                ids(expected),
                "{filter:?} by {limit}"
            );
        }
    }
}

pub async fn runs_are_filtered_by_who_started_them<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start(&*store, 1).await;
    start_for_alice(&*store, 2, "robot").await;
    start_as(&*store, 3, "default", "robot").await;
    let ended = start_for_alice(&*store, 4, "robot").await;
    go_on(&*store, &ended, vec![words("done"), completion()], at(9)).await;
    for (states, owner, starter, expected) in [
        (vec![], None, "robot", &[4, 3, 2][..]),
        (vec![], Some("alice"), "robot", &[4, 2]),
        (vec![RunState::Active], None, "robot", &[3, 2]),
        (vec![RunState::Completed, RunState::Active], Some("alice"), "robot", &[4, 2]),
        (vec![], None, "alice", &[1]),
        (vec![], None, "nobody", &[]),
    ] {
        let filter =
            RunFilter { states, agent: None, owner: owner.map(subject), starter: Some(subject(starter)) };
        for limit in [1, 2, 10] {
            assert_eq!(
                all_runs(&*store, &filter, limit, async |_| {}).await,
                ids(expected),
                "{filter:?} by {limit}"
            );
        }
    }
}

pub async fn pendings_are_paged_oldest_first_without_gaps_or_repeats<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in 1..=7 {
        start_waiting(&*store, number, "default", "alice", Deadline::Never).await;
    }
    let found = all_pendings(&*store, &PendingFilter::default(), 3, async |page| {
        start_waiting(&*store, 10 + page, "default", "alice", Deadline::Never).await;
    })
    .await;
    assert_eq!(found, pending_ids(&[1, 2, 3, 4, 5, 6, 7, 11, 12]), "what is added meanwhile is at the end");
    assert_eq!(done(store.pendings(&PendingFilter::default(), 9, None).await).next, None);
}

pub async fn pendings_are_filtered<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start_waiting(&*store, 1, "a", "alice", Deadline::Never).await;
    let decided = start_waiting(&*store, 2, "a", "bob", Deadline::Never).await;
    go_on(&*store, &decided, vec![approval(2)], at(9)).await;
    start_waiting(&*store, 3, "b", "alice", Deadline::Never).await;
    let closed = start_waiting(&*store, 4, "b", "bob", Deadline::At(at(5))).await;
    go_on(&*store, &closed, vec![expiry(4)], at(9)).await;
    for (status, agent_name, run, owner, expected) in [
        (None, None, None, None, &[1, 2, 3, 4][..]),
        (Some(PendingStatus::Open), None, None, None, &[1, 3]),
        (Some(PendingStatus::Approved), None, None, None, &[2]),
        (Some(PendingStatus::Expired), None, None, None, &[4]),
        (None, Some("a"), None, None, &[1, 2]),
        (None, None, Some(3), None, &[3]),
        (None, None, None, Some("bob"), &[2, 4]),
        (Some(PendingStatus::Open), Some("a"), None, Some("alice"), &[1]),
        (Some(PendingStatus::Open), None, None, Some("bob"), &[]),
        (None, None, Some(3), Some("bob"), &[]),
        (Some(PendingStatus::Expired), Some("b"), Some(4), Some("bob"), &[4]),
    ] {
        let filter = PendingFilter {
            status,
            agent: agent_name.map(agent),
            run: run.map(run_id),
            owner: owner.map(subject),
        };
        for limit in [1, 10] {
            assert_eq!(
                all_pendings(&*store, &filter, limit, async |_| {}).await,
                pending_ids(expected),
                "{filter:?}"
            );
        }
    }
}

pub async fn a_cursor_that_was_never_given_out_leads_nowhere<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start_waiting(&*store, 1, "default", "alice", Deadline::Never).await;
    for cursor in ["", "x", "1 OR 1", "99999999999999999999999"] {
        let runs = done(store.runs(&RunFilter::default(), at(9), 10, Some(cursor)).await);
        assert_eq!((runs.items, runs.next), (vec![], None), "{cursor}");
        let pendings = done(store.pendings(&PendingFilter::default(), 10, Some(cursor)).await);
        assert_eq!((pendings.items, pendings.next), (vec![], None), "{cursor}");
    }
}

pub async fn rule_r2_a_spoiled_row_stops_no_page<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in 1..=5 {
        start_waiting(&*store, number, "default", "alice", Deadline::At(at(1))).await;
    }
    harness.damage(Damage::Run(run_id(3))).await;
    harness.damage(Damage::Pending(pending_id(3))).await;
    for limit in [1, 2, 10] {
        assert_eq!(all_runs(&*store, &RunFilter::default(), limit, async |_| {}).await, ids(&[5, 4, 2, 1]));
        let found = all_pendings(&*store, &PendingFilter::default(), limit, async |_| {}).await;
        assert_eq!(found, pending_ids(&[1, 2, 4, 5]));
    }
    assert!(store.pending(&pending_id(3)).await.is_err(), "it is there, and cannot be read");
    assert_eq!(done(store.overdue(at(9), 10).await).len(), 4);
}

pub async fn rule_a10_what_is_overdue_is_found<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for (number, deadline) in [
        (1, Deadline::At(at(50))),
        (2, Deadline::Never),
        (3, Deadline::At(at(30))),
        (4, Deadline::At(at(40))),
        (5, Deadline::At(at(30))),
        (6, Deadline::Unreadable),
        (7, Deadline::At(at(20))),
    ] {
        let run = start_waiting(&*store, number, "default", "alice", deadline).await;
        if number == 7 {
            go_on(&*store, &run, vec![approval(7)], at(8)).await;
        }
    }
    harness.damage(Damage::Deadline(pending_id(5))).await;
    let overdue = async |now, limit| {
        let rows = done(store.overdue(at(now), limit).await);
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let mut unreadable = overdue(10, 10).await;
    unreadable.sort();
    let mut expected = pending_ids(&[5, 6]);
    expected.sort();
    assert_eq!(unreadable, expected, "what cannot be read has passed, for ever is not a deadline");
    assert_eq!(overdue(30, 10).await.len(), 2, "the deadline itself is in time");
    assert_eq!(overdue(45, 10).await[2..], pending_ids(&[3, 4]));
    assert_eq!(overdue(1000, 10).await[2..], pending_ids(&[3, 4, 1]));
    assert_eq!(overdue(1000, 3).await.len(), 3);
    let row = done(store.pending(&pending_id(5)).await);
    assert_eq!(row.map(|row| row.expires_at), Some(Deadline::Unreadable));
}

pub async fn rule_a9_refusals_are_counted<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    start_waiting(&*store, 1, "default", "alice", Deadline::Never).await;
    let run = start_waiting(&*store, 2, "default", "alice", Deadline::Never).await;
    for before in 0..25 {
        assert_eq!(done(store.count_refusal(&pending_id(1)).await), before);
    }
    assert_eq!(done(store.count_refusal(&pending_id(2)).await), 0);
    go_on(&*store, &run, vec![approval(2)], at(9)).await;
    assert_eq!(done(store.count_refusal(&pending_id(2)).await), 1, "it is counted beyond the decision");
}
