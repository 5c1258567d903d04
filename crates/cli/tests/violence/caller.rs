//! A caller who keeps books: of what it was told, and of what must therefore be so.

use super::Dice;
use super::line::{Heard, Line, Request};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// As many sessions as a caller has at a time.
const MOST_SESSIONS: usize = 4;

/// A session that was acknowledged and not deleted.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: String,
    /// Entries 1 to this are in its journal.
    pub(crate) appended: u64,
    /// Commands, by number; whether it is known that each ran.
    pub(crate) ran: BTreeMap<u64, bool>,
    next_command: u64,
}

/// What a caller does to one of its sessions, or to have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Create,
    Append,
    Exec,
    Stop,
    Start,
    Pause,
    Resume,
    Delete,
}

/// A deed that is not answered yet.
struct Open {
    deed: Deed,
    session: usize,
    request: Request,
}

pub(crate) struct Caller {
    name: String,
    line: Line,
    dice: Dice,
    pub(crate) sessions: Vec<Known>,
    pub(crate) deleted: Vec<String>,
    deeds: u64,
    open: Option<Open>,
    /// Commands of which the server could not say whether they ran.
    pub(crate) unknown: u64,
    /// Requests that broke, and were asked again.
    pub(crate) broken: u64,
}

impl Caller {
    pub(crate) fn new(name: String, line: &Line, dice: Dice) -> Caller {
        Caller {
            name,
            line: line.clone(),
            dice,
            sessions: Vec::new(),
            deleted: Vec::new(),
            deeds: 0,
            open: None,
            unknown: 0,
            broken: 0,
        }
    }

    /// How much was done.
    pub(crate) fn deeds(&self) -> u64 {
        self.deeds
    }

