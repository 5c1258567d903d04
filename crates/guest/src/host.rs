//! The guest's line to its host: one connection at a time, and never a wait for it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_proto::{Channel, FromGuest, Received, ToGuest};

/// More than a host that works ever leaves unread. One that does not is dropped, and asks again when it calls.
const MOST_UNSENT: usize = 4096;

/// Calls that wait to be taken.
const BACKLOG: i32 = 4;

pub(crate) struct Host {
    control: Option<Channel>,
    /// In a durable room.
    listener: Option<OwnedFd>,
    unsent: VecDeque<(FromGuest, Vec<OwnedFd>)>,
}

impl Host {
    /// Listening by itself is what later tells the host who it called.
    pub(crate) fn new(control: Channel, listener: Option<OwnedFd>) -> io::Result<Host> {
        if let Some(listener) = &listener {
            rustix::net::listen(listener, BACKLOG)?;
        }
        Ok(Host { control: Some(control), listener, unsent: VecDeque::new() })
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.listener.is_some()
    }

    /// Whether the host of a durable room went before the room could be found again: nobody knows of it then, or
    /// has taken it for gone. A host that goes later leaves a socket that is listened on.
    pub(crate) fn is_deserted(&self) -> bool {
        let Some(control) = self.control.as_ref().filter(|_| self.is_durable()) else { return false };
        let mut fds = [PollFd::new(control, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().contains(PollFlags::HUP))
    }

    pub(crate) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes a new host's call; the old one's connection, if any, is over.
    pub(crate) fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
            self.control = Some(Channel::from_fd(socket));
            self.unsent.clear();
        }
    }

    /// Says something to the host. In a durable room it waits here until the host takes it, or is lost with the
    /// connection: what matters is told again to the next one. In others the host's end is the room's.
    pub(crate) fn tell(&mut self, message: FromGuest, fds: Vec<OwnedFd>) -> io::Result<()> {
        if !self.is_durable() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            return match &self.control {
                Some(control) => control.send(&message, &fds),
                None => Err(io::ErrorKind::NotConnected.into()),
            };
        }
        if self.control.is_some() {
            self.unsent.push_back((message, fds));
            if self.unsent.len() > MOST_UNSENT {
                self.hang_up();
            }
            self.flush();
        }
        Ok(())
    }

    /// Sends what waits, as far as the host takes it.
    pub(crate) fn flush(&mut self) {
        while let (Some(control), Some((message, fds))) = (&self.control, self.unsent.front()) {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match control.try_send(message, &fds) {
                Ok(true) => drop(self.unsent.pop_front()),
                Ok(false) => return,
                Err(_) => self.hang_up(),
            }
        }
    }

    /// The next thing that the host says; `None` when there is nothing. What cannot be read ends the connection.
    pub(crate) fn hear(&mut self) -> Option<Received<ToGuest>> {
        match self.control.as_ref()?.try_receive() {
            Ok(received) => received,
            Err(_) => Some(Received::Closed),
        }
    }

    pub(crate) fn hang_up(&mut self) {
        self.control = None;
        self.unsent.clear();
    }
}
