//! `/v1/sessions/{id}/services`: long-running commands with readiness, restarts and dependencies.

use crate::call::{Call, accepts};
use crate::idempotency::once;
use crate::openapi::{ServicePath, SessionPath};
use crate::reply::{Answer, Reply};
use crate::routes::process_stream;
use crate::sse::EVENT_STREAM;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use std::future::Future;
use utoipa::IntoParams;
use workroom_engine::LogQuery;
use workroom_types::{Encoding, Problem, ProblemCode, Service, ServiceList, ServiceLogs, ServiceSpec};

/// The most lines of each stream in one answer.
const MOST_LINES: usize = 10_000;

/// A wish that people write as `1` and `0` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Flag {
    #[serde(rename = "true", alias = "1")]
    Yes,
    #[serde(rename = "false", alias = "0")]
    No,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReadyParams {
    /// Whether to answer when it is ready or has failed, and not at once; true unless told.
    #[param(value_type = Option<bool>)]
    wait: Option<Flag>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StopParams {
    /// Whether those that depend on it are stopped before.
    #[param(value_type = Option<bool>)]
    cascade: Option<Flag>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogParams {
    /// The last so many lines of each stream; 100 unless told.
    #[param(minimum = 0, maximum = 10000)]
    tail: Option<usize>,
    /// Those from here on: `cursor` of the answer before.
    #[param(pattern = "^[0-9]{1,15}\\.[0-9]{1,15}$")]
    cursor: Option<String>,
    /// Whether to go on with what is written from then on, as an event stream; as `Accept: text/event-stream` does.
    #[param(value_type = Option<bool>)]
    follow: Option<Flag>,
}

/// Waits for a service, but not beyond the server's own end: the service goes on, and the same call again waits on.
async fn unless_stopping<T>(
    mut stopping: crate::app::Stopping,
    work: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    tokio::select! {
        done = work => done,
        () = stopping.begun() => {
            Err(Problem::new(ProblemCode::ShuttingDown, "the server is on its way down", "try again"))
        }
    }
}

/// Define a service and start it
///
/// Answers when it is ready or has failed, which `state` says; with `wait=0` at once. A stopped session is started by
/// this. One of the name that is up is not replaced: 409.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/services/{name}",
    tag = "services",
    operation_id = "put_service",
    params(SessionPath, ServicePath, ReadyParams),
    request_body(content = ServiceSpec, example = json!({
        "command": "python3 -m http.server 8000", "readiness": {"http": {"port": 8000}}, "restart": "on_failure",
    })),
    responses(
        (status = 200, description = "It was there; this is what it is now", body = Service),
        (status = 201, description = "It is new", body = Service),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn put(mut call: Call) -> Answer {
    let params = call.query::<ReadyParams>()?;
    let limit = call.app.config.body.json;
    let (spec, body) = call.json::<ServiceSpec>(limit).await?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    let stopping = call.app.stopping.clone();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let wait = params.wait != Some(Flag::No);
            let put = engine.put_service(caller, (&id, &name), spec, wait, permit);
            let (service, is_new) = unless_stopping(stopping, put).await?;
            Reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &service)
        })
    })
    .await
}

/// List a session's services
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/services",
    tag = "services",
    operation_id = "list_services",
    params(SessionPath),
    responses((status = 200, description = "By their names", body = ServiceList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let list = call.engine().services(&call.caller, call.id()).await?;
    Ok(Reply::ok(&list)?.into_response())
}

/// Show a service
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/services/{name}",
    tag = "services",
    operation_id = "show_service",
    params(SessionPath, ServicePath),
    responses((status = 200, description = "As it is now", body = Service)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let service = call.engine().service(&call.caller, call.id(), call.param("name")).await?;
    Ok(Reply::ok(&service)?.into_response())
}

/// Delete a service
///
/// One that is up is stopped first. Its runs stay in the process table. Deleting what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/services/{name}",
    tag = "services",
    operation_id = "delete_service",
    params(SessionPath, ServicePath),
    responses(
        (status = 204, description = "It is gone"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_service(caller, &id, &name).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// Start a service
///
/// After those that it depends on, which are started for it. Of one that is up nothing changes.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/services/{name}/start",
    tag = "services",
    operation_id = "start_service",
    params(SessionPath, ServicePath, ReadyParams),
    responses(
        (status = 200, description = "As it is then", body = Service),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn start(mut call: Call) -> Answer {
    let params = call.query::<ReadyParams>()?;
    call.no_body().await?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    let stopping = call.app.stopping.clone();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move {
            let wait = params.wait != Some(Flag::No);
            let started = engine.start_service(caller, (&id, &name), wait);
            Reply::ok(&unless_stopping(stopping, started).await?)
        })
    })
    .await
}

/// Stop a service
///
/// TERM to its group and, after its `stop_timeout_ms`, KILL to all that it started; `stop_reason` says which it took.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/services/{name}/stop",
    tag = "services",
    operation_id = "stop_service",
    params(SessionPath, ServicePath, StopParams),
    responses(
        (status = 200, description = "It is stopped", body = Service),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn stop(mut call: Call) -> Answer {
    let params = call.query::<StopParams>()?;
    call.no_body().await?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move {
            let cascade = params.cascade == Some(Flag::Yes);
            Reply::ok(&engine.stop_service(caller, (&id, &name), cascade).await?)
        })
    })
    .await
}

/// Stop a service and start it again
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/services/{name}/restart",
    tag = "services",
    operation_id = "restart_service",
    params(SessionPath, ServicePath, ReadyParams),
    responses(
        (status = 200, description = "As it is then", body = Service),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn restart(mut call: Call) -> Answer {
    let params = call.query::<ReadyParams>()?;
    call.no_body().await?;
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    let stopping = call.app.stopping.clone();
    once(call, &[], move |engine, caller, permit| {
        Box::pin(async move {
            let wait = params.wait != Some(Flag::No);
            let restarted = engine.restart_service(caller, (&id, &name), wait, permit);
            Reply::ok(&unless_stopping(stopping, restarted).await?)
        })
    })
    .await
}

/// Read what a service wrote
///
/// Lines of its current or last run; `earlier` names those before. With `follow=true` it comes as it is written, as of
/// the run's process: events `stdout`, `stderr`, and `exit` when the run is over.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/services/{name}/logs",
    tag = "services",
    operation_id = "read_service_logs",
    params(SessionPath, ServicePath, LogParams),
    responses(
        (status = 200, description = "What is there", content(
            (ServiceLogs = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(crate) async fn logs(call: Call) -> Answer {
    let params = call.query::<LogParams>()?;
    if let Some(lines) = params.tail.filter(|lines| *lines > MOST_LINES) {
        return Err(
            Problem::invalid(format!("tail {lines} is more than {MOST_LINES}"), "ask for less").into()
        );
    }
    let query = LogQuery { tail: params.tail, cursor: params.cursor };
    let (engine, caller) = (call.engine().clone(), call.caller.clone());
    let (id, name) = (call.id().to_owned(), call.param("name").to_owned());
    if params.follow == Some(Flag::Yes) || accepts(call.headers(), EVENT_STREAM) {
        let run = engine.service_run(&caller, &id, &name).await?;
        let places = query.places(&run)?;
        return process_stream::follow_from(&call, &run, places.map(Some), Encoding::Text);
    }
    let logs = engine.service_logs(&caller, (&id, &name), query).await?;
    Ok(Reply::ok(&logs)?.into_response())
}
