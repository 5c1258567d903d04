//! Tokens: made, told apart, revoked.

use crate::idempotency::intent;
use crate::state_dir::write_durably;
use crate::{Engine, Permit, sessions, storage, validate};
use aws_lc_rs::{constant_time, digest};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use workroom_store::{Change, Outcome, Store, TokenRow};
use workroom_types::{
    Caller, CreateToken, NewToken, Problem, ProblemCode, Scope, Timestamp, TokenInfo, TokenList, TokenScope,
};

/// What every token begins with, so that one in the wrong place is recognised.
const PREFIX: &str = "wr";

/// The file of the first admin token.
const FILE: &str = "token";

/// Tokens that one owner, without an admin's help, may have.
const MOST_OF_ONE_OWNER: usize = 1000;

/// Tokens that are deleted in one transaction, of those that nobody needs.
const SWEPT_AT_ONCE: usize = 500;

impl Engine {
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: CreateToken,
        permit: Option<&Permit>,
    ) -> Result<NewToken, Problem> {
        // Made by an earlier attempt: its secret was told then, or never will be.
        if let Some(info) =
            permit.and_then(|permit| permit.resource.as_ref()).and_then(|id| self.shared.access.find(id))
        {
            return Ok(NewToken { info, token: None });
        }
        let owner = match (request.scope, &request.session) {
            (TokenScope::Session, Some(session)) => {
                self.shared.pools.check_open(session)?;
                Some(sessions::get(&self.shared, caller, session).await?.owner)
            }
            (TokenScope::Session, None) => {
                return Err(Problem::invalid("a token of the scope session needs a session", "name its id"));
            }
            _ => None,
        };
        let also = |id: &str| permit.map(|permit| intent(permit, id));
        self.shared.access.create(&self.shared.store, caller, request, owner, also).await
    }

    pub async fn tokens(&self, caller: &Caller) -> Result<TokenList, Problem> {
        Ok(TokenList { tokens: self.shared.access.list(caller) })
    }

    pub async fn revoke_token(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        validate::id(id)?;
        self.shared.access.revoke(&self.shared.store, caller, id).await
    }
}

/// All tokens, in memory: asking the store for each request would be slow, and there are few.
pub(crate) struct Access {
    tokens: RwLock<HashMap<String, TokenRow>>,
    /// Whose processes on the unix socket may do everything.
    own_uid: u32,
    /// The first admin token's.
    file: PathBuf,
}

impl Access {
    pub(crate) async fn open(store: &Store, state: &Path) -> Result<Access, Problem> {
        let rows = store.tokens().await.map_err(storage)?;
        let access = Access {
            tokens: RwLock::new(rows.into_iter().map(|row| (row.info.id.clone(), row)).collect()),
            own_uid: rustix::process::geteuid().as_raw(),
            file: state.join(FILE),
        };
        access.ensure_first(store, state).await?;
        Ok(access)
    }

