//! What the guest does for commands of a durable room: keeps their output and time, and answers for them.

use super::{Command, Pid1, signal_group};
use crate::census::{FEW_LOOKS, MOST_LOOKS};
use crate::freezer::Freezer;
use crate::ports::connect;
use crate::runs::Kept;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use workroom_proto::{Answer, FromGuest, OutputRule, Question};
use workroom_types::{CommandSpec, ErrorCode, Layer, RoomError};

impl Pid1 {
    pub(super) fn answer(&mut self, question: &Question) -> (Answer, Vec<OwnedFd>) {
        let failed = |error: io::Error| (Answer::Failed { why: error.to_string() }, Vec::new());
        match question {
            Question::Hello => {
                let commands = self.commands.keys().chain(self.ended_runs.keys()).copied().collect();
                let answer = Answer::Here {
                    enforced: self.enforced.clone(),
                    frozen: self.frozen_since.is_some(),
                    freezes_by_group: matches!(self.freezer, Freezer::Group { .. }),
                    commands,
                };
                (answer, self.beside_hello())
            }
            Question::Attach { command } if self.is_spawned(*command) => {
                self.attach_spawned(*command).unwrap_or_else(failed)
            }
            Question::Attach { command } => {
                let running = self.commands.get_mut(command).and_then(Command::kept);
                let running = running.map(|kept| (&mut kept.output, &kept.memo));
                let ended = self.ended_runs.get_mut(command).map(|ended| (&mut ended.output, &ended.memo));
                let Some((output, memo)) = running.or(ended) else { return (Answer::Unknown, Vec::new()) };
                let answer = Answer::Attached { memo: memo.clone() };
                let shared = output.share().and_then(|(spool, counter)| {
                    Ok(vec![spool.try_clone_to_owned()?, counter.try_clone_to_owned()?])
                });
                shared.map_or_else(failed, |fds| (answer, fds))
            }
            Question::KillTree { command } => {
                let known = self.commands.contains_key(command);
                self.kill_tree(*command);
                self.kill_what_it_left(*command);
                (if known { Answer::Done } else { Answer::Unknown }, Vec::new())
            }
            Question::Freeze { on } => match self.freeze(*on) {
                Ok(()) => (Answer::Done, Vec::new()),
                Err(error) => failed(error),
            },
            Question::Hold { on } => match self.hold(*on) {
                Ok(()) => (Answer::Done, Vec::new()),
                Err(error) => failed(error),
            },
            Question::Signal { command, signal, whom } => {
                (self.signal_command(*command, *signal, *whom), Vec::new())
            }
            Question::Settle { command } => (self.settle(*command), Vec::new()),
            Question::BeginRun { command, mark, timeout_ms } => {
                (self.begin_run(*command, *mark, *timeout_ms), Vec::new())
            }
            Question::Run { command, mark } => (self.run_underway(*command, *mark), Vec::new()),
            Question::EndRun { command, mark } => (self.end_run(*command, *mark), Vec::new()),
            Question::Redacted => (Answer::Redacted(self.redaction.given().to_vec()), Vec::new()),
            Question::Connect { port, v6 } => match connect(*port, *v6) {
                Ok(socket) => (Answer::Connected, vec![socket]),
                Err(error) => failed(error),
            },
            Question::Mount { .. } | Question::Unmount { .. } | Question::Give(_) => {
                (Answer::Unknown, Vec::new())
            }
            Question::Namespaces => match self.census.namespaces() {
                Ok(namespaces) => (Answer::Namespaces, namespaces),
                Err(error) => failed(error),
            },
            Question::Ports => (Answer::Ports(self.census.ports(&self.staff)), Vec::new()),
            Question::Processes => (Answer::Processes(self.census.list(&self.staff)), Vec::new()),
            Question::Gauge => {
                let own_disk = self.enforced.holds(Layer::Disk);
                (Answer::Gauge(self.meters.gauge(&self.census, &self.staff, own_disk)), Vec::new())
            }
            Question::Usage => {
                let total = self.census.total(&self.staff);
                let answer = Answer::Usage {
                    cpu_micros: total.cpu_micros,
                    memory: total.memory,
                    processes: total.processes,
                };
                (answer, Vec::new())
            }
        }
    }

    /// What a host is given with the word that the room is there.
    pub(super) fn beside_hello(&self) -> Vec<OwnedFd> {
        let Some(root) = root_directory() else { return Vec::new() };
        self.vigil.bell().try_clone_to_owned().into_iter().chain([root]).collect()
    }

    /// Starts a command whose output stays here until somebody wants it.
    pub(super) fn run_kept(
        &mut self,
        command: u32,
        spec: CommandSpec,
        (rule, timeout_ms, memo): (OutputRule, Option<u64>, Vec<u8>),
        stdin: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let made = self.pipes.take(&self.epoll, command).and_then(|pair| {
            let mut kept = Kept::new(rule, timeout_ms, memo, pair.keys, &self.spool_space)?;
            kept.output.redact(self.redaction.of_command(command));
            let shared = if rule.live {
                let (spool, counter) = kept.output.share()?;
                vec![spool.try_clone_to_owned()?, counter.try_clone_to_owned()?]
            } else {
                Vec::new()
            };
            Ok((kept, pair.ends, shared))
        });
        match made {
            Ok((kept, [stdout, stderr], shared)) => {
                if rule.live {
                    self.host.tell(FromGuest::Started { command, pid: 0 }, shared)?;
                }
                // The guest's own is /dev/null.
                let stdin = stdin.first().map_or(rustix::stdio::stdin(), AsFd::as_fd);
                let stdio = [stdin, stdout.as_fd(), stderr.as_fd()];
                self.launch(command, spec, &stdio, None, Some(Box::new(kept)))
            }
            Err(error) => {
                let error = RoomError::new(
                    ErrorCode::OutputFull,
                    format!("the room has no room for another command's output: {error}"),
                    "wait until some of its commands have ended",
                );
                self.not_started(command, error)
            }
        }
    }

