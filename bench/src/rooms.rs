//! Rooms through the library: one spawner that lives as long as the run.

use crate::options::Cgroups;
use crate::peers::TRUE;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use workroom_room::{Room, Spawner};
use workroom_types::{
    CommandSpec, Layer, LayerSet, LayerState, Lifetime, Limits, RoomError, RoomSpec, RoomUser,
};

pub(crate) struct Rooms {
    spawner: Spawner,
    null: File,
    made: Cell<u64>,
    without: LayerSet,
}

/// What takes cgroups, which neither the floor nor bwrap has.
const CGROUP_LIMITS: [Layer; 2] = [Layer::Memory, Layer::Pids];

impl Rooms {
    pub(crate) fn start(cgroups: Cgroups) -> Result<Rooms, String> {
        let null = File::options().read(true).write(true).open("/dev/null").map_err(|e| e.to_string())?;
        let without = match cgroups {
            Cgroups::AsUsual => LayerSet::EMPTY,
            Cgroups::LeftOut => CGROUP_LIMITS.into_iter().collect(),
        };
        Ok(Rooms { spawner: Spawner::start().map_err(words)?, null, made: Cell::new(0), without })
    }

    pub(crate) fn spawner_pid(&self) -> u32 {
        self.spawner.pid()
    }

    fn spec(&self, lifetime: Lifetime) -> RoomSpec {
        self.made.set(self.made.get() + 1);
        let id = format!("bench-{}-{}", std::process::id(), self.made.get());
        RoomSpec { without: self.without, ..RoomSpec::new(id, RoomUser::Agent, Limits::default(), lifetime) }
    }

    /// Asks for a room that lives until it is dropped; it may still be in the making.
    pub(crate) fn ask(&self) -> Result<Room, String> {
        self.spawner.create(&self.spec(Lifetime::Connection)).map_err(words)
    }

    pub(crate) fn wait_gone(&self, id: &str) -> Result<(), String> {
        self.spawner.wait_gone(id).map_err(words)
    }

    /// A room until it stands, and, apart, its end.
    pub(crate) fn create(&self) -> Result<(Duration, Duration), String> {
        self.create_and_end(&self.spec(Lifetime::Connection))
    }

    /// The same without cgroup limits.
    pub(crate) fn create_unlimited(&self) -> Result<(Duration, Duration), String> {
        let without = CGROUP_LIMITS.into_iter().collect();
        self.create_and_end(&RoomSpec { without, ..self.spec(Lifetime::Connection) })
    }

    fn create_and_end(&self, spec: &RoomSpec) -> Result<(Duration, Duration), String> {
        let started = Instant::now();
        let room = self.spawner.create(spec).map_err(words)?;
        room.ready().map_err(words)?;
        let create = started.elapsed();
        let ending = Instant::now();
        drop(room);
        self.wait_gone(&spec.id)?;
        Ok((create, ending.elapsed()))
    }

    /// A room for one command, which is sent at once: until its exit is known, and until all is gone.
    pub(crate) fn first_command(&self) -> Result<(Duration, Duration), String> {
        let spec = self.spec(Lifetime::FirstCommand);
        let started = Instant::now();
        let room = self.spawner.create(&spec).map_err(words)?;
        self.run_true(&room)?;
        let exit = started.elapsed();
        self.wait_gone(&spec.id)?;
        Ok((exit, started.elapsed()))
    }

    /// One command in a room that lives.
    pub(crate) fn exec(&self, room: &Room) -> Result<Duration, String> {
        let started = Instant::now();
        self.run_true(room)?;
        Ok(started.elapsed())
    }

    fn run_true(&self, room: &Room) -> Result<(), String> {
        let null = self.null.as_fd();
        let report = room.exec(command(&[TRUE]), &[null, null, null]).map_err(words)?;
        match report.exit.status() {
            0 => Ok(()),
            status => Err(format!("true ended with {status} in a room")),
        }
    }

    /// What limits the memory of rooms here.
    pub(crate) fn memory_limit(&self) -> Result<String, String> {
        let room = self.ask()?;
        let enforced = room.ready().map_err(words)?;
        self.end(room)?;
        Ok(match enforced.get(Layer::Memory) {
            Some(LayerState::Enforced(how) | LayerState::Partial(how) | LayerState::Missing(how)) => {
                how.clone()
            }
            None => String::new(),
        })
    }

    /// How many mounts a room has.
    pub(crate) fn mounts(&self) -> Result<usize, String> {
        let room = self.ask()?;
        let (reads, writes) = std::io::pipe().map_err(|error| error.to_string())?;
        let null = self.null.as_fd();
        let cat = command(&["/usr/bin/cat", "/proc/self/mountinfo"]);
        room.exec(cat, &[null, writes.as_fd(), null]).map_err(words)?;
        drop(writes);
        let text = std::io::read_to_string(reads).map_err(|error| error.to_string())?;
        self.end(room)?;
        Ok(text.lines().count())
    }

    fn end(&self, room: Room) -> Result<(), String> {
        let id = room.id().to_owned();
        drop(room);
        self.wait_gone(&id)
    }
}

pub(crate) fn words(error: RoomError) -> String {
    error.to_string()
}

fn command(argv: &[&str]) -> CommandSpec {
    let bytes = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
    CommandSpec {
        argv: bytes(argv),
        env: bytes(&[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/home/agent",
        ]),
        cwd: b"/workspace".to_vec(),
        user: RoomUser::Agent,
        terminal: None,
    }
}
