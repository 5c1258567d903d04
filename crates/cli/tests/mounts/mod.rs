//! Servers with directories of the host to give, for tests.
#![allow(dead_code, reason = "each test uses some of it")]

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use workroom_testkit::types::{AddMounts, MountRequest, MountState, Problem, SessionMount};
use workroom_testkit::{Server, TestSession, User, within};

/// The operator's file of a server, from now on.
pub(crate) fn operator_says(server: &Server<'_>, toml: &str) {
    let new = server.state().join("policy.toml.new");
    fs::write(&new, toml).expect("the operator's file");
    fs::rename(new, server.state().join("policy.toml")).expect("its name");
}

/// A directory of the user's on the host, with a file in it.
pub(crate) fn host_dir(user: &User, name: &str) -> PathBuf {
    let mut path = PathBuf::from("host");
    user.make_dir("host");
    for part in Path::new(name).components() {
        path.push(part);
        user.make_dir(path.to_str().expect("a name"));
    }
    user.make_file(&format!("host/{name}/file"), format!("of {name}\n"));
    user.path("host").join(name)
}

pub(crate) fn asks(alias: &str, base: &str, subpath: &str, mode: &str) -> Value {
    json!({"alias": alias, "base": base, "subpath": subpath, "mode": mode})
}

pub(crate) fn request(asked: &Value) -> MountRequest {
    serde_json::from_value(asked.clone()).expect("a mount request")
}

/// A session that asks for these.
pub(crate) fn with_mounts(asked: &[Value]) -> Value {
    json!({"policy": {"mounts": {"dynamic": asked}}})
}

pub(crate) async fn mount(session: &TestSession, asked: &[Value]) -> Result<Vec<SessionMount>, Problem> {
    let mounts = AddMounts { mounts: asked.iter().map(request).collect() };
    match within("mounts", session.client().add_mounts(&session.id, &mounts)).await {
        Ok(made) => Ok(made.mounts),
        Err(error) => Err(error.problem().unwrap_or_else(|| panic!("{error}")).clone()),
    }
}

pub(crate) async fn unmount(session: &TestSession, alias: &str) {
    within("an unmount", session.client().remove_mount(&session.id, alias)).await.expect("unmounted");
}

/// What is said of each denial: alias and code.
pub(crate) fn denials(problem: &Problem) -> Vec<(String, String)> {
    let report = problem.report.as_ref().unwrap_or_else(|| panic!("no report: {problem:?}"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let all = report["denials"].as_array().expect("denials");
    all.iter().map(|denial| (text(&denial["alias"]), text(&denial["code"]))).collect()
}

pub(crate) async fn state_of(session: &TestSession, place: &str) -> MountState {
    let mounts = session.show().await.mounts;
    let found = mounts.iter().find(|mount| mount.place == place);
    found.unwrap_or_else(|| panic!("no {place} in {mounts:?}")).state
}

/// Why a session is not made.
pub(crate) async fn not_made(server: &Server<'_>, request: Value) -> Problem {
    let request = serde_json::from_value(request).expect("a session's fields");
    let error = within("an answer", server.client().create(&request, None)).await.expect_err("refused");
    error.problem().unwrap_or_else(|| panic!("{error}")).clone()
}
