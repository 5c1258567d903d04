//! What a stack is, in 32 bytes.
//!
//! Hashed are all paths that differ, in the order of their bytes, each as `PATH NUL KIND MODE SIZE CONTENT LF`: the kind
//! is a letter, the mode octal, the content the SHA-256 of what a file holds or of where a link points. What is not there
//! any more is `PATH NUL deleted LF`. Nothing that differs is the hash of nothing.

use crate::compare::{Sides, fill, target};
use crate::diff::all_changes;
use crate::walk::{Node, Tree};
use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::FileType;
use std::io;
use std::os::fd::AsFd;

/// The digest of what `to` has changed of `from`, and how many paths that are.
pub(crate) fn digest(mut sides: Sides) -> io::Result<(String, u64)> {
    let changes = all_changes(&mut sides)?;
    let mut all = Context::new(&SHA256);
    for (path, change) in &changes {
        all.update(path);
        match &change.to {
            None => all.update(b"\0deleted\n"),
            Some(node) => all.update(line(&mut sides.to, path, node)?.as_bytes()),
        }
    }
    Ok((hex(all), changes.len() as u64))
}

fn line(tree: &mut Tree, path: &[u8], node: &Node) -> io::Result<String> {
    let mode = node.mode & 0o7777;
    Ok(match node.kind() {
        FileType::RegularFile => format!("\0f {mode:o} {} {}\n", node.size, hash_file(tree, path)?),
        FileType::Symlink => {
            let mut hash = Context::new(&SHA256);
            hash.update(&target(tree, path)?);
            format!("\0l 777 {} {}\n", node.size, hex(hash))
        }
        FileType::Directory => format!("\0d {mode:o} 0 -\n"),
        FileType::Fifo => format!("\0p {mode:o} 0 -\n"),
        FileType::Socket => format!("\0s {mode:o} 0 -\n"),
        _ => format!("\0o {mode:o} 0 -\n"),
    })
}

fn hash_file(tree: &mut Tree, path: &[u8]) -> io::Result<String> {
    let file = tree.open_file(path)?;
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 128 << 10];
    let mut at = 0;
    loop {
        match fill(file.as_fd(), &mut buffer, at)? {
            0 => return Ok(hex(hash)),
            read => {
                hash.update(&buffer[..read]);
                at += read as u64;
            }
        }
    }
}

fn hex(hash: Context) -> String {
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
