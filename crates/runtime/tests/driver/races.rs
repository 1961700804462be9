//! Two processes, one log: whoever comes second reads it again, and a zombie changes nothing (R5, R6, A8).

use std::sync::Arc;
use std::time::Duration;

use countersign::testing::{Behaviour, Ledger, text, turn};
use countersign::{
    AnyTool, ClaimError, Clock, DecideError, Decision, Digest, DriveError, Mode, PendingId, Principal,
    ResultKind as Is, RunError, RunId, RunState, Runtime, Store, SwitchName, ToolName, Waiting,
};

use crate::kit::{
    Bed, LEASE, Lost, WithTimeout, Witness, alice, assert_state, bob, completed, ended, free_write, gated,
    lines, read, request, result_kinds, root, settle, statuses, waiting, write,
};

/// Longer than any lease.
const HOUR: Duration = Duration::from_secs(3600);

fn some_other_digest() -> Digest {
    Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap()
}

/// A refused decision is an event like any other: the log moves on.
async fn somebody_is_refused(runtime: &Runtime, pending: &countersign::PendingId) {
    let error = runtime.decide(pending, Decision::approve(some_other_digest()), &root()).await.unwrap_err();
    assert_eq!(error.code(), "stale_digest");
}

/// Another process on the same store.
fn elsewhere(bed: &Bed) -> Runtime {
    Bed { store: Arc::clone(&bed.memory) as Arc<dyn Store>, ..bed.clone() }.runtime()
}

async fn drop_waits(tools: impl FnOnce(&Ledger) -> Vec<AnyTool>) -> (Bed, Waiting) {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, tools).await;
    let waiting = bed.waiting().await;
    (bed, waiting)
}

fn plain(ledger: &Ledger) -> Vec<AnyTool> {
    vec![read("get", ledger).into(), write("drop", ledger).into()]
}

#[tokio::test]
async fn an_event_that_lands_while_calls_run_costs_no_result() {
    let mut gates = None;
    let (bed, waiting) = drop_waits(|ledger| {
        let (get, open_read) = gated(read("get", ledger));
        let (drop, open_write) = gated(write("drop", ledger));
        gates = Some((open_read, open_write));
        vec![get.into(), drop.into()]
    })
    .await;
    // A question of the first turn stays visible to whoever comes late, while its calls run.
    let (open_read, open_write) = gates.unwrap();
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let driving = bed.drive_apart(waiting.run.id());
    settle().await;
    refuse_behind_its_back(&bed, &waiting).await;
    open_read.send_replace(true);
    settle().await;
    refuse_behind_its_back(&bed, &waiting).await;
    open_write.send_replace(true);
    let run = completed(driving.await.unwrap().unwrap());
    assert_eq!(result_kinds(&run), [Is::Ok, Is::Ok], "nothing is lost and nothing is unknown");
    assert_eq!(bed.ledger.names(), ["get", "drop"], "and nothing ran twice");
    let refusals = bed.kinds(run.id()).await.iter().filter(|kind| **kind == "pending.refused").count();
    assert_eq!(refusals, 2);
}

/// Appends the record of a refused attempt, as a process with an older view of the pending would.
async fn refuse_behind_its_back(bed: &Bed, waiting: &Waiting) {
    let run = bed.runtime().load(waiting.run.id()).await.unwrap();
    let refused = countersign::PendingRefused {
        pending: waiting.id.clone(),
        by: root(),
        code: "stale_digest".to_owned(),
    };
    let (_, changes) = run.record(vec![countersign::Event::PendingRefused(refused)], bed.now()).unwrap();
    let at = countersign::Revision(run.revision());
    let append = countersign::Append::Plain(changes);
    bed.memory.append(run.id(), at, &countersign::Writer::Anyone, bed.now(), append).await.unwrap();
}

#[tokio::test]
async fn rule_r5_an_answer_between_the_last_look_and_the_release_is_not_slept_through() {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("done")]);
    let mut bed = Bed::new(script, plain).await;
    let between = bed.between();
    let late = elsewhere(&bed);
    let store = Arc::clone(&bed.memory);
    between.before_release(move || async move {
        let open =
            store.pendings(&countersign::PendingFilter::default(), 1, None).await.unwrap().items[0].clone();
        let run = late.load(&open.run).await.unwrap();
        let digest = run.open_pending().unwrap().pending.digest(run.id());
        late.decide(&open.id, Decision::approve(digest), &bob()).await.unwrap();
    });
    completed(bed.run().await);
    assert_eq!(bed.ledger.names(), ["get", "drop"], "the same driver carries on");
}

