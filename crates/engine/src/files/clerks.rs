//! The clerks of one room: processes in it that do file work, each lent to one call at a time.

use crate::room::gone;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use workroom_proto::{Channel, FromClerk, Received, ToClerk, ToGuest, try_receive_on, try_send_on};
use workroom_sys::readiness::watch_reading;
use workroom_types::{Problem, ProblemCode};

/// Clerks of one room that work at the same time; more calls wait.
const MOST: usize = 8;

/// Watches of one room. Each has a clerk of its own for as long as it lasts, and so none of the places above.
const MOST_WATCHES: usize = 16;

/// How long a call waits for a clerk.
const QUEUE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a clerk without work stays: the next call of an agent at work comes sooner, and an idle room has none.
const IDLE_FOR: Duration = Duration::from_secs(10);

/// How long one request may take. Copying a large tree takes minutes; nothing takes longer than this.
const LONGEST_WORK: Duration = Duration::from_secs(3600);

/// How long to wait for space in a queue before looking again.
const FULL_FOR: Duration = Duration::from_millis(1);

/// A clerk that hangs up does so a moment before its room is known to be gone.
const ROOM_ENDS_WITHIN: Duration = Duration::from_millis(500);

pub(crate) struct Clerks {
    /// A second descriptor of the line to the guest, which makes clerks.
    guest: OwnedFd,
    places: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    idle: Mutex<Vec<(AsyncFd<OwnedFd>, Instant)>>,
    /// Whether somebody sees to it that idle ones go.
    swept: AtomicBool,
    ended: watch::Sender<bool>,
}

/// A clerk at work for one call. It goes back to its room's when it is dropped between two requests; in the middle of
/// one it is hung up on, and gives up what it was at.
pub(crate) struct Lent {
    line: Option<AsyncFd<OwnedFd>>,
    home: Arc<Clerks>,
    at_rest: bool,
    _place: OwnedSemaphorePermit,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It was never asked.
    Unsent,
    HungUp,
    /// It says what makes no sense, or nothing for far too long.
    Confused(String),
}

impl Clerks {
    pub(crate) fn new(guest: OwnedFd) -> Clerks {
        Clerks {
            guest,
            places: Arc::new(Semaphore::new(MOST)),
            watches: Arc::new(Semaphore::new(MOST_WATCHES)),
            idle: Mutex::default(),
            swept: AtomicBool::new(false),
            ended: watch::channel(false).0,
        }
    }

