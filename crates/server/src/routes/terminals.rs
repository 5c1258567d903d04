//! `/v1/sessions/{id}/terminals`: shells on PTYs, driven by text and keys, and read as a person reads a screen.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{SessionPath, TerminalPath};
use crate::reply::{Answer, Reply};
use crate::routes::processes::wait_of;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use std::future::Future;
use std::time::Duration;
use utoipa::IntoParams;
use workroom_engine::{PlainQuery, ScreenQuery, TerminalHandle};
use workroom_types::{
    InputTaken, OpenTerminal, PlainPage, Problem, ProblemCode, Process, PtySize, SendSignal, TerminalClosed,
    TerminalInput, TerminalList, TerminalScreen, TerminalWaited, WaitForTerminal,
};

/// How long input waits for space when its caller says nothing.
pub(crate) const INPUT_PATIENCE: Duration = Duration::from_secs(10);

/// What a terminal's shell has to end by itself, in milliseconds.
const USUAL_GRACE: u64 = 5000;

/// Open a terminal
///
/// A shell on a PTY, without profile and rc files. It is a process too: `…/processes/{id}/output` has its bytes, and
/// `…/processes/{id}/attach` is a WebSocket to it.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/terminals",
    tag = "terminals",
    operation_id = "open_terminal",
    params(SessionPath),
    request_body(content = OpenTerminal, example = json!({"name": "main", "cols": 100, "rows": 30})),
    responses(
        (status = 201, description = "It is open", body = Process),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn open(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<OpenTerminal>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let opened = engine.open_terminal(caller, &id, request, permit).await?;
            Reply::json(StatusCode::CREATED, &opened)
        })
    })
    .await
}

/// List a session's terminals
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/terminals",
    tag = "terminals",
    operation_id = "list_terminals",
    params(SessionPath),
    responses((status = 200, description = "The newest first", body = TerminalList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let list = call.engine().terminals(&call.caller, call.id()).await?;
    Ok(Reply::ok(&list)?.into_response())
}

/// The terminal that a request's path names.
fn named(call: &Call) -> impl Future<Output = Result<TerminalHandle, Problem>> + Send + use<> {
    let (engine, caller) = (call.engine().clone(), call.caller.clone());
    let (id, terminal) = (call.id().to_owned(), call.param("terminal").to_owned());
    async move { engine.terminal(&caller, &id, &terminal).await }
}

/// Show a terminal
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/terminals/{terminal}",
    tag = "terminals",
    operation_id = "show_terminal",
    params(SessionPath, TerminalPath),
    responses((status = 200, description = "As it is now", body = Process)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    call.no_query()?;
    Ok(Reply::ok(&named(&call).await?.info())?.into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CloseParams {
    /// Milliseconds that the shell has to end by itself; 5000 unless told.
    #[param(minimum = 0, maximum = 3600000)]
    grace_ms: Option<u64>,
}

/// Close a terminal
///
/// Its shell gets HUP and, if it has not ended after `grace_ms`, is killed with everything that it started. Its record and
/// its output stay; `DELETE …/processes/{id}` removes them. Closing what is removed succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/terminals/{terminal}",
    tag = "terminals",
    operation_id = "close_terminal",
    params(SessionPath, TerminalPath, CloseParams),
    responses(
        (status = 200, description = "It has ended, and by what", body = TerminalClosed),
        (status = 204, description = "There is none"),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn close(call: Call) -> Answer {
    let params = call.query::<CloseParams>()?;
    let grace = Duration::from_millis(params.grace_ms.unwrap_or(USUAL_GRACE));
    let (id, terminal) = (call.id().to_owned(), call.param("terminal").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move {
            match engine.close_terminal(caller, &id, &terminal, grace).await? {
                Some(closed) => Reply::ok(&closed),
                None => Ok(Reply::nothing()),
            }
        })
    })
    .await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TypingParams {
    /// Milliseconds to wait for space; 10000 unless told.
    #[param(minimum = 0, maximum = 86400000)]
    wait_ms: Option<u64>,
}

/// Type into a terminal
///
/// `text` is followed by Enter unless `enter` is false. `keys` is one key by its name or a list of keys, in which
/// `{"text": …}` and `{"paste": …}` may stand between them. `paste` is put between marks if the program has asked for that.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/terminals/{terminal}/input",
    tag = "terminals",
    operation_id = "type_into_terminal",
    params(SessionPath, TerminalPath, TypingParams),
    request_body(content = TerminalInput, example = json!({"text": "make test"})),
    responses(
        (status = 200, description = "How many bytes were taken", body = InputTaken),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn input(mut call: Call) -> Answer {
    let params = call.query::<TypingParams>()?;
    let wait = params.wait_ms.map_or(Ok(INPUT_PATIENCE), wait_of)?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<TerminalInput>(limit).await?;
    let (id, terminal) = (call.id().to_owned(), call.param("terminal").to_owned());
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let terminal = engine.terminal(caller, &id, &terminal).await?;
            engine.begin_once(permit, "input").await?;
            Reply::ok(&terminal.input(request, wait).await?)
        })
    })
    .await
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PlainParams {
    /// The first byte of output that is wanted: 0, or `next_cursor` of the page before.
    cursor: u64,
    /// The most bytes of output that a page is made of; 262144 unless told.
    #[param(minimum = 1, maximum = 8388608)]
    max: Option<u64>,
}

/// Read a terminal's output as plain text
///
/// Without escape sequences; a progress bar is its last state, what was rubbed out is gone, the screens of full-screen
/// programs are left out.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/terminals/{terminal}/plain",
    tag = "terminals",
    operation_id = "read_terminal_text",
    params(SessionPath, TerminalPath, PlainParams),
    responses((status = 200, description = "Whole lines, and the one that is not finished", body = PlainPage)),
)]
pub(crate) async fn plain(call: Call) -> Answer {
    let params = call.query::<PlainParams>()?;
    let query = PlainQuery { cursor: params.cursor, max: params.max, max_line: None };
    Ok(Reply::ok(&named(&call).await?.plain(query).await?)?.into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScreenParams {
    /// Rows that have scrolled off the top, the last ones: none unless told.
    #[param(minimum = 0, maximum = 20000)]
    scrollback: u32,
    /// Also colours and attributes.
    attributes: bool,
}

/// Look at a terminal's screen
///
/// The grid as a person would see it now, with cursor, title and size.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/terminals/{terminal}/screen",
    tag = "terminals",
    operation_id = "look_at_terminal",
    params(SessionPath, TerminalPath, ScreenParams),
    responses((status = 200, description = "The screen", body = TerminalScreen)),
)]
pub(crate) async fn screen(call: Call) -> Answer {
    let params = call.query::<ScreenParams>()?;
    let query = screen_query(&params)?;
    Ok(Reply::ok(&named(&call).await?.screen(query).await?)?.into_response())
}

