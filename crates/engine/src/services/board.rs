//! All services of a session that is in use: where each is found, and which room stands.

use super::found::Found;
use super::keeper;
use super::place::Place;
use crate::processes::entry::Entry;
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};
use workroom_store::Change;
use workroom_types::{Problem, ProblemCode, Service, ServiceSpec};

/// What kind of part of a session a service is, in the store.
pub(crate) const PART: &str = "service";

/// Services of one session.
const MOST_SERVICES: usize = 256;

/// Callers who wait for one service's keeper; the next one waits to wait.
const WAITING: usize = 16;

/// What is kept of a service, in memory and in the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Doc {
    /// With its whole definition.
    pub(crate) service: Service,
    /// Whether it was ready, has failed or was stopped since it was last started.
    pub(crate) is_settled: bool,
    /// Restarts without a run of some length between them.
    pub(crate) in_a_row: u32,
    /// The session's room that it was last started in, and the number of its process there.
    pub(crate) room: u64,
    pub(crate) command: Option<u32>,
    /// Who started it.
    pub(crate) actor: String,
}

pub(crate) type Reply = oneshot::Sender<Result<(), Problem>>;

/// What a service's keeper is told.
pub(crate) enum Command {
    Define {
        spec: Box<ServiceSpec>,
        actor: String,
        intent: Option<Box<Change>>,
        reply: Reply,
    },
    /// Answered when it is on its way.
    Start {
        actor: String,
        reply: Reply,
    },
    /// Answered when it is stopped.
    Stop {
        actor: String,
        reply: Reply,
    },
    /// Answered when it is on its way again.
    Restart {
        actor: String,
        reply: Reply,
    },
    /// Answered when nothing of it is left; the keeper goes.
    Remove {
        actor: String,
        reply: Reply,
    },
}

/// How one service is reached.
#[derive(Clone)]
pub(crate) struct Slot {
    name: String,
    commands: mpsc::Sender<Command>,
    doc: watch::Receiver<Doc>,
}

impl Slot {
    /// As callers see it.
    pub(crate) fn shown(&self) -> Service {
        let mut service = self.doc.borrow().service.clone();
        service.definition.env.clear();
        service
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Doc> {
        self.doc.clone()
    }

    pub(crate) async fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<(), Problem> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_err() {
            return Err(no_service(&self.name));
        }
        answer.await.unwrap_or_else(|_| Err(no_service(&self.name)))
    }
}

pub(crate) struct Board {
    session: String,
    slots: Mutex<BTreeMap<String, Slot>>,
    /// Held by whoever defines or removes one, so that what they were checked against stays.
    changing: tokio::sync::Mutex<()>,
    /// The number of the session's room; 0 while there is none.
    room: watch::Sender<u64>,
}

impl Board {
    /// The services that are recorded, each with its keeper, and as they are now: `entries` is the process table.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        session: &str,
        room: u64,
        docs: Vec<Doc>,
        entries: &[Arc<Entry>],
    ) -> Arc<Board> {
        let board = Arc::new(Board {
            session: session.to_owned(),
            slots: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            room: watch::Sender::new(room),
        });
        // All are there before the first of them looks for another.
        let mut slots = board.slots();
        for doc in docs {
            let found = Found::among(entries, &doc);
            let name = doc.service.name.clone();
            slots.insert(name, board.keep(shared, doc, found));
        }
        drop(slots);
        board
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(self: &Arc<Board>, shared: &Arc<Shared>, doc: Doc, found: Found) -> Slot {
        let name = doc.service.name.clone();
        let (commands, receiver) = mpsc::channel(WAITING);
        let place = Place {
            shared: shared.clone(),
            session: self.session.clone(),
            name: name.clone(),
            board: Arc::downgrade(self),
        };
        let doc = keeper::keep(place, doc, found, receiver, self.room.subscribe());
        Slot { name, commands, doc }
    }

    /// Tells which room stands now.
    pub(crate) fn room_is(&self, room: u64) {
        self.room.send_if_modified(|now| std::mem::replace(now, room) != room);
    }

    pub(crate) async fn changing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.slots().get(name).cloned()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Slot, Problem> {
        self.slot(name).ok_or_else(|| no_service(name))
    }

    pub(crate) fn all(&self) -> Vec<Slot> {
        self.slots().values().cloned().collect()
    }

    /// The one of this name, which is made if there is none.
    pub(crate) fn make(self: &Arc<Board>, shared: &Arc<Shared>, name: &str) -> Result<Slot, Problem> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(name) {
            return Ok(slot.clone());
        }
        if slots.len() >= MOST_SERVICES {
            let detail = format!("the session has {MOST_SERVICES} services, which is the most");
            return Err(Problem::limit("services", detail, "delete one that is not needed"));
        }
        let service = Service { name: name.to_owned(), ..Service::default() };
        let doc = Doc { service, is_settled: true, ..Doc::default() };
        let slot = self.keep(shared, doc, Found::Nothing);
        slots.insert(name.to_owned(), slot.clone());
        Ok(slot)
    }

    pub(crate) fn forget(&self, name: &str) {
        self.slots().remove(name);
    }

    /// What a service depends on, by its definition.
    pub(crate) fn dependencies(&self, name: &str) -> Vec<String> {
        let slots = self.slots();
        slots
            .get(name)
            .map(|slot| slot.doc.borrow().service.definition.depends_on.clone())
            .unwrap_or_default()
    }

    /// Those whose definitions name it.
    pub(crate) fn dependents(&self, name: &str) -> Vec<String> {
        let names = |slot: &&Slot| {
            slot.doc.borrow().service.definition.depends_on.iter().any(|dependency| dependency == name)
        };
        self.slots().values().filter(names).map(|slot| slot.name.clone()).collect()
    }

    /// Those that are up and need it, directly or not: in the order in which they can be stopped.
    pub(crate) fn active_dependents(&self, name: &str) -> Vec<String> {
        let mut ordered = Vec::new();
        self.gather_dependents(name, &mut HashSet::new(), &mut ordered);
        let is_active =
            |name: &String| self.slot(name).is_some_and(|slot| slot.doc.borrow().service.state.is_active());
        ordered.retain(is_active);
        ordered
    }

    /// Each once, and after all that need it.
    fn gather_dependents(&self, name: &str, seen: &mut HashSet<String>, ordered: &mut Vec<String>) {
        for dependent in self.dependents(name) {
            if seen.insert(dependent.clone()) {
                self.gather_dependents(&dependent, seen, ordered);
                ordered.push(dependent);
            }
        }
    }
}

pub(crate) fn no_service(name: &str) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no service \"{name}\" in this session"),
        "`workroom service SESSION ls`, or `GET …/services`, lists those that there are",
    )
}
