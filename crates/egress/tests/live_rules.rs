//! Rules that change while connections stand, and the machine's own addresses.

mod support;

use serde_json::json;
use support::hello::client_hello;
use support::{Server, World, eventually, policy, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use workroom_egress::Outcome;

async fn alive(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"\0").await.is_ok() && matches!(stream.read(&mut byte).await, Ok(1))
}

#[test]
fn new_rules_hold_for_new_connections_and_cut_old_ones() {
    run(async {
        let server = Server::echo("127.80.0.1:0").await;
        let both = json!({"mode": "allow", "domains": ["a.test", "b.test"], "cidrs": ["127.80.0.0/16"]});
        let world = World::new(both).await;
        world.names.has("a.test", &["127.80.0.1"]);
        world.names.has("b.test", &["127.80.0.1"]);
        let port = server.port();
        let mut a = world.tunnel(&format!("a.test:{port}")).await;
        let (mut b, _) = world.socks(b"b.test", port).await;
        let mut direct = world.tunnel(&format!("127.80.0.1:{port}")).await;
        assert!(alive(&mut a).await && alive(&mut b).await && alive(&mut direct).await);

        let only_a = json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.80.0.0/16"]});
        world.session.set_policy(policy(only_a));
        assert_eq!(read_all(&mut b).await, b"", "b is cut");
        assert!(alive(&mut a).await && alive(&mut direct).await, "the others go on");
        assert!(world.connect(&format!("b.test:{port}")).await.1.starts_with("HTTP/1.1 403"));

        let other_ports =
            json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.80.0.0/16"], "ports": [1]});
        world.session.set_policy(policy(other_ports));
        assert_eq!(read_all(&mut a).await, b"");
        assert_eq!(read_all(&mut direct).await, b"");
        eventually("three were cut", || world.session.totals().cut == 3).await;
        let cut: Vec<_> =
            world.session.log().into_iter().filter(|entry| entry.outcome == Outcome::Cut).collect();
        assert!(cut[0].detail.as_ref().unwrap().contains("domain_not_allowed"), "{cut:#?}");
        assert_eq!((cut[0].host.as_str(), cut[0].sent, cut[0].received), ("b.test", 1, 1));
    });
}

#[test]
fn an_address_that_is_no_longer_named_is_cut_though_its_name_is_allowed() {
    run(async {
        let server = Server::echo("127.80.0.2:0").await;
        let world =
            World::new(json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.80.0.0/16"]})).await;
        world.names.has("a.test", &["127.80.0.2"]);
        let mut stream = world.tunnel(&format!("a.test:{}", server.port())).await;
        assert!(alive(&mut stream).await);
        world.session.set_policy(policy(json!({"mode": "allow", "domains": ["a.test"]})));
        assert_eq!(read_all(&mut stream).await, b"");
    });
}

#[test]
fn what_nobody_has_looked_at_does_not_survive_rules_that_go_by_names() {
    run(async {
        let server = Server::echo("127.80.0.3:0").await;
        let world = World::new(json!({"mode": "open", "cidrs": ["127.80.0.0/16"]})).await;
        world.names.has("a.test", &["127.80.0.3"]);
        let mut stream = world.tunnel(&format!("a.test:{}", server.port())).await;
        let hello = client_hello(&[b"evil.test"]);
        stream.write_all(&hello).await.unwrap();
        let mut echoed = vec![0; hello.len()];
        stream.read_exact(&mut echoed).await.unwrap();
        let named = json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.80.0.0/16"]});
        world.session.set_policy(policy(named));
        assert_eq!(read_all(&mut stream).await, b"");
    });
}

#[test]
fn a_kept_connection_is_not_a_way_around_new_rules() {
    run(async {
        let server = Server::mirror("127.80.0.4:0").await;
        let world =
            World::new(json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.80.0.0/16"]})).await;
        world.names.has("a.test", &["127.80.0.4"]);
        let mut stream = world.call().await;
        let request = format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: x\r\n\r\n", server.port());
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(support::read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
        support::read_head(&mut stream).await;
        world.session.set_policy(policy(json!({"mode": "allow", "domains": ["b.test"]})));
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(support::read_head(&mut stream).await.starts_with("HTTP/1.1 403"));
        assert_eq!(server.calls(), 1);
    });
}

#[test]
fn the_machines_own_addresses_need_to_be_named_one_by_one() {
    run(async {
        // The address that this machine would be seen with from elsewhere.
        let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if probe.connect("192.0.2.1:9").is_err() {
            println!("skipped: this machine has no network");
            return;
        }
        let own = probe.local_addr().unwrap().ip();
        let server = Server::echo(&format!("{own}:0")).await;
        let target = format!("{own}:{}", server.port());
        let around = json!({"mode": "open", "cidrs": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"]});
        let world = World::new(around).await;
        world.names.has("self.test", &[&own.to_string()]);
        let (_, head) = world.connect(&target).await;
        assert!(head.starts_with("HTTP/1.1 403") && head.contains("own_address"), "{head}");
        let (_, head) = world.connect(&format!("self.test:{}", server.port())).await;
        assert!(head.contains("own_address"), "{head}");
        assert_eq!(server.calls(), 0);
        world.session.set_policy(policy(json!({"mode": "open", "cidrs": [format!("{own}/32")]})));
        assert!(alive(&mut world.tunnel(&target).await).await);
    });
}
