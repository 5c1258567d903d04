//! What is written to a process: as much as it takes, in the order of the callers, and no more than that is held.

use super::entry::Entry;
use super::notes::Note;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;
use tokio::time::Instant;
use workroom_sys::readiness::watch_writing;

pub(crate) struct InputEnd {
    fd: AsyncFd<OwnedFd>,
    /// One caller after the other: what one writes stays together.
    turn: Mutex<()>,
    /// Whose recording has what is written.
    typed_for: Option<Weak<Entry>>,
}

impl InputEnd {
    pub(crate) fn new(fd: OwnedFd, typed_for: Option<Weak<Entry>>) -> io::Result<InputEnd> {
        Ok(InputEnd { fd: watch_writing(fd)?, turn: Mutex::new(()), typed_for })
    }

    /// Writes until all is taken or the time is over: how much was taken. An error where nobody reads any more.
    pub(crate) async fn write(&self, data: &[u8], until: Instant) -> io::Result<usize> {
        let Ok(_turn) = tokio::time::timeout_at(until, self.turn.lock()).await else { return Ok(0) };
        // Before it is written: what it is answered with comes after it.
        let recorded = self.typed_for.as_ref().and_then(Weak::upgrade).map(|entry| (entry.moment(), entry));
        let mut taken = 0;
        let written = self.write_some(data, &mut taken, until).await;
        if let Some((moment, entry)) = recorded
            && taken > 0
        {
            entry.note(moment, Note::Typed(data[..taken].to_vec()));
        }
        written.map(|()| taken)
    }

    async fn write_some(&self, data: &[u8], taken: &mut usize, until: Instant) -> io::Result<()> {
        while *taken < data.len() {
            match rustix::io::write(self.fd.get_ref(), &data[*taken..]) {
                Ok(written) => *taken += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let Ok(ready) = tokio::time::timeout_at(until, self.fd.writable()).await else { break };
                    // Said before we looked last; the next look decides.
                    ready?.clear_ready();
                    match rustix::io::write(self.fd.get_ref(), &data[*taken..]) {
                        Ok(written) => *taken += written,
                        Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The descriptor itself, for what is not writing.
    pub(crate) fn fd(&self) -> &OwnedFd {
        self.fd.get_ref()
    }
}
