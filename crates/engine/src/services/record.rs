//! What is written down of a service: its record in the store, and entries of the session's journal.

use super::board::{Doc, PART};
use super::keeper::Keeper;
use serde_json::{Value, json};
use workroom_store::Change;
use workroom_types::{Service, ServiceSpec, ServiceState, StopReason, Timestamp};

impl Doc {
    pub(super) fn begun(&mut self, room: u64, actor: &str) {
        let Service { name, definition, process, .. } = std::mem::take(&mut self.service);
        let state = ServiceState::Starting;
        self.service = Service { name, definition, process, state, ..Service::default() };
        (self.is_settled, self.in_a_row, self.command) = (false, 0, None);
        (self.room, self.actor) = (room, actor.to_owned());
    }

    pub(super) fn over(&mut self, state: ServiceState, reason: Option<StopReason>) {
        self.service.state = state;
        self.service.stop_reason = reason;
        self.service.pid = None;
        self.service.ended_at = self.service.ended_at.or_else(|| Some(Timestamp::now()));
        (self.is_settled, self.command) = (true, None);
    }
}

impl Keeper {
    pub(super) fn spec(&self) -> ServiceSpec {
        self.doc.service.definition.clone()
    }

    pub(super) fn state(&self) -> ServiceState {
        self.doc.service.state
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Doc)) {
        change(&mut self.doc);
    }

    /// Lets others see it as it is.
    pub(super) fn publish(&self) {
        self.seen.send_replace(self.doc.clone());
    }

    pub(super) fn part(&self) -> Change {
        let doc = &self.doc;
        Change::PutPart {
            session: self.place.session.clone(),
            kind: PART.to_owned(),
            id: self.place.name.clone(),
            doc: serde_json::to_value(doc).unwrap_or_default(),
        }
    }

    pub(super) fn journal(&self, kind: &str, actor: &str, body: Value) -> Change {
        Change::Journal {
            session: self.place.session.clone(),
            at: Timestamp::now(),
            actor: actor.to_owned(),
            kind: kind.to_owned(),
            body,
        }
    }

    /// What a journal says of a service as it is now.
    pub(super) fn entry(&self, kind: &str, actor: &str) -> Change {
        let doc = &self.doc;
        let service = &doc.service;
        let mut body = json!({ "name": service.name, "process": service.process });
        for (field, value) in [
            ("pid", json!(service.pid)),
            ("exit_code", json!(service.exit_code)),
            ("reason", json!(service.stop_reason)),
            ("detail", json!(service.detail)),
            ("restarts", json!(service.restarts)),
        ] {
            if !value.is_null() {
                body[field] = value;
            }
        }
        self.journal(kind, actor, body)
    }

    /// Writes down how it is, and in the journal what happened, a moment later; then others see it.
    pub(super) async fn tell(&self, kind: &str, actor: &str) {
        self.place.shared.store.note(self.part()).await;
        self.place.shared.store.note(self.entry(kind, actor)).await;
        self.publish();
    }
}
