//! How large a layer is.

use crate::walk::{Node, Tree, Waiting, names, node_at};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

/// What a layer holds.
#[derive(Debug, Default)]
pub(crate) struct Size {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
    /// Files with several names, whose content is counted once.
    counted: HashSet<(u64, u64)>,
}

impl Size {
    pub(crate) fn add(&mut self, node: &Node) {
        self.entries += 1;
        if !node.is_file() || node.links == 1 || self.counted.insert((node.dev, node.ino)) {
            self.bytes += node.content();
        }
    }
}

pub(crate) fn measure(mut layer: Tree) -> io::Result<Size> {
    let mut size = Size::default();
    let mut waiting = Waiting::new(Vec::new());
    let mut next = Some(());
    while next.is_some() {
        let dir = layer.dir(waiting.path())?;
        for name in names(dir.as_fd())? {
            let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
            size.add(&node);
            if node.is_dir() {
                waiting.push(name, ());
            }
        }
        next = waiting.next();
    }
    Ok(size)
}
