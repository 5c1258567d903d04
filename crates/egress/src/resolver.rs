//! Finding the addresses of names: questions to the machine's name servers, or to given ones, over UDP and TCP.
//!
//! Only names that the policy permits come here. Whatever a server answers is only a proposal: the caller judges every
//! address and dials the very one that it judged, so an answer that changes from one question to the next gains
//! nothing. `/etc/hosts` and search lists of the machine are not used; a name is always a whole name.

use crate::host::{Host, Name};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name as WireName, RData, RecordType};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How many aliases in a row are followed.
const MOST_ALIASES: usize = 12;
/// How many addresses of a name are looked at.
const MOST_ADDRESSES: usize = 32;
/// How many names are remembered.
const MOST_REMEMBERED: usize = 512;
/// An answer is not remembered longer, whatever it says.
const LONGEST_MEMORY: Duration = Duration::from_secs(300);
/// What a server may send in one UDP packet (the size that passes everywhere unfragmented).
const UDP_PAYLOAD: u16 = 1232;

/// Whom to ask.
#[derive(Debug, Clone)]
pub enum NameServers {
    /// Those of the machine, read anew for each question: machines change networks.
    System,
    Given(Vec<SocketAddr>),
}

#[derive(Debug, Clone)]
pub struct ResolverSettings {
    pub servers: NameServers,
    /// How long one server has for one answer.
    pub patience: Duration,
    /// How often the list of servers is gone through.
    pub rounds: usize,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self { servers: NameServers::System, patience: Duration::from_secs(3), rounds: 2 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("\"{0}\" does not exist; check its spelling")]
    NotFound(Name),
    #[error("\"{0}\" has no address")]
    NoAddress(Name),
    #[error("\"{name}\" could not be resolved: {reason}; check the machine's name servers")]
    Failed { name: Name, reason: String },
}

/// The resolver of one session: what one session has asked about, another cannot find out by timing.
#[derive(Debug)]
pub struct Resolver {
    settings: ResolverSettings,
    remembered: Mutex<HashMap<Name, Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    addresses: Vec<IpAddr>,
    until: Instant,
}

/// What one server said to one question.
enum Said {
    Addresses(Vec<IpAddr>, Duration),
    /// Go on with this name.
    Alias(WireName),
    Nothing,
    NoSuchName,
}

impl Resolver {
    pub fn new(settings: ResolverSettings) -> Self {
        Self { settings, remembered: Mutex::default() }
    }

