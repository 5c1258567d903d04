//! Terminals of rooms as text: what is on the screen, what was said, which bytes a key is, recordings, and waiting
//! for something to appear.
//!
//! Nothing here does input or output beyond `Read` and `Write`, and nothing reads a clock: the caller has the bytes
//! and the time. Everything that keeps something has a bound, and says so when the bound was met.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`screen`] | bytes of a PTY | the grid, its cursor, title and history, and what the terminal answers |
//! | [`plain`] | bytes of a PTY or a pipe | text as one reads it afterwards |
//! | [`keys`] | names of keys, pasted text | bytes for a PTY |
//! | [`cast`] | bytes with their times | asciicast recordings, and back |
//! | [`replay`] | a recording | its events with the pauses between them |
//! | [`wait`] | a pattern and a screen or a stream | whether, and where, it has appeared |
#![forbid(unsafe_code)]

mod answers;
pub mod cast;
mod history;
pub mod keys;
mod line;
pub mod plain;
pub mod replay;
pub mod screen;
mod sequence;
pub mod size;
pub mod style;
mod utf8;
pub mod wait;

pub use keys::{KeyError, KeyModes};
pub use plain::{AlternateScreen, Plain, PlainOptions};
pub use screen::{Screen, Snapshot};
pub use size::{Size, SizeError};
pub use style::{Blanks, Color, Run, Style, StyledLine};
pub use wait::{Pattern, PatternError, TextLog, Waiter};
