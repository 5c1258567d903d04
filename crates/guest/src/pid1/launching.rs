//! The guest and its launcher: which is started, told what to start, heard, and replaced.

use super::line::Line;
use super::{Command, LAUNCHER, Pid1, signal_group, spawned};
use crate::census::signal;
use crate::launcher;
use crate::runs::Kept;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use workroom_proto::{Channel, FromGuest, FromLauncher, LaunchError, LaunchStage, Received, ToLauncher};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::wait::{Ending, Reaped};
use workroom_types::{CommandSpec, ErrorCode, RoomError};

impl Pid1 {
    pub(super) fn start_launcher(&mut self) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        self.launcher = Line::new(ours);
        self.watch(self.launcher.as_fd(), LAUNCHER)?;
        let mut theirs = Some(theirs);
        let cloned = clone_process(CloneFlags::NONE, None, || {
            let (Some(parts), Some(channel)) = (self.launcher_parts.take(), theirs.take()) else { return 1 };
            // What is the guest's alone is not the launcher's to hold.
            let mut keep = vec![0, 1, 2, channel.as_fd().as_raw_fd()];
            keep.extend(parts.work.birth.iter().chain(&parts.work.join).map(|fd| fd.as_raw_fd()));
            if workroom_sys::exec::close_all_but(&mut keep).is_err() {
                return 1;
            }
            launcher::run(parts, channel)
        });
        self.staff.launcher = cloned?.pid;
        Ok(())
    }

    /// Commands of a room may end each other and so, where they share its uid, the launcher. Those that run
    /// go on; those that were about to start are told; the next one gets a new launcher.
    pub(super) fn replace_launcher(&mut self) -> io::Result<()> {
        let lost: Vec<u32> = self
            .commands
            .iter()
            .filter(|(_, command)| matches!(command, Command::Launching { .. }))
            .map(|(id, _)| *id)
            .collect();
        for command in lost {
            let error = RoomError::new(ErrorCode::RoomGone, "the room's launcher was killed", "try again");
            self.not_started(command, error)?;
        }
        self.clerks_awaited = 0;
        if !self.ready {
            // It never stood: starting it again would end the same way.
            let error =
                RoomError::new(ErrorCode::RoomSetup, "the room's launcher ended before it was ready", "");
            self.ended = true;
            return self.host.tell(FromGuest::Failed { error }, Vec::new());
        }
        self.start_launcher()
    }

    pub(super) fn launch(
        &mut self,
        command: u32,
        spec: CommandSpec,
        stdio: &[BorrowedFd<'_>],
        master: Option<OwnedFd>,
        mut kept: Option<Box<Kept>>,
    ) -> io::Result<()> {
        let since = Instant::now();
        let launch = ToLauncher::Launch { command, spec };
        let told = self.launcher.tell(&launch, stdio);
        let ToLauncher::Launch { spec, .. } = launch else { return Ok(()) };
        // While it is being started.
        if let Some(kept) = &mut kept {
            kept.oom_kills_before = self.meters.oom_kills();
        }
        self.commands.insert(command, Command::Launching { since, spec, master, signals: Vec::new(), kept });
        match told {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.wake_launcher();
                Ok(())
            }
            // A launcher that is gone is dealt with when it is reaped, and this command with it.
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected) => Ok(()),
            Err(error) => {
                let error = RoomError::new(
                    ErrorCode::LimitExceeded,
                    format!("the room has no room for another command's descriptors: {error}"),
                    "wait until some of its commands have ended",
                );
                self.not_started(command, error)
            }
        }
    }

    /// Has the launcher go on if it was stopped.
    pub(super) fn wake_launcher(&self) {
        signal(self.staff.launcher, Signal::CONT);
    }

    /// The time of a command is over that has not begun. Its caller is told now; should it begin, it ends at once.
    pub(super) fn give_up(&mut self, command: u32) -> io::Result<()> {
        self.launcher.give_up(command);
        self.wake_launcher();
        match self.commands.remove(&command) {
            Some(Command::Launching { since, master, kept: Some(kept), .. }) if kept.ends.is_none() => {
                let ended = Command::Running { since, pid: 0, master, kept: Some(kept) };
                self.commands.insert(command, ended);
                let ending = Ending::Killed(Signal::KILL.as_raw());
                self.finished(command, Reaped { pid: 0, ending, cpu_micros: 0, peak_memory: 0 })
            }
            Some(other) => {
                self.commands.insert(command, other);
                let error = RoomError::new(
                    ErrorCode::LimitExceeded,
                    "its time was over before the room could start it",
                    "try again, or give it more time",
                );
                self.not_started(command, error)
            }
            None => Ok(()),
        }
    }

    /// One that was given up has begun.
    fn end_at_once(&mut self, command: u32, pid: i32, label: u64) {
        if !self.launcher.given_up.remove(&command) {
            return;
        }
        match self.early.iter().position(|reaped| reaped.pid == pid) {
            // It has ended already, and its number may be another's by now.
            Some(at) => {
                self.early.swap_remove(at);
                self.end_what_is_left(label);
            }
            None => {
                self.kill_labelled(label);
                signal_group(pid, Signal::KILL.as_raw());
            }
        }
        if !self.launching() {
            self.early.clear();
        }
    }

    /// Deals with one thing that the launcher said; false when there is nothing more.
    pub(super) fn hear_launcher(&mut self) -> io::Result<bool> {
        let said = match self.launcher.hear()? {
            // Its end is dealt with when it is reaped.
            None => return Ok(false),
            Some(Received::Closed) => {
                let _ = epoll::delete(&self.epoll, self.launcher.as_fd());
                return Ok(false);
            }
            Some(Received::Message(said, _)) => said,
        };
        match said {
            FromLauncher::Ready => {
                self.launcher.stands = true;
                if !std::mem::replace(&mut self.ready, true) {
                    let beside = if self.host.is_durable() { self.beside_hello() } else { Vec::new() };
                    let ready = FromGuest::Ready { enforced: self.enforced.clone() };
                    self.host.tell(ready, beside)?;
                }
            }
            FromLauncher::WallFailed { wall, errno } => {
                let error = RoomError::new(
                    ErrorCode::RoomSetup,
                    format!("the room's {wall} could not be set up: {}", io::Error::from_raw_os_error(errno)),
                    "run `workroom doctor` to see what this machine offers",
                );
                self.ended = true;
                self.host.tell(FromGuest::Failed { error }, Vec::new())?;
            }
            FromLauncher::Clerk { pid } => self.clerk_started(pid),
            FromLauncher::Launched { command, pid, label } => self.launched(command, pid, label)?,
            FromLauncher::NotLaunched { command, error } => {
                self.launcher.given_up.remove(&command);
                if let Some(Command::Launching { spec, .. }) = self.commands.get(&command) {
                    let error = explain(spec, error);
                    self.not_started(command, error)?;
                }
            }
        }
        Ok(true)
    }

    fn launched(&mut self, command: u32, pid: i32, label: u64) -> io::Result<()> {
        let Some(Command::Launching { since, master, signals, mut kept, .. }) =
            self.commands.remove(&command)
        else {
            self.end_at_once(command, pid, label);
            return Ok(());
        };
        signals.into_iter().for_each(|signal| signal_group(pid, signal));
        match &mut kept {
            Some(kept) => {
                kept.label = label;
                if let Some(ends) = &kept.ends {
                    let fds = spawned::descriptors(&mut kept.output, ends)?;
                    self.host.tell(FromGuest::Spawned { command, pid }, fds)?;
                }
            }
            None => {
                let fds = master.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
                self.host.tell(FromGuest::Started { command, pid }, fds)?;
            }
        }
        self.commands.insert(command, Command::Running { since, pid, master, kept });
        if let Some(at) = self.early.iter().position(|reaped| reaped.pid == pid) {
            let reaped = self.early.swap_remove(at);
            self.finished(command, reaped)?;
        }
        Ok(())
    }

    /// Whether the launcher is about to tell of somebody.
    pub(super) fn launching(&self) -> bool {
        self.clerks_awaited > 0
            || !self.launcher.given_up.is_empty()
            || self.commands.values().any(|command| matches!(command, Command::Launching { .. }))
    }
}

