//! The vault in use: the master key, and secrets sealed into the store and opened out of it.
//!
//! ```text
//!  set ──▶ seal under the first key ──▶ row ──▶ open under the key that it names ──▶ a room
//!  rotate: a new first key ──▶ seal again, some rows at a time ──▶ forget the keys that no row names
//! ```
//!
//! Keys are read when a secret is first set or needed: a server without secrets has no key. A rotation that was cut
//! short is finished by the next server, and costs nothing in between, for every key that a row names is still there.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use workroom_store::{Change, SecretRow, Store};
use workroom_types::{Problem, ProblemCode, Rotated, SecretScope as Kind, Timestamp};
use workroom_vault::{
    Existing, KeyError, KeySource, Keyring, Place, SealError, Sealed, SecretName, SecretScope, SecretValue,
};

/// So many rows are sealed again in one commit.
const AT_ONCE: u32 = 64;

/// Whose a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) kind: Kind,
    /// The user or the session; empty for global ones.
    pub(crate) whose: String,
}

impl Holder {
    pub(crate) fn global() -> Holder {
        Holder { kind: Kind::Global, whose: String::new() }
    }

    pub(crate) fn user(owner: &str) -> Holder {
        Holder { kind: Kind::User, whose: owner.to_owned() }
    }

    pub(crate) fn session(id: &str) -> Holder {
        Holder { kind: Kind::Session, whose: id.to_owned() }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.kind {
            Kind::Global => "global",
            Kind::User => "user",
            Kind::Session => "session",
        }
    }

    fn place(&self, name: &SecretName, version: u64) -> Place {
        let scope = match self.kind {
            Kind::Global => SecretScope::Global,
            Kind::User => SecretScope::User(self.whose.clone()),
            Kind::Session => SecretScope::Session(self.whose.clone()),
        };
        Place { scope, name: name.clone(), version }
    }

    fn of(row: &SecretRow) -> Option<Holder> {
        let kind = match row.scope.as_str() {
            "global" => Kind::Global,
            "user" => Kind::User,
            "session" => Kind::Session,
            _ => return None,
        };
        Some(Holder { kind, whose: row.holder.clone() })
    }
}

pub(crate) struct Safe {
    source: KeySource,
    ring: Mutex<Option<Arc<Keyring>>>,
    /// One changes secrets or keys at a time.
    changing: tokio::sync::Mutex<()>,
    /// Counts changes, so that whoever holds secrets knows whether they are the newest.
    generation: AtomicU64,
}

/// Words for a caller; the log has them too, for the operator.
fn no_key(error: KeyError) -> Problem {
    tracing::error!(%error, "the master key cannot be used");
    Problem::new(
        ProblemCode::SecretsUnavailable,
        format!("the master key cannot be used: {}", error.code()),
        "the server's log says why",
    )
}

pub(crate) fn sealed_for_good(error: &SealError) -> Problem {
    Problem::new(ProblemCode::SecretsUnavailable, error.to_string(), "")
}

impl Safe {
    pub(crate) fn new(source: KeySource) -> Safe {
        let (ring, changing, generation) = Default::default();
        Safe { source, ring, changing, generation }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    fn has(&self) -> Option<Arc<Keyring>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, ring: Keyring) -> Arc<Keyring> {
        let ring = Arc::new(ring);
        *self.ring.lock().unwrap_or_else(PoisonError::into_inner) = Some(ring.clone());
        ring
    }

    async fn ring(&self, store: &Store) -> Result<Arc<Keyring>, Problem> {
        match self.has() {
            Some(ring) => Ok(ring),
            None => self.load(store).await,
        }
    }

    /// Reads the keys, which may take a program's time.
    async fn load(&self, store: &Store) -> Result<Arc<Keyring>, Problem> {
        let (_, sealed) = store.secret_keys().await.map_err(crate::storage)?;
        let existing = if sealed { Existing::Sealed } else { Existing::Nothing };
        let source = self.source.clone();
        let ring = crate::blocking(move || source.load(existing).map_err(no_key)).await?;
        Ok(self.hold(ring))
    }

    /// Keeps a value under the next version; says which that is.
    pub(crate) async fn set(
        &self,
        store: &Store,
        (holder, name): (&Holder, &SecretName),
        value: SecretValue,
        also: impl FnOnce(&SecretRow) -> Vec<Change>,
    ) -> Result<SecretRow, Problem> {
        let _changing = self.changing.lock().await;
        let ring = self.ring(store).await?;
        let before =
            store.secret((holder.word(), &holder.whose, name.as_str())).await.map_err(crate::storage)?;
        let version = before.map_or(0, |row| row.version) + 1;
        let sealed =
            ring.seal(&holder.place(name, version), &value).map_err(|error| sealed_for_good(&error))?;
        let row = SecretRow {
            scope: holder.word().into(),
            holder: holder.whose.clone(),
            name: name.to_string(),
            version,
            created: Timestamp::now(),
            key: sealed.key_id().to_string(),
            sealed: Some(sealed.as_bytes().to_vec()),
        };
        let mut changes = vec![Change::PutSecret { row: row.clone() }];
        changes.extend(also(&row));
        store.commit(changes).await.map_err(crate::storage)?;
        self.generation.fetch_add(1, SeqCst);
        Ok(row)
    }

