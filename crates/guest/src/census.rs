//! Who is in the room: the processes that `/proc` shows, whose tree each is in, and what all have used.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use workroom_types::ProcessInfo;

/// Ticks of `/proc/PID/stat`: a constant of the kernel's interface, whatever its own clock.
pub(crate) const MICROS_PER_TICK: u64 = 10_000;

/// More names in one answer help nobody.
const MOST_PROCESSES: usize = 10_000;

/// Nor do more bytes, and a message has an end.
const MOST_BYTES: usize = 4 << 20;

/// How often a tree is looked for again. Each look stops all that is found, and what is stopped makes no more.
pub(crate) const MOST_LOOKS: usize = 1000;

/// Enough where nobody means to escape.
pub(crate) const FEW_LOOKS: usize = 20;

/// The room's own `/proc`, opened before any command ran.
pub(crate) struct Census {
    pub(crate) proc: OwnedFd,
    page: u64,
}

/// Processes that keep the room and are none of its own: they are in no list, and in no command's tree, whatever they
/// show of themselves.
#[derive(Default)]
pub(crate) struct Staff {
    pub(crate) launcher: i32,
    pub(crate) clerks: HashSet<i32>,
}

impl Staff {
    fn has(&self, pid: i32) -> bool {
        pid == 1 || pid == self.launcher || self.clerks.contains(&pid)
    }
}

/// Whose tree a process is in.
pub(crate) enum Label {
    Is(u64),
    /// It does not say.
    Hidden,
    /// It has ended, and waits to be taken note of.
    Ended,
    /// It is not there any more.
    Gone,
}

struct Look {
    found: Vec<i32>,
    /// Whether nobody has come since the look before.
    is_sure: bool,
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

    /// Everybody but the staff.
    pub(crate) fn others(&self, staff: &Staff) -> Vec<i32> {
        let mut pids = self.pids();
        pids.retain(|pid| !staff.has(*pid));
        pids
    }

    pub(crate) fn label(&self, pid: i32) -> Label {
        match statat(&self.proc, format!("{pid}/ns/uts"), AtFlags::empty()) {
            Ok(stat) => Label::Is(stat.st_ino),
            Err(error) => match (self.stat(pid).map(|stat| stat.state), error) {
                (Some('Z' | 'X'), _) => Label::Ended,
                // A program that its user may execute and not read shows itself to nobody in the room.
                (Some(_), Errno::ACCESS | Errno::PERM) => Label::Hidden,
                _ => Label::Gone,
            },
        }
    }

    /// One look at who has this label. `seen`: who was there in the looks before.
    fn look(&self, label: u64, staff: &Staff, seen: &mut HashSet<i32>) -> Look {
        let mut look = Look { found: Vec::new(), is_sure: true };
        for pid in self.others(staff) {
            // Somebody new may be the child of one that ended between being listed and being looked at, and may
            // have one by now.
            look.is_sure &= !seen.insert(pid);
            match self.label(pid) {
                Label::Is(its) if its == label => look.found.push(pid),
                Label::Hidden if self.may_be_of(pid, label) => look.found.push(pid),
                Label::Gone => look.is_sure = false,
                _ => {}
            }
        }
        look
    }

    /// Whether one that hides its label may be of this tree: it is of its nearest ancestor's that does not hide. One
    /// that hides and has no such ancestor is anybody's.
    pub(crate) fn may_be_of(&self, pid: i32, label: u64) -> bool {
        let mut pid = pid;
        for _ in 0..MOST_LOOKS {
            match self.stat(pid).map(|stat| stat.parent) {
                None | Some(0 | 1) => return true,
                Some(parent) => match self.label(parent) {
                    Label::Is(its) => return its == label,
                    _ => pid = parent,
                },
            }
        }
        true
    }

    /// Ends everything with this label. First all of it is stopped: what is stopped cannot make more of itself. Says
    /// whether a last look was sure that nothing is left; what is made and ends all the time may escape many.
    pub(crate) fn kill_tree(&self, label: u64, staff: &Staff, most_looks: usize) -> bool {
        let (mut stopped, mut seen) = (HashSet::new(), HashSet::new());
        for _ in 0..most_looks {
            let Look { mut found, is_sure } = self.look(label, staff, &mut seen);
            found.retain(|pid| !stopped.contains(pid));
            if found.is_empty() && is_sure {
                if stopped.is_empty() {
                    return true;
                }
                break;
            }
            for pid in found {
                signal(pid, Signal::STOP);
                stopped.insert(pid);
            }
        }
        for _ in 0..most_looks {
            let look = self.look(label, staff, &mut seen);
            if look.found.is_empty() && look.is_sure {
                return true;
            }
            look.found.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        }
        false
    }

    /// Stops every process that is not stopped already, and says which ones. For rooms without a freezer, which would
    /// stop clerks too: while a room stands still nothing changes its files.
    pub(crate) fn stop_all(&self, staff: &Staff) -> Vec<i32> {
        let (mut stopped, mut seen) = (HashSet::new(), HashSet::new());
        for _ in 0..MOST_LOOKS {
            let mut is_sure = true;
            for pid in self.pids().into_iter().filter(|pid| *pid != 1 && *pid != staff.launcher) {
                is_sure &= !seen.insert(pid);
                let runs = self.stat(pid).is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X'));
                if runs && stopped.insert(pid) {
                    signal(pid, Signal::STOP);
                    is_sure = false;
                }
            }
            if is_sure {
                break;
            }
        }
        stopped.into_iter().collect()
    }

    pub(crate) fn continue_these(&self, pids: &[i32]) {
        pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
    }

    pub(crate) fn list(&self, staff: &Staff) -> Vec<ProcessInfo> {
        let mut pids = self.others(staff);
        pids.sort_unstable();
        pids.truncate(MOST_PROCESSES);
        let mut left = MOST_BYTES;
        let fits = |process: &ProcessInfo| {
            left = left.saturating_sub(process.command.len() + 64);
            left > 0
        };
        pids.into_iter().filter_map(|pid| self.describe(pid)).take_while(fits).collect()
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

    pub(crate) fn total(&self, staff: &Staff) -> Total {
        let mut total = Total { cpu_micros: 0, memory: 0, processes: 0 };
        for pid in self.pids() {
            let Some(stat) = self.stat(pid) else { continue };
            if pid == 1 {
                // What those that ended had used. The guest's own work is nobody's activity.
                total.cpu_micros += stat.reaped_ticks * MICROS_PER_TICK;
            } else if !staff.has(pid) {
                total.cpu_micros += (stat.own_ticks + stat.reaped_ticks) * MICROS_PER_TICK;
                total.memory += stat.pages * self.page;
                total.processes += u32::from(stat.state != 'Z');
            }
        }
        total
    }

    pub(crate) fn stat(&self, pid: i32) -> Option<Stat> {
        parse_stat(&String::from_utf8_lossy(&self.read(&format!("{pid}/stat"))?))
    }

    /// The beginning of a file of `/proc`, which is all that is needed of any of them.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.proc.as_fd(), path, flags, Mode::empty()).ok()?;
        let mut buffer = vec![0; 1024];
        let read = rustix::io::read(&file, &mut buffer[..]).ok()?;
        buffer.truncate(read);
        Some(buffer)
    }
}

pub(crate) struct Stat {
    name: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
    /// In ticks since the machine was started.
    pub(crate) born: u64,
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
        born: number(22)?,
        own_ticks: number(14)? + number(15)?,
        reaped_ticks: number(16)? + number(17)?,
        pages: number(24)?,
    })
}

pub(crate) fn signal(pid: i32, signal: Signal) {
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
