//! From a path to what it names: descriptor by descriptor, so that nothing can be swapped between a look and a use.
//!
//! Paths begin at a [`Base`]: the workspace, or the root of the room. From the workspace no link leads out: the kernel
//! itself refuses (`RESOLVE_BENEATH`) what would. It refuses absolute links too, also those that lead back in, such as
//! `/workspace/x`; these are followed here, part by part, and every part is opened beneath the same descriptor.

use super::closed;
use super::failure::{busy, not_found, problem, quoted, wrong_kind};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_sys::place::openat2;
use workroom_types::{Problem, ProblemCode, RoomPath, WORKSPACE};

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;

/// How often a path is looked up again that changes while it is looked up.
const MOST_TRIES: u32 = 64;

/// A directory that paths begin at.
pub(crate) struct Base {
    top: OwnedFd,
    reach: Reach,
}

/// Where links may lead.
enum Reach {
    /// Not out of the directory; an absolute link must begin with this name of it.
    Beneath { name: &'static [u8] },
    /// Anywhere in the room, whose root the directory is.
    Everywhere,
}

/// What happens to a link in the last place of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is itself what is meant.
    Stay,
    Follow,
}

/// A place in a directory: something with this name may be there or not.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) dir: OwnedFd,
    pub(crate) name: CString,
    /// What was there when it was looked up, opened by path only: nothing was read, and no device noticed.
    pub(crate) thing: Option<OwnedFd>,
}

/// Where a path ends.
enum End {
    /// At the base itself, which has no name in it.
    Top,
    Spot(Spot),
}

impl Spot {
    pub(crate) fn stat(&self) -> Result<Option<Stat>, Errno> {
        self.thing.as_ref().map(fstat).transpose()
    }
}

impl Base {
    /// The workspace: links lead nowhere else.
    pub(crate) fn workspace(top: OwnedFd) -> Base {
        Base { top, reach: Reach::Beneath { name: WORKSPACE.as_bytes() } }
    }

    /// The room's root.
    pub(crate) fn room(top: OwnedFd) -> Base {
        Base { top, reach: Reach::Everywhere }
    }

