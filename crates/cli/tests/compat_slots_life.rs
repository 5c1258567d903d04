//! A server of slots: who may call it, how it ends, what the next one finds, and the same API beside the main one.

mod slots;

use serde_json::{Value, json};
use slots::{Caller, Slots};
use std::process::Command;
use workroom_testkit::{
    Process, Server, Setup, as_ordinary_user, eventually, for_each_user, processes, unique,
};

/// A time that nobody else on this machine sleeps for.
fn own_time() -> String {
    format!("98765.{}", unique().replace('-', ""))
}

/// How many processes, in whatever room, sleep for this time.
fn sleepers(time: &str) -> usize {
    let sleeps = |process: &Process| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        line == format!("sleep\0{time}\0").into_bytes()
    };
    processes().iter().filter(|process| sleeps(process)).count()
}

/// Work of every kind, in both slots, that ends by itself only after a long time.
async fn keep_busy(slots: &Slots<'_>, time: &str) {
    for slot in ["slot_0", "slot_1"] {
        slots.caller().says(slot, &format!("echo {slot} > kept")).await;
        let job =
            slots.tool(slot, "bash_stateful", json!({ "command": format!("A=1; sleep {time} &") })).await;
        assert_eq!(job["success"], true, "{job}");
    }
    let args = json!({ "command": format!("sleep {time}; true") });
    let request = json!({ "slot_id": "slot_0", "tool": "bash", "args": args, "timeout": 600 });
    // Whoever waits for it is told something else, or nothing.
    let mut waiting = slots.server.http().json(&request).open("POST", "/execute").await;
    tokio::spawn(async move { drop(waiting.until("never").await) });
    eventually(async || match sleepers(time) {
        3 => Ok(()),
        other => Err(format!("{other} sleep")),
    })
    .await;
}

/// A next server has the files and nothing that ran.
async fn expect_files_only(slots: &Slots<'_>, time: &str) {
    assert_eq!(sleepers(time), 0);
    for slot in ["slot_0", "slot_1"] {
        assert_eq!(slots.caller().says(slot, "cat kept").await, slot);
        let fresh = slots.tool(slot, "bash_stateful", json!({ "command": "echo \"[$A]\"; jobs" })).await;
        assert_eq!(fresh["output"], "[]", "{fresh}");
    }
}

#[test]
fn a_server_that_is_asked_to_end_ends_its_rooms() {
    for_each_user(async |user| {
        let mut slots = Slots::of(user, 2);
        let time = own_time();
        keep_busy(&slots, &time).await;
        let status = slots.server.stop();
        assert!(status.success(), "{status}");
        assert_eq!(
            (slots.server.room_processes(), sleepers(&time)),
            (Vec::new(), 0),
            "nothing of any room is left"
        );
        slots.server.restart();
        expect_files_only(&slots, &time).await;
    });
}

#[test]
fn what_a_killed_server_leaves_is_ended_by_the_next_before_it_listens() {
    for_each_user(async |user| {
        let mut slots = Slots::of(user, 2);
        let time = own_time();
        keep_busy(&slots, &time).await;
        slots.server.kill();
        assert_eq!(sleepers(&time), 3, "rooms outlive a server that is killed");
        slots.server.restart();
        expect_files_only(&slots, &time).await;
        let health = slots.get("/health").await.expect(200);
        assert_eq!((&health["available"], &health["executing"]), (&json!(2), &json!(0)));
        // A next one that has fewer slots takes the others away, with what was in them.
        let data_dir = slots.server.state().parent().expect("a data directory").to_owned();
        slots.server.kill();
        let fewer = Slots { server: Setup::of(user).state(&data_dir).slots(1).start() };
        assert_eq!(fewer.says("cat kept").await, "slot_0");
        drop(fewer);
    });
}

#[test]
fn only_those_who_call_it_by_its_address_are_answered() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let port = slots.server.address().port();
        for host in
            ["127.0.0.1", "localhost", &format!("localhost:{port}"), &format!("127.0.0.1:{port}"), "[::1]"]
        {
            assert_eq!(slots.server.http().host(Some(host)).get("/health").await.status, 200, "{host}");
        }
        for host in
            ["evil.example", &format!("evil.example:{port}"), "10.1.2.3", &format!("80-x.localhost:{port}")]
        {
            let answer = slots.server.http().host(Some(host)).get("/health").await;
            assert_eq!(answer.expect(403)["success"], false, "{host}");
        }
        let run = json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "touch ran" } });
        for origin in ["https://evil.example", "null", &format!("http://evil.example:{port}")] {
            let page =
                slots.server.http().header("Origin", origin).body(run.to_string()).post("/execute").await;
            assert_eq!(page.status, 403, "{origin}");
        }
        assert_eq!(slots.says("ls").await, "", "nothing of it was run");
        assert_eq!(slots.server.http().host(None).get("/health").await.status, 400);
    });
}

