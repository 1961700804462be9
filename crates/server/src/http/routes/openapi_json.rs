//! `GET /openapi.json`: what this API is.

use axum::Json;

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI 3.1")))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::http::document())
}
