//! File work of every kind, on paths that lead through what is being swapped, and what its answers may not say.

use super::{ARENA, CANARY, ELSEWHERE, FILES, ONLY_OUTSIDE, OUTSIDE_SIZE};
use crate::violence::Dice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use workroom_testkit::{Http, Response};

/// One kind of file work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Read,
    ReadPart,
    Write,
    Append,
    Upload,
    MakeDirectory,
    MoveIn,
    MoveOut,
    CopyIn,
    CopyOut,
    Delete,
    DeleteTree,
    Edit,
    List,
    Stat,
    Search,
    Patch,
    Import,
    Export,
    Usage,
}

pub(crate) const DEEDS: [Deed; 20] = [
    Deed::Read,
    Deed::ReadPart,
    Deed::Write,
    Deed::Append,
    Deed::Upload,
    Deed::MakeDirectory,
    Deed::MoveIn,
    Deed::MoveOut,
    Deed::CopyIn,
    Deed::CopyOut,
    Deed::Delete,
    Deed::DeleteTree,
    Deed::Edit,
    Deed::List,
    Deed::Stat,
    Deed::Search,
    Deed::Patch,
    Deed::Import,
    Deed::Export,
    Deed::Usage,
];

/// How often what came out of a kind of work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcomes {
    pub(crate) done: u64,
    /// A link was seen that leads out.
    pub(crate) outside: u64,
    /// Something was missing or in the way, or changed too often.
    pub(crate) other: u64,
}

/// One caller, who does one thing after the other.
pub(crate) struct Worker {
    http: Http,
    /// `/v1/sessions/ID`.
    session: String,
    archive: Vec<u8>,
    /// What is swapped now.
    traps: &'static [(&'static str, &'static str)],
    dice: Dice,
    pub(crate) book: BTreeMap<Deed, Outcomes>,
}

impl Worker {
    pub(crate) fn new(http: Http, session: String, archive: Vec<u8>, dice: Dice) -> Worker {
        Worker { http, session, archive, traps: &[], dice, book: BTreeMap::new() }
    }

    pub(crate) async fn work(
        mut self,
        traps: &'static [(&'static str, &'static str)],
        operations: u64,
    ) -> Worker {
        self.traps = traps;
        for _ in 0..operations {
            let deed = DEEDS[self.dice.below(DEEDS.len() as u64) as usize];
            let response = self.perform(deed).await;
            expect_nothing_of_outside(deed, &response);
            let outcome = self.book.entry(deed).or_default();
            match response.status {
                200 | 201 => outcome.done += 1,
                status => {
                    assert!((400..500).contains(&status) && status != 429, "{deed:?}: {response:?}");
                    // A patch and an upload say of each of their files what was wrong with it.
                    let is_outside = response.text().contains("leads out of the workspace");
                    *(if is_outside { &mut outcome.outside } else { &mut outcome.other }) += 1;
                }
            }
        }
        self
    }

