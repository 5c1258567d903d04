//! Which headers pass between a browser and a room, and how they are changed.

use super::access::PASS;
use super::name::PreviewName;
use super::scheme;
use crate::auth::Peer;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, LOCATION, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// What is between two ends of one connection, beside what `Connection` names.
const OF_ONE_CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// What would reach beyond the preview's own name: the data of others below the same one, other ports, other schemes.
const REACH_BEYOND: [&str; 3] = ["clear-site-data", "alt-svc", "strict-transport-security"];

/// Takes off what concerns one connection only; what it is to become, if it is to become something.
pub(super) fn take_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let words = |headers: &HeaderMap, name: HeaderName| -> Vec<String> {
        let all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        all.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect()
    };
    let named = words(headers, CONNECTION);
    let upgrade = headers.get(UPGRADE).cloned().filter(|_| named.iter().any(|word| word == "upgrade"));
    let takes_trailers = words(headers, TE).iter().any(|word| word == "trailers");
    for name in named.iter().map(String::as_str).chain(OF_ONE_CONNECTION) {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.remove(name);
        }
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    upgrade
}

/// Says again what a connection is to become.
pub(super) fn put_upgrade(headers: &mut HeaderMap, upgrade: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, upgrade);
}

/// A request's headers as the room gets them: those of somebody in the room who asks for `localhost`.
pub(super) fn towards_room(headers: &mut HeaderMap, name: &PreviewName, peer: Peer) -> Option<HeaderValue> {
    // How long a body is that comes in chunks is not known before.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let upgrade = take_hop_by_hop(headers);
    // It was asked for of us, and we ask for the body when the room reads it.
    headers.remove(EXPECT);
    take_pass(headers);
    let proto = scheme(headers);
    headers.insert("x-forwarded-proto", HeaderValue::from_static(proto));
    if let Some(host) = headers.insert(HOST, text(format!("localhost:{}", name.port))) {
        headers.insert("x-forwarded-host", host);
    }
    if let Peer::Tcp { remote, .. } = peer {
        let before = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
        let chain = before.map_or(remote.to_string(), |before| format!("{before}, {remote}"));
        headers.insert("x-forwarded-for", text(chain));
    }
    upgrade
}

fn text(text: String) -> HeaderValue {
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The room has no use for the pass to itself.
fn take_pass(headers: &mut HeaderMap) {
    let is_pass = |pair: &[u8]| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(PASS.as_bytes())
    };
    let kept: Vec<HeaderValue> = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| {
            let pairs = value.as_bytes().split(|byte| *byte == b';').filter(|pair| !is_pass(pair));
            let kept = pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()).collect::<Vec<_>>();
            HeaderValue::from_bytes(&kept.join(&b"; "[..])).ok().filter(|kept| !kept.is_empty())
        })
        .collect();
    headers.remove(COOKIE);
    kept.into_iter().for_each(|value| {
        headers.append(COOKIE, value);
    });
}

/// An answer's headers as the browser gets them: nothing in them reaches beyond the preview's own name.
pub(super) fn towards_browser(headers: &mut HeaderMap, name: &PreviewName) -> Option<HeaderValue> {
    let upgrade = take_hop_by_hop(headers);
    for name in REACH_BEYOND {
        headers.remove(name);
    }
    // Two pages below one name can agree to be of one origin, by `document.domain`, unless they are told not to.
    headers.insert("origin-agent-cluster", HeaderValue::from_static("?1"));
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().filter_map(own_cookie).collect();
    headers.remove(SET_COOKIE);
    cookies.into_iter().for_each(|cookie| {
        headers.append(SET_COOKIE, cookie);
    });
    if let Some(location) = headers.get(LOCATION).and_then(|value| inside(value, name.port)) {
        headers.insert(LOCATION, location);
    }
    upgrade
}

/// A cookie for this very name: for no others below the same one, and not in place of the pass.
fn own_cookie(cookie: &HeaderValue) -> Option<HeaderValue> {
    let named = |part: &[u8], wanted: &str| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes())
    };
    let parts: Vec<&[u8]> = cookie.as_bytes().split(|byte| *byte == b';').collect();
    if parts.first().is_some_and(|first| named(first, PASS)) {
        return None;
    }
    let is_own = |(at, part): &(usize, &&[u8])| *at == 0 || !named(part, "domain");
    let kept: Vec<&[u8]> = parts.iter().enumerate().filter(is_own).map(|(_, part)| *part).collect();
    HeaderValue::from_bytes(&kept.join(&b';')).ok()
}

