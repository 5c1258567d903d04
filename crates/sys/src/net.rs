//! The one thing a room's network needs: its loopback interface up.

use crate::check;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::AsRawFd;

/// Brings `lo` of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data; zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }.into()).map(drop)
}
