//! One piece of text in a file, replaced by another.

use super::draft::{Draft, Over, write_all};
use super::failure::{busy, not_found, problem, quoted};
use super::info::{check_match, etag};
use super::place::{Base, Last, open_regular};
use super::read::{not_a_file, read_up_to};
use memchr::memmem;
use rustix::fs::{AtFlags, FileType, OFlags, fstat, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use workroom_types::{EditFile, Edited, Problem, ProblemCode, RoomPath};

/// Larger files are not text that somebody edits by quoting it.
const MOST_BYTES: u64 = 64 << 20;

/// How often an edit begins anew because the file has changed under it.
const MOST_TRIES: u32 = 8;

/// Lines that are named when the text is there more than once.
const MOST_LINES: usize = 5;

/// Replaces text. The rest of the file stays as it is, whatever its bytes.
pub(crate) fn edit(base: &Base, path: &RoomPath, asked: &EditFile) -> Result<Edited, Problem> {
    if asked.old.is_empty() {
        return Err(Problem::invalid("the text to replace is empty", "quote some text of the file in `old`"));
    }
    if asked.old == asked.new {
        return Err(Problem::invalid("the text to replace and the new one are the same", ""));
    }
    if path.is_top() {
        return Err(not_a_file(path, FileType::Directory));
    }
    for _ in 0..MOST_TRIES {
        if let Some(edited) = try_edit(base, path, asked)? {
            return Ok(edited);
        }
    }
    Err(busy(path, "edited"))
}

/// Nothing if the file has changed meanwhile.
fn try_edit(base: &Base, path: &RoomPath, asked: &EditFile) -> Result<Option<Edited>, Problem> {
    let fault = |error: Errno| problem(error, path, "edited");
    let spot = base.spot(path, Last::Follow)?;
    if spot.thing.is_none() {
        return Err(not_found(path));
    }
    let opened = open_regular(spot.dir.as_fd(), &spot.name, OFlags::RDONLY).map_err(fault)?;
    let (file, stat) = opened.map_err(|kind| not_a_file(path, kind))?;
    if let Some(wanted) = &asked.if_match {
        check_match(path, wanted, Some(&stat))?;
    }
    let content = read_up_to(&file, 0, MOST_BYTES + 1).map_err(fault)?;
    if content.len() as u64 > MOST_BYTES {
        return Err(Problem::new(
            ProblemCode::FileTooLarge,
            format!("{} is larger than the {MOST_BYTES} bytes that an edit takes", quoted(path)),
            "change it with a command in the room",
        ));
    }
    let places: Vec<usize> = memmem::find_iter(&content, asked.old.as_bytes()).collect();
    if places.is_empty() {
        return Err(no_match(path, &content, &asked.old));
    }
    if places.len() > 1 && !asked.all {
        return Err(many_matches(path, &content, &places));
    }
    let mut draft = Draft::new(spot.dir.as_fd()).map_err(fault)?;
    let mut copied = 0;
    for place in &places {
        write_all(draft.file(), &content[copied..*place]).map_err(fault)?;
        write_all(draft.file(), asked.new.as_bytes()).map_err(fault)?;
        copied = place + asked.old.len();
    }
    write_all(draft.file(), &content[copied..]).map_err(fault)?;
    draft.set_mode(stat.st_mode).map_err(fault)?;
    // As late as can be: what somebody wrote since it was read is not to be lost.
    let now = statat(&spot.dir, spot.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
    if !now.is_ok_and(|now| etag(&now) == etag(&stat)) {
        return Ok(None);
    }
    draft.install(spot.dir.as_fd(), &spot.name, Over::Files).map_err(fault)?;
    let stat = fstat(draft.file()).map_err(fault)?;
    Ok(Some(Edited {
        path: path.shown(),
        replacements: places.len() as u64,
        size: stat.st_size as u64,
        etag: etag(&stat),
    }))
}

fn many_matches(path: &RoomPath, content: &[u8], places: &[usize]) -> Problem {
    let mut lines: Vec<String> =
        places.iter().take(MOST_LINES).map(|place| line_of(content, *place).to_string()).collect();
    if places.len() > MOST_LINES {
        lines.push("…".into());
    }
    let (name, count, lines) = (quoted(path), places.len(), lines.join(", "));
    Problem::new(
        ProblemCode::EditMismatch,
        format!("the text to replace is in {name} {count} times, on lines {lines}"),
        "quote more of what is around the one that is meant, or say `all`",
    )
}

fn no_match(path: &RoomPath, content: &[u8], old: &str) -> Problem {
    let new = |hint: String| {
        let detail = format!("the text to replace is not in {}", quoted(path));
        Problem::new(ProblemCode::EditMismatch, detail, hint)
    };
    let with_returns = old.replace("\r\n", "\n").replace('\n', "\r\n");
    if old.contains('\n') && memmem::find(content, with_returns.as_bytes()).is_some() {
        return new("the file's lines end with \\r\\n, and those of the text do not".into());
    }
    // The first line that says something, with other white space around it or not.
    let Some(line) = old.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return new("read the file again, and quote it exactly".into());
    };
    match memmem::find(content, line.as_bytes()) {
        Some(place) => {
            let number = line_of(content, place);
            new(format!(
                "it begins like line {number}, and then differs: compare white space and what follows"
            ))
        }
        None => new("read the file again, and quote it exactly".into()),
    }
}

fn line_of(content: &[u8], place: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..place]).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clerk::scratch::{Scratch, path};
    use std::os::unix::fs::PermissionsExt;

    fn asked(old: &str, new: &str) -> EditFile {
        EditFile { old: old.into(), new: new.into(), ..EditFile::default() }
    }

    #[test]
    fn one_or_all_and_the_rest_survives() {
        let scratch = Scratch::new();
        scratch.write("f", b"\xff one\r\n\0 two one\n");
        std::fs::set_permissions(scratch.inside("f"), PermissionsExt::from_mode(0o750)).unwrap();
        scratch.link("/workspace/f", "link");
        let edit = |asked: &EditFile| edit(&scratch.base(), &path("link"), asked);
        let many = edit(&asked("one", "1")).unwrap_err();
        assert_eq!(many.code, ProblemCode::EditMismatch);
        assert!(many.detail.contains("2 times, on lines 1, 2"), "{}", many.detail);
        let edited = edit(&asked("two", "zwei")).unwrap();
        assert_eq!((edited.replacements, edited.size), (1, 18));
        assert_eq!(scratch.read("f"), b"\xff one\r\n\0 zwei one\n");
        assert_eq!(edit(&EditFile { all: true, ..asked("one", "") }).unwrap().replacements, 2);
        assert_eq!(scratch.read("f"), b"\xff \r\n\0 zwei \n");
        let mode = std::fs::metadata(scratch.inside("f")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);
        assert!(std::fs::symlink_metadata(scratch.inside("link")).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(scratch.inside("")).unwrap().count(), 2);
    }

    #[test]
    fn what_does_not_fit_is_explained() {
        let scratch = Scratch::new();
        scratch.write("f", "fn main() {\n    body();\n}\n");
        scratch.write("crlf", "a\r\nb\r\n");
        let edit = |at: &str, asked: &EditFile| edit(&scratch.base(), &path(at), asked).unwrap_err();
        let near = edit("f", &asked("fn main() {\n  body();", "x"));
        assert_eq!(near.code, ProblemCode::EditMismatch);
        assert!(near.hint.contains("line 1"), "{}", near.hint);
        assert!(edit("crlf", &asked("a\nb", "x")).hint.contains("\\r\\n"));
        assert_eq!(edit("f", &asked("nothing like it", "x")).code, ProblemCode::EditMismatch);
        assert_eq!(edit("f", &asked("", "x")).code, ProblemCode::InvalidArgument);
        assert_eq!(edit("f", &asked("x", "x")).code, ProblemCode::InvalidArgument);
        assert_eq!(edit("none", &asked("x", "y")).code, ProblemCode::NotFound);
        assert_eq!(edit("", &asked("x", "y")).code, ProblemCode::WrongKind);
        let stale = EditFile { if_match: Some("0-0-0-0".into()), ..asked("body", "x") };
        assert_eq!(edit("f", &stale).code, ProblemCode::PreconditionFailed);
        scratch.write("large", "");
        let large = std::fs::File::options().write(true).open(scratch.inside("large")).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        assert_eq!(edit("large", &asked("x", "y")).code, ProblemCode::FileTooLarge);
    }
}
