//! Where an archive is unpacked before any of it is in place: a hidden directory in the destination.
//!
//! It is in the destination and not beside it, because only there it is on the same file system for certain, and every
//! move into place is a rename. When all is unpacked it is compared with what is there, and only then moved. Whatever
//! fails on the way, what was moved is moved back and the directory is removed.

use super::super::delete::remove_tree;
use super::super::draft::hidden_name;
use super::super::failure::{busy, problem};
use super::super::place::{DIRECTORY, is_directory, is_link, is_regular};
use super::super::walk::{self, Done, Entry, Next, Order, Visitor};
use super::member::{Member, fault, refused};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens,
    mkdirat, openat, openat2, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::{Problem, RoomPath};

pub(super) struct Stage<'a> {
    /// The destination, for complaints.
    pub(super) at: &'a RoomPath,
    destination: OwnedFd,
    name: CString,
    top: OwnedFd,
    /// The directories down to where the last member was put.
    way: Vec<(Vec<u8>, OwnedFd)>,
    /// Set last: every file that is put into a directory changes its time.
    times: Vec<(Vec<u8>, Timestamps)>,
    moved: Vec<Moved>,
    buffer: Vec<u8>,
}

/// A member that is in its place, by its path.
enum Moved {
    /// Where nothing was.
    New(Vec<u8>),
    /// In exchange for what was there.
    Exchanged(Vec<u8>),
    /// What was there has this name in the stage.
    Aside(Vec<u8>, CString),
}

impl<'a> Stage<'a> {
    pub(super) fn new(destination: OwnedFd, at: &'a RoomPath) -> Result<Stage<'a>, Problem> {
        let make = || {
            let name = hidden_name()?;
            mkdirat(&destination, &name, Mode::RWXU)?;
            let top = openat(&destination, &name, DIRECTORY, Mode::empty());
            if top.is_err() {
                let _ = unlinkat(&destination, &name, AtFlags::REMOVEDIR);
            }
            Ok((name, top?))
        };
        let (name, top) = make().map_err(|error: Errno| problem(error, at, "written to"))?;
        Ok(Stage {
            at,
            destination,
            name,
            top,
            way: Vec::new(),
            times: Vec::new(),
            moved: Vec::new(),
            buffer: vec![0; 128 << 10],
        })
    }

    pub(super) fn directory(&mut self, member: &Member, parts: &[&[u8]]) -> Result<(), Problem> {
        self.go(member, parts)?;
        // The top stands for the destination, which stays as it is.
        let Some((_, here)) = self.way.last() else { return Ok(()) };
        let mode = Mode::from_raw_mode(member.mode & 0o777 | 0o700);
        fchmod(here, mode).map_err(|error| problem(error, self.at, "written to"))?;
        if let Some(times) = times(member) {
            self.times.push((parts.join(&b'/'), times));
        }
        Ok(())
    }

    pub(super) fn file(
        &mut self,
        member: &Member,
        parts: &[&[u8]],
        content: &mut impl Read,
    ) -> Result<(), Problem> {
        let name = self.clear_place(member, parts, is_regular)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = self.at.join(&parts.join(&b'/'));
        let fail = |error: Errno| problem(error, &at, "written");
        let file =
            openat(here(&self.top, &self.way), &name, flags, Mode::from_raw_mode(0o600)).map_err(fail)?;
        let mut file = std::fs::File::from(file);
        loop {
            let read = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(fault(error)),
            };
            file.write_all(&self.buffer[..read])
                .map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        }
        fchmod(&file, Mode::from_raw_mode(member.mode & 0o777 | 0o600)).map_err(fail)?;
        if let Some(times) = times(member) {
            futimens(&file, &times).map_err(fail)?;
        }
        Ok(())
    }

