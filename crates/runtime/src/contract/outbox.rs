//! What is owed to whom.

use std::sync::Arc;
use std::time::Duration;

use countersign_core::{Deadline, NoticeKind, Subscription, Subscriptions, WebhookName};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::sample::*;
use super::{Harness, done};
use crate::outbox::{Notice, Outbox, PUT_OFF_MAX, Telling, WebhookState};
use crate::store::{Append, AppendError, Revision, Writer};

const LEASE: Duration = Duration::from_secs(30);

fn webhook(name: &str) -> WebhookName {
    done(WebhookName::parse(name))
}

/// `desk` is told of questions, `log` of everything.
fn both() -> Subscriptions {
    let kinds = |kinds: &[NoticeKind]| kinds.iter().copied().collect();
    Subscriptions::new([
        Subscription { webhook: webhook("desk"), kinds: kinds(&[NoticeKind::PendingOpened]) },
        Subscription { webhook: webhook("log"), kinds: kinds(&NoticeKind::ALL) },
    ])
}

async fn claim(outbox: &dyn Outbox, name: &str, token: &str, now: Timestamp) -> Vec<Notice> {
    let mut taken = done(outbox.claim_notices(&webhook(name), token.to_owned(), now, LEASE, 10).await);
    taken.sort_by_key(|notice| (notice.run.to_string(), notice.seq));
    taken
}

fn notice(name: &str, run: u8, seq: u64, attempts: u32, token: &str) -> Notice {
    Notice { webhook: webhook(name), run: run_id(run), seq, attempts, token: token.to_owned() }
}

fn state(name: &str, owed: u64, given_up: u64, gone_since: Option<Timestamp>) -> WebhookState {
    WebhookState { webhook: webhook(name), owed, given_up, gone_since }
}

/// Owes `desk` and `log` that question 1 was opened at second 1.
async fn asked<H: Harness>() -> (H, Arc<dyn Outbox>) {
    let harness = H::fresh().await.telling(both()).await;
    start_waiting(&*harness.store(), 1, "default", "alice", Deadline::Never).await;
    let outbox = harness.outbox();
    (harness, outbox)
}

pub async fn rule_r1_a_notice_is_owed_from_the_commit_of_its_event_on<H: Harness>() {
    let (harness, outbox) = asked::<H>().await;
    let store = harness.store();
    assert_eq!(done(outbox.webhooks().await), [state("desk", 1, 0, None), state("log", 1, 0, None)]);
    assert_eq!(claim(&*outbox, "desk", "a", at(0)).await, [], "it is not due before it happened");
    assert_eq!(claim(&*outbox, "desk", "a", at(1)).await, [notice("desk", 1, 2, 0, "a")]);
    let log = done(store.load(&run_id(1)).await);
    let run = done(countersign_core::Run::fold(run_id(1), &log.entries));
    let run = go_on(&*store, &run, vec![approval(1)], at(2)).await;
    go_on(&*store, &run, vec![countersign_core::Event::CancelRequested(cancel())], at(3)).await;
    assert_eq!(done(outbox.webhooks().await), [state("desk", 1, 0, None), state("log", 2, 0, None)]);
    let ended = start(&*store, 2).await;
    go_on(&*store, &ended, vec![words("done"), completion()], at(4)).await;
    drop((store, outbox));
    let harness = harness.reopened().await;
    let owed = [(1, 2), (1, 3), (2, 2)].map(|(run, seq)| notice("log", run, seq, 0, "b"));
    assert_eq!(claim(&*harness.outbox(), "log", "b", at(5)).await, owed, "it outlives the process");
}

fn cancel() -> countersign_core::CancelRequested {
    countersign_core::CancelRequested { by: subject("alice") }
}

pub async fn nothing_is_owed_where_nobody_is_told<H: Harness>() {
    let harness = H::fresh().await;
    start_waiting(&*harness.store(), 1, "default", "alice", Deadline::Never).await;
    assert_eq!(done(harness.outbox().webhooks().await), []);
}

pub async fn rule_r1_an_append_that_fails_owes_nothing<H: Harness>() {
    let (harness, outbox) = asked::<H>().await;
    let store = harness.store();
    let log = done(store.load(&run_id(1)).await);
    let run = done(countersign_core::Run::fold(run_id(1), &log.entries));
    let (_, changes) = done(run.record(vec![approval(1)], at(2)));
    let stale = store.append(&run_id(1), Revision(1), &Writer::Anyone, at(2), Append::Plain(changes)).await;
    assert!(matches!(stale, Err(AppendError::Conflict)));
    assert_eq!(done(outbox.webhooks().await), [state("desk", 1, 0, None), state("log", 1, 0, None)]);
}

pub async fn of_twenty_who_deliver_one_has_a_notice_in_hand<H: Harness>() {
    let (_harness, outbox) = asked::<H>().await;
    let mut all = JoinSet::new();
    for number in 0..20 {
        let outbox = Arc::clone(&outbox);
        all.spawn(async move { claim(&*outbox, "desk", &format!("t{number}"), at(2)).await });
    }
    let taken: Vec<_> = all.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 1);
}

