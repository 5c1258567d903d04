//! Published ports: connections to the host's loopback reach the room's, both ways, until they are cut.

mod ports;

use ports::{connect, has_python, is_refused, none_is_open, publish, publish_like, rest, tcp_server};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use workroom_testkit::types::PublishPort;
use workroom_testkit::{PATIENCE, Server, TestSession, User, eventually, for_each_user, run, within};

#[test]
fn what_listens_in_a_room_is_listed_with_its_process_whoever_that_is() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        assert!(session.client().ports(&session.id).await.expect("a list").listening.is_empty());
        tcp_server(&session, "0.0.0.0", 7000).await;
        tcp_server(&session, "::1", 7001).await;
        // Another user of the room, where rooms have two.
        let whose = if user.is_root() { "root" } else { "agent" };
        let script = "import socket,time; l=socket.create_server(('127.0.0.1', 81)); print('up', flush=True); time.sleep(1000)";
        let other = session.process(json!({"argv": ["/usr/bin/python3", "-c", script], "user": whose})).await;
        other.says("up").await;
        let ports = session.client().ports(&session.id).await.expect("a list").listening;
        let seen: Vec<_> =
            ports.iter().map(|one| (one.port, one.address.as_str(), one.process.as_deref())).collect();
        let name = Some("python3");
        assert_eq!(
            seen,
            [(81, "127.0.0.1", name), (7000, "0.0.0.0", name), (7001, "::1", name)],
            "{ports:?}"
        );
        assert_eq!(ports[0].pid, Some(other.show().await.pid));
        session.stop().await;
        assert!(session.client().ports(&session.id).await.expect("a list").listening.is_empty());
    });
}

#[test]
fn a_published_port_passes_bytes_both_ways_and_the_end_of_each_by_itself() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let of_server = tcp_server(&session, "127.0.0.1", 7000).await;
        let published = publish(&session, 7000).await;
        assert!(published.listening && published.host_port > 1024, "{published:?}");

        let mut echo = connect(published.host_port, "echo").await;
        echo.write_all(b"hello").await.expect("sent");
        let mut back = [0; 5];
        within("an echo", echo.read_exact(&mut back)).await.expect("an echo");
        assert_eq!(&back, b"hello");
        echo.write_all(b" and goodbye").await.expect("sent");
        echo.shutdown().await.expect("the client has said its last");
        assert_eq!(rest(&mut echo).await.expect("a whole answer"), b" and goodbye");

        // The client's end first: what the server says after it arrives.
        let mut digest = connect(published.host_port, "digest").await;
        digest.write_all(b"abc").await.expect("sent");
        digest.shutdown().await.expect("the client has said its last");
        let of_abc = "3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(String::from_utf8_lossy(&rest(&mut digest).await.expect("an answer")), of_abc);

        // The server's end first: what the client says after it is heard.
        let mut last = connect(published.host_port, "last").await;
        assert_eq!(rest(&mut last).await.expect("its last words"), b"last words");
        last.write_all(&[7; 100_000]).await.expect("still heard");
        last.shutdown().await.expect("the client has said its last");
        session.known_process(&of_server).says("heard 100000").await;
        drop(last);
        none_is_open(&session).await;
        session.delete().await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_server_on_the_sixth_version_alone_is_reached_too() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        tcp_server(&session, "::1", 7001).await;
        let published = publish(&session, 7001).await;
        let mut echo = connect(published.host_port, "echo").await;
        echo.write_all(b"six").await.expect("sent");
        echo.shutdown().await.expect("the end");
        assert_eq!(rest(&mut echo).await.expect("an answer"), b"six");
    });
}

