//! What waits to be written, and one transaction over some of it: all of it or nothing.

use crate::apply::{Pen, apply, pulse};
use crate::dialect::BEGIN;
use crate::error::StoreError;
use crate::heads::Heads;
use crate::rows::{Change, Outcome};
use crate::script::Script;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::oneshot;

pub(crate) type Reply = oneshot::Sender<Result<Vec<Outcome>, StoreError>>;

/// What one commit is about.
pub(crate) enum Work {
    Changes(Vec<Change>),
    /// A write for its own sake: does the store work?
    Pulse,
}

/// Something that waits: a note, which nobody waits for, or a commit with the one who does.
pub(crate) enum Item {
    Note(Box<Change>),
    Commit(Work, Reply),
}

impl Item {
    /// Whether it only adds. Such things are turned away when the disk is full, so that what little space
    /// there is serves those who stop and delete.
    pub(crate) fn only_adds(&self) -> bool {
        match self {
            Item::Note(_) | Item::Commit(Work::Pulse, _) => true,
            Item::Commit(Work::Changes(changes), _) => {
                let inserts = changes.iter().any(|change| matches!(change, Change::InsertSession { .. }));
                // A key that something is done under says nothing of what that is.
                let adds = |change: &Change| {
                    matches!(
                        change,
                        Change::Journal { .. } | Change::PutToken { .. } | Change::BeginIdempotent { .. }
                    )
                };
                inserts || changes.iter().all(adds)
            }
        }
    }
}

/// Why a transaction was rolled back.
pub(crate) enum Trouble {
    /// A session was there already, behind changes that had been applied: these are the outcomes so far.
    Exists(Vec<Outcome>),
    /// A session was there already, and nobody looked. Only of a transaction that is not to look.
    Contested,
    /// A change that can never be applied as things are.
    Unfit(StoreError),
    /// The store could not write.
    Storage(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        match error.is_unfit() {
            true => Trouble::Unfit(error),
            false => Trouble::Storage(error),
        }
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        StoreError::from(error).into()
    }
}

/// Applies the items in order and makes them durable. When it fails, nothing of any of them is stored; the
/// connection and the heads are then to be thrown away, unless the second value says that it is sound.
pub(crate) async fn transact(
    connection: &mut SqliteConnection,
    heads: &mut Heads,
    items: &[Item],
) -> Result<Vec<Vec<Outcome>>, (Trouble, Soundness)> {
    match attempt(connection, heads, items, false).await {
        Err((Trouble::Contested, Soundness::Sound)) => {
            heads.forget_all();
            attempt(connection, heads, items, true).await
        }
        done => done,
    }
}

async fn attempt(
    connection: &mut SqliteConnection,
    heads: &mut Heads,
    items: &[Item],
    looks: bool,
) -> Result<Vec<Vec<Outcome>>, (Trouble, Soundness)> {
    let broken = |error: sqlx::Error| (Trouble::from(error), Soundness::Broken);
    let mut transaction = connection.begin_with(BEGIN).await.map_err(broken)?;
    let pen = Pen { connection: &mut transaction, heads, script: Script::default(), looks };
    match apply_all(pen, items).await {
        Ok(outcomes) => {
            transaction.commit().await.map_err(broken)?;
            Ok(outcomes)
        }
        Err(trouble) => {
            let rolled_back = transaction.rollback().await.is_ok();
            let sound = rolled_back && !matches!(trouble, Trouble::Storage(_));
            Err((trouble, if sound { Soundness::Sound } else { Soundness::Broken }))
        }
    }
}

/// Whether a connection may be used again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Soundness {
    Sound,
    Broken,
}

async fn apply_all(mut pen: Pen<'_>, items: &[Item]) -> Result<Vec<Vec<Outcome>>, Trouble> {
    let mut all: Vec<Vec<Outcome>> = Vec::with_capacity(items.len());
    for item in items {
        all.push(match item {
            Item::Note(change) => vec![apply(&mut pen, change).await?],
            Item::Commit(Work::Changes(changes), _) => apply_commit(&mut pen, changes).await?,
            Item::Commit(Work::Pulse, _) => {
                pulse(&mut pen.script);
                Vec::new()
            }
        });
    }
    pen.heads.write(&mut pen.script);
    pen.send().await?;
    let entries = all.iter_mut().flatten().filter_map(|outcome| match outcome {
        Outcome::Entry(entry) => Some(entry),
        _ => None,
    });
    for (entry, position) in entries.zip(pen.heads.positions(&pen.script.rows)?) {
        entry.position = position;
    }
    Ok(all)
}

async fn apply_commit(pen: &mut Pen<'_>, changes: &[Change]) -> Result<Vec<Outcome>, Trouble> {
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        let outcome = apply(pen, change).await?;
        let exists = matches!(outcome, Outcome::Exists(_));
        outcomes.push(outcome);
        if exists {
            // As its first change, the common case, it leaves nothing behind that would have to be undone.
            return if outcomes.len() == 1 { Ok(outcomes) } else { Err(Trouble::Exists(outcomes)) };
        }
    }
    Ok(outcomes)
}
