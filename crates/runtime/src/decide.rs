//! A person's answer becomes one conditional append (A8).
//!
//! Invariant: it is judged on the log as read at a revision, with rights and switches read in the transaction
//! that stores it; if the log has moved on, it is judged again. There is no claimed state. Not here: the rules
//! (`countersign_core::settle`).

use std::sync::{Arc, Mutex, PoisonError};

use countersign_core::{
    Decision, DecisionRefused, Event, InputProblem, Judgement, PendingId, PendingRecord, PendingRefused,
    Question, Run, Said, Subject, settle,
};

use crate::journal::load;
use crate::registry::{problems, validator};
use crate::runtime::{Parts, Runtime};
use crate::store::{Append, AppendError, LoadError, Look, Revision, StoreFault, Writer};

/// Only the first this many refused decisions of a pending become events; later ones are counted (A9).
const REFUSALS_RECORDED_MAX: u64 = 20;

/// Why a decision was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// It was refused; the pending is as it was.
    #[error(transparent)]
    Refused(#[from] DecisionRefused),
    /// It could not be stored, so nothing was decided. The question is still open.
    #[error("the decision could not be stored, so nothing was decided and the question is still open")]
    NotAuditable(#[source] StoreFault),
    /// The run cannot be read; it is kept as it is.
    #[error("the run of this question cannot be read: {0}")]
    Unreadable(String),
}

impl DecideError {
    /// The contract's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.code(),
            Self::NotAuditable(_) => "not_auditable",
            Self::Unreadable(_) => "unreadable_state",
        }
    }
}

impl From<LoadError> for DecideError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(_) => Self::Refused(DecisionRefused::NotFound),
            LoadError::Unreadable { reason, .. } => Self::Unreadable(reason),
            LoadError::Fault(fault) => Self::NotAuditable(fault),
        }
    }
}

impl Runtime {
    /// Settles a pending as `by`, whose rights are looked up in the transaction that stores it.
    ///
    /// # Errors
    /// [`DecideError`]; a refused attempt by somebody who may see the pending is an event (A9).
    pub async fn decide(
        &self,
        id: &PendingId,
        decision: Decision,
        by: &Subject,
    ) -> Result<PendingRecord, DecideError> {
        let row = self.parts.store.pending(id).await.map_err(DecideError::NotAuditable)?;
        let run = row.ok_or(DecisionRefused::NotFound)?.run;
        let decision = Arc::new(decision);
        loop {
            let run = load(&*self.parts.store, &run).await?;
            let Some(problems) = input_problems(&run, id, &decision.said) else {
                return Err(DecideError::Unreadable("the schema of the question cannot be used".to_owned()));
            };
            match self.try_decide(&run, id, &decision, by, problems).await {
                Ok(record) => return Ok(record),
                Err(Attempt::Again) => {}
                Err(Attempt::Refused(refused)) => {
                    if refused.is_recorded() {
                        self.record_refusal(&run, id, by, &refused).await;
                    }
                    return Err(refused.into());
                }
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
    }

    async fn try_decide(
        &self,
        run: &Run,
        id: &PendingId,
        decision: &Arc<Decision>,
        by: &Subject,
        problems: Vec<InputProblem>,
    ) -> Result<PendingRecord, Attempt> {
        let verdict: Arc<Mutex<Option<DecisionRefused>>> = Arc::default();
        let judge = {
            let (parts, run, id, decision, by) =
                (Arc::clone(&self.parts), run.clone(), id.clone(), Arc::clone(decision), by.clone());
            let verdict = Arc::clone(&verdict);
            let now = self.parts.clock.now();
            Box::new(move |look: &Look| {
                let judgement = Judgement {
                    run: &run,
                    by: &by,
                    people: &look.people,
                    tools: &parts.tools,
                    second_approver: parts.second_approver_of(&run),
                    now,
                    problems: &problems,
                };
                let events = match settle(&judgement, &id, &decision) {
                    Ok(events) => events,
                    Err((refused, due)) => {
                        *verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
                        due.into_iter().collect()
                    }
                };
                if events.is_empty() {
                    None
                } else {
                    run.record(events, now).ok().map(|(_, changes)| changes)
                }
            })
        };
        let created = run.created();
        let subjects = vec![by.clone(), created.starter.clone(), created.owner.clone()];
        let at = Revision(run.revision());
        let now = self.parts.clock.now();
        let appended = self
            .parts
            .store
            .append(run.id(), at, &Writer::Anyone, now, Append::Judged { subjects, judge })
            .await;
        let refused = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (appended, refused) {
            (Err(AppendError::Conflict | AppendError::LeaseLost), _) => Err(Attempt::Again),
            (Err(AppendError::NotFound(_)), _) => Err(Attempt::Refused(DecisionRefused::NotFound)),
            (Err(AppendError::Unreadable { reason, .. }), _) => {
                Err(Attempt::Failed(DecideError::Unreadable(reason)))
            }
            // What was refused is refused, also where its closing could not be stored.
            (_, Some(refused)) => Err(Attempt::Refused(refused)),
            (Err(AppendError::Fault(fault)), None) => Err(Attempt::Failed(DecideError::NotAuditable(fault))),
            (Ok(None), None) => {
                Err(Attempt::Failed(DecideError::Unreadable("the decision does not fit the run".to_owned())))
            }
            (Ok(Some(changes)), None) => {
                let settled = run.record(changes.events().to_vec(), changes.at()).ok();
                settled
                    .and_then(|(run, _)| run.pending(id).cloned())
                    .ok_or_else(|| Attempt::Failed(DecideError::Unreadable("the pending is gone".to_owned())))
            }
        }
    }

    /// Best effort: a refusal that cannot be recorded is still a refusal.
    async fn record_refusal(&self, run: &Run, id: &PendingId, by: &Subject, refused: &DecisionRefused) {
        let before = self.parts.store.count_refusal(id).await;
        if before.is_ok_and(|before| before < REFUSALS_RECORDED_MAX) {
            let event =
                PendingRefused { pending: id.clone(), by: by.clone(), code: refused.code().to_owned() };
            drop(self.append_anyway(run.clone(), |_| Some(vec![Event::PendingRefused(event.clone())])).await);
        }
    }
}

enum Attempt {
    Again,
    Refused(DecisionRefused),
    Failed(DecideError),
}

/// Where an answer breaks the question's schema; `None`: the schema itself cannot be used.
fn input_problems(run: &Run, id: &PendingId, said: &Said) -> Option<Vec<InputProblem>> {
    let question = run.pending(id).map(|record| &record.pending.question);
    match (said, question) {
        (Said::Answer(answer), Some(Question::Input { schema, .. })) => {
            Some(problems(&validator(schema).ok()?, &answer.to_value()))
        }
        _ => Some(Vec::new()),
    }
}

impl Parts {
    /// Whether the run's agent asks for four eyes now; `None`: the agent or its model is not configured here.
    pub(crate) fn second_approver_of(&self, run: &Run) -> Option<bool> {
        let agent = self.agents.find(&run.created().agent)?;
        self.knows_the_model_of(run).then_some(agent.second_approver)
    }
}
