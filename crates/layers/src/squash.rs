//! One layer in the place of several that lie upon each other.
//!
//! What the layers show over those below them and the skeleton is written out: every entry that they have changed, and a
//! whiteout where something from below is not there any more. So neither moved nor hiding directories are left in it.

use crate::compare::{Descend, Sides};
use crate::copy::{Copier, make_layer, make_whiteout};
use crate::measure::Size;
use crate::stack::Workshop;
use crate::walk::{Node, Tree, split};
use crate::xattrs::{Carry, Flavour};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

pub(crate) fn squash(workshop: &Workshop, below: &[PathBuf], layers: &[PathBuf]) -> io::Result<Size> {
    let (fs, _) = make_layer(workshop.made()?.as_fd(), workshop.as_root)?;
    let mut sides = Sides::new(workshop, below, &[below, layers].concat())?;
    let mut to = Tree::new(fs);
    let mut copier = Copier::new(Carry::IntoLayer(Flavour::of(workshop.as_root)), workshop.as_root);
    let mut size = Size::default();
    let mut directories: Vec<(Vec<u8>, Node)> = Vec::new();
    sides.visit(b"", |sides, at| {
        let Some(node) = at.to else {
            // It hides all that is below it.
            let (parent, name) = split(at.path);
            make_whiteout(to.dir(parent)?.as_fd(), name, workshop.as_root)?;
            size.entries += 1;
            return Ok(Descend::No);
        };
        copier.entry(&node, &mut sides.to, &mut to, at.path)?;
        size.add(&node);
        if node.is_dir() {
            directories.push((at.path.to_vec(), node));
            return Ok(Descend::Yes);
        }
        // A file hides a directory below it by being there.
        Ok(Descend::No)
    })?;
    directories.push((Vec::new(), Node::of(&rustix::fs::fstat(&*sides.to.dir(b"")?)?)));
    // The top was pushed last, and is the last to be touched.
    directories.sort_unstable_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    for (path, node) in &directories {
        copier.finish_dir(node, &mut sides.to, &mut to, path)?;
    }
    Ok(size)
}
