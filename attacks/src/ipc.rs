//! Memory, queues and sockets that are named, not passed: System V, POSIX, and abstract unix sockets.

use crate::sys::{Errno, args, raw, raw_fd};
use crate::{Case, Context, Outcome, case, none_found};
use std::ffi::CString;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

pub(crate) static CASES: &[Case] = &[
    case("sysv-shm", "neighbours", "Opens a shared memory segment of the host by its key", IPC, |c| {
        sysv(c.host_sysv_shm_key, &[("it", libc::SYS_shmget)])
    }),
    case("sysv-sem", "neighbours", "Opens a semaphore set of the host by its key", IPC, |c| {
        sysv(c.host_sysv_shm_key, &[("it", libc::SYS_semget)])
    }),
    case("sysv-msg", "neighbours", "Opens a message queue of the host by its key", IPC, |c| {
        sysv(c.host_sysv_shm_key, &[("it", libc::SYS_msgget)])
    }),
    case("neighbour-sysv", "neighbours", "Opens a neighbour's System V objects by their key", IPC, |c| {
        let all = [
            ("a segment", libc::SYS_shmget),
            ("semaphores", libc::SYS_semget),
            ("a queue", libc::SYS_msgget),
        ];
        sysv(c.neighbour_sysv_key, &all)
    }),
    case("sysv-listing", "neighbours", "Reads the lists of /proc/sysvipc", IPC, |_| listing()),
    case(
        "posix-shm",
        "neighbours",
        "Opens shared memory of the host by its name",
        &["mountns", "landlock"],
        |c| posix_shm(c.host_posix_shm.as_deref()),
    ),
    case("posix-mq", "neighbours", "Opens a message queue of the host by its name", QUEUES, |c| {
        posix_mq(c.host_mq.as_deref())
    }),
    case(
        "neighbour-shm",
        "neighbours",
        "Opens a neighbour's shared memory by its name",
        &["mountns", "landlock"],
        |c| posix_shm(c.neighbour_posix_shm.as_deref()),
    ),
    case("neighbour-mq", "neighbours", "Opens a neighbour's message queue by its name", QUEUES, |c| {
        posix_mq(c.neighbour_mq.as_deref())
    }),
    case("abstract-host", "neighbours", "Connects to an abstract socket of the host", ABSTRACT, |c| {
        connect(c.host_abstract.as_deref())
    }),
    case(
        "abstract-neighbour",
        "neighbours",
        "Connects to an abstract socket of a neighbour",
        ABSTRACT,
        |c| connect(c.neighbour_abstract.as_deref()),
    ),
    case(
        "abstract-listing",
        "leak",
        "Looks for unix sockets of others in /proc/net/unix",
        &["netns"],
        abstract_listing,
    ),
];

const IPC: &[&str] = &["ipcns"];
const QUEUES: &[&str] = &["ipcns", "landlock"];
const ABSTRACT: &[&str] = &["netns", "scope"];

fn skipped(what: &str) -> Outcome {
    Outcome::Skipped(format!("no {what} was named"))
}

fn judge(result: Result<String, Errno>) -> Outcome {
    match result {
        Ok(what) => Outcome::Breached(what),
        Err(errno) => Outcome::Held(errno.to_string()),
    }
}

/// All three take the key first; without IPC_CREAT nothing is made, and no right is asked for beyond looking.
fn sysv(key: Option<i32>, calls: &[(&str, libc::c_long)]) -> Outcome {
    let Some(key) = key else { return skipped("System V key") };
    let (mut found, mut refusals) = (Vec::new(), Vec::new());
    for (what, nr) in calls {
        match raw(*nr, args(&[key as usize, 0, 0])) {
            Ok(id) => found.push(format!("opened {what} as {id}")),
            Err(errno) => refusals.push(errno.to_string()),
        }
    }
    refusals.dedup();
    none_found(found, refusals.join(", "))
}

fn listing() -> Outcome {
    let mut found = Vec::new();
    for list in ["shm", "sem", "msg"] {
        let lines = fs::read_to_string(format!("/proc/sysvipc/{list}")).unwrap_or_default().lines().count();
        // The first line is the heading.
        if lines > 1 {
            found.push(format!("/proc/sysvipc/{list} names {}", lines - 1));
        }
    }
    none_found(found, "empty")
}

fn posix_shm(name: Option<&str>) -> Outcome {
    let Some(name) = name else { return skipped("shared memory") };
    let path = format!("/dev/shm/{}", name.trim_start_matches('/'));
    judge(fs::File::open(&path).map(|_| format!("opened {path}")).map_err(Errno::from))
}

fn posix_mq(name: Option<&str>) -> Outcome {
    let Some(name) = name else { return skipped("message queue") };
    let name = CString::new(name.trim_start_matches('/')).unwrap_or_default();
    let call = args(&[name.as_ptr() as usize, libc::O_RDONLY as usize, 0, 0]);
    judge(raw_fd(libc::SYS_mq_open, call).map(|_| "opened it".to_owned()))
}

fn connect(name: Option<&str>) -> Outcome {
    let Some(name) = name else { return skipped("abstract socket") };
    let Ok(address) = SocketAddr::from_abstract_name(name) else { return skipped("usable abstract socket") };
    let stream = UnixStream::connect_addr(&address).map(|_| "connected a stream".to_owned());
    let datagram =
        || UnixDatagram::unbound()?.connect_addr(&address).map(|()| "connected a datagram".to_owned());
    judge(stream.or_else(|first| datagram().map_err(|_| first)).map_err(Errno::from))
}

fn abstract_listing(context: &Context) -> Outcome {
    let names = [context.host_abstract.as_deref(), context.neighbour_abstract.as_deref()];
    let names: Vec<&str> = names.into_iter().flatten().collect();
    if names.is_empty() {
        return skipped("abstract socket");
    }
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let found = names.iter().filter(|name| list.contains(**name)).map(|name| format!("@{name} is listed"));
    none_found(found.collect(), "not listed")
}
