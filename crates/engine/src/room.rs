//! A session's live room, from the engine's side: made or found again, talked to, ended.

use crate::bell::is_bell;
use crate::disk::{Beneath, DiskLimit};
use crate::shared::Shared;
use crate::state_dir::make_dir;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use workroom_proto::{Answer, Channel, FromGuest, Question, Received, ToGuest, try_receive_on, try_send_on};
use workroom_sys::readiness::watch_reading;
use workroom_types::{Enforced, Problem, ProblemCode, RoomError, RoomSpec};

/// How long a room may take to stand, to answer when it is found again, or to be gone when it is killed. All three
/// are milliseconds; this is for a machine that is in trouble.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file in a room's directory that names the layer which the room writes to.
const LAYER: &str = "layer";

/// How long to wait for space in a guest's queue before looking again.
const FULL_FOR: Duration = Duration::from_millis(1);

pub(crate) struct Room {
    dir: PathBuf,
    control: AsyncFd<OwnedFd>,
    process: AsyncFd<OwnedFd>,
    /// Held so that the end of the room does not wait for the disk.
    root: Option<OwnedFd>,
    bell: Option<OwnedFd>,
    /// Whether an earlier server's spawner made it: that one would have removed its groups, and is gone.
    adopted: bool,
}

/// What a room says.
pub(crate) enum RoomEvent {
    Message(FromGuest, Vec<OwnedFd>),
    /// Its guest has hung up, and lives.
    HungUp,
    Gone,
}

/// A room that was found again.
pub(crate) struct Adopted {
    pub(crate) room: Room,
    pub(crate) enforced: Enforced,
    pub(crate) frozen: bool,
    pub(crate) commands: Vec<u32>,
}

impl Room {
    /// Builds a room: its directory, its socket, its process, its word that it stands. What was made of a room
    /// that could not be finished is undone.
    pub(crate) async fn create(shared: &Arc<Shared>, spec: RoomSpec) -> Result<(Room, Enforced), Problem> {
        let dir = shared.state.rooms().join(&spec.id);
        let made = Self::create_in(shared, &dir, spec).await;
        if made.is_err() {
            remove_room_dir(&dir);
        }
        made
    }

    async fn create_in(
        shared: &Arc<Shared>,
        dir: &Path,
        spec: RoomSpec,
    ) -> Result<(Room, Enforced), Problem> {
        let (for_files, place, id) = (shared.clone(), dir.to_owned(), spec.id.clone());
        let limit = DiskLimit::of_room(&spec).map(|limit| (limit, Beneath::of(&spec.lowers)));
        let layer = spec.layer.as_deref().and_then(Path::file_name).unwrap_or_default().to_owned();
        let layer_dir = shared.state.layers().join(&layer);
        // Not here: making a directory may wait for the disk, and everybody else with it.
        let prepared =
            tokio::task::spawn_blocking(move || prepare(&for_files, &place, &id, (&layer, limit))).await;
        let listener = prepared.map_err(|error| setup(io::Error::other(error)))??;
        let (ours, theirs) = Channel::pair().map_err(setup)?;
        let process = shared.spawners.create(spec, &[theirs.into_fd(), listener]).await?;
        let mut room = Room::new(dir, ours, process).map_err(setup)?;
        match tokio::time::timeout(PATIENCE, room.ready()).await {
            Ok(Ok(enforced)) => {
                // One that was full had a little more while it was mounted.
                if let Some((limit, _)) = limit {
                    shared.disks.change(&layer_dir, Some(limit));
                }
                Ok((room, enforced))
            }
            Ok(Err(problem)) => {
                room.end().await;
                Err(problem)
            }
            Err(_) => {
                room.end().await;
                Err(setup(io::Error::other("it did not stand in time")))
            }
        }
    }

    fn new(dir: &Path, control: Channel, process: OwnedFd) -> io::Result<Room> {
        Ok(Room {
            dir: dir.to_owned(),
            control: watch_reading(control.into_fd())?,
            process: watch_reading(process)?,
            root: None,
            bell: None,
            adopted: false,
        })
    }

