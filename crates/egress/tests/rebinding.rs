//! A name server that attacks: it changes its mind, mixes addresses, sends chains and forgeries.

mod support;

use serde_json::json;
use support::names::Say;
use support::{Server, World, read_head, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Where the attacker wants to get: a server on this machine that no cidr names.
const INSIDE: &str = "127.66.0.1";
/// Where it may get.
const OUTSIDE: &str = "127.77.0.1";

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["a.test", "*.b.test"], "cidrs": ["127.77.0.0/16"]})
}

async fn says_hello(stream: &mut tokio::net::TcpStream) -> bool {
    stream.write_all(b"hello\n").await.unwrap();
    let mut echoed = [0; 6];
    stream.read_exact(&mut echoed).await.is_ok() && &echoed == b"hello\n"
}

#[test]
fn a_name_that_turns_inside_is_denied_by_its_address() {
    run(async {
        let inside = Server::echo(&format!("{INSIDE}:0")).await;
        let outside = Server::echo(&format!("{OUTSIDE}:{}", inside.port())).await;
        let world = World::new(rules()).await;
        // The oldest attack: good at first, then inside, each answer for no time at all.
        let (good, bad) = (OUTSIDE.parse().unwrap(), INSIDE.parse().unwrap());
        world.names.say("a.test", [Say::Addresses(vec![good], 0), Say::Addresses(vec![bad], 0)]);
        let target = format!("a.test:{}", inside.port());
        assert!(says_hello(&mut world.tunnel(&target).await).await);
        for _ in 0..3 {
            let (_, head) = world.connect(&target).await;
            assert!(head.starts_with("HTTP/1.1 403"), "{head}");
            assert!(head.contains(INSIDE), "{head}");
        }
        assert_eq!((outside.calls(), inside.calls()), (1, 0));
    });
}

#[test]
fn what_was_judged_is_dialled_and_nothing_is_asked_again() {
    run(async {
        let inside = Server::echo(&format!("{INSIDE}:0")).await;
        let outside = Server::echo(&format!("{OUTSIDE}:{}", inside.port())).await;
        let world = World::new(rules()).await;
        let (good, bad) = (OUTSIDE.parse().unwrap(), INSIDE.parse().unwrap());
        world.names.say("a.test", [Say::Addresses(vec![good], 0), Say::Addresses(vec![bad], 0)]);
        assert!(says_hello(&mut world.tunnel(&format!("a.test:{}", inside.port())).await).await);
        // One look-up is one question for each family.
        assert_eq!(world.names.asked(), ["a.test", "a.test"]);
        assert_eq!((outside.calls(), inside.calls()), (1, 0));
    });
}

#[test]
fn of_mixed_answers_only_the_good_ones_are_dialled() {
    run(async {
        let inside = Server::echo(&format!("{INSIDE}:0")).await;
        let port = inside.port();
        let world = World::new(rules()).await;
        let all = vec![
            INSIDE.parse().unwrap(),
            "10.0.0.1".parse().unwrap(),
            "::1".parse().unwrap(),
            "::ffff:127.66.0.1".parse().unwrap(),
            OUTSIDE.parse().unwrap(),
        ];
        world.names.say("a.test", [Say::Addresses(all, 60)]);
        // Nobody listens outside yet: that the good one refuses does not make the others good.
        let (_, head) = world.connect(&format!("a.test:{port}")).await;
        assert!(head.starts_with("HTTP/1.1 502"), "{head}");
        let outside = Server::echo(&format!("{OUTSIDE}:{port}")).await;
        assert!(says_hello(&mut world.tunnel(&format!("a.test:{port}")).await).await);
        assert_eq!((outside.calls(), inside.calls()), (1, 0));
    });
}

