//! Previews in a real browser: what its pages can do in their own, and that they can do nothing to others, nor to the API.
//!
//! The site in the rooms gives itself to whoever asks (`browser/site.py`), and `browser/ways.js` has every way of asking. Each of
//! them is seen to work in a page of the place itself; so one that gets nothing elsewhere was kept from it.

mod browser;
mod ports;

use browser::{Browser, Page, installed};
use ports::{has_python, preview_host, publish, publish_like};
use serde_json::{Value, json};
use std::path::PathBuf;
use workroom_testkit::types::{PublishPort, SessionState};
use workroom_testkit::{Server, Setup, TestSession, User, run};

const SITE: &str = include_str!("browser/site.py");
const WAYS: &str = include_str!("browser/ways.js");
const CALLS: &str = include_str!("browser/calls.js");

/// The browser, if all that these tests need is here.
fn prepared() -> Option<PathBuf> {
    if has_python() { installed() } else { None }
}

/// Starts a site in the room.
async fn site(session: &TestSession, port: u16, secret: &str) {
    let argv = json!(["/usr/bin/python3", "-c", SITE, port.to_string(), secret]);
    session.process(json!({ "argv": argv })).await.says("listening").await;
}

async fn link(session: &TestSession, port: u16) -> String {
    session.client().preview_link(&session.id, port).await.expect("a link").url
}

fn address(server: &Server<'_>, session: &TestSession, port: u16) -> String {
    format!("http://{}/", preview_host(server, session, port))
}

/// The name in an address, without its port.
fn host_of(place: &str) -> &str {
    place.trim_start_matches("http://").split(':').next().expect("a name")
}

/// All that the site in the room was asked so far.
async fn asked(server: &Server<'_>, session: &TestSession, port: u16) -> Vec<Value> {
    let http = server.http().host(Some(&preview_host(server, session, port)));
    http.get("/asked").await.expect(200).as_array().expect("a list").clone()
}

/// A script that knows these values by their names.
fn with(script: &str, known: &[(&str, &str)]) -> String {
    let known: Vec<String> = known.iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
    format!("{{ const {};\n{script} }}", known.join(", "))
}

/// What every way into `place` gets in this page, by its name.
async fn ways_into(page: &Page<'_>, place: &str, secret: &str) -> Vec<(String, String)> {
    let got = page.js(&with(WAYS, &[("PLACE", place), ("SECRET", secret)])).await;
    let got = got.as_object().unwrap_or_else(|| panic!("{got}"));
    got.iter().map(|(name, what)| (name.clone(), what.as_str().expect("text").to_owned())).collect()
}

async fn expect_that_all_ways_lead(page: &Page<'_>, place: &str, secret: &str) {
    let got = ways_into(page, place, secret).await;
    let closed: Vec<_> = got.iter().filter(|(_, what)| !what.contains(secret)).collect();
    assert!(got.len() > 15 && closed.is_empty(), "into {place}, from itself: {closed:?}");
}

async fn expect_that_no_way_leads(page: &Page<'_>, place: &str, secret: &str) {
    let from = page.text("location.href").await;
    let got = ways_into(page, place, secret).await;
    let open: Vec<_> = got.iter().filter(|(_, what)| what.contains(secret)).collect();
    assert!(got.len() > 15 && open.is_empty(), "into {place}, from {from}: {open:?}");
}

