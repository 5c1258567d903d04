//! A pool is changed, or deleted.

use crate::pools::keeper::Keeper;
use crate::pools::record::{Definition, put};
use crate::pools::seed::Seed;
use crate::storage;
use serde_json::json;
use std::mem::take;
use std::sync::Arc;
use workroom_store::Change;
use workroom_types::{PoolSpec, Problem, Timestamp};

impl Keeper {
    pub(super) async fn set(
        &mut self,
        spec: PoolSpec,
        seed: Option<Seed>,
        actor: &str,
    ) -> Result<(), Problem> {
        let before = &self.pool.spec;
        if *before == spec {
            return Ok(());
        }
        let made_of = |spec: &PoolSpec| (spec.template.clone(), spec.policy.clone(), spec.seed.clone());
        let mut next = Definition::clone(&self.pool);
        next.generation += u64::from(made_of(before) != made_of(&spec));
        if spec.seed.is_none() {
            (next.layers, next.digest) = (Vec::new(), None);
        } else if let Some(seed) = seed {
            (next.layers, next.digest) = (seed.layers, Some(seed.digest));
        }
        next.spec = spec;
        let mut changes = vec![Change::Journal {
            session: next.session.clone(),
            at: Timestamp::now(),
            actor: actor.to_owned(),
            kind: "pool.set".into(),
            body: json!({ "pool": next.name, "spec": next.spec }),
        }];
        changes.extend(put(&next));
        self.shared.store.commit(changes).await.map_err(storage)?;
        let unneeded: Vec<String> =
            self.pool.layers.iter().filter(|layer| !next.layers.contains(layer)).cloned().collect();
        let is_other = next.generation != self.pool.generation;
        self.pool = Arc::new(next);
        self.trouble = None;
        if is_other {
            let old: Vec<u32> =
                self.slots.iter().filter(|(_, slot)| slot.is_available()).map(|(number, _)| number).collect();
            old.into_iter().for_each(|number| self.vacate(number));
            while let Some(prepared) = self.stock.pop_front() {
                self.end(prepared.session);
            }
        }
        // Slots that are in use hold theirs for as long as they are.
        self.shared.discard_unused(unneeded).await;
        Ok(())
    }

    pub(super) async fn delete(&mut self, actor: &str) -> Result<(), Problem> {
        let id = self.pool.session.clone();
        let at = Timestamp::now();
        let (kind, body) = ("pool.deleted".to_owned(), json!({ "pool": self.pool.name }));
        let actor = actor.to_owned();
        let changes = vec![
            Change::Journal { session: id.clone(), at, actor, kind, body },
            Change::DeleteSession { id, at },
        ];
        self.shared.store.commit(changes).await.map_err(storage)?;
        self.deleted = true;
        self.shared.pools.forget(&self.pool.owner, &self.pool.name);
        let sessions: Vec<String> =
            self.slots.iter().filter_map(|(_, slot)| slot.record.session.clone()).collect();
        let spares = take(&mut self.stock).into_iter().map(|prepared| prepared.session);
        for session in sessions.into_iter().chain(spares) {
            self.end(session);
        }
        self.shared.discard_unused(self.pool.layers.clone()).await;
        Ok(())
    }
}
