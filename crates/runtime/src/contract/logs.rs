//! Creating, appending, loading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_core::{
    Deadline, Entry, Event, PendingStatus, Principal, Run, RunState, Switch, ToolName, Usage,
};
use tokio::task::JoinSet;

use super::sample::*;
use super::{Damage, Harness, done};
use crate::store::{
    Append, AppendError, CreateError, Lease, LoadError, Look, Revision, Store, StoreFault, SwitchName, Writer,
};

const LEASE: Duration = Duration::from_secs(30);

/// The entries that a run must have, given what was stored at which moments.
fn log(parts: &[(i64, &[Event])]) -> Vec<Entry> {
    let events =
        parts.iter().flat_map(|(when, events)| events.iter().map(|event| (at(*when), event.clone())));
    (0..).zip(events).map(|(seq, (at, event))| Entry { seq, at, event }).collect()
}

async fn append(
    store: &dyn Store,
    run: &Run,
    writer: &Writer,
    now: i64,
    event: Event,
) -> Result<Revision, AppendError> {
    let (after, changes) = done(run.record(vec![event], at(now)));
    store.append(run.id(), Revision(run.revision()), writer, at(now), Append::Plain(changes)).await?;
    Ok(Revision(after.revision()))
}

pub async fn a_run_is_created_once<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let again = done(Run::create(run.id().clone(), created("other", "bob"), Vec::new(), at(9))).1;
    assert!(matches!(store.create(again).await, Err(CreateError::Exists)));
    assert_eq!(done(store.run(run.id(), at(9)).await).row, run.row());
}

pub async fn what_was_appended_is_loaded_as_it_was<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let first = Event::RunCreated(Box::new(created("default", "alice")));
    let run = start(&*store, 1).await;
    let run = go_on(&*store, &run, vec![proposal(1)], at(2)).await;
    let asked = question(&run, 1, countersign_core::Deadline::Unreadable);
    let run = go_on(&*store, &run, vec![asked.clone()], at(3)).await;
    let run = go_on(&*store, &run, vec![expiry(1)], at(4)).await;
    let expected = log(&[(1, &[first]), (2, &[proposal(1)]), (3, &[asked]), (4, &[expiry(1)])]);
    assert_eq!(done(store.load(run.id()).await).entries, expected);
    assert_eq!(done(store.revision(run.id()).await), Revision(4));

    drop(store);
    let harness = harness.reopened().await;
    let loaded = done(harness.store().load(run.id()).await);
    assert_eq!(loaded.entries, expected);
    assert_eq!(loaded.revision(), Revision(4));
    assert_eq!(done(Run::fold(run.id().clone(), &loaded.entries)).row(), run.row());
}

pub async fn case_c53_odd_bytes_in_events_survive<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let odd: String =
        (0..0x100).chain([0x2028, 0xfffd, 0xffff, 0x1_f980, 0x10_ffff]).filter_map(char::from_u32).collect();
    let run = start(&*store, 1).await;
    let run = go_on(&*store, &run, vec![words(&odd)], at(2)).await;
    drop(store);
    let harness = harness.reopened().await;
    assert_eq!(done(harness.store().load(run.id()).await).entries[1].event, words(&odd));
}

pub async fn a_run_that_is_not_there_is_not_found<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let here = start(&*store, 1).await;
    let (there, changes) = done(Run::create(run_id(2), created("default", "alice"), Vec::new(), at(0)));
    drop(changes);
    assert!(matches!(store.load(there.id()).await, Err(LoadError::NotFound(run)) if run == *there.id()));
    assert!(matches!(store.revision(there.id()).await, Err(LoadError::NotFound(_))));
    assert!(matches!(store.run(there.id(), at(0)).await, Err(LoadError::NotFound(_))));
    assert!(matches!(
        append(&*store, &there, &Writer::Anyone, 1, words("x")).await,
        Err(AppendError::NotFound(_))
    ));
    assert_eq!(done(store.pending(&pending_id(9)).await), None);
    assert_eq!(done(store.load(here.id()).await).revision(), Revision(1));
}