#[test]
fn much_arrives_whole_in_both_directions_at_once_and_a_slow_reader_slows_its_writer() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        tcp_server(&session, "127.0.0.1", 7000).await;
        let published = publish(&session, 7000).await;
        let piece: Vec<u8> = (0..1 << 20).map(|at| at as u8).collect();

        let mut up = connect(published.host_port, "digest").await;
        let mut down = connect(published.host_port, "give 64").await;
        let mut echo = connect(published.host_port, "echo").await;
        let upload = async {
            for _ in 0..64 {
                up.write_all(&piece).await.expect("sent");
            }
            up.shutdown().await.expect("the end");
            rest(&mut up).await.expect("an answer")
        };
        let download = async { rest(&mut down).await.expect("all of it") };
        let (mut echo_in, mut echo_out) = echo.split();
        let there = async {
            for _ in 0..32 {
                echo_out.write_all(&piece).await.expect("sent");
            }
            echo_out.shutdown().await.expect("the end");
        };
        let back = async {
            let mut all = Vec::new();
            echo_in.read_to_end(&mut all).await.expect("all of it");
            all
        };
        let all = within("much", async { tokio::join!(upload, download, there, back) });
        let (digest, given, (), echoed) = all.await;
        let in_room = session
            .says("/usr/bin/python3 -c \"import hashlib; print(64 << 20, hashlib.sha256(bytes(range(256)) * 4096 * 64).hexdigest(), end='')\"")
            .await;
        assert_eq!(String::from_utf8_lossy(&digest), in_room);
        assert!(
            given.len() == 64 << 20 && given.chunks(1 << 20).all(|chunk| chunk == piece),
            "what came is whole"
        );
        assert!(
            echoed.len() == 32 << 20 && echoed.chunks(1 << 20).all(|chunk| chunk == piece),
            "so is what went round"
        );

        // Nobody reads: what the server can be rid of is what queues hold, and the rest waits.
        let before = ports::memory_kb(server.pid());
        let slow = connect(published.host_port, "give 1000").await;
        let mut others = Vec::new();
        for _ in 0..20 {
            others.push(connect(published.host_port, "give 1000").await);
        }
        let after = ports::memory_kb(server.pid());
        assert!(after < before + (64 << 10), "{before} kB became {after} kB");
        drop((slow, others));
    });
}

#[test]
fn many_connections_work_at_once_and_too_many_are_turned_away() {
    if !has_python() {
        return;
    }
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let policy = json!({"pids": 4096, "open_files": 4096});
        let session = server.session_like(json!({ "policy": policy })).await;
        tcp_server(&session, "127.0.0.1", 7000).await;
        let host_port = publish(&session, 7000).await.host_port;
        let mut all = JoinSet::new();
        for number in 0..300 {
            all.spawn(async move {
                let mut echo = connect(host_port, "echo").await;
                echo.write_all(format!("number {number}").as_bytes()).await.expect("sent");
                echo.shutdown().await.expect("the end");
                assert_eq!(rest(&mut echo).await.expect("an answer"), format!("number {number}").as_bytes());
            });
        }
        while let Some(done) = within("an echo", all.join_next()).await {
            done.expect("an echo that came back");
        }
        none_is_open(&session).await;
        // As many as a session may have open; the next one is turned away, and when one ends there is room again.
        let mut held = Vec::new();
        for _ in 0..1024 {
            held.push(connect(host_port, "hold").await);
        }
        for stream in &mut held {
            let mut word = [0; 4];
            within("a word", stream.read_exact(&mut word)).await.expect("it is served");
        }
        assert!(is_refused(host_port).await);
        let listed = session.client().ports(&session.id).await.expect("a list").published[0].clone();
        assert_eq!((listed.connections, listed.refused), (1024, 1));
        held.truncate(1);
        eventually(async || if is_refused(host_port).await { Err("still full".into()) } else { Ok(()) })
            .await;
    });
}

#[test]
fn nothing_is_there_where_nothing_listens_and_a_connection_starts_no_room() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let published = publish(&session, 7000).await;
        assert!(is_refused(published.host_port).await, "nothing listens yet");
        tcp_server(&session, "127.0.0.1", 7000).await;
        assert!(!is_refused(published.host_port).await);

        let mut open = connect(published.host_port, "hold").await;
        let mut word = [0; 4];
        within("a word", open.read_exact(&mut word)).await.expect("held");
        session.stop().await;
        assert!(rest(&mut open).await.is_none_or(|all| all.is_empty()), "the room's end is the connection's");
        // Although the client has not closed its side: nothing of a room outlives it.
        none_is_open(&session).await;
        drop(open);
        assert!(is_refused(published.host_port).await, "nobody is there");
        assert_eq!(session.state().await, workroom_testkit::types::SessionState::Stopped);
        session.start().await;
        assert!(is_refused(published.host_port).await, "what ran is not back by itself");
        tcp_server(&session, "127.0.0.1", 7000).await;
        assert!(!is_refused(published.host_port).await, "the port still leads here");

        session.pause().await;
        assert!(is_refused(published.host_port).await, "nobody moves");
        session.resume().await;
        assert!(!is_refused(published.host_port).await);
    });
}

