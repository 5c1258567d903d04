//! What an HTTP client is told when its request goes nowhere: one sentence, as text or as problem+json.

use crate::dial::DialError;
use crate::resolver::ResolveError;
use crate::verdict::{Denial, Reason};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::ext::ReasonPhrase;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

pub(crate) type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    sentence: String,
    hint: Option<String>,
}

pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    let names_json = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("json"));
    headers.get_all(ACCEPT).iter().any(names_json)
}

impl Refusal {
    pub(crate) fn bad_request(sentence: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "bad_proxy_request",
            sentence: sentence.into(),
            hint: None,
        }
    }

    pub(crate) fn bad_gateway(sentence: &str) -> Self {
        let sentence = format!("the server's answer could not be had: {sentence}");
        Self { status: StatusCode::BAD_GATEWAY, code: "bad_gateway", sentence, hint: None }
    }

    pub(crate) fn into_response(self, in_json: bool) -> Response<Body> {
        let (kind, text) = if in_json {
            let problem = serde_json::json!({
                "type": "about:blank",
                "title": self.status.canonical_reason(),
                "status": self.status.as_u16(),
                "code": self.code,
                "detail": self.sentence,
                "hint": self.hint,
            });
            ("application/problem+json", format!("{problem}\n"))
        } else {
            ("text/plain; charset=utf-8", format!("{}\n", self.sentence))
        };
        let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Most clients do not show the body of an answer to CONNECT, but they show its reason phrase.
        let phrase: Vec<u8> = self.sentence.bytes().filter(|byte| (b' '..=b'~').contains(byte)).collect();
        if let Ok(phrase) = ReasonPhrase::try_from(phrase) {
            response.extensions_mut().insert(phrase);
        }
        response
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        let status = match denial.reason {
            Reason::Connections { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Malformed(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::FORBIDDEN,
        };
        Self { status, code: denial.reason.code(), sentence: denial.to_string(), hint: Some(denial.hint()) }
    }
}

impl From<DialError> for Refusal {
    fn from(error: DialError) -> Self {
        let sentence = error.to_string();
        let (status, code) = match error {
            DialError::Denied(denial) => return denial.into(),
            DialError::Resolve(ResolveError::NotFound(_) | ResolveError::NoAddress(_)) => {
                (StatusCode::BAD_GATEWAY, "name_not_found")
            }
            DialError::Resolve(ResolveError::Failed { .. }) => (StatusCode::BAD_GATEWAY, "name_not_resolved"),
            DialError::Unreachable { kind: std::io::ErrorKind::TimedOut, .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "connect_timed_out")
            }
            DialError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "unreachable"),
        };
        Self { status, code, sentence, hint: None }
    }
}
