//! Taking over what a relative has changed since two stacks parted: the plan, three-way, path by path.
//!
//! What one side changed and the other did not is taken. What both changed to the same is left. Text that both changed is
//! merged by lines. Everything else that both changed is a conflict, which a caller decides or which refuses the merge.
//! The plan is made from three views and changes nothing; `merge_apply.rs` carries it out.

use crate::compare::{Sides, same_content};
use crate::diff::{Change, all_changes, entry, shown};
use crate::merge_apply::apply;
use crate::patch_text::text;
use crate::stack::Workshop;
use crate::walk::{Node, is_below};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use workroom_types::{DiffEntry, DiffKind, MergeConflict, MergeSide, Merged, WORKSPACE};

pub(crate) struct Merge {
    pub(crate) base: Vec<PathBuf>,
    pub(crate) ours: Vec<PathBuf>,
    pub(crate) theirs: Vec<PathBuf>,
    pub(crate) dry_run: bool,
    pub(crate) choices: BTreeMap<String, MergeSide>,
    pub(crate) prefer: Option<MergeSide>,
}

/// What is to be done at a path of ours.
#[derive(Debug)]
pub(crate) enum Step {
    Remove,
    /// As it is in theirs; of a directory, itself alone.
    Take,
    /// As it is in theirs, with all that is below it.
    TakeAll,
    Mode(u32),
    Write {
        text: Vec<u8>,
        mode: u32,
    },
}

impl Step {
    pub(crate) fn alters(&self) -> bool {
        matches!(self, Step::Mode(_) | Step::Write { .. })
    }
}

/// More lines than this are not merged: what hardly has a line in common takes time by their square.
const MOST_LINES: usize = 50_000;
/// Bytes of the changes, and of the conflicts, in one answer, which has to fit into a message.
const MOST_BYTES: usize = 3 << 20;

impl Merge {
    /// Plans the merge and, unless something stands against it, carries it out.
    pub(crate) fn run(&self, workshop: &Workshop) -> io::Result<Merged> {
        let mut plan = Plan::new(self, workshop)?;
        plan.make()?;
        let mut merged = Merged {
            applied: false,
            changes: plan.changes,
            conflicts: plan.conflicts,
            remainder: plan.untold,
        };
        if merged.conflicts.is_empty() && !self.dry_run {
            apply(workshop, &self.ours, &mut plan.ours.to, &mut plan.theirs.to, plan.steps)?;
            merged.applied = true;
        }
        Ok(merged)
    }
}

/// Directories before what is in them, and all that is in them before anything else.
fn tree_order(one: &[u8], other: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(rank).cmp(other.iter().map(rank))
}

type Changes = Vec<(Vec<u8>, Change)>;

fn in_tree_order(changes: BTreeMap<Vec<u8>, Change>) -> Changes {
    let mut changes: Changes = changes.into_iter().collect();
    changes.sort_by(|(one, _), (other, _)| tree_order(one, other));
    changes
}

/// Whether anything strictly below `path` is more than deleted.
fn changes_below(changes: &Changes, path: &[u8]) -> bool {
    let first = changes.partition_point(|(at, _)| tree_order(at, path) != Ordering::Greater);
    let below = changes[first..].iter().take_while(|(at, _)| is_below(at, path));
    below.into_iter().any(|(_, change)| change.kind != DiffKind::Deleted)
}

/// Whether a directory is none any more.
fn ends_directory(change: Option<&Change>) -> bool {
    change.is_some_and(|change| {
        change.from.is_some_and(|node| node.is_dir()) && !change.to.is_some_and(|node| node.is_dir())
    })
}

struct Plan<'a> {
    merge: &'a Merge,
    ours: Sides,
    theirs: Sides,
    steps: Vec<(Vec<u8>, Step)>,
    changes: Vec<DiffEntry>,
    conflicts: Vec<MergeConflict>,
    /// Bytes of changes and of conflicts.
    told: (usize, usize),
    /// Changes and conflicts that are not among those.
    untold: u64,
}

/// Whether what is below a path is settled with it.
#[derive(PartialEq, Eq)]
enum Below {
    Settled,
    Open,
}

