//! Who sees a preview, and what a page of one can do: nothing to the API, nothing to others.

mod ports;

use ports::{
    connect, has_python, http_server, none_is_open, preview_host, publish, publish_like, rest, tcp_server,
};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use workroom_testkit::types::PublishPort;
use workroom_testkit::{Http, Response, Server, Setup, TestSession, User, for_each_user, run};

/// A browser that holds cookies for one name.
struct Browser<'s> {
    server: &'s Server<'s>,
    host: String,
    cookie: Option<String>,
}

impl<'s> Browser<'s> {
    fn at(server: &'s Server<'s>, session: &TestSession, port: u16) -> Browser<'s> {
        Browser { server, host: preview_host(server, session, port), cookie: None }
    }

    fn http(&self) -> Http {
        let http = self.server.http().as_nobody().host(Some(&self.host));
        match &self.cookie {
            Some(cookie) => http.header("Cookie", cookie),
            None => http,
        }
    }

    /// Opens a link: its ticket for a cookie.
    async fn open(&mut self, link: &str) -> Response {
        let path = link.strip_prefix(&format!("http://{}", self.host)).unwrap_or_else(|| panic!("{link}"));
        let answer = self.http().get(path).await;
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        answer
    }
}

async fn link(session: &TestSession, port: u16) -> String {
    session.client().preview_link(&session.id, port).await.expect("a link").url
}

