//! `workroom grep`: what is in the files of a session.

use crate::output::{self, clean};
use crate::place::Remote;
use crate::remote::{complain, perform};
use std::process::ExitCode;
use workroom_types::{SearchFiles, SearchMatch};

/// As grep has it: nothing was found.
const NOTHING_FOUND: u8 = 1;

#[derive(clap::Args)]
#[command(
    after_help = "Status 0 if something was found, 1 if not.\n\nExamples:\n  workroom grep TODO build\n  \
    workroom grep -i -C 2 --glob '*.py' 'def main' build:src"
)]
pub(crate) struct Options {
    /// A regular expression
    #[arg(value_name = "PATTERN", allow_hyphen_values = true)]
    pattern: String,
    /// Where to look
    #[arg(value_name = "SESSION[:PATH]", value_parser = Remote::parse_either)]
    place: Remote,
    /// Small and capital letters are the same
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// The pattern is the text itself
    #[arg(short = 'F', long)]
    fixed: bool,
    /// Lines shown before and after each match
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    context: u32,
    /// Only files that this matches, or with ! none of them; may be repeated
    #[arg(long = "glob", value_name = "GLOB")]
    globs: Vec<String>,
    /// Also names that begin with a dot
    #[arg(long)]
    hidden: bool,
    /// Leave out what .gitignore and .ignore files name
    #[arg(long)]
    respect_ignore_files: bool,
    /// At most this many matches
    #[arg(long, value_name = "N", default_value_t = 1000, allow_hyphen_values = true)]
    limit: u32,
    /// The path begins at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print JSON: {"matches": […], …}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = options.place.id(&client).await?;
        let request = SearchFiles {
            pattern: options.pattern.clone(),
            literal: options.fixed,
            ignore_case: options.ignore_case,
            path: options.place.path.clone(),
            globs: options.globs.clone(),
            respect_ignore_files: options.respect_ignore_files,
            hidden: options.hidden,
            context: options.context,
            max_matches: Some(options.limit),
            max_per_file: None,
            root: options.root,
        };
        let found = client.search_files(&id, &request).await?;
        if options.json {
            output::json(&found)?;
        } else {
            output::text(&lines(&found.matches, options.context > 0))?;
            if found.truncated {
                complain("there may be more; --limit shows more");
            }
        }
        Ok(if found.matches.is_empty() { ExitCode::from(NOTHING_FOUND) } else { ExitCode::SUCCESS })
    })
}

/// `path:line:text`, and around it `path-line-text`.
fn lines(matches: &[SearchMatch], with_context: bool) -> String {
    let mut text = String::new();
    for (index, found) in matches.iter().enumerate() {
        if with_context && index > 0 {
            text.push_str("--\n");
        }
        let path = clean(&found.path);
        let mut line = |number: u64, mark: char, content: &str| {
            text.push_str(&format!("{path}{mark}{number}{mark}{}\n", shown(content)));
        };
        let first = found.line.saturating_sub(found.before.len() as u64);
        for (number, content) in (first..).zip(&found.before) {
            line(number, '-', content);
        }
        line(found.line, ':', &found.text);
        for (number, content) in (found.line + 1..).zip(&found.after) {
            line(number, '-', content);
        }
    }
    text
}

/// A tab moves the cursor no further than anybody expects.
fn shown(content: &str) -> String {
    content.split('\t').map(clean).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_lines_as_grep_has_them() {
        let found = |line, text: &str, before: &[&str], after: &[&str]| SearchMatch {
            path: "a".into(),
            line,
            column: 1,
            text: text.into(),
            cut: 0,
            before: before.iter().map(|&line| line.to_owned()).collect(),
            after: after.iter().map(|&line| line.to_owned()).collect(),
        };
        assert_eq!(lines(&[found(3, "x\t\u{1b}", &[], &[])], false), "a:3:x\t\\u{1b}\n");
        assert_eq!(
            lines(&[found(3, "x", &["y"], &["z"]), found(9, "x", &[], &[])], true),
            "a-2-y\na:3:x\na-4-z\n--\na:9:x\n"
        );
    }
}
