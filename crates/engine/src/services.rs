//! Services of a session: long-running commands that are kept up, as callers define and handle them.
//!
//! ```text
//!  server ──▶ Engine ──Ask::Services──▶ the session's owner: keeps the board, tells it which room stands
//!                │ commands                 │
//!                ▼                          ▼
//!  board.rs: all of them ──▶ keeper.rs: one task for each ──asks of that room only──▶ owner: starts, signals
//!                                │ probe.rs: is it ready?
//!                                └ its run is an entry of the process table; logs.rs: what it wrote
//! ```

pub(crate) mod board;
mod define;
mod found;
mod keeper;
mod logs;
mod place;
mod probe;
mod record;

pub use logs::LogQuery;

use crate::actor::{Ask, Handle};
use crate::idempotency::intent;
use crate::policy;
use crate::secrets::redactors::refuse_secrets;
use crate::{Engine, Permit, ProcessHandle, filters, sessions, storage};
use board::{Board, Command, Slot};
use std::sync::Arc;
use std::time::Duration;
use workroom_types::{
    Caller, Problem, ProblemCode, ProcessKind, Service, ServiceList, ServiceLogs, ServiceSpec, SessionState,
};

/// One whose restarts go on for longer is answered for as it is.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

impl Engine {
    /// Defines a service and starts it. Returns when it is ready or has failed, or at once; and whether it is new.
    pub async fn put_service(
        &self,
        caller: &Caller,
        (id, name): (&str, &str),
        spec: ServiceSpec,
        wait: bool,
        permit: Option<&Permit>,
    ) -> Result<(Service, bool), Problem> {
        self.open_for_work()?;
        define::name(name)?;
        define::check(&spec, name, &self.shared)?;
        let (handle, board) = self.board(caller, id).await?;
        let text = filters::text_of(spec.command.as_deref(), spec.argv.as_deref());
        self.shared.filter_command((id, &handle.owner), caller, &text).await?;
        if handle.session().state == SessionState::Paused {
            // Before anything is defined that could not be started.
            room(&handle, id, caller).await?;
        }
        if policy::effective(&self.shared, &handle.session()).secrets.is_some() {
            // With a room it is known what must not be in a definition, which is kept.
            room(&handle, id, caller).await?;
        }
        refuse_secrets(&handle.redactor.get(), &spec, "the service's definition")?;
        let changing = board.changing().await;
        let is_new = board.slot(name).is_none();
        // Defined by an attempt that was cut short by the server's end: it only has to be up.
        let was_defined = permit.is_some_and(|permit| permit.resource.is_some()) && !is_new;
        if !was_defined {
            define::dependencies(&board, name, &spec.depends_on)?;
            let slot = board.make(&self.shared, name)?;
            let intent = permit.map(|permit| Box::new(intent(permit, name)));
            let actor = caller.name.clone();
            let defined =
                slot.ask(|reply| Command::Define { spec: Box::new(spec), actor, intent, reply }).await;
            if let Err(problem) = defined {
                if is_new {
                    board.forget(name);
                }
                return Err(problem);
            }
        }
        let slot = board.find(name)?;
        begin(&handle, id, &slot, caller).await?;
        drop(changing);
        Ok((outcome(&slot, wait).await, is_new))
    }

    pub async fn services(&self, caller: &Caller, id: &str) -> Result<ServiceList, Problem> {
        let (_, board) = self.board(caller, id).await?;
        Ok(ServiceList { services: board.all().iter().map(Slot::shown).collect() })
    }

    pub async fn service(&self, caller: &Caller, id: &str, name: &str) -> Result<Service, Problem> {
        Ok(self.slot(caller, id, name).await?.1.shown())
    }

    /// Starts one that is not up, after those that it depends on. Of one that is up, nothing changes.
    pub async fn start_service(
        &self,
        caller: &Caller,
        (id, name): (&str, &str),
        wait: bool,
    ) -> Result<Service, Problem> {
        self.open_for_work()?;
        let (handle, slot) = self.slot(caller, id, name).await?;
        begin(&handle, id, &slot, caller).await?;
        Ok(outcome(&slot, wait).await)
    }

    /// Stops one; with `cascade`, those that depend on it before.
    pub async fn stop_service(
        &self,
        caller: &Caller,
        (id, name): (&str, &str),
        cascade: bool,
    ) -> Result<Service, Problem> {
        self.open_for_work()?;
        let (_, board) = self.board(caller, id).await?;
        define::name(name)?;
        let slot = board.find(name)?;
        let dependents = board.active_dependents(name);
        if !dependents.is_empty() && !cascade {
            return Err(Problem::new(
                ProblemCode::Busy,
                format!("{} depend on the service {name}", dependents.join(", ")),
                "stop them first, or all of them with cascade=true",
            ));
        }
        for dependent in dependents {
            let Ok(dependent) = board.find(&dependent) else { continue };
            let actor = caller.name.clone();
            dependent.ask(|reply| Command::Stop { actor, reply }).await?;
        }
        let actor = caller.name.clone();
        slot.ask(|reply| Command::Stop { actor, reply }).await?;
        Ok(slot.shown())
    }

