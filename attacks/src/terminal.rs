//! Typing into somebody else's terminal: TIOCSTI, TIOCLINUX, and a session that came from outside.

use crate::sys::{Errno, address, args, in_child, raw, room_for};
use crate::{Case, Context, Outcome, case, none_found};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

pub(crate) static CASES: &[Case] = &[
    case("tiocsti", "terminal", "Types into its controlling terminal", FILTER, |_| tiocsti(TIOCSTI)),
    case("tiocsti-high-bits", "terminal", "The same with bits set that the kernel ignores", FILTER, |_| {
        tiocsti(TIOCSTI | HIGH)
    }),
    case("tioclinux", "terminal", "Pastes the console's selection into its terminal", FILTER, |_| {
        tioclinux(TIOCLINUX)
    }),
    case("tioclinux-high-bits", "terminal", "The same with bits set that the kernel ignores", FILTER, |_| {
        tioclinux(TIOCLINUX | HIGH)
    }),
    case(
        "session",
        "terminal",
        "Looks whether its session began outside the room",
        &["session", "pidns"],
        session,
    ),
    case(
        "take-terminal",
        "terminal",
        "Steals a terminal that it was given by descriptor",
        &["session", "fds"],
        |_| steal(),
    ),
];

const FILTER: &[&str] = &["seccomp"];
const TIOCSTI: usize = 0x5412;
const TIOCLINUX: usize = 0x541c;
/// The kernel takes the low 32 bits of the request; a filter that compares 64 sees another number
/// (CVE-2019-10063).
const HIGH: usize = 1 << 32;

/// A terminal of our own, made the controlling one: the call must not be refused for a wrong reason.
fn own_terminal() -> Result<(File, File), Errno> {
    const TIOCSPTLCK: usize = 0x4004_5431;
    const TIOCGPTN: usize = 0x8004_5430;
    const TIOCSCTTY: usize = 0x540e;
    let options = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        options
    };
    let master = options().open("/dev/ptmx")?;
    let fd = master.as_raw_fd() as usize;
    let unlock = 0i32;
    let mut number = 0u32;
    raw(libc::SYS_ioctl, args(&[fd, TIOCSPTLCK, address(&unlock)]))?;
    raw(libc::SYS_ioctl, args(&[fd, TIOCGPTN, room_for(&mut number)]))?;
    let terminal = options().open(format!("/dev/pts/{number}"))?;
    raw(libc::SYS_setsid, args(&[]))?;
    raw(libc::SYS_ioctl, args(&[terminal.as_raw_fd() as usize, TIOCSCTTY, 0]))?;
    Ok((master, terminal))
}

enum Typed {
    Refused(Errno),
    Done,
    NoTerminal(Errno),
}

/// In a child, which becomes leader of a session of its own.
fn on_own_terminal(request: usize, byte: u8) -> Result<Typed, Errno> {
    let child = in_child(Duration::from_millis(800), |voice| match own_terminal() {
        Err(errno) => voice.say(format_args!("none {}", errno.0)),
        Ok((_master, terminal)) => {
            let call = args(&[terminal.as_raw_fd() as usize, request, address(&byte)]);
            voice.say(format_args!("got {}", raw(libc::SYS_ioctl, call).err().map_or(0, |errno| errno.0)));
        }
    })?;
    let number = |text: &str| Errno(text.trim().parse().unwrap_or(0));
    Ok(match child.said.split_once(' ') {
        Some(("got", text)) if text.trim() == "0" => Typed::Done,
        Some(("got", text)) => Typed::Refused(number(text)),
        Some((_, text)) => Typed::NoTerminal(number(text)),
        None => Typed::Refused(Errno(libc::ENOSYS)), // killed by the filter
    })
}

fn tiocsti(request: usize) -> Outcome {
    match on_own_terminal(request, b'x') {
        Ok(Typed::Done) => Outcome::Breached("typed into the terminal".to_owned()),
        // EIO: the machine has switched the call off (dev.tty.legacy_tiocsti).
        Ok(Typed::Refused(errno)) if errno.is_refusal() || errno.0 == libc::EIO => {
            Outcome::Held(errno.to_string())
        }
        Ok(Typed::Refused(errno)) => Outcome::Breached(format!("reached the kernel: {errno}")),
        Ok(Typed::NoTerminal(errno)) => Outcome::Skipped(format!("no terminal can be made here: {errno}")),
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
    }
}

/// Only consoles understand it, so a pseudo-terminal answers ENOTTY: that the request came so far is the breach,
/// since on a real console it would have worked.
fn tioclinux(request: usize) -> Outcome {
    const PASTE: u8 = 3;
    let console = [0usize, 1, 2].into_iter().find(|fd| {
        let mut selection = [PASTE, 0];
        raw(libc::SYS_ioctl, args(&[*fd, request, room_for(&mut selection)])).is_ok()
    });
    if let Some(fd) = console {
        return Outcome::Breached(format!("pasted into descriptor {fd}"));
    }
    match on_own_terminal(request, PASTE) {
        Ok(Typed::Done) => Outcome::Breached("pasted".to_owned()),
        Ok(Typed::Refused(errno)) if errno.is_refusal() => Outcome::Held(errno.to_string()),
        Ok(Typed::Refused(errno)) => Outcome::Breached(format!("reached the terminal's driver: {errno}")),
        Ok(Typed::NoTerminal(errno)) => Outcome::Skipped(format!("no terminal can be made here: {errno}")),
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
    }
}

fn session(_: &Context) -> Outcome {
    // A leader outside the pid namespace has the number 0 here.
    let session = raw(libc::SYS_getsid, args(&[0])).unwrap_or(-1);
    let group = raw(libc::SYS_getpgid, args(&[0])).unwrap_or(-1);
    let terminal = OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").is_ok();
    match (session, group) {
        (1.., 1..) => Outcome::Held(format!("session {session}, terminal: {terminal}")),
        _ => Outcome::Breached(format!(
            "session {session}, group {group}: they began outside, terminal: {terminal}"
        )),
    }
}

/// TIOCSCTTY on each of 0, 1, 2 from a session of our own: with force, as root of the machine could.
fn steal() -> Outcome {
    const TIOCSCTTY: usize = 0x540e;
    let child = in_child(Duration::from_millis(500), |voice| {
        raw(libc::SYS_setsid, args(&[])).ok();
        for fd in 0..3 {
            if raw(libc::SYS_ioctl, args(&[fd, TIOCSCTTY, 1])).is_ok() {
                voice.say(format_args!("took the terminal at descriptor {fd}"));
            }
        }
    });
    match child {
        Err(errno) => Outcome::Skipped(format!("no child to try in: {errno}")),
        Ok(child) => {
            none_found(child.said.lines().map(str::to_owned).collect(), "refused, or no terminal is there")
        }
    }
}
