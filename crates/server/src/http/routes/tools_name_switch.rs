//! `PATCH /v1/tools/{name}`: switches a tool.

use axum::extract::{Path, State};
use countersign::{Catalogue as _, SwitchName};
use serde_json::Value;

use super::tools::orphan;
use crate::http::App;
use crate::http::body::{Json, must_be_said};
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::{json, switch};

/// How a switch is set.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct SetSwitch {
    /// On, off, or null: no switch, the default counts.
    #[serde(deserialize_with = "must_be_said")]
    #[schema(required)]
    pub(super) enabled: Option<bool>,
}

/// Sets a tool's own switch, or removes it.
#[utoipa::path(
    patch, path = "/v1/tools/{name}", tag = "tools",
    request_body = SetSwitch,
    params(("name" = String, Path, description = "The tool's name, byte for byte.")),
    responses(
        (status = 200, description = "The tool as it is now.", body = crate::http::openapi::Tool),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn switch_tool(
    State(app): State<App>,
    Path(name): Path<String>,
    Json { body, .. }: Json<SetSwitch>,
) -> Answer<axum::Json<Value>> {
    let look = app.store().look(&[]).await?;
    let known = switch::tool(app.runtime(), &look, &name, body.enabled);
    let known = known.ok_or_else(|| Problem::not_found("tool"))?;
    app.store().set_switch(&SwitchName::Tool(known), body.enabled, app.clock().now()).await?;
    let look = app.store().look(&[]).await?;
    Ok(axum::Json(match app.runtime().parts().tools.find(&name) {
        Some(spec) => json::tool(spec, &look.switches),
        None => orphan(&name, &look),
    }))
}
