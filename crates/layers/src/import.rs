//! Reading a file of layers that somebody else has made, who may mean harm.
//!
//! A name is checked part by part, and made in a directory that was opened without following a link; nothing is written
//! twice. A file that is refused or broken leaves nothing.

use crate::archive::{Entry, Kind, Reader, number, refused};
use crate::copy::{make_layer, make_whiteout};
use crate::export::{ATTRIBUTE, LARGEST_WORD, OPAQUE, REAL_SIZE, REDIRECT, SOCKET, unescape_key};
use crate::remove::remove_at;
use crate::walk::{DIRECTORY, Tree, split};
use crate::xattrs::{self, Flavour};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, chownat, fchmod, fchown, futimens,
    linkat, mkdirat, mknodat, openat, symlinkat, utimensat,
};
use rustix::process::{Gid, Uid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use workroom_types::{LAYER_ID, Problem, escape};

const MOST_LAYERS: usize = 64;
/// Parts of one file with holes.
const MOST_PARTS: u64 = 1 << 20;

/// Reads the file into layers in `into`; answers the host's word and their names.
pub(crate) fn import(
    into: OwnedFd,
    file: OwnedFd,
    most_bytes: u64,
    as_root: bool,
) -> io::Result<(Vec<u8>, Vec<String>)> {
    let mut importer = Importer { into, as_root, made: Vec::new(), current: None };
    let limited =
        Limited { from: zstd::stream::read::Decoder::new(File::from(file))?, left: most_bytes, most_bytes };
    match importer.read(Reader::new(BufReader::with_capacity(128 << 10, limited))) {
        Ok(word) => Ok((word, importer.made)),
        Err(error) => {
            importer.current = None;
            for name in &importer.made {
                remove_at(importer.into.as_fd(), &CString::new(name.as_str())?)?;
            }
            Err(told(error))
        }
    }
}

/// What reading says of a file that is broken, in our words.
fn told(error: io::Error) -> io::Error {
    let is_ours = error.get_ref().is_some_and(|inner| inner.is::<Problem>());
    match error.kind() {
        io::ErrorKind::UnexpectedEof if !is_ours => refused("it ends too early"),
        // The decoder's words.
        io::ErrorKind::Other if !is_ours => refused(format!("it is damaged ({error})")),
        _ => error,
    }
}

struct Limited<R> {
    from: R,
    left: u64,
    most_bytes: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let detail = format!("the file holds more than {} bytes", self.most_bytes);
            io::Error::other(Problem::limit("import_bytes", detail, "raise the limit, or export less"))
        })?;
        Ok(read)
    }
}

struct Importer {
    into: OwnedFd,
    as_root: bool,
    /// Names of layers.
    made: Vec<String>,
    current: Option<Layer>,
}

/// The layer that is being read.
struct Layer {
    name: String,
    tree: Tree,
    /// Directories, to be given their owners and times when all is in them.
    directories: Vec<Entry>,
}

impl Importer {
    fn read(&mut self, mut reader: Reader<impl Read>) -> io::Result<Vec<u8>> {
        let first = reader.next()?.filter(|entry| entry.path == b"word" && entry.kind == Kind::File);
        let first = first.filter(|entry| entry.size <= LARGEST_WORD);
        let first = first.ok_or_else(|| refused("it does not begin with a word of the host"))?;
        let mut word = Vec::with_capacity(first.size as usize);
        reader.read_to_end(&mut word)?;
        while let Some(mut entry) = reader.next()? {
            let (name, path) = place(&entry.path)?;
            if self.made.last() != Some(&name) {
                self.finish()?;
                self.begin(name, &path, &entry)?;
            } else if path.is_empty() {
                return Err(refused(format!("the layer {name} is in it twice")));
            }
            let as_root = self.as_root;
            let layer = self.current.as_mut().ok_or_else(|| refused("it is out of order"))?;
            entry.path = path;
            layer.add(entry, &mut reader, as_root)?;
        }
        self.finish()?;
        reader.finish()?;
        Ok(word)
    }

    fn begin(&mut self, name: String, path: &[u8], entry: &Entry) -> io::Result<()> {
        if !path.is_empty() || entry.kind != Kind::Directory || self.made.contains(&name) {
            return Err(refused(format!("the layer {name} does not begin with its top directory")));
        }
        if self.made.len() == MOST_LAYERS {
            return Err(refused(format!("it holds more than {MOST_LAYERS} layers")));
        }
        mkdirat(&self.into, name.as_str(), Mode::RWXU)?;
        let layer = openat(&self.into, name.as_str(), DIRECTORY, Mode::empty())?;
        self.made.push(name.clone());
        let (fs, _) = make_layer(layer.as_fd(), self.as_root)?;
        self.current = Some(Layer { name, tree: Tree::new(fs), directories: Vec::new() });
        Ok(())
    }

