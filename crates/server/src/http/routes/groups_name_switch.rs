//! `PATCH /v1/groups/{name}`: switches a whole group.

use axum::extract::{Path, State};
use countersign::SwitchName;
use serde_json::Value;

use super::groups::group;
use super::tools_name_switch::SetSwitch;
use crate::http::App;
use crate::http::body::Json;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::switch;

/// Sets a group's switch, or removes it.
#[utoipa::path(
    patch, path = "/v1/groups/{name}", tag = "tools",
    request_body = SetSwitch,
    params(("name" = String, Path, description = "The group's name, byte for byte.")),
    responses(
        (status = 200, description = "The group as it is now.", body = crate::http::openapi::Group),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn switch_group(
    State(app): State<App>,
    Path(name): Path<String>,
    Json { body, .. }: Json<SetSwitch>,
) -> Answer<axum::Json<Value>> {
    let look = app.store().look(&[]).await?;
    let known = switch::group(app.runtime(), &look, &name, body.enabled);
    let known = known.ok_or_else(|| Problem::not_found("group"))?;
    app.store().set_switch(&SwitchName::Group(known), body.enabled, app.clock().now()).await?;
    let look = app.store().look(&[]).await?;
    let tools = switch::groups(app.runtime()).remove(name.as_str()).unwrap_or_default();
    Ok(axum::Json(group(&name, &tools, &look)))
}
