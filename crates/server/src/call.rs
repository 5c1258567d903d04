//! A request that was let in: who sent it, what its path, query and body say.

use crate::app::App;
use crate::body::BodySource;
use crate::reply::Failure;
use axum::RequestExt;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Query, RawPathParams, Request};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use workroom_engine::Engine;
use workroom_types::{Caller, Problem, ProblemCode, format_bytes};

/// A body that trickles in holds a connection and memory; one that is sent in earnest is long there by then.
const BODY_PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    params: Vec<(Arc<str>, String)>,
    pub(crate) head: Parts,
    body: Body,
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = Failure;

    async fn from_request(mut request: Request, app: &Arc<App>) -> Result<Call, Failure> {
        let params = match request.extract_parts::<RawPathParams>().await {
            Ok(params) => params.iter().map(|(name, value)| (Arc::from(name), value.to_owned())).collect(),
            // Names of files are any bytes. Their routes read them from the path itself.
            Err(_) if file_part(request.uri().path()).is_some() => {
                let id = request.uri().path().split('/').nth(3).unwrap_or_default();
                vec![(Arc::from("id"), id.to_owned())]
            }
            Err(_) => {
                return Err(Problem::invalid(
                    "the path holds an escape that is no text",
                    "escape names as UTF-8, byte by byte",
                )
                .into());
            }
        };
        // The gate put it there; a route that it lets strangers into does not ask for a `Call`.
        let caller = request.extensions_mut().remove::<Caller>().ok_or_else(|| {
            Problem::new(ProblemCode::Internal, "a route that needs a caller was reached without one", "")
        })?;
        let (head, body) = request.into_parts();
        Ok(Call { app: app.clone(), caller, params, head, body })
    }
}

impl Call {
    pub(crate) fn engine(&self) -> &Engine {
        &self.app.engine
    }

    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| &**known == name).map_or("", |(_, value)| value)
    }

    /// The session's id; the gate has looked at its letters.
    pub(crate) fn id(&self) -> &str {
        self.param("id")
    }

    /// The file that the request's path ends with, whatever the bytes of its name.
    pub(crate) fn file_path(&self) -> String {
        let part = file_part(self.head.uri.path()).unwrap_or_default();
        path_text(&percent_encoding::percent_decode_str(part).collect::<Vec<u8>>())
    }

    /// The body, to be read piece by piece.
    pub(crate) fn source(&mut self) -> BodySource {
        BodySource::new(std::mem::take(&mut self.body))
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub(crate) fn query<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        query(&self.head.uri)
    }

    /// For routes whose query means nothing: a misspelt wish is not passed over in silence.
    pub(crate) fn no_query(&self) -> Result<(), Problem> {
        self.query::<Nothing>().map(|_| ())
    }

    /// The same for routes whose body means nothing: none, or an object with nothing in it.
    pub(crate) async fn no_body(&mut self) -> Result<(), Problem> {
        let limit = self.app.config.body.json;
        let bytes = self.body(limit).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        parse::<Nothing>(&bytes).map(|_| ())
    }

    pub(crate) async fn body(&mut self, limit: u64) -> Result<Bytes, Problem> {
        let body = std::mem::take(&mut self.body);
        match tokio::time::timeout(BODY_PATIENCE, read(body, limit)).await {
            Ok(read) => read,
            Err(_) => Err(Problem::invalid(
                format!("the body did not arrive within {} s", BODY_PATIENCE.as_secs()),
                "send it without pauses",
            )),
        }
    }

    pub(crate) async fn json<T: DeserializeOwned>(&mut self, limit: u64) -> Result<(T, Bytes), Problem> {
        check_json_type(&self.head.headers)?;
        let bytes = self.body(limit).await?;
        Ok((parse(&bytes)?, bytes))
    }

    /// A body that is a list.
    pub(crate) async fn json_list<T: DeserializeOwned>(
        &mut self,
        limit: u64,
    ) -> Result<(Vec<T>, Bytes), Problem> {
        check_json_type(&self.head.headers)?;
        let bytes = self.body(limit).await?;
        Ok((parse_any(&bytes)?, bytes))
    }

    /// For bodies that are parsed without a word of theirs in an error.
    pub(crate) fn check_json(&self) -> Result<(), Problem> {
        check_json_type(&self.head.headers)
    }

    /// Where a request without a body is one that asks for nothing in particular.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(
        &mut self,
        limit: u64,
    ) -> Result<(T, Bytes), Problem> {
        if self.body.is_end_stream() && !self.head.headers.contains_key(CONTENT_TYPE) {
            return Ok((T::default(), Bytes::new()));
        }
        self.json(limit).await
    }
}

/// What follows `/v1/sessions/{id}/files/`.
fn file_part(path: &str) -> Option<&str> {
    let mut parts = path.splitn(6, '/');
    (parts.nth(4) == Some("files")).then(|| parts.next())?
}

