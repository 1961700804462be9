//! The gate, asked about calls: the whole turn before any of it runs (A4), and each call again right before
//! it starts (A12, G9). Both ask the same function.
//!
//! Invariant: pure; it sees one look and the run, and nothing else. Not here: starting anything (`driver`).

use countersign_core::{
    AgentGates, Arguments, Because, CallState, Clearance, Gate, HeldCall, HeldFacts, Outlook, Pause, Policy,
    ProposedCall, Refusal, Run, Stage, ToolName, ToolRequest, Turn, Word, needs_approval, runs_unattended,
};
use serde_json::Value;

use crate::registry::{Registered, Registry};
use crate::store::Look;

/// One look at everything that calls of a run are judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) run: &'a Run,
    pub(crate) registry: &'a Registry,
    pub(crate) gates: &'a AgentGates,
    pub(crate) look: &'a Look,
}

/// What the gate says about a call.
#[derive(Debug)]
pub(crate) enum Ruling<'a> {
    /// It may take part.
    Pass(Passed<'a>),
    /// It may not.
    Refuse(Refused),
}

impl<'a> Ruling<'a> {
    /// Whether a person must be asked first, for the decision or for what only they know (A3).
    pub(crate) fn needs_person(&self) -> bool {
        match self {
            Self::Pass(passed) => passed.because.is_some() || passed.input.is_some(),
            Self::Refuse(_) => false,
        }
    }

    /// What a call starts on whose turn needs nobody.
    pub(crate) fn at_once(self) -> Result<(Passed<'a>, Clearance), Refused> {
        match self {
            Self::Pass(passed) => Ok((passed, Clearance::NotNeeded)),
            Self::Refuse(refused) => Err(refused),
        }
    }
}

/// A call that may take part.
#[derive(Debug)]
pub(crate) struct Passed<'a> {
    pub(crate) tool: &'a Registered,
    pub(crate) arguments: Arguments,
    pub(crate) because: Option<Because>,
    pub(crate) input: Option<&'a Value>,
}

/// A call that may not.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// What the model is told, where it can do better next time.
    pub(crate) words: Option<String>,
}

impl Refused {
    fn plainly(refusal: Refusal) -> Self {
        Self { refusal, words: None }
    }
}

