//! Lines that match, with those around them, as many and as long as an answer can hold.

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use std::collections::VecDeque;
use std::io;
use workroom_types::{SearchMatch, SearchResult};

/// As much as is shown of a line.
const LONGEST_LINE: usize = 2000;

/// Bytes of all lines and paths together: an answer is one message.
const MOST_BYTES: usize = 4 << 20;

/// What was found so far, in all files.
pub(super) struct Found {
    pub(super) result: SearchResult,
    most: usize,
    most_per_file: usize,
    context: u64,
    bytes: usize,
}

impl Found {
    pub(super) fn new(most: usize, most_per_file: Option<usize>, context: u64) -> Found {
        let most_per_file = most_per_file.unwrap_or(usize::MAX);
        Found { result: SearchResult::default(), most, most_per_file, context, bytes: 0 }
    }

    /// There was more than fits.
    pub(super) fn is_full(&self) -> bool {
        self.result.truncated && (self.result.matches.len() >= self.most || self.bytes >= MOST_BYTES)
    }
}

/// One file's part of it.
pub(super) struct File<'a> {
    found: &'a mut Found,
    matcher: &'a RegexMatcher,
    path: String,
    /// Where this file's matches begin, and how many bytes there were before.
    first: usize,
    bytes_before: usize,
    /// The last lines, each with its number.
    recent: VecDeque<(u64, String)>,
    binary: bool,
}

impl<'a> File<'a> {
    pub(super) fn new(found: &'a mut Found, matcher: &'a RegexMatcher, path: String) -> File<'a> {
        let (first, bytes_before) = (found.result.matches.len(), found.bytes);
        File { found, matcher, path, first, bytes_before, recent: VecDeque::new(), binary: false }
    }

    /// All of the file was looked at, or it turned out not to be text.
    pub(super) fn end(self, was_read: bool) {
        if was_read && !self.binary {
            self.found.result.files_searched += 1;
            return;
        }
        self.found.result.files_skipped += 1;
        self.found.result.matches.truncate(self.first);
        self.found.bytes = self.bytes_before;
    }

    fn has_room(&self) -> bool {
        let matches = self.found.result.matches.len();
        matches < self.found.most
            && matches - self.first < self.found.most_per_file
            && self.found.bytes < MOST_BYTES
    }

    /// A line is near enough to earlier matches to be shown with them. False if none of them waits for another.
    fn follow(&mut self, number: u64, text: &str) -> bool {
        let context = self.found.context;
        let mut waits = false;
        for earlier in self.found.result.matches[self.first..].iter_mut().rev() {
            let distance = number.saturating_sub(earlier.line);
            if distance > context {
                break;
            }
            earlier.after.push(text.to_owned());
            self.found.bytes += text.len();
            waits |= distance < context;
        }
        waits
    }

    fn remember(&mut self, number: u64, text: String) {
        if self.found.context > 0 {
            if self.recent.len() as u64 == self.found.context {
                self.recent.pop_front();
            }
            self.recent.push_back((number, text));
        }
    }
}

impl Sink for File<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let number = line.line_number().unwrap_or(0);
        let bytes = without_end(line.bytes());
        let (text, cut) = shown(bytes);
        let waits = self.follow(number, &text);
        if !self.has_room() {
            self.found.result.truncated = true;
            self.remember(number, text);
            // What is shown after the last match may still be to come.
            return Ok(waits);
        }
        let column = self.matcher.find(bytes).ok().flatten().map_or(1, |at| at.start() as u64 + 1);
        let near = number.saturating_sub(self.found.context);
        let before: Vec<String> = self
            .recent
            .iter()
            .filter(|(earlier, _)| *earlier >= near)
            .map(|(_, text)| text.clone())
            .collect();
        self.found.bytes += self.path.len() + text.len() + before.iter().map(String::len).sum::<usize>();
        self.found.result.matches.push(SearchMatch {
            path: self.path.clone(),
            line: number,
            column,
            text: text.clone(),
            cut,
            before,
            after: Vec::new(),
        });
        self.remember(number, text);
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let number = line.line_number().unwrap_or(0);
        let (text, _) = shown(without_end(line.bytes()));
        self.follow(number, &text);
        self.remember(number, text);
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line as it is shown, and how much of it is not. What is cut is cut between characters.
fn shown(line: &[u8]) -> (String, u64) {
    if line.len() <= LONGEST_LINE {
        return (String::from_utf8_lossy(line).into_owned(), 0);
    }
    let is_inside = |at: &usize| line[*at] & 0xc0 == 0x80;
    let end = (LONGEST_LINE - 3..=LONGEST_LINE).rev().find(|at| !is_inside(at)).unwrap_or(LONGEST_LINE);
    (String::from_utf8_lossy(&line[..end]).into_owned(), (line.len() - end) as u64)
}
