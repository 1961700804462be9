//! The words of the contract: what is stored, shown and read back.

use std::time::Duration;

use countersign_core::*;

use crate::world::*;

fn stored(word: impl serde::Serialize) -> String {
    serde_json::to_value(word).unwrap().as_str().unwrap_or("not a word").to_owned()
}

#[test]
fn results_and_refusals_have_the_words_of_the_contract() {
    use ResultKind::{Cancelled, Denied, Error, Expired, NotRun, Ok as Fine, Refused, Timeout};
    let kinds = [Fine, Error, Timeout, Denied, Expired, NotRun, Refused, Cancelled];
    let words = ["ok", "error", "timeout", "denied", "expired", "not_run", "refused", "cancelled"];
    assert_eq!(kinds.map(ResultKind::as_str), words);
    assert_eq!(kinds.map(stored), words);
    let refusals = [
        Refusal::UnknownTool,
        Refusal::NotOffered,
        Refusal::ToolDisabled,
        Refusal::RequiresAdmin,
        Refusal::ConfigurationGroup,
        Refusal::TrustZone,
        Refusal::InvalidArguments,
        Refusal::CutOff,
        Refusal::AlreadyDenied,
        Refusal::DefinitionChanged,
        Refusal::NeedsPerson,
    ];
    let words = [
        "unknown_tool",
        "not_offered",
        "tool_disabled",
        "requires_admin",
        "configuration_group",
        "trust_zone",
        "invalid_arguments",
        "cut_off",
        "already_denied",
        "definition_changed",
        "needs_person",
    ];
    assert_eq!(refusals.map(Refusal::as_str), words);
    assert_eq!(refusals.map(stored), words);
    assert!(refusals.iter().all(|refusal| !refusal.sentence().is_empty()));
}

#[test]
fn gates_and_reasons_to_ask_have_the_words_of_the_contract() {
    let gates = [
        Gate::NotRegistered,
        Gate::ToolDisabled,
        Gate::RequiresAdmin,
        Gate::ConfigurationGroup,
        Gate::TrustZone,
    ];
    let words = ["not_registered", "tool_disabled", "requires_admin", "configuration_group", "trust_zone"];
    assert_eq!(gates.map(Gate::as_str), words);
    assert_eq!(gates.map(stored), words);
    let becauses = [Because::Marked, Because::Operator, Because::Writes];
    assert_eq!(becauses.map(Because::as_str), ["marked", "operator", "writes"]);
    assert_eq!(becauses.map(stored), ["marked", "operator", "writes"]);
}

#[test]
fn rule_l2_a_call_that_a_gate_refuses_is_refused_by_that_gates_name() {
    let refusals = [
        (Gate::NotRegistered, Refusal::UnknownTool),
        (Gate::ToolDisabled, Refusal::ToolDisabled),
        (Gate::RequiresAdmin, Refusal::RequiresAdmin),
        (Gate::ConfigurationGroup, Refusal::ConfigurationGroup),
        (Gate::TrustZone, Refusal::TrustZone),
    ];
    for (gate, refusal) in refusals {
        assert_eq!(Refusal::from(gate), refusal);
        assert_eq!(
            GateDenied::by("t", gate, true),
            GateDenied { tool: "t".into(), reason: refusal, observed_only: true }
        );
    }
}

#[test]
fn rule_l2_a_refusal_repeats_no_control_characters_and_no_more_than_a_name() {
    let sly = format!("x\n\u{1b}[2J{}", "y".repeat(500));
    let said = CallResult::refused(Refusal::UnknownTool, &sly, None);
    assert!(said.content.len() < 150 && !said.content.chars().any(char::is_control), "{}", said.content);
    assert_eq!(
        (said.kind, said.refusal, said.is_error()),
        (ResultKind::Refused, Some(Refusal::UnknownTool), true)
    );
    let told = CallResult::refused(Refusal::InvalidArguments, "t", Some("id is missing"));
    assert_eq!(told.content, "id is missing", "what the model can mend it is told");
}

#[test]
fn states_of_runs_and_pendings_are_read_back_from_their_words() {
    for state in RunState::ALL {
        assert_eq!(RunState::from_word(state.as_str()), Some(state));
        let wanted = if state == RunState::Active { ["running", "queued"] } else { [state.as_str(); 2] };
        assert_eq!([state.status(true), state.status(false)], wanted);
        assert!(!(state.is_end() && state.is_waiting()));
    }
    assert_eq!(RunState::ALL.iter().filter(|state| state.is_end()).count(), 3);
    assert_eq!(RunState::ALL.iter().filter(|state| state.is_waiting()).count(), 3);
    assert_eq!(RunState::from_word("paused"), None);
    for word in
        ["open", "approved", "denied", "answered", "settled", "expired", "withdrawn", "void", "superseded"]
    {
        assert_eq!(PendingStatus::from_word(word).map(PendingStatus::as_str), Some(word));
    }
    assert_eq!(PendingStatus::from_word("claimed"), None, "there is no claimed state");
}

#[test]
fn rule_s1_who_may_see_and_settle() {
    let owner = subject("alice");
    let may = |name: &str| {
        people().iter().find(|known| known.subject.as_str() == name).unwrap().may_settle_for(&owner)
    };
    assert_eq!(["alice", "sue", "bob", "root", "robo"].map(may), [true, false, true, true, true]);
}

#[test]
fn rule_l5_usage_does_not_wrap_around() {
    let much = usage(u64::MAX, 1, 0);
    assert_eq!(much.plus(much), usage(u64::MAX, 2, 0));
    assert_eq!(much.total_tokens(), u64::MAX);
    let limits = RunLimits { tokens_max: Some(u64::MAX), ..RunLimits::iterations(5) };
    assert_eq!(limits.reached(0, much, Duration::ZERO), Some(Limit::BudgetExhausted));
    assert_eq!(limits.reached(5, usage(1, 1, 0), Duration::ZERO), Some(Limit::MaxIterations));
    assert_eq!(limits.reached(4, usage(1, 1, 0), Duration::ZERO), None);
}
