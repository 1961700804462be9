//! The power is cut before and after every append of every scenario, and after every tool's work.
//!
//! Then another process takes the run up. The judge is what the tools wrote down themselves: a read may
//! repeat, an idempotent write repeats under one key, a write never happens twice; and no run is stuck.

mod scenarios;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{Ledger, ManualClock, RecordingTool};
use countersign::{
    Arguments, CallContext, CallVerdict, Clearance, Decision, Effect, End, Event, FailCode, Outcome,
    PendingStatus, Principal, Question, ResultKind, Run, RunId, Runtime, SettledOutcome, Stage, Store, Tool,
    ToolError, ToolOutput, ToolSpec, Waiting, needs_approval,
};

use crate::kit::{Bed, Between, Cut, LEASE, alice, bob};
use scenarios::{SCENARIOS, Scenario, Word, models};

/// How long a question stays open here: longer than any process takes to come back.
const ANSWER_WITHIN: Duration = Duration::from_secs(3600);

/// A tool whose process can lose its power right after the work is done.
struct OnTheWire {
    tool: RecordingTool,
    process: Between,
}

#[async_trait]
impl Tool for OnTheWire {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let answer = self.tool.call(arguments, cx).await;
        self.process.effect();
        answer
    }
}

/// Everything that outlives a process.
struct World {
    scenario: &'static Scenario,
    settled: SettledOutcome,
    bed: Bed,
}

impl World {
    async fn new(scenario: &'static Scenario, settled: SettledOutcome) -> Self {
        let clock = ManualClock::default();
        let (witness, providers) = models(scenario, &clock);
        let mut bed = Bed { clock, ..Bed::new(witness, |_| Vec::new()).await };
        bed.models = providers;
        bed.agent.models = scenario.chain();
        bed.agent.approval_ttl = Some(ANSWER_WITHIN);
        Self { scenario, settled, bed }
    }

    fn specs(&self) -> Vec<ToolSpec> {
        (self.scenario.tools)(&Ledger::default()).into_iter().map(|tool| tool.spec).collect()
    }

    fn effect_of(&self, tool: &str) -> Effect {
        self.specs().into_iter().find(|spec| spec.name.as_str() == tool).unwrap().effect
    }

    /// A new process, which lives until the cut.
    fn process(&self, cut: Cut) -> (Runtime, Between) {
        let between = Between::cutting(Arc::clone(&self.bed.memory) as Arc<dyn Store>, cut);
        let tools = (self.scenario.tools)(&self.bed.ledger);
        let bed = Bed {
            store: Arc::new(between.clone()),
            tools: tools
                .into_iter()
                .map(|tool| OnTheWire { tool, process: between.clone() }.into())
                .collect(),
            ..self.bed.clone()
        };
        (bed.runtime(), between)
    }

    /// Starts the run or takes it up, and answers whatever is asked, until the run ends (`Some`) or the
    /// power is cut.
    async fn live(&self, cut: Cut) -> Option<Run> {
        let (runtime, process) = self.process(cut);
        let run = match self.known_run().await {
            Some(run) => run,
            None => match runtime.start((self.scenario.request)(), self.scenario.mode).await {
                Ok(run) => run,
                Err(error) => return self.died(&process, &error),
            },
        };
        for _ in 0..30 {
            let waiting = match runtime.drive(&run).await {
                Ok(Outcome::Done(finished)) => return Some(finished.run),
                Ok(Outcome::Waiting(waiting)) => waiting,
                Err(error) => return self.died(&process, &error),
            };
            if let Err(error) = self.answer(&runtime, &waiting).await {
                return self.died(&process, error.as_ref());
            }
        }
        panic!("{}: the run is stuck", self.scenario.name);
    }

    /// Only a process without power may fail.
    fn died(&self, process: &Between, error: &dyn std::error::Error) -> Option<Run> {
        assert!(process.is_dead(), "{}: a healthy process failed: {error}", self.scenario.name);
        None
    }

    async fn known_run(&self) -> Option<RunId> {
        let now = self.bed.now();
        let runs =
            self.bed.memory.runs(&countersign::RunFilter::default(), now, 10, None).await.unwrap().items;
        assert!(runs.len() <= 1);
        runs.first().map(|listing| listing.row.id.clone())
    }

