//! Commands of a session: started, heard of, ended.

use super::{Actor, Live, Reply, Waiter};
use crate::IdempotencyKey;
use crate::exec::{ExecPlan, Finished, Memo, Output};
use crate::files::clerks::Clerks;
use crate::room::{RoomEvent, gone};
use crate::secrets::redactors::clean_text;
use serde_json::json;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use workroom_proto::{Answer, FromGuest, Question, SpoolReader, ToGuest};
use workroom_types::{JournalEntry, Problem, ProcessInfo, SessionState, Timestamp};

/// How long a guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// More ends than a guest is ever behind with forgetting.
const MOST_RECORDED: u32 = 512;

/// How soon an answer under a key is remembered. Until then the guest keeps the end: a server that comes after this one
/// can still give it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Ends of little output that the guest keeps although they are known.
const MOST_TO_FORGET: usize = 64;

/// Bytes that ends of much output may take while they are kept for a server that comes after this one. A guest has four
/// times as much for all of its commands.
const MOST_KEPT_FOR_ANOTHER: u64 = 64 << 20;

/// An end that is known here and still kept by the guest.
pub(super) struct Known {
    pub(super) command: u32,
    /// If it is kept for a while longer.
    pub(super) not_before: Option<Instant>,
    /// What its output takes of the guest's memory.
    pub(super) spooled: u64,
}

impl Actor {
    pub(super) async fn exec(
        &mut self,
        mut plan: ExecPlan,
        live: Option<oneshot::Sender<Live>>,
        reply: Reply<Finished>,
    ) {
        if let Err(problem) = self.room_for_work(&plan.memo.actor).await {
            let _ = reply.send(Err(problem));
            return;
        }
        let most = self.shared.config.exec.concurrent;
        if self.commands.len() as u64 >= most {
            let detail = format!("{most} commands are under way in this session, which is the most");
            let _ =
                reply.send(Err(Problem::limit("concurrent", detail, "wait for one to end").retry_after(1)));
            return;
        }
        let command = self.next_command;
        self.next_command = self.next_command.wrapping_add(1);
        let hidden = match self.give_secrets(command, &mut plan.spec, &plan.secrets).await {
            Ok(hidden) => hidden,
            Err(problem) => {
                let _ = reply.send(Err(problem));
                return;
            }
        };
        hidden.clean_text(&mut plan.memo.text);
        let started = Timestamp::now();
        plan.memo.started = Some(started);
        self.tell_of_proxy(&mut plan.spec);
        let run = ToGuest::Run {
            command,
            spec: plan.spec,
            output: plan.rule,
            timeout_ms: Some(plan.timeout.as_millis() as u64),
            memo: serde_json::to_vec(&plan.memo).unwrap_or_default(),
            forget: self.due_to_be_forgotten(),
            alone: plan.alone,
        };
        let Some(room) = &self.room else { return };
        let stdin: Vec<OwnedFd> = plan.stdin.into_iter().collect();
        if let Err(problem) = room.send(&run, &stdin).await {
            let _ = reply.send(Err(problem));
            return;
        }
        if !plan.memo.quiet {
            self.row.session.counters.execs += 1;
            self.row.waiting = false;
        }
        self.shared.metrics.execs_started.fetch_add(1, Relaxed);
        self.shared.metrics.execs_running.fetch_add(1, Relaxed);
        let redactor = Some(hidden.redactor);
        let waiter = Waiter { memo: plan.memo, started, live, reply: Some(reply), redactor };
        self.commands.insert(command, waiter);
    }

    /// Tells the guest which ends need not be told again. Not at once: it would wake up for nothing else, while the
    /// caller waits for its answer.
    pub(super) async fn let_guest_forget(&mut self) {
        for command in self.due_to_be_forgotten() {
            if let Some(room) = &self.room {
                let _ = room.send(&ToGuest::Forget { command }, &[]).await;
            }
        }
    }

    fn due_to_be_forgotten(&mut self) -> Vec<u32> {
        let now = Instant::now();
        let due = self.to_forget.extract_if(.., |known| known.not_before.is_none_or(|at| at <= now));
        due.map(|known| known.command).collect()
    }

    /// The end of a command is known. Of much output the oldest goes, though it might have been asked for again.
    fn know(&mut self, known: Known) {
        self.to_forget.push(known);
        let mut spooled: u64 = self.to_forget.iter().map(|known| known.spooled).sum();
        for known in &mut self.to_forget {
            if spooled <= MOST_KEPT_FOR_ANOTHER {
                break;
            }
            if known.spooled > 0 {
                known.not_before = None;
                spooled -= known.spooled;
            }
        }
    }

    /// A room that can work: one that stands, or a new one.
    pub(super) async fn room_for_work(&mut self, actor: &str) -> Result<(), Problem> {
        match self.state() {
            SessionState::Running => Ok(()),
            SessionState::Stopped | SessionState::Failed | SessionState::Queued => {
                Box::pin(self.start(None, actor)).await
            }
            SessionState::Paused => Err(Problem {
                hint: "resume it first".into(),
                ..Problem::wrong_state(SessionState::Paused, "worked in")
            }),
            state => Err(Problem::wrong_state(state, "worked in")),
        }
    }

