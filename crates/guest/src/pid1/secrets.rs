//! Secrets of the room: given by the host, written to files, and looked for in all output.

use super::{Command, Pid1};
use std::os::fd::OwnedFd;
use std::time::Instant;
use workroom_proto::{Answer, Gift, Secret};

impl Pid1 {
    /// What is looked for first, so that nothing can show a file's content before.
    pub(super) fn give(&mut self, gift: &Gift, place: Vec<OwnedFd>) -> Answer {
        place.into_iter().for_each(|place| self.secret_files.settle(place));
        self.redacts |= !gift.redact.is_empty();
        if self.redaction.add(gift.redact.clone()) {
            let redaction = &mut self.redaction;
            for (number, command) in &mut self.commands {
                let Some(kept) = command.kept() else { continue };
                match kept.output.redacting() {
                    Some(redacting) => redacting.renew(redaction, Vec::new()),
                    None => kept.output.redact(redaction.of_command(*number)),
                }
            }
        }
        match &gift.files {
            Some(_) if !self.secret_files.has_place() => Answer::NoPlace,
            Some(files) => match self.secret_files.replace(files) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed { why: error.to_string() },
            },
            None => Answer::Done,
        }
    }

    /// Further values that must not be seen in one command's output.
    pub(super) fn redact_command(&mut self, command: u32, values: Vec<Secret>) {
        self.redacts |= !values.is_empty();
        match self.commands.get_mut(&command).and_then(Command::kept) {
            Some(kept) => match kept.output.redacting() {
                Some(redacting) => redacting.renew(&self.redaction, values),
                None => {
                    self.redaction.await_command(command, values);
                    kept.output.redact(self.redaction.of_command(command));
                }
            },
            None => self.redaction.await_command(command, values),
        }
    }

    /// When some output has been silent for long enough. Without secrets nobody is asked.
    pub(super) fn next_idle(&mut self) -> Option<Instant> {
        if !self.redacts {
            return None;
        }
        let idle_at = |command: &mut Command| command.kept()?.output.idle_at();
        self.commands.values_mut().filter_map(idle_at).min()
    }

    pub(super) fn show_idle(&mut self) {
        if !self.redacts {
            return;
        }
        let now = Instant::now();
        for kept in self.commands.values_mut().filter_map(Command::kept) {
            if kept.output.idle_at().is_some_and(|at| at <= now) {
                kept.output.idle();
            }
        }
    }
}
