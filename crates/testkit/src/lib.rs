//! Real servers for tests: started as any kind of user, asked, killed, and proven to leave nothing behind.
//!
//! ```no_run
//! use workroom_testkit::{Server, for_each_user};
//!
//! for_each_user(async |user| {
//!     let server = Server::of(user);
//!     let session = server.session().await;
//!     assert_eq!(session.says("echo hello").await, "hello\n");
//!     session.delete().await;
//!     server.expect_no_leaks().await;
//! });
//! ```
#![forbid(unsafe_code)]

mod http;
mod leaks;
mod pool;
mod process;
mod scratch;
mod server;
mod service;
mod session;
mod shell;
mod terminal;
mod user;
mod wait;

pub use http::{Http, Reading, Response};
pub use leaks::{Process, groups_of, processes};
pub use pool::{TestLease, TestPool};
pub use process::TestProcess;
pub use scratch::{Scratch, unique};
pub use server::{Server, Setup};
pub use session::TestSession;
pub use shell::TestShell;
pub use terminal::TestTerminal;
pub use user::{User, as_ordinary_user, as_root, for_each_user, run};
pub use wait::{PATIENCE, eventually, settle, within};

pub use workroom_client as client;
pub use workroom_types as types;
