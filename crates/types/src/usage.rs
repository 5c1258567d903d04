//! What a session uses: now, at most, and over time.

use crate::{SessionState, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a room's guest reads off at one moment. `None`: nothing here tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gauge {
    /// Of all processes that the room has had.
    pub cpu_micros: u64,
    /// Bytes, with what the kernel keeps of files that they use.
    pub memory: Option<u64>,
    pub peak_memory: Option<u64>,
    /// Processes; where a group counts them, threads too.
    pub pids: u64,
    /// Whether that is what a group counts.
    pub by_group: bool,
    /// Processes, without those that keep the room.
    pub processes: u64,
    pub oom_kills: Option<u64>,
    /// How often a process or thread was not made because there were too many.
    pub pids_denied: Option<u64>,
    /// Of a layer that has a limit.
    pub disk: Option<DiskGauge>,
}

/// A file system that is a room's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskGauge {
    pub bytes: u64,
    pub bytes_free: u64,
    /// 0 where files are not counted.
    pub inodes: u64,
    pub inodes_free: u64,
}

impl DiskGauge {
    pub fn counts_files(&self) -> bool {
        self.inodes != 0
    }
}

/// What was used at one moment. A figure that is not there is not known; `unknown` says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsagePoint {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// CPU time of all the session's rooms until then, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes, with what the kernel keeps in memory of files that the room uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes; where a cgroup counts them, threads too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Bytes of the layer that the room writes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Files and directories in that layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Bytes that commands and processes wrote to their outputs until then.
    pub output: u64,
    /// Bytes that came over the network until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_received: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_sent: Option<u64>,
}

/// The most that was used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UsagePeak {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

/// How often limits were run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LimitHits {
    /// Processes that were killed for want of memory.
    pub memory: u64,
    /// Processes or threads that were not made.
    pub pids: u64,
    /// Times that the disk, or its number of files, was seen to be full.
    pub disk: u64,
}

/// What the figures are limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UsageLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

/// What a session uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionUsage {
    pub session: String,
    /// Of its room. Not there without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<UsagePoint>,
    pub peak: UsagePeak,
    pub limits: UsageLimits,
    pub hits: LimitHits,
    /// The last five minutes, a point for each second in which something happened.
    pub recent: Vec<UsagePoint>,
    /// The last day, a point for each minute in which something happened.
    pub day: Vec<UsagePoint>,
    /// Figures that are not known, and why.
    #[serde(default)]
    pub unknown: BTreeMap<String, String>,
}

/// Which parts of a session's usage are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuery {
    /// `false`: without `recent` and `day`.
    pub series: Option<bool>,
}

/// What sessions are listed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsageSort {
    #[default]
    Cpu,
    Memory,
    Pids,
    Disk,
    Output,
}

/// Which sessions' usage is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct ListUsage {
    /// The largest first.
    pub sort: Option<UsageSort>,
    /// How many, 100 unless told.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<u32>,
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRow {
    pub session: String,
    pub name: String,
    pub owner: String,
    pub state: SessionState,
    /// Thousandths of a CPU, between the last two looks.
    pub cpu_milli: u64,
    /// As it was last looked at. Not there if it was not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<UsagePoint>,
    pub limits: UsageLimits,
}

/// Sessions that have a room, and what they use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageList {
    pub sessions: Vec<UsageRow>,
    /// How many have a room, of those that the caller may see.
    pub live: u64,
}
