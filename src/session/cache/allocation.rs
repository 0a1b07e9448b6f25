//! What a key-value cache has on the GPU: its buffers, and the plans of inference bound to them.

use super::costs::{ChunkCosts, Costs};
use super::named_plans::NamedPlans;
use crate::error::Result;
use crate::gpu::PlanId;
use crate::lower::{CacheShape, InferencePlans};
use crate::plan::Plan;
use crate::session::resources::Resources;
use crate::session::throughput::Throughput;
use std::ops::Range;

/// Fewest tokens of cache allocated.
pub(super) const LEAST_CAPACITY: usize = 256;

/// Buffers and installed plans for texts of one shape.
#[derive(Debug)]
pub(in crate::session) struct CacheAllocation {
    pub resources: Resources,
    pub plans: CachePlans,
    /// Most tokens of a text for [`CachePlans::short_context`].
    short_context_tokens: usize,
    /// Most rows of a chunk, and of those whose logits are computed at a time.
    pub chunk: usize,
    /// Rows that the buffers of a chunk have room for.
    pub room: usize,
    pub logit_rows: usize,
    pub shape: CacheShape,
    pub cache_rows: usize,
    pub costs: Costs,
    /// Bytes of the slots that its plans share.
    pub slots: Vec<u64>,
}

/// The plans of [`InferencePlans`], installed.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct CachePlans {
    prefill: PlanId,
    long_prefill: Option<PlanId>,
    pub logits: PlanId,
    pub loss: PlanId,
    pub last_row: PlanId,
    decode: PlanId,
    short_context: Option<PlanId>,
    pub sample: PlanId,
    pub pack: PlanId,
}

/// What reads a chunk of a text.
pub(in crate::session) struct Prefill {
    pub plan: PlanId,
    pub costs: ChunkCosts,
    /// Most rows of the chunk.
    pub rows: usize,
}

/// Tells an allocation from those before it and those of other caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct AllocationId(PlanId);

impl NamedPlans for InferencePlans {
    type Ids = CachePlans;

    fn all(&self) -> Vec<&Plan> {
        self.all()
    }

    fn install(&self, install: &mut dyn FnMut(&Plan) -> Result<PlanId>) -> Result<CachePlans> {
        Ok(CachePlans {
            prefill: install(&self.prefill)?,
            long_prefill: self.long_prefill.as_ref().map(&mut *install).transpose()?,
            logits: install(&self.logits)?,
            loss: install(&self.loss)?,
            last_row: install(&self.last_row)?,
            decode: install(&self.decode)?,
            sample: install(&self.sample)?,
            pack: install(&self.pack)?,
            short_context: self.short_context.as_ref().map(install).transpose()?,
        })
    }
}

/// Tokens that a cache for a text of `tokens` has room for, of a model with `most` positions.
pub(in crate::session) fn capacity_for(tokens: usize, most: usize) -> usize {
    tokens.next_power_of_two().max(LEAST_CAPACITY).min(most)
}

impl CacheAllocation {
    /// Plans that are installed in `resources`.
    pub fn new(resources: Resources, plans: &InferencePlans, installed: CachePlans) -> Self {
        Self {
            resources,
            plans: installed,
            short_context_tokens: plans.short_context_keys,
            chunk: plans.chunk,
            room: plans.room,
            logit_rows: plans.logit_rows,
            shape: plans.shape,
            cache_rows: plans.cache_rows,
            costs: Costs::new(plans),
            slots: plans.sample.slots.clone(),
        }
    }

    /// The device gives no plan's number twice.
    pub const fn id(&self) -> AllocationId {
        AllocationId(self.plans.prefill)
    }

    /// The plan that decodes a token, for a text of `reach` tokens.
    pub fn decode(&self, reach: usize) -> PlanId {
        let short = reach <= self.short_context_tokens;
        self.plans.short_context.filter(|_| short).unwrap_or(self.plans.decode)
    }

    /// The plan that reads the chunks of a text. The cache did not hold `unread` of its tokens at first.
    /// [`InferencePlans::prefill_of`] chooses in the same way.
    pub fn prefill(&self, unread: usize) -> Prefill {
        match self.plans.long_prefill.filter(|_| unread > self.room) {
            Some(plan) => Prefill { plan, costs: self.costs.long_chunk, rows: self.room },
            None => Prefill { plan: self.plans.prefill, costs: self.costs.chunk, rows: self.chunk },
        }
    }

    /// Rows of the next chunk of such a text, which begins at `position`.
    pub fn chunk_rows(&self, throughput: &Throughput, position: usize, unread: usize) -> usize {
        let Prefill { costs, rows, .. } = self.prefill(unread);
        costs.rows(throughput, rows, |rows| self.keys(position + rows))
    }

    /// The rows of a chunk whose logits are computed next, of `wanted` ones.
    pub fn next_logits(&self, throughput: &Throughput, wanted: &Range<usize>) -> Range<usize> {
        let rows = self.costs.logits.rows(throughput, self.logit_rows, |_| 0);
        wanted.start..wanted.end.min(wanted.start + rows)
    }

    /// Positions that the last of `positions` positions sees at most.
    pub fn keys(&self, positions: usize) -> usize {
        positions.min(self.cache_rows)
    }
}
