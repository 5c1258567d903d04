//! The keeper of one service: a task that alone changes its record, and brings it from one state to the next.
//!
//! ```text
//!             ┌──────────── Due ─────────── Backoff ◀──── by its policy ────┐
//!             ▼                                                             │
//!  Idle ──▶ Waiting ──those before it are ready, it is started──▶ Probing ──┤──▶ Up ── Ended ──▶ Idle
//!                                                                   └─ too late, failed ──▶ Idle
//! ```
//!
//! It asks the session's owner for everything, and only about the room that the service was started in: a keeper that
//! is late brings no room back. What it waits for can be given up at any time; what it does is done to its end.

use super::board::{Command, Doc, PART};
use super::found::{Beginning, Found};
use super::place::Place;
use super::{define, probe};
use crate::actor::Ask;
use crate::processes::entry::Entry;
use crate::room::gone;
use crate::storage;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use workroom_proto::{Question, Whom};
use workroom_store::Change;
use workroom_types::{
    Problem, ProblemCode, ProcessState, RestartPolicy, Service, ServiceSpec, ServiceState, SessionState,
    StopReason, Timestamp,
};

/// Who acts when nobody has asked.
const SERVER: &str = "server";

/// How soon a paused session is looked at again.
const PAUSED_FOR: Duration = Duration::from_millis(250);

/// How finely the time is counted in which a session is not paused.
const TICK: Duration = Duration::from_millis(50);

/// How long a killed process may take to be gone. It takes a moment; this is for a machine that is in trouble.
const GONE_WITHIN: Duration = Duration::from_secs(20);

const TERM: i32 = 15;

pub(super) struct Run {
    pub(super) entry: Arc<Entry>,
    /// Its number among the commands of its room.
    pub(super) command: Option<u32>,
}

pub(super) enum Phase {
    Idle,
    /// For those that it depends on.
    Waiting,
    Probing {
        run: Run,
        /// Of the time that it may take to be ready.
        left: Duration,
    },
    Up {
        run: Run,
    },
    Backoff {
        until: Instant,
    },
}

enum Event {
    Command(Command),
    /// Another room stands, or none.
    Room,
    Dependencies(Result<(), String>),
    Ready,
    /// Not in its time, and what the last look said.
    NotReady(String),
    Ended,
    Due,
    /// Nobody can want anything of it any more.
    Closed,
}

pub(super) struct Keeper {
    pub(super) place: Place,
    /// As it is; others see it once it is on its way to the store.
    pub(super) doc: Doc,
    pub(super) seen: watch::Sender<Doc>,
    phase: Phase,
    commands: mpsc::Receiver<Command>,
    room: watch::Receiver<u64>,
}

/// Starts a keeper, which begins with the service as it is: what its record says, seen with what runs. Returns where
/// its record is seen.
pub(super) fn keep(
    place: Place,
    doc: Doc,
    found: Found,
    commands: mpsc::Receiver<Command>,
    mut room: watch::Receiver<u64>,
) -> watch::Receiver<Doc> {
    let Beginning { doc, phase, is_lost } = found.beginning(doc, *room.borrow_and_update());
    let (seen, watch) = watch::channel(doc.clone());
    let keeper = Keeper { place, doc, seen, phase, commands, room };
    tokio::spawn(keeper.run(is_lost));
    watch
}

impl Keeper {
    async fn run(mut self, is_lost: bool) {
        if is_lost {
            self.tell("service.stopped", SERVER).await;
        }
        self.come_back().await;
        loop {
            match self.next().await {
                Event::Closed => return,
                Event::Command(Command::Remove { actor, reply }) => {
                    let removed = self.remove(&actor).await;
                    let is_gone = removed.is_ok();
                    let _ = reply.send(removed);
                    if is_gone {
                        return;
                    }
                }
                Event::Command(command) => self.obey(command).await,
                Event::Room => self.on_room().await,
                Event::Dependencies(Ok(())) | Event::Due => self.start().await,
                Event::Dependencies(Err(why)) => {
                    self.failed(StopReason::DependencyFailed, Some(why)).await;
                }
                Event::Ready => self.ready().await,
                Event::NotReady(why) => self.too_late(why).await,
                Event::Ended => self.ended().await,
            }
        }
    }

