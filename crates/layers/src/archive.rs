//! The tar format as far as layers need it: POSIX headers, each with a pax record of what does not fit in them.
//!
//! What comes from elsewhere is not trusted: a record has a largest size, and whatever is not written here is refused.

use std::io::{self, Read, Write};
use workroom_types::{Problem, ProblemCode};

const BLOCK: usize = 512;
/// Of the pax record of one entry: a path and attributes.
const LARGEST_RECORD: u64 = 1 << 20;
/// The largest size that a header holds.
const LARGEST_OCTAL: u64 = 0o77_777_777_777;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    Fifo,
    /// A character device; only that without a number is ever written or read.
    Whiteout,
}

const KINDS: [(Kind, u8); 6] = [
    (Kind::File, b'0'),
    (Kind::HardLink, b'1'),
    (Kind::Symlink, b'2'),
    (Kind::Whiteout, b'3'),
    (Kind::Directory, b'5'),
    (Kind::Fifo, b'6'),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Bytes that follow.
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i128,
    /// Of links.
    pub(crate) target: Vec<u8>,
    /// More records, by their keys.
    pub(crate) more: Vec<Record>,
}

impl Entry {
    pub(crate) fn new(path: Vec<u8>, kind: Kind) -> Entry {
        let (target, more) = (Vec::new(), Vec::new());
        Entry { path, kind, mode: 0o644, uid: 0, gid: 0, size: 0, modified: 0, target, more }
    }

    pub(crate) fn record(&self, key: &[u8]) -> Option<&[u8]> {
        self.more.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_slice())
    }
}

pub(crate) fn refused(why: impl Into<String>) -> io::Error {
    let detail = format!("the file cannot be imported: {}", why.into());
    io::Error::other(Problem::new(ProblemCode::ArchiveRefused, detail, "nothing of it was kept"))
}

/// Writes the header of an entry; its content follows, and [`write_padding`].
pub(crate) fn write_entry(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let mut record = Vec::new();
    add_record(&mut record, b"path", &entry.path);
    if !entry.target.is_empty() {
        add_record(&mut record, b"linkpath", &entry.target);
    }
    let (sign, nanos) = (if entry.modified < 0 { "-" } else { "" }, entry.modified.unsigned_abs());
    let time = format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    add_record(&mut record, b"mtime", time.as_bytes());
    if entry.size > LARGEST_OCTAL {
        add_record(&mut record, b"size", entry.size.to_string().as_bytes());
    }
    for (key, value) in &entry.more {
        add_record(&mut record, key, value);
    }
    if record.len() as u64 > LARGEST_RECORD {
        let (code, hint) = (ProblemCode::InvalidArgument, "shorten its path or remove attributes of it");
        let detail = "a path with its attributes is longer than a megabyte and cannot be exported";
        return Err(io::Error::other(Problem::new(code, detail, hint)));
    }
    out.write_all(&header(b"pax", b'x', 0o644, 0, 0, record.len() as u64, 0, b""))?;
    out.write_all(&record)?;
    write_padding(out, record.len() as u64)?;
    let flag = KINDS.iter().find(|(kind, _)| *kind == entry.kind).map_or(b'0', |(_, flag)| *flag);
    let size = if entry.size > LARGEST_OCTAL { 0 } else { entry.size };
    let seconds = (entry.modified.max(0) / 1_000_000_000) as u64;
    let header = header(&entry.path, flag, entry.mode, entry.uid, entry.gid, size, seconds, &entry.target);
    out.write_all(&header)
}

pub(crate) fn write_padding(out: &mut impl Write, size: u64) -> io::Result<()> {
    out.write_all(&[0; BLOCK][..padding(size)])
}

/// Two empty blocks are the end.
pub(crate) fn write_end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

fn padding(size: u64) -> usize {
    (BLOCK - size as usize % BLOCK) % BLOCK
}

/// `LENGTH KEY=VALUE LF`, where the length counts itself.
fn add_record(record: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    record.extend_from_slice(format!("{length} ").as_bytes());
    record.extend_from_slice(key);
    record.push(b'=');
    record.extend_from_slice(value);
    record.push(b'\n');
}

#[expect(clippy::too_many_arguments, reason = "a header has these fields")]
fn header(
    name: &[u8],
    flag: u8,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    seconds: u64,
    target: &[u8],
) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8], most: usize| {
        let length = bytes.len().min(most);
        block[at..at + length].copy_from_slice(&bytes[..length]);
    };
    put(0, name, 100);
    put(100, format!("{mode:07o}").as_bytes(), 8);
    put(108, format!("{uid:07o}").as_bytes(), 8);
    put(116, format!("{gid:07o}").as_bytes(), 8);
    put(124, format!("{size:011o}").as_bytes(), 12);
    put(136, format!("{:011o}", seconds.min(LARGEST_OCTAL)).as_bytes(), 12);
    put(148, b"        ", 8);
    put(156, &[flag], 1);
    put(157, target, 100);
    put(257, b"ustar\x0000", 8);
    put(329, b"0000000", 8);
    put(337, b"0000000", 8);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A name and a value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// Reads what [`write_entry`] writes.
pub(crate) struct Reader<R> {
    from: R,
    /// Bytes of the last entry that were not read yet, and its padding.
    left: u64,
    padding: usize,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(from: R) -> Reader<R> {
        Reader { from, left: 0, padding: 0 }
    }

