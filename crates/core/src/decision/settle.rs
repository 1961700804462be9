//! Rule A8 in its order, as one pure function.
//!
//! Invariant: a refusal changes nothing about the pending. Not here: reading the log, the rights and the
//! switches in one transaction, and appending what comes out (the runtime's `decide`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::approval::Because;
use crate::digest::Digest;
use crate::event::{Event, FailCode, PendingClosed, PendingDecided, RunFailed};
use crate::name::{CallId, PendingId, Subject};
use crate::pending::{Closing, HeldCall, Outlook, Pending, PendingStatus, Question};
use crate::policy::Catalogue;
use crate::principal::{People, Principal};
use crate::run::{PendingRecord, Run};

use super::{
    Attribution, CallVerdict, Decided, Decision, DecisionRefused, Form, InputProblem, Said, SettledOutcome,
    VerdictWord,
};

/// One look at everything a decision depends on (A8).
#[derive(Clone, Copy)]
pub struct Judgement<'a> {
    /// The run as its log says at one revision.
    pub run: &'a Run,
    /// Who decides.
    pub by: &'a Subject,
    /// Those who are known, read in the transaction that stores the decision.
    pub people: &'a People,
    /// What is registered now.
    pub tools: &'a dyn Catalogue,
    /// Whether the run's agent asks for four eyes now; `None`: agent or model is no longer configured.
    pub second_approver: Option<bool>,
    /// Now.
    pub now: Timestamp,
    /// Where an answer breaks the question's schema, as the caller has checked.
    pub problems: &'a [InputProblem],
}

impl std::fmt::Debug for Judgement<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Judgement").field("by", self.by).field("now", &self.now).finish_non_exhaustive()
    }
}

/// A refusal, together with the event that is due all the same: a question that turns out to be expired or
/// void is closed (A11).
pub type RefusedWith = (DecisionRefused, Option<Event>);

/// The question and whoever wants to settle it, as far as they may see it.
fn visible<'a>(
    judgement: &Judgement<'a>,
    id: &PendingId,
) -> Result<(&'a Principal, &'a PendingRecord), DecisionRefused> {
    let by = judgement.people.find(judgement.by).ok_or(DecisionRefused::NotFound)?;
    let record = judgement.run.pending(id).ok_or(DecisionRefused::NotFound)?;
    if by.may_see_questions_of(&judgement.run.created().owner) {
        Ok((by, record))
    } else {
        Err(DecisionRefused::NotFound)
    }
}

/// Whether the question is still open, in time, and about tools that are what they were.
fn open(judgement: &Judgement<'_>, record: &PendingRecord) -> Result<(), RefusedWith> {
    let refused = |reason| Err((reason, None));
    let pending = &record.pending;
    let closed = |reason, status| {
        let event = PendingClosed { pending: pending.id.clone(), status, by: None };
        Err((reason, Some(Event::PendingClosed(event))))
    };
    match (record.status, &record.decided) {
        (PendingStatus::Open, _) => {}
        (PendingStatus::Withdrawn, _) => return refused(DecisionRefused::Withdrawn),
        (PendingStatus::Void, _) => return refused(DecisionRefused::Void),
        (PendingStatus::Superseded, _) => return refused(DecisionRefused::Superseded),
        (PendingStatus::Expired, _) => return refused(DecisionRefused::Expired),
        (_, Some(decided)) => return refused(DecisionRefused::AlreadyDecided(Box::new(decided.clone()))),
        (_, None) => return refused(DecisionRefused::Expired),
    }
    if pending.expires_at.has_passed(judgement.now) {
        return closed(DecisionRefused::Expired, Closing::Expired);
    }
    if pending.changed(judgement.tools).next().is_some() {
        return closed(DecisionRefused::Void, Closing::Void);
    }
    Ok(())
}

/// Whether somebody may change arguments of a held turn now (A14), in the order of A8. Changing one's own is
/// allowed also under four eyes: it releases nothing, and the editor joins the chain.
///
/// # Errors
/// [`RefusedWith`].
pub fn may_edit(judgement: &Judgement<'_>, id: &PendingId, digest: Digest) -> Result<(), RefusedWith> {
    let refused = |reason| (reason, None);
    let (by, record) = visible(judgement, id).map_err(refused)?;
    let pending = &record.pending;
    if pending.question != Question::Approval {
        return Err(refused(DecisionRefused::WrongKind { kind: pending.question.as_str() }));
    }
    open(judgement, record)?;
    if judgement.second_approver.is_none() {
        return Err(refused(DecisionRefused::AgentGone));
    }
    if digest != pending.digest(judgement.run.id()) {
        return Err(refused(DecisionRefused::StaleDigest));
    }
    if by.is_service() {
        return Err(refused(DecisionRefused::NotPermitted { by: by.subject.clone() }));
    }
    Ok(())
}