    /// The addresses of a name, of both families, in the order to try them.
    pub async fn addresses(&self, name: &Name) -> Result<Vec<IpAddr>, ResolveError> {
        if name.is_localhost() {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        if let Some(remembered) = self.recall(name) {
            return Ok(remembered);
        }
        let (v6, v4) =
            tokio::join!(self.of_family(name, RecordType::AAAA), self.of_family(name, RecordType::A));
        // One family that fails does not take the other with it.
        let (mut addresses, shortest) = match (v6, v4) {
            (Ok((v6, first)), Ok((v4, second))) => (interleave(v6, v4), first.min(second)),
            (Ok((found, life)), Err(_)) | (Err(_), Ok((found, life))) if !found.is_empty() => (found, life),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        if addresses.is_empty() {
            return Err(ResolveError::NoAddress(name.clone()));
        }
        addresses.truncate(MOST_ADDRESSES);
        self.remember(name, &addresses, shortest);
        Ok(addresses)
    }

    async fn of_family(
        &self,
        name: &Name,
        kind: RecordType,
    ) -> Result<(Vec<IpAddr>, Duration), ResolveError> {
        let failed = |reason: String| ResolveError::Failed { name: name.clone(), reason };
        let mut wanted =
            WireName::from_ascii(format!("{name}.")).map_err(|error| failed(error.to_string()))?;
        for _ in 0..MOST_ALIASES {
            match self.ask(&wanted, kind).await.map_err(failed)? {
                Said::Addresses(addresses, life) => return Ok((addresses, life)),
                Said::Alias(next) => wanted = next,
                Said::Nothing => return Ok((Vec::new(), LONGEST_MEMORY)),
                Said::NoSuchName => return Err(ResolveError::NotFound(name.clone())),
            }
        }
        Err(failed(format!("more than {MOST_ALIASES} aliases in a row")))
    }

    /// Asks the servers in turn until one knows.
    async fn ask(&self, name: &WireName, kind: RecordType) -> Result<Said, String> {
        let servers = self.servers();
        let mut trouble = "there is no name server".to_owned();
        for server in servers.iter().cycle().take(servers.len() * self.settings.rounds.max(1)) {
            let question = question(name, kind);
            match timeout(self.settings.patience, exchange(*server, &question)).await {
                Ok(Ok(answer)) => match read_answer(&answer, name, kind) {
                    Ok(said) => return Ok(said),
                    Err(code) => trouble = format!("{server} says {code}"),
                },
                Ok(Err(error)) => trouble = format!("{server}: {error}"),
                Err(_) => trouble = format!("{server} gave no answer in {:?}", self.settings.patience),
            }
        }
        Err(trouble)
    }

    fn servers(&self) -> Vec<SocketAddr> {
        match &self.settings.servers {
            NameServers::Given(servers) => servers.clone(),
            NameServers::System => system_servers(&PathBuf::from("/etc/resolv.conf")),
        }
    }

    fn recall(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let remembered = self.memory().get(name).cloned()?;
        (remembered.until > Instant::now()).then_some(remembered.addresses)
    }

    fn remember(&self, name: &Name, addresses: &[IpAddr], life: Duration) {
        if life.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut memory = self.memory();
        if memory.len() >= MOST_REMEMBERED {
            memory.retain(|_, old| old.until > now);
        }
        if memory.len() >= MOST_REMEMBERED {
            memory.clear();
        }
        memory.insert(name.clone(), Remembered { addresses: addresses.to_vec(), until: now + life });
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Name, Remembered>> {
        // Nothing panics while it holds this; if something did, the map would still be whole.
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The servers in a `resolv.conf`. The C library asks this machine where there are none; so do we.
fn system_servers(path: &PathBuf) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let found = servers_in(&text);
    if found.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { found }
}

fn servers_in(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        match (words.next()?, Host::parse(words.next()?).ok()?) {
            ("nameserver", Host::Address(address)) => Some(SocketAddr::new(address, 53)),
            _ => None,
        }
    };
    text.lines().filter_map(server).take(3).collect()
}

fn interleave(first: Vec<IpAddr>, second: Vec<IpAddr>) -> Vec<IpAddr> {
    let longer = first.len().max(second.len());
    (0..longer).flat_map(|at| [first.get(at), second.get(at)]).flatten().copied().collect()
}

/// A question with a random id, which hickory draws.
fn question(name: &WireName, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD);
    message.set_edns(edns);
    message
}

/// One question and its answer, over UDP and, if the answer did not fit, over TCP.
async fn exchange(server: SocketAddr, question: &Message) -> io::Result<Message> {
    let packet = question.to_vec().map_err(io::Error::other)?;
    // A socket of its own, and so a port of its own, for each question; connected, so that the kernel drops
    // packets from everybody else.
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(&packet).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // A packet that is not the answer to this question is somebody's guess: go on waiting.
        match Message::from_vec(&buffer[..length]) {
            Ok(answer) if !is_answer_to(&answer, question) => {}
            Ok(answer) if answer.metadata.truncation => return exchange_tcp(server, &packet, question).await,
            Ok(answer) => return Ok(answer),
            Err(_) => {}
        }
    }
}

async fn exchange_tcp(server: SocketAddr, packet: &[u8], question: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), packet].concat()).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; length.into()];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(io::Error::other)?;
    if is_answer_to(&answer, question) {
        Ok(answer)
    } else {
        Err(io::Error::other("an answer to something else"))
    }
}

fn is_answer_to(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.metadata.op_code == OpCode::Query
        && answer.queries == question.queries
}

/// Follows the aliases inside one answer to the addresses at their end.
fn read_answer(answer: &Message, name: &WireName, kind: RecordType) -> Result<Said, ResponseCode> {
    match answer.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Ok(Said::NoSuchName),
        other => return Err(other),
    }
    let (mut wanted, mut life) = (name.clone(), LONGEST_MEMORY);
    for _ in 0..MOST_ALIASES {
        let mut addresses = Vec::new();
        let mut alias = None;
        for record in &answer.answers {
            if record.name != wanted || record.dns_class != DNSClass::IN {
                continue;
            }
            match (&record.data, kind) {
                (RData::A(address), RecordType::A) => addresses.push(IpAddr::V4(address.0)),
                (RData::AAAA(address), RecordType::AAAA) => {
                    addresses.push(IpAddr::V6(address.0).to_canonical());
                }
                (RData::CNAME(target), _) => alias = Some(target.0.clone()),
                _ => continue,
            }
            life = life.min(Duration::from_secs(record.ttl.into()));
        }
        match alias {
            _ if !addresses.is_empty() => return Ok(Said::Addresses(addresses, life)),
            Some(next) => wanted = next,
            None if wanted == *name => return Ok(Said::Nothing),
            None => return Ok(Said::Alias(wanted)),
        }
    }
    Err(ResponseCode::FormErr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_the_c_library_reads_them() {
        let text = "# servers\nnameserver 10.0.0.1\n nameserver  2001:db8::1 # second\nsearch example.com\nnameserver nonsense\noptions ndots:5\n";
        let expected: Vec<SocketAddr> =
            vec!["10.0.0.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()];
        assert_eq!(servers_in(text), expected);
        assert_eq!(system_servers(&"/nonexistent".into()), vec!["127.0.0.1:53".parse().unwrap()]);
    }
}