pub(crate) fn screen_query(params: &ScreenParams) -> Result<ScreenQuery, Problem> {
    if params.scrollback > 20_000 {
        let detail = format!("scrollback {} is more than is kept (20000)", params.scrollback);
        return Err(Problem::invalid(detail, ""));
    }
    Ok(ScreenQuery { scrollback: params.scrollback as usize, attributes: params.attributes })
}

/// Wait for something in a terminal
///
/// For `text` or a `regex` on the screen or in what is written, for `idle_ms` without output, or for the shell's `exit`: the
/// first of those that are asked for.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/terminals/{terminal}/wait",
    tag = "terminals",
    operation_id = "wait_for_terminal",
    params(SessionPath, TerminalPath),
    request_body(content = WaitForTerminal, example = json!({"regex": "^\\$ $", "timeout_ms": 10000})),
    responses((status = 200, description = "What happened, and the screen then", body = TerminalWaited)),
)]
pub(crate) async fn wait(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, _) = call.json::<WaitForTerminal>(limit).await?;
    let terminal = named(&call).await?;
    let mut stopping = call.app.stopping.clone();
    let waited = tokio::select! {
        waited = terminal.wait(request) => waited?,
        () = stopping.begun() => {
            let detail = "the server is on its way down";
            return Err(Problem::new(ProblemCode::ShuttingDown, detail, "wait again in a moment").into());
        }
    };
    Ok(Reply::ok(&waited)?.into_response())
}

/// Change the size of a terminal
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/terminals/{terminal}/resize",
    tag = "terminals",
    operation_id = "resize_terminal",
    params(SessionPath, TerminalPath),
    request_body(content = PtySize, example = json!({"cols": 100, "rows": 30})),
    responses((status = 200, description = "It has this size", body = Process)),
)]
pub(crate) async fn resize(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<PtySize>(limit).await?;
    let (id, terminal) = (call.id().to_owned(), call.param("terminal").to_owned());
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move {
            let terminal = engine.terminal(caller, &id, &terminal).await?;
            Reply::ok(&terminal.process().resize(request).await?)
        })
    })
    .await
}

/// Send a signal to a terminal's shell
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/terminals/{terminal}/signal",
    tag = "terminals",
    operation_id = "signal_terminal",
    params(SessionPath, TerminalPath),
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
    let (id, terminal) = (call.id().to_owned(), call.param("terminal").to_owned());
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let terminal = engine.terminal(caller, &id, &terminal).await?;
            engine.begin_once(permit, "signal").await?;
            terminal.process().signal(request).await.map(|()| Reply::nothing())
        })
    })
    .await
}