    /// The token in the file is an admin token, whatever became of the store; without a file one is made.
    async fn ensure_first(&self, store: &Store, state: &Path) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            Problem::new(
                ProblemCode::StorageUnavailable,
                format!("the token file {} cannot be used: {error}", state.join(FILE).display()),
                "",
            )
        };
        let text = match std::fs::read_to_string(state.join(FILE)) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let text = new_secret()?;
                // The file first: a token that is recorded and written nowhere is of no use to anybody.
                write_durably(state, FILE, format!("{text}\n").as_bytes()).map_err(failed)?;
                text
            }
            Err(error) => return Err(failed(error)),
        };
        let Some((id, secret)) = parts(&text) else {
            return Err(failed(std::io::Error::other(
                "it does not hold a token; delete it to get a new one",
            )));
        };
        if self.known(id) {
            return Ok(());
        }
        let info = TokenInfo {
            id: id.to_owned(),
            name: "the first admin token".into(),
            scope: TokenScope::Admin,
            owner: None,
            session: None,
            read_only: false,
            created: Timestamp::now(),
            expires: None,
        };
        let row = TokenRow { info, secret_hash: hash(secret) };
        store.commit(vec![Change::PutToken { row: row.clone() }]).await.map_err(storage)?;
        self.insert(row);
        Ok(())
    }

    fn known(&self, id: &str) -> bool {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    pub(crate) fn insert(&self, row: TokenRow) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).insert(row.info.id.clone(), row);
    }

    pub(crate) fn authenticate(&self, token: &str) -> Option<Caller> {
        let (id, secret) = parts(token)?;
        let presented = hash(secret);
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let row = tokens.get(id)?;
        constant_time::verify_slices_are_equal(presented.as_bytes(), row.secret_hash.as_bytes()).ok()?;
        if row.info.expires.is_some_and(|expires| expires <= Timestamp::now()) {
            return None;
        }
        let info = &row.info;
        let scope = match info.scope {
            TokenScope::Admin => Scope::Admin,
            TokenScope::User => Scope::User { owner: info.owner.clone()? },
            TokenScope::Session => {
                Scope::Session { session: info.session.clone()?, owner: info.owner.clone()? }
            }
        };
        Some(Caller { name: format!("token:{}", info.id), scope, read_only: info.read_only })
    }

    /// The server's own user and root may do everything; anybody else has their own sessions.
    pub(crate) fn local_caller(&self, uid: u32) -> Caller {
        let scope = if uid == 0 || uid == self.own_uid {
            Scope::Admin
        } else {
            Scope::User { owner: format!("local:{uid}") }
        };
        Caller { name: format!("local:{uid}"), scope, read_only: false }
    }

    /// Makes a token and records it. `session_owner`: of the session that it is for. `also` is recorded with it.
    pub(crate) async fn create(
        &self,
        store: &Store,
        caller: &Caller,
        request: CreateToken,
        session_owner: Option<String>,
        also: impl FnOnce(&str) -> Option<Change>,
    ) -> Result<NewToken, Problem> {
        let (row, token) = self.mint(caller, request, session_owner)?;
        let mut changes = vec![Change::PutToken { row: row.clone() }];
        changes.extend(also(&row.info.id));
        store.commit(changes).await.map_err(storage)?;
        self.insert(row);
        Ok(token)
    }

    /// Makes a token that counts once it is recorded and inserted.
    pub(crate) fn mint(
        &self,
        caller: &Caller,
        request: CreateToken,
        session_owner: Option<String>,
    ) -> Result<(TokenRow, NewToken), Problem> {
        validate::name(Some(&request.name))?;
        validate::foreign("owner", request.owner.as_deref())?;
        let (owner, session) = match request.scope {
            TokenScope::Admin if caller.is_admin() => (None, None),
            // Who was let into one session was not let into its owner's others.
            TokenScope::User if !matches!(caller.scope, Scope::Session { .. }) => {
                let owner = request.owner.clone().unwrap_or_else(|| caller.owner().to_owned());
                if !caller.is_admin() && owner != caller.owner() {
                    return Err(not_yours());
                }
                (Some(owner), None)
            }
            TokenScope::Session => (session_owner, request.session.clone()),
            TokenScope::Admin | TokenScope::User => return Err(not_yours()),
        };
        if request.scope != TokenScope::User && request.owner.is_some() {
            return Err(Problem::invalid("owner is for tokens of the scope user", "leave it out"));
        }
        if request.scope != TokenScope::Session && request.session.is_some() {
            return Err(Problem::invalid("session is for tokens of the scope session", "leave it out"));
        }
        validate::seconds("expires_in", request.expires_in, 1)?;
        self.check_number(caller, owner.as_deref())?;
        let text = new_secret()?;
        let Some((id, secret)) = parts(&text) else { return Err(no_randomness()) };
        let created = Timestamp::now();
        let info = TokenInfo {
            id: id.to_owned(),
            name: request.name,
            scope: request.scope,
            owner,
            session,
            // Nobody gives away more than they have.
            read_only: request.read_only || caller.read_only,
            created,
            expires: request
                .expires_in
                .map(|seconds| created.plus_seconds(seconds))
                .into_iter()
                .chain(self.end_of(caller))
                .min(),
        };
        let row = TokenRow { info: info.clone(), secret_hash: hash(secret) };
        Ok((row, NewToken { info, token: Some(text) }))
    }

    /// When the caller's own token ends: what it makes does not outlive it.
    fn end_of(&self, caller: &Caller) -> Option<Timestamp> {
        self.find(caller.name.strip_prefix("token:")?)?.expires
    }

    /// All tokens are kept in memory, and each has a rate of its own.
    fn check_number(&self, caller: &Caller, owner: Option<&str>) -> Result<(), Problem> {
        if caller.is_admin() {
            return Ok(());
        }
        let now = Timestamp::now();
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let lives = |info: &TokenInfo| info.expires.is_none_or(|expires| expires > now);
        let of_owner = |row: &&TokenRow| row.info.owner.as_deref() == owner && lives(&row.info);
        if tokens.values().filter(of_owner).count() < MOST_OF_ONE_OWNER {
            return Ok(());
        }
        let detail = format!("there are {MOST_OF_ONE_OWNER} tokens of this owner, which is the most");
        Err(Problem::limit("tokens", detail, "revoke one first").retry_after(1))
    }

    /// Those that the caller could have made, oldest first.
    pub(crate) fn list(&self, caller: &Caller) -> Vec<TokenInfo> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<TokenInfo> =
            tokens.values().map(|row| &row.info).filter(|info| may_handle(caller, info)).cloned().collect();
        list.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        list
    }

    pub(crate) fn find(&self, id: &str) -> Option<TokenInfo> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(id).map(|row| row.info.clone())
    }

    /// The tokens of a session, to be deleted in the transaction in which it is.
    pub(crate) fn of_session(&self, session: &str) -> Vec<String> {
        self.ids(|info| info.session.as_deref() == Some(session))
    }

    /// What the store has deleted stands for nobody any more.
    pub(crate) fn forget(&self, ids: &[String]) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        ids.iter().for_each(|id| drop(tokens.remove(id)));
    }

    /// Deletes those whose time is over, and those of sessions that are gone: of a fork that was deleted before its
    /// token was known here, and of servers that left them in the store.
    pub(crate) async fn sweep(&self, store: &Store, now: Timestamp) -> Result<(), Problem> {
        // The tokens first: whichever is among them has a session that is recorded by now, unless it is gone.
        let with_session = self.ids(|info| info.session.is_some());
        let mut unneeded = self.ids(|info| info.expires.is_some_and(|expires| expires <= now));
        if !with_session.is_empty() {
            let sessions = store.all_ids().await.map_err(storage)?;
            let there: HashSet<&str> = sessions.iter().map(|(id, _)| id.as_str()).collect();
            unneeded.extend(with_session.into_iter().filter(|id| {
                let session = self.find(id).and_then(|info| info.session);
                session.is_some_and(|session| !there.contains(session.as_str()))
            }));
        }
        for some in unneeded.chunks(SWEPT_AT_ONCE) {
            store
                .commit(some.iter().cloned().map(|id| Change::DeleteToken { id }).collect())
                .await
                .map_err(storage)?;
            self.forget(some);
        }
        Ok(())
    }

    fn ids(&self, wanted: impl Fn(&TokenInfo) -> bool) -> Vec<String> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.values().filter(|row| wanted(&row.info)).map(|row| row.info.id.clone()).collect()
    }

    /// Revoking what is revoked succeeds.
    pub(crate) async fn revoke(&self, store: &Store, caller: &Caller, id: &str) -> Result<(), Problem> {
        match self.find(id) {
            Some(info) if may_handle(caller, &info) => {}
            _ => return Ok(()),
        }
        self.forget_file_of(id)?;
        let outcome = store.commit(vec![Change::DeleteToken { id: id.to_owned() }]).await.map_err(storage)?;
        debug_assert!(outcome.iter().all(|outcome| matches!(outcome, Outcome::Done)));
        self.forget(&[id.to_owned()]);
        Ok(())
    }
}