#[test]
fn every_kind_of_inside_address_is_denied() {
    run(async {
        let world = World::new(json!("open")).await;
        for (name, address) in [
            ("loop.test", "127.0.0.1"),
            ("zero.test", "0.0.0.0"),
            ("private.test", "10.0.0.1"),
            ("metadata.test", "169.254.169.254"),
            ("loop6.test", "::1"),
            ("mapped.test", "::ffff:127.0.0.1"),
            ("compatible.test", "::127.0.0.1"),
            ("sixtofour.test", "2002:7f00:1::"),
            ("nat64.test", "64:ff9b::7f00:1"),
            ("teredo.test", "2001:0:7f00:1::"),
            ("local.test", "fd00::1"),
            ("link.test", "fe80::1"),
        ] {
            world.names.has(name, &[address]);
            let (_, head) = world.connect(&format!("{name}:80")).await;
            assert!(head.starts_with("HTTP/1.1 403"), "{name}: {head}");
            assert!(head.contains("special_address"), "{name}: {head}");
            let (_, reply) = world.socks(name.as_bytes(), 80).await;
            assert_eq!(reply, 2, "{name}");
        }
        let (_, head) = world.connect("localhost:80").await;
        assert!(head.contains("special_address"), "{head}");
        let (_, head) = world.connect("deep.localhost:80").await;
        assert!(head.contains("special_address"), "{head}");
        assert!(
            !world.names.asked().iter().any(|name| name.ends_with("localhost")),
            "nobody is asked for localhost"
        );
        assert_eq!(world.session.totals().opened, 0);
    });
}

#[test]
fn chains_of_aliases_end_at_an_address_that_is_judged() {
    run(async {
        let inside = Server::echo(&format!("{INSIDE}:0")).await;
        let port = inside.port();
        let outside = Server::echo(&format!("{OUTSIDE}:{port}")).await;
        let world = World::new(rules()).await;
        // An alias leads where its owner wants, so names on the way need not be allowed; addresses must be.
        world.names.say("x.b.test", [Say::Chain(vec!["cdn.test", "edge.test"], OUTSIDE.parse().unwrap())]);
        world.names.say("y.b.test", [Say::Chain(vec!["cdn.test", "localhost"], INSIDE.parse().unwrap())]);
        world.names.say("z.b.test", [Say::Alias("half.test")]);
        world.names.has("half.test", &[OUTSIDE]);
        world.names.say("loop.b.test", [Say::Alias("loop2.b.test")]);
        world.names.say("loop2.b.test", [Say::Alias("loop.b.test")]);
        let long: Vec<&str> = vec![
            "l1.test", "l2.test", "l3.test", "l4.test", "l5.test", "l6.test", "l7.test", "l8.test",
            "l9.test", "l10.test", "l11.test", "l12.test", "l13.test", "l14.test",
        ];
        world.names.say("long.b.test", [Say::Chain(long, OUTSIDE.parse().unwrap())]);
        world.names.say("self.b.test", [Say::Alias("self.b.test")]);
        assert!(says_hello(&mut world.tunnel(&format!("x.b.test:{port}")).await).await);
        assert!(says_hello(&mut world.tunnel(&format!("z.b.test:{port}")).await).await);
        for (name, status) in [("y", "403"), ("loop", "502"), ("long", "502"), ("self", "502")] {
            let (_, head) = world.connect(&format!("{name}.b.test:{port}")).await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {head}");
        }
        assert_eq!((outside.calls(), inside.calls()), (2, 0));
    });
}

#[test]
fn an_answer_for_a_hundred_years_is_judged_each_time_it_is_used() {
    run(async {
        let outside = Server::echo(&format!("{OUTSIDE}:0")).await;
        let world = World::new(rules()).await;
        world.names.say("a.test", [Say::Addresses(vec![OUTSIDE.parse().unwrap()], u32::MAX)]);
        let target = format!("a.test:{}", outside.port());
        assert!(says_hello(&mut world.tunnel(&target).await).await);
        // The answer is remembered, and the rules have changed.
        world.session.set_policy(support::policy(json!({"mode": "allow", "domains": ["a.test"]})));
        let (_, head) = world.connect(&target).await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        assert_eq!(world.names.asked().len(), 2, "it was remembered");
    });
}

