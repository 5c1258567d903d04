//! What the host and a clerk say to each other: file work, done inside the room, one request at a time.
//!
//! A clerk is a process of the room, behind its walls, that the host is connected with by a channel of its own. Contents
//! do not travel here: the clerk hands out the open file, and the host reads or writes it. Append variants; never
//! reorder or reuse them.

use serde::{Deserialize, Serialize};
use workroom_types::{
    ApplyPatch, ArchiveCaps, ArchiveFormat, Deleted, DiskUse, EditFile, Edited, FileContent, FileInfo,
    FileList, FilePath, Imported, ListFiles, MakeDirectory, Patched, Problem, ProblemCode, ReadFile,
    SearchFiles, SearchResult, Transfer, UploadRules, WatchEvent,
};

/// Host to clerk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToClerk {
    List(ListFiles),
    Stat(FilePath),
    Read(ReadFile),
    /// Answered by `Opened`; beside it the file, to read from.
    Open(FilePath),
    /// Answered by `Writable`; beside it a file without a name, to write to. Nothing is changed until `Commit`, and
    /// anything else gives it up.
    Create(NewFile),
    /// What was written becomes the file, or the end of it. Answered by `Info`.
    Commit,
    MakeDirectory(MakeDirectory),
    Move(Transfer),
    Copy(Transfer),
    Delete {
        path: String,
        recursive: bool,
        root: bool,
    },
    Edit(EditFile),
    Search(SearchFiles),
    Patch(ApplyPatch),
    DiskUse(FilePath),
    /// Answered by `Watching`, then `Event` by `Event` until the host hangs up.
    Watch {
        path: String,
        recursive: bool,
        root: bool,
    },
    /// Beside it: a pipe with the archive. Answered by `Imported`.
    Import {
        path: String,
        root: bool,
        caps: ArchiveCaps,
    },
    /// Beside it: a pipe for the archive. Answered by `Exporting` before the first byte and by `Exported` after the
    /// last.
    Export {
        path: String,
        root: bool,
        format: ArchiveFormat,
    },
    /// As `Import`, of files that an operator's rules are for.
    ImportUnder {
        path: String,
        root: bool,
        caps: ArchiveCaps,
        rules: UploadRules,
    },
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NewFile {
    pub path: String,
    pub root: bool,
    /// Add to the end of what is there.
    pub append: bool,
    /// Permissions; those of the file that is replaced, else 0644, unless told.
    pub mode: Option<u32>,
    /// Only if the file has this etag; `*`: only if there is one.
    pub if_match: Option<String>,
    /// Only if there is none.
    pub if_none: bool,
    /// Flush it to the disk before it is answered for.
    pub sync: bool,
}

/// Clerk to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromClerk {
    List(FileList),
    Info(FileInfo),
    Content(FileContent),
    Opened(FileInfo),
    Writable,
    Deleted(Deleted),
    Edited(Edited),
    Found(SearchResult),
    Patched(Patched),
    DiskUse(DiskUse),
    Watching,
    Event(WatchEvent),
    Imported(Imported),
    Exporting,
    Exported { entries: u64 },
    Failed(Failure),
}

/// A [`Problem`] in a form that travels without field names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: ProblemCode,
    pub detail: String,
    pub hint: String,
    /// With a limit: its name.
    pub limit: Option<String>,
    /// JSON.
    pub report: Option<String>,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure {
            code: problem.code,
            detail: problem.detail,
            hint: problem.hint,
            limit: problem.limit,
            report: problem.report.map(|report| report.to_string()),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let mut problem = Problem::new(failure.code, failure.detail, failure.hint);
        problem.limit = failure.limit;
        problem.report = failure.report.and_then(|report| serde_json::from_str(&report).ok());
        problem
    }
}
