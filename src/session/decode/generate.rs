//! Generation: prefill, then several tokens queued at a time.

mod options;

use super::in_flight::{DrawsInFlight, MOST_IN_FLIGHT, MOST_PASSES, QueuedPasses};
use super::lookup::{CheckRows, Lookup};
use super::sampler::{Bias, Sampler, check_alternatives};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{LocalFuture, PlanId, Region, Replay, create_checked, queue_checked};
use crate::lower::{LIKELIEST_OFFSET, SampleChoices};
use crate::plan::Buffer;
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::caches::PreparedCache;
use crate::session::cache::chunk::Chunk;
use crate::session::cache::key_value_cache::{CacheOwner, KeyValueCache};
use crate::session::model::Model;
use crate::session::step::{Sampling, Step};
use crate::session::throughput::Work;
use std::rc::Rc;

pub use options::GenerateOptions;

/// Failures of a check's pass that plain decoding does not have.
const UNFIT: [ErrorCode; 2] = [ErrorCode::OutOfMemory, ErrorCode::LimitExceeded];

/// Passes of each submit while nothing is in flight.
const EARLY_PASSES: usize = 2;

/// A token and its log-probability (nats) under the model, before bias, temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    pub token: u32,
    pub logprob: f32,
    /// The likeliest tokens of the step in their order, on the same scale.
    pub alternatives: Vec<(u32, f32)>,
}

/// A running generation. The key-value cache belongs to the model. Where something else has used it, or the weights
/// have changed, the part of the text that it no longer holds is read again before the next token.
#[derive(Debug)]
pub struct Generation {
    model: Rc<Model>,
    options: GenerateOptions,
    /// Prompt and drawn tokens.
    text: Vec<u32>,
    draws: usize,
    /// Positions that the whole text may take, prompt and all.
    max_len: usize,
    /// Its use of the cache; none where that does not hold the text.
    held: Option<CacheOwner>,
    finished: bool,
    /// The token after those given out came from logits that are not finite.
    non_finite: bool,
    bias: Bias,
    /// What draws the tokens where the cache's own plan does not; none before it is needed.
    sampler: Option<Sampler>,
    in_flight: DrawsInFlight,
    lookup: Option<Lookup>,
}

pub(in crate::session) fn not_finite() -> Error {
    let message = "the model's logits are not finite: its weights hold NaN or infinity, or numbers \
                   so large that products overflow; kvCache \"f16\" cannot hold keys and values beyond \
                   65504 either: \"int8\" and \"f32\" do; nor can prompts of packed weights on subgroup \
                   matrices hold such activations: weights \"f32\" do";
    Error::new(ErrorCode::NonFinite, message)
}

impl Generation {
    /// Checks the prompt and options and makes room for the prompt. The cache grows with the text.
    ///
    /// # Errors
    /// `invalid-tokens`, `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
    pub async fn start(
        model: &Rc<Model>,
        prompt: &[u32],
        mut options: GenerateOptions,
    ) -> Result<Self> {
        model.check_tokens(prompt)?;
        options.validate()?;
        let vocabulary = model.config().vocab_size;
        check_alternatives(options.alternatives, vocabulary)?;
        let bias = Bias::new(std::mem::take(&mut options.bias), vocabulary)?;
        // The text ends with the model's positions; a prompt that reaches farther is refused.
        let most = model.config().max_position_embeddings;
        let given = prompt.len().saturating_sub(options.drawn);
        let max_len = given.saturating_add(options.max_tokens).min(most).max(prompt.len());
        model.prepare_inference(prompt.len(), options.inference()).await?;
        let draws = options.drawn;
        let finished = options.max_tokens <= draws || prompt.len() == most;
        let lookup = options.prompt_lookup.then(|| Lookup::new(model.gpu().capabilities()));
        Ok(Self {
            model: Rc::clone(model),
            options,
            text: prompt.to_vec(),
            draws,
            max_len,
            held: None,
            finished,
            non_finite: false,
            bias,
            sampler: None,
            in_flight: DrawsInFlight::default(),
            lookup,
        })
    }

    /// Sets the bias of the next token, of a generation that is `stepwise`.
    ///
    /// # Errors
    /// `invalid-options`.
    pub fn set_bias(&mut self, bias: Vec<f32>) -> Result<()> {
        self.bias = Bias::new(bias, self.model.config().vocab_size)?;
        Ok(())
    }