/// A path's bytes as text that is understood as the path: what is no text becomes an escape, and an escape stays one.
pub(crate) fn path_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// How long a caller is ready to wait for a place.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    wait: Option<f64>,
}

impl WaitQuery {
    pub(crate) fn duration(&self) -> Result<Option<Duration>, Problem> {
        let Some(seconds) = self.wait else { return Ok(None) };
        let wait = Duration::try_from_secs_f64(seconds).ok().filter(|wait| wait.as_secs() <= 86_400);
        let wait = wait.ok_or_else(|| {
            Problem::invalid(
                format!("wait={seconds} is not a time to wait"),
                "give seconds from 0 to 86400, such as wait=30",
            )
        })?;
        Ok((!wait.is_zero()).then_some(wait))
    }
}

fn query<T: DeserializeOwned + Default>(uri: &Uri) -> Result<T, Problem> {
    if uri.query().is_none_or(str::is_empty) {
        return Ok(T::default());
    }
    let spelt = with_flags_spelt_out(uri);
    Query::try_from_uri(&spelt).map(|Query(value)| value).map_err(|rejection| {
        let text = rejection.body_text();
        let reason = text.split_once(": ").map_or(text.as_str(), |(_, reason)| reason);
        Problem::invalid(
            format!("the query \"{}\" is wrong: {reason}", uri.query().unwrap_or_default()),
            "GET /v1/openapi.json lists what each route takes",
        )
    })
}

/// Flags that people write as `?sync=1` too.
const FLAGS: [&str; 5] = ["append", "hidden", "recursive", "root", "sync"];

fn with_flags_spelt_out(uri: &Uri) -> Uri {
    let query = uri.query().unwrap_or_default();
    let one = |pair: &str| match pair.split_once('=') {
        Some((name, "1")) if FLAGS.contains(&name) => format!("{name}=true"),
        Some((name, "0")) if FLAGS.contains(&name) => format!("{name}=false"),
        _ => pair.to_owned(),
    };
    let spelt: Vec<String> = query.split('&').map(one).collect();
    format!("/?{}", spelt.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|one| essence(one).eq_ignore_ascii_case(media_type))
    })
}

/// Whether the request takes an answer of this type: by its name, by a pattern, or because it says nothing of types.
pub(crate) fn allows(headers: &HeaderMap, media_type: &str) -> bool {
    let kind = media_type.split('/').next().unwrap_or_default();
    let covers = |one: &str| {
        let range = essence(one).to_ascii_lowercase();
        let is_refused = one.split(';').skip(1).any(|parameter| {
            let weight =
                parameter.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
            weight == Some(0.0)
        });
        !is_refused && (range == media_type || range == "*/*" || range == format!("{kind}/*"))
    };
    let mut given = headers.get_all(ACCEPT).iter().peekable();
    given.peek().is_none() || given.any(|value| value.to_str().unwrap_or_default().split(',').any(covers))
}

/// A media type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

fn check_json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("something unreadable"));
    match given {
        Some(given) if essence(given).eq_ignore_ascii_case("application/json") => Ok(()),
        _ => Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            match given {
                Some(given) => format!("the body is {given}"),
                None => "the request has no Content-Type".to_owned(),
            },
            "send JSON with `Content-Type: application/json`",
        )),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would be read as an object's values in their order, which nobody means.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid(
            "the body is not what this route takes: it is a list and no object",
            "GET /v1/openapi.json describes the body of each route",
        ));
    }
    parse_any(bytes)
}

fn parse_any<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        // Its words, with line and column, name fields and types of the body and nothing of ours.
        let what = if error.is_data() { "is not what this route takes" } else { "is not JSON" };
        Problem::invalid(
            format!("the body {what}: {error}"),
            "GET /v1/openapi.json describes the body of each route",
        )
    })
}

