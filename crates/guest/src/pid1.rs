//! The guest's loop: what the host asks, what the launcher answers, who ended.

use crate::launcher::{self, Launcher};
use crate::terminal::{open_terminal, resize};
use crate::{Guest, Meters};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;
use workroom_proto::{
    Channel, FromGuest, FromLauncher, LaunchError, LaunchStage, Received, ToGuest, ToLauncher,
};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::signal::{SIGCHLD, next_signal, signal_fd};
use workroom_sys::wait::{Ending, Reaped, reap};
use workroom_types::{CommandSpec, Enforced, ErrorCode, Exit, ExitReport, Lifetime, RoomError};

/// How many signals wait for a command that is being started.
const MOST_SIGNALS: usize = 64;

/// A command's life, as the guest sees it:
///
/// ```text
///  Start ──▶ Launching ──Launched──▶ Running ──reaped──▶ (told, forgotten)
///                │ NotLaunched
///                ▼
///            (told, forgotten)
/// ```
enum Command {
    Launching { since: Instant, spec: CommandSpec, master: Option<OwnedFd>, signals: Vec<i32> },
    Running { since: Instant, pid: i32, master: Option<OwnedFd> },
}

struct Pid1 {
    control: Channel,
    signals: OwnedFd,
    launcher: Channel,
    launcher_pid: i32,
    launcher_parts: Option<Launcher>,
    lifetime: Lifetime,
    meters: Meters,
    /// Told to the host when the first launcher stands.
    enforced: Option<Enforced>,
    commands: HashMap<u32, Command>,
    /// Children reaped before the launcher's word of their start arrived.
    early: Vec<Reaped>,
    ended: bool,
}

pub(crate) fn run(guest: Guest) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"guest");
    let signals = signal_fd(&[SIGCHLD])?;
    let Guest { control, lifetime, enforced, walls, work, meters, switches_users, resource_limits } = guest;
    let (launcher, _) = Channel::pair()?;
    let mut pid1 = Pid1 {
        control,
        signals,
        launcher,
        launcher_pid: 0,
        launcher_parts: Some(Launcher { walls, work, switches_users, resource_limits }),
        lifetime,
        meters,
        enforced: Some(enforced),
        commands: HashMap::new(),
        early: Vec::new(),
        ended: false,
    };
    pid1.start_launcher()?;
    while !pid1.ended {
        pid1.turn()?;
    }
    Ok(())
}