impl<'a> Bench<'a> {
    fn policy(&self) -> Policy<'a> {
        Policy {
            tools: self.registry,
            switches: &self.look.switches,
            agent: self.gates,
            principal: self.look.people.find(&self.run.created().owner),
        }
    }

    /// What the model is shown now: requested, offerable, and in an unattended run with nobody to ask (U3).
    pub(crate) fn offered(&self) -> Vec<ToolName> {
        let created = self.run.created();
        let mut names = self.policy().offerable(&created.tools);
        if created.unattended {
            names.retain(|name| runs_unattended(self.registry.tool(name.as_str()).map(|tool| &tool.spec)));
        }
        names
    }

    /// Judges a call that nobody has been asked about.
    pub(crate) fn judge(&self, call: &ProposedCall) -> Ruling<'a> {
        let checked = |tool: &Registered| tool.check(call.arguments.as_deref());
        self.rule(call, checked, None)
    }

    /// Judges a call as a question showed it, possibly with arguments that a person changed.
    fn judge_held(&self, call: &ProposedCall, held: &HeldCall) -> Ruling<'a> {
        let arguments = held.arguments.clone().unwrap_or_default();
        let checked = |tool: &Registered| tool.check_read(&arguments).map(|()| arguments);
        self.rule(call, checked, Some(held))
    }

    fn rule(
        &self,
        call: &ProposedCall,
        checked: impl FnOnce(&Registered) -> Result<Arguments, String>,
        held: Option<&HeldCall>,
    ) -> Ruling<'a> {
        let Some(tool) = self.registry.tool(&call.name) else {
            return Ruling::Refuse(Refused::plainly(Refusal::UnknownTool));
        };
        // A5: the schema comes before the gate. What is wrong is told only where the tool is offered (L2).
        let arguments = checked(tool);
        let gate = self.closed_by(tool);
        let arguments = match (arguments, gate) {
            (Ok(arguments), None) => arguments,
            (Ok(_), Some(refusal)) => return Ruling::Refuse(Refused::plainly(refusal)),
            (Err(words), None) => {
                return Ruling::Refuse(Refused { refusal: Refusal::InvalidArguments, words: Some(words) });
            }
            (Err(_), Some(_)) => return Ruling::Refuse(Refused::plainly(Refusal::InvalidArguments)),
        };
        let shown = held.and_then(|held| held.facts.as_ref()).map(|facts| facts.definition);
        if shown.is_some_and(|shown| shown != tool.definition) {
            return Ruling::Refuse(Refused::plainly(Refusal::DefinitionChanged));
        }
        if held.is_none() && self.run.was_denied(&call.name, &arguments.canonical()) {
            return Ruling::Refuse(Refused::plainly(Refusal::AlreadyDenied));
        }
        let input = match &tool.spec.pause {
            Pause::NeedsInput(schema) => Some(schema),
            Pause::Runs | Pause::Asks => None,
        };
        Ruling::Pass(Passed { tool, arguments, because: needs_approval(Some(&tool.spec)), input })
    }

    /// The gates, then the run's own request and its being unattended.
    fn closed_by(&self, tool: &Registered) -> Option<Refusal> {
        let created = self.run.created();
        let name = tool.spec.name.as_str();
        match self.policy().decide(name).word {
            Word::Deny(gate) => return Some(gate.into()),
            Word::Allow | Word::ObservedTrustZone => {}
        }
        let requested = match &created.tools {
            ToolRequest::AllEnabled => true,
            ToolRequest::Only(names) => names.iter().any(|requested| requested == name),
        };
        if !requested {
            return Some(Refusal::NotOffered);
        }
        (created.unattended && !runs_unattended(Some(&tool.spec))).then_some(Refusal::NeedsPerson)
    }

    /// The whole turn, as a question would show it. Previews are not made here.
    pub(crate) fn hold(&self, turn: &Turn) -> Vec<HeldCall> {
        turn.calls().map(|CallState { call, .. }| self.hold_call(call, self.judge(call))).collect()
    }

    /// A held call with a person's arguments instead (A14): checked and gated again. The model's own stay
    /// beside them.
    ///
    /// # Errors
    /// What the arguments break.
    pub(crate) fn hold_edited(
        &self,
        call: &ProposedCall,
        held: &HeldCall,
        text: &str,
    ) -> Result<HeldCall, String> {
        let tool =
            self.registry.tool(&call.name).ok_or_else(|| Refusal::UnknownTool.sentence().to_owned())?;
        let arguments = tool.check(Some(text))?;
        let ruling = self.rule(call, |_| Ok(arguments), Some(held));
        let mut edited = self.hold_call(call, ruling);
        edited.original_arguments = held.original_arguments.clone().or_else(|| held.arguments.clone());
        Ok(edited)
    }

    fn hold_call(&self, call: &ProposedCall, ruling: Ruling<'_>) -> HeldCall {
        let facts = self.registry.tool(&call.name).map(|tool| HeldFacts {
            group: tool.spec.group.clone(),
            origin: tool.spec.origin.clone(),
            effect: tool.spec.effect,
            requires_admin: tool.spec.requires_admin,
            definition: tool.definition,
        });
        let (arguments, outlook) = match ruling {
            Ruling::Refuse(refused) => {
                (Arguments::read(call.arguments.as_deref()).ok(), Outlook::Refused(refused.refusal))
            }
            Ruling::Pass(passed) => {
                let outlook = match (passed.because, passed.input) {
                    (Some(because), _) => Outlook::NeedsApproval(because),
                    (None, Some(schema)) => Outlook::NeedsInput(schema.clone()),
                    (None, None) => Outlook::Runs,
                };
                (Some(passed.arguments), outlook)
            }
        };
        HeldCall {
            id: call.id.clone(),
            tool: call.name.clone(),
            facts,
            arguments,
            original_arguments: None,
            outlook,
            preview: None,
        }
    }

    /// The gate's last word on a call that is about to start, and what it starts on.
    pub(crate) fn dispatch(&self, state: CallState<'_>) -> Result<(Passed<'a>, Clearance), Refused> {
        let held = self.run.held(&state.call.id);
        let ruling = match held {
            Some(held) => self.judge_held(state.call, held),
            None => self.judge(state.call),
        };
        let mut passed = match ruling {
            Ruling::Refuse(refused) => return Err(refused),
            Ruling::Pass(passed) => passed,
        };
        passed.arguments = self.arguments_of(state);
        let clearance = clearance_of(state.stage).cloned().unwrap_or(Clearance::NotNeeded);
        if self.closed_since_it_was_cleared(passed.tool, &clearance) {
            return Err(Refused::plainly(Refusal::ToolDisabled));
        }
        // The rule may have changed since the turn was judged. Half of the turn may have run, so it is not
        // asked about again: it is refused, and the model may propose it anew.
        let lacks_person = match &clearance {
            Clearance::NotNeeded => passed.because.is_some() || passed.input.is_some(),
            Clearance::Approved(_) => passed.input.is_some(),
            Clearance::Answered(_) => passed.because.is_some(),
        };
        if lacks_person {
            return Err(Refused::plainly(Refusal::NeedsPerson));
        }
        Ok((passed, clearance))
    }

    /// Switching a tool or group on again does not revive what a person released before it was off (A12).
    fn closed_since_it_was_cleared(&self, tool: &Registered, clearance: &Clearance) -> bool {
        let settled_at = match clearance {
            Clearance::NotNeeded => None,
            Clearance::Approved(pending) | Clearance::Answered(pending) => {
                self.run.pending(pending).and_then(|record| record.settled_at)
            }
        };
        settled_at.is_some_and(|at| self.look.switches.was_off_since(&tool.spec, at))
    }

    /// Exactly what runs: the arguments that were shown, with the person's values for the declared fields
    /// (A5, R9). Those were checked against the input's own schema when they were given; the tool's schema
    /// knows nothing of them.
    pub(crate) fn arguments_of(&self, state: CallState<'_>) -> Arguments {
        let held = self.run.held(&state.call.id);
        let arguments = match held {
            Some(held) => held.arguments.clone().unwrap_or_default(),
            None => Arguments::read(state.call.arguments.as_deref()).unwrap_or_default(),
        };
        let answer = match clearance_of(state.stage) {
            Some(Clearance::Answered(pending)) => {
                self.run.pending(pending).and_then(|record| record.decided.as_ref()?.answer.as_ref())
            }
            Some(Clearance::Approved(_) | Clearance::NotNeeded) | None => None,
        };
        match (answer, held.map(|held| &held.outlook)) {
            (Some(answer), Some(Outlook::NeedsInput(schema))) => {
                arguments.overlaid(&declared_fields(schema), answer)
            }
            _ => arguments,
        }
    }
}

