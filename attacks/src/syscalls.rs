//! Kernel doors that no agent needs: each call must be refused by the filter, whatever its arguments.
//!
//! "Refused" is strict here: EPERM, ENOSYS or death by SIGSYS, both for a plausible call and for one with
//! impossible arguments. A call that answers EFAULT or EINVAL reached the kernel's code, and that code is the
//! attack surface, even where a capability check would come later.

use crate::sys::{Args, BAD, End, Errno, address, args, in_child, raw, room_for, text};
use crate::{Case, Context, Outcome, case};
use std::time::Duration;

const FILTER: &[&str] = &["seccomp"];
const FILTER_AND_CAPS: &[&str] = &["seccomp", "caps"];

pub(crate) static CASES: &[Case] = &[
    case("io-uring", "kernel-surface", "Sets up, enters and registers an io_uring", FILTER, io_uring),
    case("bpf", "kernel-surface", "Makes a BPF map and loads a program", FILTER, |_| {
        let attribute = [1u64, 4, 4, 0, 0, 0, 0, 0, 0];
        all_refused(&[
            ("bpf(MAP_CREATE)", libc::SYS_bpf, args(&[0, address(&attribute), 72])),
            ("bpf(PROG_LOAD)", libc::SYS_bpf, args(&[5, address(&attribute), 72])),
        ])
    }),
    case("perf-event-open", "kernel-surface", "Opens a performance counter on itself", FILTER, |_| {
        let mut attribute = [0u64; 16];
        attribute[0] = 1 | (128 << 32); // type software, size 128
        attribute[5] = 0b110_0000; // exclude kernel and hypervisor, which paranoid machines demand
        let call = args(&[address(&attribute), 0, usize::MAX, usize::MAX, 0]);
        all_refused(&[("perf_event_open", libc::SYS_perf_event_open, call)])
    }),
    case("keyrings", "kernel-surface", "Uses keyctl, add_key and request_key", FILTER, |_| {
        let process_keyring = -2isize as usize; // ends with the child that made it
        let key = [text(c"user"), text(c"workroom-attack"), text(c"x")];
        all_refused(&[
            ("keyctl", libc::SYS_keyctl, args(&[0, process_keyring, 1])),
            ("add_key", libc::SYS_add_key, args(&[key[0], key[1], key[2], 1, process_keyring])),
            ("request_key", libc::SYS_request_key, args(&[key[0], key[1], 0, 0])),
        ])
    }),
    case(
        "userfaultfd-full",
        "kernel-surface",
        "Opens a userfaultfd that handles kernel faults",
        FILTER,
        |_| all_refused(&[("userfaultfd(0)", libc::SYS_userfaultfd, args(&[0]))]),
    ),
    case(
        "userfaultfd-user-mode",
        "kernel-surface",
        "Opens a userfaultfd for user faults only",
        FILTER,
        |_| all_refused(&[("userfaultfd(USER_MODE_ONLY)", libc::SYS_userfaultfd, args(&[1]))]),
    ),
    case("kernel-modules", "kernel-surface", "Loads and removes kernel modules", FILTER_AND_CAPS, |_| {
        all_refused(&[
            ("init_module", libc::SYS_init_module, args(&[text(c"x"), 1, text(c"")])),
            ("finit_module", libc::SYS_finit_module, args(&[0, text(c""), 0])),
            ("delete_module", libc::SYS_delete_module, args(&[text(c"workroom-attack"), 0])),
        ])
    }),
    case("kexec", "kernel-surface", "Loads another kernel", FILTER_AND_CAPS, |_| {
        all_refused(&[
            ("kexec_load", libc::SYS_kexec_load, args(&[0, 0, 0, 0])),
            ("kexec_file_load", libc::SYS_kexec_file_load, args(&[0, 0, 1, text(c""), 0])),
        ])
    }),
    case("personality", "kernel-surface", "Asks for personalities that weaken memory", FILTER, personality),
    case("file-handles", "kernel-surface", "Opens files by handle, past the mount", FILTER, handles),
    case("process-madvise", "kernel-surface", "Advises on another process's memory", FILTER, |_| {
        all_refused(&[
            ("process_madvise", libc::SYS_process_madvise, args(&[0, 0, 0, 4, 0])),
            ("process_mrelease", libc::SYS_process_mrelease, args(&[0, 0])),
        ])
    }),
    case("kcmp", "kernel-surface", "Compares kernel objects of processes", FILTER, |_| {
        let me = std::process::id() as usize;
        all_refused(&[("kcmp", libc::SYS_kcmp, args(&[me, me, 0, 0, 1]))])
    }),
    case("kernel-log", "kernel-surface", "Reads the kernel's log by syslog", FILTER_AND_CAPS, |_| {
        let mut buffer = [0u8; 256];
        let read = args(&[3, room_for(&mut buffer), 256]);
        all_refused(&[
            ("syslog(READ_ALL)", libc::SYS_syslog, read),
            ("syslog(SIZE_BUFFER)", libc::SYS_syslog, args(&[10])),
        ])
    }),
    case("accounting", "kernel-surface", "Turns process accounting on and off", FILTER_AND_CAPS, |_| {
        all_refused(&[("acct", libc::SYS_acct, args(&[text(c"/tmp/workroom-attack-acct")]))])
    }),
    case("swap", "kernel-surface", "Adds and removes swap", FILTER, |_| {
        let path = text(c"/tmp/workroom-attack-swap");
        all_refused(&[
            ("swapon", libc::SYS_swapon, args(&[path, 0])),
            ("swapoff", libc::SYS_swapoff, args(&[path])),
        ])
    }),
    case(
        "reboot",
        "kernel-surface",
        "Asks for a reboot, with a command that does nothing",
        FILTER_AND_CAPS,
        |_| {
            // CAD_OFF: the mildest command, should this ever be let through.
            let call = args(&[0xfee1_dead, 0x2812_1969, 0, 0]);
            all_refused(&[("reboot(CAD_OFF)", libc::SYS_reboot, call)])
        },
    ),
    case("quotas", "kernel-surface", "Reads and sets disk quotas", FILTER, |_| {
        let sync = 0x80_0001u32 << 8;
        all_refused(&[
            ("quotactl", libc::SYS_quotactl, args(&[sync as usize, 0, 0, 0])),
            ("quotactl_fd", libc::SYS_quotactl_fd, args(&[0, sync as usize, 0, 0])),
        ])
    }),
    case("fanotify", "kernel-surface", "Watches whole file systems", FILTER, |_| {
        all_refused(&[
            ("fanotify_init", libc::SYS_fanotify_init, args(&[0x200, 0])),
            ("fanotify_mark", libc::SYS_fanotify_mark, args(&[0, 1, 2, usize::MAX, 0])),
        ])
    }),
    case("memfd-secret", "kernel-surface", "Makes memory that the kernel itself cannot see", FILTER, |_| {
        all_refused(&[("memfd_secret", libc::SYS_memfd_secret, args(&[0]))])
    }),
    case("modify-ldt", "kernel-surface", "Reads and writes the local descriptor table", FILTER, |_| {
        let mut buffer = [0u8; 64];
        let read = args(&[0, room_for(&mut buffer), 64]);
        let write = args(&[1, address(&buffer), 1]);
        all_refused(&[
            ("modify_ldt(read)", libc::SYS_modify_ldt, read),
            ("modify_ldt(write)", libc::SYS_modify_ldt, write),
        ])
    }),
    case("port-io", "kernel-surface", "Asks for direct access to I/O ports", FILTER_AND_CAPS, |_| {
        all_refused(&[
            ("iopl(3)", libc::SYS_iopl, args(&[3])),
            ("ioperm", libc::SYS_ioperm, args(&[0x80, 1, 1])),
        ])
    }),
    case("set-clock", "kernel-surface", "Sets the machine's clock to what it is", FILTER, set_clock),
    case(
        "set-hostname",
        "kernel-surface",
        "Renames the machine, to what a room is called anyway",
        FILTER_AND_CAPS,
        |_| {
            all_refused(&[
                ("sethostname", libc::SYS_sethostname, args(&[text(c"room"), 4])),
                ("setdomainname", libc::SYS_setdomainname, args(&[text(c"room"), 4])),
            ])
        },
    ),
    case("numa-policy", "kernel-surface", "Moves pages between memory nodes", FILTER, |_| {
        all_refused(&[
            ("move_pages", libc::SYS_move_pages, args(&[0, 0, 0, 0, 0, 0])),
            ("migrate_pages", libc::SYS_migrate_pages, args(&[0, 0, 0, 0])),
            ("mbind", libc::SYS_mbind, args(&[0, 0, 0, 0, 0, 0])),
            ("set_mempolicy", libc::SYS_set_mempolicy, args(&[0, 0, 0])),
        ])
    }),
    case("x32-calls", "foreign-arch", "Makes calls with the x32 bit set", FILTER, |_| x32()),
    case("int80-calls", "foreign-arch", "Makes a call through the 32-bit entry", FILTER, |_| int80()),
];

