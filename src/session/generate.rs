//! Generation: prefill, then several tokens per submit.

use super::chunk::Chunk;
use super::key_value_cache::{Held, KeyValueCache, Room};
use super::lookup::{self, Lookup};
use super::model::Model;
use super::pace::{SUBMIT_MILLISECONDS, Sent, Work};
use super::sampler::{Bias, Sampler, check_alternatives};
use super::several::{RowState, SeveralPass};
use super::step::{Choice, Sampling, Step};
use crate::decimal::Decimal;
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{LocalFuture, PlanId, Region, Replay, made, watched};
use crate::kernels::{KvCache, WeightFormat};
use crate::lower::{InferenceOptions, LIKELIEST_OFFSET, SampleChoices};
use crate::plan::Buffer;
use crate::random::split;
use serde::Deserialize;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Failures of a check's pass that plain decoding does not have.
const UNFIT: [ErrorCode; 2] = [ErrorCode::OutOfMemory, ErrorCode::LimitExceeded];

/// Submits that are on their way together: while one is read the next is decoded, so that neither
/// the GPU nor the host waits for the other.
pub(super) const SUBMITS_AHEAD: usize = 2;
/// Most tokens drawn in a submit, for which the cache must have room.
pub(super) const MOST_TURNS: usize = 16;

/// Options of `model.generate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GenerateOptions {
    pub max_tokens: usize,
    /// How many of the last tokens of the prompt an earlier generation with these options has drawn, which
    /// this one continues.
    pub drawn: usize,
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
    /// How many of the likeliest tokens each step tells; 0: none.
    pub alternatives: usize,
    /// One number for each token that is added to its logit behind the penalty, or none at all. Negative
    /// infinity keeps a token out.
    #[serde(skip)]
    pub bias: Vec<f32>,
    /// Tokens that repeat the text are checked several at a time.
    pub prompt_lookup: bool,
    /// Each call of [`Generation::next`] draws one token, so that the bias may change before each.
    pub stepwise: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 128,
            drawn: 0,
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            stop_tokens: Vec::new(),
            kv_cache: KvCache::F32,
            weights: WeightFormat::F32,
            alternatives: 0,
            bias: Vec::new(),
            prompt_lookup: false,
            stepwise: false,
        }
    }
}

impl GenerateOptions {
    pub(super) fn inference(&self) -> InferenceOptions {
        InferenceOptions { kv_cache: self.kv_cache, weights: self.weights }
    }

    /// How tokens are drawn, from the beginning of a text on.
    pub(super) fn sampling(&self, top_k: u32) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            top_k,
            seed: split(self.seed),
            turn0: 0,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let check = |good: bool, name: &str, value: f32, allowed: &str| {
            if good {
                Ok(())
            } else {
                Err(Error::options(format!("{name} is {}; it must be {allowed}", Decimal(value))))
            }
        };
        let t = self.temperature;
        check(t == 0.0 || (t.is_finite() && t >= 1e-3), "temperature", t, "0, or from 0.001 up")?;
        check(self.top_p > 0.0 && self.top_p <= 1.0, "topP", self.top_p, "above 0 and at most 1")?;
        check((0.0..1.0).contains(&self.min_p), "minP", self.min_p, "at least 0 and below 1")?;
        let penalty = self.repetition_penalty;
        let more = !self.bias.is_empty() || self.stepwise || self.alternatives > 0;
        if self.prompt_lookup && (more || penalty != 1.0) {
            return Err(Error::options(
                "promptLookup does not go with alternatives, bias and repetitionPenalty; leave these out",
            ));
        }
        check(
            penalty.is_finite() && penalty > 0.0,
            "repetitionPenalty",
            penalty,
            "above 0; 1 turns it off",
        )
    }
}

/// A token and its log-probability (nats) under the model, before bias, temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    pub token: u32,
    pub logprob: f32,
    /// The likeliest tokens of the step in their order, on the same scale.
    pub alternatives: Vec<(u32, f32)>,
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
    /// Its use of the cache; none where that does not hold the text.
    held: Option<Held>,
    finished: bool,
    /// The token after those given out came from logits that are not finite.
    spoilt: bool,
    bias: Bias,
    /// What draws the tokens where the cache's own plan does not; none before it is needed.
    sampler: Option<Sampler>,
    /// Submits that were not read yet, the oldest first, with the tokens each draws.
    ahead: VecDeque<Ahead>,
    lookup: Option<Lookup>,
}

/// The rows of a check, and its pass.
type Draft = ([u32; lookup::ROWS], SeveralPass);

struct Ahead {
    turns: usize,
    sent: Sent,
    drawn: LocalFuture<Result<Vec<u8>>>,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ahead").field("turns", &self.turns).finish_non_exhaustive()
    }
}

