//! A person's answer, judged: rule A8 in its order, as one pure function.
//!
//! Invariant: a refusal changes nothing about the pending. Not here: reading the log, the rights and the
//! switches in one transaction, and appending what comes out (the runtime's `decide`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approval::Because;
use crate::arguments::Arguments;
use crate::digest::Digest;
use crate::event::{Event, FailCode, PendingClosed, PendingDecided, RunFailed};
use crate::name::{CallId, PendingId, Subject};
use crate::pending::{Closing, HeldCall, Outlook, Pending, PendingStatus, Question};
use crate::policy::Catalogue;
use crate::principal::{People, Principal};
use crate::run::{PendingRecord, Run};

/// What a person says about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum CallVerdict {
    Approve,
    Deny,
}

/// What a person says about a write whose outcome is unknown (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledOutcome {
    /// It did; the text given is its result.
    Happened,
    /// It did not; the approval is used up, and it is never run again by us.
    DidNotHappen,
    /// Nobody will ever know; the run ends.
    GiveUp,
}

/// An answer, always with the digest of what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What was seen.
    pub digest: Digest,
    /// What is said about it.
    pub said: Said,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// One word for the whole turn. On an input only "deny", which declines it.
    Turn {
        /// The word.
        verdict: CallVerdict,
        /// Why; a denial's reason reaches the model as data.
        reason: Option<String>,
    },
    /// A word for every call that needs approval, no more, no less.
    Calls {
        /// The words.
        verdicts: BTreeMap<CallId, CallVerdict>,
        /// Why.
        reason: Option<String>,
    },
    /// The fields of an input.
    Answer(Arguments),
    /// How an unknown outcome came out.
    Settle {
        /// The word.
        outcome: SettledOutcome,
        /// What the tool would have answered.
        result: Option<String>,
    },
}

impl Decision {
    /// Approves the whole turn.
    pub fn approve(digest: Digest) -> Self {
        Self { digest, said: Said::Turn { verdict: CallVerdict::Approve, reason: None } }
    }

    /// Denies the whole turn, or declines an input.
    pub fn deny(digest: Digest, reason: Option<String>) -> Self {
        Self { digest, said: Said::Turn { verdict: CallVerdict::Deny, reason } }
    }

    /// Says a word on every call that needs approval.
    pub fn calls(digest: Digest, verdicts: BTreeMap<CallId, CallVerdict>, reason: Option<String>) -> Self {
        Self { digest, said: Said::Calls { verdicts, reason } }
    }

    /// Supplies an input.
    pub fn answer(digest: Digest, fields: Arguments) -> Self {
        Self { digest, said: Said::Answer(fields) }
    }

    /// Settles an unknown outcome.
    pub fn settle(digest: Digest, outcome: SettledOutcome, result: Option<String>) -> Self {
        Self { digest, said: Said::Settle { outcome, result } }
    }
}

/// How the answer was given: a turn's denial reaches all of its calls, a call's only that call (A11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the two forms of the contract")]
pub enum Form {
    Turn,
    Calls,
}

/// The contract's word for what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract")]
pub enum VerdictWord {
    Approve,
    Deny,
    Mixed,
    Answer,
    Happened,
    DidNotHappen,
    GiveUp,
}

impl VerdictWord {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Mixed => "mixed",
            Self::Answer => "answer",
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::GiveUp => "give_up",
        }
    }

    fn on_calls(approved: usize, all: usize) -> Self {
        match approved {
            0 => Self::Deny,
            some if some == all => Self::Approve,
            _ => Self::Mixed,
        }
    }

    /// The pending's status after it: approved when any call was released.
    pub fn status(self) -> PendingStatus {
        match self {
            Self::Approve | Self::Mixed => PendingStatus::Approved,
            Self::Deny => PendingStatus::Denied,
            Self::Answer => PendingStatus::Answered,
            Self::Happened | Self::DidNotHappen | Self::GiveUp => PendingStatus::Settled,
        }
    }
}

/// How the decider stands to whoever started the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The same person.
    SelfDecided,
    /// Somebody else.
    SecondPerson,
    /// A program, or nobody we know, started the run.
    InitiatorUnknown,
    /// The decider is no longer known.
    Unresolved,
}

impl Attribution {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SelfDecided => "self",
            Self::SecondPerson => "second_person",
            Self::InitiatorUnknown => "initiator_unknown",
            Self::Unresolved => "unresolved",
        }
    }

    fn of(by: &Principal, starter: &Subject, people: &People) -> Self {
        if by.subject == *starter {
            return Self::SelfDecided;
        }
        match people.find(starter) {
            Some(starter) if !starter.is_service() => Self::SecondPerson,
            Some(_) | None => Self::InitiatorUnknown,
        }
    }
}

