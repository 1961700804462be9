//! The limits of one run, over all its pauses and workers (R7, L1, L5, L8).

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// How often the same denied call may be repeated before the run ends (L8).
pub const DENIED_REPEATS_MAX: u32 = 3;
/// How many turns in a row may be cut off by the token limit before the run ends (L8).
pub const CUT_OFF_MAX: u32 = 3;
/// How often a run's calls may take their worker with them before the run ends as poisoned (R3).
pub const INTERRUPTIONS_MAX: u32 = 3;
/// The cap of iterations where nobody says otherwise (L1).
pub const ITERATIONS_DEFAULT: u32 = 20;

/// The caps of a run, stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLimits {
    /// Model answers, the closing one not counted.
    pub iterations_max: u32,
    /// Tokens read and written together; absent: no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
}

/// A limit that was reached, which ends the run with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// L1: the cap of iterations.
    MaxIterations,
    /// L5: the budget of tokens.
    BudgetExhausted,
    /// L8: the same denied call again and again.
    RepeatedDenials,
    /// L8: three turns in a row, or a text, cut off by the token limit.
    CutOff,
}

impl Limit {
    /// The contract's stop reason and error code (L10).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxIterations => "max_iterations",
            Self::BudgetExhausted => "budget_exhausted",
            Self::RepeatedDenials => "repeated_denials",
            Self::CutOff => "cut_off",
        }
    }

    /// The sentence for people (L10).
    pub fn sentence(self) -> &'static str {
        match self {
            Self::MaxIterations => "the run reached its limit of model answers before it was done",
            Self::BudgetExhausted => "the run used up its budget of tokens before it was done",
            Self::RepeatedDenials => "the model kept asking for a call that a person had denied",
            Self::CutOff => "the model's answers were cut off by its limit of output tokens",
        }
    }

    /// What the calls that it leaves open are answered with.
    pub fn call_sentence(self) -> &'static str {
        match self {
            Self::MaxIterations => "Not run: the limit of steps for this task was reached.",
            Self::BudgetExhausted => "Not run: the token budget of this task is used up.",
            Self::RepeatedDenials => "Not run: this task ended because denied calls were repeated.",
            Self::CutOff => "Not run: the answer was cut off by the output limit.",
        }
    }
}

impl RunLimits {
    /// The limit that stands in the way of more work, if one was reached.
    pub fn reached(&self, iterations: u32, usage: Usage) -> Option<Limit> {
        if self.tokens_max.is_some_and(|max| usage.total_tokens() >= max) {
            Some(Limit::BudgetExhausted)
        } else if iterations >= self.iterations_max {
            Some(Limit::MaxIterations)
        } else {
            None
        }
    }
}