    /// The room is gone, and its clerks with it.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
        self.idle().clear();
    }

    /// Whether file work is under way; to watch is not to work.
    pub(crate) fn at_work(&self) -> bool {
        self.places.available_permits() < MOST
    }

    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent, Problem> {
        let place = tokio::time::timeout(QUEUE_PATIENCE, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let detail = format!("{MOST} calls work on files of this session, which is the most");
            return Err(
                Problem::limit("file_calls", detail, "wait for one of them to be answered").retry_after(1)
            );
        };
        let line = match self.take_idle() {
            Some(line) => line,
            None => self.hire().await?,
        };
        Ok(self.lent(line, place))
    }

    /// One for a watch.
    pub(crate) async fn lend_for_watch(self: &Arc<Self>) -> Result<Lent, Problem> {
        let Ok(place) = self.watches.clone().try_acquire_owned() else {
            let detail = format!("{MOST_WATCHES} watches look at this session, which is the most");
            return Err(
                Problem::limit("watches", detail, "end one, or watch a directory above").retry_after(1)
            );
        };
        Ok(self.lent(self.hire().await?, place))
    }

    fn lent(self: &Arc<Self>, line: AsyncFd<OwnedFd>, place: OwnedSemaphorePermit) -> Lent {
        Lent { line: Some(line), home: self.clone(), at_rest: true, _place: place }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(AsyncFd<OwnedFd>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that worked last; the others go the sooner.
    fn take_idle(&self) -> Option<AsyncFd<OwnedFd>> {
        loop {
            let (line, _) = self.idle().pop()?;
            // One that has ended, or that speaks without being asked, is of no use.
            if let Ok(None) = try_receive_on::<FromClerk>(line.get_ref().as_fd()) {
                return Some(line);
            }
        }
    }

    async fn hire(&self) -> Result<AsyncFd<OwnedFd>, Problem> {
        let made = Channel::pair().and_then(|(ours, theirs)| Ok((watch_reading(ours.into_fd())?, theirs)));
        let (ours, theirs) = made.map_err(|error| {
            Problem::new(ProblemCode::Internal, format!("there is no line to the room's files: {error}"), "")
        })?;
        loop {
            match try_send_on(self.guest.as_fd(), &ToGuest::Clerk, &[theirs.as_fd()]) {
                Ok(true) => return Ok(ours),
                Ok(false) => tokio::time::sleep(FULL_FOR).await,
                Err(_) => return Err(gone("the room ended")),
            }
        }
    }

    fn take_back(self: &Arc<Self>, line: AsyncFd<OwnedFd>) {
        if *self.ended.borrow() {
            return;
        }
        self.idle().push((line, Instant::now()));
        if !self.swept.swap(true, Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Lets those go that were idle for too long; says when the next one will be, if there is one.
    fn let_idle_go(&self) -> Option<Instant> {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.retain(|(_, since)| *since + IDLE_FOR > now);
        let next = idle.iter().map(|(_, since)| *since + IDLE_FOR).min();
        if next.is_none() {
            self.swept.store(false, Relaxed);
        }
        next
    }
}

async fn sweep(clerks: Weak<Clerks>) {
    let mut next = Instant::now() + IDLE_FOR;
    loop {
        tokio::time::sleep_until(next).await;
        let Some(clerks) = clerks.upgrade() else { return };
        match clerks.let_idle_go() {
            Some(at) => next = at,
            None => return,
        }
    }
}

impl Lent {
    pub(crate) async fn send(&mut self, request: &ToClerk, fds: &[BorrowedFd<'_>]) -> Result<(), Lost> {
        let line = self.line.as_ref().ok_or(Lost::Unsent)?;
        self.at_rest = false;
        loop {
            match try_send_on(line.get_ref().as_fd(), request, fds) {
                Ok(true) => return Ok(()),
                Ok(false) => tokio::time::sleep(FULL_FOR).await,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return Err(Lost::Confused(error.to_string()));
                }
                Err(_) => return Err(Lost::Unsent),
            }
        }
    }

    /// What it says next, and what it hands over with it.
    pub(crate) async fn receive(&mut self) -> Result<(FromClerk, Vec<OwnedFd>), Lost> {
        let line = self.line.as_ref().ok_or(Lost::HungUp)?;
        loop {
            let mut ready = line.readable().await.map_err(|_| Lost::HungUp)?;
            match try_receive_on::<FromClerk>(line.get_ref().as_fd()) {
                Ok(Some(Received::Message(message, fds))) => {
                    let more_to_come = matches!(
                        message,
                        FromClerk::Writable
                            | FromClerk::Watching
                            | FromClerk::Event(_)
                            | FromClerk::Exporting
                    );
                    self.at_rest = !more_to_come;
                    return Ok((message, fds));
                }
                Ok(None) => ready.clear_ready(),
                Ok(Some(Received::Closed)) => return Err(Lost::HungUp),
                Err(error) => return Err(Lost::Confused(error.to_string())),
            }
        }
    }

    /// One request and what is said to it.
    pub(crate) async fn ask(
        &mut self,
        request: &ToClerk,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(FromClerk, Vec<OwnedFd>), Lost> {
        self.send(request, fds).await?;
        match tokio::time::timeout(LONGEST_WORK, self.receive()).await {
            Ok(answer) => answer,
            Err(_) => Err(Lost::Confused(format!("no word for {} s", LONGEST_WORK.as_secs()))),
        }
    }

    /// What its caller is told.
    pub(crate) async fn explain(self, lost: Lost) -> Problem {
        let mut ended = self.home.ended.subscribe();
        let room_ends = ended.wait_for(|ended| *ended);
        match (tokio::time::timeout(ROOM_ENDS_WITHIN, room_ends).await, lost) {
            (Ok(_), _) => gone("the room ended"),
            (Err(_), Lost::Confused(how)) => failed(&format!("answered what makes no sense ({how})")),
            (Err(_), Lost::Unsent | Lost::HungUp) => failed("ended before its work was done"),
        }
    }
}

fn failed(how: &str) -> Problem {
    Problem::new(
        ProblemCode::Internal,
        format!("the process that works on the room's files {how}"),
        "look at what is there, then ask again; a command of the room may have ended it, or its memory is used up",
    )
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(line) = self.line.take().filter(|_| self.at_rest) {
            self.home.take_back(line);
        }
    }
}