/// Judges an answer in the order of A8 and says which events store it.
///
/// # Errors
/// [`RefusedWith`].
pub fn settle(
    judgement: &Judgement<'_>,
    id: &PendingId,
    decision: &Decision,
) -> Result<Vec<Event>, RefusedWith> {
    let refused = |reason| (reason, None);
    let run = judgement.run;
    let (by, record) = visible(judgement, id).map_err(refused)?;
    let pending = &record.pending;
    well_formed(pending, &decision.said).map_err(refused)?;
    open(judgement, record)?;

    let released: Vec<&HeldCall> = released(pending, &decision.said);
    let goes_on = match &decision.said {
        Said::Turn { verdict, .. } => *verdict == CallVerdict::Approve,
        Said::Calls { verdicts, .. } => verdicts.values().any(|verdict| *verdict == CallVerdict::Approve),
        Said::Answer(_) => true,
        Said::Settle { outcome, .. } => *outcome != SettledOutcome::GiveUp,
    };
    if judgement.second_approver.is_none() && goes_on {
        return Err(refused(DecisionRefused::AgentGone));
    }
    if let (
        Said::Settle { outcome: SettledOutcome::DidNotHappen, .. },
        Question::Resolution { not_before, .. },
    ) = (&decision.said, &pending.question)
        && judgement.now < *not_before
    {
        return Err(refused(DecisionRefused::TooEarly { until: *not_before }));
    }
    let four_eyes = run.created().second_approver || judgement.second_approver == Some(true);
    if four_eyes && !released.is_empty() {
        let chain = [&run.created().starter, &run.created().owner].into_iter().chain(&pending.editors);
        if chain.into_iter().any(|subject| *subject == by.subject) {
            return Err(refused(DecisionRefused::SelfApproval { by: by.subject.clone() }));
        }
    }
    if decision.digest != pending.digest(run.id()) {
        return Err(refused(DecisionRefused::StaleDigest));
    }
    if !by.may_settle_for(&run.created().owner) {
        return Err(refused(DecisionRefused::NotPermitted { by: by.subject.clone() }));
    }
    may_release(pending, &decision.said, &released, by, judgement.tools).map_err(refused)?;
    if matches!(decision.said, Said::Answer(_)) && !judgement.problems.is_empty() {
        return Err(refused(DecisionRefused::InvalidInput(judgement.problems.to_vec())));
    }

    let decided = decided(pending, &decision.said, by, judgement);
    let mut events = vec![Event::PendingDecided(Box::new(PendingDecided { pending: id.clone(), decided }))];
    if judgement.second_approver.is_none() {
        // Nobody would drive the run to its end, so it ends here.
        events.push(Event::RunFailed(RunFailed { code: FailCode::AgentGone }));
    }
    Ok(events)
}

/// Whether this can be said about this question at all.
///
/// # Errors
/// [`DecisionRefused::WrongKind`], [`DecisionRefused::CallsIncomplete`].
pub fn well_formed(pending: &Pending, said: &Said) -> Result<(), DecisionRefused> {
    let wrong_kind = DecisionRefused::WrongKind { kind: pending.question.as_str() };
    match (&pending.question, said) {
        (Question::Approval, Said::Turn { .. })
        | (Question::Input { .. }, Said::Turn { verdict: CallVerdict::Deny, .. } | Said::Answer(_))
        | (Question::Resolution { .. }, Said::Settle { .. }) => Ok(()),
        (Question::Approval, Said::Calls { verdicts, .. }) => {
            let needed: Box<[CallId]> = pending.asked().map(|call| call.id.clone()).collect();
            if needed.len() == verdicts.len() && needed.iter().all(|id| verdicts.contains_key(id)) {
                Ok(())
            } else {
                Err(DecisionRefused::CallsIncomplete { needed })
            }
        }
        (Question::Approval, Said::Answer(_) | Said::Settle { .. })
        | (
            Question::Input { .. },
            Said::Turn { verdict: CallVerdict::Approve, .. } | Said::Calls { .. } | Said::Settle { .. },
        )
        | (Question::Resolution { .. }, Said::Turn { .. } | Said::Calls { .. } | Said::Answer(_)) => {
            Err(wrong_kind)
        }
    }
}

impl Pending {
    /// The calls that make a question void which waits for a release: they would run, and their tool is of another
    /// definition now, or not there (M2). A question that asks how a call came out is about the past.
    pub fn changed<'a>(&'a self, tools: &'a dyn Catalogue) -> impl Iterator<Item = &'a HeldCall> {
        let releases = matches!(self.question, Question::Approval | Question::Input { .. });
        self.calls.iter().filter(move |call| releases && call.refusal().is_none()).filter(|call| {
            let now = tools.find(&call.tool).map(crate::tool::ToolSpec::definition_hash);
            now.is_none() || call.facts.as_ref().map(|facts| facts.definition) != now
        })
    }
}