#[test]
fn a_room_cannot_reach_the_server() {
    for_each_user(async |user| {
        let slots = Slots::of(user, 1);
        let port = slots.server.address().port();
        for at in ["127.0.0.1", "localhost", "0.0.0.0", "::1"] {
            let call = format!(
                "exec 3<>/dev/tcp/{at}/{port} && printf 'GET /health HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && cat <&3"
            );
            for tool in ["bash", "bash_stateful"] {
                let answer =
                    slots.tool("slot_0", tool, json!({ "command": call, "allow_network": true })).await;
                assert_eq!(answer["success"], false, "{tool} {at}: {answer}");
                assert!(
                    !answer["output"].as_str().unwrap_or_default().contains("bwrap_available"),
                    "{answer}"
                );
            }
        }
    });
}

/// What the program says and ends with.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("start");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_listens_to_strangers_only_when_the_risk_is_named() {
    for_each_user(async |user| {
        let data = user.make_dir("data-of-strangers");
        let slots = |arguments: &[&str]| {
            let mut command = user.command(user.program());
            command.arg("slots").args(arguments).arg("--data-dir").arg(&data);
            said(&mut command)
        };
        for arguments in [&["--host", "0.0.0.0"][..], &["--listen", "[::]:0"]] {
            let (code, text) = slots(arguments);
            assert_eq!(code, Some(125), "{text}");
            assert!(text.contains("--let-anyone-run-commands"), "{text}");
        }
        let (code, text) = slots(&["--net", "ajar"]);
        assert!(code == Some(125) && text.contains("allow:DOMAIN"), "{text}");
        let (code, text) = slots(&["--slots", "0"]);
        assert_eq!(code, Some(125), "{text}");
        let open = Setup::of(user)
            .slots(1)
            .arguments(&["--env", "GIVEN=here", "--host-name", "trainer.example"])
            .start();
        let open = Slots { server: open };
        assert_eq!(open.says("echo $GIVEN").await, "here");
        let stateful = open.tool("slot_0", "bash_stateful", json!({ "command": "echo $GIVEN" })).await;
        assert_eq!(stateful["output"], "here");
        assert_eq!(open.server.http().host(Some("trainer.example")).get("/health").await.status, 200);
    });
}

#[test]
fn without_rooms_nothing_is_run_at_all() {
    as_ordinary_user(async |user| {
        let starter = [
            "unshare",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"",
            "sh",
        ];
        if !user
            .command("unshare")
            .args(["--user", "--map-root-user", "true"])
            .status()
            .is_ok_and(|status| status.success())
        {
            println!("skipped: no user namespaces to be had");
            return;
        }
        let slots = Slots { server: Setup::of(user).slots(1).started_by(&starter).start() };
        assert_eq!(slots.get("/health").await.expect(200)["bwrap_available"], false);
        let refused = |error: &str| {
            json!({
                "success": false,
                "output": "",
                "error": format!("{error} but bubblewrap is unavailable in this environment"),
                "execution_id": null,
                "metadata": { "sandboxed": false, "network_isolated": false, "requires_bwrap": true },
            })
        };
        for (args, error) in [
            (json!({ "command": "id", "require_sandbox": true }), "Sandboxing required"),
            (
                json!({ "command": "id", "require_sandbox": true, "allow_network": false }),
                "Sandboxing required",
            ),
            (json!({ "command": "id", "allow_network": false }), "Network isolation requested"),
            (json!({ "command": "id" }), "Sandboxing required"),
        ] {
            assert_eq!(slots.tool("slot_0", "bash", args.clone()).await, refused(error), "{args}");
        }
        let stateful = slots
            .tool("slot_0", "bash_stateful", json!({ "command": "id", "require_stateful_sandbox": true }))
            .await;
        let error = "Failed to start stateful session: Stateful sandboxing required but bubblewrap is unavailable in this environment";
        assert_eq!(
            (&stateful["error"], &stateful["metadata"]),
            (&json!(error), &json!({ "stateful": true, "requires_bwrap": true }))
        );
        let typed = slots.tool("slot_0", "tmux", json!({ "action": "start", "allow_network": false })).await;
        let error = "Failed to ensure tmux session: Network isolation requested but bubblewrap is unavailable in this environment";
        assert_eq!((&typed["success"], &typed["error"]), (&json!(false), &json!(error)));
    });
}