#[test]
fn no_question_leaves_for_a_name_that_is_not_allowed() {
    run(async {
        let world = World::new(rules()).await;
        // Data in names is how it would get out.
        for name in ["evil.test", "c2VjcmV0.evil.test", "b.test", "a.test.evil.test"] {
            let (_, head) = world.connect(&format!("{name}:443")).await;
            assert!(head.starts_with("HTTP/1.1 403"), "{name}: {head}");
            let (_, reply) = world.socks(name.as_bytes(), 443).await;
            assert_eq!(reply, 2, "{name}");
            let mut stream = world.call().await;
            let request = format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 403"), "{name}");
        }
        world.session.set_policy(support::policy(json!("off")));
        let (_, head) = world.connect("a.test:443").await;
        assert!(head.contains("network_off"), "{head}");
        world
            .session
            .set_policy(support::policy(json!({"mode": "allow", "domains": ["a.test"], "ports": [443]})));
        let (_, head) = world.connect("a.test:80").await;
        assert!(head.contains("port_not_allowed"), "{head}");
        assert_eq!(world.names.asked(), Vec::<String>::new());
    });
}

#[test]
fn forged_answers_are_passed_over() {
    run(async {
        let inside = Server::echo("127.77.0.66:0").await;
        let port = inside.port();
        let outside = Server::echo(&format!("{OUTSIDE}:{port}")).await;
        let world = World::new(rules()).await;
        let (forged, honest) = ("127.77.0.66".parse().unwrap(), OUTSIDE.parse().unwrap());
        world.names.say("a.test", [Say::AfterForgeries(forged, honest)]);
        assert!(says_hello(&mut world.tunnel(&format!("a.test:{port}")).await).await);
        assert_eq!((outside.calls(), inside.calls()), (1, 0));
    });
}

#[test]
fn servers_that_do_not_help_end_in_a_sentence() {
    run(async {
        let outside = Server::echo(&format!("{OUTSIDE}:0")).await;
        let world = World::new(rules()).await;
        world.names.say("large.b.test", [Say::OnlyOverTcp(vec![OUTSIDE.parse().unwrap()])]);
        assert!(says_hello(&mut world.tunnel(&format!("large.b.test:{}", outside.port())).await).await);
        world.names.say("gone.b.test", [Say::NoSuchName]);
        world.names.say("empty.b.test", [Say::Addresses(vec![], 60)]);
        world.names.say("broken.b.test", [Say::ServerFailure]);
        world.names.say("silent.b.test", [Say::Silence]);
        world.names.say("noise.b.test", [Say::Noise]);
        for (name, words) in [
            ("gone", "does not exist"),
            ("empty", "has no address"),
            ("broken", "could not be resolved"),
            ("silent", "gave no answer"),
            ("noise", "gave no answer"),
        ] {
            let (_, head) = world.connect(&format!("{name}.b.test:80")).await;
            assert!(head.starts_with("HTTP/1.1 502") && head.contains(words), "{name}: {head}");
        }
        assert_eq!(world.session.totals().failed, 5);
    });
}

/// Many addresses, many at once, the name turning all the time: none of them ever gets inside.
#[test]
fn a_name_that_turns_all_the_time_never_gets_inside() {
    run(async {
        let inside = Server::echo(&format!("{INSIDE}:0")).await;
        let port = inside.port();
        let outside = Server::echo(&format!("{OUTSIDE}:{port}")).await;
        let world = std::sync::Arc::new(World::new(rules()).await);
        let (good, bad) = (OUTSIDE.parse().unwrap(), INSIDE.parse().unwrap());
        let turns: Vec<Say> =
            (0..400).map(|turn| Say::Addresses(vec![if turn % 2 == 0 { good } else { bad }], 0)).collect();
        world.names.say("a.test", turns);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let world = world.clone();
            tasks.spawn(async move {
                for _ in 0..5 {
                    let (mut stream, head) = world.connect(&format!("a.test:{port}")).await;
                    assert!(!head.starts_with("HTTP/1.1 200") || says_hello(&mut stream).await);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(inside.calls(), 0);
        assert!(outside.calls() > 0);
    });
}
