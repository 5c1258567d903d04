//! The `workroom` binary: one file per verb.
#![forbid(unsafe_code)]

mod attack;
mod capture;
mod config;
mod doctor;
mod plan;
mod relay;
mod result;
mod run;
mod screen;
mod stream;
mod table;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use workroom_room::Spawner;
use workroom_sys::origin::ask_command_line;

/// What `workroom` ends with when it could not do what it was asked to.
const EXIT_FAULT: u8 = 125;

#[derive(Parser)]
#[command(name = "workroom", version, about = "Private computers for AI agents, on a plain Linux box")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run one command in a fresh room and end the room with it
    Run(Box<run::Options>),
    /// Show what this machine offers and which layers rooms have here
    Doctor(doctor::Options),
    /// Inside a room: run one hostile probe
    #[command(hide = true)]
    AttackProbe { case: String },
    /// Inside a room: be what a neighbour attacks
    #[command(hide = true)]
    AttackNeighbour { canary: String, abstract_name: String },
}

fn main() -> ExitCode {
    // First of all, before anything is allocated or opened: a spawner is a clean copy of this program.
    workroom_room::run_if_spawner();
    // A room is under way before the options are read: what they hold is then not in the spawner's memory.
    let wants_room = ask_command_line(|_, verb| verb == b"run").unwrap_or(false);
    let spawner = wants_room.then(Spawner::clone_first_thing);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse_arguments(&error),
    };
    match cli.verb {
        Verb::Run(options) => run::run(*options, spawner),
        Verb::Doctor(options) => doctor::run(options),
        Verb::AttackProbe { case } => attack::probe(&case),
        Verb::AttackNeighbour { canary, abstract_name } => attack::neighbour(&canary, &abstract_name),
    }
}

/// Help goes out as it is; a mistake becomes one sentence.
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(EXIT_FAULT) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let sentence: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let sentence = sentence.join(" ");
    eprintln!(
        "workroom: {}; see `workroom --help` and `workroom VERB --help`",
        sentence.trim_start_matches("error: ")
    );
    ExitCode::from(EXIT_FAULT)
}
