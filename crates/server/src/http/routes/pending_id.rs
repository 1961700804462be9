//! `GET /v1/pending/{id}`: one question, with everything that will run.

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::json::View;

/// One question. Its `ETag` is its digest, which a decision must name.
#[utoipa::path(
    get, path = "/v1/pending/{id}", tag = "pending",
    params(("id" = String, Path, description = "The question's id.")),
    responses(
        (status = 200, description = "The question.", body = crate::http::openapi::Pending, headers(("ETag" = String, description = "Its digest."))),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_pending(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer<Response> {
    let (id, run) = app.asked(&id, &caller).await?;
    let record = run.pending(&id).ok_or_else(|| Problem::not_found("question"))?;
    let view = View { admin: caller.principal().admin, listed: false };
    let digest = format!("\"{}\"", record.pending.digest(run.id()));
    Ok(([(header::ETAG, digest)], axum::Json(app.question_json(record, &run, view))).into_response())
}
