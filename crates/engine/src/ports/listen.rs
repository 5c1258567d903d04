//! The host's side of a published port: a listener on loopback, and what becomes of its connections.

use super::Published;
use super::connect::{Place, connect_at};
use super::relay::{self, Broken};
use crate::shared::Shared;
use crate::state_dir::random_u32;
use rustix::net::sockopt::set_socket_linger;
use serde_json::json;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use workroom_types::{Problem, ProblemCode};

/// Where ports come from that nobody chose: the machine's own outgoing connections have others, so that after a restart
/// they are still free.
const CHOSEN: std::ops::Range<u16> = 20_000..30_000;
const TRIES: usize = 64;

/// How often a host port that another program has is tried again.
const TRY_EVERY: Duration = Duration::from_secs(2);

/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

pub(super) fn no_listener(error: io::Error) -> Problem {
    Problem::new(ProblemCode::Internal, format!("no port of the host can be listened on: {error}"), "")
}

/// Listens on this port of the host, or on one that is free.
pub(super) async fn bind(host_port: Option<u16>) -> Result<TcpListener, Problem> {
    if let Some(port) = host_port {
        return TcpListener::bind(loopback(port)).await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Problem::new(
                ProblemCode::AlreadyExists,
                format!("something listens on port {port} of the host already"),
                "choose another, or leave host_port out",
            ),
            _ => no_listener(error),
        });
    }
    for _ in 0..TRIES {
        let number = random_u32().map_err(no_listener)?;
        let port = CHOSEN.start + (number % u32::from(CHOSEN.end - CHOSEN.start)) as u16;
        if let Ok(listener) = TcpListener::bind(loopback(port)).await {
            return Ok(listener);
        }
    }
    TcpListener::bind(loopback(0)).await.map_err(no_listener)
}

/// Listens where an earlier server did; as soon as that is possible, if it is not now.
pub(super) async fn again(shared: &Arc<Shared>, published: Arc<Published>) {
    let host_port = published.record.host_port;
    match TcpListener::bind(loopback(host_port)).await {
        Ok(listener) => {
            tokio::spawn(serve(shared.clone(), published, listener));
        }
        Err(error) => {
            let reason = format!("port {host_port} of the host cannot be listened on: {error}");
            tracing::warn!(session = %published.session, reason, "a published port is not reached");
            let body = json!({ "port": published.record.port, "host_port": host_port, "reason": reason });
            published.is_deaf(Some(reason));
            shared.store.note(published.journal("server", "port.unreachable", body)).await;
            tokio::spawn(try_until_free(shared.clone(), published));
        }
    }
}

async fn try_until_free(shared: Arc<Shared>, published: Arc<Published>) {
    let host_port = published.record.host_port;
    let mut withdrawn = published.withdrawn.subscribe();
    loop {
        tokio::select! {
            _ = withdrawn.wait_for(|withdrawn| *withdrawn) => return,
            () = tokio::time::sleep(TRY_EVERY) => {}
        }
        if let Ok(listener) = TcpListener::bind(loopback(host_port)).await {
            published.is_deaf(None);
            let body = json!({ "port": published.record.port, "host_port": host_port });
            shared.store.note(published.journal("server", "port.reachable", body)).await;
            return serve(shared, published, listener).await;
        }
    }
}

/// Takes connections until the port is unpublished.
pub(super) async fn serve(shared: Arc<Shared>, published: Arc<Published>, listener: TcpListener) {
    let mut withdrawn = published.withdrawn.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = withdrawn.wait_for(|withdrawn| *withdrawn) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => match Place::take(&shared, &published) {
                Some(place) => {
                    tokio::spawn(forward(shared.clone(), published.clone(), client, place));
                }
                None => reset(client),
            },
            Err(error) => {
                tracing::debug!(%error, "a connection to a published port was lost");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn forward(shared: Arc<Shared>, published: Arc<Published>, client: TcpStream, place: Place) {
    let mut room = match connect_at(&shared, &published, place).await {
        Ok(room) => room,
        Err(problem) => {
            tracing::debug!(session = %published.session, %problem, "a connection was refused");
            return reset(client);
        }
    };
    let _ = client.set_nodelay(true);
    let relayed = tokio::select! {
        relayed = relay::both_ways(&client, &room.stream) => relayed,
        () = room.cut.happened() => Err(Broken::Off),
    };
    match relayed {
        Ok(()) => {}
        Err(Broken::Off) => {
            reset(client);
            reset(room.stream);
        }
        Err(Broken::Misled) => {
            reset(room.stream);
            relay::refuse(&client).await;
        }
    }
}

/// Closes a connection such that its peer sees that something was cut off.
fn reset(stream: TcpStream) {
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
}
