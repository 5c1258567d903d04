//! Directories that are made, and things that get another name or a double.

use super::copy::{copy_thing, into_itself};
use super::delete::remove_tree;
use super::draft::Over;
use super::failure::{not_found, problem, quoted};
use super::info::{info, stat};
use super::place::{Base, DIRECTORY, Last, Spot, is_directory};
use rustix::fs::{AtFlags, Mode, fchmod, fstat, openat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use workroom_types::{FileInfo, MakeDirectory, Problem, ProblemCode, RoomPath};

const NEW_DIRECTORY: u32 = 0o755;

pub(crate) fn make_directory(
    base: &Base,
    path: &RoomPath,
    asked: &MakeDirectory,
) -> Result<FileInfo, Problem> {
    let mode = asked.mode.as_deref().map(read_mode).transpose()?;
    if path.is_top() {
        return stat(base, path);
    }
    let fault = |error: Errno| problem(error, path, "made");
    let parents = asked.parents.unwrap_or(true);
    let spot = if parents { base.spot_with_parents(path, Last::Stay)? } else { base.spot(path, Last::Stay)? };
    let new = Mode::from_raw_mode(NEW_DIRECTORY);
    match rustix::fs::mkdirat(&spot.dir, spot.name.as_c_str(), new) {
        Ok(()) => {}
        Err(Errno::EXIST) => return existing(base, path),
        Err(error) => return Err(fault(error)),
    }
    let made = openat(&spot.dir, spot.name.as_c_str(), DIRECTORY, Mode::empty()).map_err(fault)?;
    if let Some(mode) = mode {
        // Not by the call that makes it, which the umask takes part in.
        fchmod(&made, Mode::from_raw_mode(mode)).map_err(fault)?;
    }
    Ok(info(path, &fstat(&made).map_err(fault)?, None))
}

fn existing(base: &Base, path: &RoomPath) -> Result<FileInfo, Problem> {
    let is_there = || {
        Problem::new(
            ProblemCode::AlreadyExists,
            format!("{} is there already, and is no directory", quoted(path)),
            "delete or move it first",
        )
    };
    match base.open(path, Last::Follow) {
        Ok(found) => {
            let found = fstat(&found).map_err(|error| problem(error, path, "made"))?;
            if is_directory(&found) { Ok(info(path, &found, None)) } else { Err(is_there()) }
        }
        // A link that leads nowhere.
        Err(problem) if problem.code == ProblemCode::NotFound => Err(is_there()),
        Err(problem) => Err(problem),
    }
}

fn read_mode(text: &str) -> Result<u32, Problem> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o1777 == 0);
    mode.ok_or_else(|| {
        Problem::invalid(
            format!("\"{text}\" is no mode of a directory"),
            "write permissions in octal, such as 0755",
        )
    })
}

/// What a move or a copy is from and to, found.
struct Pair {
    source: Spot,
    target: Spot,
    over: Over,
}

impl Pair {
    fn find(
        base: &Base,
        from: &RoomPath,
        to: &RoomPath,
        overwrite: bool,
        done: &str,
    ) -> Result<Pair, Problem> {
        for path in [from, to] {
            if path.is_top() {
                let top = if path.root { "the room's root directory" } else { "the workspace itself" };
                return Err(Problem::invalid(
                    format!("{top} cannot be {done} or replaced"),
                    "name something in it",
                ));
            }
        }
        if from == to {
            return Err(Problem::invalid(format!("{} is both where from and where to", quoted(from)), ""));
        }
        if to.bytes.strip_prefix(from.bytes.as_slice()).is_some_and(|rest| rest.first() == Some(&b'/')) {
            // Of a file too: what is to be its directory is the file.
            return Err(into_itself(from, to, done));
        }
        let source = base.spot(from, Last::Stay)?;
        let Some(what) = source.stat().map_err(|error| problem(error, from, done))? else {
            return Err(not_found(from));
        };
        let target = base.spot_with_parents(to, Last::Stay)?;
        if let Some(there) = target.stat().map_err(|error| problem(error, to, done))? {
            let hint = if is_directory(&there) {
                "a directory is not replaced: name the new path in it, or delete it first"
            } else if is_directory(&what) {
                "a directory does not take the place of a file: delete that first"
            } else {
                "say `overwrite` to replace it"
            };
            if !overwrite || is_directory(&there) || is_directory(&what) {
                return Err(is_there(to, hint));
            }
        }
        Ok(Pair { source, target, over: if overwrite { Over::Files } else { Over::Nothing } })
    }
}

fn is_there(path: &RoomPath, hint: &str) -> Problem {
    Problem::new(ProblemCode::AlreadyExists, format!("{} is there already", quoted(path)), hint)
}

