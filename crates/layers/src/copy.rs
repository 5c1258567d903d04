//! Copying one entry with all that it is: content with its holes, owner, permissions, times, attributes, links.

use crate::walk::{DIRECTORY, Node, Tree, open_file, split};
use crate::xattrs::{self, Carry};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, chownat, copy_file_range,
    fchmod, fchown, futimens, linkat, mkdirat, mknodat, openat, readlinkat, symlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::escape;

pub(crate) struct Copier {
    pub(crate) carry: Carry,
    /// Owners are copied; without privileges everything is the caller's.
    owners: bool,
    /// Whether the file system has not refused yet to share blocks.
    clones: bool,
    /// Files with several names, and the first of their copies.
    links: HashMap<(u64, u64), Copied>,
}

/// A copy that other names can be given to.
struct Copied {
    node: Node,
    path: Vec<u8>,
    /// Of the copy: another file may have come to its path since.
    ino: u64,
}

impl Copier {
    pub(crate) fn new(carry: Carry, owners: bool) -> Copier {
        Copier { carry, owners, clones: true, links: HashMap::new() }
    }

    /// Copies what `node` says is at `path`; of a directory, only itself, closed to others until
    /// [`Copier::finish_dir`]. Nothing may be at the target.
    pub(crate) fn entry(
        &mut self,
        node: &Node,
        from: &mut Tree,
        to: &mut Tree,
        path: &[u8],
    ) -> io::Result<()> {
        let (parent, name) = split(path);
        let target = to.dir(parent)?;
        if node.is_file() && node.links > 1 && self.link(node, to, target.as_fd(), name)? {
            return Ok(());
        }
        let source = from.dir(parent)?;
        match node.kind() {
            FileType::RegularFile => {
                let copy = self.file(source.as_fd(), target.as_fd(), name)?;
                if node.links > 1 {
                    let ino = rustix::fs::fstat(&copy)?.st_ino;
                    let copied = Copied { node: *node, path: path.to_vec(), ino };
                    self.links.insert((node.dev, node.ino), copied);
                }
                Ok(())
            }
            FileType::Directory => Ok(mkdirat(&target, name, Mode::RWXU)?),
            FileType::Symlink => {
                let points_to = readlinkat(&source, name, Vec::new())?;
                symlinkat(points_to, &target, name)?;
                self.own_and_date(node, target.as_fd(), name)
            }
            FileType::CharacterDevice | FileType::BlockDevice if !node.is_whiteout() => {
                Err(io::Error::other(format!("\"{}\" is a device, and rooms have none", escape(path))))
            }
            kind => {
                mknodat(&target, name, kind, node.permissions(), 0)?;
                // The umask has had its share of the permissions.
                rustix::fs::chmodat(&target, name, node.permissions(), AtFlags::empty())?;
                self.own_and_date(node, target.as_fd(), name)
            }
        }
    }

    /// Gives a directory, when all is in it, what its source has.
    pub(crate) fn finish_dir(
        &self,
        node: &Node,
        from: &mut Tree,
        to: &mut Tree,
        path: &[u8],
    ) -> io::Result<()> {
        let (source, target) = (from.dir(path)?, to.dir(path)?);
        self.attributes_and_rest(node, source.as_fd(), target.as_fd())
    }

    /// Forgets copies of files that may have changed unseen.
    pub(crate) fn forget_unless(&mut self, is_settled: impl Fn(&Node) -> bool) {
        self.links.retain(|_, copied| is_settled(&copied.node));
    }

    /// Gives a copy that was made already another name.
    fn link(&mut self, node: &Node, to: &mut Tree, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
        let Some(copied) = self.links.get(&(node.dev, node.ino)) else { return Ok(false) };
        if copied.node.changed != node.changed
            || to.node(&copied.path)?.is_none_or(|there| there.ino != copied.ino)
        {
            return Ok(false);
        }
        let (first_dir, first) = split(&copied.path);
        let first_dir = to.dir(first_dir)?;
        linkat(&first_dir, first, dir, name, AtFlags::empty())?;
        Ok(true)
    }

