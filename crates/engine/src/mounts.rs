//! Directories of the host in rooms: what the operator gives, and what sessions ask for.
//!
//! ```text
//!  [mounts] of the operator's file      a session's policy: mounts.dynamic
//!        │ external, persistent,              │
//!        │ original                           ▼
//!        │                         judge.rs: may its owner have it?
//!        ▼                                    ▼
//!     plan.rs ◀──────────────────── resolve.rs: is it there, and which directory is it?
//!        │ records and binds
//!        ▼
//!  a room that starts: RoomSpec::binds        a room that runs: mounter.rs, by way of the spawner
//! ```
//!
//! Whose session it is, is known from the token that made it. Everything is judged again at every start; a room that
//! runs keeps what it was given.

pub(crate) mod judge;
pub(crate) mod mounter;
pub(crate) mod plan;
mod refused;
mod resolve;
pub(crate) mod tidy;

use crate::actor::Ask;
use crate::shared::Shared;
use crate::{Engine, sessions};
use judge::Asking;
use plan::WantedBind;
use serde_json::{Value, json};
use std::sync::Arc;
use workroom_store::SessionRow;
use workroom_types::{
    AddMounts, Caller, DenialCode, MountDenial, MountOffer, MountPolicy, MountRequest, OfferedBase, Problem,
    ProblemCode, Scope, Session, SessionMount, SessionMounts, UpdateSession,
};

/// Says to a caller which of its requests are denied, and that so all are.
pub(crate) fn denied(denials: &[MountDenial]) -> Problem {
    let first = denials.first();
    let detail = first.map_or_else(String::new, |denial| {
        format!("the mount {} is denied ({}): {}", denial.alias, denial.code.as_str(), denial.detail)
    });
    let hint = match denials.len() {
        0 | 1 => "nothing was mounted",
        _ => "nothing was mounted; `report` has every denial",
    };
    let report = Some(json!({ "denials": denials }));
    Problem { report, ..Problem::new(ProblemCode::MountDenied, detail, hint) }
}

/// Requests of one call, and paths that one policy unprotects. More than any operator grants.
const MOST_REQUESTS: usize = 64;

/// Each denial is told and noted: there are only so many of them.
pub(crate) fn check_lengths(policy: &MountPolicy) -> Result<(), Problem> {
    for (what, count) in [("dynamic", policy.dynamic.len()), ("unprotect", policy.unprotect.len())] {
        if count > MOST_REQUESTS {
            let detail = format!("mounts.{what} has {count} entries, and {MOST_REQUESTS} are the most");
            return Err(Problem::invalid(detail, "ask for fewer"));
        }
    }
    Ok(())
}

/// All that an owner's session asks for, judged and found; or why not.
pub(crate) async fn check_requests(
    shared: &Arc<Shared>,
    owner: &str,
    (policy, has): (&MountPolicy, &[String]),
    requests: &[MountRequest],
) -> Result<Vec<WantedBind>, Vec<MountDenial>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let (shared, owner) = (shared.clone(), owner.to_owned());
    let (unprotect, has, requests) = (policy.unprotect.clone(), has.to_vec(), requests.to_vec());
    // A file system that does not answer holds nobody else up.
    let found = tokio::task::spawn_blocking(move || {
        let file = shared.operator.current();
        let asking = Asking { owner: &owner, has: &has, unprotect: &unprotect };
        plan::find_requests(&shared.config.state, file.mounts.as_ref(), &asking, &requests)
    });
    let all = found.await.unwrap_or_else(|error| {
        let (code, alias) = (DenialCode::ResolutionFailed, String::new());
        vec![Err(MountDenial { code, alias, detail: error.to_string() })]
    });
    let mut wanted = Vec::new();
    let mut denials = Vec::new();
    for one in all {
        match one {
            Ok(bind) => wanted.push(bind),
            Err(denial) => denials.push(denial),
        }
    }
    if denials.is_empty() { Ok(wanted) } else { Err(denials) }
}

/// Whether a session that is to be may have what its policy asks for; and if so, what that is. What is denied is in the
/// record of a session that was not made.
pub(crate) async fn check_new(
    shared: &Arc<Shared>,
    actor: &str,
    row: &SessionRow,
) -> Result<Vec<SessionMount>, Problem> {
    let session = &row.session;
    let Some(mounts) = &session.policy.mounts else { return Ok(Vec::new()) };
    check_lengths(mounts)?;
    match check_requests(shared, &session.owner, (mounts, &[]), &mounts.dynamic).await {
        Ok(found) => Ok(found.into_iter().map(|one| one.record).collect()),
        Err(denials) => {
            refused::record(shared, actor, row, &mounts.dynamic, &denials).await;
            Err(denied(&denials))
        }
    }
}

