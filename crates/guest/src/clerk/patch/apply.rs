//! Applying hunks to a text in memory, and saying where a hunk that has no place nearly has one.

use super::parse::{Hunk, Line, Role, excerpt};
use std::collections::HashMap;
use workroom_types::PatchHunk;

/// The most of a file that is shown as nearest to what a hunk expects.
const NEAREST_LINES: usize = 20;
const NEAREST_BYTES: usize = 2000;

/// A line that is in a file more often than this says little about where a hunk belongs.
const COMMON: usize = 200;

/// How much looking a patch may cost, all its files together: a hunk of thousands of equal lines in a file of millions
/// of them would otherwise be compared for hours.
pub(super) struct Effort {
    comparisons: u64,
    nearest: u32,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { comparisons: 100_000_000, nearest: 50 }
    }
}

/// What became of a file's hunks.
pub(super) struct Applied {
    /// The new text; nothing if a hunk has no place.
    pub(super) content: Option<Vec<u8>>,
    pub(super) hunks: Vec<PatchHunk>,
}

/// Applies all hunks, or says of each why it cannot be.
pub(super) fn apply(content: &[u8], hunks: &[Hunk], effort: &mut Effort) -> Applied {
    let mut words = Words::default();
    let text = Text::read(content, &mut words);
    let mut out = Vec::with_capacity(content.len());
    let mut reports = Vec::with_capacity(hunks.len());
    let (mut done, mut drift, mut failed) = (0, 0i64, false);
    for hunk in hunks {
        let wanted = Wanted::read(hunk, &mut words);
        let stated = i64::try_from(hunk.first_index()).unwrap_or(i64::MAX);
        let expected = usize::try_from(stated.saturating_add(drift)).unwrap_or(0);
        match text.find(&wanted, done, expected, effort) {
            Ok(place) => {
                out.extend_from_slice(&content[text.starts[done]..text.starts[place.at]]);
                text.replace(content, hunk, &place, &mut out);
                done = place.at + wanted.lines.len();
                drift = place.at as i64 - stated;
                reports.push(report(hunk, Ok(place.at)));
            }
            Err(why) => {
                failed = true;
                let mut report = report(hunk, Err(why));
                if effort.nearest > 0
                    && let Some(near) = text.nearest(&wanted, expected)
                {
                    effort.nearest -= 1;
                    text.explain(hunk, near, &mut report);
                }
                reports.push(report);
            }
        }
    }
    out.extend_from_slice(&content[text.starts[done]..]);
    Applied { content: (!failed).then_some(out), hunks: reports }
}

/// The text of a file that a patch creates.
pub(super) fn created(hunks: &[Hunk]) -> Vec<u8> {
    let mut content = Vec::new();
    for line in hunks.iter().flat_map(|hunk| &hunk.lines) {
        push_line(&mut content, &line.text, line.newline);
    }
    content
}

pub(super) fn report(hunk: &Hunk, outcome: Result<usize, String>) -> PatchHunk {
    PatchHunk {
        header: hunk.header.clone(),
        line: outcome.as_ref().ok().map(|at| *at as u64 + 1),
        error: outcome.err(),
        nearest_line: None,
        nearest: None,
    }
}

fn push_line(out: &mut Vec<u8>, text: &[u8], newline: bool) {
    out.extend_from_slice(text);
    if newline {
        out.push(b'\n');
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Lines as numbers, so that comparing two takes no time however long they are.
#[derive(Default)]
struct Words<'a> {
    known: HashMap<&'a [u8], u32>,
}

impl<'a> Words<'a> {
    fn number(&mut self, line: &'a [u8]) -> u32 {
        let next = self.known.len() as u32;
        *self.known.entry(line).or_insert(next)
    }

    fn numbers(&mut self, line: &'a [u8]) -> Numbers {
        Numbers {
            exact: self.number(line),
            without_return: self.number(without_return(line)),
            trimmed: self.number(line.trim_ascii()),
        }
    }
}

/// A line in three degrees of likeness.
#[derive(Clone, Copy)]
struct Numbers {
    exact: u32,
    without_return: u32,
    trimmed: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Likeness {
    Exact,
    /// But for a carriage return at the end of lines.
    WithoutReturn,
}

/// What a hunk expects.
struct Wanted {
    lines: Vec<(Numbers, bool)>,
    /// What it puts there ends without a newline, so that nothing can follow.
    at_end: bool,
}

impl Wanted {
    fn read<'a>(hunk: &'a Hunk, words: &mut Words<'a>) -> Wanted {
        Wanted {
            lines: hunk.old_lines().map(|line| (words.numbers(&line.text), line.newline)).collect(),
            at_end: hunk.new_lines().next_back().is_some_and(|line| !line.newline),
        }
    }
}

/// Where a hunk belongs.
struct Place {
    at: usize,
    /// How lines that are added end; as the patch has them unless the file has it otherwise.
    endings: Option<Ending>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Newline,
    ReturnNewline,
}

struct Text<'a> {
    /// Without their newlines.
    lines: Vec<&'a [u8]>,
    numbers: Vec<Numbers>,
    /// Where each line begins, and where the last one ends.
    starts: Vec<usize>,
    ends_with_newline: bool,
}

