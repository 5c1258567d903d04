//! `workroom show`: everything about one session.

use crate::output::{ago, clean, count, sheet, span};
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::{output, which};
use serde_json::json;
use std::process::ExitCode;
use workroom_types::{Enforced, LayerState, OnExpiry, Policy, ProcessInfo, Session, Timestamp, format_bytes};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom show 0a1b --processes")]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    id: String,
    /// Also what runs in its room now
    #[arg(long)]
    processes: bool,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.id).await?;
        let session = client.session(&id).await?;
        let processes = if options.processes { Some(client.processes(&id).await?.in_room) } else { None };
        if options.json {
            print_json(&session, processes)?;
        } else {
            output::text(&page(&session, processes.as_deref(), Timestamp::now()))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn print_json(session: &Session, processes: Option<Vec<ProcessInfo>>) -> Result<(), Failure> {
    let mut document = json!(session);
    if let Some(processes) = processes {
        document["processes"] = json!(processes);
    }
    output::json(&document)
}

fn page(session: &Session, processes: Option<&[ProcessInfo]>, now: Timestamp) -> String {
    let mut page = sheet(&rows(session, now));
    page.push('\n');
    page.push_str(&layers(&session.enforced));
    if let Some(processes) = processes {
        page.push('\n');
        page.push_str(&process_table(processes));
    }
    page
}

fn rows(session: &Session, now: Timestamp) -> Vec<(&'static str, String)> {
    let labels: Vec<String> = session.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let channel = session.channel.as_ref().map(|channel| {
        let thread =
            channel.thread_id.as_ref().map(|thread| format!(", thread {thread}")).unwrap_or_default();
        format!("{}:{}{thread}", channel.channel_type, channel.platform_id)
    });
    let state = match &session.reason {
        Some(reason) => format!("{}: {reason}", session.state.as_str()),
        None => session.state.as_str().to_owned(),
    };
    let moment = |at: Timestamp| format!("{} ({} ago)", at.to_rfc3339(), ago(now, at));
    let so_far = [
        count(session.counters.execs, "command", "commands"),
        count(session.counters.starts, "room", "rooms"),
    ];
    let rows = [
        ("id", Some(session.id.clone())),
        ("name", Some(session.name.clone())),
        ("state", Some(state)),
        ("owner", Some(session.owner.clone())),
        ("labels", Some(labels.join(", "))),
        ("key", session.key.clone()),
        ("group", session.group.clone()),
        ("channel", channel),
        ("thread", session.thread.clone()),
        ("template", Some(session.template.clone())),
        ("created", Some(moment(session.created))),
        ("last active", Some(moment(session.last_active))),
        ("expires", Some(expiry(session))),
        ("limits", Some(limits(&session.policy))),
        ("must hold", Some(session.policy.require.join(", "))),
        ("may be missing", Some(session.policy.allow_missing.join(", "))),
        ("so far", Some(so_far.join(", "))),
    ];
    let said = |(name, value): (&'static str, Option<String>)| {
        value.filter(|value| !value.is_empty()).map(|value| (name, clean(&value).into_owned()))
    };
    rows.into_iter().filter_map(said).collect()
}

/// `1h after its creation or after 10m idle, then it is stopped`.
fn expiry(session: &Session) -> String {
    let ttl = session.ttl.map(|ttl| {
        let end = session.created.plus_seconds(ttl);
        format!("at {}", end.to_rfc3339())
    });
    let quiet =
        if session.keep_alive { " without any process" } else { " without a request and without work" };
    let idle = session.idle_timeout.map(|idle| format!("after {}{quiet}", span(idle)));
    let when: Vec<String> = ttl.into_iter().chain(idle).collect();
    if when.is_empty() {
        return "never".into();
    }
    let then = match session.on_expiry {
        OnExpiry::Stop => "stopped",
        OnExpiry::Pause => "paused",
        OnExpiry::Delete => "deleted",
    };
    format!("{}; it is then {then}", when.join(", or "))
}

fn limits(policy: &Policy) -> String {
    let memory = policy.memory.map(|bytes| format!("memory {}", format_bytes(bytes)));
    let cpus = policy.cpus_milli.map(|milli| format!("{} CPUs", milli as f64 / 1000.0));
    let pids = policy.pids.map(|pids| count(pids, "process", "processes"));
    let files = policy.open_files.map(|files| format!("{files} open files for each process"));
    let said: Vec<String> = [memory, cpus, pids, files].into_iter().flatten().collect();
    if said.is_empty() { "the server's own".into() } else { said.join(", ") }
}

fn layers(enforced: &Enforced) -> String {
    if enforced.0.is_empty() {
        return "It has no room now. What is enforced is known when it has one.\n".into();
    }
    let mut table = Table::new(&["layer", "in its room"]);
    for (layer, state) in &enforced.0 {
        let words = match state {
            LayerState::Enforced(by) => by.clone(),
            LayerState::Partial(how) => format!("partly: {how}"),
            LayerState::Missing(why) => format!("no: {why}"),
        };
        table.row([layer.name(), &clean(&words)]);
    }
    table.to_string()
}

fn process_table(processes: &[ProcessInfo]) -> String {
    if processes.is_empty() {
        return "Nothing runs in it.\n".into();
    }
    let mut table = Table::new(&["pid", "parent", "user", "state", "cpu", "memory", "command"]);
    for process in processes {
        table.row([
            &process.pid.to_string(),
            &process.parent.to_string(),
            &user(process.user),
            &process.state,
            &format!("{:.1}s", process.cpu_ms as f64 / 1000.0),
            &format_bytes(process.memory),
            &clean(&process.command),
        ]);
    }
    table.to_string()
}

fn user(id: u32) -> String {
    match id {
        0 => "root".into(),
        workroom_types::AGENT_ID => "agent".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::Layer;

    #[test]
    fn a_session_is_a_sheet() {
        let mut session = crate::ls::tests::a_session();
        session.enforced.set(Layer::Seccomp, LayerState::Enforced("allow-list".into()));
        session.enforced.set(Layer::Memory, LayerState::Missing("no cgroup".into()));
        let now = Timestamp::parse("2026-01-31T12:05:00Z").unwrap();
        let process = ProcessInfo {
            pid: 7,
            parent: 1,
            user: 1000,
            state: "S".into(),
            command: "sleep\t9".into(),
            cpu_ms: 1250,
            memory: 3 << 20,
        };
        assert_eq!(
            page(&session, Some(&[process]), now),
            "id           20260131-120000-0a1b2c3d\n\
             name         build\n\
             state        running\n\
             owner        ada\n\
             labels       team=search\n\
             template     host\n\
             created      2026-01-31T12:00:00.000Z (5m ago)\n\
             last active  2026-01-31T12:04:30.000Z (30s ago)\n\
             expires      at 2026-01-31T13:00:00.000Z; it is then stopped\n\
             limits       memory 2 GiB, 1024 processes\n\
             so far       3 commands, 1 room\n\
             \n\
             LAYER    IN ITS ROOM\n\
             seccomp  allow-list\n\
             memory   no: no cgroup\n\
             \n\
             PID  PARENT  USER   STATE  CPU   MEMORY  COMMAND\n\
             7    1       agent  S      1.2s  3 MiB   sleep\\t9\n"
        );
    }

    #[test]
    fn a_session_without_a_room_says_so() {
        let session = crate::ls::tests::a_session();
        assert!(page(&session, Some(&[]), Timestamp::now()).contains("It has no room now."));
    }
}
