//! Sockets: accepting connections, serving them, and letting them end.

use crate::app::{App, Stopping};
use crate::auth::Peer;
use crate::config::ServerConfig;
use crate::preview::{self, Asked};
use crate::routes;
use crate::vigil::Vigil;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tower::Service;
use workroom_engine::Engine;

/// Also how long a kept connection may be idle: the wait for the next request's head counts.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);
const LARGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 100;
/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where the server is reached.
#[derive(Default)]
pub struct Listeners {
    pub tcp: Vec<TcpListener>,
    pub unix: Vec<UnixListener>,
}

/// Serves until `shutdown`, then lets what is under way end, for `config.drain` at most. Event streams end at
/// once, and their readers resume elsewhere. Rooms go on.
pub async fn run(
    config: ServerConfig,
    engine: Engine,
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stop, stopping) = Stopping::channel();
    let (drain, connections) = (config.drain, config.connections);
    let tcp_port = listeners.tcp.first().and_then(|first| Some(first.local_addr().ok()?.port()));
    let app = Arc::new(App::new(config, engine, stopping.clone(), tcp_port));
    let router = routes::router(app.clone());
    let awake = Vigil::new(app.engine.stays_awake());
    accept(Some(app), (router, awake), (stop, stopping), listeners, (drain, connections), shutdown).await;
    Ok(())
}

/// Serves one router alone: none of the API, no previews.
pub(crate) async fn run_router(
    (router, stays_awake): (Router, bool),
    (drain, connections): (Duration, usize),
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
) {
    let router = (router, Vigil::new(stays_awake));
    accept(None, router, Stopping::channel(), listeners, (drain, connections), shutdown).await;
}

async fn accept(
    app: Option<Arc<App>>,
    (router, awake): (Router, Vigil),
    (stop, stopping): (watch::Sender<bool>, Stopping),
    listeners: Listeners,
    (drain, connections): (Duration, usize),
    shutdown: impl Future<Output = ()>,
) {
    // Rooms need descriptors too: connections never take more than a quarter of them, on each listener.
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let share = descriptors.map_or(usize::MAX, |all| (all / 4) as usize);
    let connections = connections.min(share).max(1);
    let awake = Arc::new(awake);
    let keeper = awake.clone();
    tokio::spawn(async move { keeper.keep().await });
    // Nothing is sent: it closes when the last connection has dropped its end.
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
    let host = Host { app, router, stopping, awake, alive };
    for listener in listeners.tcp {
        tokio::spawn(accept_tcp(host.clone(), listener, Arc::new(Semaphore::new(connections))));
    }
    for listener in listeners.unix {
        tokio::spawn(accept_unix(host.clone(), listener, Arc::new(Semaphore::new(connections))));
    }
    drop(host);
    shutdown.await;
    // There are receivers as long as there are connections; none is fine too.
    let _ = stop.send(true);
    if tokio::time::timeout(drain, all_ended.recv()).await.is_err() {
        tracing::warn!(
            seconds = drain.as_secs(),
            "requests were still under way when the time to end them was over"
        );
    }
}

#[derive(Clone)]
struct Host {
    /// Whose previews are served beside the router.
    app: Option<Arc<App>>,
    router: Router,
    stopping: Stopping,
    awake: Arc<Vigil>,
    /// Held by every connection.
    alive: mpsc::Sender<()>,
}

async fn accept_tcp(mut host: Host, listener: TcpListener, places: Arc<Semaphore>) {
    while let Some((place, accepted)) = next(&mut host.stopping, &places, listener.accept()).await {
        let Some((stream, remote)) = survived(accepted).await else { continue };
        // Answers are written whole: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        if let Ok(local) = stream.local_addr() {
            let peer = Peer::Tcp { local: local.ip(), remote: remote.ip() };
            tokio::spawn(serve(host.clone(), stream, peer, place));
        }
    }
}

async fn accept_unix(mut host: Host, listener: UnixListener, places: Arc<Semaphore>) {
    while let Some((place, accepted)) = next(&mut host.stopping, &places, listener.accept()).await {
        let Some((stream, _)) = survived(accepted).await else { continue };
        match stream.peer_cred() {
            Ok(peer) => {
                let peer = Peer::Unix { uid: peer.uid() };
                tokio::spawn(serve(host.clone(), stream, peer, place));
            }
            Err(error) => tracing::warn!(%error, "the kernel does not say who is on the unix socket"),
        }
    }
}

/// The next connection once there is a place for it; `None` when the server ends.
async fn next<T>(
    stopping: &mut Stopping,
    places: &Arc<Semaphore>,
    accept: impl Future<Output = io::Result<T>>,
) -> Option<(OwnedSemaphorePermit, io::Result<T>)> {
    tokio::select! {
        () = stopping.begun() => None,
        accepted = async {
            let place = places.clone().acquire_owned().await.ok()?;
            Some((place, accept.await))
        } => accepted,
    }
}

/// A connection that failed before it was ours is its peer's affair; a machine without descriptors needs a pause.
async fn survived<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(connection) => Some(connection),
        Err(error) => {
            let of_peer =
                matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset);
            if !of_peer {
                tracing::warn!(%error, "no connection can be accepted for a moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            None
        }
    }
}

/// A connection's place among all. Held by whoever the connection was handed over to, too.
#[derive(Clone)]
pub(crate) struct Place {
    _place: Arc<(OwnedSemaphorePermit, mpsc::Sender<()>)>,
}

async fn serve<S>(host: Host, stream: S, peer: Peer, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host { app, router, mut stopping, awake, alive } = host;
    let place = Place { _place: Arc::new((place, alive)) };
    let kept = place.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(kept.clone());
        let (app, mut router, awake) = (app.clone(), router.clone(), awake.clone());
        async move {
            let _under_way = awake.begin(Instant::now());
            let Some(app) = app else { return router.call(request).await };
            // Before the API sees anything of it.
            match preview::asked(&request, &app.config.host_names) {
                Asked::Preview(name) => Ok(preview::serve(app, request, name).await),
                Asked::No => router.call(request).await,
            }
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_headers(MOST_HEADERS)
        .max_header_size(LARGEST_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Peers go away in the middle all the time.
        tracing::debug!(%error, "a connection ended");
    }
    drop(place);
}
