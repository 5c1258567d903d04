//! What is in a directory, page by page, and how much of the disk it takes.

use super::failure::{problem, wrong_kind};
use super::info::{info, kind, link_target};
use super::place::{Base, DIRECTORY, Last, is_directory, is_link};
use super::walk::{Entry, Next, Order, Visitor, walk};
use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{Mode, Stat, fstat, openat};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use workroom_types::{DiskUse, FileInfo, FileKind, FileList, ListFiles, Problem, RoomPath, escape, unescape};

const DEFAULT_LIMIT: u32 = 1000;
const MOST_ENTRIES: u32 = 10_000;

/// Bytes of a page: an answer is one message. Paths may be long.
const MOST_BYTES: usize = 2 << 20;

/// Longer patterns are no patterns that a person wrote.
const LONGEST_GLOB: usize = 4096;

pub(crate) fn list(base: &Base, path: &RoomPath, asked: &ListFiles) -> Result<FileList, Problem> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MOST_ENTRIES {
        return Err(Problem::invalid(
            format!("the limit {limit} is not between 1 and {MOST_ENTRIES}"),
            "ask for the next page with `cursor`",
        ));
    }
    let mut page = Page {
        at: path,
        recursive: asked.recursive,
        hidden: asked.hidden.unwrap_or(true),
        glob: asked.glob.as_deref().map(Glob::new).transpose()?,
        after: asked.cursor.as_deref().map(|cursor| after_cursor(path, cursor)).transpose()?,
        limit: limit as usize,
        bytes: 0,
        entries: Vec::new(),
        more: false,
    };
    let directory = match base.open_directory(path) {
        Err(problem) if problem.code == workroom_types::ProblemCode::WrongKind => {
            return Err(wrong_kind(
                path,
                "not a directory",
                "ask for the file itself, or list the directory above it",
            ));
        }
        other => other?,
    };
    walk(directory, path, Order::ByPath, &mut page)?;
    let next = page.entries.last().filter(|_| page.more).map(|last| last.path.clone());
    Ok(FileList { path: path.shown(), entries: page.entries, next })
}

/// A pattern with a `/` is for the whole path, one without for the name.
pub(crate) struct Glob {
    matcher: GlobMatcher,
    of_path: bool,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Glob, Problem> {
        if pattern.len() > LONGEST_GLOB {
            return Err(Problem::invalid(
                format!("the glob is {} bytes long, {LONGEST_GLOB} at most", pattern.len()),
                "",
            ));
        }
        let of_path = pattern.contains('/');
        let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
        let built = GlobBuilder::new(pattern).literal_separator(true).build();
        let matcher = built.map_err(|error| {
            Problem::invalid(
                format!("the glob \"{pattern}\" cannot be read: {}", error.kind()),
                "use * for a part of a name, ** for any directories, as in src/**/*.rs",
            )
        })?;
        Ok(Glob { matcher: matcher.compile_matcher(), of_path })
    }

    pub(crate) fn matches(&self, entry: &Entry<'_>) -> bool {
        let bytes = if self.of_path { entry.path } else { entry.name.to_bytes() };
        self.matcher.is_match(OsStr::from_bytes(bytes))
    }
}

/// The path of the last entry before, as seen from the directory that is listed.
fn after_cursor(path: &RoomPath, cursor: &str) -> Result<Vec<u8>, Problem> {
    let bytes = unescape(cursor)?;
    let bytes = if path.root { bytes.strip_prefix(b"/").unwrap_or(&bytes) } else { &bytes };
    let below = match path.is_top() {
        true => Some(bytes),
        false => bytes.strip_prefix(path.bytes.as_slice()).and_then(|rest| rest.strip_prefix(b"/")),
    };
    below.filter(|below| !below.is_empty()).map(<[u8]>::to_vec).ok_or_else(|| {
        Problem::invalid(
            format!("the cursor \"{cursor}\" is not of a listing of \"{}\"", path.shown()),
            "pass on `next` of the page before as it is",
        )
    })
}

struct Page<'a> {
    at: &'a RoomPath,
    recursive: bool,
    hidden: bool,
    glob: Option<Glob>,
    after: Option<Vec<u8>>,
    limit: usize,
    bytes: usize,
    entries: Vec<FileInfo>,
    more: bool,
}

