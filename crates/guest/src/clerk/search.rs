//! Looking for text in files: line by line, in the order of paths, from open descriptors only.

mod ignores;
mod lines;
#[cfg(test)]
mod tests;

use super::failure::{problem, wrong_kind};
use super::list::Glob;
use super::place::{Base, Last, is_directory, is_regular, open_regular};
use super::walk::{Done, Entry, Next, Order, Visitor, walk};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignores::Ignores;
use lines::{File, Found};
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use workroom_types::{Problem, RoomPath, SearchFiles, SearchResult};

const DEFAULT_MATCHES: u32 = 1000;
const MOST_MATCHES: u32 = 10_000;
const MOST_CONTEXT: u32 = 20;
const MOST_GLOBS: usize = 100;

/// What a compiled pattern may take, and what its search may keep beside it.
const PATTERN_MEMORY: usize = 10 << 20;

/// The longest line that is searched: all of it is in memory.
const LINE_MEMORY: usize = 64 << 20;

pub(crate) fn search(base: &Base, at: &RoomPath, asked: &SearchFiles) -> Result<SearchResult, Problem> {
    let mut seek = Seek::new(at, asked)?;
    let found = base.open(at, Last::Follow)?;
    let stat = fstat(&found).map_err(|error| problem(error, at, "searched"))?;
    if is_regular(&stat) {
        let spot = base.spot(at, Last::Follow)?;
        seek.file(spot.dir.as_fd(), &spot.name, at);
    } else if is_directory(&stat) {
        if asked.respect_ignore_files {
            seek.ignores = Some(Ignores::above(base, at));
        }
        let top = base.open_directory(at)?;
        if let Some(ignores) = &mut seek.ignores {
            ignores.enter(top.as_fd(), &at.bytes);
        }
        walk(top, at, Order::ByPath, &mut seek)?;
    } else {
        return Err(wrong_kind(at, "neither a file nor a directory", "search a file or a directory"));
    }
    Ok(seek.found.result)
}

/// A search under way.
struct Seek<'a> {
    at: &'a RoomPath,
    hidden: bool,
    only: Vec<Glob>,
    not: Vec<Glob>,
    ignores: Option<Ignores>,
    matcher: RegexMatcher,
    searcher: Searcher,
    found: Found,
}

impl<'a> Seek<'a> {
    fn new(at: &'a RoomPath, asked: &SearchFiles) -> Result<Seek<'a>, Problem> {
        let most = asked.max_matches.unwrap_or(DEFAULT_MATCHES);
        if most == 0 || most > MOST_MATCHES {
            return Err(Problem::invalid(
                format!("max_matches {most} is not between 1 and {MOST_MATCHES}"),
                "",
            ));
        }
        if asked.max_per_file == Some(0) {
            return Err(Problem::invalid("max_per_file is 0", "leave it out for no limit of its own"));
        }
        if asked.context > MOST_CONTEXT {
            return Err(Problem::invalid(
                format!("context {} is more than {MOST_CONTEXT}", asked.context),
                "",
            ));
        }
        if asked.globs.len() > MOST_GLOBS {
            return Err(Problem::invalid(format!("there are more than {MOST_GLOBS} globs"), ""));
        }
        let globs = |kept: fn(&String) -> Option<&str>| -> Result<Vec<Glob>, Problem> {
            asked.globs.iter().filter_map(kept).map(|glob| Glob::new(glob.trim_end_matches('/'))).collect()
        };
        let context = asked.context as usize;
        Ok(Seek {
            at,
            hidden: asked.hidden,
            only: globs(|glob| (!glob.starts_with('!')).then_some(glob))?,
            not: globs(|glob| glob.strip_prefix('!'))?,
            ignores: None,
            matcher: matcher(asked)?,
            searcher: SearcherBuilder::new()
                .line_terminator(LineTerminator::crlf())
                .line_number(true)
                .before_context(context)
                .after_context(context)
                .binary_detection(BinaryDetection::quit(0))
                .heap_limit(Some(LINE_MEMORY))
                .build(),
            found: Found::new(most as usize, asked.max_per_file.map(|most| most as usize), context as u64),
        })
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &RoomPath) {
        let file = match open_regular(dir, name, OFlags::RDONLY) {
            Ok(Ok((file, _))) => std::fs::File::from(file),
            // Gone, or not a file any more.
            Ok(Err(_)) | Err(Errno::NOENT) => return,
            Err(_) => {
                self.found.result.files_skipped += 1;
                return;
            }
        };
        let mut sink = File::new(&mut self.found, &self.matcher, path.shown());
        let outcome = self.searcher.search_file(&self.matcher, &file, &mut sink);
        sink.end(outcome.is_ok());
    }

    fn is_left_out(&self, entry: &Entry<'_>) -> bool {
        let name = entry.name.to_bytes();
        let matches = |glob: &Glob| glob.matches(entry);
        let is_directory = is_directory(entry.stat);
        (!self.hidden && name.starts_with(b"."))
            || self.not.iter().any(matches)
            || (!is_directory && !self.only.is_empty() && !self.only.iter().any(matches))
            || self
                .ignores
                .as_ref()
                .is_some_and(|ignores| ignores.match_path(&self.at.join(entry.path).bytes, is_directory))
    }
}

impl Visitor for Seek<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Next, Problem> {
        if self.is_left_out(entry) {
            return Ok(Next::Past);
        }
        if is_regular(entry.stat) {
            self.file(entry.dir, entry.name, &self.at.join(entry.path));
        }
        Ok(if self.found.is_full() { Next::Stop } else { Next::Into })
    }

    fn enter(&mut self, entry: &Entry<'_>, opened: BorrowedFd<'_>) -> Result<(), Problem> {
        if let Some(ignores) = &mut self.ignores {
            ignores.enter(opened, &self.at.join(entry.path).bytes);
        }
        Ok(())
    }

    fn leave(&mut self, _entry: &Entry<'_>) -> Result<Done, Problem> {
        if let Some(ignores) = &mut self.ignores {
            ignores.leave();
        }
        Ok(Done::Yes)
    }

    fn shut(&mut self, _entry: &Entry<'_>, _error: Errno) -> Result<(), Problem> {
        self.found.result.files_skipped += 1;
        Ok(())
    }
}

fn matcher(asked: &SearchFiles) -> Result<RegexMatcher, Problem> {
    if asked.pattern.is_empty() {
        return Err(Problem::invalid("the pattern is empty", "say what to look for"));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(asked.ignore_case)
        .fixed_strings(asked.literal)
        .multi_line(true)
        .crlf(true)
        .size_limit(PATTERN_MEMORY)
        .dfa_size_limit(PATTERN_MEMORY)
        .build(&asked.pattern)
        .map_err(|error| {
            let hint =
                if asked.literal { "text is searched line by line" } else { "say `literal` for plain text" };
            // The rest draws the pattern and marks the place, over several lines.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            Problem::invalid(format!("the pattern \"{}\" cannot be used: {reason}", asked.pattern), hint)
        })
}
