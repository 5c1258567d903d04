//! `/v1/sessions/{id}/exec`: commands that are waited for.

use crate::call::{Call, accepts};
use crate::idempotency::once;
use crate::openapi::SessionPath;
use crate::reply::{Answer, Reply};
use crate::routes::exec_stream;
use crate::sse::EVENT_STREAM;
use workroom_types::{ExecRequest, ExecResult};

/// Run a command and wait for its end
///
/// A stopped session is started by this. With `Accept: text/event-stream` output comes as it is written: events
/// `stdout` and `stderr` (ExecChunk), then `exit` (ExecResult) or `error` (Problem). A caller that goes away ends
/// nothing.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/exec",
    tag = "exec",
    operation_id = "exec",
    params(SessionPath),
    request_body(content = ExecRequest, example = json!({"command": "make test", "timeout_ms": 60000})),
    responses(
        (status = 200, description = "How it ended", content(
            (ExecResult = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 410, description = "The room ended before the command did"),
    ),
)]
pub(crate) async fn exec(mut call: Call) -> Answer {
    call.no_query()?;
    call.engine().announce(&call.caller, call.id());
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ExecRequest>(limit).await?;
    if accepts(call.headers(), EVENT_STREAM) {
        return exec_stream::exec(call, request, &body).await;
    }
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.exec(caller, &id, request, permit).await?) })
    })
    .await
}