impl<'a> Text<'a> {
    fn read(content: &'a [u8], words: &mut Words<'a>) -> Text<'a> {
        let mut text = Text {
            lines: Vec::new(),
            numbers: Vec::new(),
            starts: Vec::new(),
            ends_with_newline: content.ends_with(b"\n"),
        };
        let mut start = 0;
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            text.starts.push(start);
            start += line.len();
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            text.lines.push(line);
            text.numbers.push(words.numbers(line));
        }
        text.starts.push(start);
        text
    }

    fn has_newline(&self, index: usize) -> bool {
        index + 1 < self.lines.len() || self.ends_with_newline
    }

    /// The place nearest to the expected one, not before `first`, that has the lines exactly; else one that has them but
    /// for carriage returns.
    fn find(
        &self,
        wanted: &Wanted,
        first: usize,
        expected: usize,
        effort: &mut Effort,
    ) -> Result<Place, String> {
        let count = wanted.lines.len();
        if count == 0 {
            return self.find_insertion(wanted, first, expected);
        }
        let Some(last) = self.lines.len().checked_sub(count).filter(|last| *last >= first) else {
            return Err(format!(
                "the hunk expects {count} lines, and {} are left there",
                self.lines.len() - first
            ));
        };
        let expected = expected.clamp(first, last);
        for likeness in [Likeness::Exact, Likeness::WithoutReturn] {
            for distance in 0..=(last - expected).max(expected - first) {
                let below = expected.checked_add(distance).filter(|at| *at <= last);
                let above = expected.checked_sub(distance).filter(|at| *at >= first && distance > 0);
                for at in [below, above].into_iter().flatten() {
                    if effort.comparisons == 0 {
                        return Err(
                            "looking for the hunk's place took too long; say the right line in its header"
                                .into(),
                        );
                    }
                    if self.has(wanted, at, likeness, effort) {
                        let endings = (likeness == Likeness::WithoutReturn)
                            .then(|| self.ending_of(at, at + count))
                            .flatten();
                        return Ok(Place { at, endings });
                    }
                }
            }
        }
        let lines = if count == 1 { "line" } else { "lines" };
        Err(format!("the {count} {lines} that the hunk expects are nowhere in the file{}", after(first)))
    }

    /// A hunk without context can only be believed.
    fn find_insertion(&self, wanted: &Wanted, first: usize, expected: usize) -> Result<Place, String> {
        let count = self.lines.len();
        if expected < first || expected > count {
            return Err(format!("the hunk adds lines after line {expected}, and the file has {count}"));
        }
        if expected == count && count > 0 && !self.ends_with_newline {
            return Err("the hunk adds lines at the end, and the file's last line has no newline".into());
        }
        if wanted.at_end && expected != count {
            return Err("the hunk adds a line without a newline, and it is not at the file's end".into());
        }
        Ok(Place { at: expected, endings: self.ending_of(0, count) })
    }

    fn has(&self, wanted: &Wanted, at: usize, likeness: Likeness, effort: &mut Effort) -> bool {
        if wanted.at_end && at + wanted.lines.len() != self.lines.len() {
            return false;
        }
        wanted.lines.iter().enumerate().all(|(offset, (line, newline))| {
            effort.comparisons = effort.comparisons.saturating_sub(1);
            let there = &self.numbers[at + offset];
            let same = match likeness {
                Likeness::Exact => there.exact == line.exact,
                Likeness::WithoutReturn => there.without_return == line.without_return,
            };
            same && self.has_newline(at + offset) == *newline
        })
    }

    /// How most of these lines end.
    fn ending_of(&self, from: usize, to: usize) -> Option<Ending> {
        let lines = &self.lines[from..to];
        let returns = lines.iter().filter(|line| line.ends_with(b"\r")).count();
        (!lines.is_empty()).then_some(if returns * 2 > lines.len() {
            Ending::ReturnNewline
        } else {
            Ending::Newline
        })
    }

    /// Writes what a hunk makes of its place. What it leaves as it is stays as the file has it.
    fn replace(&self, content: &[u8], hunk: &Hunk, place: &Place, out: &mut Vec<u8>) {
        let mut at = place.at;
        for line in &hunk.lines {
            match line.role {
                Role::Context => {
                    out.extend_from_slice(&content[self.starts[at]..self.starts[at + 1]]);
                    at += 1;
                }
                Role::Deleted => at += 1,
                Role::Added => match place.endings {
                    None => push_line(out, &line.text, line.newline),
                    Some(ending) => {
                        out.extend_from_slice(without_return(&line.text));
                        if ending == Ending::ReturnNewline && line.newline {
                            out.push(b'\r');
                        }
                        push_line(out, b"", line.newline);
                    }
                },
            }
        }
    }

    /// Where most of the lines that a hunk expects are, blanks around them aside. Each line that is in both votes for the
    /// place that it would put the hunk at.
    fn nearest(&self, wanted: &Wanted, expected: usize) -> Option<usize> {
        let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
        for (line, _) in &wanted.lines {
            places.entry(line.trimmed).or_default();
        }
        for (index, numbers) in self.numbers.iter().enumerate() {
            if let Some(indexes) = places.get_mut(&numbers.trimmed)
                && indexes.len() <= COMMON
            {
                indexes.push(index);
            }
        }
        let mut votes: HashMap<usize, u32> = HashMap::new();
        for (offset, (line, _)) in wanted.lines.iter().enumerate() {
            for index in places[&line.trimmed].iter().take(COMMON) {
                if let Some(at) = index.checked_sub(offset) {
                    *votes.entry(at).or_default() += 1;
                }
            }
        }
        let best = votes
            .into_iter()
            .max_by_key(|(at, votes)| (*votes, std::cmp::Reverse((at.abs_diff(expected), *at))));
        best.map(|(at, _)| at)
    }

    /// Shows what is at the nearest place, and the first line there that is not as the hunk expects it.
    fn explain(&self, hunk: &Hunk, near: usize, report: &mut PatchHunk) {
        let shown = hunk.old_lines().count().min(NEAREST_LINES);
        let mut lines = Vec::new();
        for line in self.lines[near..].iter().take(shown) {
            lines.extend_from_slice(without_return(line));
            lines.push(b'\n');
            if lines.len() > NEAREST_BYTES {
                lines.truncate(NEAREST_BYTES);
                break;
            }
        }
        report.nearest_line = Some(near as u64 + 1);
        report.nearest = Some(String::from_utf8_lossy(&lines).into_owned());
        let difference =
            hunk.old_lines().enumerate().find_map(|(offset, line)| self.difference(near + offset, line));
        if let (Some(difference), Some(error)) = (difference, &mut report.error) {
            error.push_str(&format!("; nearest, {difference}"));
        }
    }

    fn difference(&self, index: usize, line: &Line) -> Option<String> {
        let number = index + 1;
        let Some(there) = self.lines.get(index) else {
            return Some(format!(
                "the file ends where the hunk expects \"{}\"",
                excerpt(without_return(&line.text))
            ));
        };
        if without_return(there) != without_return(&line.text) {
            let (is, wanted) = (excerpt(without_return(there)), excerpt(without_return(&line.text)));
            return Some(format!("line {number} is \"{is}\" where the hunk expects \"{wanted}\""));
        }
        match (self.has_newline(index), line.newline) {
            (false, true) => {
                Some(format!("line {number} has no newline at its end, and the hunk expects one"))
            }
            (true, false) => {
                Some(format!("line {number} has a newline at its end, and the hunk expects none"))
            }
            _ => None,
        }
    }
}

fn after(first: usize) -> String {
    if first == 0 { String::new() } else { format!(" after line {first}, where the hunk before ends") }
}
