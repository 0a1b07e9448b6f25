//! What is computed of a chunk of a text.

use super::allocation::{CacheAllocation, Prefill};
use super::costs::ChunkCosts;
use crate::error::Result;
use crate::gpu::{PlanId, Region};
use crate::plan::Buffer;

/// Plans over the chunk, or over some of its rows, one after the other.
pub(in crate::session) struct Chunk {
    pub plans: Vec<PlanId>,
    pub costs: ChunkCosts,
    /// What is read back.
    pub read: Option<Region>,
}

impl Chunk {
    /// All layers into the cache, for a text that had `unread` unread tokens at first. Then the plans of `then`.
    pub fn prefill(
        cache: &CacheAllocation,
        unread: usize,
        then: &[PlanId],
        read: Option<Region>,
    ) -> Self {
        let Prefill { plan, costs, .. } = cache.prefill(unread);
        Self { plans: [&[plan], then].concat(), costs, read }
    }

    /// The logits of rows of a chunk, then what those plans compute of them.
    pub fn logits(cache: &CacheAllocation, then: &[PlanId], read: Region) -> Self {
        let plans = [&[cache.plans.logits], then].concat();
        Self { plans, costs: cache.costs.logits, read: Some(read) }
    }

    /// The losses of `rows` rows of a chunk.
    pub fn losses(cache: &CacheAllocation, rows: usize) -> Result<Self> {
        let buffer = cache.resources.get(Buffer::Losses)?;
        let read = Region { buffer, offset: 0, bytes: rows as u64 * 4 };
        Ok(Self::logits(cache, &[cache.plans.loss], read))
    }
}
