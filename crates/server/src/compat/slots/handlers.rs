//! The routes: bodies in, envelopes out. Every call goes on to its end although its caller may go away: a slot whose
//! command still runs is not handed to the next call.

use super::envelope::{Envelope, Refusal, ok};
use super::pool::{Pool, Slot, Turn};
use super::python::{Timeout, shown};
use super::{archive, artifacts, bash, files, recording, stateful, tmux};
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

/// The most bytes of a request: two hundred files of the largest size are one batch.
const LARGEST_BODY: usize = 64 << 20;

/// Requests of one batch.
const LARGEST_BATCH: usize = 10_000;

pub(super) type Fields = Map<String, Value>;

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/health", get(health))
        .route("/slots", get(slots))
        .route("/execute", post(execute))
        .route("/batch", post(batch))
        .route("/reset", post(reset))
        .route("/artifacts/read", post(read))
        .route("/artifacts/list", post(list))
        .route("/artifacts/archive", post(pack))
}

pub(super) async fn nothing_here() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "Not found")
}

async fn health(Extension(pool): Extension<Pool>) -> Response {
    ok(&pool.health().await)
}

async fn slots(Extension(pool): Extension<Pool>) -> Response {
    ok(&pool.list())
}

async fn execute(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let request = Request::from(json(body).await?)?;
    detached(async move { Ok(ok(&run(&pool, request).await?)) }).await
}

async fn batch(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let Value::Array(items) = json(body).await? else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "Expected array of requests"));
    };
    if items.len() > LARGEST_BATCH {
        let error = format!("{} requests are more than {LARGEST_BATCH}; send several batches", items.len());
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error));
    }
    let requests = items.into_iter().map(Request::from).collect::<Result<Vec<_>, _>>()?;
    detached(async move {
        let one = async |request| match run(&pool, request).await {
            Ok(envelope) => serde_json::to_value(&envelope).unwrap_or_default(),
            Err(refusal) => refusal.into_body(),
        };
        Ok(ok(&join_all(requests.into_iter().map(one)).await))
    })
    .await
}

async fn reset(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let fields = object(json(body).await?)?;
    detached(async move {
        let name = name(&fields);
        let Some(slot) = pool.slot(&name) else {
            return Ok(ok(&Envelope::refused(format!("Unknown slot: {name}"))));
        };
        let done = pool.turn(slot).await.reset().await;
        Ok(ok(&match done {
            Ok(()) => Envelope::good(format!("Reset workspace for {name}"), json!({})),
            Err(problem) => Envelope::refused(format!("Failed to reset workspace: {problem}")),
        }))
    })
    .await
}

async fn read(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let fields = object(json(body).await?)?;
    detached(async move { artifacts::read(&mut artifacts_turn(&pool, &fields).await?, &fields).await }).await
}

async fn list(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let fields = object(json(body).await?)?;
    detached(async move { artifacts::list(&mut artifacts_turn(&pool, &fields).await?, &fields).await }).await
}

async fn pack(Extension(pool): Extension<Pool>, body: Body) -> Result<Response, Refusal> {
    let fields = object(json(body).await?)?;
    detached(async move { archive::archive(&mut artifacts_turn(&pool, &fields).await?, &fields).await }).await
}

/// A turn for files on their way out, with the terminal's recording as it is by then.
async fn artifacts_turn<'p>(pool: &'p Pool, fields: &Fields) -> Result<Turn<'p>, Refusal> {
    let name = name(fields);
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, format!("Unknown slot: {name}"));
    let slot = pool.slot(&name).ok_or_else(unknown)?;
    let mut turn = pool.turn(slot).await;
    recording::publish(&mut turn).await;
    Ok(turn)
}

/// Does something to its end, whether or not somebody waits for it.
async fn detached(
    work: impl Future<Output = Result<Response, Refusal>> + Send + 'static,
) -> Result<Response, Refusal> {
    match tokio::spawn(work).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "a call on a slot was not finished");
            Err(Refusal::unexpected("the server could not finish this call"))
        }
    }
}

async fn json(body: Body) -> Result<Value, Refusal> {
    let too_large = |_| {
        let error = format!("the body is larger than {LARGEST_BODY} bytes, or was not sent whole");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    let bytes = to_bytes(body, LARGEST_BODY).await.map_err(too_large)?;
    serde_json::from_slice(&bytes).map_err(|_| Refusal::invalid_json())
}

fn object(value: Value) -> Result<Fields, Refusal> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(Refusal::unexpected(format!("expected an object, not {}", kind(&other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn name(fields: &Fields) -> String {
    fields.get("slot_id").map(shown).unwrap_or_default()
}

/// A tool that is to be used in a slot.
struct Request {
    slot: String,
    tool: String,
    args: Value,
    execution_id: Value,
    timeout: Option<Value>,
}

impl Request {
    fn from(value: Value) -> Result<Request, Refusal> {
        let mut fields = object(value)?;
        Ok(Request {
            slot: name(&fields),
            tool: fields.get("tool").map(shown).unwrap_or_default(),
            args: fields.remove("args").unwrap_or_else(|| json!({})),
            execution_id: fields.remove("execution_id").unwrap_or_default(),
            timeout: fields.remove("timeout"),
        })
    }
}

async fn run(pool: &Pool, request: Request) -> Result<Envelope, Refusal> {
    let Request { slot, tool, args, execution_id, timeout } = request;
    let mut envelope = match pool.slot(&slot) {
        Some(slot) => in_slot(pool, slot, (&tool, args, timeout.as_ref()), &execution_id).await?,
        None => Envelope::refused(format!("Unknown slot: {slot}")),
    };
    envelope.execution_id = execution_id;
    Ok(envelope)
}

async fn in_slot(
    pool: &Pool,
    slot: &Slot,
    (tool, args, timeout): (&str, Value, Option<&Value>),
    execution_id: &Value,
) -> Result<Envelope, Refusal> {
    let mut turn = pool.turn(slot).await;
    turn.begin(execution_id);
    if tool == "bash" {
        turn.announce();
    }
    if !["bash", "bash_stateful", "tmux", "read_file", "write_file"].contains(&tool) {
        return Ok(Envelope::refused(format!("Unknown tool: {tool}")));
    }
    let Value::Object(args) = args else {
        return Err(Refusal::unexpected(format!("args has to be an object, not {}", kind(&args))));
    };
    let wrong_time = || Refusal::unexpected("timeout has to be a number of seconds");
    let timeout = Timeout::of(timeout).ok_or_else(wrong_time)?;
    let turn = &mut turn;
    if matches!(tool, "bash" | "read_file") {
        recording::publish(turn).await;
    }
    match tool {
        "bash" => bash::bash(turn, &args, &timeout).await,
        "bash_stateful" => stateful::bash_stateful(turn, &args, &timeout).await,
        "tmux" => tmux::tmux(turn, &args, &timeout).await,
        "read_file" => files::read_file(turn, &args).await,
        _ => files::write_file(turn, &args).await,
    }
}

/// A field that has to be text, where it is there.
pub(super) fn text<'f>(fields: &'f Fields, field: &str, default: &'f str) -> Result<&'f str, Refusal> {
    match fields.get(field) {
        None => Ok(default),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(Refusal::unexpected(format!("{field} has to be a string, not {}", kind(other)))),
    }
}
