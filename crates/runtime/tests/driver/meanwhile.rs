//! What changes between a person's word and the effect: rights, switches, declarations, the worker itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign::testing::{Behaviour, text, turn};
use countersign::{
    Decision, Doing, Effect, Event, Mode, Outcome, Progress, RemoteApproval, RunError, RunRequest,
    SettledOutcome, Unwatched,
};
use tokio_util::sync::CancellationToken;

use crate::kit::{
    Bed, LEASE, WithTimeout, Witness, bob, completed, lines, remote, request, result_kinds, results, root,
    settle, waiting, write,
};

async fn drop_bed() -> Bed {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await
}

#[tokio::test]
async fn rule_r3_a_stop_while_a_start_is_stored_leaves_no_write_behind() {
    let mut bed = drop_bed().await;
    let between = bed.between();
    let waiting = bed.waiting().await;
    let runtime = bed.runtime();
    runtime.decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    between.before_append(0, move || async move { stopper.cancel() });
    let first = runtime.drive_watched(waiting.run.id(), Arc::new(Unwatched), stop).await;
    assert!(matches!(first, Err(RunError::Stopped(_))), "{first:?}");
    assert_eq!(bed.ledger.names(), ["drop"], "what was started is executed");
    completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(bed.ledger.names(), ["drop"]);
}

#[tokio::test]
async fn rule_a8_the_approvers_right_is_judged_on_the_tool_as_it_is_now() {
    let mut bed = drop_bed().await;
    let started_by_root = RunRequest { owner: root(), starter: root(), ..request() };
    let asked = waiting(bed.runtime().run(started_by_root).await.unwrap());
    let mut tool = write("drop", &bed.ledger);
    tool.spec.requires_admin = true;
    bed.tools = vec![tool.into()];
    let runtime = bed.runtime();
    let refused = runtime.decide(&asked.id, Decision::approve(asked.digest), &bob()).await.unwrap_err();
    assert_eq!(refused.code(), "approver_not_permitted");
    runtime.decide(&asked.id, Decision::approve(asked.digest), &root()).await.unwrap();
    completed(runtime.drive(asked.run.id()).await.unwrap());
    assert_eq!(bed.ledger.names(), ["drop"]);
}

#[tokio::test]
async fn rule_a12_switching_it_on_again_does_not_revive_an_approval() {
    for whole_group in [false, true] {
        let bed = drop_bed().await;
        let asked = bed.waiting().await;
        let runtime = bed.runtime();
        runtime.decide(&asked.id, Decision::approve(asked.digest), &bob()).await.unwrap();
        for enabled in [Some(false), Some(true), None] {
            if whole_group {
                bed.group_switch("test", enabled).await;
            } else {
                bed.tool_switch("drop", enabled).await;
            }
        }
        let run = completed(runtime.drive(asked.run.id()).await.unwrap());
        assert_eq!(lines(&bed.ledger), []);
        assert_eq!(result_kinds(&run), [countersign::ResultKind::Refused]);
    }
}

#[tokio::test]
async fn rule_a12_what_was_off_before_the_approval_does_not_count() {
    let bed = drop_bed().await;
    bed.tool_switch("drop", Some(false)).await;
    bed.tool_switch("drop", None).await;
    bed.clock.advance(Duration::from_secs(1));
    let asked = bed.waiting().await;
    bed.runtime().decide(&asked.id, Decision::approve(asked.digest), &bob()).await.unwrap();
    completed(bed.runtime().drive(asked.run.id()).await.unwrap());
    assert_eq!(bed.ledger.names(), ["drop"]);
}

/// Does something once, right after a call's start was stored and before the call is made.
struct RightAfterTheStart {
    done: AtomicBool,
    act: Box<dyn Fn() + Send + Sync>,
}

impl Progress for RightAfterTheStart {
    fn happened(&self, event: &Event) {
        if event.kind() == "call.started" && !self.done.swap(true, Ordering::SeqCst) {
            (self.act)();
        }
    }

