//! What /proc and /sys give away or let be changed, and the ways out that lead through /proc.

use crate::{Case, Context, Outcome, case, none_found};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) static CASES: &[Case] = &[
    case(
        "environment-canary",
        "leak",
        "Looks for the launcher's environment in every process",
        &["pidns"],
        canary,
    ),
    case("write-self-exe", "proc", "Opens its own program for writing by /proc/self/exe", EXE, |_| {
        write_exe("self")
    }),
    case("write-guest-exe", "proc", "Opens the guest's program by /proc/1/exe", GUEST, |_| guest_exe()),
    case("guest-root", "proc", "Walks through /proc/1/root", GUEST, |_| through("/proc/1/root")),
    case("guest-cwd", "proc", "Walks through /proc/1/cwd", GUEST, |_| through("/proc/1/cwd")),
    case(
        "descriptor-walk",
        "proc",
        "Walks out through /proc/self/fd and its working directory",
        &["fds", "landlock"],
        |_| descriptor_walk(),
    ),
    case(
        "guest-proc-write",
        "proc",
        "Opens everything of /proc/1 for writing",
        &["dumpable", "proc", "landlock"],
        |_| write_sweep("/proc/1"),
    ),
    case("proc-write-sweep", "proc", "Opens everything of /proc for writing", &["proc", "landlock"], |_| {
        write_sweep("/proc")
    }),
    case("sys-write-sweep", "proc", "Opens everything of /sys for writing", &["mountns", "userns"], |_| {
        write_sweep("/sys")
    }),
    case(
        "core-pattern",
        "proc",
        "Names a program that the kernel runs on a crash",
        &["proc", "userns", "landlock"],
        |_| writable(&["/proc/sys/kernel/core_pattern"]),
    ),
    case(
        "kernel-helpers",
        "proc",
        "Names programs that the kernel runs for modules and devices",
        &["proc", "userns", "landlock"],
        |_| {
            writable(&[
                "/proc/sys/kernel/modprobe",
                "/proc/sys/kernel/hotplug",
                "/proc/sys/kernel/poweroff_cmd",
                "/sys/kernel/uevent_helper",
            ])
        },
    ),
    case(
        "release-agent",
        "proc",
        "Names a program that the kernel runs when a cgroup empties",
        RELEASE,
        |_| release_agent(),
    ),
    case(
        "binfmt-misc",
        "proc",
        "Registers an interpreter for a file type",
        &["proc", "userns", "landlock"],
        |_| writable(&["/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/binfmt_misc/status"]),
    ),
    case("sysrq", "proc", "Opens the trigger for magic keys", &["proc", "userns", "landlock"], |_| {
        writable(&["/proc/sysrq-trigger"])
    }),
    case("masked-files", "leak", "Reads files of /proc that tell about the kernel", &["proc"], |_| {
        masked_files()
    }),
    case("masked-folders", "leak", "Lists folders of /proc that tell about the hardware", &["proc"], |_| {
        masked_folders()
    }),
];

const GUEST: &[&str] = &["dumpable", "caps", "landlock", "scope"];
const EXE: &[&str] = &["mountns", "landlock", "uidrange"];
const RELEASE: &[&str] = &["mountns", "userns", "cgroupns"];

/// Names under /proc that are processes.
fn is_process(name: &str) -> bool {
    name == "self" || name == "thread-self" || name.bytes().all(|byte| byte.is_ascii_digit())
}

fn canary(context: &Context) -> Outcome {
    if context.canary.is_empty() {
        return Outcome::Skipped("no canary was named".to_owned());
    }
    let me = std::process::id().to_string();
    let mut found = Vec::new();
    let (mut read, mut closed) = (0, 0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for file in ["environ", "cmdline"] {
            // Our own command line may hold the context; our environment may not.
            if name == me && file == "cmdline" {
                continue;
            }
            match fs::read(format!("/proc/{name}/{file}")) {
                Err(_) => closed += 1,
                Ok(content) => {
                    read += 1;
                    if String::from_utf8_lossy(&content).contains(&context.canary) {
                        found.push(format!("/proc/{name}/{file} holds the canary"));
                    }
                }
            }
        }
    }
    none_found(found, format!("not in {read} files; {closed} are closed"))
}

fn write_exe(process: &str) -> Outcome {
    let path = format!("/proc/{process}/exe");
    match OpenOptions::new().write(true).open(&path) {
        Ok(_) => Outcome::Breached(format!("{path} opens for writing")),
        // Only says that the program is running. Whether it could be written later is asked by faccessat.
        Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
            let path = std::ffi::CString::new(path).unwrap_or_default();
            let here = libc::AT_FDCWD as usize;
            let call = [here, path.as_ptr() as usize, libc::W_OK as usize, 0, 0, 0];
            match crate::sys::raw(libc::SYS_faccessat, call) {
                Ok(_) => Outcome::Breached("only busy: writable once it no longer runs".to_owned()),
                Err(errno) => Outcome::Held(format!("ETXTBSY, and {errno} after that")),
            }
        }
        Err(error) => Outcome::Held(crate::sys::Errno::from(error).to_string()),
    }
}

