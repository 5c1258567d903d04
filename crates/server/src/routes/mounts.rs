//! `/v1/mounts` and `/v1/sessions/{id}/mounts`: directories of the host that sessions may have, and have.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{MountPath, SessionPath};
use crate::reply::{Answer, Reply};
use axum::response::IntoResponse;
use workroom_types::{AddMounts, MountOffer, SessionMounts};

/// Show what the caller's sessions may have of the host
///
/// What every session of the caller gets, and the bases that mounts may be asked for from. By name of the token's
/// owner; for an admin token, of `admin`.
#[utoipa::path(
    get,
    path = "/v1/mounts",
    tag = "mounts",
    operation_id = "show_mount_offer",
    responses((status = 200, description = "As the operator's file says now", body = MountOffer)),
)]
pub(crate) async fn offer(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().mount_offer(&call.caller))?.into_response())
}

/// List a session's directories of the host
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/mounts",
    tag = "mounts",
    operation_id = "list_mounts",
    params(SessionPath),
    responses((status = 200, description = "What it has, and what is missing", body = SessionMounts)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().mounts(&call.caller, call.id()).await?)?.into_response())
}

/// Mount directories of the host into a session
///
/// All of them, or none. They are there when this answers, also in a room that runs, and in every later one: they
/// become part of the session's policy. A denial is `mount_denied`, and its `report` has a code for each.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/mounts",
    tag = "mounts",
    operation_id = "add_mounts",
    params(SessionPath),
    request_body(content = AddMounts, example = json!({
        "mounts": [{"alias": "data", "base": "projects", "subpath": "data", "mode": "ro"}],
    })),
    responses(
        (status = 200, description = "They are mounted", body = SessionMounts),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn add(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<AddMounts>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.add_mounts(caller, &id, request).await?) })
    })
    .await
}

/// Take a directory of the host off a session
///
/// Only what was asked for. It is gone at once; what a process of the room has open of it stays open to that process.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/mounts/{alias}",
    tag = "mounts",
    operation_id = "remove_mount",
    params(SessionPath, MountPath),
    responses(
        (status = 204, description = "It is not mounted"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn remove(call: Call) -> Answer {
    call.no_query()?;
    let (id, alias) = (call.id().to_owned(), call.param("alias").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_mount(caller, &id, &alias).await.map(|()| Reply::nothing()) })
    })
    .await
}
