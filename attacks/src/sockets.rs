//! Which kinds of sockets can be made: each protocol family is a large piece of kernel, and some lead past the
//! network namespace.

use crate::sys::{args, raw_fd};
use crate::{Case, Outcome, case, none_found};

pub(crate) static CASES: &[Case] = &[
    case("socket-families", "sockets", "Makes a socket of every family and type", FILTER, |_| families()),
    case("socket-pairs", "sockets", "Makes a pair of sockets of every family", FILTER, |_| pairs()),
    case(
        "vsock",
        "sockets",
        "Makes a socket to the hypervisor, which crosses network namespaces",
        FILTER,
        |_| {
            let mut made = Vec::new();
            for (name, kind) in TYPES {
                note(&mut made, format!("AF_VSOCK {name}"), libc::AF_VSOCK as usize, *kind, 0);
            }
            none_found(made, "refused")
        },
    ),
    case("netlink", "sockets", "Makes netlink sockets other than route", FILTER, |_| netlink()),
    case("raw-sockets", "sockets", "Makes raw and packet sockets", &["caps", "seccomp"], |_| raw_sockets()),
    case(
        "ping-sockets",
        "sockets",
        "Makes ICMP sockets that need no privilege",
        &["netns", "seccomp"],
        |_| ping(),
    ),
    case(
        "odd-protocols",
        "sockets",
        "Makes stream sockets of protocols that Landlock's TCP rules do not see",
        FILTER,
        |_| odd_protocols(),
    ),
    case(
        "socket-high-bits",
        "sockets",
        "Hides the family among bits that the kernel ignores",
        FILTER,
        |_| high_bits(),
    ),
];

const FILTER: &[&str] = &["seccomp"];

const UNIX: usize = libc::AF_UNIX as usize;
const INET: usize = libc::AF_INET as usize;
const INET6: usize = libc::AF_INET6 as usize;
const NETLINK: usize = libc::AF_NETLINK as usize;
const STREAM: usize = libc::SOCK_STREAM as usize;
const DGRAM: usize = libc::SOCK_DGRAM as usize;
const RAW: usize = libc::SOCK_RAW as usize;

const TYPES: &[(&str, usize)] =
    &[("stream", STREAM), ("dgram", DGRAM), ("raw", RAW), ("rdm", 4), ("seqpacket", 5), ("packet", 10)];

/// Adds to the list if the socket can be made.
fn note(made: &mut Vec<String>, name: String, family: usize, kind: usize, protocol: usize) {
    if raw_fd(libc::SYS_socket, args(&[family, kind, protocol])).is_ok() {
        made.push(name);
    }
}

fn families() -> Outcome {
    let mut made = Vec::new();
    for family in 0..=50 {
        for (name, kind) in TYPES {
            let allowed = match family {
                UNIX => true,
                INET | INET6 => [STREAM, DGRAM].contains(kind),
                NETLINK => true, // protocol 0 is route, and netlink knows no difference between its types
                _ => false,
            };
            if !allowed {
                note(&mut made, format!("family {family} {name}"), family, *kind, 0);
            }
        }
    }
    none_found(made, "only unix, inet, inet6 and netlink route")
}

fn pairs() -> Outcome {
    let mut made = Vec::new();
    for family in (0..=50).filter(|family| *family != UNIX) {
        let mut ends = [0i32; 2];
        let call = args(&[family, STREAM, 0, crate::sys::room_for(&mut ends)]);
        if crate::sys::raw(libc::SYS_socketpair, call).is_ok() {
            made.push(format!("a pair of family {family}"));
        }
    }
    none_found(made, "only unix")
}

fn netlink() -> Outcome {
    let mut made = Vec::new();
    for protocol in 1..=31 {
        note(&mut made, format!("netlink {protocol}"), NETLINK, RAW, protocol);
    }
    none_found(made, "only route")
}

fn raw_sockets() -> Outcome {
    let mut made = Vec::new();
    // 1 ICMP, 58 ICMPv6, 255 raw IP; a packet socket takes its protocol in network order: 3 is "all".
    for (name, family, protocols) in [("inet", INET, [1, 6, 255]), ("inet6", INET6, [58, 17, 255])] {
        for protocol in protocols {
            note(&mut made, format!("raw {name} {protocol}"), family, RAW, protocol);
        }
    }
    for (name, kind) in [("raw", RAW), ("dgram", DGRAM)] {
        note(&mut made, format!("packet {name}"), libc::AF_PACKET as usize, kind, 0x0300);
    }
    none_found(made, "refused")
}

fn ping() -> Outcome {
    let mut made = Vec::new();
    note(&mut made, "ICMP".to_owned(), INET, DGRAM, 1);
    note(&mut made, "ICMPv6".to_owned(), INET6, DGRAM, 58);
    none_found(made, "refused")
}

fn odd_protocols() -> Outcome {
    let mut made = Vec::new();
    for (family_name, family) in [("inet", INET), ("inet6", INET6)] {
        for (name, kind, protocol) in [
            ("MPTCP", STREAM, 262),
            ("SMC", STREAM, 256),
            ("SCTP", STREAM, 132),
            ("DCCP", 6, 33),
            ("UDP-Lite", DGRAM, 136),
            ("L2TP", DGRAM, 115),
        ] {
            note(&mut made, format!("{name} on {family_name}"), family, kind, protocol);
        }
    }
    none_found(made, "refused")
}

fn high_bits() -> Outcome {
    const HIGH: usize = 1 << 32;
    let mut made = Vec::new();
    note(&mut made, "vsock behind high bits".to_owned(), libc::AF_VSOCK as usize | HIGH, STREAM, 0);
    note(&mut made, "packet behind high bits".to_owned(), libc::AF_PACKET as usize | HIGH, RAW, 0x0300);
    note(&mut made, "netlink audit behind high bits".to_owned(), NETLINK, RAW, 9 | HIGH);
    note(&mut made, "alg behind high bits".to_owned(), libc::AF_ALG as usize | HIGH, 5, 0);
    none_found(made, "refused")
}
