//! A plan that a cache does not bring, bound to its buffers and to those that it lacks.

use super::key_value_cache::{KeyValueCache, Room};
use super::memory::{self, MemoryBytes, Purpose};
use super::resources::Resources;
use super::weights::Weights;
use crate::error::Result;
use crate::gpu::{PlanId, made};
use crate::lower::CacheShape;
use crate::plan::Plan;

#[derive(Debug)]
pub(super) struct Annex {
    /// What the plan reads and writes besides.
    pub resources: Resources,
    pub plan: PlanId,
    /// The room whose buffers the plan binds.
    room: PlanId,
}

impl Annex {
    /// Makes a plan for a cache's room as it is, from its shape and slots, and binds it.
    ///
    /// # Arguments
    /// `batch`: the shape of a cache of its own, where it has one.
    /// `prepare`: writes what the new buffers hold from the beginning.
    pub async fn new(
        model: &Weights,
        cache: &KeyValueCache,
        batch: Option<CacheShape>,
        make: &dyn Fn(CacheShape, &[u64]) -> Result<Plan>,
        prepare: &dyn Fn(&Resources) -> Result<()>,
    ) -> Result<(Self, Plan)> {
        let (gpu, weights) = (&*model.gpu.0, model.buffers()?);
        let (plan, room, shape) = cache.with(|room| {
            let shape = batch.unwrap_or(room.shape);
            Ok((make(shape, &room.slots)?, room.mark(), shape))
        })?;
        let sizes = cache.lacking(&[&plan], &weights);
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges([&plan].iter().copied());
        let purpose = Purpose::Inference { tokens: shape.capacity, sequences: shape.sequences };
        memory::judge(gpu, purpose, &asked)?;
        let install = || {
            let mut resources = Resources::new(&model.gpu.0);
            resources.allocate(&sizes, &[])?;
            let id = cache.with(|room| resources.install(&plan, &[&room.resources, &weights]))?;
            prepare(&resources)?;
            Ok((resources, id))
        };
        let made = made(gpu, install).await;
        let (resources, id) = made.map_err(|error| memory::explained(error, purpose, &asked))?;
        Ok((Self { resources, plan: id, room }, plan))
    }

    /// Whether its plan is bound to what the cache has now.
    pub fn is_of(&self, cache: &KeyValueCache) -> bool {
        cache.mark() == Some(self.room)
    }

    /// Whether its plan is bound to what the room has now.
    pub fn fits(&self, room: &Room) -> bool {
        room.mark() == self.room
    }
}
