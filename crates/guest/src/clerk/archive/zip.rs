//! Reading a zip that lies in a file: the directory at its end, entry by entry, against what stands before each member.
//!
//! Nothing of the directory is kept in memory. What the two descriptions of a member disagree on is not decided, but
//! refused.

use super::member::{Kind, LONGEST_PATH, Member, broken, fault, read_fully, refused};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use workroom_types::Problem;

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_LOCATOR: u32 = 0x0706_4b50;
const ENTRY: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const ENCRYPTED: u16 = 1;
/// Sizes and checksum follow the content.
const FOLLOWED: u16 = 8;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

pub(super) struct Zip<'a> {
    file: &'a File,
    entries: BufReader<Part<'a>>,
    left: u64,
    /// Where the directory begins: contents end before it.
    directory: u64,
    /// Of all members so far: contents that overlap would be more than the file.
    packed: u64,
}

/// A member, and where its content is.
pub(super) struct Stored {
    pub(super) member: Member,
    method: u16,
    crc: u32,
    packed: u64,
    start: u64,
}

/// A part of a file, read without moving anybody's position.
struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut out[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<'a> Zip<'a> {
    pub(super) fn open(file: &'a File) -> Result<Zip<'a>, Problem> {
        let size = file.metadata().map_err(fault)?.len();
        // The end has a comment of up to 64 KiB.
        let tail_start = size.saturating_sub(22 + 0xffff);
        let mut tail = vec![0; (size - tail_start) as usize];
        file.read_exact_at(&mut tail, tail_start).map_err(fault)?;
        let ends_here = |at: &usize| {
            let fields = Fields(&tail[*at..]);
            fields.u32(0) == Some(END)
                && fields.u16(20).is_some_and(|comment| at + 22 + usize::from(comment) == tail.len())
        };
        let end = (0..tail.len().saturating_sub(21)).rev().find(ends_here);
        let end = end.ok_or_else(|| broken("it has no directory at its end; it may be cut off"))?;
        let (entries, length, start) = read_end(file, &tail, end, tail_start)?;
        let beyond =
            start.checked_add(length).is_none_or(|directory_end| directory_end > tail_start + end as u64);
        if beyond {
            return Err(broken("its directory is not where it says"));
        }
        let part = Part { file, at: start, end: start + length };
        Ok(Zip {
            file,
            entries: BufReader::with_capacity(64 << 10, part),
            left: entries,
            directory: start,
            packed: 0,
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Stored>, Problem> {
        if self.left == 0 {
            let mut more = [0];
            let more = read_fully(&mut self.entries, &mut more)?;
            return if more == 0 {
                Ok(None)
            } else {
                Err(broken("its directory has more entries than it says"))
            };
        }
        self.left -= 1;
        let fixed = self.take(46)?;
        let fields = Fields(&fixed);
        if fields.u32(0) != Some(ENTRY) {
            return Err(broken("its directory is broken"));
        }
        let length = |at| fields.u16(at).map(usize::from).unwrap_or_default();
        let name = self.take(length(28))?;
        let extra = self.take(length(30))?;
        self.take(length(32))?;
        self.entry(&fixed, name, &extra).map(Some)
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; length];
        let read = read_fully(&mut self.entries, &mut bytes)?;
        if read == length { Ok(bytes) } else { Err(broken("its directory has fewer entries than it says")) }
    }

    fn entry(&mut self, fixed: &[u8], name: Vec<u8>, extra: &[u8]) -> Result<Stored, Problem> {
        let fields = Fields(fixed);
        let short = || broken("its directory is broken");
        let refuse = |why: &str| Err(refused(&name, why));
        let u16_at = |at| fields.u16(at).ok_or_else(short);
        let u32_at = |at| fields.u32(at).ok_or_else(short);
        let (made_by, flags, method, crc) = (u16_at(4)?, u16_at(8)?, u16_at(10)?, u32_at(16)?);
        if flags & ENCRYPTED != 0 {
            return refuse("is encrypted");
        }
        if method != STORED && method != DEFLATED {
            return refuse(&format!("is packed by a method that is not known here, {method}"));
        }
        let mut wide = Wide::new(extra);
        let size = wide.or(u32_at(24)?).ok_or_else(short)?;
        let packed = wide.or(u32_at(20)?).ok_or_else(short)?;
        let offset = wide.or(u32_at(42)?).ok_or_else(short)?;
        if method == STORED && size != packed {
            return refuse("has two sizes");
        }
        let attributes = u32_at(38)?;
        // Only of Unix, the upper half is a mode.
        let mode = if made_by >> 8 == 3 { attributes >> 16 } else { 0 };
        let is_directory = name.ends_with(b"/");
        let kind = match mode & 0o170_000 {
            0o040_000 if is_directory => Kind::Directory,
            0 if is_directory => Kind::Directory,
            0o100_000 | 0 if !is_directory => Kind::File,
            0o120_000 if !is_directory => Kind::Symlink(Vec::new()),
            0o040_000 | 0o100_000 | 0o120_000 | 0 => {
                return refuse("is a directory by its name or by its mode, not both");
            }
            _ => return refuse("is neither a file, a directory nor a link"),
        };
        if kind == Kind::Directory && size != 0 {
            return refuse("is no file and has a content");
        }
        let permissions = match (mode & 0o7777, &kind) {
            (0, Kind::Directory) => 0o755,
            (0, _) => 0o644,
            (mode, _) => mode,
        };
        let start = self.local(&name, flags, method, crc, (packed, size), offset)?;
        self.packed = self.packed.saturating_add(packed);
        if start.checked_add(packed).is_none_or(|end| end > self.directory) || self.packed > self.directory {
            return refuse("lies outside the archive, or over another member");
        }
        let time = (u16_at(12)?, u16_at(14)?);
        let owner = unix_owner(extra);
        let mut stored = Stored {
            member: Member {
                name,
                kind,
                size,
                mode: permissions,
                mtime: Some(mtime(extra, time)),
                owner,
                xattrs: 0,
            },
            method,
            crc,
            packed,
            start,
        };
        if matches!(stored.member.kind, Kind::Symlink(_)) {
            stored.member.kind = Kind::Symlink(self.target(&stored)?);
        }
        Ok(stored)
    }

    /// What stands before a member's content must say the same. Returns where the content begins.
    fn local(
        &self,
        name: &[u8],
        flags: u16,
        method: u16,
        crc: u32,
        sizes: (u64, u64),
        offset: u64,
    ) -> Result<u64, Problem> {
        let mut fixed = [0; 30];
        let outside = || refused(name, "lies outside the archive");
        self.file.read_exact_at(&mut fixed, offset).map_err(|_| outside())?;
        let fields = Fields(&fixed);
        let (name_length, extra_length) = match (fields.u32(0), fields.u16(26), fields.u16(28)) {
            (Some(LOCAL), Some(name), Some(extra)) => (usize::from(name), usize::from(extra)),
            _ => return Err(refused(name, "is not where the archive's directory says")),
        };
        let mut rest = vec![0; name_length + extra_length];
        self.file.read_exact_at(&mut rest, offset + 30).map_err(|_| outside())?;
        let (own_name, extra) = rest.split_at(name_length);
        let mut wide = Wide::new(extra);
        let own_sizes =
            (fields.u32(22).and_then(|size| wide.or(size)), fields.u32(18).and_then(|size| wide.or(size)));
        let follows = flags & FOLLOWED != 0;
        let says = (own_sizes.1, own_sizes.0, fields.u32(14));
        let agrees = says == (Some(sizes.0), Some(sizes.1), Some(crc));
        let silent = matches!(says.2, Some(0)) && own_sizes.0.is_none_or(|size| size == 0 || size == sizes.1);
        if own_name != name
            || fields.u16(8) != Some(method)
            || fields.u16(6).map(|own| own & (ENCRYPTED | FOLLOWED)) != Some(flags & (ENCRYPTED | FOLLOWED))
            || !(agrees || follows && silent)
        {
            return Err(refused(name, "is described in two ways that disagree"));
        }
        Ok(offset + 30 + rest.len() as u64)
    }

    /// The content of a member.
    pub(super) fn content(&self, stored: &Stored) -> Content<'a> {
        let part = Part { file: self.file, at: stored.start, end: stored.start + stored.packed };
        let inner: Box<dyn Read + 'a> = match stored.method {
            DEFLATED => Box::new(flate2::read::DeflateDecoder::new(part)),
            _ => Box::new(part),
        };
        Content { inner, left: stored.member.size, crc: crc32fast::Hasher::new(), wanted: stored.crc }
    }

    fn target(&self, stored: &Stored) -> Result<Vec<u8>, Problem> {
        if stored.member.size > LONGEST_PATH as u64 {
            return Err(refused(&stored.member.name, "is a link to something too long for a path"));
        }
        let mut target = Vec::new();
        self.content(stored).read_to_end(&mut target).map_err(fault)?;
        Ok(target)
    }
}

/// A content of a stated size and checksum; that it has them is found when its end is read.
pub(super) struct Content<'a> {
    inner: Box<dyn Read + 'a>,
    left: u64,
    crc: crc32fast::Hasher,
    wanted: u32,
}

impl Read for Content<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
        if out.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            if self.inner.read(&mut [0])? != 0 {
                return Err(wrong("a member is longer than it says"));
            }
            if self.crc.clone().finalize() != self.wanted {
                return Err(wrong("a member's checksum is wrong"));
            }
            return Ok(0);
        }
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut out[..most])?;
        if read == 0 {
            return Err(wrong("a member is shorter than it says"));
        }
        self.crc.update(&out[..read]);
        self.left -= read as u64;
        Ok(read)
    }
}