    /// The next entry, whose content [`Read`] gives; none at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        io::copy(&mut self.by_ref(), &mut io::sink())?;
        self.skip_padding()?;
        let Some(block) = self.block()? else { return Ok(None) };
        if block[156] != b'x' {
            return Err(refused("it was not made by an export"));
        }
        let size = octal(&block[124..136])?;
        if size > LARGEST_RECORD {
            return Err(refused("a path with its attributes is longer than a megabyte"));
        }
        let mut record = vec![0; size as usize];
        self.from.read_exact(&mut record)?;
        self.padding = padding(size);
        self.skip_padding()?;
        let block = self.block()?.ok_or_else(|| refused("it ends in the middle of an entry"))?;
        let entry = read_entry(&block, &record)?;
        (self.left, self.padding) = (entry.size, padding(entry.size));
        Ok(Some(entry))
    }

    /// To be called after the last entry: whether the file comes to its own end, undamaged, with nothing behind it.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        loop {
            match self.from.read(&mut buffer)? {
                0 => return Ok(()),
                count if buffer[..count].iter().all(|byte| *byte == 0) => {}
                _ => return Err(refused("something follows its end")),
            }
        }
    }

    fn skip_padding(&mut self) -> io::Result<()> {
        let mut rest = [0; BLOCK];
        let length = std::mem::take(&mut self.padding);
        self.from.read_exact(&mut rest[..length])
    }

    /// One header; none if it is the empty one at the end.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        self.from.read_exact(&mut block)?;
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let told = octal(&block[148..156])?;
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let own: u64 = block[148..156].iter().map(|byte| u64::from(*byte)).sum();
        if &block[257..262] != b"ustar" || sum - own + 8 * 32 != told {
            return Err(refused("it is damaged"));
        }
        Ok(Some(block))
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        match self.from.read(&mut buffer[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}

fn read_entry(block: &[u8; BLOCK], record: &[u8]) -> io::Result<Entry> {
    let kind = KINDS.iter().find(|(_, flag)| *flag == block[156]).map(|(kind, _)| *kind);
    let kind = kind.ok_or_else(|| refused("it holds something that layers do not"))?;
    let id = |bytes: &[u8]| octal(bytes).map(|id| id.min(65535) as u32);
    let mut entry = Entry {
        mode: octal(&block[100..108])? as u32 & 0o7777,
        uid: id(&block[108..116])?,
        gid: id(&block[116..124])?,
        size: octal(&block[124..136])?,
        ..Entry::new(Vec::new(), kind)
    };
    if kind == Kind::Whiteout && (octal(&block[329..337])?, octal(&block[337..345])?) != (0, 0) {
        return Err(refused("it holds a device"));
    }
    for (key, value) in records(record)? {
        match key.as_slice() {
            b"path" => entry.path = value,
            b"linkpath" => entry.target = value,
            b"mtime" => entry.modified = nanoseconds(&value)?,
            b"size" => entry.size = number(&value)?,
            _ => entry.more.push((key, value)),
        }
    }
    if kind != Kind::File && entry.size != 0 {
        return Err(refused("something that is no file has content"));
    }
    Ok(entry)
}

fn records(mut record: &[u8]) -> io::Result<Vec<Record>> {
    let broken = || refused("a record is damaged");
    let mut found = Vec::new();
    while !record.is_empty() {
        let space = record.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
        let length = number(&record[..space])? as usize;
        if length <= space + 1 || length > record.len() || record[length - 1] != b'\n' {
            return Err(broken());
        }
        let pair = &record[space + 1..length - 1];
        let equals = pair.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
        found.push((pair[..equals].to_vec(), pair[equals + 1..].to_vec()));
        record = &record[length..];
    }
    Ok(found)
}

fn octal(bytes: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(bytes).unwrap_or("?");
    let digits = text.trim_matches(|character| character == '\0' || character == ' ');
    u64::from_str_radix(digits, 8).map_err(|_| refused("a header is damaged"))
}

pub(crate) fn number(bytes: &[u8]) -> io::Result<u64> {
    let digits =
        std::str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| refused("a number is none"))
}

fn nanoseconds(text: &[u8]) -> io::Result<i128> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let dot = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (seconds, rest) = (number(&text[..dot])?, text.get(dot + 1..).unwrap_or(b""));
    if seconds > i64::MAX as u64 / 2 || rest.len() > 9 {
        return Err(refused("a time is none"));
    }
    let nanos = if rest.is_empty() { 0 } else { number(rest)? * 10u64.pow(9 - rest.len() as u32) };
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Ok(if is_negative { -total } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut entry = Entry::new(vec![b'a'; 98], Kind::Symlink);
        entry.target = b"/some\nwhere\xff".to_vec();
        entry.modified = -1_500_000_001;
        entry.more.push((b"SCHILY.xattr.user.x".to_vec(), b"a=b\n\0".to_vec()));
        let file = Entry { size: 3, uid: 1000, ..Entry::new(b"word".to_vec(), Kind::File) };
        let mut written = Vec::new();
        write_entry(&mut written, &entry).unwrap();
        write_entry(&mut written, &file).unwrap();
        written.extend_from_slice(b"abc");
        write_padding(&mut written, 3).unwrap();
        write_end(&mut written).unwrap();
        let mut reader = Reader::new(written.as_slice());
        assert_eq!(reader.next().unwrap(), Some(entry));
        assert_eq!(reader.next().unwrap(), Some(file));
        assert_eq!(reader.next().unwrap(), None);
        // Whatever is cut off or changed is refused, and nothing panics.
        for end in 0..written.len() - 2 * BLOCK {
            let mut reader = Reader::new(&written[..end]);
            while let Ok(Some(_)) = reader.next() {}
        }
        for at in 0..written.len() {
            let mut changed = written.clone();
            changed[at] ^= 0x15;
            let mut reader = Reader::new(changed.as_slice());
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
