//! Reaching other processes: the guest, the launcher, and processes that are not in the room at all.

use crate::identity::status_of;
use crate::sys::{Errno, address, args, in_child, kill, raw, raw_fd, room_for};
use crate::{Case, Context, Outcome, case, none_found};
use std::fmt::Display;
use std::fs;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub(crate) static CASES: &[Case] = &[
    case("ptrace-guest", "processes", "Attaches a debugger to the guest", GUEST, |c| ptrace(c, Who::Guest)),
    case("ptrace-launcher", "processes", "Attaches a debugger to the launcher", LAUNCHER, |c| {
        ptrace(c, Who::Launcher)
    }),
    case("ptrace-outside", "processes", "Attaches to a host's or neighbour's process", OUTSIDE, |c| {
        ptrace(c, Who::Outside)
    }),
    case("memory-of-guest", "processes", "Reads and writes the guest's memory", GUEST, |c| {
        memory(c, Who::Guest)
    }),
    case("memory-of-launcher", "processes", "Reads and writes the launcher's memory", LAUNCHER, |c| {
        memory(c, Who::Launcher)
    }),
    case("memory-of-outside", "processes", "Reads a host's or neighbour's memory", OUTSIDE, |c| {
        memory(c, Who::Outside)
    }),
    case("descriptors-of-guest", "processes", "Takes the guest's descriptors", GUEST, |c| {
        descriptors(c, Who::Guest)
    }),
    case("descriptors-of-launcher", "processes", "Takes the launcher's descriptors", LAUNCHER, |c| {
        descriptors(c, Who::Launcher)
    }),
    case(
        "descriptors-of-outside",
        "processes",
        "Takes descriptors of the host or a neighbour",
        OUTSIDE,
        |c| descriptors(c, Who::Outside),
    ),
    case("signal-guest", "processes", "Ends or stops the guest by signals", SIGNALS, |c| {
        signals(c, Who::Guest)
    }),
    case("signal-launcher", "processes", "Ends or stops the launcher by signals", SIGNALS, |c| {
        signals(c, Who::Launcher)
    }),
    case(
        "signal-outside",
        "processes",
        "Signals a host's or neighbour's process",
        &["pidns", "userns", "scope"],
        |c| signals(c, Who::Outside),
    ),
    case("priority-of-guest", "processes", "Changes the guest's limits and priority", &["seccomp"], priority),
    case("host-processes", "leak", "Looks for processes that are not the room's", &["pidns"], host_processes),
    case(
        "realtime-priority",
        "limits",
        "Asks for realtime scheduling and a negative nice value",
        &["caps", "rlimits"],
        |_| realtime(),
    ),
];

const GUEST: &[&str] = &["dumpable", "caps", "landlock", "scope"];
const LAUNCHER: &[&str] = &["dumpable", "caps"];
const SIGNALS: &[&str] = &["pidns", "scope", "userns"];
const OUTSIDE: &[&str] = &["pidns", "userns", "scope", "landlock"];

#[derive(Clone, Copy)]
enum Who {
    Guest,
    Launcher,
    Outside,
}

/// The processes to attack, or why there is none.
fn targets(context: &Context, who: Who) -> Result<Vec<i32>, Outcome> {
    let me = std::process::id() as i32;
    match who {
        Who::Guest if me == 1 => Err(Outcome::Skipped("the probe is PID 1 itself".to_owned())),
        Who::Guest => Ok(vec![1]),
        Who::Launcher => {
            let pid = context.launcher_pid.or_else(find_launcher).unwrap_or(2);
            match fs::metadata(format!("/proc/{pid}")) {
                _ if pid == me => Err(Outcome::Skipped(format!("the probe is PID {pid} itself"))),
                Err(_) => Err(Outcome::Skipped(format!("there is no PID {pid} here"))),
                Ok(_) => Ok(vec![pid]),
            }
        }
        Who::Outside => {
            if context.host_pid.is_none() && context.neighbour_pid.is_none() {
                return Err(Outcome::Skipped("no process of the host was named".to_owned()));
            }
            let seen = outsiders(context);
            if seen.is_empty() { Err(Outcome::Held("their pids are not there".to_owned())) } else { Ok(seen) }
        }
    }
}