    /// What a guest gives with its word that it is there: its bell, if it has one, and its root directory.
    fn take_beside(&mut self, fds: &mut Vec<OwnedFd>) {
        self.root = fds.pop();
        self.bell = fds.pop().filter(is_bell);
    }

    pub(crate) fn take_bell(&mut self) -> Option<OwnedFd> {
        self.bell.take()
    }

    async fn ready(&mut self) -> Result<Enforced, Problem> {
        match self.next().await {
            RoomEvent::Message(FromGuest::Ready { enforced }, mut fds) => {
                self.take_beside(&mut fds);
                Ok(enforced)
            }
            RoomEvent::Message(FromGuest::Failed { error }, _) => Err(error.into()),
            _ => Err(gone("the room ended while it was being built")),
        }
    }

    /// Finds the room of a directory again. `None`: there is none any more.
    pub(crate) async fn adopt(dir: &Path) -> Option<Adopted> {
        let path = dir.to_owned();
        let called = tokio::task::spawn_blocking(move || workroom_room::call_guest(&path)).await;
        let Ok(Ok((control, process))) = called else {
            remove_groups(dir);
            return None;
        };
        let mut room = Room::new(dir, control, process).ok()?;
        room.adopted = true;
        match tokio::time::timeout(PATIENCE, room.hello()).await {
            Ok(Some((enforced, frozen, commands))) => Some(Adopted { room, enforced, frozen, commands }),
            // One that is there and does not answer is of no use to anybody.
            _ => {
                room.end().await;
                None
            }
        }
    }

    async fn hello(&mut self) -> Option<(Enforced, bool, Vec<u32>)> {
        match self.who_are_you().await? {
            Answer::Here { enforced, frozen, commands, .. } => Some((enforced, frozen, commands)),
            _ => None,
        }
    }

    /// Whether the room is paused without its processes noticing.
    pub(crate) async fn freezes_by_group(&mut self) -> bool {
        let answer = tokio::time::timeout(PATIENCE, self.who_are_you()).await;
        matches!(answer, Ok(Some(Answer::Here { freezes_by_group: true, .. })))
    }

    async fn who_are_you(&mut self) -> Option<Answer> {
        self.send(&ToGuest::Ask { request: 0, question: Question::Hello }, &[]).await.ok()?;
        loop {
            match self.next().await {
                RoomEvent::Message(FromGuest::Answer { answer, .. }, mut fds) => {
                    self.take_beside(&mut fds);
                    return Some(answer);
                }
                RoomEvent::Message(..) => {}
                RoomEvent::HungUp | RoomEvent::Gone => return None,
            }
        }
    }

    /// Calls the guest again after it has hung up.
    pub(crate) async fn call_again(&self) -> Option<Adopted> {
        Self::adopt(&self.dir).await
    }