pub async fn changes_of_another_run_are_refused<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (one, other) = (start(&*store, 1).await, start(&*store, 2).await);
    let changes = done(other.record(vec![words("x")], at(3))).1;
    let refused = store.append(one.id(), Revision(1), &Writer::Anyone, at(3), Append::Plain(changes)).await;
    assert!(matches!(refused, Err(AppendError::Fault(StoreFault::Failed(_)))));
    for run in [one, other] {
        assert_eq!(done(store.load(run.id()).await).revision(), Revision(1));
        assert_eq!(done(store.run(run.id(), at(3)).await).row, run.row());
    }
}

pub async fn rule_r10_a_continuation_refers_to_a_run_that_has_ended<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (active, waiting) =
        (start(&*store, 1).await, start_waiting(&*store, 2, "default", "alice", Deadline::Never).await);
    let (nobody, _) = done(Run::create(run_id(3), created("default", "alice"), Vec::new(), at(3)));
    for before in [&active, &waiting, &nobody] {
        let refused = continuation(&*store, 4, before).await;
        assert!(
            matches!(&refused, Err(CreateError::NotContinuable(run)) if run == before.id()),
            "{refused:?}"
        );
    }
    assert!(matches!(store.run(&run_id(4), at(5)).await, Err(LoadError::NotFound(_))), "nothing is stored");

    let over = go_on(&*store, &active, vec![words("done"), completion()], at(5)).await;
    let run = done(continuation(&*store, 4, &over).await);
    assert_eq!(run.row().continues.as_ref(), Some(over.id()));
    assert_eq!(done(store.run(run.id(), at(6)).await).row, run.row());
    let next = go_on(&*store, &run, vec![words("done"), completion()], at(7)).await;
    done(continuation(&*store, 5, &next).await);
    drop(store);
    let harness = harness.reopened().await;
    assert_eq!(done(harness.store().run(next.id(), at(8)).await).row, next.row());

    harness.damage(Damage::Run(over.id().clone())).await;
    assert!(
        matches!(continuation(&*harness.store(), 6, &over).await, Err(CreateError::NotContinuable(_))),
        "what cannot be trusted is not gone on with"
    );
}

pub async fn rule_r1_a_second_writer_at_the_same_revision_loses<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    assert_eq!(done(append(&*store, &run, &Writer::Anyone, 2, words("first")).await), Revision(2));
    let second = append(&*store, &run, &Writer::Anyone, 3, words("second")).await;
    assert!(matches!(second, Err(AppendError::Conflict)));
    assert_eq!(
        done(store.load(run.id()).await).entries[1..],
        log(&[(0, &[words("")]), (2, &[words("first")])])[1..]
    );
    assert_eq!(done(store.run(run.id(), at(3)).await).row.updated_at, at(2));
    // A revision that the log has not reached is a conflict too.
    let changes = done(run.record(vec![words("early")], at(4))).1;
    let early = store.append(run.id(), Revision(3), &Writer::Anyone, at(4), Append::Plain(changes)).await;
    assert!(matches!(early, Err(AppendError::Conflict)));
}

pub async fn rule_r1_of_twenty_writers_at_one_revision_one_wins<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = Arc::new(start(&*store, 1).await);
    let mut writers = JoinSet::new();
    for number in 0..20 {
        let (store, run) = (Arc::clone(&store), Arc::clone(&run));
        writers.spawn(
            async move { append(&*store, &run, &Writer::Anyone, 2, words(&format!("{number}"))).await },
        );
    }
    let results = writers.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(Revision(2)) | Err(AppendError::Conflict))));
    assert_eq!(done(store.load(run.id()).await).revision(), Revision(2));
}

