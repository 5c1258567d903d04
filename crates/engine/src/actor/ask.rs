//! What can be asked of a session's owner. Most questions come with the way back for their answer.

use super::{Copying, ForkCost, Frozen, Kept, MergePlan, NewForks, Squashed};
use crate::admission::Place;
use crate::exec::{ExecPlan, Finished, Memo};
use crate::files::clerks::Clerks;
use crate::processes::entry::Entry;
use crate::processes::plan::SpawnPlan;
use crate::services::board::Board;
use crate::{IdempotencyKey, Verb};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::oneshot;
use workroom_proto::{Answer, Question, SpoolReader, ToGuest};
use workroom_store::Change;
use workroom_types::{
    Merged, MountRequest, PolicyView, Problem, ProcessInfo, Session, SessionUsage, Snapshot, UpdateSession,
    UsageQuery,
};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What can be asked of a session.
pub(crate) enum Ask {
    Act {
        verb: Verb,
        place: Option<Place>,
        actor: String,
        reply: Reply<Session>,
    },
    Exec {
        plan: Box<ExecPlan>,
        live: Option<oneshot::Sender<Live>>,
        reply: Reply<Finished>,
    },
    /// The end of a command that an earlier server started under a key.
    Attach {
        key: IdempotencyKey,
        reply: Reply<(Finished, Memo)>,
    },
    Update {
        change: Box<UpdateSession>,
        /// The version of the policy that the caller knew.
        known: Option<u64>,
        actor: String,
        reply: Reply<Session>,
    },
    Policy {
        reply: Reply<PolicyView>,
    },
    /// What the operator says may have changed: the room's network is brought to what holds now.
    NetworkAgain,
    Delete {
        actor: String,
        reply: Reply<()>,
    },
    /// What is in its room now.
    InRoom {
        reply: Reply<Vec<ProcessInfo>>,
    },
    Spawn {
        plan: Box<SpawnPlan>,
        reply: Reply<Arc<Entry>>,
    },
    /// The process table.
    Processes {
        reply: Reply<Vec<Arc<Entry>>>,
    },
    Process {
        id: String,
        reply: Reply<Arc<Entry>>,
    },
    /// Writes down what has changed of a process.
    KeepProcess {
        entry: Arc<Entry>,
        reply: Reply<()>,
    },
    RemoveProcess {
        id: String,
        actor: String,
        reply: Reply<()>,
    },
    /// A question for the guest of its room, if there is one.
    Guest {
        question: Question,
        reply: Reply<(Answer, Vec<OwnedFd>)>,
    },
    TellGuest {
        message: ToGuest,
        reply: Reply<()>,
    },
    /// What it uses.
    Usage {
        query: UsageQuery,
        reply: Reply<SessionUsage>,
    },
    /// Its services.
    Services {
        reply: Reply<Arc<Board>>,
    },
    /// A room for services to run in, which is made if there is none.
    RoomForServices {
        actor: String,
        reply: Reply<()>,
    },
    /// What is asked of the room with this number, and of no other. There is no answer if that is gone.
    IfRoom {
        room: u64,
        ask: Box<Ask>,
    },
    Snapshot {
        name: String,
        actor: String,
        copying: Option<Copying>,
        intent: Option<Change>,
        reply: Reply<Frozen<Snapshot>>,
    },
    DropSnapshot {
        name: String,
        actor: String,
        reply: Reply<()>,
    },
    Reset {
        to: String,
        actor: String,
        intent: Option<Change>,
        reply: Reply<Session>,
    },
    SetBaseline {
        actor: String,
        reply: Reply<Session>,
    },
    BaselineDigest {
        digest: String,
        reply: Reply<()>,
    },
    Fork {
        forks: NewForks,
        actor: String,
        copying: Option<Copying>,
        reply: Reply<Frozen<ForkCost>>,
    },
    /// The files as they are, to be looked at.
    Keep {
        copying: Option<Copying>,
        reply: Reply<Frozen<Kept>>,
    },
    /// Layers that were put together; none if that failed.
    Squashed {
        made: Option<Squashed>,
    },
    Merge {
        plan: Box<MergePlan>,
        actor: String,
        reply: Reply<Merged>,
    },
    /// The clerks of its room, which is made if there is none.
    Clerks {
        actor: String,
        reply: Reply<Arc<Clerks>>,
    },
    AddMounts {
        requests: Vec<MountRequest>,
        actor: String,
        reply: Reply<()>,
    },
    RemoveMount {
        alias: String,
        actor: String,
        reply: Reply<()>,
    },
    /// Secrets may have changed that its room is given.
    RefreshSecrets {
        reply: Reply<()>,
    },
    /// Further values that must not be seen in the output of a command that runs.
    Hide {
        command: u32,
        values: Vec<String>,
        reply: Reply<()>,
    },
    /// It was never recorded: leave no trace of it.
    Abandon {
        reply: Reply<()>,
    },
}

/// The two descriptors with which a command's output is read along.
pub(crate) struct Live {
    pub(crate) spool: SpoolReader,
    pub(crate) counter: OwnedFd,
}
