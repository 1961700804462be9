//! `GET /v1/runs/{id}`: one run.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::patience::Patience;
use crate::http::problem::Answer;

/// One run.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs",
    params(
        ("id" = String, Path, description = "The run's id."),
        ("Prefer" = Option<String>, Header, description = "`wait=N` answers when the run stops, or after N seconds."),
    ),
    responses(
        (status = 200, description = "The run.", body = crate::http::openapi::Run),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_run(
    State(app): State<App>,
    caller: Caller,
    patience: Patience,
    Path(id): Path<String>,
) -> Answer<Response> {
    let mut seen = app.seen(&id, &caller).await?;
    if let Some(time) = patience.time() {
        app.until_it_stops(&seen.run.id().clone(), time).await?;
        seen = app.seen(&id, &caller).await?;
    }
    let shown = app.run_json(&seen.run, &caller, false).await?;
    Ok((HeaderMap::from_iter(patience.applied()), axum::Json(shown)).into_response())
}
