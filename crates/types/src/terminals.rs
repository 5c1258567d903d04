//! Terminals of a session, as their caller asks for them: opened, typed into, looked at, waited for, closed.

use crate::{Process, ProcessState, PtySize, RoomUser};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which shell a terminal runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TerminalShell {
    Bash,
    Sh,
}

/// A terminal to open: a shell without profile and rc files, with the prompt `$ `.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OpenTerminal {
    /// 120 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// 40 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// `bash` where there is one, unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<TerminalShell>,
    /// A directory of the room; `/workspace` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Environment variable to secret, by name: of the session, of its owner, or of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    /// Further values that must not be seen in its output, each of at least four bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redact_values: Vec<String>,
    /// What it can be called beside its id. Of those that run, one has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub user: Option<RoomUser>,
    /// Whether its output is recorded with times; it is unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<bool>,
    /// Bytes of output that are kept: the last ones. 16 MiB unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_output: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalList {
    /// The newest first; those that have ended too, as long as they are kept.
    pub terminals: Vec<Process>,
}

/// What to type: one of `text`, `keys` and `paste`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TerminalInput {
    /// As it is, and then Enter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// With `text`: whether Enter follows; it does unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enter: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<TerminalKeys>,
    /// As a terminal pastes it: between marks if the program has asked for them, without control characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
}

/// One key, or several in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum TerminalKeys {
    One(String),
    Many(Vec<TerminalKey>),
}

/// A key by its name (`Enter`, `C-c`, `Up`, `F5`, `M-x`), or text between keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum TerminalKey {
    Key(String),
    Text { text: String },
    Paste { paste: String },
}

/// A part of a terminal's output as one reads it afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlainPage {
    /// Where in the output the text begins: behind the cursor that was asked for, if bytes there are not kept any more.
    pub cursor: u64,
    /// Where to go on: where the line begins that is not finished.
    pub next_cursor: u64,
    /// Bytes between the cursor that was asked for and `cursor`, which are not kept any more.
    pub missing: u64,
    /// Whole lines, without escape sequences.
    pub text: String,
    /// The last line as it stands now, such as a prompt. It can still change, and is there again on the next page.
    pub unfinished: String,
    /// Whether there will never be more.
    pub end: bool,
}

/// Where a terminal's cursor is, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScreenCursor {
    pub row: u16,
    pub column: u16,
    pub visible: bool,
}

/// What the program in a terminal has asked of the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScreenModes {
    /// Arrows send other bytes.
    pub application_cursor: bool,
    /// Pasted text is put between marks.
    pub bracketed_paste: bool,
}

/// A colour: a number of xterm's palette, or `#rrggbb`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ScreenColor {
    Palette(u8),
    Rgb(String),
}

fn is_off(flag: &bool) -> bool {
    !flag
}

/// Text of one look, from a column on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ScreenRun {
    pub column: u16,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fg: Option<ScreenColor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bg: Option<ScreenColor>,
    #[serde(skip_serializing_if = "is_off")]
    pub bold: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub faint: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub italic: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub underline: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub blink: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub inverse: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub strikethrough: bool,
}

/// One row with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ScreenRow {
    pub runs: Vec<ScreenRun>,
    /// The text goes on in the next row only because this one was full.
    #[serde(skip_serializing_if = "is_off")]
    pub wrapped: bool,
}

/// What somebody who looked at a terminal now would see.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalScreen {
    pub size: PtySize,
    pub cursor: ScreenCursor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A full-screen program has the alternate screen.
    pub alternate: bool,
    pub modes: ScreenModes,
    /// The rows from the top, without blanks at their ends.
    pub text: Vec<String>,
    /// The same with attributes, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<ScreenRow>,
    /// Rows that have scrolled off the top, as many of the last ones as were asked for, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scrollback: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scrollback_rows: Vec<ScreenRow>,
    /// Rows of scrollback that there are; 20,000 are kept.
    pub scrollback_lines: u64,
    /// Older ones that are not kept any more.
    pub scrollback_dropped: u64,
    /// Bytes of output that this shows: the cursor to read on from.
    pub next_cursor: u64,
    /// Bytes of output that are not kept any more, and so not drawn.
    pub missing: u64,
    pub state: ProcessState,
}

/// What to wait for; the first of several that happens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WaitForTerminal {
    /// That nothing is written for so many milliseconds, from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// That this is on the screen, or is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// That this matches on the screen, or what is written; `^` and `$` are the ends of a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// That the shell has ended.
    #[serde(skip_serializing_if = "is_off")]
    pub exit: bool,
    /// With `text` and `regex`: look only at what is written from this byte of output on, not at the screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// 30000 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Awaited {
    Idle,
    Text,
    Regex,
    Exit,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalWaited {
    /// What happened; nothing if the time was over before, or the shell ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<Awaited>,
    pub timed_out: bool,
    /// The text that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The row of the screen that it begins on, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u16>,
    pub screen: TerminalScreen,
}

/// What ended a terminal's shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// It had ended before.
    Itself,
    Hup,
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalClosed {
    pub ended_by: EndedBy,
    pub process: Process,
}
