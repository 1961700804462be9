//! `GET /healthz`: the process is alive.

use axum::Json;
use serde_json::{Value, json};

/// Whether the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It is.")))]
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "alive" }))
}
