//! Who is in the room: the processes that `/proc` shows, whose tree each is in, and what all have used.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat};
use rustix::process::{Pid, Signal};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use workroom_types::ProcessInfo;

/// Ticks of `/proc/PID/stat`: a constant of the kernel's interface, whatever its own clock.
const MICROS_PER_TICK: u64 = 10_000;

/// More names in one answer help nobody.
const MOST_PROCESSES: usize = 10_000;

/// How often a tree is looked for again. Each look stops all that is found, and what is stopped makes no more.
const MOST_LOOKS: usize = 1000;

/// The room's own `/proc`, opened before any command ran.
pub(crate) struct Census {
    proc: OwnedFd,
    page: u64,
}

/// What all processes have used, the ended ones included, and what they hold now.
pub(crate) struct Total {
    pub(crate) cpu_micros: u64,
    pub(crate) memory: u64,
    pub(crate) processes: u32,
}

impl Census {
    pub(crate) fn open() -> io::Result<Census> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        Ok(Census { proc, page: rustix::param::page_size() as u64 })
    }

    fn pids(&self) -> Vec<i32> {
        let Ok(entries) = Dir::read_from(&self.proc) else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect()
    }

    /// Everybody but the guest and the launcher.
    fn others(&self, launcher: i32) -> Vec<i32> {
        let mut pids = self.pids();
        pids.retain(|pid| *pid != 1 && *pid != launcher);
        pids
    }

    fn label(&self, pid: i32) -> Option<u64> {
        // Ended processes have none.
        statat(&self.proc, format!("{pid}/ns/uts"), AtFlags::empty()).ok().map(|stat| stat.st_ino)
    }

    fn tree(&self, label: u64) -> Vec<i32> {
        self.pids().into_iter().filter(|pid| *pid != 1 && self.label(*pid) == Some(label)).collect()
    }

    /// Ends everything with this label. First all of it is stopped: what is stopped cannot make more of itself.
    pub(crate) fn kill_tree(&self, label: u64) {
        let mut stopped = HashSet::new();
        for _ in 0..MOST_LOOKS {
            let found: Vec<i32> = self.tree(label).into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if found.is_empty() {
                break;
            }
            for pid in found {
                signal(pid, Signal::STOP);
                stopped.insert(pid);
            }
        }
        for _ in 0..MOST_LOOKS {
            let found = self.tree(label);
            if found.is_empty() {
                return;
            }
            found.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        }
    }

    /// Stops every process that is not stopped already, and says which ones. For rooms without a freezer.
    pub(crate) fn stop_all(&self, launcher: i32) -> Vec<i32> {
        let mut stopped: Vec<i32> = Vec::new();
        for _ in 0..MOST_LOOKS {
            let running = |pid: &i32| {
                !stopped.contains(pid)
                    && self.stat(*pid).is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X'))
            };
            let found: Vec<i32> = self.others(launcher).into_iter().filter(running).collect();
            if found.is_empty() {
                break;
            }
            found.iter().for_each(|pid| signal(*pid, Signal::STOP));
            stopped.extend(found);
        }
        stopped
    }

    pub(crate) fn continue_these(&self, pids: &[i32]) {
        pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
    }

    pub(crate) fn list(&self, launcher: i32) -> Vec<ProcessInfo> {
        let mut pids = self.others(launcher);
        pids.sort_unstable();
        pids.truncate(MOST_PROCESSES);
        pids.into_iter().filter_map(|pid| self.describe(pid)).collect()
    }

    fn describe(&self, pid: i32) -> Option<ProcessInfo> {
        let stat = self.stat(pid)?;
        let user = statat(&self.proc, format!("{pid}"), AtFlags::empty()).ok()?.st_uid;
        let line = self.read(&format!("{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
        let command = if words.is_empty() {
            format!("[{}]", stat.name)
        } else {
            String::from_utf8_lossy(&words.join(&b' ')).into_owned()
        };
        Some(ProcessInfo {
            pid,
            parent: stat.parent,
            user,
            state: stat.state.to_string(),
            command,
            cpu_ms: stat.own_ticks * MICROS_PER_TICK / 1000,
            memory: stat.pages * self.page,
        })
    }

    pub(crate) fn total(&self, launcher: i32) -> Total {
        let mut total = Total { cpu_micros: 0, memory: 0, processes: 0 };
        for pid in self.pids() {
            let Some(stat) = self.stat(pid) else { continue };
            if pid == 1 {
                // What those that ended had used. The guest's own work is nobody's activity.
                total.cpu_micros += stat.reaped_ticks * MICROS_PER_TICK;
            } else if pid != launcher {
                total.cpu_micros += (stat.own_ticks + stat.reaped_ticks) * MICROS_PER_TICK;
                total.memory += stat.pages * self.page;
                total.processes += u32::from(stat.state != 'Z');
            }
        }
        total
    }

    fn stat(&self, pid: i32) -> Option<Stat> {
        parse_stat(&String::from_utf8_lossy(&self.read(&format!("{pid}/stat"))?))
    }

    /// The beginning of a file of `/proc`, which is all that is needed of any of them.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.proc.as_fd(), path, flags, Mode::empty()).ok()?;
        let mut buffer = vec![0; 1024];
        let read = rustix::io::read(&file, &mut buffer[..]).ok()?;
        buffer.truncate(read);
        Some(buffer)
    }
}

struct Stat {
    name: String,
    state: char,
    parent: i32,
    own_ticks: u64,
    reaped_ticks: u64,
    pages: u64,
}

/// A process may give itself any name, with spaces and brackets: the last bracket ends it.
fn parse_stat(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    // Counted from the state, which the manual has as field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        own_ticks: number(14)? + number(15)?,
        reaped_ticks: number(16)? + number(17)?,
        pages: number(24)?,
    })
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_hostile_name_is_read_right() {
        let line = "7 (a) R 1 (x) S 3 7 7 0 -1 4194560 1 0 0 0 5 6 70 80 20 0 1 0 9 1000 33 184";
        let stat = parse_stat(line).expect("parsed");
        assert_eq!(stat.name, "a) R 1 (x");
        assert_eq!((stat.state, stat.parent), ('S', 3));
        assert_eq!((stat.own_ticks, stat.reaped_ticks, stat.pages), (11, 150, 33));
        assert!(parse_stat("7 (cut short").is_none());
        assert!(parse_stat("").is_none());
    }
}
