//! Ports of a session's room, published on the host.
//!
//! ```text
//!  publish ──▶ record (store, part "port") ──▶ Published ──▶ listen.rs: 127.0.0.1:HOST_PORT
//!                                                 │                    │ a connection
//!  server: previews ──▶ PortHandle ───────────────┤                    ▼
//!                        │ access.rs: who may     └────▶ connect.rs: a socket of the room's own network,
//!                        ▼                                 │          from its guest
//!                     tickets, passes                      └────────▶ relay.rs: bytes, both ways; misled.rs: but
//!                                                                     for browsers that take it for a preview
//! ```
//!
//! What is published lasts as long as the session. Connections are made only while it runs: a stranger on a loopback
//! port, or a page that is left open, does not start a room that its owner has stopped.

pub(crate) mod access;
mod connect;
mod listen;
mod misled;
mod relay;

pub use connect::{Cut, RoomConnection};

use crate::actor::Ask;
use crate::idempotency::intent;
use crate::shared::Shared;
use crate::{Engine, Permit, PortLimits, sessions, storage, validate};
use access::Tickets;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};
use workroom_proto::{Answer, Question};
use workroom_store::Change;
use workroom_types::{
    Caller, ListeningPort, PortList, Problem, ProblemCode, PublishPort, PublishedPort, SessionState,
    Timestamp,
};

/// What kind of part of a session a published port is, in the store.
const PART: &str = "port";

/// Below these the host's own services are.
const LEAST_HOST_PORT: u16 = 1025;

/// What is kept of a published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    port: u16,
    host_port: u16,
    public: bool,
    name: Option<String>,
    published: Timestamp,
    /// What passes to its preview are signed with: they end with it.
    secret: String,
}

/// One published port.
pub(crate) struct Published {
    session: String,
    record: Record,
    /// Why the host does not listen, if it does not.
    deaf: Mutex<Option<String>>,
    /// True once it is unpublished. Every word ends the connections that are open.
    withdrawn: watch::Sender<bool>,
    /// Of the session: one for each connection.
    places: Arc<Semaphore>,
    connections: AtomicU64,
    refused: AtomicU64,
    tickets: Tickets,
}

impl Published {
    fn info(&self) -> PublishedPort {
        let reason = self.deaf.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PublishedPort {
            port: self.record.port,
            host_port: self.record.host_port,
            listening: reason.is_none(),
            reason,
            public: self.record.public,
            name: self.record.name.clone(),
            published: self.record.published,
            connections: self.connections.load(Relaxed),
            refused: self.refused.load(Relaxed),
            preview: String::new(),
        }
    }

