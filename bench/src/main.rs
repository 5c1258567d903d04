//! `workroom-bench`: what rooms cost, beside what they could cost at best. See bench/README.md.
//!
//! ```text
//!  options.rs   the command line
//!  latency.rs   the main table: one sample of everything per round
//!    peers.rs   whole processes: a bare spawn, bwrap, workroom run
//!    floor.rs   the same namespaces and mounts as a room, and nothing else
//!    rooms.rs   rooms through the library
//!  scale.rs     creates per second, and a burst
//!  sessions.rs  sessions over HTTP; served.rs: servers; http.rs: the least client
//!  workspace.rs a session's files over HTTP: snapshots, forks, differences, large files
//!  processes.rs processes over HTTP and websocket.rs, the least client of that
//!  slot_server.rs  slots over HTTP, beside a server that runs bwrap for every command
//!  memory.rs    many idle rooms; crowd.rs: who holds them; limits.rs: how many there can be
//!  machine.rs   what of this machine rooms show, for floor and bwrap to show it too
//!  samples.rs report.rs guard.rs    percentiles; the table and the JSON; bounded in time
//! ```
#![deny(unsafe_code)]

mod crowd;
mod floor;
mod guard;
mod http;
mod latency;
mod limits;
mod machine;
mod memory;
mod options;
mod peers;
mod processes;
mod report;
mod rooms;
mod samples;
mod scale;
mod served;
mod sessions;
mod slot_server;
mod websocket;
mod workspace;

use options::Mode;
use std::process::ExitCode;

fn main() -> ExitCode {
    // This program is started anew as a spawner, to make the floor's rooms, and to hold idle rooms.
    workroom_room::run_if_spawner();
    floor::run_if_floor();
    crowd::run_if_crowd();
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("workroom-bench: {mistake}; see `workroom-bench --help`");
            return ExitCode::from(2);
        }
    };
    guard::watch();
    let done = match options.mode {
        Mode::Latency { rounds } => latency::run(&options, rounds),
        Mode::Scale => scale::run(&options),
        Mode::Sessions { rounds } => sessions::run(&options, rounds),
        Mode::Workspace { rounds } => workspace::run(&options, rounds),
        Mode::Processes { rounds } => processes::run(&options, rounds),
        Mode::SlotServer { rounds } => slot_server::run(&options, rounds),
        Mode::Idle { rooms } => memory::run(&options, rooms),
    };
    guard::clean();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workroom-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
