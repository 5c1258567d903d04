//! Reading a unified diff: which files, which hunks, what each expects and puts in its place.
//!
//! What is between files is left alone, as patch(1) does: mails and commits carry diffs. What is in a file's part must
//! be right to the line, because a hunk that was cut off or miscounted would otherwise be applied in part.

use workroom_types::Problem;

/// What a patch does with one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePatch {
    /// `None` is `/dev/null`.
    pub(super) old: Option<Vec<u8>>,
    pub(super) new: Option<Vec<u8>>,
    /// `new file mode` says so.
    pub(super) executable: bool,
    /// The line of the patch that it begins at.
    pub(super) line: usize,
    pub(super) hunks: Vec<Hunk>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Its `@@` line.
    pub(super) header: String,
    pub(super) old_start: u64,
    pub(super) old_count: u64,
    pub(super) new_count: u64,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Context,
    Deleted,
    Added,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) role: Role,
    /// Without its newline; a carriage return before it is part of the text.
    pub(super) text: Vec<u8>,
    /// Whether a newline follows it; not so only at the end of a file.
    pub(super) newline: bool,
}

impl Hunk {
    /// The lines that the file must have.
    pub(super) fn old_lines(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.lines.iter().filter(|line| line.role != Role::Added)
    }

    /// The lines that the file will have.
    pub(super) fn new_lines(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.lines.iter().filter(|line| line.role != Role::Deleted)
    }
}

/// Reads a whole patch.
pub(super) fn parse(text: &str) -> Result<Vec<FilePatch>, Problem> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What ends with a newline has no line after it.
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let mut reader = Reader { lines, next: 0, files: Vec::new() };
    while let Some(line) = reader.peek() {
        if line.starts_with("diff --git ") {
            reader.git_file()?;
        } else if reader.at_names() {
            let names = reader.names()?;
            reader.file(names, None)?;
        } else if line.starts_with("@@ -") {
            return Err(reader.malformed("a hunk is here before the --- and +++ lines that name its file"));
        } else if line.starts_with("Binary files ") && line.ends_with(" differ") {
            return Err(reader.refused("it changes a binary file"));
        } else {
            reader.next += 1;
        }
    }
    if reader.files.is_empty() {
        return Err(Problem::invalid(
            "the patch has no file in it",
            "a unified diff has a --- line, a +++ line and @@ lines for each file, as `git diff` and `diff -u` write it",
        ));
    }
    Ok(reader.files)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    next: usize,
    files: Vec<FilePatch>,
}

/// The `---` and `+++` lines of a file.
struct Names {
    old: Name,
    new: Name,
    line: usize,
}

struct Name {
    /// `None` is `/dev/null`.
    path: Option<Vec<u8>>,
    /// The time beside it is the beginning of time: `diff -N` writes so of a file that is not there.
    never: bool,
}

