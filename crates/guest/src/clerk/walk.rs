//! Walks of a tree: whatever its depth, with few descriptors, and never through a link.
//!
//! Only the last directories of the way down are kept open. Those further up are opened again through `..` on the way
//! back, and must be what they were: a directory that somebody moved meanwhile ends the walk.

use super::closed;
use super::failure::{busy, problem};
use super::place::{DIRECTORY, is_directory, is_same};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, Stat, fstat, openat, seek, statat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::{Problem, RoomPath};

/// Directories of the way down that stay open.
const MOST_OPEN: usize = 64;

/// As many bytes of a directory as are read in one go.
const BATCH: usize = 32 << 10;

/// In which order entries are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the file system has them: nothing is kept of a directory but the names read in one go.
    AsFound,
    /// By whole path, byte by byte: `a`, `a.txt`, `a/b`. The names of each directory on the way down are kept.
    ByPath,
}

/// Something on the way, by its name in a directory that is open.
pub(crate) struct Entry<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// From the top of the walk.
    pub(crate) path: &'a [u8],
    /// Of a link: its own.
    pub(crate) stat: &'a Stat,
}

/// What to do after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Of a directory: look into it.
    Into,
    /// Of a directory: do not.
    Past,
    /// End the walk.
    Stop,
}

/// What to do with a directory that was walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    /// Look into it once more.
    Again,
}

/// What is done on the way. Things that are gone when they are looked at are passed over in silence.
pub(crate) trait Visitor {
    /// Something is there. With [`Order::ByPath`] a directory is entered when the path of what is in it has its turn.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem>;

    /// A directory was opened, and what is in it comes next.
    fn enter(&mut self, _entry: &Entry<'_>, _opened: BorrowedFd<'_>) -> Result<(), Problem> {
        Ok(())
    }

    /// All that was in a directory has been met; it is closed.
    fn leave(&mut self, _entry: &Entry<'_>) -> Result<Done, Problem> {
        Ok(Done::Yes)
    }

    /// A directory could not be opened. Without other instructions the walk goes on past it.
    fn shut(&mut self, _entry: &Entry<'_>, _error: Errno) -> Result<(), Problem> {
        Ok(())
    }
}

/// Walks what is in `top`, a directory that is open for reading and is called `at` in complaints. The top itself is no
/// entry.
pub(crate) fn walk(
    top: OwnedFd,
    at: &RoomPath,
    order: Order,
    visitor: &mut impl Visitor,
) -> Result<(), Problem> {
    let fault = |error: Errno| match error {
        Errno::AGAIN => busy(at, "walked through"),
        error => problem(error, at, "walked through"),
    };
    closed::check(&top).map_err(fault)?;
    let mut walk = Walk {
        descent: Descent::new(top).map_err(fault)?,
        levels: vec![Level::default()],
        path: Vec::new(),
        order,
        buffer: vec![MaybeUninit::uninit(); BATCH],
    };
    while walk.step(visitor, fault)? {}
    Ok(())
}

/// The way down from a directory, of any depth. All but the last directories of it are closed.
pub(crate) struct Descent {
    steps: Vec<DescentStep>,
    most_open: usize,
}

struct DescentStep {
    stat: Stat,
    fd: Option<OwnedFd>,
}