fn guest_exe() -> Outcome {
    if File::open("/proc/1/exe").is_ok() || fs::read_link("/proc/1/exe").is_ok() {
        return Outcome::Breached("/proc/1/exe can be opened or followed".to_owned());
    }
    write_exe("1")
}

fn through(link: &str) -> Outcome {
    for path in [link.to_owned(), format!("{link}/etc/passwd"), format!("{link}/../../../etc/shadow")] {
        if File::open(&path).is_ok() {
            return Outcome::Breached(format!("{path} opens"));
        }
    }
    match fs::read_link(link) {
        Ok(target) => Outcome::Breached(format!("{link} leads to {}", target.display())),
        Err(error) => Outcome::Held(crate::sys::Errno::from(error).to_string()),
    }
}

fn descriptor_walk() -> Outcome {
    let mut found = Vec::new();
    let here = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
    if here.is_empty() || here.starts_with("(unreachable)") {
        found.push(format!("the working directory is outside the root: {here:?}"));
    }
    for fd in 0..32 {
        for tail in ["", "/..", "/../../../../../../etc/shadow"] {
            let path = format!("/proc/self/fd/{fd}{tail}");
            // A descriptor of ours that is a file or a pipe leads nowhere; a directory is a way out.
            if fs::metadata(&path).is_ok_and(|it| it.is_dir()) {
                found.push(format!("{path} is a directory"));
                break;
            }
        }
    }
    none_found(found, "no descriptor is a directory, and the working directory is inside")
}

/// A file that is masked by a bound /dev/null opens for writing and changes nothing.
fn is_null_device(file: &File) -> bool {
    let null = libc::makedev(1, 3);
    file.metadata().is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == null)
}

/// Opening is enough to know; nothing is ever written.
fn opens_for_writing(path: &Path) -> bool {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let open = OpenOptions::new().write(true).custom_flags(flags).open(path);
    open.is_ok_and(|file| !is_null_device(&file))
}

fn writable(paths: &[&str]) -> Outcome {
    let found = paths.iter().filter(|path| opens_for_writing(Path::new(path)));
    none_found(found.map(|path| format!("{path} opens for writing")).collect(), "absent or closed")
}

fn release_agent() -> Outcome {
    let mut paths = vec![PathBuf::from("/sys/fs/cgroup/release_agent")];
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        paths.push(entry.path().join("release_agent"));
        paths.push(entry.path().join("cgroup.procs"));
    }
    let found = paths.iter().filter(|path| opens_for_writing(path));
    none_found(found.map(|path| format!("{} opens", path.display())).collect(), "absent or closed")
}

/// Opens all files below `start` for writing. Processes are left out of /proc: a process may write to its own,
/// and to those of its user; the guest's are a case of their own.
fn write_sweep(start: &str) -> Outcome {
    const DEEPEST: usize = 8;
    const MOST: usize = 60_000;
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut waiting = vec![(PathBuf::from(start), 0)];
    let (mut found, mut tried) = (Vec::new(), 0);
    let mut bound = "";
    while let Some((folder, depth)) = waiting.pop() {
        if tried >= MOST || Instant::now() > deadline {
            bound = ", and there are more";
            break;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_symlink() || (folder == Path::new("/proc") && is_process(&name)) {
                continue;
            }
            if kind.is_dir() {
                if depth < DEEPEST {
                    waiting.push((entry.path(), depth + 1));
                }
                continue;
            }
            // Open to all by design; the kernel looks at who is asking on the write.
            if name == "timerslack_ns" || folder.ends_with("attr") {
                continue;
            }
            tried += 1;
            if opens_for_writing(&entry.path()) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    none_found(found, format!("none of {tried} files opens for writing{bound}"))
}

fn masked_files() -> Outcome {
    const FILES: &[&str] = &[
        "kallsyms",
        "keys",
        "key-users",
        "cmdline",
        "kcore",
        "timer_list",
        "sysrq-trigger",
        "kmsg",
        "sched_debug",
    ];
    let mut found = Vec::new();
    for file in FILES {
        let path = format!("/proc/{file}");
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let mut buffer = [0u8; 512];
        let got = open.and_then(|mut open| open.read(&mut buffer));
        if let Ok(count @ 1..) = got {
            found.push(format!("{path} gives {count} bytes"));
        }
    }
    none_found(found, "absent, closed or empty")
}

fn masked_folders() -> Outcome {
    let mut found = Vec::new();
    for folder in ["irq", "bus", "acpi", "scsi", "asound", "driver"] {
        let path = format!("/proc/{folder}");
        match fs::read_dir(&path).map(|list| list.count()) {
            Ok(count @ 1..) => found.push(format!("{path} has {count} entries")),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => found.push(format!("{path}: {error}")),
        }
    }
    none_found(found, "absent, closed or empty")
}
