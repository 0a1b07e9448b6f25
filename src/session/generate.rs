//! Generation: prefill, then several tokens a submit.

use super::inference::Inference;
use super::model::Model;
use super::step::{Sampling, Step};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{LocalFuture, Pending, Region, Replay, watched};
use crate::kernels::{KvCache, WeightFormat};
use crate::lower::InferenceOptions;
use crate::plan::Buffer;
use crate::random::split;
use serde::Deserialize;
use std::collections::VecDeque;
use std::rc::Rc;

/// Submits that are on their way together: while one is read the next is decoded, so that neither
/// the GPU nor the host waits for the other.
const SUBMITS_AHEAD: usize = 2;
/// The epoch of a generation whose text is not in the cache.
const NOTHING_CACHED: u64 = u64::MAX;

/// Options of `model.generate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GenerateOptions {
    pub max_tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// 0: off.
    pub top_k: u32,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub repetition_penalty: f32,
    pub seed: u64,
    pub stop_tokens: Vec<u32>,
    /// How keys and values are kept between tokens.
    pub kv_cache: KvCache,
    /// How matrices are read.
    pub weights: WeightFormat,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 128,
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            stop_tokens: Vec::new(),
            kv_cache: KvCache::F32,
            weights: WeightFormat::F32,
        }
    }
}

impl GenerateOptions {
    fn inference(&self) -> InferenceOptions {
        InferenceOptions { kv_cache: self.kv_cache, weights: self.weights }
    }

    fn validate(&self) -> Result<()> {
        let check = |good: bool, name: &str, value: f32, allowed: &str| {
            if good {
                Ok(())
            } else {
                Err(Error::options(format!("{name} is {value}; it must be {allowed}")))
            }
        };
        let t = self.temperature;
        check(t == 0.0 || (t.is_finite() && t >= 1e-3), "temperature", t, "0, or from 0.001 up")?;
        check(self.top_p > 0.0 && self.top_p <= 1.0, "topP", self.top_p, "above 0 and at most 1")?;
        check((0.0..1.0).contains(&self.min_p), "minP", self.min_p, "at least 0 and below 1")?;
        let penalty = self.repetition_penalty;
        check(
            penalty.is_finite() && penalty > 0.0,
            "repetitionPenalty",
            penalty,
            "above 0; 1 turns it off",
        )
    }
}

/// A token and its log-probability (nats) under the model, before temperature and filters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    pub token: u32,
    pub logprob: f32,
}

/// A running generation. The key-value cache belongs to the model: when something else has used
/// it, or the weights have changed, what it does not hold of the text so far is read again before the
/// next token. So is a prompt that begins like the text before.
#[derive(Debug)]
pub struct Generation {
    model: Rc<Model>,
    options: GenerateOptions,
    /// Prompt and drawn tokens.
    text: Vec<u32>,
    draws: usize,
    /// Positions that the whole text may take, prompt and all.
    room: usize,
    epoch: u64,
    finished: bool,
    /// The token after those given out came from logits that are not finite.
    spoilt: bool,
    /// Submits that were not read yet, the oldest first, with the tokens each draws.
    ahead: VecDeque<Ahead>,
}

struct Ahead {
    turns: usize,
    drawn: LocalFuture<Result<Vec<u8>>>,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ahead").field("turns", &self.turns).finish_non_exhaustive()
    }
}

fn not_finite() -> Error {
    let message = "the model's logits are not finite: its weights hold NaN or infinity, or numbers \
                   so large that products overflow";
    Error::new(ErrorCode::NonFinite, message)
}

