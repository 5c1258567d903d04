//! The Rust client of /v1: find a server, talk to it over TCP or its unix socket, in types.
//!
//! ```no_run
//! # async fn example() -> Result<(), workroom_client::ClientError> {
//! use workroom_client::{Client, types::{CreateSession, ExecRequest}};
//! let client = Client::discover()?;
//! let (session, _) = client.create(&CreateSession::default(), None).await?;
//! let request = ExecRequest { command: Some("echo hello".into()), ..ExecRequest::default() };
//! assert_eq!(client.exec(&session.id, &request).await?.stdout, "hello\n");
//! client.delete(&session.id).await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod batch;
mod body;
mod call;
mod connection;
mod discovery;
mod download;
mod endpoint;
mod error;
mod events;
mod exec;
mod files;
mod mounts;
mod network;
mod past;
mod policy;
mod pools;
mod ports;
mod private;
mod processes;
mod recordings;
mod secrets;
mod server;
mod services;
mod sessions;
mod shells;
mod sse;
mod terminals;
mod tokens;
mod tries;
mod url;
mod usage;
mod websocket;

pub use batch::BatchStream;
pub use body::Upload;
pub use call::Client;
pub use discovery::{Found, default_state_dir, discover, state_dir};
pub use download::Download;
pub use endpoint::Endpoint;
pub use error::ClientError;
pub use events::EventStream;
pub use exec::{Chunk, ExecOutput, ExecStream, with_stdin};
pub use files::{WatchStream, WriteFile};
pub use pools::PoolName;
pub use processes::{AttachOptions, Attached, AttachedInput, AttachedOutput, Attachment, OutputBytes};
pub use recordings::ReadRecording;
pub use secrets::SecretOf;
pub use services::{LogOptions, LogOutput, LogStream};
pub use sessions::Action;
pub use sse::{SseEvent, SseParser};
pub use terminals::ScreenOptions;

/// What is said to the server and what it says.
pub use workroom_types as types;