    fn is_deaf(&self, reason: Option<String>) {
        *self.deaf.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn journal(&self, actor: &str, kind: &str, body: serde_json::Value) -> Change {
        let (session, at) = (self.session.clone(), Timestamp::now());
        Change::Journal { session, at, actor: actor.to_owned(), kind: kind.to_owned(), body }
    }
}

/// All ports that are published, by session.
pub(crate) struct Ports {
    limits: PortLimits,
    /// One for each connection, of whatever session: rooms need descriptors too.
    places: Arc<Semaphore>,
    sessions: Mutex<HashMap<String, OfSession>>,
}

struct OfSession {
    places: Arc<Semaphore>,
    ports: BTreeMap<u16, Arc<Published>>,
}

impl Ports {
    pub(crate) fn new(limits: PortLimits) -> Ports {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        // Two for each connection, and never more than a quarter of all.
        let places = descriptors.map_or(1 << 20, |all| (all / 8).clamp(1, 1 << 20) as usize);
        Ports { limits, places: Arc::new(Semaphore::new(places)), sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, OfSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, session: &str, port: u16) -> Option<Arc<Published>> {
        self.sessions().get(session)?.ports.get(&port).cloned()
    }

    fn of(&self, session: &str) -> Vec<Arc<Published>> {
        self.sessions().get(session).map(|of| of.ports.values().cloned().collect()).unwrap_or_default()
    }

    fn insert(&self, session: &str, record: Record) -> Arc<Published> {
        let mut sessions = self.sessions();
        let most = self.limits.connections;
        let of = sessions
            .entry(session.to_owned())
            .or_insert_with(|| OfSession { places: Arc::new(Semaphore::new(most)), ports: BTreeMap::new() });
        let published = Arc::new(Published {
            session: session.to_owned(),
            deaf: Mutex::default(),
            withdrawn: watch::Sender::new(false),
            places: of.places.clone(),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            tickets: Tickets::default(),
            record,
        });
        of.ports.insert(published.record.port, published.clone());
        published
    }

    /// Nobody listens any more, and what was open is not.
    fn withdraw(&self, published: &Published) {
        let mut sessions = self.sessions();
        if let Some(of) = sessions.get_mut(&published.session) {
            of.ports.remove(&published.record.port);
            if of.ports.is_empty() {
                sessions.remove(&published.session);
            }
        }
        published.withdrawn.send_replace(true);
    }

    /// The session's room is gone: so are the ends of all connections.
    pub(crate) fn cut(&self, session: &str) {
        for published in self.of(session) {
            published.withdrawn.send_modify(|_| {});
        }
    }

    /// The session is deleted.
    pub(crate) fn forget(&self, session: &str) {
        for published in self.of(session) {
            self.withdraw(&published);
        }
    }

    /// Where the host listens for rooms.
    pub(crate) fn listeners(&self) -> Vec<SocketAddr> {
        let sessions = self.sessions();
        let ports = sessions.values().flat_map(|of| of.ports.values());
        ports.map(|one| (Ipv4Addr::LOCALHOST, one.record.host_port).into()).collect()
    }

    fn has_host_port(&self, host_port: u16) -> bool {
        let has = |of: &OfSession| of.ports.values().any(|one| one.record.host_port == host_port);
        self.sessions().values().any(has)
    }
}

/// Publishes again what an earlier server had published.
pub(crate) async fn at_start(shared: &Arc<Shared>) -> Result<(), Problem> {
    for session in shared.store.sessions_with(PART).await.map_err(storage)? {
        for (id, doc) in shared.store.parts(&session, PART).await.map_err(storage)? {
            match serde_json::from_value::<Record>(doc) {
                Ok(record) => {
                    let published = shared.ports.insert(&session, record);
                    listen::again(shared, published).await;
                }
                Err(error) => tracing::warn!(session, id, %error, "a published port cannot be read"),
            }
        }
    }
    Ok(())
}

fn not_published(port: u16) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("port {port} of this session is not published"),
        "publish it first: `workroom port SESSION publish PORT`, or `POST …/ports`",
    )
}

fn check(request: &PublishPort) -> Result<(), Problem> {
    if request.port == 0 {
        return Err(Problem::invalid("port 0 is not a port", "give 1 to 65535"));
    }
    if let Some(host_port) = request.host_port.filter(|port| *port < LEAST_HOST_PORT) {
        return Err(Problem::invalid(
            format!("host_port {host_port} is outside {LEAST_HOST_PORT} to 65535"),
            "leave it out to have one that is free",
        ));
    }
    validate::name(request.name.as_deref())
}

/// A published port, in the hands of whoever serves its preview.
#[derive(Clone)]
pub struct PortHandle {
    shared: Arc<Shared>,
    published: Arc<Published>,
}

impl PortHandle {
    pub fn is_public(&self) -> bool {
        self.published.record.public
    }

    /// Connects to the room's port.
    pub async fn connect(&self) -> Result<RoomConnection, Problem> {
        connect::connect(&self.shared, &self.published).await
    }
}

impl Engine {
    /// What listens in a session's room, and what of it is published.
    pub async fn ports(&self, caller: &Caller, id: &str) -> Result<PortList, Problem> {
        let listening = self.listening(caller, id).await?;
        let published = self.shared.ports.of(id).iter().map(|published| published.info()).collect();
        Ok(PortList { listening, published })
    }

    /// Looking is no reason to make a room.
    async fn listening(&self, caller: &Caller, id: &str) -> Result<Vec<ListeningPort>, Problem> {
        let question = Question::Ports;
        match self.ask(caller, id, |reply| Ask::Guest { question, reply }).await {
            Ok((Answer::Ports(ports), _)) => Ok(ports),
            Ok(_) => Ok(Vec::new()),
            Err(problem) if problem.code == ProblemCode::RoomGone => Ok(Vec::new()),
            Err(problem) => Err(problem),
        }
    }

