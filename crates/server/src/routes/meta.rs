//! What the server says about itself: capabilities, the document, health, metrics.

use crate::app::App;
use crate::call::Call;
use crate::openapi::Status;
use crate::reply::{Answer, JSON, Reply};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use workroom_types::{Problem, ProblemCode};

/// What is really enforced here
#[utoipa::path(
    get,
    path = "/v1/capabilities",
    tag = "server",
    operation_id = "capabilities",
    responses((status = 200, description = "Found by building a room once", body = workroom_types::Capabilities)),
)]
pub(crate) async fn capabilities(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().capabilities().await?)?.into_response())
}

/// This document
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "server",
    operation_id = "openapi",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json")),
)]
pub(crate) async fn document(State(app): State<Arc<App>>) -> Response {
    Reply::bytes(JSON, app.document.clone()).into_response()
}

/// Whether the server is alive
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "server",
    operation_id = "healthz",
    security(()),
    responses((status = 200, description = "It answers", body = Status)),
)]
pub(crate) async fn healthy() -> Response {
    Reply::bytes(JSON, &b"{\"status\":\"ok\"}"[..]).into_response()
}

/// Whether calls can be served
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    operation_id = "readyz",
    security(()),
    responses(
        (status = 200, description = "The store writes and rooms can be built", body = Status),
        (status = 503, description = "Not now"),
    ),
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Answer {
    app.engine.ready().await?;
    Ok(Reply::bytes(JSON, &b"{\"status\":\"ready\"}"[..]).into_response())
}

/// Numbers for Prometheus
///
/// For admin tokens, read-only ones among them.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "server",
    operation_id = "metrics",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(crate) async fn metrics(call: Call) -> Answer {
    call.no_query()?;
    if !call.caller.is_admin() {
        return Err(Problem::new(
            ProblemCode::Forbidden,
            "metrics are about everybody's sessions",
            "use an admin token; a read-only one will do",
        )
        .into());
    }
    let text = call
        .app
        .metrics
        .text()
        .map_err(|_| Problem::new(ProblemCode::Internal, "the metrics could not be written", ""))?;
    Ok(Reply::bytes("application/openmetrics-text; version=1.0.0; charset=utf-8", text).into_response())
}