    /// Some more tokens; none when the generation has ended. A stop token ends it and is not given.
    /// Where the logits stop being finite, the tokens before that are given, and the next call fails.
    ///
    /// # Errors
    /// `freed`, `device-lost`, `non-finite` when the logits have no number to draw from.
    pub async fn next(&mut self) -> Result<Vec<Drawn>> {
        if std::mem::take(&mut self.non_finite) {
            return Err(not_finite());
        }
        if self.finished {
            return Ok(Vec::new());
        }
        let cache = self.model.prepare_inference(self.reach(), self.options.inference()).await?;
        self.prepare_sampler(&cache).await?;
        let rows = self.prepare_check(&cache).await?;
        // Where the tokens do not arrive, the next call reads the text again.
        let held = self.held.take();
        let held =
            held.filter(|held| cache.is_held(&self.model.weights, *held) && self.fits(&cache));
        let held = held.filter(|_| cache.has_rope_for(&self.model.weights, self.text.len()));
        let (held, drawn) = match held {
            Some(held) => {
                let drawn = if let (Some(rows), Some(lookup)) = (rows, self.lookup.as_mut()) {
                    let sampling = self.options.sampling(self.options.top_k);
                    let sampling = Sampling { first_draw: self.draws as u32, ..sampling };
                    let rows = (rows, self.text.len() - 1);
                    lookup.check(&self.model, &cache, rows, sampling).await?
                } else {
                    self.fill_in_flight(&cache, 0)?;
                    self.in_flight.read(&**self.model.gpu(), &self.model.token_throughput).await?.1
                };
                (held, drawn)
            }
            None => {
                // What is in flight was drawn before the model changed.
                self.in_flight.drain().await?;
                let _lock = cache.lock().await;
                self.prepare_sampler(&cache).await?;
                self.prefill(&cache).await?
            }
        };
        self.held = Some(held);
        let drawn = bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(&drawn);
        let given = self.take(self.draws_of(&drawn));
        if let Some(lookup) = &mut self.lookup {
            lookup.read(&self.text);
        }
        // The last token's keys and values come with the next one.
        cache.holds(held, &self.text[..self.text.len() - 1]);
        if self.finished {
            // What is in flight was drawn after the end: it may fail.
            let _ = self.in_flight.drain().await;
        }
        if given.is_empty() && std::mem::take(&mut self.non_finite) {
            return Err(not_finite());
        }
        Ok(given)
    }

    /// What draws the tokens, bound to the cache as it is.
    async fn prepare_sampler(&mut self, cache: &KeyValueCache) -> Result<()> {
        let biased = !self.bias.is_empty();
        let choices = SampleChoices { biased, likeliest: self.options.alternatives };
        if choices == SampleChoices::default() {
            self.sampler = None;
            return Ok(());
        }
        let fits =
            |sampler: &Sampler| sampler.choices == choices && sampler.bound.belongs_to(cache);
        match self.sampler.take().filter(fits) {
            Some(sampler) => {
                if self.options.stepwise && biased {
                    create_checked(&**self.model.gpu(), || sampler.write(&self.bias)).await?;
                }
                self.sampler = Some(sampler);
            }
            None => {
                self.sampler =
                    Some(Sampler::new(&self.model.weights, cache, choices, &self.bias).await?)
            }
        }
        Ok(())
    }

    /// Whether the sampler, if there is one, is bound to the cache as it is.
    fn fits(&self, cache: &KeyValueCache) -> bool {
        self.sampler.as_ref().is_none_or(|sampler| sampler.bound.belongs_to(cache))
    }

    /// Each draw, with the likeliest tokens of its step.
    fn draws_of(&self, words: &[[u32; 2]]) -> Vec<Drawn> {
        let count = self.options.alternatives;
        let pair = |&[token, bits]: &[u32; 2]| (token, f32::from_bits(bits));
        let first = if count == 0 { words.len() } else { LIKELIEST_OFFSET as usize / 8 };
        let (draws, likeliest) = words.split_at(first.min(words.len()));
        let passes = likeliest.len().checked_div(count).unwrap_or(draws.len());
        draws[..passes]
            .iter()
            .enumerate()
            .map(|(pass, draw)| {
                let (token, logprob) = pair(draw);
                let alternatives = likeliest.iter().skip(pass * count).take(count).map(pair);
                Drawn { token, logprob, alternatives: alternatives.collect() }
            })
            .collect()
    }

    /// How many groups of passes are in flight. After a prompt it is one, so that the prompt's draw is read soon. After
    /// a text that is read again it is none: two texts in alternation would queue it in vain each time.
    fn most_in_flight(&self, behind_prompt: bool) -> usize {
        let begins = self.draws == self.options.drawn && self.lookup.is_none();
        match (self.options.stepwise, behind_prompt) {
            (true, _) => usize::from(!behind_prompt),
            (false, true) => usize::from(begins),
            (false, false) => MOST_IN_FLIGHT,
        }
    }

    /// Positions that the cache needs for all that may be in flight after the next call: decoding
    /// appends to it without looking at its end.
    fn reach(&self) -> usize {
        self.max_len.min(self.text.len() + MOST_IN_FLIGHT * MOST_PASSES)
    }

