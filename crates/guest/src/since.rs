//! What a command of a shell has started, told from what was there before, and how it is helped to its end.
//!
//! A shell's own process stays, so its tree says nothing of one command. Who was born after the command began and
//! descends from the shell by way of others that were is the command's; a job of an earlier command, and what that
//! starts meanwhile, is not.

use crate::census::{Census, Label, MICROS_PER_TICK, Staff, signal};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use workroom_proto::RunStage;

/// A moment of a room's life. Births are counted in ticks; who is born in the moment's own tick is told by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    ticks: u64,
    last_pid: i32,
}

/// The command that a shell is at.
pub(crate) struct ShellRun {
    /// What the host knows it by.
    pub(crate) mark: u64,
    /// Bytes of each stream that were written before it.
    pub(crate) began: [u64; 2],
    pub(crate) since: Moment,
    pub(crate) stage: RunStage,
    /// When there is something to be done next.
    pub(crate) next: Option<Instant>,
    /// When the next stage begins, once the time is over.
    pub(crate) until: Instant,
    /// Who was interrupted: nobody is twice.
    pub(crate) interrupted: HashSet<i32>,
    /// Whether the host has said that it is over.
    pub(crate) is_over: bool,
}

impl ShellRun {
    /// While the room stands still, so does the command's time.
    pub(crate) fn stood_still(&mut self, time: Duration) {
        self.next = self.next.map(|next| next + time);
        self.until += time;
    }
}

impl Census {
    pub(crate) fn moment(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        let ticks =
            now.tv_sec as u64 * (1_000_000 / MICROS_PER_TICK) + now.tv_nsec as u64 / (1000 * MICROS_PER_TICK);
        // The last word is the number that was given last in this room. Without it, births in this tick are older.
        let load = self.read("loadavg").unwrap_or_default();
        let text = String::from_utf8_lossy(&load);
        let last_pid = text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(i32::MAX);
        Moment { ticks, last_pid }
    }

    /// Everybody of a tree whom a command has started that its root began at this moment.
    pub(crate) fn begun_since(&self, since: Moment, root: i32, label: u64, staff: &Staff) -> Vec<i32> {
        let others = self.others(staff);
        others.into_iter().filter(|pid| self.is_begun_since(*pid, since, root, label)).collect()
    }

    fn is_begun_since(&self, pid: i32, since: Moment, root: i32, label: u64) -> bool {
        let mut at = pid;
        // As deep as a tree can be; a number that is given again while we look ends nothing for good.
        for _ in 0..4096 {
            let Some(stat) = self.stat(at) else { return false };
            let is_new = (stat.born, at) > (since.ticks, since.last_pid);
            if at == root || !is_new || (at == pid && matches!(stat.state, 'Z' | 'X')) {
                return false;
            }
            if stat.parent == root {
                return true;
            }
            // Whoever lost its parent is the room's child: its label says whose it was.
            if stat.parent <= 1 {
                return label != 0
                    && match self.label(pid) {
                        Label::Is(its) => its == label,
                        Label::Hidden => self.may_be_of(pid, label),
                        _ => false,
                    };
            }
            at = stat.parent;
        }
        false
    }

    /// Ends all that a command has started. First all of it is stopped: what is stopped makes no more of itself.
    pub(crate) fn end_begun_since(
        &self,
        since: Moment,
        root: i32,
        label: u64,
        staff: &Staff,
        most_looks: usize,
    ) {
        let mut stopped = HashSet::new();
        for _ in 0..most_looks {
            let mut found = self.begun_since(since, root, label, staff);
            found.retain(|pid| stopped.insert(*pid));
            if found.is_empty() {
                break;
            }
            found.into_iter().for_each(|pid| signal(pid, Signal::STOP));
        }
        for _ in 0..most_looks {
            let found = self.begun_since(since, root, label, staff);
            if found.is_empty() {
                return;
            }
            found.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        }
    }
}
