//! `/v1/sessions/{id}/usage` and `/v1/usage`: what sessions use, now, at most and over time.

use crate::call::Call;
use crate::openapi::SessionPath;
use crate::reply::{Answer, Reply};
use axum::response::IntoResponse;
use workroom_types::{ListUsage, SessionUsage, UsageList, UsageQuery};

/// Show what a session uses
///
/// Its room is looked at now. `recent` and `day` have points for times in which something happened: a room in which
/// nothing runs is not looked at. Looking does not count as activity of the session.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/usage",
    tag = "usage",
    operation_id = "get_usage",
    params(SessionPath, UsageQuery),
    responses((status = 200, description = "As it is now", body = SessionUsage)),
)]
pub(crate) async fn of_session(call: Call) -> Answer {
    let query = call.query::<UsageQuery>()?;
    Ok(Reply::ok(&call.engine().usage(&call.caller, call.id(), query).await?)?.into_response())
}

/// List what sessions with a room use
///
/// Those that the caller may see, the largest first.
#[utoipa::path(
    get,
    path = "/v1/usage",
    tag = "usage",
    operation_id = "list_usage",
    params(ListUsage),
    responses((status = 200, description = "The largest first", body = UsageList)),
)]
pub(crate) async fn list(call: Call) -> Answer {
    let query = call.query::<ListUsage>()?;
    Ok(Reply::ok(&call.engine().usage_list(&call.caller, query).await?)?.into_response())
}