/// The named outside processes that this room can see. A number alone proves nothing: the room has its own
/// numbers. The canary in its command line says that it is the one.
fn outsiders(context: &Context) -> Vec<i32> {
    let pairs = [
        (context.host_pid, Some(context.canary.as_str())),
        (context.neighbour_pid, context.neighbour_canary.as_deref()),
    ];
    let is_it = |pid: i32, canary: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !canary.is_empty() && String::from_utf8_lossy(&line).contains(canary)
    };
    pairs
        .into_iter()
        .filter_map(|(pid, canary)| Some((pid?, canary?)))
        .filter(|(p, c)| is_it(*p, c))
        .map(|(p, _)| p)
        .collect()
}

/// Tries something on every target: what was got is a breach, otherwise the refusals are told.
fn on_each<E: Display>(context: &Context, who: Who, attack: impl Fn(i32) -> Result<String, E>) -> Outcome {
    let pids = match targets(context, who) {
        Ok(pids) => pids,
        Err(outcome) => return outcome,
    };
    let (mut won, mut refusals) = (Vec::new(), Vec::new());
    for pid in pids {
        match attack(pid) {
            Ok(what) => won.push(format!("{what} (PID {pid})")),
            Err(refusal) => refusals.push(refusal.to_string()),
        }
    }
    none_found(won, refusals.join(", "))
}

fn ptrace(context: &Context, who: Who) -> Outcome {
    const SEIZE: usize = 0x4206;
    on_each(context, who, |pid| {
        // In a child: its end lets the process go again. Seizing, unlike attaching, does not stop the target.
        let child = in_child(Duration::from_millis(500), |voice| {
            let seized = raw(libc::SYS_ptrace, args(&[SEIZE, pid as usize, 0, 0]));
            voice.say(seized.err().map_or(0, |errno| errno.0));
        })?;
        match child.said.trim().parse() {
            Ok(0) => Ok("seized by ptrace".to_owned()),
            Ok(errno) => Err(Errno(errno)),
            Err(_) => Err(Errno(libc::EPERM)),
        }
    })
}

fn memory(context: &Context, who: Who) -> Outcome {
    on_each(context, who, |pid| {
        for file in ["mem", "environ", "maps", "auxv", "stack", "pagemap"] {
            let open =
                fs::OpenOptions::new().read(true).write(file == "mem").open(format!("/proc/{pid}/{file}"));
            // Some of these open for anyone and refuse to be read; an empty environment is no win either.
            let mut byte = [0u8; 1];
            if let Ok(mut open) = open
                && (file == "mem" || std::io::Read::read(&mut open, &mut byte).is_ok_and(|count| count > 0))
            {
                return Ok(format!("opened {file}"));
            }
        }
        let mut byte = 0u8;
        let here = [room_for(&mut byte), 1];
        let there = [0x10000usize, 1];
        let list = [pid as usize, address(&here), 1, address(&there), 1, 0];
        for (name, nr) in [("read", libc::SYS_process_vm_readv), ("write", libc::SYS_process_vm_writev)] {
            match raw(nr, list) {
                // EFAULT: nothing is mapped at that address, but looking was allowed.
                Ok(_) | Err(Errno(libc::EFAULT)) => return Ok(format!("may {name} memory")),
                Err(_) => {}
            }
        }
        Err(raw(libc::SYS_process_vm_readv, list).err().unwrap_or(Errno(0)))
    })
}

fn descriptors(context: &Context, who: Who) -> Outcome {
    on_each(context, who, |pid| {
        let folder = format!("/proc/{pid}/fd");
        if let Ok(list) = fs::read_dir(&folder) {
            let opens = |path: std::path::PathBuf| fs::metadata(path).is_ok();
            if list.flatten().any(|entry| opens(entry.path())) {
                return Ok(format!("reached {folder}"));
            }
        }
        let process = raw_fd(libc::SYS_pidfd_open, args(&[pid as usize, 0]))?;
        let take = |fd: usize| raw_fd(libc::SYS_pidfd_getfd, args(&[process.as_raw_fd() as usize, fd, 0]));
        match (0..8).map(take).find(|taken| matches!(taken, Ok(_) | Err(Errno(libc::EBADF)))) {
            Some(_) => Ok("may take descriptors".to_owned()),
            None => Err(take(0).err().unwrap_or(Errno(0))),
        }
    })
}