    /// Stops one if it is up, and starts it.
    pub async fn restart_service(
        &self,
        caller: &Caller,
        (id, name): (&str, &str),
        wait: bool,
        permit: Option<&Permit>,
    ) -> Result<Service, Problem> {
        self.open_for_work()?;
        let (handle, slot) = self.slot(caller, id, name).await?;
        room(&handle, id, caller).await?;
        // Cut short by the server's end, it was stopped or not: what was asked for is that it is up.
        let is_again = permit.is_some_and(|permit| permit.resource.is_some());
        if let Some(permit) = permit.filter(|_| !is_again) {
            self.shared.store.commit(vec![intent(permit, name)]).await.map_err(storage)?;
        }
        let actor = caller.name.clone();
        if is_again {
            slot.ask(|reply| Command::Start { actor, reply }).await?;
        } else {
            slot.ask(|reply| Command::Restart { actor, reply }).await?;
        }
        Ok(outcome(&slot, wait).await)
    }

    /// Stops one and forgets it; its runs stay in the process table. Removing what is gone succeeds.
    pub async fn remove_service(&self, caller: &Caller, id: &str, name: &str) -> Result<(), Problem> {
        self.open_for_work()?;
        define::name(name)?;
        let (_, board) = self.board(caller, id).await?;
        let _changing = board.changing().await;
        let Some(slot) = board.slot(name) else { return Ok(()) };
        let dependents = board.dependents(name);
        if !dependents.is_empty() {
            return Err(Problem::new(
                ProblemCode::Busy,
                format!("{} depend on the service {name}", dependents.join(", ")),
                "delete or change them first",
            ));
        }
        let actor = caller.name.clone();
        slot.ask(|reply| Command::Remove { actor, reply }).await?;
        board.forget(name);
        Ok(())
    }

    /// The process of its current or last run.
    pub async fn service_run(&self, caller: &Caller, id: &str, name: &str) -> Result<ProcessHandle, Problem> {
        let service = self.service(caller, id, name).await?;
        match &service.process {
            Some(process) => self.process(caller, id, process).await,
            None => Err(Problem::new(
                ProblemCode::NotFound,
                format!("the service {name} has not run yet"),
                "start it first",
            )),
        }
    }

    /// Lines of its current or last run.
    pub async fn service_logs(
        &self,
        caller: &Caller,
        (id, name): (&str, &str),
        query: LogQuery,
    ) -> Result<ServiceLogs, Problem> {
        let run = self.service_run(caller, id, name).await?;
        let entries = self.ask(caller, id, |reply| Ask::Processes { reply }).await?;
        let mut earlier: Vec<_> = entries
            .iter()
            .map(|entry| entry.info())
            .filter(|info| info.kind == ProcessKind::Service && info.name.as_deref() == Some(name))
            .filter(|info| info.id != run.entry.id())
            .collect();
        earlier.sort_by_key(|info| std::cmp::Reverse(info.started));
        let earlier = earlier.into_iter().map(|info| info.id).collect();
        crate::blocking(move || logs::read(&run.entry, query, earlier)).await
    }

    async fn board(&self, caller: &Caller, id: &str) -> Result<(Handle, Arc<Board>), Problem> {
        let handle = sessions::handle(&self.shared, caller, id).await?;
        let board = sessions::ask(&handle, id, |reply| Ask::Services { reply }).await?;
        Ok((handle, board))
    }

    async fn slot(&self, caller: &Caller, id: &str, name: &str) -> Result<(Handle, Slot), Problem> {
        define::name(name)?;
        let (handle, board) = self.board(caller, id).await?;
        Ok((handle, board.find(name)?))
    }
}

/// A room for services to run in: one that stands, or a new one.
async fn room(handle: &Handle, id: &str, caller: &Caller) -> Result<(), Problem> {
    let actor = caller.name.clone();
    sessions::ask(handle, id, |reply| Ask::RoomForServices { actor, reply }).await
}

async fn begin(handle: &Handle, id: &str, slot: &Slot, caller: &Caller) -> Result<(), Problem> {
    room(handle, id, caller).await?;
    let actor = caller.name.clone();
    slot.ask(|reply| Command::Start { actor, reply }).await
}

/// How it is, or how it is once it was ready or has failed.
async fn outcome(slot: &Slot, wait: bool) -> Service {
    if wait {
        let mut watch = slot.watch();
        let _ = tokio::time::timeout(LONGEST_WAIT, watch.wait_for(|doc| doc.is_settled)).await;
    }
    slot.shown()
}