#[test]
fn a_link_opens_a_preview_once_and_for_one_browser() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish(&session, 8080).await;
        let link = link(&session, 8080).await;
        {
            let mut browser = Browser::at(&server, &session, 8080);
            assert_eq!(browser.http().get("/").await.problem(401), "unauthorized");
            let deep = link.replace("/?", "//there/x?a=b&");
            let head = browser.http().send("HEAD", "/?workroom_ticket=x").await;
            assert_eq!(head.status, 401, "what only looks uses nothing up");
            let opened = browser.open(&deep).await;
            assert_eq!((opened.status, opened.header("location")), (303, Some("/.//there/x?a=b")));
            let cookie = opened.header("set-cookie").expect("a cookie").to_owned();
            assert!(
                cookie.contains("; Path=/; HttpOnly; SameSite=Lax; Max-Age=") && !cookie.contains("Domain"),
                "{cookie}"
            );
            assert_eq!(opened.header("cache-control"), Some("no-store"));
            let asked = browser.http().get("/there/x?a=b").await.expect(200);
            assert_eq!(ports::header(&asked, "cookie"), None, "the pass is not the room's to see");

            // A second browser with the same link has nothing; the first is sent on.
            let mut second = Browser::at(&server, &session, 8080);
            assert_eq!(second.open(&link).await.problem(401), "unauthorized");
            assert_eq!(browser.open(&link).await.status, 303);
            second.cookie = browser.cookie.as_ref().map(|cookie| {
                let (rest, last) = cookie.split_at(cookie.len() - 1);
                format!("{rest}{}", if last == "0" { "1" } else { "0" })
            });
            assert_eq!(second.http().get("/").await.problem(401), "unauthorized", "a pass is signed");
            second.cookie =
                browser.cookie.as_ref().map(|cookie| format!("workroom_preview=tossed; a=b; {cookie}"));
            second.http().get("/").await.expect(200);
        }
        // A pass outlives the server, and ends with what it is for.
        let cookie = {
            let mut browser = Browser::at(&server, &session, 8080);
            let fresh = session.client().preview_link(&session.id, 8080).await.expect("a link").url;
            browser.open(&fresh).await;
            browser.cookie
        };
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let browser = Browser { cookie, ..Browser::at(&server, &session, 8080) };
        browser.http().get("/").await.expect(200);
        session.client().unpublish_port(&session.id, 8080).await.expect("unpublished");
        assert_eq!(browser.http().get("/").await.problem(401), "unauthorized");
        publish(&session, 8080).await;
        assert_eq!(browser.http().get("/").await.problem(401), "unauthorized", "it is another one now");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_pass_is_for_one_port_of_one_session_and_ends_with_its_token() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (one, other) = (server.session().await, server.session().await);
        for session in [&one, &other] {
            http_server(session, 8080).await;
            http_server(session, 8081).await;
            publish(session, 8080).await;
            publish(session, 8081).await;
        }
        let made = server
            .http()
            .json(&json!({"scope": "session", "session": one.id}))
            .post("/v1/tokens")
            .await
            .expect(201);
        let (id, token) = (made["id"].as_str().expect("an id"), made["token"].as_str().expect("a token"));
        let url = server.http().token(token).post(&one.path("/ports/8080/ticket")).await.expect(201);
        let mut browser = Browser::at(&server, &one, 8080);
        browser.open(url["url"].as_str().expect("a link")).await;
        browser.http().get("/").await.expect(200);
        for (session, port) in [(&one, 8081), (&other, 8080), (&other, 8081)] {
            let elsewhere = Browser { cookie: browser.cookie.clone(), ..Browser::at(&server, session, port) };
            assert_eq!(elsewhere.http().get("/").await.problem(401), "unauthorized");
        }
        // Nor is a ticket for one good for another.
        let ticket = link(&one, 8080).await;
        let (_, ticket) = ticket.split_once("/?").expect("a ticket");
        let elsewhere = Browser::at(&server, &other, 8080);
        assert_eq!(elsewhere.http().get(&format!("/?{ticket}")).await.problem(401), "unauthorized");

        // The token itself: in the header, for what it reaches, and never passed on.
        let with_token = |session: &TestSession, token: &str| {
            server.http().host(Some(&preview_host(&server, session, 8080))).token(token)
        };
        with_token(&one, token).get("/").await.expect(200);
        assert_eq!(with_token(&other, token).get("/").await.problem(404), "not_found");
        let unknown = format!("{}x", &token[..token.len() - 1]);
        assert_eq!(with_token(&one, &unknown).get("/").await.problem(401), "unauthorized");
        let of_app = browser.http().header("Authorization", "Bearer of-the-app").get("/").await.expect(200);
        assert_eq!(ports::header(&of_app, "authorization"), Some("Bearer of-the-app"));
        let reader = json!({"scope": "session", "session": one.id, "read_only": true});
        let reader = server.http().json(&reader).post("/v1/tokens").await.expect(201);
        let reader = reader["token"].as_str().expect("a token");
        with_token(&one, reader).get("/").await.expect(200);
        assert_eq!(with_token(&one, reader).post("/").await.problem(403), "forbidden");
        let line = with_token(&one, reader).header("Connection", "upgrade").header("Upgrade", "shout");
        assert_eq!(line.get("/").await.problem(403), "forbidden");

        server.http().delete(&format!("/v1/tokens/{id}")).await.expect(204);
        assert_eq!(browser.http().get("/").await.problem(401), "unauthorized", "its token is revoked");
    });
}

#[test]
fn pages_of_others_cannot_use_a_browsers_pass() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (victim, hostile) = (server.session().await, server.session().await);
        http_server(&victim, 8080).await;
        publish(&victim, 8080).await;
        let raw = publish(&hostile, 8080).await.host_port;
        let mut browser = Browser::at(&server, &victim, 8080);
        browser.open(&link(&victim, 8080).await).await;
        let own = format!("http://{}", browser.host);
        let (host, _) = browser.host.split_once(':').expect("a port");
        let others = [
            format!("http://{}", preview_host(&server, &hostile, 8080)),
            format!("http://{}", preview_host(&server, &victim, 8081)),
            format!("http://{host}:{raw}"),
            format!("http://localhost:{}", server.address().port()),
            "https://elsewhere.example".to_owned(),
            "null".to_owned(),
        ];
        for origin in &others {
            let asked = browser.http().header("Origin", origin);
            assert_eq!(asked.get("/cors").await.problem(401), "unauthorized", "{origin}");
            let line = browser
                .http()
                .header("Origin", origin)
                .header("Connection", "Upgrade")
                .header("Upgrade", "shout");
            assert_eq!(line.get("/").await.problem(401), "unauthorized", "{origin}");
        }
        let fetched = |site: &str, mode: &str, dest: &str| {
            let http = browser.http().header("Sec-Fetch-Site", site);
            http.header("Sec-Fetch-Mode", mode).header("Sec-Fetch-Dest", dest)
        };
        for (site, mode, dest) in [
            ("same-site", "no-cors", "script"),
            ("same-site", "navigate", "iframe"),
            ("cross-site", "no-cors", "image"),
            ("same-site", "websocket", "empty"),
        ] {
            assert_eq!(
                fetched(site, mode, dest).get("/cors").await.problem(401),
                "unauthorized",
                "{site} {dest}"
            );
        }
        assert_eq!(fetched("same-site", "navigate", "document").post("/").await.problem(401), "unauthorized");
        // Its own pages, and a person who follows a link.
        assert_eq!(browser.http().header("Origin", &own).get("/cors").await.text(), "secret of the room");
        fetched("same-origin", "cors", "empty").header("Origin", &own).post("/").await.expect(200);
        fetched("cross-site", "navigate", "document").get("/").await.expect(200);
        fetched("none", "navigate", "document").get("/").await.expect(200);
    });
}

