//! Shells that commands are given to: which command one is at, and the end of the command's time.
//!
//! The guest keeps the time, as it does for all commands: a host's end is not a command's.

use super::{Command, Pid1};
use crate::census::{FEW_LOOKS, signal};
use crate::runs::Kept;
use crate::since::ShellRun;
use rustix::process::Signal;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use workroom_proto::{Answer, LEAVE_COMMAND, RunStage};

/// How long one that was interrupted may take to end, and how long the shell has when all that it waited for is dead.
const GRACE: Duration = Duration::from_secs(1);

/// How often the shell is told again meanwhile: one word takes it out of one thing.
const AGAIN: Duration = Duration::from_millis(50);

impl Pid1 {
    fn kept_of(&mut self, command: u32) -> Option<&mut Kept> {
        match self.commands.get_mut(&command) {
            Some(Command::Running { kept: Some(kept), .. }) => Some(kept),
            _ => None,
        }
    }

    pub(super) fn begin_run(&mut self, command: u32, mark: u64, timeout_ms: u64) -> Answer {
        let since = self.census.moment();
        let Some(Command::Running { kept: Some(kept), .. }) = self.commands.get_mut(&command) else {
            return Answer::Unknown;
        };
        if let Some(run) = kept.run.as_ref().filter(|run| !run.is_over) {
            return Answer::RunUnderway { mark: run.mark };
        }
        self.pipes.read_now(kept);
        let began = kept.output.written();
        let over = Instant::now().checked_add(Duration::from_millis(timeout_ms));
        kept.run = Some(Box::new(ShellRun {
            mark,
            began,
            since,
            stage: RunStage::Running,
            next: over,
            until: over.unwrap_or_else(Instant::now),
            interrupted: HashSet::new(),
            is_over: false,
        }));
        Answer::RunBegun { began }
    }

    pub(super) fn run_underway(&mut self, command: u32, mark: u64) -> Answer {
        let run = self.kept_of(command).and_then(|kept| kept.run.as_ref());
        match run.filter(|run| run.mark == mark && !run.is_over) {
            Some(run) => Answer::RunBegun { began: run.began },
            None => Answer::Unknown,
        }
    }

    pub(super) fn end_run(&mut self, command: u32, mark: u64) -> Answer {
        self.hear_of_clerks();
        let ended = |run: &mut ShellRun, written| {
            (run.is_over, run.next) = (true, None);
            Answer::RunEnded { began: run.began, written, stage: run.stage }
        };
        if let Some(Command::Running { pid, kept: Some(kept), .. }) = self.commands.get_mut(&command) {
            // What it had put behind is not waited for by the shell, and is not left behind either.
            if let Some(run) = kept.run.as_ref().filter(|run| run.stage > RunStage::Running && !run.is_over) {
                self.census.end_begun_since(run.since, *pid, kept.label, &self.staff, FEW_LOOKS);
            }
            self.pipes.read_now(kept);
            // What comes later is not this command's.
            kept.output.finish();
            let written = kept.output.written();
            return match kept.run.as_mut().filter(|run| run.mark == mark) {
                Some(run) => ended(run, written),
                None => Answer::Unknown,
            };
        }
        let Some(shell) = self.ended_runs.get_mut(&command) else { return Answer::Unknown };
        let written = shell.output.written();
        match shell.run.as_mut().filter(|run| run.mark == mark) {
            Some(run) => ended(run, written),
            None => Answer::Unknown,
        }
    }

    /// When a shell's command is to be helped to its end next.
    pub(super) fn next_of_runs(&self) -> Option<Instant> {
        let next = |command: &Command| match command {
            Command::Running { kept: Some(kept), .. } => kept.run.as_ref()?.next,
            _ => None,
        };
        self.commands.values().filter_map(next).min()
    }

    pub(super) fn help_runs_end(&mut self) {
        let now = Instant::now();
        if self.frozen_since.is_some() || self.next_of_runs().is_none_or(|next| next > now) {
            return;
        }
        self.hear_of_clerks();
        let (census, staff) = (&self.census, &self.staff);
        for command in self.commands.values_mut() {
            let Command::Running { pid, kept: Some(kept), .. } = command else { continue };
            let (shell, label) = (*pid, kept.label);
            let Some(run) = kept.run.as_mut().filter(|run| run.next.is_some_and(|next| next <= now)) else {
                continue;
            };
            if now >= run.until {
                run.stage = match run.stage {
                    RunStage::Running => RunStage::Interrupted,
                    RunStage::Interrupted => RunStage::Killed,
                    RunStage::Killed | RunStage::ShellKilled => RunStage::ShellKilled,
                };
                run.until = now + GRACE;
            }
            run.next = Some(now + AGAIN);
            // First: by the time that what it waits for ends, it knows not to go on with the next thing.
            if let Some(leave) = Signal::from_named_raw(LEAVE_COMMAND) {
                signal(shell, leave);
            }
            match run.stage {
                RunStage::Running => {}
                RunStage::Interrupted => {
                    let mut found = census.begun_since(run.since, shell, label, staff);
                    found.retain(|pid| run.interrupted.insert(*pid));
                    for pid in found {
                        signal(pid, Signal::INT);
                        signal(pid, Signal::CONT);
                    }
                }
                RunStage::Killed => census.end_begun_since(run.since, shell, label, staff, FEW_LOOKS),
                RunStage::ShellKilled => {
                    census.end_begun_since(run.since, shell, label, staff, FEW_LOOKS);
                    signal(shell, Signal::KILL);
                    run.next = None;
                }
            }
            // One that was stopped hears nothing.
            signal(shell, Signal::CONT);
        }
    }
}
