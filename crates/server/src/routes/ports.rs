//! `/v1/sessions/{id}/ports`: what listens in a room, what of it is published, and links to previews.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::{PortPath, SessionPath};
use crate::preview::{link, preview_url};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{PortList, PreviewLink, Problem, PublishPort, PublishedPort};

/// The port that a request's path names.
fn port_of(call: &Call) -> Result<u16, Problem> {
    let text = call.param("port");
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        let shown: String = text.chars().take(100).collect();
        Problem::invalid(format!("\"{shown}\" is not a port"), "give 1 to 65535")
    })
}

/// List a session's ports
///
/// What something in the room listens on now, with the process, and what is published.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/ports",
    tag = "ports",
    operation_id = "list_ports",
    params(SessionPath),
    responses((status = 200, description = "By their numbers", body = PortList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let mut ports = call.engine().ports(&call.caller, call.id()).await?;
    for published in &mut ports.published {
        published.preview = preview_url(&call, published.port);
    }
    Ok(Reply::ok(&ports)?.into_response())
}

/// Publish a port
///
/// The host listens on 127.0.0.1 and passes connections on to the room's loopback, and the port has a preview. The room
/// needs no network for this. It lasts as long as the session; connections are made only while the session runs.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/ports",
    tag = "ports",
    operation_id = "publish_port",
    params(SessionPath),
    request_body(content = PublishPort, example = json!({"port": 8080})),
    responses((status = 201, description = "It is published", body = PublishedPort)),
)]
pub(crate) async fn publish(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<PublishPort>(limit).await?;
    let id = call.id().to_owned();
    let preview = preview_url(&call, request.port);
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move {
            let mut published = engine.publish_port(caller, &id, request, permit).await?;
            published.preview = preview;
            Reply::json(StatusCode::CREATED, &published)
        })
    })
    .await
}

/// Unpublish a port
///
/// The host does not listen any more, and connections that are open are cut. Passes to its preview are good for nothing.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/ports/{port}",
    tag = "ports",
    operation_id = "unpublish_port",
    params(SessionPath, PortPath),
    responses((status = 204, description = "It is not published")),
)]
pub(crate) async fn unpublish(call: Call) -> Answer {
    call.no_query()?;
    let port = port_of(&call)?;
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { engine.unpublish_port(caller, &id, port).await.map(|()| Reply::nothing()) })
    })
    .await
}

/// Make a link to a port's preview
///
/// The link is good for a minute and for one browser, which then has access to this port of this session for some hours.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/ports/{port}/ticket",
    tag = "ports",
    operation_id = "make_preview_link",
    params(SessionPath, PortPath),
    responses((status = 201, description = "A link", body = PreviewLink)),
)]
pub(crate) async fn ticket(mut call: Call) -> Answer {
    call.no_query()?;
    call.no_body().await?;
    let port = port_of(&call)?;
    let id = call.id().to_owned();
    let preview = preview_url(&call, port);
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move {
            let (ticket, expires) = engine.preview_ticket(caller, &id, port).await?;
            let made = PreviewLink { url: link(&preview, &ticket), expires };
            // Told again as it is: a minute later it opens nothing.
            Reply::json(StatusCode::CREATED, &made)?.remembered_as(&made)
        })
    })
    .await
}