#[test]
fn a_public_port_is_for_everybody_and_for_nobody_once_it_is_not() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        http_server(&session, 8080).await;
        publish_like(&session, PublishPort { port: 8080, public: true, ..PublishPort::default() }).await;
        let stranger = Browser::at(&server, &session, 8080);
        let asked = stranger.http().header("Origin", "https://elsewhere.example").get("/").await.expect(200);
        assert_eq!(
            ports::header(&asked, "origin"),
            Some("https://elsewhere.example"),
            "the room is told who asks"
        );
        session.client().unpublish_port(&session.id, 8080).await.expect("unpublished");
        assert_eq!(stranger.http().get("/").await.problem(401), "unauthorized");
    });
}

#[test]
fn the_api_answers_under_no_name_of_a_preview_and_to_no_page_of_a_room() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).arguments(&["--host-name", "rooms.example"]).start();
        let session = server.session().await;
        http_server(&session, 8080).await;
        let raw = publish(&session, 8080).await.host_port;
        let of_room = preview_host(&server, &session, 8080);
        let label = of_room.split('.').next().expect("a label").to_owned();

        // Under a preview's name every path is the room's, with whatever token.
        for path in ["/v1/sessions", "/healthz", "/v1/openapi.json", "/metrics"] {
            let asked = server.http().host(Some(&of_room)).get(path).await.expect(200);
            assert_eq!(
                (asked["path"].as_str(), ports::header(&asked, "host")),
                (Some(path), Some("localhost:8080"))
            );
            let nobody = server.http().as_nobody().host(Some(&of_room)).get(path).await;
            assert_eq!(nobody.problem(401), "unauthorized", "{path}");
        }
        let named =
            server.http().host(Some(&format!("{label}.rooms.example"))).get("/v1/sessions").await.expect(200);
        assert_eq!(ports::header(&named, "x-forwarded-host"), Some(&*format!("{label}.rooms.example")));
        for strange in [
            format!("x.{label}.localhost"),
            format!("{label}.x.localhost"),
            "0-a.localhost".to_owned(),
            "99999-a.localhost".to_owned(),
            "80-.localhost:7300".to_owned(),
        ] {
            assert_eq!(
                server.http().host(Some(&strange)).get("/v1/sessions").await.problem(404),
                "not_found",
                "{strange}"
            );
        }
        let two = server.http().header("Host", &of_room).get("/v1/sessions").await;
        assert_eq!(two.problem(400), "invalid_argument");
        let absolute = server.http().get(&format!("http://{of_room}/v1/sessions")).await;
        assert_eq!(absolute.problem(400), "invalid_argument");
        // The unix socket checks no names, and is no way round this either.
        let local = server.local_http().host(Some(&of_room)).get("/v1/sessions").await.expect(200);
        assert_eq!(local["path"], "/v1/sessions");

        // Pages of rooms are no pages of ours, wherever they are served.
        for origin in [
            format!("http://{of_room}"),
            format!("http://{label}.localhost"),
            format!("https://{label}.rooms.example"),
            format!("http://x.{label}.localhost"),
            format!("http://localhost:{raw}"),
            format!("http://127.0.0.1:{raw}"),
            format!("http://any.localhost:{raw}"),
        ] {
            let refused = server.http().header("Origin", &origin).get("/v1/sessions").await;
            assert_eq!(refused.problem(403), "forbidden", "{origin}");
            let line = server
                .http()
                .header("Origin", &origin)
                .header("Connection", "Upgrade")
                .header("Upgrade", "websocket");
            assert_eq!(
                line.get(&session.path("/processes/p-0/attach")).await.problem(403),
                "forbidden",
                "{origin}"
            );
            let local = server.local_http().header("Origin", &origin).get("/v1/sessions").await;
            assert_eq!(local.problem(403), "forbidden", "{origin}");
        }
        for origin in ["http://localhost:3000", "https://rooms.example", "http://app.localhost"] {
            server.http().header("Origin", origin).get("/v1/sessions").await.expect(200);
        }
        // A pass is good for nothing else.
        let mut browser = Browser::at(&server, &session, 8080);
        browser.open(&link(&session, 8080).await).await;
        let cookie = browser.cookie.clone().expect("a cookie");
        let api = server.http().as_nobody().header("Cookie", cookie).get("/v1/sessions").await;
        assert_eq!(api.problem(401), "unauthorized");
    });
}

