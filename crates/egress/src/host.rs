//! The one parser of everything that names a host: policies, proxy requests, SOCKS, `Host`, SNI and DNS questions.
//!
//! Two programs that read one spelling differently are how a filter is passed. So there is one spelling of each host
//! behind this parser: a lower-case ASCII name without a final dot, or an address. What has several readings
//! (`0177.1`, `2130706433`, `[::1%lo]`, `a%2eb`, `user@host`) is refused, with the spelling to use if it has one.

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// What DNS allows a name to have, without the final dot.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
/// Nothing longer is looked at: no spelling of a name of 253 bytes needs as much.
const LONGEST_TEXT: usize = 1024;
/// How much of a refused spelling is repeated to people.
const SHOWN: usize = 80;

/// A host, in its only spelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    Name(Name),
    /// Never an IPv4 address in IPv6 clothes: those are taken off.
    Address(IpAddr),
}

/// A DNS name: lower case, ASCII, no final dot, never something that could be read as an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// A host with a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host is empty; name one, such as example.com")]
    Empty,
    #[error("host \"{0}…\" is too long; a name has at most 253 bytes and each of its labels at most 63")]
    TooLong(String),
    #[error("host \"{text}\" has {character} in it; write the bare name or address")]
    Character { text: String, character: String },
    #[error("host \"{0}\" has an empty label; write it with single dots between its labels")]
    EmptyLabel(String),
    #[error("host \"{0}\" has a label that starts or ends with a hyphen; no such name can be registered")]
    Hyphen(String),
    #[error("host \"{0}\" is not a valid international name; write it in its xn-- form")]
    International(String),
    #[error("host \"{text}\" is not an address in its usual spelling{}", meaning.map(|address| format!("; write {address}")).unwrap_or_default())]
    UnusualAddress { text: String, meaning: Option<Ipv4Addr> },
    #[error("host \"{0}\" is not an IPv6 address; write one such as [2001:db8::1]")]
    BadIpv6(String),
    #[error("\"{0}\" does not end with a port from 1 to 65535; write HOST:PORT")]
    Port(String),
}

/// A refused spelling, shortened and made safe to show: nothing in it can break a line or a header.
fn shown(text: &[u8]) -> String {
    let text = &text[..text.len().min(SHOWN)];
    text.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "'")
}

impl Host {
    /// Reads a host as it stands in a request, a header, a handshake or a policy.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, HostError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.len() > LONGEST_TEXT {
            return Err(HostError::TooLong(shown(text)));
        }
        if let Some(&byte) = text.iter().find(|&&byte| is_never_in_a_host(byte)) {
            return Err(HostError::Character { text: shown(text), character: describe(byte) });
        }
        if let Some(inner) = text.strip_prefix(b"[") {
            let inner = inner.strip_suffix(b"]").ok_or_else(|| HostError::BadIpv6(shown(text)))?;
            return parse_ipv6(inner, text);
        }
        if text.contains(&b':') {
            return parse_ipv6(text, text);
        }
        if text.contains(&b']') {
            return Err(HostError::BadIpv6(shown(text)));
        }
        parse_name(text)
    }

    pub fn name(&self) -> Option<&Name> {
        match self {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }
}

fn parse_ipv6(inner: &[u8], text: &[u8]) -> Result<Host, HostError> {
    let parsed = std::str::from_utf8(inner).ok().and_then(|inner| inner.parse::<Ipv6Addr>().ok());
    let address = parsed.ok_or_else(|| HostError::BadIpv6(shown(text)))?;
    Ok(Host::Address(IpAddr::V6(address).to_canonical()))
}

