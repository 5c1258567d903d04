//! `/v1/sessions/{id}/{start,stop,pause,resume}`: what a session's room is told to do.

use crate::call::{Call, WaitQuery};
use crate::idempotency::once;
use crate::openapi::{SessionPath, WaitParam};
use crate::reply::{Answer, Reply};
use std::time::Duration;
use workroom_engine::Verb;
use workroom_types::Session;

async fn act(mut call: Call, verb: Verb, wait: Option<Duration>) -> Answer {
    call.no_body().await?;
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.act(caller, &id, verb, wait).await?) })
    })
    .await
}

/// Start a session's room
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/start",
    tag = "lifecycle",
    operation_id = "start_session",
    params(SessionPath, WaitParam),
    responses(
        (status = 200, description = "It runs", body = Session),
        (status = 410, description = "The room ended while it was being started"),
    ),
)]
pub(crate) async fn start(call: Call) -> Answer {
    let wait = call.query::<WaitQuery>()?.duration()?;
    act(call, Verb::Start, wait).await
}

/// End a session's processes and keep its files
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/stop",
    tag = "lifecycle",
    operation_id = "stop_session",
    params(SessionPath),
    responses((status = 200, description = "It is stopped", body = Session)),
)]
pub(crate) async fn stop(call: Call) -> Answer {
    call.no_query()?;
    act(call, Verb::Stop, None).await
}

/// Freeze a session's processes
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/pause",
    tag = "lifecycle",
    operation_id = "pause_session",
    params(SessionPath),
    responses(
        (status = 200, description = "It is paused", body = Session),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn pause(call: Call) -> Answer {
    call.no_query()?;
    act(call, Verb::Pause, None).await
}

/// Let a paused session's processes go on
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/resume",
    tag = "lifecycle",
    operation_id = "resume_session",
    params(SessionPath),
    responses(
        (status = 200, description = "It runs", body = Session),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn resume(call: Call) -> Answer {
    call.no_query()?;
    act(call, Verb::Resume, None).await
}
