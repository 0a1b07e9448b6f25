//! Inference with a model's own weight buffers: chunked prefill into a key-value cache, logits,
//! loss, decoding.

use super::model::Model;
use super::resources::Resources;
use super::step::{Step, write_rope_table};
use crate::data::IGNORE_INDEX;
use crate::error::{Error, Result, room};
use crate::gpu::{Gpu, LocalFuture, PlanId, Region, Replay};
use crate::kernels::{AttentionShape, KvCache};
use crate::plan::{
    Buffer, InferencePlans, METRICS_BYTES, PromptLayout, STEP_BYTES, cache_bytes, inference_plans,
};
use serde::Deserialize;
use std::rc::Rc;

/// Options of `model.logits` and `model.loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InferenceOptions {
    /// How keys and values are kept: what they lose shows in the result.
    pub kv_cache: KvCache,
}

/// Fewest tokens of cache allocated.
const LEAST_CAPACITY: usize = 256;

/// Buffers and installed plans for texts of one capacity and a cache of one form.
#[derive(Debug)]
pub(super) struct Inference {
    pub resources: Resources,
    pub prefill: PlanId,
    pub logits: PlanId,
    pub loss: PlanId,
    pub last_row: PlanId,
    pub decode: PlanId,
    pub sample: PlanId,
    pub chunk: usize,
    pub turns: usize,
    pub capacity: usize,
    pub cache: KvCache,
}

impl Inference {
    fn new(model: &Model, plans: &InferencePlans, capacity: usize, cache: KvCache) -> Result<Self> {
        let weights = model.weights()?;
        let mut resources = Resources::new(&model.gpu.0);
        Self::allocate(&mut resources, model, plans, capacity, cache)?;
        let mut install = |plan| resources.install(plan, &[&weights]);
        let (prefill, logits, loss) =
            (install(&plans.prefill)?, install(&plans.logits)?, install(&plans.loss)?);
        let (last_row, decode, sample) =
            (install(&plans.last_row)?, install(&plans.decode)?, install(&plans.sample)?);
        let InferencePlans { chunk, turns, .. } = *plans;
        Ok(Self {
            resources,
            prefill,
            logits,
            loss,
            last_row,
            decode,
            sample,
            chunk,
            turns,
            capacity,
            cache,
        })
    }

    fn allocate(
        resources: &mut Resources,
        model: &Model,
        plans: &InferencePlans,
        capacity: usize,
        cache: KvCache,
    ) -> Result<()> {
        let config = &model.config;
        let shape = AttentionShape::of(config, plans.chunk);
        let hidden = config.hidden_size as u64 * 4;
        for (index, bytes) in plans.slots.iter().enumerate() {
            resources.add(Buffer::Slot(index), *bytes)?;
        }
        let cache = cache_bytes(cache, &shape, plans.cache_rows);
        for layer in 0..config.num_hidden_layers {
            resources.add(Buffer::Cache(layer), cache)?;
        }
        for (name, bytes) in [
            (Buffer::Batch, PromptLayout::new(plans.chunk).bytes()),
            (Buffer::Step, STEP_BYTES),
            (Buffer::DecodeStep, STEP_BYTES),
            (Buffer::Hidden, plans.chunk as u64 * hidden),
            (Buffer::LastHidden, hidden),
            (Buffer::Logits, plans.chunk as u64 * config.vocab_size as u64 * 4),
            (Buffer::Losses, plans.chunk as u64 * 4),
            (Buffer::Metrics, METRICS_BYTES),
            (Buffer::Token, 16),
            (Buffer::Seen, config.vocab_size.div_ceil(32) as u64 * 4),
            (Buffer::Drawn, plans.turns as u64 * 8),
            (Buffer::Sampling, 32),
        ] {
            resources.add(name, bytes)?;
        }
        let bytes = capacity as u64 * config.head_dim as u64 * 4;
        let buffer = resources.add(Buffer::RopeTable, bytes)?;
        write_rope_table(&model.gpu.0, buffer, capacity, config.head_dim, config.rope_theta)
    }

    pub fn bytes(&self) -> u64 {
        self.resources.bytes()
    }
}

impl Model {
    /// Makes sure that inference buffers for `tokens` tokens of context exist, with a cache of that
    /// form.
    pub(super) async fn prepare_inference(&self, tokens: usize, cache: KvCache) -> Result<()> {
        self.weights()?;
        let most = self.config.max_position_embeddings;
        if tokens > most {
            return Err(Error::tokens(format!(
                "{tokens} tokens of context are more than max_position_embeddings, {most}; shorten the prompt or maxTokens"
            )));
        }
        let fits = |i: &Inference| i.capacity >= tokens && i.cache == cache;
        if self.inference.borrow().as_ref().is_some_and(fits) {
            return Ok(());
        }
        let gpu = &self.gpu.0;
        let capacity = tokens.next_power_of_two().max(LEAST_CAPACITY).min(most);
        let caps = gpu.capabilities();
        let plans = inference_plans(caps, &self.config, &self.layout, capacity, cache)?;
        gpu.prepare(&plans.all()).await;
        if self.inference.borrow().as_ref().is_some_and(fits) {
            return Ok(());
        }
        gpu.watch();
        let made = Inference::new(self, &plans, capacity, cache);
        let checked = gpu.checked().await;
        let made = made?;
        checked?;
        // The old buffers, and what their cache holds, stood until now: no failure above lost them.
        self.touch();
        self.inference.replace(Some(made));
        Ok(())
    }

