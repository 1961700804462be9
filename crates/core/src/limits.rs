//! The limits of one run, over all its pauses and workers (R7, L1, L5, L8).

use std::time::Duration;

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
    /// Milliseconds during which somebody worked on it, waiting for people not counted; absent: no budget (L5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_ms_max: Option<u64>,
    /// The context window in tokens that every request must fit into, whichever model of the chain it goes to;
    /// absent: nobody said one, and nothing is left out (L6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
}

/// A limit that was reached, which ends the run with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// L1: the cap of iterations.
    MaxIterations,
    /// L5: the budget of tokens.
    BudgetExhausted,
    /// L5: the budget of working time.
    WorkingTime,
    /// L6: what may not be left out does not fit into the context window.
    ContextExhausted,
    /// L8: the same denied call again and again.
    RepeatedDenials,
    /// L8: three turns in a row, or a text, cut off by the token limit.
    CutOff,
}

impl Limit {
    /// The word that is stored, which tells one budget from another.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxIterations => "max_iterations",
            Self::BudgetExhausted => "budget_exhausted",
            Self::WorkingTime => "working_time",
            Self::ContextExhausted => "context_exhausted",
            Self::RepeatedDenials => "repeated_denials",
            Self::CutOff => "cut_off",
        }
    }

    /// The contract's stop reason and error code (L10): the same for every budget.
    pub fn stop_reason(self) -> &'static str {
        match self {
            Self::WorkingTime => Self::BudgetExhausted.as_str(),
            Self::MaxIterations
            | Self::BudgetExhausted
            | Self::ContextExhausted
            | Self::RepeatedDenials
            | Self::CutOff => self.as_str(),
        }
    }

    /// The sentence for people (L10).
    pub fn sentence(self) -> &'static str {
        match self {
            Self::MaxIterations => "the run reached its limit of model answers before it was done",
            Self::BudgetExhausted => "the run used up its budget of tokens before it was done",
            Self::WorkingTime => "the run used up its budget of working time before it was done",
            Self::ContextExhausted => {
                "what the model must be told, its beginning, the task and the newest step, does not fit into the context window"
            }
            Self::RepeatedDenials => "the model kept asking for a call that a person had denied",
            Self::CutOff => "the model's answers were cut off by its limit of output tokens",
        }
    }

    /// What the calls that it leaves open are answered with.
    pub fn call_sentence(self) -> &'static str {
        match self {
            Self::MaxIterations => "Not run: the limit of steps for this task was reached.",
            Self::BudgetExhausted => "Not run: the token budget of this task is used up.",
            Self::WorkingTime => "Not run: the working time of this task is used up.",
            Self::ContextExhausted => "Not run: this task no longer fits into the context window.",
            Self::RepeatedDenials => "Not run: this task ended because denied calls were repeated.",
            Self::CutOff => "Not run: the answer was cut off by the output limit.",
        }
    }
}

impl RunLimits {
    /// This cap of iterations, and no other cap.
    pub fn iterations(iterations_max: u32) -> Self {
        Self { iterations_max, tokens_max: None, working_ms_max: None, window_tokens: None }
    }

    /// How much of the working time is left; `None`: there is no budget of it.
    pub fn working_time_left(&self, worked: Duration) -> Option<Duration> {
        self.working_ms_max.map(|max| Duration::from_millis(max).saturating_sub(worked))
    }

    /// The limit that stands in the way of more work, if one was reached.
    pub fn reached(&self, iterations: u32, usage: Usage, worked: Duration) -> Option<Limit> {
        if self.tokens_max.is_some_and(|max| usage.total_tokens() >= max) {
            Some(Limit::BudgetExhausted)
        } else if self.working_time_left(worked).is_some_and(|left| left.is_zero()) {
            Some(Limit::WorkingTime)
        } else if iterations >= self.iterations_max {
            Some(Limit::MaxIterations)
        } else {
            None
        }
    }
}
