//! A plain model of a session's files: a map from paths to what is there, and what file work, differences and merges make
//! of it.

pub(crate) mod family;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};
use workroom_testkit::types::{DiffKind, MergeSide};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory { mode: u32 },
    File { mode: u32, content: String },
    Link { target: String },
}

/// Files below the workspace, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Node>);

/// The model says that this cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

impl Tree {
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    pub(crate) fn is_dir(&self, path: &str) -> bool {
        matches!(self.get(path), Some(Node::Directory { .. }))
    }

    /// Whether a link is a part of the path: where that leads is not for this model to say.
    pub(crate) fn leads_through_link(&self, path: &str) -> bool {
        let mut above = parent(path);
        while let Some(path) = above {
            if matches!(self.get(path), Some(Node::Link { .. })) {
                return true;
            }
            above = parent(path);
        }
        false
    }

    pub(crate) fn is_link(&self, path: &str) -> bool {
        matches!(self.get(path), Some(Node::Link { .. }))
    }

    pub(crate) fn make_parents(&mut self, path: &str) -> Result<(), Refused> {
        match parent(path) {
            Some(above) => self.make_directory(above),
            None => Ok(()),
        }
    }

    pub(crate) fn make_directory(&mut self, path: &str) -> Result<(), Refused> {
        self.make_parents(path)?;
        match self.get(path) {
            Some(Node::Directory { .. }) => Ok(()),
            Some(_) => Err(Refused),
            None => {
                self.0.insert(path.to_owned(), Node::Directory { mode: 0o755 });
                Ok(())
            }
        }
    }

    pub(crate) fn write(&mut self, path: &str, content: &str, append: bool) -> Result<(), Refused> {
        self.make_parents(path)?;
        match self.0.get_mut(path) {
            Some(Node::File { content: there, .. }) => {
                if !append {
                    there.clear();
                }
                there.push_str(content);
            }
            Some(_) => return Err(Refused),
            None => {
                let file = Node::File { mode: 0o644, content: content.to_owned() };
                self.0.insert(path.to_owned(), file);
            }
        }
        Ok(())
    }

