//! Differences of text files, for people: unified, small, and within a time.

use crate::compare::{Sides, fill};
use crate::diff::Change;
use crate::walk::{Node, Tree};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use workroom_types::DiffKind;

/// The largest text that is looked at, on either side.
pub(crate) const LARGEST: u64 = 1 << 20;
/// For one file. A difference that is not found in time is a coarse one.
const PATIENCE: Duration = Duration::from_millis(300);
/// For all files of an answer.
const ALL_PATIENCE: Duration = Duration::from_secs(3);
const MOST_BYTES: usize = 4 << 20;

/// The patches of one answer.
pub(crate) struct Patches {
    until: Instant,
    bytes: usize,
}

impl Default for Patches {
    fn default() -> Self {
        Patches { until: Instant::now() + ALL_PATIENCE, bytes: 0 }
    }
}

impl Patches {
    /// The difference between both sides of a file, if both are text that is small enough.
    pub(crate) fn of(
        &mut self,
        sides: &mut Sides,
        path: &[u8],
        shown: &str,
        change: &Change,
    ) -> io::Result<Option<String>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero()
            || self.bytes > MOST_BYTES
            || matches!(change.kind, DiffKind::Mode | DiffKind::TypeChanged)
        {
            return Ok(None);
        }
        let (Some(old), Some(new)) =
            (text(&mut sides.from, path, change.from)?, text(&mut sides.to, path, change.to)?)
        else {
            return Ok(None);
        };
        let name = shown.trim_start_matches('/');
        let header = |side: &str, node: Option<Node>| match node {
            Some(_) => format!("{side}/{name}"),
            None => "/dev/null".to_owned(),
        };
        let patch = similar::TextDiff::configure()
            .timeout(left.min(PATIENCE))
            .diff_lines(old.as_str(), new.as_str())
            .unified_diff()
            .header(&header("a", change.from), &header("b", change.to))
            .to_string();
        self.bytes += patch.len();
        Ok(Some(patch))
    }
}

/// The text of a file; nothing, of no file; `None` if it is anything else.
pub(crate) fn text(tree: &mut Tree, path: &[u8], node: Option<Node>) -> io::Result<Option<String>> {
    let Some(node) = node else { return Ok(Some(String::new())) };
    if !node.is_file() || node.size > LARGEST {
        return Ok(None);
    }
    let mut bytes = vec![0; node.size as usize];
    let length = fill(tree.open_file(path)?.as_fd(), &mut bytes, 0)?;
    bytes.truncate(length);
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}
