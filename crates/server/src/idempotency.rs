//! Doing a thing once under its `Idempotency-Key`, and to its end although its caller goes away.

use crate::call::Call;
use crate::reply::{Answer, Failure, PROBLEM_JSON, Reply, replayed};
use aws_lc_rs::digest::{Context, SHA256};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use axum::response::{IntoResponse, Response};
use std::future::Future;
use std::pin::Pin;
use workroom_engine::{Attempt, Engine, IdempotencyKey, Permit, StoredAnswer};
use workroom_types::{Caller, Problem, ProblemCode};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The header's value, where it makes sense.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(value), more) = (given.next(), given.next()) else { return Ok(None) };
    let text = value.as_bytes();
    let visible = (1..=256).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if visible && more.is_none() => Ok(Some(key)),
        _ => Err(Problem::invalid(
            "the Idempotency-Key is not 1 to 256 visible ASCII characters",
            "send one key without spaces, such as a UUID, or none",
        )),
    }
}

/// What tells a repetition from another request under the same key. Each part is preceded by its length, so that
/// no two requests run together into the same bytes.
fn fingerprint(method: &Method, uri: &Uri, body: &[u8]) -> String {
    let path = uri.path_and_query().map_or("", |it| it.as_str());
    let mut context = Context::new(&SHA256);
    for part in [method.as_str().as_bytes(), path.as_bytes(), body] {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn key_for(call: &Call, body: &[u8]) -> Result<Option<IdempotencyKey>, Problem> {
    let key = key_of(call.headers())?.map(|key| IdempotencyKey {
        scope: call.engine().key_scope(&call.caller, call.id()),
        key: key.to_owned(),
        fingerprint: fingerprint(&call.head.method, &call.head.uri, body),
    });
    Ok(key)
}

pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send + 'a>>;

/// Does `work` in a task of its own, under the request's key where it has one.
pub(crate) async fn once<F>(call: Call, body: &[u8], work: F) -> Answer
where
    F: for<'a> FnOnce(&'a Engine, &'a Caller, Option<&'a Permit>) -> Work<'a> + Send + 'static,
{
    let key = key_for(&call, body)?;
    let (app, caller) = (call.app, call.caller);
    let task = tokio::spawn(async move { under(key, &app.engine, &caller, work).await });
    Ok(joined(task.await)?)
}

/// The same, but only while its caller is there: who goes away gives up its place in a queue. The work has to be such
/// that it may be done again where nobody heard of its end.
pub(crate) async fn while_waited_for<F>(call: Call, body: &[u8], work: F) -> Answer
where
    F: for<'a> FnOnce(&'a Engine, &'a Caller, Option<&'a Permit>) -> Work<'a> + Send + 'static,
{
    let key = key_for(&call, body)?;
    let (app, caller) = (call.app, call.caller);
    Ok(under(key, &app.engine, &caller, work).await?)
}

async fn under<F>(
    key: Option<IdempotencyKey>,
    engine: &Engine,
    caller: &Caller,
    work: F,
) -> Result<Response, Problem>
where
    F: for<'a> FnOnce(&'a Engine, &'a Caller, Option<&'a Permit>) -> Work<'a>,
{
    let Some(key) = key else {
        return work(engine, caller, None).await.map(Reply::into_response);
    };
    let permit = match engine.begin(key).await? {
        Attempt::Replay(answer) => return Ok(replayed(answer)),
        Attempt::Ours(permit) => permit,
    };
    let outcome = work(engine, caller, Some(&permit)).await;
    // Remembered before it is told: an answer that a caller has seen is the answer for good.
    match (to_remember(&outcome), &outcome) {
        (Some(answer), _) => engine.finish(permit, answer).await?,
        (None, Err(problem)) => engine.withdraw(permit, problem).await,
        (None, Ok(_)) => {}
    }
    outcome.map(Reply::into_response)
}

/// The same for a body that is read while the work is done, and so is not part of what tells two requests apart: its
/// length is, and what the headers say about it and about the file.
pub(crate) async fn once_streamed<F>(call: Call, work: F) -> Answer
where
    F: for<'a> FnOnce(&'a Engine, &'a Caller, Option<&'a Permit>) -> Work<'a> + Send + 'static,
{
    let mut facts = Vec::new();
    for name in [CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, CONTENT_DIGEST] {
        for value in call.headers().get_all(&name) {
            facts.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
    }
    once(call, &facts, work).await
}

/// What the engine did not live to answer is our fault, not the connection's.
pub(crate) fn joined<T>(outcome: Result<Result<T, Problem>, tokio::task::JoinError>) -> Result<T, Problem> {
    outcome.unwrap_or_else(|_| {
        Err(Problem::new(
            ProblemCode::Internal,
            "the request ended in an error of the server's own",
            "the server's log, under the request's id, has more",
        ))
    })
}

fn to_remember(outcome: &Result<Reply, Problem>) -> Option<StoredAnswer> {
    match outcome {
        Ok(reply) => Some(reply.to_remember()),
        Err(problem) => problem_to_remember(problem),
    }
}

/// A refusal is an answer like any other; a fault of ours or a moment of crowding is worth another try.
pub(crate) fn problem_to_remember(problem: &Problem) -> Option<StoredAnswer> {
    let passing = problem.status >= 500 || problem.status == 429;
    (!passing).then(|| StoredAnswer {
        status: problem.status,
        content_type: PROBLEM_JSON.to_owned(),
        body: serde_json::to_vec(problem).unwrap_or_default(),
    })
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        *failure.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn key(values: &[&[u8]]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).expect("a header"));
        }
        key_of(&headers).map(|key| key.map(str::to_owned))
    }

    #[test]
    fn a_key_is_visible_ascii_of_a_sane_length() {
        assert_eq!(key(&[]).expect("none is fine"), None);
        assert_eq!(key(&[b"a-1_{}~"]).expect("visible"), Some("a-1_{}~".into()));
        assert!(key(&[&[b'x'; 256]]).is_ok());
        for wrong in [&[&b""[..]][..], &[b"a b"], &[b"\xe9"], &[&[b'x'; 257]], &[b"a", b"b"]] {
            assert_eq!(key(wrong).expect_err("not a key").status, 400, "{wrong:?}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_method_path_query_and_body() {
        let of =
            |method: Method, uri, body: &str| fingerprint(&method, &Uri::from_static(uri), body.as_bytes());
        let one = of(Method::POST, "/v1/sessions", "{}");
        assert_eq!(one, of(Method::POST, "/v1/sessions", "{}"));
        assert_eq!(one, of(Method::POST, "http://localhost/v1/sessions", "{}"));
        assert_eq!(one.len(), 64);
        let others = [
            of(Method::PUT, "/v1/sessions", "{}"),
            of(Method::POST, "/v1/sessions?wait=1", "{}"),
            of(Method::POST, "/v1/session", "s{}"),
            of(Method::POST, "/v1/sessions", "{ }"),
            of(Method::POST, "/v1/sessions{}", ""),
        ];
        for other in others {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn refusals_are_remembered_and_passing_faults_are_not() {
        let remembered = |code| problem_to_remember(&Problem::new(code, "", "")).map(|answer| answer.status);
        assert_eq!(remembered(ProblemCode::NotFound), Some(404));
        assert_eq!(remembered(ProblemCode::WrongState), Some(409));
        for passing in [ProblemCode::LimitExceeded, ProblemCode::Internal, ProblemCode::StorageUnavailable] {
            assert_eq!(remembered(passing), None);
        }
    }
}
