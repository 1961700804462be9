//! `GET /metrics`: what can be counted, as Prometheus reads it.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use crate::http::App;
use crate::http::problem::{Answer, Problem};
use crate::metrics::CONTENT_TYPE;

/// What can be counted of this process and of its database. No run, no person and nothing that was said is in it.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "Numbers with few labels, in Prometheus' text format.", body = String, content_type = "text/plain"),
))]
pub(super) async fn metrics(State(app): State<App>) -> Answer<Response> {
    if app.is_draining() {
        app.metrics().drains(app.clock().now());
    }
    app.count().await;
    let text = app.metrics().text().map_err(|_| Problem::internal())?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
