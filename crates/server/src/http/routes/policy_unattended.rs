//! `POST /v1/policy/unattended`: what runs with nobody to ask (U1).

use axum::extract::State;
use countersign::{ToolName, UnattendedFilter as _};
use serde_json::{Value, json};

use crate::http::App;
use crate::http::body::Json;
use crate::http::openapi::ProblemBody;
use crate::http::problem::Answer;

/// The tools to filter.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct FilterTools {
    /// Their names.
    tools: Vec<String>,
}

/// The tools among these that need no person. Whether they may be offered is another question.
#[utoipa::path(
    post, path = "/v1/policy/unattended", tag = "policy",
    request_body = FilterTools,
    responses(
        (status = 200, description = "The tools, in their order.", body = crate::http::openapi::ToolNames),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn unattended(
    State(app): State<App>,
    Json { body, .. }: Json<FilterTools>,
) -> Answer<axum::Json<Value>> {
    // What is no name is no tool, and goes.
    let names: Vec<ToolName> = body.tools.iter().filter_map(|name| ToolName::parse(name).ok()).collect();
    Ok(axum::Json(json!({ "tools": app.runtime().unattended_filter().unattended(&names) })))
}
