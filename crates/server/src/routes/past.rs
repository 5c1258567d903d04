//! `/v1/sessions/{id}/{snapshots,reset,fork,diff,merge,digest,lineage,baseline}`: a session's past and its relatives.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{SessionPath, SnapshotPath};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use workroom_types::{
    Diff, DiffQuery, Digest, ForkSession, Forks, Garbage, Lineage, MergeSession, Merged, ResetSession,
    Session, Snapshot, SnapshotList, TakeSnapshot,
};

/// Keep a session's files as they are, under a name
///
/// Where processes run they stand still for a moment, and `pause_ms` says for how long.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/snapshots",
    tag = "past",
    operation_id = "take_snapshot",
    params(SessionPath),
    request_body(content = Option<TakeSnapshot>, example = json!({"name": "before-upgrade"})),
    responses(
        (status = 201, description = "Taken, and on the disk", body = Snapshot),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn take(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json_or_default::<TakeSnapshot>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let snapshot = engine.take_snapshot(caller, &id, request, permit).await?;
            Reply::json(StatusCode::CREATED, &snapshot)
        })
    })
    .await
}

/// List a session's snapshots, oldest first
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/snapshots",
    tag = "past",
    operation_id = "list_snapshots",
    params(SessionPath),
    responses((status = 200, description = "All of them", body = SnapshotList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let list = call.engine().snapshots(&call.caller, call.id()).await?;
    Ok(Reply::ok(&list)?.into_response())
}

/// Delete a snapshot
///
/// The space that only it needed is free again a moment later. Deleting what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/snapshots/{name}",
    tag = "past",
    operation_id = "delete_snapshot",
    params(SessionPath, SnapshotPath),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.delete_snapshot(caller, &id, &name).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// Put a session's files back to an earlier moment
///
/// What runs in its room ends; a session that had a room has a new one.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/reset",
    tag = "past",
    operation_id = "reset_session",
    params(SessionPath),
    request_body(content = Option<ResetSession>, example = json!({"to": "before-upgrade"})),
    responses((status = 200, description = "As it was then", body = Session)),
)]
pub(crate) async fn reset(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json_or_default::<ResetSession>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.reset(caller, &id, request, permit).await?) })
    })
    .await
}

/// Make what a session is now its baseline
///
/// Once, before it has a snapshot: what it is reset to and compared with from then on.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/baseline",
    tag = "past",
    operation_id = "set_baseline",
    params(SessionPath),
    responses(
        (status = 200, description = "It has a baseline", body = Session),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn baseline(mut call: Call) -> Answer {
    call.no_query()?;
    call.no_body().await?;
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.set_baseline(caller, &id).await?) })
    })
    .await
}

/// Make independent sessions that go on from a session's files
///
/// The source goes on. A fork's baseline is the moment that it was made from. Its token's secret is in this answer and
/// nowhere else: a repetition under the same Idempotency-Key does not have it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/fork",
    tag = "past",
    operation_id = "fork_session",
    params(SessionPath),
    request_body(content = Option<ForkSession>, example = json!({"count": 2, "name": "try"})),
    responses(
        (status = 201, description = "Made", body = Forks),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn fork(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json_or_default::<ForkSession>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let mut forks = engine.fork(caller, &id, request, permit).await?;
            let told = Reply::json(StatusCode::CREATED, &forks)?;
            forks.forks.iter_mut().for_each(|fork| fork.token.token = None);
            told.remembered_as(&forks)
        })
    })
    .await
}

/// Compare two moments of a session, or of two relatives
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/diff",
    tag = "past",
    operation_id = "diff_session",
    params(SessionPath, DiffQuery),
    responses(
        (status = 200, description = "What differs, by path", body = Diff),
        (status = 409, description = "What it has written is in its room's memory only"),
    ),
)]
pub(crate) async fn diff(call: Call) -> Answer {
    let query = call.query::<DiffQuery>()?;
    let diff = call.engine().diff(&call.caller, call.id(), query).await?;
    Ok(Reply::ok(&diff)?.into_response())
}

/// Take over what a relative has changed since the two parted
///
/// All or nothing. Conflicts that nothing was said about are listed in the problem's `report`.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/merge",
    tag = "past",
    operation_id = "merge_session",
    params(SessionPath),
    request_body(content = MergeSession, example = json!({"from": "20260131-120000-0a1b2c3d", "dry_run": true})),
    responses(
        (status = 200, description = "Merged, or what would be", body = Merged),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn merge(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<MergeSession>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.merge(caller, &id, request, permit).await?) })
    })
    .await
}

/// Tell whether a session's files are what they were
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/digest",
    tag = "past",
    operation_id = "digest_session",
    params(SessionPath),
    responses(
        (status = 200, description = "Computed now", body = Digest),
        (status = 409, description = "What it has written is in its room's memory only"),
    ),
)]
pub(crate) async fn digest(call: Call) -> Answer {
    call.no_query()?;
    let digest = call.engine().digest(&call.caller, call.id()).await?;
    Ok(Reply::ok(&digest)?.into_response())
}

/// Show a session among its relatives
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/lineage",
    tag = "past",
    operation_id = "show_lineage",
    params(SessionPath),
    responses((status = 200, description = "The tree, parents first", body = Lineage)),
)]
pub(crate) async fn lineage(call: Call) -> Answer {
    call.no_query()?;
    let lineage = call.engine().lineage(&call.caller, call.id()).await?;
    Ok(Reply::ok(&lineage)?.into_response())
}

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GarbageQuery {
    /// Only say what would go.
    dry_run: bool,
}

/// Delete layers that no session and no snapshot is made of
///
/// The server does this by itself every minute.
#[utoipa::path(
    post,
    path = "/v1/gc",
    tag = "server",
    operation_id = "collect_garbage",
    params(GarbageQuery),
    responses((status = 200, description = "What went, or would go", body = Garbage)),
)]
pub(crate) async fn collect_garbage(mut call: Call) -> Answer {
    let query = call.query::<GarbageQuery>()?;
    call.no_body().await?;
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.collect_garbage(caller, query.dry_run).await?) })
    })
    .await
}
