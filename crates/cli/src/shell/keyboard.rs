//! The caller's keyboard: bytes as they are typed, without a thread that would outlive the caller's wish to leave.

use crate::remote::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;
use workroom_sys::readiness::watch_reading;
use workroom_terminal::{KeyModes, keys};

pub(crate) struct Keyboard {
    terminal: AsyncFd<OwnedFd>,
}

impl Keyboard {
    pub(crate) fn of_stdin() -> io::Result<Keyboard> {
        Ok(Keyboard { terminal: watch_reading(rustix::stdio::stdin().try_clone_to_owned()?)? })
    }

    /// What was typed next; nothing once the terminal is gone. May be dropped and called again without loss.
    pub(crate) async fn next(&self) -> io::Result<Vec<u8>> {
        loop {
            let mut ready = self.terminal.readable().await?;
            // The descriptor is others' too and stays as it is: one that waits when it has nothing.
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut polled = [PollFd::new(self.terminal.get_ref(), PollFlags::IN)];
            if poll(&mut polled, Some(&at_once))? == 0 {
                ready.clear_ready();
                continue;
            }
            let mut bytes = vec![0; 4096];
            let read = match rustix::io::read(self.terminal.get_ref(), &mut bytes[..]) {
                Ok(read) => read,
                // The terminal was hung up.
                Err(rustix::io::Errno::IO) => 0,
                Err(error) => return Err(error.into()),
            };
            bytes.truncate(read);
            return Ok(bytes);
        }
    }
}

/// The byte of the key that leaves a terminal: one that is a single byte, or it could not be told from others in time.
pub(crate) fn detach_key(name: &str) -> Result<u8, Failure> {
    let bytes = keys::key(name, KeyModes::default())
        .map_err(|error| Failure::problem(format!("--detach-key: {error}"), ""))?;
    match bytes[..] {
        [byte] if byte < 0x20 => Ok(byte),
        _ => Err(Failure::problem(
            format!("--detach-key {name} is not a key that can be told from text"),
            "use Ctrl with a letter, or with one of [ \\ ] ^ _, such as C-] or C-_",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detach_key_is_one_control_character() {
        assert_eq!(detach_key("C-]").expect("a key"), 0x1d);
        assert_eq!(detach_key("^A").expect("a key"), 1);
        for wrong in ["x", "F5", "Up", "M-x", "nonsense"] {
            assert!(detach_key(wrong).is_err(), "{wrong}");
        }
    }
}
