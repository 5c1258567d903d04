//! What handlers answer with: a reply, or a problem as RFC 9457 has it.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use workroom_engine::StoredAnswer;
use workroom_types::{Problem, ProblemCode};

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub(crate) type Answer = Result<Response, Failure>;

/// An answer that went well, before it is bytes on a connection: it may have to be remembered first.
pub(crate) struct Reply {
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    /// What is remembered under an idempotency key, where that is not what is given now.
    remembered: Option<Bytes>,
}

impl Reply {
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Reply, Problem> {
        Ok(Reply { status, content_type: JSON, body: to_json(value)?, remembered: None })
    }

    pub(crate) fn ok(value: &impl Serialize) -> Result<Reply, Problem> {
        Reply::json(StatusCode::OK, value)
    }

    /// 204.
    pub(crate) fn nothing() -> Reply {
        Reply { status: StatusCode::NO_CONTENT, content_type: "", body: Bytes::new(), remembered: None }
    }

    pub(crate) fn bytes(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply { status: StatusCode::OK, content_type, body: body.into(), remembered: None }
    }

    /// For what is told once only.
    pub(crate) fn remembered_as(mut self, value: &impl Serialize) -> Result<Reply, Problem> {
        self.remembered = Some(to_json(value)?);
        Ok(self)
    }

    pub(crate) fn to_remember(&self) -> StoredAnswer {
        StoredAnswer {
            status: self.status.as_u16(),
            content_type: self.content_type.to_owned(),
            body: self.remembered.as_ref().unwrap_or(&self.body).to_vec(),
        }
    }
}

fn to_json(value: &impl Serialize) -> Result<Bytes, Problem> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| {
        Problem::new(ProblemCode::Internal, format!("the answer cannot be written as JSON: {error}"), "")
    })
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response =
            Response::new(if self.body.is_empty() { Body::empty() } else { Body::from(self.body) });
        *response.status_mut() = self.status;
        if !self.content_type.is_empty() {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        if self.remembered.is_some() {
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        response
    }
}

/// The answer of an earlier request under the same key.
pub(crate) fn replayed(answer: StoredAnswer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(content_type) = HeaderValue::from_str(&answer.content_type)
        && !answer.content_type.is_empty()
    {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    mark_replayed(&mut response);
    response
}

pub(crate) fn mark_replayed(response: &mut Response) {
    response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
}

/// A problem on its way out. The type is ours so that axum can answer with it.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure(Box::new(problem))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = *self.0;
        let mut response = Response::new(Body::from(serde_json::to_vec(&problem).unwrap_or_default()));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = problem.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if problem.code == ProblemCode::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"workroom\""));
        }
        if problem.status >= 500 {
            // For the log line, which knows the request's id.
            response.extensions_mut().insert(problem);
        }
        response
    }
}

/// The router's own refusal of a method, in our words.
pub(crate) fn method_not_allowed(method: &str, path: &str, allowed: &str) -> Response {
    let problem = Problem::new(
        ProblemCode::MethodNotAllowed,
        format!("{path} cannot be asked to {method}"),
        format!("it can be asked to {allowed}"),
    );
    let mut response = Failure::from(problem).into_response();
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn body(response: Response) -> serde_json::Value {
        let bytes = response.into_body().collect().await.expect("a body of bytes").to_bytes();
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[tokio::test]
    async fn a_problem_is_an_answer_with_its_status_type_and_words() {
        let response = Failure::from(Problem::invalid("\"x\" is wrong", "write y")).into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert!(!response.headers().contains_key(RETRY_AFTER));
        let body = body(response).await;
        assert_eq!(body["code"], "invalid_argument");
        assert_eq!(body["status"], 400);
        assert_eq!(body["type"], "about:blank");
        assert_eq!(body["detail"], "\"x\" is wrong");
        assert_eq!(body["hint"], "write y");
    }

    #[test]
    fn a_limit_says_when_to_retry_and_a_missing_token_how_to_send_one() {
        let limited = Failure::from(Problem::limit("live", "full", "").retry_after(7)).into_response();
        assert_eq!(limited.status(), 429);
        assert_eq!(limited.headers()[RETRY_AFTER], "7");
        let stranger = Failure::from(Problem::new(ProblemCode::Unauthorized, "who", "")).into_response();
        assert_eq!(stranger.status(), 401);
        assert!(stranger.headers()[WWW_AUTHENTICATE].to_str().expect("text").starts_with("Bearer"));
    }

    #[test]
    fn what_is_told_once_is_not_what_is_remembered() {
        let reply = Reply::json(StatusCode::CREATED, &"secret").and_then(|it| it.remembered_as(&"no secret"));
        let reply = reply.expect("JSON");
        assert_eq!(reply.to_remember().body, b"\"no secret\"");
        assert_eq!(reply.to_remember().status, 201);
        assert_eq!(reply.into_response().headers()[CACHE_CONTROL], "no-store");
    }
}
