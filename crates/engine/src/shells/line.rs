//! The way to one shell: its place in line, its record, and the channel on which its driver says that it is done.

use super::driver::{Done, take_done};
use crate::processes::entry::Entry;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::unix::AsyncFd;
use workroom_sys::readiness::watch_socket;
use workroom_types::{Problem, RoomUser, ShellKind};

/// Commands that wait for one shell.
const MOST_WAITING: usize = 64;

/// No word of a driver's is longer: the longest path, and two numbers.
const MOST_UNREAD: usize = 64 << 10;

/// What a shell is made from, and made from again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShellRecord {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) shell: ShellKind,
    pub(crate) cwd: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// By name: values are nowhere in a record.
    #[serde(default)]
    pub(crate) secret_env: BTreeMap<String, String>,
    pub(crate) user: Option<RoomUser>,
    pub(crate) record: Option<bool>,
}

pub(crate) struct Line {
    pub(crate) record: ShellRecord,
    /// Whose command the shell is at. In the order in which they came.
    turn: tokio::sync::Mutex<()>,
    /// Commands that were taken and not answered.
    taken: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wire: Option<Arc<Wire>>,
    /// Where the last command left it.
    cwd: Option<String>,
}

/// The channel to the process that is the shell now.
pub(crate) struct Wire {
    pub(crate) entry: Arc<Entry>,
    socket: AsyncFd<OwnedFd>,
    unread: Mutex<Vec<u8>>,
}

/// A command's place in line; it is given up when this is dropped.
pub(crate) struct Turn<'l> {
    line: &'l Line,
    _turn: Option<tokio::sync::MutexGuard<'l, ()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.line.taken.fetch_sub(1, SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    pub(crate) fn new(record: ShellRecord) -> Arc<Line> {
        let (turn, taken, state) = Default::default();
        Arc::new(Line { record, turn, taken, state })
    }

    /// Waits until all commands that came before are done.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, Problem> {
        let before = self.taken.fetch_add(1, SeqCst);
        let mut turn = Turn { line: self, _turn: None };
        if before > MOST_WAITING {
            return Err(Problem::limit(
                "shell_queue",
                format!("{MOST_WAITING} commands wait for shell {}, which is the most", self.record.id),
                "wait for one to end, or make another shell",
            )
            .retry_after(1));
        }
        turn._turn = Some(self.turn.lock().await);
        Ok(turn)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.taken.load(SeqCst) > 0
    }

    pub(crate) fn cwd(&self) -> Option<String> {
        lock(&self.state).cwd.clone()
    }

    pub(crate) fn set_cwd(&self, cwd: Option<String>) {
        lock(&self.state).cwd = cwd;
    }

    /// The shell's process, if it runs as far as is known here.
    pub(crate) fn wire(&self) -> Option<Arc<Wire>> {
        lock(&self.state).wire.clone().filter(|wire| wire.entry.is_running())
    }

    pub(crate) fn connect(&self, entry: Arc<Entry>) -> io::Result<Arc<Wire>> {
        let channel = entry.channel().ok_or(io::ErrorKind::NotConnected)?;
        let socket = watch_socket(channel.try_clone()?)?;
        let wire = Arc::new(Wire { entry, socket, unread: Mutex::default() });
        lock(&self.state).wire = Some(wire.clone());
        Ok(wire)
    }
}

impl Wire {
    /// Gives the shell a command, whole. An error where nobody reads any more.
    pub(crate) async fn write(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.socket.writable().await?;
            match rustix::net::send(self.socket.get_ref(), data, rustix::net::SendFlags::NOSIGNAL) {
                Ok(written) => data = &data[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What the driver says next. May be dropped and called again without loss.
    pub(crate) async fn next(&self) -> io::Result<Done> {
        loop {
            if let Some(done) = take_done(&mut lock(&self.unread)) {
                return Ok(done);
            }
            let mut ready = self.socket.readable().await?;
            let mut buffer = [0; 4096];
            match rustix::io::read(self.socket.get_ref(), &mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let mut unread = lock(&self.unread);
                    unread.extend_from_slice(&buffer[..read]);
                    // No driver says this much: whoever wrote it has not written a word.
                    if unread.len() > MOST_UNREAD {
                        unread.clear();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