impl Descent {
    pub(crate) fn new(top: OwnedFd) -> Result<Descent, Errno> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        // Two ways down at once, one to read and one to write, must fit.
        let most_open = limit.map_or(MOST_OPEN, |all| (all as usize / 4).clamp(2, MOST_OPEN));
        let stat = fstat(&top)?;
        Ok(Descent { steps: vec![DescentStep { stat, fd: Some(top) }], most_open })
    }

    /// The directory that the way has come to.
    pub(crate) fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.steps.last().and_then(|step| step.fd.as_ref()).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// Goes down into a directory of this one. Says which step of the way was closed for it.
    pub(crate) fn down(&mut self, fd: OwnedFd) -> Result<Option<usize>, Errno> {
        let stat = fstat(&fd)?;
        self.steps.push(DescentStep { stat, fd: Some(fd) });
        let Some(far) = self.steps.len().checked_sub(self.most_open + 1) else { return Ok(None) };
        Ok(self.steps[far].fd.take().map(|_| far))
    }

    /// Goes back up. Says whether the directory had to be opened again; EAGAIN if it is another one by now.
    pub(crate) fn up(&mut self) -> Result<bool, Errno> {
        if self.steps.len() < 2 {
            return Err(Errno::INVAL);
        }
        let left = self.steps.pop().and_then(|step| step.fd).ok_or(Errno::BADF)?;
        let Some(here) = self.steps.last_mut().filter(|step| step.fd.is_none()) else { return Ok(false) };
        let fd = openat(&left, c"..", DIRECTORY, Mode::empty())?;
        if !is_same(&fstat(&fd)?, &here.stat) {
            return Err(Errno::AGAIN);
        }
        here.fd = Some(fd);
        Ok(true)
    }
}

/// One directory of the way down, as far as it has been read.
#[derive(Default)]
struct Level {
    /// Names that were read and not met, and where to read on after each. Sorted ones are kept from the last to the
    /// first.
    names: VecDeque<Name>,
    /// Where to read on after the last name that was met.
    position: u64,
    all_read: bool,
    /// What it is called in the directory above, and what that one says of it.
    own: Option<(CString, Stat)>,
    /// Bytes of the walk's path that belong to those above it.
    path_above: usize,
}

struct Name {
    name: CString,
    position: u64,
    /// Of a directory that was met, and whose contents have their turn now.
    enters: Option<Stat>,
}

impl Name {
    /// What comes first in the order of whole paths.
    fn key(&self) -> impl Iterator<Item = u8> {
        self.name.to_bytes().iter().copied().chain(self.enters.map(|_| b'/'))
    }
}

