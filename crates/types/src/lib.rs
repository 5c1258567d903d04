//! Specs, layers, reports and error codes: the words every other crate speaks.
#![forbid(unsafe_code)]

mod batch;
mod capabilities;
mod error;
mod exec;
mod files;
mod filter;
mod journal;
mod layer;
mod network;
mod path;
mod policy;
mod pool;
mod port;
mod problem;
mod process;
mod quantity;
mod recording;
mod report;
mod secret;
mod service;
mod session;
mod shell;
mod snapshots;
mod spec;
mod terminals;
mod time;
mod token;
mod usage;

pub use batch::{BatchItem, BatchResult, BatchResults, BatchTool, SlotOf, WriteText};
pub use capabilities::Capabilities;
pub use error::{ErrorCode, RoomError};
pub use exec::{Encoding, ExecChunk, ExecRequest, ExecResult, ProcessInfo};
pub use files::{
    ApplyPatch, ArchiveCaps, ArchiveFormat, Deleted, DiskUse, EditFile, Edited, FileContent, FileInfo,
    FileKind, FileList, FilePath, Imported, ListFiles, MakeDirectory, PatchChange, PatchHunk, Patched,
    PatchedFile, ReadFile, SearchFiles, SearchMatch, SearchResult, Stripped, Transfer, Uploaded,
    UploadedFiles, WatchEvent, WatchKind,
};
pub use filter::UploadRules;
pub use journal::{AppendEvent, JournalEntry, JournalPage, PrivateFile, PrivateFiles};
pub use layer::{DISK_IN_MEMORY, Enforced, Layer, LayerSet, LayerState};
pub use network::{
    NetworkConnection, NetworkDenial, NetworkLeftOut, NetworkProposal, NetworkTotals, NetworkVerdict,
    NetworkView, NetworkWay,
};
pub use path::{RoomPath, WORKSPACE, escape, unescape};
pub use policy::{
    AddMounts, DenialCode, MountDenial, MountKind, MountOffer, MountState, OfferedBase, OfferedMount,
    SessionMount, SessionMounts,
};
pub use policy::{
    Ceiling, MountMode, MountPolicy, MountRequest, NetworkMode, NetworkPolicy, OperatorStatus, Policy,
    PolicyView, PortRule, SecretPolicy, SecretScope, ServerPolicy,
};
pub use pool::{
    AcquireSlot, ExtendLease, Lease, Pool, PoolCheck, PoolList, PoolMetrics, PoolOwner, PoolReset, PoolSeed,
    PoolSpec, PoolSummary, ReleaseSlot, Released, Slot, SlotCounts, SlotState,
};
pub use port::{PortList, PreviewLink, PublishPort, PublishedPort};
pub use problem::{Problem, ProblemCode};
pub use process::{
    InputTaken, ListeningPort, OutputPage, OutputStream, Process, ProcessExit, ProcessKind, ProcessState,
    ProcessStdin, ProcessTable, PtySize, SendSignal, SignalTo, StartProcess, StreamCount,
};
pub use quantity::{format_bytes, parse_bytes, parse_cpus, parse_duration};
pub use recording::{AddMarker, CastFormat, Recording, RecordingList, RecordingState};
pub use report::{Exit, ExitReport, RunReport, Usage};
pub use secret::{Rotated, SecretInfo, SecretList, SetSecret};
pub use service::{
    Backoff, HttpReadiness, LogLine, Readiness, RestartPolicy, Service, ServiceList, ServiceLogs,
    ServiceSpec, ServiceState, StopReason,
};
pub use session::{
    Channel, Counters, CreateSession, ListSessions, OnExpiry, ResolveMode, ResolveSession, Resolved, Session,
    SessionPage, SessionState, UpdateSession,
};
pub use shell::{
    CreateShell, RunInShell, Shell, ShellKind, ShellList, ShellOutcome, ShellResult, ShellState,
};
pub use snapshots::{
    BASELINE, Diff, DiffEntry, DiffKind, DiffQuery, Digest, Fork, ForkSession, Forks, Garbage, Lineage,
    LineageNode, MergeConflict, MergeSession, MergeSide, Merged, NOW, ResetSession, Snapshot, SnapshotList,
    TakeSnapshot,
};
pub use spec::{
    AGENT_ID, CommandSpec, HostMount, LAYER_ID, Lifetime, Limits, Network, RoomSpec, RoomUser, TerminalSize,
    Workspace, base_environment, set_variable,
};
pub use spec::{Bind, RoomBinds};
pub use terminals::{
    Awaited, EndedBy, OpenTerminal, PlainPage, ScreenColor, ScreenCursor, ScreenModes, ScreenRow, ScreenRun,
    TerminalClosed, TerminalInput, TerminalKey, TerminalKeys, TerminalList, TerminalScreen, TerminalShell,
    TerminalWaited, WaitForTerminal,
};
pub use time::Timestamp;
pub use token::{Caller, CreateToken, NewToken, Scope, TokenInfo, TokenList, TokenScope};
pub use usage::{
    DiskGauge, Gauge, LimitHits, ListUsage, SessionUsage, UsageLimits, UsageList, UsagePeak, UsagePoint,
    UsageQuery, UsageRow, UsageSort,
};
