//! `POST /v1/policy/explain`: why a tool may be offered, or may not (P9).

use axum::extract::State;
use countersign::{Catalogue as _, ToolPolicy as _};
use serde_json::{Value, json};

use super::policy_offerable::{AskPolicy, policy};
use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::Answer;
use crate::json;

/// One verdict a tool, by the very function that enforces.
#[utoipa::path(
    post, path = "/v1/policy/explain", tag = "policy",
    request_body = AskPolicy,
    responses(
        (status = 200, description = "The verdicts, in the order they were asked for.", body = crate::http::openapi::Verdicts),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn explain(
    State(app): State<App>,
    caller: Caller,
    Json { body, .. }: Json<AskPolicy>,
) -> Answer<axum::Json<Value>> {
    let policy = policy(&app, &caller, &body).await?;
    let tools = &app.runtime().parts().tools;
    let verdicts = policy.explain(body.tools.as_deref());
    let items: Vec<Value> =
        verdicts.iter().map(|verdict| json::verdict(verdict, tools.find(&verdict.tool))).collect();
    Ok(axum::Json(json!({ "items": items })))
}
