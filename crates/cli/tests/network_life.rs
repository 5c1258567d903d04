//! The network of rooms over the deaths of what carries it: the server, the network process; and over rules that come
//! and go while a room runs.

mod network;

use network::{
    Upstream, has_device, network_of, network_process, plain_get, python, send_signal, server_with_names,
    session_with, set_network, until_reached,
};
use serde_json::json;
use std::path::Path;
use workroom_testkit::types::NetworkMode;
use workroom_testkit::{TestSession, eventually, for_each_user};

const OUTSIDE: &str = "127.77.0.1";

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["www.test"], "cidrs": ["127.77.0.0/16"]})
}

async fn devices(session: &TestSession) -> Vec<String> {
    let listed = session.says("tail -n +3 /proc/net/dev | cut -d: -f1").await;
    listed.split_whitespace().map(str::to_owned).collect()
}

/// Waits for a word in a file that a room writes, also while there is no server to ask.
async fn until_said(file: &Path, word: &str) {
    eventually(async || {
        let said = std::fs::read_to_string(file).unwrap_or_default();
        if said.contains(word) { Ok(()) } else { Err(said) }
    })
    .await;
}

#[test]
fn a_network_comes_and_goes_in_a_room_that_runs() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let session = server.session().await;
        session.says("touch /tmp/of-this-room").await;
        let url = format!("http://www.test:{}/", upstream.port());
        set_network(&session, rules()).await;
        assert!(session.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        let expected: &[&str] = if has_device(user) { &["lo", "tun0"] } else { &["lo"] };
        assert_eq!(devices(&session).await, expected);
        let view = session.client().policy(&session.id).await.expect("its policy");
        assert!(view.pending.is_empty(), "{view:?}");
        let enforced = serde_json::to_value(&view.enforced).expect("JSON");
        let by = enforced["netns"]["by"].as_str().expect("by what");
        assert!(by.contains("allow: proxy") && by.contains("judged outside the room"), "{by}");

        set_network(&session, json!({"mode": "off"})).await;
        assert_eq!(devices(&session).await, ["lo"]);
        assert_eq!(session.says("env | grep -ci proxy || true").await, "0\n");
        let refused = session.sh(&format!("curl -sS --proxy http://127.0.0.1:3128 {url}")).await;
        assert_ne!(refused.exit_code, 0, "{refused:?}");
        let enforced = serde_json::to_value(&session.show().await.enforced).expect("JSON");
        assert_eq!(enforced["netns"]["by"], "network namespace, loopback only");

        set_network(&session, json!({"mode": "open", "cidrs": ["127.77.0.0/16"]})).await;
        assert!(session.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        assert_eq!(network_of(&session).await.mode, NetworkMode::Open);
        session.says("test -e /tmp/of-this-room").await;
    });
}

