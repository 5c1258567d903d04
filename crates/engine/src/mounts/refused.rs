//! The record of a session that was refused a directory of the host's: it was never there, but who asked for what is known.
//!
//! Kept as that of a session that was deleted the moment it was made, and for as long. It counts among those that its
//! owner makes in a day, so nobody fills the store by asking for what he does not get.

use super::of_denial;
use crate::shared::Shared;
use serde_json::json;
use workroom_store::{Change, SessionRow};
use workroom_types::{MountDenial, MountRequest, SessionState};

pub(super) async fn record(
    shared: &Shared,
    actor: &str,
    asked: &SessionRow,
    requests: &[MountRequest],
    denials: &[MountDenial],
) {
    // Its caller's key and its place stay free: the next attempt may be a better one.
    let mut row = SessionRow { place: None, ..asked.clone() };
    row.session.key = None;
    row.session.state = SessionState::Stopped;
    row.session.reason = Some("it was refused a mount and never made".into());
    let (id, at) = (row.session.id.clone(), row.session.created);
    let entry = |kind: &str, body| Change::Journal {
        session: id.clone(),
        at,
        actor: actor.to_owned(),
        kind: kind.into(),
        body,
    };
    let session = &row.session;
    let asked = json!({ "owner": session.owner, "name": session.name, "policy": session.policy });
    let mut changes = vec![entry("session.refused", asked)];
    changes.extend(denials.iter().map(|denial| entry("mount.denied", of_denial(requests, denial))));
    changes.insert(0, Change::InsertSession { row });
    changes.push(Change::DeleteSession { id, at });
    if let Err(error) = shared.store.commit(changes).await {
        tracing::error!(%error, actor, "a mount was denied, and the record of it cannot be kept");
    }
}
