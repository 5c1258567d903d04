//! A slot's one terminal: a shell that says, in what it writes, when it is at its prompt.
//!
//! The shell is told by its environment to put marks where a prompt begins, where a line was entered and where the output
//! of a command begins. They are control strings, which no screen shows:
//!
//! ```text
//!  ESC ] 7337 ; KEY ; P ; number of the prompt ; status of what ran before BEL
//!  ESC ] 7337 ; KEY ; B ; number of the prompt ; 0 BEL          a line was entered there
//!  ESC ] 7337 ; KEY ; C ; number of the prompt ; 0 BEL          the output of a command begins
//!
//!    P1 ──Enter──▶ B1 ──(C1)──▶ … ──▶ P2 ──▶ …
//!  at its prompt    busy
//! ```

use super::files::{Once, new_file};
use super::keys;
use super::pool::Turn;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;
use workroom_engine::{NewFile, OutputQuery, PlainQuery, ScreenQuery, TerminalHandle};
use workroom_types::{
    Encoding, OpenTerminal, OutputStream, Problem, ProblemCode, ProcessState, PtySize, TerminalInput,
    TerminalKeys, TerminalShell,
};

/// What a terminal has that nobody has said anything of.
pub(super) const USUAL_SIZE: (u16, u16) = (120, 40);

/// How long a shell may take to come to its first prompt.
const FIRST_PROMPT: Duration = Duration::from_secs(20);

/// How long input may take to be taken.
const TYPED_WITHIN: Duration = Duration::from_secs(5);

/// How long a shell may take to take a line.
const TAKEN_WITHIN: Duration = Duration::from_millis(300);

/// How long a shell has at a prompt to begin with what was typed before.
const NEXT_LINE: Duration = Duration::from_millis(150);

/// Bytes of output that are read at once.
const PIECE: u64 = 1 << 20;

/// The most bytes of output that are made text of.
const MOST_PLAIN: u64 = 8 << 20;

/// Columns of a line: of what is answered no line is cut before the whole is.
const LONGEST_LINE: usize = 3 * super::bash::MOST_OUTPUT;

/// Rows of history.
const HISTORY: usize = 20_000;

/// No mark is longer.
const LONGEST_MARK: usize = 96;

/// What the shell does before its first prompt, and with every one. `@` stands for the key. Prompts are numbered, because
/// one may be drawn again; what a command's text says is evaluated as if it had been typed, not inside a function.
const DRIVER: &str = concat!(
    r"__wr_n=0 __wr_m='\[\e]7337;@;P;${__wr_n};$?\a\]'; ",
    r#"__wr_p() { __wr_n=$((__wr_n+1)); if [[ $PS1 != "$__wr_m"* ]]; then PS1=$__wr_m${PS1//"$__wr_m"/}; fi; }; "#,
    r#"__wr() { local s=$? f=/tmp/.slot-@ c; c=$(<"$f"); command rm -f "$f"; "#,
    r#"printf '\e[A\r\e[J$ %s\n\e]7337;@;C;%s;0\a' "$c" "$__wr_n" >/dev/tty; printf %s "$c"; return $s; }; "#,
    r"PS0='\e]7337;@;B;${__wr_n};0\a'; set +H; export -n PS1; unset PROMPT_COMMAND; ",
    r"if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); ",
    r"then PROMPT_COMMAND[99]=__wr_p; else PROMPT_COMMAND=__wr_p; fi; __wr_p",
);

/// What is typed for a command whose text is in the file that the driver reads.
const TRIGGER: &str = r#" eval "$(__wr)""#;

/// A place in the output that the shell has marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    kind: u8,
    number: u64,
    value: i32,
    /// Where it begins and ends.
    from: u64,
    to: u64,
}

/// What came of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Mark(Mark),
    TimedOut,
    /// The shell has ended.
    Ended,
}

/// How a command in the terminal ended.
pub(super) enum Ran {
    Ended { exit_code: i32, output: String },
    TimedOut,
}

/// What came of keys that were to be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    Back,
    TimedOut,
}

pub(super) struct Terminal {
    handle: TerminalHandle,
    pub(super) id: String,
    pub(super) session: String,
    pub(super) size: (u16, u16),
    /// What its caller said of the network.
    pub(super) allow_network: bool,
    /// What its marks have in them, so that no others are taken for them.
    key: String,
    /// Where its output was read up to, and what there may be the beginning of a mark.
    cursor: u64,
    unread: Vec<u8>,
    marks: VecDeque<Mark>,
    /// The last prompt, and whether a line was entered there.
    prompt: u64,
    is_busy: bool,
    /// Of its recording: bytes that are in the workspace, and of how much output.
    pub(super) published: u64,
    pub(super) published_of: u64,
}

