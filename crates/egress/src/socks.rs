//! SOCKS5 (RFC 1928): CONNECT to a name or an address, without authentication.
//!
//! Names are resolved here (what clients call `socks5h`); a client that resolves by itself sends an address, which is
//! judged as one.

use crate::dial::{DialError, dial};
use crate::host::{Host, Target};
use crate::ledger::Way;
use crate::prefixed::Prefixed;
use crate::session::SessionNet;
use crate::tunnel;
use crate::verdict::Denial;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

pub(crate) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// Reply codes of the RFC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// What a client asked for.
enum Request {
    Connect { host: Vec<u8>, port: u16 },
    Refused(Reply),
}

pub(crate) async fn serve<S>(mut client: Prefixed<S>, session: Arc<SessionNet>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Ok(Ok(request)) = timeout(session.limits.first_words, read_request(&mut client)).await else {
        return;
    };
    let reply = match request {
        Request::Refused(reply) => reply,
        Request::Connect { host, port } => match connect(&host, port, &session).await {
            Ok(upstream) => {
                if answer(&mut client, Reply::Succeeded).await.is_ok() {
                    tunnel::run(client, upstream, &session, Way::Socks).await;
                }
                return;
            }
            Err(reply) => reply,
        },
    };
    if answer(&mut client, reply).await.is_ok() {
        let _ = client.shutdown().await;
    }
}

async fn connect(
    host: &[u8],
    port: u16,
    session: &Arc<SessionNet>,
) -> Result<crate::upstream::Upstream, Reply> {
    let host = Host::parse(host).map_err(|error| {
        session.ledger.deny(Way::Socks, &Denial::malformed(host, port, error));
        Reply::NotAllowed
    })?;
    dial(session, Target { host, port }, Way::Socks).await.map_err(|error| match error {
        DialError::Denied(_) => Reply::NotAllowed,
        DialError::Unreachable { kind: io::ErrorKind::ConnectionRefused, .. } => Reply::ConnectionRefused,
        DialError::Unreachable { kind: io::ErrorKind::TimedOut, .. } => Reply::TimedOut,
        DialError::Resolve(_) | DialError::Unreachable { .. } => Reply::HostUnreachable,
    })
}

async fn read_request<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Prefixed<S>) -> io::Result<Request> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    if client.read_u8().await? != VERSION {
        return Err(bad());
    }
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(bad());
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [version, command, _reserved, kind] = head;
    if version != VERSION {
        return Err(bad());
    }
    let host = match kind {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address).await?;
            IpAddr::V4(Ipv4Addr::from(address)).to_string().into_bytes()
        }
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            name
        }
        4 => {
            let mut address = [0; 16];
            client.read_exact(&mut address).await?;
            IpAddr::V6(Ipv6Addr::from(address)).to_string().into_bytes()
        }
        _ => return Ok(Request::Refused(Reply::AddressNotSupported)),
    };
    let port = client.read_u16().await?;
    match command {
        CONNECT if port != 0 => Ok(Request::Connect { host, port }),
        CONNECT => Ok(Request::Refused(Reply::HostUnreachable)),
        _ => Ok(Request::Refused(Reply::CommandNotSupported)),
    }
}

/// The address in it is no address: which one was dialled from is nothing that a room needs to know.
async fn answer<S: AsyncWrite + Unpin>(client: &mut S, reply: Reply) -> io::Result<()> {
    client.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}