#[test]
fn a_room_goes_on_with_its_network_after_the_server_was_killed() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (mut server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let session = session_with(&server, rules()).await;
        let url = format!("http://www.test:{}/", upstream.port());
        until_reached(&session, &url).await;
        // Asks again and again, as a program does that knows nothing of servers.
        let program = format!(
            "while sleep 0.05; do curl -sS --max-time 3 {url} > /dev/null 2>&1 && echo reached || echo not; done >> /workspace/said"
        );
        let process = session.process(json!({"command": program})).await;
        let pid = process.show().await.pid;
        let said = server.state().join("layers").join(&session.id).join("fs/workspace/said");
        until_said(&said, "reached").await;
        let old = network_process(&server).expect("a network process");
        server.kill();
        // What carried the network ends with the server: there is no other way out.
        eventually(async || {
            let state = std::fs::read_to_string(format!("/proc/{old}/stat")).unwrap_or_default();
            let gone = state.is_empty() || state.contains(") Z ");
            if gone { Ok(()) } else { Err(format!("the network process goes on: {state}")) }
        })
        .await;
        until_said(&said, "not").await;
        server.restart();
        let session = TestSession::new(server.client(), session.id.clone());
        until_reached(&session, &url).await;
        eventually(async || {
            let said = session.says("uniq /workspace/said").await;
            let said: Vec<&str> = said.split_whitespace().collect();
            if said.ends_with(&["reached", "not", "reached"]) { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        assert_eq!(
            session.known_process(&process.id).show().await.pid,
            pid,
            "the same program, in the same room"
        );
        if has_device(user) {
            let result = python(&session, &plain_get("www.test", upstream.port())).await;
            assert!(result.stdout.contains("hello"), "{result:?}");
        }
        let view = network_of(&session).await;
        assert!(view.connected && view.totals.opened > 0, "{view:?}");
    });
}

#[test]
fn without_the_network_process_there_is_no_network_and_with_the_next_there_is() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let session = session_with(&server, rules()).await;
        let second = session_with(&server, rules()).await;
        let url = format!("http://www.test:{}/", upstream.port());
        until_reached(&session, &url).await;
        let counted = network_of(&session).await.totals;
        let process = network_process(&server).expect("a network process");

        let before = upstream.calls();
        send_signal(process, "STOP");
        let silent = session.sh(&format!("curl -sS --max-time 1 {url}")).await;
        assert_ne!(silent.exit_code, 0, "{silent:?}");
        if has_device(user) {
            let asked = "import socket; socket.setdefaulttimeout(1)\n\
                         try: socket.create_connection(('198.18.0.3', 80), 1); print('reached')\nexcept OSError: print('not')";
            assert_eq!(python(&session, asked).await.stdout, "not\n");
        }
        assert_eq!(upstream.calls(), before);
        send_signal(process, "CONT");
        send_signal(process, "KILL");
        until_reached(&session, &url).await;
        until_reached(&second, &url).await;
        let next = network_process(&server).expect("another one");
        assert_ne!(next, process);
        if has_device(user) {
            let result = python(&session, &plain_get("www.test", upstream.port())).await;
            assert!(result.stdout.contains("hello"), "{result:?}");
        }
        let totals = network_of(&session).await.totals;
        assert!(totals.opened > counted.opened && totals.sent > counted.sent, "{counted:?} {totals:?}");
        let metrics = server.http().get("/metrics").await.text();
        assert!(metrics.contains("workroom_network_process_restarts_total 1"), "{metrics}");
        // Rules that were changed since the room was wired are those that the next one was given.
        set_network(&session, json!({"mode": "allow", "domains": ["other.test"]})).await;
        send_signal(next, "KILL");
        eventually(async || match network_process(&server) {
            Some(pid) if pid != next => Ok(()),
            _ => Err("no other process yet".to_owned()),
        })
        .await;
        eventually(async || {
            let told = session.sh(&format!("curl -sS --max-time 5 {url}")).await.stdout;
            if told.contains("domain_not_allowed") { Ok(()) } else { Err(told) }
        })
        .await;
    });
}

#[test]
fn the_network_process_has_no_rights_to_lose() {
    for_each_user(async |user| {
        let (server, _names) = server_with_names(user).await;
        let _session = session_with(&server, rules()).await;
        let process = network_process(&server).expect("a network process");
        eventually(async || {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            let id = if user.is_root() { "65534".to_owned() } else { user.uid().to_string() };
            let is_nobody = field("Uid:") == vec![id; 4];
            let is_bare =
                field("CapEff:") == ["0000000000000000"] && field("CapPrm:") == ["0000000000000000"];
            if is_nobody && is_bare && field("NoNewPrivs:") == ["1"] { Ok(()) } else { Err(status) }
        })
        .await;
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
    });
}

#[test]
fn a_room_that_is_replaced_keeps_its_network_and_a_fork_gets_its_own() {
    for_each_user(async |user| {
        let upstream = Upstream::http(OUTSIDE, &[]).await;
        let (server, names) = server_with_names(user).await;
        names.has("www.test", &[OUTSIDE]);
        let session = session_with(&server, rules()).await;
        let url = format!("http://www.test:{}/", upstream.port());
        until_reached(&session, &url).await;
        let path = session.path("/reset");
        server.http().json(&json!({"to": "baseline"})).post(&path).await.expect(200);
        assert!(session.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        let path = session.path("/fork");
        let forks = server.http().json(&json!({})).post(&path).await;
        let id = forks.expect(201)["forks"][0]["session"]["id"].as_str().expect("an id").to_owned();
        let fork = TestSession::new(server.client(), id);
        assert!(fork.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        session.delete().await;
        assert!(fork.says(&format!("curl -sS {url}")).await.starts_with("hello"));
        fork.delete().await;
        server.expect_no_leaks().await;
    });
}
