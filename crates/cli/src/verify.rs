//! `workroom journal verify`: whether journals are as they were written, read from the state directory itself.

use crate::output;
use crate::remote::{Failure, block_on};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_store::{Fault, Verification};
use workroom_types::{Problem, ProblemCode};

/// What it ends with when a journal is not as it was written.
const EXIT_FAULTY: u8 = 1;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom journal verify --state /var/lib/workroom || echo 'look at this'"
)]
pub(crate) struct Options {
    /// One session's, by its whole id [default: all]
    #[arg(value_name = "SESSION")]
    id: Option<String>,
    /// The server's state directory; the server need not run [default: as for every verb]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON: {"sessions": N, "entries": N, "faults": [{"session", "seq", "what"}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let outcome = look(&options).and_then(|found| {
        show(&found, options.json)?;
        Ok(ExitCode::from(if found.faults.is_empty() { 0 } else { EXIT_FAULTY }))
    });
    outcome.unwrap_or_else(|failure| failure.report(options.json))
}

fn look(options: &Options) -> Result<Verification, Failure> {
    let dir = match &options.state {
        Some(dir) => dir.clone(),
        None => workroom_client::state_dir()?,
    };
    let found = block_on(async {
        workroom_store::verify_at(&dir, options.id.as_deref()).await.map_err(|error| {
            Failure::problem(format!("the journals in {} cannot be read: {error}", dir.display()), "")
        })
    })?;
    match &options.id {
        // Of what is not there nothing was verified: that is no pass.
        Some(id) if found.sessions == 0 && found.faults.is_empty() => Err(Problem::new(
            ProblemCode::NotFound,
            format!("there is no journal of a session \"{id}\" in {}", dir.display()),
            "name it by its whole id, which `workroom ls --all` shows, or name none to verify all",
        )
        .into()),
        _ => Ok(found),
    }
}

fn show(found: &Verification, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let faults: Vec<_> = found
            .faults
            .iter()
            .map(|fault| json!({"session": fault.session, "seq": fault.seq, "what": fault.what}))
            .collect();
        return output::json(&json!({
            "sessions": found.sessions, "entries": found.entries, "faults": faults
        }));
    }
    for fault in &found.faults {
        output::line(&line(fault))?;
    }
    if found.faults.is_empty() {
        let entries = output::count(found.entries, "entry", "entries");
        let sessions = output::count(found.sessions, "session", "sessions");
        output::line(&format!("{entries} of {sessions}: all as they were written"))?;
    }
    Ok(())
}

fn line(fault: &Fault) -> String {
    let place = fault.seq.map(|seq| format!(" entry {seq}")).unwrap_or_default();
    let line = format!("{}{place}: {}", fault.session, fault.what);
    output::clean(&line).into_owned()
}