#[test]
fn a_link_is_opened_and_its_pages_work_as_anywhere() {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        site(&session, 8080, "rosebud").await;
        publish(&session, 8080).await;
        let (link, own) = (link(&session, 8080).await, address(&server, &session, 8080));
        let browser = Browser::start(&program, &user, &[]);
        let page = browser.page().await;

        // The ticket has become a cookie for this very name, which no script sees.
        page.open(&link).await;
        assert_eq!(page.text("location.href").await, own, "the ticket is not in the address");
        assert_eq!(page.text("document.cookie").await, "");
        assert_eq!(page.text("document.referrer").await, "");
        let cookies = browser.cookies().await;
        assert!(
            matches!(&cookies[..], [(domain, name, _)] if domain == host_of(&own) && name == "workroom_preview"),
            "{cookies:?}"
        );

        // The page, with all that belongs to it.
        assert_eq!(page.text("document.getElementById('text').innerText").await, "rosebud");
        assert_eq!(page.text("window.of_script").await, "rosebud");
        assert_eq!(page.js("document.getElementById('picture').naturalWidth").await, 77);
        let style = "getComputedStyle(document.body).getPropertyValue('--of-style')";
        assert_eq!(page.text(style).await, "rosebud");
        page.js("document.getElementById('next').click()").await;
        page.loaded().await;
        assert_eq!(page.text("location.href").await, format!("{own}deeper/next.html?x=1#y"));
        page.js("document.getElementById('back').click()").await;
        page.loaded().await;
        assert_eq!(page.text("location.href").await, format!("{own}?again"));
        page.open(&format!("{own}deeper/next.html")).await;
        expect_that_all_ways_lead(&page, &own, "rosebud").await;

        // What comes in pieces is there in pieces: the second is sent when the first has been seen.
        let in_pieces = "(async () => {
            const reader = (await fetch('/stream?wait')).body.pipeThrough(new TextDecoderStream()).getReader();
            const events = new EventSource('/events?wait');
            const event = () => new Promise(on => events.addEventListener('message', it => on(it.data), { once: true }));
            const first = [(await reader.read()).value, await event()];
            const second = event();
            await fetch('/go');
            return [...first, (await reader.read()).value, await second];
        })()";
        let pieces = ["data: first rosebud\n\n", "first rosebud", "data: second\n\n", "second"];
        assert_eq!(page.js(in_pieces).await, json!(pieces));
        let spoken = "new Promise(on => {
            const [socket, heard] = [new WebSocket(`ws://${location.host}/socket`), []];
            socket.onopen = () => socket.send('hello');
            socket.onmessage = event => { heard.push(event.data); if (heard.length == 2) on(heard); };
        })";
        assert_eq!(page.js(spoken).await, json!(["rosebud", "HELLO"]));

        // The room saw neither the ticket nor the pass, and for others there is nothing left of the link.
        for request in asked(&server, &session, 8080).await {
            let text = request.to_string();
            assert!(!text.contains("workroom_"), "{text}");
        }
        let other = browser.page_of_another().await;
        for used in [&link, &own] {
            other.open(used).await;
            let shown = other.text("document.body.innerText").await;
            assert!(
                shown.contains("workroom port SESSION open PORT") && !shown.contains("rosebud"),
                "{shown}"
            );
        }
        page.open(&link).await;
        assert_eq!(page.text("location.href").await, own, "whoever is in is sent on");
    });
}

/// A hostile session and one whose preview is private, with another private port and a public one.
struct Neighbours {
    hostile: TestSession,
    victim: TestSession,
    /// The host's port for the hostile session's.
    raw: u16,
}

impl Neighbours {
    async fn of(server: &Server<'_>) -> Neighbours {
        let (hostile, victim) = (server.session().await, server.session().await);
        site(&hostile, 8080, "mine").await;
        site(&victim, 8080, "rosebud").await;
        site(&victim, 8081, "other").await;
        site(&victim, 8082, "shown").await;
        let raw = publish(&hostile, 8080).await.host_port;
        publish(&victim, 8080).await;
        publish(&victim, 8081).await;
        publish_like(&victim, PublishPort { port: 8082, public: true, ..PublishPort::default() }).await;
        Neighbours { hostile, victim, raw }
    }

    /// Has the page's browser let in to all that are not public.
    async fn let_in(&self, page: &Page<'_>) {
        for (session, port) in self.private() {
            page.open(&link(session, port).await).await;
        }
    }

    /// Every preview that is not public.
    fn private(&self) -> [(&TestSession, u16); 3] {
        [(&self.hostile, 8080), (&self.victim, 8080), (&self.victim, 8081)]
    }

    /// What reached the victim's room that did not come from its own pages or from a person.
    async fn reached(&self, server: &Server<'_>) -> Vec<Value> {
        let mut reached = asked(server, &self.victim, 8080).await;
        reached.retain(|request| {
            let site = request["headers"]["sec-fetch-site"].as_str();
            let is_own = matches!(site, Some("same-origin" | "none"))
                || request["headers"]["x-forwarded-host"].as_str().is_some_and(|host| {
                    request["headers"]["origin"].as_str() == Some(&format!("http://{host}"))
                });
            let is_opened = request["path"] == "/opened" && request["method"] == "GET";
            !is_own && !is_opened
        });
        reached
    }
}

