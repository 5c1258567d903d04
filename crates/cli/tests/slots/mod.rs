//! What the tests of the slot-server API share: a real server of slots, and calls as its clients make them.
#![allow(dead_code)] // each test file uses its own part of this

use serde_json::{Value, json};
use workroom_testkit::{Http, Response, Server, Setup, User};

pub(crate) struct Slots<'u> {
    pub(crate) server: Server<'u>,
}

impl<'u> Slots<'u> {
    /// So many slots, with every default.
    #[track_caller]
    pub(crate) fn of(user: &'u User, count: u32) -> Slots<'u> {
        Slots { server: Setup::of(user).slots(count).start() }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller { http: self.server.http() }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.caller().get(path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.caller().post(path, body).await
    }

    pub(crate) async fn tool(&self, slot: &str, tool: &str, args: Value) -> Value {
        self.caller().tool(slot, tool, args).await
    }

    /// What a command in the first slot says, which must succeed.
    #[track_caller]
    pub(crate) fn says(&self, command: &str) -> impl Future<Output = String> {
        let (caller, command) = (self.caller(), command.to_owned());
        async move { caller.says("slot_0", &command).await }
    }

    /// A slot, as `/slots` has it.
    pub(crate) async fn slot(&self, name: &str) -> Value {
        let all = self.get("/slots").await.expect(200);
        let found = all["slots"].as_array().expect("slots").iter().find(|slot| slot["slot_id"] == name);
        found.expect("a slot of this name").clone()
    }
}

/// Whoever calls; may be handed to a task of its own.
#[derive(Clone)]
pub(crate) struct Caller {
    http: Http,
}

impl Caller {
    pub(crate) fn new(http: Http) -> Caller {
        Caller { http }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.http.clone().get(path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.http.clone().json(&body).post(path).await
    }

    pub(crate) async fn execute(&self, request: Value) -> Value {
        self.post("/execute", request).await.expect(200)
    }

    pub(crate) async fn tool(&self, slot: &str, tool: &str, args: Value) -> Value {
        self.execute(json!({ "slot_id": slot, "tool": tool, "args": args })).await
    }

    pub(crate) async fn bash(&self, slot: &str, command: &str) -> Value {
        self.tool(slot, "bash", json!({ "command": command })).await
    }

    pub(crate) async fn says(&self, slot: &str, command: &str) -> String {
        let answer = self.bash(slot, command).await;
        assert_eq!(answer["success"], true, "{command}: {answer}");
        answer["output"].as_str().expect("text").to_owned()
    }
}
