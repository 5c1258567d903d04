//! Two stacks side by side: where they may differ, at the cost of what differs.
//!
//! Layers that both stacks begin with show the same on both sides, so a difference has an entry in one of the others.
//! Those are walked by their own entries, and both views are only asked about what is found there. Below a directory
//! that is more than its entries (it hides what is under it, was moved, or stands in the place of something else) the
//! views themselves are walked.

use crate::stack::{View, Workshop};
use crate::walk::{Node, Tree, Waiting, add, is_elsewhere, join, names, node_at};
use crate::xattrs::{Flavour, is_special};
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Two views of the files of a room.
pub(crate) struct Sides {
    pub(crate) from: Tree,
    pub(crate) to: Tree,
    /// Layers that are on one side only.
    layers: Vec<Tree>,
    flavour: Flavour,
}

/// A path at which the sides may differ; on one of them at least there is something.
pub(crate) struct Candidate<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) from: Option<Node>,
    pub(crate) to: Option<Node>,
}

/// Whether what is below a directory is wanted too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descend {
    Yes,
    No,
}

/// A directory, on one side at least.
struct Place {
    on_from: bool,
    on_to: bool,
    by: By,
}

/// How the entries of a directory are found.
enum By {
    /// By those of these layers.
    Layers(Vec<usize>),
    /// By those of both views.
    Views,
}

/// What is on each side, and how to go on below it if that is a directory anywhere.
type Found = (Option<Node>, Option<Node>, Option<Place>);

impl Sides {
    pub(crate) fn new(workshop: &Workshop, from: &[PathBuf], to: &[PathBuf]) -> io::Result<Sides> {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let own = from[common..].iter().chain(&to[common..]);
        let layers = own.collect::<BTreeSet<_>>().into_iter().map(|layer| workshop.layer(layer));
        let tree = |view: View| view.tree;
        Ok(Sides {
            layers: layers.collect::<io::Result<_>>()?,
            from: workshop.view(from).map(tree)?,
            to: workshop.view(to).map(tree)?,
            flavour: Flavour::of(workshop.as_root),
        })
    }

