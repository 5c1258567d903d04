//! Journals as callers read them: pages of what was, then what comes.

use crate::shared::Shared;
use crate::storage;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc};
use workroom_types::{Caller, JournalEntry, JournalPage, Problem, Scope};

/// Entries read at a time while following.
const PAGE: u32 = 200;

/// What a caller reads: one journal, or all of an owner's, or all.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    Session(String),
    Owner(Option<String>),
}

impl Which {
    /// What a caller sees that names no session.
    pub(crate) fn all_of(caller: &Caller) -> Which {
        match &caller.scope {
            Scope::Admin => Which::Owner(None),
            Scope::User { owner } => Which::Owner(Some(owner.clone())),
            Scope::Session { session, .. } => Which::Session(session.clone()),
        }
    }
}

pub(crate) async fn page(
    shared: &Shared,
    which: &Which,
    after: i64,
    limit: u32,
) -> Result<Vec<JournalEntry>, Problem> {
    match which {
        Which::Session(id) => shared.store.journal(id, after, limit).await,
        Which::Owner(owner) => shared.store.journal_all(owner.as_deref(), after, limit).await,
    }
    .map_err(storage)
}

/// A page and where the next one begins.
pub(crate) async fn history(
    shared: &Shared,
    which: &Which,
    by_position: bool,
    after: i64,
    limit: u32,
) -> Result<JournalPage, Problem> {
    let entries = page(shared, which, after, limit).await?;
    let last = entries.last().map(|entry| if by_position { entry.position } else { entry.seq });
    Ok(JournalPage { next: last.filter(|_| entries.len() as u32 == limit), entries })
}

/// The entry that an earlier attempt made at a known time.
pub(crate) async fn find(
    shared: &Shared,
    session: &str,
    at: &str,
    kind: &str,
    actor: &str,
) -> Result<JournalEntry, Problem> {
    let which = Which::Session(session.to_owned());
    let mut after = 0;
    loop {
        let entries = page(shared, &which, after, PAGE).await?;
        let Some(last) = entries.last() else { return Err(Problem::no_session(session)) };
        after = last.seq;
        let ours =
            |entry: &JournalEntry| entry.kind == kind && entry.actor == actor && entry.at.to_rfc3339() == at;
        if let Some(entry) = entries.into_iter().find(ours) {
            return Ok(entry);
        }
    }
}

/// Sends entries after a place, then those to come, until the receiver is dropped or the session is deleted.
pub(crate) async fn follow(
    shared: Arc<Shared>,
    which: Which,
    by_position: bool,
    mut after: i64,
    out: mpsc::Sender<JournalEntry>,
) {
    // Before the first look, so that nothing falls between.
    let mut news = shared.store.subscribe();
    loop {
        let Ok(entries) = page(&shared, &which, after, PAGE).await else { return };
        let full = entries.len() as u32 == PAGE;
        for entry in entries {
            after = if by_position { entry.position } else { entry.seq };
            let last = matches!(which, Which::Session(_)) && entry.kind == "session.deleted";
            if out.send(entry).await.is_err() || last {
                return;
            }
        }
        if full {
            continue;
        }
        // Whatever the word is, the store has it: the word itself need not arrive.
        loop {
            tokio::select! {
                () = out.closed() => return,
                heard = news.recv() => match heard {
                    Ok(entry) if concerns(&shared, &which, &entry) => break,
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            }
        }
    }
}

/// Whether to look. What is surely another's is not looked for: somebody's many readers would ask the store for every
/// entry of everybody.
fn concerns(shared: &Shared, which: &Which, entry: &JournalEntry) -> bool {
    match which {
        Which::Session(id) => entry.session == *id,
        Which::Owner(None) => true,
        Which::Owner(Some(owner)) => shared.is_of(&entry.session, owner).unwrap_or(true),
    }
}