/// How many entries the directory has, how long it is, and where it begins.
fn read_end(file: &File, tail: &[u8], end: usize, tail_start: u64) -> Result<(u64, u64, u64), Problem> {
    let short = || broken("its end is broken");
    let fields = Fields(&tail[end..]);
    let (disk, entries, length, start) = (
        fields.u16(4).ok_or_else(short)?,
        fields.u16(10).ok_or_else(short)?,
        fields.u32(12).ok_or_else(short)?,
        fields.u32(16).ok_or_else(short)?,
    );
    let locator = end
        .checked_sub(20)
        .map(|at| Fields(&tail[at..]))
        .filter(|fields| fields.u32(0) == Some(END_64_LOCATOR));
    if let Some(locator) = locator {
        let mut fixed = [0; 56];
        file.read_exact_at(&mut fixed, locator.u64(8).ok_or_else(short)?).map_err(|_| short())?;
        let fields = Fields(&fixed);
        let one_disk = fields.u32(16) == Some(0) && fields.u64(24) == fields.u64(32);
        let wide = (fields.u64(32), fields.u64(40), fields.u64(48));
        let (Some(END_64), true, (Some(all), Some(long), Some(first))) = (fields.u32(0), one_disk, wide)
        else {
            return Err(short());
        };
        // Where the short end says something, it is the same.
        let agrees = (entries == u16::MAX || u64::from(entries) == all)
            && (length == u32::MAX || u64::from(length) == long)
            && (start == u32::MAX || u64::from(start) == first);
        return if agrees { Ok((all, long, first)) } else { Err(broken("its two ends disagree")) };
    }
    if disk != 0 || fields.u16(8) != Some(entries) || tail_start.checked_add(end as u64).is_none() {
        return Err(broken("it is one of several parts"));
    }
    Ok((u64::from(entries), u64::from(length), u64::from(start)))
}