    /// Who does the file work of a room. The work itself is its caller's to wait for.
    pub(super) async fn clerks(&mut self, actor: &str) -> Result<Arc<Clerks>, Problem> {
        self.room_for_work(actor).await?;
        if let Some(clerks) = &self.clerks {
            return Ok(clerks.clone());
        }
        let Some(room) = &self.room else { return Err(gone("the session has no room")) };
        let line = room.second_line().map_err(|_| gone("the room cannot be reached"))?;
        Ok(self.clerks.insert(Arc::new(Clerks::new(line))).clone())
    }

    /// Of a room that is there: looking is no reason to make one.
    pub(super) async fn in_room(&mut self) -> Result<Vec<ProcessInfo>, Problem> {
        if self.room.is_none() {
            return Ok(Vec::new());
        }
        match self.ask(Question::Processes).await? {
            (Answer::Processes(mut list), _) => {
                list.iter_mut().for_each(|process| self.clean(&mut process.command));
                Ok(list)
            }
            _ => Err(gone("the room does not answer as it should")),
        }
    }

    /// Asks the guest and waits for its answer; what else it says meanwhile is dealt with.
    pub(super) async fn ask(&mut self, question: Question) -> Result<(Answer, Vec<OwnedFd>), Problem> {
        self.ask_with(question, Vec::new()).await
    }

    pub(super) async fn ask_with(
        &mut self,
        question: Question,
        beside: Vec<OwnedFd>,
    ) -> Result<(Answer, Vec<OwnedFd>), Problem> {
        self.ask_within(PATIENCE, question, beside).await
    }

    pub(super) async fn ask_within(
        &mut self,
        patience: Duration,
        question: Question,
        beside: Vec<OwnedFd>,
    ) -> Result<(Answer, Vec<OwnedFd>), Problem> {
        let request = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        let Some(room) = &self.room else { return Err(gone("the session has no room")) };
        let deadline = Instant::now() + patience;
        let ask = ToGuest::Ask { request, question };
        let Ok(sent) = tokio::time::timeout_at(deadline, room.send(&ask, &beside)).await else {
            return Err(gone("the room does not read what it is asked"));
        };
        sent?;
        loop {
            let Some(room) = &self.room else { return Err(gone("the room ended")) };
            let Ok(event) = tokio::time::timeout_at(deadline, room.next()).await else {
                return Err(gone("the room does not answer"));
            };
            match event {
                RoomEvent::Message(FromGuest::Answer { request: to, answer }, fds) if to == request => {
                    return Ok((answer, fds));
                }
                RoomEvent::HungUp => return Err(gone("the room hung up")),
                event => Box::pin(self.on_event(event)).await,
            }
        }
    }

    pub(super) async fn on_event(&mut self, event: RoomEvent) {
        match event {
            RoomEvent::Message(message, fds) => self.on_message(message, fds).await,
            RoomEvent::HungUp => Box::pin(self.call_again()).await,
            RoomEvent::Gone => {
                self.shared.metrics.rooms_lost.fetch_add(1, Relaxed);
                tracing::warn!(session = %self.row.session.id, "a room ended by itself: the session is stopped");
                Box::pin(self.end_room("the room ended")).await;
                self.enter(SessionState::Stopped, Some("its room ended unexpectedly".into()));
                let reason = self.row.session.reason.clone();
                self.note("session.stopped", "server", json!({ "reason": reason })).await;
            }
        }
    }

    pub(super) async fn call_again(&mut self) {
        let Some(room) = &self.room else { return };
        match room.call_again().await {
            Some(adopted) => {
                let known: Vec<u32> = self.commands.keys().copied().collect();
                self.move_in(adopted.room);
                // Others are asked for on the new line.
                self.clerks = None;
                self.secrets_of_adopted().await;
                // The guest tells the ends that were lost with the line once more.
                for command in known {
                    let _ = self.ask(Question::Attach { command }).await;
                }
                for command in self.table.commands() {
                    self.attach_again(command).await;
                }
            }
            None => Box::pin(self.on_event(RoomEvent::Gone)).await,
        }
    }

