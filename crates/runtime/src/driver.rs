//! The only loop: it does what [`Run::next`] says is owed, and appends what happened.
//!
//! Invariant: only the driver calls a model or a tool, and a call starts only after its `call.started` is
//! stored. Nothing is held while a person thinks (R5). Not here: what the steps on calls and questions do
//! (`calls`, `questions`).

mod calls;
mod flights;
mod questions;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_core::{
    AgentGates, Ask, CallId, Event, Exhausted, Limit, LimitReached, ModelFailCode, ModelFailed, ModelRef,
    ModelReplied, ProposedCall, Reply, Run, Step, Subject, Transcript, Usage, WorkBegan,
};
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ask::{Asked, Unanswered, ask};
use crate::earlier::earlier;
use crate::journal::{DriveError, Journal, RETRIES_MAX, RETRY_AFTER};
use crate::model::{Answer, Conversation, Offer};
use crate::progress::Progress;
use crate::runtime::Parts;
use crate::store::{Lease, LoadError, Revision, StoreFault};

/// How long results of reads wait for the answer to come with which they are stored. A model that answers
/// sooner costs no commit of its own; with one that thinks longer, a killed process has lost none of them.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

/// Why a driver stopped without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A person is asked; nothing is held.
    Parked,
    /// The run has ended.
    Ended,
    /// The driver was asked to stop; the run can be taken up again by anybody.
    Stopped,
    /// The run's agent or model is not configured here.
    AgentGone,
}

/// One driver on one run.
pub(crate) struct Driver {
    parts: Arc<Parts>,
    progress: Arc<dyn Progress>,
    journal: Journal,
    /// The runs that this one continues, oldest first.
    earlier: Vec<Run>,
    gates: Arc<AgentGates>,
    talks: BTreeMap<ModelRef, Talk>,
    mine: HashSet<CallId>,
    stop: CancellationToken,
    lost: CancellationToken,
    heart: Heart,
    /// Whether the log says that this driver has taken the run up (L5).
    has_begun: bool,
    /// Where its work is traced; kept with the questions that come of it.
    trace: Option<String>,
}

/// A run that was just claimed, and until when it is certainly ours.
pub(crate) struct Claimed {
    pub(crate) lease: Lease,
    pub(crate) until: Timestamp,
}

impl Claimed {
    /// Claimed at this moment for this long.
    pub(crate) fn new(lease: Lease, now: Timestamp, length: Duration) -> Self {
        Self { lease, until: Lease::end(now, length) }
    }
}

/// A conversation, how many parts of the transcript it has been given, and how many of them were left out.
struct Talk {
    conversation: Box<dyn Conversation>,
    told: usize,
    left_out: u64,
}

impl Talk {
    fn tell(&mut self, transcript: Transcript<'_>) {
        transcript.messages_from(self.told).for_each(|message| self.conversation.add(&message));
        self.told = transcript.parts();
    }
}

/// Drives a claimed run to its next stop. The lease is given back on every way out but a lost one.
pub(crate) async fn drive(
    parts: Arc<Parts>,
    claimed: Claimed,
    progress: Arc<dyn Progress>,
    stop: CancellationToken,
) -> Result<(Halt, Run), DriveError> {
    let Claimed { lease, until } = claimed;
    let lost = CancellationToken::new();
    let heart = Heart::beat(&parts, lease.clone(), until, lost.clone());
    let store = Arc::clone(&parts.store);
    let driven = async {
        let journal = Journal::open(
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            Arc::clone(&progress),
            lease.clone(),
        )
        .await?;
        let created = journal.run().created();
        let agent = parts.agents.find(&created.agent).filter(|_| parts.knows_the_model_of(journal.run()));
        let Some(agent) = agent else {
            store.release(&lease, journal.revision()).await?;
            return Ok((Halt::AgentGone, journal.into_run()));
        };
        let earlier =
            earlier(&*parts.store, journal.run()).await.map_err(|error| cut_off(journal.run(), error))?;
        let gates = Arc::new(parts.agents.gates_of_run(agent, created, &parts.models, &parts.tools));
        let trace = progress.takes_up(journal.run());
        let mut driver = Driver {
            parts: Arc::clone(&parts),
            progress: Arc::clone(&progress),
            journal,
            earlier,
            gates,
            talks: BTreeMap::new(),
            mine: HashSet::new(),
            stop,
            lost,
            heart,
            has_begun: false,
            trace,
        };
        let halt = driver.run().await?;
        Ok((halt, driver.journal.into_run()))
    };
    let driven: Result<(Halt, Run), DriveError> = driven.await;
    if let Err(DriveError::Store(_)) = &driven {
        // A run that cannot be read keeps its lease until it runs out, or it would be claimed again at once, for ever.
        give_back(&parts, &lease).await;
    }
    progress.lets_go(&driven);
    driven
}

