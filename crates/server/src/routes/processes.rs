//! `/v1/sessions/{id}/processes`: processes that are started, read from, written to, signalled and waited for.

use crate::call::{Call, accepts};
use crate::idempotency::once;
use crate::openapi::{ProcessPath, SessionPath};
use crate::reply::{Answer, Reply};
use crate::routes::process_stream;
use crate::sse::EVENT_STREAM;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use std::future::Future;
use std::time::Duration;
use utoipa::IntoParams;
use workroom_engine::{LONGEST_WAIT, OutputQuery, ProcessHandle};
use workroom_types::{
    Encoding, InputTaken, OutputPage, OutputStream, Problem, Process, ProcessTable, PtySize, SendSignal,
    StartProcess,
};

/// How long input waits for space when its caller says nothing.
const INPUT_PATIENCE: Duration = Duration::from_secs(10);

/// Start a process
///
/// It runs when this answers, whoever goes away; a stopped session is started by this. Output is kept outside the room,
/// the last `keep_output` bytes of it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/processes",
    tag = "processes",
    operation_id = "start_process",
    params(SessionPath),
    request_body(content = StartProcess, example = json!({"command": "make test", "tag": "build"})),
    responses(
        (status = 201, description = "It runs", body = Process),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn start(mut call: Call) -> Answer {
    call.no_query()?;
    call.engine().announce(&call.caller, call.id());
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<StartProcess>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let process = engine.start_process(caller, &id, request, permit).await?;
            Reply::json(StatusCode::CREATED, &process)
        })
    })
    .await
}

/// List a session's processes
///
/// The process table, and all that is in the room now.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/processes",
    tag = "processes",
    operation_id = "list_processes",
    params(SessionPath),
    responses(
        (status = 200, description = "The newest first", body = ProcessTable),
        (status = 409, description = "The session is in no state to be asked"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let table = call.engine().processes(&call.caller, call.id()).await?;
    Ok(Reply::ok(&table)?.into_response())
}

/// The process that a request's path names.
pub(crate) fn named(call: &Call) -> impl Future<Output = Result<ProcessHandle, Problem>> + Send + use<> {
    let (engine, caller) = (call.engine().clone(), call.caller.clone());
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    async move { engine.process(&caller, &id, &process).await }
}

/// Show a process
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/processes/{process}",
    tag = "processes",
    operation_id = "show_process",
    params(SessionPath, ProcessPath),
    responses((status = 200, description = "As it is now", body = Process)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&named(&call).await?.info())?.into_response())
}

