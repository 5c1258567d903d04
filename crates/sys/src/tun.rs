//! TUN devices: a network interface whose packets a program reads and writes, and its address, size and route.

use crate::check;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes a TUN device in this network namespace. Packets come and go over the descriptor, bare and without waiting; the
/// device is gone when the last copy of it is closed. The descriptor works from every other namespace too.
pub fn create(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(c"/dev/net/tun", flags, Mode::empty())?;
    let mut request = named(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }.into())?;
    Ok(device)
}

/// Gives an interface of this network namespace an address of its own and the size of its packets, and brings it up.
pub fn configure(name: &str, address: Ipv4Addr, mtu: u16) -> io::Result<()> {
    let socket = control_socket()?;
    let mut request = named(name)?;
    request.ifr_ifru.ifru_mtu = mtu.into();
    // SAFETY: SIOCSIFMTU reads an `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &raw mut request) }.into())?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    // SAFETY: SIOCSIFADDR reads an `ifreq`, which `request` is; its address is one of IPv4.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw mut request) }.into())?;
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::BROADCAST);
    // SAFETY: as above, for the mask.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFNETMASK, &raw mut request) }.into())?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }.into()).map(drop)
}

/// Sends everything that has no other way through an interface of this network namespace.
pub fn route_everything(name: &str) -> io::Result<()> {
    let socket = control_socket()?;
    let mut device = named(name)?.ifr_name;
    // SAFETY: `rtentry` is plain data; zeroes are valid.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_flags = libc::RTF_UP;
    route.rt_dev = device.as_mut_ptr();
    // SAFETY: SIOCADDRT reads an `rtentry`, which `route` is, and the name at `rt_dev`, which ends with a zero and
    // lives until the call returns.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &raw mut route) }.into()).map(drop)
}

fn control_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// A request about an interface, with nothing in it but the name.
fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data; zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, the end of the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(['\0', '/']) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: both are plain data, and `sockaddr` is as large as `sockaddr_in`.
    unsafe {
        let mut inet: libc::sockaddr_in = std::mem::zeroed();
        inet.sin_family = libc::AF_INET as libc::sa_family_t;
        inet.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
        std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet)
    }
}
