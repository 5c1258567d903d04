//! `kill -9` of what a host works through: its spawner, a room's guest; and time that passes while there is no host.

mod violence;

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use violence::line::{Line, Request};
use violence::machine::{agrees, all_sessions, kill, spawner, text, the_guest, verify_journals};
use violence::ticker::Ticker;
use violence::{Dice, in_threads};
use workroom_testkit::{Server, User, eventually};

#[test]
fn a_killed_spawner_is_replaced_and_rooms_go_on() {
    kill_spawners(4, 3);
}

#[test]
#[ignore = "long"]
fn soak_a_killed_spawner_is_replaced_and_rooms_go_on() {
    kill_spawners(100, 10);
}

fn kill_spawners(kills: u32, rooms: u32) {
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let mut tickers = Vec::new();
        let mut running = JoinSet::new();
        for number in 0..rooms {
            let ticker = Arc::new(Ticker::new(&line, format!("ticker-{number}")).await);
            let started = ticker.start().await;
            tickers.push(ticker.clone());
            running.spawn(async move { ticker.run_to_end(started).await });
        }
        let mut refused = 0;
        for number in 0..kills {
            let mut makers = JoinSet::new();
            for maker in 0..3 {
                let line = line.clone();
                makers.spawn(async move { make_and_use(&line, &format!("made-{number}-{maker}")).await });
            }
            tokio::time::sleep(dice.moment(30)).await;
            let pid = eventually_spawner(&server).await;
            kill(pid);
            while let Some(made) = makers.join_next().await {
                refused += made.expect("a session is made and works");
            }
        }
        for ticker in &tickers {
            ticker.enough().await;
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("its output is whole");
        }
        let sessions = all_sessions(&line).await;
        assert_eq!(sessions.len() as u32, rooms + 3 * kills, "each is there once");
        eventually(async || agrees(&server, &sessions)).await;
        verify_journals(&server);
        println!("{kills} spawners killed: {refused} requests refused, and granted when they were repeated");
    });
}

/// Makes a session and runs a command in it; says how often it had to ask again.
async fn make_and_use(line: &Line, name: &str) -> u32 {
    let mut refused = 0;
    let make = Request::post("/v1/sessions", Some(json!({ "name": name }))).under(name);
    let made = loop {
        let heard = line.ask(&make).await;
        if heard.status == 201 {
            break heard;
        }
        assert_eq!((heard.status, heard.code()), (500, "room_setup"), "{}", heard.body);
        refused += 1;
        assert!(refused < 100, "{}", heard.body);
    };
    assert_eq!(line.says(text(&made.body, "id"), "echo it works").await, "it works\n");
    refused
}

/// The spawner of the server; a new one comes when it is needed.
async fn eventually_spawner(server: &Server<'_>) -> i32 {
    eventually(async || spawner(server).map(drop).ok_or_else(|| "there is no spawner".into())).await;
    spawner(server).expect("a spawner")
}

#[test]
fn a_killed_guest_stops_its_session_and_the_next_command_gets_a_new_room() {
    kill_guests(3);
}

#[test]
#[ignore = "long"]
fn soak_a_killed_guest_stops_its_session_and_the_next_command_gets_a_new_room() {
    kill_guests(200);
}

fn kill_guests(kills: u32) {
    let mut dice = Dice::new();
    let user = User::running_the_tests();
    let server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let made = line.post("/v1/sessions", None).await;
        let id = text(made.expect(201), "id").to_owned();
        let mut expected = String::new();
        for number in 1..=kills {
            let wrote = format!("echo {number} >> log; sync log");
            line.says(&id, &wrote).await;
            expected.push_str(&format!("{number}\n"));

            let waits =
                Request::post(format!("/v1/sessions/{id}/exec"), Some(json!({ "command": "sleep 1000" })));
            let waiting = tokio::spawn({
                let line = line.clone();
                async move { line.attempt(&waits).await }
            });
            eventually(async || {
                let listed = line.get(format!("/v1/sessions/{id}/processes")).await;
                let text = listed.expect(200).to_string();
                if text.contains("sleep 1000") { Ok(()) } else { Err(text) }
            })
            .await;
            tokio::time::sleep(dice.moment(5)).await;
            kill(the_guest(&server));

            let told = waiting.await.expect("a task").expect("an answer");
            assert_eq!((told.status, told.code()), (410, "room_gone"), "{}", told.body);
            eventually(async || {
                let session = line.get(format!("/v1/sessions/{id}")).await;
                let session = session.expect(200);
                let said = session["reason"].as_str().is_some_and(|reason| !reason.is_empty());
                if text(session, "state") == "stopped" && said { Ok(()) } else { Err(session.to_string()) }
            })
            .await;
            assert_eq!(line.says(&id, "cat log").await, expected, "its files are as they were");
        }
        let sessions = all_sessions(&line).await;
        eventually(async || agrees(&server, &sessions)).await;
        verify_journals(&server);
    });
}

/// Nobody moves the machine's clock here; but a server that was not there for a while sees the same: it is later.
#[test]
fn time_that_passes_without_a_host_counts() {
    let user = User::running_the_tests();
    let mut server = Server::of(&user);
    let line = Line::of(&server);
    in_threads(async {
        let mut ids = Vec::new();
        for (name, what) in [("stops", "stop"), ("goes", "delete"), ("stays", "stop")] {
            let ttl = if name == "stays" { 3600 } else { 2 };
            let made =
                line.post("/v1/sessions", Some(json!({ "name": name, "ttl": ttl, "on_expiry": what }))).await;
            ids.push(text(made.expect(201), "id").to_owned());
        }
        server.kill();
        tokio::time::sleep(Duration::from_millis(2100)).await;
        server.restart();
        eventually(async || {
            let sessions = all_sessions(&line).await;
            let states: Vec<_> =
                sessions.iter().map(|session| (text(session, "name"), text(session, "state"))).collect();
            if states == [("stays", "running"), ("stops", "stopped")] {
                Ok(())
            } else {
                Err(format!("{states:?}"))
            }
        })
        .await;
        let sessions = all_sessions(&line).await;
        eventually(async || agrees(&server, &sessions)).await;
        assert_eq!(line.get(format!("/v1/sessions/{}", ids[1])).await.status, 404);
    });
}