    /// What happens next. May be dropped at any point: it only waits.
    async fn next(&mut self) -> Event {
        let Keeper { place, doc, phase, commands, room, .. } = self;
        tokio::select! {
            biased;
            changed = room.changed() => if changed.is_ok() { Event::Room } else { Event::Closed },
            command = commands.recv() => command.map_or(Event::Closed, Event::Command),
            event = step(place, doc, phase) => event,
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Define { spec, actor, intent, reply } => {
                let done = self.define(*spec, &actor, intent).await;
                let _ = reply.send(done);
            }
            Command::Start { actor, reply } => {
                let done = if self.state().is_active() { Ok(()) } else { self.begin(&actor).await };
                let _ = reply.send(done);
            }
            Command::Stop { actor, reply } => {
                let done = self.stop(&actor).await;
                let _ = reply.send(done);
            }
            Command::Restart { actor, reply } => {
                let done = match self.stop(&actor).await {
                    Ok(()) => self.begin(&actor).await,
                    Err(problem) => Err(problem),
                };
                let _ = reply.send(done);
            }
            // Its caller does it, and then there is no keeper any more.
            Command::Remove { reply, .. } => drop(reply),
        }
    }

    async fn define(
        &mut self,
        spec: ServiceSpec,
        actor: &str,
        intent: Option<Box<Change>>,
    ) -> Result<(), Problem> {
        let name = &self.place.name;
        if self.state().is_active() {
            let state = self.state().as_str();
            return Err(Problem::new(
                ProblemCode::AlreadyExists,
                format!("there is a service {name} already, and it is {state}"),
                "stop it first, or choose another name",
            ));
        }
        let before = self.doc.clone();
        let body = json!({
            "name": name, "command": spec.command, "argv": spec.argv, "user": spec.user,
            "readiness": spec.readiness, "restart": spec.restart, "depends_on": spec.depends_on,
            "autostart": spec.autostart,
        });
        self.change(|doc| {
            let process = doc.service.process.take();
            let name = std::mem::take(&mut doc.service.name);
            doc.service = Service { name, process, definition: spec, ..Service::default() };
            doc.is_settled = true;
        });
        let mut changes = vec![self.part(), self.journal("service.defined", actor, body)];
        changes.extend(intent.map(|intent| *intent));
        if let Err(error) = self.place.shared.store.commit(changes).await {
            self.doc = before;
            return Err(storage(error));
        }
        self.publish();
        Ok(())
    }

    /// On its way from here: recorded, and waiting for those before it.
    async fn begin(&mut self, actor: &str) -> Result<(), Problem> {
        let room = *self.room.borrow_and_update();
        if room == 0 {
            return Err(gone("the session has no room"));
        }
        let before = self.doc.clone();
        self.change(|doc| doc.begun(room, actor));
        if let Err(error) = self.place.shared.store.commit(vec![self.part()]).await {
            self.doc = before;
            return Err(storage(error));
        }
        self.phase = Phase::Waiting;
        self.publish();
        Ok(())
    }

    /// A service that was up when its room ended is so again in the next one, if it asks for that.
    async fn come_back(&mut self) {
        let stands = *self.room.borrow() > 0;
        let is_wanted = {
            let service = &self.doc.service;
            service.definition.autostart
                && service.state == ServiceState::Stopped
                && service.stop_reason == Some(StopReason::SessionStopped)
        };
        if stands
            && is_wanted
            && let Err(problem) = self.begin(SERVER).await
        {
            tracing::warn!(session = %self.place.session, service = %self.place.name, %problem, "does not come back");
        }
    }

