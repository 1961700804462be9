//! Many runs at once, some of them spoiled: nobody who works through a list is stopped by what lies in it (R2).

use std::sync::Arc;
use std::time::Duration;

use countersign_core::{
    AgentName, Effect, Enforcement, GroupSetting, ModelRef, Principal, ProviderName, RunId, RunLimits,
    RunState, Subject, Zone,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::MemoryStore;
use crate::contract::Damage;
use crate::model::Provider;
use crate::testing::{Ledger, Line, ManualClock, RecordingTool, ScriptedModel, text, turn};

const LEASE: Duration = Duration::from_secs(30);
/// How long a question stays open.
const OPEN: Duration = Duration::from_secs(60);

struct Bed {
    runtime: Runtime,
    store: Arc<MemoryStore>,
    clock: ManualClock,
    ledger: Ledger,
}

impl Bed {
    async fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        let (store, clock, ledger) =
            (Arc::new(MemoryStore::new([5; 32])), ManualClock::default(), Ledger::default());
        store.put_principal(&Principal::user(owner())).await.unwrap();
        let provider = ProviderName::parse("p").unwrap();
        let client = Arc::new(ScriptedModel::new(lines));
        let agent = Agent {
            name: agent(),
            models: vec![ModelRef { provider: provider.clone(), model: "m".to_owned() }],
            system_prompt: None,
            groups: GroupSetting::Unrestricted,
            skills: Vec::new(),
            limits: RunLimits::iterations(20),
            approval_ttl: Some(OPEN),
            second_approver: false,
        };
        let runtime = Runtime::new(Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            models: Models::default().with(provider, Provider { zone: Zone::Local, client }),
            tools: Registry::new([RecordingTool::new("drop", Effect::Write, &ledger).into()]).unwrap(),
            agents: Agents::new(Enforcement::Enforce, [agent]),
            limits: Limits { lease: LEASE, parallel_reads: 1, poll: Duration::from_secs(1) },
            clock: Arc::new(clock.clone()),
        });
        Self { runtime, store, clock, ledger }
    }

    async fn started(&self) -> RunId {
        self.runtime.start(request(), Mode::Attended).await.unwrap()
    }

    async fn state(&self, run: &RunId) -> RunState {
        self.store.run(run, self.clock.now()).await.unwrap().row.state
    }
}

fn owner() -> Subject {
    "alice".parse().unwrap()
}

fn agent() -> AgentName {
    "default".parse().unwrap()
}

fn request() -> RunRequest {
    RunRequest::new(agent(), owner(), "x")
}

#[tokio::test]
async fn rule_a10_the_sweeper_gets_past_a_page_of_runs_that_cannot_be_read() {
    let asks = (0..SWEEP_PAGE + 2).map(|_| turn(&[("drop", "{}")]));
    let bed = Bed::new(asks).await;
    let mut runs = Vec::new();
    for _ in 0..SWEEP_PAGE + 2 {
        let Outcome::Waiting(waiting) = bed.runtime.run(request()).await.unwrap() else {
            panic!("a write waits")
        };
        runs.push(waiting.run.id().clone());
        // The spoiled ones are the first to be overdue, so they fill the first page.
        bed.clock.advance(Duration::from_millis(1));
    }
    for run in &runs[..=SWEEP_PAGE] {
        bed.store.damage(&Damage::Entry { run: run.clone(), seq: 0 });
    }
    bed.clock.advance(OPEN + Duration::from_secs(1));
    let closed = bed.runtime.close_expired().await.unwrap();
    let closed: Vec<&RunId> = closed.iter().map(|row| &row.run).collect();
    assert_eq!(closed, [runs.last().unwrap()]);
    assert_eq!(bed.state(runs.last().unwrap()).await, RunState::Active);
    assert_eq!(bed.state(&runs[0]).await, RunState::WaitingForApproval, "it is left as it is");
    assert_eq!(bed.runtime.sweep().await.unwrap(), 0);
    assert_eq!(bed.ledger.calls().len(), 0);
}

#[tokio::test]
async fn rule_r2_what_is_owed_is_worked_off_around_a_run_that_cannot_be_read() {
    let bed = Bed::new([text("first"), turn(&[("drop", "{}")]), text("last")]).await;
    let spoiled = bed.started().await;
    let (answers, asks) = (bed.started().await, bed.started().await);
    bed.store.damage(&Damage::Entry { run: spoiled.clone(), seq: 0 });
    let stopped = CancellationToken::new();
    stopped.cancel();
    assert_eq!(bed.runtime.work_off(Arc::new(Unwatched), stopped).await.unwrap().len(), 0);

    let worked = bed.runtime.work_off(Arc::new(Unwatched), CancellationToken::new()).await.unwrap();
    let came_to: Vec<_> =
        worked.iter().map(|one| (&one.run, one.came_to.as_ref().ok().map(Run::state))).collect();
    assert_eq!(
        came_to,
        [
            (&spoiled, None),
            (&answers, Some(RunState::Completed)),
            (&asks, Some(RunState::WaitingForApproval))
        ],
        "who has waited longest comes first, and each has its turn"
    );
    assert_eq!(bed.state(&spoiled).await, RunState::Active, "it is kept as it is");
    // It comes back when its lease is over, once, and stops nobody then either.
    bed.clock.advance(LEASE);
    let last = bed.started().await;
    let worked = bed.runtime.work_off(Arc::new(Unwatched), CancellationToken::new()).await.unwrap();
    let came_to: Vec<_> = worked.iter().map(|one| (&one.run, one.came_to.is_ok())).collect();
    assert_eq!(came_to, [(&spoiled, false), (&last, true)]);
}