    /// Gives the directories of the layer that was read what they are to have.
    fn finish(&mut self) -> io::Result<()> {
        let Some(mut layer) = self.current.take() else { return Ok(()) };
        layer.directories.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.path.len()));
        for entry in &layer.directories {
            let dir = layer.tree.dir(&entry.path)?;
            own_and_date(dir.as_fd(), entry, self.as_root)?;
        }
        Ok(())
    }
}

/// `layers/NAME/a/b` is `a/b` of the layer NAME.
fn place(path: &[u8]) -> io::Result<(String, Vec<u8>)> {
    let bad = || refused(format!("\"{}\" is no path of a layer", escape(&path[..path.len().min(300)])));
    let mut parts = path.split(|byte| *byte == b'/');
    let name = match (parts.next(), parts.next()) {
        (Some(b"layers"), Some(name)) => name,
        _ => return Err(bad()),
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = std::str::from_utf8(name).map_err(|_| bad())?;
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.as_bytes().iter().all(is_plain) {
        return Err(bad());
    }
    let rest: Vec<&[u8]> = parts.collect();
    let is_good = |part: &[u8]| {
        !part.is_empty() && part != b"." && part != b".." && part.len() <= 255 && !part.contains(&0)
    };
    if !rest.iter().all(|part| is_good(part)) {
        return Err(bad());
    }
    Ok((name.to_owned(), rest.join(&b'/')))
}

impl Layer {
    fn add(&mut self, entry: Entry, content: &mut Reader<impl Read>, as_root: bool) -> io::Result<()> {
        self.make(entry, content, as_root).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST | libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => {
                refused(format!("its entries contradict each other ({error})"))
            }
            _ => error,
        })
    }

    fn make(&mut self, entry: Entry, content: &mut Reader<impl Read>, as_root: bool) -> io::Result<()> {
        let path = entry.path.clone();
        let (parent, name) = split(&path);
        if name.is_empty() {
            set_attributes(self.tree.dir(b"")?.as_fd(), &entry, as_root)?;
            self.directories.push(entry);
            return Ok(());
        }
        let dir = self.tree.dir(parent)?;
        match entry.kind {
            Kind::File => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(&*dir, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(file);
                match entry.record(REAL_SIZE) {
                    None => {
                        if io::copy(content, &mut file)? != entry.size {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                    }
                    Some(size) => write_parts(content, &file, number(size)?)?,
                }
                set_attributes(file.as_fd(), &entry, as_root)?;
                own_and_date(file.as_fd(), &entry, as_root)
            }
            Kind::HardLink => {
                let (layer, first) = place(&entry.target)?;
                if layer != self.name {
                    return Err(refused("a file is in two layers"));
                }
                let (first_parent, first_name) = split(&first);
                let first_dir = self.tree.dir(first_parent)?;
                if crate::walk::node_at(first_dir.as_fd(), first_name)?.is_none_or(|node| !node.is_file()) {
                    return Err(refused("a link leads to no file"));
                }
                Ok(linkat(&*first_dir, first_name, &*dir, name, AtFlags::empty())?)
            }
            Kind::Symlink => {
                if entry.target.is_empty() || entry.target.contains(&0) {
                    return Err(refused("a link leads nowhere"));
                }
                symlinkat(entry.target.as_slice(), &*dir, name)?;
                own_and_date_at(dir.as_fd(), name, &entry, as_root)
            }
            Kind::Directory => {
                mkdirat(&*dir, name, Mode::RWXU)?;
                let made = self.tree.dir(&path)?;
                set_attributes(made.as_fd(), &entry, as_root)?;
                self.directories.push(entry);
                Ok(())
            }
            Kind::Fifo => {
                let kind = if entry.record(SOCKET).is_some() { FileType::Socket } else { FileType::Fifo };
                mknodat(&*dir, name, kind, Mode::from_raw_mode(entry.mode), 0)?;
                own_and_date_at(dir.as_fd(), name, &entry, as_root)?;
                // After the owner, whose change takes bits away.
                Ok(rustix::fs::chmodat(&*dir, name, Mode::from_raw_mode(entry.mode), AtFlags::empty())?)
            }
            Kind::Whiteout => {
                make_whiteout(dir.as_fd(), name, as_root)?;
                own_and_date_at(dir.as_fd(), name, &entry, as_root)
            }
        }
    }
}

