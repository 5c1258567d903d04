//! Secrets: kept sealed, given to rooms by name, and never shown.
//!
//! ```text
//!  Engine::set_secret ──▶ safe.rs: sealed under the master key ──▶ store
//!                                                                   │ resolve.rs: what a policy and a call name
//!                                                                   ▼
//!  actor/secrets.rs ──▶ the guest: environment, /run/secrets, what is to be looked for in output
//!        └──▶ redactors.rs: what must not be seen in records, errors and the log
//! ```

pub(crate) mod records;
pub(crate) mod redactors;
pub(crate) mod resolve;
pub(crate) mod safe;

pub use redactors::redact_log;

use crate::actor::Ask;
use crate::{Engine, sessions, storage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use safe::Holder;
use serde_json::json;
use std::time::Duration;
use workroom_store::{Change, SecretRow};
use workroom_types::{
    Caller, Encoding, Problem, ProblemCode, Rotated, Scope, SecretInfo, SecretList, SecretScope, SetSecret,
    Timestamp,
};
use workroom_vault::{Redactor, SecretName, SecretValue};

/// Secrets of one holder.
const MOST_OF_ONE: usize = 256;

/// How long a caller waits for rooms that run to have what it has set. They get it all the same.
const ROOMS_WITHIN: Duration = Duration::from_secs(5);

/// Which secrets a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    Global,
    /// The caller's own, or for an admin those of this owner.
    User(Option<String>),
    Session(String),
}

fn info(row: &SecretRow, redacted: Option<bool>) -> SecretInfo {
    let (scope, owner, session) = match row.scope.as_str() {
        "global" => (SecretScope::Global, None, None),
        "user" => (SecretScope::User, Some(row.holder.clone()), None),
        _ => (SecretScope::Session, None, Some(row.holder.clone())),
    };
    SecretInfo {
        name: row.name.clone(),
        scope,
        owner,
        session,
        version: row.version,
        created: row.created,
        redacted,
    }
}

fn value(request: SetSecret) -> Result<SecretValue, Problem> {
    let bytes = match request.encoding.unwrap_or_default() {
        Encoding::Text => request.value.into_bytes(),
        // What is wrong with it would be a part of it.
        Encoding::Base64 => STANDARD
            .decode(request.value)
            .map_err(|_| Problem::invalid("the value is not base64", "leave `encoding` out for text"))?,
    };
    SecretValue::new(bytes).map_err(|error| Problem::invalid(error.to_string(), ""))
}

impl Engine {
    /// Who may set, see and remove them.
    async fn holder(&self, caller: &Caller, whose: &Whose, is_change: bool) -> Result<Holder, Problem> {
        let denied = |what: &str, hint: &str| Err(Problem::new(ProblemCode::Forbidden, what, hint));
        match (whose, &caller.scope) {
            (Whose::Session(id), _) => {
                sessions::get(&self.shared, caller, id).await?;
                Ok(Holder::session(id))
            }
            (_, Scope::Session { .. }) => denied(
                "a token of one session has to do with that session's secrets only",
                "use those under /v1/sessions/{id}/secrets",
            ),
            (Whose::Global, Scope::User { .. }) if is_change => {
                denied("global secrets are an admin's", "use scope=user for your own")
            }
            (Whose::Global, _) => Ok(Holder::global()),
            (Whose::User(None), _) => Ok(Holder::user(caller.owner())),
            (Whose::User(Some(owner)), scope) if *scope == Scope::Admin || owner == caller.owner() => {
                crate::validate::foreign("owner", Some(owner))?;
                Ok(Holder::user(owner))
            }
            (Whose::User(Some(_)), _) => denied("these are another user's secrets", "leave `owner` out"),
        }
    }

