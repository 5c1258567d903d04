//! One command: from what its caller asked to what a room is told, and from what came out to the answer.

use crate::actor::CallSecrets;
use crate::config::ExecDefaults;
use crate::{IdempotencyKey, validate};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use workroom_proto::{OutputRule, SpoolReader, Stream};
use workroom_types::{
    CommandSpec, Encoding, ExecRequest, ExecResult, Exit, Problem, RoomUser, RunReport, Timestamp,
    base_environment, format_bytes, set_variable,
};

/// As much of a command as a journal keeps.
const MOST_TEXT: usize = 4096;

/// How large a stream's ring is at least for a caller that reads along: one that is slow for a moment loses nothing.
const LEAST_LIVE_RING: u64 = 4 << 20;

/// A command that is ready to be started.
pub(crate) struct ExecPlan {
    pub(crate) spec: CommandSpec,
    pub(crate) rule: OutputRule,
    pub(crate) timeout: Duration,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) secrets: CallSecrets,
    pub(crate) memo: Memo,
    /// Whether what it leaves running ends with it.
    pub(crate) alone: bool,
}

/// What is kept about a command while it runs, by the guest too, for a server that comes after this one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Memo {
    /// Who asked.
    pub(crate) actor: String,
    /// What, for the journal.
    pub(crate) text: String,
    pub(crate) max_output: u64,
    pub(crate) encoding: Encoding,
    /// Under which key, if any.
    pub(crate) key: Option<IdempotencyKey>,
    /// When the guest was told.
    #[serde(default)]
    pub(crate) started: Option<Timestamp>,
    /// Whether it is one of the server's own looks, which no journal has.
    #[serde(default)]
    pub(crate) quiet: bool,
}

/// How a command ended and what came out.
pub(crate) struct Finished {
    pub(crate) report: RunReport,
    pub(crate) output: Output,
}

pub(crate) enum Output {
    Small([Vec<u8>; 2]),
    Spool(SpoolReader),
}

/// Where the shell is, and whether commands may choose to be root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) has_bash: bool,
    pub(crate) is_root: bool,
}

impl Machine {
    pub(crate) fn find() -> Machine {
        Machine {
            has_bash: std::path::Path::new("/bin/bash").exists(),
            is_root: workroom_room::Privilege::detect() == workroom_room::Privilege::Root,
        }
    }
}

/// Checks a request and fills in what it leaves open.
pub(crate) fn plan(
    request: ExecRequest,
    defaults: &ExecDefaults,
    machine: Machine,
    actor: &str,
    live: bool,
) -> Result<ExecPlan, Problem> {
    let secrets = CallSecrets::new(request.secret_env, &request.env, request.redact_values)?;
    let words = Words {
        command: request.command,
        argv: request.argv,
        login: request.login == Some(true),
        cwd: request.cwd,
        env: request.env,
        user: request.user,
    };
    let (spec, text) = words.spec(machine)?;
    let timeout = request.timeout_ms.map_or(defaults.timeout, Duration::from_millis);
    if timeout.is_zero() || timeout > defaults.longest_timeout {
        return Err(Problem::invalid(
            format!(
                "a time of {timeout:?} is outside 1 ms to {:?}, the longest that this server gives a command (timeout_ms {})",
                defaults.longest_timeout,
                defaults.longest_timeout.as_millis()
            ),
            "start what takes longer as a process, which goes on by itself",
        ));
    }
    let max_output = request.max_output.unwrap_or(defaults.output);
    if max_output > defaults.largest_output {
        return Err(Problem::invalid(
            format!(
                "a result of {} of each stream is more than {}, the most that this server keeps (max_output {})",
                format_bytes(max_output),
                format_bytes(defaults.largest_output),
                defaults.largest_output
            ),
            "read the output as it comes, which has no such limit, or write it to a file",
        ));
    }
    let stdin =
        request.stdin.map(|text| stdin(text, request.stdin_encoding.unwrap_or_default())).transpose()?;
    let (head, tail) = (max_output / 2, max_output - max_output / 2);
    let ring = if live { tail.max(LEAST_LIVE_RING) } else { tail };
    let encoding = request.encoding.unwrap_or_default();
    let memo =
        Memo { actor: actor.to_owned(), text, max_output, encoding, key: None, started: None, quiet: false };
    Ok(ExecPlan { spec, rule: OutputRule { head, ring, live }, timeout, stdin, secrets, memo, alone: false })
}

/// What a caller says of a command, whatever it is run as.
#[derive(Default)]
pub(crate) struct Words {
    pub(crate) command: Option<String>,
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) login: bool,
    pub(crate) cwd: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: Option<RoomUser>,
}

