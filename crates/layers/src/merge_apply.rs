//! Carrying out the plan of a merge: on the stack as a room would have it, so that whiteouts and the like are the
//! kernel's own, with a new layer on top that takes what changes.

use crate::copy::{Copier, make_layer};
use crate::merge::Step;
use crate::remove::empty_dir;
use crate::stack::Workshop;
use crate::walk::{Node, Tree, Waiting, join, names, node_at, split};
use crate::xattrs::{Carry, Flavour};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, fchmod, openat, unlinkat};
use std::collections::HashSet;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

pub(crate) fn apply(
    workshop: &Workshop,
    ours: &[PathBuf],
    our_view: &mut Tree,
    theirs: &mut Tree,
    steps: Vec<(Vec<u8>, Step)>,
) -> io::Result<()> {
    let (fs, work) = make_layer(workshop.made()?.as_fd(), workshop.as_root)?;
    // The new layer's top is what the room's root will be.
    let top = Node::of(&rustix::fs::fstat(&*our_view.dir(b"")?)?);
    let layer = Copier::new(Carry::IntoLayer(Flavour::of(workshop.as_root)), workshop.as_root);
    layer.finish_dir(&top, our_view, &mut Tree::new(fs), b"")?;
    let mut view = workshop.writable(ours)?;
    let mut target = Target {
        to: &mut view.tree,
        theirs,
        copier: Copier::new(Carry::Seen, workshop.as_root),
        directories: Vec::new(),
        altered: steps.iter().filter(|(_, step)| step.alters()).map(|(path, _)| path.clone()).collect(),
    };
    for (path, step) in steps {
        target.step(&path, step)?;
    }
    target.finish()?;
    view.unmount()?;
    // What an overlay that is not synchronised leaves there would keep it from being used again.
    empty_dir(work.as_fd())
}

struct Target<'a> {
    to: &'a mut Tree,
    theirs: &'a mut Tree,
    copier: Copier,
    /// Made here, to be given what theirs have when all is in them.
    directories: Vec<(Vec<u8>, Node)>,
    /// Files that get other permissions, or another content, than theirs.
    altered: HashSet<Vec<u8>>,
}

impl Target<'_> {
    fn step(&mut self, path: &[u8], step: Step) -> io::Result<()> {
        let (parent, name) = split(path);
        match step {
            Step::Remove => self.remove(path),
            Step::Take => match self.theirs.node(path)? {
                Some(node) => self.take(path, &node),
                None => self.remove(path),
            },
            Step::TakeAll => {
                self.remove(path)?;
                self.take_all(path)
            }
            Step::Mode(mode) => {
                // A link has no permissions, and would be followed.
                let is_link = |node: Node| node.kind() == rustix::fs::FileType::Symlink;
                if self.to.node(path)?.is_none_or(is_link) {
                    return Ok(());
                }
                Ok(chmodat(&*self.to.dir(parent)?, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
            }
            Step::Write { text, mode } => {
                let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(&*self.to.dir(parent)?, name, flags, Mode::empty())?;
                let mut file = std::fs::File::from(file);
                file.write_all(&text)?;
                Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
            }
        }
    }

    /// Name by name: directories of lower layers cannot be moved out of the way everywhere.
    fn remove(&mut self, path: &[u8]) -> io::Result<()> {
        let Some(node) = self.to.node(path)? else { return Ok(()) };
        let (parent, name) = split(path);
        if !node.is_dir() {
            return Ok(unlinkat(&*self.to.dir(parent)?, name, AtFlags::empty())?);
        }
        let mut found = vec![path.to_vec()];
        let mut waiting = Waiting::new(path.to_vec());
        let mut next = Some(());
        while next.is_some() {
            let dir = self.to.dir(waiting.path())?;
            for name in names(dir.as_fd())? {
                if node_at(dir.as_fd(), name.as_c_str())?.is_some_and(|node| node.is_dir()) {
                    found.push(join(waiting.path(), name.as_bytes()));
                    waiting.push(name, ());
                } else {
                    unlinkat(&*dir, name.as_c_str(), AtFlags::empty())?;
                }
            }
            next = waiting.next();
        }
        for path in found.iter().rev() {
            let (parent, name) = split(path);
            unlinkat(&*self.to.dir(parent)?, name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    fn take(&mut self, path: &[u8], node: &Node) -> io::Result<()> {
        // A name that is merged with something else is no longer one of the same file.
        let links = if self.altered.contains(path) { 1 } else { node.links };
        let node = &Node { links, ..*node };
        match self.to.node(path)? {
            Some(there) if there.is_dir() && node.is_dir() => {}
            Some(_) => {
                self.remove(path)?;
                self.copier.entry(node, self.theirs, self.to, path)?;
            }
            None => self.copier.entry(node, self.theirs, self.to, path)?,
        }
        if node.is_dir() {
            self.directories.push((path.to_vec(), *node));
        }
        Ok(())
    }

    fn take_all(&mut self, path: &[u8]) -> io::Result<()> {
        let Some(node) = self.theirs.node(path)? else { return Ok(()) };
        self.take(path, &node)?;
        if !node.is_dir() {
            return Ok(());
        }
        let mut waiting = Waiting::new(path.to_vec());
        let mut next = Some(());
        while next.is_some() {
            let dir = self.theirs.dir(waiting.path())?;
            for name in names(dir.as_fd())? {
                let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
                self.take(&join(waiting.path(), name.as_bytes()), &node)?;
                if node.is_dir() {
                    waiting.push(name, ());
                }
            }
            next = waiting.next();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.directories.sort_unstable_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, node) in &self.directories {
            self.copier.finish_dir(node, self.theirs, self.to, path)?;
        }
        Ok(())
    }
}
