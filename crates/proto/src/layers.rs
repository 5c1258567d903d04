//! What the host and a layer worker say to each other.
//!
//! A worker is a clone of the spawner that looks into layers, which rooms have written and the host never walks. It does
//! one task and ends; if it ends without an answer, nothing that it was to make counts. Append variants; never reorder
//! or reuse them.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use workroom_types::{Diff, MergeSide, Merged};

/// Layers of the host by their directories, each with `fs/` in it: the lowest first.
pub type Stack = Vec<PathBuf>;

/// What a worker is for. It comes with the worker's end of a channel beside it, then what each task says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LayerTask {
    /// Copies a layer that a room may be writing to into a directory that is not there yet. Answered by `Copied`; then,
    /// for each [`ToWorker::Again`], what has changed since, answered by `Copied` again.
    Copy { from: PathBuf, to: PathBuf },
    /// Answered by `Diff`; its `from` and `to` are left empty.
    Diff { from: Stack, to: Stack, rule: DiffRule },
    /// The content of a whole stack. Answered by `Digest`, with the number of its entries.
    Content { stack: Stack },
    /// What `to` has changed of `from`, in canonical form: two stacks with the same differences have the same digest.
    /// Answered by `Digest`, with the number of paths that differ.
    Changes { from: Stack, to: Stack },
    /// Puts what `theirs` has changed since `base` into the new layer `into`, to lie upon `ours`. Answered by
    /// `Merged`; with conflicts that nobody decided, or `dry_run`, `into` is not made.
    Merge {
        base: Stack,
        ours: Stack,
        theirs: Stack,
        into: PathBuf,
        dry_run: bool,
        choices: BTreeMap<String, MergeSide>,
        prefer: Option<MergeSide>,
    },
    /// How large a layer is. Answered by `Measured`.
    Measure { layer: PathBuf },
    /// Makes one layer of several that lie upon each other, above `below`. Answered by `Measured`.
    Squash { below: Stack, layers: Stack, into: PathBuf },
    /// Writes a file with the host's word and layers, by name. Beside it: the host's word, to read from, and a pipe
    /// for the file. Answered by `Done`.
    Export { layers: Vec<(String, PathBuf)> },
    /// Reads such a file. Beside it: a pipe with it. Layers are made in the directory `into`, which is there, under
    /// the names that they have in the file. Answered by `Imported`.
    Import { into: PathBuf, most_bytes: u64 },
    /// Deletes a directory with all that is in it. Answered by `Done`.
    Remove { path: PathBuf },
}

/// What of a difference is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiffRule {
    /// Only below this directory, relative to the room's root: bytes. Paths are shown relative to `shown_from`.
    pub under: Vec<u8>,
    /// `workspace`, or empty for paths that are shown absolute.
    pub shown_from: Vec<u8>,
    pub patch: bool,
    pub collapse: bool,
    pub limit: u32,
}

/// Host to worker, once its task is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToWorker {
    Again,
}

/// Worker to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    Copied {
        entries: u64,
        bytes: u64,
    },
    Diff(Diff),
    Digest {
        /// SHA-256 in hex.
        digest: String,
        count: u64,
    },
    Merged(Merged),
    Measured {
        entries: u64,
        bytes: u64,
    },
    Imported {
        /// The host's word of the file.
        word: Vec<u8>,
        layers: Vec<String>,
    },
    Done,
    Failed(Failure),
}
