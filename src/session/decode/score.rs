//! What a model says of the tokens of texts: their log-probabilities, without their logits.

use super::inference::LogitsOf;
use crate::data::{Batch, IGNORE_INDEX};
use crate::error::{Error, Result};
use crate::gpu::create_checked;
use crate::kernels::{KvCacheFormat, RowScore};
use crate::lower::{InferenceOptions, Probe, top_rows};
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::chunk::Chunk;
use crate::session::model::Model;
use crate::session::progress::Progress;
use crate::session::train::objective::{TEMPERATURES, reasonable};
use std::ops::Range;

/// Most of the likeliest tokens of a position.
const MOST_TOP: usize = 64;

/// What to tell besides log-probabilities, and at which temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreOptions {
    pub temperature: f64,
    /// How many of the likeliest tokens.
    pub top: usize,
    /// Whether the entropy is wanted.
    pub entropy: bool,
    /// Scores by the state after this many layers, with final norm and head. None: after all.
    pub layer: Option<usize>,
    pub inference: InferenceOptions,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        let inference = InferenceOptions::default();
        Self { temperature: 1.0, top: 0, entropy: false, layer: None, inference }
    }
}

/// What each position says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// The log-probability of its target in nats; 0 where that is ignored.
    pub logprobs: Vec<f32>,
    /// Its entropy in nats, if it is wanted.
    pub entropy: Vec<f32>,
    /// Its likeliest tokens, the likeliest first, and of equal ones the lowest.
    pub ids: Vec<u32>,
    pub probabilities: Vec<f32>,
}

impl ScoreOptions {
    /// Whether the losses of positions say it all.
    fn is_plain(&self) -> bool {
        self.temperature == 1.0 && self.top == 0 && !self.entropy && self.layer.is_none()
    }

    /// Whether documents may be read together: without a cache, whose format would show.
    fn may_be_packed(&self) -> bool {
        self.layer.is_none() && self.inference.kv_cache == KvCacheFormat::F32
    }

    fn check(&self, vocabulary: usize, layers: usize) -> Result<()> {
        let Self { temperature, top, layer, .. } = *self;
        if let Some(layer) = layer.filter(|&layer| layer > layers) {
            return Err(Error::options(format!("layer is {layer}; it must be from 0 to {layers}")));
        }
        if !reasonable(temperature) {
            return Err(Error::options(format!(
                "temperature is {temperature:?}; it must be {TEMPERATURES}"
            )));
        }
        let most = MOST_TOP.min(vocabulary);
        if top > most {
            return Err(Error::options(format!("top is {top}; it must be from 0 to {most}")));
        }
        Ok(())
    }
}

impl Scores {
    /// Appends the scores of some rows of a text.
    ///
    /// `part` says which rows these are. `read` is what the plan wrote of up to `most` rows: a [`RowScore`] of each,
    /// and then the likeliest tokens of each.
    fn add(&mut self, part: &Range<usize>, read: &[u8], most: usize, options: &ScoreOptions) {
        let rows = &read[..part.len() * size_of::<RowScore>()];
        let rows: Vec<RowScore> = bytemuck::pod_collect_to_vec(rows);
        self.logprobs.extend(rows.iter().map(|row| 0.0 - row.loss));
        if options.entropy {
            self.entropy.extend(rows.iter().map(|row| row.entropy));
        }
        if options.top == 0 {
            return;
        }
        let first = top_rows(most, options.top).offset as usize;
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&read[first..]);
        for (row, top) in rows.iter().zip(words.chunks(2 * options.top)) {
            for pair in top.chunks(2) {
                let logit = f64::from(f32::from_bits(pair[1])) / options.temperature;
                let log = logit - f64::from(row.largest) - f64::from(row.log_sum);
                self.ids.push(pair[0]);
                self.probabilities.push(libm::exp(log) as f32);
            }
        }
    }

    /// Keeps the first `rows` rows.
    fn truncate(&mut self, rows: usize, options: &ScoreOptions) {
        self.logprobs.truncate(rows);
        self.entropy.truncate(rows);
        self.ids.truncate(rows * options.top);
        self.probabilities.truncate(rows * options.top);
    }
}

