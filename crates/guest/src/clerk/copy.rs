//! Copying: files with holes, links as links, whole trees; all of it or nothing.

use super::delete::remove_tree;
use super::draft::{Draft, Over, hidden_name, write_all};
use super::failure::{not_found, problem};
use super::list::shown_below;
use super::place::{DIRECTORY, Spot, is_directory, is_link, is_regular, is_same, open_regular};
use super::walk::{Descent, Done, Entry, Next, Order, Visitor, walk};
use rustix::fs::{
    AtFlags, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens, openat,
    renameat_with, seek, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::{Problem, ProblemCode, RoomPath};

const CHUNK: usize = 256 << 10;

/// As much as the kernel is asked to copy in one call, which nothing interrupts.
const LARGE_CHUNK: usize = 64 << 20;

/// Copies what is at one place to another.
pub(crate) fn copy_thing(
    (source, from): (&Spot, &RoomPath),
    (target, to): (&Spot, &RoomPath),
    over: Over,
) -> Result<(), Problem> {
    let fault = |error: Errno| problem(error, to, "copied");
    let stat = source.stat().map_err(fault)?.ok_or_else(|| not_found(from))?;
    if is_directory(&stat) {
        return copy_tree((source, from), (target, to));
    }
    if is_link(&stat) {
        let hidden = hidden_name().map_err(fault)?;
        let dir = target.dir.as_fd();
        copy_link(source.dir.as_fd(), &source.name, &stat, dir, &hidden).map_err(fault)?;
        let renamed = renameat_with(dir, hidden.as_c_str(), dir, target.name.as_c_str(), over.rename_flags());
        if renamed.is_err() {
            let _ = unlinkat(dir, hidden.as_c_str(), AtFlags::empty());
        }
        return renamed.map_err(fault);
    }
    if !is_regular(&stat) {
        return Err(refused(&from.shown()));
    }
    let opened = open_regular(source.dir.as_fd(), &source.name, OFlags::RDONLY);
    let Ok((file, stat)) = opened.map_err(|error| problem(error, from, "copied"))? else {
        return Err(refused(&from.shown()));
    };
    let mut draft = Draft::new(target.dir.as_fd()).map_err(fault)?;
    copy_contents(&file, draft.file(), stat.st_size as u64).map_err(fault)?;
    draft.set_mode(stat.st_mode).map_err(fault)?;
    futimens(draft.file(), &modified(&stat)).map_err(fault)?;
    draft.install(target.dir.as_fd(), &target.name, over).map_err(fault)
}

/// Under a hidden name first: who looks sees the whole tree, or none of it.
fn copy_tree((source, from): (&Spot, &RoomPath), (target, to): (&Spot, &RoomPath)) -> Result<(), Problem> {
    let fault = |error: Errno| problem(error, to, "copied");
    let open = |dir: &OwnedFd, name: &CStr| openat(dir, name, DIRECTORY, Mode::empty());
    let top = open(&source.dir, &source.name).map_err(|error| problem(error, from, "copied"))?;
    walk(again(&top).map_err(fault)?, from, Order::AsFound, &mut Survey { from })?;
    let stat = fstat(&top).map_err(fault)?;
    let hidden = hidden_name().map_err(fault)?;
    rustix::fs::mkdirat(&target.dir, hidden.as_c_str(), Mode::RWXU).map_err(fault)?;
    let copied = open(&target.dir, &hidden).map_err(fault).and_then(|copy| {
        let own = fstat(&copy).map_err(fault)?;
        let mut copier = Copier { from, to, own, way: Descent::new(copy).map_err(fault)? };
        walk(top, from, Order::AsFound, &mut copier)?;
        copier.way.here().and_then(|copy| finish(copy, &stat)).map_err(fault)?;
        // A directory takes the place of nothing.
        let flags = Over::Nothing.rename_flags();
        renameat_with(&target.dir, hidden.as_c_str(), &target.dir, target.name.as_c_str(), flags)
            .map_err(fault)
    });
    if copied.is_err() {
        let _ = remove_tree(target.dir.as_fd(), &hidden, to);
    }
    copied
}

/// The same directory, to be read from its beginning.
fn again(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(dir, c".", DIRECTORY, Mode::empty())
}

fn refused(shown: &str) -> Problem {
    Problem::new(
        ProblemCode::WrongKind,
        format!("\"{shown}\" is a FIFO, a socket or a device, and these are not copied"),
        "delete it first, or copy what is beside it",
    )
}

/// Whether a tree can be copied at all, before anything is made.
struct Survey<'a> {
    from: &'a RoomPath,
}

impl Visitor for Survey<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        let stat = entry.stat;
        match is_directory(stat) || is_link(stat) || is_regular(stat) {
            true => Ok(Next::Into),
            false => Err(refused(&shown_below(self.from, entry.path))),
        }
    }

    fn shut(&mut self, entry: &Entry<'_>, error: Errno) -> Result<(), Problem> {
        Err(problem(error, &self.from.join(entry.path), "copied"))
    }
}

struct Copier<'a> {
    from: &'a RoomPath,
    to: &'a RoomPath,
    /// The copy itself, which may have been put into what is copied by way of a link.
    own: Stat,
    way: Descent,
}

