//! A person's answer becomes one conditional append (A8).
//!
//! Invariant: it is judged on the log as read at a revision, with rights and switches read in the transaction
//! that stores it; if the log has moved on, it is judged again. There is no claimed state. Not here: the rules
//! (`countersign_core::settle`).

use std::sync::{Arc, Mutex, PoisonError};

use countersign_core::{
    Decision, DecisionRefused, Event, InputProblem, Judgement, PendingId, PendingRecord, PendingRefused,
    Question, RefusedWith, Run, Said, Subject, settle,
};
use jiff::Timestamp;

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
            LoadError::Erased { at, .. } => Self::Unreadable(format!("its content was erased at {at}")),
            LoadError::Fault(fault) => Self::NotAuditable(fault),
        }
    }
}

impl Runtime {
    /// Settles a pending as `by`, whose rights are looked up in the transaction that stores it. Somebody whom
    /// the store does not know ([`Store::put_principal`](crate::Store::put_principal)) sees no pending at all.
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
        let run = load(&*self.parts.store, &row.ok_or(DecisionRefused::NotFound)?.run).await?;
        self.decide_in(run, id, decision, by).await
    }

    /// The same for whoever has loaded the run already, to see what is decided ([`Runtime::load`]). It is only where the
    /// judgement begins: nothing is stored on a log that has moved on, and rights and switches are read as ever.
    ///
    /// # Errors
    /// As [`Self::decide`].
    pub async fn decide_in(
        &self,
        mut run: Run,
        id: &PendingId,
        decision: Decision,
        by: &Subject,
    ) -> Result<PendingRecord, DecideError> {
        let decision = Arc::new(decision);
        loop {
            let Some(problems) = input_problems(&run, id, &decision.said) else {
                return Err(DecideError::Unreadable("the schema of the question cannot be used".to_owned()));
            };
            let judged = {
                let (id, decision) = (id.clone(), Arc::clone(&decision));
                move |judgement: &Judgement<'_>| settle(judgement, &id, &decision)
            };
            match self.append_settled(&run, id, by, problems, judged).await {
                Ok(record) => return Ok(record),
                Err(Attempt::Again) => run = load(&*self.parts.store, run.id()).await?,
                Err(Attempt::Refused(refused)) => {
                    self.record_refusal(&run, id, by, &refused).await;
                    return Err(refused.into());
                }
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
    }

    /// Stores what a judgement on this run comes to, conditional on the log not having moved on, with rights
    /// read in the transaction that stores it. Gives back the pending `shown` as it is then.
    pub(crate) async fn append_settled(
        &self,
        run: &Run,
        shown: &PendingId,
        by: &Subject,
        problems: Vec<InputProblem>,
        judged: impl FnOnce(&Judgement<'_>) -> Result<Vec<Event>, RefusedWith> + Send + 'static,
    ) -> Result<PendingRecord, Attempt> {
        let verdict: Arc<Mutex<Option<DecisionRefused>>> = Arc::default();
        let judge = {
            let (parts, run, by) = (Arc::clone(&self.parts), run.clone(), by.clone());
            let verdict = Arc::clone(&verdict);
            let now = self.parts.clock.now();
            Box::new(move |look: &Look| {
                let events = match judged(&parts.judgement(&run, &by, look, now, &problems)) {
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
        let subjects = subjects_of(run, by);
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
                self.wake();
                let settled = run.record(changes.events().to_vec(), changes.at()).ok();
                settled
                    .and_then(|(run, _)| run.pending(shown).cloned())
                    .ok_or_else(|| Attempt::Failed(DecideError::Unreadable("the pending is gone".to_owned())))
            }
        }
    }

    /// Records an attempt that belongs into the record (A9). Best effort: a refusal that cannot be recorded is
    /// still a refusal.
    pub(crate) async fn record_refusal(
        &self,
        run: &Run,
        id: &PendingId,
        by: &Subject,
        refused: &DecisionRefused,
    ) {
        if !refused.is_recorded() {
            return;
        }
        let before = self.parts.store.count_refusal(id).await;
        if before.is_ok_and(|before| before < REFUSALS_RECORDED_MAX) {
            let event =
                PendingRefused { pending: id.clone(), by: by.clone(), code: refused.code().to_owned() };
            drop(self.append_anyway(run.clone(), |_| Some(vec![Event::PendingRefused(event.clone())])).await);
        }
    }
}

/// Why one attempt to settle stored nothing.
pub(crate) enum Attempt {
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

/// Whose rights a judgement on this run needs.
pub(crate) fn subjects_of(run: &Run, by: &Subject) -> Vec<Subject> {
    vec![by.clone(), run.created().starter.clone(), run.created().owner.clone()]
}

impl Parts {
    /// Everything that settling a question of this run depends on, as of one look.
    pub(crate) fn judgement<'a>(
        &'a self,
        run: &'a Run,
        by: &'a Subject,
        look: &'a Look,
        now: Timestamp,
        problems: &'a [InputProblem],
    ) -> Judgement<'a> {
        let second_approver = self.second_approver_of(run);
        Judgement { run, by, people: &look.people, tools: &self.tools, second_approver, now, problems }
    }

    /// Whether the run's agent asks for four eyes now; `None`: the agent or its model is not configured here.
    pub(crate) fn second_approver_of(&self, run: &Run) -> Option<bool> {
        let agent = self.agents.find(&run.created().agent)?;
        self.knows_the_model_of(run).then_some(agent.second_approver)
    }
}
