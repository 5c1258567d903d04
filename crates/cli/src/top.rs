//! `workroom top`: what sessions use, as a table that follows them.

use crate::output;
use crate::output::clean;
use crate::remote::{Failure, perform};
use crate::table::Table;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use workroom_types::{ListUsage, UsageList, UsageRow, UsageSort, format_bytes, parse_duration};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  workroom top --sort memory\n  workroom top --once --json")]
pub(crate) struct Options {
    /// What the largest come first of
    #[arg(long, value_name = "FIGURE", default_value = "cpu", value_parser = ["cpu", "memory", "pids", "disk", "output"])]
    sort: String,
    /// How many sessions
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), allow_hyphen_values = true)]
    limit: u32,
    /// How often to look again
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration, allow_hyphen_values = true)]
    every: Duration,
    /// Print it once; without a terminal that is all there is
    #[arg(long)]
    once: bool,
    /// Print JSON, one document for each look
    #[arg(long)]
    json: bool,
}

/// To the upper left, and nothing below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Faster than this nobody reads.
const SHORTEST: Duration = Duration::from_millis(200);

pub(crate) fn run(options: Options) -> ExitCode {
    let sort = match options.sort.as_str() {
        "memory" => UsageSort::Memory,
        "pids" => UsageSort::Pids,
        "disk" => UsageSort::Disk,
        "output" => UsageSort::Output,
        _ => UsageSort::Cpu,
    };
    let query = ListUsage { sort: Some(sort), limit: Some(options.limit) };
    let on_terminal = std::io::stdout().is_terminal();
    let once = options.once || !on_terminal && !options.json;
    perform(options.json, async |client| {
        loop {
            let list = client.usage_list(query).await?;
            print(&list, options.json, on_terminal && !once)?;
            if once {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(options.every.max(SHORTEST)).await;
        }
    })
}

fn print(list: &UsageList, as_json: bool, in_place: bool) -> Result<(), Failure> {
    if as_json {
        return output::json(list);
    }
    let clear = if in_place { CLEAR } else { "" };
    output::text(&format!("{clear}{}", page(list)))
}

fn page(list: &UsageList) -> String {
    let shown = list.sessions.len() as u64;
    let head = match list.live {
        0 => return "no session has a room\n".into(),
        live if live > shown => format!("{shown} of {live} sessions with a room\n\n"),
        live => format!("{}\n\n", output::count(live, "session with a room", "sessions with a room")),
    };
    let mut table =
        Table::new(&["session", "name", "owner", "state", "cpu", "time", "memory", "pids", "disk", "output"]);
    list.sessions.iter().for_each(|row| add(&mut table, row));
    format!("{head}{table}")
}

fn add(table: &mut Table, row: &UsageRow) {
    let now = row.now.unwrap_or_default();
    let of = |used: Option<u64>, most: Option<u64>| match (used.map(format_bytes), most.map(format_bytes)) {
        (Some(used), Some(most)) => format!("{used}/{most}"),
        (Some(used), None) => used,
        (None, _) => "-".into(),
    };
    let pids = match (now.pids, row.limits.pids) {
        (Some(used), Some(most)) => format!("{used}/{most}"),
        (Some(used), None) => used.to_string(),
        (None, _) => "-".into(),
    };
    table.row([
        &row.session,
        &clean(&row.name),
        &clean(&row.owner),
        row.state.as_str(),
        &format!("{}.{}%", row.cpu_milli / 10, row.cpu_milli % 10),
        &format!("{}.{:02}s", now.cpu_ms / 1000, now.cpu_ms % 1000 / 10),
        &of(now.memory, row.limits.memory),
        &pids,
        &of(now.disk, row.limits.disk),
        &format_bytes(now.output),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::{SessionState, UsageLimits, UsagePoint};

    #[test]
    fn figures_stand_beside_their_limits_and_what_is_not_known_is_a_dash() {
        let now = UsagePoint { cpu_ms: 1234, memory: Some(3 << 20), pids: Some(7), ..UsagePoint::default() };
        let limits = UsageLimits { memory: Some(2 << 30), ..UsageLimits::default() };
        let row = UsageRow {
            session: "s1".into(),
            name: "build".into(),
            owner: "ann".into(),
            state: SessionState::Running,
            cpu_milli: 525,
            now: Some(now),
            limits,
        };
        let page = page(&UsageList { sessions: vec![row], live: 3 });
        assert!(page.starts_with("1 of 3 sessions"), "{page}");
        let line = page.lines().last().unwrap_or_default();
        for part in ["52.5%", "1.23s", "/", " 7 ", " - "] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