    pub(crate) async fn send(&self, message: &ToGuest, fds: &[OwnedFd]) -> Result<(), Problem> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let since = tokio::time::Instant::now();
        while since.elapsed() < PATIENCE {
            match try_send_on(self.control.get_ref().as_fd(), message, &fds) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) => return Err(gone("the room ended")),
            }
            // The guest reads at once; a queue that is full is so for a moment. To be told when it is not would
            // mean to be told of every message that the guest takes.
            tokio::time::sleep(FULL_FOR).await;
        }
        Err(gone("the room does not read what it is told"))
    }

    /// Its guest's pidfd.
    pub(crate) fn process(&self) -> std::os::fd::BorrowedFd<'_> {
        self.process.get_ref().as_fd()
    }

    /// What it is called, among rooms and among the machine's cgroups.
    pub(crate) fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A descriptor that holds its file system.
    pub(crate) fn root(&self) -> Option<OwnedFd> {
        self.root.as_ref().and_then(|root| root.try_clone().ok())
    }

    /// Another descriptor of the line to the guest, for what is sent and not answered on it.
    pub(crate) fn second_line(&self) -> io::Result<OwnedFd> {
        self.control.get_ref().try_clone()
    }

    /// The next thing that happens. May be dropped and called again without loss.
    pub(crate) async fn next(&self) -> RoomEvent {
        loop {
            tokio::select! {
                biased;
                ready = self.control.readable() => {
                    let Ok(mut ready) = ready else { return RoomEvent::Gone };
                    match try_receive_on(self.control.get_ref().as_fd()) {
                        Ok(Some(Received::Message(message, fds))) => return RoomEvent::Message(message, fds),
                        Ok(None) => ready.clear_ready(),
                        Ok(Some(Received::Closed)) | Err(_) => {
                            return if self.is_gone().await { RoomEvent::Gone } else { RoomEvent::HungUp };
                        }
                    }
                }
                _ = self.process.readable() => return RoomEvent::Gone,
            }
        }
    }

    /// A guest that ends closes its line a moment before it is gone.
    async fn is_gone(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(500), self.process.readable()).await.is_ok()
    }

    /// Ends every process of the room and waits until they are gone; what the room had on the host goes too. What
    /// is to be written to the disk is written later, by whoever drops what this returns.
    pub(crate) async fn end(self) -> Option<OwnedFd> {
        let _ = rustix::process::pidfd_send_signal(self.process.get_ref(), Signal::KILL);
        if tokio::time::timeout(PATIENCE, self.process.readable()).await.is_err() {
            tracing::error!(room = %self.dir.display(), "a killed room is not gone yet");
        }
        if self.adopted {
            remove_groups(&self.dir);
        }
        remove_room_dir(&self.dir);
        self.root
    }
}

/// What a room needs on the disk: the layer that it writes to, a directory, and a socket in it for the guest to listen
/// on. The directory names the layer, unless that is the session's first.
fn prepare(
    shared: &Shared,
    dir: &Path,
    id: &str,
    (layer, limit): (&OsStr, Option<(DiskLimit, Beneath)>),
) -> Result<OwnedFd, Problem> {
    let no_place = |error: io::Error| {
        Problem::new(
            ProblemCode::StorageUnavailable,
            format!("the session's files have no place: {error}"),
            "free some space in the state directory",
        )
    };
    let name = layer.to_str().unwrap_or_default();
    match limit {
        Some((limit, beneath)) => shared.disks.make_layer(&shared.state, name, limit, beneath),
        None => {
            // One that a policy of before has limited, and that can do without.
            shared.disks.forget(&shared.layer_dir(name));
            shared.state.layer(name, shared.machine.is_root)
        }
    }
    .map_err(no_place)?;
    make_dir(dir).map_err(setup)?;
    if id.rsplit_once('-').is_none_or(|(session, _)| session != name) {
        std::fs::write(dir.join(LAYER), name).map_err(setup)?;
    }
    workroom_room::bind_guest_socket(dir).map_err(setup)
}

/// Removes what a room that is gone had among the machine's cgroups, without being waited for.
fn remove_groups(dir: &Path) {
    let Some(room) = dir.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { return };
    tokio::task::spawn_blocking(move || workroom_room::remove_groups(&[room]));
}

/// The layer that the room of a directory writes to; `None` for the session's first.
pub(crate) fn layer_of(dir: &Path) -> Option<String> {
    std::fs::read_to_string(dir.join(LAYER)).ok().filter(|name| !name.is_empty())
}

/// Removes the directory of a room that is gone.
pub(crate) fn remove_room_dir(dir: &Path) {
    let _ = std::fs::remove_file(dir.join("guest.sock"));
    let _ = std::fs::remove_file(dir.join(LAYER));
    let _ = std::fs::remove_dir(dir);
}

pub(crate) fn gone(detail: &str) -> Problem {
    RoomError::gone(detail).into()
}

fn setup(error: io::Error) -> Problem {
    Problem::new(ProblemCode::RoomSetup, format!("the room could not be made: {error}"), "")
}
