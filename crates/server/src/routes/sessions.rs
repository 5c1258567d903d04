//! `/v1/sessions`: making, finding, showing, changing and deleting sessions.

use crate::call::{Call, WaitQuery};
use crate::idempotency::once;
use crate::openapi::{SessionPath, WaitParam};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{
    CreateSession, ListSessions, ResolveSession, Resolved, Session, SessionPage, UpdateSession,
};

fn created_or_found(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

/// Make a session
///
/// Without a body: one with every default. Under a `key` that its owner used before, that session.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    tag = "sessions",
    operation_id = "create_session",
    params(WaitParam),
    request_body(content = Option<CreateSession>, example = json!({"name": "build", "labels": {"team": "a"}, "idle_timeout": 3600})),
    responses(
        (status = 201, description = "Made", body = Session),
        (status = 200, description = "It was there already, under its key", body = Session),
        (status = 410, description = "Its room ended while it was being made"),
    ),
)]
pub(crate) async fn create(mut call: Call) -> Answer {
    let wait = call.query::<WaitQuery>()?.duration()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json_or_default::<CreateSession>(limit).await?;
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let (session, created) = engine.create(caller, request, wait, permit).await?;
            Reply::json(created_or_found(created), &session)
        })
    })
    .await
}

/// List sessions, newest first
#[utoipa::path(
    get,
    path = "/v1/sessions",
    tag = "sessions",
    operation_id = "list_sessions",
    params(ListSessions),
    responses((status = 200, description = "One page of them", body = SessionPage)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    let filter = call.query::<ListSessions>()?;
    let page = call.engine().list(&call.caller, filter).await?;
    Ok(Reply::ok(&page)?.into_response())
}

/// Find the session of a chat's place, or make it
#[utoipa::path(
    post,
    path = "/v1/sessions/resolve",
    tag = "sessions",
    operation_id = "resolve_session",
    request_body(content = ResolveSession, example = json!({
        "group": "support",
        "channel": {"channel_type": "chat", "platform_id": "C42"},
        "mode": "shared",
    })),
    responses(
        (status = 200, description = "It was there already", body = Resolved),
        (status = 201, description = "Made now", body = Resolved),
        (status = 410, description = "Its room ended while it was being made"),
    ),
)]
pub(crate) async fn resolve(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ResolveSession>(limit).await?;
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let resolved = engine.resolve(caller, request, permit).await?;
            Reply::json(created_or_found(resolved.created), &resolved)
        })
    })
    .await
}

/// Show a session
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}",
    tag = "sessions",
    operation_id = "get_session",
    params(SessionPath),
    responses((status = 200, description = "As it is now", body = Session)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let session = call.engine().get(&call.caller, call.id()).await?;
    Ok(Reply::ok(&session)?.into_response())
}

/// Change a session
#[utoipa::path(
    patch,
    path = "/v1/sessions/{id}",
    tag = "sessions",
    operation_id = "update_session",
    params(SessionPath),
    request_body(content = UpdateSession, example = json!({"name": "nightly build", "keep_alive": true})),
    responses((status = 200, description = "As it is now", body = Session)),
)]
pub(crate) async fn update(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (change, body) = call.json::<UpdateSession>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.update(caller, &id, change).await?) })
    })
    .await
}

/// Delete a session, its room, its files and its private files
///
/// Deleting it again succeeds again.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}",
    tag = "sessions",
    operation_id = "delete_session",
    params(SessionPath),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.delete(caller, &id).await.map(|()| Reply::nothing()) })
    })
    .await
}
