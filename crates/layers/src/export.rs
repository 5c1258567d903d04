//! Layers as one file: `word`, then `layers/NAME/…`, a tar in zstd.
//!
//! Ids are those that the room sees. What is the overlay's own is kept under names of its own, so that a host of the other
//! kind can read it: `WORKROOM.opaque`, `WORKROOM.redirect`, `WORKROOM.socket`. Holes are kept as GNU tar keeps them.

use crate::archive::{Entry, Kind, Record, write_end, write_entry, write_padding};
use crate::compare::fill;
use crate::copy::next_data;
use crate::walk::{Node, Tree, Waiting, join, names, node_at, open_file};
use crate::xattrs::{self, Flavour, Meaning};
use rustix::fs::FileType;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::{AGENT_ID, LAYER_ID, Problem, escape};

pub(crate) const OPAQUE: &[u8] = b"WORKROOM.opaque";
pub(crate) const REDIRECT: &[u8] = b"WORKROOM.redirect";
pub(crate) const SOCKET: &[u8] = b"WORKROOM.socket";
pub(crate) const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
pub(crate) const REAL_SIZE: &[u8] = b"GNU.sparse.realsize";
/// The host's word of a file, which travels in a message.
pub(crate) const LARGEST_WORD: u64 = 16 << 20;
const LEVEL: i32 = 3;

