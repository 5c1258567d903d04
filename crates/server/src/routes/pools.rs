//! `/v1/pools`: pools of slots, set and deleted; slots acquired, extended, reset and released.

use crate::call::Call;
use crate::idempotency::{once, while_waited_for};
use crate::openapi::PoolPath;
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{
    AcquireSlot, ExtendLease, Lease, Pool, PoolList, PoolOwner, PoolSpec, ReleaseSlot, Released,
};

/// Make a pool, or change one
///
/// It keeps `min` slots ready, grows to `max` when more are wanted, and shrinks again after `idle`. Slots that are in use
/// when it is changed stay as they are until they are released.
#[utoipa::path(
    put,
    path = "/v1/pools/{name}",
    tag = "pools",
    operation_id = "set_pool",
    params(PoolPath, PoolOwner),
    request_body(content = PoolSpec, example = json!({"min": 2, "max": 16, "idle": 300})),
    responses(
        (status = 201, description = "Made", body = Pool),
        (status = 200, description = "It is as was said", body = Pool),
        (status = 410, description = "The seed's room ended meanwhile"),
    ),
)]
pub(crate) async fn set(mut call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let limit = call.app.config.body.json;
    let (spec, body) = call.json::<PoolSpec>(limit).await?;
    let name = call.param("name").to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move {
            let (pool, is_new) = engine.set_pool(caller, (owner.as_deref(), &name), spec).await?;
            Reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &pool)
        })
    })
    .await
}

/// List pools
#[utoipa::path(
    get,
    path = "/v1/pools",
    tag = "pools",
    operation_id = "list_pools",
    params(PoolOwner),
    responses((status = 200, description = "By owner and name, without their slots", body = PoolList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    Ok(Reply::ok(&call.engine().pools(&call.caller, owner.as_deref()).await?)?.into_response())
}

/// Show a pool, its slots and its numbers
#[utoipa::path(
    get,
    path = "/v1/pools/{name}",
    tag = "pools",
    operation_id = "show_pool",
    params(PoolPath, PoolOwner),
    responses((status = 200, description = "As it is now", body = Pool)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let pool = call.engine().pool(&call.caller, owner.as_deref(), call.param("name")).await?;
    Ok(Reply::ok(&pool)?.into_response())
}

/// Delete a pool, with all its slots
///
/// Whoever has one. Deleting it again succeeds again.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}",
    tag = "pools",
    operation_id = "delete_pool",
    params(PoolPath, PoolOwner),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let name = call.param("name").to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move {
            engine.delete_pool(caller, owner.as_deref(), &name).await.map(|()| Reply::nothing())
        })
    })
    .await
}

/// Acquire a slot
///
/// The one that the trajectory has, or one that is as new. Those who wait are served in the order in which they came. The
/// lease ends by itself, unless it is extended; a slot whose lease is over is as if it were released.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/acquire",
    tag = "pools",
    operation_id = "acquire_slot",
    params(PoolPath, PoolOwner),
    request_body(content = AcquireSlot, example = json!({"trajectory": "run-7/step-3", "lease_ms": 600000})),
    responses(
        (status = 200, description = "The slot, and the session to work in", body = Lease),
        (status = 410, description = "Its room ended while it was being made"),
    ),
)]
pub(crate) async fn acquire(mut call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<AcquireSlot>(limit).await?;
    let name = call.param("name").to_owned();
    while_waited_for(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.acquire(caller, (owner.as_deref(), &name), request).await?) })
    })
    .await
}

/// Release a slot
///
/// Everything in it ends, and nothing of it is found by whoever has it next.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/release",
    tag = "pools",
    operation_id = "release_slot",
    params(PoolPath, PoolOwner),
    request_body(content = ReleaseSlot, example = json!({"trajectory": "run-7/step-3"})),
    responses((status = 200, description = "It is nobody's", body = Released)),
)]
pub(crate) async fn release(mut call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ReleaseSlot>(limit).await?;
    let name = call.param("name").to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.release(caller, (owner.as_deref(), &name), request).await?) })
    })
    .await
}

/// Extend a lease
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/extend",
    tag = "pools",
    operation_id = "extend_lease",
    params(PoolPath, PoolOwner),
    request_body(content = ExtendLease, example = json!({"trajectory": "run-7/step-3", "lease_ms": 600000})),
    responses((status = 200, description = "It ends then", body = Lease)),
)]
pub(crate) async fn extend(mut call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ExtendLease>(limit).await?;
    let name = call.param("name").to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.extend(caller, (owner.as_deref(), &name), request).await?) })
    })
    .await
}

/// Make a slot as new for whoever has it
///
/// The trajectory keeps the slot and its lease, and gets another session.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/reset",
    tag = "pools",
    operation_id = "reset_slot",
    params(PoolPath, PoolOwner),
    request_body(content = ReleaseSlot, example = json!({"trajectory": "run-7/step-3"})),
    responses((status = 200, description = "The slot, and its new session", body = Lease)),
)]
pub(crate) async fn reset(mut call: Call) -> Answer {
    let PoolOwner { owner } = call.query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ReleaseSlot>(limit).await?;
    let name = call.param("name").to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(
            async move { Reply::ok(&engine.reset_slot(caller, (owner.as_deref(), &name), request).await?) },
        )
    })
    .await
}