impl<'a> Plan<'a> {
    fn new(merge: &'a Merge, workshop: &Workshop) -> io::Result<Plan<'a>> {
        Ok(Plan {
            merge,
            ours: Sides::new(workshop, &merge.base, &merge.ours)?,
            theirs: Sides::new(workshop, &merge.base, &merge.theirs)?,
            steps: Vec::new(),
            changes: Vec::new(),
            conflicts: Vec::new(),
            told: (0, 0),
            untold: 0,
        })
    }

    fn make(&mut self) -> io::Result<()> {
        let theirs = in_tree_order(all_changes(&mut self.theirs)?);
        let ours = in_tree_order(all_changes(&mut self.ours)?);
        let (mut next_theirs, mut next_ours) = (theirs.iter().peekable(), ours.iter().peekable());
        let mut settled: Option<&[u8]> = None;
        loop {
            let order = match (next_theirs.peek(), next_ours.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((their_path, _)), Some((our_path, _))) => tree_order(their_path, our_path),
            };
            let from_theirs = if order.is_le() { next_theirs.next() } else { None };
            let from_ours = if order.is_ge() { next_ours.next() } else { None };
            let Some((path, _)) = from_theirs.or(from_ours) else { return Ok(()) };
            if settled.is_some_and(|above| is_below(path, above)) {
                continue;
            }
            let (their, our) = (from_theirs.map(|(_, change)| change), from_ours.map(|(_, change)| change));
            if self.settle(path, our, their, &ours, &theirs)? == Below::Settled {
                settled = Some(path);
            }
        }
    }

    fn settle(
        &mut self,
        path: &[u8],
        our: Option<&Change>,
        their: Option<&Change>,
        ours: &Changes,
        theirs: &Changes,
    ) -> io::Result<Below> {
        let (we_end, they_end) = (ends_directory(our), ends_directory(their));
        match (our, their) {
            (Some(our), their) if we_end && !they_end => {
                // Ours is gone; that theirs deleted some of it is no contradiction.
                if their.is_some() || changes_below(theirs, path) {
                    self.conflict(path, Some(our), their, Step::TakeAll, None)?;
                }
                Ok(Below::Settled)
            }
            (our, Some(their)) if they_end && !we_end => {
                if our.is_some() || changes_below(ours, path) {
                    self.conflict(path, our, Some(their), Step::TakeAll, None)?;
                } else {
                    self.step(path, their, if their.to.is_some() { Step::TakeAll } else { Step::Remove });
                }
                Ok(Below::Settled)
            }
            (_, None) => Ok(Below::Open),
            (None, Some(their)) => {
                let step = match their.kind {
                    DiffKind::Deleted => Step::Remove,
                    DiffKind::Mode => Step::Mode(their.to.map_or(0, |node| node.mode & 0o7777)),
                    _ => Step::Take,
                };
                self.step(path, their, step);
                Ok(Below::Open)
            }
            (Some(our), Some(their)) => self.both(path, our, their),
        }
    }

    /// Both have changed the path itself.
    fn both(&mut self, path: &[u8], our: &Change, their: &Change) -> io::Result<Below> {
        let (our_node, their_node) = match (our.to, their.to) {
            // Whatever both deleted is gone with all that was in it.
            (None, None) => return Ok(Below::Open),
            (Some(our_node), Some(their_node)) if our_node.kind() == their_node.kind() => {
                (our_node, their_node)
            }
            _ => {
                self.conflict(path, Some(our), Some(their), Step::TakeAll, None)?;
                return Ok(Below::Settled);
            }
        };
        let mode = merged_mode(our.from, &our_node, &their_node);
        if our_node.is_dir() {
            let theirs = Step::Mode(their_node.mode & 0o7777);
            match mode {
                Some(mode) if mode == our_node.mode & 0o7777 => {}
                Some(mode) => self.step(path, their, Step::Mode(mode)),
                None => self.conflict(path, Some(our), Some(their), theirs, None)?,
            }
            return Ok(Below::Open);
        }
        let same = same_content(&mut self.ours.to, &mut self.theirs.to, path, &our_node, &their_node)?;
        match (same || their.kind == DiffKind::Mode, mode) {
            (true, Some(mode)) if mode == our_node.mode & 0o7777 => {}
            (true, Some(mode)) => self.step(path, their, Step::Mode(mode)),
            (false, Some(_)) if our.kind == DiffKind::Mode => {
                // Theirs with our permissions, if it is only those that we have changed.
                self.step(path, their, Step::Take);
                if let Some(mode) = mode.filter(|mode| *mode != their_node.mode & 0o7777) {
                    self.steps.push((path.to_vec(), Step::Mode(mode)));
                }
            }
            (same, mode) => self.merge_text(path, our, their, mode, same)?,
        }
        Ok(Below::Open)
    }

