//! Talking with a layer worker: the process that looks into layers, which this one never does.

use crate::spawner::Spawners;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use workroom_proto::{
    Channel, FromWorker, LayerTask, Received, ToSpawner, ToWorker, try_receive_on, try_send_on,
};
use workroom_sys::readiness::watch_reading;
use workroom_types::{Problem, ProblemCode};

/// A worker under way. It ends when it has done its task, or when this is dropped and it has something to say.
pub(crate) struct Worker {
    channel: AsyncFd<OwnedFd>,
}

impl Worker {
    /// `fds`: what the task wants beside it.
    pub(crate) async fn start(
        spawners: &Spawners,
        task: LayerTask,
        fds: Vec<OwnedFd>,
    ) -> Result<Worker, Problem> {
        let (ours, theirs) = Channel::pair().map_err(|error| broken(&error.to_string()))?;
        let channel = watch_reading(ours.into_fd()).map_err(|error| broken(&error.to_string()))?;
        let mut all = vec![theirs.into_fd()];
        all.extend(fds);
        let all: Vec<_> = all.iter().map(AsFd::as_fd).collect();
        spawners.tell(&ToSpawner::Work(Box::new(task)), &all).await?;
        Ok(Worker { channel })
    }

    /// Does a task that has one answer.
    pub(crate) async fn run(
        spawners: &Spawners,
        task: LayerTask,
        fds: Vec<OwnedFd>,
    ) -> Result<FromWorker, Problem> {
        Worker::start(spawners, task, fds).await?.answer().await
    }

    pub(crate) async fn answer(&self) -> Result<FromWorker, Problem> {
        loop {
            let mut ready = self.channel.readable().await.map_err(|error| broken(&error.to_string()))?;
            match try_receive_on(self.channel.get_ref().as_fd()) {
                Ok(Some(Received::Message(FromWorker::Failed(failure), _))) => return Err(failure.into()),
                Ok(Some(Received::Message(answer, _))) => return Ok(answer),
                Ok(None) => ready.clear_ready(),
                Ok(Some(Received::Closed)) => return Err(broken("it ended before it answered")),
                Err(error) => return Err(broken(&error.to_string())),
            }
        }
    }

    /// Has what changed since copied once more.
    pub(crate) fn again(&self) -> Result<(), Problem> {
        match try_send_on(self.channel.get_ref().as_fd(), &ToWorker::Again, &[]) {
            Ok(true) => Ok(()),
            _ => Err(broken("it does not listen")),
        }
    }
}

pub(crate) fn broken(why: &str) -> Problem {
    Problem::new(
        ProblemCode::Internal,
        format!("the work on the session's layers failed: {why}"),
        "try again",
    )
}
