//! HTTP/1.1: requests to the proxy, and requests inside a tunnel that was opened for a name.
//!
//! Every request is read whole (its head), judged, and written anew for the server; nothing that a client sends as a
//! head reaches a server byte for byte. The server gets the `Host` that was judged. One connection to the outside is
//! kept for the next request to the same target; its own guard cuts it. The proxy follows no redirects: the client
//! does, and its next request is judged like the first.

use crate::answer::{self, Body};
use crate::dial::dial;
use crate::host::{Host, Target};
use crate::ledger::Way;
use crate::prefixed::Prefixed;
use crate::session::SessionNet;
use crate::tunnel;
use crate::upstream::{Guard, Upstream};
use crate::verdict::{Denial, Reason, SaidBy};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

/// The longest head of a request, and of an answer.
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 128;

/// Any stream of a client.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// One client's connection.
struct Exchange {
    session: Arc<SessionNet>,
    /// The target of every request, inside a tunnel; a request to the proxy names its own.
    fixed: Option<Target>,
    way: Way,
    kept: Mutex<Option<Kept>>,
    /// What the connection becomes after its last answer.
    next: StdMutex<Option<Next>>,
}

/// A connection to the outside that waits for its next request.
struct Kept {
    target: Target,
    sender: SendRequest<Incoming>,
    guard: Guard,
}

enum Next {
    Tunnel(OnUpgrade, Box<Upstream>),
    Upgrade(OnUpgrade, OnUpgrade, Guard),
}

/// Serves requests to the proxy.
pub(crate) async fn serve_proxy<S>(client: Prefixed<S>, session: Arc<SessionNet>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchange =
        Exchange { session, fixed: None, way: Way::Http, kept: Mutex::default(), next: StdMutex::default() };
    serve(client, exchange).await;
}

/// Serves requests inside a tunnel that was opened for one target, over the connection that it has.
///
/// Boxed, because what serves a tunnel may come here from here: the type of its stream would never end.
pub(crate) fn serve_fixed(
    client: Box<dyn Stream>,
    target: Target,
    upstream: Upstream,
    session: Arc<SessionNet>,
    way: Way,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let Ok(kept) = prepare(upstream).await else { return };
        let exchange = Exchange {
            session,
            fixed: Some(target),
            way,
            kept: Mutex::new(Some(kept)),
            next: StdMutex::default(),
        };
        serve(client, exchange).await;
    })
}

async fn serve<S>(client: S, exchange: Exchange)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchange = Arc::new(exchange);
    let session = exchange.session.clone();
    let service = {
        let exchange = exchange.clone();
        service_fn(move |request| {
            let exchange = exchange.clone();
            async move { Ok::<_, Infallible>(exchange.handle(request).await) }
        })
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(session.limits.first_words.max(session.limits.idle))
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .half_close(true)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    let served = connection.await;
    let next = exchange.next.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(exchange);
    match (served, next) {
        (Ok(()), Some(Next::Tunnel(client, upstream))) => {
            if let Ok(upgraded) = client.await
                && let Ok(parts) = upgraded.downcast::<TokioIo<S>>()
            {
                let client = Prefixed::new(parts.read_buf, parts.io.into_inner());
                tunnel::run(client, *upstream, &session, Way::Connect).await;
            }
        }
        (Ok(()), Some(Next::Upgrade(client, server, guard))) => {
            if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
                relay_upgraded(client, server, guard).await;
            }
        }
        _ => {}
    }
}

async fn relay_upgraded(client: Upgraded, server: Upgraded, guard: Guard) {
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    tokio::select! {
        biased;
        () = guard.until_cut() => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
    }
}

/// Makes a connection ready for requests. A task of its own drives it, until it ends or is cut.
async fn prepare(upstream: Upstream) -> Result<Kept, hyper::Error> {
    let target = upstream.line().target.clone();
    let guard = upstream.guard();
    // Each request is written with the name that was judged.
    guard.name_is_checked();
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .preserve_header_case(true)
        .handshake(TokioIo::new(upstream))
        .await?;
    let watching = guard.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = watching.until_cut() => {}
            _ = connection.with_upgrades() => {}
        }
    });
    Ok(Kept { target, sender, guard })
}