    /// Publishes a port of a session's room: the host listens when this returns.
    pub async fn publish_port(
        &self,
        caller: &Caller,
        id: &str,
        request: PublishPort,
        permit: Option<&Permit>,
    ) -> Result<PublishedPort, Problem> {
        self.open_for_work()?;
        check(&request)?;
        let shared = &self.shared;
        sessions::get(shared, caller, id).await?;
        shared.pools.check_open(id)?;
        let _one_at_a_time = shared.maker(&format!("ports of {id}")).await;
        let there = shared.ports.find(id, request.port);
        match (there, permit.and_then(|permit| permit.resource.as_ref())) {
            // By an attempt that was cut short by the server's end.
            (Some(published), Some(_)) => return Ok(published.info()),
            (Some(published), None) => {
                return Err(Problem::new(
                    ProblemCode::AlreadyExists,
                    format!("port {} is published on {}", request.port, published.record.host_port),
                    "unpublish it first to publish it differently",
                ));
            }
            (None, _) => {}
        }
        let most = shared.config.ports.published;
        if shared.ports.of(id).len() >= most {
            let detail = format!("{most} ports of this session are published, which is the most");
            return Err(Problem::limit("published_ports", detail, "unpublish one first").retry_after(1));
        }
        let listener = listen::bind(request.host_port).await?;
        let host_port = listener.local_addr().map_err(listen::no_listener)?.port();
        let record = Record {
            port: request.port,
            host_port,
            public: request.public,
            name: request.name.filter(|name| !name.is_empty()),
            published: Timestamp::now(),
            secret: access::secret()?,
        };
        let mut changes = vec![Change::PutPart {
            session: id.to_owned(),
            kind: PART.to_owned(),
            id: record.port.to_string(),
            doc: serde_json::to_value(&record).unwrap_or_default(),
        }];
        let published = shared.ports.insert(id, record);
        let body = json!({
            "port": request.port, "host_port": host_port, "public": request.public,
            "name": published.record.name,
        });
        changes.push(published.journal(&caller.name, "port.published", body));
        changes.extend(permit.map(|permit| intent(permit, &request.port.to_string())));
        let kept = match shared.store.commit(changes).await {
            // Deleted meanwhile, it may have gone before this port was among those that go with it.
            Ok(_) => match shared.store.session(id).await.map_err(storage) {
                Ok(Some(row)) if row.session.state != SessionState::Deleted => Ok(()),
                Ok(_) => Err(Problem::no_session(id)),
                Err(problem) => Err(problem),
            },
            Err(error) => Err(storage(error)),
        };
        if let Err(problem) = kept {
            shared.ports.withdraw(&published);
            return Err(problem);
        }
        shared.protect_listeners().await;
        tokio::spawn(listen::serve(shared.clone(), published.clone(), listener));
        Ok(published.info())
    }

    /// Unpublishing what is not published succeeds. Connections that are open are cut.
    pub async fn unpublish_port(&self, caller: &Caller, id: &str, port: u16) -> Result<(), Problem> {
        let shared = &self.shared;
        sessions::get(shared, caller, id).await?;
        let _one_at_a_time = shared.maker(&format!("ports of {id}")).await;
        let Some(published) = shared.ports.find(id, port) else { return Ok(()) };
        let (session, kind) = (id.to_owned(), PART.to_owned());
        let body = json!({ "port": port, "host_port": published.record.host_port });
        let changes = vec![
            Change::DropPart { session, kind, id: port.to_string() },
            published.journal(&caller.name, "port.unpublished", body),
        ];
        shared.store.commit(changes).await.map_err(storage)?;
        shared.ports.withdraw(&published);
        shared.protect_listeners().await;
        Ok(())
    }

    /// A ticket for the preview of a published port: once, and soon.
    pub async fn preview_ticket(
        &self,
        caller: &Caller,
        id: &str,
        port: u16,
    ) -> Result<(String, Timestamp), Problem> {
        sessions::get(&self.shared, caller, id).await?;
        let published = self.shared.ports.find(id, port).ok_or_else(|| not_published(port))?;
        published.tickets.issue(&caller.name)
    }

    /// A published port. Whether somebody may have it is not looked at here.
    pub fn published_port(&self, session: &str, port: u16) -> Option<PortHandle> {
        let published = self.shared.ports.find(session, port)?;
        Some(PortHandle { shared: self.shared.clone(), published })
    }

    /// Whether what is served on this port of the host's loopback is a room's.
    pub fn is_a_rooms_port(&self, host_port: u16) -> bool {
        self.shared.ports.has_host_port(host_port)
    }
}
