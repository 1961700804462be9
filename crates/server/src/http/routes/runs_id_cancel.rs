//! `POST /v1/runs/{id}/cancel`: ends a run for good (R8).

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use countersign::{CancelError, Principal};
use serde_json::Value;

use crate::http::App;
use crate::http::body::NoBody;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};

/// Cancels a run: at once, or as soon as a write that is under way has come back.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs",
    params(("id" = String, Path, description = "The run's id.")),
    responses(
        (status = 200, description = "The run, as it is now.", body = crate::http::openapi::Run),
        (status = 409, description = "It has ended, or is being cancelled already.", body = ProblemBody, content_type = "application/problem+json"),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn cancel_run(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    _body: NoBody,
) -> Answer<Json<Value>> {
    let may_see_or_cancel =
        |principal: &Principal, run: &_| principal.may_see(run) || principal.may_cancel(run);
    let seen = app.seen_if(&id, &caller, may_see_or_cancel).await?;
    if !caller.principal().may_cancel(&seen.run) {
        return Err(Problem::not_permitted("only its owner and administrators cancel a run"));
    }
    let cancelled = app.runtime().cancel(seen.run.id(), caller.principal()).await;
    app.watchers().ring(seen.run.id());
    let run = cancelled.map_err(|error| {
        if matches!(error, CancelError::NotCancellable) {
            return Problem::new(StatusCode::CONFLICT, "not_cancellable", error.to_string());
        }
        if let CancelError::Store(fault) = &error {
            return Problem::store(fault);
        }
        if matches!(error, CancelError::NotFound(_)) {
            return Problem::not_found("run");
        }
        Problem::unreadable()
    })?;
    Ok(Json(app.run_json(&run, &caller, false).await?))
}