/// What a `diff --git` part says before its hunks.
struct GitHeader {
    line: usize,
    created: bool,
    deleted: bool,
    executable: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).map(|line| header(line))
    }

    fn at_names(&self) -> bool {
        let starts =
            |index: usize, with: &str| self.lines.get(index).is_some_and(|line| line.starts_with(with));
        starts(self.next, "--- ") && starts(self.next + 1, "+++ ")
    }

    fn malformed(&self, why: &str) -> Problem {
        self.malformed_at(self.next, why)
    }

    fn malformed_at(&self, index: usize, why: &str) -> Problem {
        let shown =
            self.lines.get(index).map_or(String::new(), |line| format!(": \"{}\"", excerpt(line.as_bytes())));
        Problem::invalid(format!("line {} of the patch: {why}{shown}", index + 1), "")
    }

    fn refused(&self, why: &str) -> Problem {
        Problem::invalid(
            format!(
                "line {} of the patch: {why} (\"{}\")",
                self.next + 1,
                excerpt(self.lines.get(self.next).unwrap_or(&"").as_bytes())
            ),
            "patches change the text of files, create and delete files; make other changes with their own calls",
        )
    }

    fn git_file(&mut self) -> Result<(), Problem> {
        let mut git = GitHeader { line: self.next + 1, created: false, deleted: false, executable: false };
        let named = self.peek().and_then(|line| git_name(line.strip_prefix("diff --git ")?));
        self.next += 1;
        while let Some(line) = self.peek() {
            if self.at_names() {
                let names = self.names()?;
                return self.file(names, Some(git));
            }
            if let Some(mode) = line.strip_prefix("new file mode ") {
                (git.created, git.executable) = (true, self.file_mode(mode)?);
            } else if let Some(mode) = line.strip_prefix("deleted file mode ") {
                self.file_mode(mode)?;
                git.deleted = true;
            } else if line.starts_with("old mode ") || line.starts_with("new mode ") {
                return Err(self.refused("it changes the mode of a file"));
            } else if line.starts_with("rename ") || line.starts_with("copy ") {
                return Err(self.refused("it renames or copies a file"));
            } else if line == "GIT binary patch"
                || (line.starts_with("Binary files ") && line.ends_with(" differ"))
            {
                return Err(self.refused("it changes a binary file"));
            } else if !["index ", "similarity index ", "dissimilarity index "]
                .iter()
                .any(|word| line.starts_with(word))
            {
                break;
            }
            self.next += 1;
        }
        // An empty file is created or deleted without a hunk, and so without names of its own.
        if git.created || git.deleted {
            let Some((old, new)) = named else {
                return Err(self.malformed_at(git.line - 1, "the file's name cannot be read"));
            };
            self.files.push(FilePatch {
                old: (!git.created).then_some(old),
                new: (!git.deleted).then_some(new),
                executable: git.executable,
                line: git.line,
                hunks: Vec::new(),
            });
        }
        Ok(())
    }

    /// Whether a mode is that of a program; other modes than those of files are refused.
    fn file_mode(&self, mode: &str) -> Result<bool, Problem> {
        match mode.trim_end() {
            "100644" | "100664" | "100600" => Ok(false),
            "100755" | "100775" | "100700" => Ok(true),
            "120000" => Err(self.refused("it makes or deletes a symbolic link")),
            "160000" => Err(self.refused("it changes a submodule")),
            _ => Err(self.refused("it has a mode that is not a file's")),
        }
    }

    fn names(&mut self) -> Result<Names, Problem> {
        let line = self.next + 1;
        let old = self.name("--- ")?;
        let new = self.name("+++ ")?;
        if old.path.is_none() && new.path.is_none() {
            return Err(self.malformed_at(line - 1, "a file is /dev/null on both sides"));
        }
        Ok(Names { old, new, line })
    }

    fn name(&mut self, before: &str) -> Result<Name, Problem> {
        let line = self.peek().and_then(|line| line.strip_prefix(before)).unwrap_or_default();
        let (path, stamp) = if line.starts_with('"') {
            unquote(line)
                .ok_or_else(|| self.malformed("a quoted name is not ended or has an unknown escape"))?
        } else {
            // What follows a tab is a time; a name with a tab in it would have been quoted.
            let (path, stamp) = line.split_once('\t').unwrap_or((line, ""));
            (path.as_bytes().to_vec(), stamp)
        };
        if path.is_empty() {
            return Err(self.malformed("a file's name is missing"));
        }
        let never =
            stamp.trim_start().starts_with("1970-01-01 ") || stamp.trim_start().starts_with("1969-12-31 ");
        self.next += 1;
        Ok(Name { path: (path != b"/dev/null").then_some(path), never })
    }

    /// The hunks of a file whose names were read.
    fn file(&mut self, names: Names, git: Option<GitHeader>) -> Result<(), Problem> {
        let mut hunks: Vec<Hunk> = Vec::new();
        while self.peek().is_some_and(|line| line.starts_with("@@")) {
            let at = self.next;
            let hunk = self.hunk()?;
            if let Some(before) = hunks.last()
                && hunk.first_index() < before.first_index() + before.old_count
            {
                return Err(self.malformed_at(at, "the hunk overlaps the one before it, or comes before it"));
            }
            hunks.push(hunk);
        }
        if hunks.is_empty() {
            return Err(self.malformed("a hunk was expected here, with a line like \"@@ -1,3 +1,4 @@\""));
        }
        let alone = hunks.len() == 1;
        let mut file = FilePatch {
            old: names.old.path,
            new: names.new.path,
            executable: git.as_ref().is_some_and(|git| git.executable),
            line: names.line,
            hunks,
        };
        if file.old.is_some() && file.new.is_some() && git.is_none() && alone {
            if names.old.never && file.hunks[0].old_count == 0 {
                file.old = None;
            } else if names.new.never && file.hunks[0].new_count == 0 {
                file.new = None;
            }
        }
        if let Some(git) = &git
            && (git.created != file.old.is_none() || git.deleted != file.new.is_none())
        {
            return Err(self.malformed_at(
                names.line - 1,
                "the git header and the --- and +++ lines disagree on whether the file is new or deleted",
            ));
        }
        if file.old.is_none() && (!alone || file.hunks[0].old_count != 0) {
            return Err(
                self.malformed_at(names.line - 1, "a new file has one hunk, and only lines that are added")
            );
        }
        if file.new.is_none() && file.hunks.iter().any(|hunk| hunk.new_count != 0) {
            return Err(self.malformed_at(names.line - 1, "a deleted file has only lines that are deleted"));
        }
        self.files.push(file);
        Ok(())
    }

    fn hunk(&mut self) -> Result<Hunk, Problem> {
        let start = self.next;
        let line = self.peek().unwrap_or_default();
        let Some((old_start, old_count, new_count)) = ranges(line) else {
            return Err(self.malformed("this is not a hunk's header, which looks like \"@@ -1,3 +1,4 @@\""));
        };
        self.next += 1;
        let mut lines: Vec<Line> = Vec::new();
        let (mut old_left, mut new_left) = (old_count, new_count);
        while old_left > 0 || new_left > 0 {
            let Some(line) = self.lines.get(self.next) else {
                return Err(self.malformed_at(
                    start,
                    &format!(
                        "the patch ends in this hunk, with {old_left} old and {new_left} new lines missing"
                    ),
                ));
            };
            let (role, text) = match line.as_bytes() {
                [b' ', text @ ..] => (Role::Context, text),
                [b'-', text @ ..] => (Role::Deleted, text),
                [b'+', text @ ..] => (Role::Added, text),
                [b'\\', ..] => {
                    self.no_newline(&mut lines)?;
                    continue;
                }
                // Editors and mailers take the blank from an empty line of context.
                b"" | b"\r" => (Role::Context, line.as_bytes()),
                _ => return Err(self.malformed("a line of a hunk begins with a blank, a - or a +")),
            };
            let counted = |left: &mut u64| {
                *left = left.checked_sub(1)?;
                Some(())
            };
            let fits = match role {
                Role::Context => counted(&mut old_left).and(counted(&mut new_left)),
                Role::Deleted => counted(&mut old_left),
                Role::Added => counted(&mut new_left),
            };
            if fits.is_none() {
                return Err(self.miscounted(start));
            }
            lines.push(Line { role, text: text.to_vec(), newline: true });
            self.next += 1;
        }
        if self.lines.get(self.next).is_some_and(|line| line.starts_with('\\')) {
            self.no_newline(&mut lines)?;
        }
        // `-- ` alone is where a mailed patch is signed.
        let more = self.lines.get(self.next).is_some_and(|line| line.starts_with([' ', '+', '-']));
        if more && !self.at_names() && header(self.lines[self.next]).trim_end() != "--" {
            return Err(self.miscounted(start));
        }
        let hunk = Hunk { header: line.to_owned(), old_start, old_count, new_count, lines };
        let ends_early = |mut side: Vec<&Line>| {
            side.pop();
            side.iter().any(|line| !line.newline)
        };
        if ends_early(hunk.old_lines().collect()) || ends_early(hunk.new_lines().collect()) {
            return Err(
                self.malformed_at(start, "a line without a newline at its end is not the hunk's last")
            );
        }
        Ok(hunk)
    }

    fn no_newline(&mut self, lines: &mut [Line]) -> Result<(), Problem> {
        match lines.last_mut() {
            Some(line) if line.newline => line.newline = false,
            _ => return Err(self.malformed("there is no line that this could be about")),
        }
        self.next += 1;
        Ok(())
    }

    fn miscounted(&self, start: usize) -> Problem {
        let mut problem = self.malformed("there are more lines in the hunk than its header says");
        problem.detail.push_str(&format!(
            "; the header is on line {}: \"{}\"",
            start + 1,
            excerpt(self.lines[start].as_bytes())
        ));
        problem
    }
}

