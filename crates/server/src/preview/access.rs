//! Who may see a preview: whoever has the session's token, or a pass that its browser got for a ticket; or everybody.
//!
//! Previews below one name are of one *site* to browsers, whatever `SameSite` says: a page of one can make the browser
//! send requests to another with that one's pass. So a pass counts only for requests of the preview's own pages and for
//! a person who opens it. Headers that pages cannot write tell which those are.

use super::name::PreviewName;
use super::{TICKET, scheme};
use crate::app::App;
use crate::auth::{self, Peer};
use crate::call::accepts;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, COOKIE, LOCATION, ORIGIN, REFERER, REFERRER_POLICY, SET_COOKIE, UPGRADE,
    USER_AGENT,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use workroom_engine::PortHandle;
use workroom_types::{Problem, ProblemCode};

/// What a browser keeps a pass as.
pub(super) const PASS: &str = "workroom_preview";

/// What our tokens begin with.
const OF_OURS: &str = "wr_";

pub(super) enum Entry {
    Granted(PortHandle),
    /// With a redirect that has a pass.
    Answered(Box<Response>),
}

/// Lets a request in, without what was shown at the door; or says why not.
pub(super) async fn enter(
    app: &App,
    peer: Peer,
    request: &mut Request,
    name: &PreviewName,
) -> Result<Entry, Problem> {
    let port = app.engine.published_port(&name.session, name.port);
    let ticket = take_ticket(request.uri_mut());
    if take_own_token(app, peer, request, name).await? {
        return port.map(Entry::Granted).ok_or_else(|| not_published(name.port));
    }
    let Some(port) = port else { return Err(no_access(false)) };
    let (method, headers) = (request.method(), request.headers());
    let has_pass =
        || is_its_own(method, headers, &name.authority) && passes(headers).any(|it| port.admits(it));
    if let Some(ticket) = ticket {
        let pass = if method == Method::GET { port.redeem(&ticket) } else { None };
        return match pass {
            Some(pass) => Ok(redirect(request, Some(pass))),
            None if method == Method::GET && (port.is_public() || has_pass()) => Ok(redirect(request, None)),
            None => Err(no_access(true)),
        };
    }
    if port.is_public() || has_pass() {
        return Ok(Entry::Granted(port));
    }
    Err(no_access(false))
}

fn no_access(had_ticket: bool) -> Problem {
    let detail = match had_ticket {
        true => "this link was used before, or its minute is over",
        false => "this preview is not public, and the request shows no pass to it",
    };
    Problem::new(
        ProblemCode::Unauthorized,
        detail,
        "open a new link: `workroom port SESSION open PORT` prints one; or send `Authorization: Bearer TOKEN`",
    )
}

fn not_published(port: u16) -> Problem {
    let detail = format!("port {port} of this session is not published");
    Problem::new(ProblemCode::NotFound, detail, "publish it first: `workroom port SESSION publish PORT`")
}

/// Whether the caller shows a token of ours that reaches the session, which is then taken off the request. What else is
/// in that header is the room's affair.
async fn take_own_token(
    app: &App,
    peer: Peer,
    request: &mut Request,
    name: &PreviewName,
) -> Result<bool, Problem> {
    let headers = request.headers();
    let is_ours = |value: &HeaderValue| {
        value.to_str().ok().and_then(auth::bearer).is_some_and(|it| it.starts_with(OF_OURS))
    };
    let has_ours = headers.get_all(AUTHORIZATION).iter().any(is_ours);
    let is_local = matches!(peer, Peer::Unix { .. }) && !headers.contains_key(AUTHORIZATION);
    if !has_ours && !is_local {
        return Ok(false);
    }
    let caller = auth::who(app, peer, headers)?;
    auth::may_call(&caller, request.method())?;
    if caller.read_only && headers.contains_key(UPGRADE) {
        return Err(Problem::new(
            ProblemCode::Forbidden,
            "a read-only token may not open a two-way connection",
            "use a token that may change things",
        ));
    }
    app.engine.get(&caller, &name.session).await?;
    request.headers_mut().remove(AUTHORIZATION);
    Ok(true)
}

/// Every value that comes under the pass's name: others may have set one for all names below ours.
fn passes(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name.trim() == PASS).then(|| value.trim())
    })
}

/// Whether a request with a pass is of the preview's own pages, or of a person who opens it.
fn is_its_own(method: &Method, headers: &HeaderMap, authority: &str) -> bool {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let opens = [&Method::GET, &Method::HEAD].contains(&method)
        && header("sec-fetch-mode") == Some("navigate")
        && header("sec-fetch-dest") == Some("document");
    let from_here = match header("sec-fetch-site") {
        None => says_nothing_against_it(headers, authority),
        Some("same-origin" | "none") => true,
        Some(_) => opens,
    };
    let mut origins = headers.get_all(ORIGIN).iter().map(|origin| origin.to_str().unwrap_or("?"));
    from_here
        && origins.all(|origin| {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
                // Pages that keep their address to themselves.
                || origin == "null" && header("sec-fetch-site") == Some("same-origin")
        })
}

/// Whether a request that does not say whose it is may be the preview's own: old browsers say nothing, and no browser does over
/// plain HTTP for names other than `localhost`. One that comes without `Origin` is a navigation, whose answer is shown in
/// frames of its own pages alone, or takes in a script, a style, a picture: then the page that does is to be known.
fn says_nothing_against_it(headers: &HeaderMap, authority: &str) -> bool {
    let header = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    let is_own_page = |url: &str| {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
        rest.split('/').next().is_some_and(|host| host.eq_ignore_ascii_case(authority))
    };
    let is_a_browser = header(USER_AGENT).is_some_and(|agent| agent.starts_with("Mozilla/"));
    !is_a_browser
        || headers.contains_key(ORIGIN)
        || accepts(headers, "text/html")
        || header(REFERER).is_some_and(is_own_page)
}

