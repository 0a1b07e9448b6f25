//! What a text computes, read back: logits, and what comes before them.

use super::inference::LogitsOf;
use crate::arch::Architecture;
use crate::config::ModelConfig;
use crate::error::{Error, Result, room};
use crate::gpu::Region;
use crate::lower::{InferenceOptions, Probe};
use crate::plan::Buffer;
use crate::session::cache::allocation::CacheAllocation;
use crate::session::cache::caches::PreparedCache;
use crate::session::cache::chunk::Chunk;
use crate::session::model::Model;
use crate::session::progress::Progress;
use std::ops::Range;

/// What to read back of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// The logits of every position from `from` on: `(tokens.len() - from) × vocab_size`. What the cache holds of the
    /// text before is not read again.
    Logits { from: usize },
    /// The hidden state of every position, counted as transformers counts `output_hidden_states`: 0 is the embedding, i
    /// the output of i layers, and with `num_hidden_layers` the final norm's. `tokens.len() × hidden_size`.
    HiddenStates { layer: usize },
    /// How much each position attends to each, with one head of one layer: probabilities, 0 where a
    /// position does not see another. `tokens.len() × tokens.len()`, a row per position that attends.
    Attention { layer: usize, head: usize },
}

impl Inspection {
    /// The plan of its own and the head that it is for, if the model has these.
    fn probe(self, of: &Architecture) -> Result<Option<(Probe, usize)>> {
        let layers = of.layers.len();
        Ok(match self {
            Self::Logits { .. } => None,
            Self::HiddenStates { layer } => {
                check_index("layer", layer, "hidden states", layers)?;
                Some((Probe::HiddenState(layer), 0))
            }
            Self::Attention { layer, head } => {
                check_index("layer", layer, "layers", layers - 1)?;
                let none = || Error::options(format!("layer is {layer}, which has no attention"));
                let attention = of.layers[layer].heads().ok_or_else(none)?;
                check_index("head", head, "heads", attention.heads - 1)?;
                Some((Probe::Attention(layer), head))
            }
        })
    }

    /// The first position of `tokens` whose logits are returned.
    fn first(self, tokens: usize) -> Result<usize> {
        let Self::Logits { from } = self else { return Ok(0) };
        if from < tokens {
            return Ok(from);
        }
        let message = format!("from is {from}; of {tokens} tokens it must be below {tokens}");
        Err(Error::options(message))
    }

    /// A name, and the numbers of each position.
    fn shape(self, config: &ModelConfig, tokens: usize) -> (&'static str, usize) {
        match self {
            Self::Logits { .. } => ("logits", config.vocab_size),
            Self::HiddenStates { .. } => ("hidden states", config.hidden_size),
            Self::Attention { .. } => ("attention", tokens),
        }
    }
}

fn check_index(name: &str, index: usize, of: &str, last: usize) -> Result<()> {
    if index <= last {
        return Ok(());
    }
    Err(Error::options(format!("{name} is {index}; this model has {of} 0 to {last}")))
}

impl Model {
    /// [`Inspection::Logits`].
    ///
    /// # Errors
    /// As [`Model::inspect`].
    pub async fn logits(
        &self,
        tokens: &[u32],
        options: InferenceOptions,
        progress: Progress<'_>,
    ) -> Result<Vec<f32>> {
        self.inspect(tokens, Inspection::Logits { from: 0 }, options, progress).await
    }

    /// What a text computes as one document.
    ///
    /// # Errors
    /// `invalid-tokens`, `invalid-options` for a layer or a head that there is not, `freed`,
    /// `limit-exceeded`, `out-of-memory`, `device-lost`, `aborted`.
    pub async fn inspect(
        &self,
        tokens: &[u32],
        inspection: Inspection,
        options: InferenceOptions,
        progress: Progress<'_>,
    ) -> Result<Vec<f32>> {
        let probe = inspection.probe(&self.weights.layout.architecture)?;
        self.check_tokens(tokens)?;
        let count = tokens.len();
        let (stage, width) = inspection.shape(self.config(), count);
        let from = inspection.first(count)?;
        let told = count - from;
        let what = format!("the result, {stage} of {told} tokens × {width} numbers,");
        let mut result: Vec<f32> = room(&what, told as u64 * width as u64)?;
        progress.report(0, count, stage)?;
        let cache = self.prepare_inference(count, options).await?;
        let _lock = cache.lock().await;
        let report = |done| progress.report(done, count, stage);
        let Some((probe, head)) = probe else {
            self.read_logits(&cache, (tokens, from), &report, &mut result).await?;
            report(count)?;
            return Ok(result);
        };
        let probe_plan = self.probe_plans.plan(&self.weights, &cache, probe).await?;
        let (mut held, mut done) = self.begin_text(&cache, tokens, from).await?;
        while done < count {
            report(done)?;
            let part = probe_plan.part(self.next_chunk(&cache, done..count, 0)?);
            let columns = probe_plan.columns(&part);
            let chunk = |allocation: &CacheAllocation| {
                probe_plan.chunk(&**self.gpu(), allocation, &part, head)
            };
            let inputs = &tokens[part.clone()];
            let Some(read) = self.run_chunk((&cache, held), done, inputs, &chunk).await? else {
                (held, done) = self.begin_text(&cache, tokens, from).await?;
                result.clear();
                continue;
            };
            for row in read.chunks_exact(columns * 4) {
                result.extend(bytemuck::pod_collect_to_vec::<u8, f32>(row));
                // Attention's rows get zeros: no row of the chunk sees a later key.
                result.resize(result.len() + width - columns, 0.0);
            }
            done = part.end;
        }
        if let Some(factor) = self.factor_of(inspection) {
            result.iter_mut().for_each(|value| *value *= factor);
        }
        report(count)?;
        Ok(result)
    }

    /// The logits of the tokens from `from` on. The caller holds the cache's lock.
    async fn read_logits(
        &self,
        cache: &PreparedCache,
        (tokens, from): (&[u32], usize),
        report: &dyn Fn(usize) -> Result<()>,
        result: &mut Vec<f32>,
    ) -> Result<()> {
        let width = self.config().vocab_size;
        let logits = |allocation: &CacheAllocation, rows: &Range<usize>| {
            let buffer = allocation.resources.get(Buffer::Logits)?;
            let read = Region { buffer, offset: 0, bytes: (rows.len() * width) as u64 * 4 };
            Ok(Chunk::logits(allocation, &[], read))
        };
        let mut take = |rows: Range<usize>, read: &[u8]| {
            result.truncate((rows.start - from) * width);
            result.extend(bytemuck::pod_collect_to_vec::<u8, f32>(read));
        };
        let text = LogitsOf { tokens, targets: None, from, layers: None };
        let held = self.read_rows(cache, text, &logits, report, &mut take).await?;
        cache.holds(held, tokens);
        Ok(())
    }

    /// The factor on a residual stream that the model has divided. The final norm undoes the division.
    fn factor_of(&self, inspection: Inspection) -> Option<f32> {
        let of = &self.weights.layout.architecture;
        match inspection {
            Inspection::HiddenStates { layer } if layer < of.layers.len() => {
                of.stream_scale.map(|factor| factor as f32)
            }
            _ => None,
        }
    }
}