/// A decision as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// Who: from the credential, never from a body (S2).
    pub by: Subject,
    /// The word.
    pub verdict: VerdictWord,
    /// How it was given.
    pub form: Form,
    /// The words on the calls that needed one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<CallId, CallVerdict>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How the decider stands to the starter.
    pub attribution: Attribution,
    /// The fields of an input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arguments>,
    /// The result of a call whose outcome was unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl Decided {
    /// Whether the word on an approval says what the words on its calls say.
    pub(crate) fn is_consistent(&self) -> bool {
        let approved = self.calls.values().filter(|verdict| **verdict == CallVerdict::Approve).count();
        self.verdict == VerdictWord::on_calls(approved, self.calls.len())
            && (self.form == Form::Calls || self.verdict != VerdictWord::Mixed)
    }
}

/// Where an answer breaks the schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// A JSON pointer.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

/// Why a decision was refused. The pending is as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionRefused {
    /// There is none, or the decider may not see it: the two look alike.
    #[error("there is no pending of this id")]
    NotFound,
    /// The kind of answer does not fit the kind of question.
    #[error("this answer does not fit a pending of kind {kind}")]
    WrongKind {
        /// The question's kind.
        kind: &'static str,
    },
    /// The calls named are not exactly those that need approval.
    #[error("the calls named are not exactly those that need approval: {}", .needed.iter().map(CallId::as_str).collect::<Vec<_>>().join(", "))]
    CallsIncomplete {
        /// The calls to name.
        needed: Box<[CallId]>,
    },
    /// Somebody was first; possibly the same person.
    #[error("{} has already decided: {}", .0.by, .0.verdict.as_str())]
    AlreadyDecided(Box<Decided>),
    /// The run was cancelled.
    #[error("the question was withdrawn because the run was cancelled")]
    Withdrawn,
    /// A definition changed.
    #[error("a tool of this turn is no longer what it was, so the question is void")]
    Void,
    /// Somebody changed the arguments; another pending took its place.
    #[error("the arguments were changed; another question took the place of this one")]
    Superseded,
    /// The deadline has passed.
    #[error("the time to decide is over")]
    Expired,
    /// The run's agent or model is no longer configured.
    #[error("the run's agent or model is no longer configured; it can only be denied, given up or cancelled")]
    AgentGone,
    /// "It did not happen", while it still may.
    #[error("the call may still be under way; that it did not happen can be said after {until}")]
    TooEarly {
        /// The call's own deadline.
        until: Timestamp,
    },
    /// The decider may not decide.
    #[error("{by} may not decide this")]
    NotPermitted {
        /// The decider.
        by: Subject,
    },
    /// Four eyes: the decider started the run, or it was started for them, or they changed the arguments.
    #[error(
        "the agent wants a second person: {by} takes part in this run and cannot release its calls; denying is possible"
    )]
    SelfApproval {
        /// The decider.
        by: Subject,
    },
    /// The decider may not run what the approval would release.
    #[error("{by} may not run a call that this would release")]
    ApproverNotPermitted {
        /// The decider.
        by: Subject,
    },
    /// The digest is of something else.
    #[error("the digest is not that of this question: look at it again")]
    StaleDigest,
    /// The answer does not fit the schema.
    #[error("the answer does not fit what is asked for")]
    InvalidInput(Vec<InputProblem>),
}

impl DecisionRefused {
    /// The contract's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::WrongKind { .. } => "wrong_kind",
            Self::CallsIncomplete { .. } => "calls_incomplete",
            Self::AlreadyDecided(_) => "already_decided",
            Self::Withdrawn => "withdrawn",
            Self::Void => "void",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::AgentGone => "agent_gone",
            Self::TooEarly { .. } => "too_early",
            Self::NotPermitted { .. } => "not_permitted",
            Self::SelfApproval { .. } => "self_approval",
            Self::ApproverNotPermitted { .. } => "approver_not_permitted",
            Self::StaleDigest => "stale_digest",
            Self::InvalidInput(_) => "invalid_input",
        }
    }

    /// Whether the attempt itself goes into the record: four eyes, rights and a stale digest, by somebody
    /// who may see the pending (A9).
    pub fn is_recorded(&self) -> bool {
        match self {
            Self::NotPermitted { .. }
            | Self::SelfApproval { .. }
            | Self::ApproverNotPermitted { .. }
            | Self::StaleDigest => true,
            Self::NotFound
            | Self::WrongKind { .. }
            | Self::CallsIncomplete { .. }
            | Self::AlreadyDecided(_)
            | Self::Withdrawn
            | Self::Void
            | Self::Superseded
            | Self::Expired
            | Self::AgentGone
            | Self::TooEarly { .. }
            | Self::InvalidInput(_) => false,
        }
    }
}

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
    if by.may_settle_for(&judgement.run.created().owner) {
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

fn well_formed(pending: &Pending, said: &Said) -> Result<(), DecisionRefused> {
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