pub async fn rule_r1_row_inbox_and_totals_change_with_the_append<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start_waiting(&*store, 1, "default", "alice", countersign_core::Deadline::At(at(60))).await;
    let listing = done(store.run(run.id(), at(2)).await);
    assert_eq!(listing.row, run.row());
    assert_eq!((listing.row.state, listing.status()), (RunState::WaitingForApproval, "waiting_for_approval"));
    let usage = Usage { input_tokens: 100, output_tokens: 10, cached_input_tokens: 40, unknown_calls: 1 };
    assert_eq!((listing.row.usage, listing.row.iterations, listing.revision), (usage, 1, Revision(3)));
    let asked = done(store.pending(&pending_id(1)).await).into_iter().next();
    assert_eq!(
        asked.as_ref().map(|row| (row.status, row.decided_by.clone())),
        Some((PendingStatus::Open, None))
    );

    let run = go_on(&*store, &run, vec![approval(1)], at(5)).await;
    assert_eq!(done(store.run(run.id(), at(5)).await).row, run.row());
    let decided = done(store.pending(&pending_id(1)).await);
    assert_eq!(
        decided.map(|row| (row.status, row.decided_by, Some(row.created_at))),
        Some((PendingStatus::Approved, Some(subject("bob")), asked.map(|row| row.created_at)))
    );

    let run = start(&*store, 2).await;
    let run = go_on(&*store, &run, vec![words("done"), completion()], at(6)).await;
    let listing = done(store.run(run.id(), at(7)).await);
    assert_eq!((listing.row.state, listing.row.finished_at), (RunState::Completed, Some(at(6))));
    assert_eq!(listing.row, run.row());
}

pub async fn rule_r2_several_logs_are_loaded_in_order_and_a_bad_one_stops_no_other<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    for number in 1..=3 {
        let run = start(&*store, number).await;
        go_on(&*store, &run, vec![words("x")], at(4)).await;
    }
    harness.damage(Damage::Entry { run: run_id(2), seq: 1 }).await;
    let wanted = [3, 2, 9, 1, 3].map(run_id);
    let created_at = done(store.load_each(&wanted).await).into_iter().map(|loaded| match loaded {
        Ok(log) => Some(log.entries[0].at),
        Err(LoadError::NotFound(run)) if run == run_id(9) => Some(at(9)),
        Err(LoadError::Unreadable { run, .. }) if run == run_id(2) => None,
        Err(error) => done(Err(error)),
    });
    assert_eq!(created_at.collect::<Vec<_>>(), [Some(at(3)), None, Some(at(9)), Some(at(1)), Some(at(3))]);
    assert_eq!(done(store.load_each(&[]).await).len(), 0);
}

pub async fn rule_r2_a_spoiled_log_is_refused_and_hides_no_other_run<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (bad, good) = (start(&*store, 1).await, start(&*store, 2).await);
    let bad = go_on(&*store, &bad, vec![words("x")], at(3)).await;
    harness.damage(Damage::Entry { run: bad.id().clone(), seq: 1 }).await;
    assert!(matches!(store.load(bad.id()).await, Err(LoadError::Unreadable { run, .. }) if run == *bad.id()));
    assert_eq!(done(store.run(bad.id(), at(4)).await).row, bad.row(), "the row is as good as before");
    assert_eq!(done(store.load(good.id()).await).revision(), Revision(1));
    done(append(&*store, &good, &Writer::Anyone, 4, words("y")).await);
}

pub async fn rule_r2_a_spoiled_row_is_refused_and_hides_no_other_run<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (bad, good) = (start(&*store, 1).await, start(&*store, 2).await);
    harness.damage(Damage::Run(bad.id().clone())).await;
    assert!(matches!(store.load(bad.id()).await, Err(LoadError::Unreadable { .. })));
    assert!(matches!(store.run(bad.id(), at(4)).await, Err(LoadError::Unreadable { .. })));
    assert!(matches!(store.revision(bad.id()).await, Err(LoadError::Unreadable { .. })));
    assert!(matches!(
        append(&*store, &bad, &Writer::Anyone, 4, words("x")).await,
        Err(AppendError::Unreadable { run, .. }) if run == *bad.id()
    ));
    assert!(store.claim(bad.id(), "t".to_owned(), at(4), LEASE).await.is_err());
    assert_eq!(done(store.load(good.id()).await).revision(), Revision(1));
    done(append(&*store, &good, &Writer::Anyone, 4, words("y")).await);
}

