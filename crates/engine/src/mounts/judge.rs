//! Whether an owner's session may have the directories that it asks for: a question of words alone.
//!
//! ```text
//!  feature ▸ alias ▸ how many ▸ base ▸ whose ▸ characters ▸ patterns ▸ depth ▸ blocked everywhere ▸ allowed ▸
//!  blocked here ▸ mode ▸ (resolve.rs) is it there
//! ```

use crate::operator::mounts::{MountBase, MountRules, has_control, is_alias, pattern};
use std::path::{Path, PathBuf};
use workroom_types::{DenialCode, MountDenial, MountMode, MountRequest};

/// Who asks, and what the session has already.
pub(crate) struct Asking<'a> {
    pub(crate) owner: &'a str,
    /// Aliases of its dynamic mounts.
    pub(crate) has: &'a [String],
    /// Protected paths that its policy opens.
    pub(crate) unprotect: &'a [String],
}

/// A request that may be granted if what it names is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) request: MountRequest,
    pub(crate) anchor: PathBuf,
    pub(crate) beneath: PathBuf,
}

type Judged = Result<Allowed, MountDenial>;

/// Judges all of them, each by itself.
pub(crate) fn judge(
    rules: Option<&MountRules>,
    asking: &Asking<'_>,
    requests: &[MountRequest],
) -> Vec<Judged> {
    let mut judged = Vec::with_capacity(requests.len());
    for (number, request) in requests.iter().enumerate() {
        let before = &requests[..number];
        let verdict = judge_one(rules, asking, request, before).map_err(|(code, detail)| MountDenial {
            code,
            alias: crate::validate::shown(&request.alias),
            detail,
        });
        judged.push(verdict);
    }
    judged
}

type Verdict<T> = Result<T, (DenialCode, String)>;

fn judge_one(
    rules: Option<&MountRules>,
    asking: &Asking<'_>,
    request: &MountRequest,
    before: &[MountRequest],
) -> Verdict<Allowed> {
    let Some(rules) = rules.filter(|rules| rules.enabled) else {
        return Err((DenialCode::FeatureDisabled, "the operator of this server offers no mounts".into()));
    };
    judge_alias(rules, asking, &request.alias, before)?;
    let shown = crate::validate::shown(&request.base);
    let base = rules.bases.get(&request.base).ok_or_else(|| {
        (
            DenialCode::BaseNotFound,
            format!("there is no base \"{shown}\"; GET /v1/mounts lists those that there are"),
        )
    })?;
    if !base.is_for(asking.owner) {
        let owner = crate::validate::shown(asking.owner);
        return Err((DenialCode::NotAuthorized, format!("the base {shown} is not for {owner}")));
    }
    let Some((anchor, own)) = base.path.of(asking.owner) else {
        return Err((
            DenialCode::NotAuthorized,
            format!("the base {shown} has a directory for each user, and your name cannot be one's"),
        ));
    };
    judge_subpath(rules, &request.subpath)?;
    let subpath = request.subpath.trim_end_matches('/');
    let beneath = if subpath.is_empty() { own } else { own.join(subpath) };
    if is_blocked_everywhere(rules, subpath, &anchor.join(&beneath)) {
        let subpath = crate::validate::shown(subpath);
        return Err((DenialCode::GlobalBlocked, format!("the operator gives \"{subpath}\" to nobody")));
    }
    judge_place(base, &shown, subpath)?;
    judge_mode(rules, asking, base, request)?;
    Ok(Allowed { request: request.clone(), anchor, beneath })
}

fn judge_alias(rules: &MountRules, asking: &Asking<'_>, alias: &str, before: &[MountRequest]) -> Verdict<()> {
    let shown = crate::validate::shown(alias);
    if !is_alias(alias) {
        return Err((
            DenialCode::InvalidCharacters,
            format!("\"{shown}\" is not an alias: those are 1 to 64 letters, digits, ., _ and -"),
        ));
    }
    if rules.reserved_aliases.iter().any(|reserved| reserved == alias) {
        return Err((DenialCode::ReservedAlias, format!("{shown} is something else's name; choose another")));
    }
    if before.iter().any(|other| other.alias == alias) {
        return Err((DenialCode::DuplicateAlias, format!("{shown} is asked for twice")));
    }
    if asking.has.iter().any(|other| other == alias) {
        return Err((
            DenialCode::AlreadyExists,
            format!("the session has a mount {shown}; unmount it first"),
        ));
    }
    let count = asking.has.len() + before.len() + 1;
    if count as u64 > rules.max_per_session {
        let most = rules.max_per_session;
        return Err((DenialCode::TooMany, format!("a session may have {most} mounts of this kind at most")));
    }
    Ok(())
}

