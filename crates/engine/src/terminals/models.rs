//! The screens of terminals that are in use: each drawn by a task of its own from what the ring still holds, kept up to
//! date, and let go when nobody looks any more.
//!
//! ```text
//!  output/SESSION/ID (a ring) ──follow──▶ task ──pieces──▶ Drawn: screen, history, switches of the alternate screen
//!                                          │ answers, while no person's terminal is attached
//!                                          ▼
//!                                      the PTY's input
//! ```
//!
//! A screen costs up to 16 MiB, most of it history. So a session has a few, the server some more, and the one that was
//! not used for longest goes first: whoever needs it again waits until it is drawn anew.

use crate::processes::entry::Entry;
use crate::processes::{Followed, Follower, unreadable};
use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use workroom_terminal::{Screen, Size};
use workroom_types::{Problem, TerminalSize};

/// How long a screen is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(300);

/// Screens that are kept for one session, and for all.
const MOST_OF_SESSION: usize = 16;
const MOST: usize = 256;

/// Bytes that are drawn before others may look: a hostile program makes few bytes repaint everything.
const PIECE: usize = 4096;

/// Drawing that takes longer than this is followed by a rest that is as long: no room has more than half a processor
/// of the host's for its screen.
const QUICK: Duration = Duration::from_millis(2);

/// Changes between the screens that are remembered.
const MOST_SWITCHES: usize = 4096;

/// How long an answer waits for space in the program's input.
const ANSWER_PATIENCE: Duration = Duration::from_millis(100);

/// All screens that are kept.
#[derive(Default)]
pub(crate) struct Models {
    /// By session and process.
    kept: Mutex<HashMap<(String, String), Arc<Model>>>,
}

/// A terminal's screen.
pub(crate) struct Model {
    entry: Arc<Entry>,
    drawn: Mutex<Drawn>,
    progress: watch::Sender<Progress>,
    /// What programs asked before this byte was asked of somebody else, or long ago.
    answers_from: u64,
    last_used: Mutex<Instant>,
    users: AtomicUsize,
    dismissed: Notify,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of output that are drawn.
    pub(crate) drawn: u64,
    /// There will be no more.
    pub(crate) is_over: bool,
}

pub(crate) struct Drawn {
    pub(crate) screen: Screen,
    /// Bytes of output that are drawn, and of these, those that were gone before.
    pub(crate) at: u64,
    pub(crate) missing: u64,
    /// From which byte on the alternate screen was on, or was not.
    switches: VecDeque<(u64, bool)>,
}

/// Somebody who uses a screen, until dropped.
pub(crate) struct InUse(pub(crate) Arc<Model>);

impl Models {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<Model>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The screen of a process with a terminal; drawn from now on, if it was not.
    pub(crate) fn of(self: &Arc<Models>, session: &str, entry: &Arc<Entry>) -> Result<InUse, Problem> {
        let key = (session.to_owned(), entry.id());
        let mut kept = self.lock();
        if let Some(model) = kept.get(&key) {
            return Ok(InUse::new(model.clone()));
        }
        let model = Model::new(entry)?;
        let follower = Follower::new(entry, [Some(0), None]).map_err(|error| unreadable(&error))?;
        make_space(&mut kept, session);
        kept.insert(key.clone(), model.clone());
        let in_use = InUse::new(model.clone());
        let models = self.clone();
        tokio::spawn(async move {
            model.keep(follower).await;
            let mut kept = models.lock();
            if kept.get(&key).is_some_and(|there| Arc::ptr_eq(there, &model)) {
                kept.remove(&key);
            }
        });
        Ok(in_use)
    }
}

/// Lets go of screens until there is space for one more.
fn make_space(kept: &mut HashMap<(String, String), Arc<Model>>, session: &str) {
    loop {
        let of_session = kept.keys().filter(|(of, _)| of == session).count();
        let everywhere = kept.len() >= MOST;
        if of_session < MOST_OF_SESSION && !everywhere {
            return;
        }
        let candidates = kept
            .iter()
            .filter(|((of, _), model)| model.is_unused() && (everywhere || of == session))
            .min_by_key(|(_, model)| model.last_used());
        let Some((key, _)) = candidates else { return };
        let key = key.clone();
        if let Some(model) = kept.remove(&key) {
            model.dismissed.notify_one();
        }
    }
}

