//! One entry of a session's process table: what is known of a process, where its output is, and how it is written to.
//!
//! The session's owner makes entries and tells them of starts and ends. Callers hold them too, and read and write
//! without asking the owner: output is in a file that the guest appends to, input is a descriptor of the guest's.

use super::input::InputEnd;
use super::notes::{Moment, Note, Notes};
use super::sizes::Sizes;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{Winsize, tcgetwinsize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::{Notify, watch};
use workroom_proto::{SpoolReader, Stream};
use workroom_sys::readiness::watch_reading;
use workroom_types::{
    Exit, Process, ProcessExit, ProcessState, RunReport, StreamCount, TerminalSize, Timestamp,
};
use workroom_vault::SharedRedactor;

pub(crate) struct Entry {
    info: Mutex<Process>,
    ring: PathBuf,
    line: Mutex<Line>,
    /// Its number among the commands of its room, also when it has ended.
    ran_as: OnceLock<u32>,
    /// Of its terminal, if it has one.
    sizes: Mutex<Sizes>,
    /// Terminals of people through which it is written to.
    viewers: AtomicUsize,
    /// Changes with every write that was noticed, and with the end.
    changes: watch::Sender<u64>,
    /// For its recorder.
    notes: Notes,
    /// What must not be seen of what is written to it, and said of it.
    redactor: OnceLock<SharedRedactor>,
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
        let sizes = Sizes::new(info.pty);
        Entry::with_sizes(info, ring, sizes)
    }

    /// One whose terminal has had these sizes.
    pub(crate) fn with_sizes(info: Process, ring: PathBuf, sizes: Sizes) -> Arc<Entry> {
        let (changes, _) = watch::channel(0);
        let (info, sizes) = (Mutex::new(info), Mutex::new(sizes));
        Arc::new(Entry {
            info,
            ring,
            line: Mutex::default(),
            ran_as: OnceLock::new(),
            sizes,
            viewers: AtomicUsize::new(0),
            changes,
            notes: Notes::default(),
            redactor: OnceLock::new(),
            ended: Notify::new(),
        })
    }

    /// What must not be seen; said once, before it is recorded.
    pub(crate) fn hide(&self, redactor: SharedRedactor) {
        let _ = self.redactor.set(redactor);
    }

    pub(crate) fn redactor(&self) -> Option<&SharedRedactor> {
        self.redactor.get()
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

    /// Bytes that its output takes on the disk, once it has ended.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let info = self.lock();
        let kept = |count: StreamCount| count.written - count.dropped;
        kept(info.stdout) + kept(info.stderr)
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.lock().ended
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
        let resized = {
            let mut info = self.lock();
            let before = info.pty;
            change(&mut info);
            info.pty.filter(|now| before.is_some_and(|before| before != *now))
        };
        if let Some(size) = resized {
            self.note(self.moment(), Note::Resized(size));
        }
    }

    /// What happens to it beside its output, where somebody takes that.
    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Now.
    pub(crate) fn moment(&self) -> Moment {
        let reader = self.notes.are_wanted().then(|| self.reader().ok()).flatten();
        let written = |stream| reader.as_ref().and_then(|reader| reader.written(stream).ok()).unwrap_or(0);
        let written = Stream::BOTH.map(written);
        Moment { at: std::time::Instant::now(), written }
    }

    /// Tells its recorder, if it has one: whether it has.
    pub(crate) fn note(&self, moment: Moment, note: Note) -> bool {
        let is_kept = self.notes.push(moment, note);
        if is_kept {
            self.wake();
        }
        is_kept
    }

    /// Has everybody look again who waits for a change.
    pub(crate) fn wake(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.lock().record
    }

    /// As it is known here, without a look at its output.
    pub(crate) fn known(&self) -> Process {
        self.lock().clone()
    }

    pub(crate) fn sizes(&self) -> MutexGuard<'_, Sizes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a person's own terminal is attached, which answers what programs ask of a terminal.
    pub(crate) fn is_viewed(&self) -> bool {
        self.viewers.load(Ordering::SeqCst) > 0
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
        let _ = self.ran_as.set(command);
        let typed_for = self.lock().record_input.then(|| Arc::downgrade(self));
        let is_watched = self.changes.receiver_count() > 0;
        {
            let mut line = self.line();
            line.command = Some(command);
            line.counter = Some(ends.counter);
            line.input = ends.input.and_then(|fd| InputEnd::new(fd, typed_for).ok()).map(Arc::new);
            line.channel = ends.channel.map(Arc::new);
        }
        self.look_at_size();
        if is_watched {
            self.follow();
        }
    }

    /// Its terminal may have another size than was written down before a server ended.
    fn look_at_size(&self) {
        let Some(input) = self.input().filter(|_| self.lock().pty.is_some()) else { return };
        if let Ok(Winsize { ws_row: rows, ws_col: cols, .. }) = tcgetwinsize(input.fd())
            && rows > 0
            && cols > 0
        {
            self.update(|info| info.pty = Some(TerminalSize { rows, cols }));
        }
    }

    /// Its number among the commands of its room, while it runs.
    pub(crate) fn command(&self) -> Option<u32> {
        self.line().command
    }

    /// Its number, by which what it has left running is found too; `None` where it was never seen to run.
    pub(crate) fn ran_as(&self) -> Option<u32> {
        self.ran_as.get().copied()
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
                        // An end that was told of between the two is known by this.
                        if entry.command().is_none() {
                            return;
                        }
                        // Ours is the last: whoever watches next begins again.
                        if entry.changes.receiver_count() == 1 {
                            drop(ended);
                            return entry.rest(counter.into_inner());
                        }
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

    /// Puts the counter back for whoever watches next. One who began to between the two looks is seen by the second.
    fn rest(self: &Arc<Entry>, counter: OwnedFd) {
        {
            let mut line = self.line();
            if line.command.is_some() {
                line.counter = Some(counter);
            }
        }
        if self.changes.receiver_count() > 0 {
            self.follow();
        }
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

/// Somebody who writes to a process by way of a terminal, until dropped.
pub struct Viewer(Arc<Entry>);

impl Viewer {
    pub(crate) fn of(entry: &Arc<Entry>) -> Viewer {
        entry.viewers.fetch_add(1, Ordering::SeqCst);
        Viewer(entry.clone())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn count(reader: &SpoolReader, stream: Stream) -> StreamCount {
    let written = reader.written(stream).unwrap_or(0);
    StreamCount { written, dropped: reader.first_kept(stream).unwrap_or(0) }
}
