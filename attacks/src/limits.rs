//! Using up what is counted: processes, descriptors, files, disk, processor time; and staying after the end.

use crate::files::Scratch;
use crate::memory::{MIB, fill, grown, judge, tried};
use crate::sys::{
    Errno, address, args, cpu_time, die_with_parent, exit_now, fork, in_child, kill, raise_soft_limit, raw,
    reap, room_for, text,
};
use crate::{Case, Context, Outcome, case, none_found};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

pub(crate) static CASES: &[Case] = &[
    case("fork-bomb", "limits", "Makes processes until there are no more", PIDS, fork_bomb),
    case("thread-bomb", "limits", "Makes threads until there are no more", PIDS, thread_bomb),
    case("zombies", "limits", "Leaves ended processes uncollected until there are no more", PIDS, zombies),
    case(
        "zombies-10000",
        "limits",
        "Leaves 10,000 ended processes to a room that may have as many",
        &["guest"],
        |_| many_zombies(),
    ),
    case("endless-output", "limits", "Writes without end to its output", &["output"], |_| endless_output()),
    case(
        "descriptor-fill",
        "limits",
        "Opens descriptors until there are no more",
        &["rlimits"],
        descriptor_fill,
    ),
    case("disk-fill-tmp", "limits", "Writes to /tmp beyond the disk limit", DISK, |c| disk_fill(c, "/tmp")),
    case("disk-fill-home", "limits", "Writes to its home beyond the disk limit", DISK, |c| {
        disk_fill(c, if fs::metadata("/home/agent").is_ok() { "/home/agent" } else { "/var/tmp" })
    }),
    case(
        "disk-fill-fallocate",
        "limits",
        "Reserves more of the disk than the limit, without writing",
        DISK,
        fallocate,
    ),
    case("inode-fill", "limits", "Makes empty files beyond the limit", DISK, inode_fill),
    case("cpu-spin", "limits", "Spins in more threads than it has processors", &["cpu"], cpu_spin),
    case("raise-rlimits", "limits", "Raises its hard limits", &["seccomp"], |_| raise_rlimits()),
    case(
        "oom-score",
        "limits",
        "Makes itself the last to be killed for memory",
        &["proc", "landlock"],
        |_| oom_score(),
    ),
    case(
        "daemon-left-behind",
        "limits",
        "Leaves a daemon that writes a marker if it survives",
        &["pidns"],
        daemon,
    ),
];

const PIDS: &[&str] = &["pids"];
const DISK: &[&str] = &["disk"];

/// Whatever the room was promised, a probe makes no more than this: it may be running outside.
const MOST_PROCESSES: u64 = 3000;

/// Makes children until the kernel refuses or there are `most`; then ends and collects them all.
fn children(most: u64, body: fn()) -> (u64, Option<Errno>) {
    let deadline = Instant::now() + Duration::from_millis(3500);
    let mut made = Vec::new();
    let mut refusal = None;
    while (made.len() as u64) < most && Instant::now() < deadline {
        match fork() {
            Ok(0) => {
                die_with_parent();
                body();
                exit_now(0);
            }
            Ok(pid) => made.push(pid),
            Err(errno) => {
                refusal = Some(errno);
                break;
            }
        }
    }
    for pid in &made {
        kill(*pid, libc::SIGKILL).ok();
    }
    for pid in &made {
        reap(*pid, 0);
    }
    (made.len() as u64, refusal)
}

fn judge_count(made: u64, limit: u64, refusal: Option<Errno>) -> Outcome {
    match refusal {
        _ if made > limit => Outcome::Breached(format!("made {made}, the limit is {limit}")),
        Some(errno) => Outcome::Held(format!("{errno} after {made}, the limit is {limit}")),
        None => Outcome::Skipped(format!("made only {made} in the time, the limit is {limit}")),
    }
}