/// Remove a process
///
/// One that runs is ended first, with everything that it started. Its output goes too. Removing what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/processes/{process}",
    tag = "processes",
    operation_id = "remove_process",
    params(SessionPath, ProcessPath),
    responses(
        (status = 204, description = "It is gone"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn remove(call: Call) -> Answer {
    call.no_query()?;
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.remove_process(caller, &id, &process).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// What of a process's output is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OutputParams {
    /// With an event stream: this one only; both unless told.
    stream: Option<OutputStream>,
    /// The first byte that is wanted: 0, or `next_cursor` of the page before.
    cursor: u64,
    /// With an event stream of both: the first byte of stderr.
    stderr_cursor: Option<u64>,
    /// The most bytes of a page.
    #[param(minimum = 1, maximum = 8388608)]
    max: Option<u64>,
    /// Milliseconds to wait if there is nothing yet.
    #[param(minimum = 0, maximum = 86400000)]
    wait_ms: u64,
    encoding: Encoding,
}

impl OutputParams {
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Where each stream begins, of those that are wanted.
    pub(crate) fn cursors(&self) -> [Option<u64>; 2] {
        match self.stream {
            Some(OutputStream::Stdout) => [Some(self.cursor), None],
            Some(OutputStream::Stderr) => [None, Some(self.stderr_cursor.unwrap_or(self.cursor))],
            None => [Some(self.cursor), Some(self.stderr_cursor.unwrap_or(0))],
        }
    }
}

pub(crate) fn wait_of(milliseconds: u64) -> Result<Duration, Problem> {
    let wait = Duration::from_millis(milliseconds);
    if wait > LONGEST_WAIT {
        return Err(Problem::invalid(
            format!("a wait of {milliseconds} ms is longer than {}", LONGEST_WAIT.as_millis()),
            "wait less, and ask again",
        ));
    }
    Ok(wait)
}

/// Read a process's output
///
/// A page from a byte cursor on, while it runs and after. With `Accept: text/event-stream` it comes as it is written:
/// events `stdout` and `stderr` (ExecChunk), then `exit` (Process); an event's id goes into `Last-Event-ID` to resume.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/processes/{process}/output",
    tag = "processes",
    operation_id = "read_process_output",
    params(SessionPath, ProcessPath, OutputParams),
    responses(
        (status = 200, description = "What is there", content(
            (OutputPage = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(crate) async fn output(call: Call) -> Answer {
    let params = call.query::<OutputParams>()?;
    let process = named(&call).await?;
    if accepts(call.headers(), EVENT_STREAM) {
        return process_stream::follow(call, &process, params);
    }
    let query = OutputQuery {
        stream: params.stream.unwrap_or_default(),
        cursor: params.cursor,
        max: params.max,
        wait: wait_of(params.wait_ms)?,
        encoding: params.encoding,
    };
    Ok(Reply::ok(&process.output(query).await?)?.into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct InputParams {
    /// There is no more after this.
    eof: bool,
    /// Milliseconds to wait for space; 10000 unless told.
    #[param(minimum = 0, maximum = 86400000)]
    wait_ms: Option<u64>,
}

/// Write to a process
///
/// The body as it is. What the process does not read for so long that there is no space is not taken: `written` says how
/// much was.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/processes/{process}/input",
    tag = "processes",
    operation_id = "write_process_input",
    params(SessionPath, ProcessPath, InputParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "How much was taken", body = InputTaken),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn input(mut call: Call) -> Answer {
    let params = call.query::<InputParams>()?;
    let wait = params.wait_ms.map_or(Ok(INPUT_PATIENCE), wait_of)?;
    let limit = call.app.config.body.json;
    let data = call.body(limit).await?;
    let id = call.id().to_owned();
    let process = call.param("process").to_owned();
    let body = data.clone();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let process = engine.process(caller, &id, &process).await?;
            engine.begin_once(permit, "input").await?;
            let taken = match data.is_empty() {
                true => InputTaken { written: 0, complete: true },
                false => process.write(&data, wait).await?,
            };
            if params.eof && taken.complete {
                process.close_input().await?;
            }
            Reply::ok(&taken)
        })
    })
    .await
}

/// Send a signal to a process
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/processes/{process}/signal",
    tag = "processes",
    operation_id = "signal_process",
    params(SessionPath, ProcessPath),
    request_body(content = SendSignal, example = json!({"signal": "TERM"})),
    responses(
        (status = 204, description = "It is sent"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn signal(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<SendSignal>(limit).await?;
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let process = engine.process(caller, &id, &process).await?;
            engine.begin_once(permit, "signal").await?;
            process.signal(request).await.map(|()| Reply::nothing())
        })
    })
    .await
}

/// Change the size of a process's terminal
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/processes/{process}/resize",
    tag = "processes",
    operation_id = "resize_process",
    params(SessionPath, ProcessPath),
    request_body(content = PtySize, example = json!({"cols": 100, "rows": 30})),
    responses((status = 200, description = "It has this size", body = Process)),
)]
pub(crate) async fn resize(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<PtySize>(limit).await?;
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    once(call, &body, move |engine, caller, _| {
        Box::pin(
            async move { Reply::ok(&engine.process(caller, &id, &process).await?.resize(request).await?) },
        )
    })
    .await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EndParams {
    /// Milliseconds to wait; 10000 unless told.
    #[param(minimum = 0, maximum = 86400000)]
    wait_ms: Option<u64>,
}

/// Wait for a process's end
///
/// Answers when it has ended or the time is over: `state` says which.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/processes/{process}/wait",
    tag = "processes",
    operation_id = "wait_for_process",
    params(SessionPath, ProcessPath, EndParams),
    responses((status = 200, description = "As it is then", body = Process)),
)]
pub(crate) async fn wait(call: Call) -> Answer {
    let params = call.query::<EndParams>()?;
    let wait = wait_of(params.wait_ms.unwrap_or(10_000))?;
    let process = named(&call).await?;
    let mut stopping = call.app.stopping.clone();
    let info = tokio::select! {
        info = process.wait(wait) => info,
        () = stopping.begun() => process.info(),
    };
    Ok(Reply::ok(&info)?.into_response())
}
