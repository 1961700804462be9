//! Questions: the turn is judged as a whole, and what a person must settle is asked (A4).
//!
//! Invariant: a question shows everything that depends on it; nothing of its turn runs while it is open. Not
//! here: the answer (`decide`).

use std::time::Duration;

use countersign_core::{
    CallId, CallState, Closing, Deadline, Event, Outlook, Pending, PendingClosed, PendingId, Question,
    Refusal, Stage,
};

use crate::journal::DriveError;
use crate::judge::{Bench, Refused, Ruling, is_gate};
use crate::preview::preview;
use crate::store::Look;

use super::Driver;
use super::calls::refused_events;

impl Driver {
    pub(super) fn bench<'a>(&'a self, look: &'a Look) -> Bench<'a> {
        Bench { run: self.journal.run(), registry: &self.parts.tools, gates: &self.gates, look }
    }

    /// A turn of which a call needs a person: nothing of it runs, and one pending holds all of it (A4).
    pub(super) async fn ask_people(&mut self) -> Result<(), DriveError> {
        // Previews act on the model's answer.
        self.journal.flush().await?;
        let look = self.parts.store.look(&self.subjects()).await?;
        let Some(turn) = self.journal.run().turn() else { return Ok(()) };
        let mut held = self.bench(&look).hold(turn);
        let first_input = held.iter().find_map(|call| match &call.outlook {
            Outlook::NeedsInput(schema) => Some((call.id.clone(), schema.clone())),
            Outlook::Runs | Outlook::NeedsApproval(_) | Outlook::Refused(_) => None,
        });
        let asks = held.iter().any(|call| call.because().is_some());
        let question = match first_input {
            _ if asks => Question::Approval,
            Some((call, schema)) => input_question(call, schema),
            // What needed a person does not any more: the turn is judged again.
            None => return Ok(()),
        };
        let number = turn.number();
        for call in held.iter_mut().filter(|call| call.refusal().is_none()) {
            call.preview = preview(&self.parts, self.journal.run(), call).await;
        }
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: number,
            question,
            calls: held,
            expires_at: self.deadline(),
            editors: Vec::new(),
            replaces: None,
            trace: self.trace.clone(),
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    /// The results owed to calls that a held turn's judgement refused, with what the judge says about them: to
    /// the model where it can do better (A5), to the record where a gate was closed (L2).
    pub(super) async fn explained(&self, events: Vec<Event>) -> Result<Vec<Event>, DriveError> {
        let judged = |event: &Event| {
            let Event::CallFinished(finished) = event else { return None };
            let refusal = finished.result.refusal?;
            let judged = refusal == Refusal::InvalidArguments
                || (is_gate(refusal) && refusal != Refusal::DefinitionChanged);
            judged.then(|| (finished.call.clone(), refusal))
        };
        let Some(turn) =
            self.journal.run().turn().filter(|_| events.iter().any(|event| judged(event).is_some()))
        else {
            return Ok(events);
        };
        let look = self.parts.store.look(&self.subjects()).await?;
        let bench = self.bench(&look);
        let explained = events.into_iter().flat_map(|event| {
            let found = judged(&event).and_then(|(call, refusal)| Some((turn.call(&call)?.call, refusal)));
            let Some((call, refusal)) = found else { return vec![event] };
            let words = match bench.judge(call) {
                Ruling::Refuse(refused) if refused.refusal == refusal => refused.words,
                Ruling::Refuse(_) | Ruling::Pass(_) => None,
            };
            refused_events(call, &Refused { refusal, words })
        });
        Ok(explained.collect())
    }

    fn deadline(&self) -> Deadline {
        match self.journal.run().created().approval_ttl_s {
            None => Deadline::Never,
            Some(seconds) => self
                .now()
                .checked_add(Duration::from_secs(seconds))
                .map_or(Deadline::Unreadable, Deadline::At),
        }
    }

    pub(super) async fn open_input(&mut self, call: &CallId) -> Result<(), DriveError> {
        let run = self.journal.run();
        let Some(turn) = run.turn() else { return Ok(()) };
        let Some(last) = run.pendings().filter(|record| record.pending.turn == turn.number()).last() else {
            return Ok(());
        };
        let schema = last.pending.call(call).and_then(|held| match &held.outlook {
            Outlook::NeedsInput(schema) => Some(schema.clone()),
            Outlook::Runs | Outlook::NeedsApproval(_) | Outlook::Refused(_) => None,
        });
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: turn.number(),
            question: input_question(call.clone(), schema.unwrap_or_default()),
            calls: last.pending.calls.clone(),
            expires_at: self.deadline(),
            editors: last.pending.editors.clone(),
            replaces: None,
            trace: self.trace.clone(),
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    pub(super) async fn open_resolution(&mut self, call: &CallId) -> Result<(), DriveError> {
        let run = self.journal.run();
        let Some(turn) = run.turn() else { return Ok(()) };
        let Some(CallState { stage: Stage::Unknown { deadline }, .. }) = turn.call(call) else {
            return Ok(());
        };
        let not_before = *deadline;
        let look = self.parts.store.look(&self.subjects()).await?;
        let shown = run.pendings().filter(|record| record.pending.turn == turn.number()).last();
        let calls = shown.map_or_else(|| self.bench(&look).hold(turn), |record| record.pending.calls.clone());
        let pending = Pending {
            id: PendingId::from_random(self.parts.clock.random()),
            turn: turn.number(),
            question: Question::Resolution { call: call.clone(), not_before },
            calls,
            expires_at: Deadline::Never,
            editors: Vec::new(),
            replaces: None,
            trace: self.trace.clone(),
        };
        self.journal.record(vec![Event::PendingOpened(Box::new(pending))]).await
    }

    /// Whoever meets an overdue question first stores its end (A10, A11).
    pub(super) async fn close_overdue(&mut self, id: &PendingId) -> Result<bool, DriveError> {
        let overdue = self
            .journal
            .run()
            .pending(id)
            .is_some_and(|record| record.pending.expires_at.has_passed(self.now()));
        if overdue {
            let closed = PendingClosed { pending: id.clone(), status: Closing::Expired, by: None };
            self.journal.record(vec![Event::PendingClosed(closed)]).await?;
        }
        Ok(overdue)
    }
}

fn input_question(call: CallId, schema: serde_json::Value) -> Question {
    let message = schema
        .get("description")
        .or_else(|| schema.get("title"))
        .and_then(serde_json::Value::as_str)
        .unwrap_or("This call needs what only a person can supply.")
        .to_owned();
    Question::Input { call, schema, message }
}
