//! The room's own network, as the guest sees it: who listens on which port, and connections to them for the host.

use crate::census::{Census, Staff};
use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as connect_to, socket_with};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use workroom_types::ListeningPort;

/// More in one answer help nobody.
const MOST_PORTS: usize = 1000;

/// Bytes of a table of sockets that are looked at.
const MOST_BYTES: usize = 1 << 20;

/// The state of a socket that listens, as `/proc/net/tcp` writes it.
const LISTENS: &str = "0A";

/// A connection to a port of the room's loopback, on its way: whoever gets it waits for it.
pub(crate) fn connect(port: u16, v6: bool) -> io::Result<OwnedFd> {
    let (family, address): (_, IpAddr) = match v6 {
        true => (AddressFamily::INET6, Ipv6Addr::LOCALHOST.into()),
        false => (AddressFamily::INET, Ipv4Addr::LOCALHOST.into()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect_to(&socket, &SocketAddr::new(address, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// A line of `/proc/net/tcp` or `tcp6` of a socket that listens: where, and its inode.
fn parse_listener(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    if state != LISTENS {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of four bytes, each as this machine has it in memory.
    let word =
        |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let bytes: Vec<u8> = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some((SocketAddr::new(address, port), inode))
}

impl Census {
    /// The room's user namespace, then its network namespace.
    pub(crate) fn namespaces(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |kind: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            openat(self.proc.as_fd(), format!("self/ns/{kind}"), flags, Mode::empty())
        };
        Ok(vec![open("user")?, open("net")?])
    }

    pub(crate) fn ports(&self, staff: &Staff) -> Vec<ListeningPort> {
        let mut listeners: HashMap<u64, SocketAddr> = HashMap::new();
        for table in ["self/net/tcp", "self/net/tcp6"] {
            let text = self.read_whole(table).unwrap_or_default();
            let found =
                String::from_utf8_lossy(&text).lines().skip(1).filter_map(parse_listener).collect::<Vec<_>>();
            listeners.extend(found.into_iter().map(|(address, inode)| (inode, address)));
        }
        let mut owners = HashMap::new();
        if !listeners.is_empty() {
            for pid in self.others(staff) {
                for inode in self.sockets_of(pid).into_iter().filter(|inode| listeners.contains_key(inode)) {
                    owners.entry(inode).or_insert(pid);
                }
            }
        }
        let mut ports: Vec<_> = listeners
            .into_iter()
            .map(|(inode, address)| {
                let pid = owners.get(&inode).copied();
                let name = pid.and_then(|pid| self.read(&format!("{pid}/comm")));
                let process = name.map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
                ListeningPort { port: address.port(), address: address.ip().to_string(), pid, process }
            })
            .collect();
        ports.sort_by(|one, other| (one.port, &one.address).cmp(&(other.port, &other.address)));
        ports.truncate(MOST_PORTS);
        ports
    }

    /// The inodes of the sockets that a process has open.
    fn sockets_of(&self, pid: i32) -> Vec<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fds) = openat(self.proc.as_fd(), format!("{pid}/fd"), flags, Mode::empty()) else {
            return Vec::new();
        };
        let Ok(entries) = Dir::read_from(&fds) else { return Vec::new() };
        let inode = |name: &std::ffi::CStr| -> Option<u64> {
            let target = readlinkat(&fds, name, Vec::new()).ok()?;
            target.to_str().ok()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        entries.filter_map(Result::ok).filter_map(|entry| inode(entry.file_name())).collect()
    }

    fn read_whole(&self, path: &str) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(self.proc.as_fd(), path, flags, Mode::empty()).ok()?;
        let mut all = Vec::new();
        let mut buffer = [0; 8192];
        while all.len() < MOST_BYTES {
            match rustix::io::read(&file, &mut buffer[..]) {
                Ok(0) | Err(_) => break,
                Ok(read) => all.extend_from_slice(&buffer[..read]),
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_from_the_kernels_tables() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1";
        assert_eq!(parse_listener(v4), Some(("127.0.0.1:8080".parse().unwrap(), 4711)));
        let v6 = "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A \
                  00000000:00000000 00:00000000 00000000  0 0 12 1";
        assert_eq!(parse_listener(v6), Some(("[::1]:80".parse().unwrap(), 12)));
        let connected = v4.replace(" 0A ", " 01 ");
        assert_eq!(parse_listener(&connected), None);
        assert_eq!(parse_listener("nonsense"), None);
    }
}
