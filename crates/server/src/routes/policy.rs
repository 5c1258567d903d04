//! `/v1/sessions/{id}/policy`: what a session may see, reach, use and know; and `/v1/policy`: what all of them get.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::SessionPath;
use crate::reply::{Answer, Reply};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse;
use bytes::Bytes;
use workroom_engine::policy_from_toml;
use workroom_types::{Policy, PolicyView, Problem, ProblemCode, ServerPolicy};

/// Show what a session may see, reach, use and know
///
/// Its own document, what it comes to with the operator's defaults and the owner's ceiling, what is really enforced in
/// its room, and what waits for the next room.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/policy",
    tag = "policy",
    operation_id = "get_policy",
    params(SessionPath),
    responses((status = 200, description = "As it is now; its version is the ETag", body = PolicyView)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let view = call.engine().policy(&call.caller, call.id()).await?;
    let mut answer = Reply::ok(&view)?.into_response();
    answer.headers_mut().insert(ETAG, etag(view.version)?);
    Ok(answer)
}

/// Replace a session's policy document
///
/// JSON, or TOML as `application/toml`, in which sizes may be written as `"2G"` and CPUs as `cpus = 1.5`. With
/// `If-Match` only the version that it names is replaced. What can be changed in a running room is; the rest holds from
/// the next room on and is shown as `pending`.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/policy",
    tag = "policy",
    operation_id = "put_policy",
    params(SessionPath, ("If-Match" = Option<String>, Header, description = "The version that is replaced, as its ETag")),
    request_body(content((Policy = "application/json", example = json!({"memory": 1073741824, "pids": 256})), (String = "application/toml"))),
    responses(
        (status = 200, description = "As it is now", body = PolicyView),
        (status = 412, description = "It is at another version"),
    ),
)]
pub(crate) async fn replace(mut call: Call) -> Answer {
    call.no_query()?;
    let (policy, body) = document(&mut call).await?;
    let known = known_version(&call.head.headers);
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.set_policy(caller, &id, policy, known).await?) })
    })
    .await
}

/// Show what your sessions are given unless they say otherwise, and the most that they may ask for
#[utoipa::path(
    get,
    path = "/v1/policy",
    tag = "policy",
    operation_id = "get_server_policy",
    responses((status = 200, description = "As it is now", body = ServerPolicy)),
)]
pub(crate) async fn server(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().server_policy(&call.caller))?.into_response())
}

async fn document(call: &mut Call) -> Result<(Policy, Bytes), Problem> {
    let limit = call.app.config.body.json;
    let kind = call.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/toml" {
        return call.json::<Policy>(limit).await;
    }
    let body = call.body(limit).await?;
    let text = std::str::from_utf8(&body)
        .map_err(|error| Problem::invalid(format!("the policy is no text: {error}"), "send it as UTF-8"))?;
    Ok((policy_from_toml(text)?, body))
}

fn etag(version: u64) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("\"{version}\""))
        .map_err(|error| Problem::new(ProblemCode::Internal, error.to_string(), ""))
}

/// What an etag that is not a policy's stands for: versions begin with 1.
const NO_VERSION: u64 = 0;

fn known_version(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(IF_MATCH)?;
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return None;
    }
    let version = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Some(version.parse().unwrap_or(NO_VERSION))
}
