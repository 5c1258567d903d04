//! Many rooms whose host is killed: the next one has them all, with what runs in them.

mod violence;

use serde_json::json;
use std::time::Instant;
use tokio::task::JoinSet;
use violence::in_threads;
use violence::line::{Line, Request};
use violence::machine::{agrees, all_sessions, text, verify_journals};
use workroom_testkit::{Server, User, eventually};

#[test]
fn every_room_is_taken_up_again() {
    attach(20);
}

#[test]
#[ignore = "long"]
fn soak_every_room_is_taken_up_again() {
    attach(100);
}

fn attach(rooms: usize) {
    let user = User::running_the_tests();
    let mut server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let mut ids = Vec::new();
        for _ in 0..rooms {
            let made = line.post("/v1/sessions", None).await;
            let id = text(made.expect(201), "id").to_owned();
            // It stays when the command that left it is over.
            line.says(&id, "sleep 1000 > /dev/null 2>&1 & echo $! > pid").await;
            ids.push(id);
        }
        // Half of them are paused, and stay so.
        for id in ids.iter().skip(rooms / 2) {
            line.post(format!("/v1/sessions/{id}/pause"), None).await.expect(200);
        }
        server.kill();
        let began = Instant::now();
        server.restart();
        let ready = began.elapsed();
        let mut asking = JoinSet::new();
        for id in ids.clone() {
            let line = line.clone();
            // Answered by the room's own guest.
            asking
                .spawn(async move { line.ask(&Request::get(format!("/v1/sessions/{id}/processes"))).await });
        }
        while let Some(heard) = asking.join_next().await {
            let heard = heard.expect("an answer");
            let commands = heard.expect(200).to_string();
            assert!(commands.contains("sleep 1000"), "{commands}");
        }
        println!(
            "{rooms} rooms taken up again: the host listens after {} ms, the last room has answered after {} ms",
            ready.as_millis(),
            began.elapsed().as_millis()
        );
        let sessions = all_sessions(&line).await;
        let paused = sessions.iter().filter(|session| text(session, "state") == "paused").count();
        assert_eq!((sessions.len(), paused), (rooms, rooms - rooms / 2));
        eventually(async || agrees(&server, &sessions)).await;
        for id in &ids {
            line.post(format!("/v1/sessions/{id}/resume"), None).await.expect(200);
            let same = line.says(id, "kill -0 $(cat pid) && echo the same").await;
            assert_eq!(same, "the same\n");
        }
        let metrics = server.http().get("/metrics").await.text();
        let adopted = metrics.lines().find(|line| line.contains("rooms_adopted") && !line.starts_with('#'));
        assert_eq!(
            adopted.and_then(|line| line.split(' ').next_back()?.parse().ok()),
            Some(rooms),
            "{metrics}"
        );
        verify_journals(&server);
        let request = json!({ "command": "true" });
        for id in &ids {
            line.post(format!("/v1/sessions/{id}/exec"), Some(request.clone())).await.expect(200);
        }
    });
}
