//! The `workroom` binary: one file per verb.
#![forbid(unsafe_code)]

mod arguments;
mod attack;
mod batch;
mod capture;
mod cat;
mod config;
mod cp;
mod create;
mod diff;
mod doctor;
mod edit;
mod events;
mod exec;
mod files;
mod fork;
mod gc;
mod grep;
mod journal;
mod lifecycle;
mod ls;
mod merge;
mod mounts;
mod net;
mod output;
mod patch;
mod place;
mod plan;
mod policy;
mod pool;
mod port;
mod processes;
mod progress;
mod recordings;
mod relay;
mod remote;
mod replay;
mod reset;
mod result;
mod run;
mod screen;
mod secret;
mod seed;
mod serve;
mod service;
mod sh;
mod shell;
mod show;
mod slots;
mod snapshot;
mod stream;
mod table;
mod terminal;
mod token;
mod top;
mod transfer;
mod tree;
mod verify;
mod watch;
mod which;

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
    /// Keep sessions: listen for requests until told to end
    Serve(serve::Options),
    /// Serve slots to trainers that speak the slot-server API
    Slots(Box<slots::Options>),
    /// Make a session on the server and print its id
    Create(Box<create::Options>),
    /// List the sessions, newest first
    Ls(ls::Options),
    /// Show everything about a session
    Show(show::Options),
    /// Run one command in a session
    Exec(Box<exec::Options>),
    /// Start a process in a session that goes on by itself
    Spawn(Box<processes::Spawn>),
    /// List a session's processes
    Ps(processes::Ps),
    /// Show what a process wrote, and follow what it writes
    Logs(processes::Logs),
    /// Send a signal to a process
    Kill(processes::Kill),
    /// Wait for a process's end
    Wait(processes::Wait),
    /// Run one command in a shell of a session that keeps its state
    Sh(Box<sh::Options>),
    /// Open a terminal of a session here, or attach to one that is open
    Shell(Box<shell::Options>),
    /// Drive terminals of a session from scripts: ls, open, send, keys, text, screen, wait, resize, close
    Terminal(terminal::Options),
    /// Define, start, stop and read long-running commands of a session
    Service(Box<service::Options>),
    /// List a session's files; rm, mkdir, mv, stat and du are verbs of it
    Files(Box<files::Options>),
    /// Copy files and directories to a session and from it
    Cp(cp::Options),
    /// Print a file of a session, or some of its lines
    Cat(cat::Options),
    /// Replace text in a file of a session
    Edit(edit::Options),
    /// Search in the files of a session
    Grep(Box<grep::Options>),
    /// Apply a unified diff to the files of a session
    Patch(patch::Options),
    /// Follow what happens to the files of a session
    Watch(watch::Options),
    /// List the recordings of a session's processes
    Recordings(recordings::Options),
    /// Play a recording of a terminal or a process
    Replay(Box<replay::Options>),
    /// List directories of the host that sessions may have, or that one has
    Mounts(mounts::List),
    /// Mount directories of the host into a session
    Mount(mounts::Mount),
    /// Take directories of the host off a session
    Unmount(mounts::Unmount),
    /// List, publish and preview what listens in a session's room
    Port(port::Options),
    /// Show what a session's network did, and let it reach more or less
    Net(net::Options),
    /// Keep pools of rooms that are handed to trajectories, each as new
    Pool(Box<pool::Options>),
    /// Do many things at once, in any sessions
    Batch(batch::Options),
    /// End the processes of sessions and keep their files
    Stop(lifecycle::Stop),
    /// Give stopped sessions a room again
    Start(lifecycle::Start),
    /// Freeze the processes of sessions
    Pause(lifecycle::Pause),
    /// Let frozen processes go on
    Resume(lifecycle::Resume),
    /// Delete sessions, with their files
    Rm(lifecycle::Rm),
    /// Keep a session's files as they are, under a name
    Snapshot(snapshot::Options),
    /// Put a session's files back to an earlier moment
    Reset(reset::Options),
    /// Make sessions that go on from another's files
    Fork(fork::Options),
    /// Show or replace what a session may see, reach, use and know
    Policy(policy::Options),
    /// Show what differs between two moments of a session
    Diff(diff::Options),
    /// Take over what a fork has changed
    Merge(Box<merge::Options>),
    /// Write a whole session into one file
    Export(transfer::Export),
    /// Take up a session from such a file
    Import(transfer::Import),
    /// Delete layers that no session needs
    Gc(gc::Options),
    /// Show what happened, and follow what happens
    Events(events::Options),
    /// Show what sessions use, and follow it
    Top(top::Options),
    /// Set, list and remove secrets, which rooms are given by name
    Secret(secret::Options),
    /// Make, list and revoke tokens
    Token(token::Options),
    /// Show, verify and add to a session's record
    Journal(journal::Options),
    /// Show what this machine offers and which layers rooms have here
    Doctor(doctor::Options),
    /// Inside a room: run one hostile probe
    #[command(hide = true)]
    AttackProbe { case: String },
    /// Inside a room: be what a neighbour attacks
    #[command(hide = true)]
    AttackNeighbour { canary: String, abstract_name: String },
}

