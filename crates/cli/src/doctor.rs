//! `workroom doctor`: what this machine offers, which layers a room has here, and what to do about the rest.

use crate::output;
use crate::result::enforced_json;
use crate::table::Table;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_room::{Fact, Spawner, facts};
use workroom_types::{Enforced, Layer, LayerState, Lifetime, Limits, RoomError, RoomSpec, RoomUser};

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
    let told = match options.json {
        true => output::json(&document(&facts, &room)),
        false => output::text(&tables(&facts, &room)),
    };
    match (told, room) {
        (Err(failure), _) => failure.report(options.json),
        (Ok(()), Ok(_)) => ExitCode::SUCCESS,
        (Ok(()), Err(_)) => ExitCode::FAILURE,
    }
}

/// Builds a room with every limit there is, to see what really is in force.
fn try_room() -> Result<Enforced, RoomError> {
    let spawner = Spawner::start()?;
    let limits = Limits { cpus_milli: Some(1000), ..Limits::default() };
    let id = format!("doctor-{}", std::process::id());
    let room = spawner.create(&RoomSpec {
        // Here a missing layer is something to show, not to stop at.
        allow_missing: Layer::ALL.into_iter().collect(),
        ..RoomSpec::new(id, RoomUser::Agent, limits, Lifetime::Connection)
    })?;
    let enforced = room.ready()?;
    drop(room);
    spawner.finish()?;
    Ok(enforced)
}

/// `root`: whoever is told that is root already.
fn advice(layer: Layer, root: bool) -> &'static str {
    match layer {
        Layer::UidRange if root => {
            "root here is root of a container or a namespace: run on the machine itself, or in a privileged container"
        }
        Layer::UidRange => "run as root",
        Layer::Memory | Layer::Pids | Layer::Cpu if root => {
            "let root write to /sys/fs/cgroup: a container needs a cgroup namespace of its own, and that mounted writable"
        }
        Layer::Memory | Layer::Pids | Layer::Cpu => {
            "run as root, or with a delegated cgroup v2: systemd-run --user --scope -p Delegate=yes workroom ..."
        }
        Layer::Landlock => "boot Linux 5.13 or newer with lsm=...,landlock",
        Layer::Scope => "boot Linux 6.12 or newer",
        _ => "see the machine's facts",
    }
}

/// Each layer: how it is in the room, and what to do where it is less than whole.
fn layers(enforced: &Enforced) -> impl Iterator<Item = (Layer, String, &'static str)> + '_ {
    let root = rustix::process::geteuid().is_root();
    enforced.0.iter().map(move |(layer, state)| match state {
        LayerState::Enforced(by) => (*layer, by.clone(), ""),
        LayerState::Partial(how) => (*layer, format!("partly: {how}"), advice(*layer, root)),
        LayerState::Missing(why) => (*layer, format!("no: {why}"), advice(*layer, root)),
    })
}

fn tables(facts: &[Fact], room: &Result<Enforced, RoomError>) -> String {
    let mut machine = Table::new(&["machine", "", "what to do"]);
    for fact in facts {
        machine.row([fact.name, &fact.value, fact.advice]);
    }
    let room = match room {
        Err(error) => format!("A room cannot be made here: {error}\n"),
        Ok(enforced) => {
            let mut table = Table::new(&["layer", "in a room here", "what to do"]);
            for (layer, how, advice) in layers(enforced) {
                table.row([layer.name(), &how, advice]);
            }
            table.to_string()
        }
    };
    format!("{machine}\n{room}")
}

fn document(facts: &[Fact], room: &Result<Enforced, RoomError>) -> Value {
    let facts: Vec<Value> = facts
        .iter()
        .map(|fact| json!({"name": fact.name, "value": fact.value, "good": fact.good, "advice": fact.advice}))
        .collect();
    let room = match room {
        Ok(enforced) => {
            let mut each = enforced_json(enforced);
            for (layer, _, advice) in layers(enforced) {
                each[layer.name()]["advice"] = advice.into();
            }
            json!({ "layers": each })
        }
        Err(error) => json!({ "error": error }),
    };
    json!({"machine": facts, "room": room})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_advice_for_every_layer_and_none_to_become_what_one_is() {
        for layer in Layer::ALL {
            assert!(!advice(layer, false).is_empty() && !advice(layer, true).is_empty(), "{layer:?}");
            assert!(!advice(layer, true).contains("as root"), "{layer:?}");
        }
    }
}