/// Takes the ticket out of a link: it is not the room's to see.
fn take_ticket(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let is_ticket = |pair: &&str| pair.split('=').next() == Some(TICKET);
    let ticket = query.split('&').find(is_ticket)?.split_once('=').map_or("", |(_, value)| value).to_owned();
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_ticket(pair)).collect();
    let rest = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    if let Ok(without) = format!("{}{rest}", uri.path()).parse() {
        *uri = without;
    }
    Some(ticket)
}

/// To the same place without the ticket, with a pass that is for this very name.
fn redirect(request: &Request, pass: Option<(String, u64)>) -> Entry {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let target = request.uri().path_and_query().map_or("/", |it| it.as_str());
    // `//name` would be another server's.
    let target = match target.as_bytes().get(1) {
        Some(b'/' | b'\\') => format!("/.{target}"),
        _ => target.to_owned(),
    };
    let headers = response.headers_mut();
    if let Ok(target) = HeaderValue::from_str(&target) {
        headers.insert(LOCATION, target);
    }
    if let Some((pass, seconds)) = pass {
        let secure = if scheme(request.headers()) == "https" { "; Secure" } else { "" };
        // Lax: it comes along when the link was opened from another site.
        let cookie = format!("{PASS}={pass}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.insert(SET_COOKIE, cookie);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Entry::Answered(Box::new(response))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    const OWN: &str = "8080-a.localhost:7300";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn counts(method: Method, pairs: &[(&'static str, &'static str)]) -> bool {
        is_its_own(&method, &headers(pairs), OWN)
    }

    #[test]
    fn a_pass_counts_for_its_own_pages_and_for_people() {
        assert!(counts(Method::GET, &[]), "a program");
        assert!(counts(Method::GET, &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]));
        assert!(counts(
            Method::POST,
            &[("sec-fetch-site", "same-origin"), ("origin", "http://8080-a.localhost:7300")]
        ));
        assert!(counts(Method::POST, &[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(counts(Method::GET, &[("origin", "https://8080-A.localhost:7300")]), "a WebSocket");
        let opened = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(counts(Method::GET, &opened), "a link of another site");
    }

    #[test]
    fn a_pass_does_not_count_for_pages_of_others() {
        for pairs in [
            &[("origin", "http://8081-a.localhost:7300")][..],
            &[("origin", "http://8080-b.localhost:7300")],
            &[("origin", "http://8080-a.localhost:20000")],
            &[("origin", "http://localhost:7300")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
            &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
            &[
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "websocket"),
                ("sec-fetch-dest", "websocket"),
            ],
            &[("sec-fetch-site", "same-site"), ("origin", "null")],
            &[("origin", "http://8080-a.localhost:7300"), ("sec-fetch-site", "same-site")],
        ] {
            assert!(!counts(Method::GET, pairs), "{pairs:?}");
        }
        let posted =
            [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert!(!counts(Method::POST, &posted), "a form of another page");
    }

    #[test]
    fn a_browser_that_does_not_say_whose_a_request_is_names_the_page_that_takes_something_in() {
        const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        let own = ("referer", "http://8080-A.localhost:7300/x");
        assert!(counts(Method::GET, &[BROWSER, ("accept", "text/html,*/*;q=0.8")]), "a navigation");
        assert!(counts(Method::GET, &[BROWSER, ("accept", "*/*"), own]));
        assert!(counts(Method::GET, &[BROWSER, ("origin", "http://8080-a.localhost:7300")]), "a WebSocket");
        for referer in [
            "",
            "?",
            "http://8080-b.localhost:7300/",
            "http://8080-a.localhost:7300.evil.example/",
            "http://8080-a.localhost:7300@evil.example/",
            "http://8080-a.localhost:20000/",
        ] {
            assert!(!counts(Method::GET, &[BROWSER, ("accept", "*/*"), ("referer", referer)]), "{referer}");
        }
        assert!(!counts(Method::GET, &[BROWSER, ("accept", "*/*")]), "a page that hides");
    }

    #[test]
    fn a_ticket_is_taken_out_of_a_link() {
        let take = |text: &str| {
            let mut uri: Uri = text.parse().expect("a link");
            (take_ticket(&mut uri), uri.to_string())
        };
        assert_eq!(take("/a?x=1"), (None, "/a?x=1".into()));
        assert_eq!(take("/?workroom_ticket=t"), (Some("t".into()), "/".into()));
        assert_eq!(take("/a?x=1&workroom_ticket=t&y=2"), (Some("t".into()), "/a?x=1&y=2".into()));
        assert_eq!(take("/a?workroom_ticket=t&workroom_ticket=u"), (Some("t".into()), "/a".into()));
        assert_eq!(take("/a?workroom_ticket"), (Some(String::new()), "/a".into()));
    }

    #[test]
    fn a_redirect_stays_here() {
        for (asked, told) in [("/a/b?c", "/a/b?c"), ("//evil.example/x", "/.//evil.example/x")] {
            let request = Request::builder().uri(asked).body(Body::empty()).expect("a request");
            let Entry::Answered(response) = redirect(&request, None) else { panic!("a redirect") };
            assert_eq!(response.headers()[LOCATION], told);
        }
    }

    #[test]
    fn every_pass_of_a_request_is_looked_at() {
        let mut map = headers(&[("cookie", "a=b; workroom_preview=one;workroom_preview=two")]);
        map.append(COOKIE, HeaderValue::from_static("workroom_preview=three; xworkroom_preview=no"));
        assert_eq!(passes(&map).collect::<Vec<_>>(), ["one", "two", "three"]);
    }
}