#[test]
fn links_lead_where_the_caller_came_from() {
    run(async {
        let user = User::running_the_tests();
        let server = Setup::of(&user).arguments(&["--host-name", "rooms.example"]).start();
        let session = server.session_like(json!({"start": false})).await;
        publish(&session, 80).await;
        let ticket = session.path("/ports/80/ticket");
        let named = server
            .http()
            .host(Some("rooms.example:444"))
            .header("X-Forwarded-Proto", "https")
            .post(&ticket)
            .await;
        let url = named.expect(201)["url"].as_str().expect("a link").to_owned();
        assert!(
            url.starts_with(&format!("https://80-{}.rooms.example:444/?workroom_ticket=", session.id)),
            "{url}"
        );
        let local =
            server.local_http().post(&ticket).await.expect(201)["url"].as_str().expect("a link").to_owned();
        let port = server.address().port();
        assert!(
            local.starts_with(&format!("http://80-{}.localhost:{port}/?workroom_ticket=", session.id)),
            "{local}"
        );
        // Behind somebody who speaks TLS the cookie is kept to that.
        let path = url.split_once("rooms.example:444").expect("a link").1;
        let host = format!("80-{}.rooms.example:444", session.id);
        let opened =
            server.http().as_nobody().host(Some(&host)).header("X-Forwarded-Proto", "https").get(path).await;
        assert!(opened.header("set-cookie").is_some_and(|cookie| cookie.ends_with("; Secure")), "{opened:?}");
    });
}

/// Cookies know no ports: a browser would show a preview's pass to whichever room has the port that it was led to.
#[test]
fn a_published_port_does_not_go_by_the_name_of_a_preview() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let (victim, hostile) = (server.session().await, server.session().await);
        tcp_server(&hostile, "127.0.0.1", 8080).await;
        let raw = publish(&hostile, 8080).await.host_port;
        let name = preview_host(&server, &victim, 8080);
        for host in [name.clone(), format!("x.{name}"), preview_host(&server, &hostile, 8080)] {
            let mut browser =
                connect(raw, &format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: a=b\r\n\r")).await;
            let told = rest(&mut browser).await.expect("an answer");
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(told.starts_with("HTTP/1.1 421 ") && told.contains("server's own port"), "{told}");
        }
        none_is_open(&hostile).await;
        let mut other = connect(raw, "echo").await;
        other.write_all(format!("GET / HTTP/1.1\r\nHost: {name}\r\n").as_bytes()).await.expect("sent");
        other.shutdown().await.expect("said");
        let echoed = rest(&mut other).await.expect("all of it");
        assert!(String::from_utf8_lossy(&echoed).contains(&name), "another protocol is none of ours");
    });
}
