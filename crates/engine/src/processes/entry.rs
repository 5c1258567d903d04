//! One entry of a session's process table: what is known of a process, where its output is, and how it is written to.
//!
//! The session's owner makes entries and tells them of starts and ends. Callers hold them too, and read and write
//! without asking the owner: output is in a file that the guest appends to, input is a descriptor of the guest's.

use super::input::InputEnd;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, watch};
use workroom_proto::{SpoolReader, Stream};
use workroom_sys::readiness::watch_reading;
use workroom_types::{Exit, Process, ProcessExit, ProcessState, RunReport, StreamCount, Timestamp};

pub(crate) struct Entry {
    info: Mutex<Process>,
    ring: PathBuf,
    line: Mutex<Line>,
    /// Changes with every write that was noticed, and with the end.
    changes: watch::Sender<u64>,
    /// Rings at the end, and for nothing else.
    ended: Notify,
}

/// The way to a process that runs.
#[derive(Default)]
struct Line {
    /// Its number among the commands of its room.
    command: Option<u32>,
    /// Grows with the output; taken by whoever watches it.
    counter: Option<OwnedFd>,
    input: Option<Arc<InputEnd>>,
    channel: Option<Arc<OwnedFd>>,
}

/// What a guest gives of a process that it has started.
pub(crate) struct Ends {
    pub(crate) counter: OwnedFd,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) channel: Option<OwnedFd>,
}

impl Ends {
    /// As they come beside a guest's message: what is there is known from what was asked for.
    pub(crate) fn from_fds(fds: Vec<OwnedFd>, has_input: bool, has_channel: bool) -> Option<Ends> {
        let mut fds = fds.into_iter();
        let counter = fds.next()?;
        let input = if has_input { Some(fds.next()?) } else { None };
        let channel = if has_channel { Some(fds.next()?) } else { None };
        Some(Ends { counter, input, channel })
    }
}

impl Entry {
    pub(crate) fn new(info: Process, ring: PathBuf) -> Arc<Entry> {
        let (changes, _) = watch::channel(0);
        Arc::new(Entry {
            info: Mutex::new(info),
            ring,
            line: Mutex::default(),
            changes,
            ended: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Process> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> String {
        self.lock().id.clone()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().state == ProcessState::Running
    }

    /// As callers see it now.
    pub(crate) fn info(&self) -> Process {
        let mut info = self.lock().clone();
        if info.state == ProcessState::Running
            && let Ok(reader) = self.reader()
        {
            (info.stdout, info.stderr) = (count(&reader, Stream::Stdout), count(&reader, Stream::Stderr));
        }
        info
    }

    /// Changes what is known of it: its size, its name.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Process)) {
        change(&mut self.lock());
    }

    pub(crate) fn ring(&self) -> &Path {
        &self.ring
    }

    pub(crate) fn reader(&self) -> io::Result<SpoolReader> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        SpoolReader::new(rustix::fs::open(&self.ring, flags, Mode::empty())?)
    }

    /// The process runs, and this is the way to it.
    pub(crate) fn started(self: &Arc<Entry>, command: u32, pid: i32, ends: Ends) {
        if pid != 0 {
            self.lock().pid = pid;
        }
        let is_watched = self.changes.receiver_count() > 0;
        {
            let mut line = self.line();
            line.command = Some(command);
            line.counter = Some(ends.counter);
            line.input = ends.input.and_then(|fd| InputEnd::new(fd).ok()).map(Arc::new);
            line.channel = ends.channel.map(Arc::new);
        }
        if is_watched {
            self.follow();
        }
    }

    pub(crate) fn command(&self) -> Option<u32> {
        self.line().command
    }

    pub(crate) fn input(&self) -> Option<Arc<InputEnd>> {
        self.line().input.clone()
    }

    /// The host's end of the socket that is the process's descriptor 3.
    pub(crate) fn channel(&self) -> Option<Arc<OwnedFd>> {
        self.line().channel.clone()
    }

    pub(crate) fn drop_input(&self) {
        self.line().input = None;
        self.lock().stdin = false;
    }

    /// Tells of every change from now on: look first, then wait.
    pub(crate) fn changes(self: &Arc<Entry>) -> watch::Receiver<u64> {
        let receiver = self.changes.subscribe();
        self.follow();
        receiver
    }

    /// Watches the counter for everybody, from the first who wants to know on.
    fn follow(self: &Arc<Entry>) {
        let Some(counter) = self.line().counter.take() else { return };
        let Ok(counter) = watch_reading(counter) else { return };
        let entry: Weak<Entry> = Arc::downgrade(self);
        let mut ended = self.changes.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    ready = counter.readable() => {
                        let Ok(mut ready) = ready else { return };
                        let _ = rustix::io::read(counter.get_ref(), &mut [0u8; 8]);
                        ready.clear_ready();
                        let Some(entry) = entry.upgrade() else { return };
                        entry.changes.send_modify(|count| *count += 1);
                        ended.mark_unchanged();
                    }
                    // The end, or the next line to it.
                    changed = ended.changed() => {
                        let runs = entry.upgrade().is_some_and(|entry| entry.command().is_some());
                        if changed.is_err() || !runs {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// It has ended. What it had written is in its file.
    pub(crate) fn finished(&self, report: &RunReport) {
        let (code, signal) = match report.exit {
            _ if report.timed_out => (124, None),
            Exit::Code(code) => (code, None),
            Exit::Signal(signal) => (128 + signal, Some(signal)),
        };
        let exit = ProcessExit {
            code,
            signal,
            timed_out: report.timed_out,
            oom_killed: report.oom_killed,
            duration_ms: report.duration_micros / 1000,
            cpu_ms: report.cpu_micros / 1000,
            peak_memory: report.peak_memory,
        };
        self.over(ProcessState::Exited, |info| info.exit = Some(exit));
    }

    /// Its room ended.
    pub(crate) fn lost(&self, why: &str) {
        self.over(ProcessState::Lost, |info| info.reason = Some(why.to_owned()));
    }

    fn over(&self, state: ProcessState, how: impl FnOnce(&mut Process)) {
        let counts =
            self.reader().map(|reader| (count(&reader, Stream::Stdout), count(&reader, Stream::Stderr)));
        {
            let mut info = self.lock();
            info.state = state;
            info.ended = Some(Timestamp::now());
            info.stdin = false;
            if let Ok(counts) = counts {
                (info.stdout, info.stderr) = counts;
            }
            how(&mut info);
        }
        *self.line() = Line::default();
        self.changes.send_modify(|count| *count += 1);
        self.ended.notify_waiters();
    }

    /// Waits for its end, and is not woken by what it writes.
    pub(crate) async fn end(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on: what ends after it was looked at rings.
            ended.as_mut().enable();
            if !self.is_running() {
                return;
            }
            ended.await;
        }
    }
}

fn count(reader: &SpoolReader, stream: Stream) -> StreamCount {
    let written = reader.written(stream).unwrap_or(0);
    StreamCount { written, dropped: reader.first_kept(stream).unwrap_or(0) }
}