/// Gives something another name.
pub(crate) fn rename(
    base: &Base,
    from: &RoomPath,
    to: &RoomPath,
    overwrite: bool,
) -> Result<FileInfo, Problem> {
    let Pair { source, target, over } = Pair::find(base, from, to, overwrite, "moved")?;
    let (old, new) = (source.name.as_c_str(), target.name.as_c_str());
    match renameat_with(&source.dir, old, &target.dir, new, over.rename_flags()) {
        Ok(()) => {}
        Err(Errno::INVAL) => return Err(into_itself(from, to, "moved")),
        Err(Errno::NOENT) => return Err(not_found(from)),
        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR) => return Err(is_there(to, "")),
        // Another file system; or a directory of a layer below, which this one cannot give another name.
        Err(Errno::XDEV) => {
            copy_thing((&source, from), (&target, to), over)?;
            remove_source(&source, from)?;
        }
        Err(error) => return Err(problem(error, to, "made by a move")),
    }
    stat(base, to)
}

/// The double is made: what it is a double of goes.
fn remove_source(source: &Spot, from: &RoomPath) -> Result<(), Problem> {
    let is_tree = source.stat().is_ok_and(|stat| stat.is_some_and(|stat| is_directory(&stat)));
    let removed = if is_tree {
        remove_tree(source.dir.as_fd(), &source.name, from).map(drop)
    } else {
        match unlinkat(&source.dir, source.name.as_c_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(problem(error, from, "deleted")),
        }
    };
    removed.map_err(|mut problem| {
        problem.detail.push_str("; it was copied to its new place, and some of it is still in the old one");
        problem
    })
}

