//! The caller's own terminal: its size, and raw mode that is always given back.

use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use workroom_types::TerminalSize;

pub(crate) fn both_are_terminals() -> bool {
    isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout())
}

/// The terminal's size, or what a terminal has been since before screens.
pub(crate) fn size() -> TerminalSize {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
        .into_iter()
        .find_map(|fd| tcgetwinsize(fd).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0))
        .map_or(TerminalSize { rows: 24, cols: 80 }, |size| TerminalSize {
            rows: size.ws_row,
            cols: size.ws_col,
        })
}

/// Raw mode, until dropped: every key goes to the room, which has a terminal of its own to make sense of it.
pub(crate) struct RawMode(Termios);

impl RawMode {
    pub(crate) fn enter() -> Option<RawMode> {
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(RawMode(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Without an echo of what is typed, until dropped; then what was typed meanwhile is thrown away. Control-C still is one.
pub(crate) struct Quiet(Termios);

impl Quiet {
    pub(crate) fn enter() -> Option<Quiet> {
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &quiet).ok()?;
        Some(Quiet(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.0);
    }
}