#[test]
fn no_page_reads_the_preview_of_another() {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let neighbours = Neighbours::of(&server).await;
        let browser = Browser::start(&program, &user, &[]);
        let page = browser.page().await;
        neighbours.let_in(&page).await;
        let at = |session, port| address(&server, session, port);
        let place = at(&neighbours.victim, 8080);
        page.open(&format!("{place}deeper/next.html")).await;
        expect_that_all_ways_lead(&page, &place, "rosebud").await;
        let raw = neighbours.raw;
        for hostile in [
            at(&neighbours.hostile, 8080),
            at(&neighbours.victim, 8081),
            at(&neighbours.victim, 8082),
            format!("http://127.0.0.1:{raw}/"),
            format!("http://localhost:{raw}/"),
        ] {
            page.open(&format!("{hostile}deeper/next.html")).await;
            expect_that_no_way_leads(&page, &place, "rosebud").await;
            assert_eq!(neighbours.reached(&server).await, [] as [Value; 0], "from {hostile}");
        }
        // What is public is for everybody, and that is known.
        page.open(&format!("{}deeper/next.html", at(&neighbours.hostile, 8080))).await;
        let public = format!("fetch('{}x').then(answer => answer.text())", at(&neighbours.victim, 8082));
        assert_eq!(page.text(&public).await, "shown");
    });
}

/// Below a name of one's own all previews are of one site to a browser, which keeps no cookie from any of them: the server alone
/// tells whose request it is.
#[test]
fn nor_does_one_below_a_name_where_all_are_of_one_site() {
    below_a_name(Network::Safe);
}

#[test]
fn nor_where_the_browser_does_not_even_say_whose_a_request_is() {
    below_a_name(Network::Plain);
}

/// What a browser holds of the way to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// As over TLS: it says of every request whose it is.
    Safe,
    /// It does not.
    Plain,
}

fn below_a_name(network: Network) {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).arguments(&["--host-name", "rooms.test"]).start();
        let neighbours = Neighbours::of(&server).await;
        let at = |session, port| address(&server, session, port).replace("localhost", "rooms.test");
        let all = [
            at(&neighbours.hostile, 8080),
            at(&neighbours.victim, 8080),
            at(&neighbours.victim, 8081),
            at(&neighbours.victim, 8082),
        ];
        let mut options = vec!["--host-resolver-rules=MAP *.rooms.test 127.0.0.1".to_owned()];
        if network == Network::Safe {
            let all = all.join(",").replace("/,", ",");
            options.push(format!("--unsafely-treat-insecure-origin-as-secure={all}"));
        }
        let browser = Browser::start(&program, &user, &options);
        let page = browser.page().await;
        for (session, port) in neighbours.private() {
            let name = format!("rooms.test:{}", server.address().port());
            let ticket = session.path(&format!("/ports/{port}/ticket"));
            let link = server.http().host(Some(&name)).post(&ticket).await.expect(201);
            page.open(link["url"].as_str().expect("a link")).await;
            assert_eq!(page.text("location.href").await, at(session, port));
        }
        let place = at(&neighbours.victim, 8080);
        page.open(&format!("{place}deeper/next.html")).await;
        expect_that_all_ways_lead(&page, &place, "rosebud").await;
        for hostile in [&all[0], &all[2], &all[3]] {
            page.open(&format!("{hostile}deeper/next.html")).await;
            expect_that_no_way_leads(&page, &place, "rosebud").await;
            if network == Network::Safe {
                assert_eq!(neighbours.reached(&server).await, [] as [Value; 0], "from {hostile}");
            }
        }

        // A cookie that a room sets is for its name alone. One that a script sets is not: it opens nothing and closes nothing.
        page.open(&format!("{}deeper/next.html", all[0])).await;
        let before = of_host(&browser, &place).await;
        set_by_header(&page, "a=1; Domain=rooms.test; Path=/").await;
        set_by_header(&page, "workroom_preview=forged; Domain=rooms.test; Path=/").await;
        let wide = |cookie: &(String, String, String)| cookie.0.starts_with('.');
        assert_eq!(browser.cookies().await.into_iter().find(wide), None);
        for tossed in [
            "workroom_preview=tossed; Domain=rooms.test; Path=/",
            "workroom_preview=b; Domain=rooms.test; Path=/deeper",
        ] {
            page.js(&format!("document.cookie = '{tossed}'")).await;
        }
        assert!(browser.cookies().await.iter().any(wide), "scripts can");
        assert_eq!(of_host(&browser, &place).await, before);
        page.open(&format!("{place}deeper/next.html")).await;
        assert_eq!(page.text("document.title").await, "next");
        let stranger = browser.page_of_another().await;
        stranger.open(&all[3]).await;
        stranger.js("document.cookie = 'workroom_preview=tossed; Domain=rooms.test; Path=/'").await;
        stranger.open(&place).await;
        assert!(stranger.text("document.body.innerText").await.contains("not public"));
    });
}