    fn file(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        let source = open_file(from, name)?;
        // Of the file that is open: its name may mean another one by now.
        let node = Node::of(&rustix::fs::fstat(&source)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
        // Blocks that a subvolume has written count against its limit for as long as anything refers to them. What it
        // deletes must be its own.
        let is_within = node.dev == rustix::fs::fstat(&target)?.st_dev;
        let shared = is_within && self.clones && node.size > 0 && self.share_blocks(&source, &target)?;
        if !shared {
            let way = if is_within { copy_range } else { copy_through_memory };
            copy_content((source.as_fd(), target.as_fd()), node.size, way)?;
        }
        self.attributes_and_rest(&node, source.as_fd(), target.as_fd())?;
        Ok(target)
    }

    fn share_blocks(&mut self, source: &OwnedFd, target: &OwnedFd) -> io::Result<bool> {
        match rustix::fs::ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::PERM) => {
                self.clones = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn attributes_and_rest(&self, node: &Node, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
        xattrs::carry(from, to, self.carry)?;
        if self.owners {
            fchown(to, Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)))?;
        }
        // After the owner, whose change takes setuid away.
        fchmod(to, node.permissions())?;
        Ok(futimens(to, &times(node))?)
    }

    fn own_and_date(&self, node: &Node, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if self.owners {
            let (uid, gid) = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
            chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(utimensat(dir, name, &times(node), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// When it was last modified; when it was last read is nobody's business.
pub(crate) fn times(node: &Node) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: node.modified.0, tv_nsec: node.modified.1 },
    }
}

/// Copies the parts that hold data; the rest is a hole in the copy too.
fn copy_content(
    (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
    size: u64,
    copy: fn(BorrowedFd<'_>, BorrowedFd<'_>, u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while let Some((start, end)) = next_data(from, at, size)? {
        copy(from, to, start, end)?;
        at = end;
    }
    // A hole at the end, or a file that was cut short meanwhile.
    if at != size || size == 0 {
        rustix::fs::ftruncate(to, size)?;
    }
    Ok(())
}

/// The next part with data from `at` on, within `size`.
pub(crate) fn next_data(file: BorrowedFd<'_>, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that knows of no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some((start, end)))
}

fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let length = (end - read_at).min(1 << 30) as usize;
        match copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
            // The file was cut short meanwhile.
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_through_memory(from, to, read_at, end);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_through_memory(from: BorrowedFd<'_>, to: BorrowedFd<'_>, mut at: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; ((end - at) as usize).min(256 << 10)];
    while at < end {
        let wanted = buffer.len().min((end - at) as usize);
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut buffer[..wanted], at))?;
        if read == 0 {
            return Ok(());
        }
        let mut written = 0;
        while written < read {
            let part = &buffer[written..read];
            written += rustix::io::retry_on_intr(|| rustix::io::pwrite(to, part, at + written as u64))?;
        }
        at += read as u64;
    }
    Ok(())
}

/// Makes `fs/` and `work/` in the directory of a new layer, as the host makes them.
pub(crate) fn make_layer(layer: BorrowedFd<'_>, as_root: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let make = |name: &str, mode: u32| -> io::Result<OwnedFd> {
        mkdirat(layer, name, Mode::RWXU)?;
        let dir = openat(layer, name, DIRECTORY, Mode::empty())?;
        give_to_rooms(dir.as_fd(), as_root)?;
        fchmod(&dir, Mode::from_raw_mode(mode))?;
        Ok(dir)
    };
    give_to_rooms(layer, as_root)?;
    Ok((make("fs", 0o755)?, make("work", 0o700)?))
}

/// As root: the owner becomes the root of rooms, who is nobody on the host.
fn give_to_rooms(dir: BorrowedFd<'_>, as_root: bool) -> io::Result<()> {
    if as_root {
        let id = workroom_types::LAYER_ID;
        fchown(dir, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
    }
    Ok(())
}

/// Hides what is below. Its owner has to be one that rooms know, or they could not put something else there.
pub(crate) fn make_whiteout(dir: BorrowedFd<'_>, name: &[u8], as_root: bool) -> io::Result<()> {
    mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)?;
    if as_root {
        let id = workroom_types::LAYER_ID;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