/// `workroom run` alone. Its caller waits for a room, not for the options of all other verbs to be set up.
#[derive(Parser)]
#[command(
    name = "workroom run",
    bin_name = "workroom run",
    about = "Run one command in a fresh room and end the room with it"
)]
struct RunAlone {
    #[command(flatten)]
    options: run::Options,
}

fn main() -> ExitCode {
    // First of all, before anything is allocated or opened: a spawner is a clean copy of this program.
    workroom_room::run_if_spawner();
    // Nor is anything else in the memory of these two.
    workroom_room::run_if_wirer();
    workroom_egress::process::run_if_egress();
    // A room is under way before the options are read: what they hold is then not in the spawner's memory.
    let wants_room =
        ask_command_line(|_, verb| matches!(verb, b"run" | b"serve" | b"slots")).unwrap_or(false);
    let spawner = wants_room.then(Spawner::clone_first_thing);
    if ask_command_line(|_, verb| verb == b"run").unwrap_or(false) {
        return match RunAlone::try_parse_from(std::env::args_os().skip(1)) {
            Ok(alone) => run::run(alone.options, spawner),
            Err(error) => refuse_arguments(&error),
        };
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse_arguments(&error),
    };
    match cli.verb {
        Verb::Run(options) => run::run(*options, spawner),
        Verb::Serve(options) => serve::run(options, spawner),
        Verb::Slots(options) => slots::run(*options, spawner),
        Verb::Create(options) => create::run(*options),
        Verb::Ls(options) => ls::run(options),
        Verb::Show(options) => show::run(options),
        Verb::Exec(options) => exec::run(*options),
        Verb::Spawn(options) => processes::spawn(*options),
        Verb::Ps(options) => processes::ps(options),
        Verb::Logs(options) => processes::logs(options),
        Verb::Kill(options) => processes::kill(options),
        Verb::Wait(options) => processes::wait(options),
        Verb::Sh(options) => sh::run(*options),
        Verb::Shell(options) => shell::run(*options),
        Verb::Terminal(options) => terminal::run(options),
        Verb::Service(options) => service::run(*options),
        Verb::Files(options) => files::run(*options),
        Verb::Cp(options) => cp::run(options),
        Verb::Cat(options) => cat::run(options),
        Verb::Edit(options) => edit::run(options),
        Verb::Grep(options) => grep::run(*options),
        Verb::Patch(options) => patch::run(options),
        Verb::Watch(options) => watch::run(options),
        Verb::Recordings(options) => recordings::run(options),
        Verb::Replay(options) => replay::run(*options),
        Verb::Mounts(options) => mounts::list(options),
        Verb::Mount(options) => mounts::mount(options),
        Verb::Unmount(options) => mounts::unmount(options),
        Verb::Port(options) => port::run(options),
        Verb::Net(options) => net::run(options),
        Verb::Pool(options) => pool::run(*options),
        Verb::Batch(options) => batch::run(options),
        Verb::Stop(options) => lifecycle::stop(options),
        Verb::Start(options) => lifecycle::start(options),
        Verb::Pause(options) => lifecycle::pause(options),
        Verb::Resume(options) => lifecycle::resume(options),
        Verb::Rm(options) => lifecycle::rm(options),
        Verb::Snapshot(options) => snapshot::run(options),
        Verb::Reset(options) => reset::run(options),
        Verb::Fork(options) => fork::run(options),
        Verb::Policy(options) => policy::run(options),
        Verb::Diff(options) => diff::run(options),
        Verb::Merge(options) => merge::run(*options),
        Verb::Export(options) => transfer::export(options),
        Verb::Import(options) => transfer::import(options),
        Verb::Gc(options) => gc::run(options),
        Verb::Events(options) => events::run(options),
        Verb::Secret(options) => secret::run(options),
        Verb::Token(options) => token::run(options),
        Verb::Top(options) => top::run(options),
        Verb::Journal(options) => journal::run(options),
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
    remote::complain(&format!(
        "{}; see `workroom --help` and `workroom VERB --help`",
        sentence.trim_start_matches("error: ")
    ));
    ExitCode::from(EXIT_FAULT)
}
