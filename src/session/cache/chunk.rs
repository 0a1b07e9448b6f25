//! What is computed of a chunk of a text.

use super::allocation::CacheAllocation;
use super::costs::ChunkCosts;
use crate::gpu::{PlanId, Region};

/// Plans over the chunk, one after the other.
pub(in crate::session) struct Chunk {
    pub plans: Vec<PlanId>,
    pub costs: ChunkCosts,
    /// What is read back.
    pub read: Option<Region>,
}

impl Chunk {
    /// All layers into the cache, then what those plans compute.
    pub fn prefill(cache: &CacheAllocation, then: &[PlanId], read: Option<Region>) -> Self {
        let plans = [&[cache.plans.prefill], then].concat();
        Self { plans, costs: cache.costs.chunk, read }
    }
}
