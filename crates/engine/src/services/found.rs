//! What becomes of a service whose keeper is new: its record, seen with what runs in the room.

use super::board::Doc;
use super::define;
use super::keeper::{Phase, Run};
use crate::processes::entry::Entry;
use std::sync::Arc;
use workroom_types::{ProcessKind, ProcessState, ServiceState, StopReason};

/// How a keeper begins.
pub(super) struct Beginning {
    pub(super) doc: Doc,
    pub(super) phase: Phase,
    /// Whether it is found out only now that its room ended.
    pub(super) is_lost: bool,
}

/// What of a service's process is in the table.
pub(super) enum Found {
    Nothing,
    /// One that runs, or has ended while no server looked.
    Run(Arc<Entry>),
}

impl Found {
    /// One that runs under its name; else that of its last run, if that counts as running.
    pub(super) fn among(entries: &[Arc<Entry>], doc: &Doc) -> Found {
        let Doc { service, .. } = doc;
        let is_running = |entry: &&Arc<Entry>| {
            let info = entry.info();
            info.state == ProcessState::Running
                && info.kind == ProcessKind::Service
                && info.name.as_deref() == Some(&service.name)
        };
        let is_last = |entry: &&Arc<Entry>| {
            let counts = matches!(service.state, ServiceState::Running | ServiceState::Ready);
            counts && service.process == Some(entry.id()) && entry.info().state != ProcessState::Lost
        };
        let found = entries.iter().find(is_running).or_else(|| entries.iter().find(is_last));
        found.map_or(Found::Nothing, |entry| Found::Run(entry.clone()))
    }

    /// In the room that stands, of which 0 is none.
    pub(super) fn beginning(self, mut doc: Doc, stands: u64) -> Beginning {
        let is_active = doc.service.state.is_active();
        let mut phase = Phase::Idle;
        let mut is_lost = false;
        match self {
            Found::Run(entry) => {
                let info = entry.info();
                let command = entry.command().or(doc.command.filter(|_| doc.room == stands));
                (doc.room, doc.command) = (stands, command);
                let service = &mut doc.service;
                // One that was not recorded before the server ended was not seen to be ready either.
                let is_known = service.process.as_deref() == Some(&info.id);
                service.process = Some(info.id);
                service.pid = Some(info.pid);
                service.started_at = Some(info.started);
                if service.state != ServiceState::Ready || !is_known {
                    service.state = ServiceState::Running;
                    (service.ready_at, service.ended_at, service.stop_reason) = (None, None, None);
                }
                let run = Run { entry, command };
                phase = match service.state {
                    ServiceState::Ready => Phase::Up { run },
                    _ => Phase::Probing { run, left: define::ready_timeout(&service.definition) },
                };
            }
            // What ended last was dealt with: it was about to be started, after those that it depends on.
            Found::Nothing
                if doc.service.state == ServiceState::Starting && doc.room == stands && stands > 0 =>
            {
                phase = Phase::Waiting;
            }
            Found::Nothing if is_active => {
                is_lost = true;
                doc.over(ServiceState::Stopped, Some(StopReason::SessionStopped));
            }
            Found::Nothing => {}
        }
        Beginning { doc, phase, is_lost }
    }
}
