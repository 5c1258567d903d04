//! A policy that changes while a room runs.

use super::Actor;
use crate::policy;
use workroom_types::Policy;

impl Actor {
    /// Brings the room to what holds now, as far as that can be done to a room that runs. What cannot stays as it was
    /// in `room_policy`, is shown as pending, and holds from the next room on.
    pub(super) async fn policy_changed(&mut self) {
        let wanted = policy::effective(&self.shared, &self.row.session);
        let Some(mut held) = self.row.session.room_policy.take() else { return };
        self.apply(&mut held, &wanted).await;
        self.row.session.room_policy = Some(held);
        self.secrets_at_start().await;
        let save = self.save();
        if let Err(error) = self.shared.store.commit(vec![save]).await {
            tracing::error!(%error, session = self.row.session.id, "what was changed in a room is not recorded");
        }
    }

    /// Each part that takes effect at once is put into `held`.
    async fn apply(&mut self, held: &mut Policy, wanted: &Policy) {
        // Layers are judged when a room is built; what the new one allows to be missing changes nothing in this one.
        held.allow_missing.clone_from(&wanted.allow_missing);
        if held.mounts != wanted.mounts {
            self.apply_mounts(held, wanted).await;
        }
        self.apply_limits(held, wanted).await;
        self.change_network(held, wanted).await;
        held.secrets.clone_from(&wanted.secrets);
    }
}
