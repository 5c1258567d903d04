//! How many rooms a second, and how soon many at once.

use crate::guard;
use crate::options::Options;
use crate::report::{self, say};
use crate::rooms::{Rooms, words};
use serde_json::json;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use workroom_room::Room;

/// The time of each is cut into slices that take turns, so that whatever else the machine does meets all.
const SLICE: Duration = Duration::from_secs(1);
const SLICES: usize = 5;
const IN_FLIGHT: [usize; 3] = [1, 4, 16];
const BURST: usize = 100;
const BURSTS: usize = 5;

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let rooms = Rooms::start(options.cgroups)?;
    let memory = rooms.memory_limit()?;
    let mut sums = IN_FLIGHT.map(|in_flight| (in_flight, 0u32, Duration::ZERO));
    for _ in 0..SLICES {
        for (in_flight, made, time) in &mut sums {
            let (more, elapsed) = stream(&rooms, *in_flight)?;
            *made += more;
            *time += elapsed;
        }
    }
    let mut rates = Vec::new();
    say!("{:<40}{:>12}", "create + ready + gone, in a loop", "rooms/s");
    for (in_flight, made, time) in sums {
        let seconds = time.as_secs_f64();
        let rate = f64::from(made) / seconds;
        say!("{:<40}{rate:>12.0}", format!("{in_flight} in flight"));
        rates.push(json!({"in_flight": in_flight, "rooms": made, "seconds": seconds, "per_second": rate}));
    }
    let mut bursts = Vec::new();
    for _ in 0..BURSTS {
        bursts.push(burst(&rooms)?.as_secs_f64() * 1000.0);
    }
    let line: Vec<String> = bursts.iter().map(|wall| format!("{wall:.0}")).collect();
    say!("\nburst of {BURST}, until all are ready, {BURSTS} times: {} ms", line.join(", "));
    let facts = json!({
        "machine": report::machine(), "memory_limit": memory,
        "rates": rates, "burst": {"rooms": BURST, "wall_ms": bursts},
    });
    report::keep(options, "-scale", &facts)
}

/// Makes and ends rooms for one slice, with so many in the making at a time, and as many ending.
fn stream(rooms: &Rooms, in_flight: usize) -> Result<(u32, Duration), String> {
    let mut making: VecDeque<Room> = VecDeque::new();
    let mut ending: VecDeque<String> = VecDeque::new();
    let mut made = 0;
    let started = Instant::now();
    while started.elapsed() < SLICE || !making.is_empty() {
        if started.elapsed() < SLICE {
            making.push_back(rooms.ask()?);
            made += 1;
            if making.len() < in_flight {
                continue;
            }
        }
        if let Some(room) = making.pop_front() {
            room.ready().map_err(words)?;
            ending.push_back(room.id().to_owned());
        }
        if ending.len() >= in_flight
            && let Some(id) = ending.pop_front()
        {
            rooms.wait_gone(&id)?;
        }
        guard::alive();
    }
    for id in ending {
        rooms.wait_gone(&id)?;
    }
    Ok((made, started.elapsed()))
}

fn burst(rooms: &Rooms) -> Result<Duration, String> {
    let started = Instant::now();
    let made = (0..BURST).map(|_| rooms.ask()).collect::<Result<Vec<_>, _>>()?;
    for room in &made {
        room.ready().map_err(words)?;
    }
    let wall = started.elapsed();
    let ids: Vec<String> = made.iter().map(|room| room.id().to_owned()).collect();
    drop(made);
    for id in ids {
        rooms.wait_gone(&id)?;
        guard::alive();
    }
    Ok(wall)
}