/// `beside`: the host's word, and where the file goes.
pub(crate) fn export(layers: Vec<(String, Tree)>, beside: Vec<OwnedFd>, as_root: bool) -> io::Result<()> {
    let Ok([word, file]) = <[OwnedFd; 2]>::try_from(beside) else {
        return Err(io::Error::other("an export comes with a word and a pipe"));
    };
    let mut out = zstd::stream::write::Encoder::new(File::from(file), LEVEL)?;
    // A bit that turns on the way is found out.
    out.include_checksum(true)?;
    let mut content = Vec::new();
    File::from(word).take(LARGEST_WORD + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_WORD {
        return Err(io::Error::other(Problem::invalid("the word of an export is longer than 16 MiB", "")));
    }
    write_entry(&mut out, &Entry { size: content.len() as u64, ..Entry::new(b"word".to_vec(), Kind::File) })?;
    out.write_all(&content)?;
    write_padding(&mut out, content.len() as u64)?;
    for (name, tree) in layers {
        Exporter { out: &mut out, prefix: join(b"layers", name.as_bytes()), as_root, links: HashMap::new() }
            .layer(tree)?;
    }
    write_end(&mut out)?;
    out.finish()?.flush()
}

struct Exporter<'a, W> {
    out: &'a mut W,
    prefix: Vec<u8>,
    as_root: bool,
    /// Files with several names, by the first.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> Exporter<'_, W> {
    fn layer(&mut self, mut tree: Tree) -> io::Result<()> {
        let top = tree.dir(b"")?;
        let node = Node::of(&rustix::fs::fstat(&*top)?);
        let mut entry = self.entry(self.prefix.clone(), Kind::Directory, &node);
        entry.more = self.attributes(top.as_fd())?;
        write_entry(self.out, &entry)?;
        let mut waiting = Waiting::new(Vec::new());
        let mut next = Some(());
        while next.is_some() {
            let dir = tree.dir(waiting.path())?;
            for name in names(dir.as_fd())? {
                let Some(node) = node_at(dir.as_fd(), name.as_c_str())? else { continue };
                let path = join(&self.prefix, &join(waiting.path(), name.as_bytes()));
                self.node(dir.as_fd(), name.as_bytes(), path, &node)?;
                if node.is_dir() {
                    waiting.push(name, ());
                }
            }
            next = waiting.next();
        }
        Ok(())
    }

    fn entry(&self, path: Vec<u8>, kind: Kind, node: &Node) -> Entry {
        // The overlay's own ids are root's.
        let id = |id: u32| match id.checked_sub(LAYER_ID) {
            _ if !self.as_root => AGENT_ID,
            Some(id) if id < 65536 => id,
            _ => 0,
        };
        Entry {
            mode: node.mode & 0o7777,
            uid: id(node.uid),
            gid: id(node.gid),
            modified: i128::from(node.modified.0) * 1_000_000_000 + i128::from(node.modified.1),
            ..Entry::new(path, kind)
        }
    }

    fn node(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: Vec<u8>, node: &Node) -> io::Result<()> {
        let kind = match node.kind() {
            FileType::RegularFile => return self.file(dir, name, path, node),
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo | FileType::Socket => Kind::Fifo,
            _ if node.is_whiteout() => Kind::Whiteout,
            _ => {
                return Err(io::Error::other(format!(
                    "\"{}\" is a device, and rooms have none",
                    escape(&path)
                )));
            }
        };
        let mut entry = self.entry(path, kind, node);
        match kind {
            Kind::Directory => {
                let flags = crate::walk::DIRECTORY;
                let opened = rustix::fs::openat(dir, name, flags, rustix::fs::Mode::empty())?;
                entry.more = self.attributes(opened.as_fd())?;
            }
            Kind::Symlink => entry.target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes(),
            _ if node.kind() == FileType::Socket => entry.more.push((SOCKET.to_vec(), b"y".to_vec())),
            _ => {}
        }
        write_entry(self.out, &entry)
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: Vec<u8>, node: &Node) -> io::Result<()> {
        if node.links > 1 {
            let first = self.links.entry((node.dev, node.ino)).or_insert_with(|| path.clone());
            if *first != path {
                let target = first.clone();
                let entry = Entry { target, ..self.entry(path, Kind::HardLink, node) };
                return write_entry(self.out, &entry);
            }
        }
        let file = open_file(dir, name)?;
        let mut entry = self.entry(path, Kind::File, node);
        entry.more = self.attributes(file.as_fd())?;
        let parts =
            if node.taken < node.size { data_parts(file.as_fd(), node.size)? } else { vec![(0, node.size)] };
        if parts == [(0, node.size)] {
            entry.size = node.size;
            write_entry(self.out, &entry)?;
        } else {
            let map = sparse_map(&parts);
            for (key, value) in [
                (b"GNU.sparse.major".as_slice(), b"1".to_vec()),
                (b"GNU.sparse.minor", b"0".to_vec()),
                (b"GNU.sparse.name", entry.path.clone()),
                (REAL_SIZE, node.size.to_string().into_bytes()),
            ] {
                entry.more.push((key.to_vec(), value));
            }
            entry.size = map.len() as u64 + parts.iter().map(|(start, end)| end - start).sum::<u64>();
            write_entry(self.out, &entry)?;
            self.out.write_all(&map)?;
        }
        for (start, end) in parts {
            self.data(file.as_fd(), start, end)?;
        }
        write_padding(self.out, entry.size)
    }

    fn data(&mut self, file: BorrowedFd<'_>, mut at: u64, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; 128 << 10];
        while at < end {
            let most = buffer.len().min((end - at) as usize);
            let read = fill(file, &mut buffer[..most], at)?;
            if read < most {
                return Err(io::Error::other("a file of a layer was cut short while it was exported"));
            }
            self.out.write_all(&buffer[..read])?;
            at += read as u64;
        }
        Ok(())
    }

    fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<Vec<Record>> {
        let mut found = Vec::new();
        for name in xattrs::list(file)? {
            let key = match Flavour::of(self.as_root).meaning(&name) {
                Meaning::Opaque => OPAQUE.to_vec(),
                Meaning::Redirect => REDIRECT.to_vec(),
                // Lists of ids, which are another host's.
                Meaning::Own(own) if !own.starts_with(b"user.") => continue,
                Meaning::Own(own) => [ATTRIBUTE, &escape_key(&own)].concat(),
                Meaning::Note => continue,
            };
            if let Some(value) = xattrs::get(file, &name)? {
                found.push((key, value));
            }
        }
        Ok(found)
    }
}

/// The parts of a file that hold data.
fn data_parts(file: BorrowedFd<'_>, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some((start, end)) = next_data(file, at, size)? {
        parts.push((start, end));
        at = end;
    }
    Ok(parts)
}

/// How many parts, and where each begins and how long it is: numbers, a line each, in whole blocks.
fn sparse_map(parts: &[(u64, u64)]) -> Vec<u8> {
    let mut map = format!("{}\n", parts.len()).into_bytes();
    for (start, end) in parts {
        map.extend_from_slice(format!("{start}\n{}\n", end - start).as_bytes());
    }
    map.resize(map.len().next_multiple_of(512), 0);
    map
}

/// A key ends with the first `=`.
fn escape_key(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3d"),
            byte => key.push(*byte),
        }
    }
    key
}

pub(crate) fn unescape_key(key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((byte, after)) = rest.split_first() {
        let (byte, skip) = match after {
            [b'2', b'5', ..] if *byte == b'%' => (b'%', 2),
            [b'3', b'd', ..] if *byte == b'%' => (b'=', 2),
            _ => (*byte, 0),
        };
        name.push(byte);
        rest = &after[skip..];
    }
    name
}