    async fn on_room(&mut self) {
        let room = *self.room.borrow_and_update();
        let was_in = self.doc.room;
        if self.state().is_active() && room != was_in {
            match self.phase {
                // Nothing of it was in the room that was replaced.
                Phase::Backoff { .. } if room > 0 => self.change(|doc| doc.room = room),
                _ => self.lost().await,
            }
        }
        self.come_back().await;
    }

    /// Its room is gone, and its process with it.
    async fn lost(&mut self) {
        self.phase = Phase::Idle;
        self.change(|doc| doc.over(ServiceState::Stopped, Some(StopReason::SessionStopped)));
        self.tell("service.stopped", SERVER).await;
    }

    async fn failed(&mut self, reason: StopReason, detail: Option<String>) {
        self.phase = Phase::Idle;
        self.change(|doc| {
            doc.over(ServiceState::Failed, Some(reason));
            doc.service.detail = detail;
        });
        self.tell("service.failed", SERVER).await;
    }

    /// Starts its process.
    async fn start(&mut self) {
        let (spec, room, actor) = {
            let doc = &self.doc;
            (doc.service.definition.clone(), doc.room, doc.actor.clone())
        };
        let spawned = match define::spawn_plan(&spec, &self.place.name, &self.place.shared, &actor) {
            Ok(plan) => {
                let plan = Box::new(plan);
                self.place.ask(room, |reply| Ask::Spawn { plan, reply }).await
            }
            Err(problem) => Err(problem),
        };
        let entry = match spawned {
            Ok(entry) => entry,
            Err(problem) => return self.not_started(room, problem).await,
        };
        let info = entry.info();
        // It may have ended by now, and left something.
        let command = entry.ran_as();
        self.change(|doc| {
            let service = &mut doc.service;
            service.state = ServiceState::Running;
            (service.process, service.pid) = (Some(info.id), Some(info.pid));
            service.started_at = Some(info.started);
            (service.ready_at, service.ended_at, service.exit_code) = (None, None, None);
            doc.command = command;
        });
        self.tell("service.started", &actor).await;
        let left = define::ready_timeout(&spec);
        self.phase = Phase::Probing { run: Run { entry, command }, left };
        if spec.readiness.is_none() {
            self.ready().await;
        }
    }

    async fn not_started(&mut self, room: u64, problem: Problem) {
        if *self.room.borrow() != room || problem.code == ProblemCode::RoomGone {
            // What becomes of it is decided when it is known which room stands.
            return self.lost().await;
        }
        if problem.code == ProblemCode::WrongState {
            self.phase = Phase::Backoff { until: Instant::now() + PAUSED_FOR };
            return;
        }
        let ended = Timestamp::now();
        self.change(|doc| {
            (doc.service.ended_at, doc.service.pid) = (Some(ended), None);
            doc.service.detail = Some(problem.to_string());
        });
        let refused_for_good = matches!(
            problem.code,
            ProblemCode::CommandNotFound
                | ProblemCode::CommandNotExecutable
                | ProblemCode::InvalidArgument
                | ProblemCode::SecretNotFound
        );
        if refused_for_good || self.spec().restart == RestartPolicy::Never {
            return self.failed(StopReason::NotStarted, Some(problem.to_string())).await;
        }
        self.start_again(Duration::ZERO).await;
    }

    async fn ready(&mut self) {
        let Phase::Probing { run, .. } = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        self.phase = Phase::Up { run };
        self.change(|doc| {
            doc.service.state = ServiceState::Ready;
            doc.service.ready_at = Some(Timestamp::now());
            doc.service.detail = None;
            doc.is_settled = true;
        });
        self.tell("service.ready", SERVER).await;
    }

