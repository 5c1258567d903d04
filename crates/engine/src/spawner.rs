//! The engine's line to the spawner: many requests under way, answered in any order; a dead spawner is replaced.

use rustix::process::{Pid, WaitOptions};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use workroom_proto::{FromSpawner, Received, ToSpawner, try_receive_on, try_send_on};
use workroom_room::Spawner;
use workroom_sys::readiness::watch_socket;
use workroom_types::{Problem, ProblemCode, RoomError, RoomSpec};

/// The spawner, whichever process that is at the moment.
pub(crate) struct Spawners {
    current: tokio::sync::Mutex<Option<Arc<Line>>>,
    next_job: AtomicU64,
}

type Waiting<K, V> = Mutex<HashMap<K, oneshot::Sender<V>>>;

struct Line {
    channel: AsyncFd<OwnedFd>,
    rooms: Waiting<String, Result<OwnedFd, RoomError>>,
    removals: Waiting<u64, Option<String>>,
    dead: AtomicBool,
}

impl Spawners {
    pub(crate) fn new(first: Spawner) -> io::Result<Spawners> {
        Ok(Spawners {
            current: tokio::sync::Mutex::new(Some(Line::open(first)?)),
            next_job: AtomicU64::new(1),
        })
    }

    async fn line(&self) -> Result<Arc<Line>, Problem> {
        let mut current = self.current.lock().await;
        if let Some(line) = current.as_ref().filter(|line| !line.dead.load(Ordering::Acquire)) {
            return Ok(line.clone());
        }
        tracing::warn!("the spawner is gone; starting another");
        let started = tokio::task::spawn_blocking(Spawner::start).await;
        let spawner = started.map_err(|error| broken(&error.to_string()))??;
        let line = Line::open(spawner).map_err(|error| broken(&error.to_string()))?;
        *current = Some(line.clone());
        Ok(line)
    }

    /// Asks for a room; answers its process. `fds`: the guest's end of the control socket and, for a durable
    /// room, the socket to listen on.
    pub(crate) async fn create(&self, spec: RoomSpec, fds: &[OwnedFd]) -> Result<OwnedFd, Problem> {
        let id = spec.id.clone();
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let register = |line: &Line, answer| drop(lock(&line.rooms).insert(id.clone(), answer));
        match self.ask(&ToSpawner::Create(Box::new(spec)), &fds, register).await? {
            Some(answer) => Ok(answer?),
            None => Err(broken("it ended before it answered")),
        }
    }

    /// Says something to the spawner and waits for the answer that was registered for it; `None` if it ended first.
    /// One that was gone before it could hear is replaced.
    async fn ask<T>(
        &self,
        message: &ToSpawner,
        fds: &[BorrowedFd<'_>],
        register: impl Fn(&Line, oneshot::Sender<T>),
    ) -> Result<Option<T>, Problem> {
        let mut tries = 0;
        loop {
            let line = self.line().await?;
            let (answer, answered) = oneshot::channel();
            register(&line, answer);
            match line.send(message, fds).await {
                Ok(()) => return Ok(answered.await.ok()),
                Err(_) if tries == 0 => line.dead.store(true, Ordering::Release),
                Err(error) => return Err(broken(&error.to_string())),
            }
            tries += 1;
        }
    }

    /// Deletes a directory that rooms have written to.
    pub(crate) async fn remove(&self, path: PathBuf) -> Result<(), Problem> {
        let job = self.next_job.fetch_add(1, Ordering::Relaxed);
        let register = |line: &Line, answer| drop(lock(&line.removals).insert(job, answer));
        match self.ask(&ToSpawner::Remove { job, path: path.clone() }, &[], register).await? {
            Some(None) => Ok(()),
            Some(Some(why)) => Err(Problem::new(
                ProblemCode::StorageUnavailable,
                format!("{} cannot be deleted: {why}", path.display()),
                "",
            )),
            None => Err(broken("it ended before it answered")),
        }
    }

    /// Says something that is answered elsewhere, if at all.
    pub(crate) async fn tell(&self, message: &ToSpawner, fds: &[BorrowedFd<'_>]) -> Result<(), Problem> {
        let line = self.line().await?;
        if line.send(message, fds).await.is_ok() {
            return Ok(());
        }
        line.dead.store(true, Ordering::Release);
        let line = self.line().await?;
        line.send(message, fds).await.map_err(|error| broken(&error.to_string()))
    }

    /// Has what dead rooms left among the cgroups removed.
    pub(crate) async fn sweep(&self) {
        if let Ok(line) = self.line().await {
            let _ = line.send(&ToSpawner::Sweep, &[]).await;
        }
    }
}

fn broken(why: &str) -> Problem {
    Problem::new(ProblemCode::RoomSetup, format!("the spawner failed: {why}"), "try again")
}

impl Line {
    fn open(spawner: Spawner) -> io::Result<Arc<Line>> {
        let (channel, pid) = spawner.into_parts().ok_or(io::ErrorKind::NotConnected)?;
        let line = Arc::new(Line {
            channel: watch_socket(channel.into_fd())?,
            rooms: Mutex::default(),
            removals: Mutex::default(),
            dead: AtomicBool::new(false),
        });
        tokio::spawn(line.clone().listen(pid));
        Ok(line)
    }

    async fn listen(self: Arc<Line>, pid: u32) {
        loop {
            match self.receive().await {
                Ok(Received::Message(FromSpawner::Cloned { room, .. }, mut fds)) if fds.len() == 1 => {
                    answer(&self.rooms, &room, Ok(fds.remove(0)));
                }
                Ok(Received::Message(FromSpawner::Refused { room, error }, _)) => {
                    answer(&self.rooms, &room, Err(error));
                }
                Ok(Received::Message(FromSpawner::Removed { job, error }, _)) => {
                    answer(&self.removals, &job, error);
                }
                // The end of a durable room is seen by its own process descriptor.
                Ok(Received::Message(..)) => {}
                Ok(Received::Closed) | Err(_) => break,
            }
        }
        self.dead.store(true, Ordering::Release);
        // Whoever still waits learns it from the sender's end.
        lock(&self.rooms).clear();
        lock(&self.removals).clear();
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = tokio::task::spawn_blocking(move || {
                rustix::process::waitpid(Some(pid), WaitOptions::empty())
            })
            .await;
        }
    }

    async fn receive(&self) -> io::Result<Received<FromSpawner>> {
        loop {
            let mut ready = self.channel.readable().await?;
            match try_receive_on(self.channel.get_ref().as_fd())? {
                Some(received) => return Ok(received),
                None => ready.clear_ready(),
            }
        }
    }

    async fn send(&self, message: &ToSpawner, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        while !try_send_on(self.channel.get_ref().as_fd(), message, fds)? {
            self.channel.writable().await?.clear_ready();
        }
        Ok(())
    }
}

fn answer<K: std::hash::Hash + Eq, V>(waiting: &Waiting<K, V>, key: &K, value: V) {
    if let Some(waiter) = lock(waiting).remove(key) {
        let _ = waiter.send(value);
    }
}

/// A holder that panicked has left the map as it was between two operations on it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