impl Copier<'_> {
    fn copy(&mut self, entry: &Entry<'_>) -> Result<(), Errno> {
        let here = self.way.here()?;
        let stat = entry.stat;
        if is_directory(stat) {
            return rustix::fs::mkdirat(here, entry.name, Mode::RWXU);
        }
        if is_link(stat) {
            return copy_link(entry.dir, entry.name, stat, here, entry.name);
        }
        let Ok((file, stat)) = open_regular(entry.dir, entry.name, OFlags::RDONLY)? else {
            return Err(Errno::AGAIN);
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = openat(here, entry.name, flags, Mode::RUSR | Mode::WUSR)?;
        copy_contents(&file, &copy, stat.st_size as u64)?;
        finish(copy.as_fd(), &stat)
    }

    fn fault(&self, entry: &Entry<'_>, error: Errno) -> Problem {
        problem(error, &self.from.join(entry.path), "copied")
    }
}

impl Visitor for Copier<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        if is_same(entry.stat, &self.own) {
            return Err(into_itself(self.from, self.to, "copied"));
        }
        match self.copy(entry) {
            Ok(()) => Ok(Next::Into),
            // Deleted after the look.
            Err(Errno::NOENT) => Ok(Next::Past),
            Err(error) => Err(self.fault(entry, error)),
        }
    }

    fn enter(&mut self, entry: &Entry<'_>, _: BorrowedFd<'_>) -> Result<(), Problem> {
        let down = self.way.here().and_then(|here| openat(here, entry.name, DIRECTORY, Mode::empty()));
        let entered = down.and_then(|fd| self.way.down(fd).map(drop));
        entered.map_err(|error| self.fault(entry, error))
    }

    fn leave(&mut self, entry: &Entry<'_>) -> Result<Done, Problem> {
        let finished = self.way.here().and_then(|here| finish(here, entry.stat));
        let left = finished.and_then(|()| self.way.up());
        left.map_err(|error| self.fault(entry, error))?;
        Ok(Done::Yes)
    }

    fn shut(&mut self, entry: &Entry<'_>, error: Errno) -> Result<(), Problem> {
        Err(self.fault(entry, error))
    }
}

pub(crate) fn into_itself(from: &RoomPath, to: &RoomPath, done: &str) -> Problem {
    let (from, to) = (super::failure::quoted(from), super::failure::quoted(to));
    Problem::invalid(format!("{from} cannot be {done} into itself, to {to}"), "name a place outside it")
}

fn copy_link(
    from_dir: BorrowedFd<'_>,
    from: &CStr,
    stat: &Stat,
    to_dir: BorrowedFd<'_>,
    to: &CStr,
) -> Result<(), Errno> {
    let target = match rustix::fs::readlinkat(from_dir, from, Vec::new()) {
        // It was a link when it was looked at.
        Err(Errno::INVAL) => return Err(Errno::AGAIN),
        other => other?,
    };
    symlinkat(target.as_c_str(), to_dir, to)?;
    utimensat(to_dir, to, &modified(stat), AtFlags::SYMLINK_NOFOLLOW)
}

/// Gives a copy the permissions and the age of what it is a copy of.
fn finish(copy: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
    fchmod(copy, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    futimens(copy, &modified(stat))
}

fn modified(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

/// Copies a file's first `size` bytes to another from its beginning, holes as holes.
pub(crate) fn copy_contents(from: &OwnedFd, to: &OwnedFd, size: u64) -> Result<(), Errno> {
    let mut at = 0;
    while at < size {
        let begins = match seek(from, SeekFrom::Data(at)) {
            Ok(begins) => begins,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // A file system that does not tell.
            Err(_) => at,
        };
        let ends = seek(from, SeekFrom::Hole(begins)).unwrap_or(size).min(size);
        at = copy_range(from, to, begins, ends)?;
        if at < ends {
            // It has become shorter.
            break;
        }
    }
    if size == 0 {
        // What the kernel makes up tells no size.
        return copy_to_end(from, to);
    }
    // A hole at the end, unless the file has become shorter.
    let end = size.min(fstat(from)?.st_size as u64);
    if (fstat(to)?.st_size as u64) < end {
        rustix::fs::ftruncate(to, end)?;
    }
    Ok(())
}

fn copy_to_end(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let (mut buffer, mut at) = (vec![0; CHUNK], 0);
    loop {
        let read = rustix::io::pread(from, &mut buffer, at)?;
        if read == 0 {
            return Ok(());
        }
        write_all(to, &buffer[..read])?;
        at += read as u64;
    }
}

/// Copies what is between two offsets; says where it came to.
fn copy_range(from: &OwnedFd, to: &OwnedFd, begins: u64, ends: u64) -> Result<u64, Errno> {
    let mut at = begins;
    while at < ends {
        let (mut from_at, mut to_at) = (at, at);
        let wanted = usize::try_from(ends - at).unwrap_or(LARGE_CHUNK).min(LARGE_CHUNK);
        match rustix::fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), wanted) {
            Ok(0) => break,
            Ok(copied) => at += copied as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return copy_by_hand(from, to, at, ends);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd, begins: u64, ends: u64) -> Result<u64, Errno> {
    let (mut buffer, mut at) = (vec![0; CHUNK], begins);
    while at < ends {
        let wanted = usize::try_from(ends - at).unwrap_or(CHUNK).min(CHUNK);
        let read = rustix::io::pread(from, &mut buffer[..wanted], at)?;
        if read == 0 {
            break;
        }
        let mut piece = &buffer[..read];
        while !piece.is_empty() {
            let written = rustix::io::pwrite(to, piece, at)?;
            at += written as u64;
            piece = &piece[written..];
        }
    }
    Ok(at)
}
