//! `workroom run`: one command in a fresh room, which ends with it.

use crate::output;
use crate::plan::Plan;
use crate::relay::{self, Ended};
use crate::remote::Failure;
use crate::result::RunResult;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use workroom_room::Spawner;
use workroom_types::RoomError;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom run --memory 512M --timeout 30s --workspace . -- python3 main.py"
)]
pub(crate) struct Options {
    /// End the room after this long (500ms, 30s, 5m); exit status 124
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,
    /// Memory of all processes together (512M, 2G) [default: 2G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,
    /// CPU time, in CPUs (0.5, 2) [default: no limit]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) cpus: Option<String>,
    /// Processes and threads [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64), allow_hyphen_values = true)]
    pub(crate) pids: Option<u64>,
    /// What the room may write outside its mounts; it lives in memory [default: 1G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) disk: Option<String>,
    /// The network: `none`. A session has more: `workroom create --net`
    #[arg(long, value_name = "NET", default_value = "none", value_parser = only_none)]
    pub(crate) net: String,
    /// Set an environment variable; the room has none of the caller's
    #[arg(long, value_name = "K=V")]
    pub(crate) env: Vec<String>,
    /// Where in the room the command starts
    #[arg(long, value_name = "DIR", default_value = "/workspace")]
    pub(crate) workdir: String,
    /// Who the command runs as; neither has any capability
    #[arg(long, value_name = "USER", default_value = "agent", value_parser = ["root", "agent"])]
    pub(crate) user: String,
    /// Show a host directory as /workspace
    #[arg(long, value_name = "DIR[:ro]")]
    pub(crate) workspace: Option<String>,
    /// Show a host path read-only, here or elsewhere in the room (a toolchain outside /usr)
    #[arg(long, value_name = "PATH[:PLACE]")]
    pub(crate) ro: Vec<String>,
    /// Refuse to run unless these layers hold (see `workroom doctor`)
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    pub(crate) require: Vec<String>,
    /// Run even if this machine lacks these layers
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    pub(crate) allow_missing: Vec<String>,
    /// Leave a layer out, to see that something goes red without it
    #[arg(long, value_name = "LAYER", value_delimiter = ',', hide = true)]
    pub(crate) without: Vec<String>,
    /// Give the command a terminal [default: when stdin and stdout are terminals]
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the command no terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// Print one JSON object with the result and the output, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Rooms that end with their command have no network process beside them.
fn only_none(text: &str) -> Result<String, String> {
    match text {
        "none" | "off" => Ok("none".to_owned()),
        _ => Err(format!(
            "a room of `workroom run` has no network; make a session that has: `workroom create --net {text}`, then `workroom exec`"
        )),
    }
}

pub(crate) fn run(options: Options, spawner: Option<Result<Spawner, RoomError>>) -> ExitCode {
    let json = options.json;
    let started = Instant::now();
    let mut result = match Plan::from_options(options).and_then(|plan| in_room(&plan, spawner)) {
        Ok(ended) => RunResult::ended(ended),
        Err(error) => RunResult::failed(error),
    };
    result.duration_ms = started.elapsed().as_micros() as f64 / 1000.0;
    if json {
        match output::json(&result) {
            // A reader that has gone away has had enough.
            Ok(()) | Err(Failure::ReaderGone) => {}
            Err(Failure::Error(error)) => {
                output::complain(&error.to_string());
                return ExitCode::from(crate::EXIT_FAULT);
            }
        }
    } else if let Some(error) = &result.error {
        output::complain(&error.to_string());
    } else if result.timed_out {
        output::complain(&format!("the command was ended after its time of {}", result.timeout_words()));
    }
    ExitCode::from(result.status())
}

/// Longer than any room takes to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// From nothing to nothing: whatever happens in between, the room is gone when this returns.
fn in_room(plan: &Plan, spawner: Option<Result<Spawner, RoomError>>) -> Result<Ended, RoomError> {
    let spawner = spawner.unwrap_or_else(Spawner::start)?;
    spawner.inherit_rooms()?;
    let room = spawner.create(&plan.room)?;
    let ended = relay::run(plan, &spawner, &room);
    room.kill();
    let _ = room.wait(PATIENCE);
    drop(room);
    let finished = spawner.finish();
    let ended = ended?;
    finished?;
    Ok(ended)
}
