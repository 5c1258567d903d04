//! Which names a request may call this server by: `Host`, and `Origin` where a browser sent it.
//!
//! A page of another site can make a browser send requests to loopback, and can make its own name resolve there.
//! It cannot choose these two headers: a name that is not ours is such a page.

use crate::preview::is_shaped_like_one;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use std::net::IpAddr;
use workroom_types::{Problem, ProblemCode};

/// `local`: the address that the connection came in on.
pub(crate) fn check_host(
    uri: &Uri,
    headers: &HeaderMap,
    local: IpAddr,
    names: &[String],
) -> Result<(), Problem> {
    let mut given = headers.get_all(HOST).iter();
    let (Some(host), None) = (given.next(), given.next()) else {
        return Err(Problem::invalid(
            "the request does not have exactly one Host header",
            "send one with the name or address that the server was reached by",
        ));
    };
    let host = host.to_str().unwrap_or_default();
    let authorities = [Some(host), uri.authority().map(Authority::as_str)];
    for authority in authorities.into_iter().flatten() {
        if !authority_is_ours(authority, local, names) {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                format!("this server does not go by the name \"{}\"", shown(authority)),
                "use localhost or the address it listens on, or start it with --host-name NAME",
            ));
        }
    }
    Ok(())
}

pub(crate) fn check_origin(
    headers: &HeaderMap,
    local: Option<IpAddr>,
    names: &[String],
) -> Result<(), Problem> {
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let loopback = IpAddr::from([127, 0, 0, 1]);
        if !authority.is_some_and(|it| authority_is_ours(it, local.unwrap_or(loopback), names)) {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                format!("pages of \"{}\" may not call this server", shown(origin)),
                "start it with --host-name NAME to allow the pages of that host",
            ));
        }
    }
    Ok(())
}

/// Pages that rooms serve on published ports come from names of loopback too, and are no friends of ours.
pub(crate) fn check_pages_of_rooms(
    headers: &HeaderMap,
    is_a_rooms: impl Fn(u16) -> bool,
) -> Result<(), Problem> {
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let port = origin.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        if port.is_some_and(&is_a_rooms) {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                format!("\"{}\" is a page that a room serves, and may not call this server", shown(origin)),
                "call from a page of your own",
            ));
        }
    }
    Ok(())
}

/// Any port will do: whoever can serve a page under our name on another port can also read our files. Rooms cannot, and
/// are told apart by [`check_pages_of_rooms`].
fn authority_is_ours(authority: &str, local: IpAddr, names: &[String]) -> bool {
    let Some(host) = without_port(authority) else { return false };
    if let Some(address) = literal_address(host) {
        return address.is_loopback() || address == local.to_canonical() || is_named(host, names);
    }
    // `example.` and `example` are the same name.
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.split('.').all(is_label)
        // Those are pages of rooms.
        && !is_shaped_like_one(name, names)
        && (name.split('.').next_back().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
            || is_named(name, names))
}

fn is_named(name: &str, names: &[String]) -> bool {
    names.iter().any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(name))
}

pub(crate) fn without_port(authority: &str) -> Option<&str> {
    let after_host = match authority.strip_prefix('[') {
        Some(rest) => authority.get(rest.find(']')? + 2..)?,
        None => authority.find(':').and_then(|colon| authority.get(colon..)).unwrap_or(""),
    };
    let port_is_right = after_host.is_empty()
        || after_host.strip_prefix(':').is_some_and(|port| port.is_empty() || port.parse::<u16>().is_ok());
    port_is_right.then(|| &authority[..authority.len() - after_host.len()])
}

fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(v6) => v6.parse().ok().map(IpAddr::V6).map(|address| address.to_canonical()),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// What a stranger sent, cut to what a log line can bear.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '"').take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const LAN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 7, 2));

    fn host(value: &'static str) -> Result<(), Problem> {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(value))]);
        check_host(&Uri::from_static("/"), &headers, LAN, &["rooms.example".to_owned()])
    }

    fn origin(value: &'static str) -> Result<(), Problem> {
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(value))]);
        check_origin(&headers, Some(LAN), &["rooms.example".to_owned()])
    }

    #[test]
    fn names_of_loopback_the_address_listened_on_and_configured_names_are_ours() {
        for ours in [
            "localhost",
            "LOCALHOST:7300",
            "localhost.",
            "a.b.localhost:80",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]",
            "[::1]:7300",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]:1",
            "192.168.7.2:7300",
            "rooms.example",
            "Rooms.Example:443",
            "rooms.example.",
            "localhost:",
        ] {
            assert!(host(ours).is_ok(), "{ours}");
        }
    }

    #[test]
    fn any_other_name_is_refused() {
        for strange in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "128.0.0.1",
            "192.168.7.3",
            "[::2]",
            "::1",
            "[::1",
            "[::1]x",
            "localhost:x",
            "localhost:99999",
            "localhost:1:2",
            "user@localhost",
            "localhost@evil",
            ".localhost",
            "a..localhost",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "0177.0.0.1",
            "xrooms.example",
            "rooms.example.evil",
            "local host",
            "8080-20260131-120000-0a1b2c3d.localhost",
            "8080-20260131-120000-0a1b2c3d.localhost:7300",
            "8080-20260131-120000-0a1b2c3d.rooms.example",
            "x.8080-a.localhost",
        ] {
            let refused = host(strange).expect_err(strange);
            assert_eq!(refused.code, ProblemCode::Forbidden, "{strange}");
        }
    }

    #[test]
    fn a_host_is_needed_and_only_one() {
        let uri = Uri::from_static("/");
        let none = check_host(&uri, &HeaderMap::new(), LAN, &[]).expect_err("no Host");
        assert_eq!(none.status, 400);
        let mut two = HeaderMap::new();
        two.append(HOST, HeaderValue::from_static("localhost"));
        two.append(HOST, HeaderValue::from_static("localhost"));
        assert_eq!(check_host(&uri, &two, LAN, &[]).expect_err("two Hosts").status, 400);
    }

    #[test]
    fn the_name_in_an_absolute_request_line_counts_too() {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        let check = |uri| check_host(&Uri::from_static(uri), &headers, LAN, &[]);
        assert!(check("http://localhost:7300/v1/sessions").is_ok());
        assert!(check("http://evil.example/v1/sessions").is_err());
    }

    #[test]
    fn pages_of_our_own_names_may_call_and_no_others() {
        for ours in
            ["http://localhost:3000", "https://rooms.example", "http://[::1]:1", "http://app.localhost"]
        {
            assert!(origin(ours).is_ok(), "{ours}");
        }
        for strange in [
            "null",
            "",
            "https://evil.example",
            "ftp://localhost",
            "localhost",
            "http://localhost.evil.example",
            "http://localhost/",
            "http://localhost/path",
            "file://",
            "http://",
            "https://rooms.example@evil",
            "http://8080-20260131-120000-0a1b2c3d.localhost:7300",
            "https://8080-20260131-120000-0a1b2c3d.rooms.example",
            "http://x.8080-a.localhost",
        ] {
            assert_eq!(origin(strange).expect_err(strange).status, 403, "{strange}");
        }
        assert!(check_origin(&HeaderMap::new(), None, &[]).is_ok(), "no Origin: not a browser's page");
    }

    #[test]
    fn pages_on_the_ports_of_rooms_may_not_call() {
        let call = |value| {
            let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(value))]);
            check_pages_of_rooms(&headers, |port| port == 20_001)
        };
        for own in ["http://localhost:3000", "http://localhost", "http://[::1]:7300", "null"] {
            assert!(call(own).is_ok(), "{own}");
        }
        for rooms in ["http://localhost:20001", "http://127.0.0.1:20001", "http://app.localhost:20001"] {
            assert_eq!(call(rooms).expect_err(rooms).status, 403);
        }
    }
}