    /// Keeps a value. Rooms that are given this secret get the new value, those that run as files at once.
    pub async fn set_secret(
        &self,
        caller: &Caller,
        whose: Whose,
        name: &str,
        request: SetSecret,
    ) -> Result<SecretInfo, Problem> {
        self.open_for_work()?;
        let holder = self.holder(caller, &whose, true).await?;
        let name = resolve::secret_name(name)?;
        let value = value(request)?;
        let store = &self.shared.store;
        let there = store.secrets(holder.word(), &holder.whose).await.map_err(storage)?;
        if there.len() >= MOST_OF_ONE && !there.iter().any(|row| row.name == name.as_str()) {
            let detail = format!("there are {MOST_OF_ONE} secrets of this scope, which is the most");
            return Err(Problem::limit("secrets", detail, "remove one"));
        }
        let redacted = !Redactor::new([(&name, &value)]).is_empty();
        let journal = |row: &SecretRow| journal(&holder, caller, "secret.set", row);
        let row = self.shared.safe.set(store, (&holder, &name), value, journal).await?;
        tracing::info!(scope = holder.word(), name = %name, version = row.version, by = caller.name, "a secret was set");
        self.tell_rooms(&holder).await;
        Ok(info(&row, Some(redacted)))
    }

    /// Names, scopes and versions. Without a session: the caller's own and the global ones.
    pub async fn secrets(
        &self,
        caller: &Caller,
        session: Option<&str>,
        owner: Option<String>,
    ) -> Result<SecretList, Problem> {
        let whose = match session {
            Some(id) => vec![Whose::Session(id.to_owned())],
            None => vec![Whose::Global, Whose::User(owner)],
        };
        let mut list = SecretList::default();
        for whose in whose {
            let holder = self.holder(caller, &whose, false).await?;
            let rows = self.shared.store.secrets(holder.word(), &holder.whose).await.map_err(storage)?;
            list.secrets.extend(rows.iter().map(|row| info(row, None)));
        }
        Ok(list)
    }

    /// Removing what is not there succeeds. Rooms that were given it keep what they have seen, but for files.
    pub async fn remove_secret(&self, caller: &Caller, whose: Whose, name: &str) -> Result<(), Problem> {
        self.open_for_work()?;
        let holder = self.holder(caller, &whose, true).await?;
        let name: SecretName = resolve::secret_name(name)?;
        let journal = |row: &SecretRow| journal(&holder, caller, "secret.removed", row);
        if self.shared.safe.remove(&self.shared.store, (&holder, &name), journal).await? {
            tracing::info!(scope = holder.word(), name = %name, by = caller.name, "a secret was removed");
            self.tell_rooms(&holder).await;
        }
        Ok(())
    }

    /// A new master key, under which everything is sealed again.
    pub async fn rotate_master_key(&self, caller: &Caller) -> Result<Rotated, Problem> {
        self.open_for_work()?;
        if !caller.is_admin() {
            return Err(Problem::new(
                ProblemCode::Forbidden,
                "the master key is an admin's to change",
                "use an admin's token",
            ));
        }
        let rotated = self.shared.safe.rotate(&self.shared.store).await?;
        tracing::info!(
            key = rotated.key,
            secrets = rotated.resealed,
            by = caller.name,
            "the master key was rotated"
        );
        Ok(rotated)
    }

    /// Rooms that run and are given some of a holder's secrets get them anew.
    async fn tell_rooms(&self, holder: &Holder) {
        let of_holder = |id: &str, owner: &str| match holder.kind {
            SecretScope::Global => true,
            SecretScope::User => owner == holder.whose,
            SecretScope::Session => id == holder.whose,
        };
        let told = self.shared.live_owners(of_holder).into_iter().map(|(id, handle)| async move {
            // One that has gone meanwhile needs nothing.
            let _ = sessions::ask(&handle, &id, |reply| Ask::RefreshSecrets { reply }).await;
        });
        let all: Vec<_> = told.map(tokio::spawn).collect();
        let wait = async {
            for one in all {
                let _ = one.await;
            }
        };
        let _ = tokio::time::timeout(ROOMS_WITHIN, wait).await;
    }
}

/// Of a session's secrets its journal tells, without their values.
fn journal(holder: &Holder, caller: &Caller, kind: &str, row: &SecretRow) -> Vec<Change> {
    if holder.kind != SecretScope::Session {
        return Vec::new();
    }
    vec![Change::Journal {
        session: holder.whose.clone(),
        at: Timestamp::now(),
        actor: caller.name.clone(),
        kind: kind.to_owned(),
        body: json!({ "name": row.name, "version": row.version }),
    }]
}
