//! From a target to a connection: judged, resolved, judged again by address, and dialled at that very address.

use crate::host::{Host, Target};
use crate::ledger::Way;
use crate::resolver::ResolveError;
use crate::rules::Rules;
use crate::session::SessionNet;
use crate::upstream::Upstream;
use crate::verdict::{Denial, Permit, Reason};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one address of several may take before the next is tried.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(4);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Denied(#[from] Denial),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("{target} could not be reached: {reason}")]
    Unreachable { target: Target, reason: String, kind: io::ErrorKind },
}

/// Makes a connection to a target, or says why not. Denials and failures are in the ledger when this returns.
pub(crate) async fn dial(session: &Arc<SessionNet>, target: Target, way: Way) -> Result<Upstream, DialError> {
    session.ledger.want(&target);
    // Subscribed before the rules are looked at: a change after this moment is seen by the connection's guard.
    let rules = session.rules();
    let current = rules.borrow().clone();
    let permit = match current.judge_target(&target) {
        Ok(permit) => permit,
        Err(denial) => return Err(denied(session, way, denial)),
    };
    let Some(place) = session.admit_outside() else {
        let reason = Reason::Connections { most: session.limits.connections };
        let denial = Denial { host: target.host.to_string(), port: target.port, reason };
        return Err(denied(session, way, denial));
    };
    let made = timeout(session.limits.dial, connect_judged(session, &current, &permit, &target)).await;
    let made = made.unwrap_or_else(|_| {
        let reason = format!("no connection within {:?}", session.limits.dial);
        Err(DialError::Unreachable { target: target.clone(), reason, kind: io::ErrorKind::TimedOut })
    });
    match made {
        Ok((stream, address)) => {
            let line = session.ledger.open(way, target, address, &permit);
            Ok(Upstream::new(stream, line, permit, rules, place, session.limits.idle))
        }
        Err(DialError::Denied(denial)) => Err(denied(session, way, denial)),
        Err(error) => {
            session.ledger.fail(way, &target, &permit, error.to_string());
            Err(error)
        }
    }
}

fn denied(session: &SessionNet, way: Way, denial: Denial) -> DialError {
    session.ledger.deny(way, &denial);
    DialError::Denied(denial)
}

async fn connect_judged(
    session: &SessionNet,
    rules: &Rules,
    permit: &Permit,
    target: &Target,
) -> Result<(TcpStream, IpAddr), DialError> {
    let addresses = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => session.resolver.addresses(name).await?,
    };
    let judged = judge_all(session, rules, permit, target, &addresses)?;
    let several = judged.len() > 1;
    let mut trouble = None;
    for address in judged {
        let dialled = SocketAddr::new(address, target.port);
        let attempt =
            timeout(if several { ONE_OF_SEVERAL } else { Duration::MAX }, TcpStream::connect(dialled));
        match attempt.await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(error)) => trouble = Some(error),
            Err(_) => trouble = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    let trouble = trouble.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(DialError::Unreachable { target: target.clone(), reason: trouble.to_string(), kind: trouble.kind() })
}

/// The addresses that may be dialled. If there are none, why the first may not.
pub(crate) fn judge_all(
    session: &SessionNet,
    rules: &Rules,
    permit: &Permit,
    target: &Target,
    addresses: &[IpAddr],
) -> Result<Vec<IpAddr>, Denial> {
    let mut first = None;
    let mut judged = Vec::new();
    for &address in addresses {
        let verdict = judge_server(session, target, address)
            .and_then(|()| rules.judge_address(permit, target, address))
            .and_then(|_| judge_own(rules, target, address));
        match verdict {
            Ok(()) => judged.push(address),
            Err(denial) => drop(first.get_or_insert(denial)),
        }
    }
    match first {
        Some(denial) if judged.is_empty() => Err(denial),
        _ => Ok(judged),
    }
}

/// What the server itself listens on is nobody's to reach, whatever a policy says.
fn judge_server(session: &SessionNet, target: &Target, address: IpAddr) -> Result<(), Denial> {
    if !session.forbidden.has(address, target.port) {
        return Ok(());
    }
    let reason = Reason::ServerItself { address };
    Err(Denial { host: target.host.to_string(), port: target.port, reason })
}

/// The machine's own services often listen on every address it has, public ones too. A room reaches them only where a
/// cidr names exactly that address. (Loopback has a range of its own, which was judged before.)
fn judge_own(rules: &Rules, target: &Target, address: IpAddr) -> Result<(), Denial> {
    if address.is_loopback() || !is_own(address) || rules.names_exactly(address) {
        return Ok(());
    }
    let reason = Reason::OwnAddress { address };
    Err(Denial { host: target.host.to_string(), port: target.port, reason })
}

/// Whether the kernel would take the address itself as the source of a packet to it, which it does for its own ones
/// alone. Nothing is sent.
pub fn is_own(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let source = std::net::UdpSocket::bind(any)
        .and_then(|socket| socket.connect((address, 9)).and_then(|()| socket.local_addr()));
    source.is_ok_and(|source| source.ip() == address)
}
