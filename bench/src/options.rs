//! The command line.

use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Measures rooms beside a bare spawn, the kernel's floor and bwrap.

Usage: workroom-bench [--rounds N]      the table of latencies (default, 200 rounds)
       workroom-bench --scale           creates per second, and a burst of 100
       workroom-bench --sessions [N]    sessions over HTTP, N rounds (default 200)
       workroom-bench --workspace [N]   a session's files over HTTP, N rounds (default 50)
       workroom-bench --processes [N]   processes over HTTP and WebSocket, N rounds (default 200)
       workroom-bench --slot-server [N] slots as trainers call them, N rounds (default 100)
       workroom-bench --idle [N]        memory of N idle rooms (default 500)

  --out FILE        where the JSON goes [default: bench/results/HOST-DATE.json]
  --workroom PATH   the workroom binary [default: the one beside this one]
  --raise-limits    --idle, as root: raise kernel.pid_max and the namespace limits if N needs it,
                    and put them back afterwards
  --no-limits       --scale and --idle: rooms without cgroup limits, to see what those cost

Example:
  workroom-bench --rounds 500 --out /tmp/today.json
";

pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) out: Option<PathBuf>,
    pub(crate) workroom: Option<PathBuf>,
    pub(crate) raise_limits: bool,
    pub(crate) cgroups: Cgroups,
}

/// Whether rooms have limits that take cgroups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cgroups {
    AsUsual,
    LeftOut,
}

pub(crate) enum Mode {
    Latency { rounds: usize },
    Scale,
    Sessions { rounds: usize },
    Workspace { rounds: usize },
    Processes { rounds: usize },
    SlotServer { rounds: usize },
    Idle { rooms: usize },
}

/// `None` when help was asked for.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        mode: Mode::Latency { rounds: 200 },
        out: None,
        workroom: None,
        raise_limits: false,
        cgroups: Cgroups::AsUsual,
    };
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let mut value = |name| arguments.next().ok_or(format!("{name} needs a value"));
        match argument.as_str() {
            "--rounds" => options.mode = Mode::Latency { rounds: count(&value("--rounds")?)? },
            "--out" => options.out = Some(value("--out")?.into()),
            "--workroom" => options.workroom = Some(value("--workroom")?.into()),
            "--scale" => options.mode = Mode::Scale,
            "--sessions" => {
                let rounds = arguments.next_if(|next| !next.starts_with('-'));
                options.mode = Mode::Sessions { rounds: rounds.map_or(Ok(200), |text| count(&text))? };
            }
            "--workspace" => {
                let rounds = arguments.next_if(|next| !next.starts_with('-'));
                options.mode = Mode::Workspace { rounds: rounds.map_or(Ok(50), |text| count(&text))? };
            }
            "--processes" => {
                let rounds = arguments.next_if(|next| !next.starts_with('-'));
                options.mode = Mode::Processes { rounds: rounds.map_or(Ok(200), |text| count(&text))? };
            }
            "--slot-server" => {
                let rounds = arguments.next_if(|next| !next.starts_with('-'));
                options.mode = Mode::SlotServer { rounds: rounds.map_or(Ok(100), |text| count(&text))? };
            }
            "--idle" => {
                let rooms = arguments.next_if(|next| !next.starts_with('-'));
                options.mode = Mode::Idle { rooms: rooms.map_or(Ok(500), |text| count(&text))? };
            }
            "--raise-limits" => options.raise_limits = true,
            "--no-limits" => options.cgroups = Cgroups::LeftOut,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("there is no option \"{other}\"")),
        }
    }
    Ok(Some(options))
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=1_000_000).contains(&number) => Ok(number),
        _ => Err(format!("\"{text}\" is not a number from 1 to 1000000")),
    }
}
