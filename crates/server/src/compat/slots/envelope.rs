//! Answers of the slot API: the envelope of tools, and the plainer ones of everything else.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

/// How a tool answers, whatever became of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Envelope {
    pub(super) success: bool,
    pub(super) output: String,
    pub(super) error: String,
    /// What the caller calls the call.
    pub(super) execution_id: Value,
    pub(super) metadata: Value,
}

impl Envelope {
    pub(super) fn good(output: impl Into<String>, metadata: Value) -> Envelope {
        let (output, error) = (output.into(), String::new());
        Envelope { success: true, output, error, execution_id: Value::Null, metadata }
    }

    pub(super) fn bad(error: impl Into<String>, metadata: Value) -> Envelope {
        let (output, error) = (String::new(), error.into());
        Envelope { success: false, output, error, execution_id: Value::Null, metadata }
    }

    /// Without anything to say beside it.
    pub(super) fn refused(error: impl Into<String>) -> Envelope {
        Envelope::bad(error, json!({}))
    }
}

/// What is answered with another status than 200.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    body: Value,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { status, body: json!({ "success": false, "error": error.into() }) }
    }

    pub(super) fn with(mut self, field: &str, value: Value) -> Refusal {
        self.body[field] = value;
        self
    }

    pub(super) fn invalid_json() -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "Invalid JSON")
    }

    /// What the caller sent makes no sense in a way that nobody has foreseen.
    pub(super) fn unexpected(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// As one of several answers.
    pub(super) fn into_body(self) -> Value {
        self.body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        respond(self.status, &self.body)
    }
}

pub(super) fn ok(value: &impl Serialize) -> Response {
    respond(StatusCode::OK, value)
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
