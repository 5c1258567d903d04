//! Reaching the network: the host's loopback, the metadata service in every spelling, and any way out.

use crate::sys::{Errno, args, generous_ipv4, raw};
use crate::{Case, Context, Outcome, case, none_found};
use std::ffi::CStr;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

pub(crate) static CASES: &[Case] = &[
    case("interfaces", "network", "Lists network interfaces", NETNS, |_| interfaces()),
    case("routes", "network", "Looks for a route to anywhere", NETNS, |_| routes()),
    case("tcp-host", "network", "Connects to a TCP server on the host's loopback", NETNS, tcp_host),
    case("udp-host", "network", "Talks to a UDP server on the host's loopback", NETNS, udp_host),
    case(
        "metadata-service",
        "network",
        "Connects and sends to 169.254.169.254 in every spelling",
        NETNS,
        metadata,
    ),
    case("configure-network", "network", "Brings an interface down and adds an address", &["caps"], |_| {
        configure()
    }),
];

const NETNS: &[&str] = &["netns"];
const PATIENCE: Duration = Duration::from_millis(250);

fn interfaces() -> Outcome {
    let Ok(table) = fs::read_to_string("/proc/self/net/dev") else {
        return Outcome::Skipped("/proc/self/net/dev cannot be read".to_owned());
    };
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
    none_found(names.filter(|name| name != "lo").collect(), "only lo")
}

/// Connecting a UDP socket sends nothing: it only asks the kernel for a route.
fn routes() -> Outcome {
    let targets: [IpAddr; 6] = [
        Ipv4Addr::new(1, 1, 1, 1).into(),
        Ipv4Addr::new(10, 0, 0, 1).into(),
        Ipv4Addr::new(172, 17, 0, 1).into(),
        Ipv4Addr::new(192, 168, 0, 1).into(),
        Ipv4Addr::new(169, 254, 169, 254).into(),
        Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111).into(),
    ];
    let mut found = Vec::new();
    for target in targets {
        let local: IpAddr =
            if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        if UdpSocket::bind((local, 0)).and_then(|socket| socket.connect((target, 53))).is_ok() {
            found.push(format!("a route to {target}"));
        }
    }
    none_found(found, "ENETUNREACH")
}

fn tcp_host(context: &Context) -> Outcome {
    let Some(port) = context.host_tcp_port else {
        return Outcome::Skipped("no TCP server was named".to_owned());
    };
    let hosts: [IpAddr; 5] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(127, 0, 0, 53).into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
    ];
    let mut tries = Tries::default();
    for host in hosts {
        tries.connect(&host.to_string(), SocketAddr::new(host, port));
    }
    tries.judge()
}

/// What came of reaching for others.
#[derive(Default)]
struct Tries {
    /// Datagrams leave the room, and somebody outside decides.
    has_network: bool,
    found: Vec<String>,
    refusals: Vec<String>,
}

impl Tries {
    /// By TCP; a connection is a breach.
    fn connect(&mut self, spelling: &str, target: SocketAddr) {
        let connected = TcpStream::connect_timeout(&target, PATIENCE);
        self.note(connected.map(|_| format!("connected to {spelling} port {}", target.port())));
    }

    /// By UDP; that a datagram leaves is a breach, whether or not somebody answers it. In a room with a network an answer is.
    fn send(&mut self, spelling: &str, target: SocketAddr) {
        let local: IpAddr =
            if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let has_network = self.has_network;
        let sent = UdpSocket::bind((local, 0)).and_then(|socket| {
            socket.send_to(b"workroom-attack", target)?;
            if has_network {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.recv_from(&mut [0u8; 64])?;
            }
            Ok(())
        });
        self.note(sent.map(|()| format!("sent to {spelling} port {}", target.port())));
    }

    fn note(&mut self, result: std::io::Result<String>) {
        match result {
            Ok(what) => self.found.push(what),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                self.refusals.push("no answer".to_owned());
            }
            Err(error) => self.refusals.push(Errno::from(error).to_string()),
        }
    }

    fn judge(mut self) -> Outcome {
        self.refusals.sort();
        self.refusals.dedup();
        none_found(self.found, self.refusals.join(", "))
    }
}

fn udp_host(context: &Context) -> Outcome {
    let Some(port) = context.host_udp_port else {
        return Outcome::Skipped("no UDP server was named".to_owned());
    };
    let talk = || -> std::io::Result<usize> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.send(b"workroom-attack")?;
        socket.recv(&mut [0u8; 64])
    };
    match talk() {
        Ok(count) => Outcome::Breached(format!("{count} bytes came back")),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Outcome::Held("no answer".to_owned()),
        Err(error) => Outcome::Held(Errno::from(error).to_string()),
    }
}

fn metadata(context: &Context) -> Outcome {
    const V4: &[&CStr] = &[
        c"169.254.169.254",
        c"2852039166",
        c"0xa9fea9fe",
        c"0xa9.0xfe.0xa9.0xfe",
        c"0251.0376.0251.0376",
        c"025177524776",
        c"169.254.43518",
        c"169.16689662",
    ];
    const V6: &[&str] = &[
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "fd00:ec2::254",
    ];
    let mut targets = Vec::new();
    for spelling in V4 {
        let name = spelling.to_string_lossy().into_owned();
        match generous_ipv4(spelling) {
            Some(address) if address == Ipv4Addr::new(169, 254, 169, 254) => {
                targets.push((name, IpAddr::from(address)));
            }
            other => return Outcome::Skipped(format!("{name} reads as {other:?} here")),
        }
    }
    for name in V6 {
        match name.parse::<Ipv6Addr>() {
            Ok(address) => targets.push(((*name).to_owned(), address.into())),
            Err(_) => return Outcome::Skipped(format!("{name} is not understood here")),
        }
    }
    let mut tries = Tries { has_network: context.has_network, ..Tries::default() };
    for (spelling, address) in &targets {
        for port in [53, 80] {
            tries.send(spelling, SocketAddr::new(*address, port));
        }
    }
    for (spelling, address) in &targets {
        tries.connect(spelling, SocketAddr::new(*address, 80));
    }
    tries.judge()
}

fn configure() -> Outcome {
    const SIOCGIFFLAGS: usize = 0x8913;
    const SIOCSIFFLAGS: usize = 0x8914;
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else {
        return Outcome::Skipped("no socket to ask with".to_owned());
    };
    // The flags that lo has already are set again: nothing changes if this is let through.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket) as usize;
    let at = crate::sys::room_for(&mut request);
    if let Err(errno) = raw(libc::SYS_ioctl, args(&[fd, SIOCGIFFLAGS, at])) {
        return Outcome::Held(format!("not even asked: {errno}"));
    }
    match raw(libc::SYS_ioctl, args(&[fd, SIOCSIFFLAGS, at])) {
        Ok(_) => Outcome::Breached("may configure lo".to_owned()),
        Err(errno) => Outcome::Held(errno.to_string()),
    }
}
