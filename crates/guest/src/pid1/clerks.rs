//! What the guest has to do with clerks: it has them started, and knows them from the room's own processes.

use super::Pid1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_proto::ToLauncher;

/// How long a tree is not looked for while a clerk is being started. A launcher takes a thousandth of it.
const PATIENCE: Duration = Duration::from_millis(100);

impl Pid1 {
    /// Has a clerk started at the other end of this channel. One that cannot be is one that hangs up.
    pub(super) fn start_clerk(&mut self, channel: Vec<OwnedFd>) {
        let [channel] = channel.as_slice() else { return };
        if self.launcher.tell(&ToLauncher::Clerk, &[channel.as_fd()]).is_ok() {
            self.clerks_awaited += 1;
        }
    }

    pub(super) fn clerk_started(&mut self, pid: i32) {
        self.clerks_awaited = self.clerks_awaited.saturating_sub(1);
        match self.early.iter().position(|reaped| reaped.pid == pid) {
            // It has ended already, and its number may be another's by now.
            Some(at) => drop(self.early.swap_remove(at)),
            None if pid > 0 => drop(self.staff.clerks.insert(pid)),
            None => {}
        }
        if !self.launching() {
            self.early.clear();
        }
    }

    /// Hears of the clerks that are being started. One that is not known hides its tree, as a process of the command
    /// that is to be ended might, and would be ended with it.
    pub(super) fn hear_of_clerks(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.clerks_awaited > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let has_said = poll(&mut [PollFd::new(&self.launcher, PollFlags::IN)], Some(&timeout));
            if !matches!(has_said, Ok(1..)) || !matches!(self.hear_launcher(), Ok(true)) {
                return;
            }
        }
    }
}
