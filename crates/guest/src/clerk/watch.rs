//! Telling the host what happens to files, as it happens.
//!
//! The kernel watches directories one by one and names what happens in them. Which directories there are is kept as a
//! tree, so that a directory that is moved takes the paths of all below it along. What happens close together is told
//! together: the two halves of a rename find each other, and many writes to a file are one change.

mod tree;

#[cfg(test)]
mod tests;

use super::failure::{problem, wrong_kind};
use super::place::{Base, DIRECTORY, Last, is_directory, is_regular};
use super::walk::{self, Done, Entry, Next, Order, Visitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, fstat, openat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use tree::Tree;
use workroom_proto::{Channel, FromClerk};
use workroom_types::{Problem, RoomPath, WatchEvent, WatchKind};

/// The most directories that one watch follows.
const MOST_DIRECTORIES: usize = 65_536;

/// The most that is taken from the kernel before it is told.
const MOST_AT_ONCE: usize = 4096;

/// The most paths that are remembered as told.
const MOST_TOLD: usize = 65_536;

/// How long what happens close together may be apart.
const TOGETHER: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// Answers with `Watching`, then with what happens, until the host hangs up or asks for something else.
pub(crate) fn watch(base: &Base, path: &RoomPath, recursive: bool, channel: &Channel) -> Result<(), Problem> {
    let found = base.open(path, Last::Follow)?;
    let stat = fstat(&found).map_err(|error| problem(error, path, "watched"))?;
    let (top, at, only) = if is_directory(&stat) {
        (base.open_directory(path)?, path.clone(), None)
    } else if is_regular(&stat) {
        // A file is watched in its directory: programs that save a file put another one in its place.
        let spot = base.spot(path, Last::Follow)?;
        let above = path.bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let dir = openat(&spot.dir, c".", DIRECTORY, Mode::empty())
            .map_err(|error| problem(error, path, "watched"))?;
        (dir, RoomPath { root: path.root, bytes: path.bytes[..above].to_vec() }, Some(spot.name))
    } else {
        return Err(wrong_kind(path, "neither a file nor a directory", "watch a file or a directory"));
    };
    drop(found);
    let inotify =
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| match error {
            Errno::MFILE => {
                Problem::limit("watches", "too many watches are open in the room", "end one of them")
            }
            error => problem(error, path, "watched"),
        })?;
    let mut watcher = Watcher {
        inotify,
        base,
        at,
        named: path.clone(),
        recursive: recursive && only.is_none(),
        only,
        tree: Tree::default(),
        channel,
        seq: 0,
        told: HashSet::new(),
        overflowed: false,
    };
    watcher.watch_top(top)?;
    // From here on the host has its answer; there is nobody to tell of a failure but by ending.
    let _ = channel.send(&FromClerk::Watching, &[]).map_err(|_| Ended).and_then(|()| watcher.run());
    Ok(())
}

/// The host went away, or the kernel does not go on.
struct Ended;

struct Watcher<'a> {
    inotify: OwnedFd,
    base: &'a Base,
    /// The directory that is watched, and what the host named: the directory or the one file in it. It is not kept open:
    /// the kernel tells of its end when nobody has it open any more.
    at: RoomPath,
    named: RoomPath,
    recursive: bool,
    /// The one name that matters.
    only: Option<CString>,
    tree: Tree,
    channel: &'a Channel,
    seq: u64,
    /// Paths whose change needs no more words until the next pause.
    told: HashSet<Vec<u8>>,
    /// Something was missed, and the host has to be told.
    overflowed: bool,
}

/// What the kernel said.
struct Happening {
    watch: i32,
    what: ReadFlags,
    cookie: u32,
    name: Option<CString>,
}

