//! Trees that rooms have written, walked without following a link and with few descriptors, however deep they are.
//!
//! Paths are bytes relative to the tree's top, without `.`, `..` or empty parts. A directory is opened from a
//! descriptor of the one above it, name by name; a path is never given to the kernel in one piece.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Stat, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Directories above the last one that are kept open, and how often one is kept further up. Coming back from deeper opens
/// the others anew from there.
const WINDOW: usize = 64;
const MARKED: usize = 256;

/// A tree, and the way to where it was last looked at.
pub(crate) struct Tree {
    top: Rc<OwnedFd>,
    path: Vec<u8>,
    /// The last directories of `path`, and some before.
    open: Vec<Open>,
}

struct Open {
    /// Where in the path it ends.
    end: usize,
    depth: usize,
    dir: Rc<OwnedFd>,
}

impl Tree {
    pub(crate) fn new(top: OwnedFd) -> Tree {
        Tree { top: Rc::new(top), path: Vec::new(), open: Vec::new() }
    }

    /// The tree below a place of this process's own mount namespace.
    pub(crate) fn at(place: &str) -> io::Result<Tree> {
        Ok(Tree::new(rustix::fs::open(place, DIRECTORY, Mode::empty())?))
    }

    /// The directory at `path`, to read and to name things in.
    pub(crate) fn dir(&mut self, path: &[u8]) -> io::Result<Rc<OwnedFd>> {
        let is_on_the_way = |known: &[u8], end: usize| {
            end <= path.len() && known[..end] == path[..end] && (end == path.len() || path[end] == b'/')
        };
        while self.open.last().is_some_and(|last| !is_on_the_way(&self.path, last.end)) {
            self.open.pop();
        }
        let (mut end, mut depth) = self.open.last().map_or((0, 0), |last| (last.end, last.depth));
        self.path.truncate(end);
        self.path.extend_from_slice(&path[end..]);
        while end < path.len() {
            let from = if end == 0 { 0 } else { end + 1 };
            let to = path[from..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| from + at);
            let above = self.open.last().map_or(&self.top, |last| &last.dir);
            let dir = Rc::new(openat(above, &path[from..to], DIRECTORY, Mode::empty())?);
            (end, depth) = (to, depth + 1);
            self.open.push(Open { end, depth, dir });
            if let Some(oldest) = self.open.len().checked_sub(WINDOW + 1)
                && !self.open[oldest].depth.is_multiple_of(MARKED)
            {
                self.open.remove(oldest);
            }
        }
        Ok(self.open.last().map_or(&self.top, |last| &last.dir).clone())
    }

    /// What is at `path`; nothing if that, or the way to it, is not there.
    pub(crate) fn node(&mut self, path: &[u8]) -> io::Result<Option<Node>> {
        let (parent, name) = split(path);
        if name.is_empty() {
            return Ok(Some(Node::of(&rustix::fs::fstat(&self.top)?)));
        }
        match self.dir(parent) {
            Ok(dir) => node_at(dir.as_fd(), name),
            Err(error) if is_elsewhere(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens what is at `path` if it is a plain file.
    pub(crate) fn open_file(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        let (parent, name) = split(path);
        open_file(self.dir(parent)?.as_fd(), name)
    }
}

pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether a place is not there, or not by the way that was taken.
pub(crate) fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ESTALE))
}

/// What is known of an entry without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) links: u64,
    /// Kind and permissions, as the kernel gives them.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    /// Bytes that it takes on the disk.
    pub(crate) taken: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Node {
    pub(crate) fn of(stat: &Stat) -> Node {
        Node {
            dev: stat.st_dev,
            ino: stat.st_ino,
            links: stat.st_nlink,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev,
            size: stat.st_size as u64,
            taken: stat.st_blocks as u64 * 512,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    /// A character device without a number: what an overlay leaves where something was deleted.
    pub(crate) fn is_whiteout(&self) -> bool {
        self.kind() == FileType::CharacterDevice && self.rdev == 0
    }

    /// Whether this is the same file, and unchanged as far as this can tell. When blocks are taken on the disk is the
    /// file system's own affair.
    pub(crate) fn is_same(&self, other: &Node) -> bool {
        Node { taken: 0, ..*self } == Node { taken: 0, ..*other }
    }

    pub(crate) fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o7777)
    }

    /// Bytes of content that are really there.
    pub(crate) fn content(&self) -> u64 {
        if self.is_file() { self.size.min(self.taken) } else { 0 }
    }
}

pub(crate) fn node_at(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<Option<Node>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Node::of(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a plain file to read; what is not one, or not any more, is not waited for.
pub(crate) fn open_file(dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok(file)
}

/// The names in a directory, sorted.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    // One opening of the directory serves many looks.
    rustix::fs::seek(dir, SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The directory that something is in, and its name there.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    add(&mut path, name);
    path
}

pub(crate) fn add(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Directories that wait to be looked into, without their whole paths: whoever walks down first is below the same ones as
/// what waits.
#[derive(Default)]
pub(crate) struct Waiting<T> {
    path: Vec<u8>,
    names: Vec<(usize, CString, T)>,
}

impl<T> Waiting<T> {
    pub(crate) fn new(path: Vec<u8>) -> Waiting<T> {
        Waiting { path, names: Vec::new() }
    }

    /// Where the walk is.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// A directory in the one where the walk is.
    pub(crate) fn push(&mut self, name: CString, with: T) {
        self.names.push((self.path.len(), name, with));
    }

    /// Goes on to the last that was pushed.
    pub(crate) fn next(&mut self) -> Option<T> {
        let (end, name, with) = self.names.pop()?;
        self.path.truncate(end);
        add(&mut self.path, name.as_bytes());
        Some(with)
    }
}

/// Whether `path` is below `above`.
pub(crate) fn is_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() && !path.is_empty()
        || path.len() > above.len() && path.starts_with(above) && path[above.len()] == b'/'
}
