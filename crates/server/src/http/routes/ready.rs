//! `GET /readyz`: requests may be sent here.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http::App;
use crate::http::problem::{Answer, Problem};

/// Whether requests may be sent here: the store answers and can be written, and the process is not about to end.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "They may."),
    (status = 503, description = "Not now.", body = crate::http::openapi::ProblemBody, content_type = "application/problem+json"),
))]
pub(super) async fn readyz(State(app): State<App>) -> Answer<Json<Value>> {
    if app.is_draining() {
        return Err(crate::http::draining());
    }
    let not_ready = |why: &'static str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why);
    if app.store().look(&[]).await.is_err() {
        return Err(not_ready("the store does not answer"));
    }
    app.probe().await.map_err(|unwritable| not_ready(unwritable.sentence()))?;
    Ok(Json(json!({ "status": "ready" })))
}
