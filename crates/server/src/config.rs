//! What an operator may set about the HTTP side.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Names, beside those of loopback and the address listened on, that `Host` and `Origin` may carry.
    pub host_names: Vec<String>,
    pub body: BodyLimits,
    /// Of each caller.
    pub rate: RateLimit,
    /// How long requests under way may take to end when the server ends.
    pub drain: Duration,
    /// Connections of each listener; more wait to be accepted.
    pub connections: usize,
    /// Slots that each caller has under `/compat/slots`.
    pub slots: usize,
}

/// Bytes that a request's body may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    pub json: u64,
    pub private_file: u64,
    /// An event that a caller appends to a journal.
    pub event: u64,
}

/// How often one caller may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// 0: as often as it likes.
    pub per_second: u64,
    /// How many calls at once, after a pause.
    pub burst: u64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            host_names: Vec::new(),
            body: BodyLimits::default(),
            rate: RateLimit::default(),
            drain: Duration::from_secs(5),
            connections: 16_384,
            slots: 10,
        }
    }
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits { json: 8 << 20, private_file: 16 << 20, event: 256 << 10 }
    }
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit { per_second: 20_000, burst: 40_000 }
    }
}
