//! Counters, the log, events and the proposal.

mod support;

use serde_json::json;
use support::{Server, World, eventually, policy, read_all, run};
use tokio::io::AsyncWriteExt;
use workroom_egress::{Outcome, Way};

#[test]
fn bytes_are_counted_each_way_for_each_connection_and_in_all() {
    run(async {
        let server = Server::start("127.81.0.1:0", |mut stream| async move {
            let got = read_all(&mut stream).await.len();
            let _ = stream.write_all(&vec![1; got * 2]).await;
        })
        .await;
        let world =
            World::new(json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.81.0.0/16"]})).await;
        world.names.has("a.test", &["127.81.0.1"]);
        for size in [10, 100_000] {
            let mut stream = world.tunnel(&format!("a.test:{}", server.port())).await;
            stream.write_all(&vec![0; size]).await.unwrap();
            stream.shutdown().await.unwrap();
            assert_eq!(read_all(&mut stream).await.len(), size * 2);
        }
        world.connect("evil.test:443").await;
        eventually("all is closed", || world.session.totals().open == 0).await;
        let totals = world.session.totals();
        assert_eq!((totals.sent, totals.received), (100_010, 200_020));
        assert_eq!((totals.opened, totals.denied, totals.cut, totals.failed), (2, 1, 0, 0));
        let log = world.session.log();
        let lines: Vec<_> = log
            .iter()
            .map(|entry| {
                (
                    entry.host.as_str(),
                    entry.port,
                    entry.sent,
                    entry.received,
                    entry.outcome,
                    entry.rule.as_str(),
                )
            })
            .collect();
        assert!(
            lines.contains(&("a.test", server.port(), 10, 20, Outcome::Allowed, "domain a.test")),
            "{lines:?}"
        );
        assert!(lines.contains(&(
            "a.test",
            server.port(),
            100_000,
            200_000,
            Outcome::Allowed,
            "domain a.test"
        )));
        assert!(lines.contains(&("evil.test", 443, 0, 0, Outcome::Denied, "domain_not_allowed")));
        assert!(log.iter().all(|entry| entry.way == Way::Connect && entry.ended >= Some(entry.started)));
        assert!(serde_json::to_value(&log).unwrap()[0]["address"] == "127.81.0.1");
    });
}

#[test]
fn open_connections_are_in_the_log_too() {
    run(async {
        let server = Server::echo("127.81.0.2:0").await;
        let world = World::new(json!({"mode": "allow", "cidrs": ["127.81.0.0/16"]})).await;
        let _stream = world.tunnel(&format!("127.81.0.2:{}", server.port())).await;
        let log = world.session.log();
        assert_eq!((log.len(), log[0].outcome, log[0].ended), (1, Outcome::Open, None));
        assert_eq!(log[0].rule, "cidr 127.81.0.0/16");
    });
}

#[test]
fn a_program_that_tries_for_ever_fills_nothing() {
    run(async {
        let world = World::new(json!({"mode": "allow", "domains": ["a.test"]})).await;
        for _ in 0..100 {
            world.socks(b"evil.test", 443).await;
        }
        let counts: Vec<u64> = world.witness.seen().iter().map(|event| event.count).collect();
        assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(world.session.denials()[0].count, 100);
        // Ever new names: lists are bounded, and what does not fit is counted.
        let mut stream = world.call().await;
        for number in 0..5000 {
            let request = format!("GET http://n{number}.evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = support::read_head(&mut stream).await;
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())
                .unwrap();
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut vec![0; length]).await.unwrap();
        }
        let totals = world.session.totals();
        assert_eq!(totals.denied, 5100);
        assert_eq!(world.session.log().len() as u64 + totals.forgotten, 5100);
        assert!(world.session.log().len() <= 1024);
        let denials = world.session.denials();
        assert!(denials.len() <= 600);
        assert_eq!(denials.iter().map(|event| event.count).sum::<u64>(), 5100);
        let proposal = world.session.learn();
        assert_eq!(proposal.policy.domains().len() as u64 + proposal.overlooked, 5001);
    });
}

#[test]
fn a_proposal_allows_what_was_wanted_and_nothing_more() {
    run(async {
        let server = Server::mirror("127.81.0.3:0").await;
        let world = World::new(json!("off")).await;
        world.names.has("a.test", &["127.81.0.3"]);
        world.names.has("b.test", &["93.184.216.34"]);
        assert_eq!(world.session.learn().policy, policy(json!("off")), "nothing was wanted");
        let target = format!("a.test:{}", server.port());
        world.connect(&target).await;
        world.connect("b.test:443").await;
        world.connect("9.9.9.9:53").await;
        world.connect("169.254.169.254:80").await;
        world.connect("nonsense..test:80").await;
        let proposal = world.session.learn();
        let port = server.port();
        let mut ports = vec![53, 443, port];
        ports.sort();
        let expected = json!({"mode": "allow", "domains": ["a.test", "b.test"], "ports": ports, "cidrs": ["9.9.9.9/32"]});
        assert_eq!(serde_json::to_value(&proposal.policy).unwrap(), expected);
        assert_eq!(proposal.left_out.len(), 1);
        assert_eq!(proposal.left_out[0].cidrs, ["169.254.169.254/32"]);
        // Under it a.test gets further, as far as its address, which somebody has to decide about.
        world.session.set_policy(proposal.policy);
        let (_, head) = world.connect(&target).await;
        assert!(head.contains("special_address"), "{head}");
        let proposal = world.session.learn();
        let left_out = proposal.left_out.iter().find(|left_out| left_out.host == "a.test").expect("a.test");
        assert_eq!(left_out.cidrs, ["127.81.0.3/32"]);
        let mut complete = serde_json::to_value(&proposal.policy).unwrap();
        complete["cidrs"].as_array_mut().unwrap().push(json!("127.81.0.3/32"));
        world.session.set_policy(policy(complete));
        world.tunnel(&target).await;
    });
}
