//! What every request passes on its way to a handler, and every answer on its way back.

use crate::app::App;
use crate::auth::{self, Peer};
use crate::host::{check_host, check_origin, check_pages_of_rooms};
use crate::idempotency::key_of;
use crate::reply::{Failure, method_not_allowed};
use crate::request_id::X_REQUEST_ID;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Instant;
use workroom_types::{Caller, Problem, ProblemCode};

/// Routes that need no token: what a load balancer or a client's generator asks.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/v1/openapi.json"];

/// Questions that need a body, and so come as POST; they change nothing.
const ASKING: [&str; 4] = [
    "/v1/sessions/{id}/files/stat",
    "/v1/sessions/{id}/files/search",
    "/v1/sessions/{id}/files/usage",
    "/v1/sessions/{id}/terminals/{terminal}/wait",
];

pub(crate) async fn gate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let under_way = app.metrics.under_way();
    let id = app.ids.choose(request.headers());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let method = request.method().clone();
    let route = route.map(|route| documented(route, &method));
    let path = request.uri().path().to_owned();
    let mut response = match admit(&app, &request, route, started) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(problem) => Failure::from(problem).into_response(),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED && !response.headers().contains_key(CONTENT_TYPE) {
        let allowed = app.metrics.methods_of(route.unwrap_or_default());
        response = method_not_allowed(method.as_str(), &path, &allowed);
    }
    let status = response.status();
    let shown_id = id.to_str().unwrap_or_default();
    let elapsed = started.elapsed();
    if status.is_server_error() {
        let problem = response.extensions_mut().remove::<Problem>();
        let detail = problem.as_ref().map_or("", |problem| problem.detail.as_str());
        tracing::warn!(request = shown_id, %method, path, status = status.as_u16(), detail, "failed");
    } else {
        let micros = elapsed.as_micros() as u64;
        tracing::debug!(request = shown_id, %method, path, status = status.as_u16(), micros, "answered");
    }
    let declared = app.metrics.answered(&method, route, status, elapsed);
    // APIs of others are described by them, and not in our document.
    let is_ours = route.is_none_or(|route| !route.starts_with("/compat/"));
    if cfg!(debug_assertions) && !declared && is_ours {
        tell_undeclared(&mut response, &method, route.unwrap_or("an unknown route"), shown_id);
    }
    response.headers_mut().insert(X_REQUEST_ID, id);
    drop(under_way);
    response
}

/// The route as the document has it. A file may be called as a verb of files is: those are asked to POST, files are not.
fn documented<'a>(route: &'a str, method: &Method) -> &'a str {
    let of_files = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE].contains(method);
    match route.strip_prefix("/v1/sessions/{id}/files/") {
        Some(rest) if rest == "{*path}" || of_files => "/v1/sessions/{id}/files/{path}",
        _ => route,
    }
}

/// In the order of what costs least to say no.
fn admit(app: &App, request: &Request, route: Option<&str>, now: Instant) -> Result<Option<Caller>, Problem> {
    let headers = request.headers();
    let names = &app.config.host_names;
    let peer = *request
        .extensions()
        .get::<Peer>()
        .ok_or_else(|| Problem::new(ProblemCode::Internal, "a request came from nowhere", ""))?;
    check_ids(request.uri().path())?;
    match peer {
        Peer::Tcp { local, .. } => {
            check_host(request.uri(), headers, local, names)?;
            check_origin(headers, Some(local), names)?;
        }
        // A browser cannot come this way; the header is looked at all the same.
        Peer::Unix { .. } => check_origin(headers, None, names)?,
    }
    check_pages_of_rooms(headers, |port| app.engine.is_a_rooms_port(port))?;
    if route.is_some_and(|route| OPEN.contains(&route)) {
        return Ok(None);
    }
    let caller = auth::who(app, peer, headers)?;
    app.rates.take(&caller.name, now)?;
    if !route.is_some_and(|route| ASKING.contains(&route)) {
        auth::may_call(&caller, request.method())?;
    }
    key_of(headers)?;
    Ok(Some(caller))
}

/// Ids that we make have one alphabet; what is not of it is refused before it can become a path or a query.
fn check_ids(path: &str) -> Result<(), Problem> {
    let Some((kind, rest)) = path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')) else {
        return Ok(());
    };
    if !matches!(kind, "sessions" | "tokens") {
        return Ok(());
    }
    let id = rest.split('/').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(());
    }
    let shown: String = id.chars().take(100).collect();
    Err(Problem::invalid(
        format!("\"{shown}\" is not an id"),
        "ids have 1 to 64 lower-case letters, digits and dashes",
    ))
}

/// Tests fail on this header: the document has to name every answer that a handler gives.
fn tell_undeclared(response: &mut Response, method: &Method, route: &str, id: &str) {
    let status = response.status().as_u16();
    tracing::error!(request = id, %method, route, status, "openapi/v1.json does not declare this answer");
    if let Ok(value) = format!("{method} {route} {status}").parse() {
        response.headers_mut().insert("x-undeclared-answer", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_at_before_anything_else() {
        let long = format!("/v1/sessions/{}", "a".repeat(65));
        for wrong in [
            "/v1/sessions/",
            "/v1/sessions/A",
            "/v1/sessions/..",
            "/v1/sessions/%2e%2e/exec",
            "/v1/sessions/a_b/events",
            "/v1/sessions//exec",
            "/v1/tokens/a.b",
            &long,
        ] {
            assert_eq!(check_ids(wrong).expect_err(wrong).status, 400);
        }
        for right in [
            "/v1/sessions",
            "/v1/sessions/resolve",
            "/v1/sessions/20260131-120000-0a1b2c3d/private/Any%20Name",
            "/v1/tokens/abc",
            "/v1/events",
            "/healthz",
            "/",
        ] {
            assert!(check_ids(right).is_ok(), "{right}");
        }
    }
}