impl Hunk {
    /// Where it begins, counted from 0. A hunk that expects nothing stands after the line that it names.
    pub(super) fn first_index(&self) -> u64 {
        if self.old_count == 0 { self.old_start } else { self.old_start.saturating_sub(1) }
    }
}

/// A line that is about the patch and not of a file: a patch with CRLF has a carriage return there too.
fn header(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// `@@ -old[,count] +new[,count] @@ …`
fn ranges(line: &str) -> Option<(u64, u64, u64)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| -> Option<(u64, u64)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let number = |text: &str| {
            let plain = !text.is_empty() && text.len() < 16 && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u64>().ok()).flatten()
        };
        Some((number(start)?, number(count)?))
    };
    let ((old_start, old_count), (new_start, new_count)) = (range(old)?, range(new)?);
    // Lines are counted from 1; only a side without lines begins at 0.
    let begins = (old_start > 0 || old_count == 0) && (new_start > 0 || new_count == 0);
    (begins && (old_count > 0 || new_count > 0)).then_some((old_start, old_count, new_count))
}

/// The two names of a `diff --git` line. Without quotes they are told apart only by being the same behind `a/` and `b/`.
fn git_name(line: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    if line.starts_with('"') {
        let (old, rest) = unquote(line)?;
        let rest = rest.strip_prefix(' ')?;
        let new = if rest.starts_with('"') { unquote(rest)?.0 } else { rest.as_bytes().to_vec() };
        return Some((old, new));
    }
    let (old, new) = (line.get(..line.len() / 2)?, line.get(line.len() / 2 + 1..)?);
    let below = |name: &'_ str| name.split_once('/').map_or(name.to_owned(), |(_, below)| below.to_owned());
    let split = line.len() % 2 == 1 && line.as_bytes().get(line.len() / 2) == Some(&b' ');
    (split && (old == new || below(old) == below(new))).then(|| (old.into(), new.into()))
}

/// Reads a name in double quotes with C escapes; returns it and what follows the closing quote.
fn unquote(text: &str) -> Option<(Vec<u8>, &str)> {
    let bytes = text.as_bytes();
    let mut name = Vec::new();
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((name, text.get(at + 1..)?)),
            b'\\' => {
                at += 1;
                let escaped = *bytes.get(at)?;
                name.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => escaped,
                    b'0'..=b'3' => {
                        let digits = std::str::from_utf8(bytes.get(at..at + 3)?).ok()?;
                        at += 2;
                        u8::from_str_radix(digits, 8).ok()?
                    }
                    _ => return None,
                });
            }
            byte => name.push(byte),
        }
        at += 1;
    }
}

/// Not more of a line than a sentence can hold.
pub(super) fn excerpt(line: &[u8]) -> String {
    let text = workroom_types::escape(&line[..line.len().min(400)]);
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