    async fn answer(&self, runtime: &Runtime, waiting: &Waiting) -> Result<(), Box<dyn std::error::Error>> {
        let decision = match (&waiting.record.pending.question, self.scenario.word) {
            (Question::Resolution { not_before, .. }, _) => {
                assert!(
                    self.bed.now() > *not_before,
                    "whoever was lost has been gone for longer than the call may take"
                );
                Decision::settle(waiting.digest, self.settled, Some("A person looked.".to_owned()))
            }
            (_, Word::Cancel) => {
                runtime.cancel(waiting.run.id(), &Principal::user(alice())).await?;
                return Ok(());
            }
            (_, Word::Nothing) => {
                self.bed.clock.advance(ANSWER_WITHIN + Duration::from_secs(1));
                runtime.sweep().await?;
                return Ok(());
            }
            (Question::Input { .. }, _) => Decision::answer(waiting.digest, scenarios::date()),
            (Question::Approval, Word::Approve) => Decision::approve(waiting.digest),
            (Question::Approval, Word::Deny) => Decision::deny(waiting.digest, Some("not now".to_owned())),
            (Question::Approval, Word::OnlyTheFirst) => {
                let asked = waiting.record.pending.asked().enumerate();
                let word = |place| if place == 0 { CallVerdict::Approve } else { CallVerdict::Deny };
                let verdicts = asked.map(|(place, held)| (held.id.clone(), word(place))).collect();
                Decision::calls(waiting.digest, verdicts, None)
            }
        };
        runtime.decide(&waiting.id, decision, &bob()).await?;
        Ok(())
    }

    /// Long enough for every lease to run out.
    fn lights_on_again(&self) {
        self.bed.clock.advance(LEASE + Duration::from_secs(1));
    }

    /// How many calls with the same tool and arguments the tools have seen.
    fn tally(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for line in self.bed.ledger.calls() {
            calls.insert(line.cx.call.clone(), format!("{} {}", line.tool, line.arguments));
        }
        let mut tally = BTreeMap::new();
        calls.into_values().for_each(|line| *tally.entry(line).or_default() += 1);
        tally
    }

    /// What holds wherever the power was cut.
    async fn judge(&self, run: &Run, uncut: &BTreeMap<String, usize>, context: &str) {
        let lines = self.bed.ledger.calls();
        for line in &lines {
            let same: Vec<_> = lines.iter().filter(|other| other.cx.call == line.cx.call).collect();
            assert!(same.iter().all(|other| other.arguments == line.arguments), "{context}: other arguments");
            assert!(
                same.iter().all(|other| other.cx.idempotency_key == line.cx.idempotency_key),
                "{context}: another key"
            );
            if self.effect_of(&line.tool) == Effect::Write {
                assert_eq!(same.len(), 1, "{context}: the write {} happened twice", line.tool);
            }
        }
        for (line, count) in self.tally() {
            let at_most = uncut.get(&line).copied().unwrap_or_default();
            assert!(count <= at_most, "{context}: {line} ran as {count} calls, not {at_most}");
        }
        self.judge_the_record(run, context).await;
        let settled_by_person = run.pendings().any(|record| record.status == PendingStatus::Settled);
        match run.end().unwrap() {
            End::Failed { code: FailCode::OutcomeUnknown, .. } => {
                let may_be = self.settled == SettledOutcome::GiveUp && settled_by_person;
                assert!(may_be || run.created().unattended, "{context}: it gave up by itself");
            }
            _ => {
                (self.scenario.end)(run);
                if !settled_by_person {
                    assert_eq!(self.tally(), *uncut, "{context}: something was left out");
                }
            }
        }
    }

    /// The record tells the truth about the ledger, and every write was allowed before it ran.
    async fn judge_the_record(&self, run: &Run, context: &str) {
        let lines = self.bed.ledger.calls();
        let settled: Vec<_> = run
            .pendings()
            .filter_map(|record| match &record.pending.question {
                Question::Resolution { call, .. } => Some(call.clone()),
                Question::Approval | Question::Input { .. } => None,
            })
            .collect();
        for state in run.history().chain(run.turn()).flat_map(|turn| turn.calls()) {
            let ran = lines.iter().any(|line| line.cx.call == state.call.id);
            if settled.contains(&state.call.id) {
                continue;
            }
            let Stage::Finished(result) = state.stage else { continue };
            match result.kind {
                ResultKind::Ok => assert!(ran, "{context}: an answer nobody gave"),
                ResultKind::Denied | ResultKind::Expired | ResultKind::NotRun | ResultKind::Refused => {
                    assert!(
                        !ran,
                        "{context}: {} ran, and the record says {:?}",
                        state.call.name, result.kind
                    );
                }
                ResultKind::Error | ResultKind::Timeout | ResultKind::Cancelled => {}
            }
        }
        let events = self.bed.events(run.id()).await;
        for line in &lines {
            let started: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    Event::CallStarted(started) if started.call == line.cx.call => Some(started),
                    _ => None,
                })
                .collect();
            let tries = lines.iter().filter(|other| other.cx.call == line.cx.call).count();
            assert!(started.len() >= tries, "{context}: {} ran without a stored start", line.tool);
            let spec = self.specs().into_iter().find(|spec| spec.name.as_str() == line.tool);
            if needs_approval(spec.as_ref()).is_some() {
                let Clearance::Approved(pending) = &started[0].clearance else {
                    panic!("{context}: nobody approved")
                };
                assert_eq!(run.pending(pending).unwrap().status, PendingStatus::Approved, "{context}");
            }
        }
    }
}