/// What the kernel or the filter answered to one call, made in a child of its own.
pub(crate) enum Answer {
    Returned(i64),
    Failed(Errno),
    Signal(i32),
    /// No child could be made to ask with.
    NotAsked(Errno),
}

impl Answer {
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Failed(errno) => errno.is_refusal(),
            Self::Signal(signal) => *signal == libc::SIGSYS,
            _ => false,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Returned(value) => write!(out, "returned {value}"),
            Self::Failed(errno) => write!(out, "{errno}"),
            Self::Signal(libc::SIGSYS) => write!(out, "SIGSYS"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
            Self::NotAsked(errno) => write!(out, "no child to try in: {errno}"),
        }
    }
}

/// Makes one call in a child, because a denied call may kill and an allowed one may change the caller.
pub(crate) fn ask(nr: libc::c_long, arguments: Args) -> Answer {
    let child = in_child(Duration::from_millis(400), |voice| {
        alarm_in(Duration::from_millis(100));
        match raw(nr, arguments) {
            Ok(value) => voice.say(format_args!("ok {value}")),
            Err(errno) => voice.say(format_args!("no {}", errno.0)),
        }
    });
    let child = match child {
        Ok(child) => child,
        Err(errno) => return Answer::NotAsked(errno),
    };
    let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
    match (child.said.split_once(' '), child.end) {
        (Some(("ok", value)), _) => Answer::Returned(number(value)),
        (Some(("no", errno)), _) => Answer::Failed(Errno(number(errno) as i32)),
        (_, End::Killed { signal, .. }) => Answer::Signal(signal),
        (_, End::Exited(code)) => Answer::Returned(code.into()),
        (_, End::TimedOut) => Answer::Signal(libc::SIGALRM),
    }
}