pub(super) fn not_finite() -> Error {
    let message = "the model's logits are not finite: its weights hold NaN or infinity, or numbers \
                   so large that products overflow";
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
        let room = given.saturating_add(options.max_tokens).min(most).max(prompt.len());
        model.prepare_inference(prompt.len(), options.inference()).await?;
        let draws = options.drawn;
        let finished = options.max_tokens <= draws || prompt.len() == most;
        let lookup = options.prompt_lookup.then(|| Lookup::new(model.gpu().capabilities()));
        Ok(Self {
            model: Rc::clone(model),
            options,
            text: prompt.to_vec(),
            draws,
            room,
            held: None,
            finished,
            spoilt: false,
            bias,
            sampler: None,
            ahead: VecDeque::new(),
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
        if std::mem::take(&mut self.spoilt) {
            return Err(not_finite());
        }
        if self.finished {
            return Ok(Vec::new());
        }
        let cache = self.model.prepare_inference(self.reach(), self.options.inference()).await?;
        self.prepare_sampler(&cache).await?;
        let draft = self.prepare_check(&cache).await?;
        // Where the tokens do not arrive, the next call reads the text again.
        let held = self.held.take();
        let held =
            held.filter(|held| cache.is_held(&self.model.weights, *held) && self.fits(&cache));
        let (held, drawn) = match held {
            Some(held) => {
                let drawn = match draft {
                    Some(draft) => self.check(&cache, draft).await?,
                    None => self.next_decoded(&cache).await?,
                };
                (held, drawn)
            }
            None => {
                // What is on its way was drawn before the model changed.
                self.settle().await?;
                let _turn = cache.turn().await;
                self.prepare_sampler(&cache).await?;
                self.prefill(&cache).await?
            }
        };
        self.held = Some(held);
        let drawn = bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(&drawn);
        let given = self.take(self.turns_of(&drawn));
        if let Some(lookup) = &mut self.lookup {
            lookup.read(&self.text);
        }
        // The last token's keys and values come with the next one.
        cache.holds(held, &self.text[..self.text.len() - 1]);
        if self.finished {
            // What is on its way was drawn behind the end: it may fail.
            let _ = self.settle().await;
        }
        if given.is_empty() && std::mem::take(&mut self.spoilt) {
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
        let fits = |sampler: &Sampler| {
            sampler.choices == choices && cache.with(|room| Ok(sampler.fits(room))) == Ok(true)
        };
        match self.sampler.take().filter(fits) {
            Some(sampler) => {
                if self.options.stepwise && biased {
                    made(&**self.model.gpu(), || sampler.write(&self.bias)).await?;
                }
                self.sampler = Some(sampler);
            }
            None => {
                self.sampler = Some(Sampler::new(&self.model, cache, choices, &self.bias).await?)
            }
        }
        Ok(())
    }

    /// Whether the sampler, if there is one, is bound to the cache as it is.
    fn fits(&self, cache: &KeyValueCache) -> bool {
        let fits = |sampler: &Sampler| cache.with(|room| Ok(sampler.fits(room))) == Ok(true);
        self.sampler.as_ref().is_none_or(fits)
    }

    /// Each draw, with the likeliest tokens of its step.
    fn turns_of(&self, words: &[[u32; 2]]) -> Vec<Drawn> {
        let count = self.options.alternatives;
        let pair = |&[token, bits]: &[u32; 2]| (token, f32::from_bits(bits));
        let first = if count == 0 { words.len() } else { LIKELIEST_OFFSET as usize / 8 };
        let (draws, likeliest) = words.split_at(first.min(words.len()));
        let turns = likeliest.len().checked_div(count).unwrap_or(draws.len());
        draws[..turns]
            .iter()
            .enumerate()
            .map(|(turn, draw)| {
                let (token, logprob) = pair(draw);
                let alternatives = likeliest.iter().skip(turn * count).take(count).map(pair);
                Drawn { token, logprob, alternatives: alternatives.collect() }
            })
            .collect()
    }

    /// Submits that are on their way together.
    fn submits_ahead(&self) -> usize {
        if self.options.stepwise { 1 } else { SUBMITS_AHEAD }
    }

    /// Positions that the cache needs for all that may be on its way after the next call: decoding
    /// appends to it without looking at its end.
    fn reach(&self) -> usize {
        self.room.min(self.text.len() + SUBMITS_AHEAD * MOST_TURNS)
    }

    /// Looks up what a check would be of, and makes its pass, before the cache is known to hold the text.
    async fn prepare_check(&mut self, cache: &KeyValueCache) -> Result<Option<Draft>> {
        let Some(rows) = self.draft(cache) else { return Ok(None) };
        let pass = self.lookup.as_mut().and_then(|lookup| lookup.pass.take());
        let pass = match pass.filter(|pass| pass.fits(cache)) {
            Some(pass) => pass,
            None => {
                let _turn = cache.turn().await;
                let made = SeveralPass::new(&self.model, cache, None, lookup::ROWS).await;
                if made.as_ref().is_err_and(|error| UNFIT.contains(&error.code)) {
                    // The text goes on without checks, from where it is.
                    if self.lookup.take().is_some_and(|lookup| lookup.astray) {
                        self.held = None;
                    }
                    return Ok(None);
                }
                made?
            }
        };
        Ok(Some((rows, pass)))
    }

    /// What is foreseen, where a check is worth while, a whole one has room and nothing is on its way.
    fn draft(&mut self, cache: &KeyValueCache) -> Option<[u32; lookup::ROWS]> {
        let (left, len) = (self.left(), self.text.len());
        let idle = self.ahead.is_empty();
        let lookup = self.lookup.as_mut().filter(|lookup| idle && lookup.checking)?;
        let room = cache.with(|room| Ok(room.chunk.min(room.shape.capacity.saturating_sub(len))));
        let rows = lookup.draft(&self.text);
        if rows.is_none() || left < lookup::ROWS || room.unwrap_or(0) < lookup::ROWS {
            lookup.pause();
            return None;
        }
        rows
    }

    /// Draws behind the last token and behind each one that is foreseen: those that count.
    async fn check(&mut self, cache: &KeyValueCache, (rows, pass): Draft) -> Result<Vec<u8>> {
        let first = self.text.len() - 1;
        let lookup = self.lookup.as_mut().ok_or_else(|| Error::internal("nothing is foreseen"))?;
        let sampling = self.options.sampling(self.options.top_k);
        let draws = self.draws as u32;
        let choice = |row: usize| Choice {
            sampling: Sampling { turn0: draws + row as u32, ..sampling },
            offset: draws.wrapping_sub(first as u32),
            last: u32::MAX,
            ..Choice::default()
        };
        let choices: [_; lookup::ROWS] = std::array::from_fn(choice);
        let states: [_; lookup::ROWS] =
            std::array::from_fn(|row| RowState { token: rows[row], position: first + row });
        let gpu = &**self.model.gpu();
        let queue = || {
            pass.reset(&states, &[])?;
            pass.choose(&choices)?;
            let submits = lookup.pace.submits(pass.work, pass.largest);
            let replays = [Replay::new(pass.plan(), lookup::ROWS)];
            gpu.submit(&replays, submits, Some(pass.drawn(1)?))
        };
        lookup.astray = true;
        let sent = lookup.pace.sent(gpu, pass.work);
        let read = watched(gpu, queue)?;
        cache.writes(first + lookup::ROWS);
        let mut drawn = lookup.pace.arrival(gpu, sent, read).await?;
        let words: &[[u32; 2]] = bytemuck::cast_slice(&drawn);
        let right = words.iter().zip(&rows[1..]).take_while(|(drawn, row)| drawn[0] == **row);
        let given = right.count() + 1;
        drawn.truncate(8 * given);
        lookup.checked(given);
        lookup.pass = Some(pass);
        Ok(drawn)
    }

    async fn next_decoded(&mut self, cache: &KeyValueCache) -> Result<Vec<u8>> {
        self.decode_ahead(cache)?;
        let oldest = self.ahead.pop_front();
        let Ahead { sent, drawn, .. } =
            oldest.ok_or_else(|| Error::internal("nothing is being decoded"))?;
        self.model.token_pace.arrival(&**self.model.gpu(), sent, drawn).await
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
    fn decode_ahead(&mut self, cache: &KeyValueCache) -> Result<()> {
        // What is on its way is read before a check.
        let checking = self.lookup.as_ref().is_some_and(|lookup| lookup.checking);
        while self.ahead.len() < self.submits_ahead() && (!checking || self.ahead.is_empty()) {
            let queued: usize = self.ahead.iter().map(|ahead| ahead.turns).sum();
            let left = self.left().saturating_sub(queued);
            if left == 0 {
                break;
            }
            self.ahead.push_back(self.decode(cache, left, queued)?);
            if let Some(lookup) = &mut self.lookup {
                lookup.astray = false;
            }
        }
        Ok(())
    }

    /// Tokens still wanted and still within the model's positions.
    fn left(&self) -> usize {
        (self.options.max_tokens - self.draws).min(self.room.saturating_sub(self.text.len()))
    }

    /// The tokens that count of those drawn; notes whether the generation has ended.
    fn take(&mut self, drawn: Vec<Drawn>) -> Vec<Drawn> {
        let mut given = Vec::new();
        for drawn in drawn {
            if !drawn.logprob.is_finite() {
                (self.finished, self.spoilt) = (true, true);
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

    /// Reads what the cache does not hold of the text so far and draws the first next token, in one's turn.
    async fn prefill(&self, cache: &KeyValueCache) -> Result<(Held, Vec<u8>)> {
        let (model, count) = (&self.model, self.text.len());
        let (mut held, mut done) = model.begin_text(cache, &self.text, usize::MAX).await?;
        self.reset_decoding(cache).await?;
        loop {
            let part = model.next_chunk(cache, done, count)?;
            let last = part.end == count;
            let chunk = |room: &Room| {
                if !last {
                    return Ok(Chunk::prefill(room, &[], None));
                }
                let read = self.drawn(room, 1)?;
                Ok(Chunk::prefill(room, &[room.last_row, self.sample(room)], Some(read)))
            };
            let tokens = &self.text[part.clone()];
            let Some(bytes) = model.run_chunk((cache, held), done, tokens, None, &chunk).await?
            else {
                (held, done) = model.begin_text(cache, &self.text, usize::MAX).await?;
                self.reset_decoding(cache).await?;
                continue;
            };
            if last {
                cache.holds(held, &self.text);
                return Ok((held, bytes));
            }
            done = part.end;
        }
    }

    /// The plan that draws a token.
    fn sample(&self, room: &Room) -> PlanId {
        self.sampler.as_ref().map_or(room.sample, Sampler::plan)
    }

    /// Where so many draws are left.
    fn drawn(&self, room: &Room, turns: usize) -> Result<Region> {
        let (buffer, bytes) = match &self.sampler {
            Some(sampler) => sampler.drawn(room, turns)?,
            None => (room.resources.get(Buffer::Drawn)?, turns as u64 * 8),
        };
        Ok(Region { buffer, offset: 0, bytes })
    }

    /// Puts what decoding counts on by itself to where the text is.
    async fn reset_decoding(&self, cache: &KeyValueCache) -> Result<()> {
        made(&**self.model.gpu(), || cache.with(|room| self.write_decode_state(room))).await
    }

    fn write_decode_state(&self, room: &Room) -> Result<()> {
        let gpu = &self.model.gpu();
        let mut seen = vec![0u32; self.model.config().vocab_size.div_ceil(32)];
        for &token in &self.text {
            seen[token as usize / 32] |= 1 << (token % 32);
        }
        let buffer = |name| room.resources.get(name);
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
            turn0: (self.draws + queued) as u32,
            ..self.options.sampling(self.bias.top_k(self.options.top_k))
        };
        self.model.gpu().write(buffer, 0, bytemuck::bytes_of(&sampling))
    }

    /// A token decoded and drawn, and the largest dispatch of that.
    fn work(&self, room: &Room) -> [Work; 2] {
        let (token, largest) = (room.costs.token, room.costs.largest_of_token);
        match &self.sampler {
            Some(sampler) => [token.plus(sampler.extra), largest.max(sampler.largest)],
            None => [token, largest],
        }
    }

    /// Decodes some of `left` tokens behind `queued` ones: as many as the GPU does in one submit.
    fn decode(&self, cache: &KeyValueCache, left: usize, queued: usize) -> Result<Ahead> {
        let (gpu, pace) = (&**self.model.gpu(), &self.model.token_pace);
        let counts = Cell::new(None);
        let queue = |room: &Room| {
            let [token, largest] = self.work(room);
            let turns = (SUBMIT_MILLISECONDS / pace.predict(token)) as usize;
            let most = if self.options.stepwise { 1 } else { room.turns.min(MOST_TURNS) };
            let turns = turns.clamp(1, most).min(left);
            let work = token.times(turns);
            let submits = pace.submits(work, largest);
            if self.lookup.as_ref().is_some_and(|lookup| lookup.astray) {
                self.write_decode_state(room)?;
            }
            self.write_sampling(room.resources.get(Buffer::Sampling)?, queued)?;
            let reach = self.text.len() + queued + turns;
            let turn = [room.decode(reach), self.sample(room)].map(|plan| Replay::new(plan, 1));
            let all: [_; 2 * MOST_TURNS] = std::array::from_fn(|index| turn[index % 2]);
            let region = self.drawn(room, turns)?;
            let sent = pace.sent(gpu, work);
            counts.set(Some((turns, sent)));
            gpu.submit(&all[..2 * turns], submits, Some(region))
        };
        let drawn = watched(gpu, || cache.with(queue))?;
        let queued_now = counts.take().ok_or_else(|| Error::internal("nothing was queued"))?;
        let (turns, sent) = queued_now;
        cache.writes(self.text.len() + queued + turns);
        Ok(Ahead { turns, sent, drawn })
    }
}
