//! A person changes arguments before deciding (A14).
//!
//! Invariant: an edit is a new question, never a silent change: the old one becomes superseded, the new one
//! shows both versions, has the same deadline, and needs a decision of its own. The model's message stays as it
//! was. Not here: deciding (`decide`).

use std::collections::BTreeMap;

use countersign_core::{
    CallId, DecisionRefused, Digest, Event, HeldCall, InputProblem, Judgement, Pending, PendingId,
    PendingRecord, Run, Subject, may_edit,
};

use crate::decide::{Attempt, DecideError, subjects_of};
use crate::journal::load;
use crate::judge::Bench;
use crate::preview::preview;
use crate::runtime::Runtime;
use crate::store::Look;

impl Runtime {
    /// Replaces arguments of calls of an open approval, and asks anew. `changes` holds the new arguments as JSON
    /// text, by call.
    ///
    /// # Errors
    /// [`DecideError`], in the order of A8; the question is as it was.
    pub async fn edit(
        &self,
        id: &PendingId,
        digest: Digest,
        changes: &BTreeMap<CallId, String>,
        by: &Subject,
    ) -> Result<PendingRecord, DecideError> {
        let row = self.parts.store.pending(id).await.map_err(DecideError::NotAuditable)?;
        let run = row.ok_or(DecisionRefused::NotFound)?.run;
        loop {
            let run = load(&*self.parts.store, &run).await?;
            let look =
                self.parts.store.look(&subjects_of(&run, by)).await.map_err(DecideError::NotAuditable)?;
            // Asked before anything is made for it, and again in the transaction that stores it.
            let may =
                may_edit(&self.parts.judgement(&run, by, &look, self.parts.clock.now(), &[]), id, digest);
            let edited = match may {
                Ok(()) => self.edited(&run, id, changes, by, &look).await?,
                // Refused again below, where the refusal is stored.
                Err(_) => unedited(&run, id)?,
            };
            let (pending, digest) = (id.clone(), digest);
            let judge = {
                let edited = edited.clone();
                move |judgement: &Judgement<'_>| {
                    may_edit(judgement, &pending, digest)?;
                    Ok(vec![Event::PendingEdited(Box::new(edited))])
                }
            };
            match self.append_settled(&run, &edited.id, by, Vec::new(), judge).await {
                Ok(record) => return Ok(record),
                Err(Attempt::Again) => {}
                Err(Attempt::Refused(refused)) => {
                    self.record_refusal(&run, id, by, &refused).await;
                    return Err(refused.into());
                }
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
    }

    async fn edited(
        &self,
        run: &Run,
        id: &PendingId,
        changes: &BTreeMap<CallId, String>,
        by: &Subject,
        look: &Look,
    ) -> Result<Pending, DecideError> {
        let record = run.pending(id).ok_or(DecisionRefused::NotFound)?;
        let created = run.created();
        let (Some(turn), Some(agent)) = (run.turn(), self.parts.agents.find(&created.agent)) else {
            return Err(DecisionRefused::AgentGone.into());
        };
        let gates = self.parts.agents.gates_of_run(agent, created, &self.parts.models, &self.parts.tools);
        let bench = Bench { run, registry: &self.parts.tools, gates: &gates, look };
        let mut problems: Vec<InputProblem> = changes
            .keys()
            .filter(|call| turn.call(call).is_none())
            .map(|call| problem(call, "no call of this turn has this id".to_owned()))
            .collect();
        let mut calls: Vec<HeldCall> = Vec::new();
        for held in &record.pending.calls {
            let edited = changes.get(&held.id).zip(turn.call(&held.id));
            match edited.map(|(text, state)| bench.hold_edited(state.call, held, text)) {
                None => calls.push(held.clone()),
                Some(Ok(edited)) => calls.push(edited),
                Some(Err(sentence)) => problems.push(problem(&held.id, sentence)),
            }
        }
        if problems.is_empty() && calls.iter().all(|call| call.because().is_none()) {
            problems.push(InputProblem {
                pointer: "/calls".to_owned(),
                detail: "with these arguments no call would be left to approve".to_owned(),
            });
        }
        if !problems.is_empty() {
            return Err(DecisionRefused::InvalidInput(problems).into());
        }
        for call in calls.iter_mut().filter(|call| changes.contains_key(&call.id) && call.refusal().is_none())
        {
            call.preview = preview(&self.parts, run, call).await;
        }
        let mut editors = record.pending.editors.clone();
        editors.push(by.clone());
        Ok(Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: record.pending.turn,
            question: record.pending.question.clone(),
            calls,
            expires_at: record.pending.expires_at,
            editors,
            replaces: Some(id.clone()),
            trace: record.pending.trace.clone(),
        })
    }
}

fn unedited(run: &Run, id: &PendingId) -> Result<Pending, DecideError> {
    Ok(run.pending(id).ok_or(DecisionRefused::NotFound)?.pending.clone())
}

fn problem(call: &CallId, detail: String) -> InputProblem {
    InputProblem { pointer: format!("/calls/{call}/arguments"), detail }
}
