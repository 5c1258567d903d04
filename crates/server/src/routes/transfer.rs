//! `/v1/sessions/{id}/export` and `/v1/sessions/import`: a whole session as one file.

use crate::call::Call;
use crate::download::takes_trailers;
use crate::idempotency::once_streamed;
use crate::openapi::SessionPath;
use crate::pieces;
use crate::reply::{Answer, Reply};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, TRAILER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use workroom_types::Session;

/// Get a whole session as one file
///
/// Its files, snapshots and journal; no tokens, no private files. A file that cannot be finished breaks the connection.
/// A client that sends `TE: trailers` is told its SHA-256 in the trailer `x-workroom-sha256`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/export",
    tag = "past",
    operation_id = "export_session",
    params(SessionPath),
    responses(
        (status = 200, description = "The file", content((Vec<u8> = "application/zstd"))),
        (status = 409, description = "Its files were replaced again and again meanwhile"),
        (status = 410, description = "The room ended meanwhile"),
        (status = 422, description = "A required layer cannot be had here"),
    ),
)]
pub(crate) async fn export(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id().to_owned();
    let export = call.engine().export_session(&call.caller, &id).await?;
    let with_trailers = takes_trailers(call.headers());
    let mut response = Response::new(pieces::body(export, with_trailers));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.workroom\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    if with_trailers {
        headers.insert(TRAILER, HeaderValue::from_static("x-workroom-sha256"));
    }
    Ok(response)
}

/// Take up a session from such a file
///
/// It gets an id of its own and is the caller's. Nothing is kept of a file that is broken.
#[utoipa::path(
    post,
    path = "/v1/sessions/import",
    tag = "past",
    operation_id = "import_session",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "It is there, and stopped", body = Session),
        (status = 422, description = "The file is broken or no session's, or the Idempotency-Key came with another request"),
    ),
)]
pub(crate) async fn import(mut call: Call) -> Answer {
    call.no_query()?;
    let mut source = call.source();
    once_streamed(call, move |engine, caller, permit| {
        Box::pin(async move {
            let session = engine.import_session(caller, &mut source, permit).await?;
            Reply::json(StatusCode::CREATED, &session)
        })
    })
    .await
}