/// Little-endian numbers of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        self.0.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.0.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.0.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// One extra field of an entry.
fn extra_field(extra: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = extra;
    loop {
        let (kind, length) = (Fields(rest).u16(0)?, usize::from(Fields(rest).u16(2)?));
        let body = rest.get(4..4 + length)?;
        if kind == wanted {
            return Some(body);
        }
        rest = &rest[4 + length..];
    }
}

/// The numbers that did not fit, in the order in which they did not.
struct Wide<'a> {
    rest: &'a [u8],
}

impl<'a> Wide<'a> {
    fn new(extra: &'a [u8]) -> Wide<'a> {
        Wide { rest: extra_field(extra, 1).unwrap_or_default() }
    }

    fn or(&mut self, short: u32) -> Option<u64> {
        if short != u32::MAX {
            return Some(u64::from(short));
        }
        let value = Fields(self.rest).u64(0)?;
        self.rest = &self.rest[8..];
        Some(value)
    }
}

/// Info-ZIP writes owners as numbers of stated lengths.
fn unix_owner(extra: &[u8]) -> (u64, u64) {
    let read = |field: &[u8]| {
        let number = |at: usize| -> Option<(u64, usize)> {
            let length = usize::from(*field.get(at)?);
            let bytes = field.get(at + 1..at + 1 + length).filter(|bytes| bytes.len() <= 8)?;
            Some((bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)), at + 1 + length))
        };
        let (uid, next) = number(1)?;
        Some((uid, number(next)?.0))
    };
    extra_field(extra, 0x7875).and_then(read).unwrap_or((0, 0))
}

/// The time in seconds where a program wrote it; else the clock on the wall, taken for UTC.
fn mtime(extra: &[u8], (time, date): (u16, u16)) -> (i64, u32) {
    if let Some(field) = extra_field(extra, 0x5455)
        && field.first().is_some_and(|flags| flags & 1 != 0)
        && let Some(seconds) = Fields(field).u32(1)
    {
        return (i64::from(seconds as i32), 0);
    }
    let (year, month, day) = (1980 + i64::from(date >> 9), i64::from(date >> 5 & 15), i64::from(date & 31));
    let days = days_from_civil(year, month.clamp(1, 12), day.max(1));
    let seconds = i64::from(time >> 11) * 3600 + i64::from(time >> 5 & 63) * 60 + i64::from(time & 31) * 2;
    (days * 86_400 + seconds, 0)
}

/// Days since 1970 of a date, with the year begun in March so that the leap day is its last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}