    pub(super) fn symlink(&mut self, member: &Member, parts: &[&[u8]], target: &[u8]) -> Result<(), Problem> {
        let name = self.clear_place(member, parts, is_link)?;
        let dir = here(&self.top, &self.way);
        let at = self.at.join(&parts.join(&b'/'));
        symlinkat(target, dir, &name).map_err(|error| problem(error, &at, "written"))?;
        if let Some(times) = times(member) {
            // Not every file system keeps times of links.
            let _ = utimensat(dir, &name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
        Ok(())
    }

    /// Goes to the directory of a member, and removes what the archive has put there before if it is of the same kind.
    fn clear_place(
        &mut self,
        member: &Member,
        parts: &[&[u8]],
        same_kind: impl Fn(&rustix::fs::Stat) -> bool,
    ) -> Result<CString, Problem> {
        let (last, above) = parts.split_last().ok_or_else(|| refused(&member.name, "has no name"))?;
        self.go(member, above)?;
        let name = CString::new(*last).map_err(|_| refused(&member.name, "has a NUL in its name"))?;
        let dir = here(&self.top, &self.way);
        match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(problem(error, self.at, "written to")),
            Ok(stat) if same_kind(&stat) => {
                unlinkat(dir, &name, AtFlags::empty())
                    .map_err(|error| problem(error, self.at, "written to"))?;
            }
            Ok(_) => return Err(refused(&member.name, "is in the archive twice, as different things")),
        }
        Ok(name)
    }

    /// Goes to a directory, and makes what is missing of the way.
    fn go(&mut self, member: &Member, parts: &[&[u8]]) -> Result<(), Problem> {
        let common = self.way.iter().zip(parts).take_while(|((name, _), part)| name == *part).count();
        self.way.truncate(common);
        for part in &parts[common..] {
            let dir = here(&self.top, &self.way);
            let made = match mkdirat(dir, *part, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(problem(error, &self.at.join(&parts.join(&b'/')), "made")),
            };
            let opened = match openat(dir, *part, DIRECTORY, Mode::empty()) {
                Ok(opened) => opened,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(refused(
                        &member.name,
                        "needs a directory where the archive has something else",
                    ));
                }
                Err(error) => return Err(problem(error, self.at, "written to")),
            };
            if made {
                fchmod(&opened, Mode::from_raw_mode(0o755))
                    .map_err(|error| problem(error, self.at, "written to"))?;
            }
            self.way.push((part.to_vec(), opened));
        }
        Ok(())
    }

    /// Puts all members where they belong, or none.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        self.way.clear();
        for (path, times) in std::mem::take(&mut self.times).iter().rev() {
            let dir = below(self.top.as_fd(), path).map_err(|error| problem(error, self.at, "written to"))?;
            futimens(&dir, times).map_err(|error| problem(error, self.at, "written to"))?;
        }
        self.pass(|_, _| Ok(()))?;
        let mut moved = Vec::new();
        let outcome = self.pass(|this, meeting| this.put(meeting, &mut moved));
        self.moved = moved;
        // Only what is dropped without having succeeded is moved back.
        outcome.map(|()| self.moved.clear())
    }

    /// Meets every member that has no directory of its own to be in, with what is in its place.
    fn pass(&self, each: impl FnMut(&Stage<'_>, &Meeting<'_>) -> Result<(), Errno>) -> Result<(), Problem> {
        let fail = |error| problem(error, self.at, "written to");
        let open = |fd: BorrowedFd<'_>| openat(fd, c".", DIRECTORY, Mode::empty()).map_err(fail);
        let mut meet = Meet { stage: self, there: vec![open(self.destination.as_fd())?], each };
        walk::walk(open(self.top.as_fd())?, self.at, Order::ByPath, &mut meet)
    }

    fn put(&self, meeting: &Meeting<'_>, moved: &mut Vec<Moved>) -> Result<(), Errno> {
        let Meeting { from, to, name, path, taken } = *meeting;
        if !taken {
            renameat_with(from, name, to, name, RenameFlags::NOREPLACE)?;
            moved.push(Moved::New(path.to_vec()));
            return Ok(());
        }
        match renameat_with(from, name, to, name, RenameFlags::EXCHANGE) {
            Ok(()) => moved.push(Moved::Exchanged(path.to_vec())),
            // Some file systems cannot exchange; then there is a moment without the file.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let aside = hidden_name()?;
                renameat_with(to, name, &self.top, &aside, RenameFlags::NOREPLACE)?;
                moved.push(Moved::Aside(path.to_vec(), aside));
                renameat_with(from, name, to, name, RenameFlags::NOREPLACE)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn put_back(&self, moved: &Moved) -> Result<(), Errno> {
        let (Moved::New(path) | Moved::Exchanged(path) | Moved::Aside(path, _)) = moved;
        let end = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = end.map_or((&b""[..], path.as_slice()), |at| (&path[..at], &path[at + 1..]));
        let there = below(self.destination.as_fd(), above)?;
        match moved {
            Moved::New(_) => {
                renameat_with(&there, name, below(self.top.as_fd(), above)?, name, RenameFlags::NOREPLACE)
            }
            Moved::Exchanged(_) => {
                renameat_with(&there, name, below(self.top.as_fd(), above)?, name, RenameFlags::EXCHANGE)
            }
            Moved::Aside(_, aside) => rustix::fs::renameat(&self.top, aside, &there, name),
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.way.clear();
        for moved in self.moved.iter().rev() {
            let _ = self.put_back(moved);
        }
        let _ = remove_tree(self.destination.as_fd(), &self.name, self.at);
    }
}

/// A member in the stage, and its place.
#[derive(Clone, Copy)]
struct Meeting<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    name: &'a CStr,
    path: &'a [u8],
    /// Something that can be replaced is there.
    taken: bool,
}

/// Walks the stage and the destination side by side.
struct Meet<'a, F> {
    stage: &'a Stage<'a>,
    /// The destination's directories on the way down.
    there: Vec<OwnedFd>,
    each: F,
}

