//! `GET /v1/agents/{name}`: one agent.

use axum::Json;
use axum::extract::{Path, State};
use countersign::AgentName;
use serde_json::Value;

use crate::http::App;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::json;

/// One agent. Its prompt and secrets are not shown.
#[utoipa::path(
    get, path = "/v1/agents/{name}", tag = "agents",
    params(("name" = String, Path, description = "The agent's name.")),
    responses(
        (status = 200, description = "The agent.", body = crate::http::openapi::Agent),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_agent(State(app): State<App>, Path(name): Path<String>) -> Answer<Json<Value>> {
    let name = AgentName::parse(&name).map_err(Problem::no_name("agent"))?;
    let parts = app.runtime().parts();
    let agent = parts.agents.find(&name).ok_or_else(|| Problem::not_found("agent"))?;
    Ok(Json(json::agent(agent, &parts.models)))
}