#[test]
fn what_is_unpublished_or_deleted_is_gone_with_what_was_open() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let process = tcp_server(&session, "127.0.0.1", 7000).await;
        let request = PublishPort { port: 7000, name: Some("mine".into()), ..PublishPort::default() };
        let published = publish_like(&session, request.clone()).await;
        assert_eq!(published.name.as_deref(), Some("mine"));
        let mut open = connect(published.host_port, "hold").await;
        let mut word = [0; 4];
        within("a word", open.read_exact(&mut word)).await.expect("held");
        let again = server.http().json(&json!({"port": 7000})).post(&session.path("/ports")).await;
        assert_eq!(again.problem(409), "already_exists");

        let unpublished = session.client().unpublish_port(&session.id, 7000);
        within("an end", unpublished).await.expect("unpublished");
        assert!(rest(&mut open).await.is_none_or(|all| all.is_empty()), "it is cut");
        session.known_process(&process).says("let go").await;
        assert!(session.client().ports(&session.id).await.expect("a list").published.is_empty());
        eventually(async || match tokio::net::TcpStream::connect(("127.0.0.1", published.host_port)).await {
            Ok(_) => Err("somebody listens".into()),
            Err(_) => Ok(()),
        })
        .await;
        session.client().unpublish_port(&session.id, 7000).await.expect("gone is gone");

        // The same host port again, and then the whole session goes.
        let host_port = Some(published.host_port);
        let second = publish_like(&session, PublishPort { host_port, ..request }).await;
        assert_eq!(Some(second.host_port), host_port);
        let mut open = connect(second.host_port, "hold").await;
        within("a word", open.read_exact(&mut word)).await.expect("held");
        session.delete().await;
        assert!(rest(&mut open).await.is_none_or(|all| all.is_empty()), "it is cut");
        eventually(async || match tokio::net::TcpStream::connect(("127.0.0.1", second.host_port)).await {
            Ok(_) => Err("somebody listens".into()),
            Err(_) => Ok(()),
        })
        .await;
        server.expect_no_leaks().await;
    });
}

