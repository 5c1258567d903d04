//! The network part of a session's policy, as people write it.
//!
//! ```json
//! "off"
//! {"mode": "allow", "domains": ["example.com", "*.example.org"], "ports": [443, "8000-8100"], "cidrs": ["10.1.0.0/16"]}
//! {"mode": "open", "cidrs": ["192.168.7.9/32"]}
//! ```
//!
//! `domains` are names, exact or with `*.` for all names below; a name that is allowed still may not lead to a special
//! address. `cidrs` are addresses that may be named directly, and special addresses that names may lead to. `ports`
//! holds for both; without it every port.

use crate::cidr::{Cidr, CidrError};
use crate::host::{Host, HostError, Name};
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

pub const MOST_DOMAINS: usize = 4096;
pub const MOST_CIDRS: usize = 1024;
pub const MOST_PORTS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Off,
    /// What is named, and nothing else.
    Allow,
    /// Every public address.
    Open,
}

/// A policy that was checked: what is in it can be enforced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    mode: Mode,
    domains: Vec<DomainPattern>,
    ports: Option<Vec<PortRange>>,
    cidrs: Vec<Cidr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DomainPattern {
    Exact(Name),
    /// Every name below this one, and not itself.
    Below(Name),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "network mode \"off\" has {0} beside it, which would do nothing; use mode \"allow\", or leave them out"
    )]
    OffWithRules(&'static str),
    #[error(
        "network mode \"open\" has domains beside it, though every name is open; use mode \"allow\", or leave them out"
    )]
    OpenWithDomains,
    #[error(
        "network mode \"allow\" names neither domains nor cidrs, so it allows nothing; name some, or use \"off\""
    )]
    AllowsNothing,
    #[error("domain \"{text}\": {reason}")]
    Domain { text: String, reason: HostError },
    #[error("domain \"{0}\" is an address; put it under cidrs")]
    DomainIsAddress(String),
    #[error("domain \"*\" is every name; use mode \"open\" for that")]
    EveryDomain,
    #[error("cidr {0}")]
    Cidr(#[from] CidrError),
    #[error("port {0} is neither a number from 1 to 65535 nor a range such as \"8000-8100\"")]
    Port(String),
    #[error("ports is empty, so that nothing is allowed; name some, or leave it out for every port")]
    NoPorts,
    #[error("there are {given} {what}, and {most} is the most; join some by a wildcard or a larger range")]
    TooMany { what: &'static str, given: usize, most: usize },
}

/// The document before it was checked.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    mode: Mode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    domains: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<PortText>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cidrs: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum PortText {
    Number(i64),
    Range(String),
}

impl Policy {
    pub fn off() -> Self {
        Self::default()
    }

    pub fn open() -> Self {
        Self { mode: Mode::Open, ..Self::default() }
    }

    /// `allow` with rules that were checked one by one.
    pub fn allow(
        domains: Vec<DomainPattern>,
        ports: Option<Vec<PortRange>>,
        cidrs: Vec<Cidr>,
    ) -> Result<Self, PolicyError> {
        Self { mode: Mode::Allow, domains, ports, cidrs }.checked()
    }

    /// Reads a policy from JSON.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn domains(&self) -> &[DomainPattern] {
        &self.domains
    }

    /// Every port, where there are none.
    pub fn ports(&self) -> Option<&[PortRange]> {
        self.ports.as_deref()
    }

    pub fn cidrs(&self) -> &[Cidr] {
        &self.cidrs
    }

    fn checked(self) -> Result<Self, PolicyError> {
        let count = |what, given, most| {
            if given > most { Err(PolicyError::TooMany { what, given, most }) } else { Ok(()) }
        };
        count("domains", self.domains.len(), MOST_DOMAINS)?;
        count("cidrs", self.cidrs.len(), MOST_CIDRS)?;
        count("ports", self.ports.as_ref().map_or(0, Vec::len), MOST_PORTS)?;
        let named = [
            ("domains", !self.domains.is_empty()),
            ("ports", self.ports.is_some()),
            ("cidrs", !self.cidrs.is_empty()),
        ];
        match self.mode {
            Mode::Off => match named.iter().find(|(_, there)| *there) {
                Some((what, _)) => Err(PolicyError::OffWithRules(what)),
                None => Ok(self),
            },
            Mode::Open if !self.domains.is_empty() => Err(PolicyError::OpenWithDomains),
            Mode::Allow if self.domains.is_empty() && self.cidrs.is_empty() => {
                Err(PolicyError::AllowsNothing)
            }
            _ if self.ports.as_ref().is_some_and(Vec::is_empty) => Err(PolicyError::NoPorts),
            _ => Ok(self),
        }
    }
}

impl TryFrom<Document> for Policy {
    type Error = PolicyError;

    fn try_from(document: Document) -> Result<Self, PolicyError> {
        let port = |port: &PortText| match port {
            PortText::Number(number) => PortRange::from_str(&number.to_string()),
            PortText::Range(text) => text.parse(),
        };
        Policy {
            mode: document.mode,
            domains: document.domains.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
            ports: document.ports.map(|ports| ports.iter().map(port).collect()).transpose()?,
            cidrs: document.cidrs.iter().map(|text| text.parse()).collect::<Result<_, CidrError>>()?,
        }
        .checked()
    }
}

impl From<&Policy> for Document {
    fn from(policy: &Policy) -> Self {
        let port = |range: &PortRange| match range.first == range.last {
            true => PortText::Number(range.first.into()),
            false => PortText::Range(range.to_string()),
        };
        Document {
            mode: policy.mode,
            domains: policy.domains.iter().map(ToString::to_string).collect(),
            ports: policy.ports.as_ref().map(|ports| ports.iter().map(port).collect()),
            cidrs: policy.cidrs.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Document::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}

/// Takes a word or an object. An untagged enum would take both too, and say nothing useful about mistakes.
struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = Policy;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"off\", \"open\", or an object with \"mode\"")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Policy, E> {
        match word {
            "off" => Ok(Policy::off()),
            "open" => Ok(Policy::open()),
            "allow" => Err(E::custom(PolicyError::AllowsNothing)),
            _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Policy, A::Error> {
        let document = Document::deserialize(MapAccessDeserializer::new(map))?;
        Policy::try_from(document).map_err(de::Error::custom)
    }
}

impl FromStr for DomainPattern {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let shown = || text.escape_default().to_string();
        if text == "*" {
            return Err(PolicyError::EveryDomain);
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match Host::parse(name) {
            Ok(Host::Name(name)) if below => Ok(Self::Below(name)),
            Ok(Host::Name(name)) => Ok(Self::Exact(name)),
            Ok(Host::Address(_)) => Err(PolicyError::DomainIsAddress(shown())),
            Err(reason) => Err(PolicyError::Domain { text: shown(), reason }),
        }
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(out),
            Self::Below(name) => write!(out, "*.{name}"),
        }
    }
}

impl PortRange {
    pub fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    pub fn first(&self) -> u16 {
        self.first
    }

    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let bad = || PolicyError::Port(text.escape_default().to_string());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten().filter(|&port: &u16| port != 0)
        };
        let range = Self { first: number(first).ok_or_else(bad)?, last: number(last).ok_or_else(bad)? };
        if range.first <= range.last { Ok(range) } else { Err(bad()) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(out),
            false => write!(out, "{}-{}", self.first, self.last),
        }
    }
}