impl Generation {
    /// Checks the prompt and options and makes room for the whole text.
    ///
    /// # Errors
    /// `invalid-tokens`, `invalid-options`, `freed`, `limit-exceeded`, `out-of-memory`.
    pub async fn start(
        model: &Rc<Model>,
        prompt: &[u32],
        options: GenerateOptions,
    ) -> Result<Self> {
        model.check_tokens(prompt)?;
        options.validate()?;
        // Room for the whole text at once, as far as the model's positions reach; a prompt that
        // reaches farther is refused.
        let most = model.config.max_position_embeddings;
        let room = prompt.len().saturating_add(options.max_tokens).min(most).max(prompt.len());
        model.prepare_inference(room, options.inference()).await?;
        let finished = options.max_tokens == 0 || prompt.len() == most;
        let epoch = NOTHING_CACHED;
        Ok(Self {
            model: Rc::clone(model),
            options,
            text: prompt.to_vec(),
            draws: 0,
            room,
            epoch,
            finished,
            spoilt: false,
            ahead: VecDeque::new(),
        })
    }

    /// Some more tokens; none when the generation has ended. A stop token ends it and is not given.
    /// Where the logits stop being finite, the tokens before that are given, and the next call fails.
    ///
    /// # Errors
    /// `freed`, `device-lost`, `non-finite` when the logits have no number to draw from.
    pub async fn next(&mut self) -> Result<Vec<Drawn>> {
        if std::mem::take(&mut self.spoilt) {
            return Err(not_finite());
        }
        if self.finished {
            return Ok(Vec::new());
        }
        let drawn = if self.epoch == self.model.epoch.get() {
            self.decode_ahead()?;
            let oldest = self.ahead.pop_front();
            let oldest = oldest.ok_or_else(|| Error::internal("nothing is being decoded"))?;
            // Where these do not arrive, the next call reads the text again.
            let epoch = std::mem::replace(&mut self.epoch, NOTHING_CACHED);
            let drawn = oldest.drawn.await?;
            self.epoch = epoch;
            drawn
        } else {
            // What is on its way was drawn before the model changed.
            self.settle().await?;
            let drawn = self.prefill().await;
            // What did not arrive is not in the cache.
            if drawn.is_err() {
                self.epoch = NOTHING_CACHED;
            }
            drawn?
        };
        let drawn = bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(&drawn);
        let given = self.take(&drawn);
        // The last token's keys and values come with the next one.
        self.model.holds(self.epoch, &self.text[..self.text.len() - 1]);
        if self.finished {
            self.settle().await?;
        }
        if given.is_empty() && std::mem::take(&mut self.spoilt) {
            return Err(not_finite());
        }
        Ok(given)
    }

    /// Waits for what is on its way, and drops it: its tokens count for nothing, its first error
    /// does.
    async fn settle(&mut self) -> Result<()> {
        let mut settled = Ok(());
        for Ahead { drawn, .. } in std::mem::take(&mut self.ahead) {
            settled = settled.and(drawn.await.map(drop));
        }
        settled
    }

    /// Queues submits until as many are on their way as should be, or no token is left to draw.
    fn decode_ahead(&mut self) -> Result<()> {
        while self.ahead.len() < SUBMITS_AHEAD {
            let queued: usize = self.ahead.iter().map(|ahead| ahead.turns).sum();
            let left = self.left().saturating_sub(queued);
            if left == 0 {
                break;
            }
            let most = self.model.with_inference(|inference| Ok(inference.turns))?;
            let turns = most.min(left);
            let drawn = self.decode(turns, queued)?;
            self.ahead.push_back(Ahead { turns, drawn });
        }
        Ok(())
    }

    /// Tokens still wanted and still within the model's positions.
    fn left(&self) -> usize {
        (self.options.max_tokens - self.draws).min(self.room.saturating_sub(self.text.len()))
    }

    /// The tokens that count of those drawn; notes whether the generation has ended.
    fn take(&mut self, drawn: &[[u32; 2]]) -> Vec<Drawn> {
        let mut given = Vec::new();
        for &[token, bits] in drawn {
            let logprob = f32::from_bits(bits);
            if !logprob.is_finite() {
                (self.finished, self.spoilt) = (true, true);
                break;
            }
            self.draws += 1;
            if self.options.stop_tokens.contains(&token) {
                self.finished = true;
                break;
            }
            self.text.push(token);
            given.push(Drawn { token, logprob });
        }
        if self.left() == 0 {
            self.finished = true;
        }
        given
    }

