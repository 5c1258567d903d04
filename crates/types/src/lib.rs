//! Specs, layers, reports and error codes: the words every other crate speaks.
#![forbid(unsafe_code)]

mod error;
mod layer;
mod quantity;
mod report;
mod spec;

pub use error::{ErrorCode, RoomError};
pub use layer::{Enforced, Layer, LayerSet, LayerState};
pub use quantity::{format_bytes, parse_bytes, parse_cpus, parse_duration};
pub use report::{Exit, ExitReport, Usage};
pub use spec::{
    AGENT_ID, CommandSpec, HostMount, Lifetime, Limits, Network, RoomSpec, RoomUser, TerminalSize, Workspace,
};
