//! Reading files: a part in one answer, or the open file.

use super::failure::{not_found, problem, wrong_kind};
use super::info::etag;
use super::place::{Base, Last, open_regular};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::{Errno, pread};
use std::os::fd::{AsFd, OwnedFd};
use workroom_proto::MAX_MESSAGE;
use workroom_types::{Encoding, FileContent, Problem, ProblemCode, ReadFile, RoomPath};

const DEFAULT_LIMIT: u64 = 1 << 20;
const MOST_BYTES: u64 = 16 << 20;

/// As much of an answer as is not content.
const ENVELOPE: usize = 64 << 10;

const CHUNK: usize = 64 << 10;

/// Opens a regular file, following links; whatever else is there is not opened.
pub(crate) fn open_file(base: &Base, path: &RoomPath) -> Result<(OwnedFd, Stat), Problem> {
    if path.is_top() {
        return Err(not_a_file(path, FileType::Directory));
    }
    let spot = base.spot(path, Last::Follow)?;
    if spot.thing.is_none() {
        return Err(not_found(path));
    }
    match open_regular(spot.dir.as_fd(), &spot.name, OFlags::RDONLY) {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(kind)) => Err(not_a_file(path, kind)),
        Err(error) => Err(problem(error, path, "read")),
    }
}

/// Words for what is no regular file.
pub(crate) fn not_a_file(path: &RoomPath, kind: FileType) -> Problem {
    match kind {
        FileType::Directory => wrong_kind(path, "a directory", "list it, or name a file in it"),
        FileType::Fifo => wrong_kind(path, "a FIFO", "only regular files have contents to read or replace"),
        FileType::Socket => {
            wrong_kind(path, "a socket", "only regular files have contents to read or replace")
        }
        FileType::Symlink => wrong_kind(path, "a link that keeps changing", "try again"),
        _ => wrong_kind(path, "a device", "only regular files have contents to read or replace"),
    }
}

pub(crate) fn read(base: &Base, path: &RoomPath, asked: &ReadFile) -> Result<FileContent, Problem> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MOST_BYTES {
        return Err(Problem::invalid(
            format!("the limit {limit} is not between 1 and {MOST_BYTES} bytes"),
            STREAM_HINT,
        ));
    }
    let by_lines = asked.first_line.is_some() || asked.lines.is_some();
    if by_lines && (asked.offset.is_some() || asked.length.is_some()) {
        return Err(Problem::invalid(
            "lines and bytes were both asked for",
            "use `first_line` and `lines`, or `offset` and `length`",
        ));
    }
    let (file, stat) = open_file(base, path)?;
    let part = if by_lines {
        let first = asked.first_line.unwrap_or(1);
        if first == 0 {
            return Err(Problem::invalid("there is no line 0", "lines are counted from 1"));
        }
        read_lines(&file, path, &stat, first, asked.lines, limit)?
    } else {
        read_bytes(&file, path, &stat, asked.offset.unwrap_or(0), asked.length, limit)?
    };
    let encoding = asked.encoding.unwrap_or_default();
    let length = part.bytes.len() as u64;
    let (content, lossy) = match encoding {
        Encoding::Base64 => (STANDARD.encode(&part.bytes), false),
        Encoding::Text => match String::from_utf8(part.bytes) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        },
    };
    if content.len() > MAX_MESSAGE - ENVELOPE {
        return Err(too_large(path, content.len() as u64, (MAX_MESSAGE - ENVELOPE) as u64));
    }
    Ok(FileContent {
        path: path.shown(),
        content,
        encoding,
        lossy,
        offset: part.offset,
        length,
        // Files that the kernel makes up have no size of their own.
        size: (stat.st_size as u64).max(part.offset + length),
        first_line: part.lines.map(|(first, _)| first),
        lines: part.lines.map(|(_, count)| count),
        etag: etag(&stat),
    })
}

struct Part {
    bytes: Vec<u8>,
    offset: u64,
    /// The first one, and how many.
    lines: Option<(u64, u64)>,
}

const STREAM_HINT: &str = "ask for a part of it, or stream it: `workroom cat`, and `GET …/files/PATH` without `encoding`, have no limit";

fn too_large(path: &RoomPath, bytes: u64, limit: u64) -> Problem {
    let name = super::failure::quoted(path);
    Problem::new(
        ProblemCode::FileTooLarge,
        format!("what was asked for of {name} is {bytes} bytes or more, and {limit} fit in one answer"),
        STREAM_HINT,
    )
}