    /// Whether there was one.
    pub(crate) async fn remove(
        &self,
        store: &Store,
        (holder, name): (&Holder, &SecretName),
        also: impl FnOnce(&SecretRow) -> Vec<Change>,
    ) -> Result<bool, Problem> {
        let _changing = self.changing.lock().await;
        let found =
            store.secret((holder.word(), &holder.whose, name.as_str())).await.map_err(crate::storage)?;
        let Some(row) = found.filter(|row| row.sealed.is_some()) else { return Ok(false) };
        let gone = SecretRow { sealed: None, key: String::new(), ..row };
        let also = also(&gone);
        let changes = [vec![Change::PutSecret { row: gone }], also].concat();
        store.commit(changes).await.map_err(crate::storage)?;
        self.generation.fetch_add(1, SeqCst);
        Ok(true)
    }

    /// The value of a row.
    pub(crate) async fn open(&self, store: &Store, row: &SecretRow) -> Result<SecretValue, Problem> {
        let ring = self.ring(store).await?;
        match open_under(&ring, row) {
            // The operator may have put another key into its source since.
            Err(SealError::UnknownKey { .. }) => {
                let ring = self.load(store).await?;
                open_under(&ring, row).map_err(|error| sealed_for_good(&error))
            }
            opened => opened.map_err(|error| sealed_for_good(&error)),
        }
    }

    /// Makes a new key the one that seals, and seals everything under it. Where keys are not ours to make, the first
    /// one that the source has now is taken.
    pub(crate) async fn rotate(&self, store: &Store) -> Result<Rotated, Problem> {
        let _changing = self.changing.lock().await;
        // There is a key to be replaced.
        self.ring(store).await?;
        let source = self.source.clone();
        let ring = crate::blocking(move || {
            match source.rotate() {
                Err(KeyError::NotOurs { .. }) => source.load(Existing::Sealed),
                rotated => rotated,
            }
            .map_err(no_key)
        })
        .await?;
        let ring = self.hold(ring);
        self.seal_all(store, &ring).await
    }

    /// Does the rest of what an earlier server began.
    pub(crate) async fn finish_rotation(&self, store: &Store) -> Result<(), Problem> {
        let _changing = self.changing.lock().await;
        let (keys, ever) = store.secret_keys().await.map_err(crate::storage)?;
        if !ever {
            return Ok(());
        }
        let ring = self.ring(store).await?;
        let current = ring.current().id().to_string();
        if ring.ids().count() > 1 || keys.iter().any(|key| *key != current) {
            let done = self.seal_all(store, &ring).await?;
            if done.resealed > 0 {
                tracing::info!(secrets = done.resealed, key = done.key, "an earlier rotation is finished");
            }
        }
        Ok(())
    }

    async fn seal_all(&self, store: &Store, ring: &Arc<Keyring>) -> Result<Rotated, Problem> {
        let key = ring.current().id().to_string();
        let mut rotated = Rotated { key: key.clone(), ..Rotated::default() };
        let mut unreadable: Vec<SecretRow> = Vec::new();
        loop {
            let most = AT_ONCE.saturating_add(unreadable.len() as u32);
            let mut rows = store.secrets_under_other_keys(&key, most).await.map_err(crate::storage)?;
            rows.retain(|row| !unreadable.contains(row));
            if rows.is_empty() {
                break;
            }
            let mut changes = Vec::new();
            for row in rows {
                match seal_again(ring, &row) {
                    Ok(sealed) => {
                        let row = SecretRow { key: key.clone(), sealed: Some(sealed), ..row };
                        changes.push(Change::SealAgain { row });
                    }
                    Err(error) => {
                        tracing::warn!(scope = row.scope, name = row.name, %error, "a secret is not sealed again");
                        unreadable.push(row);
                    }
                }
            }
            rotated.resealed += changes.len() as u64;
            store.commit(changes).await.map_err(crate::storage)?;
        }
        rotated.unreadable = unreadable.len() as u64;
        let (used, _) = store.secret_keys().await.map_err(crate::storage)?;
        let source = self.source.clone();
        let retired =
            crate::blocking(move || Ok(source.retire(|key| used.contains(&key.to_string())))).await?;
        match retired {
            Ok(ring) => drop(self.hold(ring)),
            Err(KeyError::NotOurs { .. }) => {}
            Err(error) => return Err(no_key(error)),
        }
        Ok(rotated)
    }
}

/// What a row that cannot be read is called is known all the same.
fn name_of(row: &SecretRow) -> Result<SecretName, SealError> {
    SecretName::new(row.name.clone()).map_err(|_| SealError::Truncated { length: 0 })
}

fn place_of(row: &SecretRow) -> Result<(Place, Sealed), SealError> {
    let truncated = || SealError::Truncated { length: 0 };
    let place = Holder::of(row).ok_or_else(truncated)?.place(&name_of(row)?, row.version);
    let sealed = Sealed::from_bytes(row.sealed.clone().ok_or_else(truncated)?)?;
    Ok((place, sealed))
}

fn open_under(ring: &Keyring, row: &SecretRow) -> Result<SecretValue, SealError> {
    let (place, sealed) = place_of(row)?;
    ring.open(&place, &sealed)
}

fn seal_again(ring: &Keyring, row: &SecretRow) -> Result<Vec<u8>, SealError> {
    let (place, sealed) = place_of(row)?;
    Ok(ring.reseal(&place, &sealed)?.unwrap_or(sealed).as_bytes().to_vec())
}
