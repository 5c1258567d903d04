//! `/v1/sessions/{id}/network`: what a session's network did, and the allow-list that it would have needed.

use crate::call::Call;
use crate::openapi::SessionPath;
use crate::reply::{Answer, Reply};
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use workroom_types::{NetworkProposal, NetworkView, Problem};

const MOST_CONNECTIONS: usize = 1000;

/// How much of the log is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkParams {
    /// The newest connections that are listed; 100 unless told.
    #[param(minimum = 0, maximum = 1000)]
    connections: Option<usize>,
}

/// Show a session's network
///
/// What the policy says and whether the room has it now; bytes and counts over the session's life; what was refused, by
/// which rule and how often; and the newest connections.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/network",
    tag = "network",
    operation_id = "get_network",
    params(SessionPath, NetworkParams),
    responses((status = 200, description = "As it is now", body = NetworkView)),
)]
pub(crate) async fn show(call: Call) -> Answer {
    let NetworkParams { connections } = call.query()?;
    if let Some(asked) = connections.filter(|asked| *asked > MOST_CONNECTIONS) {
        return Err(
            Problem::invalid(format!("connections {asked} is more than {MOST_CONNECTIONS}"), "").into()
        );
    }
    let view = call.engine().network(&call.caller, call.id(), connections).await?;
    Ok(Reply::ok(&view)?.into_response())
}

/// Propose a session's allow-list
///
/// The smallest policy under which all that the session has tried to reach would be allowed. Special addresses are left
/// out, and listed. It is complete after a run with mode `open`, and grows from run to run otherwise.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/network/proposal",
    tag = "network",
    operation_id = "propose_network",
    params(SessionPath),
    responses((status = 200, description = "What to set", body = NetworkProposal)),
)]
pub(crate) async fn propose(call: Call) -> Answer {
    call.no_query()?;
    let proposal = call.engine().network_proposal(&call.caller, call.id()).await?;
    Ok(Reply::ok(&proposal)?.into_response())
}
