//! Connections to ports of a room: made by its guest in the room's own network, awaited here.

use super::{Published, not_published};
use crate::actor::{Ask, Handle};
use crate::sessions;
use crate::shared::Shared;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use workroom_proto::{Answer, Question};
use workroom_types::{Problem, ProblemCode, SessionState};

/// How long a server in the room may leave a connection unanswered: one whose queue is full.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection's place among those of its session and of all. Held for as long as it is open.
pub(super) struct Place {
    published: Arc<Published>,
    _places: [OwnedSemaphorePermit; 2],
}

impl Place {
    /// `None` if there are too many.
    pub(super) fn take(shared: &Shared, published: &Arc<Published>) -> Option<Place> {
        let of_session = published.places.clone().try_acquire_owned();
        let of_all = shared.ports.places.clone().try_acquire_owned();
        match (of_session, of_all) {
            (Ok(one), Ok(other)) => {
                published.connections.fetch_add(1, Relaxed);
                Some(Place { published: published.clone(), _places: [one, other] })
            }
            _ => {
                published.refused.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.published.connections.fetch_sub(1, Relaxed);
    }
}

/// Tells when a connection has to end: its port is unpublished, or its room is gone.
pub struct Cut {
    words: watch::Receiver<bool>,
    _place: Place,
}

impl Cut {
    pub async fn happened(&mut self) {
        let _ = self.words.changed().await;
    }
}

/// A connection to a port of a room.
pub struct RoomConnection {
    pub stream: TcpStream,
    /// To be kept as long as the stream is.
    pub cut: Cut,
}

/// Finds a place, and connects.
pub(super) async fn connect(
    shared: &Arc<Shared>,
    published: &Arc<Published>,
) -> Result<RoomConnection, Problem> {
    let place = Place::take(shared, published).ok_or_else(|| {
        let most = shared.config.ports.connections;
        let detail = format!("the session's ports have {most} connections, or the server has too many");
        Problem::limit("connections", detail, "close some").retry_after(1)
    })?;
    connect_at(shared, published, place).await
}

pub(super) async fn connect_at(
    shared: &Arc<Shared>,
    published: &Arc<Published>,
    place: Place,
) -> Result<RoomConnection, Problem> {
    // Before the room is asked: its end is not to be missed.
    let cut = Cut { words: published.withdrawn.subscribe(), _place: place };
    let (session, port) = (&published.session, published.record.port);
    if *published.withdrawn.borrow() {
        return Err(not_published(port));
    }
    // One without an owner has no room.
    let handle = shared.owner_of(session).ok_or_else(|| not_running(SessionState::Stopped))?;
    let state = handle.session().state;
    if !matches!(state, SessionState::Starting | SessionState::Running | SessionState::WaitingForInput) {
        return Err(not_running(state));
    }
    for v6 in [false, true] {
        if let Some(stream) = try_connect(&handle, session, port, v6).await? {
            return Ok(RoomConnection { stream, cut });
        }
    }
    Err(Problem::new(
        ProblemCode::NothingListens,
        format!("nothing listens on port {port} in the room"),
        "start a server there, on its loopback or on all addresses",
    ))
}

/// `None`: nobody is there.
async fn try_connect(
    handle: &Handle,
    session: &str,
    port: u16,
    v6: bool,
) -> Result<Option<TcpStream>, Problem> {
    let question = Question::Connect { port, v6 };
    let (answer, fds) = sessions::ask(handle, session, |reply| Ask::Guest { question, reply }).await?;
    match (answer, fds.into_iter().next()) {
        (Answer::Connected, Some(socket)) => Ok(established(socket).await.ok()),
        _ => Ok(None),
    }
}

/// Waits for a connection that is on its way.
async fn established(socket: OwnedFd) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    let stream = TcpStream::from_std(socket)?;
    tokio::time::timeout(PATIENCE, stream.writable()).await??;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => {
            // What is passed on is passed on at once.
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}

fn not_running(state: SessionState) -> Problem {
    Problem {
        state: Some(state),
        ..Problem::new(
            ProblemCode::WrongState,
            format!("the session is {}: nobody is there to connect to", state.as_str()),
            "start or resume it first; a connection does not",
        )
    }
}