fn signals(context: &Context, who: Who) -> Outcome {
    on_each(context, who, |pid| {
        kill(pid, 0).map_err(|errno| errno.to_string())?;
        // Outside processes are not harmed: that they can be signalled is the breach.
        if let Who::Outside = who {
            return Ok("may signal".to_owned());
        }
        // A launcher that is ended before it has told of this very command leaves the guest to say that the command
        // was not started: that harms the attacker alone, and is not what is tried here.
        let waits = || status_of(&pid.to_string(), "State").is_some_and(|state| state.starts_with('S'));
        for _ in 0..1000 {
            if waits() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The guest is init of its namespace: the kernel drops what it has no handler for, even SIGKILL. So a
        // permitted signal is a breach only if it has an effect.
        let alive =
            || status_of(&pid.to_string(), "State").is_some_and(|state| !state.starts_with(['Z', 'X', 'T']));
        // Where the launcher has the commands' own uid it can be ended; the guest must then make another.
        let recovers = || {
            matches!(who, Who::Launcher)
                && (0..100).any(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    find_launcher().is_some()
                })
        };
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGSTOP, libc::SIGKILL]
        {
            kill(pid, signal).ok();
            std::thread::sleep(Duration::from_millis(10));
            if !alive() && !recovers() {
                kill(pid, libc::SIGCONT).ok();
                return Ok(format!("signal {signal} ended or stopped it"));
            }
        }
        Err("signals are taken and have no effect".to_owned())
    })
}

/// The process called `launcher`, unless it is stopped or dead.
fn find_launcher() -> Option<i32> {
    let list = fs::read_dir("/proc").ok()?;
    list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "launcher")
            && status_of(&pid.to_string(), "State").is_some_and(|state| !state.starts_with(['Z', 'X', 'T']))
    })
}

fn priority(context: &Context) -> Outcome {
    on_each(context, Who::Guest, |pid| {
        let mut limit = [0u64; 2];
        let pid = pid as usize;
        raw(libc::SYS_prlimit64, args(&[pid, libc::RLIMIT_NOFILE as usize, 0, room_for(&mut limit)]))
            .map(|_| "read and may set limits".to_owned())
            .or_else(|_| {
                // The value it has already, so that nothing changes if this is let through.
                let nice = 20 - raw(libc::SYS_getpriority, args(&[0, pid]))?;
                raw(libc::SYS_setpriority, args(&[0, pid, nice as usize])).map(|_| "may renice".to_owned())
            })
            .or_else(|_| {
                let file = format!("/proc/{pid}/oom_score_adj");
                let open = fs::OpenOptions::new().write(true).open(file);
                open.map(|_| "may write oom_score_adj".to_owned()).map_err(Errno::from)
            })
    })
}

fn host_processes(context: &Context) -> Outcome {
    const MANY: usize = 40;
    let Ok(list) = fs::read_dir("/proc") else { return Outcome::Skipped("/proc cannot be read".to_owned()) };
    let pids: Vec<String> = list
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    let mut found = Vec::new();
    if pids.len() > MANY {
        found.push(format!("{} processes are visible", pids.len()));
    }
    for pid in &pids {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if ["kthreadd", "systemd", "init", "sshd", "dockerd", "containerd"].contains(&name.trim()) {
            found.push(format!("PID {pid} is {}", name.trim()));
        }
    }
    found.extend(outsiders(context).into_iter().map(|pid| format!("PID {pid} of the host is visible")));
    none_found(found, format!("{} processes, all the room's", pids.len()))
}

fn realtime() -> Outcome {
    let child = in_child(Duration::from_millis(500), |voice| {
        let priority = 1i32;
        let fifo = raw(libc::SYS_sched_setscheduler, args(&[0, 1, address(&priority)]));
        let nice = raw(libc::SYS_setpriority, args(&[0, 0, -20isize as usize]));
        let io = raw(libc::SYS_ioprio_set, args(&[1, 0, 1 << 13]));
        for (name, got) in [("SCHED_FIFO", fifo), ("nice -20", nice), ("realtime I/O", io)] {
            if got.is_ok() {
                voice.say(name);
            }
        }
    });
    match child {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => none_found(child.said.lines().map(str::to_owned).collect(), "EPERM"),
    }
}
