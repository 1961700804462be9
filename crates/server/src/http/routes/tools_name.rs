//! `GET /v1/tools/{name}`: one tool.

use axum::Json;
use axum::extract::{Path, State};
use countersign::Catalogue as _;
use serde_json::Value;

use super::tools::orphan;
use crate::http::App;
use crate::http::openapi::ProblemBody;
use crate::http::problem::{Answer, Problem};
use crate::{json, switch};

/// One tool, or the switch of one that is not there any more.
#[utoipa::path(
    get, path = "/v1/tools/{name}", tag = "tools",
    params(("name" = String, Path, description = "The tool's name, byte for byte.")),
    responses(
        (status = 200, description = "The tool.", body = crate::http::openapi::Tool),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn get_tool(State(app): State<App>, Path(name): Path<String>) -> Answer<Json<Value>> {
    let look = app.store().look(&[]).await?;
    if let Some(spec) = app.runtime().parts().tools.find(&name) {
        return Ok(Json(json::tool(spec, &look.switches)));
    }
    if switch::orphans(app.runtime(), &look).contains(&name.as_str()) {
        return Ok(Json(orphan(&name, &look)));
    }
    Err(Problem::not_found("tool"))
}
