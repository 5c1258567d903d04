//! Questions of a room about names, answered here: for names that the policy permits, with an address that stands for
//! the name. Whom the question was sent to does not matter.
//!
//! | question | answer |
//! |---|---|
//! | A of a permitted name that exists and leads somewhere permitted | an address of the pool |
//! | anything else about a permitted name | nothing (the name exists, and has no such record) |
//! | a name that is not permitted, or leads only where it may not | no such name, with the sentence where the client can take it (RFC 8914) |
//! | the name of an address of the pool | the name |

use super::pool::Pool;
use crate::dial::judge_all;
use crate::host::{Host, Name, Target};
use crate::ledger::Way;
use crate::resolver::ResolveError;
use crate::session::SessionNet;
use crate::verdict::Denial;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, PTR};
use hickory_proto::rr::{DNSClass, Name as WireName, RData, Record, RecordType};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long a program may remember an answer. It means nothing for the real address, which is looked up anew for each
/// connection.
const LIFE: u32 = 30;
/// RFC 8914: an operator's rule forbids the answer.
const EXTENDED_ERROR: u16 = 15;
const PROHIBITED: u16 = 18;
const LONGEST_SENTENCE: usize = 220;
const PAYLOAD: u16 = 1232;

pub(super) fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    // Each change of the pool is whole before anything could panic.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to one message, or nothing if it is no question at all.
pub(super) async fn answer(question: &[u8], session: &SessionNet, pool: &Mutex<Pool>) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).ok()?;
    if question.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut reply = Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
    reply.metadata.recursion_desired = question.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.queries.clone_from(&question.queries);
    let mut denied = None;
    match (&question.queries[..], question.metadata.op_code) {
        ([query], OpCode::Query) if query.query_class == DNSClass::IN => {
            denied = fill(&mut reply, query, session, pool).await;
        }
        (_, OpCode::Query) => reply.metadata.response_code = ResponseCode::FormErr,
        _ => reply.metadata.response_code = ResponseCode::NotImp,
    }
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        if let Some(denial) = denied {
            // Short enough for every client's packets; what is lost of a long sentence is in the log.
            let mut sentence = denial.to_string().into_bytes();
            sentence.truncate(LONGEST_SENTENCE);
            let text = [&PROHIBITED.to_be_bytes()[..], &sentence].concat();
            edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, text));
        }
        reply.set_edns(edns);
    }
    reply.to_vec().ok()
}

/// Writes the answer to a question. Returns the denial, if it is one.
async fn fill(
    reply: &mut Message,
    query: &Query,
    session: &SessionNet,
    pool: &Mutex<Pool>,
) -> Option<Denial> {
    if query.query_type == RecordType::PTR {
        match pool_address(&query.name).and_then(|address| lock(pool).name_of(address)) {
            Some(name) => {
                let target = WireName::from_ascii(format!("{name}.")).ok()?;
                reply.add_answer(Record::from_rdata(query.name.clone(), LIFE, RData::PTR(PTR(target))));
            }
            None => reply.metadata.response_code = ResponseCode::NXDomain,
        }
        return None;
    }
    // What is no host in its only spelling is no name that could be permitted.
    let Some(name) = read_name(&query.name) else {
        reply.metadata.response_code = ResponseCode::NXDomain;
        return None;
    };
    match find(&name, query.query_type, session).await {
        Ok(true) => {
            let address = lock(pool).address_of(&name);
            reply.add_answer(Record::from_rdata(query.name.clone(), LIFE, RData::A(A(address))));
        }
        Ok(false) => {}
        Err(Trouble::Denied(denial)) => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            return Some(denial);
        }
        Err(Trouble::Failed(ResolveError::NotFound(_))) => {
            reply.metadata.response_code = ResponseCode::NXDomain;
        }
        Err(Trouble::Failed(ResolveError::NoAddress(_))) => {}
        Err(Trouble::Failed(ResolveError::Failed { .. })) => {
            reply.metadata.response_code = ResponseCode::ServFail;
        }
    }
    None
}

enum Trouble {
    Denied(Denial),
    Failed(ResolveError),
}

/// Whether an address of a name may be handed out. No question leaves for a name that is not permitted, and none for
/// records that are not handed out.
async fn find(name: &Name, kind: RecordType, session: &SessionNet) -> Result<bool, Trouble> {
    let target = Target { host: Host::Name(name.clone()), port: 0 };
    session.ledger.want(&target);
    let rules = session.rules_now();
    let deny = |denial| {
        session.ledger.deny(Way::Dns, &denial);
        Trouble::Denied(denial)
    };
    let permit = rules.judge_name(name).map_err(deny)?;
    if kind != RecordType::A {
        return Ok(false);
    }
    let addresses = session.resolver.addresses(name).await.map_err(Trouble::Failed)?;
    judge_all(session, &rules, &permit, &target, &addresses).map_err(deny)?;
    Ok(true)
}

fn read_name(name: &WireName) -> Option<Name> {
    let mut text = Vec::new();
    for label in name.iter() {
        // A dot inside a label would read as two labels.
        if label.contains(&b'.') {
            return None;
        }
        text.extend_from_slice(label);
        text.push(b'.');
    }
    Host::parse(text).ok()?.name().cloned()
}

/// The address in a reverse name, such as 1.1.18.198.in-addr.arpa.
fn pool_address(name: &WireName) -> Option<Ipv4Addr> {
    let text = name.to_ascii().to_ascii_lowercase();
    let reversed = text.trim_end_matches('.').strip_suffix(".in-addr.arpa")?.parse::<Ipv4Addr>().ok()?;
    let mut octets = reversed.octets();
    octets.reverse();
    Some(octets.into())
}

/// Questions over TCP, one after the other.
pub(super) async fn serve_stream<S>(mut stream: S, session: Arc<SessionNet>, pool: Arc<Mutex<Pool>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let reading = async {
            let length = stream.read_u16().await?;
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await?;
            std::io::Result::Ok(question)
        };
        let Ok(Ok(question)) = timeout(session.limits.first_words, reading).await else { break };
        let Some(answer) = answer(&question, &session, &pool).await else { break };
        let length = answer.len() as u16;
        if stream.write_all(&[&length.to_be_bytes(), &answer[..]].concat()).await.is_err() {
            break;
        }
    }
    let _ = stream.shutdown().await;
}
