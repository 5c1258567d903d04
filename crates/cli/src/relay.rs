//! Between the caller and its command: streams, signals, window size, time.
//!
//! One loop over descriptors, no threads. Output is spliced from the room's pipes without passing through
//! this process's memory, and only when its reader has room, so that a slow reader slows the command and
//! never this loop.

use crate::capture::Capture;
use crate::output;
use crate::plan::{Plan, Terminal};
use crate::screen::{self, RawMode};
use crate::stream::{Inflow, Outflow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_proto::FromGuest;
use workroom_room::{Room, Spawner};
use workroom_sys::signal::{
    SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, next_signal, signal_fd,
};
use workroom_types::{Enforced, ErrorCode, ExitReport, LayerState, RoomError};

/// How long after a time-out a slow reader may still take output: a time-out that waits for ever is none.
const GRACE: Duration = Duration::from_millis(500);

/// The room has one command, and this is its number.
const COMMAND: u32 = 1;

pub(crate) struct Ended {
    pub(crate) report: Option<ExitReport>,
    pub(crate) timed_out: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) enforced: Enforced,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
}

struct Relay<'a> {
    plan: &'a Plan,
    spawner: &'a Spawner,
    room: &'a Room,
    signals: OwnedFd,
    input: Inflow,
    output: Outflow,
    errors: Outflow,
    deadline: Option<Instant>,
    raw_mode: Option<RawMode>,
    wants_terminal: bool,
    /// While the room may still say something.
    listening: bool,
    /// The room's last process is gone.
    dead: bool,
    /// After a time-out: when the room ends though it has not told of its command's end, and output that nobody reads is
    /// given up.
    give_up: Option<Instant>,
    ended: Ended,
}

/// Runs the plan's command in the room, to its end.
pub(crate) fn run(plan: &Plan, spawner: &Spawner, room: &Room) -> Result<Ended, RoomError> {
    let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH];
    let signals = signal_fd(&forwarded).map_err(broken("signals"))?;
    let mut relay = Relay {
        plan,
        spawner,
        room,
        signals,
        input: Inflow::closed(),
        output: Outflow::closed(),
        errors: Outflow::closed(),
        deadline: plan.timeout.map(|time| Instant::now() + time),
        raw_mode: None,
        wants_terminal: false,
        listening: true,
        dead: false,
        give_up: None,
        ended: Ended {
            report: None,
            timed_out: false,
            timeout: plan.timeout,
            enforced: Enforced::default(),
            stdout: Capture::default(),
            stderr: Capture::default(),
        },
    };
    relay.start()?;
    while !relay.done() {
        relay.turn()?;
    }
    let Relay { output, errors, mut ended, .. } = relay;
    if let Some(error) = output.lost().or(errors.lost()) {
        return Err(RoomError::new(
            ErrorCode::OutputLost,
            format!("the command's output could not be written: {}", std::io::Error::from(error)),
            "make room where it goes, or send it elsewhere",
        ));
    }
    ended.stdout = output.into_capture();
    ended.stderr = errors.into_capture();
    Ok(ended)
}

