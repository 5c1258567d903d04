//! What differs between two stacks, as callers are shown it.

use crate::compare::{Descend, Sides, same_content};
use crate::patch_text::Patches;
use crate::walk::{Node, Tree, Waiting, is_below, names, node_at};
use rustix::fs::FileType;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use workroom_proto::DiffRule;
use workroom_types::{Diff, DiffEntry, DiffKind, FileKind, escape};

/// A path that differs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) kind: DiffKind,
    pub(crate) from: Option<Node>,
    pub(crate) to: Option<Node>,
}

/// Bytes of paths and patches in one answer, which has to fit into a message.
const MOST_BYTES: usize = 6 << 20;

/// Visits every path at and below `under` that differs, a directory before what is in it.
pub(crate) fn changes(
    sides: &mut Sides,
    under: &[u8],
    mut visitor: impl FnMut(&mut Sides, &[u8], Change) -> io::Result<Descend>,
) -> io::Result<()> {
    sides.visit(under, |sides, at| match classify(sides, at.path, at.from, at.to)? {
        Some(kind) => visitor(sides, at.path, Change { kind, from: at.from, to: at.to }),
        None => Ok(Descend::Yes),
    })
}

/// How two entries differ, if they do. Times and owners are no difference.
fn classify(
    sides: &mut Sides,
    path: &[u8],
    from: Option<Node>,
    to: Option<Node>,
) -> io::Result<Option<DiffKind>> {
    let (from, to) = match (from, to) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Ok(Some(DiffKind::Added)),
        (Some(_), None) => return Ok(Some(DiffKind::Deleted)),
        (Some(from), Some(to)) => (from, to),
    };
    if from.kind() != to.kind() {
        return Ok(Some(DiffKind::TypeChanged));
    }
    if !to.is_dir() && !same_content(&mut sides.from, &mut sides.to, path, &from, &to)? {
        return Ok(Some(DiffKind::Modified));
    }
    Ok((from.permissions() != to.permissions()).then_some(DiffKind::Mode))
}

/// All that differs, sorted by path.
pub(crate) fn all_changes(sides: &mut Sides) -> io::Result<BTreeMap<Vec<u8>, Change>> {
    let mut found = BTreeMap::new();
    changes(sides, b"", |_, path, change| {
        found.insert(path.to_vec(), change);
        Ok(Descend::Yes)
    })?;
    Ok(found)
}

/// The difference that a caller asked for.
pub(crate) fn diff(mut sides: Sides, rule: &DiffRule) -> io::Result<Diff> {
    // The first ones by their paths, which are not visited in this order.
    let mut found: BTreeMap<Vec<u8>, (Change, Option<u64>)> = BTreeMap::new();
    let mut remainder = 0;
    changes(&mut sides, &rule.under, |sides, path, change| {
        // The directory that paths begin at has no path.
        if path == rule.shown_from {
            return Ok(Descend::Yes);
        }
        let is_new_dir = change.kind == DiffKind::Added && change.to.is_some_and(|node| node.is_dir());
        let below = if rule.collapse && is_new_dir { Some(count_below(&mut sides.to, path)?) } else { None };
        found.insert(path.to_vec(), (change, below));
        if found.len() > rule.limit as usize {
            found.pop_last();
            remainder += 1;
        }
        Ok(if below.is_some() { Descend::No } else { Descend::Yes })
    })?;
    let mut patches = rule.patch.then(Patches::default);
    let mut entries = Vec::new();
    let mut bytes = 0;
    for (path, (change, below)) in found {
        if bytes > MOST_BYTES {
            remainder += 1;
            continue;
        }
        let shown = shown(&path, &rule.shown_from);
        let patch = match &mut patches {
            Some(patches) => patches.of(&mut sides, &path, &shown, &change)?,
            None => None,
        };
        bytes += shown.len() + patch.as_ref().map_or(0, String::len) + 64;
        entries.push(entry(shown, &change, patch, below));
    }
    Ok(Diff { from: String::new(), to: String::new(), entries, remainder })
}

/// A path as text: relative to the directory that paths begin at, absolute elsewhere.
pub(crate) fn shown(path: &[u8], shown_from: &[u8]) -> String {
    if !shown_from.is_empty() && is_below(path, shown_from) {
        escape(&path[shown_from.len() + 1..])
    } else {
        format!("/{}", escape(path))
    }
}

pub(crate) fn entry(path: String, change: &Change, patch: Option<String>, below: Option<u64>) -> DiffEntry {
    let size = |node: Option<Node>| {
        node.filter(|node| matches!(node.kind(), FileType::RegularFile | FileType::Symlink))
            .map(|node| node.size)
    };
    let mode = |node: Option<Node>| {
        node.filter(|node| node.kind() != FileType::Symlink).map(|node| format!("{:04o}", node.mode & 0o7777))
    };
    DiffEntry {
        path,
        change: change.kind,
        kind: file_kind(change.to.or(change.from)),
        old_size: size(change.from),
        new_size: size(change.to),
        old_mode: mode(change.from),
        new_mode: mode(change.to),
        patch,
        below,
    }
}

fn file_kind(node: Option<Node>) -> FileKind {
    match node.map(|node| node.kind()) {
        Some(FileType::RegularFile) => FileKind::File,
        Some(FileType::Directory) => FileKind::Directory,
        Some(FileType::Symlink) => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

fn count_below(tree: &mut Tree, path: &[u8]) -> io::Result<u64> {
    let mut count = 0;
    let mut waiting = Waiting::new(path.to_vec());
    let mut next = Some(());
    while next.is_some() {
        let dir = tree.dir(waiting.path())?;
        for name in names(dir.as_fd())? {
            count += 1;
            if node_at(dir.as_fd(), name.as_c_str())?.is_some_and(|node| node.is_dir()) {
                waiting.push(name, ());
            }
        }
        next = waiting.next();
    }
    Ok(count)
}
