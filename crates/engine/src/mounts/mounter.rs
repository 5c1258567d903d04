//! Talking with the spawner's clone that sees to directories of the host in a room that runs.

use crate::shared::Shared;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use workroom_proto::{Channel, FromMounter, MountTask, Received, ToSpawner, try_receive_on};
use workroom_sys::readiness::watch_reading;
use workroom_types::{ErrorCode, Problem, ProblemCode};

/// A mount takes a millisecond; this is for a file system that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Mounter {
    channel: AsyncFd<OwnedFd>,
}

impl Mounter {
    /// Has a task done. `room`: its pidfd. Answers the trees that the room's guest is to attach, if it is to.
    pub(crate) async fn run(
        shared: &Arc<Shared>,
        task: MountTask,
        room: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<OwnedFd>, Problem> {
        let (ours, theirs) = Channel::pair().map_err(|error| broken(&error.to_string()))?;
        let channel = watch_reading(ours.into_fd()).map_err(|error| broken(&error.to_string()))?;
        let fds: Vec<_> = [theirs.as_fd()].into_iter().chain(room).collect();
        shared.spawners.tell(&ToSpawner::Mounts(Box::new(task)), &fds).await?;
        drop(theirs);
        let mounter = Mounter { channel };
        match tokio::time::timeout(PATIENCE, mounter.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(broken("the host's file system does not answer")),
        }
    }

    async fn answer(&self) -> Result<Vec<OwnedFd>, Problem> {
        let mut trees = Vec::new();
        loop {
            let mut ready = self.channel.readable().await.map_err(|error| broken(&error.to_string()))?;
            match try_receive_on(self.channel.get_ref().as_fd()) {
                Ok(Some(Received::Message(FromMounter::Done, _))) => return Ok(trees),
                Ok(Some(Received::Message(FromMounter::Tree, fds))) => trees.extend(fds),
                Ok(Some(Received::Message(FromMounter::Failed { error, occupied }, _))) => {
                    let code = match error.code {
                        _ if occupied => ProblemCode::AlreadyExists,
                        ErrorCode::PathNotFound => ProblemCode::NotFound,
                        _ => ProblemCode::RoomSetup,
                    };
                    return Err(Problem::new(code, error.detail, error.hint));
                }
                Ok(None) => ready.clear_ready(),
                Ok(Some(Received::Closed)) => return Err(broken("it ended before it answered")),
                Err(error) => return Err(broken(&error.to_string())),
            }
        }
    }
}

fn broken(why: &str) -> Problem {
    Problem::new(
        ProblemCode::Internal,
        format!("a directory of the host cannot be mounted: {why}"),
        "try again",
    )
}