/// A call that blocks was not refused either; the alarm ends it.
fn alarm_in(time: Duration) {
    let timer = [0i64, 0, time.as_secs() as i64, time.subsec_micros() as i64];
    raw(libc::SYS_setitimer, args(&[libc::ITIMER_REAL as usize, address(&timer), 0])).ok();
}

/// Held when each call is refused, as given and with impossible arguments.
pub(crate) fn all_refused(calls: &[(&str, libc::c_long, Args)]) -> Outcome {
    let mut through = Vec::new();
    let mut answers: Vec<String> = Vec::new();
    for (name, nr, plausible) in calls {
        for (arguments, kind) in [(*plausible, ""), (BAD, " with impossible arguments")] {
            let answer = ask(*nr, arguments);
            if let Answer::NotAsked(_) = answer {
                return Outcome::Skipped(answer.to_string());
            }
            if answer.is_refusal() {
                answers.push(answer.to_string());
            } else {
                through.push(format!("{name}{kind} reached the kernel: {answer}"));
                break;
            }
        }
    }
    answers.sort();
    answers.dedup();
    crate::none_found(through, answers.join(", "))
}

fn io_uring(_: &Context) -> Outcome {
    let parameters = [0u64; 15];
    all_refused(&[
        ("io_uring_setup", libc::SYS_io_uring_setup, args(&[4, address(&parameters)])),
        ("io_uring_enter", libc::SYS_io_uring_enter, args(&[0, 0, 0, 0, 0, 0])),
        ("io_uring_register", libc::SYS_io_uring_register, args(&[0, 0, 0, 0])),
    ])
}

