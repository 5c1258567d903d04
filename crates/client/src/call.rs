//! One call: a request, its tries, and an answer that is a value or a problem.

use crate::body::{RequestBody, Upload};
use crate::connection::{Pool, Ready, Sender};
use crate::tries::{Fault, Tries};
use crate::{ClientError, Endpoint, discovery};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use workroom_types::{Problem, ProblemCode};

/// More than the longest answer there is: a command's two streams of 64 MiB each, in base64.
pub(crate) const LARGEST_ANSWER: usize = 256 << 20;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// A server's client. Cheap to clone; connections are kept and shared.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
    token: Option<Arc<str>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        write!(out, "Client({})", self.pool.endpoint())
    }
}

/// What is asked.
#[derive(Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
    /// Made once: every try of a call that changes something carries the same.
    key: Option<String>,
    pub(crate) last_event_id: Option<i64>,
    /// More of them.
    headers: Vec<(&'static str, String)>,
    /// It is worth waiting for a server that went away in the middle: what to do where none comes back.
    pub(crate) patient: Option<&'static str>,
    /// Why it has no answer yet, though it was made before.
    pub(crate) broke: Option<String>,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Call {
        let path = path.into();
        let headers = Vec::new();
        let (body, key, last_event_id, patient, broke) = (None, None, None, None, None);
        Call { method: Method::GET, path, accept: JSON, body, key, last_event_id, headers, patient, broke }
    }

    pub(crate) fn mutating(method: Method, path: impl Into<String>) -> Result<Call, ClientError> {
        Ok(Call { method, key: Some(random_key()?), ..Call::get(path) })
    }

    pub(crate) fn post(path: impl Into<String>) -> Result<Call, ClientError> {
        Call::mutating(Method::POST, path)
    }

    /// Of which the server keeps no answer, and which is sent once.
    pub(crate) fn unkeyed_post(path: impl Into<String>) -> Call {
        Call { method: Method::POST, ..Call::get(path) }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Call {
        self.accept = accept;
        self
    }

    /// For what may take long, and comes to the same when it is asked for again.
    pub(crate) fn patient(mut self, where_none_comes_back: &'static str) -> Call {
        self.patient = Some(where_none_comes_back);
        self
    }

    /// The same call once more, whose connection broke.
    pub(crate) fn after_a_break(mut self, why: &str) -> Call {
        self.broke = Some(why.to_owned());
        self
    }

    pub(crate) fn headers(mut self, headers: Vec<(&'static str, String)>) -> Call {
        self.headers = headers;
        self
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Result<Call, ClientError> {
        let body = serde_json::to_vec(value).map_err(|error| {
            ClientError::Protocol(format!("the request cannot be written as JSON: {error}"))
        })?;
        Ok(self.bytes(JSON, body.into()))
    }

    pub(crate) fn bytes(mut self, content_type: &'static str, body: Bytes) -> Call {
        self.body = Some((content_type, body));
        self
    }

    pub(crate) fn name(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }

    fn request(&self, endpoint: &Endpoint, token: Option<&str>) -> Result<Request<RequestBody>, ClientError> {
        let (content_type, body) = match &self.body {
            Some((content_type, bytes)) => (Some(*content_type), bytes.clone()),
            None => (None, Bytes::new()),
        };
        self.request_with(endpoint, token, content_type, RequestBody::Whole(Full::new(body)))
    }

    fn request_with(
        &self,
        endpoint: &Endpoint,
        token: Option<&str>,
        content_type: Option<&str>,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, ClientError> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(header::HOST, endpoint.authority())
            .header(header::USER_AGENT, concat!("workroom/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, self.accept);
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                Problem::invalid(
                    "the token holds characters that no token has",
                    "set WORKROOM_TOKEN to one as it was printed",
                )
            })?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(id) = self.last_event_id {
            request = request.header("last-event-id", id);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request
            .body(body)
            .map_err(|error| ClientError::Protocol(format!("{} cannot be asked: {error}", self.name())))
    }
}

/// An answer whose body is still to come.
pub(crate) struct Opened {
    pub(crate) response: Response<Incoming>,
    /// Held until the body is over, then given back.
    pub(crate) sender: Sender,
}

/// An answer that is whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    /// Connects when the first call is made.
    pub fn new(endpoint: Endpoint, token: Option<String>) -> Client {
        Client { pool: Arc::new(Pool::new(endpoint)), token: token.map(Arc::from) }
    }

    /// The server that the environment or the state directory names: see [`discovery::discover`].
    pub fn discover() -> Result<Client, ClientError> {
        let found = discovery::discover()?;
        Ok(Client::new(found.endpoint, found.token))
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.pool.endpoint()
    }

    pub(crate) fn give_back(&self, sender: Sender) {
        self.pool.give_back(sender);
    }

    /// The value that a call answers with.
    pub(crate) async fn value<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        let answer = self.answer(call).await?;
        decode(&call.name(), &answer.body)
    }

    /// The whole answer to a call; a problem if it is not a 2xx.
    pub(crate) async fn answer(&self, call: &Call) -> Result<Answer, ClientError> {
        let mut tries = Tries::of(call, self.pool.endpoint());
        loop {
            let attempt = async { self.whole(self.begin(call, &tries).await?, call).await };
            let fault = match attempt.await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => Fault::Final(problem(&call.name(), answer.status, &answer.body)),
                Err(fault) => fault,
            };
            tries.another(fault).await?;
        }
    }

    /// The beginning of a call's answer, whose body is read as it comes; a problem if it is not a 2xx.
    pub(crate) async fn open(&self, call: &Call) -> Result<Opened, ClientError> {
        let mut tries = Tries::of(call, self.pool.endpoint());
        loop {
            match self.opened(call, &tries).await {
                Ok(opened) => return Ok(opened),
                Err(fault) => tries.another(fault).await?,
            }
        }
    }

    /// The same; or why the connection broke, for a caller that then asks for something else. One that had been kept is
    /// replaced.
    pub(crate) async fn open_or_break(&self, call: &Call) -> Result<Result<Opened, String>, ClientError> {
        let mut tries = Tries::of(call, self.pool.endpoint());
        loop {
            match self.opened(call, &tries).await {
                Ok(opened) => return Ok(Ok(opened)),
                Err(Fault::Broke { idle: false, why }) => return Ok(Err(why)),
                Err(Fault::Final(error)) if tries.is_passing(&error) => return Ok(Err(error.to_string())),
                Err(fault) => tries.another(fault).await?,
            }
        }
    }

    async fn opened(&self, call: &Call, tries: &Tries<'_>) -> Result<Opened, Fault> {
        let opened = self.begin(call, tries).await?;
        let status = opened.response.status();
        if status.is_success() {
            return Ok(opened);
        }
        let body = self.whole(opened, call).await.map(|answer| answer.body).unwrap_or_default();
        Err(Fault::Final(problem(&call.name(), status, &body)))
    }

    /// The same for a call that is not to be made twice: on a connection that the server cannot have closed meanwhile.
    pub(crate) async fn open_once(&self, call: &Call) -> Result<Opened, ClientError> {
        let Ready { mut sender, .. } = self.pool.fresh().await?;
        let request = call.request(self.pool.endpoint(), self.token.as_deref())?;
        let response = sender.send_request(request).await.map_err(|error| {
            let (place, name, why) = (self.pool.endpoint(), call.name(), root_cause(&error));
            ClientError::Transport(format!(
                "the connection to {place} broke before {name} was answered: {why}; look at what is there, then ask again"
            ))
        })?;
        let opened = Opened { response, sender };
        if opened.response.status().is_success() {
            return Ok(opened);
        }
        let status = opened.response.status();
        let body = self.whole(opened, call).await.map(|answer| answer.body).unwrap_or_default();
        Err(problem(&call.name(), status, &body))
    }

    /// The whole answer to a call whose body is read as it is sent. It is sent once: on a connection that the server
    /// cannot have closed meanwhile.
    pub(crate) async fn send(
        &self,
        call: &Call,
        content_type: &str,
        contents: Upload,
    ) -> Result<Answer, ClientError> {
        let Ready { mut sender, .. } = self.pool.fresh().await?;
        let token = self.token.as_deref();
        let body = contents.into_body();
        let request = call.request_with(self.pool.endpoint(), token, Some(content_type), body)?;
        let broke = |why: &str| {
            ClientError::Transport(format!(
                "the connection to {} broke before {} was answered: {why}; look at what is there, then ask again",
                self.pool.endpoint(),
                call.name()
            ))
        };
        let response = sender.send_request(request).await.map_err(|error| broke(&root_cause(&error)))?;
        let answer = match self.whole(Opened { response, sender }, call).await {
            Ok(answer) => answer,
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::Broke { why, .. }) => return Err(broke(&why)),
        };
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(problem(&call.name(), answer.status, &answer.body))
    }

    /// The connection itself, once the server has agreed that it is something else from here on.
    pub(crate) async fn upgrade(&self, call: &Call) -> Result<Upgraded, ClientError> {
        let Ready { mut sender, .. } = self.pool.fresh().await?;
        let request = call.request(self.pool.endpoint(), self.token.as_deref())?;
        let broke = |why: String| {
            ClientError::Transport(format!(
                "the connection to {} broke before {} was answered: {why}; ask again",
                self.pool.endpoint(),
                call.name()
            ))
        };
        let response = sender.send_request(request).await.map_err(|error| broke(root_cause(&error)))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return hyper::upgrade::on(response).await.map_err(|error| broke(root_cause(&error)));
        }
        let status = response.status();
        let body = self.whole(Opened { response, sender }, call).await;
        Err(problem(&call.name(), status, &body.map(|answer| answer.body).unwrap_or_default()))
    }

    /// Sends the request and waits for the head of its answer.
    async fn begin(&self, call: &Call, tries: &Tries<'_>) -> Result<Opened, Fault> {
        let ready = if tries.is_first() { self.pool.take().await } else { self.pool.fresh().await };
        let Ready { mut sender, used } = ready.map_err(Fault::Final)?;
        let request = call.request(self.pool.endpoint(), self.token.as_deref()).map_err(Fault::Final)?;
        match sender.send_request(request).await {
            Ok(response) => Ok(Opened { response, sender }),
            Err(error) => Err(Fault::Broke { idle: used, why: root_cause(&error) }),
        }
    }

    /// Reads a body to its end and gives the connection back.
    async fn whole(&self, opened: Opened, call: &Call) -> Result<Answer, Fault> {
        let status = opened.response.status();
        let mut incoming = opened.response.into_body();
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| Fault::Broke { idle: false, why: root_cause(&error) })?;
            let data = frame.into_data().unwrap_or_default();
            if body.len() + data.len() > LARGEST_ANSWER {
                return Err(Fault::Final(ClientError::Protocol(format!(
                    "the answer to {} is over {} MiB; ask for less at once",
                    call.name(),
                    LARGEST_ANSWER >> 20
                ))));
            }
            body.extend_from_slice(&data);
        }
        self.give_back(opened.sender);
        Ok(Answer { status, body: body.freeze() })
    }
}

