//! A preview's request, passed on to the room and answered from there: bodies as they come, both ways.

use super::headers::{put_upgrade, towards_browser, towards_room};
use super::name::PreviewName;
use crate::app::{App, Stopping};
use crate::auth::Peer;
use crate::listen::Place;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::http::{HeaderValue, StatusCode, Uri, Version};
use axum::response::Response;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::task::JoinHandle;
use workroom_engine::{Cut, PortHandle, RoomConnection};
use workroom_types::{Problem, ProblemCode};

/// What is held of each direction of a connection that became something else.
const PIECE: usize = 64 << 10;

/// Follows the connection to the room to its end, or until it is cut; gives back what tells of that.
type Driver = JoinHandle<Option<Cut>>;

pub(super) async fn pass_on(
    app: &App,
    peer: Peer,
    mut request: Request,
    name: &PreviewName,
    port: &PortHandle,
) -> Result<Response, Problem> {
    let browser = request.extensions_mut().remove::<OnUpgrade>();
    let place = request.extensions_mut().remove::<Place>();
    let (upgrade, request) = for_room(request, name, peer)?;
    let RoomConnection { stream, cut } = port.connect().await?;
    let (mut room, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let driver: Driver = tokio::spawn(async move {
        let mut cut = cut;
        tokio::select! {
            ended = connection.with_upgrades() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to a room ended");
                }
                Some(cut)
            }
            () = cut.happened() => None,
        }
    });
    let mut response = room.send_request(request).await.map_err(|error| broken(&error))?;
    let answered = towards_browser(response.headers_mut(), name);
    if !port.is_public() {
        // Which frame a navigation is for is not always told. The room's own policy counts beside this one.
        let own_frames = HeaderValue::from_static("frame-ancestors 'self'");
        response.headers_mut().append(CONTENT_SECURITY_POLICY, own_frames);
    }
    // The room's server may speak an older version, which is its own affair.
    *response.version_mut() = Version::HTTP_11;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(browser), Some(_)) = (browser, upgrade) else {
            return Err(bad("the room's server switches to a protocol that nobody asked for"));
        };
        put_upgrade(
            response.headers_mut(),
            answered.unwrap_or_else(|| HeaderValue::from_static("websocket")),
        );
        let in_room = hyper::upgrade::on(&mut response);
        let stopping = app.stopping.clone();
        tokio::spawn(tunnel((browser, in_room), driver, place, stopping));
        return Ok(response.map(|_| Body::empty()));
    }
    Ok(response.map(Body::new))
}

/// The request as the room gets it, and what its connection is to become.
fn for_room(
    request: Request,
    name: &PreviewName,
    peer: Peer,
) -> Result<(Option<HeaderValue>, Request), Problem> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
    head.uri = path.parse::<Uri>().map_err(|_| Problem::invalid("this is not a path", ""))?;
    head.version = Version::HTTP_11;
    head.extensions.clear();
    let upgrade = towards_room(&mut head.headers, name, peer);
    if let Some(upgrade) = &upgrade {
        put_upgrade(&mut head.headers, upgrade.clone());
    }
    Ok((upgrade, Request::from_parts(head, body)))
}

/// Passes bytes on both ways, until both sides have said their last, the connection is cut, or the server ends.
async fn tunnel(
    (browser, in_room): (OnUpgrade, OnUpgrade),
    driver: Driver,
    place: Option<Place>,
    mut stopping: Stopping,
) {
    let Ok((browser, in_room)) = tokio::try_join!(browser, in_room) else { return };
    let Ok(Some(mut cut)) = driver.await else { return };
    let (mut browser, mut in_room) = (TokioIo::new(browser), TokioIo::new(in_room));
    tokio::select! {
        _ = copy_bidirectional_with_sizes(&mut browser, &mut in_room, PIECE, PIECE) => {}
        () = cut.happened() => {}
        () = stopping.begun() => {}
    }
    drop(place);
}

fn broken(error: &hyper::Error) -> Problem {
    bad(&format!("the room's server does not answer as HTTP has it: {error}"))
}

fn bad(detail: &str) -> Problem {
    let hint = "look at its log; it may have ended, or speak something else";
    Problem::new(ProblemCode::NothingListens, detail, hint)
}