impl<F: FnMut(&Stage<'_>, &Meeting<'_>) -> Result<(), Errno>> Visitor for Meet<'_, F> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        let at = self.stage.at;
        let Some(to) = self.there.last() else { return Ok(Next::Stop) };
        let refuse = |why: &str| Err(refused(entry.path, why));
        let taken = match statat(to, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => false,
            Err(error) => return Err(problem(error, &at.join(entry.path), "written")),
            Ok(stat) => match (is_directory(entry.stat), is_directory(&stat)) {
                (true, true) => return Ok(Next::Into),
                (true, false) if is_link(&stat) => {
                    return refuse("is a directory, and at the destination is a link");
                }
                (true, false) => return refuse("is a directory, and at the destination is something else"),
                (false, true) => return refuse("is no directory, and at the destination is one"),
                (false, false) if is_regular(&stat) || is_link(&stat) => true,
                (false, false) => return refuse("would replace a FIFO, a socket or a device"),
            },
        };
        let meeting = Meeting { from: entry.dir, to: to.as_fd(), name: entry.name, path: entry.path, taken };
        (self.each)(self.stage, &meeting).map_err(|error| match error {
            Errno::NOENT | Errno::EXIST => busy(&at.join(entry.path), "written"),
            error => problem(error, &at.join(entry.path), "written"),
        })?;
        Ok(Next::Past)
    }

    fn enter(&mut self, entry: &Entry<'_>, _opened: BorrowedFd<'_>) -> Result<(), Problem> {
        let Some(to) = self.there.last() else { return Ok(()) };
        let opened = openat(to, entry.name, DIRECTORY, Mode::empty())
            .map_err(|error| problem(error, &self.stage.at.join(entry.path), "written"))?;
        self.there.push(opened);
        Ok(())
    }

    fn leave(&mut self, _entry: &Entry<'_>) -> Result<Done, Problem> {
        self.there.pop();
        Ok(Done::Yes)
    }
}

fn here<'b>(top: &'b OwnedFd, way: &'b [(Vec<u8>, OwnedFd)]) -> BorrowedFd<'b> {
    way.last().map_or(top.as_fd(), |(_, dir)| dir.as_fd())
}

/// A directory below another, no part of its path a link.
fn below(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    openat2(dir, path, DIRECTORY, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

fn times(member: &Member) -> Option<Timestamps> {
    let (seconds, nanoseconds) = member.mtime?;
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    Some(Timestamps {
        last_access: omitted,
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    })
}
