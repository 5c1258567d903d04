//! What an archive is packed with: recognised by its first bytes, unpacked as a stream, and measured on both sides.

use super::bzip2;
use super::member::{broken, read_fully};
use liblzma::stream::{CONCATENATED, Stream};
use std::cell::Cell;
use std::io::{self, BufReader, Cursor, Read};
use std::rc::Rc;
use workroom_types::{ArchiveCaps, Problem};

/// Enough to tell every kind.
const HEAD: usize = 512;

/// The most memory that unpacking xz may take: what `xz -9` needs, and some more.
const XZ_MEMORY: u64 = 128 << 20;

/// As many unpacked bytes as are not held against an archive: a small file of zeros packs very well.
const RATIO_FREE: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
    Zip,
}

impl Packing {
    fn of(head: &[u8]) -> Option<Packing> {
        let tar = head.len() == HEAD
            && (&head[257..262] == b"ustar"
                || head.iter().all(|byte| *byte == 0)
                || super::tar::has_checksum(head));
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Some(Packing::Bzip2),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Packing::Zip),
            _ if tar => Some(Packing::Plain),
            _ => None,
        }
    }
}

/// How much has come out of how much.
pub(super) struct Meter {
    pub(super) caps: ArchiveCaps,
    pub(super) packed: Cell<u64>,
    unpacked: Cell<u64>,
}

impl Meter {
    pub(super) fn new(caps: ArchiveCaps) -> Rc<Meter> {
        Rc::new(Meter { caps, packed: Cell::new(0), unpacked: Cell::new(0) })
    }

    fn came_out(&self, bytes: usize) -> Result<(), Problem> {
        let unpacked = self.unpacked.get() + bytes as u64;
        self.unpacked.set(unpacked);
        let ratio = self.caps.ratio;
        if unpacked > RATIO_FREE && unpacked / ratio.max(1) > self.packed.get() {
            return Err(Problem::limit(
                "archive_ratio",
                format!(
                    "the archive unpacks to more than {ratio} times its size, and nothing of it was kept"
                ),
                "pack it less tightly if it is meant to be so",
            ));
        }
        Ok(())
    }
}

/// The packed side.
pub(super) struct Packed<R> {
    inner: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.meter.packed.set(self.meter.packed.get() + read as u64);
        Ok(read)
    }
}

/// The unpacked side. Its errors can be a [`Problem`]: the ratio is judged here.
pub(super) struct Unpacked<R> {
    inner: R,
    meter: Rc<Meter>,
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(inner: R, meter: &Rc<Meter>) -> Unpacked<R> {
        Unpacked { inner, meter: Rc::clone(meter) }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.meter.came_out(read).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// An archive of which the first bytes were looked at, and are still to be read.
pub(super) type Source<R> = io::Chain<Cursor<Vec<u8>>, Packed<R>>;

/// Looks at the first bytes of an archive.
pub(super) fn recognise<R: Read>(input: R, meter: &Rc<Meter>) -> Result<(Packing, Source<R>), Problem> {
    let mut input = Packed { inner: input, meter: Rc::clone(meter) };
    let mut head = vec![0; HEAD];
    let read = read_fully(&mut input, &mut head)?;
    head.truncate(read);
    if head.is_empty() {
        return Err(broken("it is empty"));
    }
    let packing = Packing::of(&head).ok_or_else(|| {
        broken("it is neither a tar, plain or packed with gzip, bzip2, xz or zstd, nor a zip")
    })?;
    Ok((packing, Cursor::new(head).chain(input)))
}

/// The bytes of a tar.
pub(super) fn unpack<'a, R: Read + 'a>(
    packing: Packing,
    source: Source<R>,
    meter: &Rc<Meter>,
) -> Result<Unpacked<Box<dyn Read + 'a>>, Problem> {
    let source = BufReader::with_capacity(64 << 10, source);
    let inner: Box<dyn Read> = match packing {
        Packing::Plain | Packing::Zip => Box::new(source),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Packing::Bzip2 => Box::new(bzip2::Decoder::new(source)),
        Packing::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)
                .map_err(|error| broken(&format!("it cannot be unpacked: {error}")))?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(source, stream))
        }
        Packing::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(source);
            Box::new(decoder.map_err(|error| broken(&format!("it cannot be unpacked: {error}")))?)
        }
    };
    Ok(Unpacked::new(inner, meter))
}
