//! `GET /v1/groups`: the families of tools.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use countersign::{GroupName, Look};
use serde_json::Value;

use crate::http::App;
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::Answer;
use crate::{json, switch};

/// The groups by name, with their switches and tools; and switches of groups that are not there any more.
#[utoipa::path(
    get, path = "/v1/groups", tag = "tools",
    params(
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of groups.", body = crate::http::openapi::GroupPage),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_groups(State(app): State<App>, mut params: Params) -> Answer<Json<Value>> {
    let page = params.page("groups")?;
    params.done()?;
    let look = app.store().look(&[]).await?;
    let mut groups = switch::groups(app.runtime());
    for orphan in look.switches.names().1 {
        groups.entry(orphan).or_default();
    }
    let all: BTreeMap<&str, Value> =
        groups.iter().map(|(name, tools)| (*name, group(name, tools, &look))).collect();
    Ok(Json(page.cut(all)))
}

/// A group as it is now.
pub(super) fn group(name: &str, tools: &[&str], look: &Look) -> Value {
    let switch = GroupName::parse(name).ok().and_then(|name| look.switches.group(&name));
    json::group(name, switch, tools)
}
