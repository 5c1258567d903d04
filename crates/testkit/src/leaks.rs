//! What is left of rooms on a machine: processes, groups and directories, told apart from other servers'.

use std::fs;
use std::path::{Path, PathBuf};

/// A process as `/proc` tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub state: char,
    pub argv0: String,
    pub uid: u32,
}

/// Everything that runs; what has ended and is not reaped does not.
pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("read /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).filter(|process| !matches!(process.state, 'Z' | 'X')).collect()
}

fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        argv0: String::from_utf8_lossy(cmdline.split(|&byte| byte == 0).next()?).into_owned(),
        uid: uid.split_whitespace().next()?.parse().ok()?,
    })
}

/// The cgroups of a session's rooms, in every hierarchy.
pub fn groups_of(sessions: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unseen = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = unseen.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_prefix("workroom-") {
                Some(room) if sessions.iter().any(|session| room.starts_with(session.as_str())) => {
                    found.push(entry.path());
                }
                _ => unseen.push(entry.path()),
            }
        }
    }
    found
}

/// What lies in the directories of a state that hold what belongs to sessions.
pub(crate) fn left_in(state: &Path) -> Vec<PathBuf> {
    let dirs = ["rooms", "layers", "private", "output", "recordings", "trash"];
    let entries = dirs.iter().flat_map(|dir| fs::read_dir(state.join(dir)).into_iter().flatten().flatten());
    entries.map(|entry| entry.path()).collect()
}

/// Every session that a store has ever written of, found by the form of its id: whatever became of it.
pub(crate) fn sessions_in(state: &Path) -> Vec<String> {
    const FORM: &[u8] = b"00000000-000000-ffffffff";
    let fits = |bytes: &[u8]| {
        bytes.iter().zip(FORM).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            b'f' => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
            _ => byte == form,
        })
    };
    let mut found = Vec::new();
    for file in ["store.db", "store.db-wal"] {
        let bytes = fs::read(state.join(file)).unwrap_or_default();
        let ids = bytes.windows(FORM.len()).filter(|window| fits(window));
        found.extend(ids.map(|id| String::from_utf8_lossy(id).into_owned()));
    }
    found.sort_unstable();
    found.dedup();
    found
}
