//! Programs of rooms and the network: those that use a proxy and those that know of none reach what the policy names,
//! are told why they do not reach the rest, and all of it is counted.

mod network;

use network::{
    Upstream, has_device, is_installed, network_of, plain_get, python, server_with_names, session_with,
};
use serde_json::json;
use workroom_testkit::types::{NetworkMode, NetworkVerdict, NetworkWay};
use workroom_testkit::{Server, eventually, for_each_user};

const OUTSIDE: &str = "127.77.0.1";

#[test]
fn programs_that_use_a_proxy_reach_what_is_named() {
    for_each_user(async |user| {
        let refs = "1111111111111111111111111111111111111111\trefs/heads/main\n";
        let package = json!({
            "name": "thing", "dist-tags": {"latest": "1.2.3"},
            "versions": {"1.2.3": {"name": "thing", "version": "1.2.3", "dist": {"tarball": "http://www.test/t"}}},
        });
        let simple = "<a href=\"thing-1.2.3-py3-none-any.whl\">thing-1.2.3-py3-none-any.whl</a>";
        let pages =
            [("/repo/info/refs", refs), ("/thing", &package.to_string()[..]), ("/simple/thing/", simple)];
        let upstream = Upstream::http(OUTSIDE, &pages).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let rules = json!({"mode": "allow", "domains": ["www.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let base = format!("http://www.test:{}", upstream.port());
        let greeting = format!("hello www.test:{}\n", upstream.port());

        assert_eq!(session.says(&format!("curl -sS {base}/")).await, greeting);
        assert_eq!(
            session.says(&format!("curl -sS --proxy socks5h://127.0.0.1:3128 {base}/")).await,
            greeting
        );
        let urllib = format!(
            "import urllib.request; print(urllib.request.urlopen('{base}/').read().decode(), end='')"
        );
        assert_eq!(python(&session, &urllib).await.stdout, greeting);
        if is_installed("wget") {
            assert_eq!(session.says(&format!("wget -qO- {base}/")).await, greeting);
        }
        let listed = session.sh(&format!("git ls-remote {base}/repo")).await;
        assert!(listed.stdout.contains("refs/heads/main"), "{listed:?}");
        if is_installed("npm") {
            let seen = session.run(json!({
                "command": format!("npm view thing version --registry {base}/ --cache /tmp/npm"),
                "timeout_ms": 25_000,
            }));
            assert_eq!(seen.await.stdout.trim(), "1.2.3");
        }
        if is_installed("pip3") {
            let told = session
                .run(json!({
                    "command": format!("pip3 index versions thing --trusted-host www.test -i {base}/simple/ 2>&1"),
                    "timeout_ms": 25_000,
                }))
                .await;
            assert!(told.stdout.contains("1.2.3"), "{told:?}");
        }
        if is_installed("node") {
            let fetch = format!(
                "require('http').get({{host: '127.0.0.1', port: 3128, path: '{base}/'}}, r => r.pipe(process.stdout))"
            );
            assert_eq!(session.run(json!({"argv": ["/usr/bin/node", "-e", fetch]})).await.stdout, greeting);
        }
        // A caller's own variables stay.
        let own =
            session.run(json!({"command": "echo $http_proxy $HTTPS_PROXY", "env": {"http_proxy": "mine"}}));
        assert_eq!(own.await.stdout, "mine http://127.0.0.1:3128\n");
    });
}

#[test]
fn programs_that_know_of_no_proxy_reach_what_is_named_and_nothing_else() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let plain = Upstream::plain(OUTSIDE).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        names.has("other.test", &[OUTSIDE]);
        let rules = json!({"mode": "allow", "domains": ["www.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let view = network_of(&session).await;
        assert!(view.connected && view.mode == NetworkMode::Allow, "{view:?}");
        if !has_device(user) {
            // Said, and safe: there is the proxy, and no other way.
            assert!(!view.transparent && view.reason.is_some_and(|why| why.contains("/dev/net/tun")));
            let result = python(&session, &plain_get("www.test", upstream.port())).await;
            assert!(result.stdout.starts_with("refused: gaierror"), "{result:?}");
            assert_eq!(upstream.calls(), 0);
            return;
        }
        assert!(view.transparent, "{view:?}");
        let result = python(&session, &plain_get("www.test", upstream.port())).await;
        assert!(result.stdout.contains("hello www.test"), "{result:?}");

        // A database driver's way: the client speaks its own protocol, both ways, as long as it likes.
        let talk = format!(
            "import socket\ns = socket.create_connection(('www.test', {}), 10)\nf = s.makefile('rw')\n\
             for n in range(100):\n  f.write(f'line {{n}}\\n'); f.flush(); assert f.readline() == f'line {{n}}\\n'\nprint('done')\n",
            plain.port()
        );
        let talked = python(&session, &talk).await;
        assert_eq!(talked.stdout, "done\n", "{talked:?}");
        if is_installed("ssh") {
            let options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=10";
            session.sh(&format!("ssh {options} -p {} agent@www.test", plain.port())).await;
            assert!(plain.heads().iter().any(|line| line.starts_with("SSH-2.0-")), "{:?}", plain.heads());
        }

        // No question leaves for a name that is not named, whoever is asked.
        let result = python(&session, &plain_get("other.test", upstream.port())).await;
        assert!(result.stdout.starts_with("refused: gaierror"), "{result:?}");
        assert!(!names.asked().iter().any(|name| name == "other.test"), "{:?}", names.asked());
        // An address that no cidr names, and what is neither TCP nor a question.
        let result = python(&session, &plain_get("192.0.2.7", 80)).await;
        assert!(result.stdout.starts_with("refused: ConnectionRefusedError"), "{result:?}");
        let datagram = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10)\n\
                        s.connect(('198.18.0.1', 9)); s.send(b'x')\n\
                        try: s.recv(1); print('answered')\nexcept OSError as error: print('refused', error.errno)\n";
        let result = python(&session, datagram).await;
        assert!(result.stdout.starts_with("refused"), "{result:?}");
    });
}

#[test]
fn a_refusal_says_the_rule_and_how_to_allow_it_and_is_recorded() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        names.has("wanted.test", &[OUTSIDE]);
        let port = upstream.port();
        let rules =
            json!({"mode": "allow", "domains": ["www.test"], "ports": [port], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let url = format!("http://wanted.test:{port}/");
        let told = session.says(&format!("curl -sS -w '%{{http_code}}' {url}")).await;
        assert!(told.contains("\"wanted.test\" is not among the policy's domains"), "{told}");
        assert!(told.contains("add \"wanted.test\" to network.domains") && told.ends_with("403"), "{told}");
        let tunnelled = session.sh(&format!("curl -v https://wanted.test:{port}/ 2>&1")).await.stdout;
        assert!(tunnelled.contains("403") && tunnelled.contains("wanted.test"), "{tunnelled}");
        let told = session.says("curl -sS http://www.test:1/").await;
        assert!(told.contains("port 1 is not among the policy's ports"), "{told}");
        for _ in 0..6 {
            session.sh(&format!("curl -sS {url}")).await;
        }

        let event = session.event("network.denied").await;
        assert_eq!(
            (event.body["host"].as_str(), event.body["code"].as_str()),
            (Some("wanted.test"), Some("domain_not_allowed"))
        );
        let view = network_of(&session).await;
        let denial = view.denials.iter().find(|denial| denial.host == "wanted.test").expect("it is counted");
        assert_eq!(denial.count, 8, "{denial:?}");
        // Told at the 1st, 2nd, 4th and 8th time, not each time.
        eventually(async || {
            let journal = session.journal().await;
            let of_it = journal
                .iter()
                .filter(|entry| entry.kind == "network.denied" && entry.body["host"] == "wanted.test");
            let counts: Vec<_> = of_it.filter_map(|entry| entry.body["count"].as_u64()).collect();
            if counts == [1, 2, 4, 8] { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;

        // What it would have needed, as a document that can be set; and then it is reached, without a new room.
        session.says(&format!("curl -sS http://www.test:{port}/")).await;
        let proposal = session.client().network_proposal(&session.id).await.expect("a proposal");
        assert_eq!(proposal.network.domains, ["wanted.test", "www.test"]);
        let learned = server.cli(&["net", "learn", &session.id]).output().expect("it runs");
        let learned = String::from_utf8(learned.stdout).expect("text");
        assert!(learned.contains("domains = [\"wanted.test\", \"www.test\"]"), "{learned}");
        let allowed = server.cli(&["net", "allow", &session.id, "wanted.test"]).output().expect("it runs");
        assert!(allowed.status.success(), "{allowed:?}");
        assert!(session.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        let shown = server.cli(&["net", "show", &session.id]).output().expect("it runs");
        let shown = String::from_utf8(shown.stdout).expect("text");
        assert!(shown.contains("proxy 127.0.0.1:3128") && shown.contains("wanted.test"), "{shown}");
    });
}

#[test]
fn bytes_are_counted_as_they_are_and_outlive_the_room() {
    for_each_user(async |user| {
        let plain = Upstream::plain(OUTSIDE).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let rules = json!({"mode": "allow", "domains": ["www.test"], "cidrs": ["127.77.0.0/16"]});
        let session = session_with(&server, rules).await;
        let port = plain.port();
        // What is said to the proxy itself is not counted: 12 bytes go out and 300000 come in.
        let through = format!(
            "import socket\ns = socket.create_connection(('127.0.0.1', 3128), 10)\n\
             s.sendall(b'CONNECT www.test:{port} HTTP/1.1\\r\\nHost: www.test:{port}\\r\\n\\r\\n')\n\
             f = s.makefile('rb')\nwhile f.readline() != b'\\r\\n': pass\n\
             s.sendall(b'give 300000\\n')\nprint(len(f.read()))\n"
        );
        let got = python(&session, &through).await;
        assert_eq!(got.stdout, "300000\n", "{got:?}");
        eventually(async || {
            let view = network_of(&session).await;
            let line = view.connections.iter().find(|one| one.verdict == NetworkVerdict::Allowed);
            let line = line.ok_or(format!("{view:?}"))?;
            let seen = (line.host.as_str(), line.port, line.way, line.sent, line.received);
            let expected = ("www.test", port, NetworkWay::Connect, 12, 300_000);
            if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
        let view = network_of(&session).await;
        assert_eq!((view.totals.sent, view.totals.received, view.totals.opened), (12, 300_000, 1));
        let metrics = server.http().get("/metrics").await.text();
        assert!(metrics.contains("workroom_network_rooms 1"), "{metrics}");

        session.stop().await;
        let view = network_of(&session).await;
        assert!(!view.connected && view.connections.len() == 1, "{view:?}");
        assert_eq!((view.totals.sent, view.totals.received), (12, 300_000));
        session.start().await;
        assert_eq!(python(&session, &through).await.stdout, "300000\n");
        eventually(async || {
            let totals = network_of(&session).await.totals;
            if (totals.sent, totals.received, totals.opened, totals.open) == (24, 600_000, 2, 0) {
                Ok(())
            } else {
                Err(format!("{totals:?}"))
            }
        })
        .await;
        let listed = server.cli(&["net", "log", &session.id]).output().expect("it runs");
        assert!(String::from_utf8_lossy(&listed.stdout).contains(&format!("www.test:{port}")), "{listed:?}");
    });
}

#[test]
fn without_a_network_there_is_nothing_but_loopback_and_no_process() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        let devices = session.says("tail -n +3 /proc/net/dev | cut -d: -f1").await;
        assert_eq!(devices.trim(), "lo");
        assert_eq!(session.says("env | grep -ci proxy || true").await, "0\n");
        let result = python(&session, &plain_get("www.test", 80)).await;
        assert!(result.stdout.starts_with("refused: gaierror"), "{result:?}");
        let view = network_of(&session).await;
        assert!(view.mode == NetworkMode::Off && !view.connected && view.reason.is_none(), "{view:?}");
        assert_eq!(network::network_process(&server), None);
        let enforced = serde_json::to_value(&session.show().await.enforced).expect("JSON");
        assert_eq!(enforced["netns"]["by"], "network namespace, loopback only");
    });
}