    /// The one that a path begins at, opened anew: a room's root may be exchanged while a clerk works.
    pub(crate) fn of(path: &RoomPath) -> Result<Base, Problem> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = if path.root { "/" } else { WORKSPACE };
        let top = openat2(CWD, name, flags, ResolveFlags::NO_SYMLINKS)
            .map_err(|error| problem(error, path, "opened"))?;
        Ok(if path.root { Base::room(top) } else { Base::workspace(top) })
    }

    /// What the path names, opened by path only.
    pub(crate) fn open(&self, path: &RoomPath, last: Last) -> Result<OwnedFd, Problem> {
        self.open_path(&path.bytes, last).map_err(|error| lookup(error, path))
    }

    /// The directory that the path names, to be read from.
    pub(crate) fn open_directory(&self, path: &RoomPath) -> Result<OwnedFd, Problem> {
        let found = self.open(path, Last::Follow)?;
        match openat(&found, c".", DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR) => Err(wrong_kind(path, "not a directory", "name a directory")),
            other => other.map_err(|error| lookup(error, path)),
        }
    }

    /// The place that the path names: the directory above it and its name there.
    pub(crate) fn spot(&self, path: &RoomPath, last: Last) -> Result<Spot, Problem> {
        match self.end(&path.bytes, last).map_err(|error| lookup(error, path))? {
            End::Spot(spot) => Ok(spot),
            End::Top => Err(top_itself(path)),
        }
    }

    /// The same; directories above it that are not there are made.
    pub(crate) fn spot_with_parents(&self, path: &RoomPath, last: Last) -> Result<Spot, Problem> {
        match self.end(&path.bytes, last) {
            Ok(End::Spot(spot)) => return Ok(spot),
            Ok(End::Top) => return Err(top_itself(path)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(in_the_way(error, path)),
        }
        let parent = path.bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let ends = (1..=parent).filter(|at| *at == parent || path.bytes[*at] == b'/');
        for end in ends {
            self.make_directory(&path.bytes[..end], Mode::from_raw_mode(0o755))
                .map_err(|error| in_the_way(error, path))?;
        }
        self.spot(path, last)
    }

    /// The nearest directory at or above the path's own that is there, opened by path only.
    pub(crate) fn nearest_directory(&self, path: &RoomPath) -> Result<OwnedFd, Problem> {
        let mut end = path.bytes.len();
        loop {
            end = path.bytes[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            match self.open_path_as(&path.bytes[..end], Last::Follow, OFlags::DIRECTORY) {
                Err(Errno::NOENT) if end > 0 => {}
                other => return other.map_err(|error| in_the_way(error, path)),
            }
        }
    }

    /// Makes one directory if it is not there.
    fn make_directory(&self, bytes: &[u8], mode: Mode) -> Result<(), Errno> {
        match self.open_path_as(bytes, Last::Follow, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {}
            other => return other.map(drop),
        }
        match self.end(bytes, Last::Stay)? {
            End::Top => Ok(()),
            End::Spot(spot) => match rustix::fs::mkdirat(&spot.dir, spot.name.as_c_str(), mode) {
                // By somebody else meanwhile, or it is a link that leads nowhere, which the next look tells.
                Err(Errno::EXIST) => Ok(()),
                other => other,
            },
        }
    }

    fn resolve_flags(&self) -> ResolveFlags {
        let inside = match self.reach {
            Reach::Beneath { .. } => ResolveFlags::BENEATH,
            Reach::Everywhere => ResolveFlags::IN_ROOT,
        };
        inside | ResolveFlags::NO_MAGICLINKS
    }

    fn open_path(&self, bytes: &[u8], last: Last) -> Result<OwnedFd, Errno> {
        self.open_path_as(bytes, last, OFlags::empty())
    }

    fn open_path_as(&self, bytes: &[u8], last: Last, more: OFlags) -> Result<OwnedFd, Errno> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC | more;
        flags.set(OFlags::NOFOLLOW, last == Last::Stay);
        match self.open_beneath(bytes, flags, self.resolve_flags()) {
            Err(Errno::XDEV) => {}
            Err(error) => return Err(error),
            Ok(found) => {
                closed::check(&found)?;
                return Ok(found);
            }
        }
        let found = match self.travel(bytes, last)? {
            End::Top => self.open_beneath(b"", OFlags::PATH | OFlags::CLOEXEC, self.resolve_flags())?,
            End::Spot(spot) => spot.thing.ok_or(Errno::NOENT)?,
        };
        if more.contains(OFlags::DIRECTORY) && !is_directory(&fstat(&found)?) {
            return Err(Errno::NOTDIR);
        }
        Ok(found)
    }

    /// Opened by the kernel in one go. It says EAGAIN when a rename elsewhere might have led it out.
    fn open_beneath(&self, bytes: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let bytes = if bytes.is_empty() { b"." } else { bytes };
        for _ in 0..MOST_TRIES {
            match openat2(&self.top, bytes, flags, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    fn end(&self, bytes: &[u8], last: Last) -> Result<End, Errno> {
        let (above, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (&bytes[..0], bytes),
        };
        if name.is_empty() {
            return Ok(End::Top);
        }
        let dir = self.open_path_as(above, Last::Follow, OFlags::DIRECTORY)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let thing = look(dir.as_fd(), &name)?;
        thing.as_ref().map_or(Ok(()), closed::check)?;
        match &thing {
            Some(link) if last == Last::Follow && is_link(&fstat(link)?) => self.travel(bytes, last),
            _ => Ok(End::Spot(Spot { dir, name, thing })),
        }
    }

    /// The long way: part by part, links by their text.
    fn travel(&self, bytes: &[u8], last: Last) -> Result<End, Errno> {
        for _ in 0..MOST_TRIES {
            match Journey::new(self, bytes, last)?.go() {
                // What was a directory is a link now.
                Err(Errno::AGAIN) => {}
                Ok(End::Spot(spot)) => {
                    closed::check(spot.thing.as_ref().unwrap_or(&spot.dir))?;
                    return Ok(End::Spot(spot));
                }
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// A walk along a path with links in it.
struct Journey<'a> {
    base: &'a Base,
    last: Last,
    here: OwnedFd,
    /// Names of the directories from the base to here, none of them a link.
    behind: Vec<Vec<u8>>,
    /// Parts still to go, the next one at the end.
    ahead: Vec<Vec<u8>>,
    links: u32,
}

impl<'a> Journey<'a> {
    fn new(base: &'a Base, bytes: &[u8], last: Last) -> Result<Journey<'a>, Errno> {
        let here = base.open_beneath(b"", OFlags::PATH | OFlags::CLOEXEC, base.resolve_flags())?;
        let mut journey = Journey { base, last, here, behind: Vec::new(), ahead: Vec::new(), links: 0 };
        journey.plan(bytes);
        Ok(journey)
    }

    /// Goes these parts next, before those that were planned.
    fn plan(&mut self, bytes: &[u8]) {
        let parts = bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        self.ahead.extend(parts.rev().map(<[u8]>::to_vec));
    }

    fn go(mut self) -> Result<End, Errno> {
        while let Some(part) = self.ahead.pop() {
            if part == b".." {
                self.back()?;
                continue;
            }
            let name = CString::new(part).map_err(|_| Errno::INVAL)?;
            let is_last = self.ahead.is_empty();
            let thing = match look(self.here.as_fd(), &name)? {
                Some(thing) => thing,
                None if is_last => {
                    return Ok(End::Spot(Spot { dir: self.here, name, thing: None }));
                }
                None => return Err(Errno::NOENT),
            };
            let stat = fstat(&thing)?;
            if is_link(&stat) && !(is_last && self.last == Last::Stay) {
                self.follow(&thing, &name)?;
            } else if is_last {
                return Ok(End::Spot(Spot { dir: self.here, name, thing: Some(thing) }));
            } else if is_directory(&stat) {
                self.here = thing;
                self.behind.push(name.into_bytes());
            } else {
                return Err(Errno::NOTDIR);
            }
        }
        // The last link was to a directory that we have come through.
        let Some(name) = self.behind.pop() else { return Ok(End::Top) };
        let thing = self.here;
        let dir = reopen(self.base, &self.behind)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(End::Spot(Spot { dir, name, thing: Some(thing) }))
    }

    fn back(&mut self) -> Result<(), Errno> {
        if self.behind.pop().is_none() {
            return match self.base.reach {
                Reach::Beneath { .. } => Err(Errno::XDEV),
                Reach::Everywhere => Ok(()),
            };
        }
        self.here = reopen(self.base, &self.behind)?;
        Ok(())
    }

    fn follow(&mut self, link: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        if let Reach::Everywhere = self.base.reach {
            // A link of /proc that is no text: the kernel tells them apart.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            if let Err(Errno::LOOP) = openat2(&self.here, name, flags, resolve) {
                return Err(Errno::LOOP);
            }
        }
        let target = rustix::fs::readlinkat(link, c"", Vec::new())?.into_bytes();
        if target.first() != Some(&b'/') {
            self.plan(&target);
            return Ok(());
        }
        let rest = match self.base.reach {
            Reach::Everywhere => target.as_slice(),
            Reach::Beneath { name } => below(&target, name).ok_or(Errno::XDEV)?,
        };
        self.plan(rest);
        self.behind.clear();
        self.here = reopen(self.base, &self.behind)?;
        Ok(())
    }
}

/// What of an absolute path is below a directory; `name` is the directory's own path, of one part.
fn below<'a>(path: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let name = name.strip_prefix(b"/")?;
    let mut rest = path;
    loop {
        rest = match rest {
            [b'/', after @ ..] => after,
            [b'.', after @ ..] if after.first() == Some(&b'/') => after,
            _ => break,
        };
    }
    let after = rest.strip_prefix(name)?;
    (after.is_empty() || after[0] == b'/').then_some(after)
}

/// A directory by names that were none of links when they were gone through.
fn reopen(base: &Base, names: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match base.open_beneath(&names.join(&b'/'), flags, resolve) {
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => Err(Errno::AGAIN),
        other => other,
    }
}

/// What has this name, opened by path only; a link itself and not what it points to.
fn look(dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        Ok(thing) => Ok(Some(thing)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How a directory is opened to be read, when its name must not be a link.
pub(crate) const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

pub(crate) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub(crate) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether two looks saw the same thing.
pub(crate) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Opens a regular file by the name that it has in a directory. Anything else is not opened at all, so that no FIFO is
/// waited for and no device is woken: what it is instead.
pub(crate) fn open_regular(
    dir: BorrowedFd<'_>,
    name: &CStr,
    access: OFlags,
) -> Result<Result<(OwnedFd, Stat), FileType>, Errno> {
    // Should a FIFO take the file's place after the look, it is not waited for either.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    for _ in 0..MOST_TRIES {
        let seen = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_regular(&seen) {
            return Ok(Err(FileType::from_raw_mode(seen.st_mode)));
        }
        let file = match openat(dir, name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => continue,
            other => other?,
        };
        let stat = fstat(&file)?;
        if is_regular(&stat) {
            return Ok(Ok((file, stat)));
        }
    }
    Err(Errno::AGAIN)
}

/// Words for a path that could not be looked up.
fn lookup(error: Errno, path: &RoomPath) -> Problem {
    match error {
        Errno::NOENT => not_found(path),
        Errno::AGAIN => busy(path, "looked up"),
        error => problem(error, path, "looked up"),
    }
}

/// The same where directories are to be made.
fn in_the_way(error: Errno, path: &RoomPath) -> Problem {
    match error {
        Errno::NOTDIR => Problem::new(
            ProblemCode::WrongKind,
            format!("{} cannot be made: a part of the path is not a directory", quoted(path)),
            "move away what is in the place of the directory",
        ),
        Errno::NOENT => Problem::new(
            ProblemCode::NotFound,
            not_found(path).detail + ": a link above it leads nowhere",
            "",
        ),
        error => problem(error, path, "made"),
    }
}

fn top_itself(path: &RoomPath) -> Problem {
    let what = if path.root { "the room's root directory" } else { "the workspace itself" };
    Problem::invalid(format!("the path names {what}"), "name something in it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};

    fn text(scratch: &Scratch, at: &str) -> Result<Vec<u8>, ProblemCode> {
        let spot = scratch.base().spot(&path(at), Last::Follow).map_err(|problem| problem.code)?;
        let opened = open_regular(spot.dir.as_fd(), &spot.name, OFlags::RDONLY);
        let (file, _) = opened.map_err(|_| ProblemCode::NotFound)?.map_err(|_| ProblemCode::WrongKind)?;
        let mut content = vec![0; 100];
        let read = rustix::io::read(file, &mut content).unwrap();
        content.truncate(read);
        Ok(content)
    }

    #[test]
    fn links_that_stay_inside_are_followed() {
        let scratch = Scratch::new();
        scratch.mkdir("a/b");
        scratch.write("a/b/file", "content");
        scratch.link("a/b", "relative");
        scratch.link("/workspace/a", "absolute");
        scratch.link("//workspace/./relative/../b/file", "winding");
        scratch.link("../../absolute/b/file", "a/b/up");
        scratch.link("winding", "chained");
        scratch.link("/workspace", "a/home");
        for at in ["relative/file", "absolute/b/file", "winding", "a/b/up", "chained", "a/home/a/b/file"] {
            assert_eq!(text(&scratch, at).unwrap(), b"content", "{at}");
            assert!(is_regular(&fstat(scratch.base().open(&path(at), Last::Follow).unwrap()).unwrap()));
        }
        let home = scratch.base().open_directory(&path("a/home")).unwrap();
        assert!(is_same(&fstat(home).unwrap(), &fstat(scratch.open()).unwrap()));
        let spot = scratch.base().spot(&path("relative"), Last::Follow).unwrap();
        assert_eq!(spot.name.as_c_str(), c"b");
        let link = scratch.base().open(&path("relative"), Last::Stay).unwrap();
        assert!(is_link(&fstat(link).unwrap()));
    }

    #[test]
    fn links_that_lead_out_are_refused() {
        let scratch = Scratch::new();
        scratch.mkdir("a");
        scratch.link("..", "parent");
        scratch.link("../outside", "relative");
        scratch.link(scratch.outside(""), "absolute");
        scratch.link("absolute", "chained");
        scratch.link("/workspace/../outside", "dotted");
        scratch.link("/workspacex/secret", "prefix");
        scratch.link("../../outside", "a/up");
        scratch.link("/workspace/a/../../outside/secret", "a/twice");
        scratch.link("/", "root");
        for at in [
            "parent/outside/secret",
            "relative/secret",
            "absolute/secret",
            "chained/secret",
            "dotted/secret",
            "prefix",
            "a/up/secret",
            "a/twice",
            "root/etc/passwd",
        ] {
            assert_eq!(text(&scratch, at).unwrap_err(), ProblemCode::PathOutsideWorkspace, "{at}");
            for result in [
                scratch.base().open(&path(at), Last::Follow).map(drop),
                scratch.base().spot_with_parents(&path(&format!("{at}/new/x")), Last::Follow).map(drop),
                scratch.base().nearest_directory(&path(&format!("{at}/new/x"))).map(drop),
            ] {
                assert_eq!(result.unwrap_err().code, ProblemCode::PathOutsideWorkspace, "{at}");
            }
        }
        assert!(scratch.outside_is_untouched());
    }

    #[test]
    fn circles_and_dead_ends_are_told() {
        let scratch = Scratch::new();
        scratch.link("one", "two");
        scratch.link("/workspace/two", "one");
        scratch.link("nowhere/at/all", "dangling");
        scratch.write("file", "");
        assert_eq!(text(&scratch, "one").unwrap_err(), ProblemCode::InvalidArgument);
        assert_eq!(text(&scratch, "dangling/x").unwrap_err(), ProblemCode::NotFound);
        assert_eq!(text(&scratch, "file/x").unwrap_err(), ProblemCode::NotFound);
        let made = scratch.base().spot_with_parents(&path("file/x"), Last::Follow);
        assert_eq!(made.unwrap_err().code, ProblemCode::WrongKind);
        assert_eq!(
            scratch.base().spot(&path(""), Last::Follow).unwrap_err().code,
            ProblemCode::InvalidArgument
        );
    }

    #[test]
    fn names_of_any_bytes_and_parents_that_are_made() {
        let scratch = Scratch::new();
        for name in ["with space", "new\\x0aline", "\\xff\\xfe", &"n".repeat(255)] {
            let at = path(&format!("{name}/{name}/file"));
            let spot = scratch.base().spot_with_parents(&at, Last::Follow).unwrap();
            assert!(spot.thing.is_none());
            let parent = RoomPath { root: false, bytes: at.bytes[..at.bytes.len() - 5].to_vec() };
            let directory = scratch.base().open_directory(&parent).unwrap();
            assert!(is_same(&fstat(directory).unwrap(), &fstat(spot.dir).unwrap()));
        }
    }

    #[test]
    fn the_whole_room_has_links_everywhere_but_the_kernels() {
        let top = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let base = Base::room(top.unwrap());
        let room = |text: &str| RoomPath::parse(text, true).unwrap();
        assert!(base.open(&room("/proc/self/status"), Last::Follow).is_ok());
        for at in ["/proc/self/root/etc", "/proc/self/fd/0", "/proc/self/exe", "/proc/self/cwd/x"] {
            let error = base.open(&room(at), Last::Follow).unwrap_err();
            assert_eq!(error.code, ProblemCode::InvalidArgument, "{at}");
            let error = base.spot(&room(at), Last::Follow).unwrap_err();
            assert_eq!(error.code, ProblemCode::InvalidArgument, "{at}");
        }
    }
}
