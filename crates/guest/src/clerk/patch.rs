//! Patches: unified diffs of any number of files, applied all together or not at all.
//!
//! Every hunk of every file finds its place in memory before anything is changed.

mod apply;
mod commit;
mod parse;
#[cfg(test)]
mod tests;

use super::failure::{problem, quoted};
use super::place::{Base, Last, is_link, is_regular, open_regular};
use apply::Effort;
use parse::{FilePatch, excerpt};
use rustix::fs::{OFlags, Stat};
use std::collections::HashSet;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::AsFd;
use workroom_types::{ApplyPatch, PatchChange, Patched, PatchedFile, Problem, ProblemCode, RoomPath};

/// The largest file that is patched, and the most that all files of a patch may have together: they are in memory.
const LARGEST_FILE: u64 = 64 << 20;
const LARGEST_ALL: u64 = 256 << 20;

/// One file's part of what a patch does.
struct Change {
    path: RoomPath,
    action: Action,
}

enum Action {
    Create {
        content: Vec<u8>,
        mode: u32,
    },
    /// With what the file was when it was read.
    Replace {
        content: Vec<u8>,
        seen: Stat,
    },
    Delete {
        seen: Stat,
    },
}

/// What one file's part comes to: what is to be done, and what the caller is told.
struct Planned {
    report: PatchedFile,
    change: Option<Change>,
}

/// Applies a patch to what is below `top`.
pub(crate) fn patch(base: &Base, top: &RoomPath, request: &ApplyPatch) -> Result<Patched, Problem> {
    let files = parse::parse(&request.patch)?;
    let mut planner = Planner { base, effort: Effort::default(), bytes: 0, places: HashSet::new() };
    let mut planned = Vec::with_capacity(files.len());
    let mut named = HashSet::new();
    for file in &files {
        let paths = paths(file, top, request.strip)?;
        if !named.insert(paths[0].bytes.clone()) {
            return Err(Problem::invalid(
                format!("line {} of the patch: {} is in the patch twice", file.line, quoted(&paths[0])),
                "put all hunks of a file into one part",
            ));
        }
        planned.push(planner.plan(file, paths)?);
    }
    let (files, changes): (Vec<_>, Vec<_>) =
        planned.into_iter().map(|file| (file.report, file.change)).unzip();
    // One that could not be planned has no change.
    let Some(changes) = changes.into_iter().collect::<Option<Vec<Change>>>() else {
        return Err(failed(files));
    };
    if request.dry_run {
        return Ok(Patched { applied: false, files });
    }
    commit::commit(base, &changes)?;
    Ok(Patched { applied: true, files })
}

fn failed(files: Vec<PatchedFile>) -> Problem {
    let hunks: usize = files.iter().map(|file| file.hunks.len()).sum();
    let lost = files.iter().flat_map(|file| &file.hunks).filter(|hunk| hunk.error.is_some()).count();
    let whole = files.iter().find_map(|file| Some((file, None, file.error.as_ref()?)));
    let part = files.iter().find_map(|file| {
        let hunk = file.hunks.iter().find(|hunk| hunk.error.is_some())?;
        Some((file, Some(&hunk.header), hunk.error.as_ref()?))
    });
    let first = whole.or(part).map_or(String::new(), |(file, header, error)| match header {
        Some(header) => format!(": in \"{}\", {}: {error}", file.path, excerpt(header.as_bytes())),
        None => format!(": \"{}\": {error}", file.path),
    });
    let count = if lost > 0 { format!(", {lost} of {hunks} hunks have no place") } else { String::new() };
    let mut problem = Problem::new(
        ProblemCode::PatchFailed,
        format!("the patch does not apply and nothing was changed{count}{first}"),
        "the report has every hunk, with where the file is most like it; read the file again and make the patch anew",
    );
    problem.report = serde_json::to_value(Patched { applied: false, files }).ok();
    problem
}

/// The paths that a file's part may mean, the likeliest first. Only plain diffs have names that differ.
fn paths(file: &FilePatch, top: &RoomPath, strip: Option<u32>) -> Result<Vec<RoomPath>, Problem> {
    let begins =
        |name: &Option<Vec<u8>>, with: &[u8]| name.as_ref().is_none_or(|name| name.starts_with(with));
    let by_itself = u32::from(begins(&file.old, b"a/") && begins(&file.new, b"b/"));
    let mut paths = Vec::new();
    for name in [&file.new, &file.old].into_iter().flatten() {
        let path = path(name, top, strip.unwrap_or(by_itself), file.line)?;
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn path(name: &[u8], top: &RoomPath, strip: u32, line: usize) -> Result<RoomPath, Problem> {
    let refuse = |why: &str| {
        let shown = excerpt(name);
        Problem::invalid(format!("line {line} of the patch: the name \"{shown}\" {why}"), "")
    };
    let mut rest = name;
    for _ in 0..strip {
        let slash = rest.iter().position(|byte| *byte == b'/');
        rest = slash
            .map(|at| &rest[at + 1..])
            .ok_or_else(|| refuse(&format!("has no {strip} parts to leave out")))?;
    }
    if rest.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(refuse("has a .. in it"));
    }
    // What is absolute is named from the workspace, as everywhere.
    let whole =
        if rest.starts_with(b"/") || top.is_top() { rest.to_vec() } else { [&top.bytes, rest].join(&b'/') };
    let path = RoomPath::from_bytes(&whole, top.root)?;
    if path.is_top() || rest.ends_with(b"/") { Err(refuse("is not a file's")) } else { Ok(path) }
}

struct Planner<'a> {
    base: &'a Base,
    effort: Effort,
    /// In memory by now.
    bytes: u64,
    /// Directories and names in them that are taken: two paths can lead to one file.
    places: HashSet<(u64, u64, CString)>,
}