    async fn too_late(&mut self, why: String) {
        let Phase::Probing { run, .. } = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        self.end(&run).await;
        if self.ended_with(&run) == ProcessState::Lost {
            return self.lost().await;
        }
        let within = define::ready_timeout(&self.spec()).as_millis();
        let detail = match why.as_str() {
            "" => format!("not ready within {within} ms"),
            why => format!("not ready within {within} ms: {why}"),
        };
        self.failed(StopReason::ReadinessTimeout, Some(detail)).await;
    }

    /// Takes over how a run ended.
    fn ended_with(&mut self, run: &Run) -> ProcessState {
        let info = run.entry.info();
        self.change(|doc| {
            doc.service.pid = None;
            doc.service.ended_at = info.ended;
            doc.service.exit_code = info.exit.as_ref().map(|exit| exit.code);
        });
        info.state
    }

    /// It has ended by itself.
    async fn ended(&mut self) {
        let run = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Probing { run, .. } | Phase::Up { run } => run,
            _ => return,
        };
        if self.ended_with(&run) == ProcessState::Lost {
            return self.lost().await;
        }
        self.kill_tree(&run).await;
        let (was_ready, code, spec) = {
            let service = &self.doc.service;
            (service.state == ServiceState::Ready, service.exit_code, service.definition.clone())
        };
        let again = match spec.restart {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => !was_ready || code != Some(0),
            RestartPolicy::Always => true,
        };
        if again {
            let lasted = run.entry.info().exit.map_or(0, |exit| exit.duration_ms);
            self.start_again(Duration::from_millis(lasted)).await;
        } else if was_ready {
            self.change(|doc| doc.over(ServiceState::Exited, None));
            self.tell("service.exited", SERVER).await;
        } else {
            self.failed(StopReason::ProcessExitedBeforeReady, None).await;
        }
    }

    /// By its policy, after a while; unless that was tried too often.
    async fn start_again(&mut self, lasted: Duration) {
        let spec = self.spec();
        if lasted >= define::reset_after(&spec) {
            self.change(|doc| doc.in_a_row = 0);
        }
        let in_a_row = self.doc.in_a_row + 1;
        let most = define::most_restarts(&spec);
        if in_a_row > most {
            let detail = format!("it was restarted {most} times in a row and ended each time");
            return self.failed(StopReason::CrashLoop, Some(detail)).await;
        }
        let pause = define::pause_before(&spec, in_a_row);
        self.phase = Phase::Backoff { until: Instant::now() + pause };
        self.change(|doc| {
            doc.service.state = ServiceState::Starting;
            (doc.service.pid, doc.command) = (None, None);
            doc.service.restarts += 1;
            doc.in_a_row = in_a_row;
        });
        self.place.shared.store.note(self.part()).await;
        let Change::Journal { mut body, .. } = self.entry("service.restarting", SERVER) else { return };
        body["in_ms"] = json!(pause.as_millis() as u64);
        self.place.shared.store.note(self.journal("service.restarting", SERVER, body)).await;
        self.publish();
    }

    async fn stop(&mut self, actor: &str) -> Result<(), Problem> {
        if !self.state().is_active() {
            // It is not to come back.
            let waits = self.doc.service.stop_reason == Some(StopReason::SessionStopped);
            if waits {
                self.change(|doc| doc.service.stop_reason = None);
                self.place.shared.store.commit(vec![self.part()]).await.map_err(storage)?;
                self.publish();
            }
            return Ok(());
        }
        if self.place.is_paused() {
            return Err(Problem {
                hint: "resume it first".into(),
                ..Problem::wrong_state(SessionState::Paused, "worked in")
            });
        }
        let mut reason = None;
        if let Phase::Probing { run, .. } | Phase::Up { run } =
            std::mem::replace(&mut self.phase, Phase::Idle)
        {
            reason = Some(self.end(&run).await);
            self.ended_with(&run);
        }
        self.change(|doc| doc.over(ServiceState::Stopped, reason));
        let changes = vec![self.part(), self.entry("service.stopped", actor)];
        let recorded = self.place.shared.store.commit(changes).await;
        // It is stopped whatever the store says, and without its process this is what a next server would find.
        self.publish();
        recorded.map(drop).map_err(storage)
    }

    async fn remove(&mut self, actor: &str) -> Result<(), Problem> {
        self.stop(actor).await?;
        let (session, kind, id) = (self.place.session.clone(), PART.to_owned(), self.place.name.clone());
        let body = json!({ "name": id });
        let changes =
            vec![Change::DropPart { session, kind, id }, self.journal("service.removed", actor, body)];
        self.place.shared.store.commit(changes).await.map_err(storage)?;
        Ok(())
    }

    /// TERM to its group, and after a while KILL to all that it started. Says which of the two it took.
    async fn end(&self, run: &Run) -> StopReason {
        let room = self.doc.room;
        if let Some(command) = run.command {
            let question = Question::Signal { command, signal: TERM, whom: Whom::Group };
            let _ = self.place.ask(room, |reply| Ask::Guest { question, reply }).await;
        }
        let patience = define::stop_timeout(&self.spec());
        let reason = match tokio::time::timeout(patience, run.entry.end()).await {
            Ok(()) => StopReason::Sigterm,
            Err(_) => StopReason::Sigkill,
        };
        // Also after TERM: what it started may not have been of its group.
        self.kill_tree(run).await;
        if tokio::time::timeout(GONE_WITHIN, run.entry.end()).await.is_err() {
            tracing::error!(session = %self.place.session, service = %self.place.name, "a killed service is not gone yet");
        }
        reason
    }

    async fn kill_tree(&self, run: &Run) {
        let room = self.doc.room;
        let Some(command) = run.command else { return };
        let question = Question::KillTree { command };
        let _ = self.place.ask(room, |reply| Ask::Guest { question, reply }).await;
    }
}