#[tokio::test]
async fn rule_r6_a_run_has_one_driver_at_a_time() {
    let script = Witness::script([turn(&[("slow", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(read("slow", ledger));
        gate = Some(open);
        vec![slow.into()]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    let second = bed.runtime().drive(&run).await;
    assert!(matches!(second, Err(RunError::Claim(ClaimError::Leased { .. }))), "{second:?}");
    let stop = tokio_util::sync::CancellationToken::new();
    let worked = bed.runtime().work_off(Arc::new(countersign::Unwatched), stop).await.unwrap();
    assert_eq!(worked.len(), 0);
    gate.unwrap().send_replace(true);
    completed(driving.await.unwrap().unwrap());
    assert_eq!(bed.ledger.names(), ["slow"]);
}

#[tokio::test]
async fn rule_r6_a_heartbeat_keeps_the_run_through_a_call_longer_than_the_lease() {
    let script = Witness::script([turn(&[("slow", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(read("slow", ledger));
        gate = Some(open);
        vec![WithTimeout(slow, HOUR).into()]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    bed.pass(LEASE * 10).await;
    let second = bed.runtime().drive(&run).await;
    assert!(matches!(second, Err(RunError::Claim(ClaimError::Leased { .. }))), "{second:?}");
    gate.unwrap().send_replace(true);
    completed(driving.await.unwrap().unwrap());
    assert_eq!(bed.ledger.names(), ["slow"]);
}

/// A process whose heartbeats no longer arrive while its tool works on.
async fn zombie(
    tool: impl FnOnce(&Ledger) -> countersign::testing::RecordingTool,
) -> (
    Bed,
    RunId,
    tokio::task::JoinHandle<Result<countersign::Outcome, RunError>>,
    tokio::sync::watch::Sender<bool>,
) {
    let script =
        Witness::script([turn(&[("crm__purge", "{}"), ("get", "{}")]), text("done"), text("done again")]);
    let mut gate = None;
    let mut bed = Bed::new(script, |ledger| {
        let (tool, open) = gated(tool(ledger));
        gate = Some(open);
        vec![WithTimeout(tool, HOUR).into(), read("get", ledger).into()]
    })
    .await;
    let between = bed.between();
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    assert_eq!(bed.ledger.names(), ["crm__purge"]);
    between.silence_heart();
    bed.pass(LEASE + Duration::from_secs(5)).await;
    assert!(!driving.is_finished(), "it does not know yet that it is one");
    (bed, run, driving, gate.unwrap())
}

#[tokio::test]
async fn rule_r6_a_zombie_stores_nothing_and_its_late_result_is_dropped() {
    let (bed, run, driving, gate) = zombie(|ledger| free_write("purge", ledger)).await;
    let taken = waiting(elsewhere(&bed).drive(&run).await.unwrap());
    assert_state(&taken.run, RunState::NeedsResolution);
    let before = bed.kinds(&run).await;
    gate.send_replace(true);
    let late = driving.await.unwrap();
    assert!(matches!(late, Err(RunError::Drive(DriveError::LeaseLost))), "{late:?}");
    assert_eq!(bed.kinds(&run).await, before, "it appends nothing");
    assert_eq!(bed.ledger.names(), ["crm__purge"], "and starts nothing");
    let still = waiting(elsewhere(&bed).drive(&run).await.unwrap());
    assert_eq!(still.id, taken.id, "a late result settles nothing");
}

#[tokio::test]
async fn rule_r6_a_zombie_is_stopped_by_the_lease_also_where_the_log_has_not_moved() {
    let (bed, run, driving, gate) = zombie(|ledger| free_write("purge", ledger)).await;
    let before = bed.kinds(&run).await;
    gate.send_replace(true);
    let late = driving.await.unwrap();
    assert!(matches!(late, Err(RunError::Drive(DriveError::LeaseLost))), "{late:?}");
    assert_eq!(bed.kinds(&run).await, before);
}

/// A write has an answer in the hands of a worker that lives, and the database is away for a moment.
#[tokio::test]
async fn rule_r3_a_result_is_stored_once_when_the_database_is_back() {
    for lost in [Lost::BeforeTheAppend, Lost::AfterTheAppend] {
        let script = Witness::script([turn(&[("crm__purge", "{}")]), text("done")]);
        let mut gate = None;
        let mut bed = Bed::new(script, |ledger| {
            let (tool, open) = gated(free_write("purge", ledger));
            gate = Some(open);
            vec![WithTimeout(tool, HOUR).into()]
        })
        .await;
        let between = bed.between();
        let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
        let driving = bed.drive_apart(&run);
        settle().await;
        between.lose_connection(&[lost]);
        gate.unwrap().send_replace(true);
        settle().await;
        bed.pass(Duration::from_secs(1)).await;
        let run = completed(driving.await.unwrap().unwrap());
        assert_eq!(result_kinds(&run), [Is::Ok], "{lost:?}");
        assert_eq!(bed.ledger.names(), ["crm__purge"]);
    }
}

/// The log could not be stored further, nor the run be given back, while the database was away.
#[tokio::test]
async fn rule_r6_a_run_is_given_back_when_the_database_is_back() {
    let script = Witness::script([text("lost"), text("done")]);
    let mut bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    let between = bed.between();
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    between.lose_connection(&[Lost::BeforeTheAppend, Lost::BeforeTheRelease, Lost::BeforeTheRelease]);
    let driving = bed.drive_apart(&run);
    for _ in 0..2 {
        settle().await;
        bed.pass(Duration::from_secs(1)).await;
    }
    let failed = driving.await.unwrap();
    assert!(matches!(failed, Err(RunError::Drive(DriveError::Store(_)))), "{failed:?}");
    assert!(!bed.memory.run(&run, bed.clock.now()).await.unwrap().leased, "anybody may go on");
    completed(bed.runtime().drive(&run).await.unwrap());
}

#[tokio::test]
async fn rule_r6_a_driver_that_learns_that_it_lost_its_run_aborts_its_calls() {
    let script = Witness::script([turn(&[("slow", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (slow, open) = gated(read("slow", ledger));
        gate = Some(open);
        vec![WithTimeout(slow, HOUR).into()]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    settle().await;
    // The whole process stood still for too long.
    bed.clock.advance(LEASE);
    settle().await;
    let late = driving.await.unwrap();
    assert!(matches!(late, Err(RunError::Drive(DriveError::LeaseLost))), "{late:?}");
    assert_eq!(
        gate.as_ref().unwrap().receiver_count(),
        1,
        "its call is gone; the tool itself holds one gate"
    );
    gate.unwrap().send_replace(true);
    completed(bed.runtime().drive(&run).await.unwrap());
    assert_eq!(bed.ledger.names(), ["slow", "slow"]);
}

#[tokio::test]
async fn rule_a8_a_decision_is_judged_again_when_the_log_has_moved_and_wins() {
    let (mut bed, waiting) = drop_waits(plain).await;
    let between = bed.between();
    let (late, id) = (elsewhere(&bed), waiting.id.clone());
    between.before_append(0, move || async move { somebody_is_refused(&late, &id).await });
    let record = bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    assert_eq!(record.status.as_str(), "approved");
    assert_eq!(between.appends(), 2, "refused at the old revision, stored at the new one");
}

#[tokio::test]
async fn rule_a8_a_decision_is_judged_again_when_the_log_has_moved_and_is_refused() {
    // Somebody denies in the very moment.
    let (mut bed, waiting) = drop_waits(plain).await;
    let between = bed.between();
    let (late, id, deny) = (elsewhere(&bed), waiting.id.clone(), Decision::deny(waiting.digest, None));
    between.before_append(0, move || async move {
        late.decide(&id, deny, &root()).await.unwrap();
    });
    let error =
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    let DecideError::Refused(countersign::DecisionRefused::AlreadyDecided(decided)) = error else {
        panic!("{error}")
    };
    assert_eq!(decided.by, root());

    // Somebody cancels in the very moment.
    let (mut bed, waiting) = drop_waits(plain).await;
    let between = bed.between();
    let (late, run) = (elsewhere(&bed), waiting.run.id().clone());
    between.before_append(0, move || async move {
        late.cancel(&run, &Principal::user(alice())).await.unwrap();
    });
    let error =
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "withdrawn");
    assert_eq!(lines(&bed.ledger), []);
}

#[tokio::test]
async fn rule_a8_rights_are_read_in_the_transaction_that_stores_the_decision() {
    let (mut bed, waiting) = drop_waits(plain).await;
    let between = bed.between();
    let memory = Arc::clone(&bed.memory);
    // Bob's grant is gone after everything was loaded, and before anything is stored.
    between.before_append(
        0,
        move || async move { memory.put_principal(&Principal::user(bob())).await.unwrap() },
    );
    let error =
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
    assert_eq!(statuses(&bed.runtime().load(waiting.run.id()).await.unwrap())[0].as_str(), "open");
}

#[tokio::test]
async fn rule_a8_a_run_that_was_loaded_earlier_is_only_where_the_judgement_begins() {
    // As it still is: it is not loaded again, and rights are those of the moment all the same.
    let (mut bed, waiting) = drop_waits(plain).await;
    let between = bed.between();
    let runtime = bed.runtime();
    let approve = || Decision::approve(waiting.digest);
    let run = runtime.load(waiting.run.id()).await.unwrap();
    let before = between.loads();
    bed.memory.put_principal(&Principal::user(bob())).await.unwrap();
    let error = runtime.decide_in(run.clone(), &waiting.id, approve(), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
    let record = runtime.decide_in(run.clone(), &waiting.id, approve(), &root()).await.unwrap();
    assert_eq!((record.status.as_str(), between.loads()), ("approved", before));

    // As it was before somebody decided: what is stored counts.
    let error = runtime.decide_in(run.clone(), &waiting.id, approve(), &root()).await.unwrap_err();
    assert_eq!((error.code(), between.loads()), ("already_decided", before + 1));

    // It has no other question than its own.
    let other = PendingId::from_random([9; 16]);
    let error = runtime.decide_in(run, &other, approve(), &root()).await.unwrap_err();
    assert_eq!(error.code(), "not_found");
}

#[tokio::test]
async fn a_decision_and_a_sweep_at_once_leave_one_end() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let mut bed = Bed::new(script, plain).await;
    bed.agent.approval_ttl = Some(Duration::from_secs(60));
    let waiting = bed.waiting().await;
    let between = bed.between();
    let (late, clock) = (elsewhere(&bed), bed.clock.clone());
    between.before_append(0, move || async move {
        clock.advance(Duration::from_secs(61));
        assert_eq!(late.sweep().await.unwrap(), 1);
    });
    let error =
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "expired");
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!((result_kinds(&run), lines(&bed.ledger)), (vec![Is::Expired], vec![]));
}

#[tokio::test]
async fn a_switch_that_cannot_be_read_lets_nothing_run() {
    let (mut bed, waiting) = drop_waits(plain).await;
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let between = bed.between();
    let dying = between.clone();
    between.before_append(0, move || async move { dying.kill() });
    let failed = bed.runtime().drive(waiting.run.id()).await;
    assert!(matches!(failed, Err(RunError::Drive(DriveError::Store(_)))), "{failed:?}");
    assert_eq!(lines(&bed.ledger), []);
}

#[tokio::test]
async fn rule_r2_a_run_that_cannot_be_driven_stops_no_other() {
    let script = Witness::script([turn(&[("crm__purge", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        vec![free_write("purge", ledger).that(Behaviour::NoAnswer).into(), read("get", ledger).into()]
    })
    .await;
    let runtime = bed.runtime();
    let first = runtime.start(request(), Mode::Attended).await.unwrap();
    let second = runtime.start(request(), Mode::Attended).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let worked = runtime.work_off(Arc::new(countersign::Unwatched), stop).await.unwrap();
    let came_to: Vec<_> =
        worked.iter().map(|worked| (&worked.run, worked.came_to.as_ref().unwrap().state())).collect();
    assert_eq!(came_to, [(&first, RunState::NeedsResolution), (&second, RunState::Completed)]);
}

#[tokio::test]
async fn a_decision_on_an_ended_run_changes_nothing() {
    let (bed, waiting) = drop_waits(plain).await;
    let name = SwitchName::Tool(ToolName::parse("drop").unwrap());
    bed.memory.set_switch(&name, Some(true), bed.now()).await.unwrap();
    let run = ended(bed.approve(&waiting).await);
    let error =
        bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap_err();
    assert_eq!(error.code(), "already_decided");
    assert_eq!(bed.runtime().load(run.id()).await.unwrap().revision(), run.revision());
}