impl Access {
    /// The token in the file is made good at every start, so a revoked one goes from there first. The next start
    /// writes another.
    fn forget_file_of(&self, id: &str) -> Result<(), Problem> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        if parts(text.trim()).is_none_or(|(first, _)| first != id) {
            return Ok(());
        }
        std::fs::remove_file(&self.file).map_err(|error| {
            let detail = format!("{} holds the token and cannot be removed: {error}", self.file.display());
            Problem::new(ProblemCode::StorageUnavailable, detail, "remove it").retry_after(1)
        })
    }
}

fn may_handle(caller: &Caller, info: &TokenInfo) -> bool {
    match &caller.scope {
        Scope::Admin => true,
        Scope::User { owner } => info.owner.as_ref() == Some(owner),
        Scope::Session { .. } => false,
    }
}

fn not_yours() -> Problem {
    Problem::new(
        ProblemCode::Forbidden,
        "this token may not make such a one",
        "ask with an admin token, or for a token that reaches no further than your own",
    )
}

/// `wr_ID_SECRET`, as (ID, SECRET).
fn parts(token: &str) -> Option<(&str, &str)> {
    let (prefix, rest) = token.split_once('_')?;
    let (id, secret) = rest.split_once('_')?;
    (prefix == PREFIX && id.len() == 12 && secret.len() == 64).then_some((id, secret))
}

