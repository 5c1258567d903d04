//! The store as the engine writes to it: nothing goes in that a session must not be seen to have.

use super::redactors::Redactors;
use std::ops::Deref;
use std::sync::Arc;
use workroom_store::{Change, Outcome, Store, StoreError};

/// Reads like the store; what is written is redacted first. Clones are the same.
#[derive(Clone)]
pub(crate) struct Records {
    store: Store,
    redactors: Arc<Redactors>,
}

impl Records {
    pub(crate) fn new(store: Store, redactors: Arc<Redactors>) -> Records {
        Records { store, redactors }
    }

    pub(crate) async fn commit(&self, mut changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        changes.iter_mut().for_each(|change| self.redactors.clean(change));
        self.store.commit(changes).await
    }

    pub(crate) async fn note(&self, mut change: Change) {
        self.redactors.clean(&mut change);
        self.store.note(change).await;
    }
}

impl Deref for Records {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}
