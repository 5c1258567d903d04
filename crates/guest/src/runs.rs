//! Commands of a durable room: their pipes, their output, their time, and their end until the host has heard of it.

use crate::output::{Output, SpoolSpace};
use crate::since::ShellRun;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use workroom_proto::{OutputRule, Stream};
use workroom_types::RunReport;

/// As much as a pipe holds.
const CHUNK: usize = 64 << 10;

/// More than a terminal holds: one that is written to all the time is not read for ever.
const MOST_IN_TERMINAL: usize = 256 << 10;

/// Pipes that are open at once: what commands leave running may hold theirs for ever.
const MOST_PIPES: usize = 8192;

/// The first key of a pipe; those below are the guest's own descriptors.
pub(crate) const FIRST_PIPE: u64 = 16;

/// What the guest keeps for a command of a durable room.
pub(crate) struct Kept {
    pub(crate) output: Output,
    pub(crate) deadline: Option<Instant>,
    pub(crate) timed_out: bool,
    pub(crate) oom_kills_before: u64,
    pub(crate) label: u64,
    pub(crate) memo: Vec<u8>,
    /// Whether what it leaves running ends with it.
    pub(crate) is_alone: bool,
    /// Of a command that is written to while it runs.
    pub(crate) ends: Option<Ends>,
    /// Of a shell: the command that it is at.
    pub(crate) run: Option<Box<ShellRun>>,
    pipes: Vec<u64>,
}

/// The guest's own ends of what a spawned command has: kept, so that the end of a host is none of them.
#[derive(Default)]
pub(crate) struct Ends {
    /// What is written to it: a pipe, or its terminal.
    pub(crate) input: Option<OwnedFd>,
    pub(crate) channel: Option<OwnedFd>,
}

impl Kept {
    /// Of a command that is written to while it runs.
    pub(crate) fn spawned(
        output: Output,
        timeout_ms: Option<u64>,
        memo: Vec<u8>,
        pipes: Vec<u64>,
        ends: Ends,
    ) -> Kept {
        let deadline = deadline(timeout_ms);
        Kept {
            output,
            deadline,
            timed_out: false,
            oom_kills_before: 0,
            label: 0,
            memo,
            is_alone: false,
            ends: Some(ends),
            run: None,
            pipes,
        }
    }

    pub(crate) fn new(
        rule: OutputRule,
        timeout_ms: Option<u64>,
        memo: Vec<u8>,
        pipes: [u64; 2],
        space: &SpoolSpace,
    ) -> io::Result<Kept> {
        let output = Output::new(rule, space)?;
        Ok(Kept {
            output,
            deadline: deadline(timeout_ms),
            timed_out: false,
            oom_kills_before: 0,
            label: 0,
            memo,
            is_alone: false,
            ends: None,
            run: None,
            pipes: pipes.to_vec(),
        })
    }
}

fn deadline(timeout_ms: Option<u64>) -> Option<Instant> {
    timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)))
}

/// A command that ended, until the host says that it knows.
pub(crate) struct Ended {
    pub(crate) report: RunReport,
    pub(crate) output: Output,
    pub(crate) memo: Vec<u8>,
    /// Of a spawned command, which has its output in the host's file.
    pub(crate) spawned_pid: Option<i32>,
    /// Of a shell: the command that it ended at.
    pub(crate) run: Option<Box<ShellRun>>,
    /// What it left running has this label too.
    pub(crate) label: u64,
}

struct Pipe {
    fd: OwnedFd,
    /// Whose output it carries; nobody's once the command has ended and something that it left goes on writing.
    command: Option<u32>,
    stream: Stream,
    /// Whether it is a terminal, which has no count of what is in it that can be relied on.
    is_terminal: bool,
}

/// Pipes for a command: the keys of the ends that are read, and the ends to write to.
pub(crate) struct Pair {
    pub(crate) keys: [u64; 2],
    pub(crate) ends: [OwnedFd; 2],
}

/// The reading ends of all commands' pipes.
pub(crate) struct Pipes {
    open: HashMap<u64, Pipe>,
    next: u64,
    buffer: Vec<u8>,
    spare: Option<Pair>,
    /// So many that the guest's own work never lacks a descriptor.
    most: usize,
}

impl Pipes {
    pub(crate) fn new() -> Pipes {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = descriptors.map_or(MOST_PIPES, |all| (all as usize / 2).min(MOST_PIPES));
        Pipes { open: HashMap::new(), next: FIRST_PIPE, buffer: Vec::new(), spare: None, most }
    }

    /// Two pipes: their keys, and the ends for the command to write to.
    pub(crate) fn take(&mut self, epoll: &OwnedFd, command: u32) -> io::Result<Pair> {
        let pair = match self.spare.take() {
            Some(pair) => pair,
            None => self.make(epoll)?,
        };
        for key in pair.keys {
            if let Some(pipe) = self.open.get_mut(&key) {
                pipe.command = Some(command);
            }
        }
        Ok(pair)
    }