#[test]
fn a_published_port_is_there_after_a_kill_on_the_same_host_port() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let mut server = Server::of(user);
        let session = server.session().await;
        tcp_server(&session, "127.0.0.1", 7000).await;
        let host_port = publish(&session, 7000).await.host_port;
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let mut echo = connect(host_port, "echo").await;
        echo.write_all(b"still here").await.expect("sent");
        echo.shutdown().await.expect("the end");
        assert_eq!(rest(&mut echo).await.expect("an answer"), b"still here");

        // While somebody else has it, the record says so; afterwards it is listened on again.
        drop(echo);
        server.kill();
        let thief = within("the port", async {
            loop {
                match TcpListener::bind(("127.0.0.1", host_port)).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(PATIENCE / 1000).await,
                }
            }
        })
        .await;
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        let told = session.event("port.unreachable").await;
        assert_eq!(told.body["host_port"], host_port);
        let listed = session.client().ports(&session.id).await.expect("a list").published;
        assert!(
            !listed[0].listening && listed[0].reason.as_deref().is_some_and(|why| why.contains("port")),
            "{listed:?}"
        );
        drop(thief);
        session.event("port.reachable").await;
        assert!(!is_refused(host_port).await);
        session.client().unpublish_port(&session.id, 7000).await.expect("unpublished");
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        assert!(session.client().ports(&session.id).await.expect("a list").published.is_empty());
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_a_repetition_publishes_once() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session_like(json!({"start": false})).await;
        let ask =
            async |fields: serde_json::Value| server.http().json(&fields).post(&session.path("/ports")).await;
        for wrong in [
            json!({}),
            json!({"port": 0}),
            json!({"port": 65536}),
            json!({"port": -1}),
            json!({"port": "80"}),
            json!({"port": 80, "host_port": 80}),
            json!({"port": 80, "host_port": 1024}),
            json!({"port": 80, "name": "a\u{7}b"}),
            json!({"port": 80, "sort": 1}),
        ] {
            assert_eq!(ask(wrong.clone()).await.problem(400), "invalid_argument", "{wrong}");
        }
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let taken = other.local_addr().expect("an address").port();
        let refused = ask(json!({"port": 80, "host_port": taken})).await;
        assert_eq!(refused.problem(409), "already_exists");
        let path = session.path("/ports");
        let once = || server.http().key("once").json(&json!({"port": 80})).post(&path);
        let (first, second) = (once().await.expect(201), once().await.expect(201));
        assert_eq!(first, second);
        for wrong in ["0", "65536", "x", "-1"] {
            let path = session.path(&format!("/ports/{wrong}"));
            assert_eq!(server.http().delete(&path).await.problem(400), "invalid_argument");
            assert_eq!(server.http().post(&format!("{path}/ticket")).await.problem(400), "invalid_argument");
        }
        assert_eq!(server.http().post(&session.path("/ports/81/ticket")).await.problem(404), "not_found");
        for port in 1000..1063 {
            ask(json!({"port": port})).await.expect(201);
        }
        assert_eq!(ask(json!({"port": 2000})).await.problem(429), "limit_exceeded");

        // Another's session is not there, and a token that may only read publishes nothing.
        let token = |fields| server.http().json(&fields).post("/v1/tokens");
        let stranger = token(json!({"scope": "user", "owner": "stranger"})).await.expect(201);
        let stranger = stranger["token"].as_str().expect("a token").to_owned();
        let http = || server.http().token(&stranger);
        assert_eq!(http().get(&session.path("/ports")).await.problem(404), "not_found");
        assert_eq!(
            http().json(&json!({"port": 80})).post(&session.path("/ports")).await.problem(404),
            "not_found"
        );
        assert_eq!(http().delete(&session.path("/ports/80")).await.problem(404), "not_found");
        assert_eq!(http().post(&session.path("/ports/80/ticket")).await.problem(404), "not_found");
        let reader = token(json!({"scope": "admin", "read_only": true})).await.expect(201);
        let reader = reader["token"].as_str().expect("a token").to_owned();
        let http = || server.http().token(&reader);
        http().get(&session.path("/ports")).await.expect(200);
        assert_eq!(
            http().json(&json!({"port": 9})).post(&session.path("/ports")).await.problem(403),
            "forbidden"
        );
        assert_eq!(http().post(&session.path("/ports/80/ticket")).await.problem(403), "forbidden");
    });
}

#[test]
fn the_command_line_lists_publishes_and_unpublishes() {
    if !has_python() {
        return;
    }
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        tcp_server(&session, "127.0.0.1", 7000).await;
        let cli = |arguments: &[&str]| {
            let output =
                server.cli(&[&["port", &session.id], arguments].concat()).output().expect("workroom");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.code(), said, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (status, said, _) = cli(&["publish", "7000", "--host-port", "auto", "--name", "mine"]);
        assert_eq!(status, Some(0), "{said}");
        let preview = format!("http://7000-{}.localhost:{}/", session.id, server.address().port());
        assert!(said.contains("127.0.0.1:") && said.contains(&preview), "{said}");
        let (_, said, _) = cli(&["ls"]);
        let line = said.lines().find(|line| line.starts_with("7000")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains("python3 (") && line.contains(&preview), "{said}");
        let (_, said, _) = cli(&["open", "7000"]);
        assert!(said.starts_with(&format!("{preview}?workroom_ticket=")), "{said}");
        let (status, said, _) = cli(&["unpublish", "7000"]);
        assert_eq!((status, said.trim()), (Some(0), "7000  unpublished"));
        let (status, _, complaint) = cli(&["open", "7000"]);
        assert!(status == Some(125) && complaint.contains("not published"), "{complaint}");
        let (status, _, complaint) = cli(&["publish", "7000", "--host-port", "80"]);
        assert!(status == Some(125) && complaint.contains("1025"), "{complaint}");
    });
}
