//! A room that attacks, with a name server of its own: nothing of the machine is reached that no cidr names, and
//! nothing of the server ever.

mod network;

use network::names::Say;
use network::{
    Upstream, has_device, network_of, plain_get, python, server_with_names, session_with, set_network,
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use workroom_testkit::types::{CreateSession, CreateToken, Policy, PublishPort, TokenScope};
use workroom_testkit::{Setup, TestSession, for_each_user, within};

/// Where the attacker wants to get: a server on this machine that no cidr names.
const INSIDE: &str = "127.66.0.1";
/// Where it may get.
const OUTSIDE: &str = "127.77.0.1";

/// What a room is told that asks for a page through the proxy.
async fn fetch(session: &TestSession, url: &str) -> String {
    let result = session.sh(&format!("curl -g -sS --max-time 10 --noproxy '' '{url}' 2>&1")).await;
    result.stdout
}

/// An address of this machine that its neighbours can reach, if it has one.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

#[test]
fn an_open_network_reaches_nothing_of_the_machine() {
    for_each_user(async |user| {
        let inside = Upstream::http("127.0.0.1", &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("innocent.test", &["127.0.0.1"]);
        names.has("metadata.test", &["169.254.169.254"]);
        let session = session_with(&server, json!({"mode": "open"})).await;
        let port = inside.port();
        // Every way to write it.
        for host in [
            "127.0.0.1",
            "localhost",
            "innocent.test",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "2130706433",
            "0x7f.1",
        ] {
            let told = fetch(&session, &format!("http://{host}:{port}/")).await;
            assert!(!told.contains("hello"), "{host}: {told}");
            assert!(told.contains("denied ["), "{host}: {told}");
        }
        for url in [
            "http://169.254.169.254/latest/meta-data/",
            "http://metadata.test/",
            "http://[fd00:ec2::254]/",
            "http://10.0.0.1/",
        ] {
            let told = fetch(&session, url).await;
            assert!(told.contains("denied [special_address]"), "{url}: {told}");
        }
        let api = fetch(&session, &format!("http://127.0.0.1:{}/healthz", server.address().port())).await;
        assert!(api.contains("denied ["), "{api}");
        if has_device(user) {
            for host in ["innocent.test", "metadata.test", "169.254.169.254", "10.0.0.1", "198.18.0.1"] {
                let result = python(&session, &plain_get(host, port)).await;
                assert!(result.stdout.starts_with("refused"), "{host}: {result:?}");
            }
        }
        assert_eq!(inside.calls(), 0);
    });
}

#[test]
fn the_machines_own_address_has_to_be_named_exactly() {
    let Some(own) = own_address() else {
        println!("skipped: this machine has loopback alone");
        return;
    };
    for_each_user(async |user| {
        // Something that listens there and was never meant for rooms.
        let beside = Upstream::http(&own.to_string(), &[]).await;
        let (server, _names) = server_with_names(user).await;
        // The range that it is in opens its neighbours, and not the machine itself.
        let [a, b, c, _] = own.octets();
        let around = vec![format!("{a}.{b}.{c}.0/24")];
        let session = session_with(&server, json!({"mode": "open", "cidrs": around})).await;
        let url = format!("http://{}/", beside.address);
        let told = fetch(&session, &url).await;
        assert!(told.contains("denied [own_address]"), "{told}");
        if has_device(user) {
            let result = python(&session, &plain_get(&own.to_string(), beside.port())).await;
            assert!(result.stdout.starts_with("refused"), "{result:?}");
        }
        assert_eq!(beside.calls(), 0);
        set_network(&session, json!({"mode": "open", "cidrs": [format!("{own}/32")]})).await;
        assert!(fetch(&session, &url).await.starts_with("hello"));
    });
}

#[test]
fn no_policy_opens_the_server_itself() {
    for_each_user(async |user| {
        let beside = Upstream::http("127.0.0.1", &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("api.test", &["127.0.0.1"]);
        // An admin's own session: it may name loopback, and does.
        let rules = json!({"mode": "open", "cidrs": ["127.0.0.0/8", "0.0.0.0/8", "::1/128"]});
        let session = session_with(&server, rules).await;
        assert!(fetch(&session, &format!("http://{}/", beside.address)).await.starts_with("hello"));
        let api = server.address().port();
        for host in ["127.0.0.1", "api.test", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"] {
            let told = fetch(&session, &format!("http://{host}:{api}/healthz")).await;
            // A name that has a second address is tried there, where nobody listens.
            assert!(told.contains("denied [") || host == "localhost", "{host}: {told}");
            assert!(!told.contains("\"ok\""), "{host}: {told}");
        }
        let told = fetch(&session, &format!("http://127.0.0.1:{api}/healthz")).await;
        assert!(told.contains("server_itself") && told.contains("no policy opens it"), "{told}");
        // What the server publishes for another room is the server's too, from the moment on.
        let other = server.session().await;
        let request = PublishPort { port: 8080, host_port: None, public: false, name: None };
        let published = other.client().publish_port(&other.id, &request).await.expect("published");
        let told = fetch(&session, &format!("http://127.0.0.1:{}/", published.host_port)).await;
        assert!(told.contains("server_itself"), "{told}");
        if has_device(user) {
            let result = python(&session, &plain_get("api.test", api)).await;
            assert!(result.stdout.starts_with("refused"), "{result:?}");
        }
    });
}

#[test]
fn a_name_that_turns_inside_is_denied_by_its_address_on_every_way() {
    for_each_user(async |user| {
        let inside = Upstream::http(INSIDE, &[]).await;
        let outside = Upstream::http(&format!("{OUTSIDE}:{}", inside.port()), &[]).await;
        let (server, names) = server_with_names(user).await;
        let (good, bad): (IpAddr, IpAddr) = (OUTSIDE.parse().expect("one"), INSIDE.parse().expect("one"));
        names.say("turns.test", [Say::Addresses(vec![good], 0), Say::Addresses(vec![bad], 0)]);
        names.say("mixed.test", [Say::Addresses(vec![bad, good, "10.0.0.1".parse().expect("one")], 0)]);
        names.say("alias.test", [Say::Alias("inside.test")]);
        names.say("inside.test", [Say::Addresses(vec![bad], 60)]);
        let rules = json!({"mode": "allow", "domains": ["*.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let port = inside.port();
        let url = |name: &str| format!("http://{name}:{port}/");
        assert!(fetch(&session, &url("turns.test")).await.starts_with("hello"));
        for _ in 0..3 {
            let told = fetch(&session, &url("turns.test")).await;
            assert!(told.contains("\"turns.test\" leads to 127.66.0.1"), "{told}");
        }
        assert!(fetch(&session, &url("mixed.test")).await.starts_with("hello"), "the good one is dialled");
        assert!(fetch(&session, &url("alias.test")).await.contains("denied [special_address]"));
        if has_device(user) {
            names.say(
                "later.test",
                [Say::Addresses(vec![good], 0), Say::Addresses(vec![good], 0), Say::Addresses(vec![bad], 0)],
            );
            // Looked up once by the program, then connected to again and again, as rebinding is done.
            let program = format!(
                "import socket\naddress = socket.gethostbyname('later.test')\nfor n in range(4):\n  \
                 try:\n    s = socket.create_connection((address, {port}), 10); s.sendall(b'GET / HTTP/1.1\\r\\nHost: later.test\\r\\n\\r\\n')\n    \
                 print(s.recv(100).decode().split()[1])\n  except OSError as error: print('refused')\n"
            );
            let result = python(&session, &program).await;
            assert!(
                result.stdout.starts_with("200\n") && result.stdout.ends_with("refused\nrefused\n"),
                "{result:?}"
            );
            let result = python(&session, &plain_get("alias.test", port)).await;
            assert!(result.stdout.starts_with("refused"), "{result:?}");
        }
        assert_eq!(inside.calls(), 0);
        assert!(outside.calls() >= 2);
    });
}

#[test]
fn a_permitted_server_is_not_a_way_to_its_neighbours() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        names.has("secret.test", &[OUTSIDE]);
        let rules = json!({"mode": "allow", "domains": ["www.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let port = upstream.port();
        // A tunnel to one name that asks for another.
        let through =
            format!("curl -sS --max-time 10 -p -H 'Host: secret.test' http://www.test:{port}/ 2>&1");
        let told = session.sh(&through).await.stdout;
        assert!(!told.contains("hello secret.test"), "{told}");
        if has_device(user) {
            let other = plain_get("www.test", port).replace("Host: www.test", "Host: secret.test");
            let result = python(&session, &other).await;
            assert!(!result.stdout.contains("hello secret"), "{result:?}");
        }
        assert!(!upstream.heads().is_empty() || upstream.calls() <= 2);
        let view = network_of(&session).await;
        assert!(view.denials.iter().any(|denial| denial.code == "name_mismatch"), "{:?}", view.denials);
    });
}

#[test]
fn a_user_cannot_name_what_the_operator_does_not_grant() {
    for_each_user(async |user| {
        let server = Setup::of(user).start();
        let file =
            user.make_file("granted.toml", "[ceiling]\nnetwork = \"allow\"\ncidrs = [\"127.77.0.0/16\"]\n");
        std::fs::rename(file, server.state().join("policy.toml")).expect("the operator's file");
        let request = CreateToken {
            scope: TokenScope::User,
            owner: Some("anna".to_owned()),
            session: None,
            read_only: false,
            expires_in: None,
            name: String::new(),
        };
        let token = server.client().create_token(&request).await.expect("a token").token.expect("told once");
        let client = server.client_with(&token);
        let policy = |network: Value| -> Policy {
            serde_json::from_value(json!({"network": network})).expect("a document")
        };
        let create = async |network: Value| {
            let request = CreateSession {
                policy: Some(policy(network)),
                start: Some(false),
                ..CreateSession::default()
            };
            within("an answer", client.create(&request, None)).await.map(|(session, _)| session.id)
        };
        for (network, words) in [
            (json!({"mode": "open"}), "wider than allow"),
            (json!({"mode": "allow", "cidrs": ["127.0.0.1/32"]}), "loopback"),
            (json!({"mode": "allow", "cidrs": ["169.254.169.254/32"]}), "metadata"),
            (json!({"mode": "allow", "cidrs": ["10.0.0.0/8"]}), "private"),
        ] {
            let refused = create(network.clone()).await.expect_err("refused");
            let problem = refused.problem().expect("a problem").clone();
            assert!(problem.status == 403 && problem.detail.contains(words), "{network}: {problem:?}");
        }
        for (network, words) in [
            (json!({"mode": "allow"}), "allows nothing"),
            (json!({"mode": "allow", "domains": ["a b"]}), "domain"),
            (json!({"mode": "allow", "domains": ["a.test"], "ports": ["9-1"]}), "port"),
            (json!({"mode": "off", "cidrs": ["127.77.0.1/32"]}), "off"),
        ] {
            let refused = create(network.clone()).await.expect_err("refused");
            let problem = refused.problem().expect("a problem").clone();
            assert!(problem.status == 400 && problem.detail.contains(words), "{network}: {problem:?}");
        }
        let id =
            create(json!({"mode": "allow", "cidrs": ["127.77.0.1/32"]})).await.expect("it may have that");
        // A ceiling that comes down holds for what was granted before.
        let file = user.make_file("granted.toml", "[ceiling]\nnetwork = \"off\"\n");
        std::fs::rename(file, server.state().join("policy.toml")).expect("the operator's file");
        within("a start", client.start(&id)).await.expect("it starts");
        let view = within("its network", client.network(&id, None)).await.expect("its network");
        assert!(!view.connected, "{view:?}");
    });
}

#[test]
fn the_walls_of_a_room_stand_with_a_network_too() {
    for_each_user(async |user| {
        let program = user.program().to_str().expect("a path").to_owned();
        let config = format!("[serve]\nro = [\"{program}:/opt/workroom-probe\"]\n");
        let server = Setup::of(user).config(&config).start();
        let host = Upstream::plain("127.0.0.1").await;
        for network in [json!({"mode": "off"}), json!({"mode": "open"})] {
            let has_network = network["mode"] == "open";
            let context =
                json!({"canary": "nobody", "host_tcp_port": host.port(), "has_network": has_network})
                    .to_string();
            let session = session_with(&server, network.clone()).await;
            for case in [
                "socket-families",
                "socket-pairs",
                "vsock",
                "netlink",
                "raw-sockets",
                "ping-sockets",
                "odd-protocols",
                "socket-high-bits",
                "tcp-host",
                "metadata-service",
                "configure-network",
            ] {
                let argv = ["/opt/workroom-probe", "attack-probe", case];
                let result = session.run(json!({"argv": argv, "stdin": context})).await;
                let outcome: Value = serde_json::from_str(&result.stdout)
                    .unwrap_or_else(|error| panic!("{error}: {result:?}"));
                assert!(outcome.get("held").or(outcome.get("Held")).is_some(), "{network} {case}: {outcome}");
            }
        }
        assert_eq!(host.calls(), 0);
    });
}

#[test]
fn rules_that_narrow_cut_what_stands() {
    for_each_user(async |user| {
        let plain = Upstream::plain(OUTSIDE).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        names.has("other.test", &[OUTSIDE]);
        let wide =
            json!({"mode": "allow", "domains": ["www.test", "other.test"], "cidrs": ["127.77.0.0/16"]});
        let narrow = json!({"mode": "allow", "domains": ["other.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, wide).await;
        let hold = format!(
            "import socket\ns = socket.create_connection(('127.0.0.1', 3128), 10); f = s.makefile('rwb')\n\
             f.write(b'CONNECT www.test:{port} HTTP/1.1\\r\\nHost: www.test:{port}\\r\\n\\r\\n'); f.flush()\n\
             while f.readline() != b'\\r\\n': pass\n\
             f.write(b'here\\n'); f.flush(); print(f.readline().decode().strip(), flush=True)\n\
             try: left = f.read()\nexcept OSError: left = b''\nprint('over', len(left), flush=True)\n",
            port = plain.port()
        );
        let process = session.process(json!({"argv": ["/usr/bin/python3", "-c", hold]})).await;
        process.says("here").await;
        set_network(&session, narrow).await;
        process.says("over 0").await;
        let told = fetch(&session, &format!("http://www.test:{}/", plain.port())).await;
        assert!(told.contains("denied [domain_not_allowed]"), "{told}");
        let totals = network_of(&session).await.totals;
        assert_eq!((totals.cut, totals.open), (1, 0), "{totals:?}");
    });
}
