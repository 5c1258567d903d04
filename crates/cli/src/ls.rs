//! `workroom ls`: the sessions, newest first.

use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{arguments, output};
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{ListSessions, Session, SessionPage, SessionState, Timestamp};

/// The most that a server gives at once.
const LARGEST_PAGE: u64 = 1000;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom ls --state running --label team=search")]
pub(crate) struct Options {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = arguments::state)]
    state: Option<SessionState>,
    /// Only those with this label
    #[arg(long, value_name = "K[=V]")]
    label: Option<String>,
    /// Only this owner's
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Only those of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only slots of this pool; '*' shows slots of pools too
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..), allow_hyphen_values = true)]
    limit: u64,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Print JSON: {"sessions": […], "next": …}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let found = collect(&client, &options).await?;
        if options.json {
            output::json(&found)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::text(&table(&found.sessions, Timestamp::now()))?;
        if found.next.is_some() {
            complain(&format!("these are the newest {}; --all shows all of them", found.sessions.len()));
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn collect(client: &Client, options: &Options) -> Result<SessionPage, Failure> {
    let mut found = SessionPage { sessions: Vec::new(), next: None };
    let wanted = if options.all { u64::MAX } else { options.limit };
    loop {
        let left = wanted - found.sessions.len() as u64;
        let filter = ListSessions {
            state: options.state,
            label: options.label.clone(),
            owner: options.owner.clone(),
            group: options.group.clone(),
            pool: options.pool.clone(),
            limit: Some(left.min(LARGEST_PAGE) as u32),
            cursor: found.next.take(),
        };
        let page = client.list(&filter).await?;
        let over = page.sessions.is_empty();
        found.sessions.extend(page.sessions);
        found.next = page.next;
        if over || found.next.is_none() || found.sessions.len() as u64 >= wanted {
            return Ok(found);
        }
    }
}

fn table(sessions: &[Session], now: Timestamp) -> String {
    let mut table = Table::new(&["id", "name", "state", "age", "idle", "owner"]);
    for session in sessions {
        table.row([
            &session.id,
            &output::clean(&session.name),
            session.state.as_str(),
            &output::ago(now, session.created),
            &output::ago(now, session.last_active),
            &output::clean(&session.owner),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn a_session() -> Session {
        serde_json::from_value(json!({
            "id": "20260131-120000-0a1b2c3d", "name": "build", "labels": {"team": "search"}, "owner": "ada",
            "template": "host", "policy": {"memory": 2147483648u64, "pids": 1024}, "state": "running",
            "created": "2026-01-31T12:00:00.000Z", "last_active": "2026-01-31T12:04:30.000Z",
            "ttl": 3600, "on_expiry": "stop", "keep_alive": false, "enforced": workroom_types::Enforced::default(),
            "counters": {"execs": 3, "starts": 1}
        }))
        .expect("a session")
    }

    #[test]
    fn sessions_are_a_table() {
        let other = Session { name: "\x1b[31mred".into(), state: SessionState::Stopped, ..a_session() };
        let now = Timestamp::parse("2026-01-31T12:05:00Z").unwrap();
        assert_eq!(
            table(&[a_session(), other], now),
            "ID                        NAME           STATE    AGE  IDLE  OWNER\n\
             20260131-120000-0a1b2c3d  build          running  5m   30s   ada\n\
             20260131-120000-0a1b2c3d  \\u{1b}[31mred  stopped  5m   30s   ada\n"
        );
    }
}