/// The innermost reason says most, in the fewest words.
pub(crate) fn root_cause(error: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| {
        ClientError::Protocol(format!(
            "the answer to {what} is not what this version understands: {error}; see whether `workroom --version` \
             and the server's are alike"
        ))
    })
}

/// What the server says is wrong, also when a newer server or something in between says it.
pub(crate) fn problem(what: &str, status: StatusCode, body: &[u8]) -> ClientError {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return problem.into();
    }
    let field = |name: &str| {
        let document: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        document.get(name).and_then(|text| text.as_str()).map(str::to_owned)
    };
    if let Some(detail) = field("detail") {
        let mut problem = Problem::new(code_of(status), detail, field("hint").unwrap_or_default());
        problem.status = status.as_u16();
        return problem.into();
    }
    let text: String = String::from_utf8_lossy(body)
        .chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    ClientError::Protocol(format!(
        "{what} was answered with {} and no reason{}{}; see whether WORKROOM_URL names a Workroom server",
        status.as_u16(),
        if text.trim().is_empty() { "" } else { ": " },
        text.trim()
    ))
}

/// The code of a problem whose own is not known to this version.
fn code_of(status: StatusCode) -> ProblemCode {
    match status.as_u16() {
        401 => ProblemCode::Unauthorized,
        403 => ProblemCode::Forbidden,
        404 => ProblemCode::NotFound,
        409 => ProblemCode::WrongState,
        410 => ProblemCode::RoomGone,
        429 => ProblemCode::LimitExceeded,
        400..=499 => ProblemCode::InvalidArgument,
        _ => ProblemCode::Internal,
    }
}

