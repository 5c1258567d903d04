//! The guest's loop: what the host asks, what the launcher answers, what commands write, who ended.

mod clerks;
mod kept;
mod launching;
mod line;
mod mounts;
mod secrets;
mod shells;
mod spawned;

use crate::census::{Census, Staff};
use crate::clerk;
use crate::freezer::Freezer;
use crate::host::Host;
use crate::launcher::Launcher;
use crate::output::SpoolSpace;
use crate::redaction::Redaction;
use crate::runs::{Ended, FIRST_PIPE, Kept, Pipes};
use crate::secret_files::SecretFiles;
use crate::terminal::{open_terminal, resize};
use crate::vigil::Vigil;
use crate::{Guest, Meters};
use line::Line;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_proto::{Channel, FromGuest, Question, Received, ToGuest};
use workroom_sys::signal::{SIGCHLD, next_signal, signal_fd};
use workroom_sys::wait::{Ending, Reaped, reap};
use workroom_types::{CommandSpec, Enforced, ErrorCode, Exit, ExitReport, Lifetime, RoomError, RunReport};

/// How many signals wait for a command that is being started.
const MOST_SIGNALS: usize = 64;

/// A command's life, as the guest sees it:
///
/// ```text
///  Start, Run ──▶ Launching ──Launched──▶ Running ──reaped──▶ (told, forgotten)
///                     │ NotLaunched                 └─────▶ Ended ──Forget──▶ (forgotten)
///                     ▼                              of Run: told, and told again to the next host
///                 (told, forgotten)
/// ```
enum Command {
    Launching {
        since: Instant,
        spec: CommandSpec,
        master: Option<OwnedFd>,
        signals: Vec<i32>,
        kept: Option<Box<Kept>>,
    },
    Running {
        since: Instant,
        pid: i32,
        master: Option<OwnedFd>,
        kept: Option<Box<Kept>>,
    },
}

impl Command {
    fn kept(&mut self) -> Option<&mut Kept> {
        match self {
            Command::Launching { kept, .. } | Command::Running { kept, .. } => kept.as_deref_mut(),
        }
    }
}

/// Keys of the guest's own descriptors in its poll set.
const CONTROL: u64 = 0;
const LAUNCHER: u64 = 1;
const SIGNALS: u64 = 2;
const LISTENER: u64 = 3;
const BELL: u64 = 4;

/// Messages of the host that are dealt with before anything else is looked at.
const MOST_MESSAGES: usize = 64;

struct Pid1 {
    epoll: OwnedFd,
    host: Host,
    signals: OwnedFd,
    launcher: Line,
    staff: Staff,
    /// Clerks that the launcher was asked for and has not told of.
    clerks_awaited: u32,
    launcher_parts: Option<Launcher>,
    lifetime: Lifetime,
    meters: Meters,
    enforced: Enforced,
    /// Whether the first launcher stands, and the host was told.
    ready: bool,
    commands: HashMap<u32, Command>,
    ended_runs: HashMap<u32, Ended>,
    pipes: Pipes,
    spool_space: SpoolSpace,
    redaction: Redaction,
    /// Whether there was ever anything to look for.
    redacts: bool,
    secret_files: SecretFiles,
    census: Census,
    freezer: Freezer,
    frozen_since: Option<Instant>,
    /// Whether all stands still only for as long as the host is here.
    held: bool,
    /// Whether the poll set looks for space in the host's queue.
    waits_for_space: bool,
    /// Children reaped before the launcher's word of their start arrived.
    early: Vec<Reaped>,
    vigil: Vigil,
    ended: bool,
}

pub(crate) fn run(guest: Guest) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"guest");
    let signals = signal_fd(&[SIGCHLD])?;
    let Guest {
        control,
        listener,
        lifetime,
        enforced,
        walls,
        mut work,
        meters,
        switches_users,
        resource_limits,
        secrets,
    } = guest;
    let launcher = Line::new(Channel::pair()?.0);
    let freezer = Freezer::new(work.freezer.take());
    let mut pid1 = Pid1 {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        host: Host::new(control, listener)?,
        signals,
        launcher,
        staff: Staff::default(),
        clerks_awaited: 0,
        launcher_parts: Some(Launcher { walls, work, switches_users, resource_limits }),
        lifetime,
        meters,
        enforced,
        ready: false,
        commands: HashMap::new(),
        ended_runs: HashMap::new(),
        pipes: Pipes::new(),
        spool_space: SpoolSpace::default(),
        redaction: Redaction::new(),
        redacts: false,
        secret_files: SecretFiles::new(secrets, switches_users, clerk::closed::device()?),
        census: Census::open()?,
        freezer,
        frozen_since: None,
        held: false,
        waits_for_space: false,
        early: Vec::new(),
        vigil: Vigil::new()?,
        ended: false,
    };
    if pid1.host.is_deserted() {
        return Ok(());
    }
    pid1.watch(pid1.signals.as_fd(), SIGNALS)?;
    pid1.host.control().map_or(Ok(()), |control| pid1.watch(control, CONTROL))?;
    pid1.host.listener().map_or(Ok(()), |listener| pid1.watch(listener, LISTENER))?;
    pid1.vigil.watch(&pid1.epoll, BELL)?;
    pid1.start_launcher()?;
    while !pid1.ended {
        pid1.turn()?;
    }
    Ok(())
}

