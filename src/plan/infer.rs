//! The inference plans: prefill of a chunk into the key-value cache, logits and loss of a chunk,
//! decoding one token.

use super::builder::Builder;
use super::model::Model;
use super::train::METRICS_BYTES;
use super::{Buffer, Phase, Plan, PromptLayout, Slice};
use crate::caps::Capabilities;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::kernels::{self as k, AttentionShape, KvCache, WeightFormat};
use crate::layout::Layout;
use serde::Deserialize;

/// Everything that inference replays. All plans share the slots.
#[derive(Clone, Debug)]
pub struct InferencePlans {
    /// Rows of a chunk into the cache; leaves the last layer's output in [`Buffer::Hidden`].
    pub prefill: Plan,
    /// Logits of every row of [`Buffer::Hidden`].
    pub logits: Plan,
    /// Loss of every row, from the logits.
    pub loss: Plan,
    /// The last row of [`Buffer::Hidden`] to [`Buffer::LastHidden`].
    pub last_row: Plan,
    /// [`Buffer::Token`] through all layers to [`Buffer::LastHidden`], its keys and values appended.
    pub decode: Plan,
    /// [`Buffer::LastHidden`] to the next [`Buffer::Token`].
    pub sample: Plan,
    /// The matrices to [`Buffer::Packed`]; to be replayed when the weights have changed.
    pub pack: Plan,
    pub slots: Vec<u64>,
    /// Bytes of each packed part of a matrix.
    pub packed: Vec<(Buffer, u64)>,
    /// Most rows of a prefill.
    pub chunk: usize,
    /// Rows of a layer's cache: no more than the sliding window and a chunk need.
    pub cache_rows: usize,
    /// Most tokens drawn in one submit.
    pub turns: usize,
}

impl InferencePlans {
    pub fn all(&self) -> [&Plan; 7] {
        let Self { prefill, logits, loss, last_row, decode, sample, pack, .. } = self;
        [prefill, logits, loss, last_row, decode, sample, pack]
    }
}

/// Most bytes of logits of a chunk.
const LOGITS_BYTES: u64 = 32 << 20;
/// Most rows of a chunk: enough to fill a GPU with the tiles of `linear`.
const CHUNK: usize = 256;
/// Most tokens drawn in one submit: one readback for all of them.
const TURNS: usize = 16;

/// How a model infers: the options of `logits` and `loss`, part of those of `generate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InferenceOptions {
    /// How keys and values are kept: what they lose shows in the result.
    pub kv_cache: KvCache,
    /// How matrices are read: what they lose does, too.
    pub weights: WeightFormat,
}

/// Bytes of a layer's cache of `rows` rows.
pub fn cache_bytes(cache: KvCache, shape: &AttentionShape, rows: usize) -> u64 {
    rows as u64 * cache.row_words(shape) as u64 * 4
}

/// Rows after which the cache of a model with a sliding window begins anew. It depends on nothing
/// that grows with a text: a longer one compiles nothing.
fn ring(config: &ModelConfig, chunk: usize) -> Option<usize> {
    let rows = k::ring_rows(config.sliding_window?, chunk);
    (rows < config.max_position_embeddings).then_some(rows)
}

/// Compiles a model into the plans of inference, for texts of `capacity` tokens: a RoPE table of
/// that length, and a cache of that length or of what a sliding window needs, if that is less. The
/// kernels do not depend on the capacity.
///
/// # Errors
/// `limit-exceeded` when an activation, the cache or a kernel does not fit the device.
pub fn inference_plans(
    caps: &Capabilities,
    config: &ModelConfig,
    layout: &Layout,
    capacity: usize,
    options: InferenceOptions,
) -> Result<InferencePlans> {
    let InferenceOptions { kv_cache: cache, weights } = options;
    let most = (LOGITS_BYTES.min(caps.limits.binding_bytes()) / 4) as usize / config.vocab_size;
    let chunk = most.clamp(1, CHUNK);
    let ring = ring(config, chunk);
    let cache_rows = ring.map_or(capacity, |ring| ring.min(capacity));
    let context =
        Context { caps, config, layout, capacity, chunk, cache, weights, cache_rows, ring };
    let prefill = context.prefill()?.finish(&[]);
    let logits = context.logits()?.finish(&prefill.slots);
    let loss = context.loss()?.finish(&logits.slots);
    let last_row = context.last_row()?.finish(&loss.slots);
    let decode = context.decode()?.finish(&last_row.slots);
    let sample = context.sample()?.finish(&decode.slots);
    let slots = sample.slots.clone();
    let (pack, packed) = context.pack()?;
    Ok(InferencePlans {
        prefill,
        logits,
        loss,
        last_row,
        decode,
        sample,
        pack,
        slots,
        packed,
        chunk,
        cache_rows,
        turns: TURNS,
    })
}

