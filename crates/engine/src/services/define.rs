//! What a service may be: its name, its fields, what it depends on; and what of it a room is told.

use super::board::Board;
use crate::processes::plan::{SpawnPlan, new_id, plan};
use crate::shared::Shared;
use crate::validate;
use std::time::Duration;
use workroom_types::{Backoff, Problem, ProcessKind, Readiness, RoomPath, ServiceSpec, StartProcess};

/// Milliseconds: a day.
const LONGEST: u64 = 24 * 3600 * 1000;

const MOST_DEPENDENCIES: usize = 64;

/// The most bytes of a path that is asked for over HTTP.
const LONGEST_URL: usize = 2048;

pub(super) fn name(name: &str) -> Result<(), Problem> {
    let refuse = |why: String| {
        let hint = "names are 1 to 64 letters, digits, ., _ and -, and begin with a letter or digit";
        Err(Problem::invalid(format!("\"{}\" is not a service's name: {why}", validate::shown(name)), hint))
    };
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name.chars().next() {
        None => refuse("it is empty".into()),
        Some(first) if !first.is_ascii_alphanumeric() => refuse(format!("it begins with {first:?}")),
        Some(_) => match name.chars().find(|c| !is_inner(*c)) {
            Some(wrong) => refuse(format!("it has a {wrong:?} in it")),
            None if name.len() > 64 => refuse(format!("it has {} characters", name.len())),
            None => Ok(()),
        },
    }
}

/// Everything about a definition that can be known without its session.
pub(super) fn check(spec: &ServiceSpec, name: &str, shared: &Shared) -> Result<(), Problem> {
    for (field, value, least) in [
        ("ready_timeout_ms", spec.ready_timeout_ms, 1),
        ("ready_interval_ms", spec.ready_interval_ms, 10),
        ("stop_timeout_ms", spec.stop_timeout_ms, 0),
    ] {
        within(field, value, least)?;
    }
    if let Some(Backoff { initial_ms, max_ms, factor, reset_after_ms, most_restarts }) = spec.backoff {
        within("backoff.initial_ms", initial_ms, 1)?;
        within("backoff.max_ms", max_ms, 1)?;
        within("backoff.reset_after_ms", reset_after_ms, 1)?;
        if let Some(factor) = factor.filter(|factor| !(1.0..=100.0).contains(factor)) {
            return Err(Problem::invalid(format!("backoff.factor {factor} is outside 1 to 100"), ""));
        }
        if let Some(most) = most_restarts.filter(|most| *most > 1_000_000) {
            return Err(Problem::invalid(
                format!("backoff.most_restarts {most} is more than 1000000"),
                "use restart: never for none",
            ));
        }
    }
    match &spec.readiness {
        Some(Readiness::Tcp(0)) => return Err(no_port()),
        Some(Readiness::Http(http)) => {
            if http.port == 0 {
                return Err(no_port());
            }
            let path = http.path.as_deref().unwrap_or("/");
            let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
            if !path.starts_with('/') || !is_plain || path.len() > LONGEST_URL {
                return Err(Problem::invalid(
                    format!("readiness.http.path \"{}\" is not a path of a URL", validate::shown(path)),
                    "begin it with /, and escape what is not plain ASCII",
                ));
            }
        }
        Some(Readiness::File(path)) if path.is_empty() => {
            return Err(Problem::invalid("readiness.file is empty", "name a file"));
        }
        Some(Readiness::File(_)) => {
            RoomPath::parse(&ready_file(spec), true)?;
        }
        Some(Readiness::Command(command)) => {
            if command.is_empty() || command.contains('\0') {
                return Err(Problem::invalid("readiness.command is empty or has a NUL in it", ""));
            }
        }
        Some(Readiness::Tcp(_)) | None => {}
    }
    // All that a process has to be is checked as for any other.
    spawn_plan(spec, name, shared, "").map(drop)
}

fn within(field: &str, value: Option<u64>, least: u64) -> Result<(), Problem> {
    match value {
        Some(value) if !(least..=LONGEST).contains(&value) => {
            Err(Problem::invalid(format!("{field} {value} is outside {least} to {LONGEST}"), ""))
        }
        _ => Ok(()),
    }
}

fn no_port() -> Problem {
    Problem::invalid("readiness names port 0, which nothing can listen on", "name a port from 1 to 65535")
}

/// They are there, and none of them needs this one.
pub(super) fn dependencies(board: &Board, own: &str, names: &[String]) -> Result<(), Problem> {
    if names.len() > MOST_DEPENDENCIES {
        return Err(Problem::invalid(
            format!("{} dependencies are more than {MOST_DEPENDENCIES}", names.len()),
            "",
        ));
    }
    for dependency in names {
        name(dependency)?;
        if dependency != own && board.slot(dependency).is_none() {
            return Err(Problem::invalid(
                format!("{own} depends on the service {dependency}, which there is not"),
                "define what it depends on first",
            ));
        }
        if let Some(way) = way_to(board, dependency, own, &mut Vec::new()) {
            return Err(Problem::invalid(
                format!("{own} would depend on itself: {own} → {}", way.join(" → ")),
                "leave one of these out of depends_on",
            ));
        }
    }
    Ok(())
}

