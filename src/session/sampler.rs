//! How tokens are drawn where a generation asks for more than the cache's own plan does: a bias on the
//! logits, the likeliest tokens of each step.

use super::key_value_cache::{KeyValueCache, Room};
use super::memory::{self, MemoryBytes, Purpose};
use super::model::Model;
use super::pace::Work;
use super::resources::Resources;
use crate::error::{Error, Result};
use crate::gpu::{BufferId, PlanId, made};
use crate::lower::{LIKELIEST, LIKELIEST_OFFSET, SampleChoices, sample_plan};
use crate::plan::Buffer;
use std::rc::Rc;

/// Most of the likeliest tokens that a step tells.
const MOST_ALTERNATIVES: usize = 32;
/// The bias of a token that is not to be drawn, and the largest magnitude of any other.
const MASKED: f32 = -1e30;
const MOST_BIAS: f32 = 1e9;

/// One number for each token that is added to its logit, none where there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Bias {
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
                values[token]
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
pub(super) fn check_alternatives(alternatives: usize, vocabulary: usize) -> Result<()> {
    let most = MOST_ALTERNATIVES.min(vocabulary);
    if alternatives <= most {
        return Ok(());
    }
    Err(Error::options(format!(
        "alternatives is {alternatives}; it must be at most {most}, of {vocabulary} tokens in the vocabulary"
    )))
}

/// The plan, bound to a room, and what it reads and writes besides.
#[derive(Debug)]
pub(super) struct Sampler {
    model: Rc<Model>,
    resources: Resources,
    pub plan: PlanId,
    /// What it costs beyond the cache's own plan.
    pub extra: Work,
    pub largest: Work,
    pub choices: SampleChoices,
    /// The room whose buffers the plan binds.
    room: BufferId,
}

impl Sampler {
    /// A sampler for a cache's room as it is, with this bias.
    pub async fn new(
        model: &Rc<Model>,
        cache: &KeyValueCache,
        choices: SampleChoices,
        bias: &Bias,
    ) -> Result<Self> {
        let (gpu, weights) = (&*model.weights.gpu.0, model.weights.buffers()?);
        let (plan, room, capacity) = cache.with(|room| {
            let caps = gpu.capabilities();
            let plan =
                sample_plan(caps, model.layout(), room.shape, cache.options, &room.slots, choices)?;
            Ok((plan, room.mark()?, room.shape.capacity))
        })?;
        let sizes = cache.lacking(&[&plan], &weights);
        let asked = MemoryBytes::of_sizes(&sizes).with_ranges([&plan].iter().copied());
        let purpose = Purpose::Inference { tokens: capacity };
        memory::judge(gpu, purpose, &asked)?;
        let install = || {
            let mut resources = Resources::new(model.gpu());
            resources.allocate(&sizes, &[])?;
            let id = cache.with(|room| resources.install(&plan, &[&room.resources, &weights]))?;
            if choices.biased {
                let buffer = resources.get(Buffer::Bias)?;
                gpu.write(buffer, 0, bytemuck::cast_slice(&bias.values))?;
            }
            Ok((resources, id))
        };
        let made = made(gpu, install).await;
        let (resources, id) = made.map_err(|error| memory::explained(error, purpose, &asked))?;
        model.sampler_bytes.set(model.sampler_bytes.get() + resources.bytes());
        let extra = plan.dispatches.iter().filter(|d| d.label == LIKELIEST);
        let extra = extra.map(Work::of_dispatch).fold(Work::default(), Work::plus);
        let largest = Work::of_largest(&plan);
        Ok(Self { model: Rc::clone(model), resources, plan: id, extra, largest, choices, room })
    }

    /// Whether its plan is bound to what the room has now.
    pub fn fits(&self, room: &Room) -> bool {
        room.mark() == Ok(self.room)
    }

    /// Replaces the bias for what is submitted from now on.
    pub fn write(&self, bias: &Bias) -> Result<()> {
        let buffer = self.resources.get(Buffer::Bias)?;
        self.model.gpu().write(buffer, 0, bytemuck::cast_slice(&bias.values))
    }

    /// Where draws are left, and the bytes of so many.
    pub fn drawn(&self, room: &Room, turns: usize) -> Result<(BufferId, u64)> {
        let count = self.choices.likeliest;
        let own = self.resources.get(Buffer::Drawn);
        let buffer = own.or_else(|_| room.resources.get(Buffer::Drawn))?;
        let turns = turns as u64;
        let bytes =
            if count == 0 { turns * 8 } else { LIKELIEST_OFFSET + turns * count as u64 * 8 };
        Ok((buffer, bytes))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let bytes = &self.model.sampler_bytes;
        bytes.set(bytes.get() - self.resources.bytes());
    }
}
