//! Generation of several texts: all are prefilled, then each pass decodes a token of every one.

use super::batched_pass::{BatchedPass, RowState};
use super::generate::{Drawn, GenerateOptions, not_finite};
use super::in_flight::{DrawsInFlight, MOST_IN_FLIGHT, MOST_PASSES, QueuedPasses};
use crate::error::{Error, ErrorCode, Result};
use crate::gpu::{Replay, create_checked};
use crate::lower::{CacheShape, InferenceOptions};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::caches::PreparedCache;
use crate::session::cache::key_value_cache::KeyValueCache;
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::step::{RowChoice, Sampling};
use crate::session::throughput::Throughput;
use std::rc::Rc;

/// Most texts of a batch.
const MOST_TEXTS: usize = 256;
/// Tokens by which the cache of a batch is longer or shorter.
const CAPACITY_STEP: usize = 256;

/// The cache of texts of up to `tokens` tokens, of a model with `most` positions.
pub(in crate::session) fn batch_shape(sequences: usize, tokens: usize, most: usize) -> CacheShape {
    CacheShape { sequences, capacity: tokens.next_multiple_of(CAPACITY_STEP).min(most) }
}

/// # Errors
/// `invalid-options`.
pub(in crate::session) fn check_count(what: &str, count: usize) -> Result<()> {
    if (1..=MOST_TEXTS).contains(&count) {
        return Ok(());
    }
    Err(Error::options(format!("{what} {count}; it must be from 1 to {MOST_TEXTS}")))
}

/// An error of the prompt of that number.
fn named(index: usize, error: Error) -> Error {
    Error::new(error.code, format!("prompts[{index}]: {}", error.message))
}

/// One text.
#[derive(Debug)]
struct BatchText {
    options: GenerateOptions,
    /// Prompt and drawn tokens.
    tokens: Vec<u32>,
    draws: usize,
    /// Positions that the whole text may take, prompt and all.
    max_len: usize,
    finished: bool,
    /// Its end has been told.
    reported: bool,
}

impl BatchText {
    /// Tokens still wanted and still within the model's positions.
    fn left(&self) -> usize {
        if self.finished {
            return 0;
        }
        (self.options.max_tokens - self.draws).min(self.max_len.saturating_sub(self.tokens.len()))
    }

    /// What is decoded next. What is left of a finished text is decoded for nothing.
    fn state(&self) -> RowState {
        let last = self.tokens.len() - 1;
        let position = if self.finished { 0 } else { last };
        RowState { token: self.tokens[last], position }
    }

    /// How it draws after `queued` draws that were not read yet.
    fn choice(&self, queued: usize, capacity: usize) -> RowChoice {
        let position = self.tokens.len() as u32 - 1;
        RowChoice {
            sampling: Sampling {
                first_draw: (self.draws + queued) as u32,
                ..self.options.sampling(self.options.top_k)
            },
            offset: (self.draws as u32).wrapping_sub(position),
            last: capacity as u32 - 1,
            ..RowChoice::default()
        }
    }
}

#[derive(Debug)]
struct Ready {
    pass: BatchedPass,
    /// The weights for which it holds the texts.
    version: u64,
}

impl Ready {
    /// Whether the texts are those of the weights as they are, and the pass is bound to the cache as it is.
    fn holds(&self, model: &Model, cache: &KeyValueCache) -> bool {
        let alike = cache.has_rope_for(&model.weights, 0);
        alike && self.pass.bound.belongs_to(cache) && self.version == model.weights.version()
    }
}

/// A running generation of several texts. It has a key-value cache of its own. Prompts are read together where a plan
/// for whole texts fits and the cache is in f32, else one after the other through the model's cache. Where the weights
/// have changed, all texts are read again before the next token.
#[derive(Debug)]
pub struct BatchGeneration {
    model: Rc<Model>,
    inference: InferenceOptions,
    texts: Vec<BatchText>,
    capacity: usize,
    ready: Option<Ready>,
    throughput: Throughput,
    /// The first text whose logits are not finite, and is over.
    non_finite: Option<usize>,
    in_flight: DrawsInFlight,
}

