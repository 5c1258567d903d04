//! Words for what the kernel refuses: a stable code, one sentence with the path, and what to do.

use rustix::io::Errno;
use workroom_types::{Problem, ProblemCode, RoomPath};

/// What went wrong with `path` while it was to be `done` ("read", "moved"), as callers are told.
pub(crate) fn problem(error: Errno, path: &RoomPath, done: &str) -> Problem {
    let name = quoted(path);
    let new = |code, detail: String, hint: &str| Problem::new(code, detail, hint);
    match error {
        Errno::NOENT => not_found(path),
        Errno::NOTDIR => new(
            ProblemCode::NotFound,
            format!("there is no {name}: a part of the path is not a directory"),
            "list the directory above it to see what there is",
        ),
        Errno::XDEV => outside(path),
        Errno::LOOP => new(
            ProblemCode::InvalidArgument,
            format!("{name} leads through too many links, or through one that only the kernel can follow"),
            "name the file that the links lead to",
        ),
        Errno::NAMETOOLONG => {
            new(ProblemCode::InvalidArgument, format!("{name} is too long to be {done}"), "use shorter names")
        }
        Errno::ACCESS | Errno::PERM => new(
            ProblemCode::Forbidden,
            format!("{name} may not be {done}: the room's walls or the file's owner do not allow it"),
            "work below /workspace",
        ),
        Errno::ROFS => new(
            ProblemCode::Forbidden,
            format!("{name} may not be {done}: it is on a file system that is read-only here"),
            "work on a copy below /workspace",
        ),
        Errno::NOSPC | Errno::DQUOT => Problem::limit(
            "disk",
            format!("{name} could not be {done}: the room's disk is full"),
            "delete something, or raise the session's disk limit",
        ),
        Errno::MFILE | Errno::NFILE => Problem::limit(
            "open_files",
            format!("{name} could not be {done}: too many files are open"),
            "raise the session's limit on open files",
        ),
        Errno::NOMEM => Problem::limit(
            "memory",
            format!("{name} could not be {done}: the room's memory is used up"),
            "end something in the room, or raise its memory limit",
        ),
        Errno::FBIG => new(
            ProblemCode::FileTooLarge,
            format!("{name} would be larger than files can be"),
            "write it in several files",
        ),
        Errno::EXIST | Errno::NOTEMPTY => {
            new(ProblemCode::AlreadyExists, format!("{name} is there already"), "")
        }
        Errno::ISDIR => new(ProblemCode::WrongKind, format!("{name} is a directory"), ""),
        Errno::BUSY | Errno::TXTBSY | Errno::AGAIN => busy(path, done),
        Errno::IO => new(
            ProblemCode::StorageUnavailable,
            format!("{name} could not be {done}: the disk reports an error"),
            "",
        ),
        error => new(ProblemCode::Internal, format!("{name} could not be {done}: {error}"), ""),
    }
}

pub(crate) fn not_found(path: &RoomPath) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no {}", quoted(path)),
        "list the directory above it to see what there is",
    )
}

pub(crate) fn outside(path: &RoomPath) -> Problem {
    Problem::new(
        ProblemCode::PathOutsideWorkspace,
        format!("{} leads out of the workspace by a link", quoted(path)),
        "name a path whose links stay below /workspace, or say `root` for one elsewhere in the room",
    )
}

/// Somebody in the room changes the same things all the time.
pub(crate) fn busy(path: &RoomPath, done: &str) -> Problem {
    Problem::new(
        ProblemCode::Busy,
        format!("{} could not be {done}: something in the room keeps changing it", quoted(path)),
        "try again when what works there has ended",
    )
}

pub(crate) fn wrong_kind(path: &RoomPath, is: &str, hint: &str) -> Problem {
    Problem::new(ProblemCode::WrongKind, format!("{} is {is}", quoted(path)), hint)
}

/// A path in a sentence. The directory that paths begin at has no name of its own.
pub(crate) fn quoted(path: &RoomPath) -> String {
    if path.is_top() && !path.root {
        return "the workspace".into();
    }
    let text = path.shown();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}
