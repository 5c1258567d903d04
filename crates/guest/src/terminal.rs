//! A terminal of the room's own: a PTY from the room's devpts.

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Gid, Uid};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_types::{RoomUser, TerminalSize};

pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// Opens a new terminal that belongs to `user`.
pub(crate) fn open_terminal(size: TerminalSize, user: RoomUser) -> io::Result<Terminal> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(
        &master,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    // Without a second id in the room the terminal is the user's already, and this changes nothing.
    let (uid, gid) = (Uid::from_raw(user.id()), Gid::from_raw(user.id()));
    let _ = rustix::fs::fchown(&slave, Some(uid), Some(gid));
    resize(master.as_fd(), size)?;
    Ok(Terminal { master, slave })
}

pub(crate) fn resize(master: BorrowedFd<'_>, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(master, size)?)
}
