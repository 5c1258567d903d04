//! All rooms that this process serves, and its line to the server.

use super::messages::{FromEgress, Settings, ToEgress, Wanted};
use super::told;
use crate::forbidden::Forbidden;
use crate::ledger::{DenialEvent, Watcher};
use crate::policy::Policy;
use crate::resolver::{NameServers, ResolverSettings};
use crate::session::{Limits, SessionNet};
use crate::{serve_connection, serve_tun};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use workroom_proto::{Channel, Received, try_receive_on, try_send_on};
use workroom_sys::readiness::watch_socket;
use workroom_types::NetworkTotals;

/// How often the server is told of totals that have changed.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Words that wait for the server to take them. What does not fit is in the ledger all the same.
const MOST_UNSENT: usize = 1024;

/// How long to rest when a connection could not be taken, for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

struct Hall {
    rooms: HashMap<String, Served>,
    settings: Settings,
    forbidden: Arc<Forbidden>,
    words: mpsc::Sender<FromEgress>,
}

/// One room. Dropping it ends all that it has open.
struct Served {
    net: Arc<SessionNet>,
    tasks: Vec<AbortHandle>,
    /// What the server was told last.
    told: NetworkTotals,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.net.set_policy(Policy::off());
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Tells the server of denials.
struct Teller {
    session: String,
    words: mpsc::Sender<FromEgress>,
}

impl Watcher for Teller {
    fn denied(&self, event: &DenialEvent) {
        let denial = json(&told::denial(event.clone()));
        let _ = self.words.try_send(FromEgress::Denied { session: self.session.clone(), denial });
    }
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).unwrap_or_default()
}

/// Serves until the server is gone.
pub(super) async fn serve(host: Channel) -> io::Result<()> {
    let line = Arc::new(watch_socket(host.into_fd())?);
    let (words, unsent) = mpsc::channel(MOST_UNSENT);
    let _ = words.send(FromEgress::Ready).await;
    tokio::spawn(speak(line.clone(), unsent));
    let mut hall =
        Hall { rooms: HashMap::new(), settings: Settings::default(), forbidden: Arc::default(), words };
    let mut tick = tokio::time::interval(TELL_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            heard = hear(&line) => match heard? {
                Some((message, fds)) => hall.obey(message, fds).await,
                None => return Ok(()),
            },
            _ = tick.tick() => hall.tell_totals(),
        }
    }
}

async fn hear(line: &AsyncFd<OwnedFd>) -> io::Result<Option<(ToEgress, Vec<OwnedFd>)>> {
    loop {
        let mut ready = line.readable().await?;
        match try_receive_on(line.get_ref().as_fd())? {
            Some(Received::Message(message, fds)) => return Ok(Some((message, fds))),
            Some(Received::Closed) => return Ok(None),
            None => ready.clear_ready(),
        }
    }
}

async fn speak(line: Arc<AsyncFd<OwnedFd>>, mut unsent: mpsc::Receiver<FromEgress>) {
    while let Some(word) = unsent.recv().await {
        loop {
            match try_send_on(line.get_ref().as_fd(), &word, &[]) {
                Ok(true) => break,
                Ok(false) => match line.writable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }
}

impl Hall {
    async fn obey(&mut self, message: ToEgress, fds: Vec<OwnedFd>) {
        match message {
            ToEgress::Settings(settings) => self.settings = settings,
            ToEgress::Protect { addresses } => self.forbidden.set(addresses),
            ToEgress::Serve { session, policy } => self.take_in(session, &policy, fds),
            ToEgress::Rules { session, policy } => {
                if let Some(served) = self.rooms.get(&session) {
                    served.net.set_policy(read(&policy));
                }
            }
            ToEgress::Stop { session } => drop(self.rooms.remove(&session)),
            ToEgress::Ask { request, session, wanted } => {
                let answer = self.rooms.get(&session).map(|served| match wanted {
                    Wanted::View { connections } => json(&seen(&served.net, connections)),
                    Wanted::Proposal => json(&told::proposal(served.net.learn())),
                });
                let _ = self.words.send(FromEgress::Answer { request, answer }).await;
            }
        }
    }

    fn take_in(&mut self, session: String, policy: &str, fds: Vec<OwnedFd>) {
        let mut resolver = ResolverSettings::default();
        if !self.settings.name_servers.is_empty() {
            resolver.servers = NameServers::Given(self.settings.name_servers.clone());
        }
        let mut limits = Limits::default();
        limits.connections = self.settings.connections.unwrap_or(limits.connections);
        let watcher = Teller { session: session.clone(), words: self.words.clone() };
        let net =
            SessionNet::beside(read(policy), resolver, limits, Box::new(watcher), self.forbidden.clone());
        let mut fds = fds.into_iter();
        let mut tasks = Vec::new();
        if let Some(listener) = fds.next() {
            tasks.push(tokio::spawn(serve_proxy(listener, net.clone())).abort_handle());
        }
        if let Some(tun) = fds.next() {
            let net = net.clone();
            tasks.push(tokio::spawn(async move { drop(serve_tun(tun, net).await) }).abort_handle());
        }
        self.rooms.insert(session, Served { net, tasks, told: NetworkTotals::default() });
    }

    fn tell_totals(&mut self) {
        for (session, served) in &mut self.rooms {
            let now = told::totals(served.net.totals());
            if now != served.told {
                let word = FromEgress::Totals { session: session.clone(), totals: json(&now) };
                if self.words.try_send(word).is_ok() {
                    served.told = now;
                }
            }
        }
    }
}

/// What cannot be read opens nothing.
fn read(policy: &str) -> Policy {
    Policy::from_json(policy).unwrap_or_default()
}

fn seen(net: &SessionNet, most: usize) -> told::Seen {
    let mut log = net.log();
    log.drain(..log.len().saturating_sub(most));
    told::Seen {
        totals: told::totals(net.totals()),
        denials: net.denials().into_iter().map(told::denial).collect(),
        connections: log.into_iter().map(told::connection).collect(),
    }
}

/// Takes connections of a room's programs. Ended, it ends them too.
async fn serve_proxy(listener: OwnedFd, net: Arc<SessionNet>) {
    let listener = std::net::TcpListener::from(listener);
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) else {
        return;
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve_connection(stream, net.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