/// Words for a command that could not start.
fn explain(spec: &CommandSpec, error: LaunchError) -> RoomError {
    let program = String::from_utf8_lossy(spec.argv.first().map(Vec::as_slice).unwrap_or_default());
    let cwd = String::from_utf8_lossy(&spec.cwd);
    let reason = io::Error::from_raw_os_error(error.errno);
    match (error.stage, Errno::from_raw_os_error(error.errno)) {
        (LaunchStage::Execute, Errno::NOENT | Errno::NOTDIR) => RoomError::new(
            ErrorCode::CommandNotFound,
            format!("{program}: not found in the room"),
            "name a program that is under /usr on this machine; `workroom run --ro`, and for sessions `ro` in the server's \
             configuration, show others",
        ),
        (LaunchStage::Execute, _) => RoomError::new(
            ErrorCode::CommandNotExecutable,
            format!("{program}: cannot be executed in the room: {reason}"),
            "",
        ),
        (LaunchStage::WorkingDirectory, _) => RoomError::new(
            ErrorCode::InvalidArgument,
            format!("the working directory {cwd} cannot be entered: {reason}"),
            "name a directory of the room, such as /workspace",
        ),
        (LaunchStage::Clone, Errno::AGAIN) => RoomError::new(
            ErrorCode::LimitExceeded,
            "the room's process limit leaves no place for another command",
            "end something in the room, or raise its limit of processes",
        ),
        (stage, _) => RoomError::new(
            ErrorCode::RoomSetup,
            format!("{program} could not be started ({stage:?}): {reason}"),
            "run `workroom doctor` to see what this machine offers",
        ),
    }
}