/// What the tools see of a run that nobody disturbs.
async fn undisturbed(scenario: &'static Scenario) -> BTreeMap<String, usize> {
    let world = World::new(scenario, SettledOutcome::Happened).await;
    let run = world.live(Cut::Never).await.unwrap();
    (scenario.end)(&run);
    world.tally()
}

/// The kinds of cuts; each is tried at every place, until a run passes uncut.
const KINDS: [fn(usize) -> Cut; 3] = [Cut::Before, Cut::After, Cut::Effect];
/// Further than any scenario goes.
const PLACES_MAX: usize = 100;

/// Cuts the power at every place, and says how often.
async fn cut_everywhere(scenario: &'static Scenario, settled: SettledOutcome) -> usize {
    let uncut = undisturbed(scenario).await;
    let mut tried = 0;
    for kind in KINDS {
        for place in 0..PLACES_MAX {
            let world = World::new(scenario, settled).await;
            let context = format!("{} cut {:?}, settled {settled:?}", scenario.name, kind(place));
            if let Some(run) = world.live(kind(place)).await {
                world.judge(&run, &uncut, &context).await;
                break;
            }
            tried += 1;
            world.lights_on_again();
            let run = world.live(Cut::Never).await.expect("a process with power comes to an end");
            world.judge(&run, &uncut, &context).await;
        }
    }
    tried
}

/// Cuts the power at every place, and again at every place of the recovery.
async fn cut_twice_everywhere(scenario: &'static Scenario, settled: SettledOutcome) -> usize {
    let uncut = undisturbed(scenario).await;
    let mut tried = 0;
    for (first_kind, second_kind) in KINDS.into_iter().flat_map(|first| KINDS.map(|second| (first, second))) {
        'first: for first in (0..PLACES_MAX).map(first_kind) {
            for second in (0..PLACES_MAX).map(second_kind) {
                let world = World::new(scenario, settled).await;
                let context =
                    format!("{} cut {first:?}, then {second:?}, settled {settled:?}", scenario.name);
                if world.live(first).await.is_some() {
                    break 'first;
                }
                world.lights_on_again();
                if let Some(run) = world.live(second).await {
                    world.judge(&run, &uncut, &context).await;
                    break;
                }
                tried += 1;
                world.lights_on_again();
                let run = world.live(Cut::Never).await.expect("a process with power comes to an end");
                world.judge(&run, &uncut, &context).await;
            }
        }
    }
    tried
}

async fn every_scenario(settled: SettledOutcome) {
    let mut total = 0;
    for scenario in SCENARIOS {
        let tried = cut_everywhere(scenario, settled).await;
        println!("{tried:>4} cuts in: {}", scenario.name);
        assert!(tried >= scenario.cuts_min, "{}: the enumeration has shrunk to {tried}", scenario.name);
        total += tried;
    }
    println!("{total} cuts in all, settled {settled:?}");
}

#[tokio::test]
async fn the_power_is_cut_everywhere_and_what_is_unknown_happened() {
    every_scenario(SettledOutcome::Happened).await;
}

#[tokio::test]
async fn the_power_is_cut_everywhere_and_what_is_unknown_did_not_happen() {
    every_scenario(SettledOutcome::DidNotHappen).await;
}

#[tokio::test]
async fn the_power_is_cut_everywhere_and_what_is_unknown_is_given_up() {
    every_scenario(SettledOutcome::GiveUp).await;
}

async fn twice(scenario_name: &str, settled: SettledOutcome, pairs_min: usize) {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == scenario_name).unwrap();
    let tried = cut_twice_everywhere(scenario, settled).await;
    println!("{tried} pairs of cuts in: {scenario_name}");
    assert!(tried >= pairs_min, "the enumeration has shrunk to {tried} pairs");
}

#[tokio::test]
async fn the_power_is_cut_again_in_the_recovery_of_one_write() {
    twice("a read and a write, approved", SettledOutcome::Happened, 226).await;
}

#[tokio::test]
async fn the_power_is_cut_again_in_the_recovery_of_two_writes() {
    twice("two writes, approved", SettledOutcome::DidNotHappen, 254).await;
}

#[tokio::test]
async fn the_power_is_cut_again_in_the_recovery_of_an_idempotent_write() {
    twice("an idempotent write between a read and a write", SettledOutcome::GiveUp, 346).await;
}
