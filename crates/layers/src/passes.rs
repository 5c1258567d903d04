//! Copying a layer that a room is writing to: once while it writes, and again, when it stands still, what has changed.
//!
//! What has changed is known by what the kernel alone sets: the inode and the time of its last change. Three things
//! change a file without a new time, and each is allowed for:
//!
//! - A change within the same tick of the clock. What had changed just before the pass is copied again.
//! - A write that began before the pass and goes on: it has its time from its beginning. Large files that had changed
//!   within the last seconds are copied again.
//! - A page that is mapped and was written to: only the first write after the page went to the disk sets the time. So
//!   all pages go to the disk before the pass. In a file system that is in memory none ever do; there contents are
//!   compared.

use crate::copy::{Copier, make_layer};
use crate::measure::Size;
use crate::remove::remove_at;
use crate::walk::{Node, Tree, add, is_elsewhere, names, node_at};
use crate::xattrs::{Carry, Flavour};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Far more than the longest tick of a kernel's clock.
const TICK_NANOS: i64 = 100_000_000;
/// A write of less takes no time to speak of.
const LARGE: u64 = 1 << 20;
const LONGEST_WRITE_NANOS: i64 = 10_000_000_000;
const TMPFS_MAGIC: i64 = 0x0102_1994;

pub(crate) struct LayerCopy {
    from: Tree,
    to: Tree,
    copier: Copier,
    /// By the number of the directory that it is in, and its name.
    known: HashMap<(u64, CString), Known>,
    directories: u64,
    pass: u32,
    /// When the first pass began.
    began: (i64, i64),
    in_memory: bool,
}

struct Known {
    node: Node,
    /// Of a directory.
    number: u64,
    pass: u32,
}

/// A directory whose entries are being looked at.
struct Frame {
    number: u64,
    /// Where its path ends, in the path of what is looked at.
    end: usize,
    node: Node,
    /// The names to come, in reverse.
    names: Vec<CString>,
    /// Whether the copy has to be given its owner and times once more.
    touched: bool,
}

impl LayerCopy {
    /// `from`: what the layer holds; `to`: the new layer's directory.
    pub(crate) fn new(from: OwnedFd, to: OwnedFd, as_root: bool) -> io::Result<LayerCopy> {
        let (fs, _) = make_layer(to.as_fd(), as_root)?;
        let in_memory = rustix::fs::fstatfs(&from)?.f_type as i64 == TMPFS_MAGIC;
        Ok(LayerCopy {
            from: Tree::new(from),
            to: Tree::new(fs),
            copier: Copier::new(Carry::Layer(Flavour::of(as_root)), as_root),
            known: HashMap::new(),
            directories: 0,
            pass: 0,
            began: (0, 0),
            in_memory,
        })
    }

    /// The first pass. What comes and goes meanwhile is the business of the next.
    pub(crate) fn first(&mut self) -> io::Result<Size> {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        self.began = (now.tv_sec, now.tv_nsec);
        if !self.in_memory {
            rustix::fs::syncfs(&*self.from.dir(b"")?)?;
        }
        self.pass()
    }

    /// Makes the copy the same as the source, which must stand still.
    pub(crate) fn again(&mut self) -> io::Result<Size> {
        let (began, in_memory) = (self.began, self.in_memory);
        self.copier.forget_unless(|node| is_settled(node, began) && !in_memory);
        self.pass()
    }

