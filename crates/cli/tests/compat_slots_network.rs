//! What slots reach: what their server allows, nothing where a call wants that, and never the server itself.

mod network;
mod slots;

use network::Upstream;
use serde_json::json;
use slots::Slots;
use workroom_testkit::{Setup, for_each_user};

#[test]
fn slots_reach_what_their_server_allows_and_nothing_where_a_call_wants_that() {
    for_each_user(async |user| {
        let upstream = Upstream::http("127.77.0.1", &[]).await;
        let setup = Setup::of(user).slots(1).arguments(&["--net", "allow:127.77.0.0/16"]);
        let slots = Slots { server: setup.start() };
        let fetch = |address: std::net::SocketAddr| {
            format!("curl -sS --fail -m 20 --noproxy '' -x http://127.0.0.1:3128 http://{address}/")
        };
        for tool in ["bash", "bash_stateful"] {
            let called = upstream.calls();
            let open = slots.tool("slot_0", tool, json!({"command": fetch(upstream.address)})).await;
            assert_eq!(
                (&open["success"], &open["metadata"]["network_isolated"]),
                (&json!(true), &json!(false)),
                "{open}"
            );
            assert_eq!(upstream.calls(), called + 1);
            let closed = json!({"command": fetch(upstream.address), "allow_network": false});
            let closed = slots.tool("slot_0", tool, closed).await;
            assert_eq!(
                (&closed["success"], &closed["metadata"]["network_isolated"]),
                (&json!(false), &json!(true)),
                "{closed}"
            );
            assert_eq!(upstream.calls(), called + 1);
        }
        // It comes back when it is wanted again; and never leads to whoever made the room.
        let again = slots.tool("slot_0", "bash", json!({"command": fetch(upstream.address)})).await;
        assert_eq!(again["success"], true, "{again}");
        let own = format!("{}health", fetch(slots.server.address()));
        let denied = slots.tool("slot_0", "bash", json!({"command": own})).await;
        assert_eq!(denied["success"], false, "{denied}");
    });
}

#[test]
fn no_network_that_a_server_allows_leads_to_the_server() {
    for_each_user(async |user| {
        // On the address that the server has, so that only who listens there tells them apart.
        let upstream = Upstream::http("127.0.0.1", &[]).await;
        for net in ["allow:127.0.0.0/8", "allow:127.0.0.1/32", "open"] {
            let setup = Setup::of(user).slots(2).arguments(&["--net", net]);
            let slots = Slots { server: setup.start() };
            let through = "curl -sS --fail -m 20 --noproxy '' -x http://127.0.0.1:3128";
            if net != "open" {
                let fetch = format!("{through} http://{}/", upstream.address);
                let open = slots.tool("slot_0", "bash", json!({"command": fetch})).await;
                assert_eq!(open["success"], true, "{net}: {open}");
            }
            let port = slots.server.address().port();
            let other = json!({"slot_id": "slot_1", "tool": "bash", "args": {"command": "id"}}).to_string();
            for at in ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"] {
                for call in [
                    format!("{through} http://{at}:{port}/health"),
                    format!(
                        "{through} -H 'Content-Type: application/json' -d '{other}' http://{at}:{port}/execute"
                    ),
                ] {
                    let denied = slots.tool("slot_0", "bash", json!({"command": call})).await;
                    assert_eq!(denied["success"], false, "{net}, {call}: {denied}");
                    let said = denied["output"].as_str().unwrap_or_default();
                    assert!(!said.contains("uid=") && !said.contains("status"), "{net}, {call}: {denied}");
                }
            }
        }
    });
}
