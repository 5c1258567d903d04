//! `/v1/batch`: many things asked at once, answered one by one or all together.

use crate::batch::{check, perform};
use crate::call::{Call, accepts};
use crate::idempotency::once;
use crate::reply::{Answer, Reply};
use crate::sse::ChannelBody;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use workroom_engine::Engine;
use workroom_types::{BatchItem, BatchResult, BatchResults, Caller, Problem, ProblemCode};

const NDJSON: &str = "application/x-ndjson";

pub(crate) const MOST_ITEMS: usize = 1000;

/// Items of one batch that are under way at once.
const AT_ONCE: usize = 64;

/// Do many things at once
///
/// Each in a session, or in the slot that a trajectory has; up to 1000, 64 of them at a time. What is wrong with one, or
/// goes wrong, is told in its place and touches no other. With `Accept: application/x-ndjson` each result is a line (BatchResult) as soon
/// as it is there, in any order.
#[utoipa::path(
    post,
    path = "/v1/batch",
    tag = "batch",
    operation_id = "batch",
    request_body(content = Vec<BatchItem>, example = json!([
        {"id": "a", "session": "20260131-120000-0a1b2c3d", "tool": "exec", "args": {"command": "make test"}, "timeout_ms": 60000},
        {"id": "b", "slot": {"pool": "agents", "trajectory": "run-7"}, "tool": "read", "args": {"path": "out.txt"}},
    ])),
    responses((status = 200, description = "What became of each", content(
        (BatchResults = "application/json"),
        (String = "application/x-ndjson"),
    ))),
)]
pub(crate) async fn batch(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (items, body) = call.json_list::<Value>(limit).await?;
    check(&items, MOST_ITEMS)?;
    if accepts(call.headers(), NDJSON) {
        if crate::idempotency::key_of(call.headers())?.is_some() {
            return Err(Problem::invalid(
                "a batch that is streamed cannot be told again under an Idempotency-Key",
                "leave the key out, or take the answer as JSON",
            )
            .into());
        }
        return Ok(streamed(call.engine().clone(), call.caller.clone(), items));
    }
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            engine.begin_once(permit, "batch").await?;
            let mut results: Vec<Option<BatchResult>> = items.iter().map(|_| None).collect();
            let mut under_way = JoinSet::new();
            let mut items = (0..).zip(items);
            loop {
                start(engine, caller, &mut items, &mut under_way);
                match under_way.join_next().await {
                    Some(Ok(result)) => {
                        let index = result.index as usize;
                        results[index] = Some(result);
                    }
                    Some(Err(_)) => {}
                    None => break,
                }
            }
            let results =
                results.into_iter().zip(0..).map(|(result, index)| result.unwrap_or_else(|| lost(index)));
            Reply::ok(&BatchResults { results: results.collect() })
        })
    })
    .await
}

/// Starts as many as may be under way.
fn start(
    engine: &Engine,
    caller: &Caller,
    items: &mut impl Iterator<Item = (u32, Value)>,
    under_way: &mut JoinSet<BatchResult>,
) {
    while under_way.len() < AT_ONCE
        && let Some((index, item)) = items.next()
    {
        under_way.spawn(perform(engine.clone(), caller.clone(), index, item));
    }
}

/// Of an item that ended in an error of ours.
fn lost(index: u32) -> BatchResult {
    let problem = Problem::new(
        ProblemCode::Internal,
        "this item ended in an error of the server's own",
        "the server's log, under the request's id, has more",
    );
    BatchResult { index, id: None, ok: false, status: problem.status, result: None, problem: Some(problem) }
}

/// A caller that goes away ends nothing: what it asked for is done all the same.
fn streamed(engine: Engine, caller: Caller, items: Vec<Value>) -> Response {
    let (lines, receiver) = mpsc::channel(AT_ONCE);
    tokio::spawn(async move {
        let mut under_way = JoinSet::new();
        let mut items = (0..).zip(items);
        loop {
            start(&engine, &caller, &mut items, &mut under_way);
            match under_way.join_next().await {
                Some(Ok(result)) => {
                    let mut line = serde_json::to_vec(&result).unwrap_or_default();
                    line.push(b'\n');
                    let _ = lines.send(Bytes::from(line)).await;
                }
                Some(Err(error)) => tracing::error!(%error, "an item of a batch is lost"),
                None => return,
            }
        }
    });
    let mut response = Response::new(Body::new(ChannelBody::new(receiver)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
