//! The plan that reads back a layer of a model, bound to a cache.

use crate::error::Result;
use crate::gpu::{Gpu, PlanId, Region};
use crate::lower::{Inference, InferenceOptions, Probe};
use crate::plan::Buffer;
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::bound_plans::BoundPlans;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::costs::ChunkCosts;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::weights::Weights;
use std::ops::Range;
use std::rc::Rc;

/// The plan of a probe, bound to a cache.
#[derive(Debug)]
pub(in crate::session) struct ProbePlan {
    probe: Probe,
    options: InferenceOptions,
    bound: BoundPlans<PlanId>,
    costs: ChunkCosts,
    /// Elements of a hidden state.
    hidden: usize,
}

impl ProbePlan {
    pub async fn new(weights: &Rc<Weights>, cache: &KeyValueCache, probe: Probe) -> Result<Self> {
        let (caps, options) = (weights.gpu.0.capabilities(), cache.options);
        let (shape, plan) = cache.with(|cache| {
            let slots = &cache.slots;
            let plans = Inference::new(caps, &weights.layout, cache.shape, options);
            let plan = plans.probe_plan(probe, slots)?;
            Ok((cache.shape, plan))
        })?;
        let bound = BoundPlans::new(weights, cache, shape, &plan, &|_| Ok(())).await?;
        let hidden = weights.config.hidden_size;
        Ok(Self { probe, options, bound, costs: ChunkCosts::new(&[&plan]), hidden })
    }

    /// Whether it answers the probe from the cache as it is.
    pub fn answers(&self, cache: &KeyValueCache, probe: Probe) -> bool {
        self.probe == probe && self.options == cache.options && self.bound.belongs_to(cache)
    }

    /// As many tokens of a chunk as its results have room for.
    pub fn part(&self, part: Range<usize>) -> Range<usize> {
        let Some(bytes) = self.bound.resources.bytes_of(Buffer::Probabilities) else { return part };
        let (start, mut rows) = (part.start, part.len());
        while rows > 1 && (rows * (start + rows)) as u64 * 4 > bytes {
            rows = rows.div_ceil(2);
        }
        start..start + rows
    }

    /// Numbers of each row that a chunk of these tokens leaves.
    pub fn columns(&self, part: &Range<usize>) -> usize {
        match self.probe {
            Probe::HiddenState(_) => self.hidden,
            Probe::Attention(_) => part.end,
        }
    }

    /// The work on a chunk of these tokens, and the numbers of each row that it leaves. Attention's are of
    /// this head and end with the chunk's last key.
    pub fn chunk(
        &self,
        gpu: &dyn Gpu,
        allocation: &CacheAllocation,
        part: &Range<usize>,
        head: usize,
    ) -> Result<Chunk> {
        let own = |name| self.bound.resources.get(name);
        let buffer = match self.probe {
            Probe::HiddenState(_) => allocation.resources.get(Buffer::Hidden)?,
            Probe::Attention(_) => {
                let head = [head as u32, 0, 0, 0];
                gpu.write(own(Buffer::Probe)?, 0, bytemuck::cast_slice(&head))?;
                own(Buffer::Probabilities)?
            }
        };
        let bytes = (part.len() * self.columns(part)) as u64 * 4;
        let read = Region { buffer, offset: 0, bytes };
        Ok(Chunk { plans: vec![self.bound.ids], costs: self.costs, read: Some(read) })
    }
}
