//! What holds for every run, however it came about.

use countersign_core::*;
use proptest::prelude::*;

use crate::auditor::Auditor;
use crate::walk::{Walk, Worker};
use crate::world::*;

/// A run is told something. The auditor sees what was taken; what was refused has changed nothing.
fn tell(walk: &mut Walk<'_>, auditor: &mut Auditor, event: Event) -> Result<bool, TestCaseError> {
    let entry = walk.story.entry(event);
    match walk.story.run.apply(&entry) {
        Ok(after) => {
            auditor.see(&entry).map_err(|sentence| {
                TestCaseError::fail(format!(
                    "{sentence}\n{:?}\nafter {:#?}",
                    entry.event,
                    kinds(&walk.story.log)
                ))
            })?;
            let skipped = Entry { seq: entry.seq + 1, ..entry.clone() };
            prop_assert!(walk.story.run.apply(&skipped).is_err(), "a gap in the sequence");
            walk.story.run = after;
            walk.story.log.push(entry);
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

fn kinds(log: &[Entry]) -> Vec<String> {
    log.iter().map(|entry| format!("{:?}", entry.event).chars().take(120).collect()).collect()
}

/// Walks until the tape ends. One choice in `nonsense_in` is nonsense.
fn walk_through<'a>(tape: &'a [u16], nonsense_in: usize) -> Result<Walk<'a>, TestCaseError> {
    let mut walk = Walk::new(tape);
    let mut auditor = Auditor::default();
    auditor.see(&walk.story.log[0]).map_err(TestCaseError::fail)?;
    while !walk.tape.is_empty() {
        if walk.tape.rarely(4) {
            walk.story.now += 1;
        }
        if nonsense_in > 0 && walk.tape.pick(nonsense_in) == 0 {
            let before = format!("{:?}", walk.story.run);
            let event = walk.nonsense();
            if !tell(&mut walk, &mut auditor, event)? {
                prop_assert_eq!(format!("{:?}", walk.story.run), before, "a refusal changes nothing");
            }
        } else {
            let worker = if walk.tape.rarely(8) { Worker::IsLost } else { Worker::Lives };
            let owed = walk.owed(worker);
            if owed.is_empty() && walk.story.run.next() == Step::Ended {
                break;
            }
            let record = matches!(walk.story.run.next(), Step::Record(_));
            for event in owed {
                let taken = tell(&mut walk, &mut auditor, event)?;
                prop_assert!(taken || !record, "what follows from the log alone can be stored");
            }
        }
        answered_once_and_in_order(&walk.story.run)?;
    }
    Ok(walk)
}

/// L3: after each reply its calls' results, one each, in the model's order, before anything else.
fn answered_once_and_in_order(run: &Run) -> Result<(), TestCaseError> {
    let mut owed: Vec<&CallId> = Vec::new();
    for message in run.transcript() {
        match message {
            Message::Reply(reply) => {
                prop_assert!(owed.is_empty(), "a reply before {:?} was answered", owed);
                owed = reply.calls.iter().rev().map(|call| &call.id).collect();
            }
            Message::Result { call, content, .. } => {
                prop_assert_eq!(owed.pop(), Some(call));
                prop_assert!(!content.is_empty());
            }
            Message::System(_) | Message::Input(_) | Message::LeftOut(_) => prop_assert!(owed.is_empty()),
        }
    }
    prop_assert!(owed.is_empty());
    Ok(())
}

/// Following what is owed comes to a person or to an end, within a bound that follows from the caps.
fn comes_to_a_stop(story: &Story, worker: Worker) -> Result<(), TestCaseError> {
    let mut walk = Walk::from(story.clone());
    for _ in 0..60 {
        match walk.story.run.next() {
            Step::Ended | Step::Park(_) => return Ok(()),
            _ => {}
        }
        let owed = walk.owed(worker);
        prop_assert!(!owed.is_empty(), "nothing to do about {:?}", walk.story.run.next());
        let at = at(walk.story.now);
        let (after, _) =
            walk.story.run.record(owed, at).map_err(|illegal| TestCaseError::fail(illegal.to_string()))?;
        walk.story.run = after;
    }
    Err(TestCaseError::fail(format!("no stop: {:?}", walk.story.run.next())))
}

fn tape() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_r3_nothing_starts_unless_the_last_word_of_its_gate_was_allow(tape in tape()) {
        let walk = walk_through(&tape, 5)?;
        let folded = Run::fold(run_id(), &walk.story.log).expect("what was taken one by one folds");
        prop_assert_eq!(format!("{folded:?}"), format!("{:?}", walk.story.run));
    }

    #[test]
    fn rule_r1_pure_nonsense_is_taken_or_refused_and_never_half(tape in tape()) {
        walk_through(&tape, 1)?;
    }

    #[test]
    fn rule_r1_every_reachable_run_comes_to_a_stop(tape in tape()) {
        let walk = walk_through(&tape, 7)?;
        comes_to_a_stop(&walk.story, Worker::Lives)?;
        comes_to_a_stop(&walk.story, Worker::IsLost)?;
    }

    #[test]
    fn rule_r1_a_batch_is_taken_whole_or_not_at_all(tape in tape()) {
        let mut walk = walk_through(&tape, 0)?;
        let before = format!("{:?}", walk.story.run);
        let mut batch = walk.owed(Worker::Lives);
        batch.extend([walk.story.log[0].event.clone()]);
        prop_assert!(walk.story.run.record(batch, at(0)).is_err(), "a run is created once");
        prop_assert_eq!(format!("{:?}", walk.story.run), before);
    }

    #[test]
    fn rule_r2_every_event_comes_back_as_it_was_stored(tape in tape()) {
        let mut walk = walk_through(&tape, 6)?;
        let more: Vec<Event> = (0..20).map(|_| walk.nonsense()).collect();
        for event in walk.story.log.iter().map(|entry| entry.event.clone()).chain(more) {
            let stored = event.encode().expect("an event is JSON");
            prop_assert_eq!(Event::decode(&stored).expect("it was written by us"), event);
        }
    }

    /// A shuffled log is another log, or none.
    #[test]
    fn rule_r1_events_out_of_order_start_nothing_that_was_not_cleared(tape in tape(), swaps in prop::collection::vec(any::<(u16, u16)>(), 1..6)) {
        let walk = walk_through(&tape, 0)?;
        let mut events: Vec<(Event, jiff::Timestamp)> =
            walk.story.log[1..].iter().map(|entry| (entry.event.clone(), entry.at)).collect();
        if events.is_empty() {
            return Ok(());
        }
        for (one, other) in swaps {
            let length = events.len();
            let moved = events[usize::from(one) % length].clone();
            events.insert(usize::from(other) % length, moved);
        }
        let mut again = Walk::from(Story { log: walk.story.log[..1].to_vec(), ..Story::of(walk.story.run.created().clone()) });
        let mut auditor = Auditor::default();
        auditor.see(&again.story.log[0]).map_err(TestCaseError::fail)?;
        for (event, _) in events {
            tell(&mut again, &mut auditor, event)?;
        }
        answered_once_and_in_order(&again.story.run)?;
    }
}