impl Model {
    /// What each position of a batch says of its target: of one text, or of the documents that are packed into it.
    /// Targets are by default the next tokens of each document.
    ///
    /// # Errors
    /// As [`Model::loss`], where targets may all be ignored; `invalid-options` for options that cannot be.
    pub async fn score(
        &self,
        tokens: Vec<u32>,
        targets: Option<Vec<u32>>,
        documents: Option<Vec<u32>>,
        options: ScoreOptions,
        progress: Progress<'_>,
    ) -> Result<Scores> {
        let (total, vocabulary) = (tokens.len(), self.config().vocab_size);
        let given = targets.is_some();
        let mut batch = Batch::new(tokens, targets.unwrap_or(vec![IGNORE_INDEX; total]), documents);
        batch.validate(vocabulary, total.max(1))?;
        options.check(vocabulary, self.config().num_hidden_layers)?;
        if !given {
            for i in 1..total {
                if batch.documents[i] as usize != i {
                    batch.targets[i - 1] = batch.tokens[i];
                }
            }
        }
        let mut scores = Scores::default();
        while scores.logprobs.len() < total {
            let start = scores.logprobs.len();
            let report = |done| progress.report(start + done, total, "score");
            let text = &batch.documents[start..];
            let own = start..start + document(text);
            self.check_tokens(&batch.tokens[own.clone()])?;
            if own == (0..total) || !options.may_be_packed() {
                let text = (&batch.tokens[own.clone()], &batch.targets[own]);
                self.score_text(text, None, options, &report, &mut scores).await?;
            } else {
                self.score_documents(&batch, start, options, &report, &mut scores).await?;
            }
        }
        progress.report(total, total, "score")?;
        Ok(scores)
    }

    /// Scores the documents from a row on that fit into one pass together, or one that is longer. Which do depends on their
    /// lengths alone and not on the GPU's pace: the bits of a document do depend on its place.
    async fn score_documents(
        &self,
        batch: &Batch,
        start: usize,
        options: ScoreOptions,
        report: &dyn Fn(usize) -> Result<()>,
        scores: &mut Scores,
    ) -> Result<()> {
        let first = document(&batch.documents[start..]);
        let cache = self.prepare_inference(first, options.inference).await?;
        let most = cache.with(|allocation| Ok(allocation.chunk))?;
        let long = |tokens| self.layout().architecture.is_long(tokens);
        let mut end = start + first;
        while end < batch.len() {
            let next = document(&batch.documents[end..]);
            if end + next - start > most || long(next) != long(first) {
                break;
            }
            self.check_tokens(&batch.tokens[end..end + next])?;
            end += next;
        }
        let text = (&batch.tokens[start..end], &batch.targets[start..end]);
        let starts = batch.documents[start..end].iter().map(|at| at - start as u32).collect();
        let starts = (first <= most).then_some(starts);
        self.score_text(text, starts, options, report, scores).await
    }

    /// Scores a text, or the documents that start there.
    async fn score_text(
        &self,
        text: (&[u32], &[u32]),
        documents: Option<Vec<u32>>,
        options: ScoreOptions,
        report: &dyn Fn(usize) -> Result<()>,
        scores: &mut Scores,
    ) -> Result<()> {
        let longest = documents.as_deref().map_or(text.0.len(), longest);
        let cache = self.prepare_inference(longest, options.inference).await?;
        let _lock = cache.lock().await;
        let find = |probe| self.probe_plans.plan(&self.weights, &cache, probe);
        let plain = options.is_plain();
        let plan = if plain { None } else { Some(find(Probe::Scores(options.top)).await?) };
        let layers = self.config().num_hidden_layers;
        let layer = match (&documents, options.layer.filter(|&layer| layer < layers)) {
            (Some(_), _) => Some(find(Probe::Documents).await?),
            (None, Some(layer)) => Some(find(Probe::HiddenState(layer)).await?),
            (None, None) => None,
        };
        let chunk = |allocation: &CacheAllocation, rows: &Range<usize>| match &plan {
            Some(plan) => plan.scores(&**self.gpu(), allocation, rows, options.temperature),
            None => Chunk::losses(allocation, rows.len()),
        };
        let before = scores.logprobs.len();
        let most = cache.with(|allocation| Ok(allocation.logit_rows))?;
        let mut take = |rows: Range<usize>, read: &[u8]| {
            scores.truncate(before + rows.start, &options);
            if plain {
                let losses = bytemuck::pod_collect_to_vec::<u8, f32>(read);
                scores.logprobs.extend(losses.into_iter().map(|loss| 0.0 - loss));
            } else {
                scores.add(&rows, read, most, &options);
            }
        };
        let own = layer.as_ref().map(|plan| plan.id());
        let of = LogitsOf { layers: own, ..LogitsOf::of(text) };
        let (Some(starts), Some(pass)) = (documents, &layer) else {
            let held = self.read_rows(&cache, of, &chunk, report, &mut take).await?;
            if layer.is_none() {
                cache.holds(held, text.0); // else only of the first layers
            }
            return Ok(());
        };
        loop {
            report(0)?;
            let (held, _) = self.begin_text(&cache, &text.0[..longest], 0).await?;
            let gpu = &**self.gpu();
            create_checked(gpu, || pass.write_documents(gpu, &starts)).await?;
            let all = 0..text.0.len();
            let part = (&all, all.len());
            if self.read_part((&cache, held), of, part, &chunk, &mut take).await? {
                return Ok(());
            }
        }
    }
}

/// Rows of the first document of these.
fn document(starts: &[u32]) -> usize {
    starts.iter().take_while(|&&start| start == starts[0]).count()
}

/// Rows of the longest document of these.
fn longest(starts: &[u32]) -> usize {
    starts.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0)
}