impl Exchange {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let in_json = answer::wants_json(request.headers());
        let outcome = if request.method() == Method::CONNECT {
            self.connect(request).await
        } else {
            self.forward(request).await
        };
        outcome.unwrap_or_else(|refusal| refusal.into_response(in_json))
    }

    async fn connect(&self, mut request: Request<Incoming>) -> Result<Response<Body>, answer::Refusal> {
        if self.fixed.is_some() {
            return Err(answer::Refusal::bad_request("CONNECT inside a tunnel; connect to the proxy for it"));
        }
        let text = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let target = self.read_target(&text, None, Way::Connect)?;
        let upstream = dial(&self.session, target, Way::Connect).await?;
        let client = hyper::upgrade::on(&mut request);
        self.becomes(Next::Tunnel(client, Box::new(upstream)));
        Ok(Response::new(answer::empty()))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, answer::Refusal> {
        let target = self.target_of(&request)?;
        let wants_upgrade = is_websocket(request.headers());
        let client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
        let request = rewrite(request, &target, wants_upgrade)?;
        let mut kept = self.kept.lock().await;
        let (mut response, guard) = self.send(&mut kept, target, request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = client else {
                return Err(answer::Refusal::bad_gateway("the server changes protocols unasked"));
            };
            // The connection is the upgrade's from here on.
            *kept = None;
            self.becomes(Next::Upgrade(client, hyper::upgrade::on(&mut response), guard));
            strip_hop_by_hop(response.headers_mut(), true);
        } else {
            strip_hop_by_hop(response.headers_mut(), false);
        }
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    /// Sends a request over the connection that is kept if it is for the same target, else over a new one.
    async fn send(
        &self,
        kept: &mut Option<Kept>,
        target: Target,
        mut request: Request<Incoming>,
    ) -> Result<(Response<Incoming>, Guard), answer::Refusal> {
        if let Some(mut old) = kept.take().filter(|old| old.target == target)
            && old.sender.ready().await.is_ok()
        {
            // What is kept was judged when it was made, and its guard cuts it when the rules change; this
            // request is judged nevertheless, as every request is.
            self.session.rules_now().judge_target(&target).map_err(|denial| self.denied(denial))?;
            match old.sender.try_send_request(request).await {
                Ok(response) => {
                    let guard = old.guard.clone();
                    *kept = Some(old);
                    return Ok((response, guard));
                }
                Err(mut error) => match error.take_message() {
                    // It was closed before anything was sent: a new connection may take the request.
                    Some(unsent) => request = unsent,
                    None => return Err(answer::Refusal::bad_gateway(&error.error().to_string())),
                },
            }
        }
        let upstream = dial(&self.session, target, self.way).await?;
        let mut new =
            prepare(upstream).await.map_err(|error| answer::Refusal::bad_gateway(&error.to_string()))?;
        let response = new.sender.send_request(request).await;
        let response = response.map_err(|error| answer::Refusal::bad_gateway(&error.to_string()))?;
        let guard = new.guard.clone();
        *kept = Some(new);
        Ok((response, guard))
    }

    fn target_of(&self, request: &Request<Incoming>) -> Result<Target, answer::Refusal> {
        let uri = request.uri();
        if let Some(fixed) = &self.fixed {
            return self.same_host(fixed, request);
        }
        match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(authority)) => self.read_target(authority.as_str(), Some(80), Way::Http),
            (Some(scheme), _) => Err(answer::Refusal::bad_request(&format!(
                "scheme \"{scheme}\" cannot be asked of this proxy; use CONNECT for it"
            ))),
            _ => Err(answer::Refusal::bad_request(
                "this is a proxy: ask for a whole URL such as http://example.com/, or use CONNECT or SOCKS5",
            )),
        }
    }

    /// Inside a tunnel for a name, each request must be for that name.
    fn same_host(&self, fixed: &Target, request: &Request<Incoming>) -> Result<Target, answer::Refusal> {
        let in_uri = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let in_headers = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
        for said in in_uri.into_iter().chain(in_headers) {
            let same = Target::parse(said, Some(fixed.port)).is_ok_and(|said| said.host == fixed.host);
            if !same {
                let said = match Target::parse(said, Some(fixed.port)) {
                    Ok(said) => said.host.to_string(),
                    Err(_) => said.escape_ascii().to_string().chars().take(80).collect(),
                };
                let reason = Reason::NameMismatch { said: Some(said), by: SaidBy::Http };
                return Err(self.denied(Denial { host: fixed.host.to_string(), port: fixed.port, reason }));
            }
        }
        Ok(fixed.clone())
    }

    fn read_target(&self, text: &str, port: Option<u16>, way: Way) -> Result<Target, answer::Refusal> {
        Target::parse(text, port).map_err(|error| {
            let denial = Denial::malformed(text.as_bytes(), port.unwrap_or(0), error);
            self.session.ledger.deny(way, &denial);
            denial.into()
        })
    }

    fn denied(&self, denial: Denial) -> answer::Refusal {
        self.session.ledger.deny(self.way, &denial);
        denial.into()
    }

    fn becomes(&self, next: Next) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }
}

/// The request as the server gets it: its path alone, the host that was judged, nothing that is meant for a proxy.
fn rewrite(
    mut request: Request<Incoming>,
    target: &Target,
    keep_upgrade: bool,
) -> Result<Request<Incoming>, answer::Refusal> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() =
        path.parse::<Uri>().map_err(|_| answer::Refusal::bad_request("the path is malformed"))?;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    strip_hop_by_hop(headers, keep_upgrade);
    // Both are written anew from what was really read.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.remove(HOST);
    let host = HeaderValue::from_str(&host_header(target))
        .map_err(|_| answer::Refusal::bad_request("the host is malformed"))?;
    headers.insert(HOST, host);
    Ok(request)
}

fn host_header(target: &Target) -> String {
    match (&target.host, target.port) {
        (Host::Address(std::net::IpAddr::V6(address)), 80) => format!("[{address}]"),
        (host, 80) => host.to_string(),
        _ => target.to_string(),
    }
}

/// Removes what is between two neighbours only (RFC 9110, 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap, keep_upgrade: bool) {
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(CONNECTION) {
        let words = value.as_bytes().split(|&byte| byte == b',');
        named.extend(words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok()));
    }
    for name in named {
        // A client that calls these its own would change whom or what it asks for.
        if name != HOST && name != CONTENT_LENGTH && !(keep_upgrade && name == UPGRADE) {
            headers.remove(name);
        }
    }
    for name in [CONNECTION, TE, TRANSFER_ENCODING, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    if keep_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(UPGRADE);
    }
}

/// WebSockets are passed on; what else might be upgraded to (HTTP/2 without TLS) could not be judged any more.
fn is_websocket(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(UPGRADE).iter();
    let first = values.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    first && values.next().is_none()
}