    /// Tells how a kept command ended, if it has.
    pub(super) fn tell_end(&mut self, command: u32) -> io::Result<()> {
        let Some(ended) = self.ended_runs.get(&command) else { return Ok(()) };
        let (output, spool) = match ended.spawned_pid {
            Some(_) => (None, None),
            None => ended.output.whole(),
        };
        // Without a descriptor to spare, that it ended is still told.
        let fds = spool.and_then(|spool| spool.try_clone_to_owned().ok());
        let finished = FromGuest::Finished { command, report: ended.report, output };
        self.host.tell(finished, fds.into_iter().collect())
    }

    /// Ends a command with everything that it started, and nothing else.
    pub(super) fn kill_tree(&mut self, command: u32) {
        self.hear_of_clerks();
        let Some(Command::Running { pid, kept, .. }) = self.commands.get(&command) else { return };
        let (pid, label) = (*pid, kept.as_ref().map_or(0, |kept| kept.label));
        self.kill_labelled(label);
        // Its own group too, which is known even where the label is not.
        signal_group(pid, Signal::KILL.as_raw());
    }

    pub(super) fn kill_labelled(&self, label: u64) {
        if label == 0 {
            return;
        }
        let (census, staff) = (&self.census, &self.staff);
        let is_sure = census.kill_tree(label, staff, FEW_LOOKS);
        if !is_sure && self.frozen_since.is_none() {
            self.freezer.while_still(|| census.kill_tree(label, staff, MOST_LOOKS));
        }
    }

    /// Whether the group that counts the room's processes says that there are none. It need not: it is a quick look. While
    /// another launcher is on its way, one who is counted may be anybody.
    fn group_is_empty(&self) -> bool {
        let of_launcher = self.launcher_parts.as_ref().is_some_and(|parts| !parts.work.join.is_empty());
        self.launcher.stands && self.meters.tasks() == Some(u64::from(of_launcher))
    }

    /// Ends what a command has left running that has ended itself. The kernel gives the number of a label that nothing
    /// has any more to the next one: nothing is ended that may be of another command.
    fn kill_what_it_left(&mut self, command: u32) {
        let Some(label) = self.ended_runs.get(&command).map(|ended| ended.label) else { return };
        self.end_what_is_left(label);
    }

    pub(super) fn end_what_is_left(&mut self, label: u64) {
        let is_or_may_be = |command: &Command| match command {
            Command::Launching { .. } => true,
            Command::Running { kept, .. } => kept.as_ref().is_some_and(|kept| kept.label == label),
        };
        // Most leave nobody: one look says so.
        if label == 0
            || self.commands.values().any(is_or_may_be)
            || self.group_is_empty()
            || self.census.others(&self.staff).is_empty()
        {
            return;
        }
        self.hear_of_clerks();
        self.kill_labelled(label);
    }

    /// While all stands still, so does every command's time.
    pub(super) fn nearest_deadline(&self) -> Option<Instant> {
        if self.frozen_since.is_some() {
            return None;
        }
        let deadline = |command: &Command| match command {
            Command::Launching { kept: Some(kept), .. } | Command::Running { kept: Some(kept), .. }
                if !kept.timed_out =>
            {
                kept.deadline
            }
            _ => None,
        };
        self.commands.values().filter_map(deadline).chain(self.next_of_runs()).min()
    }

    pub(super) fn check_deadlines(&mut self) -> io::Result<()> {
        self.help_runs_end();
        while self.nearest_deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            let now = Instant::now();
            let over = self.commands.iter_mut().find_map(|(id, command)| {
                let has_begun = matches!(command, Command::Running { .. });
                let kept = command.kept()?;
                let is_over = !kept.timed_out && kept.deadline.is_some_and(|deadline| deadline <= now);
                is_over.then(|| {
                    kept.timed_out = true;
                    (*id, has_begun)
                })
            });
            match over {
                Some((command, true)) => self.kill_tree(command),
                Some((command, false)) => self.give_up(command)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Holds all still for the host's work. What stands still already, for longer, is left alone.
    fn hold(&mut self, on: bool) -> io::Result<()> {
        if on && self.frozen_since.is_none() {
            self.freeze(true)?;
            self.held = true;
        } else if !on {
            self.let_go();
        }
        Ok(())
    }

    /// The host whose work all stood still for has done it, or is gone.
    pub(super) fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            let _ = self.freeze(false);
        }
    }

    pub(super) fn freeze(&mut self, on: bool) -> io::Result<()> {
        self.held = false;
        match (on, self.frozen_since) {
            (true, None) => {
                self.freezer.freeze(&self.census, &self.staff)?;
                self.frozen_since = Some(Instant::now());
            }
            (false, Some(since)) => {
                self.freezer.thaw(&self.census)?;
                let stood_still = since.elapsed();
                for kept in self.commands.values_mut().filter_map(Command::kept) {
                    kept.deadline = kept.deadline.map(|deadline| deadline + stood_still);
                    if let Some(run) = &mut kept.run {
                        run.stood_still(stood_still);
                    }
                }
                self.frozen_since = None;
            }
            _ => {}
        }
        Ok(())
    }
}

/// For the host to hold: with it, the end of the room does not wait for the disk.
fn root_directory() -> Option<OwnedFd> {
    rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}
