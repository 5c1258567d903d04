//! `/v1/sessions/{id}/private`: files kept beside a session, out of its room's reach.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{PrivatePath, SessionPath};
use crate::reply::{Answer, Reply};
use axum::http::HeaderValue;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::response::IntoResponse;
use workroom_types::PrivateFiles;

/// List a session's private files
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/private",
    tag = "private files",
    operation_id = "list_private_files",
    params(SessionPath),
    responses((status = 200, description = "All of them, by name", body = PrivateFiles)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let files = call.engine().private_list(&call.caller, call.id()).await?;
    Ok(Reply::ok(&files)?.into_response())
}

/// Read a private file
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/private/{name}",
    tag = "private files",
    operation_id = "read_private_file",
    params(SessionPath, PrivatePath),
    responses((status = 200, description = "What it holds", body = Vec<u8>, content_type = "application/octet-stream")),
)]
pub(crate) async fn read(call: Call) -> Answer {
    call.no_query()?;
    let data = call.engine().private_read(&call.caller, call.id(), call.param("name")).await?;
    let mut response = Reply::bytes("application/octet-stream", data).into_response();
    // It holds what somebody put there: no browser is to make a page of it.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Write a private file, whole
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/private/{name}",
    tag = "private files",
    operation_id = "write_private_file",
    params(SessionPath, PrivatePath),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "It is written, durably")),
)]
pub(crate) async fn write(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.private_file;
    let body = call.body(limit).await?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    let data = body.to_vec();
    once(call, &body, move |engine, caller, _| {
        Box::pin(
            async move { engine.private_write(caller, &id, &name, data).await.map(|()| Reply::nothing()) },
        )
    })
    .await
}

/// Delete a private file
///
/// Deleting what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/private/{name}",
    tag = "private files",
    operation_id = "delete_private_file",
    params(SessionPath, PrivatePath),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.private_delete(caller, &id, &name).await.map(|()| Reply::nothing()) })
    })
    .await
}
