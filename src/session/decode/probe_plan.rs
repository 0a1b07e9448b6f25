//! The plan that reads back a layer of a model, bound to a cache.

use crate::error::{Error, Result};
use crate::gpu::{Gpu, PlanId, Region};
use crate::kernels::{RowScore, SteeringNumbers};
use crate::lower::{Inference, InferenceOptions, Probe, scores, top_rows};
use crate::plan::{Buffer, Slice};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::bound_plans::BoundPlans;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::costs::ChunkCosts;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::weights::Weights;
use std::cell::RefCell;
use std::mem::discriminant;
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

/// The plans of earlier probes of one cache. Of attention and of scores only the last one stays: callers may ask for many.
#[derive(Debug, Default)]
pub(in crate::session) struct ProbePlans(RefCell<Vec<Rc<ProbePlan>>>);

impl ProbePlans {
    /// What answers a probe: an earlier plan, or a new one.
    pub async fn plan(
        &self,
        weights: &Rc<Weights>,
        cache: &KeyValueCache,
        probe: Probe,
    ) -> Result<Rc<ProbePlan>> {
        let one = matches!(probe, Probe::Attention(_) | Probe::Scores(_));
        let stays = |plan: &Rc<ProbePlan>| {
            let other = discriminant(&plan.probe) != discriminant(&probe);
            plan.is_of(cache) && (plan.probe == probe || !one || other)
        };
        self.0.borrow_mut().retain(stays);
        let known = self.0.borrow().iter().find(|plan| plan.probe == probe).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Rc::new(ProbePlan::new(weights, cache, probe).await?);
        // Not where the model has been freed meanwhile.
        weights.buffers()?;
        self.0.borrow_mut().push(Rc::clone(&made));
        Ok(made)
    }

    pub fn free(&self) {
        self.0.take();
    }
}

impl ProbePlan {
    async fn new(weights: &Rc<Weights>, cache: &KeyValueCache, probe: Probe) -> Result<Self> {
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

    /// Whether it is bound to the cache as it is.
    fn is_of(&self, cache: &KeyValueCache) -> bool {
        self.options == cache.options && self.bound.belongs_to(cache)
    }

    pub fn id(&self) -> PlanId {
        self.bound.ids
    }

    /// The tokens of a chunk for which there is room for results.
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
            Probe::Scores(_) => size_of::<RowScore>() / 4,
            Probe::Documents => 0,
        }
    }

    /// The work on a chunk of these tokens, and the numbers of each row that it leaves. For attention these are one
    /// head's, up to the chunk's last key.
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
            Probe::Scores(_) | Probe::Documents => {
                return Err(Error::internal("scores have a chunk of their own"));
            }
        };
        let bytes = (part.len() * self.columns(part)) as u64 * 4;
        let read = Region { buffer, offset: 0, bytes };
        Ok(Chunk { plans: vec![self.bound.ids], costs: self.costs, read: Some(read) })
    }

    /// Says where each row's document starts.
    pub fn write_documents(&self, gpu: &dyn Gpu, documents: &[u32]) -> Result<()> {
        let resources = &self.bound.resources;
        // Without attention and positions no kernel reads them.
        if !resources.has(Buffer::BatchDocuments) {
            return Ok(());
        }
        gpu.write(resources.get(Buffer::BatchDocuments)?, 0, bytemuck::cast_slice(documents))
    }

    /// The logits of these rows of a chunk over a temperature, and what they say of tokens.
    pub fn scores(
        &self,
        gpu: &dyn Gpu,
        allocation: &CacheAllocation,
        part: &Range<usize>,
        temperature: f64,
    ) -> Result<Chunk> {
        let Probe::Scores(top) = self.probe else {
            return Err(Error::internal("only scores have a temperature"));
        };
        let steering = SteeringNumbers::of(temperature);
        let own = |name| self.bound.resources.get(name);
        gpu.write(own(Buffer::Steering)?, 0, bytemuck::bytes_of(&steering))?;
        let last = match top {
            0 => scores(part.len()),
            _ => Slice {
                bytes: (part.len() * top * 8) as u64,
                ..top_rows(allocation.logit_rows, top)
            },
        };
        let buffer = own(Buffer::Scores)?;
        let read = Region { buffer, offset: 0, bytes: last.offset + last.bytes };
        Ok(Chunk::logits(allocation, &[self.bound.ids], read))
    }
}
