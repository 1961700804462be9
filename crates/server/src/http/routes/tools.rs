//! `GET /v1/tools`: what there is to be called.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use countersign::{Look, ToolName};
use serde_json::Value;

use crate::http::App;
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::Answer;
use crate::{json, switch};

/// The tools by name, with their switches; and switches of tools that are not there any more.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools",
    params(
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of tools.", body = crate::http::openapi::ToolPage),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_tools(State(app): State<App>, mut params: Params) -> Answer<Json<Value>> {
    let page = params.page("tools")?;
    params.done()?;
    let look = app.store().look(&[]).await?;
    let tools = app.runtime().parts().tools.tools();
    let mut all: BTreeMap<&str, Value> =
        tools.map(|tool| (tool.spec.name.as_str(), json::tool(&tool.spec, &look.switches))).collect();
    all.extend(switch::orphans(app.runtime(), &look).into_iter().map(|name| (name, orphan(name, &look))));
    Ok(Json(page.cut(all)))
}

/// A switch of a tool that is not there.
pub(super) fn orphan(name: &str, look: &Look) -> Value {
    let switch = ToolName::parse(name).ok().and_then(|name| look.switches.tool(&name));
    json::orphaned_tool(name, switch)
}
