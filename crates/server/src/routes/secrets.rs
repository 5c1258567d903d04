//! `/v1/secrets` and `/v1/sessions/{id}/secrets`: set, listed and removed, and never shown.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{SecretPath, SessionPath};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use workroom_engine::Whose;
use workroom_types::{Problem, Rotated, SecretInfo, SecretList, SecretScope, SetSecret};

/// What the largest value takes in base64, escaped as JSON may do it to every character of a text.
const LARGEST_BODY: u64 = 512 << 10;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScopeParams {
    /// `user` unless told.
    #[param(value_type = Option<String>, pattern = "^(user|global)$")]
    scope: Option<SecretScope>,
    /// With the scope `user`, for admins: whose; their own unless told.
    #[param(min_length = 1, max_length = 256)]
    owner: Option<String>,
}

impl ScopeParams {
    fn whose(self) -> Result<Whose, Problem> {
        match (self.scope.unwrap_or(SecretScope::User), self.owner) {
            (SecretScope::User, owner) => Ok(Whose::User(owner)),
            (SecretScope::Global, None) => Ok(Whose::Global),
            (SecretScope::Global, Some(_)) => {
                Err(Problem::invalid("a global secret has no owner", "leave `owner` out, or use scope=user"))
            }
            (SecretScope::Session, _) => Err(Problem::invalid(
                "secrets of a session are not here",
                "use /v1/sessions/{id}/secrets/{name}",
            )),
        }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListParams {
    /// For admins: whose; their own unless told.
    #[param(min_length = 1, max_length = 256)]
    owner: Option<String>,
}

/// What is wrong with a body that holds a secret is not told in its own words.
async fn value(call: &mut Call) -> Result<SetSecret, Problem> {
    call.check_json()?;
    let body = call.body(LARGEST_BODY).await?;
    serde_json::from_slice(&body).map_err(|_| {
        Problem::invalid(
            "the body is not a JSON object with a `value`",
            "send {\"value\": \"…\"}, and {\"encoding\": \"base64\"} beside it for what is no text",
        )
    })
}

/// Set a secret of a user or of all
///
/// It gets the next version. Rooms that are given it by their policy get the new value: as a variable from their next
/// command on, as a file at once. The value is never given back.
#[utoipa::path(
    put,
    path = "/v1/secrets/{name}",
    tag = "secrets",
    operation_id = "set_secret",
    params(SecretPath, ScopeParams),
    request_body(content = SetSecret, example = json!({"value": "s3cr3t"})),
    responses((status = 200, description = "It is kept", body = SecretInfo)),
)]
pub(crate) async fn set(mut call: Call) -> Answer {
    let whose = call.query::<ScopeParams>()?.whose()?;
    let request = value(&mut call).await?;
    let name = call.param("name").to_owned();
    let engine = call.engine().clone();
    Ok(Reply::ok(&engine.set_secret(&call.caller, whose, &name, request).await?)?.into_response())
}

/// List secrets, without their values
///
/// Those of the caller, and the global ones.
#[utoipa::path(
    get,
    path = "/v1/secrets",
    tag = "secrets",
    operation_id = "list_secrets",
    params(ListParams),
    responses((status = 200, description = "By scope and name", body = SecretList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    let ListParams { owner } = call.query()?;
    Ok(Reply::ok(&call.engine().secrets(&call.caller, None, owner).await?)?.into_response())
}

/// Remove a secret of a user or of all
///
/// Removing it again succeeds again. What rooms have seen of it is still looked for in their output.
#[utoipa::path(
    delete,
    path = "/v1/secrets/{name}",
    tag = "secrets",
    operation_id = "remove_secret",
    params(SecretPath, ScopeParams),
    responses((status = 204, description = "It is not there")),
)]
pub(crate) async fn remove(call: Call) -> Answer {
    let whose = call.query::<ScopeParams>()?.whose()?;
    let name = call.param("name").to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_secret(caller, whose, &name).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// Rotate the master key
///
/// For admins. A new key seals everything from now on, and what is there is sealed again; then the old key is forgotten.
/// Where the key comes from a variable or a command, the first one that it gives now is taken.
#[utoipa::path(
    post,
    path = "/v1/secrets/rotate",
    tag = "secrets",
    operation_id = "rotate_master_key",
    responses((status = 200, description = "Everything is sealed under the new key", body = Rotated)),
)]
pub(crate) async fn rotate(mut call: Call) -> Answer {
    call.no_query()?;
    call.no_body().await?;
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { Reply::json(StatusCode::OK, &engine.rotate_master_key(caller).await?) })
    })
    .await
}

/// Set a secret of a session
///
/// Goes with the session, and no fork of it has it.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/secrets/{name}",
    tag = "secrets",
    operation_id = "set_session_secret",
    params(SessionPath, SecretPath),
    request_body(content = SetSecret, example = json!({"value": "s3cr3t"})),
    responses((status = 200, description = "It is kept", body = SecretInfo)),
)]
pub(crate) async fn set_of_session(mut call: Call) -> Answer {
    call.no_query()?;
    let request = value(&mut call).await?;
    let (whose, name) = (Whose::Session(call.id().to_owned()), call.param("name").to_owned());
    let engine = call.engine().clone();
    Ok(Reply::ok(&engine.set_secret(&call.caller, whose, &name, request).await?)?.into_response())
}

/// List a session's secrets, without their values
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/secrets",
    tag = "secrets",
    operation_id = "list_session_secrets",
    params(SessionPath),
    responses((status = 200, description = "By name", body = SecretList)),
)]
pub(crate) async fn list_of_session(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().secrets(&call.caller, Some(call.id()), None).await?)?.into_response())
}

/// Remove a secret of a session
///
/// Removing it again succeeds again.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/secrets/{name}",
    tag = "secrets",
    operation_id = "remove_session_secret",
    params(SessionPath, SecretPath),
    responses((status = 204, description = "It is not there")),
)]
pub(crate) async fn remove_of_session(call: Call) -> Answer {
    call.no_query()?;
    let (whose, name) = (Whose::Session(call.id().to_owned()), call.param("name").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_secret(caller, whose, &name).await.map(|()| Reply::nothing()) })
    })
    .await
}