struct Walk {
    descent: Descent,
    levels: Vec<Level>,
    path: Vec<u8>,
    order: Order,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Walk {
    /// Meets one entry, or leaves one directory; false when the walk is over.
    fn step(
        &mut self,
        visitor: &mut impl Visitor,
        fault: impl Fn(Errno) -> Problem + Copy,
    ) -> Result<bool, Problem> {
        let Some(next) = self.next_name().map_err(fault)? else { return self.leave(visitor, fault) };
        let Name { name, enters, .. } = next;
        let above = self.path.len();
        if above > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        let dir = self.descent.here().map_err(fault)?;
        let stat = match enters {
            Some(stat) => stat,
            None => {
                let stat = match statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat,
                    Err(Errno::NOENT) => {
                        self.path.truncate(above);
                        return Ok(true);
                    }
                    Err(error) => return Err(fault(error)),
                };
                let entry = Entry { dir, name: &name, path: &self.path, stat: &stat };
                match visitor.entry(&entry)? {
                    Next::Stop => return Ok(false),
                    Next::Into if is_directory(&stat) => stat,
                    _ => {
                        self.path.truncate(above);
                        return Ok(true);
                    }
                }
            }
        };
        if self.order == Order::ByPath && enters.is_none() {
            self.path.truncate(above);
            self.enter_later(name, stat);
            return Ok(true);
        }
        let entry = Entry { dir, name: &name, path: &self.path, stat: &stat };
        let opened = match openat(dir, name.as_c_str(), DIRECTORY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(opened) if closed::check(&opened).is_ok() => opened,
            // Not for us; gone, or no directory any more.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.path.truncate(above);
                return Ok(true);
            }
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(fault(error)),
            Err(error) => {
                visitor.shut(&entry, error)?;
                self.path.truncate(above);
                return Ok(true);
            }
        };
        visitor.enter(&entry, opened.as_fd())?;
        let closed = self.descent.down(opened).map_err(fault)?;
        // What was read ahead in a directory that is closed is read again, and costs no memory meanwhile.
        if let Some(far) = closed.filter(|_| self.order == Order::AsFound) {
            self.levels[far].names = VecDeque::new();
        }
        self.levels.push(Level { own: Some((name, stat)), path_above: above, ..Level::default() });
        Ok(true)
    }

    fn leave(
        &mut self,
        visitor: &mut impl Visitor,
        fault: impl Fn(Errno) -> Problem + Copy,
    ) -> Result<bool, Problem> {
        let Some(Level { own: Some((name, stat)), path_above, .. }) = self.levels.pop() else {
            return Ok(false);
        };
        let reopened = self.descent.up().map_err(fault)?;
        let dir = self.descent.here().map_err(fault)?;
        if let Some(level) = self.levels.last_mut().filter(|_| reopened && self.order == Order::AsFound) {
            level.all_read = false;
            seek(dir, SeekFrom::Start(level.position)).map_err(fault)?;
        }
        let done = visitor.leave(&Entry { dir, name: &name, path: &self.path, stat: &stat })?;
        self.path.truncate(path_above);
        if done == Done::Again {
            let again = Name { name, position: self.position(), enters: Some(stat) };
            if let Some(level) = self.levels.last_mut() {
                match self.order {
                    Order::AsFound => level.names.push_front(again),
                    Order::ByPath => level.names.push_back(again),
                }
            }
        }
        Ok(true)
    }

    fn position(&self) -> u64 {
        self.levels.last().map_or(0, |level| level.position)
    }

    /// Puts a directory's contents where they belong in the order of whole paths.
    fn enter_later(&mut self, name: CString, stat: Stat) {
        let entering = Name { name, position: 0, enters: Some(stat) };
        let Some(level) = self.levels.last_mut() else { return };
        // Nearly always the very next: what is between begins with the same name and one of few characters.
        let behind = level.names.iter().rev().take_while(|other| other.key().lt(entering.key())).count();
        level.names.insert(level.names.len() - behind, entering);
    }

    fn next_name(&mut self) -> Result<Option<Name>, Errno> {
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        if self.order == Order::ByPath {
            if !level.all_read {
                while !level.all_read {
                    read_batch(self.descent.here()?, &mut self.buffer, level)?;
                }
                level.names.make_contiguous().sort_unstable_by(|one, other| other.name.cmp(&one.name));
            }
            return Ok(level.names.pop_back());
        }
        while level.names.is_empty() && !level.all_read {
            read_batch(self.descent.here()?, &mut self.buffer, level)?;
        }
        let next = level.names.pop_front();
        if let Some(next) = &next {
            level.position = next.position;
        }
        Ok(next)
    }
}