impl Page<'_> {
    /// Whether anything in this directory can come after the cursor.
    fn goes_into(&self, path: &[u8]) -> bool {
        let Some(after) = &self.after else { return true };
        match after.strip_prefix(path) {
            Some(rest) if rest.first() == Some(&b'/') => true,
            _ => path.iter().chain(b"/").gt(after.iter()),
        }
    }
}

impl Visitor for Page<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        if !self.hidden && entry.name.to_bytes().first() == Some(&b'.') {
            return Ok(Next::Past);
        }
        let next = if self.recursive && self.goes_into(entry.path) { Next::Into } else { Next::Past };
        let is_before = self.after.as_ref().is_some_and(|after| entry.path <= after.as_slice());
        if is_before || self.glob.as_ref().is_some_and(|glob| !glob.matches(entry)) {
            return Ok(next);
        }
        if self.entries.len() == self.limit || self.bytes > MOST_BYTES {
            self.more = true;
            return Ok(Next::Stop);
        }
        let target = is_link(entry.stat).then(|| link_target(entry.dir, entry.name)).flatten();
        let mut info = info(self.at, entry.stat, target);
        info.path = shown_below(self.at, entry.path);
        self.bytes += info.path.len() + info.target.as_ref().map_or(0, String::len) + 128;
        self.entries.push(info);
        Ok(next)
    }
}

/// The shown path of something below a directory.
pub(crate) fn shown_below(at: &RoomPath, below: &[u8]) -> String {
    let above = at.shown();
    let separator = if above.is_empty() || above.ends_with('/') { "" } else { "/" };
    format!("{above}{separator}{}", escape(below))
}

pub(crate) fn disk_use(base: &Base, path: &RoomPath) -> Result<DiskUse, Problem> {
    let thing = base.open(path, Last::Follow)?;
    let fault = |error| problem(error, path, "measured");
    let stat = fstat(&thing).map_err(fault)?;
    let mut sum = Sum { total: DiskUse { path: path.shown(), ..DiskUse::default() }, linked: HashSet::new() };
    if is_directory(&stat) {
        let directory = openat(&thing, c".", DIRECTORY, Mode::empty()).map_err(fault)?;
        walk(directory, path, Order::AsFound, &mut sum)?;
    } else {
        sum.add(&stat);
    }
    Ok(sum.total)
}

struct Sum {
    total: DiskUse,
    /// Files that have more names than one, and were counted.
    linked: HashSet<(u64, u64)>,
}

impl Sum {
    fn add(&mut self, stat: &Stat) {
        match kind(stat) {
            FileKind::File => {
                self.total.files += 1;
                self.total.bytes += stat.st_size as u64;
            }
            FileKind::Directory => self.total.directories += 1,
            FileKind::Symlink => self.total.symlinks += 1,
            FileKind::Other => self.total.others += 1,
        }
        let has_more_names = stat.st_nlink > 1 && !is_directory(stat);
        if !has_more_names || self.linked.insert((stat.st_dev, stat.st_ino)) {
            self.total.allocated += stat.st_blocks as u64 * 512;
        }
    }
}

impl Visitor for Sum {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        self.add(entry.stat);
        Ok(Next::Into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};
    use workroom_types::ProblemCode;