    pub(super) async fn on_message(&mut self, message: FromGuest, mut fds: Vec<OwnedFd>) {
        match message {
            FromGuest::Started { command, .. } if fds.len() == 2 => {
                let counter = fds.remove(1);
                let waiter = self.commands.get_mut(&command).and_then(|waiter| waiter.live.take());
                if let (Some(live), Ok(spool)) = (waiter, SpoolReader::new(fds.remove(0))) {
                    let _ = live.send(Live { spool, counter });
                }
            }
            FromGuest::Spawned { command, pid } => {
                Box::pin(self.process_started(command, pid, fds)).await;
            }
            FromGuest::NotStarted { command, error } if self.table.has(command) => {
                Box::pin(self.process_not_started(command, error)).await;
            }
            FromGuest::NotStarted { command, mut error } => {
                let Some(waiter) = self.commands.remove(&command) else { return };
                if let Some(redactor) = &waiter.redactor {
                    clean_text(redactor, &mut error.detail);
                }
                self.touch();
                self.shared.metrics.execs_running.fetch_sub(1, Relaxed);
                let body =
                    json!({ "command": waiter.memo.text, "code": error.code, "reason": error.to_string() });
                let entry = self.entry("exec.refused", &waiter.memo.actor, body);
                let adopted = waiter.memo.key.as_ref().and_then(|key| self.adopted_waiters.remove(key));
                for reply in adopted.into_iter().flatten() {
                    let _ = reply.send(Err(error.clone().into()));
                }
                if let Some(reply) = waiter.reply {
                    let _ = reply.send(Err(error.into()));
                }
                if !waiter.memo.quiet {
                    self.shared.store.note(entry).await;
                }
            }
            // It is told once more when it is asked about.
            FromGuest::Finished { command, .. } if self.unattached.contains(&command) => {}
            FromGuest::Finished { command, report, .. } if self.table.has(command) => {
                Box::pin(self.process_finished(command, report)).await;
            }
            FromGuest::Finished { command, report, output } => {
                let waiter = self.commands.remove(&command);
                let output = match (output, fds.pop().map(SpoolReader::new)) {
                    (Some(small), _) => Output::Small(small),
                    (None, Some(Ok(spool))) => Output::Spool(spool),
                    (None, _) => Output::Small(Default::default()),
                };
                let is_keyed = waiter.as_ref().is_some_and(|waiter| waiter.memo.key.is_some());
                let not_before = is_keyed.then(|| Instant::now() + ANSWERED_WITHIN);
                let spooled = match &output {
                    Output::Spool(spool) => spool.size().unwrap_or(0),
                    Output::Small(_) => 0,
                };
                self.know(Known { command, not_before, spooled });
                let Some(waiter) = waiter else { return };
                // A spool takes memory for as long as the guest has it.
                let at_once = matches!(output, Output::Spool(_)) || self.to_forget.len() >= MOST_TO_FORGET;
                self.finished(command, waiter, Finished { report, output }).await;
                if at_once {
                    self.let_guest_forget().await;
                }
            }
            _ => {}
        }
    }

    pub(super) async fn finished(&mut self, command: u32, waiter: Waiter, end: Finished) {
        self.touch();
        let report = end.report;
        let metrics = &self.shared.metrics;
        metrics.execs_running.fetch_sub(1, Relaxed);
        metrics.execs_timed_out.fetch_add(u64::from(report.timed_out), Relaxed);
        metrics.output_bytes.fetch_add(report.written[0] + report.written[1], Relaxed);
        let Waiter { memo, started, reply, .. } = waiter;
        let (text, actor, quiet) = (memo.text.clone(), memo.actor.clone(), memo.quiet);
        self.count_end(&report, &text, None);
        match (reply, memo.key.clone()) {
            (Some(reply), _) => {
                // Its end is in the journal by the time that the caller can look: who is answered runs after us.
                let _ = reply.send(Ok(end));
            }
            (None, Some(key)) => self.keep_end(key, end, memo),
            (None, None) => {}
        }
        if self.recorded.remove(&(command.into(), started.to_rfc3339())) || quiet {
            return;
        }
        let body = json!({
            "command": text,
            "number": command,
            "exit_code": if report.timed_out { 124 } else { report.exit.status() },
            "timed_out": report.timed_out,
            "oom_killed": report.oom_killed,
            "started": started,
            "duration_ms": report.duration_micros / 1000,
            "stdout_bytes": report.written[0],
            "stderr_bytes": report.written[1],
        });
        self.shared.store.note(self.entry("exec.finished", &actor, body)).await;
    }

    /// Which of the last ends an earlier server has recorded.
    pub(super) async fn recorded_ends(&self, commands: &[u32]) -> HashSet<(u64, String)> {
        if commands.is_empty() {
            return HashSet::new();
        }
        let id = &self.row.session.id;
        let last = self.shared.store.journal_last(id, "exec.finished", MOST_RECORDED).await;
        let end = |entry: &JournalEntry| {
            Some((entry.body["number"].as_u64()?, entry.body["started"].as_str()?.to_owned()))
        };
        last.unwrap_or_default().iter().filter_map(end).collect()
    }

    /// For a caller of an earlier server, who is here again or may come.
    pub(super) fn keep_end(&mut self, key: IdempotencyKey, end: Finished, memo: Memo) {
        let waiting = self.adopted_waiters.remove(&key).and_then(|mut waiters| waiters.pop());
        match waiting {
            Some(reply) => {
                let _ = reply.send(Ok((end, memo)));
            }
            None => {
                self.adopted_ends.insert(key, (end, memo));
            }
        }
    }
}
