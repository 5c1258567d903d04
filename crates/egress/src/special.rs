//! Addresses that are nobody's on the public internet: this machine, its neighbours, clouds' metadata, and ways
//! around. No policy reaches them unless a cidr names them.
//!
//! A cidr names such an address when it lies inside the smallest range of this table that has the address. So
//! `10.0.0.0/8` opens private networks and `169.254.169.254/32` a metadata service, while `0.0.0.0/0` opens neither,
//! and `169.254.0.0/16` opens the link but not the metadata service on it.

use crate::cidr::Cidr;
use std::net::IpAddr;

#[derive(Debug, PartialEq, Eq)]
pub struct SpecialRange {
    pub range: Cidr,
    /// For people: "a private network".
    pub what: &'static str,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8, what: &'static str) -> SpecialRange {
    SpecialRange { range: Cidr::v4(a, b, c, d, prefix), what }
}

const fn v6(high: [u16; 4], low: [u16; 4], prefix: u8, what: &'static str) -> SpecialRange {
    SpecialRange { range: Cidr::v6(high, low, prefix), what }
}

const PRIVATE: &str = "a private network";
const METADATA: &str = "a cloud's metadata service";
const RESERVED: &str = "a reserved range";
const EXAMPLES: &str = "a range for examples";
const MULTICAST: &str = "multicast";
const EMBEDDED: &str = "an IPv4 address inside an IPv6 address";
const ZERO: [u16; 4] = [0; 4];

const SPECIAL: &[SpecialRange] = &[
    v4(0, 0, 0, 0, 8, "this machine"),
    v4(10, 0, 0, 0, 8, PRIVATE),
    v4(100, 64, 0, 0, 10, "a carrier's private network"),
    v4(100, 100, 100, 200, 32, METADATA),
    v4(127, 0, 0, 0, 8, "loopback"),
    v4(168, 63, 129, 16, 32, METADATA),
    v4(169, 254, 0, 0, 16, "link-local"),
    v4(169, 254, 169, 254, 32, METADATA),
    v4(169, 254, 169, 253, 32, METADATA),
    v4(169, 254, 170, 0, 24, METADATA),
    v4(172, 16, 0, 0, 12, PRIVATE),
    v4(192, 0, 0, 0, 24, RESERVED),
    v4(192, 0, 0, 192, 32, METADATA),
    v4(192, 0, 2, 0, 24, EXAMPLES),
    v4(192, 88, 99, 0, 24, RESERVED),
    v4(192, 168, 0, 0, 16, PRIVATE),
    v4(198, 18, 0, 0, 15, "a range for tests of networks, from which rooms get addresses of names"),
    v4(198, 51, 100, 0, 24, EXAMPLES),
    v4(203, 0, 113, 0, 24, EXAMPLES),
    v4(224, 0, 0, 0, 4, MULTICAST),
    v4(240, 0, 0, 0, 4, RESERVED),
    v4(255, 255, 255, 255, 32, "broadcast"),
    // All that is not 2000::/3, in which global addresses lie.
    v6(ZERO, ZERO, 3, "not a global address"),
    v6([0x4000, 0, 0, 0], ZERO, 2, "not a global address"),
    v6([0x8000, 0, 0, 0], ZERO, 1, "not a global address"),
    v6(ZERO, ZERO, 96, EMBEDDED),
    v6(ZERO, ZERO, 128, "this machine"),
    v6(ZERO, [0, 0, 0, 1], 128, "loopback"),
    v6(ZERO, [0, 0xffff, 0, 0], 96, EMBEDDED),
    v6(ZERO, [0xffff, 0, 0, 0], 96, EMBEDDED),
    v6([0x64, 0xff9b, 0, 0], ZERO, 96, EMBEDDED),
    v6([0x64, 0xff9b, 1, 0], ZERO, 48, EMBEDDED),
    v6([0x2001, 0, 0, 0], ZERO, 23, RESERVED),
    v6([0x2001, 0, 0, 0], ZERO, 32, EMBEDDED),
    v6([0x2001, 0xdb8, 0, 0], ZERO, 32, EXAMPLES),
    v6([0x2002, 0, 0, 0], ZERO, 16, EMBEDDED),
    v6([0x3fff, 0, 0, 0], ZERO, 20, EXAMPLES),
    v6([0xfc00, 0, 0, 0], ZERO, 7, PRIVATE),
    v6([0xfd00, 0xec2, 0, 0], [0, 0, 0, 0x254], 128, METADATA),
    v6([0xfd00, 0xec2, 0, 0], [0, 0, 0, 0x23], 128, METADATA),
    v6([0xfd20, 0xce, 0, 0], [0, 0, 0, 0x254], 128, METADATA),
    v6([0xfe80, 0, 0, 0], ZERO, 10, "link-local"),
    v6([0xfec0, 0, 0, 0], ZERO, 10, PRIVATE),
    v6([0xff00, 0, 0, 0], ZERO, 8, MULTICAST),
];

/// The smallest special range that has the address.
pub fn special(address: IpAddr) -> Option<&'static SpecialRange> {
    let address = address.to_canonical();
    SPECIAL
        .iter()
        .filter(|special| special.range.contains(address))
        .max_by_key(|special| special.range.prefix())
}

/// The smallest special range that a cidr lies in, and whose addresses it therefore names.
pub fn special_range_of(cidr: &Cidr) -> Option<&'static SpecialRange> {
    SPECIAL
        .iter()
        .filter(|special| cidr.is_within(&special.range))
        .max_by_key(|special| special.range.prefix())
}