    /// Has a pair ready for the next command, once there has been one: nobody waits for it now.
    pub(crate) fn prepare(&mut self, epoll: &OwnedFd) {
        if self.spare.is_none() && self.next > FIRST_PIPE {
            self.spare = self.make(epoll).ok();
        }
    }

    fn make(&mut self, epoll: &OwnedFd) -> io::Result<Pair> {
        if self.open.len() + 2 > self.most {
            return Err(io::Error::other(format!(
                "{} are open, held by what commands left",
                self.open.len()
            )));
        }
        let mut end = |stream| -> io::Result<(u64, OwnedFd)> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            // Whoever has one end of a pipe can open the other and take what we were told of.
            rustix::io::ioctl_fionbio(&read, true)?;
            let key = self.next;
            epoll::add(epoll, &read, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
            self.next += 1;
            self.open.insert(key, Pipe { fd: read, command: None, stream, is_terminal: false });
            Ok((key, write))
        };
        let (out, out_end) = end(Stream::Stdout)?;
        match end(Stream::Stderr) {
            Ok((err, err_end)) => Ok(Pair { keys: [out, err], ends: [out_end, err_end] }),
            Err(error) => {
                self.open.remove(&out);
                Err(error)
            }
        }
    }

    /// Reads a command's terminal like a pipe: the key of it. From here on nobody waits for it, whoever has it open.
    pub(crate) fn take_terminal(
        &mut self,
        epoll: &OwnedFd,
        command: u32,
        master: OwnedFd,
    ) -> io::Result<u64> {
        if self.open.len() + 1 > self.most {
            return Err(io::Error::other(format!(
                "{} are open, held by what commands left",
                self.open.len()
            )));
        }
        rustix::io::ioctl_fionbio(&master, true)?;
        let key = self.next;
        epoll::add(epoll, &master, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
        self.next += 1;
        let pipe = Pipe { fd: master, command: Some(command), stream: Stream::Stdout, is_terminal: true };
        self.open.insert(key, pipe);
        Ok(key)
    }

    /// Reads once from a pipe that has something: what, and of which command, if it is still anybody's.
    pub(crate) fn pump(&mut self, key: u64) -> Option<(u32, Stream, &[u8])> {
        let pipe = self.open.get(&key)?;
        match read_some(&pipe.fd, &mut self.buffer, CHUNK) {
            Ok(0) => {}
            Ok(_) => return pipe.command.map(|command| (command, pipe.stream, self.buffer.as_slice())),
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => {}
        }
        self.open.remove(&key);
        None
    }

    /// The command has ended: what is in its pipes now is the last of it. What others that hold the pipes write
    /// later is read, so that they can go on, and dropped.
    pub(crate) fn drain(&mut self, kept: &mut Kept) {
        self.read_now(kept);
        kept.output.finish();
        for key in &kept.pipes {
            if let Some(pipe) = self.open.get_mut(key) {
                pipe.command = None;
            }
        }
    }

    /// Reads what is in a command's pipes at this moment.
    pub(crate) fn read_now(&mut self, kept: &mut Kept) {
        for key in &kept.pipes {
            let Some(pipe) = self.open.get_mut(key) else { continue };
            // What a terminal has taken may not have arrived on our side yet; reading waits for it.
            let mut left = match pipe.is_terminal {
                true => MOST_IN_TERMINAL,
                false => rustix::io::ioctl_fionread(&pipe.fd).unwrap_or(0) as usize,
            };
            while left > 0 {
                match read_some(&pipe.fd, &mut self.buffer, left.min(CHUNK)) {
                    Ok(read) if read > 0 => {
                        kept.output.append(pipe.stream, &self.buffer);
                        left -= read.min(left);
                    }
                    _ => break,
                }
            }
        }
    }

    /// The command never ran.
    pub(crate) fn close(&mut self, kept: &Kept) {
        kept.pipes.iter().for_each(|key| drop(self.open.remove(key)));
    }
}

/// Memory is touched only as far as it is read into: an idle room stays small.
fn read_some(fd: &OwnedFd, buffer: &mut Vec<u8>, most: usize) -> Result<usize, Errno> {
    buffer.clear();
    buffer.reserve_exact(CHUNK);
    if most < CHUNK {
        let mut small = Vec::with_capacity(most);
        let read = rustix::io::read(fd.as_fd(), rustix::buffer::spare_capacity(&mut small))?;
        buffer.extend_from_slice(&small);
        return Ok(read);
    }
    rustix::io::read(fd.as_fd(), rustix::buffer::spare_capacity(buffer))
}
