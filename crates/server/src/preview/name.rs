//! Names of previews: `PORT-SESSION.localhost`, and the same below every name that the server goes by.

use crate::host::without_port;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use workroom_types::{Problem, ProblemCode};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviewName {
    pub(crate) port: u16,
    pub(crate) session: String,
    /// The authority that the browser knows it by, in lower case: `8080-ID.localhost:7300`.
    pub(crate) authority: String,
}

/// Whether a request is for a preview.
pub(crate) enum Asked {
    /// It is for the API.
    No,
    /// It is, or was meant to be, and is for the API in no case.
    Preview(Result<PreviewName, Problem>),
}

/// Looks at every name that a request carries: one of a preview among them is enough to keep it from the API.
pub(crate) fn asked(request: &Request, names: &[String]) -> Asked {
    let hosts = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let target = request.uri().authority().map(Authority::as_str);
    let all: Vec<&str> = hosts.chain(target).collect();
    if !all.iter().any(|authority| is_shaped_like_one(authority, names)) {
        return Asked::No;
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts != 1 || !all.iter().all(|other| other.eq_ignore_ascii_case(all[0])) {
        let problem =
            Problem::invalid("the request carries several names, or no Host", "send one Host header");
        return Asked::Preview(Err(problem));
    }
    Asked::Preview(parse(all[0], names).ok_or_else(|| {
        Problem::new(
            ProblemCode::NotFound,
            "this is not the name of a preview",
            "previews are called PORT-SESSION.localhost",
        )
    }))
}

/// The labels of a name below `localhost` or a name of ours.
fn below<'a>(name: &'a str, names: &[String]) -> Option<&'a str> {
    let ours = names.iter().map(|known| known.trim_end_matches('.')).chain(["localhost"]);
    ours.filter_map(|known| {
        let at = name.len().checked_sub(known.len() + 1)?;
        let (labels, rest) = (name.get(..at)?, name.get(at..)?);
        (rest.starts_with('.') && rest[1..].eq_ignore_ascii_case(known)).then_some(labels)
    })
    // Of names that end each other, the longest one is it.
    .min_by_key(|labels| labels.len())
}

/// Without its port and the dot at its end.
fn bare(authority: &str) -> Option<&str> {
    without_port(authority).map(|host| host.strip_suffix('.').unwrap_or(host))
}

/// Whether a name could be taken for a preview's, or for one below it.
pub(crate) fn is_shaped_like_one(authority: &str, names: &[String]) -> bool {
    let is_shaped = |label: &str| {
        label
            .split_once('-')
            .is_some_and(|(port, _)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let labels = bare(authority).and_then(|name| below(name, names));
    labels.is_some_and(|labels| labels.split('.').any(is_shaped))
}

fn parse(authority: &str, names: &[String]) -> Option<PreviewName> {
    let label = below(bare(authority)?, names)?.to_ascii_lowercase();
    let (port, session) = label.split_once('-')?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_id = (1..=64).contains(&session.len()) && session.bytes().all(is_plain);
    let is_number = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number && is_id)?;
    Some(PreviewName { port, session: session.to_owned(), authority: authority.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn names() -> Vec<String> {
        vec!["rooms.example".to_owned(), "more.rooms.example.".to_owned()]
    }

    #[test]
    fn a_preview_is_named_by_port_and_session() {
        for (authority, port) in [
            ("8080-20260131-120000-0a1b2c3d.localhost:7300", 8080),
            ("1-20260131-120000-0A1B2C3D.LOCALHOST", 1),
            ("65535-20260131-120000-0a1b2c3d.rooms.example", 65535),
            ("80-20260131-120000-0a1b2c3d.more.rooms.example:443", 80),
            ("80-20260131-120000-0a1b2c3d.localhost.:80", 80),
        ] {
            let name = parse(authority, &names()).expect(authority);
            assert_eq!((name.port, name.session.as_str()), (port, "20260131-120000-0a1b2c3d"), "{authority}");
            assert!(is_shaped_like_one(authority, &names()), "{authority}");
        }
    }

    #[test]
    fn what_is_shaped_like_one_and_is_none_is_not_the_servers_name_either() {
        for authority in [
            "0-a.localhost",
            "08-a.localhost",
            "65536-a.localhost",
            "99999999999-a.localhost",
            "80-.localhost",
            "80-a_b.localhost",
            "x.80-a.localhost",
            "80-a.x.localhost:7300",
            "80-a.x.rooms.example",
        ] {
            assert_eq!(parse(authority, &names()), None, "{authority}");
            assert!(is_shaped_like_one(authority, &names()), "{authority}");
        }
        for other in
            ["localhost", "app.localhost", "a-80.localhost", "127.0.0.1:80", "rooms.example", "[::1]"]
        {
            assert!(!is_shaped_like_one(other, &names()), "{other}");
        }
        assert!(!is_shaped_like_one("80-a.evil.example", &names()), "a stranger is refused elsewhere");
    }

    fn ask(uri: &str, hosts: &[&str]) -> Asked {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        asked(&request.body(Body::empty()).expect("a request"), &names())
    }

    #[test]
    fn one_name_of_a_preview_keeps_a_request_from_the_api() {
        assert!(matches!(ask("/", &["localhost:7300"]), Asked::No));
        assert!(matches!(ask("/", &["80-a.localhost"]), Asked::Preview(Ok(_))));
        assert!(matches!(ask("http://80-a.localhost/", &["80-a.localhost"]), Asked::Preview(Ok(_))));
        for (uri, hosts) in [
            ("http://80-a.localhost/", &["localhost"][..]),
            ("http://localhost/", &["80-a.localhost"]),
            ("http://80-b.localhost/", &["80-a.localhost"]),
            ("/", &["80-a.localhost", "localhost"]),
            ("/", &["localhost", "80-a.localhost"]),
            ("/", &["80-a.localhost", "80-a.localhost"]),
            ("http://80-a.localhost/", &[]),
            ("/", &["0-a.localhost"]),
        ] {
            assert!(matches!(ask(uri, hosts), Asked::Preview(Err(_))), "{uri} {hosts:?}");
        }
    }
}
