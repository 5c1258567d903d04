//! Reading a tar: ustar, PAX and GNU long names, strict where two readers could disagree on what a tar holds.

use super::member::{Kind, LONGEST_PATH, Member, broken, fault, read_fully, refused, shown};
use std::io::{self, Read};
use workroom_types::Problem;

const BLOCK: usize = 512;

/// The largest size that a ustar header can say in digits.
const LARGEST_IN_DIGITS: u64 = 0o77777777777;

/// The largest extension header that is read.
const LARGEST_EXTENSION: u64 = 1 << 20;

pub(super) struct Tar<R> {
    inner: R,
    /// Of the member's content, and of the zeros behind it.
    left: u64,
    padding: u64,
    /// Headers that were not of members.
    extensions: u64,
    most_extensions: u64,
}

/// What PAX and GNU headers say of the member that follows.
#[derive(Default)]
struct Said {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    owner: (Option<u64>, Option<u64>),
    xattrs: u64,
    pax: bool,
    anything: bool,
}

/// Whether a block begins a tar that is older than its magic number.
pub(super) fn has_checksum(block: &[u8]) -> bool {
    let header = ::tar::Header::from_byte_slice(block);
    let sum = |byte: fn(u8) -> i64| -> i64 {
        let bytes = block.iter().enumerate();
        bytes.map(|(at, value)| if (148..156).contains(&at) { 32 } else { byte(*value) }).sum()
    };
    // Some old writers have taken bytes for signed ones.
    header.cksum().is_ok_and(|stated| {
        i64::from(stated) == sum(i64::from) || i64::from(stated) == sum(|byte| i64::from(byte as i8))
    })
}

impl<R: Read> Tar<R> {
    pub(super) fn new(inner: R, most_extensions: u64) -> Tar<R> {
        Tar { inner, left: 0, padding: 0, extensions: 0, most_extensions }
    }

    /// The next member; its content is read from this reader. After the last one nothing but zeros may follow.
    pub(super) fn next(&mut self) -> Result<Option<Member>, Problem> {
        let mut said = Said::default();
        loop {
            self.skip()?;
            let mut block = [0; BLOCK];
            match read_fully(&mut self.inner, &mut block)? {
                BLOCK => {}
                _ => return Err(broken("it is cut off before its end")),
            }
            if block.iter().all(|byte| *byte == 0) {
                if said.anything {
                    return Err(broken("it ends after a header that announces a member"));
                }
                self.drain()?;
                return Ok(None);
            }
            if !has_checksum(&block) {
                return Err(broken("a header's checksum is wrong, or it is no tar"));
            }
            let header = ::tar::Header::from_byte_slice(&block);
            let size = number(header.entry_size())?;
            match block[156] {
                b'x' | b'g' | b'L' | b'K' => self.extension(block[156], size, &mut said)?,
                _ => return self.member(header, size, said).map(Some),
            }
        }
    }

    fn extension(&mut self, kind: u8, size: u64, said: &mut Said) -> Result<(), Problem> {
        self.extensions += 1;
        if self.extensions > self.most_extensions {
            return Err(Problem::limit(
                "archive_entries",
                format!("the archive has more than {} headers beside its members", self.most_extensions),
                "",
            ));
        }
        if size > LARGEST_EXTENSION {
            return Err(broken("a header for a long name or for attributes is larger than 1 MiB"));
        }
        let mut body = vec![0; size as usize];
        self.content(size);
        if read_fully(self, &mut body)? != body.len() {
            return Err(broken("it is cut off before its end"));
        }
        match kind {
            b'x' if said.pax => return Err(broken("a member has two extended headers")),
            b'x' => {
                (said.pax, said.anything) = (true, true);
                records(&body, |key, value| said.take(key, value))?;
            }
            // Said of all members that follow: only what nobody would notice is passed over.
            b'g' => records(&body, |key, _| match key {
                b"path" | b"linkpath" | b"size" => {
                    Err(broken(&format!("a global header sets \"{}\" of every member", shown(key))))
                }
                _ => Ok(()),
            })?,
            _ => {
                let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
                body.truncate(end);
                let name = if kind == b'L' { &mut said.path } else { &mut said.target };
                if name.replace(body).is_some() {
                    return Err(broken("a member has two long names"));
                }
                said.anything = true;
            }
        }
        Ok(())
    }

