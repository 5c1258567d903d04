//! Files of a room, as callers ask for them and are told about them.
//!
//! The same types travel between host and room in a format without field names: no field may be skipped or flattened.

use crate::{Encoding, Timestamp};
use serde::{Deserialize, Serialize};

/// What a path names; a link is a link, whatever it points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// A FIFO, a socket or a device.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileInfo {
    /// Relative to the workspace, or absolute for calls that say `root`. Bytes that are not UTF-8 are written `\xff`, a
    /// backslash `\\`.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: FileKind,
    pub size: u64,
    /// Permissions in octal, such as `0644`.
    pub mode: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub mtime: Timestamp,
    /// Of a link.
    pub target: Option<String>,
    /// Changes when the file does.
    pub etag: String,
}

/// Which entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct ListFiles {
    /// The workspace unless told.
    pub path: String,
    /// Also what is below the directories in it.
    pub recursive: bool,
    /// Only what this matches: a pattern with a `/` is matched against the whole path below `path`, one without
    /// against the name.
    pub glob: Option<String>,
    /// Also names that begin with a dot; so unless told otherwise.
    pub hidden: Option<bool>,
    /// 1 to 10,000; 1,000 unless told.
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// Paths are of the whole room, not of the workspace.
    pub root: bool,
}

/// Sorted by path, byte by byte, a directory before what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    pub path: String,
    pub entries: Vec<FileInfo>,
    /// There are more: the `cursor` of the next page.
    pub next: Option<String>,
}

/// A path and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FilePath {
    pub path: String,
    pub root: bool,
}

/// A part of a file, as an answer in one piece.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct ReadFile {
    #[cfg_attr(feature = "openapi", param(ignore))]
    pub path: String,
    pub encoding: Option<Encoding>,
    /// The first byte.
    pub offset: Option<u64>,
    /// Bytes from there.
    pub length: Option<u64>,
    /// The first line, counted from 1; not with `offset`.
    pub first_line: Option<u64>,
    /// Lines from there.
    pub lines: Option<u64>,
    /// The most bytes that are answered in one piece; 1 MiB unless told, 16 MiB at most. More than that is an error.
    pub limit: Option<u64>,
    pub root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileContent {
    pub path: String,
    pub content: String,
    pub encoding: Encoding,
    /// With `text`: some bytes were not UTF-8 and became U+FFFD.
    pub lossy: bool,
    /// Where `content` begins, and how many bytes of the file it is.
    pub offset: u64,
    pub length: u64,
    /// Of the whole file.
    pub size: u64,
    /// With lines: the first one, and how many.
    pub first_line: Option<u64>,
    pub lines: Option<u64>,
    pub etag: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    pub path: String,
    /// Also those above it that are not there; so unless told otherwise.
    pub parents: Option<bool>,
    /// In octal; `0755` unless told.
    pub mode: Option<String>,
    #[serde(default)]
    pub root: bool,
}

/// Moves or copies. A directory is copied with all that is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    pub from: String,
    pub to: String,
    /// Replace a file that is there. A directory never is.
    #[serde(default)]
    pub overwrite: bool,
    #[serde(default)]
    pub root: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deleted {
    /// Files, links and directories that are gone; 0 when there was nothing.
    pub deleted: u64,
}

/// Replaces one piece of text by another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    pub path: String,
    /// Must be there exactly once, unless `all`.
    pub old: String,
    #[serde(default)]
    pub new: String,
    #[serde(default)]
    pub all: bool,
    /// Only if the file still has this etag.
    pub if_match: Option<String>,
    #[serde(default)]
    pub root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Edited {
    pub path: String,
    pub replacements: u64,
    pub size: u64,
    pub etag: String,
}

