//! What an operator may set about sessions.

use std::path::PathBuf;
use std::time::Duration;
pub use workroom_egress::process::Settings as NetworkSettings;
use workroom_types::{Policy, ProcessKind};
use workroom_vault::KeySource;

#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Where everything durable lives.
    pub state: PathBuf,
    pub quotas: Quotas,
    pub exec: ExecDefaults,
    pub processes: ProcessLimits,
    pub recordings: RecordingLimits,
    pub ports: PortLimits,
    pub network: NetworkSettings,
    /// What a session gets where its creator says nothing.
    pub policy: Policy,
    /// What the operator says of policies, and may change at any time; `policy.toml` in the state directory without it.
    pub policy_file: Option<PathBuf>,
    /// Where the master key of secrets is; the file `master.key` in the state directory without it.
    pub master_key: Option<KeySource>,
    /// Host paths that every room sees read-only: source, place in the room.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    pub stay_awake: StayAwake,
}

/// Whether server and rooms stay awake for a moment for what is about to happen: faster, for processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StayAwake {
    /// Where processors are idle.
    #[default]
    Auto,
    Always,
    Never,
}

impl StayAwake {
    /// One of so many processors may be spent on that.
    const PROCESSORS_FOR_ONE: u64 = 4;

    /// How many commands may be under way for another one to be worth it.
    pub(crate) fn most_commands(self) -> u64 {
        match self {
            StayAwake::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
                processors / Self::PROCESSORS_FOR_ONE
            }
            StayAwake::Always => u64::MAX,
            StayAwake::Never => 0,
        }
    }
}

/// How much of the machine sessions may take. 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Sessions that have a room.
    pub live: u64,
    pub live_per_user: u64,
    pub created_per_user_per_day: u64,
    /// Sessions that wait for a place.
    pub queue: u64,
    pub longest_wait: Duration,
}

/// What a command gets where its caller says nothing, and the most that a caller may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecDefaults {
    pub timeout: Duration,
    pub longest_timeout: Duration,
    /// Bytes of each stream.
    pub output: u64,
    pub largest_output: u64,
    /// Commands under way in one session.
    pub concurrent: u64,
}

/// What a session's process table may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Processes that run at once in one session.
    pub running: u64,
    /// Bytes of output that are kept of a process that says nothing of it, and the most that one may ask for.
    pub output: u64,
    pub largest_output: u64,
    /// Ended processes whose record and output are kept, and the bytes of output of all of them.
    pub ended: usize,
    pub ended_output: u64,
    /// What is recorded that says nothing of it.
    pub record: RecordWhat,
}

/// Which processes are recorded that say nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordWhat {
    None,
    #[default]
    Terminals,
    All,
}

impl RecordWhat {
    pub(crate) fn includes(self, kind: ProcessKind) -> bool {
        match self {
            RecordWhat::None => false,
            RecordWhat::Terminals => kind == ProcessKind::Terminal,
            RecordWhat::All => true,
        }
    }
}

/// How much recordings may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingLimits {
    /// Bytes of one; then it stops, and says so.
    pub size: u64,
    /// Bytes of all of a session, and how many there are: then those go that ended first.
    pub session_size: u64,
    pub count: usize,
}

impl Default for RecordingLimits {
    fn default() -> RecordingLimits {
        RecordingLimits { size: 64 << 20, session_size: 1 << 30, count: 1000 }
    }
}

impl Default for ProcessLimits {
    fn default() -> ProcessLimits {
        ProcessLimits {
            running: 2048,
            output: 16 << 20,
            largest_output: 1 << 30,
            ended: 2000,
            ended_output: 1 << 30,
            record: RecordWhat::default(),
        }
    }
}

/// What a session's published ports may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    pub published: usize,
    /// Connections of one session that are open at once, over all its ports.
    pub connections: usize,
}

impl Default for PortLimits {
    fn default() -> PortLimits {
        PortLimits { published: 64, connections: 1024 }
    }
}

impl EngineConfig {
    /// Sized for a machine with this much memory.
    pub fn for_machine(state: PathBuf, memory: u64) -> EngineConfig {
        // An idle room costs about a megabyte; one that works, far more.
        let live = (memory / (8 << 20)).clamp(64, 20_000);
        EngineConfig {
            state,
            quotas: Quotas {
                live,
                live_per_user: live,
                created_per_user_per_day: 0,
                queue: 1000,
                longest_wait: Duration::from_secs(300),
            },
            exec: ExecDefaults {
                timeout: Duration::from_secs(30),
                longest_timeout: Duration::from_secs(24 * 3600),
                output: 1 << 20,
                largest_output: 64 << 20,
                concurrent: 256,
            },
            processes: ProcessLimits::default(),
            recordings: RecordingLimits::default(),
            ports: PortLimits::default(),
            network: NetworkSettings::default(),
            policy: Policy { memory: Some(2 << 30), pids: Some(1024), ..Policy::default() },
            policy_file: None,
            master_key: None,
            mounts: Vec::new(),
            stay_awake: StayAwake::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_recorded_unless_somebody_says_otherwise() {
        let kinds = [ProcessKind::Process, ProcessKind::Terminal, ProcessKind::Shell, ProcessKind::Service];
        let recorded = |what: RecordWhat| kinds.map(|kind| what.includes(kind));
        assert_eq!(recorded(RecordWhat::default()), [false, true, false, false]);
        assert_eq!(recorded(RecordWhat::All), [true; 4]);
        assert_eq!(recorded(RecordWhat::None), [false; 4]);
    }
}
