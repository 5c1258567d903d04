//! The slot-server API, as trainers that roll out trajectories call it: `slot_0 … slot_{n-1}`, each with a workspace.
//!
//! ```text
//!  guard.rs      who may call, where there are no tokens
//!  handlers.rs   the routes: bodies in, envelopes out; detached from their connection
//!     ▼
//!  pool.rs       slots: one session each, one call at a time, in the order in which they came
//!     ▼
//!  bash.rs       a command alone           files.rs  read_file, write_file: what may be named
//!  stateful.rs   a command in the terminal artifacts.rs, archive.rs  files on their way out
//!  tmux.rs       keys and screens ──▶ terminal.rs: the slot's one terminal ──▶ recording.rs
//!  envelope.rs, python.rs: how answers look
//! ```

mod archive;
mod artifacts;
mod bash;
mod envelope;
mod files;
mod guard;
mod handlers;
mod keys;
mod pool;
mod python;
mod recording;
mod stateful;
mod terminal;
mod tmux;

pub(crate) use pool::Pools;
pub use pool::SlotSettings;

use crate::app::App;
use crate::listen::{Listeners, run_router};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use guard::Guard;
use pool::Pool;
use std::sync::Arc;
use std::time::Duration;
use workroom_engine::Engine;
use workroom_types::{Caller, Problem, Scope};

/// Whose sessions a server's slots are that does nothing else: whoever started it may have all that it was told to give.
const OWNER: &str = "admin";

/// What the journal calls whoever calls it, since nobody has a token.
const CALLER: &str = "slots";

/// How long calls under way may take to end when the server does: their rooms are gone by then.
const DRAIN: Duration = Duration::from_secs(5);

/// More than trainers open.
const CONNECTIONS: usize = 16_384;

/// The routes on the main server, where every caller has slots of its own.
pub(crate) fn routes_for(app: Arc<App>) -> Router<Arc<App>> {
    handlers::routes().layer(from_fn_with_state(app, guard::slots_of_caller))
}

/// A server of slots, and nothing else.
#[derive(Clone)]
pub struct SlotServer {
    pool: Pool,
}

impl SlotServer {
    /// Ends what an earlier server's slots have left running; what they have written stays. Slots that are not wanted any
    /// more are deleted.
    pub async fn open(engine: Engine, settings: SlotSettings) -> Result<SlotServer, Problem> {
        let scope = Scope::User { owner: OWNER.to_owned() };
        let caller = Caller { name: CALLER.to_owned(), scope, read_only: false };
        let pool = Pool::new(engine, caller, settings);
        pool.take_up().await?;
        Ok(SlotServer { pool })
    }

    /// Serves until `shutdown`, then ends all rooms. `host_names`: names beside those of loopback and the addresses
    /// listened on that it may be called by.
    pub async fn run(
        &self,
        listeners: Listeners,
        host_names: Vec<String>,
        shutdown: impl Future<Output = ()>,
    ) {
        let guard = Guard { engine: self.pool.engine().clone(), host_names };
        let router = handlers::routes::<()>()
            .fallback(handlers::nothing_here)
            .layer(Extension(self.pool.clone()))
            .layer(from_fn(move |request, next| guard::admit(guard.clone(), request, next)));
        let ending = async {
            shutdown.await;
            // First: calls under way end with their rooms.
            self.pool.close().await;
        };
        let router = (router, self.pool.engine().stays_awake());
        run_router(router, (DRAIN, CONNECTIONS), listeners, ending).await;
        // What a call that came in between may have made.
        self.pool.close().await;
    }
}