    /// Visits every path at and below `under` at which the sides may differ, a directory before what is in it.
    pub(crate) fn visit(
        &mut self,
        under: &[u8],
        mut visitor: impl FnMut(&mut Sides, Candidate<'_>) -> io::Result<Descend>,
    ) -> io::Result<()> {
        let every = By::Layers((0..self.layers.len()).collect());
        let mut place = Place { on_from: true, on_to: true, by: every };
        let mut path = Vec::new();
        let mut parts = under.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            if part == b"." || part == b".." {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let name = CString::new(part)?;
            let Some((from, to, below)) = self.look(&place, &path, &name)? else { return Ok(()) };
            add(&mut path, part);
            if parts.peek().is_none() && visitor(self, Candidate { path: &path, from, to })? == Descend::No {
                return Ok(());
            }
            let Some(below) = below else { return Ok(()) };
            place = below;
        }
        let mut waiting = Waiting::new(path);
        let mut next = Some(place);
        while let Some(place) = next {
            for name in self.names(&place, waiting.path())? {
                let Some((from, to, below)) = self.look(&place, waiting.path(), &name)? else { continue };
                let path = join(waiting.path(), name.as_bytes());
                let wanted = visitor(self, Candidate { path: &path, from, to })?;
                if let (Some(below), Descend::Yes) = (below, wanted) {
                    waiting.push(name, below);
                }
            }
            next = waiting.next();
        }
        Ok(())
    }

    fn names(&mut self, place: &Place, path: &[u8]) -> io::Result<BTreeSet<CString>> {
        let mut found = BTreeSet::new();
        let mut add = |tree: &mut Tree| -> io::Result<()> {
            // A room may be writing to the uppermost layer: what has gone meanwhile has no entries.
            if let Some(dir) = unless_gone(tree.dir(path))? {
                found.extend(names(dir.as_fd())?);
            }
            Ok(())
        };
        match &place.by {
            By::Layers(layers) => {
                for number in layers {
                    add(&mut self.layers[*number])?;
                }
            }
            By::Views => {
                for (tree, is_there) in [(&mut self.from, place.on_from), (&mut self.to, place.on_to)] {
                    if is_there {
                        add(tree)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// What an entry is on each side and, if it is a directory anywhere, how to go on below it.
    fn look(&mut self, place: &Place, path: &[u8], name: &CString) -> io::Result<Option<Found>> {
        let seen = |tree: &mut Tree, is_there: bool| -> io::Result<Option<Node>> {
            match is_there.then(|| tree.dir(path)).map(unless_gone).transpose()?.flatten() {
                Some(dir) => node_at(dir.as_fd(), name.as_c_str()),
                None => Ok(None),
            }
        };
        let (from, to) = (seen(&mut self.from, place.on_from)?, seen(&mut self.to, place.on_to)?);
        if from.is_none() && to.is_none() {
            return Ok(None);
        }
        let is_dir = |node: Option<Node>| node.is_some_and(|node| node.is_dir());
        let (on_from, on_to) = (is_dir(from), is_dir(to));
        if !on_from && !on_to {
            return Ok(Some((from, to, None)));
        }
        let mut by = By::Views;
        if let (By::Layers(layers), true, true) = (&place.by, on_from, on_to)
            && let Some(plain) = self.plain_in(layers, path, name)?
        {
            by = By::Layers(plain);
        }
        Ok(Some((from, to, Some(Place { on_from, on_to, by }))))
    }

    /// Which of `layers` have the directory, if for all that have an entry there it is a directory and nothing more.
    fn plain_in(
        &mut self,
        layers: &[usize],
        parent: &[u8],
        name: &CString,
    ) -> io::Result<Option<Vec<usize>>> {
        let mut plain = Vec::new();
        for number in layers {
            let layer = &mut self.layers[*number];
            let Some(dir) = unless_gone(layer.dir(parent))? else { continue };
            let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
            if !node.is_dir() {
                return Ok(None);
            }
            let Some(dir) = unless_gone(layer.dir(&join(parent, name.as_bytes())))? else { continue };
            if is_special(dir.as_fd(), self.flavour)? {
                return Ok(None);
            }
            plain.push(*number);
        }
        Ok(Some(plain))
    }
}

/// Whether two entries of the same kind, neither a directory, have the same content.
pub(crate) fn same_content(
    one: &mut Tree,
    other: &mut Tree,
    path: &[u8],
    one_node: &Node,
    other_node: &Node,
) -> io::Result<bool> {
    match one_node.kind() {
        FileType::RegularFile => {
            if one_node.size != other_node.size {
                return Ok(false);
            }
            // The same file of the same layer: nobody can set the time of a change.
            if one_node.ino == other_node.ino
                && one_node.changed == other_node.changed
                && one_node.modified == other_node.modified
            {
                return Ok(true);
            }
            match (unless_gone(one.open_file(path))?, unless_gone(other.open_file(path))?) {
                (Some(one), Some(other)) => same_bytes(one.as_fd(), other.as_fd()),
                _ => Ok(false),
            }
        }
        FileType::Symlink => Ok(target(one, path)? == target(other, path)?),
        _ => Ok(one_node.rdev == other_node.rdev),
    }
}

fn unless_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_elsewhere(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where a link points to.
pub(crate) fn target(tree: &mut Tree, path: &[u8]) -> io::Result<Vec<u8>> {
    let (parent, name) = crate::walk::split(path);
    Ok(rustix::fs::readlinkat(&*tree.dir(parent)?, name, Vec::new())?.into_bytes())
}

/// Compares two files of the same size.
pub(crate) fn same_bytes(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    const PART: usize = 128 << 10;
    let (mut left, mut right) = (vec![0; PART], vec![0; PART]);
    let mut at = 0;
    loop {
        let read = fill(one, &mut left, at)?;
        if fill(other, &mut right[..read.max(1)], at)? != read || left[..read] != right[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at += read as u64;
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn fill(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let part = &mut buffer[filled..];
        match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *part, at + filled as u64))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