fn fork_bomb(context: &Context) -> Outcome {
    let Some(limit) = context.pids_limit else { return Outcome::Skipped("no pids limit".to_owned()) };
    let sleep = || {
        // Ends by itself soon, should the probe be gone.
        raw(libc::SYS_alarm, args(&[6])).ok();
        raw(libc::SYS_pause, args(&[])).ok();
    };
    let most = (4 * limit).min(MOST_PROCESSES);
    let (made, refusal) = children(most, sleep);
    judge_count(made, limit, refusal)
}

fn thread_bomb(context: &Context) -> Outcome {
    let Some(limit) = context.pids_limit else { return Outcome::Skipped("no pids limit".to_owned()) };
    let most = (4 * limit).min(MOST_PROCESSES);
    // In a child: its end takes all threads with it.
    let child = in_child(Duration::from_millis(4000), |voice| {
        for count in 1..=most {
            let sleep = || std::thread::sleep(Duration::from_secs(5));
            match std::thread::Builder::new().stack_size(16 * 1024).spawn(sleep) {
                Ok(_) => voice.say(count),
                Err(error) => {
                    voice.say(format_args!("no {}", Errno::from(error).0));
                    break;
                }
            }
        }
    });
    match child {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => {
            let made = child.said.lines().filter_map(|line| line.parse().ok()).next_back().unwrap_or(0);
            let refusal =
                child.said.lines().find_map(|line| line.strip_prefix("no ")?.parse().ok()).map(Errno);
            judge_count(made, limit, refusal)
        }
    }
}

fn zombies(context: &Context) -> Outcome {
    let Some(limit) = context.pids_limit else { return Outcome::Skipped("no pids limit".to_owned()) };
    let (made, refusal) = children((4 * limit).min(MOST_PROCESSES), || {});
    judge_count(made, limit, refusal)
}

