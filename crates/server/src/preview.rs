//! Previews: what a room serves over HTTP on a published port, under a host name of its own.
//!
//! ```text
//!  GET / HTTP/1.1                              GET / HTTP/1.1
//!  Host: 8080-ID.localhost:7300  ──▶ name.rs ──▶ access.rs ──▶ headers.rs ──▶ proxy.rs ──▶  Host: localhost:8080
//!                                     whose      who may       what passes    both ways     in the room
//! ```
//!
//! A preview is a web site of whoever wrote what runs in the room: hostile to the API, to other previews, and to the
//! browser's user elsewhere. Browsers keep sites apart by their names, so each has its own, and the API answers under
//! none of them.

mod access;
mod headers;
mod name;
mod proxy;

pub(crate) use name::{Asked, asked, is_shaped_like_one};

use crate::app::App;
use crate::auth::Peer;
use crate::call::{Call, accepts};
use crate::host::without_port;
use crate::reply::Failure;
use access::Entry;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use name::PreviewName;
use std::sync::Arc;
use std::time::Instant;
use workroom_types::{Problem, ProblemCode};

/// What a ticket is called in a link.
const TICKET: &str = "workroom_ticket";

/// Answers a request for a preview.
pub(crate) async fn serve(app: Arc<App>, request: Request, asked: Result<PreviewName, Problem>) -> Response {
    let wants_page = accepts(request.headers(), "text/html");
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let host = asked.as_ref().map(|name| name.authority.clone()).unwrap_or_default();
    let response = match answer(&app, request, asked).await {
        Ok(response) => response,
        Err(problem) => refusal(problem, wants_page),
    };
    tracing::debug!(host, %method, path, status = response.status().as_u16(), "answered for a room");
    response
}

async fn answer(
    app: &Arc<App>,
    mut request: Request,
    asked: Result<PreviewName, Problem>,
) -> Result<Response, Problem> {
    let name = asked?;
    if request.method() == Method::CONNECT {
        return Err(Problem::new(ProblemCode::MethodNotAllowed, "a preview is no proxy", ""));
    }
    let peer = *request
        .extensions()
        .get::<Peer>()
        .ok_or_else(|| Problem::new(ProblemCode::Internal, "a request came from nowhere", ""))?;
    let port = match access::enter(app, peer, &mut request, &name).await? {
        Entry::Granted(port) => port,
        Entry::Answered(response) => return Ok(*response),
    };
    app.rates.take(&format!("preview {} {}", name.session, name.port), Instant::now())?;
    proxy::pass_on(app, peer, request, &name, &port).await
}

/// In words: as a page where a browser shows it, else as any problem.
fn refusal(problem: Problem, wants_page: bool) -> Response {
    let mut response = if wants_page {
        let text = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{}</title>\n<h1>{}</h1>\n<p>{}</p>\n<p>{}</p>\n",
            text(&problem.title),
            text(&problem.title),
            text(&problem.detail),
            text(&problem.hint)
        );
        let status = problem.status;
        let mut response = page.into_response();
        if let Ok(status) = status.try_into() {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        response
    } else {
        Failure::from(problem).into_response()
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Where the preview of a port is, for whoever makes this call.
pub(crate) fn preview_url(call: &Call, port: u16) -> String {
    let id = call.id();
    let host = call.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = without_port(host).unwrap_or_default();
    let is_named = call.app.config.host_names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_named && !name.eq_ignore_ascii_case("localhost") {
        return format!("{}://{port}-{id}.{}/", scheme(call.headers()), host.to_ascii_lowercase());
    }
    match call.app.tcp_port {
        Some(tcp_port) => format!("http://{port}-{id}.localhost:{tcp_port}/"),
        None => format!("http://{port}-{id}.localhost/"),
    }
}

/// As the browser has it, which may speak TLS with somebody before us.
fn scheme(headers: &HeaderMap) -> &'static str {
    let told = headers.get("x-forwarded-proto").map(HeaderValue::as_bytes).unwrap_or_default();
    if told.eq_ignore_ascii_case(b"https") { "https" } else { "http" }
}

/// A link that opens a preview once.
pub(crate) fn link(preview: &str, ticket: &str) -> String {
    format!("{preview}?{TICKET}={ticket}")
}