/// The calls that this answer would set free.
fn released<'a>(pending: &'a Pending, said: &Said) -> Vec<&'a HeldCall> {
    match said {
        Said::Turn { verdict: CallVerdict::Approve, .. } => {
            pending.calls.iter().filter(|call| call.refusal().is_none()).collect()
        }
        Said::Turn { verdict: CallVerdict::Deny, .. } | Said::Settle { .. } => Vec::new(),
        Said::Calls { verdicts, .. } if verdicts.values().all(|verdict| *verdict == CallVerdict::Deny) => {
            Vec::new()
        }
        Said::Calls { verdicts, .. } => pending
            .calls
            .iter()
            .filter(|call| call.refusal().is_none() && verdicts.get(&call.id) != Some(&CallVerdict::Deny))
            .collect(),
        Said::Answer(_) => match &pending.question {
            Question::Input { call, .. } => pending.call(call).into_iter().collect(),
            Question::Approval | Question::Resolution { .. } => Vec::new(),
        },
    }
}

/// The decider's own right to run what is released (A8, R9, R11).
fn may_release(
    pending: &Pending,
    said: &Said,
    released: &[&HeldCall],
    by: &Principal,
    tools: &dyn Catalogue,
) -> Result<(), DecisionRefused> {
    let refused = || DecisionRefused::ApproverNotPermitted { by: by.subject.clone() };
    // As it was shown, and as it is now: the operator may have tightened it while the question was open.
    let admin_only = |call: &HeldCall| {
        call.facts.as_ref().is_some_and(|facts| facts.requires_admin)
            || tools.find(&call.tool).is_some_and(|tool| tool.requires_admin)
    };
    let passes_p3 = |call: &HeldCall| by.admin || !admin_only(call);
    match said {
        Said::Turn { .. } | Said::Calls { .. } => {
            // An unknown tool writes, as far as anybody knows.
            let writes = |call: &HeldCall| call.facts.as_ref().is_none_or(|facts| facts.effect.writes());
            let marked = |call: &HeldCall| {
                matches!(
                    call.outlook,
                    Outlook::NeedsApproval(Because::Marked | Because::Operator | Because::Writes)
                )
            };
            for call in released.iter().filter(|call| writes(call) || marked(call)) {
                if !passes_p3(call) || (by.is_service() && writes(call)) {
                    return Err(refused());
                }
            }
            Ok(())
        }
        Said::Answer(_) => {
            let runs = pending.calls.iter().filter(|call| call.refusal().is_none());
            if by.is_service() || !runs.into_iter().all(passes_p3) { Err(refused()) } else { Ok(()) }
        }
        Said::Settle { .. } if by.is_service() => Err(refused()),
        Said::Settle { .. } => Ok(()),
    }
}

fn decided(pending: &Pending, said: &Said, by: &Principal, judgement: &Judgement<'_>) -> Decided {
    let on_all = |verdict| pending.asked().map(|call| (call.id.clone(), verdict)).collect::<BTreeMap<_, _>>();
    let (verdict, form, calls, reason, answer, result) = match said {
        Said::Turn { verdict, reason } => {
            let word = match verdict {
                CallVerdict::Approve => VerdictWord::Approve,
                CallVerdict::Deny => VerdictWord::Deny,
            };
            (word, Form::Turn, on_all(*verdict), reason.clone(), None, None)
        }
        Said::Calls { verdicts, reason } => {
            let approved = verdicts.values().filter(|verdict| **verdict == CallVerdict::Approve).count();
            (
                VerdictWord::on_calls(approved, verdicts.len()),
                Form::Calls,
                verdicts.clone(),
                reason.clone(),
                None,
                None,
            )
        }
        Said::Answer(fields) => {
            (VerdictWord::Answer, Form::Turn, BTreeMap::new(), None, Some(fields.clone()), None)
        }
        Said::Settle { outcome, result } => {
            let word = match outcome {
                SettledOutcome::Happened => VerdictWord::Happened,
                SettledOutcome::DidNotHappen => VerdictWord::DidNotHappen,
                SettledOutcome::GiveUp => VerdictWord::GiveUp,
            };
            (word, Form::Turn, BTreeMap::new(), None, None, result.clone())
        }
    };
    let attribution = Attribution::of(by, &judgement.run.created().starter, judgement.people);
    Decided { by: by.subject.clone(), verdict, form, calls, reason, attribution, answer, result }
}
