//! `/v1/tokens`: who else may call.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::TokenPath;
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{CreateToken, NewToken, TokenList};

/// Make a token
///
/// Its secret is in this answer and nowhere else: a repetition under the same Idempotency-Key does not have it.
#[utoipa::path(
    post,
    path = "/v1/tokens",
    tag = "tokens",
    operation_id = "create_token",
    request_body(content = CreateToken, example = json!({"scope": "user", "owner": "ada", "name": "her laptop"})),
    responses(
        (status = 201, description = "Made", body = NewToken),
        (status = 404, description = "There is no such session that this token may see"),
    ),
)]
pub(crate) async fn create(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<CreateToken>(limit).await?;
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let made = engine.create_token(caller, request, permit).await?;
            let told = Reply::json(StatusCode::CREATED, &made)?;
            told.remembered_as(&NewToken { token: None, ..made })
        })
    })
    .await
}

/// List tokens, without their secrets
#[utoipa::path(
    get,
    path = "/v1/tokens",
    tag = "tokens",
    operation_id = "list_tokens",
    responses((status = 200, description = "Those that the caller may see", body = TokenList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let tokens = call.engine().tokens(&call.caller).await?;
    Ok(Reply::ok(&tokens)?.into_response())
}

/// Revoke a token
///
/// Revoking it again succeeds again.
#[utoipa::path(
    delete,
    path = "/v1/tokens/{id}",
    tag = "tokens",
    operation_id = "revoke_token",
    params(TokenPath),
    responses((status = 204, description = "It stands for nobody any more")),
)]
pub(crate) async fn revoke(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.revoke_token(caller, &id).await.map(|()| Reply::nothing()) })
    })
    .await
}