    pub(super) fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::tokens("tokens is empty; give at least one token id"));
        }
        let vocabulary = self.config.vocab_size;
        match tokens.iter().position(|&t| t as usize >= vocabulary) {
            Some(i) => Err(Error::tokens(format!(
                "tokens[{i}] is {}; token ids must be below vocab_size, {vocabulary}",
                tokens[i]
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn with_inference<T>(
        &self,
        use_it: impl FnOnce(&Inference) -> Result<T>,
    ) -> Result<T> {
        let inference = self.inference.borrow();
        use_it(inference.as_ref().ok_or_else(|| Error::internal("inference is not prepared"))?)
    }

    /// Queues one chunk at `position`: its tokens (and targets) into the batch, its prefill, and
    /// what `after` names, then a readback.
    pub(super) fn run_chunk(
        &self,
        position: usize,
        tokens: &[u32],
        targets: Option<&[u32]>,
        after: impl FnOnce(&Inference) -> Result<(Vec<PlanId>, Option<Region>)>,
    ) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let gpu: &Rc<dyn Gpu> = &self.gpu.0;
        self.with_inference(|inference| {
            let batch = inference.resources.get(Buffer::Batch)?;
            gpu.write(batch, 0, bytemuck::cast_slice(tokens))?;
            if let Some(targets) = targets {
                let offset = PromptLayout::new(inference.chunk).targets().offset;
                gpu.write(batch, offset, bytemuck::cast_slice(targets))?;
            }
            let step = Step { position: position as u32, ..Step::of(tokens.len()) };
            gpu.write(inference.resources.get(Buffer::Step)?, 0, bytemuck::bytes_of(&step))?;
            let (plans, region) = after(inference)?;
            let replays: Vec<_> = std::iter::once(inference.prefill)
                .chain(plans)
                .map(|plan| Replay { plan, rows: tokens.len() })
                .collect();
            gpu.submit(&replays, 1, region)
        })
    }

    pub(super) fn chunk(&self) -> Result<usize> {
        self.with_inference(|inference| Ok(inference.chunk))
    }

    /// Logits of every position: `tokens.len() × vocab_size`.
    ///
    /// # Errors
    /// `invalid-tokens`, `freed`, `limit-exceeded`, `out-of-memory`, `device-lost`.
    pub async fn logits(&self, tokens: &[u32], options: InferenceOptions) -> Result<Vec<f32>> {
        self.check_tokens(tokens)?;
        let (count, vocabulary) = (tokens.len(), self.config.vocab_size);
        let what = format!("the logits of {count} tokens × vocab_size {vocabulary}");
        let mut logits: Vec<f32> = room(&what, count as u64 * vocabulary as u64)?;
        self.prepare_inference(count, options.kv_cache).await?;
        self.touch();
        let chunk = self.chunk()?;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let row = self.config.vocab_size as u64 * 4;
            let read = self.run_chunk(index * chunk, part, None, |inference| {
                let buffer = inference.resources.get(Buffer::Logits)?;
                Ok((
                    vec![inference.logits],
                    Some(Region { buffer, offset: 0, bytes: part.len() as u64 * row }),
                ))
            })?;
            logits.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&read.await?));
        }
        Ok(logits)
    }

    /// Mean cross-entropy in nats; targets default to the tokens shifted by one.
    ///
    /// # Errors
    /// As [`Model::logits`], and `invalid-tokens` when lengths disagree or no target counts.
    pub async fn loss(
        &self,
        tokens: &[u32],
        targets: Option<&[u32]>,
        options: InferenceOptions,
    ) -> Result<f64> {
        self.check_tokens(tokens)?;
        let shifted: Vec<u32>;
        let targets = match targets {
            Some(targets) => targets,
            None => {
                shifted = tokens[1..].iter().copied().chain([IGNORE_INDEX]).collect();
                &shifted
            }
        };
        self.check_targets(tokens, targets)?;
        self.prepare_inference(tokens.len(), options.kv_cache).await?;
        self.touch();
        let chunk = self.chunk()?;
        let (mut sum, mut count) = (0.0, 0.0);
        for (index, (part, targets)) in tokens.chunks(chunk).zip(targets.chunks(chunk)).enumerate()
        {
            let read = self.run_chunk(index * chunk, part, Some(targets), |inference| {
                let buffer = inference.resources.get(Buffer::Metrics)?;
                let region = Region { buffer, offset: 0, bytes: METRICS_BYTES };
                Ok((vec![inference.logits, inference.loss], Some(region)))
            })?;
            let metrics = bytemuck::pod_collect_to_vec::<u8, f32>(&read.await?);
            sum += f64::from(metrics[0]);
            count += f64::from(metrics[1]);
        }
        Ok(sum / count)
    }

    fn check_targets(&self, tokens: &[u32], targets: &[u32]) -> Result<()> {
        if targets.len() != tokens.len() {
            return Err(Error::tokens(format!(
                "{} targets for {} tokens; give one each",
                targets.len(),
                tokens.len()
            )));
        }
        let vocabulary = self.config.vocab_size;
        if let Some(i) = targets.iter().position(|&t| t != IGNORE_INDEX && t as usize >= vocabulary)
        {
            return Err(Error::tokens(format!(
                "targets[{i}] is {}; a target must be below vocab_size, {vocabulary}, or 0xffffffff to be ignored",
                targets[i]
            )));
        }
        if targets.iter().all(|&t| t == IGNORE_INDEX) {
            return Err(Error::tokens(
                "no target counts: give at least two tokens, or a target that is not 0xffffffff",
            ));
        }
        Ok(())
    }
}
