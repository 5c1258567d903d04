//! One probe at work: what it is started with, and what it says, of which only so much is read and less is kept.

use super::stop::{Signals, Stop, fault};
use crate::capture::Capture;
use crate::stream::set_nonblocking;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workroom_proto::FromGuest;
use workroom_room::Room;
use workroom_types::{CommandSpec, ExitReport, HostMount, Lifetime, Limits, RoomError, RoomSpec, RoomUser};

/// Where a room sees this binary, and programs that would give privilege.
const PROBE: &str = "/opt/workroom-probe";
pub(super) const PROGRAMS: &str = "/opt/workroom-bait";

/// The longest that any probe may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// More than the memory of a room: what writes as much is stopped.
pub(super) const MOST_OUTPUT: u64 = 128 << 20;

/// Small enough to be reached in a moment, large enough for the probes themselves.
const LIMITS: Limits = Limits {
    memory: Some(96 << 20),
    cpus_milli: Some(500),
    pids: Some(64),
    disk: 24 << 20,
    inodes: 0,
    shm: 16 << 20,
    open_files: 256,
};

/// What the room of a case has.
pub(super) fn limits_for(case: &str) -> Limits {
    match case {
        // As many as it makes, and the kernel's memory for them, in a time that can be waited for.
        "zombies-10000" => {
            Limits { pids: Some(12_000), memory: Some(1 << 30), cpus_milli: Some(4000), ..LIMITS }
        }
        // So little that more can be had on a machine that others keep busy.
        "cpu-spin" => Limits { cpus_milli: Some(100), ..LIMITS },
        _ => LIMITS,
    }
}

pub(super) fn room_spec(
    id: &str,
    user: RoomUser,
    limits: Limits,
    programs: Option<&Path>,
) -> Result<RoomSpec, RoomError> {
    let binary =
        std::fs::canonicalize("/proc/self/exe").map_err(|error| fault("find this program", error))?;
    let mut mounts = vec![HostMount { source: binary, target: PathBuf::from(PROBE) }];
    mounts.extend(
        programs.map(|source| HostMount { source: source.to_owned(), target: PathBuf::from(PROGRAMS) }),
    );
    Ok(RoomSpec { mounts, ..RoomSpec::new(id.to_owned(), user, limits, Lifetime::Connection) })
}

pub(super) fn command(arguments: &[&str], user: RoomUser) -> CommandSpec {
    let argv = [PROBE].iter().chain(arguments).map(|text| text.as_bytes().to_vec()).collect();
    let env = ["PATH=/usr/bin:/bin", "HOME=/home/agent", "USER=agent", "LANG=C.UTF-8", "TERM=dumb"];
    CommandSpec {
        argv,
        env: env.map(|text| text.as_bytes().to_vec()).to_vec(),
        cwd: b"/workspace".to_vec(),
        user,
        terminal: None,
    }
}

/// Both ends of a pipe that no other program inherits: reader, writer.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), RoomError> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| fault("pipe", error.into()))
}

/// What a probe says.
struct Output {
    pipe: OwnedFd,
    said: Capture,
    /// Whether there may be more.
    open: bool,
}

impl Output {
    fn new(pipe: OwnedFd) -> Output {
        set_nonblocking(&pipe);
        Output { pipe, said: Capture::default(), open: true }
    }

    /// Reads what is there now.
    fn read(&mut self) {
        let mut buffer = vec![0u8; 64 << 10];
        while self.open && !self.is_too_much() {
            match rustix::io::read(&self.pipe, buffer.as_mut_slice()) {
                Ok(0) => self.open = false,
                Ok(count) => self.said.push(&buffer[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.open = false,
            }
        }
    }

    fn is_too_much(&self) -> bool {
        self.said.total() >= MOST_OUTPUT
    }
}

pub(super) struct Ended {
    pub(super) said: Capture,
    /// None when the command was stopped: at the end of our patience, or because it said too much.
    pub(super) report: Option<ExitReport>,
}

/// Runs a command with `input`, collecting what it says.
pub(super) fn run_to_end(
    room: &Room,
    command: CommandSpec,
    input: &[u8],
    signals: &Signals,
) -> Result<Ended, Stop> {
    let ((in_read, in_write), (out_read, out_write)) = (pipe()?, pipe()?);
    let null = std::fs::File::open("/dev/null").map_err(|error| fault("open /dev/null", error))?;
    room.start(1, command, &[in_read.as_fd(), out_write.as_fd(), null.as_fd()])?;
    drop((in_read, out_write));
    let _ = std::fs::File::from(in_write).write_all(input);
    let deadline = Instant::now() + PATIENCE;
    let mut output = Output::new(out_read);
    loop {
        // Whoever a probe left behind may keep the pipe open; one that is closed is not asked again.
        let pipe = if output.open { output.pipe.as_fd() } else { room.events() };
        let [event, more] = signals.wait([room.events(), pipe], deadline)?;
        if output.open && more {
            output.read();
        }
        if output.is_too_much() || !event && !more {
            return Ok(Ended { said: output.said, report: None });
        }
        if !event {
            continue;
        }
        match room.next_event()? {
            (FromGuest::Exited { report, .. }, _) => {
                output.read();
                return Ok(Ended { said: output.said, report: Some(report) });
            }
            (FromGuest::NotStarted { error, .. } | FromGuest::Failed { error }, _) => {
                return Err(error.into());
            }
            _ => {}
        }
    }
}

/// Runs a program without any room, with `input`; says what it said.
pub(super) fn run_bare(mut program: Command, input: &[u8], signals: &Signals) -> Result<Capture, Stop> {
    let (out_read, out_write) = pipe()?;
    program.stdin(Stdio::piped()).stdout(Stdio::from(out_write)).stderr(Stdio::null());
    let mut running = program.spawn().map_err(|error| fault("run a probe", error))?;
    // It has the other end of the pipe, which is to end with the probe.
    drop(program);
    if let Some(mut stdin) = running.stdin.take() {
        let _ = stdin.write_all(input);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut output = Output::new(out_read);
    let mut stopped = Ok(());
    while output.open && !output.is_too_much() && Instant::now() < deadline && stopped.is_ok() {
        stopped = signals.wait([output.pipe.as_fd()], deadline).map(|[_]| output.read());
    }
    if output.open {
        let _ = running.kill();
    }
    running.wait().map_err(|error| fault("wait for a probe", error))?;
    stopped.map(|()| output.said)
}

/// The memory that these processes have of their own, in bytes.
pub(super) fn resident(processes: &[Option<u32>]) -> u64 {
    let one = |pid: &u32| -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    processes.iter().flatten().filter_map(one).sum::<u64>() << 10
}

/// The number that this machine has for what a pidfd stands for.
pub(super) fn number_of(process: BorrowedFd<'_>) -> Option<u32> {
    let number = std::os::fd::AsRawFd::as_raw_fd(&process);
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    facts.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}