impl InUse {
    fn new(model: Arc<Model>) -> InUse {
        model.users.fetch_add(1, Ordering::SeqCst);
        InUse(model)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

fn supported(size: TerminalSize) -> Size {
    Size::nearest(size.cols, size.rows)
}

impl Model {
    fn new(entry: &Arc<Entry>) -> Result<Arc<Model>, Problem> {
        let info = entry.info();
        let (oldest, written) = (info.stdout.dropped, info.stdout.written);
        let size = entry.sizes().at(oldest).map(|(size, _)| size).or(info.pty);
        let screen = Screen::new(size.map(supported).unwrap_or_default());
        Ok(Arc::new(Model {
            entry: entry.clone(),
            drawn: Mutex::new(Drawn { screen, at: 0, missing: 0, switches: VecDeque::new() }),
            progress: watch::Sender::new(Progress::default()),
            answers_from: written,
            last_used: Mutex::new(Instant::now()),
            users: AtomicUsize::new(0),
            dismissed: Notify::new(),
        }))
    }

    fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_unused(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 0
    }

    /// To look at; never where others are held up, because drawing may take a while.
    pub(crate) fn drawn(&self) -> MutexGuard<'_, Drawn> {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        // A change of size is to be seen before the program has said anything to it.
        drawn.fit(&self.entry);
        drawn
    }

    /// Tells of every piece that was drawn.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Waits until the first `bytes` of output are drawn, or there is nothing more to draw, or the time is over.
    pub(crate) async fn caught_up(&self, bytes: u64, until: Instant) {
        let mut progress = self.progress.subscribe();
        let there = progress.wait_for(|progress| progress.drawn >= bytes || progress.is_over);
        let _ = tokio::time::timeout_at(until, there).await;
    }

    /// Draws what comes until nobody has used it for a while, or another needs the space.
    async fn keep(self: &Arc<Model>, follower: Follower) {
        let mut follower = Some(follower);
        loop {
            let next = async {
                match &mut follower {
                    Some(follower) => follower.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                next = next => match next {
                    Ok(Followed::Output { offset, data, missing, .. }) => {
                        if !self.draw_elsewhere(offset, data, missing).await {
                            return;
                        }
                    }
                    // The file is let go: what was drawn stays for those who look.
                    Ok(Followed::Ended(_)) | Err(_) => {
                        follower = None;
                        self.progress.send_modify(|progress| progress.is_over = true);
                    }
                },
                () = self.idle() => return,
                () = self.dismissed.notified() => return,
            }
        }
    }

    async fn idle(&self) {
        loop {
            let until = self.last_used() + IDLE;
            tokio::time::sleep_until(until).await;
            if self.is_unused() && self.last_used() + IDLE <= Instant::now() {
                return;
            }
            if !self.is_unused() {
                tokio::time::sleep(IDLE).await;
            }
        }
    }

    async fn draw_elsewhere(self: &Arc<Model>, offset: u64, data: Vec<u8>, missing: u64) -> bool {
        let model = self.clone();
        let drawing = tokio::task::spawn_blocking(move || model.draw(offset, &data, missing));
        // The server is on its way down.
        let Ok(answers) = drawing.await else { return false };
        if !answers.is_empty()
            && !self.entry.is_viewed()
            && let Some(input) = self.entry.input()
        {
            let _ = input.write(&answers, Instant::now() + ANSWER_PATIENCE).await;
        }
        true
    }

    /// What the terminal answers to what was written.
    fn draw(&self, offset: u64, data: &[u8], missing: u64) -> Vec<u8> {
        let (mut at, mut rest) = (offset, data);
        let mut answers = Vec::new();
        while !rest.is_empty() {
            let is_live = at >= self.answers_from;
            let most = if is_live { PIECE as u64 } else { (self.answers_from - at).min(PIECE as u64) };
            let (piece, later) = rest.split_at(rest.len().min(most as usize));
            let began = std::time::Instant::now();
            {
                let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
                if at == offset {
                    drawn.missing += missing;
                }
                drawn.take(at, piece, &self.entry);
                let said = drawn.screen.take_answers();
                if is_live {
                    answers.extend(said);
                }
            }
            (at, rest) = (at + piece.len() as u64, later);
            self.progress.send_modify(|progress| progress.drawn = at);
            let took = began.elapsed();
            if took > QUICK {
                std::thread::sleep(took);
            }
        }
        answers
    }
}

/// Whether these are the last bytes of a sequence that sets a mode of the terminal, such as which screen is on.
pub(crate) fn sets_mode(pair: &[u8]) -> bool {
    match pair {
        [before, b'h' | b'l'] => before.is_ascii_digit(),
        [0x1b, b'c'] => true,
        _ => false,
    }
}

impl Drawn {
    /// Draws a piece, each byte at the size that it was written for.
    fn take(&mut self, at: u64, piece: &[u8], entry: &Entry) {
        self.at = at;
        let mut rest = piece;
        while !rest.is_empty() {
            let change = self.fit(entry);
            let most = change.map_or(usize::MAX, |change| (change - self.at) as usize);
            let now;
            (now, rest) = rest.split_at(rest.len().min(most));
            self.feed(now);
        }
    }

    /// Gives the screen the size that it has where the output is: where there is another one.
    fn fit(&mut self, entry: &Entry) -> Option<u64> {
        let (size, next) = entry.sizes().at(self.at)?;
        let size = supported(size);
        if size != self.screen.size() {
            self.screen.resize(size);
        }
        next
    }

    /// Stops after each sequence that may change the screen for the other, to know where that was.
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = bytes.windows(2).position(sets_mode).map_or(bytes.len(), |at| at + 2);
            let now;
            (now, bytes) = bytes.split_at(end);
            self.screen.feed(now);
            self.at += now.len() as u64;
            let on = self.screen.is_alternate();
            if on != self.switches.back().is_some_and(|(_, was_on)| *was_on) {
                self.switches.push_back((self.at, on));
                if self.switches.len() > MOST_SWITCHES {
                    self.switches.pop_front();
                }
            }
        }
    }

    /// Whether the alternate screen was on at this byte.
    pub(crate) fn was_alternate(&self, offset: u64) -> bool {
        self.switches.iter().rev().find(|(at, _)| *at <= offset).is_some_and(|(_, on)| *on)
    }
}
