//! `GET /v1/responses/{id}`: one response, as its run's log tells it.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::Value;

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::http::responses::{ResponseId, Stretch};

/// A response. `metadata.next` names the one after it, whoever set the run going again.
#[utoipa::path(
    get, path = "/v1/responses/{id}", tag = "responses",
    params(("id" = String, Path, description = "The response's id.")),
    responses(
        (status = 200, description = "The response.", body = crate::http::openapi::Response),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_response(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Json<Value>> {
    let missing = || Problem::not_found("response");
    let id = ResponseId::parse(&id).ok_or_else(missing)?;
    let seen = app.seen(id.run.as_str(), &caller).await.map_err(super::responses_create::of_a_response)?;
    let stretch = Stretch::of(&id, &seen).ok_or_else(missing)?;
    let previous = match (stretch.before(), &seen.run.created().continues) {
        (Some(before), _) => Some(before),
        // It may be gone: then there is nothing to name.
        (None, Some(continued)) => app.load(continued).await.ok().map(|seen| Stretch::newest(&seen)),
        (None, None) => None,
    };
    Ok(Json(stretch.json(previous.map(|id| id.to_string()).as_deref())))
}
