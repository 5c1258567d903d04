//! `workroom policy`: what a session may see, reach, use and know.

use crate::output::{self, clean, sheet};
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::which;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use workroom_engine::policy_from_toml;
use workroom_types::{LayerState, Policy, PolicyView, Problem, ServerPolicy, format_bytes};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom policy                      what your sessions are given, and may have\n  workroom policy build\n  workroom policy build --set policy.toml\n  echo 'memory = \"1G\"' | workroom policy build --set -"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Replace its document by this file, TOML or JSON; `-` for standard input
    #[arg(long, value_name = "FILE", requires = "session")]
    set: Option<String>,
    /// Only if the document is at this version
    #[arg(long, value_name = "N", requires = "set", allow_hyphen_values = true)]
    version: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let Some(session) = &options.session else {
            let policy = client.server_policy().await?;
            if options.json {
                output::json(&policy)?;
            } else {
                output::text(&server_page(&policy))?;
            }
            return Ok(ExitCode::SUCCESS);
        };
        let id = which::session(&client, session).await?;
        let view = match &options.set {
            Some(file) => client.set_policy(&id, &read(file)?, options.version).await?,
            None => client.policy(&id).await?,
        };
        if options.json {
            output::json(&view)?;
        } else {
            output::text(&page(&view))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn read(file: &str) -> Result<Policy, Failure> {
    let text = match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        path => std::fs::read_to_string(Path::new(path)),
    };
    let text = text.map_err(|error| Problem::invalid(format!("{file} cannot be read: {error}"), ""))?;
    if text.trim_start().starts_with('{') {
        let read = serde_json::from_str(&text);
        return Ok(read.map_err(|error| Problem::invalid(format!("{file} is no policy: {error}"), ""))?);
    }
    Ok(policy_from_toml(&text)?)
}

fn page(view: &PolicyView) -> String {
    let mut rows = vec![("version", view.version.to_string())];
    rows.extend(parts(&view.effective));
    if !view.pending.is_empty() {
        rows.push(("pending", format!("{}: after its next start", view.pending.join(", "))));
    }
    let mut page = sheet(&rows);
    if !view.enforced.0.is_empty() {
        let mut table = Table::new(&["layer", "in its room"]);
        for (layer, state) in &view.enforced.0 {
            let words = match state {
                LayerState::Enforced(by) => by.clone(),
                LayerState::Partial(how) => format!("partly: {how}"),
                LayerState::Missing(why) => format!("no: {why}"),
            };
            table.row([layer.name(), &clean(&words)]);
        }
        page.push('\n');
        page.push_str(&table.to_string());
    }
    page
}

fn server_page(policy: &ServerPolicy) -> String {
    let mut page = String::from("Unless a session says otherwise\n");
    page.push_str(&sheet(&parts(&policy.defaults)));
    if let Some(ceiling) = &policy.ceiling {
        let most = serde_json::to_string(ceiling).unwrap_or_default();
        page.push_str(&format!("\nAt most\n{most}\n"));
    }
    if let Some(file) = &policy.file {
        let there = if file.exists { "read" } else { "not there" };
        page.push_str(&format!("\n{} ({there})\n", clean(&file.path)));
        if let Some(fault) = &file.fault {
            page.push_str(&format!("It is wrong now, and what was read before holds: {}\n", clean(fault)));
        }
    }
    page
}

/// What a policy says, a row for each part.
fn parts(policy: &Policy) -> Vec<(&'static str, String)> {
    let json = |part: Option<String>| part.map(|text| clean(&text).into_owned());
    let rows = [
        ("memory", policy.memory.map(format_bytes)),
        ("cpus", policy.cpus_milli.map(|milli| (milli as f64 / 1000.0).to_string())),
        ("processes", policy.pids.map(|number| number.to_string())),
        ("open files", policy.open_files.map(|number| number.to_string())),
        ("disk", policy.disk.map(format_bytes)),
        ("inodes", policy.inodes.map(|number| number.to_string())),
        ("shm", policy.shm.map(format_bytes)),
        ("network", json(policy.network.as_ref().and_then(|part| serde_json::to_string(part).ok()))),
        ("mounts", json(policy.mounts.as_ref().and_then(|part| serde_json::to_string(part).ok()))),
        ("secrets", json(policy.secrets.as_ref().and_then(|part| serde_json::to_string(part).ok()))),
        ("must hold", Some(policy.require.join(", ")).filter(|names| !names.is_empty())),
        ("may be missing", Some(policy.allow_missing.join(", ")).filter(|names| !names.is_empty())),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_sheet() {
        let view = PolicyView {
            version: 3,
            changed: workroom_types::Timestamp::now(),
            policy: Policy::default(),
            effective: Policy { memory: Some(1 << 30), cpus_milli: Some(1500), ..Policy::default() },
            ceiling: None,
            enforced: workroom_types::Enforced::default(),
            pending: vec!["memory".into()],
        };
        assert_eq!(
            page(&view),
            "version  3\nmemory   1 GiB\ncpus     1.5\npending  memory: after its next start\n"
        );
    }
}