    fn doing(&self, _doing: Doing<'_>) {}
}

/// The process is suspended between the stored start and the call. Meanwhile its lease and the call's deadline
/// pass, and a person settles that it did not happen. Then it wakes up.
#[tokio::test]
async fn rule_r6_a_worker_that_was_suspended_starts_nothing_that_was_settled_meanwhile() {
    let bed = drop_bed().await;
    let asked = bed.waiting().await;
    bed.runtime().decide(&asked.id, Decision::approve(asked.digest), &bob()).await.unwrap();
    let run = asked.run.id().clone();
    let act = {
        let (other, run) = (bed.clone(), run.clone());
        move || {
            let (other, run) = (other.clone(), run.clone());
            let meanwhile = async move {
                other.clock.advance(LEASE + Duration::from_secs(60));
                let question = waiting(other.runtime().drive(&run).await.unwrap());
                let settled = Decision::settle(question.digest, SettledOutcome::DidNotHappen, None);
                other.runtime().decide(&question.id, settled, &bob()).await.unwrap();
            };
            // Another process: a runtime of its own.
            let process = std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(meanwhile);
            });
            process.join().unwrap();
        }
    };
    let progress = Arc::new(RightAfterTheStart { done: AtomicBool::new(false), act: Box::new(act) });
    let woken = bed.runtime().drive_watched(&run, progress, CancellationToken::new()).await;
    assert!(woken.is_err(), "the run is somebody else's now");
    assert_eq!(lines(&bed.ledger), []);
}

/// Nobody has taken the run meanwhile, but its time is over: whoever looks may say that it did not happen.
#[tokio::test]
async fn rule_r11_a_call_whose_time_was_over_before_it_could_begin_is_not_made() {
    let timeout = LEASE / 2;
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![WithTimeout(write("drop", ledger), timeout).into()]).await;
    let asked = bed.waiting().await;
    bed.runtime().decide(&asked.id, Decision::approve(asked.digest), &bob()).await.unwrap();
    let clock = bed.clock.clone();
    let act = Box::new(move || clock.advance(timeout));
    let progress = Arc::new(RightAfterTheStart { done: AtomicBool::new(false), act });
    let woken = bed.runtime().drive_watched(asked.run.id(), progress, CancellationToken::new()).await;
    let run = completed(woken.unwrap());
    assert_eq!(lines(&bed.ledger), []);
    let result = &results(&run)[0];
    assert_eq!(result.kind, countersign::ResultKind::Error);
    assert!(result.content.contains("was not called: its time was over"), "{result:?}");
}

/// A call runs, its worker is lost, and the operator declares the tool a plain write before it is taken up.
async fn lost_and_then_declared_a_write(effect: Effect) -> (usize, Outcome) {
    let script = Witness::script([turn(&[("crm__put", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| {
        vec![remote("put", effect, RemoteApproval::NotRequired, ledger).that(Behaviour::Hangs).into()]
    })
    .await;
    let run = bed.runtime().start(request(), Mode::Attended).await.unwrap();
    let mut dying = bed.clone();
    let between = dying.between();
    let driving = dying.drive_apart(&run);
    settle().await;
    between.kill();
    driving.abort();
    settle().await;
    bed.clock.advance(LEASE);
    bed.tools = vec![remote("put", Effect::Write, RemoteApproval::NotRequired, &bed.ledger).into()];
    let outcome = bed.runtime().drive(&run).await.unwrap();
    (bed.ledger.calls().len(), outcome)
}

#[tokio::test]
async fn rule_r3_what_is_declared_a_write_now_is_not_repeated_as_what_it_was() {
    let (calls, outcome) = lost_and_then_declared_a_write(Effect::IdempotentWrite).await;
    assert_eq!(calls, 1);
    assert!(matches!(outcome, Outcome::Waiting(_)), "it may have happened: a person is asked");
    let (calls, outcome) = lost_and_then_declared_a_write(Effect::Read).await;
    assert_eq!(calls, 1);
    completed(outcome);
}
