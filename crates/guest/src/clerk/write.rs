//! Writing files: a draft for the host to fill, and its commit.

use super::draft::{Draft, Over, sync_directory, write_all};
use super::failure::{busy, problem, quoted};
use super::info::{check_match, info};
use super::place::{Base, Last, Spot, is_regular, open_regular};
use super::read::not_a_file;
use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_proto::NewFile;
use workroom_types::{FileInfo, Problem, ProblemCode, RoomPath};

/// How often a target is looked at again that comes and goes.
const MOST_TRIES: u32 = 16;

const CHUNK: usize = 256 << 10;

/// What a new file may be read and written by, less the umask.
const NEW_FILE: u32 = 0o644;

/// A file that the host is writing.
pub(crate) struct Pending {
    path: RoomPath,
    asked: NewFile,
    draft: Draft,
}

impl Pending {
    /// Where the host writes.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.draft.file().as_fd()
    }

    pub(crate) fn path(&self) -> &RoomPath {
        &self.path
    }
}

/// Begins a file. What would be refused at the end is refused now, before the host has sent anything.
pub(crate) fn create(base: &Base, path: RoomPath, asked: NewFile) -> Result<Pending, Problem> {
    if let Some(mode) = asked.mode.filter(|mode| mode & !0o777 != 0) {
        return Err(Problem::invalid(
            format!("the mode {mode:04o} has more than permissions in it"),
            "use three digits, such as 0644",
        ));
    }
    if path.is_top() {
        return Err(not_a_file(&path, FileType::Directory));
    }
    let dir = match base.spot(&path, Last::Follow) {
        Ok(spot) => {
            let found = spot.stat().map_err(|error| problem(error, &path, "written"))?;
            check(&path, &asked, found.as_ref())?;
            spot.dir
        }
        Err(problem) if problem.code == ProblemCode::NotFound => {
            check(&path, &asked, None)?;
            base.nearest_directory(&path)?
        }
        Err(problem) => return Err(problem),
    };
    let draft = Draft::new(dir.as_fd()).map_err(|error| problem(error, &path, "written"))?;
    Ok(Pending { path, asked, draft })
}

/// Whether what is there may be replaced, or added to, by what the caller knew of it.
fn check(path: &RoomPath, asked: &NewFile, found: Option<&Stat>) -> Result<(), Problem> {
    if let Some(stat) = found.filter(|stat| !is_regular(stat)) {
        return Err(not_a_file(path, FileType::from_raw_mode(stat.st_mode)));
    }
    if asked.if_none && found.is_some() {
        return Err(is_there(path));
    }
    match &asked.if_match {
        Some(wanted) => check_match(path, wanted, found),
        None => Ok(()),
    }
}

fn is_there(path: &RoomPath) -> Problem {
    Problem::new(
        ProblemCode::PreconditionFailed,
        format!("{} was to be made only if it is not there, and it is", quoted(path)),
        "",
    )
}

/// Makes what was written the file, or the end of it.
pub(crate) fn commit(base: &Base, pending: Pending) -> Result<FileInfo, Problem> {
    let Pending { path, asked, mut draft } = pending;
    let fault = |error: Errno| problem(error, &path, "written");
    for _ in 0..MOST_TRIES {
        let spot = base.spot_with_parents(&path, Last::Follow)?;
        let found = spot.stat().map_err(fault)?;
        check(&path, &asked, found.as_ref())?;
        if let Some(before) = found.as_ref().filter(|_| asked.append) {
            match append(&draft, &spot, before, &asked) {
                // It was deleted after the look.
                Err(Errno::NOENT) => continue,
                Err(Errno::AGAIN) => return Err(busy(&path, "written")),
                appended => return Ok(info(&path, &appended.map_err(fault)?, None)),
            }
        }
        let kept = found.as_ref().map(|stat| stat.st_mode);
        draft.set_mode(asked.mode.or(kept).unwrap_or(NEW_FILE)).map_err(fault)?;
        if asked.sync {
            rustix::fs::fsync(draft.file()).map_err(fault)?;
        }
        let over = if found.is_some() { Over::Files } else { Over::Nothing };
        match draft.install(spot.dir.as_fd(), &spot.name, over) {
            Err(Errno::EXIST) if asked.if_none => return Err(is_there(&path)),
            // Somebody made it after the look, or deleted the directory.
            Err(Errno::EXIST | Errno::NOENT) => continue,
            installed => installed.map_err(fault)?,
        }
        if asked.sync {
            sync_directory(spot.dir.as_fd()).map_err(fault)?;
        }
        let stat = fstat(draft.file()).map_err(fault)?;
        return Ok(info(&path, &stat, None));
    }
    Err(busy(&path, "written"))
}