/// Makes a double of something.
pub(crate) fn copy(
    base: &Base,
    from: &RoomPath,
    to: &RoomPath,
    overwrite: bool,
) -> Result<FileInfo, Problem> {
    let Pair { source, target, over } = Pair::find(base, from, to, overwrite, "copied")?;
    copy_thing((&source, from), (&target, to), over)?;
    stat(base, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use workroom_types::FileKind;

    #[test]
    fn directories_are_made_once_and_with_their_mode() {
        let scratch = Scratch::new();
        let make = |at: &str, asked: MakeDirectory| {
            make_directory(&scratch.base(), &path(at), &asked).map_err(|problem| problem.code)
        };
        let plain = MakeDirectory::default;
        assert_eq!(make("a/b/c", plain()).unwrap().mode, "0755");
        assert_eq!(make("a/b/c", plain()).unwrap().kind, FileKind::Directory);
        assert_eq!(make("", plain()).unwrap().kind, FileKind::Directory);
        let mode = |mode: &str| MakeDirectory { mode: Some(mode.into()), ..plain() };
        assert_eq!(make("open", mode("1777")).unwrap().mode, "1777");
        for wrong in ["4755", "rwx", "", "99"] {
            assert_eq!(make("x", mode(wrong)).unwrap_err(), ProblemCode::InvalidArgument);
        }
        let alone = MakeDirectory { parents: Some(false), ..plain() };
        assert_eq!(make("no/such", alone).unwrap_err(), ProblemCode::NotFound);
        scratch.write("file", "");
        scratch.link("nowhere", "dangling");
        scratch.link("a", "link");
        scratch.link("../outside", "out");
        assert_eq!(make("file", plain()).unwrap_err(), ProblemCode::AlreadyExists);
        assert_eq!(make("dangling", plain()).unwrap_err(), ProblemCode::AlreadyExists);
        assert_eq!(make("file/x", plain()).unwrap_err(), ProblemCode::WrongKind);
        assert!(make("link", plain()).is_ok());
        assert_eq!(make("out/x/y", plain()).unwrap_err(), ProblemCode::PathOutsideWorkspace);
        assert!(scratch.outside_is_untouched());
    }

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        scratch.mkdir("from/inner");
        scratch.write("from/file", "content");
        scratch.write("from/inner/program", "#!");
        scratch.link("../outside", "from/link");
        let set =
            |at: &str, mode| std::fs::set_permissions(scratch.inside(at), PermissionsExt::from_mode(mode));
        set("from/inner/program", 0o4755).unwrap();
        set("from/inner", 0o555).unwrap();
        let sparse =
            std::fs::File::options().create_new(true).write(true).open(scratch.inside("from/sparse"));
        sparse.unwrap().set_len(1 << 30).unwrap();
        scratch
    }

    #[test]
    fn things_are_moved_and_never_into_themselves() {
        let scratch = tree();
        let rename = |from: &str, to: &str, overwrite| {
            rename(&scratch.base(), &path(from), &path(to), overwrite).map_err(|problem| problem.code)
        };
        assert_eq!(rename("from", "new/place", false).unwrap().kind, FileKind::Directory);
        assert!(!scratch.exists("from"));
        assert_eq!(rename("new/place", "new/place/in", false).unwrap_err(), ProblemCode::InvalidArgument);
        scratch.link("/workspace/new/place", "link");
        assert_eq!(rename("new/place", "link/in", false).unwrap_err(), ProblemCode::InvalidArgument);
        assert_eq!(rename("new", "new", false).unwrap_err(), ProblemCode::InvalidArgument);
        assert_eq!(rename("", "x", false).unwrap_err(), ProblemCode::InvalidArgument);
        assert_eq!(rename("none", "x", false).unwrap_err(), ProblemCode::NotFound);
        scratch.write("a", "a");
        scratch.write("b", "b");
        assert_eq!(rename("a", "b", false).unwrap_err(), ProblemCode::AlreadyExists);
        assert_eq!(rename("a", "new", true).unwrap_err(), ProblemCode::AlreadyExists);
        assert_eq!(rename("new", "b", true).unwrap_err(), ProblemCode::AlreadyExists);
        rename("a", "b", true).unwrap();
        assert_eq!(scratch.read("b"), b"a");
        rename("b", "link", true).unwrap();
        assert_eq!(scratch.read("link"), b"a");
        scratch.link("../outside/deeper", "out");
        assert_eq!(rename("link", "out/x", true).unwrap_err(), ProblemCode::PathOutsideWorkspace);
        assert!(scratch.outside_is_untouched());
    }

    #[test]
    fn copies_have_content_modes_links_ages_and_holes() {
        let scratch = tree();
        let copy = |from: &str, to: &str, overwrite| {
            copy(&scratch.base(), &path(from), &path(to), overwrite).map_err(|problem| problem.code)
        };
        copy("from", "to/copy", false).unwrap();
        assert_eq!(scratch.read("to/copy/file"), b"content");
        let meta = |at: &str| std::fs::symlink_metadata(scratch.inside(at)).unwrap();
        assert_eq!(meta("to/copy/inner/program").mode() & 0o7777, 0o755);
        assert_eq!(meta("to/copy/inner").mode() & 0o7777, 0o555);
        for at in ["", "/inner", "/inner/program", "/link"] {
            let (old, new) = (meta(&format!("from{at}")), meta(&format!("to/copy{at}")));
            assert_eq!((old.mtime(), old.mtime_nsec()), (new.mtime(), new.mtime_nsec()), "{at}");
        }
        assert!(meta("to/copy/link").is_symlink());
        assert_eq!(meta("to/copy/sparse").len(), 1 << 30);
        assert!(meta("to/copy/sparse").blocks() < 100);
        assert_eq!(copy("from", "to/copy", true).unwrap_err(), ProblemCode::AlreadyExists);
        assert_eq!(
            copy("from/file", "to/copy/inner/program", false).unwrap_err(),
            ProblemCode::AlreadyExists
        );
        copy("from/file", "to/copy/link", true).unwrap();
        assert_eq!(scratch.read("to/copy/link"), b"content");
        copy("from/link", "to/link", false).unwrap();
        assert!(meta("to/link").is_symlink());
        assert!(scratch.outside_is_untouched());
    }

    #[test]
    fn a_copy_that_cannot_be_whole_leaves_nothing() {
        let scratch = tree();
        let copy = |from: &str, to: &str| {
            copy(&scratch.base(), &path(from), &path(to), false).map_err(|problem| problem.code)
        };
        assert_eq!(copy("from", "from/inner/x").unwrap_err(), ProblemCode::InvalidArgument);
        scratch.link("/workspace/from/inner", "link");
        assert_eq!(copy("from", "link/x").unwrap_err(), ProblemCode::InvalidArgument);
        assert_eq!(std::fs::read_dir(scratch.inside("from/inner")).unwrap().count(), 1);
        scratch.fifo("from/inner/fifo");
        assert_eq!(copy("from", "to").unwrap_err(), ProblemCode::WrongKind);
        assert_eq!(copy("from/inner/fifo", "to").unwrap_err(), ProblemCode::WrongKind);
        let mut left: Vec<_> =
            std::fs::read_dir(scratch.inside("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["from", "link"]);
    }

    #[test]
    fn deep_trees_are_copied() {
        let scratch = Scratch::new();
        scratch.deep(3000);
        copy(&scratch.base(), &path("deep"), &path("copy"), false).unwrap();
        rename(&scratch.base(), &path("copy"), &path("moved"), false).unwrap();
        let deleted = crate::clerk::delete::delete(&scratch.base(), &path("moved"), true).unwrap();
        assert_eq!(deleted, 3001);
        scratch.remove_deep();
    }
}