/// Where a server sends a browser that it believes to be in the room: the same place, as seen from outside.
fn inside(location: &HeaderValue, port: u16) -> Option<HeaderValue> {
    let location = location.to_str().ok()?;
    let rest = location.strip_prefix("http://").or_else(|| location.strip_prefix("https://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, at) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    if !matches!(host, "localhost" | "127.0.0.1" | "[::1]") || at.parse() != Ok(port) {
        return None;
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // `//name` would be another server's.
    let path = if path.starts_with("//") { format!("/.{path}") } else { path };
    HeaderValue::from_str(&path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        lines.sort();
        lines
    }

    fn name() -> PreviewName {
        PreviewName { port: 8080, session: "a".into(), authority: "8080-a.localhost:7300".into() }
    }

    const PEER: Peer = Peer::Tcp {
        local: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        remote: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    };

    #[test]
    fn a_room_gets_a_request_as_from_within() {
        let mut map = headers(&[
            ("host", "8080-a.localhost:7300"),
            ("connection", "keep-alive, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("expect", "100-continue"),
            ("cookie", "a=1; workroom_preview=secret; b=2"),
            ("cookie", "WORKROOM_PREVIEW=secret"),
            ("x-forwarded-for", "10.0.0.1"),
            ("origin", "http://elsewhere.example"),
        ]);
        assert_eq!(towards_room(&mut map, &name(), PEER), None);
        assert_eq!(
            shown(&map),
            [
                "cookie: a=1; b=2",
                "host: localhost:8080",
                "origin: http://elsewhere.example",
                "x-forwarded-for: 10.0.0.1, 127.0.0.1",
                "x-forwarded-host: 8080-a.localhost:7300",
                "x-forwarded-proto: http",
            ]
        );
    }

    #[test]
    fn an_upgrade_is_told_on_and_only_where_it_was_meant() {
        let mut map = headers(&[("host", "x"), ("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(towards_room(&mut map, &name(), PEER).expect("an upgrade"), "websocket");
        assert!(!map.contains_key("upgrade") && !map.contains_key("connection"));
        let mut map = headers(&[("host", "x"), ("upgrade", "websocket"), ("te", "gzip, trailers")]);
        assert_eq!(towards_room(&mut map, &name(), PEER), None);
        assert_eq!(map["te"], "trailers");
    }

    #[test]
    fn a_body_in_chunks_has_no_other_length() {
        let mut map = headers(&[("host", "x"), ("transfer-encoding", "chunked"), ("content-length", "5")]);
        towards_room(&mut map, &name(), PEER);
        assert!(!map.contains_key("content-length") && !map.contains_key("transfer-encoding"), "{map:?}");
    }

    #[test]
    fn an_answer_reaches_no_further_than_its_name() {
        let mut map = headers(&[
            ("set-cookie", "a=1; Domain=localhost; Path=/; HttpOnly"),
            ("set-cookie", "domain=kept; path=/x;  DOMAIN = .localhost"),
            ("set-cookie", "workroom_preview=forged; Path=/"),
            ("clear-site-data", "\"*\""),
            ("alt-svc", "h2=\":20000\""),
            ("strict-transport-security", "max-age=1"),
            ("origin-agent-cluster", "?0"),
            ("connection", "close"),
            ("content-type", "text/plain"),
        ]);
        towards_browser(&mut map, &name());
        assert_eq!(
            shown(&map),
            [
                "content-type: text/plain",
                "origin-agent-cluster: ?1",
                "set-cookie: a=1; Path=/; HttpOnly",
                "set-cookie: domain=kept; path=/x",
            ]
        );
    }

    #[test]
    fn a_redirect_within_the_room_is_one_within_the_preview() {
        for (told, seen) in [
            ("http://localhost:8080/a?b", Some("/a?b")),
            ("http://127.0.0.1:8080", Some("/")),
            ("https://localhost:8080?x", Some("/?x")),
            ("http://localhost:8080//evil.example", Some("/.//evil.example")),
            ("http://localhost:8081/a", None),
            ("http://localhost/a", None),
            ("http://evil.example:8080/a", None),
            ("/a", None),
        ] {
            let found = inside(&HeaderValue::from_static(told), 8080);
            assert_eq!(found, seen.map(HeaderValue::from_static), "{told}");
        }
    }
}
