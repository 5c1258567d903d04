//! Getting out sideways: new namespaces, in which a process is root again, and entering existing ones.

use crate::sys::{Errno, address, args, exit_now, in_child, raw, reap};
use crate::syscalls::{Answer, ask};
use crate::{Case, Context, Outcome, case, none_found};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub(crate) static CASES: &[Case] = &[
    case("unshare-user", "namespaces", "Makes a user namespace by unshare", FILTER, |_| {
        by_unshare(&[("NEWUSER", USER_FLAG), ("NEWUSER|NEWNS", USER_FLAG | libc::CLONE_NEWNS as usize)])
    }),
    case("clone-user", "namespaces", "Makes a user namespace by clone", FILTER, |_| {
        by_clone(&[("NEWUSER", USER_FLAG), ("NEWUSER|NEWPID", USER_FLAG | libc::CLONE_NEWPID as usize)])
    }),
    case(
        "clone3-user",
        "namespaces",
        "Makes a user namespace by clone3, whose flags no filter can see",
        FILTER,
        |_| by_clone3(),
    ),
    case("unshare-others", "namespaces", "Makes every other namespace by unshare", OTHERS, |_| {
        by_unshare(FLAGS)
    }),
    case("clone-others", "namespaces", "Makes every other namespace by clone", OTHERS, |_| by_clone(FLAGS)),
    case(
        "clone-high-bits",
        "namespaces",
        "Hides the user namespace flag among bits that the kernel ignores",
        FILTER,
        |_| by_clone(&[("NEWUSER behind high bits", USER_FLAG | (1 << 40))]),
    ),
    case("setns", "namespaces", "Enters its own and the guest's namespaces", FILTER, setns),
];

const FILTER: &[&str] = &["seccomp"];
const OTHERS: &[&str] = &["seccomp", "caps"];
const USER_FLAG: usize = libc::CLONE_NEWUSER as usize;
const FLAGS: &[(&str, usize)] = &[
    ("NEWNS", libc::CLONE_NEWNS as usize),
    ("NEWPID", libc::CLONE_NEWPID as usize),
    ("NEWNET", libc::CLONE_NEWNET as usize),
    ("NEWIPC", libc::CLONE_NEWIPC as usize),
    ("NEWUTS", libc::CLONE_NEWUTS as usize),
    ("NEWCGROUP", libc::CLONE_NEWCGROUP as usize),
];

/// Any error holds here: without the namespace nothing is won, and a machine may forbid them by a count of 0.
fn judge(results: impl Iterator<Item = (&'static str, Answer)>) -> Outcome {
    let (mut made, mut refusals) = (Vec::new(), Vec::new());
    for (name, answer) in results {
        match answer {
            Answer::NotAsked(_) => return Outcome::Skipped(answer.to_string()),
            Answer::Returned(_) => made.push(format!("{name} was made")),
            refusal => refusals.push(refusal.to_string()),
        }
    }
    refusals.sort();
    refusals.dedup();
    none_found(made, refusals.join(", "))
}

fn by_unshare(flags: &'static [(&str, usize)]) -> Outcome {
    judge(flags.iter().map(|(name, flag)| (*name, ask(libc::SYS_unshare, args(&[*flag])))))
}

fn by_clone(flags: &'static [(&str, usize)]) -> Outcome {
    let clone = |flag: usize| cloned(libc::SYS_clone, &[flag | libc::SIGCHLD as usize, 0, 0, 0, 0]);
    judge(flags.iter().map(|(name, flag)| (*name, clone(*flag))))
}

fn by_clone3() -> Outcome {
    let request = |flags: usize| {
        let mut request = [0u64; 8];
        request[0] = flags as u64;
        request[4] = libc::SIGCHLD as u64;
        request
    };
    let (plain, user) = (request(0), request(USER_FLAG));
    let clone3 = |request: &[u64; 8]| cloned(libc::SYS_clone3, &[address(request), 64]);
    judge([("a child without flags", clone3(&plain)), ("NEWUSER", clone3(&user))].into_iter())
}

/// A call that returns twice, made in a child: the grandchild ends at once.
fn cloned(nr: libc::c_long, arguments: &[usize]) -> Answer {
    let arguments = args(arguments);
    let child = in_child(Duration::from_millis(500), |voice| match raw(nr, arguments) {
        Ok(0) => exit_now(0),
        Ok(pid) => {
            voice.say("made");
            reap(pid as i32, 0);
        }
        Err(errno) => voice.say(errno.0),
    });
    match child {
        Err(errno) => Answer::NotAsked(errno),
        Ok(child) => match (child.said.trim(), child.end) {
            ("made", _) => Answer::Returned(1),
            ("", crate::sys::End::Killed { signal, .. }) => Answer::Signal(signal),
            (errno, _) => Answer::Failed(Errno(errno.parse().unwrap_or(0))),
        },
    }
}

fn setns(_: &Context) -> Outcome {
    let mut through = Vec::new();
    for owner in ["self", "1"] {
        for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let Ok(namespace) = File::open(format!("/proc/{owner}/ns/{kind}")) else { continue };
            let answer = ask(libc::SYS_setns, args(&[namespace.as_raw_fd() as usize, 0]));
            if !answer.is_refusal() {
                through.push(format!("setns(/proc/{owner}/ns/{kind}) reached the kernel: {answer}"));
            }
        }
    }
    if let Ok(guest) = crate::sys::raw_fd(libc::SYS_pidfd_open, args(&[1, 0])) {
        let every = FLAGS.iter().fold(USER_FLAG, |all, (_, flag)| all | flag);
        let answer = ask(libc::SYS_setns, args(&[guest.as_raw_fd() as usize, every]));
        if !answer.is_refusal() {
            through.push(format!("setns(pidfd of 1) reached the kernel: {answer}"));
        }
    }
    none_found(through, "refused")
}
