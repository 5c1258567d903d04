//! Finding a durable room again: a socket outside the room on which its guest, and nobody else, listens.

use crate::cgroup::LiveLimits;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::PidfdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use workroom_proto::Channel;
use workroom_types::{Layer, LayerState};

/// The socket's name in the room's directory on the host.
const NAME: &str = "guest.sock";

/// A socket in the room's directory, for the guest to listen on.
pub fn bind_guest_socket(dir: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    at(dir, |address| bind(&socket, address))?;
    Ok(socket)
}

/// Calls the guest of the room whose directory this is. Answers the line to it and its process, by a descriptor
/// that cannot come to mean another one.
pub fn call_guest(dir: &Path) -> io::Result<(Channel, OwnedFd)> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    at(dir, |address| connect(&socket, address))?;
    let process = match workroom_sys::net::peer_pidfd(socket.as_fd()) {
        Ok(pidfd) => pidfd,
        // Linux before 6.5. The guest holds the other end now, so its number is still its own.
        Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
            let peer = rustix::net::sockopt::socket_peercred(&socket)?;
            rustix::process::pidfd_open(peer.pid, PidfdFlags::empty())?
        }
        Err(error) => return Err(error),
    };
    Ok((Channel::from_fd(socket), process))
}

/// Removes what rooms that are gone had among the machine's cgroups, where the spawner that made them did not live
/// to do it. Blocks until the kernel has let go of them, for 2 s at most.
pub fn remove_groups(rooms: &[String]) {
    crate::cgroup::remove_after(rooms);
}

/// Changes what a room that runs is limited to. Answers how the layers stand that were changed; those that could not be
/// are not among them.
pub fn change_limits(room: &str, wanted: &LiveLimits) -> Vec<(Layer, LayerState)> {
    crate::cgroup::change(room, wanted)
}

/// A socket's address has little space for a path: it is named through a descriptor of its directory.
fn at(dir: &Path, action: impl FnOnce(&SocketAddrUnix) -> Result<(), Errno>) -> io::Result<()> {
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd()))?;
    Ok(action(&address)?)
}
