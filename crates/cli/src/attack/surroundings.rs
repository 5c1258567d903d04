//! What is around the rooms that are attacked: a neighbour with bait of its own, and a directory that outlives them.

use super::probing::{command, limits_for, pipe, room_spec};
use super::stop::{Signals, Stop, fault};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workroom_attacks::bait::NeighbourNames;
use workroom_attacks::{Case, Outcome};
use workroom_proto::FromGuest;
use workroom_room::{Privilege, Room, Spawner};
use workroom_types::{LayerSet, RoomError, RoomUser};

/// How long after its room a daemon that survived would write its marker.
const DAEMON_DELAY: Duration = Duration::from_millis(2500);

/// How long a neighbour may take to clear up after itself.
const GOODBYE: Duration = Duration::from_secs(2);

/// An id that owns nothing.
const NOBODY: u32 = 65534;

/// Somebody next door with bait, there until dropped: in a room, or without one where there are none.
pub(super) struct Neighbour {
    pub(super) names: NeighbourNames,
    home: Home,
    /// It ends with this.
    stdin: Option<OwnedFd>,
}

enum Home {
    Room(Room),
    Bare(Child),
}

impl Neighbour {
    /// In a room that lacks the same layers as those that are attacked: what one room may do to another is not stopped
    /// by the other's walls.
    pub(super) fn in_a_room(spawner: &Spawner, without: LayerSet) -> Result<Neighbour, RoomError> {
        let names = NeighbourNames::new().map_err(|error| fault("randomness", error))?;
        let mut spec = room_spec(&names.canary, RoomUser::Agent, limits_for(""), None)?;
        spec.without = without;
        let room = spawner.create(&spec)?;
        room.ready()?;
        let ((in_read, in_write), (out_read, out_write)) = (pipe()?, pipe()?);
        let command = command(&["attack-neighbour", &names.canary], RoomUser::Agent);
        room.start(1, command, &[in_read.as_fd(), out_write.as_fd(), out_write.as_fd()])?;
        drop((in_read, out_write));
        let neighbour = Neighbour { names, home: Home::Room(room), stdin: Some(in_write) };
        neighbour.hear_ready(out_read)
    }

    pub(super) fn bare(program: &Path) -> Result<Neighbour, RoomError> {
        let names = NeighbourNames::new().map_err(|error| fault("randomness", error))?;
        let ((in_read, in_write), (out_read, out_write)) = (pipe()?, pipe()?);
        let mut command = bare(program, &["attack-neighbour", &names.canary]);
        command.stdin(Stdio::from(in_read)).stdout(Stdio::from(out_write));
        let child = command.spawn().map_err(|error| fault("start the neighbour", error))?;
        drop(command);
        let neighbour = Neighbour { names, home: Home::Bare(child), stdin: Some(in_write) };
        neighbour.hear_ready(out_read)
    }

    fn hear_ready(self, out: OwnedFd) -> Result<Neighbour, RoomError> {
        let mut said = [0u8; 6];
        std::fs::File::from(out)
            .read_exact(&mut said)
            .map_err(|error| fault("wait for the neighbour", error))?;
        Ok(self)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.stdin.take());
        match &mut self.home {
            Home::Room(room) => {
                let deadline = Instant::now() + GOODBYE;
                while let Ok([true]) = readable(room, deadline) {
                    if !matches!(room.next_event(), Ok((event, _)) if !matches!(event, FromGuest::Exited { .. }))
                    {
                        break;
                    }
                }
            }
            Home::Bare(child) => {
                let _ = child.wait();
            }
        }
        self.names.sweep();
    }
}

/// Whether a room says something before the deadline; signals have been heard by then.
fn readable(room: &Room, deadline: Instant) -> io::Result<[bool; 1]> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(room.events(), PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)))?;
    Ok([ready > 0])
}

/// A command without a room, as a user who owns nothing where that can be had.
pub(super) fn bare(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    if Privilege::detect() == Privilege::Root {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    command
}

/// The host's number of a process that has `text` in its command line.
pub(super) fn find_process(text: &str) -> Option<i32> {
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        line.windows(text.len()).any(|window| window == text.as_bytes()).then_some(pid)
    })
}

/// A directory for bait, and for the case that is judged by what happens after its room is gone.
pub(super) struct LeftBehind {
    pub(super) dir: PathBuf,
    since: Instant,
}

impl LeftBehind {
    pub(super) const CASE: &'static str = "daemon-left-behind";

    pub(super) fn new() -> io::Result<LeftBehind> {
        let mut bytes = [0u8; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("workroom-attack-{}-{:08x}", std::process::id(), u32::from_ne_bytes(bytes));
        let dir = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o755).create(&dir)?;
        let left_behind = LeftBehind { dir, since: Instant::now() };
        std::fs::create_dir(left_behind.workspace())?;
        for dir in [left_behind.dir.clone(), left_behind.workspace()] {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(left_behind)
    }

    /// The workspace of the room whose daemon may survive.
    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.join("workspace")
    }

    /// A copy of this program that everybody may execute.
    pub(super) fn program(&self) -> io::Result<PathBuf> {
        let program = self.dir.join("probe");
        if !program.exists() {
            std::fs::copy("/proc/self/exe", &program)?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(program)
    }

    pub(super) fn settle(
        &self,
        chosen: &[&Case],
        outcomes: &mut [Outcome],
        signals: &Signals,
    ) -> Result<(), Stop> {
        let Some(at) = chosen.iter().position(|case| case.name == Self::CASE) else { return Ok(()) };
        // The daemon, had it survived, would write at a known time; nothing else can be waited for.
        signals.sleep(DAEMON_DELAY.saturating_sub(self.since.elapsed()))?;
        if self.workspace().join("marker").exists() {
            outcomes[at] = Outcome::Breached("a daemon outlived its room".into());
        }
        Ok(())
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