impl Terminal {
    /// Opens one: its shell is at its prompt when this returns.
    pub(super) async fn open(
        turn: &mut Turn<'_>,
        size: (u16, u16),
        allow_network: bool,
    ) -> Result<Terminal, Problem> {
        let session = turn.session().await?;
        let key = new_key()?;
        let mut env = turn.pool.settings().env.clone();
        env.insert("PROMPT_COMMAND".into(), DRIVER.replace('@', &key));
        let request = OpenTerminal {
            cols: Some(size.0),
            rows: Some(size.1),
            shell: Some(TerminalShell::Bash),
            env,
            record: Some(true),
            ..OpenTerminal::default()
        };
        let (engine, caller) = (turn.engine(), turn.caller());
        let process = engine.open_terminal(caller, &session, request, None).await?;
        let handle = engine.terminal(caller, &session, &process.id).await?;
        let mut terminal = Terminal {
            handle,
            id: process.id,
            session,
            size,
            allow_network,
            key,
            cursor: 0,
            unread: Vec::new(),
            marks: VecDeque::new(),
            prompt: 0,
            is_busy: true,
            published: 0,
            published_of: 0,
        };
        match terminal.come_to_prompt(Instant::now() + FIRST_PROMPT).await? {
            Heard::Mark(_) => Ok(terminal),
            _ => {
                terminal.end(turn).await;
                Err(Problem::new(ProblemCode::RoomGone, "the terminal's shell did not come to a prompt", ""))
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.handle.info().state == ProcessState::Running
    }

    /// Bytes that were written to it until now.
    pub(super) fn written(&self) -> u64 {
        self.handle.info().stdout.written
    }

    /// Ends it, with everything that was started in it.
    pub(super) async fn end(self, turn: &mut Turn<'_>) {
        if let Err(problem) = self.handle.process().remove().await {
            tracing::debug!(terminal = self.id, %problem, "a terminal was not removed");
        }
        self.forget_recording(turn).await;
    }

    /// What is in the workspace stays there.
    pub(super) async fn forget_recording(&self, turn: &Turn<'_>) {
        let deleted = turn.engine().delete_recording(turn.caller(), &self.session, &self.id).await;
        if let Err(problem) = deleted {
            tracing::debug!(terminal = self.id, %problem, "a recording was not deleted");
        }
    }

    pub(super) async fn resize(&mut self, size: (u16, u16)) -> Result<(), Problem> {
        if size != self.size {
            let (cols, rows) = (Some(size.0), Some(size.1));
            self.handle.process().resize(PtySize { cols, rows }).await?;
            self.size = size;
        }
        Ok(())
    }

    /// All rows of its screen, or of its history and its screen, each with an end.
    pub(super) async fn capture(&self, entire: bool) -> Result<String, Problem> {
        let scrollback = if entire { HISTORY } else { 0 };
        let screen = self.handle.screen(ScreenQuery { scrollback, attributes: false }).await?;
        let rows = screen.scrollback.iter().chain(&screen.text);
        Ok(rows.flat_map(|row| [row.as_str(), "\n"]).collect())
    }

    /// Types what clients call keys. A line that is entered at the prompt is taken when this returns: what is typed next
    /// is for what the line has begun.
    pub(super) async fn type_on(&mut self, words: &[String]) -> Result<(), Problem> {
        self.catch_up().await?;
        let enters = !self.is_busy && keys::lines(words) > 0;
        self.type_keys(words).await?;
        let soon = Instant::now() + TAKEN_WITHIN;
        // A line that is not complete is not taken.
        while enters && matches!(self.next(soon).await?, Heard::Mark(mark) if mark.kind != b'B') {}
        Ok(())
    }

    async fn type_keys(&self, words: &[String]) -> Result<(), Problem> {
        let keys: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(|word| keys::key(word)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.input(TerminalInput { keys: Some(TerminalKeys::Many(keys)), ..TerminalInput::default() }).await
    }

    async fn input(&self, input: TerminalInput) -> Result<(), Problem> {
        let taken = self.handle.input(input, TYPED_WITHIN).await?;
        match taken.complete {
            true => Ok(()),
            false => {
                let detail = format!("the terminal took {} bytes only", taken.written);
                Err(Problem::new(ProblemCode::Busy, detail, "what runs in it does not read"))
            }
        }
    }

    /// Types keys and waits until the shell has done what they say and is back at its prompt.
    pub(super) async fn type_and_wait(
        &mut self,
        words: &[String],
        until: Instant,
    ) -> Result<Blocked, Problem> {
        self.catch_up().await?;
        // What is typed to something else than a prompt may be for that, or for the prompts that come.
        let is_plain = !self.is_busy && keys::lines(words) == 1;
        let before = self.prompt;
        self.type_keys(words).await?;
        let mut has_begun = false;
        loop {
            let heard = self.next(until).await?;
            has_begun |= matches!(heard, Heard::Mark(_));
            match heard {
                Heard::Mark(mark) if mark.kind == b'P' && mark.number > before => {
                    if is_plain || !self.goes_on(until).await? {
                        return Ok(Blocked::Back);
                    }
                }
                Heard::Mark(_) => {}
                Heard::TimedOut => return Ok(Blocked::TimedOut),
                // It has no prompt to come back to; the next call has another shell.
                Heard::Ended if has_begun => return Ok(Blocked::Back),
                Heard::Ended => return Err(ended()),
            }
        }
    }

    /// Whether the shell begins with another line that was typed before.
    async fn goes_on(&mut self, until: Instant) -> Result<bool, Problem> {
        let soon = (Instant::now() + NEXT_LINE).min(until);
        Ok(matches!(self.next(soon).await?, Heard::Mark(Mark { kind: b'B', .. })))
    }

    /// Runs a command as if it had been typed, and tells what it wrote to the terminal.
    pub(super) async fn run(
        &mut self,
        turn: &Turn<'_>,
        command: &str,
        until: Instant,
    ) -> Result<Ran, Problem> {
        self.catch_up().await?;
        if self.is_busy {
            match self.come_to_prompt(until).await? {
                Heard::Mark(_) => {}
                Heard::TimedOut => return Ok(Ran::TimedOut),
                Heard::Ended => return Err(ended()),
            }
        }
        let path = format!("/tmp/.slot-{}", self.key);
        let new = NewFile { path, root: true, mode: Some(0o600), ..new_file() };
        let text = Bytes::copy_from_slice(command.as_bytes());
        turn.files(&self.session).write(new, &mut Once(Some(text)), None).await?;
        let (before, mut begins, mut has_begun) = (self.prompt, self.cursor, false);
        self.input(TerminalInput { text: Some(TRIGGER.into()), ..TerminalInput::default() }).await?;
        loop {
            let heard = self.next(until).await?;
            has_begun |= matches!(heard, Heard::Mark(_));
            match heard {
                Heard::Mark(mark) if mark.kind == b'C' => begins = mark.to,
                Heard::Mark(mark) if mark.kind == b'P' && mark.number > before => {
                    let output = self.plain(begins, mark.from).await?;
                    return Ok(Ran::Ended { exit_code: mark.value, output });
                }
                Heard::Mark(_) => {}
                Heard::TimedOut => return Ok(Ran::TimedOut),
                // It had before it could take the command.
                Heard::Ended if !has_begun => return Err(ended()),
                Heard::Ended => {
                    let exit_code = self.handle.info().exit.map_or(1, |exit| exit.code);
                    let output = self.plain(begins, self.cursor).await?;
                    return Ok(Ran::Ended { exit_code, output });
                }
            }
        }
    }

    /// What was written between two places, as one reads it.
    async fn plain(&self, from: u64, to: u64) -> Result<String, Problem> {
        let most = to.saturating_sub(from).min(MOST_PLAIN);
        if most == 0 {
            return Ok(String::new());
        }
        let query = PlainQuery { cursor: from, max: Some(most), max_line: Some(LONGEST_LINE) };
        let page = self.handle.plain(query).await?;
        Ok(page.text + &page.unfinished)
    }

    /// Waits until the shell is at a prompt.
    async fn come_to_prompt(&mut self, until: Instant) -> Result<Heard, Problem> {
        loop {
            match self.next(until).await? {
                heard @ Heard::Mark(Mark { kind: b'P', .. }) => return Ok(heard),
                Heard::Mark(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Hears of all that was written until now.
    async fn catch_up(&mut self) -> Result<(), Problem> {
        let written = self.written();
        while self.cursor < written {
            if !self.read(Duration::ZERO).await? {
                break;
            }
        }
        while let Some(mark) = self.marks.pop_front() {
            self.note(mark);
        }
        Ok(())
    }

    /// The next mark, once it is there.
    async fn next(&mut self, until: Instant) -> Result<Heard, Problem> {
        loop {
            if let Some(mark) = self.marks.pop_front() {
                self.note(mark);
                return Ok(Heard::Mark(mark));
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.read(left).await? {
                return Ok(Heard::Ended);
            }
            if left.is_zero() && self.marks.is_empty() {
                return Ok(Heard::TimedOut);
            }
        }
    }

    fn note(&mut self, mark: Mark) {
        match mark.kind {
            b'P' if mark.number > self.prompt => (self.prompt, self.is_busy) = (mark.number, false),
            b'B' if mark.number == self.prompt => self.is_busy = true,
            _ => {}
        }
    }

    /// Reads what was written, and waits for so long if there is nothing: whether there may be more.
    async fn read(&mut self, wait: Duration) -> Result<bool, Problem> {
        let query = OutputQuery {
            stream: OutputStream::Stdout,
            cursor: self.cursor,
            max: Some(PIECE),
            wait,
            encoding: Encoding::Base64,
        };
        let page = self.handle.process().output(query).await?;
        if page.missing > 0 {
            self.unread.clear();
        }
        let data = STANDARD.decode(&page.data).unwrap_or_default();
        self.cursor = page.next_cursor;
        self.unread.extend_from_slice(&data);
        let begins = self.cursor - self.unread.len() as u64;
        let kept = take_marks(&self.unread, begins, &self.key, &mut self.marks);
        self.unread.drain(..kept);
        Ok(!page.end || !data.is_empty())
    }
}

pub(super) fn ended() -> Problem {
    Problem::new(ProblemCode::RoomGone, "the terminal's shell has ended", "try again")
}

fn new_key() -> Result<String, Problem> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Problem::new(ProblemCode::Internal, "this machine gives no randomness", ""))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Finds the marks in output that begins at this place: how much of it is done with. What may be the beginning of a mark
/// is not.
fn take_marks(data: &[u8], begins: u64, key: &str, marks: &mut VecDeque<Mark>) -> usize {
    let head = format!("\x1b]7337;{key};");
    let mut at = 0;
    while let Some(escape) = memchr::memchr(0x1b, &data[at..]) {
        at += escape;
        let rest = &data[at..];
        let is_whole = rest.len() >= head.len();
        if !head.as_bytes().starts_with(&rest[..rest.len().min(head.len())]) {
            at += 1;
            continue;
        }
        let end = rest.iter().take(LONGEST_MARK).position(|byte| *byte == 0x07);
        match end.filter(|_| is_whole) {
            Some(end) => {
                let (from, to) = (begins + at as u64, begins + (at + end + 1) as u64);
                marks.extend(parse(&rest[head.len()..end], from, to));
                at += end + 1;
            }
            None if rest.len() < LONGEST_MARK => return at,
            None => at += 1,
        }
    }
    data.len()
}

fn parse(text: &[u8], from: u64, to: u64) -> Option<Mark> {
    let mut words = str::from_utf8(text).ok()?.split(';');
    let (kind, number, value) = (words.next()?, words.next()?, words.next()?);
    let kind = *kind.as_bytes().first().filter(|kind| b"PBC".contains(kind))?;
    Some(Mark { kind, number: number.parse().ok()?, value: value.parse().ok()?, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks found in these pieces, with where each begins and ends.
    fn found(pieces: &[&str]) -> Vec<(char, u64, i32, u64, u64)> {
        let (mut marks, mut unread, mut cursor) = (VecDeque::new(), Vec::new(), 0);
        for piece in pieces {
            cursor += piece.len() as u64;
            unread.extend_from_slice(piece.as_bytes());
            let begins = cursor - unread.len() as u64;
            let done = take_marks(&unread, begins, "k", &mut marks);
            unread.drain(..done);
        }
        marks.iter().map(|m| (char::from(m.kind), m.number, m.value, m.from, m.to)).collect()
    }

    #[test]
    fn marks_are_found_in_whatever_pieces_they_come() {
        let whole = "ab\x1b]7337;k;P;12;130\x07$ \x1b[A";
        let expected = vec![('P', 12, 130, 2, 20)];
        assert_eq!(found(&[whole]), expected);
        for cut in 1..whole.len() {
            assert_eq!(found(&[&whole[..cut], &whole[cut..]]), expected, "cut at {cut}");
        }
        let letters: Vec<String> = whole.chars().map(String::from).collect();
        assert_eq!(found(&letters.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn what_is_not_ours_is_no_mark() {
        for other in
            ["\x1b]7337;other;P;1;0\x07", "\x1b]0;title\x07", "\x1b]7337;k;X;1;0\x07", "\x1b]7337;k;P;;0\x07"]
        {
            assert!(found(&[other]).is_empty(), "{other:?}");
        }
        let endless = format!("\x1b]7337;k;P;1{}\x1b]7337;k;B;1;0\x07", "0".repeat(200));
        assert_eq!(found(&[&endless]).len(), 1);
    }
}