    /// The rows of a check with a pass made for it, where a check is worth while and nothing is in flight:
    /// before the cache is known to hold the text.
    async fn prepare_check(&mut self, cache: &KeyValueCache) -> Result<Option<CheckRows>> {
        let (left, idle) = (self.left_alike(), self.in_flight.is_empty());
        let Some(lookup) = self.lookup.as_mut().filter(|_| idle) else { return Ok(None) };
        let rows = lookup.prepare(&self.model, cache, &self.text, left).await;
        if rows.as_ref().is_err_and(|error| UNFIT.contains(&error.code)) {
            // The text goes on without checks, from where it is.
            if self.lookup.take().is_some_and(|lookup| lookup.state_is_stale) {
                self.held = None;
            }
            return Ok(None);
        }
        rows
    }

    /// Queues passes until enough are in flight, or no token is left to draw. `undrawn`: tokens that a prompt's pass
    /// draws before.
    fn fill_in_flight(&mut self, cache: &PreparedCache, undrawn: usize) -> Result<()> {
        // What is in flight is read before a check.
        let checking = self.lookup.as_ref().is_some_and(|lookup| lookup.checking);
        let most = self.most_in_flight(undrawn > 0);
        while self.in_flight.len() < self.in_flight.most(most)
            && (!checking || self.in_flight.is_empty())
        {
            let queued = undrawn + self.in_flight.passes();
            let left = self.left_alike().saturating_sub(queued);
            if left == 0 {
                break;
            }
            let submit = self.decode(cache, left, queued)?;
            self.in_flight.push(submit);
            if let Some(lookup) = &mut self.lookup {
                lookup.state_is_stale = false;
            }
        }
        Ok(())
    }

    /// Tokens still wanted and still within the model's positions.
    fn left(&self) -> usize {
        (self.options.max_tokens - self.draws).min(self.max_len.saturating_sub(self.text.len()))
    }

    /// Of [`Self::left`], the tokens that can be drawn before the text is rotated by other angles and so is read again.
    fn left_alike(&self) -> usize {
        let short = self.model.layout().architecture.short_tokens();
        let alike = match short.checked_sub(self.text.len()) {
            Some(more) => more.saturating_add(1),
            None => usize::MAX,
        };
        self.left().min(alike)
    }

    /// The tokens that count of those drawn; notes whether the generation has ended.
    fn take(&mut self, drawn: Vec<Drawn>) -> Vec<Drawn> {
        let mut given = Vec::new();
        for drawn in drawn {
            if !drawn.logprob.is_finite() {
                (self.finished, self.non_finite) = (true, true);
                break;
            }
            self.draws += 1;
            if self.options.stop_tokens.contains(&drawn.token) {
                self.finished = true;
                break;
            }
            self.text.push(drawn.token);
            given.push(drawn);
        }
        if self.left() == 0 {
            self.finished = true;
        }
        given
    }

    /// Reads what the cache does not hold of the text so far and draws the first next token. The caller holds the cache's lock.
    async fn prefill(&mut self, cache: &PreparedCache) -> Result<(CacheOwner, Vec<u8>)> {
        let (model, count) = (Rc::clone(&self.model), self.text.len());
        let (mut held, mut done) = model.begin_text(cache, &self.text, usize::MAX).await?;
        let mut unread = count - done;
        // Whether that was accepted is awaited while the first chunk is read.
        let mut reset = Some(self.reset_decoding(cache)?);
        loop {
            let part = model.next_chunk(cache, done..count, unread)?;
            let last = part.end == count;
            let chunk = |allocation: &CacheAllocation| {
                if !last {
                    return Ok(Chunk::prefill(allocation, unread, &[], None));
                }
                let read = self.drawn(allocation, 1)?;
                Ok(Chunk::prefill(
                    allocation,
                    unread,
                    &[allocation.plans.last_row, self.sample(allocation)],
                    Some(read),
                ))
            };
            let tokens = &self.text[part.clone()];
            let Some(read) = model.queue_chunk((cache, held), done, tokens, &chunk)? else {
                (held, done) = model.begin_text(cache, &self.text, usize::MAX).await?;
                unread = count - done;
                reset = Some(self.reset_decoding(cache)?);
                continue;
            };
            if last {
                // What cannot be queued now fails in the next call: the prompt's draw is kept.
                let _ = self.fill_in_flight(cache, 1);
            }
            let accepted = match reset.take() {
                Some(reset) => reset.await,
                None => Ok(()),
            };
            let bytes = read.await;
            accepted?;
            let bytes = bytes?;
            if last {
                // What is queued after it waited for the prompt.
                model.token_throughput.waited(&**model.gpu());
                cache.holds(held, &self.text);
                return Ok((held, bytes));
            }
            done = part.end;
        }
    }