/// What a journal has of a request that was denied.
pub(crate) fn of_denial(requests: &[MountRequest], denial: &MountDenial) -> Value {
    let asked = requests.iter().find(|request| request.alias == denial.alias);
    json!({
        "alias": denial.alias, "code": denial.code, "detail": denial.detail,
        "base": asked.map(|asked| crate::validate::shown(&asked.base)),
        "subpath": asked.map(|asked| crate::validate::shown(&asked.subpath)),
        "mode": asked.map(|asked| asked.mode),
    })
}

/// A session's own token is what its agent has: what of the host the session sees is for its owner to say.
pub(crate) fn check_caller(caller: &Caller, alias: &str) -> Result<(), Problem> {
    match caller.scope {
        Scope::Session { .. } => Err(denied(&[MountDenial {
            code: DenialCode::NotAuthorized,
            alias: alias.to_owned(),
            detail: "a session's own token does not choose what the session sees of the host; \
                     use a token of its owner"
                .to_owned(),
        }])),
        _ => Ok(()),
    }
}

/// The same for a policy that is to be another.
pub(crate) fn check_change(
    caller: &Caller,
    session: &Session,
    change: &UpdateSession,
) -> Result<(), Problem> {
    match &change.policy {
        Some(policy) if policy.mounts != session.policy.mounts => check_caller(caller, "of the policy"),
        _ => Ok(()),
    }
}

/// Host paths are for a session's owner.
pub(crate) fn without_host_paths(mut session: Session) -> Session {
    session.mounts.iter_mut().for_each(|mount| mount.host_path = None);
    session
}

impl Engine {
    /// What a caller's sessions are given, and may ask for.
    pub fn mount_offer(&self, caller: &Caller) -> MountOffer {
        let file = self.shared.operator.current();
        let Some(rules) = file.mounts.as_ref().filter(|rules| rules.enabled) else {
            return MountOffer::default();
        };
        let owner = caller.owner();
        let sees_host = !matches!(caller.scope, Scope::Session { .. });
        let shown = |(anchor, beneath): (std::path::PathBuf, std::path::PathBuf)| {
            sees_host.then(|| resolve::whole(&anchor, &beneath).display().to_string())
        };
        let bases = rules.bases.iter().filter(|(_, base)| base.is_for(owner)).filter_map(|(name, base)| {
            Some(OfferedBase {
                name: name.clone(),
                max_mode: base.max_mode,
                allow: base.allow.clone(),
                block: base.block.clone(),
                except: base.except.clone(),
                host_path: shown(base.path.of(owner)?),
            })
        });
        let mut given = plan::offered(rules, owner);
        if !sees_host {
            given.iter_mut().for_each(|mount| mount.host_path = None);
        }
        MountOffer {
            enabled: true,
            bases: bases.collect(),
            given,
            max_per_session: rules.max_per_session,
            max_depth: rules.max_depth,
            reserved_aliases: rules.reserved_aliases.clone(),
            protected: rules.protect.clone(),
        }
    }

    /// Directories of the host that a session has.
    pub async fn mounts(&self, caller: &Caller, id: &str) -> Result<SessionMounts, Problem> {
        Ok(SessionMounts { mounts: sessions::get(&self.shared, caller, id).await?.mounts })
    }

    /// Mounts directories into a session: all of them, or none. They are there when this returns, also in a room that
    /// runs, and in every later one.
    pub async fn add_mounts(
        &self,
        caller: &Caller,
        id: &str,
        request: AddMounts,
    ) -> Result<SessionMounts, Problem> {
        self.open_for_work()?;
        sessions::get(&self.shared, caller, id).await?;
        check_caller(caller, request.mounts.first().map_or("", |first| &first.alias))?;
        if request.mounts.is_empty() {
            return Err(Problem::invalid("there is nothing to mount", "name one mount at least"));
        }
        check_lengths(&MountPolicy { dynamic: request.mounts.clone(), ..MountPolicy::default() })?;
        let actor = caller.name.clone();
        self.ask(caller, id, |reply| Ask::AddMounts { requests: request.mounts, actor, reply }).await?;
        self.mounts(caller, id).await
    }

    /// Taking off what is not mounted succeeds.
    pub async fn remove_mount(&self, caller: &Caller, id: &str, alias: &str) -> Result<(), Problem> {
        sessions::get(&self.shared, caller, id).await?;
        check_caller(caller, alias)?;
        let (alias, actor) = (alias.to_owned(), caller.name.clone());
        self.ask(caller, id, |reply| Ask::RemoveMount { alias, actor, reply }).await
    }
}
