//! Giving a file or a tree out as an archive, as a stream and always in the same order.
//!
//! FIFOs, sockets and devices have no place in an archive, and leaving them out in silence would be a lie. So the tree is
//! looked through first, which is cheap beside reading its contents, and one such thing refuses the export before its
//! first byte. One that appears later breaks the stream off, without the end that every archive has.
//!
//! What a header has said must come: a file that becomes shorter while it is read is filled up with zeros, one that
//! becomes longer is cut. The archive stays readable, and the export fails when it is complete.

use super::super::failure::{busy, not_found, problem, wrong_kind};
use super::super::place::{Base, DIRECTORY, Last, Spot, is_directory, is_link, is_regular, open_regular};
use super::super::walk::{self, Entry, Next, Order, Visitor};
use super::zip_writer::ZipWriter;
use flate2::write::GzEncoder;
use rustix::fs::{Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_sys::place::is_mount_root;
use workroom_types::{ArchiveFormat, Problem, ProblemCode, RoomPath};

const BUFFER: usize = 128 << 10;
const ZSTD_LEVEL: i32 = 3;

/// A zip counts the bytes of a name in 16 bits; trees can be deeper than any path is long.
const LONGEST_NAME: usize = 0xffff;

/// Writes the archive to a pipe; `begin` is called when nothing stands against it, before the first byte. Returns how
/// many members it has. A reader that went away is no failure.
pub(crate) fn export(
    base: &Base,
    at: &RoomPath,
    format: ArchiveFormat,
    pipe: OwnedFd,
    begin: impl FnOnce() -> io::Result<()>,
) -> Result<u64, Problem> {
    let what = What::find(base, at)?;
    let pipe = BufWriter::with_capacity(BUFFER, super::waiting(pipe, at)?);
    begin().map_err(|error| {
        Problem::new(ProblemCode::Internal, format!("the host does not listen: {error}"), "")
    })?;
    let archive = match format {
        ArchiveFormat::Tar => Archive::Tar(Sink::Plain(pipe)),
        ArchiveFormat::TarGz => {
            Archive::Tar(Sink::Gzip(GzEncoder::new(pipe, flate2::Compression::default())))
        }
        ArchiveFormat::TarZst => {
            let encoder = zstd::stream::write::Encoder::new(pipe, ZSTD_LEVEL);
            let encoder = encoder.and_then(|mut encoder| encoder.include_checksum(true).map(|()| encoder));
            let fail =
                |error| Problem::new(ProblemCode::Internal, format!("zstd does not begin: {error}"), "");
            Archive::Tar(Sink::Zstd(encoder.map_err(fail)?))
        }
        ArchiveFormat::Zip => Archive::Zip(ZipWriter::new(pipe)),
    };
    let mut giving = Giving { at, archive, buffer: vec![0; BUFFER], entries: 0, changed: None };
    let outcome = match what {
        What::File(spot, name) => giving.file(spot.dir.as_fd(), &spot.name, &name, at),
        What::Tree(top) => giving.tree(top),
    };
    match outcome.and_then(|()| giving.archive.finish().map_err(Broken::Pipe)) {
        Ok(()) => giving.changed.map_or(Ok(giving.entries), Err),
        Err(Broken::Pipe(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(giving.entries),
        Err(Broken::Pipe(error)) => {
            Err(Problem::new(ProblemCode::Internal, format!("the archive could not be sent: {error}"), ""))
        }
        Err(Broken::Problem(problem)) => Err(problem),
    }
}

/// What is to be exported.
enum What {
    File(Spot, Vec<u8>),
    Tree(OwnedFd),
}

impl What {
    fn find(base: &Base, at: &RoomPath) -> Result<What, Problem> {
        let found = base.open(at, Last::Follow)?;
        let stat = fstat(&found).map_err(|error| problem(error, at, "exported"))?;
        if is_regular(&stat) {
            let name = at.bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            return Ok(What::File(base.spot(at, Last::Follow)?, name));
        }
        if !is_directory(&stat) {
            return Err(wrong_kind(at, "neither a file nor a directory", "export a file or a directory"));
        }
        let top = base.open_directory(at)?;
        let again =
            openat(&top, c".", DIRECTORY, Mode::empty()).map_err(|error| problem(error, at, "exported"))?;
        walk::walk(again, at, Order::AsFound, &mut Look { at })?;
        Ok(What::Tree(top))
    }
}

/// Looks for what cannot be in an archive.
struct Look<'a> {
    at: &'a RoomPath,
}

impl Visitor for Look<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        if is_regular(entry.stat) || is_link(entry.stat) || is_directory(entry.stat) {
            return Ok(into_own(entry));
        }
        Err(unfit(&self.at.join(entry.path)))
    }

    fn shut(&mut self, entry: &Entry<'_>, error: Errno) -> Result<(), Problem> {
        Err(problem(error, &self.at.join(entry.path), "read"))
    }
}