/// The same API under the main server's paths, for whoever this token stands for.
struct Mounted<'s, 'u> {
    server: &'s Server<'u>,
    token: String,
}

impl Mounted<'_, '_> {
    async fn tool(&self, slot: &str, tool: &str, args: Value) -> workroom_testkit::Response {
        let request = json!({ "slot_id": slot, "tool": tool, "args": args });
        self.server.http().token(&self.token).json(&request).post("/compat/slots/execute").await
    }

    async fn says(&self, command: &str) -> Value {
        self.tool("slot_0", "bash", json!({ "command": command })).await.expect(200)["output"].clone()
    }
}

#[test]
fn on_the_main_server_every_owner_has_slots_of_its_own() {
    for_each_user(async |user| {
        let server = Setup::of(user).config("[serve]\nslots = 2\n").start();
        let request = json!({ "slot_id": "slot_0", "tool": "bash", "args": { "command": "echo x" } });
        let stranger = server.http().as_nobody().json(&request).post("/compat/slots/execute").await;
        assert_eq!(stranger.problem(401), "unauthorized");
        let token = async |body: Value| {
            let made = server.http().json(&body).post("/v1/tokens").await.expect(201);
            made["token"].as_str().expect("a token").to_owned()
        };
        let of = |token: String| Mounted { server: &server, token };
        let admin = of(server.token().to_owned());
        let ann = of(token(json!({ "scope": "user", "owner": "ann" })).await);
        let bob = of(token(json!({ "scope": "user", "owner": "bob" })).await);
        let also_ann = of(token(json!({ "scope": "user", "owner": "ann" })).await);
        ann.says("echo anns > mine").await;
        assert_eq!(also_ann.says("cat mine").await, "anns");
        assert_eq!(bob.says("ls").await, "");
        assert_eq!(admin.says("ls").await, "");
        let read_only = of(token(json!({ "scope": "user", "owner": "ann", "read_only": true })).await);
        assert_eq!(read_only.tool("slot_0", "bash", json!({})).await.problem(403), "forbidden");
        let health =
            Caller::new(server.http().token(&ann.token)).get("/compat/slots/health").await.expect(200);
        assert_eq!((&health["slots"], &health["bwrap_available"]), (&json!(2), &json!(true)));
        assert_eq!(ann.tool("slot_2", "bash", json!({})).await.expect(200)["error"], "Unknown slot: slot_2");
        // A slot is a session as any other, and comes back when somebody has deleted it.
        let sessions = server.http().token(&ann.token).get("/v1/sessions").await.expect(200);
        let slot = sessions["sessions"]
            .as_array()
            .expect("sessions")
            .iter()
            .find(|session| session["name"] == "slot_0");
        let id = slot.expect("anns slot")["id"].as_str().expect("an id").to_owned();
        // The journal has who asked, each by its own token.
        let journal = server.http().header("Accept", "application/json");
        let journal = journal.get(&format!("/v1/sessions/{id}/events")).await.expect(200);
        let actors: std::collections::BTreeSet<String> = journal["entries"]
            .as_array()
            .expect("entries")
            .iter()
            .filter(|entry| entry["kind"] == "exec.finished")
            .map(|entry| entry["actor"].to_string())
            .collect();
        assert_eq!(actors.len(), 2, "{journal}");
        let scoped = of(token(json!({ "scope": "session", "session": id })).await);
        assert_eq!(scoped.tool("slot_0", "bash", json!({})).await.problem(403), "forbidden");
        assert_eq!(server.http().token(&bob.token).get(&format!("/v1/sessions/{id}")).await.status, 404);
        server.http().token(&ann.token).delete(&format!("/v1/sessions/{id}")).await;
        assert_eq!(ann.says("ls").await, "");
        assert_eq!(server.http().get("/compat/slots/nowhere").await.status, 404);
        assert_eq!(server.http().get("/compat/slots/execute").await.status, 405);
    });
}
