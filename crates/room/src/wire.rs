//! A way out for a room that stands: a process that enters the room's network namespace, makes a TUN device and a
//! listener there, hands both out, and ends.
//!
//! Neither the server nor its spawner can do it: a thread of the server cannot enter another user namespace, and the
//! spawner of an ordinary user has authority over its own rooms only, not over those of an earlier server. A process of
//! the server's own user has it over all of them. Nothing is left in the room but the ends of what was handed out, which
//! go when the last descriptor is closed.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workroom_proto::{Channel, Received};
use workroom_sys::namespace::{Namespaces, enter};
use workroom_sys::origin::ask_command_line;
use workroom_sys::tun;

/// The name this program is started under to do this.
const ARGV0: &str = "workroom-wire";

const DEVICE: &str = "tun0";

/// How long an earlier server's network process may take to be gone with what it held.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Connections of a room's programs that wait to be taken.
const BACKLOG: i32 = 128;

/// What a room is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The room's address on the device, and the size of its packets.
    pub address: Ipv4Addr,
    pub mtu: u16,
    /// Where on the room's loopback to listen, if nobody does: else on any port.
    pub port: u16,
}

/// What a room has got, in the hands of the host.
#[derive(Debug)]
pub struct Wires {
    /// On the room's loopback.
    pub listener: OwnedFd,
    pub port: u16,
    /// The room's device; or why it has none.
    pub tun: Result<OwnedFd, String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// Beside it: the listener, then the device if there is one.
    Done {
        port: u16,
        no_device: Option<String>,
    },
    Failed {
        why: String,
    },
}

/// Makes a way out of the room that these namespaces are of. Waits for it: milliseconds.
pub fn wire(user: BorrowedFd<'_>, net: BorrowedFd<'_>, wish: Wish) -> io::Result<Wires> {
    let (ours, theirs) = Channel::pair()?;
    let mut process = Command::new("/proc/self/exe")
        .arg0(ARGV0)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs.into_fd()))
        .stdout(Stdio::null())
        .spawn()?;
    let said = ours.send(&wish, &[user, net]).and_then(|()| ours.receive());
    drop(ours);
    let _ = process.wait();
    match said? {
        Received::Message(Said::Done { port, no_device }, fds) => {
            let mut fds = fds.into_iter();
            let listener = fds.next().ok_or(io::ErrorKind::InvalidData)?;
            let tun = match (fds.next(), no_device) {
                (Some(tun), _) => Ok(tun),
                (None, why) => Err(why.unwrap_or_default()),
            };
            Ok(Wires { listener, port, tun })
        }
        Received::Message(Said::Failed { why }, _) => Err(io::Error::other(why)),
        Received::Closed => Err(io::Error::other("it ended before it answered")),
    }
}

/// Does it if this process was started to. Call it early in `main`.
pub fn run_if_wirer() {
    if !ask_command_line(|name, _| name == ARGV0.as_bytes()).unwrap_or(false) {
        return;
    }
    let host = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(Channel::from_fd);
    let status = host.map_err(io::Error::from).and_then(|host| answer(&host)).map_or(1, |()| 0);
    std::process::exit(status);
}

fn answer(host: &Channel) -> io::Result<()> {
    let Received::Message(wish, fds) = host.receive::<Wish>()? else { return Ok(()) };
    let made = match fds.as_slice() {
        [user, net] => go_in(user.as_fd(), net.as_fd()).and_then(|()| make(&wish)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    match made {
        Ok(wires) => {
            let mut fds = vec![wires.listener.as_fd()];
            fds.extend(wires.tun.as_ref().ok().map(AsFd::as_fd));
            let no_device = wires.tun.as_ref().err().cloned();
            host.send(&Said::Done { port: wires.port, no_device }, &fds)
        }
        Err(error) => host.send(&Said::Failed { why: error.to_string() }, &[]),
    }
}

/// Enters the room's network. As root, with the machine's authority; else with that over the room's user namespace.
fn go_in(user: BorrowedFd<'_>, net: BorrowedFd<'_>) -> io::Result<()> {
    let (theirs, ours) = (rustix::fs::fstat(net)?, rustix::fs::stat("/proc/self/ns/net")?);
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) {
        return Err(io::Error::other("the room has no network namespace of its own"));
    }
    match enter(net, Namespaces::NET) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            enter(user, Namespaces::USER)?;
            enter(net, Namespaces::NET)
        }
        entered => entered,
    }
}

fn make(wish: &Wish) -> io::Result<Wires> {
    let deadline = Instant::now() + PATIENCE;
    // First: while an earlier one is held somewhere, so is the port.
    let tun =
        device(wish, deadline).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => "this machine has no /dev/net/tun".to_owned(),
            Some(Errno::ACCESS) => "/dev/net/tun is closed to the server's user".to_owned(),
            _ => format!("a TUN device cannot be made: {error}"),
        });
    let listener = match listen_on(wish.port) {
        Err(Errno::ADDRINUSE) => loop {
            match listen_on(wish.port) {
                Err(Errno::ADDRINUSE) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                // A program of the room has it.
                Err(Errno::ADDRINUSE) => break listen_on(0)?,
                listener => break listener?,
            }
        },
        listener => listener?,
    };
    let port = SocketAddr::try_from(rustix::net::getsockname(&listener)?).map_or(0, |at| at.port());
    Ok(Wires { listener, port, tun })
}

fn device(wish: &Wish, deadline: Instant) -> io::Result<OwnedFd> {
    let made = loop {
        match tun::create(DEVICE) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            made => break made?,
        }
    };
    tun::configure(DEVICE, wish.address, wish.mtu)?;
    tun::route_everything(DEVICE)?;
    Ok(made)
}

fn listen_on(port: u16) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // Connections of an earlier one may linger.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