fn clearance_of(stage: &Stage) -> Option<&Clearance> {
    match stage {
        Stage::Cleared(clearance) => Some(clearance),
        Stage::Running(running) => Some(&running.clearance),
        Stage::Proposed
        | Stage::Held
        | Stage::AwaitingInput
        | Stage::Barred(_)
        | Stage::Unknown { .. }
        | Stage::Finished(_) => None,
    }
}

/// The fields that an input schema declares: only these are a person's to write.
fn declared_fields(schema: &Value) -> Vec<&str> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|fields| fields.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

/// Whether the gate's reason is worth an event of its own at dispatch.
pub(crate) fn is_gate(refusal: Refusal) -> bool {
    match refusal {
        Refusal::UnknownTool
        | Refusal::NotOffered
        | Refusal::ToolDisabled
        | Refusal::RequiresAdmin
        | Refusal::ConfigurationGroup
        | Refusal::TrustZone
        | Refusal::DefinitionChanged
        | Refusal::NeedsPerson => true,
        Refusal::InvalidArguments | Refusal::CutOff | Refusal::AlreadyDenied => false,
    }
}

/// Gates that close or only observe a tool at the start of a run.
pub(crate) fn denials(policy: &Policy<'_>, request: &ToolRequest) -> Vec<(String, Gate, bool)> {
    policy
        .explain(request)
        .into_iter()
        .filter_map(|verdict| verdict.word.gate().map(|gate| (verdict.tool, gate, verdict.word.allows())))
        .collect()
}