/// What a phase waits for.
async fn step(place: &Place, doc: &Doc, phase: &mut Phase) -> Event {
    match phase {
        Phase::Idle => std::future::pending().await,
        Phase::Waiting => {
            let names = doc.service.definition.depends_on.clone();
            Event::Dependencies(place.dependencies(&names).await)
        }
        Phase::Backoff { until } => {
            sleep_until(*until).await;
            Event::Due
        }
        Phase::Up { run } => {
            run.entry.end().await;
            Event::Ended
        }
        Phase::Probing { run, left } => {
            let (spec, room) = (&doc.service.definition, doc.room);
            tokio::select! {
                biased;
                () = run.entry.end() => Event::Ended,
                event = probing(place, room, spec, left) => event,
            }
        }
    }
}

/// Looks until it is ready or its time is over. While the session is paused, so is its time.
async fn probing(place: &Place, room: u64, spec: &ServiceSpec, left: &mut Duration) -> Event {
    let mut objection = String::new();
    let at_most = *left;
    tokio::select! {
        biased;
        () = looks(place, room, spec, (at_most, &mut objection)) => Event::Ready,
        () = spend(place, left) => Event::NotReady(objection),
    }
}

async fn looks(place: &Place, room: u64, spec: &ServiceSpec, (left, objection): (Duration, &mut String)) {
    loop {
        if place.is_paused() {
            tokio::time::sleep(PAUSED_FOR).await;
            continue;
        }
        match probe::look(place, room, spec, left).await {
            Ok(()) => return,
            Err(why) => *objection = why,
        }
        tokio::time::sleep(define::ready_interval(spec)).await;
    }
}

/// Returns when the session was not paused for so long.
async fn spend(place: &Place, left: &mut Duration) {
    while !left.is_zero() {
        let since = Instant::now();
        let was_paused = place.is_paused();
        tokio::time::sleep(TICK.min(*left)).await;
        if !was_paused && !place.is_paused() {
            *left = left.saturating_sub(since.elapsed());
        }
    }
}
