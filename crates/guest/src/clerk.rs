//! The clerk: does the host's file work in the room, behind its walls, one request at a time.

mod failure;
mod place;
#[cfg(test)]
mod scratch;
mod walk;