impl Pid1 {
    fn watch(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?)
    }

    /// Waits for one thing to happen and deals with all that did.
    fn turn(&mut self) -> io::Result<()> {
        let next = [self.nearest_deadline(), self.next_idle()];
        let timeout = next.into_iter().flatten().min().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 32];
        let count = match self.vigil.wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let happened = |key: u64| events[..count].iter().find(|event| event.data.u64() == key);
        if happened(BELL).is_some() && self.frozen_since.is_none() && !self.held {
            self.vigil.begin();
            // Its own waking goes along with ours.
            self.launcher.tell_soon();
        }
        // All that the launcher said is heard before its or a command's end is acted on.
        if happened(LAUNCHER).is_some() || happened(SIGNALS).is_some() {
            while self.hear_launcher()? {}
        }
        if happened(SIGNALS).is_some() {
            // One look: all ends are told of by one signal, and another one wakes us again.
            let _ = next_signal(self.signals.as_fd());
            self.reap_all()?;
        }
        // After the ends: a command that has ended is told of first, and what it wrote was read with it. A pipe without a writer
        // is no hurry while the end of a command is waited for, which comes a moment later.
        let is_awake = self.vigil.is_on();
        for event in &events[..count] {
            if event.data.u64() >= FIRST_PIPE
                && !(is_awake && { event.flags } == epoll::EventFlags::HUP)
                && let Some((command, stream, data)) = self.pipes.pump(event.data.u64())
                && let Some(kept) = self.commands.get_mut(&command).and_then(Command::kept)
            {
                kept.output.append(stream, data);
            }
        }
        self.show_idle();
        self.check_deadlines()?;
        if let Some(event) = happened(CONTROL) {
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::OUT) {
                self.host.flush();
            }
            self.hear_host()?;
        }
        if happened(LISTENER).is_some() {
            self.host.accept();
            self.let_go();
            self.waits_for_space = false;
            self.host.control().map_or(Ok(()), |control| self.watch(control, CONTROL))?;
        }
        if self.host.is_durable() {
            self.pipes.prepare(&self.epoll);
            if self.host.control().is_none() {
                self.let_go();
            }
        }
        self.wait_for_what_is_unsent()
    }

    /// Looks for space in the host's queue only while something waits for it.
    fn wait_for_what_is_unsent(&mut self) -> io::Result<()> {
        if !self.host.is_durable() {
            return Ok(());
        }
        let waits = self.host.has_unsent();
        if let Some(control) = self.host.control().filter(|_| waits != self.waits_for_space) {
            self.waits_for_space = waits;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, waits);
            epoll::modify(&self.epoll, control, epoll::EventData::new_u64(CONTROL), flags)?;
        }
        Ok(())
    }

    fn hear_host(&mut self) -> io::Result<()> {
        for _ in 0..MOST_MESSAGES {
            if self.ended {
                break;
            }
            match self.host.hear() {
                None => break,
                Some(Received::Closed) if self.host.is_durable() => {
                    self.host.hang_up();
                    break;
                }
                Some(Received::Closed) => self.ended = true,
                Some(Received::Message(message, fds)) => self.obey(message, fds)?,
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToGuest, fds: Vec<OwnedFd>) -> io::Result<()> {
        match message {
            ToGuest::End => self.ended = true,
            ToGuest::Start { command, spec } => self.start(command, spec, fds)?,
            ToGuest::Run { command, spec, output, timeout_ms, memo, alone, forget } => {
                for ended in forget {
                    self.ended_runs.remove(&ended);
                }
                self.run_kept(command, spec, (output, timeout_ms, memo), fds)?;
                self.vigil.asked();
                if let Some(kept) = self.commands.get_mut(&command).and_then(Command::kept) {
                    kept.is_alone = alone;
                }
            }
            ToGuest::Spawn(spawn) => {
                self.spawn(*spawn, fds)?;
                self.vigil.asked();
            }
            ToGuest::CloseInput { command } => self.close_input(command),
            ToGuest::Redact { command, values } => self.redact_command(command, values),
            ToGuest::Clerk => self.start_clerk(fds),
            ToGuest::Forget { command } => drop(self.ended_runs.remove(&command)),
            ToGuest::Ask { request, question } => {
                let (answer, fds) = match &question {
                    Question::Mount { target } => (mounts::mount(target, &fds), Vec::new()),
                    Question::Unmount { target, remove_place } => {
                        (mounts::unmount(target, *remove_place), Vec::new())
                    }
                    Question::Give(gift) => (self.give(gift, fds), Vec::new()),
                    _ => self.answer(&question),
                };
                self.host.tell(FromGuest::Answer { request, answer }, fds)?;
                if let Question::Attach { command } = question {
                    self.tell_end(command)?;
                }
            }
            ToGuest::Signal { command, signal } => match self.commands.get_mut(&command) {
                Some(Command::Running { pid, .. }) => signal_group(*pid, signal),
                Some(Command::Launching { signals, .. }) if signals.len() < MOST_SIGNALS => {
                    signals.push(signal)
                }
                _ => {}
            },
            ToGuest::Resize { command, size } => {
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
        let stdio: Vec<_> = stdio.iter().map(AsFd::as_fd).collect();
        self.launch(command, spec, &stdio, master, None)
    }

    fn reap_all(&mut self) -> io::Result<()> {
        while let Some(reaped) = reap()? {
            if reaped.pid == self.staff.launcher {
                if !self.ended {
                    self.replace_launcher()?;
                }
                continue;
            }
            if self.staff.clerks.remove(&reaped.pid) {
                continue;
            }
            let known = self.commands.iter().find_map(|(id, command)| match command {
                Command::Running { pid, .. } if *pid == reaped.pid => Some(*id),
                _ => None,
            });
            match known {
                Some(command) => self.finished(command, reaped)?,
                // An orphan that PID 1 inherited, or a command or a clerk whose start we are about to hear of.
                None if self.launching() => self.early.push(reaped),
                None => {}
            }
        }
        // One may have been stopped too, which the same signal tells.
        self.wake_launcher();
        Ok(())
    }

    fn finished(&mut self, command: u32, reaped: Reaped) -> io::Result<()> {
        let Some(Command::Running { since, pid, kept, .. }) = self.commands.remove(&command) else {
            return Ok(());
        };
        if !self.launching() {
            self.early.clear();
        }
        let exit = match reaped.ending {
            Ending::Exited(code) => Exit::Code(code),
            Ending::Killed(signal) => Exit::Signal(signal),
        };
        let duration_micros = since.elapsed().as_micros() as u64;
        let Some(mut kept) = kept else {
            let mut usage = self.meters.read();
            if self.meters.cpu.is_none() {
                usage.cpu_micros = reaped.cpu_micros;
            }
            if self.meters.peak.is_none() {
                usage.peak_memory = reaped.peak_memory;
            }
            let report = ExitReport { exit, duration_micros, usage };
            self.ended |= self.lifetime == Lifetime::FirstCommand;
            return self.host.tell(FromGuest::Exited { command, report }, Vec::new());
        };
        if kept.is_alone {
            // Before its pipes are read for the last time: nobody writes to them afterwards.
            self.end_what_is_left(kept.label);
        }
        self.pipes.drain(&mut kept);
        let report = RunReport {
            exit,
            timed_out: kept.timed_out,
            oom_killed: self.meters.oom_kills() > kept.oom_kills_before,
            duration_micros,
            cpu_micros: reaped.cpu_micros,
            peak_memory: reaped.peak_memory,
            written: kept.output.written(),
        };
        let spawned_pid = kept.ends.as_ref().map(|_| pid);
        let (run, label) = (kept.run, kept.label);
        let ended = Ended { report, output: kept.output, memo: kept.memo, spawned_pid, run, label };
        self.ended_runs.insert(command, ended);
        self.vigil.end();
        self.tell_end(command)
    }

    fn not_started(&mut self, command: u32, error: RoomError) -> io::Result<()> {
        if let Some(mut gone) = self.commands.remove(&command)
            && let Some(kept) = gone.kept()
        {
            self.pipes.close(kept);
        }
        if !self.launching() {
            self.early.clear();
        }
        self.ended |= self.lifetime == Lifetime::FirstCommand;
        self.host.tell(FromGuest::NotStarted { command, error }, Vec::new())
    }
}

/// The command leads its own session; its group is what a terminal would signal.
fn signal_group(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}
