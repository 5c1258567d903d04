//! A crowd: a process that holds idle rooms. One process can hold as many as its open files allow, so a
//! larger number takes several. It is this program executed anew, asked by lines:
//!
//! ```text
//!  bench ──── "fill 500" ───▶ crowd ── spawner ── rooms
//!        ◀─── "." ... "standing 500" ───
//!        ◀─── "standing 312 the reason for no more" ───
//!  bench ──── "end" ────────▶
//!        ◀─── "." ... "gone" ───
//! ```

use crate::guard;
use crate::options::Cgroups;
use crate::rooms::{Rooms, words};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use workroom_room::Room;

/// The name this program is started under to be a crowd.
const ARGV0: &str = "workroom-bench-crowd";
const UNLIMITED: &str = "unlimited";

/// Rooms in the making at a time.
const IN_FLIGHT: usize = 16;

pub(crate) struct Crowd {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) spawner: u32,
    /// What limits the memory of its rooms.
    pub(crate) memory_limit: String,
}

impl Crowd {
    pub(crate) fn start(cgroups: Cgroups) -> Result<Crowd, String> {
        let mut process = Command::new("/proc/self/exe")
            .arg0(ARGV0)
            .args((cgroups == Cgroups::LeftOut).then_some(UNLIMITED))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a process to hold rooms did not start: {error}"))?;
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().ok_or("a process to hold rooms has no stdout")?);
        let mut crowd = Crowd { process, requests, answers, spawner: 0, memory_limit: String::new() };
        let answer = crowd.answer("spawner")?;
        let (pid, limit) = answer.split_once(' ').unwrap_or((&answer, ""));
        crowd.spawner = pid.parse().map_err(|_| format!("a process to hold rooms said {answer}"))?;
        crowd.memory_limit = limit.to_owned();
        Ok(crowd)
    }

    /// Makes rooms; says how many stand, and why there are no more.
    pub(crate) fn fill(&mut self, rooms: usize) -> Result<(usize, Option<String>), String> {
        self.ask(&format!("fill {rooms}"))?;
        let answer = self.answer("standing")?;
        let (count, why) = answer.split_once(' ').unwrap_or((&answer, ""));
        let count = count.parse().map_err(|_| format!("a process that holds rooms said {answer}"))?;
        Ok((count, (!why.is_empty()).then(|| why.to_owned())))
    }

    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.ask("end")?;
        self.answer("gone").map(drop)
    }

    fn ask(&mut self, request: &str) -> Result<(), String> {
        let requests = self.requests.as_mut().ok_or("it was told to end")?;
        writeln!(requests, "{request}").map_err(|error| format!("a process that holds rooms ended: {error}"))
    }

    /// What follows this word, once it is said.
    fn answer(&mut self, word: &str) -> Result<String, String> {
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
            guard::alive();
            match line.trim_end() {
                "." => continue,
                line => {
                    let rest = line.strip_prefix(word).map(|rest| rest.trim_start().to_owned());
                    return rest.ok_or_else(|| format!("rooms could not be held: {line}"));
                }
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.process.wait();
    }
}

/// Becomes a crowd if this process was started as one.
pub(crate) fn run_if_crowd() {
    let mut arguments = std::env::args();
    if arguments.next().is_some_and(|name| name == ARGV0) {
        let cgroups =
            if arguments.next().as_deref() == Some(UNLIMITED) { Cgroups::LeftOut } else { Cgroups::AsUsual };
        std::process::exit(match serve(cgroups) {
            Ok(()) => 0,
            Err(error) => {
                println!("{}", error.replace('\n', " "));
                1
            }
        });
    }
}

fn serve(cgroups: Cgroups) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    let rooms = Rooms::start(cgroups)?;
    // The first room loads what all share.
    let memory_limit = rooms.memory_limit()?;
    println!("spawner {} {memory_limit}", rooms.spawner_pid());
    let mut standing = Vec::new();
    for request in io::stdin().lines() {
        let request = request.map_err(|error| error.to_string())?;
        match request.split_once(' ') {
            Some(("fill", count)) => {
                let count = count.parse().map_err(|_| format!("\"{count}\" is not a number"))?;
                let why = fill(&rooms, &mut standing, count).unwrap_or_default();
                println!("standing {} {}", standing.len(), why.replace('\n', " "));
            }
            _ => {
                end(&rooms, std::mem::take(&mut standing))?;
                println!("gone");
            }
        }
    }
    Ok(())
}

/// Makes rooms until there are enough or the machine says no, and what it said.
fn fill(rooms: &Rooms, standing: &mut Vec<Room>, aim: usize) -> Option<String> {
    let mut ready = 0;
    let mut stopped = None;
    while stopped.is_none() && standing.len() < aim {
        match rooms.ask() {
            Ok(room) => standing.push(room),
            Err(error) => stopped = Some(error),
        }
        if standing.len() - ready >= IN_FLIGHT {
            match standing[ready].ready() {
                Ok(_) => ready += 1,
                Err(error) => stopped = Some(words(error)),
            }
        }
        if standing.len().is_multiple_of(100) {
            println!(".");
        }
    }
    while ready < standing.len() {
        match standing[ready].ready() {
            Ok(_) => ready += 1,
            Err(error) => {
                stopped.get_or_insert(words(error));
                standing.remove(ready);
            }
        }
    }
    stopped
}

fn end(rooms: &Rooms, standing: Vec<Room>) -> Result<(), String> {
    let ids: Vec<String> = standing.iter().map(|room| room.id().to_owned()).collect();
    drop(standing);
    for (number, id) in ids.iter().enumerate() {
        rooms.wait_gone(id)?;
        if number.is_multiple_of(100) {
            println!(".");
        }
    }
    Ok(())
}