/// The properties above are worth something only if the walks get somewhere.
#[test]
fn the_walks_reach_deep_states() {
    let mut seed = 7_u64;
    let mut reached = [0_u32; 12];
    for _ in 0..2500 {
        let tape: Vec<u16> = (0..200)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                u16::try_from(seed >> 48).unwrap()
            })
            .collect();
        let walk = walk_through(&tape, 9).unwrap();
        let run = &walk.story.run;
        let kinds: Vec<&str> = walk.story.log.iter().map(|entry| entry.event.kind()).collect();
        let has = |kind: &str| kinds.contains(&kind);
        let status = |wanted: PendingStatus| run.pendings().any(|record| record.status == wanted);
        let approved_and_run = walk.story.log.iter().any(|entry| {
            matches!(&entry.event, Event::CallStarted(CallStarted { clearance: Clearance::Approved(_), .. }))
        });
        let facts = [
            approved_and_run,
            status(PendingStatus::Denied),
            status(PendingStatus::Expired),
            status(PendingStatus::Superseded),
            status(PendingStatus::Answered),
            status(PendingStatus::Settled),
            has("call.unknown"),
            has("limit.reached"),
            has("run.cancelled"),
            run.history().count() > 3,
            has("context.fitted"),
            run.row().limit == Some(Limit::WorkingTime),
        ];
        for (count, fact) in reached.iter_mut().zip(facts) {
            *count += u32::from(fact);
        }
    }
    assert!(reached.iter().all(|count| *count >= 15), "{reached:?}");
}
