//! A look at the machine: which rooms there really are, and whether what is recorded of them is so.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use workroom_testkit::{Process, Server};

use super::line::Line;

/// The guests of a server and of those that it was.
pub(crate) fn guests(server: &Server<'_>) -> Vec<Process> {
    let is_guest = |process: &Process| comm(process.pid) == "guest";
    server.room_processes().into_iter().filter(is_guest).collect()
}

/// The spawner of the server that runs now.
pub(crate) fn spawner(server: &Server<'_>) -> Option<i32> {
    let own = |process: &Process| process.parent == server.pid() && comm(process.pid) == "spawner";
    workroom_testkit::processes().into_iter().find(own).map(|process| process.pid)
}

/// The guest of a server that has one room.
pub(crate) fn the_guest(server: &Server<'_>) -> i32 {
    match guests(server).as_slice() {
        [guest] => guest.pid,
        guests => panic!("one guest: {guests:?}"),
    }
}

/// As nothing can be prepared for.
pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn comm(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// A number of kilobytes from a process's status.
pub(crate) fn memory_kb(pid: i32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// All sessions that the server lists.
pub(crate) async fn all_sessions(line: &Line) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = line.get(format!("/v1/sessions?limit=100{cursor}")).await;
        let page = page.expect(200);
        all.extend(page["sessions"].as_array().expect("sessions").iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// One room for each session that is live and none else; files of no other session; and that many guests.
pub(crate) fn agrees(server: &Server<'_>, sessions: &[Value]) -> Result<(), String> {
    let live = |session: &&Value| matches!(text(session, "state"), "running" | "paused");
    let names = |dir: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(server.state().join(dir)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let ids = |sessions: Vec<&Value>| -> BTreeSet<String> {
        sessions.into_iter().map(|session| text(session, "id").to_owned()).collect()
    };
    let expected = ids(sessions.iter().filter(live).collect());
    let rooms = names("rooms");
    let of_rooms: BTreeSet<String> =
        rooms.iter().filter_map(|room| room.rsplit_once('-')).map(|(id, _)| id.to_owned()).collect();
    if of_rooms != expected || rooms.len() != expected.len() {
        return Err(format!("rooms {rooms:?} for sessions {expected:?}"));
    }
    let known = ids(sessions.iter().collect());
    for dir in ["layers", "output", "private"] {
        let strange: Vec<_> = names(dir).difference(&known).cloned().collect();
        if !strange.is_empty() {
            return Err(format!("{dir} of no session: {strange:?}"));
        }
    }
    match names("trash") {
        trash if trash.is_empty() => {}
        trash => return Err(format!("trash: {trash:?}")),
    }
    match guests(server) {
        guests if guests.len() == expected.len() => Ok(()),
        guests => Err(format!("{} guests for {} rooms: {guests:?}", guests.len(), expected.len())),
    }
}

/// `workroom journal verify` finds nothing to say.
pub(crate) fn verify_journals(server: &Server<'_>) {
    let output = server.cli(&["journal", "verify"]).output().expect("workroom");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