struct Context<'a> {
    caps: &'a Capabilities,
    config: &'a ModelConfig,
    layout: &'a Layout,
    capacity: usize,
    chunk: usize,
    cache: KvCache,
    weights: WeightFormat,
    cache_rows: usize,
    ring: Option<usize>,
}

impl<'a> Context<'a> {
    fn model(&self, phase: Phase, tokens: usize, step: Buffer) -> Model<'a> {
        let builder = Builder::new(self.caps, phase, tokens, step);
        Model {
            config: self.config,
            layout: self.layout,
            builder,
            weights: self.weights,
            mirrored: false,
        }
    }

    /// Packs every matrix that is read packed; gives what that takes.
    fn pack(&self) -> Result<(Plan, Vec<(Buffer, u64)>)> {
        let mut model = self.model(Phase::Prefill, 1, Buffer::Step);
        let mut packed = vec![];
        let of_layers =
            self.layout.layers.iter().flat_map(|l| [l.qkv, l.output, l.gate_up, l.down]);
        for matrix in of_layers.chain([self.layout.lm_head]) {
            let shape = &self.layout.matrices[matrix];
            for (index, part) in shape.parts.iter().enumerate() {
                let Some(slice) = model.packed(matrix, index) else { continue };
                packed.push((slice.buffer, slice.bytes));
                let kernel = k::pack_weights(self.caps, self.weights, part.rows, shape.cols)?;
                let slices = vec![model.part(matrix, index, Buffer::Weights), slice];
                model.builder.dispatch("pack", kernel, slices, 0.0)?;
            }
        }
        Ok((model.builder.finish(&[]), packed))
    }

    /// The attention of batches of up to `tokens` rows over the cache.
    fn shape(&self, tokens: usize) -> AttentionShape {
        AttentionShape { ring: self.ring, ..AttentionShape::of(self.config, tokens) }
    }

    fn hidden(&self, rows: usize) -> Slice {
        Slice::new(Buffer::Hidden, 0, rows as u64 * self.config.hidden_size as u64 * 4)
    }

    fn last_hidden(&self) -> Slice {
        Slice::new(Buffer::LastHidden, 0, self.config.hidden_size as u64 * 4)
    }

    fn logits_slice(&self, rows: usize) -> Slice {
        Slice::new(Buffer::Logits, 0, rows as u64 * self.config.vocab_size as u64 * 4)
    }

    fn table(&self) -> Slice {
        Slice::new(Buffer::RopeTable, 0, self.capacity as u64 * self.config.head_dim as u64 * 4)
    }

    fn cache(&self, shape: &AttentionShape, layer: usize) -> Slice {
        Slice::new(Buffer::Cache(layer), 0, cache_bytes(self.cache, shape, self.cache_rows))
    }

    fn prefill(&self) -> Result<Builder<'a>> {
        let mut model = self.model(Phase::Prefill, self.chunk, Buffer::Step);
        let shape = self.shape(self.chunk);
        let rows = model.builder.all_rows();
        let documents = PromptLayout::new(self.chunk).documents();
        let mut x = model.tensor("embedding", self.config.hidden_size)?;
        model.embed(PromptLayout::new(self.chunk).tokens(), x)?;
        for (layer, matrices) in self.layout.layers.iter().enumerate() {
            let name = |what: &str| format!("layer {layer} {what}");
            let normed = model.tensor("attention norm", self.config.hidden_size)?;
            model.norm(&name("attention norm"), matrices.attention_norm, x, normed)?;
            let qkv = model.tensor("qkv", shape.stride())?;
            model.linear(&name("q, k, v"), matrices.qkv, normed, qkv, None, rows)?;
            model.rope(&name("rope"), qkv, documents, self.table(), true)?;
            let keys = self.append(&mut model, layer, qkv)?;
            let keys = self.expand(&mut model, layer, keys)?;
            let attention = model.tensor("attention output", shape.width())?;
            let lse = model.tensor("logsumexp", shape.heads)?;
            let kernel = k::attention_forward(self.caps, shape, true)?;
            let slices = vec![qkv, keys, documents, attention, lse, model.builder.step()];
            let flops = 4.0 * (self.chunk * self.chunk * shape.width()) as f64;
            model.builder.dispatch(name("attention"), kernel, slices, flops)?;
            let middle = model.tensor("residual", self.config.hidden_size)?;
            model.linear(&name("output"), matrices.output, attention, middle, Some(x), rows)?;
            let normed = model.tensor("mlp norm", self.config.hidden_size)?;
            model.norm(&name("mlp norm"), matrices.mlp_norm, middle, normed)?;
            let gate_up = model.tensor("gate and up", 2 * self.config.intermediate_size)?;
            model.linear(&name("gate, up"), matrices.gate_up, normed, gate_up, None, rows)?;
            let activated = model.activate(&name("activation"), gate_up)?;
            let last = layer + 1 == self.layout.layers.len();
            x = if last {
                self.hidden(self.chunk)
            } else {
                model.tensor("residual", self.config.hidden_size)?
            };
            model.linear(&name("down"), matrices.down, activated, x, Some(middle), rows)?;
        }
        Ok(model.builder)
    }

    fn logits(&self) -> Result<Builder<'a>> {
        let mut model = self.model(Phase::Prefill, self.chunk, Buffer::Step);
        let rows = model.builder.all_rows();
        let normed = model.tensor("final norm", self.config.hidden_size)?;
        model.norm("final norm", self.layout.final_norm, self.hidden(self.chunk), normed)?;
        model.linear(
            "logits",
            self.layout.lm_head,
            normed,
            self.logits_slice(self.chunk),
            None,
            rows,
        )?;
        Ok(model.builder)
    }

    fn loss(&self) -> Result<Builder<'a>> {
        let mut model = self.model(Phase::Forward, self.chunk, Buffer::Step);
        let rows = model.builder.all_rows();
        let targets = PromptLayout::new(self.chunk).targets();
        let losses = Slice::new(Buffer::Losses, 0, self.chunk as u64 * 4);
        let kernel = k::cross_entropy(self.caps, self.config.vocab_size, false)?;
        let range = model.builder.range(rows);
        let slices =
            vec![self.logits_slice(self.chunk), targets, losses, model.builder.step(), range];
        let flops = 6.0 * (self.chunk * self.config.vocab_size) as f64;
        model.builder.dispatch("cross-entropy", kernel, slices, flops)?;
        let kernel = k::loss_sum(self.caps)?;
        let metrics = Slice::new(Buffer::Metrics, 0, METRICS_BYTES);
        let slices = vec![losses, targets, metrics, model.builder.step()];
        model.builder.dispatch("loss sum", kernel, slices, self.chunk as f64)?;
        Ok(model.builder)
    }

    fn last_row(&self) -> Result<Builder<'a>> {
        let mut model = self.model(Phase::Prefill, 1, Buffer::Step);
        let kernel = k::copy_row(self.caps, self.config.hidden_size)?;
        let slices = vec![self.hidden(self.chunk), self.last_hidden(), model.builder.step()];
        model.builder.dispatch("last row", kernel, slices, 0.0)?;
        Ok(model.builder)
    }

    fn decode(&self) -> Result<Builder<'a>> {
        let mut model = self.model(Phase::Decode, 1, Buffer::DecodeStep);
        let mut x = model.tensor("embedding", self.config.hidden_size)?;
        model.embed(Slice::new(Buffer::Token, 0, 4), x)?;
        for (layer, matrices) in self.layout.layers.iter().enumerate() {
            let name = |what: &str| format!("layer {layer} {what}");
            let (query, cache) = self.heads(&mut model, layer, x)?;
            let attention = self.attend(&mut model, &name("attention"), query, cache)?;
            let middle = model.tensor("residual", self.config.hidden_size)?;
            model.matvec(&name("output"), matrices.output, attention, middle, Some(x))?;
            let activated = model.gated_matvec(
                &name("gate, up"),
                matrices.mlp_norm,
                matrices.gate_up,
                middle,
            )?;
            let last = layer + 1 == self.layout.layers.len();
            x = if last {
                self.last_hidden()
            } else {
                model.tensor("residual", self.config.hidden_size)?
            };
            model.matvec(&name("down"), matrices.down, activated, x, Some(middle))?;
        }
        Ok(model.builder)
    }

    /// The newest row's queries, rotated, at the beginning of a row, and the layer's cache with its
    /// keys and values.
    fn heads(&self, model: &mut Model, layer: usize, x: Slice) -> Result<(Slice, Slice)> {
        let shape = self.shape(1);
        let matrices = &self.layout.layers[layer];
        let (norm, matrix) = (matrices.attention_norm, matrices.qkv);
        let label = format!("layer {layer} q, k, v");
        if self.cache == KvCache::F32 && model.fuses_pairs(matrix) {
            let query = model.tensor("query", shape.width())?;
            let cache = self.cache(&shape, layer);
            let slices = [x, query, self.table(), cache];
            model.heads_matvec(&label, shape, [norm, matrix], slices)?;
            return Ok((query, cache));
        }
        let qkv = model.tensor("qkv", shape.stride())?;
        model.normed_matvec(&label, norm, matrix, x, qkv)?;
        let documents = PromptLayout::new(self.chunk).documents();
        model.rope(&format!("layer {layer} rope"), qkv, documents, self.table(), true)?;
        Ok((qkv, self.append(model, layer, qkv)?))
    }

    /// Keys and values of `qkv` into the layer's cache.
    fn append(&self, model: &mut Model, layer: usize, qkv: Slice) -> Result<Slice> {
        let shape = self.shape(model.builder.tokens);
        let cache = self.cache(&shape, layer);
        let kernel = k::cache_append(self.caps, shape, self.cache)?;
        let slices = vec![qkv, cache, model.builder.step()];
        model.builder.dispatch(format!("layer {layer} cache append"), kernel, slices, 0.0)?;
        Ok(cache)
    }

    /// The cache as the kernels of a prefill read it: the rows of a packed one in f32, in a tensor
    /// that the layers share.
    fn expand(&self, model: &mut Model, layer: usize, cache: Slice) -> Result<Slice> {
        if self.cache == KvCache::F32 {
            return Ok(cache);
        }
        let shape = self.shape(model.builder.tokens);
        let elements = self.cache_rows as u64 * shape.cache_stride() as u64;
        let rows = model.builder.tensor("expanded cache", elements)?;
        let kernel = k::cache_expand(self.caps, shape, self.cache)?;
        let slices = vec![rows, cache, model.builder.step()];
        model.builder.dispatch(format!("layer {layer} cache expand"), kernel, slices, 0.0)?;
        Ok(rows)
    }

    /// Attention over the cache of the newest row, which begins with its queries.
    fn attend(&self, model: &mut Model, label: &str, query: Slice, cache: Slice) -> Result<Slice> {
        let shape = self.shape(model.builder.tokens);
        // Of the positions that the model has, not of the capacity: a cache that grows compiles
        // nothing.
        let splits = k::decode_splits(self.caps, shape, self.config.max_position_embeddings, 1)?;
        let kernel = k::attention_decode(self.caps, shape, self.cache, &splits)?;
        let attention = model.tensor("attention output", shape.width())?;
        let flops = 4.0 * (self.cache_rows * shape.width()) as f64;
        if splits.count == 1 {
            let slices = vec![query, cache, attention, model.builder.step()];
            model.builder.dispatch(label, kernel, slices, flops)?;
            return Ok(attention);
        }
        let partials =
            model.builder.tensor("attention partials", splits.partials(&shape) as u64)?;
        let slices = vec![query, cache, partials, model.builder.step()];
        model.builder.dispatch(label, kernel, slices, flops)?;
        let kernel = k::attention_decode_merge(self.caps, shape, &splits)?;
        let slices = vec![partials, attention, model.builder.step()];
        let flops = 2.0 * splits.partials(&shape) as f64;
        model.builder.dispatch(format!("{label} merge"), kernel, slices, flops)?;
        Ok(attention)
    }

    fn sample(&self) -> Result<Builder<'a>> {
        let vocabulary = self.config.vocab_size;
        let mut model = self.model(Phase::Decode, 1, Buffer::DecodeStep);
        let (norm, head) = (self.layout.final_norm, self.layout.lm_head);
        let logits = self.logits_slice(1);
        model.normed_matvec("logits", norm, head, self.last_hidden(), logits)?;
        let kernel = k::sample(self.caps, vocabulary)?;
        let slices = vec![
            logits,
            Slice::new(Buffer::Seen, 0, vocabulary.div_ceil(32) as u64 * 4),
            Slice::new(Buffer::Token, 0, 4),
            Slice::new(Buffer::Drawn, 0, TURNS as u64 * 8),
            model.builder.step(),
            Slice::new(Buffer::Sampling, 0, 32),
        ];
        model.builder.dispatch("sample", kernel, slices, 10.0 * vocabulary as f64)?;
        Ok(model.builder)
    }
}
