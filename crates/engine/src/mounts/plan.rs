//! What of the host a session's next room gets: everything that the operator gives its owner, and what it asks for.

use super::judge::{Asking, judge, protected};
use super::resolve;
use crate::operator::mounts::{MOST_MOUNTS, MountRules};
use std::path::{Path, PathBuf};
use workroom_types::{
    Bind, DenialCode, MountDenial, MountKind, MountMode, MountPolicy, MountRequest, MountState, OfferedMount,
    Problem, ProblemCode, RoomBinds, SessionMount,
};

/// A directory that is there and may be had.
pub(crate) struct WantedBind {
    pub(crate) record: SessionMount,
    pub(crate) bind: Bind,
}

/// What a room is to get.
pub(crate) struct Plan {
    pub(crate) records: Vec<SessionMount>,
    pub(crate) binds: RoomBinds,
}

/// A directory that the operator gives, whether it is there or not.
struct Given {
    kind: MountKind,
    name: String,
    place: String,
    anchor: PathBuf,
    beneath: PathBuf,
    mode: MountMode,
    required: bool,
}

/// All that an owner's sessions are given without asking.
fn given(rules: &MountRules, owner: &str) -> Vec<Given> {
    let mut all = Vec::new();
    for external in &rules.external {
        if external.user.as_ref().is_some_and(|user| user != owner) {
            continue;
        }
        let Some((anchor, beneath)) = external.path.of(owner) else { continue };
        let is_own = external.user.is_some() || external.path.is_of_a_user();
        let shelf = match (is_own, external.mode) {
            (false, MountMode::Ro) => "ro",
            (false, MountMode::Rw) => "rw",
            (true, MountMode::Ro) => "user-ro",
            (true, MountMode::Rw) => "user-rw",
        };
        let (kind, name) = (MountKind::External, external.name.clone());
        let place = format!("/workspace/external/{shelf}/{name}");
        let (mode, required) = (external.mode, external.required);
        all.push(Given { kind, name, place, anchor, beneath, mode, required });
    }
    if let Some((anchor, beneath)) = rules.persistent.as_ref().and_then(|own| own.path.of(owner)) {
        let (kind, place) = (MountKind::Persistent, "/workspace/persistent".to_owned());
        let (name, mode) = (String::new(), MountMode::Rw);
        all.push(Given { kind, name, place, anchor, beneath, mode, required: true });
    }
    for original in rules.original.iter().filter(|original| original.users.include(owner)) {
        let Some((anchor, beneath)) = original.path.of(owner) else { continue };
        let place = resolve::whole(&anchor, &beneath).display().to_string();
        let (kind, name, mode) = (MountKind::Original, String::new(), MountMode::Ro);
        all.push(Given { kind, name, place, anchor, beneath, mode, required: original.required });
    }
    all
}

/// The same for whoever wants to know.
pub(super) fn offered(rules: &MountRules, owner: &str) -> Vec<OfferedMount> {
    let shown = |one: Given| OfferedMount {
        host_path: Some(resolve::whole(&one.anchor, &one.beneath).display().to_string()),
        place: one.place,
        kind: one.kind,
        mode: one.mode,
        required: one.required,
    };
    given(rules, owner).into_iter().map(shown).collect()
}

fn record(request: &MountRequest, host_path: Option<&Path>) -> SessionMount {
    SessionMount {
        place: format!("/workspace/{}", request.alias),
        kind: MountKind::Dynamic,
        name: request.alias.clone(),
        base: Some(request.base.clone()),
        subpath: request.subpath.trim_end_matches('/').to_owned(),
        mode: request.mode,
        state: MountState::Waiting,
        code: None,
        reason: None,
        host_path: host_path.map(|path| path.display().to_string()),
    }
}

/// Judges requests and looks for what they name.
pub(crate) fn find_requests(
    state: &Path,
    rules: Option<&MountRules>,
    asking: &Asking<'_>,
    requests: &[MountRequest],
) -> Vec<Result<WantedBind, MountDenial>> {
    let find = |judged: Result<super::judge::Allowed, MountDenial>| {
        let allowed = judged?;
        let request = &allowed.request;
        let judged = resolve::find(state, &allowed.anchor, &allowed.beneath).map_err(|(code, why)| {
            let subpath = crate::validate::shown(&request.subpath);
            let detail = format!("\"{subpath}\" of the base {}: {why}", request.base);
            MountDenial { code, alias: request.alias.clone(), detail }
        })?;
        let record = record(request, Some(&resolve::whole(&allowed.anchor, &allowed.beneath)));
        let plain_name = |text: &&String| !text.contains(['*', '?', '[', '{', '\\', '/']);
        let rules_of = |list: fn(&MountRules) -> &Vec<String>| rules.map(list).into_iter().flatten();
        let bind = Bind {
            judged,
            target: PathBuf::from(&record.place),
            read_only: request.mode == MountMode::Ro,
            protect: rules.map(|rules| protected(rules, asking.unprotect)).unwrap_or_default(),
            hide: rules_of(|rules| &rules.blocked).filter(plain_name).cloned().collect(),
            anchor: allowed.anchor,
            beneath: allowed.beneath,
        };
        Ok(WantedBind { record, bind })
    };
    judge(rules, asking, requests).into_iter().map(find).collect()
}

