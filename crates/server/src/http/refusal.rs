//! What a refused decision or edit is over HTTP (contract, section 4, the table of decisions).

use axum::http::StatusCode;
use countersign::{DecideError, DecisionRefused};
use serde_json::{Value, json};

use super::problem::Problem;

/// The answer. `decision`: what was decided before, where something was.
pub(crate) fn refused(error: &DecideError, decision: Option<Value>) -> Problem {
    let refused = match error {
        DecideError::Refused(refused) => refused,
        DecideError::NotAuditable(_) => {
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), error.to_string());
        }
        DecideError::Unreadable(_) | _ => return Problem::unreadable(),
    };
    let problem = Problem::new(status(refused), refused.code(), refused.to_string());
    match (refused, decision) {
        (DecisionRefused::NotFound, _) => Problem::not_found("question"),
        (DecisionRefused::AlreadyDecided(_), Some(decision)) => problem.with("decision", decision),
        (DecisionRefused::InvalidInput(problems), _) => {
            let errors: Vec<Value> = problems
                .iter()
                .map(|problem| json!({ "pointer": problem.pointer, "detail": problem.detail }))
                .collect();
            problem.with("errors", errors.into())
        }
        _ => problem,
    }
}

fn status(refused: &DecisionRefused) -> StatusCode {
    match refused {
        DecisionRefused::NotFound => StatusCode::NOT_FOUND,
        DecisionRefused::WrongKind { .. }
        | DecisionRefused::CallsIncomplete { .. }
        | DecisionRefused::InvalidInput(_) => StatusCode::UNPROCESSABLE_ENTITY,
        DecisionRefused::AlreadyDecided(_)
        | DecisionRefused::Withdrawn
        | DecisionRefused::Void
        | DecisionRefused::Superseded
        | DecisionRefused::AgentGone
        | DecisionRefused::TooEarly { .. } => StatusCode::CONFLICT,
        DecisionRefused::Expired => StatusCode::GONE,
        DecisionRefused::NotPermitted { .. }
        | DecisionRefused::SelfApproval { .. }
        | DecisionRefused::ApproverNotPermitted { .. } => StatusCode::FORBIDDEN,
        DecisionRefused::StaleDigest => StatusCode::PRECONDITION_FAILED,
        // What else may refuse a decision leaves the question as it is.
        _ => StatusCode::CONFLICT,
    }
}