fn read_bytes(
    file: &OwnedFd,
    path: &RoomPath,
    stat: &Stat,
    offset: u64,
    length: Option<u64>,
    limit: u64,
) -> Result<Part, Problem> {
    let size = stat.st_size as u64;
    let wanted = length.unwrap_or(u64::MAX);
    let there = wanted.min(size.saturating_sub(offset));
    if there > limit {
        return Err(too_large(path, there, limit));
    }
    // One more than allowed, to see whether there is more: the file may grow, or not tell its size.
    let bytes =
        read_up_to(file, offset, wanted.min(limit + 1)).map_err(|error| problem(error, path, "read"))?;
    if bytes.len() as u64 > limit {
        return Err(too_large(path, bytes.len() as u64, limit));
    }
    if bytes.is_empty() && offset > size {
        return Err(out_of_range(path, format!("has {size} bytes, and none at {offset}")));
    }
    Ok(Part { bytes, offset, lines: None })
}

fn out_of_range(path: &RoomPath, why: String) -> Problem {
    let name = super::failure::quoted(path);
    Problem::new(ProblemCode::RangeNotSatisfiable, format!("{name} {why}"), "")
}

/// All bytes from an offset on, or as many as are wanted.
pub(crate) fn read_up_to(file: &OwnedFd, offset: u64, wanted: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < wanted {
        let room =
            usize::try_from(wanted - bytes.len() as u64).unwrap_or(usize::MAX).min(CHUNK.max(bytes.len()));
        bytes.reserve(room);
        let at = offset.saturating_add(bytes.len() as u64);
        let filled = bytes.len();
        bytes.resize(filled + room, 0);
        let read = match pread(file, &mut bytes[filled..], at) {
            // An offset that no file can have.
            Err(Errno::INVAL | Errno::OVERFLOW) => 0,
            other => other?,
        };
        bytes.truncate(filled + read);
        if read == 0 {
            break;
        }
    }
    Ok(bytes)
}

