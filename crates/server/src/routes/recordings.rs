//! `/v1/sessions/{id}/recordings`: what processes showed, with times.

use crate::app::Stopping;
use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{RecordingPath, SessionPath};
use crate::pieces::{self, Pieces};
use crate::reply::{Answer, Reply};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use utoipa::IntoParams;
use workroom_engine::{RecordingQuery, RecordingStream};
use workroom_types::{AddMarker, CastFormat, Problem, ProblemCode, RecordingList};

const ASCIICAST: &str = "application/x-asciicast";
const TEXT: &str = "text/plain; charset=utf-8";

/// List a session's recordings
///
/// Those of processes that are not in the process table any more too. They stay until they are deleted, until there is no
/// more space for them, or until the session is deleted.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/recordings",
    tag = "recordings",
    operation_id = "list_recordings",
    params(SessionPath),
    responses((status = 200, description = "The newest first", body = RecordingList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let list = call.engine().recordings(&call.caller, call.id()).await?;
    Ok(Reply::ok(&list)?.into_response())
}

/// What of a recording is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CastParams {
    /// `v3` unless told.
    #[param(inline)]
    format: CastFormat,
    /// Bytes of the recording, in this format, that are left out: those that the reader has already.
    offset: u64,
    /// Goes on while the recording is being made.
    follow: bool,
}

/// Read a recording
///
/// Lines of asciicast. The bytes of a recording never change, so one that broke off is resumed by `offset`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/recordings/{process}",
    tag = "recordings",
    operation_id = "read_recording",
    params(SessionPath, RecordingPath, CastParams),
    responses((status = 200, description = "The recording", content((String = "application/x-asciicast")))),
)]
pub(crate) async fn read(call: Call) -> Answer {
    let CastParams { format, offset, follow } = call.query()?;
    let name = format!("{}.cast", call.param("process"));
    let stream = opened(&call, RecordingQuery::Cast { format, offset, follow }).await?;
    Ok(answer(stream, call.app.stopping.clone(), ASCIICAST, Some(&name)))
}

/// Read a recording as text
///
/// What was shown, without colours and movements of the cursor: lines as a person would have read them at the end.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/recordings/{process}/transcript",
    tag = "recordings",
    operation_id = "read_transcript",
    params(SessionPath, RecordingPath),
    responses((status = 200, description = "The text", content((String = "text/plain")))),
)]
pub(crate) async fn transcript(call: Call) -> Answer {
    call.no_query()?;
    let stream = opened(&call, RecordingQuery::Transcript).await?;
    Ok(answer(stream, call.app.stopping.clone(), TEXT, None))
}

/// The recording that a request's path names.
fn opened(
    call: &Call,
    query: RecordingQuery,
) -> impl Future<Output = Result<RecordingStream, Problem>> + Send + use<> {
    let (engine, caller) = (call.engine().clone(), call.caller.clone());
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    async move { engine.read_recording(&caller, &id, &process, query).await }
}

fn answer(
    stream: RecordingStream,
    stopping: Stopping,
    content_type: &'static str,
    file_name: Option<&str>,
) -> Response {
    let mut response = Response::new(pieces::body(Following { stream, stopping }, false));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // It holds what somebody wrote: no browser is to make a page of it, and none is to keep it.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let disposition =
        file_name.map(|name| HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")));
    if let Some(Ok(value)) = disposition {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    response
}

/// A recording; one that grows is sent for as long as the server goes on. What is cut short by its end is not whole.
struct Following {
    stream: RecordingStream,
    stopping: Stopping,
}

impl Pieces for Following {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        tokio::select! {
            next = self.stream.next() => next,
            () = self.stopping.begun(), if self.stream.is_growing() => {
                Err(Problem::new(ProblemCode::ShuttingDown, "the server is on its way down", "ask for the rest"))
            }
        }
    }

    fn entries(&self) -> Option<u64> {
        None
    }
}

/// Delete a recording
///
/// One that is being made ends; the process goes on. What is not there is deleted already.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/recordings/{process}",
    tag = "recordings",
    operation_id = "delete_recording",
    params(SessionPath, RecordingPath),
    responses((status = 204, description = "It is gone")),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    once(call, &[], move |engine, caller, _| {
        Box::pin(
            async move { engine.delete_recording(caller, &id, &process).await.map(|()| Reply::nothing()) },
        )
    })
    .await
}

/// Put a marker into a recording
///
/// Behind all that the process has written by now.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/recordings/{process}/markers",
    tag = "recordings",
    operation_id = "add_marker",
    params(SessionPath, RecordingPath),
    request_body(content = AddMarker, example = json!({"label": "the tests begin"})),
    responses((status = 204, description = "It is in the recording")),
)]
pub(crate) async fn mark(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<AddMarker>(limit).await?;
    let (id, process) = (call.id().to_owned(), call.param("process").to_owned());
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move {
            engine.mark_recording(caller, &id, &process, &request.label).await?;
            Ok(Reply::nothing())
        })
    })
    .await
}
