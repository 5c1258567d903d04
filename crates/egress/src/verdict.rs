//! What was decided about a connection: which rule decided, and for a denial how to allow it.

use crate::cidr::Cidr;
use crate::host::{HostError, Name};
use crate::policy::DomainPattern;
use crate::special::SpecialRange;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The rule that let a connection through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// By its name. What the connection says of itself must then be that name.
    Domain(Arc<DomainPattern>),
    /// By its address.
    Cidr(Cidr),
    /// Every public address is open.
    Open,
}

impl fmt::Display for Permit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permit::Domain(pattern) => write!(out, "domain {pattern}"),
            Permit::Cidr(cidr) => write!(out, "cidr {cidr}"),
            Permit::Open => out.write_str("open"),
        }
    }
}

/// A refusal. Displayed it is one sentence for people: what was refused, by which rule, and how to allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// As it was asked for, made safe to show.
    pub host: String,
    pub port: u16,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The network is off.
    Off,
    /// A name that no domain of the policy covers.
    NotListed,
    /// An address that no cidr of the policy has.
    AddressNotListed,
    /// A port that is not among the policy's.
    Port { allowed: String },
    /// A name or an address that leads to a special range.
    Special { address: IpAddr, range: &'static SpecialRange },
    /// An address of the machine that the rooms are on.
    OwnAddress { address: IpAddr },
    /// A port on which the server that rooms belong to listens.
    ServerItself { address: IpAddr },
    /// The handshake or request says another name than the connection was opened for.
    NameMismatch { said: Option<String>, by: SaidBy },
    /// A connection that was opened for a name began with something that cannot be checked.
    Unreadable { why: &'static str },
    /// Not a host at all.
    Malformed(HostError),
    /// The session has as many connections as it may have.
    Connections { most: usize },
    /// Something else than TCP and DNS.
    Protocol { name: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaidBy {
    Tls,
    Http,
}

impl Reason {
    /// For programs. Never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Off => "network_off",
            Reason::NotListed => "domain_not_allowed",
            Reason::AddressNotListed => "address_not_allowed",
            Reason::Port { .. } => "port_not_allowed",
            Reason::Special { .. } => "special_address",
            Reason::OwnAddress { .. } => "own_address",
            Reason::ServerItself { .. } => "server_itself",
            Reason::NameMismatch { .. } => "name_mismatch",
            Reason::Unreadable { .. } => "unreadable_start",
            Reason::Malformed(_) => "malformed_host",
            Reason::Connections { .. } => "too_many_connections",
            Reason::Protocol { .. } => "protocol_not_carried",
        }
    }
}

impl Denial {
    /// What was asked for, as one word.
    pub fn target(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn what_happened(&self) -> String {
        let (host, port) = (&self.host, self.port);
        match &self.reason {
            Reason::Off => "the network of this session is off".into(),
            Reason::NotListed => format!("\"{host}\" is not among the policy's domains"),
            Reason::AddressNotListed => format!("address {host} is in none of the policy's cidrs"),
            Reason::Port { allowed } => format!("port {port} is not among the policy's ports ({allowed})"),
            Reason::Special { address, range } if *host == address.to_string() => {
                format!("{address} is {} ({})", range.what, range.range)
            }
            Reason::Special { address, range } => {
                format!("\"{host}\" leads to {address}, which is {} ({})", range.what, range.range)
            }
            Reason::OwnAddress { address } => format!("{address} is an address of the machine itself"),
            Reason::ServerItself { address } => {
                format!("{} is the server that this room belongs to", SocketAddr::new(*address, port))
            }
            Reason::NameMismatch { said, by } => {
                let by = match by {
                    SaidBy::Tls => "the TLS handshake",
                    SaidBy::Http => "the Host header",
                };
                match said {
                    Some(said) => {
                        format!("the connection was opened for \"{host}\" but {by} says \"{said}\"")
                    }
                    None => format!("the connection was opened for \"{host}\" but {by} names no server"),
                }
            }
            Reason::Unreadable { why } => format!("the start of the connection cannot be checked: {why}"),
            Reason::Malformed(error) => error.to_string(),
            Reason::Connections { most } => format!("this session has {most} connections open, its limit"),
            Reason::Protocol { name } => format!("{name} is not carried, only TCP and DNS"),
        }
    }

    /// How to allow it.
    pub fn hint(&self) -> String {
        let (host, port) = (&self.host, self.port);
        match &self.reason {
            Reason::Off => "set network mode \"allow\" with this domain, or \"open\"".into(),
            Reason::NotListed => format!("add \"{host}\" to network.domains"),
            Reason::AddressNotListed => match host.parse::<IpAddr>() {
                Ok(address) => format!("add \"{}\" to network.cidrs", Cidr::of(address)),
                Err(_) => "add its range to network.cidrs".into(),
            },
            Reason::Port { .. } => format!("add {port} to network.ports"),
            Reason::Special { address, .. } | Reason::OwnAddress { address } => {
                format!("add \"{}\" to network.cidrs if it is meant to be reached", Cidr::of(*address))
            }
            Reason::ServerItself { .. } => "no policy opens it; use another address".into(),
            Reason::NameMismatch { said: Some(said), .. } => format!("connect to \"{said}\" by its own name"),
            Reason::NameMismatch { said: None, .. } => "let the client send the server's name (SNI)".into(),
            Reason::Unreadable { .. } => {
                format!("add the addresses of \"{host}\" to network.cidrs and use one")
            }
            Reason::Malformed(_) => "use the spelling that it names".into(),
            Reason::Connections { .. } => "close some, or raise the session's connection limit".into(),
            Reason::Protocol { .. } => "use TCP".into(),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} denied [{}]: {}; {}",
            self.target(),
            self.reason.code(),
            self.what_happened(),
            self.hint()
        )
    }
}

impl std::error::Error for Denial {}

impl Denial {
    pub(crate) fn malformed(text: &[u8], port: u16, error: HostError) -> Self {
        let host: String =
            text.iter().take(80).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
        Denial { host, port, reason: Reason::Malformed(error) }
    }

    pub(crate) fn of_name(name: &Name, port: u16, reason: Reason) -> Self {
        Denial { host: name.to_string(), port, reason }
    }
}
