//! Who may call. Clients of this API send no token: where none is asked for, the address that is listened on decides,
//! and what a web page would send is refused.

use super::envelope::Refusal;
use crate::app::App;
use crate::auth::Peer;
use crate::host::{check_host, check_origin, check_pages_of_rooms};
use crate::reply::Failure;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use workroom_engine::Engine;
use workroom_types::{Caller, Problem, ProblemCode, Scope};

/// What every request passes on a server without tokens.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) engine: Engine,
    pub(super) host_names: Vec<String>,
}

pub(super) async fn admit(guard: Guard, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::FORBIDDEN);
            Refusal::new(status, problem.to_string()).into_response()
        }
    }
}

impl Guard {
    fn check(&self, request: &Request) -> Result<(), Problem> {
        let local = match request.extensions().get::<Peer>() {
            Some(Peer::Tcp { local, .. }) => *local,
            _ => return Err(Problem::new(ProblemCode::Forbidden, "slots are reached over TCP", "")),
        };
        let headers = request.headers();
        check_host(request.uri(), headers, local, &self.host_names)?;
        check_origin(headers, Some(local), &self.host_names)?;
        check_pages_of_rooms(headers, |port| self.engine.is_a_rooms_port(port))
    }
}

/// On the main server, behind its gate: the slots are those of whoever the token stands for.
pub(super) async fn slots_of_caller(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(caller) = request.extensions().get::<Caller>() else {
        let problem = Problem::new(ProblemCode::Internal, "a request came without its caller", "");
        return Failure::from(problem).into_response();
    };
    if matches!(caller.scope, Scope::Session { .. }) {
        let problem = Problem::new(
            ProblemCode::Forbidden,
            "a token for one session has no slots",
            "ask with a user's or an admin token",
        );
        return Failure::from(problem).into_response();
    }
    let pool = app.slots.of(caller);
    request.extensions_mut().insert(pool);
    next.run(request).await
}
