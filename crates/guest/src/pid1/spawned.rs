//! Commands that are read from and written to while they run: their ends are the guest's, so that no host's end is
//! theirs, and every host gets them anew.

use super::{Command, Pid1, signal_group};
use crate::output::Output;
use crate::runs::{Ends, Kept};
use crate::terminal::open_terminal;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use workroom_proto::{Answer, Input, Spawn, Whom};
use workroom_types::{ErrorCode, RoomError};

/// What a command is born with, and what the guest keeps of it.
struct Stdio {
    /// Three, or four with a channel.
    theirs: Vec<OwnedFd>,
    master: Option<OwnedFd>,
    kept: Kept,
}

/// The descriptors that a host gets of a spawned command.
pub(super) fn descriptors(output: &mut Output, ends: &Ends) -> io::Result<Vec<OwnedFd>> {
    let (_, counter) = output.share()?;
    let mut fds = vec![counter.try_clone_to_owned()?];
    for end in [&ends.input, &ends.channel].into_iter().flatten() {
        fds.push(end.try_clone()?);
    }
    Ok(fds)
}

impl Pid1 {
    pub(super) fn spawn(&mut self, spawn: Spawn, fds: Vec<OwnedFd>) -> io::Result<()> {
        let command = spawn.command;
        let spec = spawn.spec.clone();
        match self.stdio(spawn, fds) {
            Ok(Stdio { theirs, master, kept }) => {
                let stdio: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
                self.launch(command, spec, &stdio, master, Some(Box::new(kept)))
            }
            Err(error) => {
                let error = RoomError::new(
                    ErrorCode::LimitExceeded,
                    format!("the room has no room for another process's descriptors: {error}"),
                    "wait until some of its processes have ended",
                );
                self.not_started(command, error)
            }
        }
    }

    fn stdio(&mut self, spawn: Spawn, fds: Vec<OwnedFd>) -> io::Result<Stdio> {
        let Spawn { command, spec, output, input, channel, timeout_ms, memo } = spawn;
        let mut fds = fds.into_iter();
        let file = fds.next().ok_or(io::ErrorKind::InvalidInput)?;
        let output = Output::on(file, output)?;
        let mut ends = Ends::default();
        let (mut theirs, pipes, master) = match spec.terminal {
            Some(size) => {
                let terminal = open_terminal(size, spec.user)?;
                ends.input = Some(terminal.master.try_clone()?);
                let key = self.pipes.take_terminal(&self.epoll, command, terminal.master.try_clone()?)?;
                let slave = terminal.slave;
                (vec![slave.try_clone()?, slave.try_clone()?, slave], vec![key], Some(terminal.master))
            }
            None => {
                let stdin = match input {
                    // The guest's own is /dev/null.
                    Input::Nothing => rustix::stdio::stdin().try_clone_to_owned()?,
                    Input::Given => fds.next().ok_or(io::ErrorKind::InvalidInput)?,
                    Input::Pipe => {
                        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                        // The host waits for space in it without a thread.
                        rustix::io::ioctl_fionbio(&write, true)?;
                        ends.input = Some(write);
                        read
                    }
                };
                let pair = self.pipes.take(&self.epoll, command)?;
                let [stdout, stderr] = pair.ends;
                (vec![stdin, stdout, stderr], pair.keys.to_vec(), None)
            }
        };
        if channel {
            let (ours, its) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            ends.channel = Some(ours);
            theirs.push(its);
        }
        let mut kept = Kept::spawned(output, timeout_ms, memo, pipes, ends);
        kept.output.redact(self.redaction.of_command(command));
        Ok(Stdio { theirs, master, kept })
    }

    pub(super) fn is_spawned(&self, command: u32) -> bool {
        let running = match self.commands.get(&command) {
            Some(Command::Launching { kept, .. } | Command::Running { kept, .. }) => {
                kept.as_ref().is_some_and(|kept| kept.ends.is_some())
            }
            None => false,
        };
        running || self.ended_runs.get(&command).is_some_and(|ended| ended.spawned_pid.is_some())
    }

    pub(super) fn attach_spawned(&mut self, command: u32) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let attached = |memo: &[u8], pid, ends: &Ends| Answer::AttachedSpawned {
            memo: memo.to_vec(),
            pid,
            has_input: ends.input.is_some(),
            has_channel: ends.channel.is_some(),
        };
        if let Some(ended) = self.ended_runs.get_mut(&command) {
            let none = Ends::default();
            let answer = attached(&ended.memo, ended.spawned_pid.unwrap_or(0), &none);
            return Ok((answer, descriptors(&mut ended.output, &none)?));
        }
        let pid = match self.commands.get(&command) {
            Some(Command::Running { pid, .. }) => *pid,
            _ => 0,
        };
        match self.commands.get_mut(&command).and_then(Command::kept) {
            Some(Kept { ends: Some(ends), memo, output, .. }) => {
                Ok((attached(memo, pid, ends), descriptors(output, ends)?))
            }
            _ => Ok((Answer::Unknown, Vec::new())),
        }
    }

    /// What was written before is read before its end is.
    pub(super) fn close_input(&mut self, command: u32) {
        if let Some(Command::Launching { kept: Some(kept), .. } | Command::Running { kept: Some(kept), .. }) =
            self.commands.get_mut(&command)
            && let Some(ends) = &mut kept.ends
        {
            ends.input = None;
        }
    }

    pub(super) fn signal_command(&self, command: u32, signal: i32, whom: Whom) -> Answer {
        let Some(Command::Running { pid, .. }) = self.commands.get(&command) else { return Answer::Unknown };
        match (whom, Pid::from_raw(*pid), Signal::from_named_raw(signal)) {
            (Whom::Process, Some(pid), Some(signal)) => {
                let _ = rustix::process::kill_process(pid, signal);
            }
            _ => signal_group(*pid, signal),
        }
        Answer::Done
    }

    pub(super) fn settle(&mut self, command: u32) -> Answer {
        let Some(Command::Running { kept: Some(kept), .. }) = self.commands.get_mut(&command) else {
            return match self.ended_runs.get(&command) {
                Some(ended) => Answer::Settled { written: ended.output.written() },
                None => Answer::Unknown,
            };
        };
        self.pipes.read_now(kept);
        Answer::Settled { written: kept.output.written() }
    }
}