impl Pid1 {
    fn start_launcher(&mut self) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        self.launcher = ours;
        let mut theirs = Some(theirs);
        let cloned = clone_process(CloneFlags::NONE, None, || {
            let (Some(parts), Some(channel)) = (self.launcher_parts.take(), theirs.take()) else { return 1 };
            // What is the guest's alone is not the launcher's to hold.
            let mine = [&self.control, &self.launcher].map(|channel| channel.as_fd().as_raw_fd());
            let meters = [&self.meters.oom, &self.meters.peak, &self.meters.cpu].map(Option::as_ref);
            let files =
                [Some(&self.signals)].into_iter().chain(meters).flatten().map(|file| file.as_raw_fd());
            workroom_sys::exec::close_these(mine.into_iter().chain(files));
            launcher::run(parts, channel)
        });
        self.launcher_pid = cloned?.pid;
        Ok(())
    }

    /// Commands of a room may end each other and so, where they share its uid, the launcher. Those that run
    /// go on; those that were about to start are told; the next one gets a new launcher.
    fn replace_launcher(&mut self) -> io::Result<()> {
        let lost: Vec<u32> = self
            .commands
            .iter()
            .filter(|(_, command)| matches!(command, Command::Launching { .. }))
            .map(|(id, _)| *id)
            .collect();
        for command in lost {
            self.commands.remove(&command);
            let error = RoomError::new(ErrorCode::RoomGone, "the room's launcher was killed", "try again");
            self.not_started(command, error)?;
        }
        if self.enforced.is_some() {
            // It never stood: starting it again would end the same way.
            let error =
                RoomError::new(ErrorCode::RoomSetup, "the room's launcher ended before it was ready", "");
            self.ended = true;
            return self.control.send(&FromGuest::Failed { error }, &[]);
        }
        self.start_launcher()
    }

    /// Waits for one thing to happen and deals with all that did.
    fn turn(&mut self) -> io::Result<()> {
        let ready = {
            let mut fds = [
                PollFd::new(&self.control, PollFlags::IN),
                PollFd::new(&self.launcher, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.map(|fd| !fd.revents().is_empty())
        };
        // All that the launcher said is heard before its or a command's end is acted on.
        if ready[1] || ready[2] {
            while self.hear_launcher()? {}
        }
        if ready[2] {
            while next_signal(self.signals.as_fd()).is_some() {}
            self.reap_all()?;
        }
        if ready[0] && !self.ended {
            self.hear_host()?;
        }
        Ok(())
    }

    fn hear_host(&mut self) -> io::Result<()> {
        match self.control.receive()? {
            Received::Closed => self.ended = true,
            Received::Message(ToGuest::End, _) => self.ended = true,
            Received::Message(ToGuest::Start { command, spec }, fds) => self.start(command, spec, fds)?,
            Received::Message(ToGuest::Signal { command, signal }, _) => {
                match self.commands.get_mut(&command) {
                    Some(Command::Running { pid, .. }) => signal_group(*pid, signal),
                    Some(Command::Launching { signals, .. }) if signals.len() < MOST_SIGNALS => {
                        signals.push(signal)
                    }
                    _ => {}
                }
            }
            Received::Message(ToGuest::Resize { command, size }, _) => {
                if let Some(Command::Running { master: Some(master), .. }) = self.commands.get(&command) {
                    let _ = resize(master.as_fd(), size);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, command: u32, spec: CommandSpec, mut stdio: Vec<OwnedFd>) -> io::Result<()> {
        let mut master = None;
        if let Some(size) = spec.terminal {
            match open_terminal(size, spec.user) {
                Ok(terminal) => {
                    master = Some(terminal.master);
                    let slave = terminal.slave;
                    stdio = vec![slave.try_clone()?, slave.try_clone()?, slave];
                }
                Err(error) => {
                    let error = RoomError::new(
                        ErrorCode::RoomSetup,
                        format!("the room could not open a terminal: {error}"),
                        "try --no-tty",
                    );
                    return self.not_started(command, error);
                }
            }
        }
        let fds: Vec<_> = stdio.iter().map(AsFd::as_fd).collect();
        // A launcher that is gone is dealt with when it is reaped, and this command with it.
        let _ = self.launcher.send(&ToLauncher::Launch { command, spec: spec.clone() }, &fds);
        self.commands
            .insert(command, Command::Launching { since: Instant::now(), spec, master, signals: Vec::new() });
        Ok(())
    }

    /// Deals with one thing that the launcher said; false when there is nothing more.
    fn hear_launcher(&mut self) -> io::Result<bool> {
        let said = match self.launcher.try_receive()? {
            // Its end is dealt with when it is reaped.
            None | Some(Received::Closed) => return Ok(false),
            Some(Received::Message(said, _)) => said,
        };
        match said {
            FromLauncher::Ready => {
                if let Some(enforced) = self.enforced.take() {
                    self.control.send(&FromGuest::Ready { enforced }, &[])?;
                }
            }
            FromLauncher::WallFailed { wall, errno } => {
                let error = RoomError::new(
                    ErrorCode::RoomSetup,
                    format!("the room's {wall} could not be set up: {}", io::Error::from_raw_os_error(errno)),
                    "run `workroom doctor` to see what this machine offers",
                );
                self.ended = true;
                self.control.send(&FromGuest::Failed { error }, &[])?;
            }
            FromLauncher::Launched { command, pid } => self.launched(command, pid)?,
            FromLauncher::NotLaunched { command, error } => {
                if let Some(Command::Launching { spec, .. }) = self.commands.remove(&command) {
                    if !self.launching() {
                        self.early.clear();
                    }
                    self.not_started(command, explain(&spec, error))?;
                }
            }
        }
        Ok(true)
    }

    fn launched(&mut self, command: u32, pid: i32) -> io::Result<()> {
        let Some(Command::Launching { since, master, signals, .. }) = self.commands.remove(&command) else {
            return Ok(());
        };
        signals.into_iter().for_each(|signal| signal_group(pid, signal));
        let fds: Vec<_> = master.iter().map(AsFd::as_fd).collect();
        self.control.send(&FromGuest::Started { command, pid }, &fds)?;
        self.commands.insert(command, Command::Running { since, pid, master });
        if let Some(at) = self.early.iter().position(|reaped| reaped.pid == pid) {
            let reaped = self.early.swap_remove(at);
            self.finished(command, since, reaped)?;
        }
        Ok(())
    }

    fn reap_all(&mut self) -> io::Result<()> {
        let mut nobody = true;
        while let Some(reaped) = reap()? {
            nobody = false;
            if reaped.pid == self.launcher_pid {
                if !self.ended {
                    self.replace_launcher()?;
                }
                continue;
            }
            let known = self.commands.iter().find_map(|(id, command)| match command {
                Command::Running { pid, since, .. } if *pid == reaped.pid => Some((*id, *since)),
                _ => None,
            });
            match known {
                Some((command, since)) => self.finished(command, since, reaped)?,
                // An orphan that PID 1 inherited, or a command whose start we are about to hear of.
                None if self.launching() => self.early.push(reaped),
                None => {}
            }
        }
        // A child's signal without an end: one was stopped. If it is the launcher, it is needed.
        if nobody && let Some(launcher) = Pid::from_raw(self.launcher_pid) {
            let _ = rustix::process::kill_process(launcher, Signal::CONT);
        }
        Ok(())
    }

    fn launching(&self) -> bool {
        self.commands.values().any(|command| matches!(command, Command::Launching { .. }))
    }

    fn finished(&mut self, command: u32, since: Instant, reaped: Reaped) -> io::Result<()> {
        self.commands.remove(&command);
        if !self.launching() {
            self.early.clear();
        }
        let mut usage = self.meters.read();
        if self.meters.cpu.is_none() {
            usage.cpu_micros = reaped.cpu_micros;
        }
        if self.meters.peak.is_none() {
            usage.peak_memory = reaped.peak_memory;
        }
        let exit = match reaped.ending {
            Ending::Exited(code) => Exit::Code(code),
            Ending::Killed(signal) => Exit::Signal(signal),
        };
        let report = ExitReport { exit, duration_micros: since.elapsed().as_micros() as u64, usage };
        self.ended |= self.lifetime == Lifetime::FirstCommand;
        self.control.send(&FromGuest::Exited { command, report }, &[])
    }

    fn not_started(&mut self, command: u32, error: RoomError) -> io::Result<()> {
        self.ended |= self.lifetime == Lifetime::FirstCommand;
        self.control.send(&FromGuest::NotStarted { command, error }, &[])
    }
}

/// The command leads its own session; its group is what a terminal would signal.
fn signal_group(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process_group(pid, signal);
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
            "name a program that is under /usr on this machine, or add its directory with --ro",
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
            "raise --pids or end something in the room",
        ),
        (stage, _) => RoomError::new(
            ErrorCode::RoomSetup,
            format!("{program} could not be started ({stage:?}): {reason}"),
            "run `workroom doctor` to see what this machine offers",
        ),
    }
}
