//! HTTP: routes of /v1, access, event streams, metrics.
//!
//! ```text
//!  listen.rs       sockets, connections, the drain
//!  gate.rs         what every request passes: host.rs, auth.rs, rate.rs, request_id.rs
//!  call.rs         a request that was let in: its path, query and body; body.rs, multipart.rs: large ones
//!  idempotency.rs  doing a thing once under its key
//!  reply.rs        answers, and problems as answers; sse.rs and text.rs: streams; download.rs: files
//!  websocket.rs    streams that go both ways
//!  routes/         one file per resource; batch.rs: one item of a batch
//!  compat/         APIs of others, one module for each
//!  preview.rs      what rooms serve, under names of their own
//!  openapi.rs      the document; schema_rules.rs: what values it allows; metrics.rs: /metrics
//! ```
#![forbid(unsafe_code)]

mod app;
mod auth;
mod batch;
mod body;
mod call;
mod compat;
mod config;
mod download;
mod gate;
mod host;
mod idempotency;
mod listen;
mod metrics;
mod multipart;
mod openapi;
mod pieces;
mod pool_metrics;
mod preview;
mod rate;
mod reply;
mod request_id;
mod routes;
mod schema_rules;
mod sse;
mod text;
mod vigil;
mod websocket;

pub use compat::slots::{SlotServer, SlotSettings};
pub use config::{BodyLimits, RateLimit, ServerConfig};
pub use listen::{Listeners, run};
pub use openapi::openapi;