fn personality(_: &Context) -> Outcome {
    // ADDR_NO_RANDOMIZE alone stays allowed (gdb needs it), and so does asking, which is all ones; so there is
    // no call with impossible arguments to make here.
    const ASKED: &[(&str, usize)] = &[
        ("READ_IMPLIES_EXEC", 0x040_0000),
        ("READ_IMPLIES_EXEC|ADDR_NO_RANDOMIZE", 0x044_0000),
        ("MMAP_PAGE_ZERO", 0x010_0000),
        ("ADDR_COMPAT_LAYOUT", 0x020_0000),
        ("PER_SVR4", 0x1),
        ("READ_IMPLIES_EXEC behind high bits", 0x1_0040_0000),
    ];
    let mut through = Vec::new();
    for (name, value) in ASKED {
        let answer = ask(libc::SYS_personality, args(&[*value]));
        if !answer.is_refusal() {
            through.push(format!("{name} {answer}"));
        }
    }
    crate::none_found(through, "refused")
}

fn handles(_: &Context) -> Outcome {
    let here = libc::AT_FDCWD as usize;
    let mut handle = [128u32; 34]; // first word: room for the handle's bytes
    let mut mount = 0i32;
    let make = args(&[here, text(c"/"), room_for(&mut handle), room_for(&mut mount), 0]);
    // Inode 2 is the root of an ext4: the handle that reads a whole host from a container.
    let shocker = [8u32, 1, 2, 0];
    all_refused(&[
        ("name_to_handle_at", libc::SYS_name_to_handle_at, make),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, args(&[here, address(&shocker), 0])),
    ])
}

fn set_clock(_: &Context) -> Outcome {
    let mut now = [0i64; 2];
    raw(libc::SYS_clock_gettime, args(&[0, room_for(&mut now)])).ok();
    let microseconds = [now[0], now[1] / 1000];
    let mut nothing = [0u64; 26]; // a timex with no mode bits only reads
    all_refused(&[
        ("clock_settime", libc::SYS_clock_settime, args(&[0, address(&now)])),
        ("settimeofday", libc::SYS_settimeofday, args(&[address(&microseconds), 0])),
        ("adjtimex", libc::SYS_adjtimex, args(&[room_for(&mut nothing)])),
        ("clock_adjtime", libc::SYS_clock_adjtime, args(&[0, room_for(&mut nothing)])),
    ])
}

/// getpid and ptrace by their x32 numbers. Many kernels lack x32 and answer ENOSYS whatever the filter does.
fn x32() -> Outcome {
    const X32: i64 = 0x4000_0000;
    let mut through = Vec::new();
    let mut held = Vec::new();
    for (name, nr) in [("getpid", 39), ("mount", 165), ("ptrace", 521)] {
        let answer = ask(X32 | nr, args(&[]));
        match answer.is_refusal() {
            true => held.push(format!("{name} {answer}")),
            false => through.push(format!("x32 {name} {answer}")),
        }
    }
    crate::none_found(through, held.join(", "))
}

#[cfg(target_arch = "x86_64")]
fn int80() -> Outcome {
    let child = in_child(Duration::from_millis(400), |voice| {
        voice.say(crate::sys::getpid_by_int80());
    });
    match child {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => match (child.said.trim().parse::<i64>(), child.end) {
            (Ok(answer), _) if answer < 0 && Errno(-answer as i32).is_refusal() => {
                Outcome::Held(Errno(-answer as i32).to_string())
            }
            (Ok(answer), _) => Outcome::Breached(format!("getpid by int 0x80 returned {answer}")),
            (_, end) => Outcome::Held(format!("{end:?}")),
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn int80() -> Outcome {
    Outcome::Skipped("int 0x80 exists on x86_64 only".to_owned())
}