fn parse_name(text: &[u8]) -> Result<Host, HostError> {
    let international = || HostError::International(shown(text));
    // Maps capitals, full-width letters and other dots, checks xn-- labels, and refuses what maps to delimiters.
    let mapped = Uts46::new()
        .to_ascii(text, AsciiDenyList::URL, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| international())?;
    let name = mapped.strip_suffix('.').unwrap_or(&mapped);
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if name.len() > LONGEST_NAME {
        return Err(HostError::TooLong(shown(text)));
    }
    let mut last = "";
    for label in name.split('.') {
        check_label(label, text)?;
        last = label;
    }
    if is_a_number(last) {
        // The standard library takes four decimal numbers without leading zeros, and nothing else.
        return match name.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Host::Address(address.into())),
            Err(_) => Err(HostError::UnusualAddress { text: shown(text), meaning: loose_ipv4(name) }),
        };
    }
    Ok(Host::Name(Name(name.into())))
}

fn check_label(label: &str, text: &[u8]) -> Result<(), HostError> {
    if label.is_empty() {
        return Err(HostError::EmptyLabel(shown(text)));
    }
    if label.len() > LONGEST_LABEL {
        return Err(HostError::TooLong(shown(text)));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(HostError::Hyphen(shown(text)));
    }
    let usual = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    match label.bytes().find(|&byte| !usual(byte)) {
        Some(byte) => Err(HostError::Character { text: shown(text), character: describe(byte) }),
        None => Ok(()),
    }
}

/// Bytes that delimit something elsewhere, or that nobody sees.
fn is_never_in_a_host(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f || b"\"#%/<>?@\\^`{|}*,;'()!$&+=~".contains(&byte)
}

fn describe(byte: u8) -> String {
    match byte {
        0 => "a NUL".into(),
        b' ' => "a space".into(),
        b'%' => "a \"%\" (an encoded byte or a zone)".into(),
        b'@' => "an \"@\" (a user name)".into(),
        b'*' => "a \"*\" (a wildcard stands only first in a domain of a policy, as in *.example.com)".into(),
        byte if byte.is_ascii_graphic() => format!("\"{}\"", char::from(byte)),
        byte => format!("byte {byte:#04x}"),
    }
}

/// Whether programs take a name that ends with this label for an IPv4 address.
fn is_a_number(label: &str) -> bool {
    let hexadecimal =
        label.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hexadecimal || label.bytes().all(|byte| byte.is_ascii_digit())
}

/// What the C library takes a spelling for: parts in decimal, octal and hexadecimal, the last one filling up. It is
/// used to say what to write instead, never to decide.
fn loose_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(loose_number).collect::<Option<_>>()?;
    let (&last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|&part| part > 255) || last >= 1 << (8 * (4 - first.len())) {
        return None;
    }
    let head = first.iter().enumerate().fold(0u64, |sum, (at, part)| sum | part << (24 - 8 * at));
    Some(Ipv4Addr::from_bits((head | last) as u32))
}

fn loose_number(part: &str) -> Option<u64> {
    match part.strip_prefix("0x") {
        Some("") => Some(0),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u64::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    }
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Names that mean this machine whatever a server says (RFC 6761), so no server is asked.
    pub fn is_localhost(&self) -> bool {
        &*self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

impl Target {
    /// Reads `HOST:PORT`, or `HOST` where there is a port to take instead. IPv6 stands in brackets.
    pub fn parse(text: impl AsRef<[u8]>, default_port: Option<u16>) -> Result<Self, HostError> {
        let text = text.as_ref();
        let bad_port = || HostError::Port(shown(text));
        let after_brackets = text.iter().rposition(|&byte| byte == b']').map_or(0, |at| at + 1);
        let colon =
            text[after_brackets..].iter().position(|&byte| byte == b':').map(|at| at + after_brackets);
        let (host, port) = match colon {
            Some(colon) => (&text[..colon], read_port(&text[colon + 1..]).ok_or_else(bad_port)?),
            None => (text, default_port.ok_or_else(bad_port)?),
        };
        Ok(Target { host: Host::parse(host)?, port })
    }
}

/// Digits alone: the standard library would take a plus sign as well.
fn read_port(text: &[u8]) -> Option<u16> {
    if text.len() > 5 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|&port| port != 0)
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => name.fmt(out),
            Host::Address(address) => address.fmt(out),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Address(IpAddr::V6(address)) => write!(out, "[{address}]:{}", self.port),
            _ => write!(out, "{}:{}", self.host, self.port),
        }
    }
}
