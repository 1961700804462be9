//! `POST /v1/policy/offerable`: what the five gates let pass (P9).

use axum::extract::State;
use countersign::{AgentName, PolicyLook, Subject, ToolPolicy as _};
use serde_json::{Value, json};

use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};

/// What is asked of the gates.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct AskPolicy {
    /// For runs of this agent; `default` where nobody says.
    #[schema(value_type = Option<String>)]
    agent: Option<AgentName>,
    /// About these tools; null or absent: all enabled ones.
    pub(super) tools: Option<Vec<String>>,
    /// For runs of this person; oneself where nobody says. Others: for administrators.
    #[serde(rename = "as")]
    #[schema(value_type = Option<String>)]
    subject: Option<Subject>,
}

/// What may be offered.
#[utoipa::path(
    post, path = "/v1/policy/offerable", tag = "policy",
    request_body = AskPolicy,
    responses(
        (status = 200, description = "The tools, in the order they were asked for.", body = crate::http::openapi::ToolNames),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn offerable(
    State(app): State<App>,
    caller: Caller,
    Json { body, .. }: Json<AskPolicy>,
) -> Answer<axum::Json<Value>> {
    let policy = policy(&app, &caller, &body).await?;
    Ok(axum::Json(json!({ "tools": policy.offerable(body.tools.as_deref()) })))
}

/// One look at the gates, for whom it is asked.
pub(super) async fn policy(app: &App, caller: &Caller, asked: &AskPolicy) -> Answer<PolicyLook> {
    let subject = asked.subject.as_ref().unwrap_or(caller.subject());
    if subject != caller.subject() && !caller.principal().admin {
        return Err(Problem::not_permitted("only administrators ask for others"));
    }
    let agent = match &asked.agent {
        Some(agent) => agent.clone(),
        None => AgentName::parse("default").map_err(|_| Problem::internal())?,
    };
    Ok(app.runtime().policy(&agent, subject).await?)
}