/// Writes the parts of a file with holes where they belong.
fn write_parts(content: &mut Reader<impl Read>, file: &File, size: u64) -> io::Result<()> {
    let broken = || refused("a file's holes are damaged");
    if size > i64::MAX as u64 {
        return Err(broken());
    }
    let (count, mut read) = read_line(content)?;
    if count > MOST_PARTS {
        return Err(refused("a file has too many holes"));
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let (start, first) = read_line(content)?;
        let (length, second) = read_line(content)?;
        read += first + second;
        if start.checked_add(length).is_none_or(|end| end > size) {
            return Err(broken());
        }
        parts.push((start, length));
    }
    let mut rest = vec![0; (512 - read % 512) % 512];
    content.read_exact(&mut rest)?;
    let mut buffer = vec![0; 128 << 10];
    for (mut at, mut left) in parts {
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            content.read_exact(&mut buffer[..most])?;
            file.write_all_at(&buffer[..most], at)?;
            (at, left) = (at + most as u64, left - most as u64);
        }
    }
    Ok(rustix::fs::ftruncate(file, size)?)
}

/// A number on a line of its own, and how long that line is.
fn read_line(content: &mut impl Read) -> io::Result<(u64, usize)> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        content.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok((number(&line)?, line.len() + 1));
        }
        line.push(byte[0]);
        if line.len() > 20 {
            return Err(refused("a file's holes are damaged"));
        }
    }
}

fn set_attributes(file: BorrowedFd<'_>, entry: &Entry, as_root: bool) -> io::Result<()> {
    let flavour = Flavour::of(as_root);
    let is_dir = entry.kind == Kind::Directory;
    for (key, value) in &entry.more {
        if key == OPAQUE && is_dir {
            xattrs::set(file, &flavour.opaque(), b"y")?;
        } else if key == REDIRECT && is_dir {
            check_redirect(value, &entry.path, as_root)?;
            xattrs::set(file, &flavour.redirect(), value)?;
        } else if let Some(name) = key.strip_prefix(ATTRIBUTE) {
            let name = unescape_key(name);
            if !name.starts_with(b"user.") || name.contains(&0) {
                return Err(refused("it holds attributes that rooms do not have"));
            }
            xattrs::set(file, &flavour.kept_as(&name), value)?;
        }
    }
    Ok(())
}

/// Where a directory was moved from: a name beside it, or a path from the top of the layers.
fn check_redirect(value: &[u8], path: &[u8], as_root: bool) -> io::Result<()> {
    if !as_root {
        let detail = format!(
            "the directory \"{}\" was moved from elsewhere, which only a host that runs as root can show",
            escape(path)
        );
        let hint = "squash the layers where they come from and export again, or import it on a host that runs as root";
        let code = workroom_types::ProblemCode::ArchiveRefused;
        return Err(io::Error::other(Problem::new(code, detail, hint)));
    }
    let names =
        value.strip_prefix(b"/").map_or(vec![value], |rest| rest.split(|byte| *byte == b'/').collect());
    let is_name = |name: &&[u8]| {
        !name.is_empty() && *name != b"." && *name != b".." && !name.contains(&b'/') && !name.contains(&0)
    };
    if names.iter().all(is_name) {
        Ok(())
    } else {
        Err(refused("a directory was moved from an impossible place"))
    }
}

fn times(entry: &Entry) -> Timestamps {
    let seconds = entry.modified.div_euclid(1_000_000_000) as i64;
    let nanos = entry.modified.rem_euclid(1_000_000_000) as i64;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos },
    }
}

fn ids(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    let id = |id: u32| LAYER_ID + id.min(65535);
    (Some(Uid::from_raw(id(entry.uid))), Some(Gid::from_raw(id(entry.gid))))
}

fn own_and_date(file: BorrowedFd<'_>, entry: &Entry, as_root: bool) -> io::Result<()> {
    if as_root {
        let (uid, gid) = ids(entry);
        fchown(file, uid, gid)?;
    }
    fchmod(file, Mode::from_raw_mode(entry.mode))?;
    Ok(futimens(file, &times(entry))?)
}

fn own_and_date_at(dir: BorrowedFd<'_>, name: &[u8], entry: &Entry, as_root: bool) -> io::Result<()> {
    if as_root {
        let (uid, gid) = ids(entry);
        chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(utimensat(dir, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?)
}