impl Words {
    /// What a room is told, and what a journal keeps of it.
    pub(crate) fn spec(self, machine: Machine) -> Result<(CommandSpec, String), Problem> {
        let text = match (&self.command, &self.argv) {
            (Some(command), _) => command.clone(),
            (None, Some(argv)) => argv.join(" "),
            (None, None) => String::new(),
        };
        let argv = self.arguments(machine)?;
        let user = self.user.unwrap_or_default();
        if user == RoomUser::Root && !machine.is_root {
            return Err(Problem::invalid(
                "user root is not there: without privileges a room has one user, agent",
                "leave `user` out, or run the server as root",
            ));
        }
        let cwd = self.cwd.unwrap_or_else(|| "/workspace".into());
        if !cwd.starts_with('/') || cwd.len() > 4096 || cwd.contains('\0') {
            return Err(Problem::invalid(
                format!("the working directory \"{}\" is not an absolute path", cwd.escape_default()),
                "name a directory of the room, such as /workspace",
            ));
        }
        let mut env = base_environment(user);
        for (name, value) in self.env {
            validate::variable(&name, &value)?;
            set_variable(&mut env, name, value);
        }
        let spec = CommandSpec {
            argv,
            env: env.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
            cwd: cwd.into_bytes(),
            user,
            terminal: None,
        };
        Ok((spec, shorten(&text, MOST_TEXT)))
    }

