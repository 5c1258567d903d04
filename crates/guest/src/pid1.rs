//! The guest's loop: what the host asks, what the launcher answers, who ended.

use crate::launcher::{self, Launcher};
use crate::terminal::{open_terminal, resize};
use crate::{Guest, Meters};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use workroom_proto::{
    Channel, FromGuest, FromLauncher, LaunchError, LaunchStage, Received, ToGuest, ToLauncher,
};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_sys::signal::{SIGCHLD, next_signal, signal_fd};
use workroom_sys::wait::{Ending, Reaped, reap};
use workroom_types::{CommandSpec, Enforced, ErrorCode, Exit, ExitReport, Lifetime, RoomError};

/// Commands are the first that the kernel ends when memory runs out.
const COMMAND_OOM_SCORE: &[u8] = b"500";
const GUEST_OOM_SCORE: &[u8] = b"0";

/// A command's life, as the guest sees it:
///
/// ```text
///  Start ──▶ Launching ──Launched──▶ Running ──reaped──▶ (told, forgotten)
///                │ NotLaunched
///                ▼
///            (told, forgotten)
/// ```
enum Command {
    Launching { since: Instant, spec: CommandSpec, master: Option<OwnedFd> },
    Running { since: Instant, pid: i32, master: Option<OwnedFd> },
}

struct Pid1 {
    control: Channel,
    launcher: Channel,
    launcher_pid: i32,
    lifetime: Lifetime,
    meters: Meters,
    enforced: Enforced,
    commands: HashMap<u32, Command>,
    /// Children reaped before the launcher's word of their start arrived.
    early: Vec<Reaped>,
    ended: bool,
}

pub(crate) fn run(guest: Guest) -> io::Result<()> {
    let signals = signal_fd(&[SIGCHLD])?;
    let (mine, theirs) = Channel::pair()?;
    let Guest { control, lifetime, enforced, walls, work, meters, switches_users, resource_limits, oom_score } =
        guest;
    let mut for_launcher = Some(Launcher { channel: theirs, walls, work, switches_users, resource_limits });
    // What is the guest's alone, so that the launcher can let go of it.
    let mut for_guest = Some((control, mine, meters, signals));

    // Only the owner can raise a score, so the guest wears the commands' while the launcher is born.
    raise_oom_score(&oom_score, COMMAND_OOM_SCORE);
    let launcher = clone_process(CloneFlags::NONE, None, || {
        drop(for_guest.take());
        for_launcher.take().map_or(1, launcher::run)
    })?;
    raise_oom_score(&oom_score, GUEST_OOM_SCORE);
    drop((for_launcher.take(), oom_score));

    let Some((control, mine, meters, signals)) = for_guest.take() else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let mut pid1 = Pid1 {
        control,
        launcher: mine,
        launcher_pid: launcher.pid,
        lifetime,
        meters,
        enforced,
        commands: HashMap::new(),
        early: Vec::new(),
        ended: false,
    };
    drop(launcher);
    while !pid1.ended {
        pid1.turn(&signals)?;
    }
    Ok(())
}

/// Where this is refused the cgroup's limit still holds; only the choice of victim is the kernel's own.
fn raise_oom_score(file: &Option<OwnedFd>, score: &[u8]) {
    if let Some(file) = file {
        let _ = rustix::io::pwrite(file, score, 0);
    }
}

impl Pid1 {
    /// Waits for one thing to happen and deals with all that did.
    fn turn(&mut self, signals: &OwnedFd) -> io::Result<()> {
        let ready = {
            let mut fds = [
                PollFd::new(&self.control, PollFlags::IN),
                PollFd::new(&self.launcher, PollFlags::IN),
                PollFd::new(signals, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.map(|fd| !fd.revents().is_empty())
        };
        if ready[1] {
            self.hear_launcher()?;
        }
        if ready[2] {
            while next_signal(signals.as_fd()).is_some() {}
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
                if let Some(Command::Running { pid, .. }) = self.commands.get(&command)
                    && let (Some(pid), Some(signal)) = (Pid::from_raw(*pid), Signal::from_named_raw(signal))
                {
                    // The command leads its own session; its group is what a terminal would signal.
                    let _ = rustix::process::kill_process_group(pid, signal);
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
        self.launcher.send(&ToLauncher::Launch { command, spec: spec.clone() }, &fds)?;
        self.commands.insert(command, Command::Launching { since: Instant::now(), spec, master });
        Ok(())
    }

    fn hear_launcher(&mut self) -> io::Result<()> {
        match self.launcher.try_receive()? {
            None => Ok(()),
            Some(Received::Closed) => {
                // Without a launcher nothing can be started; a room that cannot work is ended, not kept.
                self.ended = true;
                Ok(())
            }
            Some(Received::Message(FromLauncher::Ready, _)) => {
                let enforced = std::mem::take(&mut self.enforced);
                self.control.send(&FromGuest::Ready { enforced }, &[])
            }
            Some(Received::Message(FromLauncher::WallFailed { wall, errno }, _)) => {
                let error = RoomError::new(
                    ErrorCode::RoomSetup,
                    format!("the room's {wall} could not be set up: {}", io::Error::from_raw_os_error(errno)),
                    "run `workroom doctor` to see what this machine offers",
                );
                self.ended = true;
                self.control.send(&FromGuest::Failed { error }, &[])
            }
            Some(Received::Message(FromLauncher::Launched { command, pid }, _)) => self.launched(command, pid),
            Some(Received::Message(FromLauncher::NotLaunched { command, error }, _)) => {
                let Some(Command::Launching { spec, .. }) = self.commands.remove(&command) else {
                    return Ok(());
                };
                self.early.clear();
                self.not_started(command, explain(&spec, error))
            }
        }
    }

    fn launched(&mut self, command: u32, pid: i32) -> io::Result<()> {
        let Some(Command::Launching { since, master, .. }) = self.commands.remove(&command) else {
            return Ok(());
        };
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
        while let Some(reaped) = reap()? {
            if reaped.pid == self.launcher_pid {
                self.ended = true;
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
