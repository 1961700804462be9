//! `GET /v1/agents`: what runs can be started with.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use crate::http::App;
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::Answer;
use crate::json;

/// The agents by name. Prompts and secrets are not shown.
#[utoipa::path(
    get, path = "/v1/agents", tag = "agents",
    params(
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of agents.", body = crate::http::openapi::AgentPage),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_agents(State(app): State<App>, mut params: Params) -> Answer<Json<Value>> {
    let page = params.page("agents")?;
    params.done()?;
    let parts = app.runtime().parts();
    Ok(Json(
        page.cut(parts.agents.all().map(|agent| (agent.name.to_string(), json::agent(agent, &parts.models)))),
    ))
}
