//! The engine's line to the network process: words both ways, and questions with their answers.

use super::{Networks, lock};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use workroom_egress::process::{FromEgress, ToEgress, Wanted};
use workroom_proto::{Received, try_receive_on, try_send_on};
use workroom_sys::readiness::watch_socket;

/// How long the process may take to answer. It takes milliseconds, unless it is in trouble.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Line {
    channel: AsyncFd<OwnedFd>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    next: AtomicU64,
    dead: AtomicBool,
}

impl Line {
    /// Starts the process.
    pub(super) async fn start(networks: &Arc<Networks>) -> io::Result<Arc<Line>> {
        let started = tokio::task::spawn_blocking(workroom_egress::process::start).await;
        let (channel, process) = started.map_err(io::Error::other)??;
        let line = Arc::new(Line {
            channel: watch_socket(channel.into_fd())?,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            dead: AtomicBool::new(false),
        });
        tokio::spawn(line.clone().listen(networks.clone(), process));
        Ok(line)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) async fn send(&self, message: &ToEgress, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        while !try_send_on(self.channel.get_ref().as_fd(), message, fds)? {
            self.channel.writable().await?.clear_ready();
        }
        Ok(())
    }

    /// Asks about a session; `None` if it is not served, or nobody answers.
    pub(super) async fn ask(&self, session: &str, wanted: Wanted) -> Option<String> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(request, answer);
        let question = ToEgress::Ask { request, session: session.to_owned(), wanted };
        let said = match self.send(&question, &[]).await {
            Ok(()) if !self.is_dead() => tokio::time::timeout(PATIENCE, answered).await.ok(),
            _ => None,
        };
        lock(&self.waiting).remove(&request);
        said?.ok()?
    }

    pub(super) async fn read<T: DeserializeOwned>(&self, session: &str, wanted: Wanted) -> Option<T> {
        serde_json::from_str(&self.ask(session, wanted).await?).ok()
    }

    /// Boxed, because what it does when the process is gone leads to the start of another one.
    fn listen(
        self: Arc<Line>,
        networks: Arc<Networks>,
        process: Child,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.hear_all(networks, process))
    }

    async fn hear_all(self: Arc<Line>, networks: Arc<Networks>, mut process: Child) {
        while let Ok(Received::Message(word, _)) = self.receive().await {
            match word {
                FromEgress::Answer { request, answer } => {
                    if let Some(waiter) = lock(&self.waiting).remove(&request) {
                        let _ = waiter.send(answer);
                    }
                }
                word => networks.heard(word).await,
            }
        }
        self.dead.store(true, Ordering::Release);
        // Whoever still waits learns it from the sender's end.
        lock(&self.waiting).clear();
        // One that speaks nonsense is of no use either.
        let _ = process.kill();
        let _ = tokio::task::spawn_blocking(move || process.wait()).await;
        tokio::spawn(networks.died());
    }

    async fn receive(&self) -> io::Result<Received<FromEgress>> {
        loop {
            let mut ready = self.channel.readable().await?;
            match try_receive_on(self.channel.get_ref().as_fd())? {
                Some(received) => return Ok(received),
                None => ready.clear_ready(),
            }
        }
    }
}
