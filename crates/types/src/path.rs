//! Paths in a room as callers write them and as they are shown: text, whatever the bytes of a name are.
//!
//! A name of a Linux file is any bytes but `/` and NUL. In JSON, in queries and in the path of a URL it is written as
//! text: bytes that are not UTF-8 as `\xff`, a backslash as `\\`, a newline and the other control characters as `\x0a`
//! where we write it. What is read back is what was written.

use crate::{Problem, ProblemCode};

/// Where commands work, and what paths are relative to.
pub const WORKSPACE: &str = "/workspace";

const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

/// A path below the workspace, or below the room's root for callers that say `root`: no `.`, no `..`, no empty parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoomPath {
    /// Whether it begins at `/` and not at the workspace.
    pub root: bool,
    /// Relative to where it begins; empty for that directory itself.
    pub bytes: Vec<u8>,
}

impl RoomPath {
    /// Reads what a caller wrote. Of the workspace `x`, `/x` and `/workspace/x` are the same file.
    pub fn parse(text: &str, root: bool) -> Result<RoomPath, Problem> {
        RoomPath::from_bytes(&unescape(text)?, root)
    }

    /// The same of the bytes themselves.
    pub fn from_bytes(path: &[u8], root: bool) -> Result<RoomPath, Problem> {
        let refuse = |why: &str| Problem::invalid(format!("the path \"{}\" {why}", shown(path)), "");
        if path.contains(&0) {
            return Err(refuse("has a NUL in it"));
        }
        if path.len() > LONGEST_PATH {
            return Err(refuse(&format!("is longer than {LONGEST_PATH} bytes")));
        }
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    if parts.pop().is_none() {
                        return Err(outside(path, root));
                    }
                }
                part if part.len() > LONGEST_NAME => {
                    return Err(refuse(&format!("has a name longer than {LONGEST_NAME} bytes")));
                }
                part => parts.push(part),
            }
        }
        if !root && leaves_workspace(path) {
            return Err(outside(path, root));
        }
        let is_absolute = path.first() == Some(&b'/');
        if !root && is_absolute && parts.first() == Some(&b"workspace".as_slice()) {
            parts.remove(0);
        }
        Ok(RoomPath { root, bytes: parts.join(&b'/') })
    }

    /// As answers show it: relative to the workspace, or absolute.
    pub fn shown(&self) -> String {
        if self.root { format!("/{}", escape(&self.bytes)) } else { escape(&self.bytes) }
    }

    /// Whether it is the directory that paths begin at.
    pub fn is_top(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn join(&self, name: &[u8]) -> RoomPath {
        let mut bytes = self.bytes.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        RoomPath { root: self.root, bytes }
    }
}

/// `/workspace/../etc` is not `/workspace/etc`.
fn leaves_workspace(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    if path.first() != Some(&b'/') || parts.next() != Some(b"workspace") {
        return false;
    }
    let mut depth = 0i64;
    parts.any(|part| {
        depth += if part == b".." { -1 } else { 1 };
        depth < 0
    })
}

fn outside(path: &[u8], root: bool) -> Problem {
    let (place, hint) = if root {
        ("the room's root", "")
    } else {
        ("the workspace", "paths are relative to /workspace; say `root` for one elsewhere in the room")
    };
    Problem::new(
        ProblemCode::PathOutsideWorkspace,
        format!("the path \"{}\" leaves {place}", shown(path)),
        hint,
    )
}

/// Not more of a path than a sentence can hold.
fn shown(path: &[u8]) -> String {
    let text = escape(path);
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Writes bytes as text that [`unescape`] reads back.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if (character as u32) < 0x20 || character == '\x7f' => {
                    text.push_str(&format!("\\x{:02x}", character as u32));
                }
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Reads text that [`escape`] or a caller wrote.
pub fn unescape(text: &str) -> Result<Vec<u8>, Problem> {
    let refuse = || {
        Problem::invalid(
            format!(
                "the path \"{}\" has a backslash that is followed by neither \\ nor xNN",
                shown(text.as_bytes())
            ),
            "write a backslash as \\\\ and a byte as \\xff",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(refuse);
                bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest = after;
            }
            _ => return Err(refuse()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_try_reach_the_same_file() {
        for form in ["a/b", "/a/b", "/workspace/a/b", "./a//b/", "/workspace/./a/c/../b", "x/../a/b"] {
            assert_eq!(RoomPath::parse(form, false).unwrap().shown(), "a/b", "{form}");
        }
        for form in ["", "/", "/workspace", "/workspace/", "."] {
            assert!(RoomPath::parse(form, false).unwrap().is_top(), "{form}");
        }
        assert_eq!(RoomPath::parse("/workspace/workspace/a", false).unwrap().shown(), "workspace/a");
        assert_eq!(RoomPath::parse("workspace/a", false).unwrap().shown(), "workspace/a");
        assert_eq!(RoomPath::parse("/workspace/a", true).unwrap().shown(), "/workspace/a");
    }

    #[test]
    fn what_leaves_the_workspace_is_refused() {
        for form in ["..", "../x", "a/../../x", "/workspace/../etc", "/..", "/workspace/a/../../workspace/b"]
        {
            let problem = RoomPath::parse(form, false).unwrap_err();
            assert_eq!(problem.code, ProblemCode::PathOutsideWorkspace, "{form}");
        }
        for form in ["a\0b".to_owned(), "x".repeat(256), "a/".repeat(3000), "a\\q".into(), "\\x0".into()] {
            assert_eq!(RoomPath::parse(&form, false).unwrap_err().code, ProblemCode::InvalidArgument);
        }
    }

    #[test]
    fn names_of_any_bytes_are_read_back() {
        let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        assert_eq!(unescape(&escape(&name)).unwrap(), name);
        assert_eq!(escape("caf\u{e9} \\ \n".as_bytes()), "café \\\\ \\x0a");
        assert_eq!(unescape("\\xff\\xFE").unwrap(), [0xff, 0xfe]);
    }
}