impl Relay<'_> {
    fn start(&mut self) -> Result<(), RoomError> {
        let mut spec = self.plan.command.clone();
        let wants_terminal = match self.plan.terminal {
            Terminal::Auto => screen::both_are_terminals(),
            Terminal::Always => true,
            Terminal::Never => false,
        };
        self.wants_terminal = wants_terminal;
        if wants_terminal {
            spec.terminal = Some(screen::size());
            let term = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".into());
            if let Some(entry) = spec.env.iter_mut().find(|entry| *entry == b"TERM=dumb") {
                *entry = format!("TERM={term}").into_bytes();
            }
            return self.room.start(COMMAND, spec, &[]);
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| broken("pipe")(error.into()));
        let ((in_read, in_write), (out_read, out_write), (err_read, err_write)) = (pipe()?, pipe()?, pipe()?);
        self.room.start(COMMAND, spec, &[in_read.as_fd(), out_write.as_fd(), err_write.as_fd()])?;
        self.input = Inflow::to_pipe(in_write);
        self.output = Outflow::new(out_read, rustix::stdio::stdout(), self.plan.capture);
        self.errors = Outflow::new(err_read, rustix::stdio::stderr(), self.plan.capture);
        Ok(())
    }

    /// All is said: the command ended, or its room did, and every byte of its output is passed on.
    fn done(&self) -> bool {
        !self.listening && self.output.is_closed() && self.errors.is_closed()
    }

    fn turn(&mut self) -> Result<(), RoomError> {
        let timeout = self.deadline.or(self.give_up).map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let (room, signal, orphaned, died, input, output, errors);
        {
            let alive = self.spawner.alive()?;
            let mut fds = vec![
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::from_borrowed_fd(alive, PollFlags::empty()),
            ];
            if !self.listening && !self.dead {
                fds.push(PollFd::from_borrowed_fd(self.room.death(), PollFlags::IN));
            }
            let watched = fds.len();
            let listening =
                self.listening.then(|| PollFd::from_borrowed_fd(self.room.events(), PollFlags::IN));
            let at = [listening, self.input.waits_for(), self.output.waits_for(), self.errors.waits_for()]
                .map(|fd| {
                    fd.map(|fd| {
                        fds.push(fd);
                        fds.len() - 1
                    })
                });
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(broken("poll")(error.into())),
            }
            let ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
            (signal, orphaned) = (ready(Some(0)), ready(Some(1)) && self.listening);
            died = watched > 2 && ready(Some(2));
            (room, input, output, errors) = (ready(at[0]), ready(at[1]), ready(at[2]), ready(at[3]));
        }
        self.dead |= died;
        for (flow, ready) in [(&mut self.output, output), (&mut self.errors, errors)] {
            if ready {
                flow.advance();
            }
            if self.dead {
                flow.close_if_empty();
            }
        }
        if input {
            self.input.advance();
        }
        if signal {
            self.forward_signals();
        }
        if room {
            self.hear_room()?;
        }
        if orphaned {
            // The room ends with its spawner by itself; this makes sure, whatever it was in the middle of.
            self.room.kill();
            return Err(RoomError::gone("the spawner was killed, and the room with it"));
        }
        if self.give_up.is_some_and(|time| Instant::now() >= time) {
            self.give_up = None;
            self.room.kill();
            self.output.give_up();
            self.errors.give_up();
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // The command first: its guest then says what it has used, and the room ends with all that is in it. That closes
            // every pipe, so what was written before is still passed on.
            self.deadline = None;
            self.ended.timed_out = self.ended.report.is_none();
            self.give_up = Some(Instant::now() + GRACE);
            if self.room.signal(COMMAND, SIGKILL).is_err() {
                self.room.kill();
            }
        }
        Ok(())
    }

    fn forward_signals(&mut self) {
        while let Some(signal) = next_signal(self.signals.as_fd()) {
            // A room that is gone is noticed where its events are read.
            let _ = match signal {
                SIGWINCH => self.room.resize(COMMAND, screen::size()),
                signal => self.room.signal(COMMAND, signal),
            };
        }
    }

    fn hear_room(&mut self) -> Result<(), RoomError> {
        match self.room.next_event() {
            Ok((FromGuest::Ready { enforced }, _)) => {
                self.warn_of_weak_limits(&enforced);
                self.ended.enforced = enforced;
            }
            Ok((FromGuest::Failed { error } | FromGuest::NotStarted { error, .. }, _)) => return Err(error),
            Ok((FromGuest::Started { .. }, fds)) => {
                if let Some(master) = fds.into_iter().next().filter(|_| self.wants_terminal) {
                    self.use_terminal(master)?;
                }
            }
            Ok((FromGuest::Exited { report, .. }, _)) => {
                self.ended.report = Some(report);
                self.stop_listening();
            }
            // What only durable rooms say.
            Ok((FromGuest::Finished { .. } | FromGuest::Answer { .. } | FromGuest::Spawned { .. }, _)) => {}
            Err(_) if self.ended.timed_out => self.stop_listening(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The command is over, and the room with it: its output is what was written by then.
    fn stop_listening(&mut self) {
        self.room.kill();
        self.listening = false;
        self.input = Inflow::closed();
        self.deadline = None;
    }

    fn use_terminal(&mut self, master: OwnedFd) -> Result<(), RoomError> {
        let reading = master.try_clone().map_err(broken("terminal"))?;
        self.raw_mode = RawMode::enter();
        self.input = Inflow::to_terminal(master);
        self.output = Outflow::new(reading, rustix::stdio::stdout(), self.plan.capture);
        // The window may have changed while the room was made.
        self.room.resize(COMMAND, screen::size())
    }

    /// A limit that the caller named and that is weaker here is said aloud.
    fn warn_of_weak_limits(&self, enforced: &Enforced) {
        if self.plan.capture {
            return;
        }
        for layer in self.plan.asked_limits.iter() {
            match enforced.get(layer) {
                Some(LayerState::Partial(how)) => {
                    output::complain(&format!("the {} limit holds only for {how}", layer.name()));
                }
                Some(LayerState::Missing(why)) => {
                    output::complain(&format!("there is no {} limit: {why}", layer.name()));
                }
                _ => {}
            }
        }
    }
}

fn broken(what: &'static str) -> impl Fn(std::io::Error) -> RoomError {
    move |error| RoomError::new(ErrorCode::RoomSetup, format!("{what} failed: {error}"), "")
}