/// The cookies that the browser keeps for the name of this address alone.
async fn of_host(browser: &Browser, place: &str) -> Vec<(String, String, String)> {
    let host = host_of(place);
    let mut cookies = browser.cookies().await;
    cookies.retain(|(domain, ..)| domain == host);
    cookies
}

/// The page's own site sets a cookie.
async fn set_by_header(page: &Page<'_>, cookie: &str) {
    let set = format!("fetch('/cookie?' + encodeURIComponent('{cookie}')).then(answer => answer.text())");
    assert_eq!(page.text(&set).await, "set");
}

#[test]
fn what_a_page_leaves_in_the_browser_is_found_by_itself_alone() {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let neighbours = Neighbours::of(&server).await;
        let browser = Browser::start(&program, &user, &[]);
        let page = browser.page().await;
        neighbours.let_in(&page).await;
        let own = address(&server, &neighbours.hostile, 8080);
        let place = address(&server, &neighbours.victim, 8080);
        let host = host_of(&place);
        let before = of_host(&browser, &place).await;
        assert_eq!(before.len(), 1, "the pass");

        // Cookies, by script and by header.
        page.open(&format!("{own}deeper/next.html")).await;
        let pass = of_host(&browser, &own).await;
        for domain in ["localhost", ".localhost", host, &format!(".{host}")] {
            for (name, path) in [("workroom_preview", "/"), ("workroom_preview", "/deeper"), ("app", "/")] {
                let cookie = format!("{name}=forged; Domain={domain}; Path={path}");
                page.js(&format!("document.cookie = '{cookie}'")).await;
                set_by_header(&page, &cookie).await;
            }
        }
        page.js("document.cookie = 'workroom_preview=forged; Path=/'").await;
        set_by_header(&page, "workroom_preview=forged; Path=/").await;
        page.js("document.cookie = 'kept=1; Path=/'").await;
        let kept: Vec<_> = of_host(&browser, &own).await;
        assert!(kept.iter().any(|(_, name, _)| name == "kept"), "{kept:?}");
        assert!(pass.iter().all(|pass| kept.contains(pass)), "no page puts something in place of its pass");
        assert_eq!(of_host(&browser, &place).await, before);
        let names = neighbours.private().map(|(session, port)| preview_host(&server, session, port));
        for (domain, ..) in browser.cookies().await {
            assert!(names.iter().any(|name| name.starts_with(&format!("{domain}:"))), "{domain}");
        }

        // A worker that answers for all pages it can get hold of.
        let register = |script: &str, scope: &str| {
            format!(
                "navigator.serviceWorker.register('{script}', {{ scope: '{scope}' }})
                    .then(() => navigator.serviceWorker.ready).then(() => 'registered', error => error.name)"
            )
        };
        for (script, scope) in [("/worker.js", &*place), (&*format!("{place}worker.js"), "/")] {
            assert_eq!(page.text(&register(script, scope)).await, "SecurityError");
        }
        assert_eq!(page.text(&register("/worker.js", "/")).await, "registered");
        page.open(&own).await;
        assert_eq!(page.text("document.body.innerText").await, "the worker of mine");
        page.open(&format!("{place}deeper/next.html")).await;
        assert_eq!(page.text("document.title").await, "next");
        assert_eq!(page.js("navigator.serviceWorker.controller").await, Value::Null);
        assert_eq!(page.text("document.cookie").await, "");
        let requests = asked(&server, &neighbours.victim, 8080).await;
        assert!(!requests.iter().any(|request| request.to_string().contains("forged")), "{requests:?}");
    });
}

