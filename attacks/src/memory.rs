//! Taking more memory than the room was promised, in each of the ways that limits have missed.
//!
//! The taking is done in a child, which may be killed for it. Where a whole cgroup is killed at once
//! (`memory.oom.group`) the probe dies too: its runner reads that as held if the room says `oom_killed`.

use crate::files::Scratch;
use crate::sys::{End, Errno, Voice, args, in_child, raw_fd, resident_bytes, text};
use crate::{Case, Outcome, case};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) static CASES: &[Case] = &[
    case("memory-anonymous", "limits", "Takes ordinary memory beyond the limit", GUARDS, |c| {
        grow(c.memory_limit, anonymous)
    }),
    case("memory-memfd", "limits", "Takes memory beyond the limit by a memfd", GUARDS, |c| {
        grow(c.memory_limit, memfd)
    }),
    case("memory-shm", "limits", "Takes memory beyond the limit by /dev/shm", &["memory", "mountns"], |c| {
        by_file(c.memory_limit, "/dev/shm")
    }),
    case(
        "memory-tmp",
        "limits",
        "Takes memory beyond the limit by files in /tmp",
        &["memory", "disk"],
        |c| by_file(c.memory_limit, "/tmp"),
    ),
    case(
        "memory-page-cache",
        "limits",
        "Takes memory beyond the limit by the cache of a file",
        &["memory", "disk"],
        |c| {
            let place = ["/workspace", "/home/agent", "/var/tmp", "/tmp"]
                .into_iter()
                .find(|place| is_writable(place));
            match place {
                None => Outcome::Skipped("no folder is writable".to_owned()),
                Some(place) => by_file(c.memory_limit, place),
            }
        },
    ),
];

const GUARDS: &[&str] = &["memory"];
pub(crate) const MIB: u64 = 1 << 20;
/// A limit above this is not tried: a probe is quick, and the machine is not ours alone.
pub(crate) const LARGEST: u64 = 1 << 30;

/// Stops beyond the judgement's quarter: more would only hurt the machine where there is no limit.
fn goal(limit: u64) -> u64 {
    (limit + limit / 2).div_ceil(MIB)
}

/// How far a child came, in mebibytes, and what ended it.
pub(crate) struct Grown {
    pub(crate) mebibytes: u64,
    pub(crate) stopped: Option<String>,
}

/// Runs `body` in a child; it says each mebibyte that it has, and at the end an error or nothing.
pub(crate) fn grown(body: impl FnOnce(&mut Voice) -> Result<(), Errno>) -> Result<Grown, Errno> {
    let child = in_child(Duration::from_millis(4000), |voice| {
        // The killer should take this child, not the probe. Raising one's own score is always allowed.
        fs::write("/proc/self/oom_score_adj", "1000").ok();
        if let Err(errno) = body(voice) {
            voice.say(format_args!("stopped by {errno}"));
        }
    })?;
    let mebibytes = child.said.lines().filter_map(|line| line.parse().ok()).next_back().unwrap_or(0);
    let error = child.said.lines().find(|line| line.starts_with("stopped")).map(str::to_owned);
    let stopped = match child.end {
        End::Killed { signal: libc::SIGKILL, .. } => Some("killed".to_owned()),
        End::Killed { signal, .. } => Some(format!("killed by signal {signal}")),
        End::TimedOut => Some("out of time".to_owned()),
        End::Exited(_) => error,
    };
    Ok(Grown { mebibytes, stopped })
}

/// Held when something stopped the growth before a quarter more than the limit.
pub(crate) fn judge(limit: u64, grown: Result<Grown, Errno>) -> Outcome {
    let grown = match grown {
        Ok(grown) => grown,
        Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
    };
    let (have, limit) = (grown.mebibytes, limit / MIB);
    match grown.stopped {
        _ if have * 4 > limit * 5 => Outcome::Breached(format!("took {have} MiB of {limit}")),
        Some(how) if how == "out of time" => {
            Outcome::Skipped(format!("only {have} MiB of {limit} in the time"))
        }
        Some(how) => Outcome::Held(format!("{how} at {have} MiB of {limit}")),
        None => Outcome::Held(format!("ended at {have} MiB of {limit}")),
    }
}

/// The limit if it is one that can be tried.
pub(crate) fn tried(limit: Option<u64>) -> Result<u64, Outcome> {
    match limit {
        None => Err(Outcome::Skipped("no limit was named".to_owned())),
        Some(limit) if limit > LARGEST => {
            Err(Outcome::Skipped(format!("{} MiB is more than a probe should try", limit / MIB)))
        }
        Some(limit) => Ok(limit),
    }
}

fn grow(limit: Option<u64>, take: fn(u64, &mut Voice) -> Result<(), Errno>) -> Outcome {
    match tried(limit) {
        Err(outcome) => outcome,
        Ok(limit) => judge(limit, grown(|voice| take(goal(limit), voice))),
    }
}

fn anonymous(goal: u64, voice: &mut Voice) -> Result<(), Errno> {
    let mut held = Vec::new();
    for count in 1..=goal {
        let mut block: Vec<u8> = Vec::new();
        block.try_reserve_exact(MIB as usize).map_err(|_| Errno(libc::ENOMEM))?;
        block.resize(MIB as usize, 1);
        // The optimiser must not find out that nobody reads them.
        held.push(std::hint::black_box(block));
        voice.say(count);
    }
    Ok(())
}

fn memfd(goal: u64, voice: &mut Voice) -> Result<(), Errno> {
    let file = raw_fd(libc::SYS_memfd_create, args(&[text(c"workroom-attack"), 0]))?;
    fill(&mut File::from(file), goal, voice)
}

/// Writes mebibytes of something that no file system can leave out.
pub(crate) fn fill(file: &mut File, goal: u64, voice: &mut Voice) -> Result<(), Errno> {
    let block = vec![0xa5u8; MIB as usize];
    for count in 1..=goal {
        file.write_all(&block)?;
        voice.say(count);
    }
    Ok(())
}

fn is_writable(place: &str) -> bool {
    Scratch::below(place).is_some()
}

/// Files on tmpfs are memory; others are cached, and a cache may shrink again. So what counts is how much of the
/// file is in memory at the end, as mincore says.
fn by_file(limit: Option<u64>, place: &str) -> Outcome {
    let limit = match tried(limit) {
        Err(outcome) => return outcome,
        Ok(limit) => limit,
    };
    let Some(scratch) = Scratch::below(place) else {
        return Outcome::Held(format!("nothing can be made in {place}"));
    };
    let path = scratch.path("fill");
    let deadline = Instant::now() + Duration::from_secs(3);
    judge(limit, grown(|voice| fill_and_count(&path, goal(limit), deadline, voice)))
}

fn fill_and_count(path: &Path, goal: u64, deadline: Instant, voice: &mut Voice) -> Result<(), Errno> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let block = vec![0xa5u8; MIB as usize];
    let mut written = 0;
    while written < goal && Instant::now() < deadline {
        if let Err(error) = file.write_all(&block) {
            voice.say(resident_bytes(&file, (written * MIB) as usize).map_or(written, |bytes| bytes / MIB));
            return Err(error.into());
        }
        written += 1;
        // A killed child has said how far it had come at most: all of it may have been in memory.
        if written % 16 == 0 {
            voice.say(resident_bytes(&file, (written * MIB) as usize)? / MIB);
        }
    }
    voice.say(resident_bytes(&file, (written * MIB) as usize)? / MIB);
    Ok(())
}