    /// The plan that draws a token.
    fn sample(&self, allocation: &CacheAllocation) -> PlanId {
        self.sampler.as_ref().map_or(allocation.plans.sample, |sampler| sampler.bound.ids)
    }

    /// Where `passes` passes leave their draws.
    fn drawn(&self, allocation: &CacheAllocation, passes: usize) -> Result<Region> {
        let (buffer, bytes) = match &self.sampler {
            Some(sampler) => sampler.drawn(allocation, passes)?,
            None => (allocation.resources.get(Buffer::Drawn)?, passes as u64 * 8),
        };
        Ok(Region { buffer, offset: 0, bytes })
    }

    /// Puts what decoding counts on by itself to where the text is.
    fn reset_decoding(&self, cache: &KeyValueCache) -> Result<LocalFuture<Result<()>>> {
        let write = || cache.with(|allocation| self.write_decode_state(allocation));
        let ((), accepted) = queue_checked(&**self.model.gpu(), write)?;
        Ok(accepted)
    }

    fn write_decode_state(&self, allocation: &CacheAllocation) -> Result<()> {
        let gpu = &self.model.gpu();
        let mut seen = vec![0u32; self.model.config().vocab_size.div_ceil(32)];
        for &token in &self.text {
            seen[token as usize / 32] |= 1 << (token % 32);
        }
        let buffer = |name| allocation.resources.get(name);
        gpu.write(buffer(Buffer::Seen)?, 0, bytemuck::cast_slice(&seen))?;
        let position = self.text.len() as u32 - 1;
        let last = self.text[position as usize];
        gpu.write(buffer(Buffer::Token)?, 0, bytemuck::bytes_of(&last))?;
        let step = Step { position, draws: self.draws as u32, ..Step::of(1) };
        gpu.write(buffer(Buffer::DecodeStep)?, 0, bytemuck::bytes_of(&step))?;
        self.write_sampling(buffer(Buffer::Sampling)?, 0)
    }

    /// The options of draws that come after `queued` ones which were not read yet.
    fn write_sampling(&self, buffer: crate::gpu::BufferId, queued: usize) -> Result<()> {
        let sampling = Sampling {
            first_draw: (self.draws + queued) as u32,
            ..self.options.sampling(self.bias.top_k(self.options.top_k))
        };
        self.model.gpu().write(buffer, 0, bytemuck::bytes_of(&sampling))
    }

    /// A token decoded and drawn, and the largest dispatch of that.
    fn work(&self, allocation: &CacheAllocation) -> [Work; 2] {
        let costs = &allocation.costs;
        let (sample, largest) = match &self.sampler {
            Some(sampler) => (sampler.work, costs.largest_of_token.max(sampler.largest)),
            None => (costs.sample, costs.largest_of_token),
        };
        [costs.decode.plus(sample), largest]
    }

    /// Submits that `passes` passes are cut into. Several where nothing is in flight: the GPU begins with the first
    /// passes while the host encodes the others.
    fn early_submits(&self, passes: usize) -> usize {
        if self.in_flight.is_empty() { passes.div_ceil(EARLY_PASSES) } else { 1 }
    }

    /// Queues passes after `queued` ones: at most `left`, as the GPU's speed allows.
    fn decode(&self, cache: &PreparedCache, left: usize, queued: usize) -> Result<QueuedPasses> {
        let (gpu, throughput) = (&**self.model.gpu(), &self.model.token_throughput);
        let queue = |allocation: &CacheAllocation| {
            cache.intervene(&self.model, allocation)?;
            let [token, largest] = self.work(allocation);
            let most = if self.options.stepwise { 1 } else { MOST_PASSES };
            let passes = QueuedPasses::passes(throughput, token, most).min(left);
            let work = token.times(passes);
            let submits = throughput.submits(work, largest).max(self.early_submits(passes));
            if self.lookup.as_ref().is_some_and(|lookup| lookup.state_is_stale) {
                self.write_decode_state(allocation)?;
            }
            self.write_sampling(allocation.resources.get(Buffer::Sampling)?, queued)?;
            let reach = self.text.len() + queued + passes;
            let pass = [allocation.decode(reach), self.sample(allocation)]
                .map(|plan| Replay::new(plan, 1));
            let all: [_; 2 * MOST_PASSES] = std::array::from_fn(|index| pass[index % 2]);
            let region = self.drawn(allocation, passes)?;
            let sent = throughput.sent(gpu, work);
            Ok((passes, sent, gpu.submit(&all[..2 * passes], submits, Some(region))?))
        };
        let queued_passes = QueuedPasses::queued(gpu, || cache.with(queue))?;
        cache.writes(self.text.len() + queued + queued_passes.passes);
        Ok(queued_passes)
    }
}
