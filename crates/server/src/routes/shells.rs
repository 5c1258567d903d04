//! `/v1/sessions/{id}/shells`: shells that commands are given to one after the other.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{SessionPath, ShellPath};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{CreateShell, RunInShell, Shell, ShellList, ShellResult};

/// Make a stateful shell
///
/// What a command changes in it is there for the next: directory, variables, functions, aliases, jobs. It is an entry of
/// the process table too, and has no terminal. A stopped session is started by this.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/shells",
    tag = "shells",
    operation_id = "create_shell",
    params(SessionPath),
    request_body(content = CreateShell, example = json!({"name": "build", "env": {"CI": "1"}})),
    responses(
        (status = 201, description = "It runs", body = Shell),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn create(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<CreateShell>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            Reply::json(StatusCode::CREATED, &engine.create_shell(caller, &id, request, permit).await?)
        })
    })
    .await
}

/// List a session's stateful shells
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/shells",
    tag = "shells",
    operation_id = "list_shells",
    params(SessionPath),
    responses((status = 200, description = "The newest first", body = ShellList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&call.engine().shells(&call.caller, call.id()).await?)?.into_response())
}

/// Show a stateful shell
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/shells/{shell}",
    tag = "shells",
    operation_id = "show_shell",
    params(SessionPath, ShellPath),
    responses((status = 200, description = "As it is now", body = Shell)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let shell = call.engine().shell(&call.caller, call.id(), call.param("shell")).await?;
    Ok(Reply::ok(&shell)?.into_response())
}

/// Remove a stateful shell
///
/// It is ended, with everything that was started in it. Removing what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/shells/{shell}",
    tag = "shells",
    operation_id = "remove_shell",
    params(SessionPath, ShellPath),
    responses(
        (status = 204, description = "It is gone"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn remove(call: Call) -> Answer {
    call.no_query()?;
    let (id, shell) = (call.id().to_owned(), call.param("shell").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_shell(caller, &id, &shell).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// Run a command in a stateful shell
///
/// Answers with exactly what was written while it ran, its exit code, and the directory that the shell is in then.
/// Commands for one shell are run in the order in which they come. A shell that has ended is made again first, and the
/// answer says `replaced`. The shell named `default` is made by its first command.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/shells/{shell}/run",
    tag = "shells",
    operation_id = "run_in_shell",
    params(SessionPath, ShellPath),
    request_body(content = RunInShell, example = json!({"command": "cd src && make", "timeout_ms": 60000})),
    responses(
        (status = 200, description = "What it did", body = ShellResult),
        (status = 410, description = "The room ended before the command did"),
    ),
)]
pub(crate) async fn run(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<RunInShell>(limit).await?;
    let (id, shell) = (call.id().to_owned(), call.param("shell").to_owned());
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.run_in_shell(caller, &id, &shell, request, permit).await?) })
    })
    .await
}
