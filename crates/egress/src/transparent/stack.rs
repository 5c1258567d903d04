//! A room's connections, as packets on one side and as judged streams on the other.
//!
//! The first packet of a connection is held while it is judged and dialled, so that the program sees what it would see
//! without us: a connection that stands, or one that is refused.
//!
//! ```text
//!            SYN                    may be, and is dialled
//!   (none) ───────▶ Judging ───────────────────────────────▶ Standing ──┐ both sides ended, or
//!                     │  denied, or the server refuses                  │ one of them broke
//!                     └──────────▶ RST, (none)               (none) ◀───┘
//! ```
//!
//! One task does all of it, without waiting in between: it reads packets, lets smoltcp do TCP, and moves bytes between
//! smoltcp's buffers and the pipes to the tasks of the connections. All queues are bounded, so a slow server slows the
//! program and nobody else.

use super::conduit::{self, Conduit};
use super::device::{Packets, QUEUE};
use super::dns;
use super::packet::{self, Flow, Packet};
use super::pool::Pool;
use crate::dial::dial;
use crate::host::{Host, Target};
use crate::ledger::Way;
use crate::session::SessionNet;
use crate::tunnel;
use crate::verdict::{Denial, Reason};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, State};
use smoltcp::time::{Duration as StackDuration, Instant as StackInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// What smoltcp holds for one connection, each way. Several packets of the largest size fit.
const SOCKET_BUFFER: usize = 256 * 1024;
/// Questions about names under way at once; more are dropped, and asked again by the client.
const MOST_QUESTIONS: usize = 64;
/// After so many turns others get their turn.
const TURNS: usize = 64;
/// A room that takes no byte for so long has gone away.
const SILENCE: StackDuration = StackDuration::from_secs(120);
const DNS_PORT: u16 = 53;

pub(super) struct Stack {
    tun: AsyncFd<OwnedFd>,
    session: Arc<SessionNet>,
    pool: Arc<Mutex<Pool>>,
    interface: Interface,
    sockets: SocketSet<'static>,
    packets: Packets,
    connections: HashMap<Flow, Connection>,
    verdicts: mpsc::Receiver<Verdict>,
    verdict_sender: mpsc::Sender<Verdict>,
    answers: mpsc::Receiver<Vec<u8>>,
    answer_sender: mpsc::Sender<Vec<u8>>,
    /// The tasks of connections and questions; they end with the stack.
    tasks: JoinSet<()>,
    questions: usize,
    started: Instant,
    alarm: Pin<Box<Sleep>>,
    buffer: Box<[u8]>,
}

enum Connection {
    /// Its first packet waits here.
    Judging {
        syn: Vec<u8>,
    },
    Standing(Standing),
}

struct Standing {
    handle: SocketHandle,
    conduit: Conduit,
    /// The program has ended its half, and the pipe knows.
    room_ended: bool,
    /// The server has ended its half, and the socket knows.
    server_ended: bool,
}

/// What became of a connection: a pipe to whoever serves it, or nothing.
struct Verdict {
    flow: Flow,
    conduit: Option<Conduit>,
}

/// What one look at a connection found.
#[derive(PartialEq, Eq)]
enum Pumped {
    Nothing,
    Something,
    Over,
}

impl Stack {
    pub(super) fn new(tun: AsyncFd<OwnedFd>, session: Arc<SessionNet>) -> Self {
        let mut packets = Packets::default();
        let now = StackInstant::from_micros(0);
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut packets, now);
        interface.set_any_ip(true);
        interface.update_ip_addrs(|addresses| {
            // There is place for at least one.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(super::NAME_SERVER), 0));
        });
        let (verdict_sender, verdicts) = mpsc::channel(QUEUE);
        let (answer_sender, answers) = mpsc::channel(QUEUE);
        Self {
            tun,
            session,
            pool: Arc::default(),
            interface,
            sockets: SocketSet::new(Vec::new()),
            packets,
            connections: HashMap::new(),
            verdicts,
            verdict_sender,
            answers,
            answer_sender,
            tasks: JoinSet::new(),
            questions: 0,
            started: Instant::now(),
            alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
            buffer: vec![0; usize::from(u16::MAX) + 1].into_boxed_slice(),
        }
    }

    /// Works until the device is gone.
    pub(super) async fn run(mut self) -> io::Result<()> {
        poll_fn(|context| self.work(context)).await
    }

    /// Does all that can be done now, and arranges to be called for the rest.
    fn work(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURNS {
            let mut progress = self.take_packets(context)?;
            progress |= self.take_verdicts(context);
            progress |= self.take_answers(context);
            while self.tasks.try_join_next().is_some() {}
            progress |= self.poll_interface();
            progress |= self.pump(context);
            progress |= self.poll_interface();
            progress |= self.send_packets(context)?;
            if !progress && !self.alarm_rings(context) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn now(&self) -> StackInstant {
        StackInstant::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    fn poll_interface(&mut self) -> bool {
        let now = self.now();
        self.interface.poll(now, &mut self.packets, &mut self.sockets) == PollResult::SocketStateChanged
    }

    /// Sets the alarm for what smoltcp wants to do next; says whether that is now.
    fn alarm_rings(&mut self, context: &mut Context<'_>) -> bool {
        let now = self.now();
        let Some(delay) = self.interface.poll_delay(now, &self.sockets) else { return false };
        // It wants to send, and cannot before there is place: then place is what wakes us.
        if self.packets.outgoing.len() >= QUEUE {
            return false;
        }
        let delay = Duration::from_micros(delay.total_micros().max(1000));
        self.alarm.as_mut().reset(tokio::time::Instant::now() + delay);
        self.alarm.as_mut().poll(context).is_ready()
    }

    fn take_packets(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while self.packets.incoming.len() < QUEUE && self.packets.outgoing.len() < QUEUE {
            let mut ready = match self.tun.poll_read_ready(context) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => break,
            };
            match rustix::io::read(ready.get_inner(), &mut self.buffer[..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    drop(ready);
                    progress = true;
                    let packet = self.packets.copy(&self.buffer[..length]);
                    self.sort(packet);
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(progress)
    }

    /// Decides what becomes of a packet.
    fn sort(&mut self, bytes: Vec<u8>) {
        match packet::read(&bytes) {
            Packet::Syn(flow) => self.begin(flow, bytes),
            Packet::Tcp(flow) => match self.connections.get(&flow) {
                // While it is judged it has nothing to say.
                Some(Connection::Judging { .. }) => self.packets.give_back(bytes),
                // Packets of no connection are answered with a reset.
                _ => self.packets.incoming.push_back(bytes),
            },
            Packet::Udp(flow, question) if flow.to.port() == DNS_PORT => {
                let question = question.to_vec();
                self.packets.give_back(bytes);
                self.ask(flow, question);
            }
            Packet::Udp(flow, _) => {
                self.refuse_datagram(flow, &bytes);
                self.packets.give_back(bytes);
            }
            Packet::Other => {
                self.session.ledger.dropped_packets.fetch_add(1, Relaxed);
                self.packets.give_back(bytes);
            }
        }
    }

    fn begin(&mut self, flow: Flow, syn: Vec<u8>) {
        match self.connections.get(&flow) {
            // It was sent again, because the answer takes its time.
            Some(Connection::Judging { .. }) => return self.packets.give_back(syn),
            Some(Connection::Standing(old)) => {
                let state = self.sockets.get::<tcp::Socket<'_>>(old.handle).state();
                if !matches!(state, State::TimeWait | State::Closed) {
                    return self.packets.incoming.push_back(syn);
                }
                // The program uses the port of a connection that has ended for a new one.
                let handle = old.handle;
                self.connections.remove(&flow);
                self.sockets.remove(handle);
            }
            None => {}
        }
        // As many again may be under judgement or in their last moments.
        let most = self.session.limits.connections;
        if self.connections.len() >= most.saturating_mul(2) {
            let reason = Reason::Connections { most };
            let denial = Denial { host: flow.to.ip().to_string(), port: flow.to.port(), reason };
            self.session.ledger.deny(Way::Transparent, &denial);
            return self.packets.incoming.push_back(syn);
        }
        self.connections.insert(flow, Connection::Judging { syn });
        self.tasks.spawn(serve(flow, self.session.clone(), self.pool.clone(), self.verdict_sender.clone()));
    }

    fn ask(&mut self, flow: Flow, question: Vec<u8>) {
        // Every question that is under way has a place for its answer.
        if self.questions >= MOST_QUESTIONS {
            self.session.ledger.dropped_packets.fetch_add(1, Relaxed);
            return;
        }
        self.questions += 1;
        let (session, pool, sender) = (self.session.clone(), self.pool.clone(), self.answer_sender.clone());
        self.tasks.spawn(async move {
            let answer = dns::answer(&question, &session, &pool).await;
            let packet = answer.map(|answer| packet::udp_answer(flow, &answer)).unwrap_or_default();
            let _ = sender.send(packet).await;
        });
    }

    fn refuse_datagram(&mut self, flow: Flow, bytes: &[u8]) {
        let name = dns::lock(&self.pool).name_of(*flow.to.ip());
        let host = name.map_or_else(|| flow.to.ip().to_string(), |name| name.to_string());
        let denial = Denial { host, port: flow.to.port(), reason: Reason::Protocol { name: "UDP" } };
        self.session.ledger.deny(Way::Transparent, &denial);
        if self.packets.outgoing.len() < QUEUE {
            self.packets.outgoing.extend(packet::prohibited(flow, bytes));
        }
    }

    fn take_verdicts(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.packets.incoming.len() < QUEUE {
            let Poll::Ready(Some(verdict)) = self.verdicts.poll_recv(context) else { break };
            progress = true;
            let Some(Connection::Judging { syn }) = self.connections.remove(&verdict.flow) else { continue };
            if let Some(conduit) = verdict.conduit {
                self.stand(verdict.flow, conduit);
            }
            // With nobody to take it, it is answered with a reset.
            self.packets.incoming.push_back(syn);
        }
        progress
    }

    fn stand(&mut self, flow: Flow, conduit: Conduit) {
        let buffer = || tcp::SocketBuffer::new(vec![0; SOCKET_BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.set_timeout(Some(SILENCE));
        if socket.listen((IpAddress::Ipv4(*flow.to.ip()), flow.to.port())).is_err() {
            return;
        }
        let handle = self.sockets.add(socket);
        let standing = Standing { handle, conduit, room_ended: false, server_ended: false };
        self.connections.insert(flow, Connection::Standing(standing));
    }

    fn take_answers(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.packets.outgoing.len() < QUEUE {
            let Poll::Ready(Some(packet)) = self.answers.poll_recv(context) else { break };
            progress = true;
            self.questions -= 1;
            if !packet.is_empty() {
                self.packets.outgoing.push_back(packet);
            }
        }
        progress
    }

    fn pump(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        let sockets = &mut self.sockets;
        let all_seen = self.packets.incoming.is_empty();
        self.connections.retain(|_, connection| {
            let Connection::Standing(standing) = connection else { return true };
            let socket = sockets.get_mut::<tcp::Socket<'_>>(standing.handle);
            // Its first packet may still be waiting. If not, the socket did not take it, and nobody else may have it.
            if socket.is_listening() && !all_seen {
                return true;
            }
            match standing.pump(socket, context) {
                Pumped::Nothing => true,
                Pumped::Something => {
                    progress = true;
                    true
                }
                Pumped::Over => {
                    progress = true;
                    sockets.remove(standing.handle);
                    false
                }
            }
        });
        progress
    }

    fn send_packets(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while let Some(packet) = self.packets.outgoing.pop_front() {
            let mut ready = match self.tun.poll_write_ready(context) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    self.packets.outgoing.push_front(packet);
                    break;
                }
            };
            match rustix::io::write(ready.get_inner(), &packet) {
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    self.packets.outgoing.push_front(packet);
                }
                Err(rustix::io::Errno::INTR) => self.packets.outgoing.push_front(packet),
                Err(rustix::io::Errno::BADFD) => return Err(rustix::io::Errno::BADFD.into()),
                // One packet that the kernel does not take (the interface is down) is a lost packet.
                _ => {
                    progress = true;
                    self.packets.give_back(packet);
                }
            }
        }
        Ok(progress)
    }
}

impl Standing {
    /// Moves what can be moved, both ways.
    fn pump(&mut self, socket: &mut tcp::Socket<'_>, context: &mut Context<'_>) -> Pumped {
        let state = socket.state();
        if matches!(state, State::Closed | State::Listen) {
            // Ended as it should, or broken by the program: dropped unended, the pipe tells which.
            return Pumped::Over;
        }
        let up = self.pump_up(socket, context);
        let down = self.pump_down(socket, context);
        match (up, down) {
            (Err(_), _) | (_, Err(_)) => {
                socket.abort();
                Pumped::Something
            }
            (Ok(false), Ok(false)) => Pumped::Nothing,
            _ => Pumped::Something,
        }
    }

    /// From the program to the server.
    fn pump_up(&mut self, socket: &mut tcp::Socket<'_>, context: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while socket.can_recv() {
            let conduit = Pin::new(&mut self.conduit);
            let moved = socket.recv(|bytes| match conduit.poll_write(context, bytes) {
                Poll::Ready(Ok(length)) => (length, Ok(length)),
                Poll::Ready(Err(error)) => (0, Err(error)),
                Poll::Pending => (0, Ok(0)),
            });
            match moved {
                Ok(Ok(0)) => return Ok(progress),
                Ok(Ok(_)) => progress = true,
                // Nobody reads any more: the server broke it, or has had enough.
                Ok(Err(error)) => return Err(error),
                Err(_) => break,
            }
        }
        let ended =
            matches!(socket.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait);
        if ended && !self.room_ended && !socket.can_recv() {
            self.room_ended = true;
            progress = true;
            // A pipe is shut down at once.
            let _ = Pin::new(&mut self.conduit).poll_shutdown(context);
        }
        Ok(progress)
    }

    /// From the server to the program.
    fn pump_down(&mut self, socket: &mut tcp::Socket<'_>, context: &mut Context<'_>) -> io::Result<bool> {
        let mut progress = false;
        while !self.server_ended && socket.can_send() {
            let conduit = Pin::new(&mut self.conduit);
            let moved = socket.send(|place| {
                let mut buffer = ReadBuf::new(place);
                match conduit.poll_read(context, &mut buffer) {
                    Poll::Ready(Ok(())) => (buffer.filled().len(), Poll::Ready(Ok(buffer.filled().len()))),
                    Poll::Ready(Err(error)) => (0, Poll::Ready(Err(error))),
                    Poll::Pending => (0, Poll::Pending),
                }
            });
            match moved {
                Ok(Poll::Pending) => return Ok(progress),
                Ok(Poll::Ready(Ok(0))) => {
                    self.server_ended = true;
                    progress = true;
                    socket.close();
                }
                Ok(Poll::Ready(Ok(_))) => progress = true,
                Ok(Poll::Ready(Err(error))) => return Err(error),
                Err(_) => break,
            }
        }
        Ok(progress)
    }
}

/// Judges a connection, makes it, and serves it to its end.
async fn serve(
    flow: Flow,
    session: Arc<SessionNet>,
    pool: Arc<Mutex<Pool>>,
    verdicts: mpsc::Sender<Verdict>,
) {
    let (ours, theirs) = conduit::pair();
    if flow.to.port() == DNS_PORT {
        if verdicts.send(Verdict { flow, conduit: Some(theirs) }).await.is_ok() {
            dns::serve_stream(ours, session, pool).await;
        }
        return;
    }
    let name = dns::lock(&pool).name_of(*flow.to.ip());
    let host = name.map_or(Host::Address(IpAddr::V4(*flow.to.ip())), Host::Name);
    let target = Target { host, port: flow.to.port() };
    match dial(&session, target, Way::Transparent).await {
        Ok(upstream) => {
            if verdicts.send(Verdict { flow, conduit: Some(theirs) }).await.is_ok() {
                tunnel::run(ours, upstream, &session, Way::Transparent).await;
            }
        }
        Err(_) => drop(verdicts.send(Verdict { flow, conduit: None }).await),
    }
}