    fn merge_text(
        &mut self,
        path: &[u8],
        our: &Change,
        their: &Change,
        mode: Option<u32>,
        same: bool,
    ) -> io::Result<()> {
        let base = text(&mut self.ours.from, path, our.from.filter(Node::is_file))?;
        let (ours, theirs) =
            (text(&mut self.ours.to, path, our.to)?, text(&mut self.theirs.to, path, their.to)?);
        let mut marked = None;
        if let (Some(base), Some(ours), Some(theirs)) = (base, ours, theirs)
            && !same
            && [&base, &ours, &theirs].iter().all(|text| text.lines().count() <= MOST_LINES)
        {
            match diffy::merge(&base, &ours, &theirs) {
                Ok(merged) => {
                    if let Some(mode) = mode {
                        let size = merged.len() as u64;
                        let to = our.to.map(|node| Node { size, mode: node.mode & !0o7777 | mode, ..node });
                        let change = Change { kind: DiffKind::Modified, from: our.to, to };
                        self.step(path, &change, Step::Write { text: merged.into_bytes(), mode });
                        return Ok(());
                    }
                }
                Err(conflicting) => marked = Some(conflicting),
            }
        }
        self.conflict(path, Some(our), Some(their), Step::Take, marked)
    }

    fn step(&mut self, path: &[u8], change: &Change, step: Step) {
        let entry = entry(shown_path(path), change, None, None);
        self.told.0 += entry.path.len() + 64;
        if self.told.0 <= MOST_BYTES {
            self.changes.push(entry);
        } else {
            self.untold += 1;
        }
        self.steps.push((path.to_vec(), step));
    }

    /// Both sides have changed it in their own ways: decided by the caller, or told.
    fn conflict(
        &mut self,
        path: &[u8],
        our: Option<&Change>,
        their: Option<&Change>,
        theirs: Step,
        marked: Option<String>,
    ) -> io::Result<()> {
        match self.choice(path) {
            Some(MergeSide::Ours) => {}
            Some(MergeSide::Theirs) => {
                let now = self.ours.to.node(path)?;
                let then = self.theirs.to.node(path)?;
                let kind = match (now, then) {
                    (None, _) => DiffKind::Added,
                    (_, None) => DiffKind::Deleted,
                    (Some(now), Some(then)) if now.kind() != then.kind() => DiffKind::TypeChanged,
                    _ if matches!(theirs, Step::Mode(_)) => DiffKind::Mode,
                    _ => DiffKind::Modified,
                };
                let change = Change { kind, from: now, to: then };
                self.step(path, &change, if then.is_none() { Step::Remove } else { theirs });
            }
            None => {
                let kind = |change: Option<&Change>| change.map_or(DiffKind::Modified, |change| change.kind);
                let bytes = marked.as_ref().map_or(0, String::len);
                let merged = marked.filter(|_| self.told.1 + bytes <= MOST_BYTES / 2);
                self.told.1 += merged.as_ref().map_or(0, String::len) + path.len() + 64;
                // One is enough to refuse the merge, so there is always one.
                if self.told.1 <= MOST_BYTES || self.conflicts.is_empty() {
                    let (ours, theirs) = (kind(our), kind(their));
                    self.conflicts.push(MergeConflict { path: shown_path(path), ours, theirs, merged });
                } else {
                    self.untold += 1;
                }
            }
        }
        Ok(())
    }

    fn choice(&self, path: &[u8]) -> Option<MergeSide> {
        let shown = shown_path(path);
        let choices = &self.merge.choices;
        let absolute = || choices.get(&format!("{WORKSPACE}/{shown}"));
        choices.get(&shown).or_else(absolute).copied().or(self.merge.prefer)
    }
}

fn shown_path(path: &[u8]) -> String {
    shown(path, &WORKSPACE.as_bytes()[1..])
}

/// The permissions after both sides; none if each changed them in its own way.
fn merged_mode(base: Option<Node>, ours: &Node, theirs: &Node) -> Option<u32> {
    let bits = |node: &Node| node.mode & 0o7777;
    let base = base.filter(|base| base.kind() == ours.kind()).map(|base| bits(&base));
    match (bits(ours), bits(theirs)) {
        (ours, theirs) if ours == theirs || base == Some(theirs) => Some(ours),
        (ours, theirs) if base == Some(ours) => Some(theirs),
        _ => None,
    }
}
