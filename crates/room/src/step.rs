//! A step of building that went wrong: which one, why, and what a person can do.

use rustix::io::Errno;
use std::io;
use workroom_types::{ErrorCode, RoomError};

/// Names the step that an error belongs to.
pub(crate) trait During<T> {
    fn during(self, step: &str) -> Result<T, RoomError>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, step: &str) -> Result<T, RoomError> {
        self.map_err(|error| failed(step, &error))
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, step: &str) -> Result<T, RoomError> {
        self.map_err(|error| failed(step, &error.into()))
    }
}

fn failed(step: &str, error: &io::Error) -> RoomError {
    let hint = match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "this machine does not let you do that; run `workroom doctor` to see what it takes"
        }
        Some(Errno::NOSPC | Errno::USERS) => {
            "the machine's limit on namespaces is reached; raise user.max_user_namespaces or end some rooms"
        }
        Some(Errno::NOMEM | Errno::AGAIN) => "the machine is out of memory or processes; end something",
        _ => "run `workroom doctor` to see what this machine offers",
    };
    RoomError::new(ErrorCode::RoomSetup, format!("the room could not be made ({step}): {error}"), hint)
}
