//! The file of a recording: how far it has come is in the file itself, so that it is never ahead of it or behind.
//!
//! ```text
//!  {"version":3, …}                        header
//!  [0.12, "o", "…"]                        events
//!  # {"stdout":120,"stderr":0, …}          checkpoint: up to here, this much of the output is recorded
//!  [0.50, "o", "…"]
//!  # {"stdout":140, …,"state":"ended"}
//! ```
//!
//! Lines with `#` are comments of the format. What is written is always events and a checkpoint behind them. What follows
//! the last checkpoint was torn by the server's end: it is cut off, and that output is read from the ring once more.
//! Nothing that a process writes can be taken for a checkpoint: in an event it is JSON text, on a line that begins with
//! `[`.

use crate::state_dir::make_dir;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use workroom_terminal::cast::{CastError, Header, Reader};

/// How a recording goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    #[default]
    Recording,
    Ended,
    Cut,
}

/// What is in a recording up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The first byte of each stream that is not recorded yet.
    pub(super) stdout: u64,
    pub(super) stderr: u64,
    pub(super) events: u64,
    /// Of the last event, since the start.
    pub(super) micros: u64,
    /// Bytes that were dropped before they could be recorded.
    pub(super) missing: u64,
    pub(super) cols: u16,
    pub(super) rows: u16,
    pub(super) state: Standing,
}

/// A recording that is there: its last checkpoint, and where the line of that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reached {
    pub(super) bytes: u64,
    pub(super) checkpoint: Checkpoint,
}

/// What is looked at first; more only if the server was ended in the middle of a large write.
const TAIL: u64 = 16 << 10;

/// The longest first line: a command may be long.
const LONGEST_HEADER: usize = 4 << 20;

/// The file for a new recording, or of one to go on with. `is_new`: make it if it is not there.
pub(super) fn open(path: &Path, is_new: bool) -> io::Result<File> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if is_new {
        if let Some(dir) = path.parent() {
            make_dir(dir)?;
        }
        flags |= OFlags::CREATE;
    }
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Where the last checkpoint is; nowhere in a file that its recorder has only just made.
pub(super) fn reached(file: &File) -> io::Result<Option<Reached>> {
    let length = file.metadata()?.len();
    let mut window = TAIL.min(length);
    loop {
        let base = length - window;
        let mut tail = vec![0; window as usize];
        file.read_exact_at(&mut tail, base)?;
        if let Some((end, checkpoint)) = last_checkpoint(&tail, base == 0) {
            return Ok(Some(Reached { bytes: base + end as u64, checkpoint }));
        }
        if base == 0 {
            return Ok(None);
        }
        window = window.saturating_mul(8).min(length);
    }
}

/// The last line that is one and has an end. Of a tail the first line may be a part of one.
fn last_checkpoint(tail: &[u8], is_whole: bool) -> Option<(usize, Checkpoint)> {
    let mut end = tail.iter().rposition(|byte| *byte == b'\n')? + 1;
    loop {
        let start = tail[..end - 1].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        if start.is_none() && !is_whole {
            return None;
        }
        let line = &tail[start.unwrap_or(0)..end];
        if let Some(checkpoint) = line.strip_prefix(b"# ").and_then(|text| serde_json::from_slice(text).ok())
        {
            return Some((end, checkpoint));
        }
        end = start.filter(|start| *start > 0)?;
    }
}

/// The first line.
pub(super) fn header(file: &File) -> Result<Header, CastError> {
    let mut line = vec![0; 4096];
    loop {
        let read = file.read_at(&mut line, 0)?;
        if let Some(end) = line[..read].iter().position(|byte| *byte == b'\n') {
            return Reader::new(&line[..=end]).map(|reader| reader.header().clone());
        }
        if read < line.len() || line.len() >= LONGEST_HEADER {
            return Err(CastError::NoHeader("it has no end".into()));
        }
        line.resize(line.len() * 8, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(content: &str) -> File {
        let file = rustix::fs::memfd_create("cast", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let mut file = File::from(file);
        file.write_all(content.as_bytes()).expect("written");
        file
    }

    fn checkpoint(stdout: u64) -> Checkpoint {
        Checkpoint { stdout, cols: 80, rows: 24, ..Checkpoint::default() }
    }

    fn line(stdout: u64) -> String {
        format!("# {}\n", serde_json::to_string(&checkpoint(stdout)).expect("JSON"))
    }

    #[test]
    fn a_recording_torn_at_any_byte_goes_on_from_its_last_checkpoint() {
        let header = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n";
        let first = format!("{header}[1.0, \"o\", \"one\"]\n{}", line(3));
        let whole = format!("{first}[1.0, \"o\", \"\\n# {{\\\"stdout\\\":99}}\\n\"]\n{}", line(30));
        for cut in 0..=whole.len() {
            let expected = match cut {
                _ if cut == whole.len() => Some((whole.len(), 30)),
                _ if cut >= first.len() => Some((first.len(), 3)),
                _ => None,
            };
            let found = reached(&file(&whole[..cut])).expect("read");
            let found = found.map(|found| (found.bytes as usize, found.checkpoint.stdout));
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_checkpoint_is_found_however_much_was_torn_after_it() {
        let header = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n";
        let first = format!("{header}{}", line(7));
        for torn in [TAIL as usize - 1, TAIL as usize, 3 * TAIL as usize, 1 << 20] {
            let content = format!("{first}[1.0, \"o\", \"{}", "x".repeat(torn));
            let found = reached(&file(&content)).expect("read").expect("a checkpoint");
            assert_eq!((found.bytes as usize, found.checkpoint), (first.len(), checkpoint(7)));
            let lines = format!("{first}{}", "[1.0, \"o\", \"y\"]\n".repeat(torn / 10));
            assert_eq!(
                reached(&file(&lines)).expect("read").expect("a checkpoint").bytes as usize,
                first.len()
            );
        }
    }

    #[test]
    fn a_header_is_read_however_long_it_is() {
        for length in [10, 4000, 5000, 100_000] {
            let mut made = Header::new(80, 24);
            made.command = Some("c".repeat(length));
            let content = format!("{}\n[1, \"o\", \"x\"]\n", serde_json::to_string(&made).expect("JSON"));
            assert_eq!(header(&file(&content)).expect("a header"), made);
        }
        assert!(header(&file("")).is_err());
        assert!(header(&file("{\"version\":3")).is_err());
    }
}
