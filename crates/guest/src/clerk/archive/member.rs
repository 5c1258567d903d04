//! One member of an archive, whatever the archive: what it says of itself, and what of that is believed.

use std::io::{self, Read};
use workroom_types::{ArchiveCaps, Problem, ProblemCode, escape};

const LONGEST_NAME: usize = 255;
pub(super) const LONGEST_PATH: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// With its target.
    Symlink(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) mode: u32,
    /// Seconds and nanoseconds since 1970.
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) owner: (u64, u64),
    pub(super) xattrs: u64,
}

impl Member {
    /// The parts of its name; none for the archive's own top. What a name can do wrong is found here.
    pub(super) fn parts(&self, caps: &ArchiveCaps) -> Result<Vec<&[u8]>, Problem> {
        let name = self.name.as_slice();
        let refuse = |why: &str| Err(refused(name, why));
        if name.contains(&0) {
            return refuse("has a NUL in its name");
        }
        if name.starts_with(b"/") {
            return refuse("has an absolute name");
        }
        if name.len() > LONGEST_PATH {
            return refuse(&format!("has a name longer than {LONGEST_PATH} bytes"));
        }
        let parts: Vec<&[u8]> =
            name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.iter().any(|part| *part == b"..") {
            return refuse("has a .. in its name");
        }
        if parts.iter().any(|part| part.len() > LONGEST_NAME) {
            return refuse(&format!("has a part longer than {LONGEST_NAME} bytes in its name"));
        }
        if parts.is_empty() && self.kind != Kind::Directory {
            return refuse("has no name");
        }
        if self.kind != Kind::Directory && (name.ends_with(b"/") || name.ends_with(b"/.")) {
            return refuse("is no directory and has a directory's name");
        }
        if parts.len() > caps.depth as usize {
            return Err(Problem::limit(
                "archive_depth",
                format!(
                    "the archive's member \"{}\" is deeper than {} directories, and nothing of the archive was kept",
                    shown(name),
                    caps.depth
                ),
                "",
            ));
        }
        if let Kind::Symlink(target) = &self.kind {
            self.check_target(target, parts.len() - 1)?;
        }
        Ok(parts)
    }

    /// A link leads up only at its beginning, and not above the top: since no member is below a link, it then stays
    /// inside whatever other links it leads through.
    fn check_target(&self, target: &[u8], depth: usize) -> Result<(), Problem> {
        let refuse = |why: &str| {
            Err(refused(&self.name, &format!("is a symbolic link to \"{}\", which {why}", shown(target))))
        };
        if target.is_empty() || target.len() >= LONGEST_PATH || target.contains(&0) {
            return refuse("is no path");
        }
        if target.starts_with(b"/") {
            return refuse("is absolute");
        }
        let mut ups = 0;
        let mut down = false;
        for part in target.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
            match part {
                b".." if down => return refuse("leads down and up again"),
                b".." => ups += 1,
                _ => down = true,
            }
        }
        if ups > depth { refuse("leads out of the destination") } else { Ok(()) }
    }
}

/// A member is not taken in, and so nothing is.
pub(super) fn refused(name: &[u8], why: &str) -> Problem {
    Problem::new(
        ProblemCode::ArchiveRefused,
        format!("the archive's member \"{}\" {why}", shown(name)),
        "nothing of the archive was kept; files, directories and relative links that stay inside are taken in",
    )
}

/// The archive as a whole is not as it should be.
pub(super) fn broken(why: &str) -> Problem {
    Problem::new(
        ProblemCode::ArchiveRefused,
        format!("the archive is not taken in: {why}"),
        "nothing of it was kept",
    )
}

/// What reading an archive came to: a problem that a reader wrapped, or the archive's own.
pub(super) fn fault(error: io::Error) -> Problem {
    let kind = error.kind();
    let words = error.to_string();
    match error.into_inner().map(|inner| inner.downcast::<Problem>()) {
        Some(Ok(problem)) => *problem,
        _ if kind == io::ErrorKind::UnexpectedEof => broken("it is cut off before its end"),
        _ => broken(&format!("it is broken ({words})")),
    }
}

/// Reads as much as there is, at most what fits.
pub(super) fn read_fully(input: &mut impl Read, out: &mut [u8]) -> Result<usize, Problem> {
    let mut filled = 0;
    while filled < out.len() {
        match input.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fault(error)),
        }
    }
    Ok(filled)
}

/// Not more of a name than a sentence can hold.
pub(super) fn shown(name: &[u8]) -> String {
    let text = escape(&name[..name.len().min(LONGEST_PATH)]);
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
