//! Limits of a room that runs, changed where it is.

use super::Actor;
use crate::disk::DiskLimit;
use workroom_room::LiveLimits;
use workroom_types::{Enforced, Layer, Policy};

/// Layers whose state may have changed since their room was built.
const LIVE: [Layer; 4] = [Layer::Memory, Layer::Pids, Layer::Cpu, Layer::Disk];

impl Actor {
    /// Brings memory, processes, CPU time and, where it can be done, the disk to what is wanted. What could be is put
    /// into `held`.
    pub(super) async fn apply_limits(&mut self, held: &mut Policy, wanted: &Policy) {
        let changed = |held: Option<u64>, wanted: Option<u64>| (held != wanted).then_some(wanted);
        let live = LiveLimits {
            memory: changed(held.memory, wanted.memory),
            pids: changed(held.pids, wanted.pids),
            cpus_milli: changed(held.cpus_milli, wanted.cpus_milli),
        };
        if live != LiveLimits::default()
            && let Some(room) = self.room.as_ref().map(|room| room.name())
        {
            let done = tokio::task::spawn_blocking(move || workroom_room::change_limits(&room, &live)).await;
            for (layer, state) in done.unwrap_or_default() {
                match layer {
                    Layer::Memory => held.memory = wanted.memory,
                    Layer::Pids => held.pids = wanted.pids,
                    Layer::Cpu => held.cpus_milli = wanted.cpus_milli,
                    _ => continue,
                }
                self.row.session.enforced.set(layer, state);
            }
        }
        if (held.disk, held.inodes) != (wanted.disk, wanted.inodes)
            && let Ok(stack) = self.stack().await
            && let Some(state) =
                self.shared.disks.change(&self.shared.layer_dir(&stack.top), DiskLimit::of(wanted))
        {
            self.row.session.enforced.set(Layer::Disk, state);
            (held.disk, held.inodes) = (wanted.disk, wanted.inodes);
        }
    }

    /// What is in force in a room that was found again: as its guest says, which does not know what was changed from
    /// outside.
    pub(super) fn enforced_in(&self, mut told: Enforced) -> Enforced {
        for layer in LIVE {
            if let Some(state) = self.row.session.enforced.get(layer) {
                told.set(layer, state.clone());
            }
        }
        told
    }
}
