//! The host's side: a handle on a spawner, and on each room it built.

use crate::spawner::ARGV0;
use crate::step::During;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workroom_proto::{Channel, FromGuest, FromSpawner, LayerTask, Received, ToGuest, ToSpawner};
use workroom_sys::clone::{CloneFlags, clone_process};
use workroom_types::{CommandSpec, Enforced, ErrorCode, ExitReport, RoomError, RoomSpec, TerminalSize};

/// A running spawner. Ends, with every room, when this is dropped.
pub struct Spawner {
    channel: Option<Channel>,
    pid: Pid,
    /// How it ended, once it was waited for.
    status: Cell<Option<WaitStatus>>,
    /// Rooms that were asked for and whose end was not heard of yet.
    rooms: RefCell<Vec<String>>,
    /// Rooms whose end was heard of while waiting for something else.
    gone: RefCell<Vec<String>>,
    /// Whether rooms of a spawner that is gone are this process's own children.
    inherits: Cell<bool>,
}

impl Spawner {
    /// Starts a spawner from this very program, whose `main` calls [`crate::run_if_spawner`].
    pub fn start() -> Result<Spawner, RoomError> {
        Self::start_from(Path::new("/proc/self/exe"))
    }

    /// Starts a spawner from another program that calls [`crate::run_if_spawner`].
    pub fn start_from(program: &Path) -> Result<Spawner, RoomError> {
        let (ours, theirs) = Channel::pair().during("socket")?;
        let process = Command::new(program)
            .arg0(ARGV0)
            .env_clear()
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null())
            .spawn()
            .during("start the spawner")?;
        Ok(Self::new(ours, process.id() as i32))
    }

    /// Makes a spawner of a clone of this process, which saves executing a program. Only first thing in `main`,
    /// while there is one thread and nothing of the caller's has been read into memory.
    pub fn clone_first_thing() -> Result<Spawner, RoomError> {
        let (ours, theirs) = Channel::pair().during("socket")?;
        let mut theirs = Some(theirs);
        let cloned =
            clone_process(CloneFlags::NONE, None, || theirs.take().map_or(1, crate::spawner::run_in_clone))
                .during("start the spawner")?;
        Ok(Self::new(ours, cloned.pid))
    }

    fn new(channel: Channel, pid: i32) -> Spawner {
        Spawner {
            channel: Some(channel),
            // A child's pid is never zero.
            pid: Pid::from_raw(pid).unwrap_or(Pid::INIT),
            status: Cell::new(None),
            rooms: RefCell::default(),
            gone: RefCell::default(),
            inherits: Cell::new(false),
        }
    }

    /// For a caller that waits for no other children: rooms of a spawner that is killed become this process's own, and
    /// are waited for, also those that it was never told of.
    pub fn inherit_rooms(&self) -> Result<(), RoomError> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).during("inherit rooms")?;
        self.inherits.set(true);
        Ok(())
    }

    /// Gives the line to the spawner away, with its pid. Whoever has it waits for the spawner's end.
    pub fn into_parts(mut self) -> Option<(Channel, u32)> {
        let pid = self.pid();
        let channel = self.channel.take();
        // Its end is no longer ours to wait for.
        std::mem::forget(self);
        channel.map(|channel| (channel, pid))
    }

    /// Asks for a room. It may still be in the making when this returns: commands can be sent at once, and
    /// [`Room::ready`] waits.
    pub fn create(&self, spec: &RoomSpec) -> Result<Room, RoomError> {
        let (ours, theirs) = Channel::pair().during("socket")?;
        self.rooms.borrow_mut().push(spec.id.clone());
        match self.request(spec, theirs) {
            Ok(pidfd) => Ok(Room { id: spec.id.clone(), control: ours, pidfd }),
            Err(error) => {
                // First: a room that was made all the same ends with this, before it is swept up after.
                end_unseen(ours);
                Err(error.unwrap_or_else(|| self.ended()))
            }
        }
    }

    /// Has a worker look into layers; what comes of it is said on the channel. `beside`: what the task says.
    pub fn work(&self, task: LayerTask, beside: &[BorrowedFd<'_>]) -> Result<Channel, RoomError> {
        let (ours, theirs) = Channel::pair().during("socket")?;
        let mut fds = vec![theirs.as_fd()];
        fds.extend_from_slice(beside);
        self.channel()?.send(&ToSpawner::Work(Box::new(task)), &fds).map_err(|_| self.ended())?;
        Ok(ours)
    }

    /// Asks, and waits for the answer; no error means that the spawner is gone.
    fn request(&self, spec: &RoomSpec, theirs: Channel) -> Result<OwnedFd, Option<RoomError>> {
        let create = ToSpawner::Create(Box::new(spec.clone()));
        self.channel()?.send(&create, &[theirs.as_fd()]).map_err(|_| None)?;
        drop(theirs);
        loop {
            match self.channel()?.receive() {
                Ok(Received::Message(FromSpawner::Cloned { room, .. }, mut fds))
                    if room == spec.id && fds.len() == 1 =>
                {
                    return Ok(fds.remove(0));
                }
                Ok(Received::Message(FromSpawner::Refused { room, error }, _)) if room == spec.id => {
                    return Err(Some(error));
                }
                Ok(Received::Message(FromSpawner::Gone { room }, _)) => self.gone.borrow_mut().push(room),
                Ok(Received::Message(..)) => {}
                Ok(Received::Closed) | Err(_) => return Err(None),
            }
        }
    }

    /// A descriptor that hangs up when the spawner is gone.
    pub fn alive(&self) -> Result<BorrowedFd<'_>, RoomError> {
        self.channel().map(AsFd::as_fd)
    }

    /// Waits until the room's last process is gone and nothing of it is left on the host.
    pub fn wait_gone(&self, room: &str) -> Result<(), RoomError> {
        loop {
            let heard = self.gone.borrow().iter().position(|gone| gone == room);
            if let Some(at) = heard {
                self.gone.borrow_mut().swap_remove(at);
                self.rooms.borrow_mut().retain(|known| known != room);
                return Ok(());
            }
            if let (FromSpawner::Gone { room }, _) = self.receive()? {
                self.gone.borrow_mut().push(room);
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Waits for the spawner's end; says whether it was a good one.
    fn wait_ended(&self) -> bool {
        while self.status.get().is_none() {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => self.status.set(Some(status)),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        self.status.get().is_some_and(|status| status.exit_status() == Some(0))
    }

    /// Waits for rooms that the spawner left behind. They end by its death, or by the end of their line. Not for ever:
    /// whoever executed this program in its own place may have had other children.
    fn wait_inherited(&self) {
        let deadline = Instant::now() + UNSEEN;
        while self.inherits.get() && Instant::now() < deadline {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return,
            }
        }
    }

    fn receive(&self) -> Result<(FromSpawner, Vec<OwnedFd>), RoomError> {
        match self.channel()?.receive() {
            Ok(Received::Message(message, fds)) => Ok((message, fds)),
            Ok(Received::Closed) | Err(_) => Err(self.ended()),
        }
    }

    fn channel(&self) -> Result<&Channel, RoomError> {
        self.channel.as_ref().ok_or_else(|| RoomError::gone("the spawner was told to end"))
    }

    /// The spawner is gone before its time: its rooms are too, and what it would have removed is removed here.
    fn ended(&self) -> RoomError {
        self.wait_ended();
        self.wait_inherited();
        let how = match self.status.get() {
            Some(status) if status.signaled() => {
                format!("by signal {}", status.terminating_signal().unwrap_or(0))
            }
            Some(status) => format!("with status {}", status.exit_status().unwrap_or(0)),
            None => "unseen".to_owned(),
        };
        crate::cgroup::remove_after(&self.rooms.borrow());
        RoomError::gone(format!("the spawner ended ({how}), and its rooms with it"))
    }
}

impl Spawner {
    /// Tells the spawner to end and waits until it has, and with it every room and all that they had.
    pub fn finish(mut self) -> Result<(), RoomError> {
        drop(self.channel.take());
        if self.wait_ended() { Ok(()) } else { Err(self.ended()) }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        drop(self.channel.take());
        self.wait_ended();
    }
}

/// Longer than a room that was never heard of takes to end.
const UNSEEN: Duration = Duration::from_secs(2);

/// Ends a room that nobody told us of, if there is one, and waits until it has let go of the other end of its line. A
/// room makes groups on the host as long as it is being built.
fn end_unseen(line: Channel) {
    let _ = rustix::net::shutdown(&line, rustix::net::Shutdown::Write);
    let patience = Timespec { tv_sec: UNSEEN.as_secs() as i64, tv_nsec: 0 };
    let mut fds = [PollFd::new(&line, PollFlags::empty())];
    let _ = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&patience)));
}