/// A lease is live before its end and over from that moment on, whether or not somebody else has come.
pub async fn rule_r6_a_worker_without_its_lease_appends_nothing<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let stranger = Lease { run: run.id().clone(), token: "never given".to_owned() };
    let lost = append(&*store, &run, &Writer::Worker(stranger), 2, words("x")).await;
    assert!(matches!(lost, Err(AppendError::LeaseLost)));

    let first = done(store.claim(run.id(), "first".to_owned(), at(10), LEASE).await);
    let expired = append(&*store, &run, &Writer::Worker(first.clone()), 40, words("x")).await;
    assert!(matches!(expired, Err(AppendError::LeaseLost)), "over, though nobody else has come");
    let second = done(store.claim(run.id(), "second".to_owned(), at(40), LEASE).await);
    let taken = append(&*store, &run, &Writer::Worker(first.clone()), 41, words("x")).await;
    assert!(matches!(taken, Err(AppendError::LeaseLost)), "taken over");
    assert_eq!(done(store.load(run.id()).await).revision(), Revision(1));

    let other = start(&*store, 2).await;
    let elsewhere = append(&*store, &other, &Writer::Worker(second.clone()), 41, words("x")).await;
    assert!(matches!(elsewhere, Err(AppendError::LeaseLost)), "a lease is for one run");

    let writer = Writer::Worker(second.clone());
    assert_eq!(done(append(&*store, &run, &writer, 69, words("x")).await), Revision(2));
    let late = append(&*store, &run, &writer, 69, words("x")).await;
    assert!(matches!(late, Err(AppendError::Conflict)), "its lease is good, its revision is not");
    assert!(done(store.release(&second, Revision(2)).await));
    let (again, changes) = done(
        done(Run::fold(run.id().clone(), &done(store.load(run.id()).await).entries))
            .record(vec![completion()], at(70)),
    );
    let given_back = store.append(again.id(), Revision(2), &writer, at(70), Append::Plain(changes)).await;
    assert!(matches!(given_back, Err(AppendError::LeaseLost)), "given back");
}

pub async fn rule_a8_rule_g9_a_judge_sees_what_was_changed_right_before<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let tool = done(ToolName::parse("page_drop"));
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false), jiff::Timestamp::UNIX_EPOCH).await);
    done(store.put_principal(&Principal::approver(subject("bob"))).await);
    done(store.put_principal(&Principal::user(subject("carol"))).await);
    let (_, changes) = done(run.record(vec![words("judged")], at(2)));
    let expected = done(store.look(&[subject("bob"), subject("nobody")]).await);
    assert_eq!(expected.switches.tool(&tool), Some(Switch::Off));
    assert_eq!(expected.people.find(&subject("bob")), Some(&Principal::approver(subject("bob"))));
    let judge = Box::new(move |look: &Look| (*look == expected).then_some(changes));
    let judged = Append::Judged { subjects: vec![subject("bob"), subject("nobody")], judge };
    let stored = done(store.append(run.id(), Revision(1), &Writer::Anyone, at(2), judged).await);
    assert_eq!(stored.as_ref().map(|changes| changes.events().to_vec()), Some(vec![words("judged")]));
    assert_eq!(done(store.load(run.id()).await).entries[1].event, words("judged"));
}

pub async fn rule_a8_a_judge_is_not_asked_when_the_log_has_moved_on<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    done(append(&*store, &run, &Writer::Anyone, 2, words("first")).await);
    let (_, changes) = done(run.record(vec![words("judged")], at(3)));
    let asked = Arc::new(AtomicBool::new(false));
    let judge = {
        let asked = Arc::clone(&asked);
        Box::new(move |_: &Look| {
            asked.store(true, Ordering::SeqCst);
            Some(changes)
        })
    };
    let judged = Append::Judged { subjects: Vec::new(), judge };
    let late = store.append(run.id(), Revision(1), &Writer::Anyone, at(3), judged).await;
    assert!(matches!(late, Err(AppendError::Conflict)));
    assert!(!asked.load(Ordering::SeqCst));
    assert_eq!(done(store.load(run.id()).await).revision(), Revision(2));
}

pub async fn a_judge_that_wants_nothing_stores_nothing<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let run = start(&*store, 1).await;
    let judged = Append::Judged { subjects: Vec::new(), judge: Box::new(|_| None) };
    assert!(done(store.append(run.id(), Revision(1), &Writer::Anyone, at(3), judged).await).is_none());
    assert_eq!(done(store.load(run.id()).await).revision(), Revision(1));
    assert_eq!(done(store.run(run.id(), at(3)).await).row, run.row());
}