/// Gives a run back that the store kept from being driven, when the store is back: whoever comes next need not wait
/// for the lease to run out. If it stays away, they do.
async fn give_back(parts: &Parts, lease: &Lease) {
    for _ in 0..RETRIES_MAX {
        match parts.store.release(lease, Revision::PAST_ALL).await {
            Err(fault) if fault.may_pass() => parts.clock.sleep(RETRY_AFTER).await,
            Ok(_) | Err(_) => return,
        }
    }
}

/// What a run continues is not there or cannot be read: the run is left as it is, like one that cannot be read
/// itself (R10).
fn cut_off(run: &Run, error: LoadError) -> DriveError {
    match error {
        LoadError::Fault(fault) => fault.into(),
        LoadError::NotFound(_) | LoadError::Unreadable { .. } | LoadError::Erased { .. } => {
            DriveError::Unreadable {
                run: run.id().clone(),
                reason: format!("what it continues is missing: {error}"),
            }
        }
    }
}

/// Renews a lease beside long calls, and says when it is lost. Stops when dropped.
struct Heart {
    beating: JoinHandle<()>,
    until: Arc<Mutex<Timestamp>>,
}

impl Heart {
    fn beat(parts: &Arc<Parts>, lease: Lease, until: Timestamp, lost: CancellationToken) -> Self {
        let until = Arc::new(Mutex::new(until));
        let beating = tokio::spawn({
            let (parts, until) = (Arc::clone(parts), Arc::clone(&until));
            async move {
                loop {
                    parts.clock.sleep(parts.limits.lease / 3).await;
                    // A store that fails for a moment is asked again; the lease is two beats longer than this one.
                    if let Ok(false) = renew(&parts, &lease, &until).await {
                        lost.cancel();
                        return;
                    }
                }
            }
        });
        Self { beating, until }
    }
}

