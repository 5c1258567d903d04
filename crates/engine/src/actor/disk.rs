//! The layer that a session's next room writes to, and its limit.

use super::Actor;
use crate::disk::{Beneath, DiskLimit};
use crate::{policy, storage};
use workroom_store::{Change, SessionStack};
use workroom_types::Problem;

impl Actor {
    /// The session's stack for a new room, with a top layer that is limited as the policy asks. One that is limited
    /// otherwise is frozen as it is, and another put upon it.
    pub(super) async fn stack_with_fitting_top(&mut self) -> Result<SessionStack, Problem> {
        let stack = self.stack().await?;
        let shared = self.shared.clone();
        let policy = policy::effective(&shared, &self.row.session);
        let limit = DiskLimit::of_layer(&policy);
        let beneath = Beneath::of(&stack.frozen);
        if shared.disks.fits(&shared.layer_dir(&stack.top), limit, beneath) {
            return Ok(stack);
        }
        let new = shared.new_layer()?;
        let mut frozen = stack.frozen.clone();
        frozen.push(stack.top.clone());
        let (frozen, _squashed) = self.freezable(frozen).await?;
        let next = SessionStack { frozen, top: new.layers[0].clone(), ..stack };
        let put = Change::PutStack { session: self.row.session.id.clone(), stack: next.clone() };
        shared.store.commit(vec![put]).await.map_err(storage)?;
        self.move_to(next.clone());
        Ok(next)
    }

    /// A server that was killed while the room was built had not taken back what it took to mount a layer that is full.
    pub(super) async fn hold_to_limit(&mut self) {
        let Some(limit) = self.row.session.room_policy.as_deref().and_then(DiskLimit::of_layer) else {
            return;
        };
        if let Ok(stack) = self.stack().await {
            self.shared.disks.change(&self.shared.layer_dir(&stack.top), Some(limit));
        }
    }
}
