//! Moving bytes between a room's program and the outside, after a look at the client's first words.
//!
//! ```text
//!   name judged? ── no ──▶ relay
//!        │ yes
//!        ▼
//!   hold the client's first words; the server's go through meanwhile
//!        ├─ TLS for that name, or opaque ──▶ relay
//!        ├─ HTTP ──▶ each request is checked (`http.rs`)
//!        └─ another name, unreadable, too slow ──▶ denied: a TLS alert or nothing, and a reset to the server
//! ```

use crate::first_words::{self, FirstWords};
use crate::host::{Host, Name};
use crate::http;
use crate::ledger::{Outcome, Way};
use crate::prefixed::Prefixed;
use crate::session::SessionNet;
use crate::upstream::Upstream;
use crate::verdict::{Denial, Permit, Reason, SaidBy};
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

/// What one direction of a connection holds in memory.
const RELAY_BUFFER: usize = 32 * 1024;
/// A fatal alert, "access denied": most clients show its name.
const TLS_ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// How a tunnel was turned down after it was opened.
enum End {
    Relayed(io::Result<()>),
    Denied(Denial, &'static [u8]),
    Http,
}

/// Serves a tunnel to its end.
pub(crate) async fn run<S>(client: S, upstream: Upstream, session: &Arc<SessionNet>, way: Way)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let guard = upstream.guard();
    let name = match (upstream.permit(), &upstream.line().target.host) {
        (Permit::Domain(_), Host::Name(name)) => Some(name.clone()),
        _ => None,
    };
    let target = upstream.line().target.clone();
    let line = upstream.line().clone();
    let (mut client_reads, mut client_writes) = tokio::io::split(client);
    let (mut server_reads, mut server_writes) = tokio::io::split(upstream);
    let mut held = BytesMut::new();
    let checked = {
        let move_bytes = async {
            let server_spoke = AtomicBool::new(false);
            let mut down = std::pin::pin!(copy(&mut server_reads, &mut client_writes, &server_spoke));
            let mut down_result = None;
            if let Some(name) = &name {
                let mut listening =
                    std::pin::pin!(listen(&mut client_reads, &mut held, name, target.port, session));
                let heard = loop {
                    tokio::select! {
                        heard = &mut listening => break heard,
                        result = &mut down, if down_result.is_none() => match result {
                            // The server has said all it wanted; the client may go on.
                            Ok(()) => down_result = Some(()),
                            Err(error) => return End::Relayed(Err(error)),
                        },
                    }
                };
                match heard {
                    Heard::Fine => {}
                    Heard::Http if server_spoke.load(Relaxed) || down_result.is_some() => {
                        let why = "HTTP after the server has spoken";
                        return End::Denied(
                            Denial::of_name(name, target.port, Reason::Unreadable { why }),
                            b"",
                        );
                    }
                    Heard::Http => return End::Http,
                    Heard::Wrong(denial, farewell) => return End::Denied(denial, farewell),
                    Heard::Broken(error) => return End::Relayed(Err(error)),
                }
            }
            let up = async {
                server_writes.write_all(&held).await?;
                copy(&mut client_reads, &mut server_writes, &AtomicBool::new(false)).await
            };
            let down = async {
                match down_result {
                    Some(()) => Ok(()),
                    None => down.await,
                }
            };
            End::Relayed(tokio::try_join!(up, down).map(drop))
        };
        tokio::select! {
            biased;
            () = guard.clone().until_cut() => End::Relayed(Err(io::ErrorKind::TimedOut.into())),
            end = move_bytes => end,
        }
    };
    let upstream = server_reads.unsplit(server_writes);
    match checked {
        End::Relayed(Ok(())) => {}
        End::Relayed(Err(_)) => upstream.abort(),
        End::Denied(denial, farewell) => {
            session.ledger.deny_at(way, &denial, Some(line.address));
            line.ends(Outcome::Denied, denial.to_string());
            upstream.abort();
            drop(upstream);
            let _ = client_writes.write_all(farewell).await;
            let _ = client_writes.shutdown().await;
        }
        End::Http => {
            let client = Prefixed::new(held.freeze(), client_reads.unsplit(client_writes));
            http::serve_fixed(Box::new(client), target, upstream, session.clone(), way).await;
        }
    }
}

enum Heard {
    Fine,
    Http,
    Wrong(Denial, &'static [u8]),
    Broken(io::Error),
}

/// Holds the client's words until they can be told apart.
async fn listen<S: AsyncRead + AsyncWrite>(
    client: &mut ReadHalf<S>,
    held: &mut BytesMut,
    name: &Name,
    port: u16,
    session: &SessionNet,
) -> Heard {
    // Until it begins, the guard's idleness is the only limit: it may wait for the server.
    match client.read_buf(held).await {
        Ok(0) => return Heard::Fine,
        Ok(_) => {}
        Err(error) => return Heard::Broken(error),
    }
    let unreadable = |why| Heard::Wrong(Denial::of_name(name, port, Reason::Unreadable { why }), b"");
    let reading = async {
        let mut ended = false;
        loop {
            match if ended { first_words::read_ended(held) } else { first_words::read(held) } {
                FirstWords::NeedsMore => {}
                FirstWords::Opaque => return Heard::Fine,
                FirstWords::Http => return Heard::Http,
                FirstWords::Unreadable(why) => return unreadable(why),
                FirstWords::Tls { server_name } => return compare(name, port, server_name.as_deref()),
            }
            match client.read_buf(held).await {
                Ok(0) => ended = true,
                Ok(_) => {}
                Err(error) => return Heard::Broken(error),
            }
        }
    };
    let late = || unreadable("its first words were not finished in time");
    timeout(session.limits.first_words, reading).await.unwrap_or_else(|_| late())
}

fn compare(name: &Name, port: u16, said: Option<&[u8]>) -> Heard {
    let same = said.is_some_and(|said| Host::parse(said).is_ok_and(|said| said.name() == Some(name)));
    if same {
        return Heard::Fine;
    }
    let said = said.map(|said| match Host::parse(said) {
        Ok(host) => host.to_string(),
        Err(_) => said.escape_ascii().to_string().chars().take(80).collect(),
    });
    let reason = Reason::NameMismatch { said, by: SaidBy::Tls };
    Heard::Wrong(Denial::of_name(name, port, reason), &TLS_ACCESS_DENIED)
}

/// One direction, to its end, which is passed on as an end.
async fn copy<R: AsyncRead, W: AsyncWrite>(
    from: &mut ReadHalf<R>,
    to: &mut WriteHalf<W>,
    spoke: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; RELAY_BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        spoke.store(true, Relaxed);
        to.write_all(&buffer[..length]).await?;
    }
}