fn random_key() -> Result<String, ClientError> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| ClientError::Transport(format!("this machine gives no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_understood_from_old_and_new_servers() {
        let body = serde_json::to_vec(&Problem::no_session("x")).unwrap();
        let known = problem("GET /", StatusCode::NOT_FOUND, &body);
        assert_eq!(known.problem(), Some(&Problem::no_session("x")));
        assert_eq!(known.code(), "not_found");

        let newer = br#"{"type":"about:blank","title":"?","status":409,"code":"too_new","detail":"no","hint":"wait"}"#;
        assert_eq!(problem("GET /", StatusCode::CONFLICT, newer).to_string(), "no; wait");

        let proxy = problem("GET /v1", StatusCode::BAD_GATEWAY, b"<h1>\x1bBad</h1>").to_string();
        assert!(proxy.contains("502") && proxy.contains("<h1> Bad</h1>"), "{proxy}");
    }

    #[test]
    fn keys_differ_and_the_token_is_not_shown() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
        let client = Client::new(Endpoint::Unix("/x".into()), Some("secret".into()));
        assert!(!format!("{client:?}").contains("secret"));
        let request = Call::get("/v1").request(client.endpoint(), Some("secret")).unwrap();
        assert!(!format!("{request:?}").contains("secret"));
    }
}