    fn member(&mut self, header: &::tar::Header, stated: u64, said: Said) -> Result<Member, Problem> {
        let name = said.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let size = said.size.unwrap_or(stated);
        let replaced = size > LARGEST_IN_DIGITS && (stated == 0 || stated == LARGEST_IN_DIGITS);
        if size > i64::MAX as u64 {
            return Err(refused(&name, "has an impossible size"));
        }
        if size != stated && !replaced {
            return Err(refused(&name, &format!("has two sizes, {stated} and {size}")));
        }
        let code = header.as_bytes()[156];
        let kind = match code {
            // Before there was a type for directories they were told by their name.
            b'0' | 0 if name.ends_with(b"/") && size == 0 => Kind::Directory,
            b'0' | 0 => Kind::File,
            b'5' => Kind::Directory,
            b'2' => {
                let plain = || header.link_name_bytes().map(|name| name.into_owned());
                Kind::Symlink(said.target.or_else(plain).unwrap_or_default())
            }
            b'1' => return Err(refused(&name, "is a hard link")),
            b'3' | b'4' => return Err(refused(&name, "is a device")),
            b'6' => return Err(refused(&name, "is a FIFO")),
            b'S' => return Err(refused(&name, "is a sparse file")),
            other => return Err(refused(&name, &format!("is of an unknown type, \"{}\"", shown(&[other])))),
        };
        if kind != Kind::File && size != 0 {
            return Err(refused(&name, "is no file and has a content"));
        }
        self.content(size);
        let plain_time = || header.mtime().ok().and_then(|seconds| Some((i64::try_from(seconds).ok()?, 0)));
        Ok(Member {
            name,
            kind,
            size,
            mode: number(header.mode())?,
            mtime: said.mtime.or_else(plain_time),
            owner: (
                said.owner.0.or(header.uid().ok()).unwrap_or(0),
                said.owner.1.or(header.gid().ok()).unwrap_or(0),
            ),
            xattrs: said.xattrs,
        })
    }

    fn content(&mut self, size: u64) {
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
    }

    /// Passes over what is left of a member.
    fn skip(&mut self) -> Result<(), Problem> {
        let left = self.left + std::mem::take(&mut self.padding);
        self.left = 0;
        let skipped = io::copy(&mut (&mut self.inner).take(left), &mut io::sink()).map_err(fault)?;
        if skipped == left { Ok(()) } else { Err(broken("it is cut off before its end")) }
    }

    /// Reads to the end of the stream, which also has the packing's last checksum looked at.
    fn drain(&mut self) -> Result<(), Problem> {
        let mut buffer = [0; 8192];
        loop {
            match read_fully(&mut self.inner, &mut buffer)? {
                0 => return Ok(()),
                read if buffer[..read].iter().all(|byte| *byte == 0) => {}
                _ => return Err(broken("something follows its end")),
            }
        }
    }
}

impl<R: Read> Read for Tar<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(&mut out[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

impl Said {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Problem> {
        // Nothing as a value takes back what a global header said.
        if value.is_empty() {
            return Ok(());
        }
        let digits = || {
            let text = std::str::from_utf8(value).ok()?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten()
        };
        let wrong = || broken(&format!("an extended header has \"{}\" for \"{}\"", shown(value), shown(key)));
        match key {
            b"path" | b"linkpath" if value.contains(&0) || value.len() > 4 * LONGEST_PATH => {
                return Err(wrong());
            }
            b"path" | b"linkpath" => {
                let name = if key == b"path" { &mut self.path } else { &mut self.target };
                if name.replace(value.to_vec()).is_some() {
                    return Err(broken("a member has two long names"));
                }
            }
            b"size" => self.size = Some(digits().ok_or_else(wrong)?),
            b"mtime" => self.mtime = Some(time(value).ok_or_else(wrong)?),
            b"uid" => self.owner.0 = digits(),
            b"gid" => self.owner.1 = digits(),
            key if key.starts_with(b"GNU.sparse.") => return Err(broken("a member is a sparse file")),
            key if key.starts_with(b"SCHILY.xattr.") || key.starts_with(b"LIBARCHIVE.xattr.") => {
                self.xattrs += 1
            }
            key if key.starts_with(b"SCHILY.acl.") => self.xattrs += 1,
            _ => {}
        }
        Ok(())
    }
}

/// `length key=value\n`, one after the other; the length counts itself.
fn records(body: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Problem>) -> Result<(), Problem> {
    let wrong = || broken("an extended header is not made as it should be");
    let mut rest = body;
    while !rest.is_empty() {
        let blank = rest.iter().position(|byte| *byte == b' ').filter(|at| *at < 8).ok_or_else(wrong)?;
        let length: usize =
            std::str::from_utf8(&rest[..blank]).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let record =
            rest.get(blank + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(wrong)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        each(&record[..equals], &record[equals + 1..])?;
        rest = &rest[length..];
    }
    Ok(())
}

/// Seconds with a fraction.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}")[..9].parse().ok()?;
    Some((seconds.parse().ok()?, nanoseconds))
}

fn number<T>(field: io::Result<T>) -> Result<T, Problem> {
    field.map_err(|error| broken(&format!("a header has a number that cannot be read ({error})")))
}