impl BatchGeneration {
    /// Checks prompts and options. The first [`BatchGeneration::next`] makes room for the texts in their whole length.
    /// `kv_cache`, `weights` and `interventions` are the first one's; `bias`, `alternatives` and `stepwise` are not looked at.
    ///
    /// # Errors
    /// `invalid-tokens`, `invalid-options`.
    pub fn start(model: &Rc<Model>, prompts: Vec<(Vec<u32>, GenerateOptions)>) -> Result<Self> {
        check_count("the number of prompts is", prompts.len())?;
        let most = model.config().max_position_embeddings;
        let inference = prompts[0].1.inference();
        let mut texts = vec![];
        for (index, (tokens, options)) in prompts.into_iter().enumerate() {
            model.check_tokens(&tokens).map_err(|error| named(index, error))?;
            options.validate().map_err(|error| named(index, error))?;
            let given = tokens.len().saturating_sub(options.drawn);
            let max_len = given.saturating_add(options.max_tokens).min(most).max(tokens.len());
            let short = model.layout().architecture.short_tokens();
            if max_len > short {
                return Err(named(
                    index,
                    Error::tokens(format!(
                        "{given} tokens and {} more reach beyond original_max_position_embeddings, {short}: longrope has \
                     other angles there, and a batch has one kind; give fewer, or generate the text by itself",
                        max_len - given
                    )),
                ));
            }
            let draws = options.drawn;
            let finished = options.max_tokens <= draws || tokens.len() == most;
            texts.push(BatchText { options, tokens, draws, max_len, finished, reported: false });
        }
        let longest = texts.iter().map(|text| text.max_len).max().unwrap_or(1);
        Ok(Self {
            model: Rc::clone(model),
            inference,
            texts,
            capacity: batch_shape(1, longest, most).capacity,
            ready: None,
            throughput: Throughput::new(model.gpu().capabilities()),
            non_finite: None,
            in_flight: DrawsInFlight::default(),
        })
    }

    /// Ends a text.
    pub fn end(&mut self, index: usize) {
        if let Some(text) = self.texts.get_mut(index) {
            text.finished = true;
        }
    }

