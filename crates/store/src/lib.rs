//! The durable store: sessions, tokens, journals, remembered answers, in SQL.
//!
//! Everything that must survive goes through [`Store::commit`], which returns once it is on the disk, or
//! [`Store::note`], which returns at once and is durable within 50 ms. One task, the scribe, does all writing
//! and writes what waits together; readers never wait for it.
//!
//! Each session has a journal whose entries are chained by hashes and whose head is signed, so that
//! [`Store::verify`] finds and names what was changed behind the store's back. What signatures cannot show is a
//! whole state directory, or a journal with its head, put back to how it once really was.
#![forbid(unsafe_code)]

mod apply;
mod ballast;
mod batch;
mod chain;
mod dialect;
mod error;
mod heads;
mod layers;
mod layout;
mod list;
mod parts;
mod read;
mod rows;
mod schema;
mod scribe;
mod script;
mod secrets;
mod store;
mod verify;

pub use dialect::{Difference, POSTGRES};
pub use error::{StoreError, StoreErrorKind};
pub use layers::{SessionStack, SnapshotRow};
pub use rows::{Change, Counters, IdempotencyRow, InPool, Outcome, SessionFilter, SessionRow, TokenRow};
pub use scribe::Settings;
pub use secrets::SecretRow;
pub use store::Store;
pub use verify::{Fault, Verification, verify_at};