/// Cookies know no ports: what a browser keeps for a preview it would send to whatever is reached by the preview's name.
#[test]
fn a_published_port_is_not_reached_by_the_name_of_a_preview() {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let neighbours = Neighbours::of(&server).await;
        let browser = Browser::start(&program, &user, &[]);
        let page = browser.page().await;
        neighbours.let_in(&page).await;
        let place = address(&server, &neighbours.victim, 8080);
        page.open(&place).await;
        page.js("document.cookie = 'app=private; Path=/'").await;
        let before = of_host(&browser, &place).await;
        assert_eq!(before.len(), 2, "{before:?}");
        let port = format!(":{}/", server.address().port());
        let misled = place.replace(&port, &format!(":{}/", neighbours.raw));
        let below = misled.replace("http://", "http://x.");
        let own = address(&server, &neighbours.hostile, 8080);
        for from in [own, format!("http://127.0.0.1:{}/", neighbours.raw)] {
            for place in [&misled, &below] {
                page.open(&format!("{from}deeper/next.html")).await;
                let asks = format!(
                    "(async () => {{
                        await fetch('{place}x', {{ credentials: 'include', mode: 'no-cors' }}).catch(() => 0);
                        for (const name of ['img', 'iframe']) await new Promise(on => {{
                            const it = document.createElement(name);
                            it.onload = it.onerror = on;
                            it.src = '{place}x';
                            document.body.append(it);
                        }});
                    }})()"
                );
                page.js(&asks).await;
                page.js(&format!("location.href = '{place}x'; 0")).await;
                page.loaded().await;
                assert_eq!(page.text("location.href").await, format!("{place}x"));
            }
        }
        let requests = asked(&server, &neighbours.hostile, 8080).await;
        for request in &requests {
            let text = request.to_string();
            assert!(!text.contains("private") && !text.contains("workroom_preview"), "{text}");
        }
        let domain = host_of(&place);
        for place in [&misled, &below] {
            let cookie = format!("{place}cookie?app=forged; Path=/; Domain={domain}");
            page.open(&cookie.replace(' ', "%20")).await;
            let shown = page.text("document.body.innerText").await;
            assert!(shown.contains("previews are reached"), "{shown}");
        }
        assert_eq!(of_host(&browser, &place).await, before);
        // By its own name it is reached, as before.
        page.open(&format!("http://localhost:{}/", neighbours.raw)).await;
        assert_eq!(page.text("document.getElementById('text').innerText").await, "mine");
    });
}

#[test]
fn no_page_of_a_room_calls_the_api_though_it_has_the_token() {
    let Some(program) = prepared() else { return };
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let neighbours = Neighbours::of(&server).await;
        let browser = Browser::start(&program, &user, &[]);
        let page = browser.page().await;
        page.open(&link(&neighbours.hostile, 8080).await).await;
        let spare = server.session().await;
        let port = server.address().port();
        let apis = [format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}")];
        // How many ways there are, and which of them were answered.
        let call = async |api: &str| {
            let known = [("API", api), ("TOKEN", server.token()), ("SESSION", &spare.id)];
            let got = page.js(&with(CALLS, &known)).await;
            let got = got.as_object().expect("answers").clone();
            // Fields of the document, of a session and of a problem.
            let fields = ["\"openapi\"", "\"state\"", "\"detail\""];
            let is_read = |text: &str| fields.iter().any(|field| text.contains(field));
            let read = got.iter().filter(|(_, text)| is_read(text.as_str().expect("text")));
            (got.len(), read.map(|(name, _)| name.clone()).collect::<Vec<_>>())
        };
        let sessions = async || {
            let list = server.http().get("/v1/sessions").await.expect(200);
            list["sessions"].as_array().expect("a list").len()
        };
        let before = sessions().await;
        let raw = neighbours.raw;
        for hostile in [
            address(&server, &neighbours.hostile, 8080),
            address(&server, &neighbours.victim, 8082),
            format!("http://127.0.0.1:{raw}/"),
            format!("http://localhost:{raw}/"),
            format!("http://any.localhost:{raw}/"),
        ] {
            page.open(&format!("{hostile}deeper/next.html")).await;
            for api in &apis {
                assert_eq!(call(api).await, (8, vec![]), "{api}, from {hostile}");
            }
        }
        assert_eq!(sessions().await, before);
        assert_eq!(spare.state().await, SessionState::Running);

        // A page of the server's own can.
        page.open(&format!("{}/healthz", apis[0])).await;
        let (all, read) = call(&apis[0]).await;
        assert_eq!(read.len(), all, "{read:?}");
        assert_eq!(sessions().await, before + 1);
        assert_eq!(spare.state().await, SessionState::Stopped);
    });
}
