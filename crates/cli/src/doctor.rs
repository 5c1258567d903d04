//! `workroom doctor`: what this machine offers, which layers a room has here, and what to do about the rest.

use crate::result::enforced_json;
use crate::table::Table;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_room::{Fact, Spawner, facts};
use workroom_types::{Enforced, Layer, LayerState, Lifetime, Limits, Network, RoomError, RoomSpec, RoomUser};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom doctor --attack")]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the server has its state, to see how sessions' disks are limited there [default: $WORKROOM_STATE, else the
    /// user's state directory]
    #[arg(long, value_name = "DIR", conflicts_with = "attack")]
    state: Option<PathBuf>,
    /// Attack rooms on this machine with every hostile program we have; exit status 1 if any wall falls
    #[arg(long)]
    attack: bool,
    /// With --attack: only these cases
    #[arg(long, value_name = "CASE", value_delimiter = ',', requires = "attack")]
    case: Vec<String>,
    /// With --attack: attack without any room, as an ordinary user, to see that the probes can go red
    #[arg(long, hide = true, requires = "attack")]
    bare: bool,
    /// With --attack: leave a layer out, to see what goes red without it
    #[arg(long, value_name = "LAYER", value_delimiter = ',', hide = true, requires = "attack")]
    without: Vec<String>,
    /// With --attack: attack only as this user of the room [default: as both]
    #[arg(long, value_name = "USER", value_parser = ["root", "agent"], requires = "attack")]
    user: Option<String>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    if options.attack {
        return crate::attack::run(crate::attack::Options {
            only: options.case,
            without: options.without,
            user: options.user,
            bare: options.bare,
            json: options.json,
        });
    }
    let state = options.state.map_or_else(workroom_client::state_dir, Ok);
    // Without any there is nothing to say of its file system but what is true of every place.
    let facts = facts(&state.unwrap_or_else(|_| "/".into()));
    let room = try_room();
    if options.json {
        print_json(&facts, &room);
    } else {
        print_tables(&facts, &room);
    }
    if room.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds a room with every limit there is, to see what really is in force.
fn try_room() -> Result<Enforced, RoomError> {
    let spawner = Spawner::start()?;
    let room = spawner.create(&RoomSpec {
        id: format!("doctor-{}", std::process::id()),
        user: RoomUser::Agent,
        limits: Limits { cpus_milli: Some(1000), ..Limits::default() },
        network: Network::None,
        workspace: None,
        layer: None,
        in_memory: false,
        lowers: Vec::new(),
        disk: None,
        mounts: Vec::new(),
        binds: Vec::new(),
        writes_to_host: false,
        secret_files: false,
        lifetime: Lifetime::Connection,
        require: Default::default(),
        // Here a missing layer is something to show, not to stop at.
        allow_missing: Layer::ALL.into_iter().collect(),
        without: Default::default(),
    })?;
    let enforced = room.ready()?;
    drop(room);
    spawner.finish()?;
    Ok(enforced)
}

fn advice(layer: Layer) -> &'static str {
    match layer {
        Layer::UidRange => "run as root",
        Layer::Memory | Layer::Pids | Layer::Cpu => {
            "run as root, or with a delegated cgroup v2: systemd-run --user --scope -p Delegate=yes workroom ..."
        }
        Layer::Landlock => "boot Linux 5.13 or newer with lsm=...,landlock",
        Layer::Scope => "boot Linux 6.12 or newer",
        _ => "see the machine's facts above",
    }
}

fn print_tables(facts: &[Fact], room: &Result<Enforced, RoomError>) {
    let mut machine = Table::new(&["machine", "", "what to do"]);
    for fact in facts {
        machine.row([fact.name, &fact.value, fact.advice]);
    }
    print!("{machine}");
    println!();
    match room {
        Err(error) => println!("A room cannot be made here: {error}"),
        Ok(enforced) => {
            let mut layers = Table::new(&["layer", "in a room here", "what to do"]);
            for (layer, state) in &enforced.0 {
                match state {
                    LayerState::Enforced(by) => layers.row([layer.name(), by, ""]),
                    LayerState::Partial(how) => {
                        layers.row([layer.name(), &format!("partly: {how}"), advice(*layer)])
                    }
                    LayerState::Missing(why) => {
                        layers.row([layer.name(), &format!("no: {why}"), advice(*layer)])
                    }
                }
            }
            print!("{layers}");
        }
    }
}

fn print_json(facts: &[Fact], room: &Result<Enforced, RoomError>) {
    let facts: Vec<Value> = facts
        .iter()
        .map(|fact| json!({"name": fact.name, "value": fact.value, "good": fact.good, "advice": fact.advice}))
        .collect();
    let room = match room {
        Ok(enforced) => json!({"layers": enforced_json(enforced)}),
        Err(error) => json!({"error": error}),
    };
    println!("{}", json!({"machine": facts, "room": room}));
}