    pub(crate) fn chmod(&mut self, path: &str, bits: u32) -> Result<(), Refused> {
        match self.0.get_mut(path) {
            Some(Node::File { mode, .. } | Node::Directory { mode }) => *mode = bits,
            _ => return Err(Refused),
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<(), Refused> {
        if self.get(path).is_some() || parent(path).is_some_and(|above| !self.is_dir(above)) {
            return Err(Refused);
        }
        self.0.insert(path.to_owned(), Node::Link { target: target.to_owned() });
        Ok(())
    }

    pub(crate) fn edit(&mut self, path: &str, old: &str, new: &str) -> Result<(), Refused> {
        match self.0.get_mut(path) {
            Some(Node::File { content, .. }) if content.matches(old).count() == 1 => {
                *content = content.replacen(old, new, 1);
                Ok(())
            }
            _ => Err(Refused),
        }
    }

    /// A move or a copy. A directory takes the place of nothing, and nothing takes its place.
    pub(crate) fn transfer(
        &mut self,
        from: &str,
        to: &str,
        overwrite: bool,
        keep: bool,
    ) -> Result<(), Refused> {
        let Some(what) = self.get(from).cloned() else { return Err(Refused) };
        if from == to || is_below(to, from) {
            return Err(Refused);
        }
        let is_dir = |node: &Node| matches!(node, Node::Directory { .. });
        if let Some(there) = self.get(to)
            && (!overwrite || is_dir(there) || is_dir(&what))
        {
            return Err(Refused);
        }
        self.make_parents(to)?;
        let mut moved: Vec<(String, Node)> = vec![(to.to_owned(), what)];
        for (path, node) in self.below(from) {
            moved.push((format!("{to}{}", &path[from.len()..]), node.clone()));
        }
        if !keep {
            self.delete(from);
        }
        self.0.extend(moved);
        Ok(())
    }

    pub(crate) fn below(&self, dir: &str) -> Vec<(&String, &Node)> {
        self.0.iter().filter(|(path, _)| is_below(path, dir)).collect()
    }

    pub(crate) fn delete(&mut self, path: &str) -> u64 {
        let before = self.0.len();
        self.0.retain(|other, _| other != path && !is_below(other, path));
        (before - self.0.len()) as u64
    }

    /// Every entry is in a directory.
    fn is_whole(&self) -> bool {
        self.0.keys().all(|path| parent(path).is_none_or(|above| self.is_dir(above)))
    }

    /// What differs, by path.
    pub(crate) fn diff(&self, to: &Tree) -> BTreeMap<String, DiffKind> {
        let paths: BTreeSet<&String> = self.0.keys().chain(to.0.keys()).collect();
        let changes = paths.into_iter().filter_map(|path| {
            let kind = match (self.get(path), to.get(path)) {
                (None, _) => DiffKind::Added,
                (_, None) => DiffKind::Deleted,
                (Some(old), Some(new)) if old == new => return None,
                (Some(Node::File { content: old, .. }), Some(Node::File { content: new, .. })) => {
                    if old == new { DiffKind::Mode } else { DiffKind::Modified }
                }
                (Some(Node::Directory { .. }), Some(Node::Directory { .. })) => DiffKind::Mode,
                (Some(Node::Link { .. }), Some(Node::Link { .. })) => DiffKind::Modified,
                _ => DiffKind::TypeChanged,
            };
            Some((path.clone(), kind))
        });
        changes.collect()
    }
}

/// What a merge comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merge {
    /// With every conflict decided for one side.
    pub(crate) merged: Tree,
    pub(crate) conflicts: BTreeSet<String>,
}

/// Path by path. None where paths alone do not say what is right: one side has deleted a directory that the other has put
/// something into or changed the permissions of, or one has changed the permissions of what the other has changed
/// otherwise.
pub(crate) fn merge(base: &Tree, ours: &Tree, theirs: &Tree, prefer: MergeSide) -> Option<Merge> {
    let paths: BTreeSet<&String> = base.0.keys().chain(ours.0.keys()).chain(theirs.0.keys()).collect();
    let mut merge = Merge { merged: Tree::default(), conflicts: BTreeSet::new() };
    // The same with every conflict decided for the other side: the shape must not hang on it.
    let mut other = Tree::default();
    for path in paths {
        let (was, our, their) = (base.get(path), ours.get(path), theirs.get(path));
        // Permissions that both have changed alike are nobody's alone.
        let alike = our.and_then(mode).filter(|mode_of_both| their.and_then(mode) == Some(*mode_of_both));
        let was = &was.map(|node| alike.map_or(node.clone(), |mode| with_mode(node, mode)));
        let was = was.as_ref();
        let result = if their == was || our == their {
            (our, our)
        } else if our == was {
            (their, their)
        } else {
            if let (Some(our), Some(their)) = (our, their)
                && (mode(our) != was.and_then(mode) || mode(their) != was.and_then(mode))
                && mode(our) != mode(their)
            {
                return None;
            }
            // A side that is chosen for a directory is chosen with what is in it.
            if let (Some(Node::Directory { .. }), None) | (None, Some(Node::Directory { .. })) = (our, their)
            {
                return None;
            }
            merge.conflicts.insert(path.clone());
            if prefer == MergeSide::Ours { (our, their) } else { (their, our) }
        };
        for (tree, node) in [(&mut merge.merged, result.0), (&mut other, result.1)] {
            if let Some(node) = node {
                tree.0.insert(path.clone(), node.clone());
            }
        }
    }
    (merge.merged.is_whole() && other.is_whole()).then_some(merge)
}

fn with_mode(node: &Node, mode: u32) -> Node {
    let mut node = node.clone();
    if let Node::Directory { mode: its } | Node::File { mode: its, .. } = &mut node {
        *its = mode;
    }
    node
}

fn mode(node: &Node) -> Option<u32> {
    match node {
        Node::Directory { mode } | Node::File { mode, .. } => Some(*mode),
        Node::Link { .. } => None,
    }
}