    /// Does one thing after the other until it is over, and then still has what is open answered: asked again
    /// under its key, by whichever server is there.
    pub(crate) async fn work(&mut self, over: &AtomicBool) {
        let mut patience = tokio::time::Instant::now() + super::line::PATIENCE;
        loop {
            let open = match self.open.take() {
                Some(open) => open,
                None if over.load(Ordering::Relaxed) => return,
                None => self.choose(),
            };
            match self.line.attempt(&open.request).await {
                Ok(heard) => {
                    self.heard(&open, &heard);
                    patience = tokio::time::Instant::now() + super::line::PATIENCE;
                }
                Err(error) => {
                    assert!(tokio::time::Instant::now() < patience, "no server: {error}");
                    self.broken += 1;
                    self.open = Some(open);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    fn choose(&mut self) -> Open {
        self.deeds += 1;
        let key = format!("{}-{}", self.name, self.deeds);
        let session = self.dice.below(self.sessions.len().max(1) as u64) as usize;
        let deed = match self.sessions.get(session) {
            None => Deed::Create,
            Some(known) => self.next_deed(&known.state.clone()),
        };
        let path = |rest: &str| match self.sessions.get(session) {
            Some(known) => format!("/v1/sessions/{}{rest}", known.id),
            None => String::new(),
        };
        let request = match deed {
            Deed::Create => Request::post("/v1/sessions", Some(json!({ "name": key }))),
            Deed::Append => {
                let number = self.sessions[session].appended + 1;
                Request::post(path("/events"), Some(json!({ "kind": "count", "body": number })))
            }
            Deed::Exec => {
                let number = self.sessions[session].next_command;
                let command = format!("echo {number} >> /workspace/log; echo did {number}");
                Request::post(path("/exec"), Some(json!({ "command": command })))
            }
            Deed::Stop => Request::post(path("/stop"), None),
            Deed::Start => Request::post(path("/start"), None),
            Deed::Pause => Request::post(path("/pause"), None),
            Deed::Resume => Request::post(path("/resume"), None),
            Deed::Delete => Request::delete(path("")),
        };
        Open { deed, session, request: request.under(key) }
    }

    fn next_deed(&mut self, state: &str) -> Deed {
        let many = self.sessions.len() >= MOST_SESSIONS;
        match (self.dice.below(100), state) {
            (0..15, _) if many => Deed::Delete,
            (0..15, _) => Deed::Create,
            (15..45, _) => Deed::Append,
            (45..65, "paused") => Deed::Resume,
            (45..75, "running" | "stopped") => Deed::Exec,
            (75..85, "running") => Deed::Pause,
            (_, "running" | "paused") => Deed::Stop,
            _ => Deed::Start,
        }
    }

    fn heard(&mut self, open: &Open, heard: &Heard) {
        let said = &heard.body;
        let state = || said["state"].as_str().unwrap_or_default().to_owned();
        let what = format!("{:?} {:?}: {} {said}", open.deed, open.request, heard.status);
        let right = match open.deed {
            Deed::Create => {
                // Its room may not have lived to see it, and then it says so, or is just being found again.
                let sane = match state().as_str() {
                    "running" | "starting" => true,
                    "stopped" => said["reason"].is_string(),
                    _ => false,
                };
                let id = said["id"].as_str().unwrap_or_default().to_owned();
                let new = !self.deleted.contains(&id) && !self.sessions.iter().any(|known| known.id == id);
                self.sessions.push(Known {
                    id,
                    name: said["name"].as_str().unwrap_or_default().to_owned(),
                    state: state(),
                    appended: 0,
                    ran: BTreeMap::new(),
                    next_command: 1,
                });
                heard.status == 201
                    && sane
                    && new
                    && said["name"] == open.request.key.as_deref().unwrap_or("")
            }
            Deed::Append => {
                self.sessions[open.session].appended += 1;
                heard.status == 201 && said["body"] == self.sessions[open.session].appended
            }
            Deed::Exec => {
                let known = &mut self.sessions[open.session];
                let number = known.next_command;
                known.next_command += 1;
                let unknown = heard.status == 409 && heard.code() == "outcome_unknown";
                known.ran.insert(number, !unknown);
                self.unknown += u64::from(unknown);
                if !unknown {
                    known.state = "running".into();
                }
                unknown || heard.status == 200 && said["stdout"] == format!("did {number}\n")
            }
            Deed::Stop | Deed::Start | Deed::Pause | Deed::Resume => {
                self.sessions[open.session].state = state();
                let expected = match open.deed {
                    Deed::Stop => "stopped",
                    Deed::Pause => "paused",
                    _ => "running",
                };
                heard.status == 200 && state() == expected
            }
            Deed::Delete => {
                self.deleted.push(self.sessions.remove(open.session).id);
                heard.status == 204
            }
        };
        assert!(right, "{what}");
    }

    /// Everything that this caller was told is so.
    pub(crate) async fn check_books(&mut self) {
        for known in &mut self.sessions {
            let session = self.line.get(format!("/v1/sessions/{}", known.id)).await;
            let session = session.expect(200);
            // Whether a command of unknown outcome had brought a stopped session back is not known either.
            let unsure = known.ran.values().next_back() == Some(&false) && known.state == "stopped";
            if unsure || known.state == "starting" {
                known.state = session["state"].as_str().unwrap_or_default().to_owned();
                assert!(["running", "stopped"].contains(&known.state.as_str()), "{session}");
            }
            assert_eq!(session["state"], known.state.as_str(), "{session}");
            let journal = read_journal(&self.line, &known.id).await;
            assert_eq!(journal.counted, (1..=known.appended).collect::<Vec<_>>(), "{}", known.id);
            let mut ended = journal.commands.clone();
            ended.dedup();
            assert_eq!(journal.commands, ended, "the end of a command is recorded once: {}", known.id);
        }
        let line = &self.line;
        for id in self.deleted.iter().rev().take(3) {
            assert_eq!(line.get(format!("/v1/sessions/{id}")).await.status, 404, "{id}");
        }
    }

    /// Every command ran once, in order; one whose outcome was lost at most once.
    pub(crate) async fn check_files(&self) {
        for known in &self.sessions {
            if known.state == "paused" {
                self.line.post(format!("/v1/sessions/{}/resume", known.id), None).await.expect(200);
            }
            let log = self.line.says(&known.id, "cat /workspace/log 2>/dev/null || true").await;
            let found: Vec<u64> = log.lines().map(|line| line.parse().expect("a number")).collect();
            let expected = known.ran.iter().filter(|(number, sure)| **sure || found.contains(number));
            assert_eq!(found, expected.map(|(number, _)| *number).collect::<Vec<_>>(), "{}", known.id);
        }
    }
}

struct Journal {
    /// What callers have appended, in its order.
    counted: Vec<u64>,
    /// Commands that ended.
    commands: Vec<String>,
}

async fn read_journal(line: &Line, id: &str) -> Journal {
    let mut journal = Journal { counted: Vec::new(), commands: Vec::new() };
    let mut after = 0;
    loop {
        let page = line.get(format!("/v1/sessions/{id}/events?limit=1000&after={after}")).await;
        let entries = page.expect(200)["entries"].as_array().expect("entries");
        let Some(last) = entries.last() else {
            journal.commands.sort();
            return journal;
        };
        after = last["seq"].as_i64().expect("a place");
        for entry in entries {
            match entry["kind"].as_str() {
                Some("caller.count") => journal.counted.push(entry["body"].as_u64().expect("a number")),
                Some("exec.finished") => {
                    let command = entry["body"]["command"].as_str().expect("a command").to_owned();
                    // What looks at the books is asked more than once.
                    if command.contains("echo did") {
                        journal.commands.push(command);
                    }
                }
                _ => {}
            }
        }
    }
}