    fn arguments(&self, machine: Machine) -> Result<Vec<Vec<u8>>, Problem> {
        let argv: Vec<String> = match (&self.command, &self.argv) {
            (Some(command), None) => {
                let shell = if machine.has_bash { "/bin/bash" } else { "/bin/sh" };
                let how = if self.login { "-lc" } else { "-c" };
                vec![shell.into(), how.into(), command.clone()]
            }
            (None, Some(argv)) if !argv.is_empty() => argv.clone(),
            (None, Some(_)) => {
                return Err(Problem::invalid("argv is empty", "its first entry is the program"));
            }
            (None, None) => {
                return Err(Problem::invalid(
                    "there is neither a command nor an argv",
                    "give one of the two",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("there are both a command and an argv", "give one of the two"));
            }
        };
        if argv.iter().any(|argument| argument.contains('\0')) {
            return Err(Problem::invalid("a command cannot contain a NUL character", ""));
        }
        // One argument may have as many bytes as the kernel takes; all together are bounded by the body's size.
        if let Some(long) = argv.iter().find(|argument| argument.len() >= 128 << 10) {
            return Err(Problem::invalid(
                format!("an argument of {} bytes is more than the kernel takes (131071)", long.len()),
                "pass it as stdin, or write it to a file first",
            ));
        }
        Ok(argv.into_iter().map(String::into_bytes).collect())
    }
}

/// A file in memory that holds what the command is to read, and that it cannot change.
pub(crate) fn stdin(text: String, encoding: Encoding) -> Result<OwnedFd, Problem> {
    let data = match encoding {
        Encoding::Text => text.into_bytes(),
        Encoding::Base64 => STANDARD
            .decode(text)
            .map_err(|error| Problem::invalid(format!("stdin is not base64: {error}"), ""))?,
    };
    let fill = || -> io::Result<OwnedFd> {
        let file = memfd_create("stdin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    };
    fill().map_err(|error| {
        Problem::new(workroom_types::ProblemCode::Internal, format!("no memory for stdin: {error}"), "")
    })
}

fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

impl Finished {
    /// The answer to the caller.
    pub(crate) fn result(&self, memo: &Memo) -> io::Result<ExecResult> {
        let report = &self.report;
        let (stdout, out_lossy, out_cut) = self.stream(Stream::Stdout, memo)?;
        let (stderr, err_lossy, err_cut) = self.stream(Stream::Stderr, memo)?;
        let (exit_code, signal) = match report.exit {
            _ if report.timed_out => (124, None),
            Exit::Code(code) => (code, None),
            Exit::Signal(signal) => (128 + signal, Some(signal)),
        };
        Ok(ExecResult {
            exit_code,
            signal,
            timed_out: report.timed_out,
            oom_killed: report.oom_killed,
            stdout,
            stderr,
            encoding: memo.encoding,
            truncated: out_cut || err_cut,
            lossy: out_lossy || err_lossy,
            stdout_bytes: report.written[0],
            stderr_bytes: report.written[1],
            duration_ms: report.duration_micros / 1000,
            cpu_ms: report.cpu_micros / 1000,
            peak_memory: report.peak_memory,
        })
    }

    /// A stream's first and last bytes: as text, whether that lost something, whether something is missing.
    fn stream(&self, stream: Stream, memo: &Memo) -> io::Result<(String, bool, bool)> {
        let written = self.report.written[stream as usize];
        let most = memo.max_output;
        let (head, tail) = if written <= most {
            (self.read(stream, 0, written)?, Vec::new())
        } else {
            (
                self.read(stream, 0, most / 2)?,
                self.read(stream, written - (most - most / 2), most - most / 2)?,
            )
        };
        if head.len() as u64 == written {
            let (text, lossy) = encode(head, memo.encoding);
            return Ok((text, lossy, false));
        }
        let (head, tail) = match memo.encoding {
            Encoding::Text => (until_whole(&head), from_whole(&tail)),
            Encoding::Base64 => (head.as_slice(), tail.as_slice()),
        };
        let missing = written - head.len() as u64 - tail.len() as u64;
        let mark = format!("\n[… {missing} bytes are missing here …]\n");
        let (text, lossy) = encode([head, mark.as_bytes(), tail].concat(), memo.encoding);
        Ok((text, lossy, true))
    }

    fn read(&self, stream: Stream, from: u64, count: u64) -> io::Result<Vec<u8>> {
        match &self.output {
            Output::Small(streams) => {
                let all = &streams[stream as usize];
                let from = (from as usize).min(all.len());
                Ok(all[from..(from + count as usize).min(all.len())].to_vec())
            }
            Output::Spool(spool) => {
                let mut data = Vec::with_capacity(count as usize);
                while (data.len() as u64) < count {
                    let left = (count - data.len() as u64) as usize;
                    let piece = spool.read(stream, from + data.len() as u64, left)?;
                    if piece.data.is_empty() {
                        break;
                    }
                    data.extend_from_slice(&piece.data);
                }
                Ok(data)
            }
        }
    }
}

fn encode(data: Vec<u8>, encoding: Encoding) -> (String, bool) {
    match encoding {
        Encoding::Base64 => (STANDARD.encode(data), false),
        Encoding::Text => match String::from_utf8(data) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        },
    }
}

/// Less a character that is cut off at the end.
fn until_whole(data: &[u8]) -> &[u8] {
    match str::from_utf8(data) {
        Err(error) if error.error_len().is_none() => &data[..error.valid_up_to()],
        _ => data,
    }
}

/// Less the rest of a character at the beginning.
fn from_whole(data: &[u8]) -> &[u8] {
    let rest = data.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    &data[rest..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(stdout: &[u8]) -> Finished {
        let report = RunReport {
            exit: Exit::Code(0),
            timed_out: false,
            oom_killed: false,
            duration_micros: 1500,
            cpu_micros: 0,
            peak_memory: 0,
            written: [stdout.len() as u64, 0],
        };
        Finished { report, output: Output::Small([stdout.to_vec(), Vec::new()]) }
    }

    fn memo(max_output: u64, encoding: Encoding) -> Memo {
        Memo {
            actor: String::new(),
            text: String::new(),
            max_output,
            encoding,
            key: None,
            started: None,
            quiet: false,
        }
    }

    #[test]
    fn what_is_too_long_keeps_both_ends_and_says_how_much_is_missing() {
        let result = finished(b"0123456789").result(&memo(4, Encoding::Text)).unwrap();
        assert_eq!(result.stdout, "01\n[… 6 bytes are missing here …]\n89");
        assert!(result.truncated && !result.lossy);
        assert_eq!(result.stdout_bytes, 10);
        let result = finished(b"0123").result(&memo(4, Encoding::Text)).unwrap();
        assert_eq!((result.stdout.as_str(), result.truncated), ("0123", false));
    }

    /// A cut through a character takes the whole character, and its bytes count as missing.
    #[test]
    fn a_cut_never_damages_a_character() {
        let text = "äöüäöü";
        let result = finished(text.as_bytes()).result(&memo(6, Encoding::Text)).unwrap();
        assert_eq!(result.stdout, "ä\n[… 8 bytes are missing here …]\nü");
        assert!(!result.lossy);
    }

    #[test]
    fn bytes_that_are_no_text_are_not_lost() {
        let result = finished(b"a\xffb").result(&memo(10, Encoding::Text)).unwrap();
        assert!(result.lossy);
        let result = finished(b"a\xffb").result(&memo(10, Encoding::Base64)).unwrap();
        assert_eq!(STANDARD.decode(result.stdout).unwrap(), b"a\xffb");
    }
}