/// `false`: the lease is lost.
async fn renew(parts: &Parts, lease: &Lease, until: &Mutex<Timestamp>) -> Result<bool, StoreFault> {
    let (now, length) = (parts.clock.now(), parts.limits.lease);
    let ours = parts.store.heartbeat(lease, now, length).await?;
    if ours {
        *until.lock().unwrap_or_else(PoisonError::into_inner) = Lease::end(now, length);
    }
    Ok(ours)
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

fn out_of_time() -> Event {
    Event::LimitReached(LimitReached::of(Limit::WorkingTime))
}

impl Driver {
    async fn run(&mut self) -> Result<Halt, DriveError> {
        loop {
            if self.lost.is_cancelled() {
                return Err(DriveError::LeaseLost);
            }
            let step = self.journal.run().next();
            // What was started is executed: a start that is left behind would make a write unknown.
            let in_hand =
                matches!(&step, Step::Execute(calls) if calls.iter().any(|call| self.mine.contains(call)));
            if self.stop.is_cancelled() && !in_hand {
                self.journal.flush().await?;
                self.parts.store.release(self.journal.lease(), Revision::PAST_ALL).await?;
                return Ok(Halt::Stopped);
            }
            if let Some(event) = self.clocked(&step) {
                self.journal.record(vec![event]).await?;
                continue;
            }
            match step {
                Step::Record(events) => {
                    let events = self.explained(events).await?;
                    self.journal.record(events).await?;
                }
                Step::AskModel(ask) => self.ask_model(ask).await?,
                Step::Judge => self.judge_turn().await?,
                Step::Dispatch(calls) => self.dispatch(&calls).await?,
                Step::Execute(calls) => self.execute(&calls).await?,
                Step::OpenInput(call) => self.open_input(&call).await?,
                Step::OpenResolution(call) => self.open_resolution(&call).await?,
                Step::Park(pending) => {
                    if self.close_overdue(&pending).await? {
                        continue;
                    }
                    if self.release().await? {
                        return Ok(Halt::Parked);
                    }
                }
                Step::Ended => {
                    if self.release().await? {
                        return Ok(Halt::Ended);
                    }
                }
            }
        }
    }

    /// Gives the run back, unless something arrived since the last look (R5).
    async fn release(&mut self) -> Result<bool, DriveError> {
        self.journal.flush().await?;
        let given_back = self.parts.store.release(self.journal.lease(), self.journal.revision()).await?;
        if !given_back {
            self.journal.reload().await?;
        }
        Ok(given_back)
    }

    /// Right before an effect: a process that was suspended longer than its lease asks whether somebody else
    /// has taken the run, and then starts nothing (R6). What is left is the moment between this and the effect.
    async fn still_ours(&self) -> Result<(), DriveError> {
        let until = *self.heart.until.lock().unwrap_or_else(PoisonError::into_inner);
        if self.now() < until || renew(&self.parts, self.journal.lease(), &self.heart.until).await? {
            Ok(())
        } else {
            Err(DriveError::LeaseLost)
        }
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![self.journal.run().created().owner.clone()]
    }

    /// What the budget of working time wants stored before this step: that the run is taken up, or that its time
    /// is up (L5).
    fn clocked(&mut self, step: &Step) -> Option<Event> {
        let run = self.journal.run();
        let stands_still = matches!(step, Step::Park(_) | Step::Ended);
        if stands_still || run.created().limits.working_ms_max.is_none() {
            return None;
        }
        if !(self.has_begun && run.is_worked_on()) {
            self.has_begun = true;
            return Some(Event::WorkBegan(WorkBegan {}));
        }
        let begins_something =
            matches!(step, Step::AskModel(_) | Step::Judge | Step::Dispatch(_) | Step::OpenInput(_));
        (begins_something && run.may_stop_for_time(self.now())).then(out_of_time)
    }

    /// What must be stored before a request with these offers: that it is made shorter, or that it cannot be made
    /// (L6). A request is fitted once; the models that it falls back to get it as it was.
    fn fitted(&self, wanted: &Ask, offers: &[Offer]) -> Option<Event> {
        let run = self.journal.run();
        if wanted.fallback || run.created().limits.window_tokens.is_none() {
            return None;
        }
        let size = |offer: &Offer| {
            offer.name.as_str().len() + offer.description.len() + offer.parameters.to_string().len()
        };
        let offered: usize = offers.iter().map(size).sum();
        match Transcript::new(&self.earlier, run).fitted(offered as u64) {
            Ok(fitted) => fitted.map(Event::ContextFitted),
            Err(Exhausted { estimated_tokens }) => Some(Event::LimitReached(LimitReached {
                which: Limit::ContextExhausted,
                estimated_tokens: Some(estimated_tokens),
            })),
        }
    }

    async fn ask_model(&mut self, wanted: Ask) -> Result<(), DriveError> {
        if self.journal.holds_back_an_answer() {
            return self.journal.flush().await;
        }
        let offers = if wanted.closing {
            Vec::new()
        } else {
            let look = self.parts.store.look(&self.subjects()).await?;
            self.parts.tools.offers(&self.bench(&look).offered())
        };
        if let Some(event) = self.fitted(&wanted, &offers) {
            return self.journal.record(vec![event]).await;
        }
        let Some(provider) = self.parts.models.find(&wanted.model) else {
            // A fallback that is not configured is passed over, visibly.
            let failed = ModelFailed {
                model: wanted.model,
                code: ModelFailCode::Unreachable,
                status: None,
                attempts: 0,
                usage: Usage::default(),
            };
            return self.journal.record(vec![Event::ModelFailed(failed)]).await;
        };
        let left_out = self.journal.run().left_out();
        // What a conversation was told it cannot forget: where more is left out, another one begins.
        let talk = self.talks.remove(&wanted.model).filter(|talk| talk.left_out == left_out);
        let mut talk = talk.unwrap_or_else(|| Talk {
            conversation: provider.client.converse(&wanted.model.model),
            told: 0,
            left_out,
        });
        talk.tell(Transcript::new(&self.earlier, self.journal.run()));
        let time_left = self.journal.run().working_time_left(self.now());
        let (clock, progress) = (Arc::clone(&self.parts.clock), Arc::clone(&self.progress));
        let asked = {
            let asking = ask(&mut *talk.conversation, &offers, &wanted.model, time_left, &*clock, &*progress);
            tokio::pin!(asking);
            loop {
                tokio::select! {
                    asked = &mut asking => break Some(asked),
                    () = self.lost.cancelled() => break None,
                    () = self.stop.cancelled() => break None,
                    () = clock.sleep(if self.journal.holds_back() { FLUSH_AFTER } else { self.parts.limits.poll }) => {
                        if self.journal.holds_back() {
                            self.journal.flush().await?;
                        } else {
                            self.journal.follow().await;
                        }
                        if self.journal.run().is_cancelled() {
                            break None;
                        }
                    }
                }
            }
        };
        self.talks.insert(wanted.model.clone(), talk);
        let mut events = match asked {
            None => return Ok(()),
            Some(Ok(asked)) => vec![Event::ModelReplied(Box::new(ModelReplied {
                reply: Arc::new(self.with_our_ids(&wanted.model, asked)),
                closing: wanted.closing,
            }))],
            Some(Err(Unanswered { code, status, attempts, usage })) => {
                vec![Event::ModelFailed(ModelFailed { model: wanted.model, code, status, attempts, usage })]
            }
        };
        let is_late =
            matches!(&events[..], [Event::ModelFailed(failed)] if failed.code == ModelFailCode::OutOfTime);
        if is_late && self.journal.run().may_stop_for_time(self.now()) {
            events.push(out_of_time());
        }
        self.journal.record(events).await
    }

    fn with_our_ids(&self, model: &ModelRef, asked: Asked) -> Reply {
        let Asked { answer: Answer { text, calls, finish, opaque, .. }, attempts, usage } = asked;
        let calls = calls.into_iter().map(|call| ProposedCall {
            id: CallId::from_random(self.parts.clock.random()),
            wire_id: call.wire_id,
            name: call.name,
            arguments: call.arguments,
            opaque: call.opaque,
        });
        Reply {
            provider: model.provider.clone(),
            model: model.model.clone(),
            text,
            calls: calls.collect(),
            finish,
            usage,
            attempts,
            opaque,
        }
    }
}
