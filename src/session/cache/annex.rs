//! Plans that a cache does not bring, bound to its buffers and to those that it lacks.

use super::key_value_cache::{KeyValueCache, Room};
use crate::error::Result;
use crate::gpu::{PlanId, made};
use crate::lower::CacheShape;
use crate::plan::Plan;
use crate::session::memory::{self, MemoryBytes, Purpose};
use crate::session::resources::Resources;
use crate::session::weights::Weights;
use std::rc::Rc;

/// Makes plans from a cache's shape and a room's slots.
type Make<'a> = dyn Fn(CacheShape, &[u64]) -> Result<Rc<Vec<Plan>>> + 'a;

#[derive(Debug)]
pub(in crate::session) struct Annex {
    /// What the plans read and write besides.
    pub resources: Resources,
    pub plans: Vec<PlanId>,
    /// The room whose buffers the plans bind.
    room: PlanId,
}

impl Annex {
    /// Makes plans for a cache's room as it is, from its shape and slots, and binds them.
    ///
    /// # Arguments
    /// `batch`: the shape of a cache of its own, where it has one.
    /// `prepare`: writes what the new buffers hold from the beginning.
    pub async fn new(
        model: &Weights,
        cache: &KeyValueCache,
        batch: Option<CacheShape>,
        make: &Make<'_>,
        prepare: &dyn Fn(&Resources) -> Result<()>,
    ) -> Result<(Self, Rc<Vec<Plan>>)> {
        let (gpu, weights) = (&*model.gpu.0, model.buffers()?);
        let (plans, room, shape) = cache.with(|room| {
            let shape = batch.unwrap_or(room.shape);
            Ok((make(shape, &room.slots)?, room.mark(), shape))
        })?;
        let all: Vec<&Plan> = plans.iter().collect();
        let sizes = cache.lacking(&all, &weights);
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges(all.iter().copied());
        let purpose = Purpose::Inference { tokens: shape.capacity, sequences: shape.sequences };
        memory::judge(gpu, purpose, &asked)?;
        let install = || {
            let mut resources = Resources::new(&model.gpu.0);
            resources.allocate(&sizes, &[])?;
            let mut ids = vec![];
            for plan in plans.iter() {
                ids.push(cache.with(|room| resources.install(plan, &[&room.resources, &weights]))?);
            }
            prepare(&resources)?;
            Ok((resources, ids))
        };
        let made = made(gpu, install).await;
        let (resources, ids) = made.map_err(|error| memory::explained(error, purpose, &asked))?;
        Ok((Self { resources, plans: ids, room }, plans))
    }

    /// Whether its plans are bound to what the cache has now.
    pub fn is_of(&self, cache: &KeyValueCache) -> bool {
        cache.mark() == Some(self.room)
    }

    /// Whether its plans are bound to what the room has now.
    pub fn fits(&self, room: &Room) -> bool {
        room.mark() == self.room
    }
}