/// Reads some more names of a directory.
fn read_batch(dir: BorrowedFd<'_>, buffer: &mut [MaybeUninit<u8>], level: &mut Level) -> Result<(), Errno> {
    let mut entries = RawDir::new(dir, buffer);
    loop {
        match entries.next() {
            None => {
                level.all_read = true;
                return Ok(());
            }
            // The directory itself was deleted.
            Some(Err(Errno::NOENT)) => {
                level.all_read = true;
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(entry)) => {
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let position = entry.next_entry_cookie();
                    level.names.push_back(Name { name: name.to_owned(), position, enters: None });
                }
            }
        }
        if entries.is_buffer_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};

    #[derive(Default)]
    struct Seen {
        entries: Vec<String>,
        deepest: usize,
        entered: usize,
        left: usize,
    }

    impl Visitor for Seen {
        fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
            self.deepest = self.deepest.max(entry.path.split(|byte| *byte == b'/').count());
            if self.entries.len() < 100_000 {
                self.entries.push(workroom_types::escape(entry.path));
            }
            Ok(Next::Into)
        }

        fn enter(&mut self, _: &Entry<'_>, _: BorrowedFd<'_>) -> Result<(), Problem> {
            self.entered += 1;
            Ok(())
        }

        fn leave(&mut self, entry: &Entry<'_>) -> Result<Done, Problem> {
            let now = statat(entry.dir, entry.name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            assert!(is_same(&now, entry.stat));
            self.left += 1;
            Ok(Done::Yes)
        }
    }

    #[test]
    fn paths_come_in_the_order_of_their_bytes() {
        let scratch = Scratch::new();
        scratch.mkdir("a/b");
        scratch.mkdir("a-b");
        scratch.mkdir("a0/a");
        for file in ["a/b/c", "a/b.txt", "a.txt", "a-b/z", "a0/x", "\n", "a/b0", "zz"] {
            scratch.write(file, "");
        }
        scratch.link("a", "link");
        let mut seen = Seen::default();
        walk(scratch.open(), &path(""), Order::ByPath, &mut seen).unwrap();
        let mut sorted = seen.entries.clone();
        sorted.sort_by_key(|name| workroom_types::unescape(name).unwrap());
        assert_eq!(seen.entries, sorted);
        assert_eq!(seen.entries.len(), 14);
        assert_eq!((seen.entered, seen.left), (5, 5));
        let mut unsorted = Seen::default();
        walk(scratch.open(), &path(""), Order::AsFound, &mut unsorted).unwrap();
        unsorted.entries.sort_by_key(|name| workroom_types::unescape(name).unwrap());
        assert_eq!(unsorted.entries, sorted);
    }

    #[test]
    fn a_wide_directory_is_gone_on_with_after_a_deep_one() {
        let scratch = Scratch::new();
        scratch.deep(200);
        for number in 0..3000 {
            scratch.write(format!("a-long-name-to-fill-the-buffer-{number}"), "");
            if number % 10 == 0 {
                let deep = "x/".repeat(MOST_OPEN + 3);
                scratch.mkdir(format!("dir-{number}/{deep}"));
            }
        }
        for order in [Order::AsFound, Order::ByPath] {
            let mut seen = Seen::default();
            walk(scratch.open(), &path(""), order, &mut seen).unwrap();
            assert_eq!(seen.entries.len(), 201 + 3000 + 300 * (MOST_OPEN + 4), "{order:?}");
            seen.entries.sort();
            seen.entries.dedup();
            assert_eq!(seen.entries.len(), 201 + 3000 + 300 * (MOST_OPEN + 4), "{order:?}");
        }
    }

    #[test]
    fn depth_is_no_limit_and_descriptors_are_few() {
        struct Counts(usize, usize);
        impl Visitor for Counts {
            fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
                self.0 += 1;
                self.1 = self.1.max(std::os::fd::AsRawFd::as_raw_fd(&entry.dir) as usize);
                Ok(Next::Into)
            }
        }
        let scratch = Scratch::new();
        scratch.deep(10_000);
        for order in [Order::AsFound, Order::ByPath] {
            let mut counts = Counts(0, 0);
            walk(scratch.open(), &path(""), order, &mut counts).unwrap();
            assert_eq!(counts.0, 10_001);
            assert!(counts.1 < 500, "{}", counts.1);
        }
        scratch.remove_deep();
    }

    #[test]
    fn a_directory_that_was_moved_away_ends_the_walk() {
        struct Mover<'a>(&'a Scratch);
        impl Visitor for Mover<'_> {
            fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
                if entry.name == c"end" {
                    let top = self.0.inside("deep/deep");
                    std::fs::rename(top, self.0.inside("moved")).unwrap();
                }
                Ok(Next::Into)
            }
        }
        let scratch = Scratch::new();
        scratch.deep(MOST_OPEN + 10);
        let error = walk(scratch.open(), &path(""), Order::AsFound, &mut Mover(&scratch)).unwrap_err();
        assert_eq!(error.code, workroom_types::ProblemCode::Busy);
    }
}