/// Plans a session's next room. An error: something that it must have is not there.
pub(crate) fn plan(
    state: &Path,
    rules: Option<&MountRules>,
    owner: &str,
    (policy, is_new): (&MountPolicy, bool),
) -> Result<Plan, Problem> {
    let mut plan = Plan { records: Vec::new(), binds: RoomBinds::default() };
    if let Some(rules) = rules.filter(|rules| rules.enabled) {
        let may_write = rules.bases.values().any(|base| base.is_for(owner) && base.max_mode == MountMode::Rw);
        plan.binds.writes_to_host = may_write;
        if let Some(own) = &rules.persistent
            && policy.persistent != Some(false)
            && own.path.of(owner).is_none()
        {
            let owner = crate::validate::shown(owner);
            let detail =
                format!("/workspace/persistent cannot be made: \"{owner}\" is no name of a directory");
            let hint = "say mounts.persistent = false in the session's policy";
            return Err(Problem::new(ProblemCode::RoomSetup, detail, hint));
        }
        let protect = protected(rules, &policy.unprotect);
        for one in given(rules, owner) {
            let switched = match one.kind {
                MountKind::External => policy.external,
                MountKind::Persistent => policy.persistent,
                _ => None,
            };
            if switched != Some(false) {
                plan.add_given(state, one, &protect)?;
            }
        }
    }
    let asking = Asking { owner, has: &[], unprotect: &policy.unprotect };
    let found = find_requests(state, rules, &asking, &policy.dynamic);
    for (request, found) in policy.dynamic.iter().zip(found) {
        match found {
            Ok(WantedBind { record, bind }) => plan.add(record, bind),
            Err(denial) if is_new => return Err(super::denied(&[denial])),
            Err(denial) => plan.records.push(SessionMount {
                state: MountState::Missing,
                code: Some(denial.code),
                reason: Some(denial.detail),
                ..record(request, None)
            }),
        }
    }
    if plan.binds.binds.len() > MOST_MOUNTS {
        let detail = format!("{} directories of the host are too many for one room", plan.binds.binds.len());
        return Err(Problem::limit("mounts", detail, &format!("{MOST_MOUNTS} are the most")[..]));
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, record: SessionMount, bind: Bind) {
        self.binds.writes_to_host |= !bind.read_only;
        self.records.push(record);
        self.binds.binds.push(bind);
    }

    fn add_given(&mut self, state: &Path, one: Given, protect: &[String]) -> Result<(), Problem> {
        let host_path = resolve::whole(&one.anchor, &one.beneath).display().to_string();
        let mut record = SessionMount {
            place: one.place,
            kind: one.kind,
            name: one.name,
            base: None,
            subpath: String::new(),
            mode: one.mode,
            state: MountState::Waiting,
            code: None,
            reason: None,
            host_path: Some(host_path),
        };
        let made = match one.kind {
            MountKind::Persistent => resolve::make(&one.anchor, &one.beneath)
                .map_err(|error| (DenialCode::ResolutionFailed, format!("it cannot be made: {error}"))),
            _ => Ok(()),
        };
        let found = made.and_then(|()| resolve::find(state, &one.anchor, &one.beneath));
        match found {
            Ok(judged) => {
                let bind = Bind {
                    anchor: one.anchor,
                    beneath: one.beneath,
                    judged,
                    target: PathBuf::from(&record.place),
                    read_only: one.mode == MountMode::Ro,
                    protect: protect.to_vec(),
                    hide: Vec::new(),
                };
                self.add(record, bind);
                Ok(())
            }
            Err((code, why)) if one.required => {
                let detail = format!("{} must be there and is not ({}): {why}", record.place, code.as_str());
                Err(Problem::new(ProblemCode::RoomSetup, detail, "tell the operator of this server"))
            }
            Err((code, why)) => {
                (record.state, record.code, record.reason) = (MountState::Missing, Some(code), Some(why));
                self.records.push(record);
                Ok(())
            }
        }
    }
}