/// What to look for in files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SearchFiles {
    /// A regular expression, or with `literal` the text itself.
    pub pattern: String,
    #[serde(default)]
    pub literal: bool,
    #[serde(default)]
    pub ignore_case: bool,
    /// A file or a directory; the workspace unless told.
    #[serde(default)]
    pub path: String,
    /// Only files that one of these matches; one that begins with `!` leaves out what it matches.
    #[serde(default)]
    pub globs: Vec<String>,
    /// Leave out what `.gitignore` and `.ignore` files name.
    #[serde(default)]
    pub respect_ignore_files: bool,
    /// Also names that begin with a dot; not unless told.
    #[serde(default)]
    pub hidden: bool,
    /// Lines shown before and after each match; 0 to 20.
    #[serde(default)]
    pub context: u32,
    /// 1 to 10,000; 1,000 unless told.
    pub max_matches: Option<u32>,
    /// In one file.
    pub max_per_file: Option<u32>,
    #[serde(default)]
    pub root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SearchMatch {
    pub path: String,
    /// Counted from 1.
    pub line: u64,
    /// Of the match's first byte, counted from 1.
    pub column: u64,
    /// The line without its end; `cut` of it was left out at the end if it is longer than 2,000 bytes.
    pub text: String,
    pub cut: u64,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SearchResult {
    pub matches: Vec<SearchMatch>,
    pub files_searched: u64,
    /// Files with a NUL in them, and those that could not be read.
    pub files_skipped: u64,
    /// A limit was reached: there may be more.
    pub truncated: bool,
}

/// A unified diff of one or more files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplyPatch {
    pub patch: String,
    /// Where the patch's paths begin; the workspace unless told.
    #[serde(default)]
    pub path: String,
    /// Leading parts of the patch's paths to leave out; `a/` and `b/` are left out by themselves unless told.
    pub strip: Option<u32>,
    /// Say what would happen, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    #[serde(default)]
    pub root: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PatchChange {
    Created,
    Modified,
    Deleted,
}

/// One hunk of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PatchHunk {
    /// Its `@@` line.
    pub header: String,
    /// The line that it was, or would be, applied at.
    pub line: Option<u64>,
    /// Why it was not.
    pub error: Option<String>,
    /// Where the file is most like what the hunk expects, and what is there.
    pub nearest_line: Option<u64>,
    pub nearest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PatchedFile {
    pub path: String,
    pub change: PatchChange,
    /// Why the file as a whole could not be patched.
    pub error: Option<String>,
    pub hunks: Vec<PatchHunk>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Patched {
    pub applied: bool,
    pub files: Vec<PatchedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiskUse {
    pub path: String,
    /// Of the files' contents.
    pub bytes: u64,
    /// On the disk, blocks that are shared by links counted once.
    pub allocated: u64,
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub others: u64,
}

/// How an archive is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ArchiveFormat {
    #[default]
    #[serde(rename = "tar.zst")]
    TarZst,
    #[serde(rename = "tar.gz")]
    TarGz,
    #[serde(rename = "tar")]
    Tar,
    #[serde(rename = "zip")]
    Zip,
}

/// The most that an archive may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCaps {
    /// Bytes, unpacked.
    pub bytes: u64,
    pub entries: u64,
    /// Parts of a path.
    pub depth: u32,
    /// Bytes unpacked for each byte packed.
    pub ratio: u64,
}

impl Default for ArchiveCaps {
    fn default() -> Self {
        ArchiveCaps { bytes: 64 << 30, entries: 2_000_000, depth: 128, ratio: 2000 }
    }
}

/// What came of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Imported {
    pub destination: String,
    pub entry_count: u64,
    pub bytes_written: u64,
    pub stripped: Stripped,
}

/// What entries of an archive had that is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stripped {
    /// setuid, setgid and sticky bits.
    pub special_modes: u64,
    /// Owners and groups other than 0 or 1000 by number.
    pub ownership: u64,
    pub xattrs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WatchKind {
    Created,
    Modified,
    Deleted,
    /// `path` was `from`.
    Renamed,
    /// Events were lost: what is there has to be looked at again.
    Overflow,
}

/// Something that happened to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WatchEvent {
    /// Counted from 1 in each watch, without gaps.
    pub seq: u64,
    pub kind: WatchKind,
    /// Empty with `overflow`.
    pub path: String,
    pub from: Option<String>,
    pub directory: bool,
}

/// What became of one file of an upload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Uploaded {
    pub path: String,
    pub file: Option<FileInfo>,
    pub error: Option<crate::Problem>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UploadedFiles {
    pub files: Vec<Uploaded>,
}
