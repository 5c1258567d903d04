//! Ranges of addresses, written `10.0.0.0/8`.

use crate::host::{Host, HostError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses of one family; no bit is set behind its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error("\"{text}\" is not an address: {reason}")]
    Address { text: String, reason: HostError },
    #[error("\"{0}\" is a name, not an address; put names under domains")]
    Name(String),
    #[error(
        "\"{text}\" has no prefix from 0 to {longest} after its slash; write one, such as {address}/{longest}"
    )]
    Prefix { text: String, address: IpAddr, longest: u8 },
    #[error("\"{text}\" has address bits behind its prefix; write {correct}")]
    HostBits { text: String, correct: Cidr },
    #[error("\"{text}\" is an IPv4 range written as IPv6; write it as IPv4")]
    Mapped { text: String },
}

impl Cidr {
    pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    pub(crate) const fn v6(high: [u16; 4], low: [u16; 4], prefix: u8) -> Self {
        let network = Ipv6Addr::new(high[0], high[1], high[2], high[3], low[0], low[1], low[2], low[3]);
        Self { network: IpAddr::V6(network), prefix }
    }

    /// The range that has this one address.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { network: address, prefix: longest(address) }
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The address, if it has only one.
    pub fn only(&self) -> Option<IpAddr> {
        (self.prefix == longest(self.network)).then_some(self.network)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        longest(address) == longest(self.network) && cut(address, self.prefix) == self.network
    }

    /// Whether all of this range lies in the other.
    pub fn is_within(&self, other: &Cidr) -> bool {
        self.prefix >= other.prefix && other.contains(self.network)
    }
}

fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits behind the prefix cleared.
fn cut(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let host = Host::parse(address)
            .map_err(|reason| CidrError::Address { text: text.escape_default().to_string(), reason })?;
        let Host::Address(network) = host else { return Err(CidrError::Name(host.to_string())) };
        let text = || text.escape_default().to_string();
        if network.is_ipv4() && address.contains(':') {
            return Err(CidrError::Mapped { text: text() });
        }
        let longest = longest(network);
        let prefix = match prefix {
            None => longest,
            Some(digits) => (digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .then(|| digits.parse().ok())
                .flatten()
                .filter(|&prefix| prefix <= longest)
                .ok_or_else(|| CidrError::Prefix { text: text(), address: network, longest })?,
        };
        let correct = Cidr { network: cut(network, prefix), prefix };
        if correct.network != network {
            return Err(CidrError::HostBits { text: text(), correct });
        }
        Ok(correct)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.network, self.prefix)
    }
}
