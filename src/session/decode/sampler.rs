//! How tokens are drawn where a generation asks for more than the cache's own plan does: a bias on the
//! logits, the likeliest tokens of each step.

use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, Gpu, PlanId};
use crate::lower::{Inference, LIKELIEST_OFFSET, SampleChoices};
use crate::plan::Buffer;
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::bound_plans::BoundPlans;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::resources::Resources;
use crate::session::throughput::Work;
use crate::session::weights::Weights;
use std::rc::Rc;

/// Most of the likeliest tokens that a step tells.
const MOST_ALTERNATIVES: usize = 32;
/// The bias of a token that is not to be drawn, and the largest magnitude of any other.
const MASKED: f32 = -1e30;
const MOST_BIAS: f32 = 1e9;

/// One number for each token that is added to its logit, none where there is none.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct Bias {
    values: Vec<f32>,
    /// Tokens that may be drawn.
    left: usize,
}

impl Bias {
    /// # Errors
    /// `invalid-options` for a number that is none, or where no token is left.
    pub fn new(mut values: Vec<f32>, vocabulary: usize) -> Result<Self> {
        let refuse = |what: String| Err(Error::options(what));
        if values.is_empty() {
            return Ok(Self::default());
        }
        if values.len() != vocabulary {
            let have = values.len();
            return refuse(format!(
                "bias has {have} numbers; give vocab_size of them, {vocabulary}, or pairs of a token and a number"
            ));
        }
        let good = |x: &f32| x.abs() <= MOST_BIAS || *x == f32::NEG_INFINITY;
        if let Some(token) = values.iter().position(|x| !good(x)) {
            return refuse(format!(
                "the bias of token {token} is {}; it must be -Infinity, or a number from -1e9 to 1e9",
                Decimal(values[token])
            ));
        }
        let left = values.iter().filter(|x| x.is_finite()).count();
        if left == 0 {
            return refuse(
                "bias is -Infinity for every token; leave at least one to be drawn".into(),
            );
        }
        values.iter_mut().for_each(|x| *x = x.max(MASKED));
        Ok(Self { values, left })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The top-k that keeps masked tokens out.
    pub fn top_k(&self, top_k: u32) -> u32 {
        if self.left == self.values.len() {
            return top_k;
        }
        let left = self.left as u32;
        if top_k == 0 { left } else { top_k.min(left) }
    }
}

/// # Errors
/// `invalid-options` where a vocabulary has fewer tokens than that.
pub(in crate::session) fn check_alternatives(alternatives: usize, vocabulary: usize) -> Result<()> {
    let most = MOST_ALTERNATIVES.min(vocabulary);
    if alternatives <= most {
        return Ok(());
    }
    Err(Error::options(format!(
        "alternatives is {alternatives}; it must be at most {most}, of {vocabulary} tokens in the vocabulary"
    )))
}

/// The plan, bound to a cache.
#[derive(Debug)]
pub(in crate::session) struct Sampler {
    pub bound: BoundPlans<PlanId>,
    pub work: Work,
    pub largest: Work,
    pub choices: SampleChoices,
}

impl Sampler {
    /// A sampler for a cache as it is, with this bias.
    pub async fn new(
        weights: &Rc<Weights>,
        cache: &KeyValueCache,
        choices: SampleChoices,
        bias: &Bias,
    ) -> Result<Self> {
        let (caps, params) = (weights.gpu.0.capabilities(), &weights.layout);
        let (shape, plan) = cache.with(|on_gpu| {
            let (shape, slots) = (on_gpu.shape, &on_gpu.slots);
            let plans = Inference::new(caps, params, shape, cache.options);
            let plan = plans.sample_plan(choices, slots)?;
            Ok((shape, plan))
        })?;
        let prepare = |resources: &Resources| {
            if choices.biased { write_bias(&*weights.gpu.0, resources, bias) } else { Ok(()) }
        };
        let bound = BoundPlans::new(weights, cache, shape, &plan, &prepare).await?;
        let (work, largest) = (Work::of(&plan), Work::of_largest(&plan));
        Ok(Self { bound, work, largest, choices })
    }

    /// Replaces the bias for what is submitted from now on.
    pub fn write(&self, bias: &Bias) -> Result<()> {
        write_bias(&*self.bound.weights.gpu.0, &self.bound.resources, bias)
    }

    /// Where draws are left, and the bytes of `passes` passes.
    pub fn drawn(&self, allocation: &CacheAllocation, passes: usize) -> Result<(BufferId, u64)> {
        let count = self.choices.likeliest;
        let own = self.bound.resources.get(Buffer::Drawn);
        let buffer = own.or_else(|_| allocation.resources.get(Buffer::Drawn))?;
        let passes = passes as u64;
        let bytes =
            if count == 0 { passes * 8 } else { LIKELIEST_OFFSET + passes * count as u64 * 8 };
        Ok((buffer, bytes))
    }
}

fn write_bias(gpu: &dyn Gpu, resources: &Resources, bias: &Bias) -> Result<()> {
    gpu.write(resources.get(Buffer::Bias)?, 0, bytemuck::cast_slice(&bias.values))
}
