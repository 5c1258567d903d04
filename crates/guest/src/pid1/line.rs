//! The line to the launcher. Nobody waits at it: commands of the room may stop the launcher, and with it whoever did.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use workroom_proto::{Channel, FromLauncher, Received, ToLauncher};

pub(super) struct Line {
    channel: Channel,
    /// Whether the launcher has said that it stands: from then on it is in the group that it joins.
    pub(super) stands: bool,
    /// Whether it was told that something comes, and has said nothing since.
    told_soon: bool,
    /// What its queue had no space for, in this order.
    unsent: VecDeque<(ToLauncher, Vec<OwnedFd>)>,
    /// Commands whose time was over before it told of them. They end when they begin.
    pub(super) given_up: HashSet<u32>,
}

impl Line {
    pub(super) fn new(channel: Channel) -> Line {
        let (unsent, given_up) = (VecDeque::new(), HashSet::new());
        Line { channel, stands: false, told_soon: false, unsent, given_up }
    }

    /// Says whether the launcher has it by now; otherwise it gets it as soon as it has taken what it was told before.
    pub(super) fn tell(&mut self, message: &ToLauncher, fds: &[BorrowedFd<'_>]) -> io::Result<bool> {
        if self.unsent.is_empty() && self.channel.try_send(message, fds)? {
            return Ok(true);
        }
        let fds = fds.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>()?;
        self.unsent.push_back((message.clone(), fds));
        Ok(false)
    }

    /// Something comes in a moment. Once is enough, and more would only fill its queue.
    pub(super) fn tell_soon(&mut self) {
        if !self.told_soon {
            self.told_soon = matches!(self.channel.try_send(&ToLauncher::Soon, &[]), Ok(true));
        }
    }

    /// What it said, if it has. It answers everything but that something comes: when its queue was full, it has yet to say something, and
    /// has taken something before it does.
    pub(super) fn hear(&mut self) -> io::Result<Option<Received<FromLauncher>>> {
        let said = self.channel.try_receive()?;
        if let Some(Received::Message(..)) = &said {
            self.told_soon = false;
            self.send_rest();
        }
        Ok(said)
    }

    fn send_rest(&mut self) {
        while let Some((message, fds)) = self.unsent.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if !matches!(self.channel.try_send(message, &fds), Ok(true)) {
                return;
            }
            self.unsent.pop_front();
        }
    }

    /// A command is not to be started any more. One that it was told of may begin all the same.
    pub(super) fn give_up(&mut self, command: u32) {
        let is_its = |message: &ToLauncher| matches!(message, ToLauncher::Launch { command: its, .. } if *its == command);
        let before = self.unsent.len();
        self.unsent.retain(|(message, _)| !is_its(message));
        if self.unsent.len() == before {
            self.given_up.insert(command);
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workroom_types::{CommandSpec, RoomUser};

    fn launch(command: u32) -> ToLauncher {
        let spec = CommandSpec {
            argv: vec![b"true".to_vec()],
            env: Vec::new(),
            cwd: b"/".to_vec(),
            user: RoomUser::Agent,
            terminal: None,
        };
        ToLauncher::Launch { command, spec }
    }

    fn next(launcher: &Channel) -> Option<ToLauncher> {
        match launcher.try_receive().unwrap() {
            Some(Received::Message(message, _)) => Some(message),
            _ => None,
        }
    }

    #[test]
    fn a_launcher_that_takes_nothing_keeps_nobody_waiting_and_gets_all_of_it_in_its_order() {
        let (ours, launcher) = Channel::pair().unwrap();
        let mut line = Line::new(ours);
        let mut last = 0;
        while line.tell(&launch(last), &[rustix::stdio::stdin()]).unwrap() {
            last += 1;
        }
        line.tell(&launch(last + 1), &[]).unwrap();
        line.tell(&launch(last + 2), &[]).unwrap();
        // One that it was told of, and one that it was not.
        line.give_up(last + 1);
        line.give_up(0);
        assert_eq!(line.given_up, HashSet::from([0]));
        let mut started = Vec::new();
        while let Some(message) = next(&launcher) {
            let ToLauncher::Launch { command, .. } = message else { panic!("{message:?}") };
            started.push(command);
            launcher.send(&FromLauncher::Clerk { pid: 0 }, &[]).unwrap();
            assert!(line.hear().unwrap().is_some());
        }
        let expected: Vec<u32> = (0..=last).chain([last + 2]).collect();
        assert_eq!(started, expected);
    }

    #[test]
    fn it_is_told_once_that_something_comes_until_it_says_something() {
        let (ours, launcher) = Channel::pair().unwrap();
        let mut line = Line::new(ours);
        (0..1000).for_each(|_| line.tell_soon());
        assert_eq!((next(&launcher), next(&launcher)), (Some(ToLauncher::Soon), None));
        launcher.send(&FromLauncher::Ready, &[]).unwrap();
        assert!(line.hear().unwrap().is_some());
        line.tell_soon();
        assert_eq!(next(&launcher), Some(ToLauncher::Soon));
    }
}