/// From one service to another that it needs, directly or not.
fn way_to(board: &Board, from: &str, to: &str, seen: &mut Vec<String>) -> Option<Vec<String>> {
    if from == to {
        return Some(vec![to.to_owned()]);
    }
    if seen.iter().any(|known| known == from) {
        return None;
    }
    seen.push(from.to_owned());
    board.dependencies(from).iter().find_map(|next| {
        let way = way_to(board, next, to, seen)?;
        Some([vec![from.to_owned()], way].concat())
    })
}

/// The process of a run.
pub(super) fn spawn_plan(
    spec: &ServiceSpec,
    name: &str,
    shared: &Shared,
    actor: &str,
) -> Result<SpawnPlan, Problem> {
    let request = StartProcess {
        command: spec.command.clone(),
        argv: spec.argv.clone(),
        cwd: spec.cwd.clone(),
        env: spec.env.clone(),
        secret_env: spec.secret_env.clone(),
        user: spec.user,
        keep_output: spec.keep_output,
        ..StartProcess::default()
    };
    let kind = ProcessKind::Service;
    let mut plan = plan(request, kind, new_id(kind)?, &shared.config.processes, shared.machine, actor)?;
    plan.memo.process.name = Some(name.to_owned());
    Ok(plan)
}

/// The file that says that it is ready, from the room's root.
pub(super) fn ready_file(spec: &ServiceSpec) -> String {
    let Some(Readiness::File(path)) = &spec.readiness else { return String::new() };
    if path.starts_with('/') {
        return path.clone();
    }
    format!("{}/{path}", spec.cwd.as_deref().unwrap_or(workroom_types::WORKSPACE))
}

fn milliseconds(value: Option<u64>, usual: u64) -> Duration {
    Duration::from_millis(value.unwrap_or(usual))
}

pub(super) fn ready_timeout(spec: &ServiceSpec) -> Duration {
    milliseconds(spec.ready_timeout_ms, 30_000)
}

pub(super) fn ready_interval(spec: &ServiceSpec) -> Duration {
    milliseconds(spec.ready_interval_ms, 500)
}

pub(super) fn stop_timeout(spec: &ServiceSpec) -> Duration {
    milliseconds(spec.stop_timeout_ms, 5000)
}

/// A run that was as long as this is no part of a crash loop.
pub(super) fn reset_after(spec: &ServiceSpec) -> Duration {
    milliseconds(spec.backoff.unwrap_or_default().reset_after_ms, 60_000)
}

pub(super) fn most_restarts(spec: &ServiceSpec) -> u32 {
    spec.backoff.unwrap_or_default().most_restarts.unwrap_or(5)
}

/// How long to wait before a restart, the first one being 1.
pub(super) fn pause_before(spec: &ServiceSpec, restart: u32) -> Duration {
    let backoff = spec.backoff.unwrap_or_default();
    let initial = backoff.initial_ms.unwrap_or(500) as f64;
    let most = backoff.max_ms.unwrap_or(30_000).max(backoff.initial_ms.unwrap_or(1)) as f64;
    let factor = backoff.factor.unwrap_or(2.0);
    let exponent = i32::try_from(restart.saturating_sub(1)).unwrap_or(i32::MAX);
    Duration::from_millis((initial * factor.powi(exponent)).min(most) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_what_is_wrong_with_it() {
        for right in ["a", "web-1", "DB.main_2", &"x".repeat(64)] {
            assert!(name(right).is_ok(), "{right}");
        }
        for (wrong, why) in [
            ("", "empty"),
            ("-a", "begins with '-'"),
            (".hidden", "begins with '.'"),
            ("a b", "' '"),
            ("café", "'é'"),
            ("a/b", "'/'"),
            (&"x".repeat(65), "65 characters"),
        ] {
            let problem = name(wrong).expect_err(wrong);
            assert!(problem.status == 400 && problem.detail.contains(why), "{problem}");
        }
    }

    #[test]
    fn pauses_grow_up_to_their_most() {
        let backoff = |initial_ms, max_ms, factor| ServiceSpec {
            backoff: Some(Backoff { initial_ms, max_ms, factor, ..Backoff::default() }),
            ..ServiceSpec::default()
        };
        let pauses = |spec: &ServiceSpec| [1, 2, 3, 4, 1000].map(|n| pause_before(spec, n).as_millis());
        assert_eq!(pauses(&ServiceSpec::default()), [500, 1000, 2000, 4000, 30_000]);
        assert_eq!(pauses(&backoff(Some(10), Some(50), Some(3.0))), [10, 30, 50, 50, 50]);
        assert_eq!(pauses(&backoff(Some(100), Some(5), None)), [100; 5], "never less than the first");
    }

    #[test]
    fn a_ready_file_is_of_the_room_or_of_the_working_directory() {
        let file = |path: &str, cwd: Option<&str>| {
            ready_file(&ServiceSpec {
                readiness: Some(Readiness::File(path.into())),
                cwd: cwd.map(str::to_owned),
                ..ServiceSpec::default()
            })
        };
        assert_eq!(file("/tmp/up", None), "/tmp/up");
        assert_eq!(file("up", None), "/workspace/up");
        assert_eq!(file("up", Some("/srv")), "/srv/up");
    }
}
