//! `kill -9` of the host while slots go from hand to hand: leases that were answered are there, what was released is not,
//! and no two trajectories ever have the same session.

mod violence;

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::JoinSet;
use violence::line::{Line, Request};
use violence::machine::verify_journals;
use violence::{Dice, in_threads};
use workroom_testkit::{Server, User, eventually};

const SLOTS: u32 = 6;

#[test]
fn leases_are_kept_and_slots_are_never_shared_over_a_few_kills() {
    kill_many_times(&User::running_the_tests(), 5);
}

#[test]
fn leases_of_an_ordinary_users_server_are_kept_over_a_few_kills() {
    kill_many_times(&User::ordinary(), 3);
}

#[test]
#[ignore = "long"]
fn soak_leases_are_kept_and_slots_are_never_shared_over_many_kills() {
    kill_many_times(&User::running_the_tests(), 100);
}

/// A trajectory after the other, with what the server has said of them.
struct Client {
    name: String,
    line: Line,
    dice: Dice,
    number: u32,
    /// The trajectory, and the session that it was told.
    held: Option<(String, String)>,
    /// Every session that it was ever told.
    told: Vec<String>,
}

impl Client {
    fn call(&self, verb: &str, trajectory: &str) -> Request {
        let body = json!({"trajectory": trajectory});
        Request::post(format!("/v1/pools/p/{verb}"), Some(body))
    }

    fn marking(&self, session: &str) -> Request {
        let command = json!({"command": "cat who 2>/dev/null; echo \"$ME\" > who", "env": {"ME": self.name}});
        Request::post(format!("/v1/sessions/{session}/exec"), Some(command))
    }

    async fn mark(&self, session: &str) -> Option<Value> {
        self.line
            .attempt(&self.marking(session))
            .await
            .ok()
            .filter(|heard| heard.status == 200)
            .map(|heard| heard.body)
    }

    /// Until the server is gone, or it is enough.
    async fn work(&mut self, enough: &AtomicBool) {
        while !enough.load(Relaxed) {
            match self.held.clone() {
                None => {
                    let trajectory = format!("{}-{}", self.name, self.number);
                    self.number += 1;
                    // Whether this is done is not known until somebody says so: then it is held.
                    self.held = Some((trajectory.clone(), String::new()));
                    let Ok(heard) = self.line.attempt(&self.call("acquire", &trajectory)).await else {
                        return;
                    };
                    let session = heard.expect(200)["session"].as_str().expect("a session").to_owned();
                    self.told.push(session.clone());
                    self.held = Some((trajectory, session.clone()));
                    if let Some(ran) = self.mark(&session).await {
                        assert_eq!(ran["stdout"], "", "somebody was there before {}", self.name);
                    }
                }
                Some((trajectory, _)) if self.dice.below(2) == 0 => {
                    let Ok(heard) = self.line.attempt(&self.call("release", &trajectory)).await else {
                        return;
                    };
                    heard.expect(200);
                    self.held = None;
                }
                Some((_, session)) if !session.is_empty() => {
                    if self.mark(&session).await.is_none() {
                        return;
                    }
                }
                Some(_) => return,
            }
        }
    }

    /// What was answered is so, also with another server. What was not, is so or not so: it is asked again.
    async fn agree(&mut self) {
        let Some((trajectory, session)) = self.held.clone() else { return };
        let heard = self.line.ask(&self.call("acquire", &trajectory)).await;
        let now = heard.expect(200)["session"].as_str().expect("a session").to_owned();
        // One whose release was under way may have been released, and has another session by now.
        let ran = self.line.ask(&self.marking(&now)).await.expect(200).clone();
        if now == session {
            assert!(ran["stdout"] == "" || ran["stdout"] == format!("{}\n", self.name), "{ran}");
        } else {
            let before = ran["stdout"].as_str().unwrap_or_default();
            assert!(before.is_empty() || before == format!("{}\n", self.name), "{before}");
            self.told.push(now.clone());
        }
        self.held = Some((trajectory, now));
    }
}

fn kill_many_times(user: &User, kills: u32) {
    let mut dice = Dice::new();
    let mut server = Server::of(user);
    let line = Line::of(&server);
    in_threads(async {
        let spec = json!({"min": 2, "max": SLOTS, "idle": 1});
        let set = Request { method: "PUT", path: "/v1/pools/p".into(), key: None, body: Some(spec) };
        line.ask(&set).await.expect(201);
        let mut clients: Vec<Client> = (0..SLOTS)
            .map(|number| Client {
                name: format!("c{number}"),
                line: line.clone(),
                dice: dice.fork(),
                number: 0,
                held: None,
                told: Vec::new(),
            })
            .collect();
        for _ in 0..kills {
            let enough = Arc::new(AtomicBool::new(false));
            let mut working = JoinSet::new();
            for mut client in clients {
                let enough = enough.clone();
                working.spawn(async move {
                    client.work(&enough).await;
                    client
                });
            }
            tokio::time::sleep(dice.moment(400)).await;
            server.kill();
            enough.store(true, Relaxed);
            while dice.below(3) == 0 {
                server.start_and_kill_after(dice.moment(150));
            }
            server.restart();
            clients = Vec::new();
            while let Some(client) = working.join_next().await {
                clients.push(client.expect("a client that was answered as it should"));
            }
            for client in &mut clients {
                client.agree().await;
            }
            let held: Vec<&String> =
                clients.iter().filter_map(|client| Some(&client.held.as_ref()?.1)).collect();
            let different: HashSet<&&String> = held.iter().collect();
            assert_eq!(held.len(), different.len(), "{held:?}");
            let pool = line.get("/v1/pools/p").await.expect(200).clone();
            let states = &pool["states"];
            let in_use = states["acquired"].as_u64().unwrap_or(0) + states["executing"].as_u64().unwrap_or(0);
            assert_eq!(in_use, held.len() as u64, "{pool}");
            verify_journals(&server);
        }
        // No session was ever told to two.
        let mut who: BTreeMap<&String, &String> = BTreeMap::new();
        for client in &clients {
            for session in &client.told {
                let other = who.insert(session, &client.name);
                assert!(other.is_none_or(|other| *other == client.name), "{session}");
            }
        }
        println!("{kills} kills, {} leases", who.len());
        line.ask(&Request::delete("/v1/pools/p")).await.expect(204);
        eventually(async || {
            let left = line.get("/v1/sessions?pool=*").await.body["sessions"].as_array().map_or(1, Vec::len);
            if left == 0 { Ok(()) } else { Err(format!("{left} sessions")) }
        })
        .await;
        server.expect_no_leaks().await;
    });
}