/// A directory of the host is not the session's, and comes as an empty one; unless it is what is exported.
fn into_own(entry: &Entry<'_>) -> Next {
    let is_hosts = is_directory(entry.stat) && is_mount_root(entry.dir, entry.name).unwrap_or(false);
    if is_hosts { Next::Past } else { Next::Into }
}

fn unfit(path: &RoomPath) -> Problem {
    wrong_kind(
        path,
        "a FIFO, a socket or a device, which cannot be in an archive",
        "delete it, or export a directory that it is not in",
    )
}

/// Why an export ends early.
enum Broken {
    Pipe(io::Error),
    Problem(Problem),
}

impl From<Problem> for Broken {
    fn from(problem: Problem) -> Broken {
        Broken::Problem(problem)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Pipe(error)
    }
}

/// An export under way.
struct Giving<'a> {
    at: &'a RoomPath,
    archive: Archive,
    buffer: Vec<u8>,
    entries: u64,
    /// The first file that was not as its header says.
    changed: Option<Problem>,
}

impl Giving<'_> {
    fn tree(&mut self, top: OwnedFd) -> Result<(), Broken> {
        let mut visit = Visit { giving: self, pipe: None };
        let at = visit.giving.at;
        let outcome = walk::walk(top, at, Order::ByPath, &mut visit);
        match visit.pipe.take() {
            Some(error) => Err(Broken::Pipe(error)),
            None => Ok(outcome?),
        }
    }

    fn member(&mut self, entry: &Entry<'_>) -> Result<(), Broken> {
        let path = self.at.join(entry.path);
        if is_directory(entry.stat) {
            let name = [entry.path, b"/"].concat();
            self.add(&Header::new(&name, entry.stat, 0), &mut io::empty(), &path)?;
        } else if is_link(entry.stat) {
            let target = match readlinkat(entry.dir, entry.name, Vec::new()) {
                Ok(target) => target.into_bytes(),
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(problem(error, &path, "read").into()),
            };
            let header = Header { target: Some(&target), ..Header::new(entry.path, entry.stat, 0) };
            self.add(&header, &mut io::empty(), &path)?;
        } else if is_regular(entry.stat) {
            return self.file(entry.dir, entry.name, entry.path, &path);
        } else {
            return Err(unfit(&path).into());
        }
        Ok(())
    }

    fn add(&mut self, header: &Header<'_>, content: &mut dyn Read, path: &RoomPath) -> Result<(), Broken> {
        if header.name.len() > LONGEST_NAME {
            return Err(problem(Errno::NAMETOOLONG, path, "in an archive").into());
        }
        let mut content = Content { inner: content, buffer: &mut self.buffer };
        match &mut self.archive {
            Archive::Tar(sink) => tar_member(sink, header, &mut content)?,
            Archive::Zip(zip) => zip.add(header, &mut content)?,
        }
        self.entries += 1;
        Ok(())
    }

    fn file(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        member: &[u8],
        path: &RoomPath,
    ) -> Result<(), Broken> {
        let (file, stat) = match open_regular(dir, name, OFlags::RDONLY) {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => return Err(busy(path, "exported").into()),
            // Gone since it was listed; the only file that was asked for may not be.
            Err(Errno::NOENT) if self.at != path => return Ok(()),
            Err(Errno::NOENT) => return Err(not_found(path).into()),
            Err(error) => return Err(problem(error, path, "read").into()),
        };
        let size = stat.st_size as u64;
        let mut content = Steady { file: File::from(file), left: size, wrong: None };
        self.add(&Header::new(member, &stat, size), &mut content, path)?;
        let now = fstat(&content.file).map(|now| now.st_size as u64);
        let wrong = content.wrong.or_else(|| (now != Ok(size)).then(|| "changed its size".to_owned()));
        if let (Some(wrong), None) = (wrong, &self.changed) {
            self.changed = Some(Problem::new(
                ProblemCode::Busy,
                format!(
                    "\"{}\" {wrong} while it was exported; in the archive it has {size} bytes",
                    path.shown()
                ),
                "export it again when what writes to it has ended",
            ));
        }
        Ok(())
    }
}

/// The walk of an export; an error of the pipe is kept beside the walk, which knows only problems.
struct Visit<'a, 'b> {
    giving: &'a mut Giving<'b>,
    pipe: Option<io::Error>,
}

impl Visitor for Visit<'_, '_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        match self.giving.member(entry) {
            Ok(()) => Ok(into_own(entry)),
            Err(Broken::Problem(problem)) => Err(problem),
            Err(Broken::Pipe(error)) => {
                self.pipe = Some(error);
                Ok(Next::Stop)
            }
        }
    }

    fn shut(&mut self, entry: &Entry<'_>, error: Errno) -> Result<(), Problem> {
        Err(problem(error, &self.giving.at.join(entry.path), "read"))
    }
}