/// A room, from the outside. Dropping it ends the room.
pub struct Room {
    id: String,
    control: Channel,
    pidfd: OwnedFd,
}

impl Room {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A descriptor that becomes readable when the room has something to say.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// A descriptor that becomes readable when the room's last process is gone.
    pub fn death(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Starts a command. Without a terminal it gets the three descriptors as its stdio.
    pub fn start(&self, command: u32, spec: CommandSpec, stdio: &[BorrowedFd<'_>]) -> Result<(), RoomError> {
        self.send(&ToGuest::Start { command, spec }, stdio)
    }

    pub fn signal(&self, command: u32, signal: i32) -> Result<(), RoomError> {
        self.send(&ToGuest::Signal { command, signal }, &[])
    }

    pub fn resize(&self, command: u32, size: TerminalSize) -> Result<(), RoomError> {
        self.send(&ToGuest::Resize { command, size }, &[])
    }

    /// The next thing that the room says.
    pub fn next_event(&self) -> Result<(FromGuest, Vec<OwnedFd>), RoomError> {
        match self.control.receive() {
            Ok(Received::Message(message, fds)) => Ok((message, fds)),
            Ok(Received::Closed) => Err(RoomError::gone("the room ended")),
            Err(error) => {
                Err(RoomError::gone(format!("the room said something that cannot be read: {error}")))
            }
        }
    }

    /// Waits until the room stands, and says what is in force in it.
    pub fn ready(&self) -> Result<Enforced, RoomError> {
        match self.next_event()? {
            (FromGuest::Ready { enforced }, _) => Ok(enforced),
            (FromGuest::Failed { error } | FromGuest::NotStarted { error, .. }, _) => Err(error),
            (other, _) => Err(RoomError::new(
                ErrorCode::RoomSetup,
                format!("the room said {other:?} before it was ready"),
                "",
            )),
        }
    }

    /// Runs a command to its end in a room that is ready and has nothing else under way.
    pub fn exec(&self, spec: CommandSpec, stdio: &[BorrowedFd<'_>]) -> Result<ExitReport, RoomError> {
        self.start(0, spec, stdio)?;
        loop {
            match self.next_event()? {
                (FromGuest::Exited { report, .. }, _) => return Ok(report),
                (FromGuest::NotStarted { error, .. } | FromGuest::Failed { error }, _) => return Err(error),
                _ => {}
            }
        }
    }

    /// Ends every process of the room at once, whatever it is doing.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for the room's PID 1 to end; says whether it did in time.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(&self, message: &ToGuest, fds: &[BorrowedFd<'_>]) -> Result<(), RoomError> {
        self.control.send(message, fds).map_err(|error| match self.control.try_receive() {
            // A room that could not be built said so before it closed its end.
            Ok(Some(Received::Message(FromGuest::Failed { error }, _))) => error,
            _ => RoomError::gone(format!("the room ended ({error})")),
        })
    }
}