    /// Reads what the cache does not hold of the text so far and draws the first next token.
    async fn prefill(&mut self) -> Result<Vec<u8>> {
        // For what is still to come too: decoding appends to the cache without looking at its end.
        self.model.prepare_inference(self.room, self.options.inference()).await?;
        let start = self.model.reusable(&self.text)?;
        let reach = if start > 0 { self.model.cached.borrow().reach } else { 0 };
        self.model.touch();
        self.model.writes_cache(reach.max(self.text.len()));
        self.epoch = self.model.epoch.get();
        let mut pending = Pending::default();
        pending.queue(&*self.model.gpu.0, || self.write_decode_state())?;
        let chunk = self.model.chunk()?;
        let rest = &self.text[start..];
        let chunks = rest.len().div_ceil(chunk);
        for (index, part) in rest.chunks(chunk).enumerate() {
            let last = index + 1 == chunks;
            let done = self.model.run_chunk(start + index * chunk, part, None, |inference| {
                if !last {
                    return Ok((Vec::new(), None));
                }
                let buffer = inference.resources.get(Buffer::Drawn)?;
                Ok((
                    vec![inference.last_row, inference.sample],
                    Some(Region { buffer, offset: 0, bytes: 8 }),
                ))
            })?;
            if last {
                let bytes = done.await?;
                pending.accepted().await?;
                self.model.holds(self.epoch, &self.text);
                return Ok(bytes);
            }
            pending.push(done);
        }
        Err(Error::internal("a generation without a prompt"))
    }

    fn write_decode_state(&self) -> Result<()> {
        let gpu = &self.model.gpu.0;
        self.model.with_inference(|inference| {
            let mut seen = vec![0u32; self.model.config.vocab_size.div_ceil(32)];
            for &token in &self.text {
                seen[token as usize / 32] |= 1 << (token % 32);
            }
            let buffer = |name| inference.resources.get(name);
            gpu.write(buffer(Buffer::Seen)?, 0, bytemuck::cast_slice(&seen))?;
            let position = self.text.len() as u32 - 1;
            let step = Step { position, draws: self.draws as u32, ..Step::of(1) };
            gpu.write(buffer(Buffer::DecodeStep)?, 0, bytemuck::bytes_of(&step))?;
            self.write_sampling(buffer(Buffer::Sampling)?, 0)
        })
    }

    /// The options of draws that come after `queued` ones which were not read yet.
    fn write_sampling(&self, buffer: crate::gpu::BufferId, queued: usize) -> Result<()> {
        let sampling = Sampling {
            temperature: self.options.temperature,
            top_p: self.options.top_p,
            min_p: self.options.min_p,
            repetition_penalty: self.options.repetition_penalty,
            top_k: self.options.top_k,
            seed: split(self.options.seed),
            turn0: (self.draws + queued) as u32,
        };
        self.model.gpu.0.write(buffer, 0, bytemuck::bytes_of(&sampling))
    }

    /// Decodes `turns` tokens in one submit, behind `queued` ones.
    fn decode(&self, turns: usize, queued: usize) -> Result<LocalFuture<Result<Vec<u8>>>> {
        let queue = |inference: &Inference| {
            self.write_sampling(inference.resources.get(Buffer::Sampling)?, queued)?;
            let turn = [inference.decode, inference.sample].map(|plan| Replay { plan, rows: 1 });
            let buffer = inference.resources.get(Buffer::Drawn)?;
            let region = Region { buffer, offset: 0, bytes: turns as u64 * 8 };
            self.model.writes_cache(self.text.len() + queued + turns);
            self.model.gpu.0.submit(&turn.repeat(turns), 1, Some(region))
        };
        watched(&*self.model.gpu.0, || self.model.with_inference(queue))
    }
}