/// Adds the draft to the end of a file. Each piece goes to what is the end then, as a shell's `>>` does it: what others
/// add meanwhile is not overwritten.
fn append(draft: &Draft, spot: &Spot, before: &Stat, asked: &NewFile) -> Result<Stat, Errno> {
    let access = OFlags::WRONLY | OFlags::APPEND;
    let Ok((target, _)) = open_regular(spot.dir.as_fd(), &spot.name, access)? else {
        return Err(Errno::AGAIN);
    };
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    loop {
        let read = rustix::io::pread(draft.file(), &mut buffer, done)?;
        if read == 0 {
            break;
        }
        if let Err(error) = write_all(&target, &buffer[..read]) {
            take_back(&target, before.st_size as u64, done + read as u64);
            return Err(error);
        }
        done += read as u64;
    }
    if let Some(mode) = asked.mode {
        rustix::fs::fchmod(&target, rustix::fs::Mode::from_raw_mode(mode))?;
    }
    if asked.sync {
        rustix::fs::fsync(&target)?;
    }
    fstat(&target)
}

/// The disk is full: half of what was to be added is worse than nothing of it. What others have added stays.
fn take_back(target: &OwnedFd, before: u64, most_added: u64) {
    let ours = |size: u64| size > before && size <= before + most_added;
    if fstat(target).is_ok_and(|now| ours(now.st_size as u64)) {
        let _ = rustix::fs::ftruncate(target, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};
    use std::os::unix::fs::PermissionsExt;

    fn put(scratch: &Scratch, at: &str, content: &str, asked: NewFile) -> Result<FileInfo, ProblemCode> {
        let base = scratch.base();
        let pending = create(&base, path(at), asked).map_err(|problem| problem.code)?;
        write_all(pending.draft.file(), content.as_bytes()).unwrap();
        commit(&base, pending).map_err(|problem| problem.code)
    }

    fn mode(scratch: &Scratch, at: &str) -> u32 {
        std::fs::metadata(scratch.inside(at)).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_are_made_with_their_directories_and_replaced_whole() {
        let scratch = Scratch::new();
        let plain = NewFile::default;
        let made = put(&scratch, "a/b/new", "one", plain()).unwrap();
        assert_eq!((made.path.as_str(), made.size, made.mode.as_str()), ("a/b/new", 3, "0644"));
        assert_eq!(mode(&scratch, "a/b"), 0o755);
        let set = |mode| std::fs::set_permissions(scratch.inside("a/b/new"), PermissionsExt::from_mode(mode));
        set(0o4751).unwrap();
        let again = put(&scratch, "a/b/new", "two", NewFile { sync: true, ..plain() }).unwrap();
        assert_ne!(again.etag, made.etag);
        assert_eq!(mode(&scratch, "a/b/new"), 0o751);
        put(&scratch, "a/b/new", "three", NewFile { mode: Some(0o600), ..plain() }).unwrap();
        assert_eq!(mode(&scratch, "a/b/new"), 0o600);
        assert_eq!(scratch.read("a/b/new"), b"three");
        assert_eq!(std::fs::read_dir(scratch.inside("a/b")).unwrap().count(), 1);
        let special = put(&scratch, "x", "", NewFile { mode: Some(0o4755), ..plain() });
        assert_eq!(special.unwrap_err(), ProblemCode::InvalidArgument);
    }

    #[test]
    fn nothing_is_made_before_the_commit() {
        let scratch = Scratch::new();
        let pending = create(&scratch.base(), path("a/b/c"), NewFile::default()).unwrap();
        write_all(pending.draft.file(), b"given up").unwrap();
        assert!(!scratch.exists("a"));
        drop(pending);
        assert_eq!(std::fs::read_dir(scratch.inside("")).unwrap().count(), 0);
    }

    #[test]
    fn conditions_hold_at_the_beginning_and_at_the_end() {
        let scratch = Scratch::new();
        let none = || NewFile { if_none: true, ..NewFile::default() };
        let matching = |etag: &str| NewFile { if_match: Some(etag.into()), ..NewFile::default() };
        assert_eq!(put(&scratch, "f", "", matching("*")).unwrap_err(), ProblemCode::PreconditionFailed);
        let made = put(&scratch, "f", "1", none()).unwrap();
        assert_eq!(put(&scratch, "f", "2", none()).unwrap_err(), ProblemCode::PreconditionFailed);
        assert_eq!(put(&scratch, "f", "2", matching("x")).unwrap_err(), ProblemCode::PreconditionFailed);
        let next = put(&scratch, "f", "2", matching(&made.etag)).unwrap();
        put(&scratch, "f", "3", matching("*")).unwrap();
        let late = put(&scratch, "f", "4", matching(&format!("\"{}\"", next.etag)));
        assert_eq!(late.unwrap_err(), ProblemCode::PreconditionFailed);
        for (asked, change) in [(none(), "g"), (matching("*"), "f")] {
            let pending = create(&scratch.base(), path(change), asked).unwrap();
            match change {
                "g" => scratch.write("g", "somebody else's"),
                _ => std::fs::remove_file(scratch.inside("f")).unwrap(),
            }
            let code = commit(&scratch.base(), pending).unwrap_err().code;
            assert_eq!(code, ProblemCode::PreconditionFailed);
        }
        assert_eq!(scratch.read("g"), b"somebody else's");
    }

    #[test]
    fn appending_keeps_the_file_and_its_links() {
        let scratch = Scratch::new();
        let append = || NewFile { append: true, ..NewFile::default() };
        put(&scratch, "log", "one\n", append()).unwrap();
        std::fs::hard_link(scratch.inside("log"), scratch.inside("same")).unwrap();
        let info = put(&scratch, "log", "two\n", append()).unwrap();
        assert_eq!(info.size, 8);
        assert_eq!(scratch.read("same"), b"one\ntwo\n");
    }

    #[test]
    fn links_are_written_through_inside_and_refused_outside() {
        let scratch = Scratch::new();
        scratch.write("target", "old");
        scratch.link("/workspace/target", "link");
        scratch.link("not/yet", "dangling");
        scratch.mkdir("not");
        put(&scratch, "link", "new", NewFile::default()).unwrap();
        put(&scratch, "dangling", "made", NewFile::default()).unwrap();
        assert_eq!(scratch.read("target"), b"new");
        assert_eq!(scratch.read("not/yet"), b"made");
        assert!(std::fs::symlink_metadata(scratch.inside("link")).unwrap().is_symlink());
        scratch.link("../outside/secret", "out");
        scratch.link("../outside/new", "out-new");
        scratch.link(scratch.outside("deeper"), "out-dir");
        for at in ["out", "out-new", "out-dir/x", "out-dir/y/z"] {
            let refused = put(&scratch, at, "x", NewFile::default()).unwrap_err();
            assert_eq!(refused, ProblemCode::PathOutsideWorkspace, "{at}");
        }
        scratch.mkdir("dir");
        scratch.fifo("fifo");
        for at in ["dir", "fifo", ""] {
            assert_eq!(put(&scratch, at, "", NewFile::default()).unwrap_err(), ProblemCode::WrongKind);
        }
        assert!(scratch.outside_is_untouched());
    }
}