/// All at once, and then their parent ends: from then on they are PID 1's to collect, while it has other work.
fn many_zombies() -> Outcome {
    const MANY: usize = 10_000;
    let before = processes_here();
    let parent = in_child(Duration::from_secs(10), |voice| {
        for count in 0..MANY {
            match fork() {
                Ok(0) => exit_now(0),
                Ok(_) => {}
                Err(errno) => return voice.say(format_args!("only {count} were made: {errno}")),
            }
        }
        voice.say(format_args!("there are {}", processes_here()));
    });
    match parent {
        Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(parent) => match parent.said.trim().strip_prefix("there are ").map(str::parse::<usize>) {
            Some(Ok(there)) if there >= MANY => {}
            _ => return Outcome::Skipped(format!("{:?}: {}", parent.end, parent.said.trim())),
        },
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while processes_here() > before + MANY / 100 {
        if Instant::now() > deadline {
            return Outcome::Breached(format!(
                "{} processes are left: nobody collects them",
                processes_here()
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    match fork() {
        Ok(0) => exit_now(0),
        Ok(pid) => {
            reap(pid, 0);
            Outcome::Held(format!("{MANY} were made, and all are collected"))
        }
        Err(errno) => Outcome::Breached(format!("no process can be made any more: {errno}")),
    }
}

/// How many processes there are, with those that have ended and were not collected.
fn processes_here() -> usize {
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit();
    fs::read_dir("/proc").into_iter().flatten().flatten().filter(is_process).count()
}

/// Says no verdict, for it has no end: its runner stops it, and judges by what was kept of what it wrote.
fn endless_output() -> Outcome {
    let block = [b'x'; 64 * 1024];
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let call = args(&[1, address(&block), block.len()]);
        if let Err(errno) = raw(libc::SYS_write, call) {
            return Outcome::Held(format!("stopped by {errno}"));
        }
    }
    Outcome::Skipped("nobody stopped it in ten seconds".to_owned())
}

fn descriptor_fill(context: &Context) -> Outcome {
    let Some(limit) = context.open_files else {
        return Outcome::Skipped("no limit of descriptors".to_owned());
    };
    if limit > 1 << 20 {
        return Outcome::Skipped(format!("{limit} is more than a probe should try"));
    }
    let child = in_child(Duration::from_millis(4000), |voice| {
        raise_soft_limit(libc::RLIMIT_NOFILE as usize).ok();
        let refused = (0..limit + 64).find_map(|count| match raw(libc::SYS_dup, args(&[0])) {
            Ok(_) => None,
            Err(errno) => Some((count, errno)),
        });
        let (count, errno) = refused.unwrap_or((limit + 64, Errno(0)));
        voice.say(format_args!("{count} {}", errno.0));
    });
    let said = match child {
        Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => child.said,
    };
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(made), _) if made > limit => Outcome::Breached(format!("opened {made}, the limit is {limit}")),
        (Some(made), Some(errno)) => Outcome::Held(format!("{} after {made}", Errno(errno as i32))),
        _ => Outcome::Skipped("the child did not say".to_owned()),
    }
}

fn disk_fill(context: &Context, place: &str) -> Outcome {
    let limit = match tried(context.disk_limit) {
        Err(outcome) => return outcome,
        Ok(limit) => limit,
    };
    let Some(scratch) = Scratch::below(place) else {
        return Outcome::Skipped(format!("nothing can be made in {place}"));
    };
    let goal = (limit + limit / 2).div_ceil(MIB);
    let path = scratch.path("fill");
    judge(limit, grown(|voice| fill(&mut File::create_new(&path)?, goal, voice)))
}

fn fallocate(context: &Context) -> Outcome {
    let limit = match tried(context.disk_limit) {
        Err(outcome) => return outcome,
        Ok(limit) => limit,
    };
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Skipped("nothing can be made in /tmp".to_owned());
    };
    let path = scratch.path("fill");
    let grown = grown(|voice| {
        let file = File::create_new(&path)?;
        let step = (limit / 16).max(MIB) as usize;
        for count in 0..24 {
            raw(libc::SYS_fallocate, args(&[file.as_raw_fd() as usize, 0, count * step, step]))?;
            voice.say((count + 1) as u64 * step as u64 / MIB);
        }
        Ok(())
    });
    judge(limit, grown)
}

fn inode_fill(context: &Context) -> Outcome {
    let Some(limit) = context.inode_limit else { return Outcome::Skipped("no limit of files".to_owned()) };
    if limit > 200_000 {
        return Outcome::Skipped(format!("{limit} is more than a probe should try"));
    }
    let Some(scratch) = Scratch::in_tmp() else {
        return Outcome::Skipped("nothing can be made in /tmp".to_owned());
    };
    let deadline = Instant::now() + Duration::from_millis(2500);
    let most = limit + limit / 2;
    let (mut made, mut refusal) = (0, None);
    while made < most && Instant::now() < deadline {
        match File::create_new(scratch.path(&made.to_string())) {
            Ok(_) => made += 1,
            Err(error) => {
                refusal = Some(Errno::from(error));
                break;
            }
        }
    }
    judge_count(made, limit + limit / 4, refusal)
}

/// Spins until it has had twice its share, for a few seconds at most. Others may keep a machine so busy that nobody gets
/// much for a while: then it goes on, until it has had about what it was promised or the time is up.
fn cpu_spin(context: &Context) -> Outcome {
    let Some(promised) = context.cpus_milli else {
        return Outcome::Skipped("no limit of processors".to_owned());
    };
    let machine = std::thread::available_parallelism().map_or(1, |count| count.get() as u64) * 1000;
    if promised * 2 >= machine {
        return Outcome::Skipped(format!(
            "{promised} of {machine} thousandths cannot be exceeded enough to tell"
        ));
    }
    let threads = (promised / 1000 + 4).min(64);
    let mut most = 0;
    for turn in 1..=6 {
        let share = match spin(threads, Duration::from_millis(500)) {
            Ok(Some(share)) => share,
            Ok(None) => return Outcome::Skipped("the child did not say".to_owned()),
            Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
        };
        if share > promised * 2 {
            return Outcome::Breached(format!("used {share} thousandths of {promised}"));
        }
        most = share.max(most);
        if turn > 1 && most * 4 >= promised * 3 {
            break;
        }
    }
    Outcome::Held(format!("used {most} thousandths of {promised}"))
}

/// What share of a processor spinning threads get, in thousandths.
fn spin(threads: u64, time: Duration) -> Result<Option<u64>, Errno> {
    let child = in_child(time + Duration::from_secs(2), |voice| {
        let begin = Instant::now();
        let spin = move || while begin.elapsed() < time {};
        let spinning: Vec<_> =
            (1..threads).filter_map(|_| std::thread::Builder::new().spawn(spin).ok()).collect();
        spin();
        for thread in spinning {
            let _ = thread.join();
        }
        voice.say(cpu_time().as_millis() as u64 * 1000 / begin.elapsed().as_millis().max(1) as u64);
    })?;
    Ok(child.said.trim().parse().ok())
}

fn raise_rlimits() -> Outcome {
    let mut won = Vec::new();
    let names = [
        ("NOFILE", libc::RLIMIT_NOFILE as usize),
        ("NPROC", libc::RLIMIT_NPROC as usize),
        ("CORE", libc::RLIMIT_CORE as usize),
        ("NICE", libc::RLIMIT_NICE as usize),
        ("RTPRIO", libc::RLIMIT_RTPRIO as usize),
    ];
    for (name, which) in names {
        let mut limit = [0u64; 2];
        raw(libc::SYS_prlimit64, args(&[0, which, 0, room_for(&mut limit)])).ok();
        if limit[1] == u64::MAX {
            // Processes may be counted by a cgroup alone; nothing else takes the place of the others.
            if name != "NPROC" {
                won.push(format!("RLIMIT_{name} has no hard limit"));
            }
            continue;
        }
        let more = [limit[0], limit[1] + 1];
        // A filter may pretend: only what is read back counts. Lowering the limit on core dumps to nothing
        // would start a crash handler of the host, so that counts as well.
        let lowered = [0u64; 2];
        for (wish, what) in [(more, "raised"), (lowered, "lowered")] {
            if what == "lowered" && name != "CORE" {
                continue;
            }
            raw(libc::SYS_prlimit64, args(&[0, which, address(&wish), 0])).ok();
            raw(libc::SYS_setrlimit, args(&[which, address(&wish)])).ok();
            let mut now = [0u64; 2];
            raw(libc::SYS_prlimit64, args(&[0, which, 0, room_for(&mut now)])).ok();
            if now == wish {
                won.push(format!("{what} RLIMIT_{name}"));
            }
        }
    }
    none_found(won, "refused or ignored")
}

fn oom_score() -> Outcome {
    let now: i32 = fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let lower = (now - 1).max(-1000);
    match fs::write("/proc/self/oom_score_adj", lower.to_string()) {
        Ok(()) => Outcome::Breached(format!("lowered its score from {now} to {lower}")),
        Err(error) => Outcome::Held(Errno::from(error).to_string()),
    }
}

/// Leaves the session, the group and the parent, ignores what it can, and writes after two seconds. It cannot say
/// itself whether the wall holds: its runner ends the command and looks for the marker.
fn daemon(context: &Context) -> Outcome {
    let marker =
        context.daemon_marker.clone().unwrap_or_else(|| "/workspace/attack-daemon-marker".to_owned());
    match fork() {
        Err(errno) => return Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(0) => {
            raw(libc::SYS_setsid, args(&[])).ok();
            if let Ok(0) = fork() {
                linger(&marker);
            }
            exit_now(0);
        }
        Ok(pid) => {
            reap(pid, 0);
        }
    }
    Outcome::Held(format!("left behind; it writes {marker} in two seconds if it lives"))
}

fn linger(marker: &str) -> ! {
    let ignore = [1usize, 0, 0, 0]; // SIG_IGN
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
        raw(libc::SYS_rt_sigaction, args(&[signal as usize, address(&ignore), 0, 8])).ok();
    }
    raw(libc::SYS_prctl, args(&[libc::PR_SET_NAME as usize, text(c"attack-daemon")])).ok();
    // Nobody should wait for the end of a pipe that only the daemon still holds.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            raw(libc::SYS_dup3, args(&[null.as_raw_fd() as usize, fd, 0])).ok();
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    fs::write(marker, "the daemon outlived its command\n").ok();
    std::thread::sleep(Duration::from_secs(3));
    exit_now(0)
}
