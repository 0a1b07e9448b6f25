//! Inference with a model's own weight buffers: chunked prefill into a key-value cache, logits,
//! loss, decoding.

use super::model::Model;
use super::resources::Resources;
use super::step::{Step, write_rope_table};
use super::watch::Watch;
use crate::data::IGNORE_INDEX;
use crate::error::{Error, Result, room};
use crate::gpu::{Gpu, LocalFuture, PlanId, Region, Replay, made, watched};
use crate::kernels::WeightFormat;
use crate::lower::{InferenceOptions, InferencePlans, inference_plans};
use crate::plan::{Buffer, METRICS_BYTES, PromptLayout, buffers};
use std::cell::Cell;
use std::rc::Rc;

/// Fewest tokens of cache allocated.
const LEAST_CAPACITY: usize = 256;

/// Buffers and installed plans for texts of one capacity, one form of cache and of weights.
#[derive(Debug)]
pub(super) struct Inference {
    pub resources: Resources,
    pub prefill: PlanId,
    pub logits: PlanId,
    pub loss: PlanId,
    pub last_row: PlanId,
    pub decode: PlanId,
    pub sample: PlanId,
    pack: PlanId,
    /// The version of the weights that are packed.
    packed: Cell<Option<u64>>,
    pub chunk: usize,
    pub turns: usize,
    pub capacity: usize,
    pub cache_rows: usize,
    pub options: InferenceOptions,
}

impl Inference {
    fn new(
        model: &Model,
        plans: &InferencePlans,
        capacity: usize,
        options: InferenceOptions,
    ) -> Result<Self> {
        let weights = model.weights()?;
        let mut resources = Resources::new(&model.gpu.0);
        Self::allocate(&mut resources, model, &weights, plans, capacity)?;
        let mut install = |plan| resources.install(plan, &[&weights]);
        let (prefill, logits, loss) =
            (install(&plans.prefill)?, install(&plans.logits)?, install(&plans.loss)?);
        let (last_row, decode, sample) =
            (install(&plans.last_row)?, install(&plans.decode)?, install(&plans.sample)?);
        let pack = install(&plans.pack)?;
        let InferencePlans { chunk, turns, cache_rows, .. } = *plans;
        Ok(Self {
            resources,
            prefill,
            logits,
            loss,
            last_row,
            decode,
            sample,
            pack,
            packed: Cell::new(None),
            chunk,
            turns,
            capacity,
            cache_rows,
            options,
        })
    }

    fn allocate(
        resources: &mut Resources,
        model: &Model,
        weights: &Resources,
        plans: &InferencePlans,
        capacity: usize,
    ) -> Result<()> {
        resources.allocate(&buffers(plans.all()), &[weights])?;
        let buffer = resources.get(Buffer::RopeTable)?;
        write_rope_table(&model.gpu.0, buffer, capacity, &model.layout.architecture.rope)
    }

    /// Whether any matrix is read packed.
    fn packs(&self) -> bool {
        self.options.weights != WeightFormat::F32
    }

    pub fn bytes(&self) -> u64 {
        self.resources.bytes()
    }
}

impl Model {
    /// Makes sure that inference buffers for `tokens` tokens of context exist, with a cache and weights
    /// of those forms, and that the weights are packed as they are now.
    pub(super) async fn prepare_inference(
        &self,
        tokens: usize,
        options: InferenceOptions,
    ) -> Result<()> {
        self.make_inference(tokens, options).await?;
        let version = Some(self.version.get());
        let packing = self.with_inference(|inference| {
            if inference.packed.get() == version || !inference.packs() {
                return Ok(None);
            }
            self.gpu.0.submit(&[Replay { plan: inference.pack, rows: 1 }], 1, None).map(Some)
        })?;
        let Some(packing) = packing else { return Ok(()) };
        packing.await?;
        self.with_inference(|inference| {
            inference.packed.set(version);
            Ok(())
        })
    }

