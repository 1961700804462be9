//! `POST /v1/pending/{id}/edit`: a person changes arguments (A14).

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use countersign::{Arguments, CallId};

use super::pending_id_decision::digest;
use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::http::refusal::refused;
use crate::json::View;

/// Changed arguments, with the digest of what was seen, here or in `If-Match`.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct Edit {
    /// The digest of what was seen.
    digest: Option<String>,
    /// The new arguments of each changed call, as a whole.
    #[schema(value_type = BTreeMap<String, Object>)]
    calls: BTreeMap<CallId, Arguments>,
}

/// Changes arguments of a held turn. Deciding the new question is a separate act.
#[utoipa::path(
    post, path = "/v1/pending/{id}/edit", tag = "pending",
    request_body = Edit,
    params(
        ("id" = String, Path, description = "The question's id."),
        ("If-Match" = Option<String>, Header, description = "The digest of what was seen, in quotes."),
    ),
    responses(
        (status = 201, description = "The new question, which shows both versions; the old one is superseded.", body = crate::http::openapi::Pending, headers(("Location" = String, description = "Where it is found."), ("ETag" = String, description = "Its digest."))),
        (status = 422, description = "The arguments do not fit: `invalid_input`; the question is still open.", body = ProblemBody, content_type = "application/problem+json"),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn edit(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Answer<Json<Edit>>,
) -> Answer<Response> {
    let (id, run) = app.asked(&id, &caller).await?;
    let Edit { digest: given, calls } = body?.body;
    let digest = digest(given, &headers)?;
    let texts = calls.into_iter().map(|(call, arguments)| (call, arguments.text())).collect();
    let edited = app.runtime().edit(&id, digest, &texts, caller.subject()).await;
    app.watchers().ring(run.id());
    let edited = edited.map_err(|error| refused(&error, None))?;
    let run = app.load(run.id()).await?.run;
    let record = run.pending(&edited.pending.id).ok_or_else(Problem::internal)?;
    let view = View { admin: caller.principal().admin, listed: false };
    let text = |text: String| HeaderValue::try_from(text).map_err(|_| Problem::internal());
    let location = text(format!("/v1/pending/{}", record.pending.id))?;
    let tag = text(format!("\"{}\"", record.pending.digest(run.id())))?;
    let shown = app.question_json(record, &run, view);
    Ok((StatusCode::CREATED, [(header::LOCATION, location), (header::ETAG, tag)], axum::Json(shown))
        .into_response())
}