fn judge_subpath(rules: &MountRules, subpath: &str) -> Verdict<()> {
    let shown = crate::validate::shown(subpath);
    if has_control(subpath) || subpath.contains('\\') || subpath.len() > 4096 {
        return Err((
            DenialCode::InvalidCharacters,
            format!("\"{shown}\" has characters that no path here has"),
        ));
    }
    let path = subpath.trim_end_matches('/');
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.starts_with('~');
    let is_odd = subpath.starts_with('/') || !path.is_empty() && path.split('/').any(odd);
    if is_odd || rules.dangerous.iter().any(|piece| !piece.is_empty() && subpath.contains(piece.as_str())) {
        return Err((
            DenialCode::DangerousPattern,
            format!("\"{shown}\" is not a plain path beneath the base, such as a/b"),
        ));
    }
    let depth = path.split('/').filter(|part| !part.is_empty()).count() as u64;
    if depth > rules.max_depth {
        let most = rules.max_depth;
        return Err((
            DenialCode::MaxDepthExceeded,
            format!("\"{shown}\" is {depth} directories deep, and {most} are the most"),
        ));
    }
    Ok(())
}

/// Names are looked for in what was asked for; what the operator wrote as the base is the operator's. Paths are looked
/// for in the whole.
fn is_blocked_everywhere(rules: &MountRules, subpath: &str, whole: &Path) -> bool {
    let matches =
        |text: &str, what: &Path| pattern(text).is_ok_and(|glob| glob.compile_matcher().is_match(what));
    rules.blocked.iter().any(|text| match text.contains('/') {
        true => whole.ancestors().any(|part| matches(text, part)),
        false => subpath.split('/').any(|part| matches(text, Path::new(part))),
    })
}

/// The path itself and those that it lies in, the longest first; not the base.
fn ways(subpath: &str) -> impl Iterator<Item = &Path> {
    Path::new(subpath).ancestors().filter(|path| !path.as_os_str().is_empty())
}

/// How long the longest way is that a pattern means, if there is one: a pattern means what it matches and all in it.
fn reach(patterns: &[String], subpath: &str) -> Option<usize> {
    let reaches = |path: &&Path| {
        patterns.iter().any(|text| {
            pattern(text.trim_end_matches('/')).is_ok_and(|glob| glob.compile_matcher().is_match(path))
        })
    };
    ways(subpath).find(reaches).map(|path| path.components().count())
}

fn judge_place(base: &MountBase, name: &str, subpath: &str) -> Verdict<()> {
    let shown = crate::validate::shown(subpath);
    let excepted = reach(&base.except, subpath);
    if !base.allow.is_empty() && excepted.is_none() && reach(&base.allow, subpath).is_none() {
        return Err((
            DenialCode::NotInAllowlist,
            format!("\"{shown}\" is not among what the base {name} gives: {}", base.allow.join(", ")),
        ));
    }
    // The nearer word counts: what is excepted may have something blocked in it again.
    if let Some(blocked) = reach(&base.block, subpath)
        && excepted.is_none_or(|excepted| excepted < blocked)
    {
        return Err((DenialCode::BlockedByBase, format!("the base {name} does not give \"{shown}\"")));
    }
    // A directory is given with all that is in it.
    let inside = |text: &&String| {
        let is_plain = !text.contains(['*', '?', '[', '{', '\\']);
        is_plain && (subpath.is_empty() || Path::new(text.as_str()).starts_with(subpath))
    };
    match base.block.iter().find(inside) {
        Some(blocked) => Err((
            DenialCode::BlockedByBase,
            format!(
                "{blocked} is in it, which the base {name} does not give; ask for a directory beside that"
            ),
        )),
        None => Ok(()),
    }
}

fn judge_mode(
    rules: &MountRules,
    asking: &Asking<'_>,
    base: &MountBase,
    request: &MountRequest,
) -> Verdict<()> {
    if request.mode > base.max_mode {
        let name = crate::validate::shown(&request.base);
        return Err((DenialCode::ModeExceedsMax, format!("the base {name} is given read-only: ask for ro")));
    }
    if request.mode == MountMode::Ro {
        return Ok(());
    }
    let guarded = protected(rules, asking.unprotect);
    let firsts = guarded.iter().filter_map(|path| path.split('/').next());
    match firsts.into_iter().find(|first| request.subpath.split('/').any(|part| part == *first)) {
        Some(first) => Err((
            DenialCode::ModeExceedsMax,
            format!("{first} is protected from writing: ask for ro, or unprotect it in the session's policy"),
        )),
        None => Ok(()),
    }
}

/// What stays as it is in writable directories of a session.
pub(crate) fn protected(rules: &MountRules, unprotect: &[String]) -> Vec<String> {
    let bare = |path: &str| path.trim_end_matches('/').to_owned();
    let open: Vec<String> = unprotect.iter().map(|path| bare(path)).collect();
    let is_open = |path: &str| {
        let path = bare(path);
        open.iter().any(|open| path == *open || path.starts_with(&format!("{open}/")))
    };
    rules.protect.iter().filter(|path| !is_open(path)).cloned().collect()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