async fn read(mut body: Body, limit: u64) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            ProblemCode::BodyTooLarge,
            format!("the body is larger than {}", format_bytes(limit)),
            "send less, or raise the limit in the [serve] table of the server's configuration",
        )
    };
    if body.size_hint().lower() > limit {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    let mut length = 0u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "a body was cut off");
            Problem::invalid("the body was cut off or is malformed", "send it whole")
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        if length > limit {
            return Err(too_large());
        }
        // Nearly every body comes in one piece, and then it need not be copied.
        if first.is_empty() {
            first = data;
        } else {
            if more.is_empty() {
                more.reserve(body.size_hint().lower() as usize + first.len() + data.len());
                more.extend_from_slice(&first);
            }
            more.extend_from_slice(&data);
        }
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use workroom_types::{CreateSession, ListSessions};

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit_and_no_further() {
        let pieces = || {
            let (sender, receiver) = tokio::sync::mpsc::channel(4);
            for piece in ["abc", "", "def", "gh"] {
                sender.try_send(Bytes::from(piece)).expect("there is room for four");
            }
            Body::new(crate::sse::ChannelBody::new(receiver))
        };
        assert_eq!(read(pieces(), 8).await.expect("it fits"), "abcdefgh");
        assert_eq!(read(pieces(), 7).await.expect_err("one byte too many").status, 413);
        assert_eq!(read(Body::from("abcd"), 4).await.expect("it fits"), "abcd");
        assert_eq!(read(Body::from("abcd"), 3).await.expect_err("announced too large").status, 413);
    }

    #[test]
    fn a_wrong_body_is_told_where_and_what() {
        let broken = parse::<CreateSession>(b"{\n  \"name\": ,\n}").expect_err("no JSON");
        assert!(broken.detail.contains("line 2 column"), "{broken}");
        let unknown = parse::<CreateSession>(b"{\"nmae\": 1}").expect_err("a misspelt field");
        assert!(unknown.detail.contains("unknown field `nmae`"), "{unknown}");
        assert_eq!(parse::<CreateSession>(b" []").expect_err("a list").status, 400);
        let twice = parse::<CreateSession>(b"{} {}").expect_err("two values");
        assert_eq!(twice.status, 400);
    }

    #[test]
    fn a_wrong_query_is_told_what() {
        let list = |text: &'static str| query::<ListSessions>(&Uri::from_static(text));
        assert_eq!(list("/v1/sessions?limit=7").expect("a limit").limit, Some(7));
        assert_eq!(list("/v1/sessions?").expect("nothing asked"), ListSessions::default());
        for wrong in ["/?limit=many", "/?colour=red", "/?state=asleep", "/?limit=1&limit=2", "/?limit=-1"] {
            let problem = list(wrong).expect_err(wrong);
            assert_eq!(problem.status, 400, "{wrong}");
            assert!(!problem.detail.contains("Failed to"), "{problem}");
        }
        assert!(query::<Nothing>(&Uri::from_static("/?a=b")).is_err());
    }

    #[test]
    fn flags_may_be_numbers() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        #[serde(default)]
        struct Flags {
            root: bool,
            recursive: Option<bool>,
        }
        let flags = |text: &'static str| query::<Flags>(&Uri::from_static(text)).ok();
        assert_eq!(flags("/?root=1&recursive=0"), Some(Flags { root: true, recursive: Some(false) }));
        assert_eq!(flags("/?root=true"), Some(Flags { root: true, recursive: None }));
        assert_eq!(flags("/?root=yes"), None);
    }

    #[test]
    fn a_files_name_is_any_bytes() {
        assert_eq!(file_part("/v1/sessions/a/files/x/y%20z"), Some("x/y%20z"));
        assert_eq!(file_part("/v1/sessions/a/files//etc"), Some("/etc"));
        assert_eq!(file_part("/v1/sessions/a/files"), None);
        assert_eq!(file_part("/v1/sessions/a/private/files"), None);
        assert_eq!(path_text(b"caf\xc3\xa9 \xff \\xfe"), "café \\xff \\xfe");
    }

    #[test]
    fn a_wait_is_seconds() {
        let wait = |text| WaitQuery { wait: Some(text) }.duration();
        assert_eq!(wait(0.5).expect("half a second"), Some(Duration::from_millis(500)));
        assert_eq!(wait(0.0).expect("no wait"), None);
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 86_401.0, 1e300] {
            assert!(wait(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_json_is_taken_for_json() {
        let check =
            |value| check_json_type(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]));
        assert!(check("application/json").is_ok());
        assert!(check("Application/JSON; charset=utf-8").is_ok());
        for wrong in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            assert_eq!(check(wrong).expect_err(wrong).status, 415);
        }
        assert_eq!(check_json_type(&HeaderMap::new()).expect_err("none").status, 415);
    }

    #[test]
    fn what_is_accepted_is_found_among_others() {
        let accept = |value, wanted| {
            accepts(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]), wanted)
        };
        assert!(accept("text/html, text/event-stream;q=0.9", "text/event-stream"));
        assert!(!accept("*/*", "text/event-stream"));
        assert!(!accepts(&HeaderMap::new(), "application/json"));
    }

    #[test]
    fn what_is_allowed_is_all_that_is_not_excluded() {
        let allow = |value| {
            allows(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]), "text/event-stream")
        };
        for takes in [
            "*/*",
            "text/*",
            "text/html, text/event-stream",
            "application/json, */*;q=0.1",
            "Text/Event-Stream",
        ] {
            assert!(allow(takes), "{takes}");
        }
        for refuses in ["application/json", "text/html", "image/*", "*/*;q=0", "text/event-stream; q=0.0", ""]
        {
            assert!(!allow(refuses), "{refuses}");
        }
        assert!(allows(&HeaderMap::new(), "text/event-stream"));
    }
}