impl Watcher<'_> {
    fn watch_top(&mut self, top: OwnedFd) -> Result<(), Problem> {
        let watch = self.add(top.as_fd()).map_err(|error| match error {
            Errno::NOSPC => Problem::limit(
                "watches",
                "the machine's limit on watched directories is reached",
                "end other watches, or have fs.inotify.max_user_watches raised",
            ),
            error => problem(error, &self.named, "watched"),
        })?;
        self.tree.set_top(watch);
        if self.recursive {
            let at = self.at.clone();
            walk::walk(top, &at, Order::AsFound, &mut Follow::new(self, watch, b"", Telling::Nothing))?;
        }
        Ok(())
    }

    /// Watches a directory that is open: by way of its descriptor, because its name may be another's by now.
    fn add(&self, dir: BorrowedFd<'_>) -> Result<i32, Errno> {
        inotify::add_watch(&self.inotify, format!("/proc/self/fd/{}", dir.as_raw_fd()), EVENTS)
    }

    fn run(&mut self) -> Result<(), Ended> {
        loop {
            self.tell_overflow()?;
            let mut waiting =
                [PollFd::new(self.channel, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(Ended),
            }
            if !waiting[0].revents().is_empty() {
                return Ok(());
            }
            if !waiting[1].revents().is_empty() {
                let happenings = self.gather()?;
                self.told.clear();
                self.tell(happenings)?;
            }
        }
    }

    /// All that happens close together, as far as it fits.
    fn gather(&mut self) -> Result<Vec<Happening>, Ended> {
        let mut happenings = Vec::new();
        let mut host = [PollFd::new(self.channel, PollFlags::IN)];
        if poll(&mut host, Some(&TOGETHER)).is_ok_and(|ready| ready > 0) {
            return Err(Ended);
        }
        self.read(&mut happenings)?;
        // The second half of a rename comes right behind the first.
        if happenings.last().is_some_and(|last| last.what.contains(ReadFlags::MOVED_FROM)) {
            let mut more = [PollFd::new(&self.inotify, PollFlags::IN)];
            let _ = poll(&mut more, Some(&TOGETHER));
            self.read(&mut happenings)?;
        }
        Ok(happenings)
    }

    fn read(&self, happenings: &mut Vec<Happening>) -> Result<(), Ended> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while happenings.len() < MOST_AT_ONCE || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => happenings.push(Happening {
                    watch: event.wd(),
                    what: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(CStr::to_owned),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Ended),
            }
        }
        Ok(())
    }

    fn tell(&mut self, mut happenings: Vec<Happening>) -> Result<(), Ended> {
        for index in 0..happenings.len() {
            let (now, later) = happenings[index..].split_at_mut(1);
            let Happening { watch, what, cookie, name } = &mut now[0];
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.overflowed = true;
                self.tell_overflow()?;
                continue;
            }
            if what.contains(ReadFlags::IGNORED) {
                self.tree.forget(*watch);
                continue;
            }
            let Some(name) = name.take() else {
                self.itself(*watch, *what)?;
                continue;
            };
            let half = |other: &&mut Happening| {
                other.cookie == *cookie && other.what.contains(ReadFlags::MOVED_TO) && other.name.is_some()
            };
            let second =
                if what.contains(ReadFlags::MOVED_FROM) { later.iter_mut().find(half) } else { None };
            match second {
                // Taken away, so that it is not met again.
                Some(second) => {
                    let to = second.name.take().unwrap_or_default();
                    second.what = ReadFlags::empty();
                    self.renamed((*watch, name), (second.watch, to), what.contains(ReadFlags::ISDIR))?;
                }
                None => self.named(*watch, name, *what)?,
            }
        }
        Ok(())
    }

    /// Something happened to a watched directory itself. What its parent says of it is enough, but the top has none.
    fn itself(&mut self, watch: i32, what: ReadFlags) -> Result<(), Ended> {
        if !what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT)
            || !self.tree.is_top(watch)
        {
            return Ok(());
        }
        self.forget_below(watch);
        let named = self.named.clone();
        self.send(WatchKind::Deleted, named.shown(), None, self.only.is_none())
    }

    fn named(&mut self, watch: i32, name: CString, what: ReadFlags) -> Result<(), Ended> {
        let Some(path) = self.path(watch, &name) else { return Ok(()) };
        let directory = what.contains(ReadFlags::ISDIR);
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.appeared(watch, &name, path, directory)
        } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.vanished(watch, name, path, directory)
        } else if self.is_news(&path) {
            self.send(WatchKind::Modified, self.shown(&path), None, directory)
        } else {
            Ok(())
        }
    }

    fn appeared(&mut self, watch: i32, name: &CStr, path: Vec<u8>, directory: bool) -> Result<(), Ended> {
        if self.is_news(&path) {
            self.send(WatchKind::Created, self.shown(&path), None, directory)?;
        }
        if directory && self.recursive { self.follow_new(watch, name, &path) } else { Ok(()) }
    }

    fn vanished(&mut self, watch: i32, name: CString, path: Vec<u8>, directory: bool) -> Result<(), Ended> {
        if let Some(child) = self.tree.child(watch, name) {
            // Of one that was deleted the kernel has ended the watch already; one that was moved away is still watched.
            self.forget_below(child);
        }
        self.told.remove(&path);
        self.send(WatchKind::Deleted, self.shown(&path), None, directory)
    }

    fn forget_below(&mut self, watch: i32) {
        for below in self.tree.take(watch) {
            let _ = inotify::remove_watch(&self.inotify, below);
        }
    }

    fn renamed(&mut self, from: (i32, CString), to: (i32, CString), directory: bool) -> Result<(), Ended> {
        let (old, new) = (self.path(from.0, &from.1), self.path(to.0, &to.1));
        match (old, new) {
            (Some(old), Some(new)) => {
                if let Some(child) = self.tree.child(from.0, from.1) {
                    self.tree.put(child, to.0, to.1);
                }
                self.told.remove(&old);
                self.told.remove(&new);
                self.send(WatchKind::Renamed, self.shown(&new), Some(self.shown(&old)), directory)
            }
            (Some(old), None) => self.vanished(from.0, from.1, old, directory),
            (None, Some(new)) => self.appeared(to.0, &to.1, new, directory),
            (None, None) => Ok(()),
        }
    }

    /// Watches a directory that has just appeared, and tells what was in it before it was watched.
    fn follow_new(&mut self, parent: i32, name: &CStr, path: &[u8]) -> Result<(), Ended> {
        let Some(dir) = self.open_below(path) else { return Ok(()) };
        let Some(watch) = self.adopt(dir.as_fd(), parent, name) else { return Ok(()) };
        let at = self.at.clone();
        let mut follow = Follow::new(self, watch, path, Telling::Created);
        // It may be gone again, which will be told.
        let _ = walk::walk(dir, &at, Order::AsFound, &mut follow);
        if follow.ended { Err(Ended) } else { Ok(()) }
    }

    /// A directory below the watched one, unless it is a link by now.
    fn open_below(&self, path: &[u8]) -> Option<OwnedFd> {
        let found = self.base.open(&self.at.join(path), Last::Stay).ok()?;
        openat(found, c".", DIRECTORY, Mode::empty()).ok()
    }

    /// Watches one more directory; one that cannot be is an overflow, because things in it will be missed.
    fn adopt(&mut self, dir: BorrowedFd<'_>, parent: i32, name: &CStr) -> Option<i32> {
        if self.tree.len() >= MOST_DIRECTORIES {
            self.overflowed = true;
            return None;
        }
        match self.add(dir) {
            Ok(watch) => {
                self.tree.put(watch, parent, name.to_owned());
                Some(watch)
            }
            Err(Errno::NOENT) => None,
            Err(_) => {
                self.overflowed = true;
                None
            }
        }
    }

    /// The path of a name in a watched directory, if it matters.
    fn path(&self, watch: i32, name: &CStr) -> Option<Vec<u8>> {
        if self.only.as_ref().is_some_and(|only| only.as_c_str() != name) {
            return None;
        }
        let mut path = self.tree.path(watch)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        Some(path)
    }

    fn is_news(&mut self, path: &[u8]) -> bool {
        // A directory of very many files appeared: rather twice told than kept for ever.
        if self.told.len() >= MOST_TOLD {
            self.told.clear();
        }
        self.told.insert(path.to_vec())
    }

    fn shown(&self, path: &[u8]) -> String {
        self.at.join(path).shown()
    }

    fn tell_overflow(&mut self) -> Result<(), Ended> {
        if std::mem::take(&mut self.overflowed) {
            self.send(WatchKind::Overflow, String::new(), None, false)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        kind: WatchKind,
        path: String,
        from: Option<String>,
        directory: bool,
    ) -> Result<(), Ended> {
        self.seq += 1;
        let event = WatchEvent { seq: self.seq, kind, path, from, directory };
        self.channel.send(&FromClerk::Event(event), &[]).map_err(|_| Ended)
    }
}