    async fn make_inference(&self, tokens: usize, options: InferenceOptions) -> Result<()> {
        self.weights()?;
        let most = self.config.max_position_embeddings;
        if tokens > most {
            return Err(Error::tokens(format!(
                "{tokens} tokens of context are more than max_position_embeddings, {most}; shorten the prompt or maxTokens"
            )));
        }
        let fits = |i: &Inference| i.capacity >= tokens && i.options == options;
        if self.inference.borrow().as_ref().is_some_and(fits) {
            return Ok(());
        }
        let gpu = &self.gpu.0;
        let capacity = tokens.next_power_of_two().max(LEAST_CAPACITY).min(most);
        let caps = gpu.capabilities();
        let plans = inference_plans(caps, &self.layout, capacity, options)?;
        gpu.prepare(&plans.all()).await;
        if self.inference.borrow().as_ref().is_some_and(fits) {
            return Ok(());
        }
        let made = made(&**gpu, || Inference::new(self, &plans, capacity, options)).await?;
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
        let queue = |inference: &Inference| {
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
        };
        watched(&**gpu, || self.with_inference(queue))
    }

    /// Tokens of a text whose keys and values the cache holds already, short of the last: its logits
    /// are wanted.
    pub(super) fn reusable(&self, text: &[u32]) -> Result<usize> {
        let cached = self.cached.borrow();
        let same = text.iter().zip(&cached.tokens).take_while(|(a, b)| a == b).count();
        let start = same.min(text.len().saturating_sub(1));
        // Later positions have taken the rows of the first ones where the cache is a ring. What a
        // window reaches back to must still be there.
        let lost = self.with_inference(|i| Ok(cached.reach.saturating_sub(i.cache_rows)))?;
        let window = self.config.sliding_window.unwrap_or(usize::MAX);
        let whole = lost == 0 || start + 1 >= lost.saturating_add(window);
        Ok(if whole { start } else { 0 })
    }

    /// Gives the cache to another text, of so many tokens, and tells its epoch.
    fn begin_text(&self, tokens: usize) -> u64 {
        self.touch();
        self.writes_cache(tokens);
        self.epoch.get()
    }

    /// Notes that positions below `reach` of the cache are being written.
    pub(super) fn writes_cache(&self, reach: usize) {
        let mut cached = self.cached.borrow_mut();
        cached.reach = cached.reach.max(reach);
    }

    /// Notes the text that the cache holds since `epoch`, unless it has been used otherwise meanwhile.
    pub(super) fn holds(&self, epoch: u64, text: &[u32]) {
        if epoch == self.epoch.get() {
            let mut cached = self.cached.borrow_mut();
            cached.tokens.clear();
            cached.tokens.extend_from_slice(text);
        }
    }

    pub(super) fn chunk(&self) -> Result<usize> {
        self.with_inference(|inference| Ok(inference.chunk))
    }

    /// Logits of every position: `tokens.len() × vocab_size`.
    ///
    /// # Errors
    /// `invalid-tokens`, `freed`, `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn logits(
        &self,
        tokens: &[u32],
        options: InferenceOptions,
        watch: Watch<'_>,
    ) -> Result<Vec<f32>> {
        self.check_tokens(tokens)?;
        let (count, vocabulary) = (tokens.len(), self.config.vocab_size);
        let what = format!("the logits of {count} tokens × vocab_size {vocabulary}");
        let mut logits: Vec<f32> = room(&what, count as u64 * vocabulary as u64)?;
        watch.at(0, count, "logits")?;
        self.prepare_inference(count, options).await?;
        let epoch = self.begin_text(count);
        let chunk = self.chunk()?;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            watch.at(index * chunk, count, "logits")?;
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
        self.holds(epoch, tokens);
        watch.at(count, count, "logits")?;
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
        watch: Watch<'_>,
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
        let total = tokens.len();
        watch.at(0, total, "loss")?;
        self.prepare_inference(tokens.len(), options).await?;
        let epoch = self.begin_text(tokens.len());
        let chunk = self.chunk()?;
        let (mut sum, mut count) = (0.0, 0.0);
        for (index, (part, targets)) in tokens.chunks(chunk).zip(targets.chunks(chunk)).enumerate()
        {
            watch.at(index * chunk, total, "loss")?;
            let read = self.run_chunk(index * chunk, part, Some(targets), |inference| {
                let buffer = inference.resources.get(Buffer::Metrics)?;
                let region = Region { buffer, offset: 0, bytes: METRICS_BYTES };
                Ok((vec![inference.logits, inference.loss], Some(region)))
            })?;
            let metrics = bytemuck::pod_collect_to_vec::<u8, f32>(&read.await?);
            sum += f64::from(metrics[0]);
            count += f64::from(metrics[1]);
        }
        self.holds(epoch, tokens);
        watch.at(total, total, "loss")?;
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