fn read_lines(
    file: &OwnedFd,
    path: &RoomPath,
    stat: &Stat,
    first: u64,
    count: Option<u64>,
    limit: u64,
) -> Result<Part, Problem> {
    let fault = |error| problem(error, path, "read");
    let mut bytes = Vec::new();
    let mut buffer = vec![0; CHUNK];
    // The line that the next byte belongs to, and where the first wanted one begins.
    let (mut line, mut at, mut offset) = (1u64, 0u64, None);
    let last = count.map_or(u64::MAX, |count| first.saturating_add(count));
    let mut ended_by_newline = true;
    'file: loop {
        let read = pread(file, &mut buffer, at).map_err(fault)?;
        if read == 0 {
            break;
        }
        for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            if line >= last {
                break 'file;
            }
            if line >= first {
                offset.get_or_insert(at);
                bytes.extend_from_slice(piece);
                if bytes.len() as u64 > limit {
                    return Err(too_large(path, bytes.len() as u64, limit));
                }
            }
            at += piece.len() as u64;
            ended_by_newline = piece.ends_with(b"\n");
            line += u64::from(ended_by_newline);
        }
        // A file that grows faster than it is read has an end too.
        if at > (stat.st_size as u64).max(limit).saturating_add(limit) {
            break;
        }
    }
    // Lines that are there, the last one perhaps without an end.
    let total = line - 1 + u64::from(!ended_by_newline);
    if offset.is_none() && first > total.max(1) && count != Some(0) {
        return Err(out_of_range(path, format!("has {total} lines, and no line {first}")));
    }
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64
        + u64::from(bytes.last().is_some_and(|byte| *byte != b'\n'));
    Ok(Part { bytes, offset: offset.unwrap_or(at), lines: Some((first, lines)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};

    fn get(scratch: &Scratch, asked: ReadFile) -> Result<FileContent, ProblemCode> {
        let at = RoomPath::parse(&asked.path, false).unwrap();
        read(&scratch.base(), &at, &asked).map_err(|problem| problem.code)
    }

    #[test]
    fn parts_by_bytes() {
        let scratch = Scratch::new();
        scratch.write("f", "0123456789");
        let asked = ReadFile { path: "f".into(), ..ReadFile::default() };
        let part = |offset, length| {
            get(&scratch, ReadFile { offset, length, ..asked.clone() }).map(|found| found.content)
        };
        assert_eq!(part(None, None).unwrap(), "0123456789");
        assert_eq!(part(Some(3), Some(4)).unwrap(), "3456");
        assert_eq!(part(Some(8), Some(400)).unwrap(), "89");
        assert_eq!(part(Some(10), None).unwrap(), "");
        assert_eq!(part(Some(11), None).unwrap_err(), ProblemCode::RangeNotSatisfiable);
        assert_eq!(part(Some(u64::MAX), Some(1)).unwrap_err(), ProblemCode::RangeNotSatisfiable);
        let limited = |limit, length| get(&scratch, ReadFile { limit: Some(limit), length, ..asked.clone() });
        assert_eq!(limited(9, None).unwrap_err(), ProblemCode::FileTooLarge);
        assert_eq!(limited(9, Some(9)).unwrap().content, "012345678");
        assert_eq!(limited(10, None).unwrap().length, 10);
        assert_eq!(limited(0, None).unwrap_err(), ProblemCode::InvalidArgument);
    }

    #[test]
    fn parts_by_lines() {
        let scratch = Scratch::new();
        scratch.write("f", "one\ntwo\nthree");
        let asked = ReadFile { path: "f".into(), ..ReadFile::default() };
        let part = |first_line, lines| get(&scratch, ReadFile { first_line, lines, ..asked.clone() });
        let two = part(Some(2), Some(1)).unwrap();
        assert_eq!((two.content.as_str(), two.offset, two.length, two.size), ("two\n", 4, 4, 13));
        assert_eq!((two.first_line, two.lines), (Some(2), Some(1)));
        assert_eq!(part(None, Some(2)).unwrap().content, "one\ntwo\n");
        assert_eq!(part(Some(3), None).unwrap().content, "three");
        assert_eq!(part(Some(3), Some(9)).unwrap().lines, Some(1));
        assert_eq!(part(Some(4), None).unwrap_err(), ProblemCode::RangeNotSatisfiable);
        assert_eq!(part(Some(0), None).unwrap_err(), ProblemCode::InvalidArgument);
        let both = ReadFile { first_line: Some(1), offset: Some(1), ..asked.clone() };
        assert_eq!(get(&scratch, both).unwrap_err(), ProblemCode::InvalidArgument);
        scratch.write("empty", "");
        let empty = ReadFile { path: "empty".into(), first_line: Some(1), ..asked.clone() };
        assert_eq!(get(&scratch, empty).unwrap().lines, Some(0));
        scratch.write("long", "x\n".repeat(1 << 20));
        let long = ReadFile { path: "long".into(), ..asked };
        let late = get(&scratch, ReadFile { first_line: Some(1_000_000), lines: Some(2), ..long.clone() });
        assert_eq!(late.unwrap().offset, 1_999_998);
        let all = get(&scratch, ReadFile { first_line: Some(1), ..long });
        assert_eq!(all.unwrap_err(), ProblemCode::FileTooLarge);
    }

    #[test]
    fn bytes_that_are_no_text() {
        let scratch = Scratch::new();
        scratch.write("f", b"a\xff\0b");
        let asked = ReadFile { path: "f".into(), ..ReadFile::default() };
        let text = get(&scratch, asked.clone()).unwrap();
        assert_eq!((text.content.as_str(), text.lossy, text.length), ("a\u{fffd}\0b", true, 4));
        let base64 = get(&scratch, ReadFile { encoding: Some(Encoding::Base64), ..asked }).unwrap();
        assert_eq!((base64.content.as_str(), base64.lossy), ("Yf8AYg==", false));
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let scratch = Scratch::new();
        scratch.fifo("fifo");
        scratch.mkdir("dir");
        scratch.link("fifo", "link");
        let _listener = std::os::unix::net::UnixListener::bind(scratch.inside("socket")).unwrap();
        for at in ["fifo", "socket", "dir", "link", ""] {
            let problem = open_file(&scratch.base(), &path(at)).unwrap_err();
            assert_eq!(problem.code, ProblemCode::WrongKind, "{at}");
            assert!(!problem.hint.is_empty());
        }
        assert_eq!(open_file(&scratch.base(), &path("none")).unwrap_err().code, ProblemCode::NotFound);
        let top = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let null = RoomPath::parse("/dev/null", true).unwrap();
        assert_eq!(open_file(&Base::room(top), &null).unwrap_err().code, ProblemCode::WrongKind);
    }

    #[test]
    fn files_that_the_kernel_makes_up_are_read_whole() {
        let top = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let at = RoomPath::parse("/proc/self/status", true).unwrap();
        let found = read(&Base::room(top), &at, &ReadFile::default()).unwrap();
        assert!(found.content.starts_with("Name:"));
        assert_eq!(found.size, found.length);
    }
}