    fn names(scratch: &Scratch, asked: ListFiles) -> Vec<String> {
        let at = RoomPath::parse(&asked.path, false).unwrap();
        let list = list(&scratch.base(), &at, &asked).unwrap();
        list.entries.into_iter().map(|entry| entry.path).collect()
    }

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        scratch.mkdir("src/inner");
        scratch.mkdir(".git/objects");
        for file in ["src/main.rs", "src/inner/a.rs", "src/inner/b.txt", "src.txt", ".git/objects/x", "z"] {
            scratch.write(file, "12345");
        }
        scratch.link("/etc/passwd", "link");
        scratch
    }

    #[test]
    fn levels_globs_and_hidden_names() {
        let scratch = tree();
        let all = ListFiles::default();
        assert_eq!(names(&scratch, all.clone()), [".git", "link", "src", "src.txt", "z"]);
        let src = ListFiles { path: "/workspace/src".into(), recursive: true, ..all.clone() };
        assert_eq!(
            names(&scratch, src.clone()),
            ["src/inner", "src/inner/a.rs", "src/inner/b.txt", "src/main.rs"]
        );
        let glob = |glob: &str, recursive| ListFiles { glob: Some(glob.into()), recursive, ..all.clone() };
        assert_eq!(names(&scratch, glob("*.rs", true)), ["src/inner/a.rs", "src/main.rs"]);
        assert_eq!(names(&scratch, glob("src/*.rs", true)), ["src/main.rs"]);
        assert_eq!(names(&scratch, glob("**/*.{rs,txt}", true)).len(), 4);
        assert_eq!(names(&scratch, glob("*.rs", false)), [""; 0]);
        let visible = ListFiles { hidden: Some(false), recursive: true, ..all.clone() };
        assert!(names(&scratch, visible).iter().all(|name| !name.starts_with(".git")));
        let found = list(&scratch.base(), &path(""), &all).unwrap();
        assert_eq!(found.entries[1].target.as_deref(), Some("/etc/passwd"));
        assert_eq!(found.entries[1].kind, FileKind::Symlink);
        let refuse = |asked: &ListFiles| {
            let at = RoomPath::parse(&asked.path, false).unwrap();
            list(&scratch.base(), &at, asked).unwrap_err().code
        };
        assert_eq!(refuse(&glob("[", true)), ProblemCode::InvalidArgument);
        assert_eq!(refuse(&ListFiles { limit: Some(0), ..all.clone() }), ProblemCode::InvalidArgument);
        assert_eq!(refuse(&ListFiles { path: "z".into(), ..all.clone() }), ProblemCode::WrongKind);
        assert_eq!(refuse(&ListFiles { path: "none".into(), ..all.clone() }), ProblemCode::NotFound);
        assert_eq!(refuse(&ListFiles { path: "link/x".into(), ..all }), ProblemCode::PathOutsideWorkspace);
        assert_eq!(refuse(&ListFiles { cursor: Some("other".into()), ..src }), ProblemCode::InvalidArgument);
    }

    #[test]
    fn pages_meet_every_entry_once() {
        let scratch = tree();
        for name in ["\n", "a b", "src/\\", "src-x"] {
            scratch.write(name, "");
        }
        scratch.write(std::path::Path::new(OsStr::from_bytes(b"\xff")), "");
        let whole = names(&scratch, ListFiles { recursive: true, ..ListFiles::default() });
        assert_eq!(whole.len(), 16);
        for limit in 1..=17 {
            let (mut cursor, mut met) = (None, Vec::new());
            loop {
                let asked = ListFiles { recursive: true, limit: Some(limit), cursor, ..ListFiles::default() };
                let page = list(&scratch.base(), &path(""), &asked).unwrap();
                assert!(!page.entries.is_empty());
                met.extend(page.entries.into_iter().map(|entry| entry.path));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(met, whole, "{limit}");
        }
    }

    #[test]
    fn use_of_the_disk_and_hard_links() {
        let scratch = tree();
        let total = disk_use(&scratch.base(), &path("")).unwrap();
        assert_eq!((total.files, total.directories, total.symlinks, total.others), (6, 4, 1, 0));
        assert_eq!(total.bytes, 30);
        scratch.write("large", vec![1; 1 << 20]);
        let before = disk_use(&scratch.base(), &path("")).unwrap();
        std::fs::hard_link(scratch.inside("large"), scratch.inside("same")).unwrap();
        let after = disk_use(&scratch.base(), &path("")).unwrap();
        assert_eq!(before.allocated, after.allocated);
        assert_eq!(disk_use(&scratch.base(), &path("large")).unwrap().bytes, 1 << 20);
    }

    #[test]
    fn deep_trees_are_listed_and_measured() {
        let scratch = Scratch::new();
        scratch.deep(10_000);
        assert_eq!(disk_use(&scratch.base(), &path("")).unwrap().directories, 10_000);
        let asked = ListFiles { recursive: true, glob: Some("end".into()), ..ListFiles::default() };
        assert_eq!(names(&scratch, asked)[0].len(), 10_000 * 5 + 3);
        let asked = ListFiles { recursive: true, limit: Some(10_000), ..ListFiles::default() };
        let page = list(&scratch.base(), &path(""), &asked).unwrap();
        assert!(page.next.is_some());
        scratch.remove_deep();
    }
}