/// A file's content, of exactly the size that was said.
struct Steady {
    file: File,
    left: u64,
    wrong: Option<String>,
}

impl Read for Steady {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let out = &mut out[..most];
        let read = match &self.wrong {
            Some(_) => 0,
            None => match self.file.read(out) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.wrong = Some(format!("could not be read ({error})"));
                    0
                }
                Ok(read) => read,
            },
        };
        if read == 0 && most > 0 {
            self.wrong.get_or_insert_with(|| "changed its size".into());
            out.fill(0);
        }
        let read = if read == 0 { most } else { read };
        self.left -= read as u64;
        Ok(read)
    }
}

/// What an archive says of a member.
pub(super) struct Header<'a> {
    /// A directory's ends with a slash.
    pub(super) name: &'a [u8],
    /// Of a link.
    pub(super) target: Option<&'a [u8]>,
    pub(super) size: u64,
    /// With the file's type.
    pub(super) mode: u32,
    /// Seconds since 1970.
    pub(super) mtime: u64,
}

impl<'a> Header<'a> {
    fn new(name: &'a [u8], stat: &Stat, size: u64) -> Header<'a> {
        let mtime = u64::try_from(stat.st_mtime).unwrap_or(0);
        Header { name, target: None, size, mode: stat.st_mode, mtime }
    }
}

/// What a member holds, copied in large pieces.
pub(super) struct Content<'a> {
    inner: &'a mut dyn Read,
    buffer: &'a mut [u8],
}

impl Content<'_> {
    pub(super) fn copy(&mut self, out: &mut impl Write) -> io::Result<u64> {
        let mut copied = 0;
        loop {
            match self.inner.read(self.buffer) {
                Ok(0) => return Ok(copied),
                Ok(read) => {
                    out.write_all(&self.buffer[..read])?;
                    copied += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

enum Archive {
    Tar(Sink),
    Zip(ZipWriter<BufWriter<File>>),
}

impl Archive {
    fn finish(self) -> io::Result<()> {
        match self {
            Archive::Tar(mut sink) => {
                sink.write_all(&[0; 1024])?;
                match sink {
                    Sink::Plain(pipe) => Ok(pipe),
                    Sink::Gzip(encoder) => encoder.finish(),
                    Sink::Zstd(encoder) => encoder.finish(),
                }
            }
            Archive::Zip(zip) => zip.finish(),
        }?
        .flush()
    }
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(pipe) => pipe.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
            Sink::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(pipe) => pipe.flush(),
            Sink::Gzip(encoder) => encoder.flush(),
            Sink::Zstd(encoder) => encoder.flush(),
        }
    }
}

fn tar_member(out: &mut impl Write, header: &Header<'_>, content: &mut Content<'_>) -> io::Result<()> {
    long_name(out, b'L', header.name)?;
    long_name(out, b'K', header.target.unwrap_or_default())?;
    let kind = match (header.target, header.name.ends_with(b"/")) {
        (Some(_), _) => ::tar::EntryType::Symlink,
        (None, true) => ::tar::EntryType::Directory,
        (None, false) => ::tar::EntryType::Regular,
    };
    let mut block = tar_header(header.name, kind, header.size);
    block.set_mode(header.mode & 0o7777);
    block.set_mtime(header.mtime);
    if let (Some(target), Some(fields)) = (header.target, block.as_gnu_mut()) {
        fill(&mut fields.linkname, target);
    }
    block.set_cksum();
    out.write_all(block.as_bytes())?;
    content.copy(out)?;
    pad(out, header.size)
}

/// What does not fit into a header stands before it, as the content of a member of its own.
fn long_name(out: &mut impl Write, kind: u8, name: &[u8]) -> io::Result<()> {
    if name.len() <= 100 {
        return Ok(());
    }
    let size = name.len() as u64 + 1;
    let mut block = tar_header(b"././@LongLink", ::tar::EntryType::new(kind), size);
    block.set_mode(0o644);
    block.set_mtime(0);
    block.set_cksum();
    out.write_all(block.as_bytes())?;
    out.write_all(name)?;
    out.write_all(&[0])?;
    pad(out, size)
}

fn tar_header(name: &[u8], kind: ::tar::EntryType, size: u64) -> ::tar::Header {
    let mut block = ::tar::Header::new_gnu();
    if let Some(fields) = block.as_gnu_mut() {
        fill(&mut fields.name, name);
    }
    block.set_entry_type(kind);
    block.set_size(size);
    block.set_uid(0);
    block.set_gid(0);
    block
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
}

fn pad(out: &mut impl Write, size: u64) -> io::Result<()> {
    out.write_all(&[0; 512][..(size.next_multiple_of(512) - size) as usize])
}