/// What is at a path.
enum There {
    Nothing,
    File(Vec<u8>, Stat),
}

impl Planner<'_> {
    /// Errors of the file are part of the report; those that end the whole are `Err`.
    fn plan(&mut self, file: &FilePatch, paths: Vec<RoomPath>) -> Result<Planned, Problem> {
        let mut paths = paths.into_iter();
        let Some(mut path) = paths.next() else { return Err(Problem::invalid("a file has no name", "")) };
        let mut there = self.look(&path);
        // `diff -u x.orig x`: whichever of the two is there is meant.
        for other in paths {
            if matches!(there, Ok(There::Nothing)) && file.old.is_some() {
                (there, path) = (self.look(&other), other);
            }
        }
        let wants_nothing = file.hunks.len() == 1 && file.hunks[0].old_count == 0;
        let change = match (&file.old, &file.new) {
            (None, _) => PatchChange::Created,
            // As patch(1): what begins with nothing may be a file that is not there.
            (Some(_), Some(_)) if wants_nothing && matches!(there, Ok(There::Nothing)) => {
                PatchChange::Created
            }
            (_, None) => PatchChange::Deleted,
            _ => PatchChange::Modified,
        };
        let mut report = PatchedFile { path: path.shown(), change, error: None, hunks: Vec::new() };
        let action = match (there, change) {
            (Err(problem), _) if problem.code == ProblemCode::LimitExceeded => return Err(problem),
            (Err(problem), _) => Err(problem.detail),
            (Ok(There::File(..)), PatchChange::Created) => {
                Err("the patch creates it, and it is there already".into())
            }
            (Ok(There::Nothing), PatchChange::Created) => {
                report.hunks = file.hunks.iter().map(|hunk| apply::report(hunk, Ok(0))).collect();
                let mode = if file.executable { 0o755 } else { 0o644 };
                Ok(Some(Action::Create { content: apply::created(&file.hunks), mode }))
            }
            (Ok(There::Nothing), _) => Err("there is no such file".into()),
            (Ok(There::File(content, seen)), _) => self.apply(file, change, &content, seen, &mut report),
        };
        let change = match action {
            Ok(action) => action.map(|action| Change { path, action }),
            Err(error) => {
                report.error = Some(error);
                None
            }
        };
        Ok(Planned { report, change })
    }

    fn look(&mut self, path: &RoomPath) -> Result<There, Problem> {
        let spot = match self.base.spot(path, Last::Stay) {
            // The directories above it are not there either.
            Err(problem) if problem.code == ProblemCode::NotFound => return Ok(There::Nothing),
            other => other?,
        };
        let above = rustix::fs::fstat(&spot.dir).map_err(|error| problem(error, path, "read"))?;
        if !self.places.insert((above.st_dev, above.st_ino, spot.name.clone())) {
            return Err(Problem::invalid("it is in the patch twice, by two paths", ""));
        }
        let Some(stat) = spot.stat().map_err(|error| problem(error, path, "read"))? else {
            return Ok(There::Nothing);
        };
        if is_link(&stat) {
            return Err(Problem::invalid("it is a symbolic link; name the file that it leads to", ""));
        }
        if !is_regular(&stat) {
            return Err(Problem::invalid("it is not a regular file", ""));
        }
        let opened = open_regular(spot.dir.as_fd(), &spot.name, OFlags::RDONLY)
            .map_err(|error| problem(error, path, "read"))?;
        let Ok((file, seen)) = opened else { return Err(super::failure::busy(path, "read")) };
        if seen.st_size as u64 > LARGEST_FILE {
            return Err(Problem::invalid(format!("it is larger than {} MiB", LARGEST_FILE >> 20), ""));
        }
        self.bytes += seen.st_size as u64;
        if self.bytes > LARGEST_ALL {
            return Err(Problem::limit(
                "patch_bytes",
                format!("the files of the patch have more than {} MiB together", LARGEST_ALL >> 20),
                "apply the patch in parts",
            ));
        }
        let mut content = Vec::with_capacity(seen.st_size as usize);
        std::fs::File::from(file)
            .take(LARGEST_FILE)
            .read_to_end(&mut content)
            .map_err(|error| Problem::invalid(format!("it could not be read: {error}"), ""))?;
        Ok(There::File(content, seen))
    }

    fn apply(
        &mut self,
        file: &FilePatch,
        change: PatchChange,
        content: &[u8],
        seen: Stat,
        report: &mut PatchedFile,
    ) -> Result<Option<Action>, String> {
        let applied = apply::apply(content, &file.hunks, &mut self.effort);
        report.hunks = applied.hunks;
        let Some(content) = applied.content else { return Ok(None) };
        if change == PatchChange::Modified {
            return Ok(Some(Action::Replace { content, seen }));
        }
        if content.is_empty() {
            return Ok(Some(Action::Delete { seen }));
        }
        let lines = content.split_inclusive(|byte| *byte == b'\n').count();
        Err(format!("the patch deletes it, and {lines} of its lines are not in the patch"))
    }
}