/// Whether what a walk meets is news.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Nothing,
    Created,
}

/// Watches every directory of a tree.
struct Follow<'a, 'b> {
    watcher: &'a mut Watcher<'b>,
    /// Of the directories on the way down; one that could not be watched has none.
    watches: Vec<Option<i32>>,
    /// Where the walk begins.
    path: Vec<u8>,
    telling: Telling,
    ended: bool,
}

impl<'a, 'b> Follow<'a, 'b> {
    fn new(watcher: &'a mut Watcher<'b>, top: i32, path: &[u8], telling: Telling) -> Follow<'a, 'b> {
        Follow { watcher, watches: vec![Some(top)], path: path.to_vec(), telling, ended: false }
    }
}

impl Visitor for Follow<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        let directory = is_directory(entry.stat);
        if self.telling == Telling::Created {
            let path = [self.path.as_slice(), entry.path].join(&b'/');
            if self.watcher.is_news(&path) {
                let shown = self.watcher.shown(&path);
                self.ended = self.watcher.send(WatchKind::Created, shown, None, directory).is_err();
            }
        } else if self.watcher.overflowed {
            // There is nothing to be had from looking at the rest.
            return Ok(Next::Stop);
        }
        Ok(if self.ended { Next::Stop } else { Next::Into })
    }

    fn enter(&mut self, entry: &Entry<'_>, opened: BorrowedFd<'_>) -> Result<(), Problem> {
        let parent = self.watches.last().copied().flatten();
        self.watches.push(parent.and_then(|parent| self.watcher.adopt(opened, parent, entry.name)));
        Ok(())
    }

    fn leave(&mut self, _entry: &Entry<'_>) -> Result<Done, Problem> {
        self.watches.pop();
        Ok(Done::Yes)
    }

    fn shut(&mut self, _entry: &Entry<'_>, _error: Errno) -> Result<(), Problem> {
        self.watcher.overflowed = true;
        Ok(())
    }
}