    /// The texts that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<usize> {
        let texts = self.texts.iter_mut().enumerate();
        let ends =
            |text: &mut BatchText| text.left() == 0 && !std::mem::replace(&mut text.reported, true);
        texts.filter_map(|(index, text)| ends(text).then_some(index)).collect()
    }

    /// Some more tokens of texts, each with the text's number; none when all have ended. A stop token ends its
    /// text and is not given.
    ///
    /// # Errors
    /// `freed`, `device-lost`, `limit-exceeded`, `out-of-memory`, `aborted` while prompts are read. `non-finite` where
    /// the logits of a text had no number to draw from: when all others have ended, and then each time.
    pub async fn next(&mut self, progress: Progress<'_>) -> Result<Vec<(usize, Drawn)>> {
        let model = Rc::clone(&self.model);
        let mut given = vec![];
        while given.is_empty() {
            if self.texts.iter().all(|text| text.left() == 0) {
                // What is in flight was drawn after the end: it may fail.
                let _ = self.in_flight.drain().await;
                match self.non_finite {
                    Some(index) => return Err(named(index, not_finite())),
                    None => break,
                }
            }
            let cache = model.prepare_inference(self.capacity, self.inference).await?;
            // Where the tokens do not arrive, the next call reads the texts again.
            let ready = self.ready.take().filter(|ready| ready.holds(&model, &cache));
            // Nobody waits for the first tokens longer than they take.
            let (ready, most) = match ready {
                Some(ready) => (ready, MOST_PASSES),
                None => (self.read_texts(&cache, progress).await?, 1),
            };
            self.fill_in_flight(&cache, &ready.pass, most)?;
            let (passes, drawn) = self.in_flight.read(&**model.gpu(), &self.throughput).await?;
            self.ready = Some(ready);
            given = self.take(passes, &bytemuck::pod_collect_to_vec::<u8, [u32; 2]>(&drawn));
        }
        Ok(given)
    }

    /// Makes the pass, and reads all texts short of their last tokens. What is in flight was drawn before the model
    /// changed.
    async fn read_texts(&mut self, cache: &PreparedCache, progress: Progress<'_>) -> Result<Ready> {
        self.in_flight.drain().await?;
        let _lock = cache.lock().await;
        let (model, rows) = (&self.model, self.texts.len());
        cache.set_rope_for(&model.weights, 0).await?;
        let pass = self.pass(cache).await?;
        let version = loop {
            let version = model.weights.version();
            let mut waiting = self.unread();
            let mut whole = self.whole_texts(&pass, &waiting);
            let mut done = 0;
            while let Some(&(row, text)) = waiting.first() {
                let together = self.together(&pass, &waiting, &whole);
                for _ in 0..together.max(1) {
                    progress.report(done, rows, "read prompts")?;
                    done += 1;
                }
                if let (Some(texts), 1..) = (&pass.texts, together) {
                    cache.with(|allocation| cache.intervene(model, allocation))?;
                    pass.read_whole(texts, &waiting[..together]).await?;
                } else {
                    model.read_text(cache, text).await?;
                    let copy =
                        |allocation: &CacheAllocation| pass.copy_text(allocation, row, text.len());
                    create_checked(&**model.gpu(), || cache.with(copy)).await?;
                }
                waiting.drain(..together.max(1));
                whole.drain(..together.max(1));
            }
            if version == model.weights.version() {
                break version;
            }
        };
        let states: Vec<_> = self.texts.iter().map(BatchText::state).collect();
        create_checked(&**model.gpu(), || pass.reset(&states, &self.seen())).await?;
        Ok(Ready { pass, version })
    }

    /// The texts that go on, short of their last tokens, each with its row.
    fn unread(&self) -> Vec<(usize, &[u32])> {
        let texts = self.texts.iter().enumerate().filter(|(_, text)| text.left() > 0);
        let read = texts.map(|(row, text)| (row, &text.tokens[..text.tokens.len() - 1]));
        read.filter(|(_, text)| !text.is_empty()).collect()
    }

    /// For each text whether it is read whole. Two kinds are read through the model's cache: texts that are too long,
    /// and groups of texts that share more than half of their tokens with the text before, since the cache reads those
    /// once. The choice does not depend on the GPU's speed, so a seed gives the same text.
    fn whole_texts(&self, pass: &BatchedPass, texts: &[(usize, &[u32])]) -> Vec<bool> {
        let mut whole = vec![];
        let Some(plan) = &pass.texts else { return vec![false; texts.len()] };
        let longest = plan.longest_text(self.model.gpu().capabilities());
        while whole.len() < texts.len() {
            let (mut count, mut alike, mut all, mut before) = (0, 0, 0, &[][..]);
            let mut rows_left = plan.rows();
            for &(_, text) in &texts[whole.len()..] {
                let rows = pass.rows_of(text.len());
                let Some(rows) = rows.filter(|rows| *rows <= longest.min(rows_left)) else { break };
                let same = text.iter().zip(before).take_while(|(a, b)| a == b).count();
                (count, alike, all) = (count + 1, alike + same, all + text.len());
                (rows_left, before) = (rows_left - rows, text);
            }
            whole.extend(std::iter::repeat_n(count > 0 && 2 * alike <= all, count.max(1)));
        }
        whole
    }

    /// How many of the texts that wait, from the first on, are read at a time; 0 where the first is not read whole. How many
    /// does not show in their bits.
    fn together(&self, pass: &BatchedPass, waiting: &[(usize, &[u32])], whole: &[bool]) -> usize {
        let Some(texts) = &pass.texts else { return 0 };
        let mut rows_left = texts.most_rows(&self.model.chunk_throughput);
        let mut count = 0;
        for ((_, text), _) in waiting.iter().zip(whole).take_while(|(_, whole)| **whole) {
            let rows = pass.rows_of(text.len()).unwrap_or(usize::MAX);
            if count > 0 && rows > rows_left {
                break;
            }
            (count, rows_left) = (count + 1, rows_left.saturating_sub(rows));
        }
        count
    }

    /// A pass with a cache for all texts. Where memory is short, the model's caches of other options go first.
    async fn pass(&self, cache: &KeyValueCache) -> Result<BatchedPass> {
        let (model, rows) = (&self.model, self.texts.len());
        let shape = CacheShape { sequences: rows, capacity: self.capacity };
        let pass = BatchedPass::new(model, cache, Some(shape), rows).await;
        let short = pass.as_ref().is_err_and(|error| error.code == ErrorCode::OutOfMemory);
        if short && model.give_up_caches_but(self.inference.form()) {
            return BatchedPass::new(model, cache, Some(shape), rows).await;
        }
        pass
    }

    /// The tokens of each text as a bit set, where any text needs them.
    fn seen(&self) -> Vec<u32> {
        if self.texts.iter().all(|text| text.options.repetition_penalty == 1.0) {
            return vec![];
        }
        let words = self.model.config().vocab_size.div_ceil(32);
        let mut seen = vec![0; words * self.texts.len()];
        for (row, text) in seen.chunks_exact_mut(words).zip(&self.texts) {
            text.tokens.iter().for_each(|&token| row[token as usize / 32] |= 1 << (token % 32));
        }
        seen
    }

    /// Queues passes until enough are in flight, or no token is left to draw. Where none is in flight, it queues at
    /// most `first` together.
    fn fill_in_flight(
        &mut self,
        cache: &PreparedCache,
        pass: &BatchedPass,
        first: usize,
    ) -> Result<()> {
        while self.in_flight.len() < self.in_flight.most(MOST_IN_FLIGHT) {
            let queued = self.in_flight.passes();
            let longest = self.texts.iter().map(BatchText::left).max().unwrap_or(0);
            let left = longest.saturating_sub(queued);
            if left == 0 {
                break;
            }
            let most = if self.in_flight.is_empty() { first } else { MOST_PASSES };
            self.in_flight.push(self.decode((cache, pass), most.min(left), queued)?);
        }
        Ok(())
    }

    /// Queues passes after `queued` ones: at most `most`, as the GPU's speed allows.
    fn decode(
        &self,
        (cache, pass): (&PreparedCache, &BatchedPass),
        most: usize,
        queued: usize,
    ) -> Result<QueuedPasses> {
        let (gpu, throughput) = (&**self.model.gpu(), &self.throughput);
        let queue = || {
            cache.with(|allocation| cache.intervene(&self.model, allocation))?;
            let passes = QueuedPasses::passes(throughput, pass.work, most);
            let work = pass.work.times(passes);
            let submits = throughput.submits(work, pass.largest);
            let choice = |text: &BatchText| text.choice(queued, self.capacity);
            pass.choose(&self.texts.iter().map(choice).collect::<Vec<_>>())?;
            let all = [Replay::new(pass.plan(), self.texts.len()); MOST_PASSES];
            let sent = throughput.sent(gpu, work);
            Ok((passes, sent, gpu.submit(&all[..passes], submits, Some(pass.drawn(passes)?))?))
        };
        QueuedPasses::queued(gpu, queue)
    }

    /// The tokens that count of those drawn; notes which texts have ended.
    fn take(&mut self, passes: usize, words: &[[u32; 2]]) -> Vec<(usize, Drawn)> {
        let mut given = vec![];
        for row in words.chunks_exact(self.texts.len()).take(passes) {
            for (index, (text, &[token, bits])) in self.texts.iter_mut().zip(row).enumerate() {
                if text.left() == 0 {
                    continue;
                }
                let logprob = f32::from_bits(bits);
                if !logprob.is_finite() {
                    (text.finished, text.reported) = (true, true); // no end of its own
                    self.non_finite.get_or_insert(index);
                    continue;
                }
                text.draws += 1;
                if text.options.stop_tokens.contains(&token) {
                    text.finished = true;
                    continue;
                }
                text.tokens.push(token);
                given.push((index, Drawn { token, logprob, alternatives: vec![] }));
            }
        }
        given
    }
}