fn new_secret() -> Result<String, Problem> {
    let mut bytes = [0u8; 38];
    // The kernel's own: the library's generator takes longer to set up than all else at the start.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(filled) if filled == bytes.len() => {}
        _ => return Err(no_randomness()),
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}_{}_{}", &hex[..12], &hex[12..]))
}

fn no_randomness() -> Problem {
    Problem::new(ProblemCode::Internal, "the machine gives no randomness", "")
}

/// What is kept of a secret. It has 256 random bits: nothing slower would protect it better.
fn hash(secret: &str) -> String {
    let hash = digest::digest(&digest::SHA256, secret.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tokens_that_nobody_needs_are_swept_also_those_of_an_earlier_server() {
        let dir = std::env::temp_dir().join(format!("workroom-access-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let store = Store::open(&dir.join("store")).await.unwrap();
        let row = |id: &str, session: Option<&str>, expires: Option<i64>| {
            let info = TokenInfo {
                id: id.into(),
                name: "fork".into(),
                scope: if session.is_some() { TokenScope::Session } else { TokenScope::User },
                owner: Some("ada".into()),
                session: session.map(str::to_owned),
                read_only: false,
                created: Timestamp(1),
                expires: expires.map(Timestamp),
            };
            Change::PutToken { row: TokenRow { info, secret_hash: hash("x") } }
        };
        let rows = (0..1200).map(|number| row(&format!("orphan-{number}"), Some("gone"), None));
        store.commit(rows.collect()).await.unwrap();
        store
            .commit(vec![row("over", None, Some(10)), row("good", None, Some(4_102_444_800_000))])
            .await
            .unwrap();

        let access = Access::open(&store, &dir).await.unwrap();
        assert_eq!(access.of_session("gone").len(), 1200);
        access.sweep(&store, Timestamp(11)).await.unwrap();
        let left = |tokens: Vec<TokenInfo>| -> Vec<String> {
            tokens.into_iter().filter(|info| info.scope != TokenScope::Admin).map(|info| info.id).collect()
        };
        let caller = Caller { name: "t".into(), scope: Scope::Admin, read_only: false };
        assert_eq!(left(access.list(&caller)), ["good"]);
        let recorded = store.tokens().await.unwrap().into_iter().map(|row| row.info).collect();
        assert_eq!(left(recorded), ["good"]);
        drop(store);
        let _ = std::fs::remove_dir_all(&dir);
    }

    #[test]
    fn a_token_has_its_parts_and_nothing_else_has() {
        let token = new_secret().unwrap();
        let (id, secret) = parts(&token).unwrap();
        assert_eq!((id.len(), secret.len()), (12, 64));
        for bad in ["", "wr_", "wr_a_b", &token[1..], &token[..token.len() - 1]] {
            assert!(parts(bad).is_none(), "{bad}");
        }
        assert_ne!(hash("a"), hash("b"));
    }
}