    fn one_of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.dice.below(names.len() as u64) as usize]
    }

    /// A directory that is a link at every other moment.
    fn trap(&mut self) -> String {
        let elsewhere = self.dice.below(8) == 0;
        let pairs = if elsewhere { &ELSEWHERE } else { self.traps };
        let name = pairs[self.dice.below(pairs.len() as u64) as usize].0;
        // Of the workspace these are the same.
        let before = self.one_of(&["", "/", "/workspace/", "./"]);
        format!("{before}{ARENA}/{name}")
    }

    fn directory(&mut self) -> String {
        format!("{}{}", self.trap(), self.one_of(&["", "", "/sub", "/outside", "/outside/sub"]))
    }

    /// A file that is there inside and outside.
    fn file(&mut self) -> String {
        format!("{}/{}", self.directory(), self.one_of(&FILES))
    }

    fn new_name(&mut self) -> String {
        format!("{}/new-{}", self.directory(), self.dice.below(12))
    }

    /// Where nothing is swapped: what gets here can be looked at afterwards.
    fn safe(&mut self) -> String {
        format!("{ARENA}/safe/s-{}", self.dice.below(12))
    }

    fn http(&self) -> Http {
        self.http.clone()
    }

    async fn post(&self, verb: &str, body: Value) -> Response {
        self.http().json(&body).post(&format!("{}/files/{verb}", self.session)).await
    }

    fn at(&self, path: &str, query: &str) -> String {
        format!("{}/files/{}{query}", self.session, path.trim_start_matches('/'))
    }

    async fn perform(&mut self, deed: Deed) -> Response {
        let (file, directory, new, safe) = (self.file(), self.directory(), self.new_name(), self.safe());
        let (one_in_two, number) = (self.dice.below(2) == 0, self.dice.below(5));
        match deed {
            Deed::Read => self.http().get(&self.at(&file, "")).await,
            Deed::ReadPart => self.http().get(&self.at(&file, "?encoding=text&first_line=1")).await,
            Deed::Write => {
                let path = if one_in_two { file } else { new };
                self.http().body("written\n").put(&self.at(&path, "")).await
            }
            Deed::Append => self.http().body("appended\n").put(&self.at(&file, "?append=true")).await,
            Deed::Upload => self.upload().await,
            Deed::MakeDirectory => {
                let path = format!("{new}/made/{number}");
                self.post("mkdir", json!({"path": path})).await
            }
            Deed::MoveIn => {
                let body = json!({"from": safe, "to": file, "overwrite": true});
                self.http().body("moved in\n").put(&self.at(&safe, "")).await;
                self.post("move", body).await
            }
            Deed::MoveOut => {
                let from = if one_in_two { directory } else { file };
                self.post("move", json!({"from": from, "to": safe, "overwrite": true})).await
            }
            Deed::CopyIn => self.post("copy", json!({"from": directory, "to": new, "overwrite": true})).await,
            Deed::CopyOut => {
                let from = if one_in_two { directory } else { file };
                self.http().delete(&self.at(&safe, "?recursive=true")).await;
                self.post("copy", json!({"from": from, "to": safe, "overwrite": true})).await
            }
            Deed::Delete => self.http().delete(&self.at(&file, "")).await,
            Deed::DeleteTree => self.http().delete(&self.at(&directory, "?recursive=true")).await,
            Deed::Edit => {
                let old = self.one_of(&["inside", "written", "\n", "CAN"]);
                let body = json!({"path": file, "old": old, "new": "edited", "all": true});
                self.post("edit", body).await
            }
            Deed::List => {
                let query = format!("?path={directory}&recursive=true&limit=10000");
                self.http().get(&format!("{}/files{query}", self.session)).await
            }
            Deed::Stat => {
                let path = if one_in_two { directory } else { file };
                self.post("stat", json!({"path": path})).await
            }
            // The pattern does not hold what no answer may hold.
            Deed::Search => {
                let body = json!({"pattern": "CAN[A]RY|x:0:0|Name:", "path": directory, "hidden": true});
                self.post("search", body).await
            }
            Deed::Patch => self.patch().await,
            Deed::Import => {
                let query = format!("/archive?path={}", directory);
                self.http().body(self.archive.clone()).post(&format!("{}{query}", self.session)).await
            }
            Deed::Export => {
                let query = format!("/archive?path={}&format=tar", directory);
                self.http().get(&format!("{}{query}", self.session)).await
            }
            Deed::Usage => self.post("usage", json!({"path": directory})).await,
        }
    }

    async fn upload(&mut self) -> Response {
        let (one, other) = (self.file(), self.new_name());
        let part = |path: &str| {
            format!(
                "--frontier\r\nContent-Disposition: form-data; name=\"{path}\"; filename=\"x\"\r\n\r\nuploaded\r\n"
            )
        };
        let body = format!("{}{}--frontier--\r\n", part(&one), part(&other));
        let http = self.http().header("Content-Type", "multipart/form-data; boundary=frontier").body(body);
        let response = http.post(&format!("{}/files", self.session)).await;
        // Each of the two files has an outcome of its own; they count as one.
        match response.status {
            207 => Response { status: 400, ..response },
            _ => response,
        }
    }

    /// Changes a file if it is as it was made, makes another, deletes a third.
    async fn patch(&mut self) -> Response {
        let (word, number) = (self.one_of(&["inside", "written", CANARY_LINE]), self.dice.below(12));
        let changed = self.one_of(&FILES);
        let patch = format!(
            "--- a/{changed}\n+++ b/{changed}\n@@ -1 +1 @@\n-{word}\n+patched\n\
             --- /dev/null\n+++ b/new-{number}\n@@ -0,0 +1 @@\n+made by a patch\n"
        );
        let made = format!("{}/new-{number}", self.directory());
        self.http().delete(&self.at(&made, "")).await;
        let directory = self.directory();
        self.post("patch", json!({"patch": patch, "path": directory})).await
    }
}

/// The one line of files outside, in two pieces: a problem may say what a patch expected.
const CANARY_LINE: &str = "CANARY";

/// What is outside is not told, neither content nor names nor sizes.
fn expect_nothing_of_outside(deed: Deed, response: &Response) {
    let size = OUTSIDE_SIZE.to_string();
    for secret in [CANARY, ONLY_OUTSIDE, "root:x:0:0", "VmPeak", "oom_score_adj", &size] {
        let found = response.body.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{deed:?} was answered with {secret:?}: {response:?}");
    }
}
