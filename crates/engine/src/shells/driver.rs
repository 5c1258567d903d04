//! The script that makes a shell stateful, and what is said on the channel between it and the host.
//!
//! ```text
//!  host ──▶ shell   bash: "MARK LENGTH" in 32 bytes, then so many bytes;  sh: "MARK LINES\n", then so many lines
//!  shell ──▶ host   the directory it is in, "\n\0", "MARK STATUS\0"       after each command, never before
//! ```
//!
//! What the script has to hold against, and how:
//!
//! - `cd`, variables, functions, `set --`, `declare`: the command is an `eval` at the top level, in no function.
//! - `break` and `continue` at the top level leave the inner one of two loops; `break 9` leaves both, and the loops are
//!   begun once more.
//! - `set -x` and a `DEBUG` trap: the script's own work is one function behind `2>/dev/null`; tracing is off in it.
//! - `$?` is there for the next command: the script's own status is asked for in a condition, which no trap and no
//!   `set -e` looks at.
//! - Children do not have the channel: it is closed for what is evaluated, and the shell's own copy closes at exec.
//! - Aliases and functions by the names of builtins: `\builtin`. Where that itself is redefined nothing is read any
//!   more, and the shell ends.
//! - The signal that ends a command's time means nothing between two commands: one that comes late ends no other.
//! - The end of a command's time: a signal's trap sets another one, for `DEBUG`, that refuses every further step with
//!   `break 0` (which fails, and leaves all loops) and, in a function, returns from it. So even a loop without any
//!   process ends, and the shell has its state. sh has no such trap: it leaves loops, and else is replaced.

use workroom_types::ShellKind;

const BASH: &str = include_str!("driver.bash");
const SH: &str = include_str!("driver.sh");

/// Its last step, which comes when both loops were left, begins them again.
const BASH_LOOP: &str = r#"while __wr_again; do while { __wr_next "$?"; } 2>/dev/null; do if __wr_status; then \builtin eval "$__wr_c" 10>&-; else \builtin eval "$__wr_c" 10>&-; fi; done; done; \builtin eval "$__wr_d""#;
const SH_LOOP: &str = r#"while __wr_again; do while { __wr_next "$?"; } 2>/dev/null; do if __wr_status; then command eval "$__wr_c" 9>&-; else command eval "$__wr_c" 9>&-; fi; done; done; eval "$__wr_d""#;

/// The arguments of a shell that is driven: all on one line, so that lines of commands are counted from 1.
pub(crate) fn argv(kind: ShellKind) -> Vec<String> {
    let one_line = |script: &str| script.lines().collect::<Vec<_>>().join(" ");
    let words: Vec<String> = match kind {
        ShellKind::Bash => {
            let script = format!("{} __wr_d='{BASH_LOOP}'; {BASH_LOOP}", one_line(BASH));
            vec![
                "/bin/bash".into(),
                "--noprofile".into(),
                "--norc".into(),
                "-c".into(),
                script,
                "bash".into(),
            ]
        }
        ShellKind::Sh => {
            let script = format!("{} __wr_n='\n'; __wr_d='{SH_LOOP}'; {SH_LOOP}", one_line(SH));
            vec!["/bin/sh".into(), "-c".into(), script, "sh".into()]
        }
    };
    words
}

/// A command, as the script reads it.
pub(crate) fn request(kind: ShellKind, mark: u64, command: &str) -> Vec<u8> {
    match kind {
        ShellKind::Bash => {
            let head = format!("{:<32}", format!("{mark} {}", command.len()));
            [head.as_bytes(), command.as_bytes()].concat()
        }
        ShellKind::Sh => {
            let lines = command.bytes().filter(|byte| *byte == b'\n').count() + 1;
            format!("{mark} {lines}\n{command}\n").into_bytes()
        }
    }
}

/// What the script says after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) mark: u64,
    pub(crate) status: i32,
    pub(crate) cwd: Vec<u8>,
}

/// Takes the first whole word of the script's from what was read; what is none is passed over.
pub(crate) fn take_done(read: &mut Vec<u8>) -> Option<Done> {
    loop {
        let first = read.iter().position(|byte| *byte == 0)?;
        let second = first + 1 + read[first + 1..].iter().position(|byte| *byte == 0)?;
        let done = parse(&read[..first], &read[first + 1..second]);
        match done {
            Some(done) => {
                read.drain(..=second);
                return Some(done);
            }
            // Somebody else wrote here: the next word may begin where this one was cut.
            None => drop(read.drain(..=first)),
        }
    }
}

fn parse(cwd: &[u8], rest: &[u8]) -> Option<Done> {
    let (mark, status) = str::from_utf8(rest).ok()?.split_once(' ')?;
    let cwd = cwd.strip_suffix(b"\n")?;
    Some(Done { mark: mark.parse().ok()?, status: status.parse().ok()?, cwd: cwd.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_whole_and_one_after_the_other() {
        let mut read = b"/a\n\x007 0\0/with\nline\n\x008 255\0/half".to_vec();
        assert_eq!(take_done(&mut read), Some(Done { mark: 7, status: 0, cwd: b"/a".to_vec() }));
        assert_eq!(take_done(&mut read), Some(Done { mark: 8, status: 255, cwd: b"/with\nline".to_vec() }));
        assert_eq!(take_done(&mut read), None);
        read.extend_from_slice(b"\n\x009 1\0");
        assert_eq!(take_done(&mut read).map(|done| done.mark), Some(9));
        assert!(read.is_empty());
    }

    #[test]
    fn what_somebody_else_writes_on_the_channel_is_passed_over() {
        let mut read = b"junk\0more\0\0/a\n\x007 3\0".to_vec();
        assert_eq!(take_done(&mut read), Some(Done { mark: 7, status: 3, cwd: b"/a".to_vec() }));
    }

    #[test]
    fn a_request_says_how_long_it_is() {
        assert_eq!(request(ShellKind::Bash, 5, "é\n"), b"5 3                             \xc3\xa9\n");
        assert_eq!(request(ShellKind::Sh, 5, "a\nb"), b"5 2\na\nb\n");
        assert_eq!(request(ShellKind::Bash, u64::MAX, "")[..32].len(), 32);
    }
}
