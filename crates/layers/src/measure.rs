//! How large a layer is.

use crate::passes::Size;
use crate::walk::{Tree, Waiting, names, node_at};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;

/// Counts what a layer holds. A file with several names is counted once.
pub(crate) fn measure(mut layer: Tree) -> io::Result<Size> {
    let mut size = Size::default();
    let mut counted = HashSet::new();
    let mut waiting = Waiting::new(Vec::new());
    let mut next = Some(());
    while next.is_some() {
        let dir = layer.dir(waiting.path())?;
        for name in names(dir.as_fd())? {
            let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
            size.entries += 1;
            if node.links == 1 || counted.insert((node.dev, node.ino)) {
                size.bytes += node.content();
            }
            if node.is_dir() {
                waiting.push(name, ());
            }
        }
        next = waiting.next();
    }
    Ok(size)
}
