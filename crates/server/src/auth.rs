//! Who calls, and whether it may do this at all. What it may see is the engine's to judge.

use crate::app::App;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use std::net::IpAddr;
use workroom_types::{Caller, Problem, ProblemCode};

/// The other end of a connection, as the kernel tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// `local`: the address that it connected to; `remote`: its own.
    Tcp {
        local: IpAddr,
        remote: IpAddr,
    },
    Unix {
        uid: u32,
    },
}

/// A bearer token counts wherever it is sent; without one, the unix socket's peer is who the kernel says.
pub(crate) fn who(app: &App, peer: Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    match (given.next(), given.next(), peer) {
        (None, _, Peer::Unix { uid }) => Ok(app.engine.local_caller(uid)),
        (Some(value), None, _) => {
            let token = value
                .to_str()
                .ok()
                .and_then(bearer)
                .ok_or_else(|| unauthorized("the Authorization header holds no bearer token"))?;
            app.engine
                .authenticate(token)
                .ok_or_else(|| unauthorized("the token is not known here, or no longer"))
        }
        (Some(_), Some(_), _) => Err(unauthorized("the request has more than one Authorization header")),
        (None, _, Peer::Tcp { .. }) => Err(unauthorized("the request carries no token")),
    }
}

pub(crate) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(
        ProblemCode::Unauthorized,
        detail,
        "send `Authorization: Bearer TOKEN`; the first token is in the file `token` of the state directory",
    )
}

pub(crate) fn may_call(caller: &Caller, method: &Method) -> Result<(), Problem> {
    if !caller.read_only || matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Problem::new(
        ProblemCode::Forbidden,
        format!("a read-only token may not {method}"),
        "use a token that may change things",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::Scope;

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for wrong in ["", "Bearer", "Bearer ", "Basic abc", "abc", "Bearerabc"] {
            assert_eq!(bearer(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_read_only_caller_may_only_read() {
        let mut caller = Caller { name: "token:a".into(), scope: Scope::Admin, read_only: true };
        for (method, may) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
            (Method::PUT, false),
            (Method::PATCH, false),
            (Method::DELETE, false),
            (Method::OPTIONS, false),
        ] {
            caller.read_only = true;
            assert_eq!(may_call(&caller, &method).is_ok(), may, "{method}");
            caller.read_only = false;
            assert!(may_call(&caller, &method).is_ok(), "{method}");
        }
    }
}