    fn pass(&mut self) -> io::Result<Size> {
        self.pass += 1;
        let mut size = Size::default();
        let mut path = Vec::new();
        let mut frames = vec![self.top()?];
        while let Some(frame) = frames.last_mut() {
            path.truncate(frame.end);
            let Some(name) = frame.names.pop() else {
                let touched = frames.pop().filter(|frame| frame.touched);
                if let Some(Frame { node, .. }) = touched {
                    self.gone_is_fine(|copy| {
                        copy.copier.finish_dir(&node, &mut copy.from, &mut copy.to, &path)
                    })?;
                }
                continue;
            };
            let Some(dir) = self.gone_is_fine(|copy| copy.from.dir(&path))? else { continue };
            let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
            add(&mut path, name.as_bytes());
            size.add(&node);
            let key = (frame.number, name);
            let known = self.known.get(&key).map(|known| (known.node, known.number));
            let is_unchanged = match known {
                Some((known, _)) => self.is_unchanged(&path, &known, &node)?,
                None => false,
            };
            if !is_unchanged {
                frame.touched = true;
                if self.gone_is_fine(|copy| copy.renew(&path, &node))?.is_none() {
                    continue;
                }
            }
            let mut number = 0;
            if node.is_dir() {
                number = known.map(|(_, number)| number).filter(|number| *number > 0).unwrap_or_else(|| {
                    self.directories += 1;
                    self.directories
                });
                match self.gone_is_fine(|copy| copy.enter(&path, number, node, !is_unchanged))? {
                    Some(below) => frames.push(below),
                    None => continue,
                }
            }
            self.known.insert(key, Known { node, number, pass: self.pass });
        }
        let pass = self.pass;
        self.known.retain(|_, known| known.pass == pass);
        Ok(size)
    }

    /// The directory that has no name.
    fn top(&mut self) -> io::Result<Frame> {
        // What was open since the last pass may not be there any more.
        self.to.dir(b"")?;
        let node = Node::of(&rustix::fs::fstat(&*self.from.dir(b"")?)?);
        let key = (0, CString::default());
        let known = self.known.insert(key, Known { node, number: 0, pass: self.pass });
        let is_unchanged =
            known.is_some_and(|known| known.node.is_same(&node)) && is_settled(&node, self.began);
        self.enter(b"", 0, node, !is_unchanged)
    }

    /// Looks into a directory, whose copy is there, and takes out of the copy what is not in it any more.
    fn enter(&mut self, path: &[u8], number: u64, node: Node, touched: bool) -> io::Result<Frame> {
        let mut names = names(self.from.dir(path)?.as_fd())?;
        if touched && self.pass > 1 {
            let to = self.to.dir(path)?;
            for stale in crate::walk::names(to.as_fd())? {
                if names.binary_search(&stale).is_err() {
                    remove_at(to.as_fd(), &stale)?;
                }
            }
        }
        names.reverse();
        Ok(Frame { number, end: path.len(), node, names, touched })
    }

    fn is_unchanged(&mut self, path: &[u8], known: &Node, node: &Node) -> io::Result<bool> {
        if !known.is_same(node) || !is_settled(node, self.began) {
            return Ok(false);
        }
        if !self.in_memory || !node.is_file() {
            return Ok(true);
        }
        let (from, to) = (self.from.open_file(path)?, self.to.open_file(path)?);
        crate::compare::same_bytes(from.as_fd(), to.as_fd())
    }

    /// Puts the entry as it is now into the copy. A directory that was one before stays, with what is in it.
    fn renew(&mut self, path: &[u8], node: &Node) -> io::Result<()> {
        if self.pass > 1
            && let Some(there) = self.to.node(path)?
        {
            if there.is_dir() && node.is_dir() {
                let dir = self.to.dir(path)?;
                return drop_attributes(&dir);
            }
            let (parent, name) = crate::walk::split(path);
            remove_at(self.to.dir(parent)?.as_fd(), &CString::new(name)?)?;
        }
        self.copier.entry(node, &mut self.from, &mut self.to, path)
    }

    /// Does something; in the first pass it is no error that the source is not there any more.
    fn gone_is_fine<T>(
        &mut self,
        action: impl FnOnce(&mut LayerCopy) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        match action(self) {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.pass == 1 && is_elsewhere(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Those of the source are carried over when all is in it.
fn drop_attributes(dir: &OwnedFd) -> io::Result<()> {
    for name in crate::xattrs::list(dir.as_fd())? {
        match rustix::fs::fremovexattr(dir, name) {
            Ok(()) | Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether a file that still has this time is as it was when a pass that began then looked at it.
fn is_settled(node: &Node, began: (i64, i64)) -> bool {
    let nanos = |time: (i64, i64)| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
    let slack = if node.is_file() && node.size > LARGE { LONGEST_WRITE_NANOS } else { TICK_NANOS };
    nanos(node.changed) < nanos(began) - i128::from(slack)
}