pub async fn a_notice_in_hand_comes_back_when_its_time_is_over<H: Harness>() {
    let (harness, outbox) = asked::<H>().await;
    start_waiting(&*harness.store(), 2, "default", "alice", Deadline::Never).await;
    let one = done(outbox.claim_notices(&webhook("desk"), "a".to_owned(), at(10), LEASE, 1).await);
    assert_eq!(one, [notice("desk", 1, 2, 0, "a")], "that which is due longest, and no more than asked for");
    assert_eq!(claim(&*outbox, "desk", "b", at(10)).await, [notice("desk", 2, 2, 0, "b")]);
    assert_eq!(claim(&*outbox, "desk", "c", at(39)).await, []);
    let back = [notice("desk", 1, 2, 0, "c"), notice("desk", 2, 2, 0, "c")];
    assert_eq!(claim(&*outbox, "desk", "c", at(40)).await, back);
}

pub async fn a_notice_is_settled_by_whoever_has_it_in_hand<H: Harness>() {
    let (_harness, outbox) = asked::<H>().await;
    let lost = claim(&*outbox, "desk", "a", at(1)).await.remove(0);
    let mine = claim(&*outbox, "desk", "b", at(31)).await.remove(0);
    for telling in [
        Telling::Told,
        Telling::Again(at(0)),
        Telling::GivenUp,
        Telling::PutBack(at(0)),
        Telling::Gone(at(0)),
    ] {
        assert!(!done(outbox.settle_notice(&lost, telling).await), "{telling:?}");
    }
    assert_eq!(claim(&*outbox, "desk", "c", at(60)).await, []);
    assert!(done(outbox.settle_notice(&mine, Telling::PutBack(at(32))).await));
    assert_eq!(
        claim(&*outbox, "desk", "d", at(32)).await,
        [notice("desk", 1, 2, 0, "d")],
        "no attempt counts"
    );
    assert!(done(outbox.settle_notice(&notice("desk", 1, 2, 0, "d"), Telling::Again(at(50))).await));
    assert_eq!(claim(&*outbox, "desk", "e", at(49)).await, []);
    let again = claim(&*outbox, "desk", "e", at(50)).await;
    assert_eq!(again, [notice("desk", 1, 2, 1, "e")]);
    assert!(done(outbox.settle_notice(&again[0], Telling::Told).await));
    assert!(!done(outbox.settle_notice(&again[0], Telling::Told).await), "it is not owed any more");
    assert_eq!(done(outbox.webhooks().await), [state("log", 1, 0, None)]);
}

pub async fn what_was_given_up_is_kept_and_counted_until_somebody_wants_it_tried_again<H: Harness>() {
    let (_harness, outbox) = asked::<H>().await;
    let taken = claim(&*outbox, "desk", "a", at(1)).await.remove(0);
    assert!(done(outbox.settle_notice(&taken, Telling::GivenUp).await));
    assert_eq!(claim(&*outbox, "desk", "b", at(1_000_000)).await, []);
    assert_eq!(done(outbox.webhooks().await), [state("desk", 0, 1, None), state("log", 1, 0, None)]);
    done(outbox.enable_webhook(&webhook("desk"), at(1_000_001)).await);
    assert_eq!(claim(&*outbox, "desk", "c", at(1_000_001)).await, [notice("desk", 1, 2, 0, "c")]);
}

pub async fn whoever_wants_to_be_told_nothing_is_owed_nothing<H: Harness>() {
    let (harness, outbox) = asked::<H>().await;
    let store = harness.store();
    start_waiting(&*store, 2, "default", "alice", Deadline::Never).await;
    let taken = claim(&*outbox, "desk", "a", at(2)).await;
    assert!(done(outbox.settle_notice(&taken[0], Telling::Gone(at(3))).await));
    start_waiting(&*store, 3, "default", "alice", Deadline::Never).await;
    let gone = state("desk", 0, 2, Some(at(3)));
    assert_eq!(done(outbox.webhooks().await), [gone, state("log", 3, 0, None)]);
    assert!(!done(outbox.settle_notice(&taken[1], Telling::Told).await), "it was given up with the others");
    assert_eq!(claim(&*outbox, "desk", "b", at(1_000)).await, []);
    done(outbox.enable_webhook(&webhook("desk"), at(1_001)).await);
    let again = [notice("desk", 1, 2, 0, "c"), notice("desk", 2, 2, 0, "c")];
    assert_eq!(claim(&*outbox, "desk", "c", at(1_001)).await, again);
    start_waiting(&*store, 4, "default", "alice", Deadline::Never).await;
    assert_eq!(claim(&*outbox, "desk", "d", at(1_001)).await, [notice("desk", 4, 2, 0, "d")]);
}

pub async fn a_clock_that_was_set_back_puts_no_notice_off<H: Harness>() {
    let (_harness, outbox) = asked::<H>().await;
    let late = at(1).checked_add(PUT_OFF_MAX).unwrap_or(at(1));
    let taken = claim(&*outbox, "desk", "a", at(1)).await.remove(0);
    assert!(done(outbox.settle_notice(&taken, Telling::Again(late)).await));
    assert_eq!(claim(&*outbox, "desk", "b", at(1)).await, [], "as late as anything is put off");
    assert_eq!(claim(&*outbox, "desk", "c", at(0)).await, [notice("desk", 1, 2, 1, "c")]);
}
