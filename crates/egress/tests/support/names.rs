//! A real name server, over UDP and TCP, whose answers the test decides one by one, and which remembers questions.

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

#[derive(Clone)]
pub enum Say {
    /// Addresses, with how long they hold.
    Addresses(Vec<IpAddr>, u32),
    /// An alias, and nothing about where it leads.
    Alias(&'static str),
    /// A chain of aliases with an address at its end, in one answer.
    Chain(Vec<&'static str>, IpAddr),
    NoSuchName,
    ServerFailure,
    /// Nothing at all.
    Silence,
    /// Over UDP only that it did not fit; over TCP these.
    OnlyOverTcp(Vec<IpAddr>),
    /// First packets that are not the answer (another id, another question, noise), then the answer.
    AfterForgeries(IpAddr, IpAddr),
    Noise,
}

#[derive(Clone, Default)]
struct Book {
    /// What is said the first time, the second time…; the last is said for ever.
    answers: Arc<Mutex<HashMap<String, Vec<Say>>>>,
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
}

pub struct NameServer {
    pub address: SocketAddr,
    book: Book,
}

impl NameServer {
    pub async fn start() -> Self {
        // TCP and UDP on one port: another test may have one of them, so try until both are free.
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let book = Book::default();
        tokio::spawn(serve_udp(udp, book.clone()));
        tokio::spawn(serve_tcp(tcp, book.clone()));
        NameServer { address, book }
    }

    /// What questions for addresses of a name are answered, in turn.
    pub fn say(&self, name: &str, answers: impl Into<Vec<Say>>) {
        self.book.answers.lock().unwrap().insert(name.to_owned(), answers.into());
    }

    pub fn has(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.say(name, [Say::Addresses(addresses, 60)]);
    }

    /// The names that were asked about, each question once for each time.
    pub fn asked(&self) -> Vec<String> {
        self.book.asked.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

async fn serve_udp(socket: UdpSocket, book: Book) {
    let mut buffer = vec![0; 4096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let Ok(question) = Message::from_vec(&buffer[..length]) else { continue };
        for packet in book.answer(&question, false) {
            let _ = socket.send_to(&packet, client).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, book: Book) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let book = book.clone();
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut packet = vec![0; length.into()];
                stream.read_exact(&mut packet).await.ok()?;
                for answer in book.answer(&Message::from_vec(&packet).ok()?, true) {
                    stream.write_u16(answer.len() as u16).await.ok()?;
                    stream.write_all(&answer).await.ok()?;
                }
            }
            Some(())
        });
    }
}

impl Book {
    fn answer(&self, question: &Message, over_tcp: bool) -> Vec<Vec<u8>> {
        let query = question.queries[0].clone();
        let name = query.name.to_ascii().trim_end_matches('.').to_ascii_lowercase();
        self.asked.lock().unwrap().push((name.clone(), query.query_type));
        // Turns are counted by questions for IPv4, because each look-up asks both at once.
        let say = {
            let mut answers = self.answers.lock().unwrap();
            match answers.get_mut(&name) {
                None => Say::NoSuchName,
                Some(turns) if turns.len() > 1 && query.query_type == RecordType::A => turns.remove(0),
                Some(turns) => turns[0].clone(),
            }
        };
        let mut reply = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        reply.add_query(query.clone());
        let address = |name: &Name, address: &IpAddr, life| match (address, query.query_type) {
            (IpAddr::V4(address), RecordType::A) => {
                Some(Record::from_rdata(name.clone(), life, RData::A(A(*address))))
            }
            (IpAddr::V6(address), RecordType::AAAA) => {
                Some(Record::from_rdata(name.clone(), life, RData::AAAA(AAAA(*address))))
            }
            _ => None,
        };
        let wire = |text: &str| Name::from_ascii(format!("{text}.")).unwrap();
        let alias = |from: Name, to: &str| Record::from_rdata(from, 60, RData::CNAME(CNAME(wire(to))));
        match say {
            Say::Addresses(addresses, life) => {
                reply.answers.extend(addresses.iter().filter_map(|each| address(&query.name, each, life)));
            }
            Say::Alias(target) => drop(reply.add_answer(alias(query.name.clone(), target))),
            Say::Chain(names, end) => {
                let mut from = query.name.clone();
                for to in names {
                    reply.add_answer(alias(from, to));
                    from = wire(to);
                }
                reply.answers.extend(address(&from, &end, 60));
            }
            Say::NoSuchName => reply.metadata.response_code = ResponseCode::NXDomain,
            Say::ServerFailure => reply.metadata.response_code = ResponseCode::ServFail,
            Say::Silence => return Vec::new(),
            Say::OnlyOverTcp(_) if !over_tcp => reply.metadata.truncation = true,
            Say::OnlyOverTcp(addresses) => {
                reply.answers.extend(addresses.iter().filter_map(|each| address(&query.name, each, 60)));
            }
            Say::AfterForgeries(forged, honest) => {
                let mut packets = Vec::new();
                let mut other_id = reply.clone();
                other_id.metadata.id = question.metadata.id.wrapping_add(1);
                other_id.answers.extend(address(&query.name, &forged, 60));
                packets.push(other_id.to_vec().unwrap());
                let mut other_name = reply.clone();
                other_name.queries[0].name = wire("other.test");
                other_name.answers.extend(address(&query.name, &forged, 60));
                packets.push(other_name.to_vec().unwrap());
                packets.push(b"noise".to_vec());
                reply.answers.extend(address(&query.name, &honest, 60));
                packets.push(reply.to_vec().unwrap());
                return packets;
            }
            Say::Noise => return vec![vec![0xff; 40]],
        }
        vec![reply.to_vec().unwrap()]
    }
}
